"""The sum of one bucket over all ranks, along the canonical tree; one class per transport.

Every exchange gives the same bits, except ``FastExchange``, which sums in the order that gloo chooses. Each owns the
memory of the local sums, because with shared memory these must be written where the peers can read them. Decides
nothing about membership; a failure is a `BrokenView` and leaves no partial result that the next view would see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import torch

from legato.core.balance import UNKNOWN, Costs, decide_spans, divisions, ease_in, even_spans, most_even_spans
from legato.core.errors import BrokenView
from legato.core.span import Addition, Block, Span, blocks, fold_plan, most_blocks, split
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket
from legato.train.reduction.kept_memory import KeptMemory
from legato.train.reduction.segments import Segment

# Up to this many bytes over all ranks every rank adds up all blocks itself, which saves a round trip.
_DIRECT_BYTES: Final = 2 * 2**20
# How much more memory a rank's blocks may take for the first step of newcomers.
_ROOM_BYTES: Final = 2**26
_CHUNK_ELEMENTS: Final = 2**17


class Assignment(NamedTuple):
    """How one step's micro-batches are assigned to the ranks of a view, and how the sum is put together.

    Args:
        spans: of all ranks, in rank order.
        owned: the blocks that each rank contributes, in rank order.
        order: the ranks in the order of their micro-batches.
        additions: turn all blocks, in the order of their micro-batches, into the root at position 0.
    """

    spans: tuple[Span, ...]
    owned: tuple[tuple[Block, ...], ...]
    order: tuple[int, ...]
    additions: tuple[Addition, ...]


@lru_cache(maxsize=4096)
def put_together(spans: tuple[Span, ...]) -> Assignment:
    """Return the assignment with the given spans, which together are a whole step."""
    owned = tuple(blocks(span) for span in spans)
    order = tuple(sorted(range(len(spans)), key=lambda rank: (spans[rank], rank)))
    return Assignment(spans, owned, order, fold_plan(tuple(block for rank in order for block in owned[rank])))


def assign(num_micro_batches: int, num_ranks: int) -> Assignment:
    """Assign the non-empty micro-batches of a step evenly to the ranks, in rank order."""
    return put_together(split(num_micro_batches, num_ranks))


class Division(NamedTuple):
    """How the micro-batches of all steps are divided among the ranks of a view.

    Args:
        nodes: the number of each rank's node.
        num_micro_batches: of a full step.
        costs: of the parts of a full step. A smaller last step of an epoch is divided evenly, whatever the costs.
        newcomers: the ranks that come without the job's state, while others have it.
        room: how many more blocks a rank may have pending in the first step of newcomers than in the others.
    """

    nodes: tuple[int, ...]
    num_micro_batches: int
    costs: Costs = UNKNOWN
    newcomers: tuple[int, ...] = ()
    room: int = 0

    def assign(self, num_micro_batches: int, *, is_first: bool = False) -> Assignment:
        """Assign the non-empty micro-batches of a step to the ranks.

        Args:
            num_micro_batches: of the step.
            is_first: it is the first step of the newcomers. A smaller last step of an epoch is divided evenly.
        """
        if is_first and self.newcomers and num_micro_batches == self.num_micro_batches:
            return put_together(_first_spans(self))
        costs = self.costs if num_micro_batches == self.num_micro_batches else UNKNOWN
        return put_together(decide_spans(num_micro_batches, self.nodes, costs))

    def max_pending(self, rank: int) -> int:
        """Return the largest number of blocks that a rank has pending in any step, whatever the costs."""
        whole = {spans[rank] for spans in divisions(self.num_micro_batches, self.nodes)}
        usual = max(map(most_blocks, whole | most_even_spans(self.num_micro_batches, self.nodes, rank)))
        return max(usual, most_blocks(_first_spans(self)[rank])) if self.newcomers else usual


def divide(group: Group, nodes: tuple[int, ...], buckets: Sequence[Bucket], num_micro_batches: int) -> Division:
    """Return how the micro-batches of a view are divided, as long as no costs are known.

    Args:
        group: connects the ranks of the view.
        nodes: the number of each rank's node.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
    """
    num_bytes = sum(bucket.numel * bucket.dtype.itemsize for bucket in buckets)
    return Division(nodes, num_micro_batches, newcomers=group.newcomers, room=_ROOM_BYTES // max(num_bytes, 1))


def _first_spans(division: Division) -> tuple[Span, ...]:
    even = even_spans(division.num_micro_batches, division.nodes)
    limits = tuple(most_blocks(span) + division.room for span in even)
    return ease_in(division.num_micro_batches, division.nodes, division.newcomers, limits)


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

    @property
    def buckets(self) -> Sequence[Bucket]:
        """All buckets that it sums, in their order."""
        ...

    @property
    def division(self) -> Division:
        """How the micro-batches of the coming steps are divided among the ranks."""
        ...

    def begin_step(self) -> None:
        """Begin the local sums of the next step, or of a new attempt at a step."""
        ...

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket, each of shape ``[numel]``."""
        ...

    def has_early_blocks(self, assignment: Assignment) -> bool:
        """Whether blocks of a step can travel while ranks compute their later ones; `send_early` is called then."""
        ...

    def send_early(self, assignment: Assignment, num_complete: int) -> None:
        """Begin to sum blocks that are complete. Raises BrokenView like `reduce`.

        Args:
            assignment: the blocks of every rank.
            num_complete: how many of this rank's blocks are complete, in all buckets; 0 at the begin of the step.
        """
        ...

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Begin to sum a bucket over all ranks; its result is complete after `settle`.

        Args:
            bucket: which one.
            local: the blocks of this rank.
            assignment: the blocks of every rank.
            announced: all ranks are known to have completed their local sums of this bucket.

        Raises:
            BrokenView: a peer died or closed its connection.
        """
        ...

    def proceed(self) -> None:
        """Continue sums that `reduce` began, while no other bucket is to be summed. Raises BrokenView like `reduce`."""
        ...

    def settle(self, take: Callable[[Bucket], object]) -> None:
        """Wait until all sums that `reduce` began are complete. Raises BrokenView like `reduce`.

        Args:
            take: called once for each bucket, in order, as soon as its result is complete on this rank.
        """
        ...

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum in pieces that make up ``[numel]``; valid until all ranks are in the next step."""
        ...

    def word(self, micro_batch_s: float) -> list[int]:
        """Return this rank's costs for the round of a step; every rank returns equally many numbers.

        Args:
            micro_batch_s: seconds that this rank took for one micro-batch of this step; 0: it had none.
        """
        ...

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Evaluate the words of all ranks. ``division`` may be another one after that, the same on every rank."""
        ...

    def take_sent_bytes(self) -> int:
        """Return how many bytes this rank has sent to other nodes since the last call; 0 if the transport hides it."""
        ...

    def spares_results(self) -> bool:
        """Return whether results of earlier views stay as they are; if not, the next view's memory is new."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class Unmeasured:
    """The part of exchanges that divide the micro-batches evenly, and so need no measured costs.

    Attributes:
        buckets: all buckets that it sums, in their order.
        sent_bytes: that this rank has sent to other nodes since the last `take_sent_bytes`.
    """

    buckets: Sequence[Bucket]
    sent_bytes = 0

    def take_sent_bytes(self) -> int:
        """Return how many bytes this rank has sent to other nodes since the last call; 0 if the transport hides it."""
        taken, self.sent_bytes = self.sent_bytes, 0
        return taken

    def has_early_blocks(self, assignment: Assignment) -> bool:
        """Return False: all blocks travel after the last micro-batch."""
        return False

    def send_early(self, assignment: Assignment, num_complete: int) -> None:
        """Do nothing."""

    def proceed(self) -> None:
        """Do nothing: `reduce` returns after the sum is complete."""

    def settle(self, take: Callable[[Bucket], object]) -> None:
        """Pass on all buckets, which are complete."""
        for bucket in self.buckets:
            take(bucket)

    def word(self, micro_batch_s: float) -> list[int]:
        """Return nothing."""
        return []

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Do nothing."""

    def spares_results(self) -> bool:
        """Return True: the memory is new."""
        return True


class PrivateExchange(Unmeasured):
    """Sums in private memory over gloo connections between the ranks; for any number of machines.

    A rank that is alone needs no exchange, so this has no memory for it.

    Args:
        group: connects the ranks; two or more.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        self._group = group
        self.buckets: Sequence[Bucket] = buckets
        self.division = divide(group, (0,) * group.size, buckets, num_micro_batches)
        if group.size == 1:
            buckets = ()
        pending = self.division.max_pending(group.rank)
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
        in_order = [term for rank in assignment.order for term in terms[rank]]
        fold(in_order, assignment.additions, result[mine.start : mine.stop])
        if not direct:
            pieces = [[result[cut.start : cut.stop]] for cut in cuts]
            group.swap([pieces[group.rank]] * group.size, pieces)

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


