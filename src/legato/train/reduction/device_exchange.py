"""The sum of a bucket over ranks whose gradients are on GPUs: along the same tree, by NCCL between the devices.

Votes and other small messages go over plain sockets and never wait for a GPU. A collective of NCCL that is in progress
when a peer dies neither ends nor raises an error. So this class polls for its end and stops waiting when the view
breaks; `Group.break_connections` then aborts NCCL. Decides nothing about membership.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import torch

from legato.core.errors import BrokenView
from legato.core.span import max_pending, split
from legato.train import torch_private
from legato.train.membership.groups import Group
from legato.train.reduction.buckets import Bucket
from legato.train.reduction.exchange import Assignment, fold

_POLL_S: Final = 5e-5


class DeviceExchange:
    """Sums buckets over ranks by two all-to-all exchanges between devices.

    Args:
        group: connects the ranks; its device group carries the buckets.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], num_micro_batches: int) -> None:
        self._group = group
        self._carrier: Any = group.device_group
        pending = max(1, max_pending(num_micro_batches, group.size, group.rank))
        self._memory = [[torch.zeros_like(bucket.gradient) for _ in range(pending)] for bucket in buckets]
        # Two results in alternation: the next step's sum may begin before every peer is known to have the last one.
        self._results = [[torch.zeros_like(bucket.gradient) for bucket in buckets] for _ in range(2)]
        self._turn = 0
        self._device = buckets[0].device
        # Parallel to the backward pass; on the same stream the sums would delay it.
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin_step(self) -> None:
        """Switch to the other memory for results."""
        self._turn ^= 1

    def memory(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the memory of this step's local sums of a bucket."""
        return self._memory[bucket.index]

    def reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment, *, announced: bool) -> None:
        """Start to sum a bucket over all ranks; `settle` waits for the result."""
        if self._stream is None:
            self._reduce(bucket, local, assignment)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._reduce(bucket, local, assignment)

    def settle(self) -> None:
        """Wait until all sums are complete.

        Raises:
            BrokenView: the view broke meanwhile.
        """
        if self._stream is None:
            return
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(self._stream)
        with self._group.waits:
            while not done.query():  # type: ignore[no-untyped-call]
                if self._group.is_broken:
                    raise BrokenView(f"view {self._group.view.number}: broken during an exchange between devices")
                time.sleep(_POLL_S)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def result(self, bucket: Bucket) -> Sequence[torch.Tensor]:
        """Return the last sum, as one tensor."""
        return [self._results[self._turn][bucket.index]]

    def close(self) -> None:
        """Do nothing: there is only ordinary memory."""

    def _reduce(self, bucket: Bucket, local: Sequence[torch.Tensor], assignment: Assignment) -> None:
        cuts = split(bucket.numel, self._group.size)
        mine = cuts[self._group.rank]
        outgoing = [block[cut.start : cut.stop] for cut in cuts for block in local]
        packed = torch.cat(outgoing) if outgoing else bucket.gradient[:0]
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
        try:
            torch_private.all_to_all(self._carrier, out, given, num_out, num_given).wait()
        except RuntimeError as error:
            raise BrokenView(f"view {self._group.view.number}: {error}") from error
