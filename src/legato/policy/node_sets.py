"""Sets of nodes as the bits of whole numbers. Pure.

Hundreds of nodes may have refused each of thousands of jobs. Python compares the bits of whole numbers many times
faster than the names of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class NodeSets:
    """Gives each node a bit.

    Args:
        nodes: by name, in the order of their bits; other nodes get the next bits when they are asked for.
    """

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self._bits = _Bits()
        for node in nodes:
            self.find(node)
        self._sets: dict[tuple[str, ...], int] = {}

    def find(self, node: str) -> int:
        """Return the bit of a node."""
        return self._bits[node]

    def join(self, nodes: tuple[str, ...]) -> int:
        """Return the bits of some different nodes."""
        bits = self._sets.get(nodes)
        if bits is None:
            bits = self._sets[nodes] = sum(map(self._bits.__getitem__, nodes))
        return bits


class _Bits(dict[str, int]):
    def __missing__(self, node: str) -> int:
        bit = self[node] = 1 << len(self)
        return bit


def list_bits(bits: int) -> Iterator[int]:
    """Yield the places of bits that are set, the lowest first.

    >>> list(list_bits(0b1010))
    [1, 3]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
