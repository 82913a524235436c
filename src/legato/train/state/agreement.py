"""The agreement check: whether all ranks have the same state, and which parts differ.

A check is due after the first steps of a view, when a view is entered, at the beginning of some passes, and with each
checkpoint. At the next boundary before a step every rank computes a checksum of its state, and sends it in its control
words of that step. So after that step all ranks know, without further messages, whether they agree. If only one rank
knew that a check is due, its control words request a check of all ranks. The control words also say which buffers the
program itself has changed since the last step, and to what: the mean over the micro-batches of the step makes them
equal again, so that a check after the step would not find that they were different. Only when the checksums differ do
the ranks send each other the checksums of all pieces; of caches they compare the part that all ranks have. The control
words also say whether a difference was found before, because a view may break when only some ranks know of it. Knows
nothing of views: after a break, due checks and found differences are dropped, and the next view begins with a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal
from zlib import crc32

import torch

from legato.train.membership.groups import Group
from legato.train.state.checksums import checksums, combined
from legato.train.state.differences import Difference, differences
from legato.train.state.named_state import Item

OnDifference = Literal["stop", "warn", "repair"]
_NONE, _ASKED, _SUMMED = 0, 1, 2
NO_WORD: Final = (_NONE, 0, 0, 0, 0)
_STEPS_OF_VIEW: Final = 2  # steps of a view after each of which a check is due


class Agreement:
    """One rank's part in the checks.

    Args:
        items: returns the state, piece by piece.
        device: on which the job trains.

    Attributes:
        agreed_step: the last step after which all ranks were found to have the same state; None before the first check.
        differs: the last check found a difference; the next boundary reacts to it.
        uneven: checksums of the buffers that the program of this rank has changed before the last step, by their
            indices, if another rank has others; None if there is no such difference.
        unshared: the caches that only one rank had in the last search, so they were not compared, and that rank.
    """

    def __init__(self, items: Callable[[], Iterable[Item]], device: torch.device) -> None:
        self._items = items
        self._device = device
        self._is_due = False
        self._num_steps_left = 0
        self._sums: dict[str, int] = {}
        self._sum: int | None = None
        self._step = 0
        self.agreed_step: int | None = None
        self.differs = False
        self.uneven: dict[int, int] | None = None
        self._changed: dict[int, int] = {}
        self.unshared: dict[str, int] = {}

    @property
    def step(self) -> int:
        """The step after which the last checksum was computed."""
        return self._step

    # ------------------------------------------------------------ when

    def begin_view(self) -> None:
        """Begin a view: drop the open checks of the last view, and request a check.

        The recorded changes stay: a rank that missed the result of a step makes those after it in this view only.
        """
        self._is_due, self._num_steps_left = True, _STEPS_OF_VIEW
        self._sum, self.differs, self.uneven = None, False, None

    def ask(self) -> None:
        """Request a check at the next boundary, or at the one after it if no other rank requests it."""
        self._is_due = True

    def end_step(self) -> None:
        """Record that a step of this view is committed."""
        if self._num_steps_left:
            self._num_steps_left -= 1
            self._is_due = True

    def note_changes(self, buffers: Mapping[int, torch.Tensor | None]) -> None:
        """Record the buffers that the program itself has changed since the last step, by their indices."""
        sums = checksums(((str(index), buffer) for index, buffer in buffers.items()), self._device)
        self._changed.update({int(index): total for index, total in sums.items()})

    def forget_changes(self) -> None:
        """Drop the recorded changes: the step after them is complete, or joiners have received them with the state."""
        self._changed = {}

    def take_uneven(self) -> dict[int, int]:
        """Return `uneven`, and drop it: the difference is reacted to."""
        uneven, self.uneven = self.uneven or {}, None
        return uneven

    # ------------------------------------------------------------ in the words of a step

    def at_boundary(self, step: int, num_ranks: int) -> None:
        """Compute the checksum if a check is due: between two steps, where the state is the same on all ranks."""
        # Also if the last checksum was not sent: the program left its loop, and may have changed the state since.
        if num_ranks > 1 and (self._is_due or self._sum is not None):
            self._sum = self.sum_up(step)
            self._is_due = False

    def sum_up(self, step: int) -> int:
        """Compute the checksum of the present state, after the given step."""
        self._sums = checksums(((item.name, item.value) for item in self._items()), self._device)
        self._step = step
        return combined(self._sums)

    def word(self, differed_step: int | None) -> list[int]:
        """Return this rank's control words for the coming step: five integers below ``2**32``.

        Args:
            differed_step: the step after which a difference was first found, as far as this rank knows.
        """
        mark = _mark_of(differed_step)
        changed = crc32(repr(sorted(self._changed.items())).encode()) if self._changed else 0
        if self._sum is not None:
            return [_SUMMED, self._sum >> 32, self._sum & 0xFFFF_FFFF, mark, changed]
        return [_ASKED if self._is_due else _NONE, 0, 0, mark, changed]

    def hear(self, words: Sequence[Sequence[int]]) -> int | None:
        """Evaluate the control words of all ranks after a complete step; every rank comes to the same result.

        Returns:
            The step after which a difference was first found, as far as any rank knows.
        """
        self._sum = None
        if all(word[0] == _SUMMED for word in words):
            self.note(len({tuple(word[1:3]) for word in words}) == 1)
        elif any(word[0] != _NONE for word in words):
            self._is_due = True
        self.uneven = self._changed if len({word[4] for word in words}) > 1 else None
        self._changed = {}
        return _earliest(word[3] for word in words)

    def note(self, is_same: bool) -> None:
        """Record the result of a comparison of the checksums of `sum_up`."""
        self.differs = not is_same
        if is_same:
            self.agreed_step = self._step

    # ------------------------------------------------------------ by messages of their own

    def compare(self, group: Group, step: int, differed_step: int | None) -> int | None:
        """Compare the states at once, where no step follows. All ranks of the group call this together.

        Args:
            group: of the ranks that have the state.
            step: after which the states are compared.
            differed_step: as in `word`.

        Returns:
            As `hear`.

        Raises:
            BrokenView: a peer died or closed its connection.
        """
        if group.size == 1:
            return differed_step
        words = [torch.empty(3, dtype=torch.int64) for _ in range(group.size)]
        total = self.sum_up(step)
        words[group.rank] = torch.tensor([total >> 32, total & 0xFFFF_FFFF, _mark_of(differed_step)], dtype=torch.int64)
        group.all_gather(words[group.rank], words)
        self.note(all(torch.equal(word[:2], words[0][:2]) for word in words))
        return _earliest(int(word[2]) for word in words)

    def find(self, group: Group) -> list[Difference]:
        """Find out which pieces differ, by the last checksums. All ranks of the group call this together.

        Raises:
            BrokenView: a peer died or closed its connection.
        """
        self.differs = False
        found = differences(group.all_gather_object(self._sums))
        harmless = self._find_equal_caches(group, {piece.name for piece in found})
        left = [piece for piece in found if piece.name not in harmless]
        if not left:
            self.agreed_step = self._step
        return left

    def _find_equal_caches(self, group: Group, names: AbstractSet[str]) -> set[str]:
        """Return the pieces that are caches whose bits are equal on all ranks, up to the length of the shortest one.

        The length of a cache that grows with the longest input so far, such as the angles of rotary embeddings, depends
        on the inputs of its rank. It is no part of the state, and caches with equal common parts give equal results. A
        cache that only one rank has is compared as soon as another rank has it; until then Legato warns the user
        (`unshared`).
        """
        caches = {item.name: item.value for item in self._items() if item.is_cache and item.name in names}
        kinds = group.all_gather_object({name: [str(cache.dtype), *cache.shape] for name, cache in caches.items()})
        self.unshared = {
            name: next(rank for rank, kind in enumerate(kinds) if name in kind)
            for name in sorted(names)
            if sum(name in kind for kind in kinds) == 1
        }
        common: dict[str, tuple[slice, ...]] = {}
        for name in names:
            held = [kind[name] for kind in kinds if name in kind]
            if held and len({(kind[0], len(kind)) for kind in held}) == 1:
                common[name] = tuple(slice(min(extents)) for extents in zip(*(kind[1:] for kind in held), strict=True))
        sums = group.all_gather_object(
            checksums(((name, cache[common[name]]) for name, cache in caches.items() if name in common), self._device)
        )
        return {name for name in common if len({told[name] for told in sums if name in told}) == 1}


def _mark_of(differed_step: int | None) -> int:
    return 0 if differed_step is None else differed_step + 1


def _earliest(marks: Iterable[int]) -> int | None:
    return min((mark - 1 for mark in marks if mark), default=None)
