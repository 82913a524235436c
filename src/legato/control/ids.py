"""Ids of jobs and tokens: short, sorted by time of creation, never used twice. Reads no clock and no randomness."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no two characters look alike
_NUM_DIGITS: Final = 10
_NUM_BITS: Final = 50  # 41 for milliseconds, enough until 2089, and 9 that are random
_RANDOM_BITS: Final = 9
_EPOCH_S: Final = 1_577_836_800  # 2020-01-01

_MADE: Final = re.compile(rf"[a-z]-[{_DIGITS}]{{{_NUM_DIGITS}}}")
_JOB: Final = re.compile(rf"j-[{_DIGITS}]{{{_NUM_DIGITS}}}")
_PART: Final = re.compile(rf"(j?-)?[{_DIGITS}]{{0,{_NUM_DIGITS}}}")


def make_id(prefix: str, now: float, random_bits: Callable[[int], int], last: object = None) -> str:
    """Make an id that sorts after all earlier ids.

    Args:
        prefix: ``j`` for a job, ``t`` for a token.
        now: seconds since 1970.
        random_bits: returns a random number of so many bits.
        last: the highest id in use; the new id is higher even if the clock was set back. Ignored if it is no such id,
            because its row is damaged: then the clock and the random bits alone make the new id.

    >>> make_id("j", 1_800_000_000.0, lambda bits: 0)
    'j-37efnd0000'
    >>> make_id("j", 0.0, lambda bits: 0, last="j-37efnd0000")
    'j-37efnd0001'
    """
    milliseconds = max(int((now - _EPOCH_S) * 1000), 0)
    number = milliseconds << _RANDOM_BITS | random_bits(_RANDOM_BITS)
    if isinstance(last, str) and _MADE.fullmatch(last):
        number = max(number, _decode(last) + 1)
    number &= (1 << _NUM_BITS) - 1
    digits = (_DIGITS[number >> 5 * place & 31] for place in reversed(range(_NUM_DIGITS)))
    return f"{prefix}-{''.join(digits)}"


def is_job_id(text: str) -> bool:
    """Return whether the text has the form of a job's id. Names of jobs may have this form too.

    >>> is_job_id("j-37efnd0000"), is_job_id("mnist")
    (True, False)
    """
    return _JOB.fullmatch(text) is not None


def may_be_in_job_id(text: str) -> bool:
    """Return whether a text may be a part of a job's id.

    >>> may_be_in_job_id("j-37ef"), may_be_in_job_id("37"), may_be_in_job_id("mnist")
    (True, True, False)
    """
    return _PART.fullmatch(text) is not None


def _decode(made: str) -> int:
    number = 0
    for digit in made.partition("-")[2]:
        number = number << 5 | _DIGITS.index(digit)
    return number
