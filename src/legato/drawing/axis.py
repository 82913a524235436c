"""Positions and labels of the marks of a time axis. Pure arithmetic."""

from __future__ import annotations

import datetime as dt
import math
from typing import Final

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S

# Intervals by which people divide time, in seconds.
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE_S * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_S * number for number in (1, 2, 3, 6, 12)),
    *(_DAY_S * number for number in (1, 2, 7, 14, 30, 90)),
)


def choose_ticks(begin: float, end: float, most: int) -> list[float]:
    """Return the round moments between two moments, in seconds, with at most ``most`` steps from one end to the other.

    >>> choose_ticks(10, 130, 5)
    [30.0, 60.0, 90.0, 120.0]
    """
    length = end - begin
    steps = [step for step in _STEPS_S if length / step <= most]
    step = float(steps[0]) if steps else math.ceil(length / most / _YEAR_S) * _YEAR_S
    if length < most * _STEPS_S[0] / 2:
        step = 10.0 ** math.ceil(math.log10(length / most)) if length > 0 else 1.0
    first = math.ceil(begin / step - 1e-9)
    last = math.floor(end / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def format_elapsed(seconds: float) -> str:
    """Return seconds since the beginning as text.

    >>> format_elapsed(0.5), format_elapsed(90), format_elapsed(7_205), format_elapsed(200_000)
    ('0:00.5', '1:30', '2:00:05', '2d 7:33:20')
    """
    whole = int(seconds)
    part = f"{seconds - whole:.3f}".strip("0").rstrip(".") if seconds != whole else ""
    days, rest = divmod(whole, _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    minutes, rest = divmod(rest, _MINUTE_S)
    day = f"{days}d " if days else ""
    hour = f"{hours}:{minutes:02}" if hours or days else f"{minutes}"
    return f"{day}{hour}:{rest:02}{part}"


def format_moment(moment: float, length_s: float) -> str:
    """Return seconds since 1970 as a time of day, in UTC; with the date if the axis is longer than a day.

    >>> format_moment(1_700_000_000, 60), format_moment(1_700_000_000, 200_000)
    ('22:13:20', '14 Nov 22:13')
    """
    found = dt.datetime.fromtimestamp(moment, dt.UTC)
    if length_s > _DAY_S:
        return f"{found.day} {found:%b %H:%M}"
    return f"{found:%H:%M}" if length_s > _HOUR_S and not found.second else f"{found:%H:%M:%S}"
