"""Where a job stands in its program: counters that travel with the state. Decides nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core import wire


class Cursor(msgspec.Struct):
    """The place of a job between two rounds.

    Args:
        epoch: from 0; equal to the number of epochs once all are done.
        pass_index: how many passes over a data set were completed.
        first_pass: the value of ``pass_index`` when the epoch began.
        first_evaluation: how many evaluations were done then.
        first_log: how often ``run.log`` was called by then.
        step_in_pass: committed steps of the present pass.
        step: committed steps of the job.
        loss: mean loss of the last of them, None if it is not known.
        loss_sum: sum of the losses of all samples of this epoch so far.
        loss_samples: how many samples these are.
        num_rounds: committed rounds of the job.
        logs: what ``run.log`` was given so far, with step and epoch.
        evaluations: results of all evaluations so far.
        ends: how many evaluations were done and logs made when each pass was completed.
    """

    epoch: int = 0
    pass_index: int = 0
    first_pass: int = 0
    first_evaluation: int = 0
    first_log: int = 0
    step_in_pass: int = 0
    step: int = 0
    loss: float | None = None
    loss_sum: float = 0.0
    loss_samples: int = 0
    num_rounds: int = 0
    logs: list[tuple[int, int, dict[str, float]]] = []
    evaluations: list[dict[str, float]] = []
    ends: list[tuple[int, int]] = []

    def end_pass(self) -> None:
        """Take note that a pass is completed, or broken off by the program."""
        self.ends.append((len(self.evaluations), len(self.logs)))
        self.pass_index += 1
        self.step_in_pass = 0

    def skip_pass(self, other: Cursor) -> None:
        """Stand behind a pass that another cursor has completed, with what was evaluated and logged in it."""
        num_evaluations, num_logs = other.ends[self.pass_index]
        self.evaluations, self.logs = other.evaluations[:num_evaluations], other.logs[:num_logs]
        self.pass_index += 1

    def begin_epoch(self) -> None:
        """Take note of where an epoch begins."""
        self.first_pass = self.pass_index
        self.loss_sum, self.loss_samples = 0.0, 0
        self.first_evaluation, self.first_log = len(self.evaluations), len(self.logs)

    def skip_to_epoch_of(self, other: Cursor) -> None:
        """Stand where the epoch of another cursor began, with what was evaluated and logged until then."""
        self.epoch, self.pass_index = other.epoch, other.first_pass
        self.evaluations = other.evaluations[: other.first_evaluation]
        self.logs = other.logs[: other.first_log]
        self.begin_epoch()

    def note_loss(self, loss: float | None, num_samples: int) -> None:
        """Take note of the mean loss of a step that was just committed."""
        self.loss = loss
        if loss is not None:
            self.loss_sum += loss * num_samples
            self.loss_samples += num_samples

    def show_loss_of(self, other: Cursor) -> None:
        """Take over what another cursor knows of the loss."""
        self.loss, self.loss_sum, self.loss_samples = other.loss, other.loss_sum, other.loss_samples

    def is_beyond(self, other: Cursor) -> bool:
        """Tell whether a program that stands here has passed the place of another cursor."""
        mine = (self.epoch, self.pass_index, len(self.evaluations))
        return any(a > b for a, b in zip(mine, (other.epoch, other.pass_index, len(other.evaluations)), strict=True))

    def log(self, values: dict[str, float]) -> wire.Metrics:
        """Take note of metrics, and return how they are told."""
        self.logs.append((self.step, self.epoch, values))
        return self._told(len(self.logs) - 1)

    def past(self, num_told: int, *, num_samples: int) -> wire.Progress:
        """Return a report of all steps but the first ``num_told``: of a driver's ledger none may be missing."""
        return wire.Progress(
            first_step=num_told + 1,
            last_step=self.step,
            epoch=self.epoch,
            loss=self.loss,
            num_samples=num_samples,
            num_steps=None,
            num_epochs=None,
        )

    def all_metrics(self) -> list[wire.Metrics]:
        """Return all metrics so far; a driver that knows them already takes no note."""
        return [self._told(index) for index in range(len(self.logs))]

    def _told(self, index: int) -> wire.Metrics:
        step, epoch, values = self.logs[index]
        return wire.Metrics(index=index, step=step, epoch=epoch, values=values)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Cursor:
        """Undo `to_plain`."""
        return msgspec.convert(plain, Cursor)
