"""Chooses slots: a job keeps its slots, grows on the same nodes, and gives slots up on nodes where it has fewest.

A job grows on the nodes that it uses already, then on the emptiest other one. No job is moved only for a better
placement.
"""

from __future__ import annotations

import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from legato.policy.claims import Claim
from legato.policy.snapshot import Slot

_ID = operator.attrgetter("id")


class FreeSlots:
    """The slots that can be assigned now, by node.

    Args:
        slots: in any order.
    """

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._by_node: defaultdict[str, list[Slot]] = defaultdict(list)
        for slot in slots:
            self._by_node[slot.node].append(slot)
        for inside in self._by_node.values():
            inside.sort(key=_ID, reverse=True)
        self._emptiest = [(-len(inside), node) for node, inside in self._by_node.items()]
        heapq.heapify(self._emptiest)

    def take(self, num_slots: int, beside: Sequence[Slot]) -> list[Slot]:
        """Take slots on the nodes of ``beside``, then on the emptiest ones."""
        taken: list[Slot] = []
        if beside:
            own = Counter(slot.node for slot in beside)
            for node in sorted(own, key=lambda node: (-own[node], node)):
                self._take_from(node, num_slots - len(taken), taken)
        while len(taken) < num_slots:
            number, node = heapq.heappop(self._emptiest)
            # This entry is outdated: the heap has another entry of the node with the right number.
            if number and -number == len(self._by_node[node]):
                self._take_from(node, num_slots - len(taken), taken)
        return taken

    def _take_from(self, node: str, num_slots: int, taken: list[Slot]) -> None:
        inside = self._by_node.get(node)
        if not inside or num_slots <= 0:
            return
        taken += (inside.pop() for _ in range(min(num_slots, len(inside))))
        heapq.heappush(self._emptiest, (-len(inside), node))


def place(claims: Iterable[Claim], free: FreeSlots) -> None:
    """Assign or remove slots of every claim until it has as many as its size.

    Args:
        claims: in order of precedence.
        free: the free slots; assigned ones are taken out of it.
    """
    for claim in claims:
        surplus = len(claim.slots) - claim.size
        if surplus > 0:
            claim.slots = _without_stragglers(claim.slots, surplus)
        elif surplus < 0:
            claim.slots += free.take(-surplus, claim.slots)


def _without_stragglers(slots: Sequence[Slot], surplus: int) -> list[Slot]:
    """Give a number of slots up, first on nodes with the fewest, so that the others stay together."""
    num_on_node = Counter(slot.node for slot in slots)
    kept = sorted(slots, key=lambda slot: (-num_on_node[slot.node], slot.node, slot.id))
    return kept[: len(kept) - surplus]
