"""Chooses slots: a job keeps its slots, grows on the same nodes, and otherwise uses as few nodes as possible.

One node before two: of the nodes on which all new slots of a job fit, it gets the one with the fewest free slots, so
that the others stay free for larger jobs (best fit). If it fits on none, it fills the nodes with the most free slots
first. It gives slots up on nodes where it has fewest. No job is moved only for a better placement. A worker with
several GPUs has all of them on one node.
"""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from legato.policy.causes import explain_needs
from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.sizes import fit_size
from legato.policy.snapshot import OWN_MACHINE, JobDemand, Node, Slot

_ID: Final = operator.attrgetter("id")
_MAX_NODES_NAMED: Final = 3


class FreeSlots:
    """The slots that can be assigned now, by node.

    Args:
        slots: in any order.
        nodes: by name; nodes that are not in it have no labels.
    """

    def __init__(self, slots: Iterable[Slot], nodes: Mapping[str, Node] | None = None) -> None:
        self._nodes = nodes or {}
        self._by_node: defaultdict[str, list[Slot]] = defaultdict(list)
        for slot in slots:
            self._by_node[slot.node].append(slot)
        for inside in self._by_node.values():
            inside.sort(key=_ID, reverse=True)
        self._by_labels: dict[tuple[tuple[str, str], ...], _Levels] = {}

    def take(self, num_slots: int, beside: Sequence[Slot], job: JobDemand) -> list[Slot]:
        """Take slots for a job, first on the nodes of ``beside``; fewer than ``num_slots`` if no more fit.

        Returns:
            The slots; those of each worker follow one another.
        """
        each = job.gpus_per_worker
        levels = self._levels_for(job)
        taken: list[Slot] = []
        if beside:
            own = Counter(slot.node for slot in beside)
            for node in sorted(own, key=lambda node: (-own[node], node)):
                if node in levels and node not in job.refusals:
                    self._take_from(node, num_slots - len(taken), each, taken)
        while len(taken) < num_slots:
            chosen = levels.find(num_slots - len(taken), each, job.refusals)
            if chosen is None:
                break
            self._take_from(chosen, num_slots - len(taken), each, taken)
        return taken

    def count_left(self, job: JobDemand) -> list[tuple[str, int]]:
        """Return the nodes that a job may use and that have free slots, and their numbers, by name."""
        levels = self._levels_for(job)
        return sorted(
            (node, len(inside))
            for node, inside in self._by_node.items()
            if inside and node in levels and node not in job.refusals
        )

    def _levels_for(self, job: JobDemand) -> _Levels:
        """Return the nodes that have a job's labels. Those that have refused it are in it too: each job has its own."""
        labels = tuple(sorted(job.labels.items())) if job.labels else ()
        levels = self._by_labels.get(labels)
        if levels is None:
            numbers = {
                node: len(inside) for node, inside in self._by_node.items() if has_labels(self._nodes.get(node), job)
            }
            levels = self._by_labels[labels] = _Levels(numbers)
        return levels

    def _take_from(self, node: str, num_slots: int, each: int, taken: list[Slot]) -> None:
        inside = self._by_node[node]
        number = min(num_slots, len(inside)) // each * each
        if number <= 0:
            return
        taken += inside[: -number - 1 : -1]
        del inside[-number:]
        for levels in self._by_labels.values():
            levels.change(node, len(inside))


class _Levels:
    """Nodes, sorted by their numbers of free slots.

    Args:
        numbers: of free slots, by node.
    """

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._nodes: dict[int, list[str]] = {}  # by number, by name; no list is empty
        for node in sorted(numbers):
            self._nodes.setdefault(numbers[node], []).append(node)
        self._sorted = sorted(self._nodes)

    def __contains__(self, node: str) -> bool:
        return node in self._numbers

    def change(self, node: str, number: int) -> None:
        """Set the number of free slots of a node, if it is one of these."""
        before = self._numbers.get(node)
        if before is None or before == number:
            return
        nodes = self._nodes[before]
        del nodes[bisect_left(nodes, node)]
        if not nodes:
            del self._nodes[before]
            del self._sorted[bisect_left(self._sorted, before)]
        if number not in self._nodes:
            self._nodes[number] = []
            insort(self._sorted, number)
        insort(self._nodes[number], node)
        self._numbers[node] = number

    def find(self, num_slots: int, each: int, refusals: Collection[str] = ()) -> str | None:
        """Return the node with the fewest free slots of those that have enough, or else the one with the most.

        Args:
            num_slots: enough.
            each: None if no node has so many.
            refusals: nodes that are left out.
        """
        index = bisect_left(self._sorted, num_slots)
        for level in itertools.chain(self._sorted[index:], reversed(self._sorted[:index])):
            if level < each:
                break
            for node in self._nodes[level]:
                if node not in refusals:
                    return node
        return None


