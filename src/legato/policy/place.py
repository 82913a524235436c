"""Chooses slots: a job keeps its slots, grows on the same nodes, and otherwise uses as few nodes as possible.

One node before two: of the nodes on which all new slots of a job fit, it gets the one with the fewest free slots, so
that the others stay free for larger jobs (best fit). If it fits on none, it fills the nodes with the most free slots
first. It gives slots up on nodes where it has fewest. No job is moved only for a better placement, but one moves if
another can use no other slots than its own, as `moves` plans. A worker with several GPUs has all of them on one node.
"""

from __future__ import annotations

from collections.abc import Sequence

from legato.policy.bottlenecks import explain_left
from legato.policy.causes import ids, names
from legato.policy.claims import Claim, SortedSnapshot, Worker
from legato.policy.free_slots import FreeSlots
from legato.policy.moves import Plan, keep_workers, sort_by_difficulty, split
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size
from legato.policy.snapshot import Slot
from legato.policy.steadiness import find_cooled_at


def place(pool: SortedSnapshot, plan: Plan, rules: Rules) -> list[float]:
    """Assign or remove slots of every claim until it has as many as its size, or as many as fit.

    Args:
        pool: with sizes set. Claims get their slots; the size of a claim whose slots do not fit becomes smaller.
        plan: of the slots in the end.
        rules: the settings of the policy.

    Returns:
        The times until which jobs that would move wait.
    """
    for claim in pool.claims:
        if len(claim.slots) > claim.size:
            kept = keep_workers(claim, claim.size, _Rank(claim, plan) if plan.owners else lambda _: 0)
            claim.slots = [slot for worker in kept for slot in worker]
    placing = _Placing(pool, plan, rules)
    placing.give(sort_by_difficulty(claim for claim in pool.claims if claim.size > len(claim.slots)))
    return placing.waits


class _Rank:
    """Ranks the workers of a claim that shrinks: it gives up last those that it would keep in the end."""

    def __init__(self, claim: Claim, plan: Plan) -> None:
        self._kept = {slot.id for slot in plan.find_slots(claim)}
        self._plan = plan

    def __call__(self, worker: Worker) -> int:
        if worker[0].id in self._kept:
            return 0
        return 2 if any(slot.id in self._plan.owners for slot in worker) else 1


