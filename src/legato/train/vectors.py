"""Small float64 vectors summed over all ranks along the canonical tree, with a control word from each rank beside them.

Every rank gets every rank's blocks and adds them up itself: one round trip. Loss, metrics, moving buffers and votes
travel this way. Never touches gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from legato.core.span import num_merges
from legato.train.exchange import Deal, fold
from legato.train.groups import Group

WORD_NUMEL: Final = 4


class VectorSum:
    """The blocks that one rank's micro-batches have completed so far."""

    def __init__(self) -> None:
        self.blocks: list[torch.Tensor] = []

    def add(self, span_start: int, leaf: int, vector: torch.Tensor) -> None:
        """Add the vector of micro-batch ``leaf``, which becomes this object's own.

        Args:
            span_start: the first micro-batch that this rank computes in this round.
            leaf: which micro-batch of the round.
            vector: float64 ``[n]``, the same n for every leaf.
        """
        for _ in range(num_merges(span_start, leaf)):
            left = self.blocks.pop()
            vector = left.add_(vector)
        self.blocks.append(vector)


def sum_vectors(
    group: Group, dealt: Deal, blocks: Sequence[torch.Tensor], numel: int, word: Sequence[int]
) -> tuple[torch.Tensor, list[list[int]]]:
    """Sum vectors over all ranks and tell every rank a control word.

    Args:
        group: connects the ranks.
        dealt: who has which blocks.
        blocks: this rank's, each float64 ``[numel]``.
        numel: the vectors' length; the same on every rank.
        word: ``WORD_NUMEL`` integers.

    Returns:
        The sum, float64 ``[numel]``, and the words in rank order.

    Raises:
        BrokenView: a peer is gone.
    """
    words = [torch.empty(WORD_NUMEL, dtype=torch.int64) for _ in range(group.size)]
    words[group.rank] = torch.tensor(word, dtype=torch.int64)
    received = [torch.empty(len(owned), numel, dtype=torch.float64) for owned in dealt.owned]
    if blocks:
        torch.stack(list(blocks), out=received[group.rank])
    outgoing = [words[group.rank], received[group.rank]] if blocks else [words[group.rank]]
    incoming = [[words[rank], received[rank]] if dealt.owned[rank] else [words[rank]] for rank in range(group.size)]
    if numel == 0:
        outgoing, incoming = outgoing[:1], [tensors[:1] for tensors in incoming]
    group.swap_all(outgoing, incoming)
    total = torch.empty(numel, dtype=torch.float64)
    terms = [block for of_rank in received for block in of_rank]
    if terms:
        fold(terms, dealt.additions, total)
    else:
        total.zero_()
    return total, [[int(value) for value in received_word] for received_word in words]
