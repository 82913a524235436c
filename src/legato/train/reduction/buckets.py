"""The layout of gradients: parameters in flat buckets, and the local sums of a rank's micro-batches.

The layout depends on the model alone, so it is the same in every worker. A bucket's local sums are the blocks of the
canonical tree (`legato.core.span`) that this rank's micro-batches complete. A worker that trains alone needs no
buckets: `OwnSum` adds up the gradients where autograd has put them. Never communicates.
"""

from __future__ import annotations

import copy
import hashlib
import math
import sys
import threading
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import is_not
from typing import Final, cast

import torch

from legato.core.span import Addition
from legato.train import torch_private

BUCKET_BYTES: Final = 25 * 2**20
# Between nodes: a smaller bucket travels earlier beside the backward pass. The first one and the last one are the
# smallest: links idle until the first one is complete, and only the last one travels after the backward pass.
NODE_BUCKET_BYTES: Final = 6 * 2**20
EDGE_BUCKET_BYTES: Final = 2**20
# Of gradients that are added together on a CPU: few enough to be in its cache still, and to be freed there for the next
# ones; small ones together, because each addition takes the interpreter a few microseconds.
_CACHED_BYTES: Final = 2**18
# torch aligns new tensors to 64 bytes on the CPU and to 512 on CUDA. Kernels may add up in another order where a tensor
# lies otherwise, so the gradients that the program sees are aligned alike with one worker and with many.
_ALIGNMENT: Final = 512
# Of a tensor that only one list has; versions of Python count differently.
_NUM_REFERENCES: Final = max(map(sys.getrefcount, [torch.empty(0)]))