class _Placing:
    """Gives free slots to claims, and moves other claims out of slots that only they can use.

    Attributes:
        waits: the times until which jobs that would move wait.
    """

    def __init__(self, pool: SortedSnapshot, plan: Plan, rules: Rules) -> None:
        self.waits: list[float] = []
        self._plan = plan
        self._rules = rules
        self._now = pool.now
        owners = plan.owners
        kept = [slot for slot in pool.free if slot.id in owners] if owners else []
        self._was_free = {slot.id for slot in kept}
        self._kept = FreeSlots(kept, pool.nodes)
        self._free = FreeSlots((slot for slot in pool.free if slot.id not in self._was_free), pool.nodes)
        self._holders: dict[str, Claim] = {}
        if owners:
            self._holders = {slot.id: claim for claim in pool.claims for slot in claim.slots if slot.id in owners}
        self._asked: set[str] = set()

    def give(self, claims: Sequence[Claim]) -> None:
        """Give claims the slots that they have less than their size, as far as they fit."""
        planned = {claim.job.id: self._take_planned(claim, claim.size) for claim in claims} if self._plan.owners else {}
        missing = []
        for claim in claims:
            taken = planned.get(claim.job.id, [])
            number = claim.size - len(claim.slots)
            if len(taken) < number and not self._free.is_empty:
                taken += self._free.take(number - len(taken), [*claim.slots, *taken], claim.job)
            if len(taken) < number and not self._kept.is_empty:
                taken += self._borrow(claim, number - len(taken), [*claim.slots, *taken])
            if len(taken) < number:
                missing.append((claim, number - len(taken)))
            self._give(claim, taken)
        for claim, number in missing:
            self._ask(claim, number, is_urgent=claim.held < claim.lo)

    def _borrow(self, claim: Claim, number: int, beside: list[Slot]) -> list[Slot]:
        """Take free slots that were planned for others.

        A static job never leaves slots again. So it takes none of a claim that comes before it, which could not be
        placed then, and waits for its own ones instead.
        """
        owners = self._plan.owners
        before = [] if claim.job.elastic else [slot for slot in self._kept if owners[slot.id].order < claim.order]
        self._kept.remove(before)
        taken = self._kept.take(number, beside, claim.job)
        self._kept.give(before)
        return taken

    def _give(self, claim: Claim, taken: list[Slot]) -> None:
        """Give a claim as many of these slots as it can use."""
        held, each = len(claim.slots), claim.job.gpus_per_worker
        if held + len(taken) < claim.size:
            claim.unplaced = True
            claim.limit = explain_left(claim.job, self._free)
            claim.size = max(fit_size(claim.job, held + len(taken)), held)
            del taken[claim.size - held :]
        if each > 1:
            claim.new_workers += tuple(split(taken, each))
        claim.slots += taken

    def _take_planned(self, claim: Claim, size: int) -> list[Slot]:
        """Take whole workers that were planned for a claim and that are free now, until it has its size."""
        taken: list[Slot] = []
        for worker in self._list_new(claim):
            if len(claim.slots) + len(taken) + len(worker) > size:
                break
            if self._kept.has(worker):
                self._kept.remove(worker)
                taken += worker
        return taken

    def _list_new(self, claim: Claim) -> list[Worker]:
        """Return the workers that a claim would have in the end and has not yet."""
        has = {slot.id for slot in claim.slots}
        return [worker for worker in self._plan.find_workers(claim) if worker[0].id not in has]

    def _ask(self, claim: Claim, number: int, *, is_urgent: bool) -> None:
        """Let other claims leave so many slots that were planned for a claim."""
        if claim.job.id in self._asked or not self._plan.owners:
            return
        self._asked.add(claim.job.id)
        asked: list[Claim] = []
        for worker in self._list_new(claim):
            if number <= 0:
                break
            if self._was_free.issuperset(slot.id for slot in worker):
                continue
            number -= len(worker)
            for slot in worker:
                holder = self._holders.get(slot.id)
                if holder is not None and slot in holder.slots:
                    self._move(holder, slot, claim, is_urgent=is_urgent)
                    asked.append(holder)
        if asked and claim.unplaced:
            unique = list({holder.job.id: holder for holder in asked}.values())
            claim.limit = f"{names(unique, len(unique))} first {'moves' if len(unique) == 1 else 'move'} to other slots"
            claim.limit_because = ids(unique)

    def _move(self, holder: Claim, slot: Slot, claim: Claim, *, is_urgent: bool) -> None:
        """Let a claim leave the worker in a slot that another one needs, if it gets another worker for it now."""
        if holder.frozen:
            return
        cooled_at = find_cooled_at(holder.job, self._rules)
        if not is_urgent and cooled_at > self._now:
            self.waits.append(cooled_at)
            return
        each = holder.job.gpus_per_worker
        new = self._take_planned(holder, len(holder.slots) + each)
        # A slot that the claim itself will have would not help it: the holder would leave one and take the other.
        its = [slot for worker in self._list_new(claim) for slot in worker if self._kept.has([slot])]
        self._kept.remove(its)
        for free in (self._free, self._kept):
            new = new or free.take(each, holder.slots, holder.job)
        self._kept.give(its)
        if not new:
            # Others must leave the slots first to which it moves.
            self._ask(holder, each, is_urgent=is_urgent)
            return
        old = next(worker for worker in holder.list_workers() if slot in worker)
        holder.slots = [kept for kept in holder.slots if kept not in old] + new
        holder.moves += ((old, tuple(new), claim),)
        if each > 1:
            holder.new_workers += (tuple(new),)
