"""Which rank computes which micro-batches where ranks are on several nodes: balance of work against bytes. Pure.

Between nodes each node sends the whole subtrees of the canonical tree (`legato.core.span`) that its micro-batches make
up. Where a node's span is one subtree, it sends the gradients once, as a ring does; a span of the same length that
begins and ends anywhere has several subtrees. Spans that follow the tree are less even, so the longest one takes more
time. Which of both costs less depends on the speed of the links and of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from legato.core.span import Span, blocks, most_blocks, num_blocks, part_of, split

_BACKWARD_SHARE: Final = 2 / 3
"""Part of the time of a micro-batch that its backward pass takes, during which gradients can travel."""

_MAX_EARLY: Final = 2
"""Subtrees that a node sends before its last micro-batch; each needs memory at the other nodes."""


class Costs(NamedTuple):
    """What the parts of a step cost.

    Args:
        micro_batch_s: seconds that the slowest rank takes for one micro-batch; 0: unknown.
        transfer_s: seconds in which a node sends all gradients once, and receives as much at the same time.
        last_share: part of the gradients, 0 to 1, that can travel only after the last backward pass.
        sends_early: nodes send complete subtrees before their last micro-batch, see `late_volume`.
    """

    micro_batch_s: float = 0.0
    transfer_s: float = 0.0
    last_share: float = 1.0
    sends_early: bool = True


UNKNOWN: Final = Costs()


def ranks_of(nodes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each node; nodes and ranks in ascending order.

    >>> ranks_of((0, 1, 0))
    ((0, 2), (1,))
    """
    return tuple(tuple(rank for rank, of_rank in enumerate(nodes) if of_rank == node) for node in sorted(set(nodes)))


@lru_cache(maxsize=4096)
def decide_spans(num_micro_batches: int, nodes: tuple[int, ...], costs: Costs = UNKNOWN) -> tuple[Span, ...]:
    """Divide the micro-batches of a step among ranks so that the step takes the least time.

    The ranks of a node get neighbouring micro-batches, and each micro-batch goes to one rank. Without costs, and on one
    node, the lengths of the spans differ by at most one.

    Args:
        num_micro_batches: of the step.
        nodes: the number of each rank's node.
        costs: of the parts of a step.

    Returns:
        The spans, in rank order.

    >>> decide_spans(8, (0, 1, 2))
    (Span(start=0, stop=3), Span(start=3, stop=6), Span(start=6, stop=8))
    >>> decide_spans(8, (0, 1, 2), Costs(micro_batch_s=0.001, transfer_s=1.0))
    (Span(start=0, stop=2), Span(start=2, stop=4), Span(start=4, stop=8))
    >>> decide_spans(4, (0, 1, 0))
    (Span(start=0, stop=2), Span(start=3, stop=4), Span(start=2, stop=3))
    """
    if not costs.micro_batch_s:
        return even_spans(num_micro_batches, nodes)
    # Of equally fast ones, the one that sends the fewest bytes.
    return min(
        divisions(num_micro_batches, nodes), key=lambda spans: (estimate_s(spans, nodes, costs), volume(spans, nodes))
    )


def estimate_s(spans: tuple[Span, ...], nodes: tuple[int, ...], costs: Costs) -> float:
    """Estimate the seconds of a step: the longest span, and the bytes that no micro-batch hides."""
    work_s = max(span.num_items for span in spans) * costs.micro_batch_s
    late, early = _volumes(spans, nodes, has_early=costs.sends_early)
    late_s, early_s = late * costs.transfer_s, early * costs.transfer_s
    hidden_s = min(_BACKWARD_SHARE * costs.micro_batch_s, (1 - costs.last_share) * late_s)
    early_hidden_s = min(early_s, _num_hiding(spans, nodes) * costs.micro_batch_s - hidden_s) if early_s else 0.0
    return work_s + late_s - hidden_s + early_s - early_hidden_s