class Bucket:
    """Parameters of one dtype and device whose gradients are exchanged together.

    Args:
        index: its place in the layout; buckets are exchanged in this order.
        parameters: in the order in which they are in the bucket.
        positions: the parameters' places in the layout's flat list of parameters.

    Attributes:
        gradient_views: one tensor per parameter, of its shape, in the same memory in each step unless the program
            keeps one of them; `make_gradient` makes them.
    """

    def __init__(self, index: int, parameters: Sequence[torch.nn.Parameter], positions: Sequence[int]) -> None:
        self.index = index
        self.parameters = tuple(parameters)
        self.positions = tuple(positions)
        self.dtype = parameters[0].dtype
        self.device = parameters[0].device
        self.numel = sum(parameter.numel() for parameter in parameters)
        unit = max(1, _ALIGNMENT // self.dtype.itemsize)
        self._starts = list(accumulate((-(-each.numel() // unit) * unit for each in parameters), initial=0))
        self.gradient_views: list[torch.Tensor] = []
        self._making = threading.Lock()
        self._cuts: dict[tuple[int, ...], tuple[list[list[int]], list[torch.Tensor]]] = {}
        # How many of Legato's own tensors use the memory of the gradients. None: it was not written yet.
        self._num_uses: float | None = None

    def make_gradient(self) -> None:
        """Make this rank's gradients, if there are none: zeros, written once so that the system has given the memory.

        While a view is prepared, a thread calls this beside the training.
        """
        with self._making:
            if self.gradient_views:
                return
            flat = torch.empty(self._starts[-1], dtype=self.dtype, device=self.device).zero_()
            self.gradient_views = [
                flat[start : start + parameter.numel()].view(parameter.shape)
                for start, parameter in zip(self._starts, self.parameters, strict=False)
            ]

    def set_gradient(self, pieces: Sequence[torch.Tensor], scale: float) -> None:
        """Set this rank's gradients, `gradient_views`, to a sum times a factor.

        Args:
            pieces: of the sum; together they make up ``[numel]``.
            scale: the factor.
        """
        if self._is_kept():
            self.free()
        self.make_gradient()
        sizes = tuple(piece.numel() for piece in pieces)
        if sizes not in self._cuts:
            self._cuts = {sizes: self._cut(sizes)}
        self._num_uses = torch_private.count_uses(self.gradient_views[0])
        lengths, targets = self._cuts[sizes]
        sources = [part for piece, parts in zip(pieces, lengths, strict=True) for part in torch.split(piece, parts)]
        if self.device.type == "cuda" and targets:
            # Two operations for all, where each operation takes the host longer than the GPU.
            torch_private.copy_each(targets, sources)
            torch_private.scale_each(targets, scale)
            return
        for source, target in zip(sources, targets, strict=True):
            torch.mul(source, scale, out=target)

    def _is_kept(self) -> bool:
        """Return whether the program keeps a gradient of an earlier step, or a tensor that shares its memory."""
        if self._num_uses is None:
            return False
        return (
            max(map(sys.getrefcount, self.gradient_views)) > _NUM_REFERENCES
            or max(map(torch_private.num_holders, self.gradient_views)) > 1
            or torch_private.count_uses(self.gradient_views[0]) != self._num_uses
        )

    def _cut(self, sizes: Sequence[int]) -> tuple[list[list[int]], list[torch.Tensor]]:
        """Cut pieces of the given sizes at the bounds of the parameters.

        Returns:
            The lengths of each piece's parts, and the place of each part in the gradients, flat.
        """
        lengths: list[list[int]] = [[] for _ in sizes]
        targets = []
        flats = [view.view(-1) for view in self.gradient_views]
        index = used = 0
        for piece, size in enumerate(sizes):
            left = size
            while left:
                length = min(left, flats[index].numel() - used)
                if length:
                    lengths[piece].append(length)
                    targets.append(flats[index][used : used + length])
                left, used = left - length, used + length
                if used == flats[index].numel():
                    index, used = index + 1, 0
        return lengths, targets

    def free(self) -> None:
        """Free the memory of this rank's gradients: another layout is in use, or the program keeps it."""
        self.gradient_views = []
        self._cuts = {}
        self._num_uses = None

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


def make_buckets(
    parameters: Sequence[torch.nn.Parameter], max_bytes: int = BUCKET_BYTES, edge_bytes: int | None = None
) -> list[Bucket]:
    """Assign parameters to buckets, last parameter first: backward passes finish in about that order.

    Args:
        parameters: those that require a gradient, each once.
        max_bytes: a bucket is closed when the next parameter would make it larger than this.
        edge_bytes: the first and the last bucket have as many parameters as fit into this, or one, and each bucket may
            be twice as large as the one before it. None: only ``max_bytes`` limits the buckets.
    """
    groups: list[list[int]] = []
    open_group: dict[tuple[torch.dtype, torch.device], int] = {}
    used: dict[int, int] = {}
    for position in reversed(range(len(parameters))):
        parameter = parameters[position]
        kind = (parameter.dtype, parameter.device)
        num_bytes = parameter.numel() * parameter.element_size()
        place = open_group.get(kind)
        limit = max_bytes if edge_bytes is None or place is None else min(max_bytes, edge_bytes << place)
        if place is None or used[place] + num_bytes > limit:
            place = len(groups)
            groups.append([])
            open_group[kind] = place
            used[place] = 0
        groups[place].append(position)
        used[place] += num_bytes
    if edge_bytes is not None and groups:
        groups += _cut_end(groups.pop(), parameters, edge_bytes)
    return [Bucket(i, [parameters[p] for p in places], places) for i, places in enumerate(groups)]


def _cut_end(positions: list[int], parameters: Sequence[torch.nn.Parameter], edge_bytes: int) -> list[list[int]]:
    """Cut the places of parameters in two, so that the second part is not larger than ``edge_bytes``, or has one."""
    sizes = [parameters[position].nbytes for position in reversed(positions)]
    num = max(1, sum(size <= edge_bytes for size in accumulate(sizes)))
    return [part for part in (positions[:-num], positions[-num:]) if part]


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
        self._flats = [flat[: bucket.numel] for flat in memory]
        self._views = [bucket.views_of(flat) for flat in memory]
        self._gathered_bytes = _CACHED_BYTES if bucket.device.type == "cpu" else math.inf
        self.num_blocks = 0
        # Of the present micro-batch: gradients that are not added yet, and the places of all that have come.
        self._gathered: dict[int, torch.Tensor] = {}
        self._num_bytes = 0
        self._come: set[int] = set()

    @property
    def blocks(self) -> list[torch.Tensor]:
        """The pending blocks, left to right, each of shape ``[numel]``."""
        return self._flats[: self.num_blocks]

    def add_one(self, place: int, num_merges: int, gradient: torch.Tensor, weight: float) -> None:
        """Add the gradient of one parameter of a micro-batch, while it is in the processor's cache.

        Args:
            place: of the parameter in the bucket; each once in a micro-batch, before `add`.
            num_merges: as for `add`.
            gradient: of the parameter.
            weight: as for `add`.
        """
        self._come.add(place)
        self._gathered[place] = gradient
        self._num_bytes += gradient.nbytes
        if self._num_bytes >= self._gathered_bytes:
            self._add_gathered(num_merges, weight)

    def add(self, num_merges: int, gradients: Sequence[torch.Tensor | None], weight: float) -> None:
        """Add the gradients of a micro-batch that `add_one` has not added, and complete its blocks.

        Args:
            num_merges: how many pending blocks the micro-batch completes (`legato.core.span.num_merges`).
            gradients: one per parameter of the bucket; None counts as zero, unless `add_one` had it.
            weight: factor on these gradients: the samples of this micro-batch divided by those of a full one.
        """
        self._gathered |= {place: gradient for place, gradient in enumerate(gradients) if gradient is not None}
        self._come |= self._gathered.keys()
        self._add_gathered(num_merges, weight)
        for place in range(len(gradients)):
            if place not in self._come:
                self._add_nothing(num_merges, place)
        self._come.clear()
        self.num_blocks += 1 - num_merges

    @torch.no_grad()  # a backward pass with create_graph=True has gradients that require a gradient
    def _add_gathered(self, num_merges: int, weight: float) -> None:
        places, gradients = list(self._gathered), list(self._gathered.values())
        self._gathered, self._num_bytes = {}, 0
        if not places:
            return
        if weight != 1.0:
            gradients = [gradient * weight for gradient in gradients]
        if num_merges == 0:
            torch_private.copy_each([self._views[self.num_blocks][place] for place in places], gradients)
        for block in reversed(range(self.num_blocks - num_merges, self.num_blocks)):
            totals = [self._views[block][place] for place in places]
            torch_private.add_each(totals, gradients)
            gradients = totals

    @torch.no_grad()
    def _add_nothing(self, num_merges: int, place: int) -> None:
        """Add zero for a parameter that this micro-batch has not reached."""
        if num_merges == 0:
            self._views[self.num_blocks][place].zero_()  # the place still holds the sum of an earlier step
        right: torch.Tensor | float = 0.0  # not idle: makes -0.0 a 0.0, as where the micro-batch is a block of its own
        for block in reversed(range(self.num_blocks - num_merges, self.num_blocks)):
            right = self._views[block][place].add_(right)

    def clear(self) -> None:
        """Drop the blocks: the step begins, or begins again."""
        self.num_blocks = self._num_bytes = 0
        self._gathered.clear()
        self._come.clear()


class OwnSum:
    """The sums of a worker that trains alone, in the tensors that autograd has made: nothing is copied.

    A block has one tensor per parameter; None if no micro-batch of the block reached the parameter.
    """

    def __init__(self) -> None:
        self._blocks: list[list[torch.Tensor | None]] = []

    def add(self, num_merges: int, gradients: list[torch.Tensor | None], weight: float) -> None:
        """Add the gradients of a micro-batch; the sum may keep them. As `LocalSum.add`."""
        if weight != 1.0:
            gradients = [None if gradient is None else gradient * weight for gradient in gradients]
        if num_merges == 0:
            self._blocks.append(_owned(gradients))
            return
        _add_in_place(self._blocks[-1], gradients)
        for _ in range(num_merges - 1):
            right = self._blocks.pop()
            _add_in_place(self._blocks[-1], right)

    def total(self, additions: Sequence[Addition], scale: float) -> list[torch.Tensor | None]:
        """Return the sum of all blocks times a factor, and drop the blocks.

        Args:
            additions: turn the blocks into the sum at position 0, see `legato.core.span.fold_plan`.
            scale: the factor.
        """
        blocks, self._blocks = self._blocks, []
        for target, source in additions:
            _add_in_place(blocks[target], blocks[source])
        present = [gradient for gradient in blocks[0] if gradient is not None]
        if scale != 1.0 and present:
            torch_private.scale_each(present, scale)
        return blocks[0]


def _owned(gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Return gradients that may be changed in place, contiguous and each with memory of its own.

    Args:
        gradients: only this list has them, unless the program keeps one too or two parameters have one gradient.
    """
    counts = list(map(sys.getrefcount, gradients))
    for index, gradient in enumerate(gradients):
        if gradient is not None and (
            counts[index] > _NUM_REFERENCES
            or torch_private.num_holders(gradient) > 1
            or gradient.requires_grad
            or not gradient.is_contiguous()
            or not torch_private.has_own_memory(gradient)
        ):
            gradients[index] = gradient.detach().clone(memory_format=torch.contiguous_format)
    return gradients


def _add_in_place(totals: list[torch.Tensor | None], gradients: list[torch.Tensor | None]) -> None:
    """Add gradients to a block in place; None counts as zero."""
    if all(map(is_not, totals, repeat(None))) and all(map(is_not, gradients, repeat(None))):
        torch_private.add_each(cast("list[torch.Tensor]", totals), cast("list[torch.Tensor]", gradients))
        return
    for index, (total, gradient) in enumerate(zip(totals, gradients, strict=True)):
        if total is None:
            totals[index] = None if gradient is None else gradient.detach() + 0.0
        else:
            # Not idle with zero: it makes -0.0 a 0.0, as the sum with a gradient of zeros does.
            total.add_(0.0 if gradient is None else gradient)
