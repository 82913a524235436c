"""Which rank computes which micro-batches, and the order of their sum. Pure arithmetic on integers.

The sum over the micro-batches of a step is always taken along one binary tree over the leaves ``0 .. V-1``: node
``(start, level)`` covers the leaves ``start .. start + 2**level - 1`` and is *left child + right child*; a node whose
right child covers no leaf is its left child. The tree depends on V alone, so the sum does not depend on how the leaves
are divided among ranks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Span(NamedTuple):
    """The micro-batches ``start .. stop - 1`` of a step."""

    start: int
    stop: int

    @property
    def num_items(self) -> int:
        return self.stop - self.start


class Block(NamedTuple):
    """A node of the canonical tree: the sum of the leaves ``start .. start + 2**level - 1``."""

    start: int
    level: int


class Addition(NamedTuple):
    """Add the term at position ``source`` to the term at position ``target``, in place."""

    target: int
    source: int


@lru_cache(maxsize=4096)
def split(num_items: int, num_ranks: int) -> tuple[Span, ...]:
    """Divide ``num_items`` among ``num_ranks`` as contiguous spans whose sizes differ by at most one.

    >>> split(8, 3)
    (Span(start=0, stop=3), Span(start=3, stop=6), Span(start=6, stop=8))
    >>> split(1, 2)
    (Span(start=0, stop=1), Span(start=1, stop=1))
    """
    assert num_items >= 0 and num_ranks >= 1, (num_items, num_ranks)
    return tuple(part_of(num_items, num_ranks, rank) for rank in range(num_ranks))


def part_of(num_items: int, num_ranks: int, rank: int) -> Span:
    """Return the span of one rank, see `split`."""
    base, extra = divmod(num_items, num_ranks)
    return Span(rank * base + min(rank, extra), (rank + 1) * base + min(rank + 1, extra))


@lru_cache(maxsize=4096)
def blocks(span: Span) -> tuple[Block, ...]:
    """Cover a span with the fewest nodes of the canonical tree, left to right.

    >>> blocks(Span(3, 8))
    (Block(start=3, level=0), Block(start=4, level=2))
    """
    covering = []
    start = span.start
    while start < span.stop:
        level = 0
        while start % (2 << level) == 0 and start + (2 << level) <= span.stop:
            level += 1
        covering.append(Block(start, level))
        start += 1 << level
    return tuple(covering)


@lru_cache(maxsize=4096)
def num_merges(span_start: int, leaf: int) -> int:
    """Count how many pending blocks leaf ``leaf`` completes when a span that began at ``span_start`` reaches it.

    A rank keeps its pending blocks as a stack. Leaf ``leaf`` is added to the topmost ``num_merges`` blocks, which
    become one; with 0 it starts a new block.

    >>> [num_merges(0, leaf) for leaf in range(8)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    before = len(blocks(Span(span_start, leaf)))
    after = len(blocks(Span(span_start, leaf + 1)))
    return before + 1 - after


def num_blocks(start: int, stop: int) -> int:
    """Return the number of `blocks` of a span.

    >>> num_blocks(3, 8), num_blocks(0, 8), num_blocks(5, 5)
    (2, 1, 0)
    """
    if start == stop:
        return 0
    middle = _middle(start, stop)
    return (middle - start).bit_count() + (stop - middle).bit_count()


def _middle(start: int, stop: int) -> int:
    """Return the place in a span at which the largest blocks begin or end: the one with the most zeros at its end."""
    level = (start ^ stop).bit_length() - 1
    return stop >> level << level


def most_blocks(span: Span) -> int:
    """Return the largest number of blocks that are pending while a rank computes a span from left to right.

    >>> most_blocks(Span(0, 8)), most_blocks(Span(3, 8))
    (3, 3)
    """
    start, stop = span
    if start == stop:
        return 0
    # What is pending at `place` covers start .. place - 1. Most blocks are pending just before two large ones become
    # one: before the middle, or the last time that all lower levels behind the middle are pending.
    middle = _middle(start, stop)
    last = middle + (1 << ((stop - middle + 1).bit_length() - 1)) - 1
    return max(num_blocks(start, place) for place in (middle - 1, middle, last) if place > start)


@lru_cache(maxsize=4096)
def fold_plan(terms: tuple[Block, ...]) -> tuple[Addition, ...]:
    """Return the additions that turn the given blocks, in leaf order, into the root of the tree at position 0.

    The blocks must cover the leaves ``0 .. V-1`` without a gap, or those of one block: its sum is at position 0 then.

    >>> fold_plan((Block(0, 1), Block(2, 0), Block(3, 0)))
    (Addition(target=1, source=2), Addition(target=0, source=1))
    """
    base = terms[0].start if terms else 0
    position = {Block(block.start - base, block.level): index for index, block in enumerate(terms)}
    additions = []
    level = 0
    while len(position) > 1:
        merged: dict[Block, int] = {}
        for block in sorted(position):
            if block.level > level:
                merged[block] = position[block]
            elif block.start % (2 << level) == 0:
                sibling = position.get(Block(block.start + (1 << level), level))
                if sibling is None:
                    merged[Block(block.start, level + 1)] = position[block]
                else:
                    target, source = position[block], sibling
                    additions.append(Addition(target, source))
                    merged[Block(block.start, level + 1)] = target
        position = merged
        level += 1
    return tuple(additions)
