"""Trains a Keras model in an elastic run: checks the program's arguments, runs a turn of the loop, validates and saves.

For each micro-batch it seeds TensorFlow from the runtime's generators, runs a forward and a backward pass in TensorFlow
and copies gradients and changed statistics to the shadow, where the runtime sums them. After a step, every worker
applies the mean gradient with the Keras optimizer. Knows nothing of loggers, epochs and file locations.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from legato.compat.wmla.fabric.keras_data import Batch, as_samples, check_pair, collate, example_of, num_samples_of
from legato.compat.wmla.fabric.keras_metrics import Metrics, default_metrics
from legato.compat.wmla.fabric.keras_passes import Passes
from legato.compat.wmla.fabric.keras_settings import configure_tensorflow
from legato.compat.wmla.fabric.keras_shadow import Shadow, Weight
from legato.compat.wmla.fabric.keras_state import KerasState, build_optimizer
from legato.compat.wmla.fabric.keras_variables import copy, is_keras_2, name_of, view
from legato.compat.wmla.fabric.model_files import file_of_model, write_whole
from legato.compat.wmla.fabric.together import Together
from legato.core.errors import ProgramError, UsageError
from legato.train.data.seeds import untouched
from legato.train.loop.elastic import Run
from legato.train.torch_private import num_changes

_SEED_BITS: Final = 31


class KerasParts(NamedTuple):
    """A program's Keras model and the arguments of ``FabricModel`` that belong to it.

    Args:
        keras: the Keras module that the model is made with; see `keras_of`.
        model: built or not.
        loss: a name, a function of (targets, outputs) or a Keras loss; Legato trains on its mean over the samples.
        optimizer: a name or a Keras optimizer.
        metrics: names, functions of (targets, outputs) or Keras metrics; None: accuracy, if the loss is a
            cross-entropy.
        custom_objects: the program's own objects by the names that it uses for them.
        collate_fn: makes a batch of a list of samples; None: arrays are stacked.
    """

    keras: Any
    model: Any
    loss: Any
    optimizer: Any
    metrics: Sequence[Any] | None = None
    custom_objects: Mapping[str, Any] | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None

    @property
    def num_backwards(self) -> int:
        """Number of backward passes per turn of the loop, as the runtime counts them."""
        return 1

    @property
    def functions(self) -> dict[str, Any]:
        """Empty: Legato does not look for state in the losses and metrics of Keras programs."""
        return {}

    def own(self, thing: Any) -> Any:
        """Return the custom object of a name; return anything else unchanged."""
        if isinstance(thing, str) and self.custom_objects is not None:
            return self.custom_objects.get(thing, thing)
        return thing

    def begin(self, train_set: Any, test_set: Any) -> tuple[Any, Any]:
        """Configure TensorFlow before the run begins, and return the data sets as sets of samples."""
        configure_tensorflow()
        return as_samples(train_set)[0], None if test_set is None else as_samples(test_set)[0]

    def make_engine(self, run: Run, batch_size: int, train_set: Any) -> KerasTraining:
        """Prepare the model for training in a run.

        Args:
            run: trains the model.
            batch_size: not used.
            train_set: of samples; the first sample builds the model.
        """
        del batch_size
        return KerasTraining(run, self, train_set)

    def check(self, **of_torch: Any) -> None:
        """Raise UsageError unless loss, optimizer and custom objects are of kinds that Keras accepts.

        Args:
            of_torch: arguments by name that only PyTorch programs may give.
        """
        for name, value in of_torch.items():
            if value is not None:
                raise UsageError(f"{name} is for PyTorch models; this one is a Keras model. Leave it out.")
        if type(self.model).train_step is not self.keras.Model.train_step:
            raise UsageError(
                f"{type(self.model).__name__} defines train_step(), but FabricModel does not call it: it computes "
                "loss_function from the model's outputs itself. Move the code of train_step() into call(), add_loss() "
                "or the loss function."
            )
        if not isinstance(self.loss, str) and not callable(self.loss):
            raise UsageError(
                f"loss_function={self.loss!r} is not a loss. Give the name of a loss, a function of (targets, "
                "outputs), or a loss of tf.keras.losses."
            )
        if not isinstance(self.optimizer, str) and not hasattr(self.optimizer, "apply_gradients"):
            raise UsageError(
                f"optimizer={self.optimizer!r} is not a Keras optimizer. Give the name of one, or an optimizer of "
                "tf.keras.optimizers."
            )
        if self.custom_objects is not None and not isinstance(self.custom_objects, Mapping):
            raise UsageError(
                f"keras_custom_objects={self.custom_objects!r} is not a dict. Give a dict of names and objects."
            )


class KerasTraining:
    """A Keras model with its optimizer and its metrics, trained in a run.

    Args:
        run: trains the model.
        parts: the model and the program's arguments.
        train_set: of one of the two kinds in `keras_data`; its first sample builds the model and gives the shapes.
    """

    def __init__(self, run: Run, parts: KerasParts, train_set: Any) -> None:
        keras, model = parts.keras, parts.model
        self.model = model
        self._run = run
        self._collate = parts.collate_fn or collate
        self._scope = keras.utils.custom_object_scope(dict(parts.custom_objects or {}))
        samples, _ = as_samples(train_set)
        with untouched():
            example = example_of(samples, self._collate)
        with self._scope:
            model.compile(optimizer=parts.own(parts.optimizer), loss=parts.own(parts.loss))
            self._passes = Passes(model, is_keras_2=is_keras_2(keras))
            inputs, targets = self._passes.to_tensors(example)
            outputs = self._passes.infer(inputs)
            metrics = default_metrics(parts.loss, outputs) if parts.metrics is None else parts.metrics
            self._metrics = Metrics(keras, [parts.own(metric) for metric in metrics], targets, outputs)
        # Fixed here: in Keras, too, freezing or unfreezing a layer has an effect only after another compile().
        self._trainable = tuple(model.trainable_variables)
        self._others = tuple(model.non_trainable_weights)
        self.optimizer = model.optimizer
        self.kept = (model, self.optimizer)
        build_optimizer(self.optimizer, self._trainable)
        self._passes.set_trainable(self._trainable)
        self._apply = self._passes.make_apply(self.optimizer, self._trainable)
        self.shadow = Shadow(_weights(self._trainable), _weights(self._others), self._infer_pair)
        self.state = KerasState(self.optimizer, self._on_loaded)
        self._moving: set[int] = set()
        run.prepare(self.shadow, self.state)

    def batches_of(self, train_set: Any) -> tuple[Any, dict[str, Any]]:
        """Return the data set and the keyword arguments for ``run.batches``.

        Without loader processes: TensorFlow's threads do not survive a fork.
        """
        samples, shuffle = as_samples(train_set)
        return samples, {"shuffle": shuffle, "collate_fn": self._collate, "num_workers": 0}

    def begin_epoch(self) -> None:
        """Copy the weights to the shadow, because callbacks may have changed them since the last step."""
        self.shadow.copy_trainable(map(view, self._trainable))
        self.shadow.copy_changed(map(view, self._others))

    # ------------------------------------------------------------ a turn of the loop

    def train(self, batch: Batch) -> dict[str, float]:
        """Do a turn of the loop: compute a micro-batch, note its metrics, and apply the optimizer at the end of a step.

        Returns:
            Loss and metrics of this micro-batch.
        """
        run = self._run
        inputs, targets = self._passes.to_tensors(check_pair(batch))
        found = self._passes.train(inputs, targets, lambda: random.getrandbits(_SEED_BITS))
        loss = float(found.loss)
        noted = {"loss": loss, **self._metrics.of_batch(targets, found.outputs)}
        run.note(**noted)
        self._hand_over_others()
        gradients = [None if gradient is None else view(gradient) for gradient in found.gradients]
        run.backward(self.shadow.make_loss(loss, gradients))
        if run.stepped:
            self._step()
        self._give_back_others()
        return noted

    def evaluate(
        self, test_set: Any, together: Together, num_loaders: int, on_batch: Callable[[Mapping[str, float]], None]
    ) -> dict[str, float]:
        """Return loss and metrics over a data set: exact, and the same on every worker.

        Args:
            test_set: of one of the two kinds in `keras_data`.
            together: not used.
            num_loaders: not used; see `batches_of`.
            on_batch: receives loss and metrics of each batch that this worker computes.
        """
        del together, num_loaders
        samples, _ = as_samples(test_set)

        def measure(found: Any, targets: Any) -> dict[str, torch.Tensor]:
            inputs, outputs = found
            tensors = self._passes.to_tensors(targets)
            loss = float(self._passes.loss(inputs, tensors, outputs))
            on_batch({"loss": loss, **self._metrics.of_batch(tensors, outputs)})
            return {"loss": torch.tensor(loss, dtype=torch.float64), **self._metrics.parts(num_samples_of(targets))}

        means = self._run.evaluate(self.shadow, samples, measure, collate_fn=self._collate)
        return {"loss": means.pop("loss"), **self._metrics.put_together(means, len(samples))}

    def save(self, directory: Path, label: int | str) -> None:
        """Write the model, its weights and the optimizer to ``model_epoch_LABEL.keras``, completely or not at all."""
        with self._scope:
            write_whole(file_of_model(directory, label, ".keras"), self.model.save, ".keras")

    def export_onnx(self, directory: Path, label: int | str, train_set: Any) -> Path:
        """Write the model in ONNX format, and return the path of the file.

        Raises:
            UsageError: a package that the export needs is missing; the message names it.
        """
        del train_set
        missing = [name for name in ("onnx", "tf2onnx") if importlib.util.find_spec(name) is None]
        if missing or not hasattr(self.model, "export"):
            raise UsageError(
                "Keras 3 exports to ONNX with the packages onnx and tf2onnx. Missing: "
                f"{', '.join(missing) or 'Keras 3'}. Add it: pip install onnx tf2onnx"
            )
        path = file_of_model(directory, label, ".onnx")
        write_whole(path, lambda scratch: self.model.export(str(scratch), format="onnx", verbose=False))
        return path

    # ------------------------------------------------------------ parts

    def _hand_over_others(self) -> None:
        before = [num_changes(buffer) for buffer in self.shadow.others]
        self.shadow.copy_changed(map(view, self._others))
        moved = (num_changes(buffer) != version for buffer, version in zip(self.shadow.others, before, strict=True))
        self._moving.update(index for index, has_moved in enumerate(moved) if has_moved)

    def _give_back_others(self) -> None:
        """Copy statistics from the shadow back to the model; the next micro-batch starts from them."""
        for index in sorted(self._moving):
            self._others[index].assign(copy(self.shadow.others[index]))

    def _step(self) -> None:
        gradients = [None if parameter.grad is None else copy(parameter.grad) for parameter in self.shadow.trainable]
        if all(gradient is None for gradient in gradients):
            raise ProgramError(
                "No weight got a gradient, because the loss does not depend on any weight. Check that the loss "
                "function uses the outputs of the model, and only operations of TensorFlow or Keras."
            )
        self._apply(gradients)
        self.shadow.copy_trainable(map(view, self._trainable))

    def _infer_pair(self, inputs: Any) -> Any:
        tensors = self._passes.to_tensors(inputs)
        return tensors, self._passes.infer(tensors)

    def _on_loaded(self) -> None:
        """Copy the weights, which were loaded together with the state, from the shadow to the model."""
        variables = (*self._trainable, *self._others)
        for variable, tensor in zip(variables, (*self.shadow.trainable, *self.shadow.others), strict=True):
            variable.assign(copy(tensor))
        self._moving = set(range(len(self._others)))


def _weights(variables: Sequence[Any]) -> list[Weight]:
    return [Weight(name_of(variable), view(variable)) for variable in variables]
