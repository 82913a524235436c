"""The exact sum over ranks of several nodes: inside each node through shared memory, and once between the nodes.

Each rank is at home in a part of every bucket. Inside a node, ranks read each other's blocks and add them up to the
whole subtrees of the canonical tree that the node's micro-batches make up. For each part one rank of every other node
sends these subtrees to the part's home, which adds them up along the tree, and sends the result back the same way. So
the bytes of a part pass between two nodes once in each direction. The additions are those of the canonical tree, so the
result has the same bits as with any other exchange.

Where a node has one rank, the blocks that this rank completes before its last micro-batch travel at once, while it
computes the later ones.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median_low
from time import perf_counter
from typing import Final, NamedTuple

import torch

from legato.core.balance import Costs, decide_spans, estimate_s, transfer_s
from legato.core.span import Span
from legato.train.membership.groups import Group, Work
from legato.train.reduction.buckets import Bucket
from legato.train.reduction.exchange import Assignment, PlacePlan, divide, fold, lay_out, zeros_of
from legato.train.reduction.node_sums import NodePlan, NodeSum, Routes, plan_sums
from legato.train.reduction.segments import Segment

_NS: Final = 1e9
_MAX_WORD: Final = 2**52
_FIRST_DECISION: Final = 3
_EVERY: Final = 50
_NUM_NEWEST: Final = 2
"""Buckets whose results are on the way when the sums of the last one are."""
_MAX_SUMS: Final = 256
"""More than a node contributes to a bucket: twice the number of levels of the tree."""
_WORTH: Final = 0.95
"""Another division must take less than this part of the present one's time."""


