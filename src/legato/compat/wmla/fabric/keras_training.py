"""Trains a Keras model in an elastic run: the program's arguments, a turn of the loop, the state besides weights.

Every micro-batch: random numbers from the runtime's generators, forward and backward pass in TensorFlow, gradients and
moved statistics to the shadow, through which the runtime sums them. After the step the optimizer of Keras acts on the
mean gradient, on every worker alike. Knows nothing of loggers, epochs and files' places.
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
from legato.compat.wmla.fabric.keras_settings import settle
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
    """What a program gave of its model.

    Args:
        keras: that the model is made with; see `keras_of`.
        model: built or not.
        loss: a name, a function of (targets, outputs) or a loss of Keras: the mean over samples counts.
        optimizer: a name or an optimizer of Keras.
        metrics: names, functions of (targets, outputs) or metrics of Keras; None: accuracy, if the loss is one of a
            classifier.
        custom_objects: what names of the program's own stand for.
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
        """Backward passes per turn of the loop, as the runtime counts them."""
        return 1

    @property
    def functions(self) -> dict[str, Any]:
        """None: TensorFlow traces losses and metrics once, and what these remember it keeps in variables."""
        return {}

    def own(self, thing: Any) -> Any:
        """Return what a name of the program's own stands for; any other name or thing as it is."""
        if isinstance(thing, str) and self.custom_objects is not None:
            return self.custom_objects.get(thing, thing)
        return thing

    def begin(self, train_set: Any, test_set: Any) -> tuple[Any, Any]:
        """Set TensorFlow up, before the run begins. Returns the data sets as sets of samples."""
        settle()
        return as_samples(train_set)[0], None if test_set is None else as_samples(test_set)[0]

    def make_engine(self, run: Run, batch_size: int, train_set: Any) -> KerasTraining:
        """Put the model in the care of a run.

        Args:
            run: that trains it.
            batch_size: not needed.
            train_set: of samples; the first one builds the model.
        """
        del batch_size
        return KerasTraining(run, self, train_set)

    def check(self, **of_torch: Any) -> None:
        """Raise UsageError unless loss, optimizer and custom objects are of the kinds that Keras knows.

        Args:
            of_torch: arguments that only PyTorch programs have, by name.
        """
        for name, value in of_torch.items():
            if value is not None:
                raise UsageError(f"{name} is for PyTorch models; this one is a Keras model. Leave it out.")
        if type(self.model).train_step is not self.keras.Model.train_step:
            raise UsageError(
                f"{type(self.model).__name__} has a train_step() of its own, which would not be called: FabricModel "
                "computes loss_function of the model's outputs itself. Move what it does into call(), add_loss() or "
                "the loss function."
            )
        if not isinstance(self.loss, str) and not callable(self.loss):
            raise UsageError(
                f"loss_function={self.loss!r} is no loss. Give the name of one, a function of (targets, outputs), or "
                "one of tf.keras.losses."
            )
        if not isinstance(self.optimizer, str) and not hasattr(self.optimizer, "apply_gradients"):
            raise UsageError(
                f"optimizer={self.optimizer!r} is no optimizer of Keras. Give the name of one, or one of "
                "tf.keras.optimizers."
            )
        if self.custom_objects is not None and not isinstance(self.custom_objects, Mapping):
            raise UsageError(
                f"keras_custom_objects={self.custom_objects!r} is no dict. Give one of names and what they stand for."
            )