class SharedExchange(Unmeasured):
    """Memory shared by the ranks of one machine: a rank reads its peers' sums in their memory, without a copy.

    Each rank writes its own segment only. Two orderings make that safe. A rank may read a peer's blocks once the peer
    has announced them, and its part of the result once the peer has announced that. A rank may overwrite its blocks
    when no peer reads them any more. For large buckets a second announcement in each step says that the reader is done.
    Small buckets alternate between two places, and the next step's announcement says so.

    Args:
        group: connects the ranks; all on one machine.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
        kept: from which this rank's segment is taken, and where it stays for later views; None: it is new.

    Raises:
        OSError: there is not enough shared memory on this machine.
    """

    def __init__(
        self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int, kept: KeptMemory | None = None
    ) -> None:
        self._group = group
        self._kept = kept
        # Held while this rank sums a bucket.
        self._summing = threading.Lock()
        self._is_closed = False
        self.buckets: Sequence[Bucket] = buckets
        self.division = divide(group, (0,) * group.size, buckets, num_micro_batches)
        self._results: list[torch.Tensor | None] = [None] * len(buckets)
        self._side = 0
        self._has_summed = False
        self._segments: list[Segment | None] = [None] * group.size
        num_bytes, peers = self._num_bytes(group.rank), [group.view.workers[peer] for peer in group.peers]
        self._segments[group.rank] = (
            Segment(num_bytes)
            if kept is None
            else kept.take(num_bytes, peers, _most_bytes(buckets, num_micro_batches, group.size - 1))
        )
        self._places: list[list[Place]] = []

    @property
    def address(self) -> str:
        """By which peers find this rank's segment until `hide` is called."""
        return self._own().address

    def connect(self, addresses: Sequence[str]) -> None:
        """Map the segments of all ranks.

        Raises:
            StrangeSegment: a rank's address leads to memory that is not that rank's.
            OSError: a segment cannot be mapped.
        """
        for peer in self._group.peers:
            num_bytes, address, kept = self._num_bytes(peer), addresses[peer], self._kept
            self._segments[peer] = (
                Segment(num_bytes, address)
                if kept is None
                else kept.find(self._group.view.workers[peer], address, num_bytes)
            )
        self._places = [
            lay_out(self._plan(rank), segment) for rank, segment in enumerate(self._segments) if segment is not None
        ]
        self._results = [zeros_of(bucket, bucket.numel) if self._direct(bucket) else None for bucket in self.buckets]

    def hide(self) -> None:
        """Prevent further mappings of this rank's segment, because every peer has mapped it, unless it is kept."""
        if self._kept is None:
            self._own().hide()

    def begin_step(self) -> None:
        """Switch to the other place for small buckets."""
        # If the program left the last step at its beginning, a peer may still read what is in the other place.
        if self._has_summed:
            self._side ^= 1
            self._has_summed = False
        self._own().is_written = True

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._places[self._group.rank][bucket.index].blocks(self._side)

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks."""
        with self._summing:
            if self._is_closed:
                raise BrokenView(f"view {self._group.view.number}: this rank has left it")
            self._reduce(bucket, assignment, announced=announced)

    def _reduce(self, bucket: Bucket, assignment: Assignment, *, announced: bool) -> None:
        if not announced:
            self._group.barrier()
        self._has_summed = True
        whole = self._results[bucket.index]
        places = [places[bucket.index] for places in self._places]
        terms = [
            block
            for rank in assignment.order
            for block in places[rank].blocks(self._side)[: len(assignment.owned[rank])]
        ]
        if whole is not None:
            fold(terms, assignment.additions, whole)
            return
        mine = split(bucket.numel, self._group.size)[self._group.rank]
        fold([term[mine.start : mine.stop] for term in terms], assignment.additions, places[self._group.rank].result)
        self._group.barrier()

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum: as one tensor, or each rank's part in that rank's memory."""
        whole = self._results[bucket.index]
        return [whole] if whole is not None else [places[bucket.index].result for places in self._places]

    def spares_results(self) -> bool:
        """Return whether no step was begun in this memory in an earlier view; if one was, the next memory is new."""
        # Memory that only a view without a step had holds no result: otherwise two ranks could break views in turns.
        is_written = self._own().is_written
        if is_written and self._kept is not None:
            self._kept.drop()
        return not is_written

    def close(self) -> None:
        """Wait until this rank writes no more sums. Unless its memory is kept, it is freed with the last mapping."""
        if not self._summing.acquire(blocking=False):
            # The program has left a step in its middle.
            self._group.break_connections()
            self._summing.acquire()
        self._is_closed = True
        self._summing.release()
        self.hide()

    def _own(self) -> Segment:
        own = self._segments[self._group.rank]
        assert own is not None
        return own

    def _direct(self, bucket: Bucket) -> bool:
        return _is_direct(bucket, self._group.size)

    def _num_bytes(self, rank: int) -> int:
        return max(1, sum(place.num_bytes for place in self._plan(rank)))

    def _plan(self, rank: int) -> list[PlacePlan]:
        return _plan(self.buckets, self.division, rank)


