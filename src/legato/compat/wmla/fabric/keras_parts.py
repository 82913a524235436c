"""What a Keras program gives to FabricModel, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from legato.core.errors import UsageError


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

    def own(self, thing: Any) -> Any:
        """Return what a name of the program's own stands for; any other name or thing as it is."""
        if isinstance(thing, str) and self.custom_objects is not None:
            return self.custom_objects.get(thing, thing)
        return thing

    def check(self) -> None:
        """Raise UsageError unless loss, optimizer and custom objects are of the kinds that Keras knows."""
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
