"""What a LightningModule and callbacks keep in plain attributes: a part of the job's state, watched in a micro-batch.

Only `legato.integrations.lightning` uses this module.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback
from torchmetrics import Metric

from legato.core.errors import ProgramError
from legato.integrations.kept_attributes import KeptAttributes, Root, sum_of, text_of


class Attributes(KeptAttributes):
    """The attributes that have changed since training began, of the module, its parts, metrics, and callbacks.

    Args:
        module: of the training.
        callbacks: of the trainer; those with a ``state_dict`` of their own, and Lightning's, are left out.
    """

    def __init__(self, module: torch.nn.Module, callbacks: list[Any]) -> None:
        self._module = module
        self._of_lightning = frozenset(vars(LightningModule()))
        self._callbacks = [
            Root(f"callback {index} {type(callback).__name__}", callback)
            for index, callback in enumerate(callbacks)
            if not type(callback).__module__.startswith("lightning.")
            and type(callback).state_dict is Callback.state_dict
        ]
        self._metrics = {name for name, part in module.named_modules() if isinstance(part, Metric)}
        self._compared: set[str] = set()
        super().__init__(module, lambda: (*self._of_module(), *self._callbacks), (Callback,))

    def _of_module(self) -> Iterator[Root]:
        return (Root(path, part, self._of_lightning) for path, part in self._module.named_modules())

    # ------------------------------------------------------------ in a micro-batch

    def take(self) -> dict[str, Any]:
        """Return a sum of each attribute of the module, and the versions of its parameters."""
        found: dict[str, Any] = {
            name: sum_of(owner[key]) for name, (owner, key) in self.found(self._of_module()).items()
        }
        for name, parameter in self._module.named_parameters():
            found[f"{name} (a parameter)"] = (id(parameter), parameter.data_ptr(), parameter._version)
        return found

    def started(self, before: dict[str, Any]) -> dict[str, Any]:
        """Note what on_train_batch_start has changed: the agreement check compares it. Return a new sketch."""
        now = self.take()
        self._compared |= {name for name in now if before.get(name) != now[name]}
        return now

    def check(self, before: dict[str, Any]) -> None:
        """Raise ProgramError if the module has changed since a sketch was taken."""
        now = self.take()
        changed = sorted(
            name
            for name in before.keys() | now.keys()
            if name not in before or name not in now or before[name] != now[name]
        )
        if not changed:
            return
        owner, _, name = changed[0].rpartition("|")
        shown = f"{owner}.{name}" if owner else name
        what = (
            f"updates the metric self.{owner}. Compute the number by torchmetrics.functional, and log it with self.log"
            if owner in self._metrics
            else f"changes self.{shown}. Log numbers with self.log, change what belongs to a step in "
            "on_train_batch_end, and collect outputs in validation_step. If it belongs to a micro-batch, such as a "
            "running mean, make it a buffer (register_buffer)"
        )
        raise ProgramError(
            f"training_step {what}: a worker computes only some micro-batches of a step, and the others would not have "
            "this change."
        )

    # ------------------------------------------------------------ as a part of the state

    def state_dict(self) -> dict[str, Any]:
        """Return what has changed since training began."""
        found = self.found()
        told = [f"{name}={text_of(found[name])}" for name in sorted(self._compared & found.keys())]
        return {
            **super().state_dict(),
            "compared": sorted(self._compared),
            # Only tensors are compared among workers.
            "sum": torch.tensor(zlib.crc32("\n".join(told).encode())),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what has changed, in place where that is possible."""
        self._compared = set(state["compared"])
        super().load_state_dict(state)