def _is_direct(bucket: Bucket, num_ranks: int) -> bool:
    return bucket.numel * bucket.dtype.itemsize * num_ranks <= _DIRECT_BYTES


def _plan(buckets: Sequence[Bucket], division: Division, rank: int) -> list[PlacePlan]:
    pending, num_ranks = division.max_pending(rank), len(division.nodes)
    plans = []
    for bucket in buckets:
        direct = _is_direct(bucket, num_ranks)
        num_result = 0 if direct else split(bucket.numel, num_ranks)[rank].num_items
        plans.append(PlacePlan(bucket.dtype, bucket.numel, pending, 2 if direct else 1, num_result))
    return plans


def _most_bytes(buckets: Sequence[Bucket], num_micro_batches: int, num_ranks: int) -> int:
    """Return the largest size of a rank's segment in a view of so many ranks; a rank that is alone has none."""
    if num_ranks == 1:
        return 0
    division = Division((0,) * num_ranks, num_micro_batches)
    return max(sum(place.num_bytes for place in _plan(buckets, division, rank)) for rank in range(num_ranks))


def lay_out(plans: Sequence[PlacePlan], segment: Segment) -> list[Place]:
    """Return the places of a rank's buckets in its segment, one after the other."""
    starts = accumulate((plan.num_bytes for plan in plans), initial=0)
    return [Place(plan, segment, start) for plan, start in zip(plans, starts, strict=False)]


class PlacePlan(NamedTuple):
    """What a rank has in shared memory for one bucket.

    Args:
        dtype: of the bucket.
        numel: of the bucket.
        num_blocks: blocks of this rank that it has room for.
        num_sides: how often it has this room.
        num_result: elements of the result that this rank keeps.
    """

    dtype: torch.dtype
    numel: int
    num_blocks: int
    num_sides: int
    num_result: int

    @property
    def stride_bytes(self) -> int:
        """Bytes of one block with what separates it from the next one."""
        # Whole cache lines, so that no two tensors share one.
        return -(-self.numel * self.dtype.itemsize // 64) * 64

    @property
    def num_bytes(self) -> int:
        """Bytes of all blocks and of the result."""
        return (
            self.stride_bytes * self.num_blocks * self.num_sides + -(-self.num_result * self.dtype.itemsize // 64) * 64
        )


class Place:
    """The places of one rank's blocks and result of one bucket in its segment."""

    def __init__(self, plan: PlacePlan, segment: Segment, offset: int) -> None:
        self._sides = []
        for _ in range(plan.num_sides):
            side = []
            for _ in range(plan.num_blocks):
                side.append(segment.tensor(offset, plan.numel, plan.dtype))
                offset += plan.stride_bytes
            self._sides.append(side)
        self.result = segment.tensor(offset, plan.num_result, plan.dtype)

    def blocks(self, side: int) -> list[torch.Tensor]:
        """Return the room for blocks, each ``[numel]``."""
        return self._sides[side % len(self._sides)]


def zeros_of(bucket: Bucket, numel: int) -> torch.Tensor:
    """Return zeros of a bucket's dtype on its device, shape ``[numel]``."""
    return torch.zeros(numel, dtype=bucket.dtype, device=bucket.device)
