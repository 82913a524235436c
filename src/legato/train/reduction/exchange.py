"""The sum of one bucket over all ranks, along the canonical tree; one class per transport.

Every exchange gives the same bits, except ``FastExchange``, which sums in the order that gloo chooses. Each owns the
memory of the local sums, because with shared memory these must be written where the peers can read them. Decides
nothing about membership; a failure is a `BrokenView` and leaves no partial result that the next view would see.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import torch

from legato.core.span import Addition, Block, Span, blocks, fold_plan, max_pending, split
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket
from legato.train.reduction.segments import Segment

# Up to this many bytes over all ranks every rank adds up all blocks itself, which saves a round trip.
_DIRECT_BYTES: Final = 2 * 2**20
_CHUNK_ELEMENTS: Final = 2**15


class Assignment(NamedTuple):
    """How one step's micro-batches are assigned to the ranks of a view, and how the sum is put together.

    Args:
        spans: of all ranks, in rank order.
        owned: the blocks that each rank contributes, in rank order.
        additions: turn all blocks, in rank order, into the root at position 0.
    """

    spans: tuple[Span, ...]
    owned: tuple[tuple[Block, ...], ...]
    additions: tuple[Addition, ...]


@lru_cache(maxsize=4096)
def assign(num_micro_batches: int, num_ranks: int) -> Assignment:
    """Assign the non-empty micro-batches of a step to the ranks."""
    spans = split(num_micro_batches, num_ranks)
    owned = tuple(blocks(span) for span in spans)
    return Assignment(spans, owned, fold_plan(tuple(block for blocks_of_rank in owned for block in blocks_of_rank)))


def fold(terms: Sequence[torch.Tensor], additions: Sequence[Addition], out: torch.Tensor) -> None:
    """Add up terms of shape ``[n]`` as planned, into ``out``, shape ``[n]``; the terms do not change.

    ``out`` may not overlap a term.
    """
    if not additions:
        out.copy_(terms[0])
        return
    # In pieces that stay in the processor's cache, because sums of more than two terms need temporary memory.
    step = out.numel() if len(additions) == 1 or out.device.type != "cpu" else _CHUNK_ELEMENTS
    for start in range(0, out.numel(), max(step, 1)):
        pieces = [term[start : start + step] for term in terms]
        result = out[start : start + step]
        private: set[int] = set()
        for target, source in additions:
            if target in private:
                pieces[target].add_(pieces[source])
            else:
                total = result if target == 0 else torch.empty_like(result)
                pieces[target] = torch.add(pieces[target], pieces[source], out=total)
                private.add(target)


class Exchange(Protocol):
    """Sums buckets over the ranks of one view."""

    def begin_step(self) -> None:
        """Begin the local sums of the next step, or of a new attempt at a step."""
        ...

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket, each of shape ``[numel]``."""
        ...

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks.

        Args:
            bucket: which one.
            local: the blocks of this rank.
            assignment: the blocks of every rank.
            announced: all ranks are known to have completed their local sums of this bucket.

        Raises:
            BrokenView: a peer died or closed its connection.
        """
        ...

    def settle(self) -> None:
        """Wait until all sums that `reduce` began are complete. Raises BrokenView like `reduce`."""
        ...

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum in pieces that make up ``[numel]``; valid until all ranks are in the next step."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class PrivateExchange:
    """Sums in private memory over gloo connections between the ranks; for any number of machines.

    A rank that is alone needs no exchange, so this has no memory for it.

    Args:
        group: connects the ranks; two or more.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        self._group = group
        if group.size == 1:
            buckets = ()
        pending = max_pending(num_micro_batches, group.size, group.rank)
        self._memory = [[zeros_of(bucket, bucket.numel) for _ in range(max(1, pending))] for bucket in buckets]
        self._result = [zeros_of(bucket, bucket.numel) for bucket in buckets]

    @staticmethod
    def additions_alone(assignment: Assignment) -> Sequence[Addition]:
        """Return the additions by which a rank that is alone sums its blocks."""
        return assignment.additions

    def begin_step(self) -> None:
        """Do nothing: local sums and results have separate memory."""

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._memory[bucket.index]

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks."""
        group = self._group
        result = self._result[bucket.index]
        direct = bucket.numel * bucket.dtype.itemsize * group.size <= _DIRECT_BYTES
        whole = Span(0, bucket.numel)
        cuts = (whole,) * group.size if direct else split(bucket.numel, group.size)
        mine = cuts[group.rank]
        terms: list[list[torch.Tensor]] = []
        for rank, owned in enumerate(assignment.owned):
            if rank == group.rank:
                terms.append([block[mine.start : mine.stop] for block in local])
            else:
                terms.append([zeros_of(bucket, mine.num_items) for _ in owned])
        outgoing = [[block[cut.start : cut.stop] for block in local] for cut in cuts]
        group.swap(outgoing, terms)
        fold([term for of_rank in terms for term in of_rank], assignment.additions, result[mine.start : mine.stop])
        if not direct:
            pieces = [[result[cut.start : cut.stop]] for cut in cuts]
            group.swap([pieces[group.rank]] * group.size, pieces)

    def settle(self) -> None:
        """Do nothing: `reduce` returns after the sum is complete."""

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum, as one tensor."""
        return [self._result[bucket.index]]

    def close(self) -> None:
        """Do nothing: there is only ordinary memory."""


