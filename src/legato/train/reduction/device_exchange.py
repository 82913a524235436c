"""The sum of a bucket over ranks whose gradients are on GPUs: by NCCL between the devices, or through the host.

Both ways add along the same tree as on the CPU and give the same bits. Votes and other small messages go over plain
sockets and never wait for a GPU. Decides nothing about membership.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from legato.core.errors import BrokenView
from legato.core.span import Span, split
from legato.train import torch_private
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket
from legato.train.reduction.exchange import Assignment, Division, Exchange, Unmeasured, divide, fold, zeros_of
from legato.train.reduction.node_sums import NodePlan, NodeSum, Routes, plan_sums

_POLL_S: Final = 5e-5


class DeviceExchange(Unmeasured):
    """Sums buckets over ranks by two all-to-all exchanges between devices, by NCCL.

    A collective of NCCL that is in progress when a peer dies neither ends nor raises an error. So `settle` polls for
    its end and stops waiting when the view breaks; `Group.break_connections` then ends NCCL.

    Args:
        group: connects the ranks; its device group carries the buckets.
        buckets: all buckets of the layout, on one device.
        num_micro_batches: of a full step.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        self._group = group
        self.buckets: Sequence[Bucket] = buckets
        self.division = divide(group, self._nodes(), buckets, num_micro_batches)
        self._carrier: Any = group.device_group
        self._device = buckets[0].device
        # Parallel to the backward pass; on the same stream the sums would delay it.
        self._stream = _new_stream(self._device)
        pending = max(1, self.division.max_pending(group.rank))
        self._memory = [[self._allocate(bucket) for _ in range(pending)] for bucket in buckets]
        # Two results in alternation: the next step's sum may begin before every peer is known to have the last one.
        self._results = [[self._allocate(bucket) for bucket in buckets] for _ in range(2)]
        self._turn = 0
        self._has_result = False

    def _nodes(self) -> tuple[int, ...]:
        """Return the numbers of the ranks' nodes by which the micro-batches are divided."""
        return (0,) * self._group.size

    def _allocate(self, bucket: Bucket) -> torch.Tensor:
        made = zeros_of(bucket, bucket.numel)
        if self._stream is not None:
            # When a view breaks, this memory is freed before NCCL has left it.
            made.record_stream(self._stream)
        return made

    def begin_step(self) -> None:
        """Switch to the other memory for results, if there is a new one: a peer may have missed the last result."""
        if self._has_result:
            self._turn ^= 1
            self._has_result = False

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._memory[bucket.index]

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Start to sum a bucket over all ranks, after the present work of the current stream; `settle` waits for it."""
        self._has_result = True
        with _on_stream(self._stream, self._device):
            self._reduce(bucket, local, assignment)

    def settle(self, take: Callable[[Bucket], object]) -> None:
        """Wait until all sums are complete, and pass on the buckets.

        Raises:
            BrokenView: the view broke meanwhile.
        """
        if self._stream is not None:
            self._wait_for(self._stream)
        super().settle(take)

    def _wait_for(self, stream: Any) -> None:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(stream)
        with self._group.waits:
            while not done.query():  # type: ignore[no-untyped-call]
                if self._group.is_broken:
                    raise BrokenView(f"view {self._group.view.number}: broken during an exchange between devices")
                time.sleep(_POLL_S)
        torch.cuda.current_stream(self._device).wait_stream(stream)

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum, as one tensor."""
        return [self._results[self._turn][bucket.index]]

    def close(self) -> None:
        """Do nothing: there is only ordinary memory."""

    def _reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment) -> None:
        cuts = split(bucket.numel, self._group.size)
        mine = cuts[self._group.rank]
        outgoing = [block[cut.start : cut.stop] for cut in cuts for block in local]
        packed = torch.cat(outgoing) if outgoing else zeros_of(bucket, 0)
        num_in = [len(owned) * mine.num_items for owned in assignment.owned]
        received = torch.empty(sum(num_in), dtype=bucket.dtype, device=bucket.device)
        self._all_to_all(received, packed, num_in, [len(local) * cut.num_items for cut in cuts])
        total = torch.empty(mine.num_items, dtype=bucket.dtype, device=bucket.device)
        terms = (
            received.view(-1, mine.num_items).unbind(0) if mine.num_items else [total] * sum(map(len, assignment.owned))
        )
        fold(terms, assignment.additions, total)
        self._all_to_all(
            self._results[self._turn][bucket.index],
            total.repeat(self._group.size),
            [cut.num_items for cut in cuts],
            [mine.num_items] * self._group.size,
        )

    def _all_to_all(
        self, out: torch.Tensor, given: torch.Tensor, num_out: Sequence[int], num_given: Sequence[int]
    ) -> None:
        # As bytes: NCCL does not know every dtype, such as complex numbers, and here it only moves them.
        size = out.element_size()
        out, given = out.view(torch.uint8), given.view(torch.uint8)
        num_out, num_given = [size * num for num in num_out], [size * num for num in num_given]
        self._run(lambda: torch_private.all_to_all(self._carrier, out, given, num_out, num_given))

    def _run(self, start: Callable[[], Any]) -> None:
        """Start a collective, and have the current stream wait for it.

        Raises:
            BrokenView: NCCL failed.
        """
        try:
            start().wait()
        except torch.OutOfMemoryError:
            # The next view would not have more memory.
            raise
        except RuntimeError as error:
            raise BrokenView(f"view {self._group.view.number}: {error}") from error


