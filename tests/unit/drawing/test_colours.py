"""Every user can distinguish simultaneous jobs."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.drawing.colours import PALETTE, STYLES, assign_styles, contrast, ink_on
from legato.drawing.shapes import DARK, LIGHT

# How people without one kind of cones see a colour, of linear RGB.
# Source: Machado and others, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009).
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# In CIELAB: 2 is just to be seen where two colours touch; this is to be seen across a picture.
TELLING_DISTANCE = 15.0


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """Return a colour as it is seen, in CIELAB."""
    parts = [int(colour[first : first + 2], 16) / 255 for first in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0.0), 1.0) for row in SIGHTS[sight]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_can_be_distinguished_by_colour_blind_users(sight: str) -> None:
    for one, other in itertools.combinations(PALETTE, 2):
        assert math.dist(seen(one, sight), seen(other, sight)) > TELLING_DISTANCE, (one, other)


@pytest.mark.parametrize("colour", PALETTE)
def test_names_are_read_on_every_colour(colour: str) -> None:
    assert contrast(ink_on(colour), colour) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_words_are_read_on_a_light_and_on_a_dark_ground(theme: dict[str, str]) -> None:
    assert contrast(theme["ink"], theme["ground"]) >= 7
    assert contrast(theme["dim"], theme["ground"]) >= 4.5


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 20, 200])), max_size=60))
def test_two_at_the_same_time_differ_as_long_as_there_are_styles(drawn: list[tuple[int, int]]) -> None:
    spans, begin = [], 0.0
    for number, (gap, length) in enumerate(drawn):
        begin += gap
        spans.append((f"j{number}", begin, begin + length))
    styles = assign_styles(spans)
    assert set(styles) == {job for job, _, _ in spans}
    for one, other in itertools.combinations(spans, 2):
        together = sum(first <= other[1] < last for _, first, last in spans)
        if one[2] > other[1] and together <= len(STYLES):
            assert styles[one[0]] != styles[other[0]]


def test_a_job_that_stays_keeps_its_style_for_itself() -> None:
    short = [(f"j{number}", number + 1.0, number + 2.0) for number in range(3 * len(STYLES))]
    styles = assign_styles([("long", 0.0, 1000.0), *short])
    assert [job for job, style in styles.items() if style == styles["long"]] == ["long"]
