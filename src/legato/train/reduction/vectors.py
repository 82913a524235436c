"""Small float64 vectors summed over all ranks along the canonical tree, with a control word from each rank beside them.

Every rank receives the blocks of every rank and adds them up itself, in one round trip. Legato sums losses, metrics and
moving buffers this way, and sends votes. Never touches gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from legato.core.span import Addition, num_merges
from legato.train.membership.groups import Group
from legato.train.reduction.exchange import Assignment, fold


class VectorSum:
    """The blocks that one rank's micro-batches have completed so far."""

    def __init__(self) -> None:
        self.blocks: list[torch.Tensor] = []

    def add(self, span_start: int, micro_batch: int, vector: torch.Tensor) -> None:
        """Add the vector of a micro-batch; the caller must not use the vector after this.

        Args:
            span_start: the first micro-batch that this rank computes in this round.
            micro_batch: index of the micro-batch in the round.
            vector: float64 ``[n]``, the same n for every micro-batch.
        """
        for _ in range(num_merges(span_start, micro_batch)):
            left = self.blocks.pop()
            vector = left.add_(vector)
        self.blocks.append(vector)


def fold_own(blocks: Sequence[torch.Tensor], additions: Sequence[Addition]) -> torch.Tensor:
    """Return the sum of all blocks, one or more, of a rank that is alone, on their device."""
    if not additions:
        return blocks[0]
    total = torch.empty_like(blocks[0])
    fold(blocks, additions, total)
    return total


def sum_vectors(
    group: Group, assignment: Assignment, blocks: Sequence[torch.Tensor], numel: int, word: Sequence[int]
) -> tuple[torch.Tensor, list[list[int]]]:
    """Sum vectors over all ranks, and send this rank's control word to every rank.

    Args:
        group: connects the ranks.
        assignment: the blocks of every rank.
        blocks: of this rank, each float64 ``[numel]``.
        numel: the vectors' length; the same on every rank.
        word: integers below ``2**53``; the same number of them on every rank.

    Returns:
        The sum, float64 ``[numel]``, and the control words in rank order.

    Raises:
        BrokenView: a peer died or closed its connection.
    """
    if group.size == 1:
        total = fold_own(blocks, assignment.additions) if blocks else torch.zeros(numel, dtype=torch.float64)
        return total, [list(word)]
    # One message to each peer: the control word, which float64 holds exactly up to 2**53, and after it the blocks.
    start = len(word)
    messages = [torch.empty(start + len(owned) * numel, dtype=torch.float64) for owned in assignment.owned]
    mine = messages[group.rank]
    mine[:start] = torch.tensor(word, dtype=torch.float64)
    if blocks and numel:
        torch.cat(list(blocks), out=mine[start:])
    group.all_gather(mine, messages)
    total = torch.zeros(numel, dtype=torch.float64)
    in_order = [messages[rank] for rank in assignment.order if assignment.owned[rank]]
    terms = [block for message in in_order for block in torch.split(message[start:], numel)] if numel else []
    if terms:
        fold(terms, assignment.additions, total)
    return total, [[int(value) for value in message[:start].tolist()] for message in messages]