class FastDeviceExchange(DeviceExchange):
    """Sums buckets by one all-reduce of NCCL: equals the exact sum only within rounding errors.

    NCCL knows which GPUs are on one node. Not run on GPUs yet: tests run it on CPUs, with gloo in place of NCCL.
    """

    def _reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment) -> None:
        total = self._results[self._turn][bucket.index]
        if local:
            total.copy_(local[0])
            for block in local[1:]:
                total.add_(block)
        else:
            total.zero_()
        # NCCL knows no complex numbers; their sum is that of their parts.
        parts = torch.view_as_real(total) if total.is_complex() else total
        self._run(lambda: torch_private.all_reduce(self._carrier, parts))


class NodeDeviceExchange(DeviceExchange):
    """Sums buckets by NCCL first inside each node, and then once between the nodes; see `Routes`.

    The micro-batches are divided evenly, because the host cannot see how long a GPU takes for the parts of a step. Not
    run on GPUs yet: tests run it on CPUs, with gloo in place of NCCL.

    Args:
        group: connects the ranks, of two or more nodes; its device group carries the buckets.
        buckets: all buckets of the layout, on one device.
        num_micro_batches: of a full step.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        super().__init__(group, buckets, num_micro_batches)
        self._routes = Routes(group.nodes)
        # The parts that each rank handles for its node: those that it carries, and its own one.
        self._parts = [(*self._routes.carried(rank), rank) for rank in range(group.size)]

    def _nodes(self) -> tuple[int, ...]:
        return self._group.nodes

    def _reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment) -> None:
        rank, routes = self._group.rank, self._routes
        plan, cuts = plan_sums(assignment, self._group.nodes), routes.cuts(bucket.numel)
        lengths = [cut.num_items for cut in cuts]
        sums = self._sum_node(bucket, local, assignment, plan, cuts)
        # Each home gets the sums of its part from one rank of each other node.
        outgoing: list[list[torch.Tensor]] = [[] for _ in cuts]
        incoming: list[list[int]] = [[] for _ in cuts]
        for home in routes.carried(rank):
            outgoing[home] = sums[home]
        for node, carrier in enumerate(routes.carriers[rank]):
            if carrier != rank:
                incoming[carrier] = [lengths[rank]] * len(plan.sums[node])
        received = self._trade(bucket, outgoing, incoming)
        terms = [
            term for carrier in routes.carriers[rank] for term in (sums[rank] if carrier == rank else received[carrier])
        ]
        result = self._results[self._turn][bucket.index]
        mine = cuts[rank]
        fold(terms, plan.additions, result[mine.start : mine.stop])
        # The result goes back the same way, and from there to all ranks of the node.
        outgoing, incoming = [[] for _ in cuts], [[] for _ in cuts]
        for carrier in routes.carriers[rank]:
            if carrier != rank:
                outgoing[carrier] = [result[mine.start : mine.stop]]
        for home in routes.carried(rank):
            incoming[home] = [lengths[home]]
        returned = self._trade(bucket, outgoing, incoming)
        self._keep(result, cuts, {home: returned[home][0] for home in routes.carried(rank)})
        outgoing, incoming = [[] for _ in cuts], [[] for _ in cuts]
        for mate in routes.mates(rank):
            if mate != rank:
                outgoing[mate] = [result[cuts[home].start : cuts[home].stop] for home in self._parts[rank]]
                incoming[mate] = [lengths[home] for home in self._parts[mate]]
        for mate, pieces in enumerate(self._trade(bucket, outgoing, incoming)):
            if pieces:
                self._keep(result, cuts, dict(zip(self._parts[mate], pieces, strict=True)))

    def _sum_node(
        self,
        bucket: Bucket,
        local: Sequence[torch.Tensor],
        assignment: Assignment,
        plan: NodePlan,
        cuts: Sequence[Span],
    ) -> dict[int, list[torch.Tensor]]:
        """Return the sums of this rank's node, for each part that this rank handles."""
        rank, mates = self._group.rank, self._routes.mates(self._group.rank)
        outgoing: list[list[torch.Tensor]] = [[] for _ in cuts]
        incoming: list[list[int]] = [[] for _ in cuts]
        for mate in mates:
            if mate != rank:
                handled = [cuts[home] for home in self._parts[mate]]
                outgoing[mate] = [block[cut.start : cut.stop] for cut in handled for block in local]
                incoming[mate] = [cuts[home].num_items for home in self._parts[rank] for _ in assignment.owned[mate]]
        received = self._trade(bucket, outgoing, incoming)
        sums: dict[int, list[torch.Tensor]] = {}
        for place, home in enumerate(self._parts[rank]):
            blocks: dict[int, Sequence[torch.Tensor]] = {}
            for mate in mates:
                num = len(assignment.owned[mate])
                blocks[mate] = received[mate][place * num : (place + 1) * num]
            blocks[rank] = [block[cuts[home].start : cuts[home].stop] for block in local]
            sums[home] = [
                self._fold(bucket, [blocks[mate][index] for mate, index in wanted.terms], wanted)
                for wanted in plan.sums[self._routes.node_of(rank)]
            ]
        return sums

    @staticmethod
    def _fold(bucket: Bucket, terms: Sequence[torch.Tensor], wanted: NodeSum) -> torch.Tensor:
        if not wanted.additions:
            return terms[0]
        total = torch.empty(terms[0].numel(), dtype=bucket.dtype, device=bucket.device)
        fold(terms, wanted.additions, total)
        return total

    @staticmethod
    def _keep(result: torch.Tensor, cuts: Sequence[Span], pieces: Mapping[int, torch.Tensor]) -> None:
        for home, piece in pieces.items():
            result[cuts[home].start : cuts[home].stop].copy_(piece)

    def _trade(
        self, bucket: Bucket, outgoing: Sequence[Sequence[torch.Tensor]], incoming: Sequence[Sequence[int]]
    ) -> list[list[torch.Tensor]]:
        """Send tensors to each rank, and return those of the given lengths that come from each rank."""
        num_in, num_out = [sum(lengths) for lengths in incoming], [sum(t.numel() for t in each) for each in outgoing]
        flat = [tensor for tensors in outgoing for tensor in tensors]
        mates = self._routes.mates(self._group.rank)
        self.sent_bytes += sum(t.nbytes for peer, each in enumerate(outgoing) if peer not in mates for t in each)
        given = torch.cat(flat) if flat else zeros_of(bucket, 0)
        received = torch.empty(sum(num_in), dtype=bucket.dtype, device=bucket.device)
        self._all_to_all(received, given, num_in, num_out)
        pieces = torch.split(received, num_in)
        return [
            list(torch.split(each, list(lengths))) if lengths else []
            for each, lengths in zip(pieces, incoming, strict=True)
        ]