class KerasTraining:
    """A Keras model, its optimizer and its metrics in the care of a run.

    Args:
        run: that trains it.
        parts: what the program gave.
        train_set: in one of the two forms of `keras_data`; its first sample builds the model and tells shapes.
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
        # Settled here: a layer that is frozen or thawed later needs a new compile() in Keras, too.
        self._trainable = tuple(model.trainable_variables)
        self._others = tuple(model.non_trainable_weights)
        self.optimizer = model.optimizer
        self.kept = (model, self.optimizer)
        build_optimizer(self.optimizer, self._trainable)
        self._passes.settle(self._trainable)
        self._apply = self._passes.make_apply(self.optimizer, self._trainable)
        self.shadow = Shadow(_weights(self._trainable), _weights(self._others), self._infer_pair)
        self.state = KerasState(self.optimizer, self._on_loaded)
        self._moving: set[int] = set()
        run.prepare(self.shadow, self.state)

    def batches_of(self, train_set: Any) -> tuple[Any, dict[str, Any]]:
        """Return the data set and the keyword arguments for ``run.batches``.

        Samples are read in this process: TensorFlow's threads do not survive a fork.
        """
        samples, shuffle = as_samples(train_set)
        return samples, {"shuffle": shuffle, "collate_fn": self._collate, "num_workers": 0}

    def begin_epoch(self) -> None:
        """Take over what the program itself did to the weights since the last step, on every worker alike."""
        self.shadow.take(map(view, self._trainable))
        self.shadow.take_moved(map(view, self._others))

    # ------------------------------------------------------------ a turn of the loop

    def train(self, batch: Batch) -> dict[str, float]:
        """Do what a turn of the loop does: compute, note the metrics, and let the optimizer act if it completes a step.

        Returns:
            What it noted: loss and metrics of this micro-batch.
        """
        run = self._run
        inputs, targets = self._passes.to_tensors(check_pair(batch))
        found = self._passes.train(inputs, targets, lambda: random.getrandbits(_SEED_BITS))
        loss = float(found.loss)
        noted = {"loss": loss, **self._metrics.of_batch(targets, found.outputs)}
        run.note(**noted)
        self._hand_over_others()
        gradients = [None if gradient is None else view(gradient) for gradient in found.gradients]
        run.backward(self.shadow.hand_over(loss, gradients))
        if run.stepped:
            self._step()
        self._give_back_others()
        return noted

    def evaluate(
        self, test_set: Any, together: Together, num_loaders: int, on_batch: Callable[[Mapping[str, float]], None]
    ) -> dict[str, float]:
        """Return loss and metrics over a data set, exact, the same on every worker.

        Args:
            test_set: in one of the two forms of `keras_data`.
            together: not needed.
            num_loaders: likewise; see `batches_of`.
            on_batch: told of each batch that this worker computes.
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
        """Write the model, its weights and the optimizer to ``model_epoch_LABEL.keras``, whole or not at all."""
        with self._scope:
            write_whole(file_of_model(directory, label, ".keras"), self.model.save, ".keras")

    def export_onnx(self, directory: Path, label: int | str, train_set: Any) -> Path:
        """Write the model in ONNX format, and return where.

        Raises:
            UsageError: a package for it is missing; the message names it.
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
        self.shadow.take_moved(map(view, self._others))
        moved = (num_changes(buffer) != version for buffer, version in zip(self.shadow.others, before, strict=True))
        self._moving.update(index for index, has_moved in enumerate(moved) if has_moved)

    def _give_back_others(self) -> None:
        """Give the model the statistics that the next micro-batch starts from."""
        for index in sorted(self._moving):
            self._others[index].assign(copy(self.shadow.others[index]))

    def _step(self) -> None:
        gradients = [None if parameter.grad is None else copy(parameter.grad) for parameter in self.shadow.trainable]
        if all(gradient is None for gradient in gradients):
            raise ProgramError(
                "No weight got a gradient: the loss does not depend on any of them. Check that the loss function uses "
                "the outputs of the model, and only operations of TensorFlow or Keras."
            )
        self._apply(gradients)
        self.shadow.take(map(view, self._trainable))

    def _infer_pair(self, inputs: Any) -> Any:
        tensors = self._passes.to_tensors(inputs)
        return tensors, self._passes.infer(tensors)

    def _on_loaded(self) -> None:
        """Give the model the weights that have come with the state."""
        variables = (*self._trainable, *self._others)
        for variable, tensor in zip(variables, (*self.shadow.trainable, *self.shadow.others), strict=True):
            variable.assign(copy(tensor))
        self._moving = set(range(len(self._others)))


def _weights(variables: Sequence[Any]) -> list[Weight]:
    return [Weight(name_of(variable), view(variable)) for variable in variables]
