"""Which jobs get their minimum, and what is left. Never reads present slots, except for jobs behind a reservation.

Every queue has its floor set aside as far as its jobs could use it; the rest is common. The queue with the least per
weight goes next, with the first of its jobs; a minimum that does not fit is refused, and those behind it may still fit.
Because all slots are divided from scratch each time, in the same order, a refused job gets its minimum as soon as those
before it leave enough, whatever those behind it have taken meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from legato.policy.claims import Claim, Order, Refusal
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, Part, make_whole, share_out
from legato.policy.snapshot import Queue


class Budget:
    """What may still be given, in all and per queue.

    Args:
        capacity: slots of the pool.
        queues: by name.
        floors: slots set aside per queue; they add up to the capacity at most.
    """

    def __init__(self, capacity: int, queues: Mapping[str, Queue], floors: Mapping[str, int]) -> None:
        self.capacity = capacity
        self.queues = queues
        self.set_aside = {name: floors.get(name, 0) for name in queues}
        self.common = capacity - sum(self.set_aside.values())
        self.taken = dict.fromkeys(queues, 0)
        self.room = {name: capacity if queue.ceiling is None else queue.ceiling for name, queue in queues.items()}

    def available(self, queue: str) -> int:
        """Return how many slots the jobs of a queue may still take."""
        return min(self.common + self.set_aside[queue], self.room[queue])

    def take(self, queue: str, num_slots: int) -> None:
        """Take slots for a job of a queue, its own floor first."""
        assert 0 <= num_slots <= self.available(queue), (queue, num_slots)
        own = min(num_slots, self.set_aside[queue])
        self.set_aside[queue] -= own
        self.common -= num_slots - own
        self.taken[queue] += num_slots
        self.room[queue] -= num_slots


class Reservations:
    """Who was refused so far, for whom slots are kept, and why the next one is refused.

    Args:
        rules: from which age on slots are kept.
        now: the present time.
    """

    def __init__(self, rules: Rules, now: float) -> None:
        self._limit_s = rules.reserve_after_s
        self._now = now
        self._refused: set[str | None] = set()
        self._keeping: set[str | None] = set()

    def check(self, claim: Claim, budget: Budget) -> Refusal | None:
        """Return why a claim does not get its minimum; None if it does."""
        name = claim.job.queue
        ceiling = budget.queues[name].ceiling
        if claim.lo > budget.capacity:
            return Refusal("pool", budget.capacity)
        if ceiling is not None and claim.lo > ceiling:
            return Refusal("ceiling", ceiling)
        left = budget.available(name)
        if claim.lo <= left:
            # Who runs is left to run: to stop it would free nothing that is needed yet.
            kept = not claim.held and not self._keeping.isdisjoint((None, name))
            return Refusal("reserved", left) if kept else None
        # What a ceiling keeps back concerns its own queue only; missing slots concern all jobs.
        scope = name if budget.common + budget.set_aside[name] >= claim.lo else None
        first = scope not in self._refused
        self._refused.add(scope)
        if self._limit_s is not None and self._now - claim.job.submitted_at >= self._limit_s:
            self._keeping.add(scope)
        return Refusal("room" if scope is None else "queue", left, first)


def admit(claims: Iterable[Claim], budget: Budget, reservations: Reservations) -> list[Claim]:
    """Give minimums out of a budget; return who got one and tell the others why not.

    Args:
        claims: those who go before all others that are not admitted yet, in order of precedence.
        budget: what is left; the minimums are taken out of it.
        reservations: who was refused before.
    """
    waiting: dict[str, list[Claim]] = {}
    for claim in claims:
        waiting.setdefault(claim.job.queue, []).append(claim)
    admitted = []
    turns: list[tuple[float, Order, str]] = []
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
    """Return what is set aside per queue: its floor as far as its jobs want it; less if the pool is too small."""
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
    """Return floors that add up to the capacity at most: those that do not fit are cut in proportion."""
    if sum(floors.values()) <= capacity:
        return floors
    names = sorted(name for name in floors if queues[name].floor > 0)
    shares = share_out(capacity, [Bounds(queues[name].floor, 0, floors[name]) for name in names])
    parts = [Part(share, queues[name].floor, 0, (name,)) for name, share in zip(names, shares, strict=True)]
    return dict.fromkeys(floors, 0) | dict(zip(names, make_whole(capacity, parts), strict=True))


def ranks(claims: Sequence[Claim], policy: Policy) -> list[list[Claim]]:
    """Divide claims into those that share with one another; each division goes before the next.

    Args:
        claims: in order of precedence.
        policy: fair: one division; priority: one per priority; fifo: each job for itself.
    """
    if policy == Policy.FAIR:
        return [list(claims)]
    if policy == Policy.PRIORITY:
        return [list(equals) for _, equals in groupby(claims, key=lambda claim: claim.job.priority)]
    return [[claim] for claim in claims]
