"""Where a job stands in its program: counters that travel with the state. Decides nothing."""

from __future__ import annotations

from typing import Any

import msgspec


class Cursor(msgspec.Struct):
    """The place of a job between two rounds.

    Args:
        epoch: from 0; equal to the number of epochs once all are done.
        pass_index: how many passes over a data set were completed.
        first_pass: the value of ``pass_index`` when the epoch began.
        step_in_pass: committed steps of the present pass.
        step: committed steps of the job.
        loss: mean loss of the last of them, None if it is not known.
        num_rounds: committed rounds of the job.
        num_logs: calls of ``run.log`` so far.
        evaluations: results of all evaluations so far.
    """

    epoch: int = 0
    pass_index: int = 0
    first_pass: int = 0
    step_in_pass: int = 0
    step: int = 0
    loss: float | None = None
    num_rounds: int = 0
    num_logs: int = 0
    evaluations: list[dict[str, float]] = []

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Cursor:
        """Undo `to_plain`."""
        return msgspec.convert(plain, Cursor)