class HostExchange:
    """Sums buckets of GPUs in the memory of the host, where NCCL cannot connect the GPUs.

    A rank adds up its own micro-batches on its GPU. Its blocks are copied to the host, summed there over the ranks as
    on CPUs, and the result is copied back.

    Args:
        buckets: all buckets of the layout.
        num_pending: blocks that this rank completes in a step at most.
        inner: sums the buckets' `Bucket.on_host` over the ranks.
    """

    def __init__(self, buckets: Sequence[Bucket], num_pending: int, inner: Exchange) -> None:
        self.buckets = buckets
        self._inner = inner
        self._hosts = [bucket.on_host() for bucket in buckets]
        self._memory = [[zeros_of(bucket, bucket.numel) for _ in range(max(1, num_pending))] for bucket in buckets]
        self._results = [zeros_of(bucket, bucket.numel) for bucket in buckets]
        self._device = buckets[0].device
        self._stream = _new_stream(self._device)

    def begin_step(self) -> None:
        """Begin the local sums of the next step, or of a new attempt at a step."""
        self._inner.begin_step()

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._memory[bucket.index]

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Sum a bucket over all ranks, after the present work of the current stream."""
        host = self._hosts[bucket.index]
        blocks = [memory[: bucket.numel] for memory in self._inner.memory(host)[: len(local)]]
        with _on_stream(self._stream, self._device):
            # Each copy waits for its end, so the host may read and overwrite the memory then.
            for block, own in zip(blocks, local, strict=True):
                block.copy_(own)
            # Not announced: the ranks know only that the sums are complete on the GPUs, not that they are on the host.
            self._inner.reduce(host, blocks, assignment, announced=False)

    def has_early_blocks(self, assignment: Assignment) -> bool:
        """Return False: `reduce` copies the blocks from the GPU."""
        return False

    def send_early(self, assignment: Assignment, num_complete: int) -> None:
        """Do nothing."""

    def proceed(self) -> None:
        """Continue sums that `reduce` began."""
        self._inner.proceed()

    def settle(self, take: Callable[[Bucket], object]) -> None:
        """Wait until all sums that `reduce` began are complete, copy them to the GPU, and pass on the buckets."""
        with _on_stream(self._stream, self._device):
            self._inner.settle(self._copy)
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        for bucket in self.buckets:
            take(bucket)

    def _copy(self, host: Bucket) -> None:
        offset = 0
        for piece in self._inner.result(host):
            self._results[host.index][offset : offset + piece.numel()].copy_(piece)
            offset += piece.numel()

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum, as one tensor."""
        return [self._results[bucket.index]]

    @property
    def division(self) -> Division:
        """Of the micro-batches among the ranks."""
        return self._inner.division

    def word(self, micro_batch_s: float) -> list[int]:
        """Return this rank's costs for the round of a step."""
        return self._inner.word(micro_batch_s)

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Evaluate the words of all ranks."""
        self._inner.hear(words)

    def take_sent_bytes(self) -> int:
        """Return how many bytes this rank has sent to other nodes since the last call."""
        return self._inner.take_sent_bytes()

    def spares_results(self) -> bool:
        """Return True: the memory is new."""
        return True

    def close(self) -> None:
        """Free the memory on the host."""
        self._inner.close()


def after_present_work(device: torch.device, call: Callable[[], None]) -> Callable[[], None]:
    """Return a function for another thread: it makes the call after what this thread's stream has to do now.

    Each thread has a current stream of its own, and the caller's stream gets more work before the other thread runs.
    """
    if device.type != "cuda":
        return call
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(device))

    def run() -> None:
        with torch.cuda.device(device), torch.cuda.stream(_new_stream(device)):
            torch.cuda.current_stream(device).wait_event(done)
            call()

    return run


def _new_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _on_stream(stream: Any, device: torch.device) -> Iterator[None]:
    """Use a stream inside the ``with`` block, after the present work of the current one; None on the CPU."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield
