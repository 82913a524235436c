"""One training step over all ranks: local sums while the backward passes run, then one result, the same everywhere.

Hooks on the parameters collect each micro-batch's gradients during its backward pass. When the pass of this rank's last
micro-batch ends, every parameter's ``.grad`` is the mean gradient of the whole global batch. Knows nothing of views:
the caller passes an exchange, and after a failure of the exchange the step can be computed again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch

from legato.core.errors import ProgramError
from legato.core.span import Span, num_merges
from legato.train import torch_private
from legato.train.membership.groups import Group
from legato.train.process import faults
from legato.train.reduction.buckets import (
    EDGE_BUCKET_BYTES,
    NODE_BUCKET_BYTES,
    Bucket,
    LocalSum,
    OwnSum,
    layout_of,
    make_buckets,
)
from legato.train.reduction.buffers import MAX_KEPT_BYTES, READ_AT_ONCE, MovingBuffers, Slot, describe_kinds
from legato.train.reduction.device_exchange import after_present_work
from legato.train.reduction.exchange import Assignment, Exchange, PrivateExchange
from legato.train.reduction.notes import Notes
from legato.train.reduction.vectors import VectorSum, fold_own, sum_vectors

Record = Callable[[str, torch.Tensor], None]


class _Tail(NamedTuple):
    """What is summed besides the gradients.

    Args:
        head: sum of the losses, number of samples with a loss, for each parameter and each buffer in how many
            micro-batches' sums it occurs, and the notes.
        moving: the buffers that are known to move, encoded, float64.
    """

    head: list[float]
    moving: torch.Tensor


class StepReducer:
    """Sums gradients, moving buffers and the loss of one step.

    Args:
        parameters: all that require a gradient, each once.
        buffers: where the modules hold their buffers, each once.
        num_backwards: backward passes per micro-batch.

    Attributes:
        buckets: all parameters, as they are exchanged on one node.
        buckets_between_nodes: as they are exchanged between nodes.
        layouts: the digests of both, see `layout_of`.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buffers: Sequence[Slot], num_backwards: int) -> None:
        self.parameters = tuple(parameters)
        self.buckets = make_buckets(parameters)
        self.buckets_between_nodes = make_buckets(parameters, NODE_BUCKET_BYTES, EDGE_BUCKET_BYTES)
        self.layouts = (layout_of(self.buckets), layout_of(self.buckets_between_nodes))
        self.buffers = MovingBuffers(buffers)
        self.notes = Notes()
        self._num_backwards = num_backwards
        self._use(self.layouts[0])
        self._hooks = [_hook(parameter, self._on_gradient) for parameter in parameters]
        self._exchange_thread = _ExchangeThread()
        self._active = False
        self._num_handed_over = 0
        self._is_turn_over = False
        self._in_backward = False
        self._exchange: Exchange | None = None
        self._sums_in: dict[tuple[int, int], tuple[LocalSum, Sequence[torch.Tensor]]] = {}
        # The last complete result, kept for a rank that missed it.
        self._tail = _Tail([], torch.zeros(0, dtype=torch.float64))
        self._extra = torch.zeros(0, dtype=torch.float64)
        self._pieces: list[Sequence[torch.Tensor]] = []
        self._own_sum = OwnSum()
        self.loss: float | None = None
        # Seconds for the end of the last micro-batch, without the sums of gradients.
        self.last_cost_s = 0.0

    def close(self) -> None:
        """Remove the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()
        for parameter in self.parameters:
            parameter.grad = None
        self._exchange_thread.close()

    # ------------------------------------------------------------ the step of this rank

    def begin_step(
        self,
        exchange: Exchange,
        group: Group,
        num_micro_batches: int,
        full: int,
        last: int,
        on_result_due: Callable[[], None],
        *,
        is_first: bool = False,
    ) -> Span:
        """Begin a step, or begin it again in another view.

        Args:
            exchange: sums the buckets.
            group: the view's connections.
            num_micro_batches: non-empty micro-batches of this step.
            full: number of samples of a full micro-batch.
            last: number of samples of the last micro-batch of this step.
            on_result_due: runs the round; called at the end of the last backward pass of this rank's last micro-batch.
            is_first: it is the first step of the view's newcomers.

        Returns:
            The micro-batches that this rank computes; it may be empty.
        """
        if exchange is not self._exchange:
            self._sums_in.clear()
            self._use(layout_of(exchange.buckets))
        self._began = perf_counter()
        self._is_first_turn = True
        self._exchange, self._group, self._on_result_due = exchange, group, on_result_due
        self._assignment: Assignment = exchange.division.assign(num_micro_batches, is_first=is_first)
        self._num_micro_batches, self._full, self._last = num_micro_batches, full, last
        self.span = self._assignment.spans[group.rank]
        exchange.begin_step()
        self.buffers.begin_step()
        self.notes.begin_step(num_micro_batches)
        self._is_alone = group.size == 1
        self._own_sum = OwnSum()
        if not self._is_alone:
            self._sums = [self._sum_in(bucket, exchange.memory(bucket)) for bucket in self._buckets]
            self._present = [False] * len(self.parameters)
        self._losses: list[list[torch.Tensor | float]] = []
        self._moved: set[int] = set()
        self._keeps_buffers = False
        self._moved_sum = VectorSum()
        self._strays: dict[int, dict[int, torch.Tensor]] = {}
        self._num_handed_over = 0
        for parameter in self.parameters:
            parameter.grad = None
        self._has_early_blocks = exchange.has_early_blocks(self._assignment)
        if self._has_early_blocks:
            self._send_early(0)
        return self.span

    def _use(self, layout: str) -> None:
        """Use one of `layouts` from now on. An exchange may have been built for other parameters of the same layout."""
        assert layout in self.layouts, (layout, self.layouts)
        between = self.buckets_between_nodes
        buckets, unused = (self.buckets, between) if layout == self.layouts[0] else (between, self.buckets)
        for bucket in unused:
            bucket.free()
        self._buckets = buckets
        self._place_of = {
            id(parameter): (bucket.index, place)
            for bucket in buckets
            for place, parameter in enumerate(bucket.parameters)
        }

    def _sum_in(self, bucket: Bucket, memory: Sequence[torch.Tensor]) -> LocalSum:
        """Return the empty local sum of a bucket in the given memory; views of that memory are made once."""
        # A rank that never has a micro-batch has no memory for one.
        key = (bucket.index, memory[0].data_ptr() if memory else 0)
        known = self._sums_in.get(key)
        if known is None:
            # Keep the memory with the sum, so that no other memory gets its address.
            known = self._sums_in[key] = (LocalSum(bucket, memory), memory)
        known[0].clear()
        return known[0]

    def begin_micro_batch(
        self, micro_batch: int, *, ghost: bool, repeats: bool = False, record: Record | None = None
    ) -> None:
        """Expect the backward passes of one micro-batch.

        Args:
            micro_batch: its index in the step.
            ghost: the micro-batch belongs to another rank, and this rank has none of its own; its result is dropped.
            repeats: it belongs to another rank, and those of this rank follow; its result is dropped.
            record: called with the name of each parameter and its gradient of this micro-batch alone; several ranks.
        """
        if not self._is_first_turn:
            # Changes that the program made between two micro-batches of one step must not affect the next micro-batch.
            self.buffers.restore()
        self._is_first_turn = False
        self._micro_batch, self._ghost, self._repeats, self._record = micro_batch, ghost, repeats, record
        self._num_merges = 0 if ghost else num_merges(self.span.start, micro_batch)
        self._weight = self._last / self._full if micro_batch == self._num_micro_batches - 1 else 1.0
        self._is_last = ghost or micro_batch == self.span.stop - 1
        self._is_dropped = ghost or repeats
        self._is_turn_over = False
        self._num_passes = 0
        self._callback_queued = False
        self._micro_loss: list[torch.Tensor | float] = []
        if not self._is_alone:
            self._num_waiting = [len(bucket.parameters) for bucket in self._buckets]
            self._num_complete = 0
            self._added: set[int] = set()
        self._active = True

    @property
    def spans(self) -> tuple[Span, ...]:
        """The micro-batches of each rank in the present step."""
        return self._assignment.spans

    @property
    def micro_batch(self) -> int:
        """The index in the step of the micro-batch that was begun last."""
        return self._micro_batch

    @property
    def is_turn_open(self) -> bool:
        """Whether backward passes of the current micro-batch are still to come."""
        return self._active

    def note_loss(self, loss: torch.Tensor | float) -> None:
        """Add to the loss of the current micro-batch.

        Args:
            loss: one number. A tensor on a GPU is read at the end of the step, with all others: each earlier
                reading would wait for the GPU.
        """
        if isinstance(loss, torch.Tensor):
            # A copy, because the program may change its own tensor meanwhile.
            loss = float(loss.item()) if loss.device.type in READ_AT_ONCE else loss.detach().clone()
        self._micro_loss.append(loss)

    def check_complete(self) -> None:
        """Raise ProgramError unless the current micro-batch had its backward passes."""
        if self._active:
            raise ProgramError(
                f"A turn of the loop ended after {self._num_passes} of {self._num_backwards} expected backward "
                "passes. Call run.backward(loss) in every turn, without `continue` past it; if your loop has "
                "several backward passes per turn, say so: legato.elastic(num_backwards=...)."
            )
        self._is_turn_over = False

    def abandon(self) -> None:
        """Drop the step: the program left its loop in the middle of it."""
        if self._num_handed_over == 0:
            # Early blocks wait for no other rank. The sum of a bucket may wait for one that waits for this rank.
            self._exchange_thread.rest()
        self._is_turn_over = False
        if self._active:
            self._active = False
            self.buffers.restore()

    # ------------------------------------------------------------ hooks

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if not self._active:
            if self._is_turn_over:
                raise ProgramError(
                    f"A backward pass reached parameters after the {self._num_backwards} expected backward passes of "
                    "this turn of the loop. Say how many there are: legato.elastic(num_backwards=...). With "
                    "reentrant activation checkpointing call run.backward(loss) instead of loss.backward()."
                )
            return
        if not self._callback_queued and not self._in_backward:
            self._callback_queued = True
            torch_private.after_backward(self.end_backward)
        if not self._is_alone and self._num_passes == self._num_backwards - 1:
            self._add_at_once(parameter)
            # In a fixed order, because another rank's graph may complete the buckets in another order.
            while self._num_complete < len(self._buckets) - 1 and self._num_waiting[self._num_complete] == 0:
                self._complete(self._buckets[self._num_complete])

    def _add_at_once(self, parameter: torch.Tensor) -> None:
        if not torch_private.is_last_hook(parameter, self._on_gradient):
            return  # the gradient is complete after the whole backward pass only
        index, place = self._place_of[id(parameter)]
        self._num_waiting[index] -= 1
        # The last bucket is complete after the whole backward pass only, so its gradients may come in parts.
        if self._ghost or index == len(self._buckets) - 1:
            return
        if id(parameter) in self._added:
            raise ProgramError(
                "A backward pass reached a parameter twice, as reentrant activation checkpointing does with a "
                "parameter of two checkpointed parts: call checkpoint(..., use_reentrant=False). A backward pass that "
                "failed cannot be repeated."
            )
        gradient = parameter.grad
        if gradient is None:  # an earlier hook of the program has dropped it
            return
        _refuse_sparse([gradient])
        self._added.add(id(parameter))
        position = self._buckets[index].positions[place]
        if self._record is not None:
            self._record(str(position), gradient)
        if not self._repeats:
            self._present[position] = True
            self._sums[index].add_one(place, self._num_merges, gradient, self._weight)
        parameter.grad = None

    def end_backward(self) -> None:
        """End a backward pass; the last one of a micro-batch completes it, and the last one of all ends the step."""
        if not self._active:
            return
        self._callback_queued = False
        self._num_passes += 1
        if self._num_passes < self._num_backwards:
            return
        if self._is_alone:
            self._keep_gradients()
        else:
            while self._num_complete < len(self._buckets):
                self._complete(self._buckets[self._num_complete])
            if self._has_early_blocks and not self._is_last and not self._repeats:
                self._send_complete_blocks()
        began = perf_counter()
        self.notes.end_turn()
        moved = self.buffers.end_micro_batch()
        # The mean over one micro-batch is what it has made of the buffers.
        is_only = bool(moved) and self._is_alone and self._num_micro_batches == 1
        self._keeps_buffers = is_only and self.buffers.can_keep(moved)
        if not self._is_dropped:
            self._note_micro_batch(moved)
        self._active = False
        self._is_turn_over = True
        if not self._keeps_buffers:
            self.buffers.restore(moved)
        if self._repeats:
            self._begin_again()
        self.last_cost_s = perf_counter() - began
        if self._is_last:
            self._on_result_due()

    def _begin_again(self) -> None:
        """Begin the step after a micro-batch of another rank, of which nothing may remain."""
        self.buffers.begin_step()
        self.notes.forget_turn()
        self._began = perf_counter()

    def backward(self, loss: torch.Tensor) -> None:
        """Run a backward pass and end it, even if it reaches no parameter or runs other passes inside itself."""
        self._in_backward = True
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._in_backward = False
        self.end_backward()

    def _keep_gradients(self) -> None:
        """Add the gradients of this micro-batch where they are; this worker trains alone."""
        gradients = [parameter.grad for parameter in self.parameters]
        _refuse_sparse(gradients)
        for parameter in self.parameters:
            parameter.grad = None
        self._own_sum.add(self._num_merges, gradients, self._weight)

    def _complete(self, bucket: Bucket) -> None:
        gradients = [parameter.grad for parameter in bucket.parameters]
        _refuse_sparse(gradients)
        for position, gradient in zip(bucket.positions, gradients, strict=True):
            if gradient is None:
                continue
            if self._record is not None:
                self._record(str(position), gradient)
            if not self._repeats:
                self._present[position] = True
        if not self._is_dropped:
            self._sums[bucket.index].add(self._num_merges, gradients, self._weight)
        for parameter in bucket.parameters:
            parameter.grad = None
        self._num_complete += 1
        is_final = bucket.index == len(self._buckets) - 1
        # A sum replaces the result of the last step. A rank that owns nothing may have missed that result and still
        # need it, and the others can sum without that rank. So all sums then wait for the round, which needs all ranks.
        if self._is_last and not is_final and all(self._assignment.owned):
            self._hand_over(bucket)

    def _note_micro_batch(self, moved: Sequence[int]) -> None:
        """Keep the loss, the notes and the moved buffers of the micro-batch that has ended."""
        self._losses.append(self._micro_loss)
        self.notes.place(self._micro_batch)
        if self.buffers.in_doubt:
            self.buffers.remember(self._micro_batch)
            if self.buffers.kept_bytes > MAX_KEPT_BYTES:
                self._decide_doubts()
        if not moved or self._keeps_buffers:
            return
        self._moved.update(moved)
        known, first = self.buffers.known, self._micro_batch == 0
        if known:
            self._moved_sum.add(self.span.start, self._micro_batch, self.buffers.read(known, first=first))
        if len(moved) > len(known):
            strays = [index for index in moved if index not in known]
            read = {index: self.buffers.read([index], first=first) for index in strays}
            self._strays.setdefault(self._micro_batch, {}).update(read)

    def _decide_doubts(self) -> None:
        for micro_batch, values in self.buffers.decide().items():
            read = {i: self.buffers.read([i], first=micro_batch == 0, values=[new]) for i, new in values.items()}
            self._strays.setdefault(micro_batch, {}).update(read)
            self._moved.update(values)

    def _sum_losses(self) -> list[tuple[float, float]]:
        """Return the sum of the losses, and the number of samples with a loss, of each block of this rank."""
        sums: list[tuple[float, float]] = []
        for micro_batch, loss in enumerate(_read(self._losses), self.span.start):
            num_samples = float(self._last if micro_batch == self._num_micro_batches - 1 else self._full)
            total = (0.0, 0.0) if loss is None else (loss * num_samples, num_samples)
            for _ in range(num_merges(self.span.start, micro_batch)):
                left = sums.pop()
                total = (left[0] + total[0], left[1] + total[1])
            sums.append(total)
        return sums

    def _heads(self) -> list[list[float]]:
        """Return the numbers of each block of this rank before those of the moving buffers; length `_head_numel`.

        The losses are summed along the tree. All other numbers are counts or have a place of their own, so they are
        exact in any order, and the first block has them for all.
        """
        moved = [float(index in self._moved) for index in range(len(self.buffers))]
        rest = [*map(float, self._present), *moved, *self.notes.places]
        nothing = [0.0] * len(rest)
        return [[*losses, *(nothing if number else rest)] for number, losses in enumerate(self._sum_losses())]

    # ------------------------------------------------------------ the round of all ranks

    def _send_complete_blocks(self) -> None:
        """Let a block travel that this micro-batch completes, while this rank computes its later ones."""
        ends = [block.start + (1 << block.level) for block in self._assignment.owned[self._group.rank]]
        if self._micro_batch + 1 in ends:
            self._send_early(ends.index(self._micro_batch + 1) + 1)

    def _send_early(self, num_complete: int) -> None:
        exchange, assignment = self._exchange, self._assignment
        assert exchange is not None
        self._exchange_thread.run(lambda: exchange.send_early(assignment, num_complete), exchange.proceed)

    def _hand_over(self, bucket: Bucket) -> None:
        exchange, local, assignment = self._exchange, self._sums[bucket.index].blocks, self._assignment
        assert exchange is not None
        self._num_handed_over += 1
        self._exchange_thread.run(
            after_present_work(bucket.device, lambda: exchange.reduce(bucket, local, assignment, announced=False)),
            exchange.proceed,
        )

    def word(self) -> list[int]:
        """Return the costs of this rank's part of the present step, for the other ranks."""
        assert self._exchange is not None
        num_items = self.span.num_items
        return self._exchange.word((perf_counter() - self._began) / num_items if num_items else 0.0)

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Pass the costs of all ranks to the exchange."""
        assert self._exchange is not None
        self._exchange.hear(words)

    def take_sent_bytes(self) -> int:
        """Return how many bytes this rank has sent to other nodes since the last call."""
        return self._exchange.take_sent_bytes() if self._exchange is not None else 0

    def run_round(self, word: Sequence[int]) -> list[list[int]]:
        """Sum everything over all ranks.

        Args:
            word: the control word of this rank.

        Returns:
            The control words of all ranks, in rank order.

        Raises:
            BrokenView: a peer is gone; begin the step again in the next view, or `receive` its result there.
        """
        if self.buffers.doubts:
            self._decide_doubts()
        if self._is_alone:
            self._complete_alone()
            return [list(word)]
        group = self._group
        tail, words, pieces = self._sum_with_others(word)
        strays = self._newly_moved(tail)
        extra = torch.zeros(0, dtype=torch.float64)
        if strays:
            self._check_alike(group, strays)
            blocks = self._stray_blocks(strays)
            extra, _ = sum_vectors(group, self._assignment, blocks, self.buffers.numel(strays), word)
        self._keep(tail, strays, extra, pieces)
        return words

    def _complete_alone(self) -> None:
        """Complete the step where no other rank takes part: its numbers need no vector."""
        assert isinstance(self._exchange, PrivateExchange)
        # The memory of a view with others, whose results no rank can miss any more.
        self._pieces = []
        additions, buffers = self._assignment.additions, self.buffers
        losses = self._sum_losses()
        for target, source in additions:
            losses[target] = (losses[target][0] + losses[source][0], losses[target][1] + losses[source][1])
        faults.strike("reduce")
        total = self._own_sum.total(self._exchange.additions_alone(self._assignment), self._scale)
        for parameter, gradient in zip(self.parameters, total, strict=True):
            parameter.grad = gradient
        known, moving = buffers.known, self._moved_sum.blocks
        strays = sorted(self._moved.difference(known))
        self._keep_numbers(*losses[0], self.notes.places)
        if self._keeps_buffers:
            buffers.keep()
        if moving:
            buffers.commit(known, fold_own(moving, additions), self._num_micro_batches)
        if strays:
            self._check_alike(self._group, strays)
            buffers.commit(strays, fold_own(self._stray_blocks(strays), additions), self._num_micro_batches)

    def _sum_with_others(self, word: Sequence[int]) -> tuple[_Tail, list[list[int]], list[Sequence[torch.Tensor]]]:
        exchange = self._exchange
        assert exchange is not None
        self._exchange_thread.wait()
        blocks = [torch.tensor(head, dtype=torch.float64) for head in self._heads()]
        if self._moved_sum.blocks:
            pairs = zip(blocks, self._moved_sum.blocks, strict=True)
            blocks = [torch.cat([head, moving.to("cpu")]) for head, moving in pairs]
        flat, words = sum_vectors(self._group, self._assignment, blocks, self._tail_numel, word)
        faults.strike("reduce")
        for bucket in self._buckets[self._num_handed_over :]:
            exchange.reduce(bucket, self._sums[bucket.index].blocks, self._assignment, announced=True)
        # The exchange may have been built with other buckets of this layout.
        buckets, scale = self._buckets, self._scale
        exchange.settle(lambda each: buckets[each.index].set_gradient(exchange.result(each), scale))
        return self._split_tail(flat), words, [exchange.result(bucket) for bucket in self._buckets]

    @property
    def _scale(self) -> float:
        """By which a sum is multiplied to get the mean over all samples."""
        return self._full / ((self._num_micro_batches - 1) * self._full + self._last)

    def _split_tail(self, flat: torch.Tensor) -> _Tail:
        return _Tail(flat[: self._head_numel].tolist(), flat[self._head_numel :])

    def _check_alike(self, group: Group, strays: Sequence[int]) -> None:
        """Raise ProgramError, on all ranks, if a buffer that moves for the first time is not of one kind everywhere.

        If a buffer was registered without a tensor, each forward pass makes its tensor.
        """
        own = self.buffers.describe(strays, max(1, self.span.num_items))
        told = group.all_gather_object(own) if group.size > 1 else [own]
        for place, index in enumerate(strays):
            ranks: dict[str, list[int]] = {}
            for rank, kinds in enumerate(told):
                ranks.setdefault(kinds[place], []).append(rank)
            if len(ranks) > 1 or any(" or " in kinds for kinds in ranks):
                raise ProgramError(describe_kinds(self.buffers.name(index), ranks))

    @property
    def _tail_numel(self) -> int:
        return self._head_numel + self.buffers.numel(self.buffers.known)

    @property
    def _head_numel(self) -> int:
        return 2 + len(self.parameters) + len(self.buffers) + self.notes.numel

    def _newly_moved(self, tail: _Tail) -> list[int]:
        if len(self.buffers) == len(self.buffers.known):
            return []
        start = 2 + len(self.parameters)
        known = set(self.buffers.known)
        flags = tail.head[start : start + len(self.buffers)]
        return [index for index, flag in enumerate(flags) if flag and index not in known]

    def _stray_blocks(self, strays: Sequence[int]) -> list[torch.Tensor]:
        total = VectorSum()
        for micro_batch in range(self.span.start, self.span.stop):
            seen = self._strays.get(micro_batch, {})
            pieces = [
                seen[index] if index in seen else self.buffers.read([index], first=micro_batch == 0) for index in strays
            ]
            total.add(self.span.start, micro_batch, torch.cat(pieces).to("cpu"))
        return total.blocks

    def _keep(
        self, tail: _Tail, strays: Sequence[int], extra: torch.Tensor, pieces: list[Sequence[torch.Tensor]]
    ) -> None:
        """Keep the sums, and set gradients, buffers, notes and the loss from them."""
        self._tail, self._extra, self._pieces = tail, extra, pieces
        head = tail.head
        for bucket in self._buckets:
            views = bucket.gradient_views
            for position, parameter, view in zip(bucket.positions, bucket.parameters, views, strict=True):
                parameter.grad = view if head[2 + position] else None
        self._keep_numbers(head[0], head[1], head[-self.notes.numel :])
        if self.buffers.known:
            self.buffers.commit(self.buffers.known, tail.moving, self._num_micro_batches)
        if strays:
            self.buffers.commit(strays, extra, self._num_micro_batches)

    def _keep_numbers(self, losses: float, num_samples: float, notes: Sequence[float]) -> None:
        self.loss = losses / num_samples if num_samples else None
        self.notes.keep(notes)

    # ------------------------------------------------------------ a result that a rank missed

    def send(self, group: Group, peer: int) -> None:
        """Send the last complete result to a rank that does not have it; it was summed with others.

        Raises:
            BrokenView: that peer is gone, too.
        """
        tensors = self._flat_result()
        group.finish([group.send(tensor, peer, tag) for tag, tensor in enumerate(tensors) if tensor.numel()])

    def receive(self, group: Group, peer: int) -> None:
        """Receive the result of the step that failed on this rank, and apply it.

        Raises:
            BrokenView: that peer is gone, too.
        """
        flat = torch.empty(self._tail_numel, dtype=torch.float64)
        group.finish([group.receive(flat, peer, 0)])
        tail = self._split_tail(flat)
        strays = self._newly_moved(tail)
        extra = torch.empty(self.buffers.numel(strays), dtype=torch.float64)
        # In the memory of the host: gloo would take the address of a GPU's memory for one of its own.
        wholes = [torch.empty(bucket.numel, dtype=bucket.dtype) for bucket in self._buckets]
        tensors = [extra, *wholes]
        works = [group.receive(tensor, peer, tag) for tag, tensor in enumerate(tensors, start=1) if tensor.numel()]
        group.finish(works)
        results = [whole.to(bucket.device) for whole, bucket in zip(wholes, self._buckets, strict=True)]
        for bucket, result in zip(self._buckets, results, strict=True):
            bucket.set_gradient([result], self._scale)
        self._keep(tail, strays, extra, [[result] for result in results])

    def _flat_result(self) -> list[torch.Tensor]:
        wholes = [torch.cat(list(pieces)).cpu() for pieces in self._pieces]
        tail = torch.cat([torch.tensor(self._tail.head, dtype=torch.float64), self._tail.moving.to("cpu")])
        return [tail, self._extra, *wholes]


def _refuse_sparse(gradients: Sequence[torch.Tensor | None]) -> None:
    for gradient in gradients:
        if gradient is not None and gradient.is_sparse:
            raise ProgramError("Sparse gradients are not supported. Build the embedding with sparse=False.")


def _read(losses: Sequence[Sequence[torch.Tensor | float]]) -> list[float | None]:
    """Return the sum of each micro-batch's losses; None where there are none. Waits for a GPU once."""
    tensors = [part for parts in losses for part in parts if isinstance(part, torch.Tensor)]
    values: Iterator[float] = iter(())
    if tensors:
        alike = len({(part.device, part.dtype, part.shape) for part in tensors}) == 1
        values = iter(torch.stack(tensors).view(-1).tolist() if alike else map(float, tensors))
    sums: list[float | None] = []
    for parts in losses:
        total = None
        for part in parts:
            number = next(values) if isinstance(part, torch.Tensor) else part
            total = number if total is None else total + number
        sums.append(total)
    return sums


