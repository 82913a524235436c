"""The position of a job in its program: counters that are part of the state. Decides nothing.

A cursor stays small however long the training lasts. It keeps only the results that the program of a joining worker
asks for on its way: those from before the loop over epochs and from the present epoch. Of the metrics it keeps those
that the driver may not have. Without a loop over epochs such a program asks for all results, so all are kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core import wire
from legato.system.decoding import convert


class Cursor(msgspec.Struct):
    """The place of a job between two rounds.

    Args:
        epoch: from 0; equal to the number of epochs once all are done.
        is_over: the loop over epochs is over, and its last checkpoint is written.
        pass_index: number of completed passes through a data set.
        num_evaluations: how many evaluations were done.
        num_logs: how often ``run.log`` was called.
        first_pass: the value of ``pass_index`` when the epoch began.
        first_evaluation: the value of ``num_evaluations`` when the epoch began.
        first_log: the value of ``num_logs`` when the epoch began.
        step_in_pass: committed steps of the present pass.
        step: committed steps of the job.
        last_epoch: epoch of the last committed step, from 0; it differs from ``epoch`` if a pass goes through several
            epochs.
        loss: mean loss of the last committed step, None if it is not known.
        loss_sum: sum of the losses of all samples of this epoch so far.
        loss_samples: number of samples in ``loss_sum``.
        notes: the numbers noted in the turns of the last committed step, by name.
        num_rounds: committed rounds of the job.
        differed_step: the step after which the result was first found to depend on the workers; None: never.
        evaluations: the kept results, by the number of the evaluation.
        ends: for each kept pass: how many evaluations were done and logs made when the pass was completed.
        logs: the kept metrics of calls of ``run.log``, with step and epoch.
    """

    epoch: int = 0
    is_over: bool = False
    pass_index: int = 0
    num_evaluations: int = 0
    num_logs: int = 0
    first_pass: int = 0
    first_evaluation: int = 0
    first_log: int = 0
    step_in_pass: int = 0
    step: int = 0
    last_epoch: int = 0
    loss: float | None = None
    loss_sum: float = 0.0
    loss_samples: int = 0
    notes: dict[str, tuple[float, ...]] = {}
    num_rounds: int = 0
    differed_step: int | None = None
    evaluations: dict[int, dict[str, float]] = {}
    ends: dict[int, tuple[int, int]] = {}
    logs: list[tuple[int, int, dict[str, float]]] = []

    # ------------------------------------------------------------ passes and epochs

    def end_pass(self) -> None:
        """Record that a pass is completed, or that the program left it early."""
        self.ends[self.pass_index] = (self.num_evaluations, self.num_logs)
        self.pass_index += 1
        self.step_in_pass = 0

    def skip_pass(self, other: Cursor) -> None:
        """Move to the end of a pass that another cursor has completed, and skip its evaluations and logs."""
        self.num_evaluations, self.num_logs = other.ends[self.pass_index]
        self.pass_index += 1

    def begin_loop(self) -> None:
        """Record that the loop over epochs begins here, with an epoch."""
        self.first_pass, self.first_evaluation, self.first_log = self.pass_index, self.num_evaluations, self.num_logs
        self.loss_sum, self.loss_samples = 0.0, 0

    def next_epoch(self) -> None:
        """Record that an epoch is over and the next one begins here."""
        self.epoch += 1
        self.ends = {index: end for index, end in self.ends.items() if index < self.first_pass}
        self.evaluations = {index: found for index, found in self.evaluations.items() if index < self.first_evaluation}
        self.begin_loop()

    def end_loop(self) -> None:
        """Record that the loop over epochs is over, and that its last checkpoint is written."""
        self.is_over = True

    def skip_to_epoch_of(self, other: Cursor) -> None:
        """Move to the place where the epoch of another cursor began."""
        self.epoch, self.pass_index, self.num_evaluations = other.epoch, other.first_pass, other.first_evaluation
        # If the job begins here, the other cursor does not have the metrics that were logged before its loop.
        self.num_logs = max(self.num_logs, other.first_log)
        self.begin_loop()

    def is_beyond(self, other: Cursor) -> bool:
        """Return whether this cursor is past the place of another cursor."""
        mine = (self.epoch, self.is_over, self.pass_index, self.num_evaluations)
        theirs = (other.epoch, other.is_over, other.pass_index, other.num_evaluations)
        return any(a > b for a, b in zip(mine, theirs, strict=True))

    # ------------------------------------------------------------ losses and evaluations

    def commit_step(
        self, last_epoch: int, loss: float | None, num_samples: int, notes: dict[str, tuple[float, ...]]
    ) -> None:
        """Record that a step is committed.

        Args:
            last_epoch: epoch of the step, from 0.
            loss: mean loss of the step, None if it is not known.
            num_samples: number of samples in the step.
            notes: the numbers noted in the turns of the step, by name.
        """
        self.step += 1
        self.step_in_pass += 1
        self.last_epoch, self.loss, self.notes = last_epoch, loss, notes
        if loss is not None:
            self.loss_sum += loss * num_samples
            self.loss_samples += num_samples

    def show_result_of(self, other: Cursor) -> None:
        """Copy the losses and the last step's results from another cursor."""
        self.loss, self.loss_sum, self.loss_samples = other.loss, other.loss_sum, other.loss_samples
        self.notes, self.last_epoch = other.notes, other.last_epoch

    def note_rounds(self, num_rounds: int) -> None:
        """Record how many rounds of the job are committed."""
        self.num_rounds = num_rounds

    def note_difference(self, step: int | None) -> None:
        """Record the step after which the result was first found to depend on the workers; None: never."""
        self.differed_step = step

    def note_evaluation(self, result: dict[str, float]) -> None:
        """Record the result of an evaluation."""
        self.evaluations[self.num_evaluations] = result
        self.num_evaluations += 1

    def skip_evaluation(self, other: Cursor) -> dict[str, float]:
        """Take the result of the next evaluation from another cursor, which has kept it."""
        self.num_evaluations += 1
        return other.evaluations[self.num_evaluations - 1]

    # ------------------------------------------------------------ messages to the driver

    def past(self, num_reported: int, *, num_samples: int, resumed: bool = False) -> wire.Progress:
        """Return a report of all steps after the first ``num_reported``, so that the driver's ledger has every step."""
        return wire.Progress(
            first_step=num_reported + 1,
            last_step=self.step,
            epoch=self.last_epoch,
            loss=self.loss,
            num_samples=num_samples,
            num_steps=None,
            num_epochs=None,
            resumed=resumed,
            differed_step=self.differed_step,
        )

    def log(self, values: dict[str, float]) -> wire.Metrics:
        """Record metrics, and return the message that reports them."""
        self.logs.append((self.step, self.epoch, values))
        self.num_logs += 1
        return wire.Metrics(index=self.num_logs - 1, step=self.step, epoch=self.epoch, values=values)

    def skip_log(self) -> None:
        """Count a call of ``run.log`` whose metrics the job has already."""
        self.num_logs += 1

    def kept_metrics(self) -> list[wire.Metrics]:
        """Return the metrics that are kept."""
        first = self.num_logs - len(self.logs)
        return [
            wire.Metrics(index=index, step=step, epoch=epoch, values=values)
            for index, (step, epoch, values) in enumerate(self.logs, first)
        ]

    def forget_metrics(self, num_known: int) -> None:
        """Forget the metrics of the first calls of ``run.log``, up to the given number."""
        del self.logs[: max(num_known - (self.num_logs - len(self.logs)), 0)]

    # ------------------------------------------------------------ plain values

    def to_plain(self) -> dict[str, Any]:
        """Return the cursor as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Cursor:
        """Undo `to_plain`."""
        return convert({"last_epoch": plain["epoch"], **plain}, Cursor)
