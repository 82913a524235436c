"""The 64-bit mixing from which every seed and every order follows. Pure; holds no generator."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
GAMMA: Final = 0x9E37_79B9_7F4A_7C15

# One tag per kind of place, so that micro-batch (3, 0) and sample (3, 0) of one job have nothing in common.
JOB: Final = 0x6C65_6761_746F_0001
MICRO_BATCH: Final = 0x6C65_6761_746F_0002
SAMPLE: Final = 0x6C65_6761_746F_0003
ORDER: Final = 0x6C65_6761_746F_0004


def mix64(word: int) -> int:
    """Scramble 64 bits, one to one: the finaliser of SplitMix64.

    Source: Steele, Lea, Flood, *Fast splittable pseudorandom number generators* (2014); constants of Stafford's mix 13.

    >>> hex(mix64(GAMMA))
    '0xe220a8397b1dcdaf'
    """
    word = ((word ^ (word >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return word ^ (word >> 31)


def derive(tag: int, *places: int) -> int:
    """Derive the 64-bit seed of a place: mix in the tag, then each number, with one round of SplitMix64 each.

    Every number counts modulo 2**64. Two places that differ in one number only never get the same seed.

    >>> derive(1, 7, 0) == derive(1, 7, 0), derive(1, 7, 0) == derive(1, 0, 7), derive(1, 7) == derive(2, 7)
    (True, False, False)
    """
    if not places:
        return mix64((tag + GAMMA) & MASK)
    return mix64(((_derive_start(tag, *places[:-1]) ^ (places[-1] & MASK)) + GAMMA) & MASK)


# Micro-batches follow one another with the same first numbers.
_derive_start = lru_cache(maxsize=64)(derive)
