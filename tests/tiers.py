"""Which cases run with every change (`make test`), which with `make soak`, and which with a share of it (`--share`)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest

_FACTOR: Final = int(os.environ.get("EXAMPLES_FACTOR", "1"))


def first_now(cases: Sequence[Any], *, several: bool = False) -> list[Any]:
    """Return the cases of a parametrized test: the first runs with every change, the others with ``make soak``.

    Args:
        cases: one value each.
        several: each is a tuple of values, for a test with several parameters.
    """
    return [cases[0], *(pytest.param(*(case if several else (case,)), marks=pytest.mark.soak) for case in cases[1:])]


def examples(number: int) -> int:
    """Return how many cases a property test draws: that number, or as many times more as ``make soak`` asks for."""
    return number * _FACTOR


def read_share(text: str) -> tuple[int, int]:
    """Return K, from 0 up, and N of ``K/N``, the share K of N with K from 1 to N.

    Raises:
        ValueError: it has another form.
    """
    found = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"{text!r} is not a share. Write it as 1/3: the first of three")
    return int(found[1]) - 1, int(found[2])


def leave_out(cases: Sequence[Any], share: int, num_shares: int) -> list[Any]:
    """Return the cases that a share does not have. Each case is in one share, and neighbours are in different ones."""
    return [case for place, case in enumerate(cases) if place % num_shares != share]