def transfer_s(
    travel_s: float, spans: tuple[Span, ...], nodes: tuple[int, ...], micro_batch_s: float, *, has_early: bool = True
) -> float:
    """Return the seconds in which a node sends all gradients once; the inverse of `estimate_s`.

    Args:
        travel_s: for which a rank sent and received gradients, or waited for them, in a step.
        spans: of that step.
        nodes: the number of each rank's node.
        micro_batch_s: for one micro-batch.
        has_early: complete subtrees travelled before the last micro-batches.
    """
    late, early = _volumes(spans, nodes, has_early=has_early)
    hiding_s = _num_hiding(spans, nodes) * micro_batch_s if early else 0.0
    seconds = travel_s / late
    return seconds if early * seconds <= hiding_s else (travel_s + hiding_s) / (late + early)


def late_volume(spans: tuple[Span, ...], nodes: tuple[int, ...]) -> float:
    """Return the part of `volume` that passes after the last micro-batches.

    A node of one rank sends its first subtrees as soon as they are complete.

    >>> uneven = (Span(0, 3), Span(3, 8))
    >>> volume(uneven, (0, 1)), late_volume(uneven, (0, 1))
    (1.5, 1.0)
    """
    pairs = zip(_sent(spans, nodes), num_early(spans, nodes), strict=True)
    return _volume([num - early for (num, _), early in pairs])


def _volumes(spans: tuple[Span, ...], nodes: tuple[int, ...], *, has_early: bool) -> tuple[float, float]:
    whole = volume(spans, nodes)
    late = late_volume(spans, nodes) if has_early else whole
    return late, whole - late


