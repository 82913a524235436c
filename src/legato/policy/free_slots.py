"""Holds the slots that can be assigned, sorted so that the node on which new slots of a job fit best is found fast."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Slot

_ID = operator.attrgetter("id")


class FreeSlots:
    """The slots that can be assigned now, by node.

    Args:
        slots: in any order.
        nodes: by name; nodes that are not in it have no labels.
    """

    def __init__(self, slots: Iterable[Slot], nodes: Mapping[str, Node] | None = None) -> None:
        self._nodes = nodes or {}
        self._by_node: defaultdict[str, list[Slot]] = defaultdict(list)
        self._owner_of = {
            node.name: node.labels[OWNER_LABEL] for node in self._nodes.values() if OWNER_LABEL in node.labels
        }
        self._owners = set(self._owner_of.values())
        # By owner of the nodes, "" for those of all users, and by labels: nodes of other owners need not be looked at.
        self._levels: dict[str, dict[tuple[tuple[str, str], ...], _Levels]] = {}
        self._inside: dict[str, list[str]] = {}
        self._number = 0
        for slot in slots:
            self._by_node[slot.node].append(slot)
        for inside in self._by_node.values():
            inside.sort(key=_ID, reverse=True)
            self._number += len(inside)

    @property
    def is_empty(self) -> bool:
        """Whether no slot is left."""
        return not self._number

    def __iter__(self) -> Iterator[Slot]:
        return itertools.chain.from_iterable(list(self._by_node.values()))

    def has(self, slots: Iterable[Slot]) -> bool:
        """Whether all of these slots are left."""
        return all(slot in self._by_node.get(slot.node, ()) for slot in slots)

    def give(self, slots: Iterable[Slot]) -> None:
        """Add slots."""
        nodes = set()
        for slot in slots:
            if slot.node not in self._by_node:
                self._levels.clear()
                self._inside.clear()
            nodes.add(slot.node)
            self._by_node[slot.node].append(slot)
            self._number += 1
        for node in nodes:
            self._by_node[node].sort(key=_ID, reverse=True)
            self._tell(node)

    def remove(self, slots: Iterable[Slot]) -> None:
        """Remove slots that are left."""
        for slot in slots:
            self._by_node[slot.node].remove(slot)
            self._number -= 1
            self._tell(slot.node)

    def take_on(self, node: str, num_slots: int) -> list[Slot]:
        """Take slots of one node, for any job; fewer than ``num_slots`` if it has no more."""
        taken: list[Slot] = []
        if self._by_node.get(node):
            self._take_from(node, num_slots, 1, taken)
        return taken

    def take(self, num_slots: int, beside: Sequence[Slot], job: JobDemand) -> list[Slot]:
        """Take slots for a job, first on the nodes of ``beside``; fewer than ``num_slots`` if no more fit.

        Nodes of its owner come before that, so that those of all users stay free for others.

        Returns:
            The slots; those of each worker follow one another.
        """
        taken: list[Slot] = []
        for owner in self._owners_for(job):
            self._take_best(num_slots, beside, job, self._levels_for(job, owner), taken)
        return taken

    def _owners_for(self, job: JobDemand) -> tuple[str, ...]:
        """Return the owners whose nodes a job may use; "": the nodes of all users."""
        return (job.owner, "") if job.owner in self._owners else ("",)

    def _take_best(
        self, num_slots: int, beside: Sequence[Slot], job: JobDemand, levels: _Levels, taken: list[Slot]
    ) -> None:
        """Take slots of these nodes until there are so many, as far as they fit."""
        each = job.gpus_per_worker
        if beside and len(taken) < num_slots:
            own = Counter(slot.node for slot in beside)
            for node in sorted(own, key=lambda node: (-own[node], node)):
                if node in levels and node not in job.refusals:
                    self._take_from(node, num_slots - len(taken), each, taken)
        while len(taken) < num_slots:
            chosen = levels.find(num_slots - len(taken), each, job.refusals)
            if chosen is None:
                break
            self._take_from(chosen, num_slots - len(taken), each, taken)

    def count_left(self, job: JobDemand) -> list[tuple[str, int]]:
        """Return the nodes that a job may use and that have free slots, and their numbers, by name."""
        return sorted(
            (node, number)
            for owner in self._owners_for(job)
            for node, number in self._levels_for(job, owner).list_left()
            if node not in job.refusals
        )

    def has_left(self, job: JobDemand) -> bool:
        """Whether a node that a job may use has free slots."""
        return any(self._levels_for(job, owner).find(1, 1, job.refusals) is not None for owner in self._owners_for(job))

    def has_of_others(self, job: JobDemand) -> bool:
        """Whether slots are left that a job could use if their nodes did not belong to other users."""
        return bool(self._owners) and any(
            inside and belongs_to_other(self._nodes.get(node), job) for node, inside in self._by_node.items()
        )

    def _levels_for(self, job: JobDemand, owner: str) -> _Levels:
        """Return the nodes of an owner that a job may use. Those that have refused it are in it too."""
        labels = tuple(sorted(job.labels.items())) if job.labels else ()
        by_labels = self._levels.setdefault(owner, {})
        levels = by_labels.get(labels)
        if levels is None:
            numbers = {
                node: len(self._by_node[node])
                for node in self._list_nodes(owner)
                if has_labels(self._nodes.get(node), job)
            }
            levels = by_labels[labels] = _Levels(numbers)
        return levels

    def _list_nodes(self, owner: str) -> list[str]:
        """Return the nodes of an owner that have, or had, free slots."""
        if not self._inside:
            for node in self._by_node:
                self._inside.setdefault(self._owner_of.get(node, ""), []).append(node)
        return self._inside.get(owner, [])

    def _take_from(self, node: str, num_slots: int, each: int, taken: list[Slot]) -> None:
        inside = self._by_node[node]
        number = min(num_slots, len(inside)) // each * each
        if number <= 0:
            return
        taken += inside[: -number - 1 : -1]
        del inside[-number:]
        self._number -= number
        self._tell(node)

    def _tell(self, node: str) -> None:
        for levels in self._levels.get(self._owner_of.get(node, ""), {}).values():
            levels.change(node, len(self._by_node[node]))


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

    def list_left(self) -> Iterator[tuple[str, int]]:
        """Yield the nodes that have free slots, and their numbers."""
        for number in self._sorted:
            for node in self._nodes[number] if number else ():
                yield node, number

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
    """Whether a node has all labels that a job asks for, and belongs to no other user than the job's owner."""
    if node is None or not node.labels:
        return not job.labels
    return job.labels.items() <= node.labels.items() and node.labels.get(OWNER_LABEL, job.owner) == job.owner


def belongs_to_other(node: Node | None, job: JobDemand) -> bool:
    """Whether a node has all labels that a job asks for, but belongs to another user than the job's owner."""
    if node is None or node.labels.get(OWNER_LABEL, job.owner) == job.owner:
        return False
    return job.labels.items() <= node.labels.items()


def can_run(name: str, node: Node | None, job: JobDemand) -> bool:
    """Whether a job may use a node, as `has_labels` says, and the node has not refused it."""
    return name not in job.refusals and has_labels(node, job)
