"""Buffers that a forward pass changes, such as the running statistics of batch-norm.

Every micro-batch starts from the buffers of its step. After the step a floating or complex buffer that moved is the
mean over the micro-batches, any other buffer that moved has the value that micro-batch 0 gave it, and a buffer that did
not move is not touched, to the bit. The program does not declare which buffers move: Legato detects it. Never
communicates.

A buffer moved if its version or, up to a size, its content changed: torch's own batch-norm writes its statistics
without a new version. To read whether the content on a GPU has changed waits for the GPU. So a micro-batch leaves such
buffers in doubt, and the end of the step decides.

A forward pass may also assign a buffer (``self.mean = ...``). If it assigns a tensor of the same kind, that counts as
a change in place. If the buffer was None, each micro-batch starts with None and makes a tensor of its own, and the step
sets the buffer to their mean. Caches (``persistent=False``) are different: each worker keeps the caches that its own
forward passes assign, because they may have any size, and the agreement check compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_, methodcaller
from typing import Any, Final, NamedTuple

import torch

from legato.core.errors import ProgramError
from legato.train.torch_private import Table, copy_each, num_changes

MAX_COMPARED_NUMEL: Final = 2**16
READ_AT_ONCE: Final = {"cpu"}
"""The kinds of devices whose numbers are read without waiting for work."""
MAX_KEPT_BYTES: Final = 2**24
"""Of the values of buffers in doubt, before a step asks the GPU."""
_numel: Final = methodcaller("numel")
_dtype: Final = attrgetter("dtype")
_get: Final[Callable[[Table, str], Any]] = dict.get
_INTEGERS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Slot(NamedTuple):
    """Where the modules hold one buffer.

    Args:
        name: of the buffer, for messages.
        holders: the modules' tables of buffers, and the attribute in each; several if modules share the buffer.
        is_cache: it is no part of ``state_dict()``.
    """

    name: str
    holders: tuple[tuple[Table, str], ...]
    is_cache: bool = False

    def held(self) -> torch.Tensor | None:
        """Return the buffer that the first of the modules holds now."""
        table, attribute = self.holders[0]
        held: torch.Tensor | None = table.get(attribute)
        return held

    def put(self, buffer: torch.Tensor | None) -> None:
        """Let all of the modules hold a buffer."""
        for table, attribute in self.holders:
            table[attribute] = buffer


class MovingBuffers:
    """The buffers of some modules, with their values at the start of the step and after one micro-batch.

    Args:
        slots: of each buffer once; they may hold None.

    Attributes:
        in_doubt: the buffers of which only a GPU knows whether the last micro-batch has changed them.
        doubts: what `remember` has kept in this step.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = tuple(slots)
        self._tables = [table for slot in slots for table, _ in slot.holders]
        self._attributes = [attribute for slot in slots for _, attribute in slot.holders]
        self._buffers: list[torch.Tensor | None] = [None] * len(slots)
        self._base: list[torch.Tensor] = [torch.empty(0)] * len(slots)
        self._versions = [0] * len(slots)
        self._bits: list[torch.Tensor | None] = [None] * len(slots)
        self._known: tuple[int, ...] = ()
        self._known_encoding: _Encoding | None = None
        self._known_pairs: list[_Pairs] | None = None
        self._unknown: tuple[int, ...] = tuple(range(len(slots)))
        # The caches that a forward pass of this worker has assigned.
        self._own_caches: set[int] = set()
        # What the forward passes of this step have made of buffers that were None: the last one's, and all kinds.
        self._made: dict[int, torch.Tensor] = {}
        self._kinds: dict[int, list[str]] = {}
        self.in_doubt: list[int] = []
        self.doubts: list[_Doubt] = []
        self._expected: list[torch.Tensor | None] = [None] * len(self._tables)
        self._adopt()

    # ------------------------------------------------------------ what the modules hold

    def _adopt(self) -> set[int]:
        """Watch from now on the tensors that the modules hold: the program or a load has assigned them.

        Returns:
            Which buffers have other bits than at the start of the step.
        """
        changed = set[int]()
        if not self._is_assigned():
            return changed
        for index, slot in enumerate(self._slots):
            held, old = slot.held(), self._buffers[index]
            if held is not old:
                if held is None or old is None or not _is_same(held, self._base[index]):
                    changed.add(index)
                self._watch(index, held)
        self._note_holders()
        if any(self._buffers[index] is None for index in self._known):
            self.know([index for index in self._known if self._buffers[index] is not None])
        return changed

    def _watch(self, index: int, buffer: torch.Tensor | None) -> None:
        if buffer is not None and buffer.is_inference():
            # Such a tensor has no version.
            buffer = buffer.clone()
            self._slots[index].put(buffer)
        self._buffers[index] = buffer
        self._own_caches.discard(index)
        self._known_encoding = self._known_pairs = None
        if buffer is None:
            return
        self._base[index] = buffer.detach().clone()
        self._bits[index] = _bits_of(self._base[index])
        self._versions[index] = num_changes(buffer)

    def _is_assigned(self) -> bool:
        """Return whether some module does not hold the tensor that it should."""
        return not all(map(is_, map(_get, self._tables, self._attributes), self._expected))

    def _note_holders(self) -> None:
        self._expected = list(map(_get, self._tables, self._attributes))

    @torch.no_grad()
    def _take_assigned(self) -> None:
        """Take what the forward pass of the current micro-batch has assigned.

        Raises:
            ProgramError: it has assigned something of which no mean over the micro-batches can be computed.
        """
        new: dict[int, torch.Tensor] = {}
        expected = iter(self._expected)
        for index, slot in enumerate(self._slots):
            buffer = self._buffers[index]
            held = [table.get(attribute) for table, attribute in slot.holders]
            if all(list(map(is_, held, expected))):
                continue
            if slot.is_cache and index not in self._known:
                self._watch(index, held[0])
                self._own_caches.add(index)
            elif any(each is not held[0] for each in held):
                raise ProgramError(
                    f"The forward pass assigns the buffer '{slot.name}', which several modules share, in some of them "
                    "only. Write into it instead (self.buffer.copy_(...))."
                )
            elif buffer is not None and _describe(held[0]) != _describe(buffer):
                raise ProgramError(
                    f"The forward pass assigns {_describe(held[0])} to the buffer '{slot.name}', which was "
                    f"{_describe(buffer)}. Legato averages a buffer that forward passes change over all micro-batches, "
                    "so it keeps its dtype and shape. A cache, whose values depend on constants only, may change its "
                    "shape: register it with persistent=False."
                )
            elif held[0] is not None:
                # A copy, because it may share memory with another buffer.
                new[index] = held[0].detach().clone()
        for index, value in new.items():
            buffer = self._buffers[index]
            if buffer is None:
                self._made[index] = value
                self._kinds.setdefault(index, []).append(_describe(value))
            else:
                buffer.copy_(value)
            self._slots[index].put(buffer)
        self._note_holders()

    def _put_back(self) -> None:
        """Undo the assignments since the end of the last micro-batch; each worker keeps its caches."""
        for index, slot in enumerate(self._slots):
            if not slot.is_cache or index in self._known:
                slot.put(self._buffers[index])
            elif slot.held() is not self._buffers[index]:
                self._watch(index, slot.held())
                self._own_caches.add(index)
        self._note_holders()

    # ------------------------------------------------------------ what moves

    @property
    def known(self) -> tuple[int, ...]:
        """The buffers that have moved in some step so far, in order."""
        return self._known

    def know(self, indices: Sequence[int]) -> None:
        """Set which buffers have moved in some step so far."""
        self._known = tuple(sorted(set(indices)))
        self._known_encoding = self._known_pairs = None
        self._unknown = tuple(index for index in range(len(self)) if index not in set(indices))

    def __len__(self) -> int:
        return len(self._buffers)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield the buffers whose changes are averaged."""
        for index, buffer in enumerate(self._buffers):
            if buffer is not None and index not in self._own_caches:
                yield buffer

    def base(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the value that a buffer had at the start of the step; any other tensor is returned as it is."""
        for own, base in zip(self._buffers, self._base, strict=True):
            if own is buffer:
                return base
        return buffer

    def begin_step(self) -> None:
        """Begin a step, or begin it again."""
        self._made, self._kinds, self.doubts = {}, {}, []

    def end_micro_batch(self) -> list[int]:
        """Return which buffers the micro-batch that ends has changed; those known to move count as changed.

        `decide` tells which others it has changed, if `remember` is called before `restore`.
        """
        if self._tables and self._is_assigned():
            self._take_assigned()
        moved = self.moved()
        if len(moved) > len(self._known):
            self._refuse_resized(moved)
        if self._own_caches:
            self._refuse_own_caches(moved)
        made = [index for index in self._made if self._buffers[index] is None]
        return sorted([*moved, *made]) if made else moved

    def _refuse_resized(self, indices: Sequence[int]) -> None:
        texts = []
        for index in indices:
            buffer, base = self._buffers[index], self._base[index]
            if buffer is not None and buffer.shape != base.shape:
                told, was = _describe(buffer), _describe(base)
                # Code that ends the step undoes the micro-batch.
                buffer.data = base.clone()
                texts.append(
                    f"The forward pass resizes the buffer '{self._slots[index].name}' to {told}; it was {was}. Legato "
                    "averages a buffer that forward passes change over all micro-batches, so it keeps its shape. Let "
                    "the model see one batch before run.prepare, or register the buffer with its final shape."
                )
        if texts:
            raise ProgramError(texts[0])

    def _refuse_own_caches(self, indices: Iterable[int]) -> None:
        if own := self._own_caches.intersection(indices):
            name = self._slots[min(own)].name
            raise ProgramError(
                f"The forward pass changes the buffer '{name}' in place after it has assigned it. It is registered "
                "with persistent=False, so each worker keeps what its own forward passes assign, and the result would "
                "depend on the workers. Register it with a tensor (self.register_buffer(name, torch.zeros(...))) and "
                "never assign it."
            )

    def moved(self) -> list[int]:
        """Return which buffers the current micro-batch has changed in place so far, and those known to move."""
        strays, self.in_doubt = self._find_strays()
        return sorted([*self._known, *strays]) if strays else list(self._known)

    def remember(self, micro_batch: int) -> None:
        """Keep the values of the buffers in doubt, for `decide`. Waits for no GPU."""
        devices: dict[torch.device, list[int]] = {}
        for index in self.in_doubt:
            devices.setdefault(self._base[index].device, []).append(index)
        for indices in devices.values():
            # The values at the start of the step: a cache that a later micro-batch assigns gets another one.
            bases = [self._base[index] for index in indices]
            values, former = (torch.cat([_bytes_of(part) for part in parts]) for parts in (self._held(indices), bases))
            self.doubts.append(_Doubt(micro_batch, indices, bases, values, (values != former).any()))

    @property
    def kept_bytes(self) -> int:
        """The memory that `remember` has taken since the last call of `decide`."""
        return sum(doubt.values.numel() for doubt in self.doubts)

    def decide(self) -> dict[int, dict[int, torch.Tensor]]:
        """Return the buffers in doubt that micro-batches have changed since the last call. Waits for a GPU once.

        Returns:
            For each such micro-batch the values that it has given to buffers, by their indices.

        Raises:
            ProgramError: one of them is a cache that a forward pass has assigned.
        """
        doubts, self.doubts = self.doubts, []
        found: dict[int, dict[int, torch.Tensor]] = {}
        for device in {doubt.differs.device for doubt in doubts}:
            there = [doubt for doubt in doubts if doubt.differs.device == device]
            flags = torch.stack([doubt.differs for doubt in there]).tolist()
            for doubt in [doubt for doubt, differs in zip(there, flags, strict=True) if differs]:
                values = torch.split(doubt.values, [base.numel() * base.itemsize for base in doubt.bases])
                for index, base, value in zip(doubt.indices, doubt.bases, values, strict=True):
                    if not torch.equal(value, _bytes_of(base)):
                        # A copy, because a number begins at a multiple of its size.
                        new = value.clone().view(base.dtype).view(base.shape)
                        found.setdefault(doubt.micro_batch, {})[index] = new
        self._refuse_own_caches(index for values in found.values() for index in values)
        return found

    def _held(self, indices: Sequence[int]) -> list[torch.Tensor]:
        held = [self._made.get(index) if self._buffers[index] is None else self._buffers[index] for index in indices]
        tensors = [buffer for buffer in held if buffer is not None]
        if len(tensors) < len(indices):
            # `describe` has shown the program's error before.
            raise AssertionError("a buffer that moves is None")
        return tensors

    def _find_strays(self) -> tuple[list[int], list[int]]:
        """Return which of the buffers that are not known to move have changed, and of which only a GPU knows it."""
        strays: list[int] = []
        candidates: list[int] = []
        in_doubt: list[int] = []
        for index in self._unknown:
            buffer = self._buffers[index]
            if buffer is None:
                continue
            if num_changes(buffer) != self._versions[index]:
                strays.append(index)
            elif buffer.numel() <= MAX_COMPARED_NUMEL:
                is_known = buffer.device.type in READ_AT_ONCE or not _is_alike(buffer, self._base[index])
                (candidates if is_known else in_doubt).append(index)
        return strays + self._find_different(candidates) if candidates else strays, in_doubt

    def _find_different(self, indices: Iterable[int]) -> list[int]:
        """Return which of some buffers have other bits than at the start of the step."""
        different: list[int] = []
        on_gpu: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        for index in indices:
            buffer = self._buffers[index]
            if buffer is None:
                continue
            own, base = self._comparable(index, buffer)
            if own.shape != base.shape:
                different.append(index)
            elif not own.is_cpu:
                on_gpu.append((index, own, base))
            elif not torch.equal(own, base):
                different.append(index)
        for device in {own.device for _, own, _ in on_gpu}:
            # To read a result waits for the GPU: once for all.
            pairs = [(index, own, base) for index, own, base in on_gpu if own.device == device]
            differ = torch.stack([(own != base).any() for _, own, base in pairs]).tolist()
            different += [index for (index, _, _), differs in zip(pairs, differ, strict=True) if differs]
        return different

    def _comparable(self, index: int, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bits of a buffer and of its value at the start of the step.

        Bits, not values: a NaN equals nothing, not even itself, and -0.0 equals 0.0.
        """
        bits, own = self._bits[index], _bits_of(buffer)
        if bits is None or own is None or bits.dtype != own.dtype:
            return _bytes_of(buffer), _bytes_of(self._base[index])
        return own, bits

    def describe(self, indices: Sequence[int], num_micro_batches: int) -> list[str]:
        """Return the kinds (dtype and shape) of some buffers in this step, in words.

        Args:
            indices: which buffers.
            num_micro_batches: how many this worker has computed in this step.
        """
        return [self._describe(index, num_micro_batches) for index in indices]

    def _describe(self, index: int, num_micro_batches: int) -> str:
        buffer = self._buffers[index]
        if buffer is not None:
            return f"{_describe(buffer)}{', assigned' * (index in self._own_caches)}"
        kinds = self._kinds.get(index, [])
        missing = ["None"] if len(kinds) < num_micro_batches else []
        return " or ".join(dict.fromkeys([*kinds, *missing]))

    def name(self, index: int) -> str:
        """Return the name of a buffer, for messages."""
        return self._slots[index].name

    def numel(self, indices: Sequence[int]) -> int:
        """Return how many float64 numbers the values of some buffers are encoded as."""
        return sum(map(_encoded_numel, self._held(indices)))

    def read(
        self, indices: Sequence[int], *, first: bool, values: Sequence[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Encode the contribution of a micro-batch to some buffers.

        Args:
            indices: which buffers.
            first: this is micro-batch 0, whose integers count.
            values: that it has given to them. None: their present ones.

        Shapes:
            Returns float64 ``[numel(indices)]``, on the device of the first of the buffers: nothing waits for a GPU.
        """
        buffers = self._held(indices) if values is None else values
        return self._encoding(indices, buffers).encode(buffers, first=first)

    def _encoding(self, indices: Sequence[int], buffers: Sequence[torch.Tensor]) -> _Encoding:
        if not self._are_known(indices):
            return _Encoding(buffers)
        if self._known_encoding is None:
            self._known_encoding = _Encoding(buffers)
        return self._known_encoding

    def restore(self, moved: Sequence[int] | None = None) -> None:
        """Undo the changes of the current micro-batch.

        Args:
            moved: what `end_micro_batch` has returned, if it has just been called.
        """
        if moved is None and self._tables and self._is_assigned():
            self._put_back()
        indices = self.moved() if moved is None else moved
        if indices:
            self._take_base(indices)
        if self.in_doubt:
            self._take_base_unseen(self.in_doubt)

    @torch.no_grad()
    def _take_base_unseen(self, indices: Sequence[int]) -> None:
        """Undo changes that there may be, without new versions: most of these buffers never change."""
        for pairs in self._pairs(indices):
            copy_each([buffer.data for buffer in pairs.buffers], pairs.bases)

    @torch.no_grad()
    def _take_base(self, indices: Sequence[int]) -> None:
        for pairs in self._pairs(indices):
            copy_each(pairs.buffers, pairs.bases)
        if not self._are_known(indices):
            self._note_versions(indices)

    def _pairs(self, indices: Sequence[int]) -> list[_Pairs]:
        """Return some buffers, those that are not None, with their values at the start of the step, by dtype."""
        if self._known_pairs is not None and self._are_known(indices):
            return self._known_pairs
        kinds: dict[torch.dtype, _Pairs] = {}
        for index in indices:
            buffer = self._buffers[index]
            if buffer is not None:
                pairs = kinds.setdefault(buffer.dtype, _Pairs([], []))
                pairs.buffers.append(buffer)
                pairs.bases.append(self._base[index])
        if self._are_known(indices):
            self._known_pairs = list(kinds.values())
        return list(kinds.values())

    def _are_known(self, indices: Sequence[int]) -> bool:
        """Return whether these are exactly the buffers known to move, whose versions are not asked for."""
        return tuple(indices) == self._known

    def _note_versions(self, indices: Sequence[int]) -> None:
        for index in indices:
            buffer = self._buffers[index]
            if buffer is not None:
                self._versions[index] = num_changes(buffer)

    def commit(self, indices: Sequence[int], total: torch.Tensor, num_micro_batches: int) -> None:
        """Set some buffers to the result of the step.

        Args:
            indices: which buffers.
            total: sum of `read` over the micro-batches, float64 ``[numel(indices)]``.
            num_micro_batches: number of micro-batches in ``total``.
        """
        if not indices:
            return
        made = {index for index in indices if self._buffers[index] is None}
        for index in made:
            template = self._made[index]
            # In one order in memory, whatever that of the last micro-batch is.
            self._slots[index].put(torch.zeros(template.shape, dtype=template.dtype, device=template.device))
            self._watch(index, self._slots[index].held())
        if made:
            self._note_holders()
        bases = [self._base[index] for index in indices]
        self._encoding(indices, bases).decode(total, bases, num_micro_batches)
        self._take_base(indices)
        # Most of those that are made once never change again.
        if not set(indices) <= made.union(self._known):
            self.know([*self._known, *(index for index in indices if index not in made)])
        self._note_versions(self._known)

    def accept(self) -> dict[int, torch.Tensor | None]:
        """Use the program's own changes of buffers after a step as the values at the start of the next step.

        Returns:
            The buffers to which the program has given other bits, by their indices, without caches. Changes of those
            that are known to move are found only if one of them has a new version.
        """
        if not len(self):
            return {}
        changed, (strays, in_doubt) = self._adopt(), self._find_strays()
        strays += self._find_different(in_doubt)
        # A new version may come with the same value: the program has used others meanwhile, and put these back.
        suspects = [*strays, *self._known] if self._have_new_versions(self._known) else strays
        changed.update(self._find_different(suspects))
        self._set_base(sorted([*self._known, *strays]))
        return {index: self._buffers[index] for index in sorted(changed) if not self._slots[index].is_cache}

    def _have_new_versions(self, indices: Sequence[int]) -> bool:
        return list(map(num_changes, self._held(indices))) != [self._versions[index] for index in indices]

    def can_keep(self, moved: Sequence[int]) -> bool:
        """Return whether `keep` may end a step of one micro-batch that has changed these buffers."""
        return self._are_known(moved)

    def keep(self) -> None:
        """Make the present values of the buffers known to move the result of a step of one micro-batch: their mean.

        Raises:
            ProgramError: a buffer has another size or dtype than in earlier steps.
        """
        buffers = self._held(self._known)
        self._encoding(self._known, buffers).check(buffers)
        self._set_base(self._known)
        self._note_versions(self._known)

    @torch.no_grad()
    def _set_base(self, indices: Sequence[int]) -> None:
        for pairs in self._pairs(indices):
            copy_each(pairs.bases, pairs.buffers)
        if not self._are_known(indices):
            self._note_versions(indices)

    def rebase(self) -> None:
        """Use the buffers' present values, which were loaded, as the values at the start of the step."""
        self._adopt()
        everything = range(len(self))
        self._set_base(everything)
        # Also of those that are known to move: `know` may follow with fewer of them.
        self._note_versions(everything)


def describe_kinds(name: str, ranks: Mapping[str, Sequence[int]]) -> str:
    """Return an error message about a moving buffer whose kind differs between micro-batches.

    Args:
        name: of the buffer.
        ranks: the ranks that have each kind, by its description.
    """
    held = "; ".join(f"{kind} on rank{'s' * (len(on) > 1)} {', '.join(map(str, on))}" for kind, on in ranks.items())
    return (
        f"The forward pass changes the buffer '{name}', which is not the same in all micro-batches: {held}. "
        "Legato averages a buffer that forward passes change over all micro-batches, so it has one dtype and shape. "
        "Register it with a tensor of its final shape (self.register_buffer(name, torch.zeros(...))) and write into it."
    )


def _describe(buffer: torch.Tensor | None) -> str:
    return "None" if buffer is None else f"{str(buffer.dtype).removeprefix('torch.')} {list(buffer.shape)}"


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are of one kind and have the same bits."""
    if (one.dtype, one.shape, one.device) != (other.dtype, other.shape, other.device):
        return False
    return torch.equal(_bytes_of(one), _bytes_of(other))


def _is_alike(buffer: torch.Tensor, base: torch.Tensor) -> bool:
    """Return whether a tensor has the kind and the places in memory of a copy, so that it can be written as a whole.

    Some views cannot, such as what ``expand`` returns, and nothing may write what never changes.
    """
    kind = buffer.dtype, buffer.shape, buffer.stride(), buffer.is_conj(), buffer.is_neg()
    return kind == (base.dtype, base.shape, base.stride(), False, False)


def _bytes_of(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)


def _encoded_numel(buffer: torch.Tensor) -> int:
    # An integer takes two numbers, a complex number as well.
    return buffer.numel() if buffer.is_floating_point() else 2 * buffer.numel()


def _bits_of(buffer: torch.Tensor) -> torch.Tensor | None:
    """Return a view of a tensor whose equal values have equal bits; None for kinds that have no such view."""
    if buffer.is_complex() or buffer.is_quantized or buffer.is_neg():
        return None
    if not buffer.is_floating_point():
        return buffer.detach()
    whole = _INTEGERS.get(buffer.dtype.itemsize)
    return None if whole is None else buffer.detach().view(whole)


class _Doubt(NamedTuple):
    """Buffers that a micro-batch may have changed.

    Args:
        micro_batch: its index in the step.
        indices: of the buffers.
        bases: their values at the start of the step.
        values: their bytes after it, one after the other.
        differs: a boolean tensor: whether it has changed one of them.
    """

    micro_batch: int
    indices: list[int]
    bases: list[torch.Tensor]
    values: torch.Tensor
    differs: torch.Tensor


class _Pairs(NamedTuple):
    """Buffers of one dtype, which a GPU copies at once, and their values at the start of the step."""

    buffers: list[torch.Tensor]
    bases: list[torch.Tensor]


class _Encoding:
    """Turns some buffers into float64 numbers and back, with one operation for all of a kind.

    Made once, with all views that it needs: the views of one step would cost more than its arithmetic. float32 is the
    usual dtype; these buffers are converted together, because a GPU converts each tensor of a list by itself.

    Args:
        buffers: which; at least one. Their dtypes and sizes stay the same.
    """

    def __init__(self, buffers: Sequence[torch.Tensor]) -> None:
        device = buffers[0].device
        self._numels, self._dtypes = list(map(_numel, buffers)), list(map(_dtype, buffers))
        self._sizes = [_encoded_numel(buffer) for buffer in buffers]
        self._usual = [index for index, buffer in enumerate(buffers) if buffer.dtype == torch.float32]
        self._whole = [index for index, buffer in enumerate(buffers) if not _is_averaged(buffer)]
        others = {*range(len(buffers))} - {*self._usual, *self._whole}
        self._others = sorted(others)
        # Of the values and of the mean; zero in float32 at the places of the other buffers.
        self._flat, self._mean = torch.zeros(2, sum(self._sizes), dtype=torch.float64, device=device)
        self._narrow, self._narrow_mean = torch.zeros(2, sum(self._sizes), dtype=torch.float32, device=device)
        self._usual_places = self._views(self._narrow, self._usual, buffers)
        self._usual_means = self._views(self._narrow_mean, self._usual, buffers)
        self._other_places = self._views(self._flat, self._others, buffers)
        self._other_means = self._views(self._mean, self._others, buffers)
        self._halves = self._views_of_halves(self._flat, buffers)
        self._mean_halves = self._views_of_halves(self._mean, buffers)

    def _views(self, flat: torch.Tensor, indices: Sequence[int], buffers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        places = torch.split(flat, self._sizes)
        return [_like(places[index], buffers[index]) for index in indices]

    def _views_of_halves(self, flat: torch.Tensor, buffers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the places of the high halves of all integers, and then those of the low ones."""
        places = torch.split(flat, self._sizes)
        pairs = [places[index].view(2, buffers[index].numel()) for index in self._whole]
        return [pair[half] for half in range(2) for pair in pairs]

    def check(self, buffers: Sequence[torch.Tensor]) -> None:
        """Raise ProgramError if a buffer has another size or dtype than before."""
        if list(map(_numel, buffers)) != self._numels or list(map(_dtype, buffers)) != self._dtypes:
            raise ProgramError(
                "A buffer that the forward pass changes has another size or dtype than in earlier steps. Register it "
                "with a tensor of its final shape (self.register_buffer(name, torch.zeros(...))) and write into it."
            )

    @torch.no_grad()
    def encode(self, buffers: Sequence[torch.Tensor], *, first: bool) -> torch.Tensor:
        """Return a new tensor with the buffers' values; without ``first``, integers count as zero."""
        self.check(buffers)
        if self._usual:
            copy_each(self._usual_places, [buffers[index] for index in self._usual])
        self._flat.copy_(self._narrow)
        if self._others:
            copy_each(self._other_places, [buffers[index] for index in self._others])
        if first and self._whole:
            # Two halves of 32 bits each, because float64 holds these exactly for every integer.
            whole = [buffers[index] for index in self._whole]
            values = torch.cat([buffer.reshape(-1).to(self._flat.device, torch.int64) for buffer in whole])
            halves = torch.cat([values >> 32, values & 0xFFFFFFFF]).double()
            copy_each(self._halves, torch.split(halves, [part.numel() for part in self._halves]))
        encoded: torch.Tensor = self._flat.clone()
        return encoded

    @torch.no_grad()
    def decode(self, total: torch.Tensor, targets: Sequence[torch.Tensor], num_micro_batches: int) -> None:
        """Set tensors of the buffers' dtypes and shapes to the result of a sum of what `encode` returns."""
        self._mean.copy_(total)
        if self._whole:
            # Copies, before the division.
            whole = [targets[index] for index in self._whole]
            high, low = torch.cat(self._mean_halves).to(torch.int64).chunk(2)
            values = torch.split((high << 32) | low, [target.numel() for target in whole])
            copy_each(whole, [value.view(target.shape) for value, target in zip(values, whole, strict=True)])
        self._mean /= num_micro_batches
        if self._usual:
            self._narrow_mean.copy_(self._mean)
            copy_each([targets[index] for index in self._usual], self._usual_means)
        if self._others:
            copy_each([targets[index] for index in self._others], self._other_means)


def _is_averaged(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() or buffer.is_complex()


def _like(place: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """Return the place of a floating or complex buffer in its shape."""
    if buffer.is_complex():
        place = torch.view_as_complex(place.view(-1, 2))
    return place if place.shape == buffer.shape else place.view(buffer.shape)
