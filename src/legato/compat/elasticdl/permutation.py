"""Random orders of any size without memory: the number at a place is computed on request. Pure.

A driver hands out tasks of data sets with any number of records; it may not hold, or even shuffle, a list of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from legato.train.data.hashing import MASK, derive, mix64

_NUM_ROUNDS: Final = 3
_MIN_BITS: Final = 8  # small orders are drawn from a domain with room for many
_MANY: Final = 1000  # from this number of places on, numpy computes them together
_TAG: Final = 0x6C65_6761_746F_0E01


class Permutation:
    """One order of the numbers below ``size``, each of them once.

    A Feistel network permutes all numbers of ``b`` bits: as many bits as the largest number below ``size`` has, and at
    least 8. A result that is not below ``size`` goes through the network again until it is, so that the whole is a
    permutation too ("cycle walking": Black and Rogaway, *Ciphers with arbitrary finite domains*, 2002).

    Args:
        size: how many numbers.
        places: whole numbers that name the order: the same ones give the same order everywhere.

    >>> order = Permutation(10, (7, 1))
    >>> sorted(order.take(0, 10)), order.take(0, 10) == order.take(0, 4) + order.take(4, 10)
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], True)
    """

    def __init__(self, size: int, places: tuple[int, ...]) -> None:
        bits = max((size - 1).bit_length(), _MIN_BITS)
        self._size = size
        self._num_low_bits = bits // 2
        self._low = (1 << bits // 2) - 1
        self._high = (1 << bits - bits // 2) - 1
        keys = [derive(_TAG, *places, number) for number in range(2 * _NUM_ROUNDS)]
        self._keys = tuple(zip(keys[::2], keys[1::2], strict=True))

    def __getitem__(self, place: int) -> int:
        """Return the number in a place."""
        number = self._once(place)
        while number >= self._size:
            number = self._once(number)
        return number

    def take(self, start: int, end: int) -> tuple[int, ...]:
        """Return the numbers in the places from ``start`` to before ``end``."""
        if end - start < _MANY:
            return tuple(self._walk(start, end))
        return tuple(self._take_many(start, end))

    def _walk(self, start: int, end: int) -> Iterator[int]:
        for place in range(start, end):
            yield self[place]

    def _take_many(self, start: int, end: int) -> list[int]:
        # Imported here, because loading takes milliseconds and most drivers never need it.
        import numpy as np

        mix: Any = mix64  # whole arrays at once

        def once(numbers: Any) -> Any:
            high, low = numbers >> np.uint64(self._num_low_bits), numbers & np.uint64(self._low)
            for first, second in self._keys:
                high = high ^ (mix(low + np.uint64(first)) & np.uint64(self._high))
                low = low ^ (mix(high + np.uint64(second)) & np.uint64(self._low))
            return high << np.uint64(self._num_low_bits) | low

        numbers = once(np.arange(start, end, dtype=np.uint64))
        while (beyond := np.flatnonzero(numbers >= np.uint64(self._size))).size:
            numbers[beyond] = once(numbers[beyond])
        found: list[int] = numbers.tolist()
        return found

    def _once(self, number: int) -> int:
        high, low = number >> self._num_low_bits, number & self._low
        for first, second in self._keys:
            high ^= mix64((low + first) & MASK) & self._high
            low ^= mix64((high + second) & MASK) & self._low
        return high << self._num_low_bits | low
