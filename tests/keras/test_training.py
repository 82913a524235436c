"""Losses, optimizers, metrics and data of a Keras model alone: what it comes to is what Keras comes to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import legato
from legato.compat.wmla.fabric.keras_training import KerasParts, KerasTraining
from legato.compat.wmla.fabric.keras_variables import keras_of
from legato.compat.wmla.fabric.together import Together
from legato.core.errors import ProgramError, UsageError


class Samples:
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        x = {name: part[index] for name, part in self.x.items()} if isinstance(self.x, Mapping) else self.x[index]
        return x, self.y[index]


def dense(keras: Any, num_outputs: int = 3, activation: str | None = "softmax", **options: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(5, activation="tanh", **options),
            layers.Dense(num_outputs, activation=activation),
        ]
    )


def classes(num_samples: int = 24, num_classes: int = 3) -> tuple[Any, Any]:
    draw = np.random.default_rng(2)
    y = draw.integers(num_classes, size=num_samples)
    return draw.normal(size=(num_samples, 4)).astype("float32") + y[:, None], y


class Trained:
    """A model after some epochs without shuffling."""

    def __init__(
        self, model: Any, data: Any, loss: Any, optimizer: Any, *, num_epochs: int = 2, batch: int = 4, **parts: Any
    ) -> None:
        self.run = legato.elastic(global_batch_size=8, micro_batch_size=batch, seed=1)
        self.data = data
        self.training = KerasTraining(self.run, KerasParts(keras_of(model), model, loss, optimizer, **parts), data)
        self.batches: list[dict[str, float]] = []
        dataset, loading = self.training.batches_of(data)
        for _ in self.run.epochs(num_epochs):
            self.training.begin_epoch()
            for micro_batch in self.run.batches(dataset, **{**loading, "shuffle": False}):
                self.training.train(micro_batch)
        self.metrics = self.training.evaluate(data, Together(self.run), 0, self.batches.append)


def arrays(model: Any) -> list[Any]:
    return [np.asarray(weight) for weight in model.get_weights()]


def check_same(ours: Any, theirs: Any) -> None:
    for mine, want in zip(arrays(ours), arrays(theirs), strict=True):
        np.testing.assert_allclose(mine, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
def test_training_is_that_of_keras(keras: Any, kind: str) -> None:
    x, y = classes(21)
    plain, ours = dense(keras), dense(keras)
    ours.set_weights(plain.get_weights())
    plain.compile(optimizer=getattr(keras.optimizers, kind)(0.02), loss="sparse_categorical_crossentropy")
    plain.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    optimizer = getattr(keras.optimizers, kind)(0.02)
    trained = Trained(ours, Samples(x, y), "sparse_categorical_crossentropy", optimizer)
    # Micro-batches of 4, 4, then 4 and 1: the gradient is the mean over the samples all the same.
    check_same(ours, plain)
    assert trained.metrics["loss"] == pytest.approx(plain.evaluate(x, y, verbose=0), rel=1e-5)


def test_metrics_are_exact_over_all_samples(keras: Any) -> None:
    x, y = classes(21)
    y = np.eye(3, dtype="float32")[y]
    metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.Precision(), "mse", mean_of_first]
    ours = dense(keras)
    trained = Trained(ours, Samples(x, y), keras.losses.CategoricalCrossentropy(), "adam", metrics=metrics)
    again = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.Precision(name="precision"), "mse", mean_of_first]
    ours.compile(loss="categorical_crossentropy", metrics=again)
    want = ours.evaluate(x, y, batch_size=21, verbose=0, return_dict=True)
    assert list(trained.metrics) == ["loss", "accuracy", "auc", "precision", "mse", "mean_of_first"]
    for name, value in trained.metrics.items():
        told = {"mse": "mean_squared_error"}.get(name, name)
        assert value == pytest.approx(want.get(told, want.get(name)), rel=1e-5), name
    assert all(type(value) is float for value in trained.metrics.values())
    assert len(trained.batches) == 6 and set(trained.batches[0]) == set(trained.metrics)


def mean_of_first(targets: Any, outputs: Any) -> Any:
    return outputs[:, 0] + 0.0 * targets[:, 0]


def test_a_metric_that_is_no_sum_is_refused(keras: Any) -> None:
    class Best(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="best")
            self.most = self.add_weight(name="most", initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.most.assign(keras.ops.maximum(self.most, keras.ops.max(y_pred)))

        def result(self) -> Any:
            return self.most

    with pytest.raises(UsageError, match="The variables of the metric best do not start at zero"):
        Trained(dense(keras), Samples(*classes()), "sparse_categorical_crossentropy", "sgd", metrics=[Best()])
    with pytest.raises(UsageError, match="no metric 'acuracy' in Keras"):
        Trained(dense(keras), Samples(*classes()), "sparse_categorical_crossentropy", "sgd", metrics=["acuracy"])


def test_losses_in_all_forms(keras: Any, tf: Any) -> None:
    x, _ = classes()
    data = Samples(x, x[:, 0] * 2)
    found = []
    for loss in ("mse", "mean_squared_error", keras.losses.MeanSquaredError(), squared_difference):
        model = dense(keras, 1, None, kernel_regularizer=keras.regularizers.L2(0.01))
        keras.utils.set_random_seed(3)
        model.set_weights([np.full(weight.shape, 0.1, "float32") for weight in model.get_weights()])
        found.append(Trained(model, data, loss, keras.optimizers.SGD(0.1, momentum=0.9)).metrics)
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-6)
    assert set(found[0]) == {"loss"}


def squared_difference(targets: Any, outputs: Any) -> Any:
    # Keras gives targets the rank of the outputs.
    return (targets - outputs) ** 2


def test_what_is_frozen_stays_and_what_is_embedded_is_trained(keras: Any) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((2,), dtype="int32"),
            layers.Embedding(7, 3),
            layers.Flatten(),
            layers.Dense(4, trainable=False),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    before = arrays(model)
    x = np.arange(16).reshape(8, 2) % 7
    trained = Trained(model, Samples(x, x.sum(1).astype("float32")), "mse", "sgd")
    changed = [not np.array_equal(old, new) for old, new in zip(before, arrays(model), strict=True)]
    # The embedding; kernel and bias of the frozen layer; gamma, beta, mean and variance; kernel and bias.
    assert changed == [True, False, False, True, True, True, True, True, True]
    assert len(trained.training.shadow.trainable) == 5


def test_dicts_as_inputs_scalars_as_targets_and_a_collation(keras: Any) -> None:
    first, second = keras.Input((2,), name="first"), keras.Input((2,), name="second")
    model = keras.Model({"first": first, "second": second}, keras.layers.Dense(1)(keras.layers.Add()([first, second])))
    x, _ = classes()
    data = Samples({"first": x[:, :2], "second": x[:, 2:]}, [float(value) for value in x[:, 0]])
    assert Trained(model, data, "mae", "sgd").metrics["loss"] > 0

    def collate(samples: list[Any]) -> Any:
        x, y = zip(*samples, strict=True)
        return np.stack(x) * 0, np.array(y)

    model = dense(keras, 1, None)
    trained = Trained(model, Samples(x, x[:, 0]), "mse", keras.optimizers.SGD(0.0), collate_fn=collate)
    assert trained.metrics["loss"] == pytest.approx(float(np.mean(x[:, 0].astype("float64") ** 2)), rel=1e-5)


def test_names_of_the_programs_own_are_known(keras: Any, tmp_path: Path) -> None:
    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.factor = self.add_weight(shape=(shape[-1],), initializer="ones", name="factor")

        def call(self, inputs: Any) -> Any:
            return inputs * self.factor

    model = keras.Sequential([keras.Input((4,)), Scale(), keras.layers.Dense(1)])
    own = {"Scale": Scale, "distance": squared_difference}
    x, _ = classes()
    trained = Trained(model, Samples(x, x[:, 0]), "distance", "sgd", custom_objects=own)
    trained.training.save(tmp_path / "train", "final")
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["model_epoch_final.keras"]
    known = {**own, "squared_difference": squared_difference}
    loaded = keras.models.load_model(tmp_path / "train" / "model_epoch_final.keras", custom_objects=known)
    for mine, want in zip(arrays(loaded), arrays(model), strict=True):
        assert np.array_equal(mine, want)


def test_a_model_that_is_not_built_and_draws_by_itself(keras: Any, tf: Any) -> None:
    class Noisy(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Any, training: bool = False) -> Any:
            noise = tf.random.normal(tf.shape(inputs)) if training else 0.0
            return self.dense(inputs + noise)

    x, _ = classes()
    found = []
    for batch in (4, 4):
        keras.utils.set_random_seed(4)
        found.append(Trained(Noisy(), Samples(x, x[:, 0]), "mse", "adam", batch=batch).metrics["loss"])
    assert found[0] == found[1]


def test_a_loss_that_depends_on_nothing_is_reported(keras: Any, tf: Any) -> None:
    with pytest.raises(ProgramError, match="No weight got a gradient"):
        Trained(dense(keras), Samples(*classes()), lambda y, _: tf.cast(y, tf.float32) * 0.0, "sgd")


def test_several_outputs(keras: Any) -> None:
    x, _ = classes()
    image = keras.Input((4,))
    outputs = {"a": keras.layers.Dense(1, name="a")(image), "b": keras.layers.Dense(2, name="b")(image)}
    model = keras.Model(image, outputs)
    targets = [{"a": row[:1], "b": row[:2]} for row in x]
    trained = Trained(model, Samples(x, targets), "mse", keras.optimizers.Adam(0.1), num_epochs=20)
    assert set(trained.metrics) == {"loss"} and trained.metrics["loss"] < 0.5


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(keras: Any, policy: str) -> None:
    x, y = classes()
    keras.mixed_precision.set_dtype_policy(policy)
    try:
        model = dense(keras)
        optimizer = keras.optimizers.Adam(0.05)
        trained = Trained(model, Samples(x, y), "sparse_categorical_crossentropy", optimizer, num_epochs=20)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert trained.metrics["loss"] < 1.0
    scales = "LossScale" in type(trained.training.optimizer).__name__
    assert scales == (policy == "mixed_float16")


def test_what_callbacks_do_to_weights_and_rates_counts(keras: Any) -> None:
    x, y = classes(8)
    model = dense(keras)
    run = legato.elastic(global_batch_size=8, micro_batch_size=4, seed=1)
    optimizer = keras.optimizers.SGD(1.0)
    data = Samples(x, y)
    training = KerasTraining(run, KerasParts(keras, model, "sparse_categorical_crossentropy", optimizer), data)
    dataset, loading = training.batches_of(data)
    for _ in run.epochs(2):
        model.set_weights([np.full_like(weight, 0.25) for weight in model.get_weights()])
        training.optimizer.learning_rate = 0.0
        training.begin_epoch()
        for batch in run.batches(dataset, **loading):
            training.train(batch)
    assert all(parameter.unique().tolist() == [0.25] for parameter in training.shadow.trainable)
    assert all(np.unique(weight).tolist() == [0.25] for weight in model.get_weights())


def test_an_export_without_its_packages_names_them(keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(dense(keras), Samples(*classes()), "sparse_categorical_crossentropy", "sgd")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="Missing: onnx, tf2onnx"):
        trained.training.export_onnx(tmp_path, "final", None)
