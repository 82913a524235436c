"""The cross-check: in some steps each rank also computes a micro-batch of another rank, and the gradients are compared.

A micro-batch must contribute the same, whichever worker computes it. A program breaks that if it keeps something from
turn to turn, or draws from a generator of its own. Ranks with equally many turns hold the same state nevertheless, so
the agreement check finds nothing.

In a step with a cross-check each rank first computes the first micro-batch of the next rank, and drops the result. All
do so, because a rank that counts or draws in its turns is then one turn ahead when it computes its own first one. The
control words of the step have checksums of the gradients of both turns, and of their batches, which tell whether the
data or the program is the cause. Decides when; knows nothing of messages.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from legato.core.span import Span
from legato.train.state.checksums import Summing, combined

_IN_VIEW: Final = 16  # steps after the first one of a view
_NUM_TURNS: Final = 2
_NOTHING: Final = 0
_MAX_DEPTH: Final = 20
_MAX_PARTS: Final = 10_000  # of a batch: 0.03 s, if they are numbers
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))


class Found(NamedTuple):
    """A micro-batch for which two ranks have computed different gradients.

    Args:
        micro_batch: its index in the step.
        ranks: which ranks; the second one owns it.
        has_same_batch: whether they had the same batch; None if the batch has parts that Legato cannot compare.
    """

    micro_batch: int
    ranks: tuple[int, int]
    has_same_batch: bool | None


def is_due(step: int, first_step: int) -> bool:
    """Return whether a step has a cross-check: those with the numbers 2, 4, 8 and so on, and one of each longer view.

    Args:
        step: of the job, from 0.
        first_step: the first one of the view. It has none: a change of the membership should cost as little as it can.

    >>> [step + 1 for step in range(40) if is_due(step, 0)], [step for step in range(4, 30) if is_due(step, 4)]
    ([2, 4, 8, 16, 17, 32], [7, 15, 20])
    """
    return step > first_step and (step & (step + 1) == 0 or step - first_step == _IN_VIEW)


def find_owner(spans: Sequence[Span], rank: int) -> int | None:
    """Return the rank whose first micro-batch a rank repeats: the next one that has any. None: no other rank has.

    >>> spans = (Span(0, 2), Span(2, 2), Span(2, 4))
    >>> [find_owner(spans, rank) for rank in range(3)], find_owner((Span(0, 2), Span(2, 2)), 0)
    ([2, None, 0], None)
    """
    if not spans[rank].num_items:
        return None
    others = [(rank + distance) % len(spans) for distance in range(1, len(spans))]
    return next((other for other in others if spans[other].num_items), None)


class CrossCheck:
    """One rank's part in the cross-check of a step.

    Args:
        device: on which the job trains.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._turns: list[tuple[_Batch, Summing]] | None = None

    @property
    def is_checked(self) -> bool:
        """Whether the present step has a cross-check; on all ranks the same."""
        return self._turns is not None

    def begin_step(self, *, is_checked: bool) -> None:
        """Begin a step."""
        self._turns = [] if is_checked else None

    def begin_turn(self, batch: Any) -> Callable[[str, torch.Tensor], None] | None:
        """Begin a turn of this rank: the first two are compared, of which the first one is another rank's.

        Returns:
            Takes the gradients of the turn; None: it is not compared.
        """
        if self._turns is None or len(self._turns) == _NUM_TURNS:
            return None
        gradients = Summing(self._device)
        self._turns.append((_Batch(self._device, batch), gradients))
        return gradients.add

    def word(self) -> list[int]:
        """Return the control words of this step, integers below ``2**32``; none in a step without a cross-check."""
        if self._turns is None:
            return []
        sums = [part for batch, gradients in self._turns for part in (batch.sum, combined(gradients.sums()))]
        sums += [_NOTHING] * (2 * _NUM_TURNS - len(sums))
        return [half for total in sums for half in (total >> 32, total & 0xFFFF_FFFF)]

    def hear(self, words: Sequence[Sequence[int]], spans: Sequence[Span]) -> Found | None:
        """Compare the words of all ranks; every rank comes to the same result.

        Args:
            words: in rank order.
            spans: the micro-batches of each rank.
        """
        if self._turns is None:
            return None
        sums = [[word[i] << 32 | word[i + 1] for i in range(0, len(word), 2)] for word in words]
        for rank in range(len(spans)):
            owner = find_owner(spans, rank)
            if owner is None:
                continue
            (batch, gradients, _, _), (_, _, own_batch, own_gradients) = sums[rank], sums[owner]
            if gradients != own_gradients:
                is_known = _NOTHING not in (batch, own_batch)
                return Found(spans[owner].start, (rank, owner), batch == own_batch if is_known else None)
        return None


class _Batch:
    """The checksum of a batch.

    Attributes:
        sum: `_NOTHING` if the batch has parts that are no tensors, arrays, texts and numbers, or very many parts.
    """

    def __init__(self, device: torch.device, batch: Any) -> None:
        self._num_parts = 0
        self._summing = Summing(device)
        try:
            self._is_whole = self._add("", batch, 0)
        except Exception:  # noqa: BLE001 - a program that trains may have batches of which no checksum can be formed
            self._is_whole = False

    @property
    def sum(self) -> int:
        return combined(self._summing.sums()) if self._is_whole else _NOTHING

    def _add(self, name: str, part: Any, depth: int) -> bool:
        """Add a part, and return whether all of it could be added; stop at the first part that cannot."""
        self._num_parts += 1
        if self._num_parts > _MAX_PARTS or depth > _MAX_DEPTH:
            return False
        if (isinstance(part, torch.Tensor) and not part.is_meta) or type(part) in _PLAIN:
            self._summing.add(name, part)
            return True
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            self._summing.add(name, torch.from_numpy(np.array(part, part.dtype.newbyteorder("="))))
            return True
        # Other mappings may compute what they return, or return it only once.
        if isinstance(part, dict | UserDict):
            return all(
                type(key) in _PLAIN and self._add(f"{name}.{key!r}", value, depth + 1) for key, value in part.items()
            )
        if isinstance(part, list | tuple):
            return all(self._add(f"{name}.{index}", value, depth + 1) for index, value in enumerate(part))
        return False


def describe(found: Found, step: int) -> str:
    """Return the message about a micro-batch with different gradients.

    Args:
        found: what was found.
        step: number of the step, from 1.
    """
    one, other = found.ranks
    began = f"In step {step}, ranks {one} and {other} both computed micro-batch {found.micro_batch}"
    depends = "so the result depends on the workers"
    data = (
        "The data set or collate_fn draws from a generator of its own (torch.Generator, numpy.random.default_rng, "
        "random.Random), or keeps something of the samples that were read before. Draw from the global generators, "
        "which Legato seeds for each micro-batch."
    )
    program = (
        "The program keeps something from turn to turn, and each worker has other turns: a hidden state, a running "
        "mean, a count, or a generator of its own. Change it under `if run.stepped:`, from run.step, run.loss or "
        "run.notes; draw from the global generators, which Legato seeds for each micro-batch."
    )
    if found.has_same_batch:
        return f"{began} from the same batch, and got different gradients, {depends}. {program}"
    if found.has_same_batch is not None:
        return f"{began}, and got different batches for it, {depends}. {data}"
    return f"{began}, and got different gradients, {depends}. Either the data differs: {data} Or not: {program}"
