"""Which sums the ranks of several nodes exchange: the subtrees that each node contributes, and who sends them. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from legato.core.balance import num_early, ranks_of
from legato.core.span import Addition, Block, Span, blocks, fold_plan, split
from legato.train.reduction.exchange import Assignment


class NodeSum(NamedTuple):
    """One of the sums that a node contributes: a whole subtree of the canonical tree.

    Args:
        terms: rank and index of each block that it is made of, in the order of the micro-batches.
        additions: turn these blocks into the sum, at position 0.
    """

    terms: tuple[tuple[int, int], ...]
    additions: tuple[Addition, ...]


class NodePlan(NamedTuple):
    """How the blocks of all ranks are added up, node by node.

    Args:
        sums: of each node.
        additions: turn the sums of all nodes, in the order of the nodes, into the root at position 0.
        num_early: how many of each node's sums, the first ones, are complete before its last micro-batch. 0 where
            several ranks make up the sums.
    """

    sums: tuple[tuple[NodeSum, ...], ...]
    additions: tuple[Addition, ...]
    num_early: tuple[int, ...]


@lru_cache(maxsize=256)
def plan_sums(assignment: Assignment, nodes: tuple[int, ...], *, exact: bool = True) -> NodePlan:
    """Plan the sums of nodes.

    Args:
        assignment: of a step; the micro-batches of a node lie next to one another.
        nodes: the number of each rank's node.
        exact: False: each node adds up its blocks one after the other to a single sum.
    """
    sums: list[tuple[NodeSum, ...]] = []
    wholes: list[Block] = []
    for ranks in ranks_of(nodes):
        in_order = [rank for rank in assignment.order if rank in ranks]
        terms = {block: (rank, i) for rank in in_order for i, block in enumerate(assignment.owned[rank])}
        if not exact:
            sums.append((NodeSum(tuple(terms.values()), _chain(len(terms))),) if terms else ())
            continue
        spans = [assignment.spans[rank] for rank in in_order if assignment.spans[rank].num_items]
        of_node = blocks(Span(spans[0].start, spans[-1].stop)) if spans else ()
        wholes += of_node
        sums.append(tuple(_sum_of(whole, terms) for whole in of_node))
    additions = fold_plan(tuple(wholes)) if exact else _chain(sum(map(len, sums)))
    early = num_early(assignment.spans, nodes) if exact else (0,) * len(sums)
    return NodePlan(tuple(sums), additions, early)


def _sum_of(whole: Block, terms: dict[Block, tuple[int, int]]) -> NodeSum:
    stop = whole.start + (1 << whole.level)
    inside = [block for block in terms if whole.start <= block.start < stop]
    return NodeSum(tuple(terms[block] for block in inside), fold_plan(tuple(inside)))


def _chain(num_terms: int) -> tuple[Addition, ...]:
    return tuple(Addition(0, source) for source in range(1, num_terms))


class Routes:
    """Between which ranks the parts of a bucket pass.

    Each rank is at home in a part. Of every other node one rank, the part's carrier, sends the sums of its node to the
    home, and gets the result from there. So the bytes of a part pass between two nodes once in each direction.

    Args:
        nodes: the number of each rank's node.

    Attributes:
        carriers: for each home and each node, the rank that handles this part for the node; of its own node, the home.

    >>> routes = Routes((0, 0, 1))
    >>> routes.carriers
    ((0, 2), (1, 2), (1, 2))
    >>> routes.mates(1), routes.carried(0), routes.carried(1), routes.carried(2)
    ((0, 1), (), (2,), (0, 1))
    """

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self._of_nodes = ranks_of(nodes)
        self._nodes = tuple(sorted(set(nodes)).index(node) for node in nodes)
        self.carriers = tuple(self._carriers(home) for home in range(len(nodes)))

    def _carriers(self, home: int) -> tuple[int, ...]:
        own = self._nodes[home]
        place = self._of_nodes[own].index(home)
        # Shifted by the node, so that a node of many ranks exchanges equally much with each of them.
        return tuple(home if home in ranks else ranks[(place + own) % len(ranks)] for ranks in self._of_nodes)

    def node_of(self, rank: int) -> int:
        """Return the index of a rank's node; indices are in the order of the numbers."""
        return self._nodes[rank]

    def mates(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's node, itself included."""
        return self._of_nodes[self._nodes[rank]]

    def carried(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of other nodes whose parts a rank carries for its node."""
        node, mates = self._nodes[rank], self.mates(rank)
        homes = range(len(self.carriers))
        return tuple(home for home in homes if home not in mates and self.carriers[home][node] == rank)

    def cuts(self, numel: int) -> list[Span]:
        """Return the part of each rank: equal parts for the nodes, divided among their ranks."""
        cuts = [Span(0, 0)] * len(self.carriers)
        for ranks, of_node in zip(self._of_nodes, split(numel, len(self._of_nodes)), strict=True):
            for rank, part in zip(ranks, split(of_node.num_items, len(ranks)), strict=True):
                cuts[rank] = Span(of_node.start + part.start, of_node.start + part.stop)
        return cuts
