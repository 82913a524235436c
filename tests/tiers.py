"""Which cases run with every change (`make test`), and which with `make soak`."""

from __future__ import annotations

import os
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
