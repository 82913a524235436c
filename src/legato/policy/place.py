"""Which slots a job has: it keeps its own, grows beside them, and gives up slots on the nodes where it has fewest.

Growth goes to the nodes the job is on already, then to the emptiest other one. No job is moved for beauty alone.
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
    """The slots that can be given now, by node.

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
            # Numbers that are out of date: the node is in the heap again with the right one.
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
    """Make the slots of every claim as many as its size says.

    Args:
        claims: in order of precedence.
        free: what may be given; what is given is taken out of it.
    """
    for claim in claims:
        surplus = len(claim.slots) - claim.size
        if surplus > 0:
            claim.slots = _without_stragglers(claim.slots, surplus)
        elif surplus < 0:
            claim.slots += free.take(-surplus, claim.slots)


def _without_stragglers(slots: Sequence[Slot], surplus: int) -> list[Slot]:
    """Give up so many slots, first where there are fewest on a node, so that the rest stays together."""
    crowd = Counter(slot.node for slot in slots)
    kept = sorted(slots, key=lambda slot: (-crowd[slot.node], slot.node, slot.id))
    return kept[: len(kept) - surplus]
