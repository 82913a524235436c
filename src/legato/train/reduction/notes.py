"""Numbers that the turns of a step note, one set per micro-batch; every rank gets all of them after the step.

They are part of the vector that all ranks sum: each micro-batch adds its numbers at its own places and zeros elsewhere,
so the sum has the numbers of all. Before them comes a number that depends on the set of names, by which different sets
are detected. Knows nothing of gradients.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from legato.core.errors import ProgramError


class Notes:
    """The numbers noted by one rank in the present step, and by all ranks in the last one."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[float, ...]] = {}
        self._names: tuple[str, ...] | None = None
        self._num_micro_batches = 0
        self._turn: dict[str, float] = {}
        self._places: list[float] = []
        self._num_placed = 0

    def begin_step(self, num_micro_batches: int) -> None:
        """Begin a step, or begin it again.

        Args:
            num_micro_batches: number of micro-batches of the step.
        """
        self._num_micro_batches, self._names = num_micro_batches, None
        self._turn = {}
        self._places, self._num_placed = [], 0

    def add(self, values: Mapping[str, float]) -> None:
        """Note numbers of the present turn; for each name the last number counts."""
        self._turn.update(values)

    def end_turn(self) -> None:
        """End the turn: it notes no more numbers.

        Raises:
            ProgramError: another turn of this step noted other names.
        """
        names = tuple(sorted(self._turn))
        if self._names is not None and names != self._names:
            raise ProgramError(
                f"One turn of the loop noted {_list(names)}, another one of the same step {_list(self._names)}. Give "
                "run.note the same names in every turn."
            )
        self._names = names

    def place(self, micro_batch: int) -> None:
        """Put the numbers of the turn that has ended at the places of its micro-batch."""
        if self._names:
            if not self._places:
                self._places = [0.0] * (self.numel - 1)
            start = micro_batch * len(self._names)
            self._places[start : start + len(self._names)] = [self._turn[name] for name in self._names]
        self._num_placed += 1
        self._turn = {}

    def forget_turn(self) -> None:
        """Drop the numbers of the turn that has ended: they count where another rank has noted them."""
        self._turn = {}

    @property
    def places(self) -> list[float]:
        """The numbers of all turns of this rank at their places, and zeros elsewhere; length `numel`."""
        # With other micro-batches the sum of all makes -0.0 a 0.0: on this rank as well as on the others.
        places = [value + 0.0 for value in self._places] if self._num_micro_batches > 1 else self._places
        return [float(self._digest() * self._num_placed), *places]

    @property
    def numel(self) -> int:
        """The length of the vector of a whole step."""
        return 1 + self._num_micro_batches * len(self._names or ())

    def keep(self, numbers: Sequence[float]) -> None:
        """Keep the numbers of all micro-batches of a complete step; length `numel`.

        Raises:
            ProgramError: a turn of another rank noted other names.
        """
        names = self._names or ()
        if numbers[0] != self._digest() * self._num_micro_batches:
            raise ProgramError(
                f"The turns of this worker noted {_list(names)}, those of another one something else. Give run.note "
                "the same names in every turn, on every worker."
            )
        self.last = {name: tuple(numbers[1 + index :: len(names)]) for index, name in enumerate(names)}

    def _digest(self) -> int:
        # Of 32 bits: the sum over two million micro-batches is exact. Of no names it is 0.
        return zlib.crc32("\0".join(self._names).encode()) if self._names else 0


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
