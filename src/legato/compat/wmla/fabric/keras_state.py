"""The state of a Keras training besides the weights: the optimizer's variables. Never communicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from legato.compat.wmla.fabric.keras_variables import copy, view
from legato.core.errors import CheckpointError


class KerasState:
    """The state of an optimizer, in the form that the runtime sends and saves.

    Args:
        optimizer: its variables exist; see `build_optimizer`.
        on_loaded: called when this worker has loaded a state; the shadow's weights are loaded before.
    """

    def __init__(self, optimizer: Any, on_loaded: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._on_loaded = on_loaded

    def state_dict(self) -> dict[str, Any]:
        """Return the state; its tensors are views of the optimizer's variables."""
        return {
            "optimizer": [view(variable) for variable in optimizer_variables(self._optimizer)],
            "hyper": {name: float(variable) for name, variable in self._hyper().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state.

        Raises:
            CheckpointError: the state belongs to another optimizer.
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
        """Return the hyperparameters that an optimizer keeps in other variables: the learning rate, in Keras 2."""
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
    """Make an optimizer create its variables, so that they can be sent and received before the first step."""
    if hasattr(optimizer, "build"):
        optimizer.build(list(trainable))
    else:
        optimizer._create_all_weights(list(trainable))