def num_early(spans: tuple[Span, ...], nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many subtrees each node sends before its last micro-batch: its first ones, if it has one rank.

    None do if a rank has no micro-batches.

    >>> num_early((Span(0, 3), Span(3, 8)), (0, 1)), num_early((Span(0, 3), Span(3, 4), Span(4, 8)), (0, 0, 1))
    ((1, 1), (0, 0))
    """
    has_early = all(span.num_items for span in spans)
    return tuple(min(num - 1, _MAX_EARLY) if has_early and len(ranks) == 1 else 0 for num, ranks in _sent(spans, nodes))


def _num_hiding(spans: tuple[Span, ...], nodes: tuple[int, ...]) -> int:
    """Return during how many micro-batches of the longest span all early subtrees can travel."""
    longest = max(span.num_items for span in spans)
    ready = [0]
    for early, (rank, *_) in zip(num_early(spans, nodes), ranks_of(nodes), strict=True):
        if early:
            ready.append(blocks(spans[rank])[early].start - spans[rank].start)
    return longest - max(ready)


def volume(spans: tuple[Span, ...], nodes: tuple[int, ...]) -> float:
    """Return how often the bytes of all gradients pass the link of the busiest node in a step, in one direction.

    >>> halves, uneven = (Span(0, 4), Span(4, 8)), (Span(0, 3), Span(3, 8))
    >>> volume(halves, (0, 1)), volume(uneven, (0, 1)), volume(halves, (0, 0))
    (1.0, 1.5, 0.0)
    """
    return _volume([num for num, _ in _sent(spans, nodes)])


def _sent(spans: tuple[Span, ...], nodes: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the number of subtrees that each node sends, and its ranks."""
    return [(num_blocks(*_join([spans[rank] for rank in ranks])), ranks) for ranks in ranks_of(nodes)]


def _volume(sent: list[int]) -> float:
    others = len(sent) - 1
    # Each node sends its part of each subtree to each other node, and then its part of the result.
    return max(max((own + 1) * others, sum(sent) - own + others) for own in sent) / len(sent)


def cheap_numbers(num_micro_batches: int, max_workers: int) -> tuple[int, ...]:
    """Return the numbers of workers that have equal shares of a step of which each is one subtree.

    >>> cheap_numbers(8, 8), cheap_numbers(12, 6), cheap_numbers(7, 4)
    ((1, 2, 4, 8), (1, 3, 6), (1,))
    """
    numbers = range(1, min(num_micro_batches, max_workers) + 1)
    equal = (number for number in numbers if num_micro_batches % number == 0)
    return tuple(number for number in equal if number == 1 or num_blocks(0, num_micro_batches // number) == 1)


def describe_cheap_numbers(numbers: Sequence[int]) -> str:
    """Describe the numbers that `cheap_numbers` found.

    >>> print(describe_cheap_numbers((1, 2, 4)))
    Cheap numbers of workers: 1, 2 and 4. These have equal shares of a step and send the fewest bytes between machines.
    """
    *most, last = map(str, numbers)
    named = f"{', '.join(most)} and {last}" if most else last
    return (
        f"Cheap numbers of workers: {named}. These have equal shares of a step and send the fewest bytes between "
        f"machines."
    )


@lru_cache(maxsize=256)
def divisions(num_micro_batches: int, nodes: tuple[int, ...]) -> tuple[tuple[Span, ...], ...]:
    """Return the ways to divide micro-batches that can be the best, for any costs; the most even one first.

    For each number of subtrees per node it is the most even one that has no more than these.
    """
    of_nodes = ranks_of(nodes)
    shares = [len(ranks) for ranks in of_nodes]
    bounds = _even_bounds(num_micro_batches, shares)
    found = [bounds]
    most = max(num_blocks(*pair) for pair in pairwise(bounds))
    places = [[0], *(_places_near(bound, num_micro_batches) for bound in bounds[1:-1]), [num_micro_batches]]
    for limit in range(most - 1, 0, -1):
        aligned = _most_even(places, shares, limit)
        if aligned is not None and aligned not in found:
            found.append(aligned)
    return tuple(_by_rank(each, of_nodes) for each in found)


@lru_cache(maxsize=4096)
def even_spans(num_micro_batches: int, nodes: tuple[int, ...]) -> tuple[Span, ...]:
    """Return the spans, in rank order, with which the longest one is as short as possible."""
    of_nodes = ranks_of(nodes)
    return _by_rank(_even_bounds(num_micro_batches, [len(ranks) for ranks in of_nodes]), of_nodes)


@lru_cache(maxsize=4096)
def ease_in(
    num_micro_batches: int, nodes: tuple[int, ...], newcomers: tuple[int, ...], max_pending: tuple[int, ...]
) -> tuple[Span, ...]:
    """Divide the first step of newcomers, so that the other ranks wait for them as little as possible.

    A newcomer receives the state when the others already compute, and runs its code for the first time. So it gets one
    micro-batch, and more only where a rank would otherwise have more blocks pending than it may. The others share the
    rest evenly, as they did before.

    Args:
        num_micro_batches: of the step.
        nodes: the number of each rank's node.
        newcomers: ranks that take part for the first time; not all.
        max_pending: for each rank, for how many blocks it has memory.

    Returns:
        The spans, in rank order. The even ones if newcomers have no more than one micro-batch there, if all others need
        more memory, or if more bytes would pass between nodes.

    >>> ease_in(6, (0, 0), (1,), (2, 2)), ease_in(8, (0, 0), (1,), (2, 2))
    ((Span(start=0, stop=5), Span(start=5, stop=6)), (Span(start=0, stop=6), Span(start=6, stop=8)))
    """
    others = [rank for rank in range(len(nodes)) if rank not in newcomers]
    even = even_spans(num_micro_batches, nodes)
    most_bytes = volume(even, nodes)
    for few in range(1, -(-num_micro_batches // len(nodes))):
        shares = split(num_micro_batches - few * len(newcomers), len(others))
        lengths = dict.fromkeys(newcomers, few) | {
            rank: part.num_items for rank, part in zip(others, shares, strict=True)
        }
        spans = [Span(0, 0)] * len(nodes)
        start = 0
        for rank in (rank for ranks in ranks_of(nodes) for rank in ranks):
            spans[rank] = Span(start, start + lengths[rank])
            start += lengths[rank]
        has_room = all(most_blocks(span) <= limit for span, limit in zip(spans, max_pending, strict=True))
        if has_room and volume(tuple(spans), nodes) <= most_bytes:
            return tuple(spans)
    return even


def most_even_spans(num_micro_batches: int, nodes: tuple[int, ...], rank: int) -> set[Span]:
    """Return the spans of one rank in `even_spans` of all steps with up to ``num_micro_batches``.

    >>> sorted(most_even_spans(3, (0, 1), 1))
    [Span(start=1, stop=1), Span(start=1, stop=2), Span(start=2, stop=3)]
    """
    of_nodes = ranks_of(nodes)
    node = next(index for index, ranks in enumerate(of_nodes) if rank in ranks)
    place, shares = of_nodes[node].index(rank), [len(ranks) for ranks in of_nodes]
    spans = set()
    for num in range(1, num_micro_batches + 1):
        start, stop = _even_part(num, shares, node)
        part = part_of(stop - start, shares[node], place)
        spans.add(Span(start + part.start, start + part.stop))
    return spans


def _even_bounds(num_micro_batches: int, shares: list[int]) -> tuple[int, ...]:
    return (0, *(_even_part(num_micro_batches, shares, node).stop for node in range(len(shares))))


def _even_part(num_micro_batches: int, shares: list[int], node: int) -> Span:
    # Between the nodes first: 2 nodes of 3 ranks that have 8 micro-batches get 4 each, which is one subtree.
    if len(set(shares)) == 1:
        return part_of(num_micro_batches, len(shares), node)
    before = sum(shares[:node])
    bounds = (-(-num_micro_batches * ranks // sum(shares)) for ranks in (before, before + shares[node]))
    return Span(*bounds)


def _places_near(bound: int, num_micro_batches: int) -> list[int]:
    """Return the bounds of subtrees of each size to both sides of a place, and the place itself."""
    near = {bound}
    for level in range(num_micro_batches.bit_length()):
        below = bound >> level << level
        near |= {below, min(below + (1 << level), num_micro_batches)}
    return sorted(near)


def _most_even(places: list[list[int]], shares: list[int], limit: int) -> tuple[int, ...] | None:
    """Return the bounds of nodes with at most ``limit`` subtrees each whose largest span per rank is the smallest.

    None: no choice of places has so few.
    """
    # For each place at which the nodes so far may end: longest span, unevenness of all, and the bounds.
    best: dict[int, tuple[int, float, tuple[int, ...]]] = {0: (0, 0.0, (0,))}
    for ends, share in zip(places[1:], shares, strict=True):
        following: dict[int, tuple[int, float, tuple[int, ...]]] = {}
        for stop in ends:
            for start, (longest, uneven, bounds) in best.items():
                if start <= stop and num_blocks(start, stop) <= limit:
                    num_items = stop - start
                    reached = (max(longest, -(-num_items // share)), uneven + num_items**2 / share, (*bounds, stop))
                    following[stop] = min(following.get(stop, reached), reached)
        best = following
    return min(best.values())[2] if best else None


def _by_rank(bounds: tuple[int, ...], of_nodes: tuple[tuple[int, ...], ...]) -> tuple[Span, ...]:
    spans: dict[int, Span] = {}
    for (start, stop), ranks in zip(pairwise(bounds), of_nodes, strict=True):
        for rank, part in zip(ranks, split(stop - start, len(ranks)), strict=True):
            spans[rank] = Span(start + part.start, start + part.stop)
    return tuple(spans[rank] for rank in range(len(spans)))


def _join(spans: list[Span]) -> Span:
    return Span(min(span.start for span in spans), max(span.stop for span in spans))
