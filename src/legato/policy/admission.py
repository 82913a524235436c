"""Decides which jobs get their minimum. Does not read present slots, except for jobs behind a reservation.

The floor of every queue is set aside, as far as its jobs can use it; the other slots are common. The queue with the
fewest slots per weight goes next, with the first of its jobs. A minimum that does not fit is refused; minimums of later
jobs may still fit. Each decision divides all slots from scratch and in the same order. So a refused job gets its
minimum as soon as earlier jobs leave enough slots, even if later jobs have taken some meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from legato.policy.claims import Claim, Refusal
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, Part, make_whole, share_out
from legato.policy.snapshot import Queue


class Budget:
    """The slots that may still be assigned, in total and per queue.

    Args:
        capacity: slots of the pool.
        queues: by name.
        floors: slots set aside per queue; their sum is at most the capacity.
        elsewhere: slots of queues on machines of other kinds, which count towards their ceilings.
    """

    def __init__(
        self, capacity: int, queues: Mapping[str, Queue], floors: Mapping[str, int], elsewhere: Mapping[str, int]
    ) -> None:
        self.capacity = capacity
        self.queues = queues
        self.set_aside = {name: floors.get(name, 0) for name in queues}
        self.common = capacity - sum(self.set_aside.values())
        self.taken = dict.fromkeys(queues, 0)
        self.room = {
            name: capacity if queue.ceiling is None else max(queue.ceiling - elsewhere.get(name, 0), 0)
            for name, queue in queues.items()
        }

    def available(self, queue: str) -> int:
        """Return how many slots the jobs of a queue may still take."""
        left, room = self.common + self.set_aside[queue], self.room[queue]
        return left if left < room else room

    def take(self, queue: str, num_slots: int) -> None:
        """Take slots for a job of a queue, its own floor first."""
        own = self.set_aside[queue]
        if own:
            own = min(num_slots, own)
            self.set_aside[queue] -= own
        self.common -= num_slots - own
        self.taken[queue] += num_slots
        self.room[queue] -= num_slots
        assert num_slots >= 0 and self.common >= 0 and self.room[queue] >= 0, (queue, num_slots)


class Reservations:
    """The refused claims so far, the slots that are kept for them, and the reasons of further refusals.

    Args:
        rules: the policy's settings; they say from which age on slots are kept.
        now: the present time.
    """

    def __init__(self, rules: Rules, now: float) -> None:
        self._limit_s = rules.reserve_after_s
        self._now = now
        self._refused: set[str | None] = set()
        self._keeping: set[str | None] = set()
        self._num_checked = 0

    def check(self, claim: Claim, budget: Budget, *, has_share: bool = False) -> Refusal | None:
        """Return why a claim is refused its minimum; None if it gets it.

        Args:
            claim: the claim that is tried next.
            budget: the remaining slots.
            has_share: its user has its share of the queue, so no slots are kept for it.
        """
        claim.turn = self._num_checked
        self._num_checked += 1
        name = claim.job.queue
        left = budget.available(name)
        if claim.lo <= left and not self._keeping:
            return None  # the usual case
        ceiling = budget.queues[name].ceiling
        if claim.lo > budget.capacity:
            return Refusal("pool", budget.capacity)
        if ceiling is not None and claim.lo > ceiling:
            return Refusal("ceiling", ceiling)
        if claim.lo <= left:
            # A running job continues: stopping it would free no slots that are needed yet.
            is_kept = not claim.held and not self._keeping.isdisjoint((None, name))
            return Refusal("reserved", left) if is_kept else None
        if has_share:
            return Refusal("share", left)
        # A refusal at a ceiling affects only its queue; missing slots affect all jobs.
        scope = name if budget.common + budget.set_aside[name] >= claim.lo else None
        first = scope not in self._refused
        self._refused.add(scope)
        if self._limit_s is not None and self._now - claim.job.submitted_at >= self._limit_s:
            self._keeping.add(scope)
        return Refusal("room" if scope is None else "queue", left, first)


def admit(claims: Iterable[Claim], budget: Budget, reservations: Reservations) -> list[Claim]:
    """Assign minimums out of a budget. Returns the admitted claims, and sets the refusal of the others.

    Args:
        claims: the claims to admit, in order of precedence.
        budget: the remaining slots; minimums are taken out of it.
        reservations: earlier refusals.
    """
    waiting: dict[str, list[Claim]] = {}
    for claim in claims:
        waiting.setdefault(claim.job.queue, []).append(claim)
    admitted = []
    turns: list[tuple[float, int, str]] = []
    for name, inside in waiting.items():
        inside.reverse()
        turns.append((budget.taken[name] / budget.queues[name].weight, inside[-1].order, name))
    heapq.heapify(turns)
    while turns:
        name = turns[0][2]
        claim = waiting[name].pop()
        claim.refusal = reservations.check(claim, budget)
        if claim.refusal is None:
            budget.take(name, claim.lo)
            admitted.append(claim)
        if waiting[name]:
            taken = budget.taken[name] / budget.queues[name].weight
            heapq.heapreplace(turns, (taken, waiting[name][-1].order, name))
        else:
            heapq.heappop(turns)
    return admitted


def usable_floors(claims: Iterable[Claim], queues: Mapping[str, Queue], capacity: int) -> dict[str, int]:
    """Return the slots set aside per queue: its floor as far as its jobs want it; fewer if the pool is too small."""
    if not any(queue.floor for queue in queues.values()):
        return {}
    wanted = dict.fromkeys(queues, 0)
    for claim in claims:
        wanted[claim.job.queue] += claim.hi
    floors = {}
    for name, queue in queues.items():
        ceiling = queue.floor if queue.ceiling is None else queue.ceiling
        if floor := min(queue.floor, ceiling, wanted[name]):
            floors[name] = floor
    return fit_floors(floors, queues, capacity)


def fit_floors(floors: dict[str, int], queues: Mapping[str, Queue], capacity: int) -> dict[str, int]:
    """Return floors with a sum of at most the capacity; if necessary they are reduced in proportion."""
    if sum(floors.values()) <= capacity:
        return floors
    names = sorted(name for name in floors if queues[name].floor > 0)
    shares = share_out(capacity, [Bounds(queues[name].floor, 0, floors[name]) for name in names])
    parts = [Part(share, queues[name].floor, 0, (name,)) for name, share in zip(names, shares, strict=True)]
    return dict.fromkeys(floors, 0) | dict(zip(names, make_whole(capacity, parts), strict=True))


def ranks(claims: Sequence[Claim], policy: Policy) -> list[list[Claim]]:
    """Divide claims into groups that share with one another; each group goes before the next one.

    Args:
        claims: in order of precedence.
        policy: fair: one division; priority: one per priority; fifo: each job for itself.
    """
    if policy.is_fair:
        return [list(claims)]
    if policy == Policy.PRIORITY:
        return [list(equals) for _, equals in groupby(claims, key=lambda claim: claim.job.priority)]
    return [[claim] for claim in claims]
