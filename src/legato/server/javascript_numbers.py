"""Numbers that a browser has read and sends back: JavaScript has no 1.0, and no exact integers above 2^53. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

_EXPONENT_FROM: Final = 10**21  # JavaScript writes numbers from here on with an exponent


def take_numbers(value: Any, original: Any) -> Any:
    """Return a value with the numbers of another one in the same places, where JavaScript has both as the same one.

    It has 1.0 as 1, and writes integers above 2^53 with 17 digits or less and then zeros.
    """
    match value, original:
        case dict(), dict():
            return {key: take_numbers(one, original.get(key)) for key, one in value.items()}
        case ((list() | tuple()), (list() | tuple())):
            return [take_numbers(*pair) for pair in zip(value, (*original, *value[len(original) :]), strict=False)]
        case bool(), _:
            return value
        case int(), float() | int() if abs(original) < _EXPONENT_FROM and value == Decimal(repr(float(original))):
            return value if isinstance(original, bool) else original
        case _:
            return value
