"""Convolution, batch-norm, dropout, Adam, a small last batch, augmentation, validation with several metrics; V = 8.

The data come in both forms: from an iterator of Keras, whose transformations draw, or as samples that draw.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from legato.compat.wmla.fabric.keras_settings import configure_tensorflow, environment_for_tensorflow

for name, value in environment_for_tensorflow(1).items():
    os.environ.setdefault(name, value)

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "programs"))
from common import mark, pace, pace_evaluation, tell

import legato
from legato.compat.wmla.fabric.keras_training import KerasParts, KerasTraining
from legato.compat.wmla.fabric.keras_variables import keras_of
from legato.compat.wmla.fabric.together import Together
from legato.train.data.seeds import seed_job

LAYERS = tf.keras.layers


class Samples:
    """Pairs whose inputs are dicts; every reading of one is different."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Any:
        noise = np.random.rand(*self._x[index].shape).astype("float32")
        return {"image": self._x[index] + 0.1 * noise}, self._y[index]


def read_digits(num_samples: int, start: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(start)
    y = draw.integers(4, size=num_samples)
    x = draw.random((num_samples, 8, 8, 1), dtype="float32") + y[:, None, None, None].astype("float32") / 2
    return x, np.eye(4, dtype="float32")[y]


def make_model() -> Any:
    image = tf.keras.Input((8, 8, 1), name="image")
    hidden = LAYERS.Conv2D(4, 3, padding="same", activation="relu")(image)
    hidden = LAYERS.BatchNormalization()(hidden)
    hidden = LAYERS.Flatten()(LAYERS.MaxPooling2D()(hidden))
    hidden = LAYERS.Dropout(0.3)(LAYERS.Dense(16, activation="relu")(hidden))
    return tf.keras.Model(image, LAYERS.Dense(4, activation="softmax")(hidden))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--form", choices=["flow", "samples"], default="flow")
    parser.add_argument("--optimizer", default="Adam")
    args = parser.parse_args()
    seed_job(3)
    model = make_model()
    train_set: Any = Samples(*read_digits(53, 1))
    test_set: Any = Samples(*read_digits(21, 2))
    if args.form == "flow":
        images = tf.keras.preprocessing.image.ImageDataGenerator(width_shift_range=0.1, horizontal_flip=True)
        train_set = images.flow(*read_digits(53, 1), batch_size=7)
    kind = tf.keras.optimizers
    for part in args.optimizer.split("."):
        kind = getattr(kind, part)
    optimizer = kind(0.01)
    configure_tensorflow()
    run = legato.elastic(global_batch_size=16, micro_batch_size=2, seed=1)
    metrics = ["accuracy", tf.keras.metrics.AUC(name="auc"), tf.keras.metrics.Precision(name="precision")]
    parts = KerasParts(keras_of(model), model, "categorical_crossentropy", optimizer, metrics)
    training = KerasTraining(run, parts, train_set)
    together = Together(run)
    for epoch in run.epochs(args.epochs):
        dataset, loading = training.batches_of(train_set)
        training.begin_epoch()
        for batch in run.batches(dataset, **loading):
            pace(run)
            training.train(batch)
            if run.stepped:
                run.log(accuracy=float(np.mean(run.notes["accuracy"])))
        mark(f"end-{epoch}")
        run.log(**training.evaluate(test_set, together, 0, lambda _: pace_evaluation()))
    tell(run, training.shadow, training.state)


if __name__ == "__main__":
    main()