class FastExchange(PrivateExchange):
    """Plain all-reduce: equals the exact sum only within rounding errors, and depends on the number of ranks."""

    @staticmethod
    def additions_alone(assignment: Assignment) -> Sequence[Addition]:
        """Return the additions by which a rank that is alone sums its blocks: one after the other."""
        return [Addition(0, source) for source in range(1, sum(map(len, assignment.owned)))]

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks."""
        total = local[0] if local else self._memory[bucket.index][0].zero_()
        for block in local[1:]:
            total.add_(block)
        self._group.all_reduce(total)
        self._result[bucket.index].copy_(total)


class SharedExchange:
    """Memory shared by the ranks of one machine: a rank reads its peers' sums in their memory, without a copy.

    Each rank writes its own segment only. Two orderings make that safe. A rank may read a peer's blocks once the peer
    has announced them, and its part of the result once the peer has announced that. A rank may overwrite its blocks
    when no peer reads them any more. For large buckets a second announcement in each step says that the reader is done.
    Small buckets alternate between two places, and the next step's announcement says so.

    Args:
        group: connects the ranks; all on one machine.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.

    Raises:
        OSError: there is not enough shared memory on this machine.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        self._group = group
        self._num_micro_batches = num_micro_batches
        self._buckets = tuple(buckets)
        self._results: list[torch.Tensor | None] = [None] * len(buckets)
        self._side = 0
        self._segments: list[Segment | None] = [None] * group.size
        self._segments[group.rank] = Segment(self._num_bytes(group.rank))
        self._places: list[list[_Place]] = []

    @property
    def path(self) -> str:
        """The path by which peers find this rank's segment until `hide` is called."""
        return self._own().path

    def connect(self, paths: Sequence[str]) -> None:
        """Map the segments of all ranks.

        Raises:
            OSError: a segment cannot be mapped; it may belong to another machine.
        """
        for peer in self._group.peers:
            self._segments[peer] = Segment(self._num_bytes(peer), paths[peer])
        self._places = [
            self._lay_out(rank, segment) for rank, segment in enumerate(self._segments) if segment is not None
        ]
        self._results = [zeros_of(bucket, bucket.numel) if self._direct(bucket) else None for bucket in self._buckets]

    def hide(self) -> None:
        """Prevent further mappings of this rank's segment, because every peer has mapped it."""
        self._own().hide()

    def begin_step(self) -> None:
        """Switch to the other place for small buckets."""
        self._side ^= 1

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._places[self._group.rank][bucket.index].blocks(self._side)

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks."""
        if not announced:
            self._group.barrier()
        whole = self._results[bucket.index]
        places = [places[bucket.index] for places in self._places]
        terms = [
            block
            for place, owned in zip(places, assignment.owned, strict=True)
            for block in place.blocks(self._side)[: len(owned)]
        ]
        if whole is not None:
            fold(terms, assignment.additions, whole)
            return
        mine = split(bucket.numel, self._group.size)[self._group.rank]
        fold([term[mine.start : mine.stop] for term in terms], assignment.additions, places[self._group.rank].result)
        self._group.barrier()

    def settle(self) -> None:
        """Do nothing: `reduce` returns after the sum is complete."""

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum: as one tensor, or each rank's part in that rank's memory."""
        whole = self._results[bucket.index]
        return [whole] if whole is not None else [places[bucket.index].result for places in self._places]

    def close(self) -> None:
        """Close this rank's segment; its memory is freed with the last mapping."""
        self._own().hide()

    def _own(self) -> Segment:
        own = self._segments[self._group.rank]
        assert own is not None
        return own

    def _direct(self, bucket: Bucket) -> bool:
        return bucket.numel * bucket.dtype.itemsize * self._group.size <= _DIRECT_BYTES

    def _num_bytes(self, rank: int) -> int:
        return max(1, sum(place.num_bytes for place in self._plan(rank)))

    def _plan(self, rank: int) -> list[_PlacePlan]:
        pending = max_pending(self._num_micro_batches, self._group.size, rank)
        plans = []
        for bucket in self._buckets:
            direct = self._direct(bucket)
            num_result = 0 if direct else split(bucket.numel, self._group.size)[rank].num_items
            plans.append(_PlacePlan(bucket.dtype, bucket.numel, pending, 2 if direct else 1, num_result))
        return plans

    def _lay_out(self, rank: int, segment: Segment) -> list[_Place]:
        places = []
        offset = 0
        for plan in self._plan(rank):
            places.append(_Place(plan, segment, offset))
            offset += plan.num_bytes
        return places


class _PlacePlan(NamedTuple):
    dtype: torch.dtype
    numel: int
    num_blocks: int
    num_sides: int
    num_result: int

    @property
    def stride_bytes(self) -> int:
        # Whole cache lines, so that no two tensors share one.
        return -(-self.numel * self.dtype.itemsize // 64) * 64

    @property
    def num_bytes(self) -> int:
        return (
            self.stride_bytes * self.num_blocks * self.num_sides + -(-self.num_result * self.dtype.itemsize // 64) * 64
        )


class _Place:
    """The places of one rank's blocks and result of one bucket in its segment."""

    def __init__(self, plan: _PlacePlan, segment: Segment, offset: int) -> None:
        self._sides = []
        for _ in range(plan.num_sides):
            side = []
            for _ in range(plan.num_blocks):
                side.append(segment.tensor(offset, plan.numel, plan.dtype))
                offset += plan.stride_bytes
            self._sides.append(side)
        self.result = segment.tensor(offset, plan.num_result, plan.dtype)

    def blocks(self, side: int) -> list[torch.Tensor]:
        return self._sides[side % len(self._sides)]


def zeros_of(bucket: Bucket, numel: int) -> torch.Tensor:
    """Return zeros of a bucket's dtype on its device, shape ``[numel]``."""
    return torch.zeros(numel, dtype=bucket.dtype, device=bucket.device)