class NodeExchange:
    """Sums buckets on CPUs over the ranks of several nodes.

    Each rank writes its blocks into its own segment. The first rank of a node keeps the results in its segment, and the
    ranks of the node write them there. There are two places for results, in alternation, because the next step's sums
    may begin before every rank has the last result. The ranks of a node begin the next step when all have read what
    they need of the blocks.

    Args:
        group: connects the ranks.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
        nodes: the number of each rank's node; ranks with the same one can share memory.
        exact: False: the sum equals the exact one only within rounding errors.
        sends_early: the caller can call `send_early`.

    Raises:
        OSError: there is not enough shared memory on this node.
    """

    def __init__(
        self,
        group: Group,
        buckets: Sequence[Bucket],
        num_micro_batches: int,
        nodes: tuple[int, ...],
        *,
        exact: bool = True,
        sends_early: bool = True,
    ) -> None:
        self._group = group
        self.buckets: Sequence[Bucket] = buckets
        self.division = divide(group, nodes, buckets, num_micro_batches)
        self._exact = exact
        self._nodes = nodes
        self._routes = Routes(nodes)
        self._node = self._routes.node_of(group.rank)
        self.mates = self._routes.mates(group.rank)
        self._carried = self._routes.carried(group.rank)
        self._own: Segment | None = None
        self._places: dict[int, list[_Room]] = {}
        self._turn = 0
        self._has_result = False
        self._scratch: dict[tuple[torch.dtype, int], torch.Tensor] = {}
        # Buckets whose sums are on the way to their homes, the oldest first; the next one; transfers of each result.
        self._on_way: deque[_OnWay] = deque()
        self._expected: _OnWay | None = None
        self._results_on_way: dict[int, list[Work]] = {}
        # Of this step: early sums of each bucket, until `reduce` takes them, and how many blocks this rank has sent;
        # None: none travel early in this step.
        self._sends_early = sends_early
        self._early: dict[int, _Early] = {}
        self._num_sent_early: int | None = None
        self._early_rooms: dict[int, torch.Tensor] = {}
        self._num_steps = 0
        self._spans: tuple[Span, ...] = ()
        self._travel_s = 0.0
        # Of the steps since the last decision.
        self._travels_s: list[float] = []
        self._micro_batches_s: list[float] = []
        self.sent_bytes = 0
        if len(self.mates) == 1:
            self._places[group.rank] = [
                _Room([zeros_of(b, b.numel) for _ in range(plan.num_blocks)], zeros_of(b, plan.num_result))
                for b, plan in zip(buckets, self._plans(group.rank), strict=True)
            ]
        else:
            self._own = Segment(self._num_bytes(group.rank))

    @property
    def address(self) -> str:
        """By which the ranks of this node find this rank's segment until `hide` is called; "": it has none."""
        return self._own.address if self._own is not None else ""

    def connect(self, addresses: Sequence[str]) -> None:
        """Map the segments of the ranks of this node.

        Args:
            addresses: of all ranks, in rank order.

        Raises:
            StrangeSegment: an address leads to memory that is not that rank's.
            OSError: a segment cannot be mapped.
        """
        if self._own is None:
            return
        for mate in self.mates:
            is_own = mate == self._group.rank
            segment = self._own if is_own else Segment(self._num_bytes(mate), addresses[mate])
            self._places[mate] = [_Room(place.blocks(0), place.result) for place in lay_out(self._plans(mate), segment)]

    def hide(self) -> None:
        """Prevent further mappings of this rank's segment, because every rank of this node has mapped it."""
        if self._own is not None:
            self._own.hide()

    def begin_step(self) -> None:
        """Switch to the other place for results."""
        if self._has_result:
            self._turn ^= 1
            self._has_result = False
        self._travel_s = 0.0
        self._leave_early()
        self._num_sent_early = None

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._places[self._group.rank][bucket.index].blocks

    def has_early_blocks(self, assignment: Assignment) -> bool:
        """Whether blocks of a step can travel while ranks compute their later ones; all ranks answer the same."""
        return self._may_send_early and any(plan_sums(assignment, self._nodes, exact=self._exact).num_early)

    def send_early(self, assignment: Assignment, num_complete: int) -> None:
        """Send this rank's complete blocks to the homes of their parts; at first, be ready for those of the others."""
        plan = plan_sums(assignment, self._nodes, exact=self._exact)
        num_complete = min(num_complete, plan.num_early[self._node])
        with self._traveling():
            if self._num_sent_early is None:
                self._num_sent_early = 0
                for bucket in self.buckets:
                    self._expect_early(bucket, plan)
            for index in range(self._num_sent_early, num_complete):
                for early in self._early.values():
                    self._send_block(early, index)
            self._num_sent_early = max(self._num_sent_early, num_complete)

    @property
    def _may_send_early(self) -> bool:
        return self._sends_early and not self._group.has_left_works

    def _leave_early(self) -> None:
        """Leave early sums of a step that the program left in its middle, which all ranks do in the same step.

        The ranks cannot tell them from those of a later step, so no more of them travel through these connections. A
        rank without transfers of its own leaves them too.
        """
        if self._early:
            self._group.leave_works([work for early in self._early.values() for work in early.works])
        self._early.clear()

    def _plan(self, assignment: Assignment) -> NodePlan:
        plan = plan_sums(assignment, self._nodes, exact=self._exact)
        return plan if self._num_sent_early is not None else plan._replace(num_early=(0,) * len(plan.num_early))

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Begin to sum a bucket over all ranks, and bring the bucket before it to its home."""
        if not announced:
            self._meet_mates()
        self._has_result, self._spans = True, assignment.spans
        with self._traveling():
            plan = self._plan(assignment)
            # A sender waits until the receiver is ready, and that message waits behind all that is on the way to the
            # sender. So each rank is ready for the next bucket before it sends this one.
            found = self._expected if self._expected is not None else self._expect(bucket, plan)
            following = self.buckets[bucket.index + 1 : bucket.index + 2]
            self._expected = None
            self._on_way.append(found)
            self._expected = self._expect(following[0], plan) if following else None
            self._send_sums(found)
            while len(self._on_way) > 1:
                self._send_result(self._on_way.popleft())

    def proceed(self) -> None:
        """Wait for the sums that are on the way to this rank, and send their results."""
        with self._traveling():
            while self._on_way:
                self._send_result(self._on_way.popleft())

    def settle(self, take: Callable[[Bucket], object]) -> None:
        """Wait until all sums that `reduce` began are complete, and pass on each bucket."""
        try:
            self._settle(take)
        except BaseException:
            self._give_up()  # if `take` fails, the rest is still on the way
            raise

    def _settle(self, take: Callable[[Bucket], object]) -> None:
        if len(self.mates) > 1:
            self.proceed()
            self._finish_results(len(self.buckets))
            self._meet_mates()
            for bucket in self.buckets:
                take(bucket)
            return
        # The older results arrive before the sums for which `proceed` waits, so the caller's work costs no time.
        num_older = max(0, len(self.buckets) - _NUM_NEWEST)
        self._finish_results(num_older)
        for bucket in self.buckets[:num_older]:
            take(bucket)
        self.proceed()
        self._finish_results(len(self.buckets))
        for bucket in self.buckets[num_older:]:
            take(bucket)

    def _finish_results(self, stop: int) -> None:
        """Wait for the results of the buckets before an index."""
        with self._traveling():
            arriving = [index for index in self._results_on_way if index < stop]
            self._group.finish([work for index in arriving for work in self._results_on_way[index]])
        for index in arriving:
            del self._results_on_way[index]

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum, as one tensor."""
        return [self._result(bucket)]

    def spares_results(self) -> bool:
        """Return True: the memory is new."""
        return True

    def take_sent_bytes(self) -> int:
        """Return how many bytes this rank has sent to other nodes since the last call."""
        taken, self.sent_bytes = self.sent_bytes, 0
        return taken

    def close(self) -> None:
        """Close this rank's segment; its memory is freed with the last mapping."""
        self._leave_early()
        self._give_up()
        self.hide()

    # ------------------------------------------------------------ costs

    def word(self, micro_batch_s: float) -> list[int]:
        """Return the typical times of a micro-batch and of the travel of all gradients on this rank; see `Costs`."""
        if not self._exact:
            return []
        if micro_batch_s:
            self._micro_batches_s.append(micro_batch_s)
        typical_s = (median_low(values or [0.0]) for values in (self._micro_batches_s, self._travels_s))
        return [min(round(seconds * _NS), _MAX_WORD) for seconds in typical_s]

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Divide the micro-batches another way from the next step on, if that takes less time.

        The rank that takes the longest for a micro-batch counts. Of the travel times the shortest counts, because the
        others contain that a rank waits for others which still compute.
        """
        if not self._exact:
            return
        self._note_travel()
        self._num_steps += 1
        if self._num_steps != _FIRST_DECISION and self._num_steps % _EVERY:
            return
        self._micro_batches_s.clear()
        self._travels_s.clear()
        computes, travels = ([word[i] / _NS for word in words if word[i]] for i in range(2))
        if not computes or not travels:
            return
        sizes = [bucket.numel * bucket.dtype.itemsize for bucket in self.buckets]
        costs = Costs(max(computes), min(travels), sizes[-1] / max(sum(sizes), 1), self._may_send_early)
        num_micro_batches = self.division.num_micro_batches
        present = self.division.assign(num_micro_batches).spans
        spans = decide_spans(num_micro_batches, self._nodes, costs)
        if estimate_s(spans, self._nodes, costs) < _WORTH * estimate_s(present, self._nodes, costs):
            self.division = self.division._replace(costs=costs)

    def _note_travel(self) -> None:
        if self._travel_s:
            micro_batch_s = median_low(self._micro_batches_s or [0.0])
            has_early = self._num_sent_early is not None
            found_s = transfer_s(self._travel_s, self._spans, self._nodes, micro_batch_s, has_early=has_early)
            self._travels_s.append(found_s)

    # ------------------------------------------------------------ inside

    def _expect_early(self, bucket: Bucket, plan: NodePlan) -> None:
        """Be ready for the early sums of the part that is at home here."""
        rank, cuts = self._group.rank, self._routes.cuts(bucket.numel)
        cut, num_others = cuts[rank], sum(plan.num_early) - plan.num_early[self._node]
        flat = self._early_rooms.get(bucket.index)
        if flat is None or flat.numel() < cut.num_items * num_others:
            flat = self._early_rooms[bucket.index] = zeros_of(bucket, cut.num_items * num_others)
        room = iter(torch.split(flat[: cut.num_items * num_others], [cut.num_items] * num_others))
        incoming: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        for node, carrier in enumerate(self._routes.carriers[rank]):
            if node != self._node:
                incoming[carrier] = [next(room) for _ in range(plan.num_early[node])]
        works = self._start(self._early_number(bucket), incoming=incoming)
        self._early[bucket.index] = _Early(bucket, cuts, incoming, works)

    def _send_block(self, early: _Early, index: int) -> None:
        block = self._places[self._group.rank][early.bucket.index].blocks[index]
        outgoing: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        for home in self._carried:
            outgoing[home] = [block[early.cuts[home].start : early.cuts[home].stop]]
        early.works.extend(self._start(self._early_number(early.bucket), index, outgoing=outgoing))

    def _early_number(self, bucket: Bucket) -> int:
        return 2 * len(self.buckets) + bucket.index

    def _expect(self, bucket: Bucket, plan: NodePlan) -> _OnWay:
        """Be ready for all that other ranks send of a bucket: sums of the part that is at home here, and results."""
        rank, cuts, result = self._group.rank, self._routes.cuts(bucket.numel), self._result(bucket)
        room = self._take(bucket, plan, cuts)
        incoming: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        for node, carrier in enumerate(self._routes.carriers[rank]):
            if node != self._node:
                incoming[carrier] = [next(room) for _ in plan.sums[node][plan.num_early[node] :]]
        works = self._start(2 * bucket.index, incoming=incoming)
        if (early := self._early.pop(bucket.index, None)) is not None:
            works += early.works
            incoming = [first + rest for first, rest in zip(early.incoming, incoming, strict=True)]
        found = _OnWay(bucket, plan, cuts, incoming, room, works)
        self._expected = found  # before the next start: if that fails, these transfers must be given up too
        results: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        for home in self._carried:
            results[home] = [result[cuts[home].start : cuts[home].stop]]
        self._results_on_way[bucket.index] = self._start(2 * bucket.index + 1, incoming=results)
        return found

    def _send_sums(self, found: _OnWay) -> None:
        """Start to send this node's sums of each part that this rank carries to the part's home."""
        outgoing: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        sums = found.plan.sums[self._node][found.plan.num_early[self._node] :]
        for home in self._carried:
            outgoing[home] = [self._sum(found.bucket, each, found.cuts[home], next(found.room)) for each in sums]
        found.works.extend(self._start(2 * found.bucket.index, outgoing=outgoing))

    def _send_result(self, found: _OnWay) -> None:
        """Wait for the sums of the part that is at home here, add them up, and start to send the result."""
        self._group.finish(found.works)
        rank, plan, cut = self._group.rank, found.plan, found.cuts[self._group.rank]
        mine = self._result(found.bucket)[cut.start : cut.stop]
        terms: list[torch.Tensor] = []
        outgoing: list[list[torch.Tensor]] = [[] for _ in range(self._group.size)]
        for node, carrier in enumerate(self._routes.carriers[rank]):
            if node != self._node:
                terms += found.incoming[carrier]
                outgoing[carrier] = [mine]
            else:
                terms += [self._sum(found.bucket, each, cut, next(found.room)) for each in plan.sums[node]]
        fold(terms, plan.additions, mine)
        self._results_on_way[found.bucket.index] += self._start(2 * found.bucket.index + 1, outgoing=outgoing)

    @contextlib.contextmanager
    def _traveling(self) -> Iterator[None]:
        """Count the time inside the ``with`` block. After an error, wait until gloo uses no memory of this exchange."""
        # With the additions: the more subtrees a node sends, the more there are.
        began = perf_counter()
        try:
            yield
        except BaseException:
            self._give_up()
            raise
        self._travel_s += perf_counter() - began

    def _give_up(self) -> None:
        expected = () if self._expected is None else (self._expected,)
        works = [work for works in self._results_on_way.values() for work in works]
        works += [work for found in (*self._on_way, *expected, *self._early.values()) for work in found.works]
        self._early.clear()
        self._on_way.clear()
        self._results_on_way.clear()
        self._expected = None
        if works:
            self._group.give_up(works)

    def _sum(self, bucket: Bucket, wanted: NodeSum, cut: Span, out: torch.Tensor) -> torch.Tensor:
        """Return one of this node's sums in a part of a bucket; of a single block it is the block itself."""
        terms = [self._places[rank][bucket.index].blocks[index][cut.start : cut.stop] for rank, index in wanted.terms]
        if not wanted.additions:
            return terms[0]
        fold(terms, wanted.additions, out)
        return out

    def _take(self, bucket: Bucket, plan: NodePlan, cuts: Sequence[Span]) -> Iterator[torch.Tensor]:
        """Return memory for the sums that this rank receives, those that it sends, and its own ones, in this order."""
        rank, late = self._group.rank, [sums[num:] for sums, num in zip(plan.sums, plan.num_early, strict=True)]
        received = [cuts[rank].num_items for node, sums in enumerate(late) if node != self._node for _ in sums]
        own = [cuts[home].num_items for home in self._carried for _ in late[self._node]]
        own += [cuts[rank].num_items for _ in plan.sums[self._node]]
        sizes = [*received, *own]
        # The buckets beside it are in use, too: the sums of one are expected, those of the other may not have arrived.
        key = (bucket.dtype, bucket.index % 3)
        flat = self._scratch.get(key)
        if flat is None or flat.numel() < sum(sizes):
            flat = self._scratch[key] = zeros_of(bucket, sum(sizes))
        return iter(torch.split(flat[: sum(sizes)], sizes))

    def _start(
        self,
        number: int,
        first: int = 0,
        outgoing: Sequence[Sequence[torch.Tensor]] | None = None,
        incoming: Sequence[Sequence[torch.Tensor]] | None = None,
    ) -> list[Work]:
        """Start transfers of one kind, of one bucket, from a place on; the number tells them from others of a step."""
        nothing: Sequence[Sequence[torch.Tensor]] = [()] * self._group.size
        outgoing, incoming = (
            [[part for part in parts if part.numel()] for parts in each or nothing] for each in (outgoing, incoming)
        )
        self.sent_bytes += sum(part.numel() * part.element_size() for parts in outgoing for part in parts)
        return self._group.start_swap(outgoing, incoming, number * _MAX_SUMS + first)

    def _meet_mates(self) -> None:
        if len(self.mates) > 1:
            self._group.among(self.mates).barrier()

    def _result(self, bucket: Bucket) -> torch.Tensor:
        return self._places[self.mates[0]][bucket.index].result[self._turn * bucket.numel :][: bucket.numel]

    def _num_bytes(self, rank: int) -> int:
        return max(1, sum(plan.num_bytes for plan in self._plans(rank)))

    def _plans(self, rank: int) -> list[PlacePlan]:
        pending = max(1, self.division.max_pending(rank))
        keeps = rank == self.mates[0]
        return [PlacePlan(b.dtype, b.numel, pending, 1, 2 * b.numel if keeps else 0) for b in self.buckets]


class _OnWay(NamedTuple):
    """A bucket whose sums are on the way to their homes.

    Args:
        bucket: which one.
        plan: of its sums.
        cuts: the part of each rank.
        incoming: the sums that each rank sends to this one.
        room: memory for this rank's own sums.
        works: the transfers.
    """

    bucket: Bucket
    plan: NodePlan
    cuts: list[Span]
    incoming: list[list[torch.Tensor]]
    room: Iterator[torch.Tensor]
    works: list[Work]


class _Early(NamedTuple):
    """The sums of a bucket that travel before the last micro-batch of this rank.

    Args:
        bucket: which one.
        cuts: the part of each rank.
        incoming: the sums that each rank sends to this one.
        works: the transfers.
    """

    bucket: Bucket
    cuts: list[Span]
    incoming: list[list[torch.Tensor]]
    works: list[Work]


class _Room(NamedTuple):
    """The memory of one rank for one bucket: ``[numel]`` per block, and ``[2 * numel]`` for results, or nothing."""

    blocks: list[torch.Tensor]
    result: torch.Tensor
