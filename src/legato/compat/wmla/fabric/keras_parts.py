"""What a Keras program gives to FabricModel, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from legato.compat.wmla.fabric.keras_data import as_samples
from legato.compat.wmla.fabric.keras_settings import settle
from legato.core.errors import UsageError
from legato.train.loop.elastic import Run

if TYPE_CHECKING:
    from legato.compat.wmla.fabric.keras_training import KerasTraining


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
        from legato.compat.wmla.fabric.keras_training import KerasTraining

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
