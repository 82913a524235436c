"""The shapes of which pictures consist, and the width of texts. Knows no file format and nothing of jobs."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

import msgspec

# The purpose of a colour; the colour itself depends on whether the picture is light or dark.
Role = Literal["ground", "ink", "dim", "grid"]

LIGHT: Final[dict[str, str]] = {"ground": "#ffffff", "ink": "#1f2933", "dim": "#52606d", "grid": "#d9e2ec"}
DARK: Final[dict[str, str]] = {"ground": "#161b22", "ink": "#e6edf3", "dim": "#9da7b3", "grid": "#30363d"}

# Text files must not have these characters; XML cannot even refer to them.
_UNSPEAKABLE: Final = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# An estimate without a font: the average width of sans-serif letters, relative to their size; wide ones are squares.
_LETTER_WIDTH: Final = 0.58
_WIDE_LETTER_WIDTH: Final = 1.0


class Style(msgspec.Struct, frozen=True):
    """How an area is filled: a colour as ``#rrggbb``, and the number of a texture; 0 is plain."""

    colour: str
    texture: int = 0


class Area(msgspec.Struct, frozen=True):
    """A filled area.

    Args:
        corners: of the outline, x and y in pixels from the upper left corner of the picture.
        style: how it is filled.
        tooltip: shown where a pointer rests, if the format has that.
    """

    corners: tuple[tuple[float, float], ...]
    style: Style
    tooltip: str = ""


class Line(msgspec.Struct, frozen=True):
    """A straight line."""

    begin: tuple[float, float]
    end: tuple[float, float]
    role: Role
    width: float = 1.0
    dashed: bool = False


class Text(msgspec.Struct, frozen=True):
    """One line of text.

    Args:
        at: x and y of its foot.
        text: what it says; any characters.
        size: in pixels.
        anchor: what of it is at ``at``.
        role: of its colour; or a colour as ``#rrggbb`` if the text is on a filled area.
    """

    at: tuple[float, float]
    text: str
    size: float = 12.0
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    role: str = "ink"


Shape = Area | Line | Text


class Picture(msgspec.Struct, frozen=True):
    """A picture: shapes that are drawn in order, later ones over earlier ones.

    Args:
        width: in pixels; the height too.
        title: with ``told`` the description of the picture for users who cannot see it.
    """

    width: float
    height: float
    title: str
    told: str
    shapes: tuple[Shape, ...]


def make_bar(x: float, y: float, width: float, height: float, style: Style, tooltip: str = "") -> Area:
    """Return a rectangle."""
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    return Area(corners, style, tooltip)


def to_line(text: str) -> str:
    r"""Return a text as one line of letters that every format has.

    >>> to_line("a\nname\x00")
    'a name�'
    """
    return " ".join(_UNSPEAKABLE.sub("\ufffd", text).split())


def measure(text: str, size: float) -> float:
    """Return about how many pixels wide a text is.

    >>> measure("slots", 10) < measure("more slots", 10) < measure("more slots", 20)
    True
    """
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (_LETTER_WIDTH * (len(text) - wide) + _WIDE_LETTER_WIDTH * wide)


def shorten(text: str, size: float, width: float, *, is_sentence: bool = False) -> str:
    """Return a text that fits into a width. The middle is left out, because names differ at their ends.

    Args:
        text: a name.
        size: of its letters, in pixels.
        width: in pixels.
        is_sentence: the text is a sentence, of which the end is left out instead.

    >>> shorten("experiment-with-a-long-name-17", 10, 100)
    'experime…-name-17'
    >>> shorten("it waits for some slots", 10, 100, is_sentence=True)
    'it waits for som…'
    """
    if measure(text, size) <= width:
        return text
    for kept in range(len(text) - 1, 0, -1):
        tail = 0 if is_sentence else kept // 2
        shortened = text[: kept - tail] + "…" + text[len(text) - tail :]
        if measure(shortened, size) <= width:
            return shortened
    return ""
