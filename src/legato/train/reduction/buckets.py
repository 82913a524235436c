"""The layout of gradients: parameters in flat buckets, and the local sums of a rank's micro-batches.

The layout depends on the model alone, so it is the same in every worker. A bucket's local sums are the blocks of the
canonical tree (`legato.core.span`) that this rank's micro-batches complete. Never communicates.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Final

import torch

from legato.core.span import num_merges
from legato.train import torch_private

BUCKET_BYTES: Final = 25 * 2**20


class Bucket:
    """Parameters of one dtype and device whose gradients are exchanged together.

    Args:
        index: its place in the layout; buckets are exchanged in this order.
        parameters: in the order in which they are in the bucket.
        positions: the parameters' places in the layout's flat list of parameters.
    """

    def __init__(self, index: int, parameters: Sequence[torch.nn.Parameter], positions: Sequence[int]) -> None:
        self.index = index
        self.parameters = tuple(parameters)
        self.positions = tuple(positions)
        self.dtype = parameters[0].dtype
        self.device = parameters[0].device
        self.numel = sum(parameter.numel() for parameter in parameters)
        self.gradient = torch.zeros(self.numel, dtype=self.dtype, device=self.device)
        self.gradient_views = self.views_of(self.gradient)

    def on_host(self) -> Bucket:
        """Return a bucket of the same place and size whose sums are in the memory of the host."""
        host = copy.copy(self)
        host.device = torch.device("cpu")
        return host

    def views_of(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Cut a flat tensor, shape ``[numel]`` or longer, into one view per parameter."""
        sizes = [parameter.numel() for parameter in self.parameters]
        pieces = torch.split(flat[: self.numel], sizes)
        return [piece.view(parameter.shape) for piece, parameter in zip(pieces, self.parameters, strict=True)]


def make_buckets(parameters: Sequence[torch.nn.Parameter], max_bytes: int = BUCKET_BYTES) -> list[Bucket]:
    """Assign parameters to buckets, last parameter first: backward passes finish in about that order.

    Args:
        parameters: those that require a gradient, each once.
        max_bytes: a bucket is closed when the next parameter would make it larger than this.
    """
    groups: list[list[int]] = []
    open_group: dict[tuple[torch.dtype, torch.device], int] = {}
    used: dict[int, int] = {}
    for position in reversed(range(len(parameters))):
        parameter = parameters[position]
        kind = (parameter.dtype, parameter.device)
        num_bytes = parameter.numel() * parameter.element_size()
        place = open_group.get(kind)
        if place is None or used[place] + num_bytes > max_bytes:
            place = len(groups)
            groups.append([])
            open_group[kind] = place
            used[place] = 0
        groups[place].append(position)
        used[place] += num_bytes
    return [Bucket(i, [parameters[p] for p in places], places) for i, places in enumerate(groups)]


def layout_of(buckets: Sequence[Bucket]) -> str:
    """Return a digest of how gradients are laid out."""
    told = " ".join(f"{bucket.numel}:{bucket.dtype}:{len(bucket.parameters)}" for bucket in buckets)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class LocalSum:
    """The blocks that one rank's micro-batches have completed so far in one bucket.

    Args:
        bucket: whose gradients are summed.
        memory: of the blocks: as many tensors of shape ``[>= numel]`` as `max_pending` returns.
    """

    def __init__(self, bucket: Bucket, memory: Sequence[torch.Tensor]) -> None:
        self._bucket = bucket
        self._flats = [flat[: bucket.numel] for flat in memory]
        self._views = [bucket.views_of(flat) for flat in memory]
        self.num_blocks = 0

    @property
    def blocks(self) -> list[torch.Tensor]:
        """The pending blocks, left to right, each of shape ``[numel]``."""
        return self._flats[: self.num_blocks]

    def add(self, span_start: int, micro_batch: int, gradients: Sequence[torch.Tensor | None], weight: float) -> None:
        """Add the gradients of a micro-batch.

        Args:
            span_start: the first micro-batch that this rank computes in this step.
            micro_batch: index of the micro-batch in the step.
            gradients: one per parameter of the bucket; None counts as zero.
            weight: factor on these gradients: the samples of this micro-batch divided by those of a full one.
        """
        if weight != 1.0:
            gradients = [None if gradient is None else gradient * weight for gradient in gradients]
        merges = num_merges(span_start, micro_batch)
        if merges == 0:
            views = self._views[self.num_blocks]
            self.num_blocks += 1
        else:
            views = self._views[self.num_blocks - 1]
        present = [(view, gradient) for view, gradient in zip(views, gradients, strict=True) if gradient is not None]
        absent = [view for view, gradient in zip(views, gradients, strict=True) if gradient is None]
        if present:
            accumulate = torch_private.copy_each if merges == 0 else torch_private.add_each
            accumulate([view for view, _ in present], [gradient for _, gradient in present])
        for view in absent:
            if merges == 0:
                view.zero_()  # the place still holds the sum of an earlier step
            else:
                view.add_(0.0)  # not idle: makes -0.0 a 0.0, as where the absent micro-batch is a block of its own
        for _ in range(merges - 1):
            self._flats[self.num_blocks - 2].add_(self._flats[self.num_blocks - 1])
            self.num_blocks -= 1

    def clear(self) -> None:
        """Drop the blocks: the step begins, or begins again."""
        self.num_blocks = 0
