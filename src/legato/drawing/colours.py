"""The colour of each job: distinguishable for colour-blind users, and with textures if there are too few colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from legato.drawing.shapes import Style

# Source: M. Okabe and K. Ito, "Color Universal Design" (2008), without black, which a dark ground would hide.
PALETTE: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
NUM_TEXTURES: Final = 3  # plain, and lines one way and the other
STYLES: Final = tuple(Style(colour, texture) for texture in range(NUM_TEXTURES) for colour in PALETTE)
TEXTURE_OPACITY: Final = 0.4
EMPTY: Final = Style("#9aa5b1")

INKS: Final = ("#000000", "#ffffff")


def luminance(colour: str) -> float:
    """Return how bright a colour is, 0 to 1.

    Source: WCAG 2, relative luminance.

    >>> luminance("#000000"), luminance("#ffffff")
    (0.0, 1.0)
    """
    parts = [int(colour[first : first + 2], 16) / 255 for first in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: str) -> str:
    """Return black or white: the one with more contrast on a colour."""
    return max(INKS, key=lambda ink: contrast(ink, colour))


def assign_styles(spans: Iterable[tuple[str, float, float]]) -> dict[str, Style]:
    """Give every job a style; two jobs at the same time have the same style only if there are too many jobs.

    Args:
        spans: for each job: its id, and the moments from which and until which it is visible.

    >>> styles = assign_styles([("a", 0, 5), ("b", 3, 9)])
    >>> styles["a"] == styles["b"]
    False
    """
    styles: dict[str, Style] = {}
    until = [float("-inf")] * len(STYLES)
    turn = 0
    for job, begin, end in sorted(spans, key=lambda span: (span[1], span[0])):
        order = [(turn + step) % len(STYLES) for step in range(len(STYLES))]
        # The next free style in order; if none is free, the one that becomes free first.
        chosen = next((number for number in order if until[number] <= begin), None)
        if chosen is None:
            chosen = min(order, key=lambda number: until[number])
        styles[job] = STYLES[chosen]
        until[chosen] = max(until[chosen], end)
        turn = chosen + 1
    return styles