def _hook(parameter: Any, call: Callable[[torch.Tensor], None]) -> Any:
    return parameter.register_post_accumulate_grad_hook(call)


class _ExchangeThread:
    """Runs exchanges, one after the other, in a thread parallel to the backward pass."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Condition()
        self._num_open = 0
        self._failure: BaseException | None = None

    def run(self, job: Callable[[], None], proceed: Callable[[], None]) -> None:
        """Run a job after the earlier ones, and then ``proceed``, unless the next job is there already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="legato-exchange", daemon=True)
            self._thread.start()
        with self._idle:
            self._num_open += 1
        self._jobs.put((job, proceed))

    def wait(self) -> None:
        """Wait until all exchanges are done; raise the first error."""
        with self._idle:
            self._idle.wait_for(lambda: self._num_open == 0)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def rest(self) -> None:
        """Wait until all exchanges of a step that the program left are done, or have failed; that matters no more."""
        with self._idle:
            self._idle.wait_for(lambda: self._num_open == 0)
            self._failure = None

    def close(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while (jobs := self._jobs.get()) is not None:
            job, proceed = jobs
            try:
                # After a failure the connections are gone: the queued exchanges would fail as well.
                if self._failure is None:
                    job()
                    if self._jobs.empty():
                        proceed()
            except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
                self._failure = error
            finally:
                # They hold the memory of their exchange, and the next job may come much later.
                del jobs, job, proceed
                with self._idle:
                    self._num_open -= 1
                    self._idle.notify_all()
