"""Seconds of slots that were due to a job, and that it had. Pure; kept in the loop's memory only."""

from __future__ import annotations

import msgspec

from legato.policy.snapshot import Decision


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one job.

    Args:
        due: slots that are due by the last decision.
        due_slot_s: seconds of slots that were due so far.
        served_slot_s: seconds of slots that it had.
        behind: value of the last decision, which is the policy's next input.
        counted_at: until when time is counted. None: counting has not begun.
    """

    due: float = 0.0
    due_slot_s: float = 0.0
    served_slot_s: float = 0.0
    behind: int = 0
    counted_at: float | None = None

    def after(self, decision: Decision) -> Account:
        """Return the account after a decision."""
        return msgspec.structs.replace(self, due=decision.due, behind=decision.behind)

    def until(self, now: float, num_slots: int, *, goes_on: bool = True) -> Account:
        """Return the account after some time with so many slots.

        Args:
            now: the present time.
            num_slots: that it had.
            goes_on: False: the job wants no slots for now, and none are due to it.

        >>> Account(due=2.0, counted_at=10.0).until(13.0, 1).due_slot_s
        6.0
        """
        elapsed_s = 0.0 if self.counted_at is None else max(now - self.counted_at, 0.0)
        return msgspec.structs.replace(
            self,
            due=self.due if goes_on else 0.0,
            due_slot_s=self.due_slot_s + self.due * elapsed_s,
            served_slot_s=self.served_slot_s + num_slots * elapsed_s,
            counted_at=now,
        )
