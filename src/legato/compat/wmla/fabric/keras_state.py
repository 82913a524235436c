"""The state of a Keras model's training besides its weights: the optimizer's variables. Never communicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from legato.compat.wmla.fabric.keras_variables import copy, view
from legato.core.errors import CheckpointError


class KerasState:
    """The state of an optimizer as the runtime sends and saves it.

    Args:
        optimizer: built.
        on_loaded: called when a state has come; the shadow's weights have come by then.
    """

    def __init__(self, optimizer: Any, on_loaded: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._on_loaded = on_loaded

    def state_dict(self) -> dict[str, Any]:
        """Return the state; tensors are views of what the optimizer has."""
        return {
            "optimizer": [view(variable) for variable in optimizer_variables(self._optimizer)],
            "hyper": {name: float(variable) for name, variable in self._hyper().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state.

        Raises:
            CheckpointError: it is that of another optimizer.
        """
        own = optimizer_variables(self._optimizer)
        if len(own) != len(state["optimizer"]):
            raise CheckpointError(
                f"The state belongs to another optimizer: it has {len(state['optimizer'])} variables, "
                f"{type(self._optimizer).__name__} has {len(own)} here."
            )
        for variable, value in zip(own, state["optimizer"], strict=True):
            variable.assign(copy(value))
        for name, variable in self._hyper().items():
            variable.assign(state["hyper"][name])
        self._on_loaded()

    def _hyper(self) -> dict[str, Any]:
        """Return what an optimizer keeps beside its variables: the learning rate, in Keras 2."""
        known = {id(variable) for variable in optimizer_variables(self._optimizer)}
        found = dict(getattr(self._optimizer, "_hyper", {}))
        rate = getattr(self._optimizer, "_learning_rate", None)
        if rate is not None:
            found["learning_rate"] = rate
        return {
            name: variable
            for name, variable in sorted(found.items())
            if hasattr(variable, "assign") and id(variable) not in known
        }


def optimizer_variables(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer, in their order."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def build_optimizer(optimizer: Any, trainable: Sequence[Any]) -> None:
    """Let an optimizer make its variables, so that they can be sent and received before the first step."""
    if hasattr(optimizer, "build"):
        optimizer.build(list(trainable))
    else:
        optimizer._create_all_weights(list(trainable))