def has_labels(node: Node | None, job: JobDemand) -> bool:
    """Whether a node has all labels that a job asks for."""
    return not job.labels or (node is not None and job.labels.items() <= node.labels.items())


def place(pool: SortedSnapshot) -> None:
    """Assign or remove slots of every claim until it has as many as its size, or as many as fit.

    Args:
        pool: with sizes set. Claims get their slots; the size of a claim whose slots do not fit becomes smaller.
    """
    for claim in pool.claims:
        if len(claim.slots) > claim.size:
            claim.slots = _keep(claim, claim.size)
    free = FreeSlots(pool.free, pool.nodes)
    for claim in _sort_by_difficulty(pool.claims):
        missing = claim.size - len(claim.slots)
        if missing > 0:
            _give(claim, free.take(missing, claim.slots, claim.job), free)


def _give(claim: Claim, taken: list[Slot], free: FreeSlots) -> None:
    """Give a claim as many of these slots as it can use."""
    held, each = len(claim.slots), claim.job.gpus_per_worker
    if held + len(taken) < claim.size:
        claim.unplaced = True
        claim.limit = _explain_left(claim.job, free)
        claim.size = max(fit_size(claim.job, held + len(taken)), held)
        del taken[claim.size - held :]
    if each > 1:
        claim.new_workers = [tuple(taken[first : first + each]) for first in range(0, len(taken), each)]
    claim.slots += taken


def lower_limits(pool: SortedSnapshot) -> bool:
    """Find claims whose targets cannot be placed although all other jobs have theirs, and lower their limits.

    This happens if labels or several GPUs per worker restrict a job to some nodes. The target of each job is placed on
    a copy of the pool: jobs keep slots that they have, because no job is moved.

    Returns:
        Whether a limit was lowered. Then decide the targets again, so that other jobs get these slots.
    """
    wanting = [claim for claim in pool.claims if claim.is_picky and claim.target > claim.held]
    if not wanting:
        return False
    left = [*pool.free, *pool.coming]
    for claim in pool.claims:
        if claim.target < claim.held:
            kept = set(map(_ID, _keep(claim, claim.target)))
            left += (slot for slot in claim.slots if slot.id not in kept)
    free = FreeSlots(left, pool.nodes)
    is_lower = False
    for claim in _sort_by_difficulty(wanting):
        found = claim.held + len(free.take(claim.target - claim.held, claim.slots, claim.job))
        if found < claim.target:
            # A job with its minimum keeps that.
            claim.hi = max(fit_size(claim.job, found), fit_size(claim.job, claim.held))
            claim.limit = _explain_left(claim.job, free)
            is_lower = True
    return is_lower


def _sort_by_difficulty(claims: Iterable[Claim]) -> list[Claim]:
    """Sort claims for placement: first those that fit on the fewest nodes, then in order of precedence."""
    return sorted(
        claims, key=lambda claim: (-claim.job.gpus_per_worker, -len(claim.job.labels), -len(claim.job.refusals))
    )


def _keep(claim: Claim, num_slots: int) -> list[Slot]:
    """Choose the slots to keep: first on nodes where the job has most, so that its workers stay together."""
    num_on_node = Counter(slot.node for slot in claim.slots)
    if claim.job.gpus_per_worker == 1:
        return sorted(claim.slots, key=lambda slot: (-num_on_node[slot.node], slot.node, slot.id))[:num_slots]
    workers = claim.list_workers()
    workers.sort(key=lambda slots: (-num_on_node[slots[0].node], slots[0].node, min(map(_ID, slots))))
    return [slot for slots in workers for slot in slots][:num_slots]


def _explain_left(job: JobDemand, free: FreeSlots) -> str:
    """Explain why no more workers of a job fit, as a part of a sentence."""
    left = free.count_left(job)
    told = [f"node {node} has {number} left" for node, number in left[:_MAX_NODES_NAMED]]
    if len(left) > _MAX_NODES_NAMED:
        told.append(f"{len(left) - _MAX_NODES_NAMED} other nodes have fewer than {job.gpus_per_worker} each")
    labels = tuple(sorted(job.labels.items()))
    nodes = f"nodes with {explain_needs((1, labels, ()))}" if labels else "its nodes"
    if labels == (OWN_MACHINE,):
        nodes = explain_needs((1, labels, ()))
    elif job.refusals and not labels:
        nodes = "other nodes"
    rest = ", ".join(told) if told else f"{nodes} have none left"
    if job.gpus_per_worker > 1:
        return f"{job.gpus_per_worker} GPUs per worker: {rest}"
    return f"it needs slots of {nodes}, and there are no more for it"
