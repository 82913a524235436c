"""A timeline shows what the records say, whatever they say, and every format is what it claims to be."""

from __future__ import annotations

import builtins
import importlib.util
import itertools
import struct
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.errors import UsageError
from legato.drawing.files import write_picture
from legato.drawing.frame import MARGIN, RIGHT, WIDTH, Frame
from legato.drawing.holdings import Holding, Mark, Panel, list_slots
from legato.drawing.panels import MAX_LISTED, MAX_ROWS, count_slots
from legato.drawing.shapes import Area, Line, Picture, Text
from legato.drawing.svg import to_svg
from legato.drawing.timeline import draw_timeline

SVG = "{http://www.w3.org/2000/svg}"


def hold(slot: str, job: str | None, since: float, until: float | None) -> Holding:
    return Holding(slot=slot, job=job, since=since, until=until)


def words(picture: Picture) -> list[str]:
    return [shape.text for shape in picture.shapes if isinstance(shape, Text)]


def areas(picture: Picture) -> list[Area]:
    return [shape for shape in picture.shapes if isinstance(shape, Area)]


def size_of(area: Area) -> float:
    """Return how many pixels an area covers."""
    pairs = zip(area.corners, (*area.corners[1:], area.corners[0]), strict=True)
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs)) / 2


@st.composite
def any_panels(draw: st.DrawFn) -> Panel:
    holdings = []
    num_slots = draw(st.sampled_from([1, 3, MAX_ROWS, MAX_ROWS + 1]))
    for number in range(num_slots):
        moments = sorted(draw(st.lists(st.integers(0, 100), max_size=6, unique=True)))
        for since, until in zip(moments[::2], moments[1::2], strict=False):
            job = draw(st.sampled_from([None, "a", "b", "c", "<&\x00\n' \ud800\u05d0漢" * 9]))
            holdings.append(hold(f"n/{number}", job, float(since), None if until == 100 else float(until)))
    marks = draw(st.lists(st.builds(Mark, st.floats(0, 100), st.text(max_size=200)), max_size=30))
    slots = [f"n/{number}" for number in range(num_slots)]
    return Panel(holdings=holdings, slots=slots, marks=marks, title=draw(st.text(max_size=30)), told=draw(st.text()))


@settings(deadline=None)
@given(st.lists(any_panels(), min_size=1, max_size=2), st.text(), st.booleans())
def test_the_picture_is_valid_for_all_texts(panels: list[Panel], title: str, by_the_clock: bool) -> None:
    picture = draw_timeline(panels, title=title, by_the_clock=by_the_clock)
    root = ET.fromstring(to_svg(picture))
    assert root.tag == f"{SVG}svg"
    for area in areas(picture):
        for x, y in area.corners:
            assert 0 <= x <= picture.width and 0 <= y <= picture.height
    for shape in picture.shapes:
        if isinstance(shape, Text):
            assert 0 <= shape.at[0] <= picture.width and 0 <= shape.at[1] <= picture.height


@pytest.mark.parametrize("num_slots", [4, MAX_ROWS, MAX_ROWS + 1, 200])
def test_the_coloured_areas_are_in_proportion_to_the_slot_seconds(num_slots: int) -> None:
    """Of few slots, which are drawn in rows, and of many, which are not."""
    holdings = [hold(f"n/{number}", "wide", 10.0, 50.0) for number in range(num_slots // 2)]
    holdings += [hold(f"n/{number}", "narrow", 60.0, None) for number in range(2)]
    holdings += [hold(f"n/{num_slots - 1}", None, 0.0, 100.0)]
    panel = Panel(holdings=holdings, slots=[f"n/{number}" for number in range(num_slots)])
    picture = draw_timeline([panel], title="t", names={"wide": "Wide", "narrow": "Narrow"})
    covered: dict[str, float] = {}
    for area in areas(picture):
        if area.tooltip:
            name = area.tooltip.partition(":")[0]
            covered[name] = covered.get(name, 0.0) + size_of(area)
    slot_s = {"Wide": 40.0 * (num_slots // 2), "Narrow": 80.0, "jobs of others": 100.0}
    assert covered.keys() == slot_s.keys()
    scale = covered["Narrow"] / slot_s["Narrow"]
    for name, found in covered.items():
        assert found == pytest.approx(slot_s[name] * scale, rel=1e-6)


def test_jobs_stand_upon_one_another_and_a_full_pool_fills_the_panel() -> None:
    num_slots = MAX_ROWS + 2
    holdings = [hold(f"n/{number}", f"j{number % 3}", 0.0, 10.0) for number in range(num_slots)]
    spans = [
        (min(y for _, y in area.corners), max(y for _, y in area.corners))
        for area in areas(draw_timeline([Panel(holdings=holdings)], title="t"))
        if area.tooltip
    ]
    spans.sort()
    assert len(spans) == 3
    for (_, bottom), (top, _) in itertools.pairwise(spans):
        assert bottom == pytest.approx(top)
    lines = [shape for shape in draw_timeline([Panel(holdings=holdings)], title="t").shapes if isinstance(shape, Line)]
    level = sorted({line.begin[1] for line in lines if line.begin[1] == line.end[1]})
    assert (spans[0][0], spans[-1][1]) == (pytest.approx(level[0]), pytest.approx(level[-1]))


def test_a_bar_is_where_its_slot_and_its_time_are() -> None:
    panel = Panel(holdings=[hold("n/1", "a", 25.0, 75.0)], slots=["n/0", "n/1", "n/10", "n/2"])
    picture = draw_timeline([panel], title="t", begin=0.0, end=100.0)
    assert list_slots(panel) == ["n/0", "n/1", "n/2", "n/10"]
    feet = {shape.text: shape.at[1] for shape in picture.shapes if isinstance(shape, Text)}
    (bar,) = [area for area in areas(picture) if area.tooltip]
    left, right = min(x for x, _ in bar.corners), max(x for x, _ in bar.corners)
    zero = next(shape.at[0] for shape in picture.shapes if isinstance(shape, Text) and shape.text == "0:00")
    assert (left - zero) / (WIDTH - RIGHT - zero) == pytest.approx(0.25)
    assert (right - zero) / (WIDTH - RIGHT - zero) == pytest.approx(0.75)
    top, bottom = min(y for _, y in bar.corners), max(y for _, y in bar.corners)
    assert top < feet["n/1"] < bottom and not any(top < feet[slot] < bottom for slot in ("n/0", "n/2", "n/10"))


def test_what_is_outside_of_the_axis_is_cut_off() -> None:
    panel = Panel(
        holdings=[hold("n/0", "a", 0.0, 20.0), hold("n/1", "b", 15.0, None), hold("n/2", "gone", 0.0, 5.0)],
        marks=[Mark(5.0, "too early"), Mark(15.0, "in time")],
    )
    picture = draw_timeline([panel], title="t", begin=10.0, end=30.0)
    assert "in time" in words(picture) and "too early" not in words(picture)
    assert "gone" not in words(picture)
    for area in areas(picture):
        assert all(MARGIN <= x <= WIDTH - RIGHT for x, _ in area.corners)


def test_the_legend_names_every_job_or_counts_them() -> None:
    few = Panel(holdings=[hold("n/0", f"j{number}", float(number), number + 1.0) for number in range(5)])
    told = words(draw_timeline([few], title="t", names={"j0": "ann/mnist"}))
    assert "ann/mnist" in told and {"j1", "j2", "j3", "j4"} <= set(told) and "j0" not in told
    many = Panel(holdings=[hold("n/0", f"job-{number:03}", float(number), number + 1.0) for number in range(500)])
    told = words(draw_timeline([many], title="t"))
    (rest,) = [text for text in told if text.startswith("and ")]
    named = {text for text in told if text.startswith("job-")}
    assert int(rest.split()[1]) + len(named) == 500 and len(named) > 10


def test_a_job_has_one_colour_in_all_panels() -> None:
    one = Panel(holdings=[hold("n/0", "x", 0.0, 9.0), hold("n/1", "a", 0.0, 9.0)])
    other = Panel(holdings=[hold("n/0", "a", 5.0, 9.0)])
    picture = draw_timeline([one, other], title="t")
    styles = {area.style for area in areas(picture) if area.tooltip.startswith("a:")}
    assert len(styles) == 1


def test_marks_are_listed_in_order_and_the_rest_is_counted() -> None:
    marks = [Mark(float(100 - number), f"what happened {number}") for number in range(MAX_LISTED + 3)]
    picture = draw_timeline([Panel(holdings=[hold("n/0", "a", 0.0, 100.0)], marks=marks)], title="t")
    told = [text for text in words(picture) if text.startswith("what")]
    assert told == [mark.told for mark in reversed(marks)][:MAX_LISTED]
    assert any(text.startswith("and 3 more") for text in words(picture))


def test_numbers_of_slots_add_up() -> None:
    panel = Panel(holdings=[hold("n/0", "a", 0.0, 4.0), hold("n/1", "a", 2.0, 6.0), hold("n/2", "b", 2.0, None)])
    frame = Frame([panel], {}, None, None, by_the_clock=False)
    moments, counts = count_slots(panel, frame)
    assert dict(zip(moments, counts, strict=True)) == {
        0.0: {"a": 1},
        2.0: {"a": 2, "b": 1},
        4.0: {"a": 1, "b": 1},
        6.0: {},
    }


def test_nothing_at_all_is_a_picture_too() -> None:
    assert ET.fromstring(to_svg(draw_timeline([Panel(holdings=[])], title="nothing")))


def test_times_of_the_platform_are_times_of_day() -> None:
    begin = 1_700_000_000.0
    panel = Panel(holdings=[hold("n/0", "a", begin, begin + 3000)])
    told = words(draw_timeline([panel], title="t", by_the_clock=True))
    assert "22:30:00" in told and "22:15:00" not in told


# ---------------------------------------------------------------- files


def test_svg_and_png_are_written(tmp_path: Path) -> None:
    panel = Panel(
        holdings=[hold("n/0", f"job {number} $x$ 漢", float(number), number + 1.0) for number in range(9)],
        marks=[Mark(1.0, "a $reason$")],
    )
    picture = draw_timeline([panel], title="A & B")
    write_picture(tmp_path / "a.svg", picture)
    assert ET.parse(tmp_path / "a.svg").findtext(f"{SVG}title") == "A & B"
    write_picture(tmp_path / "a.PNG", picture)
    written = (tmp_path / "a.PNG").read_bytes()
    assert written.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", written[16:24]) == (2 * picture.width, 2 * picture.height)


def test_a_light_and_a_dark_ground_are_in_the_file() -> None:
    text = to_svg(draw_timeline([Panel(holdings=[hold("n/0", "a", 0.0, 1.0)])], title="t"))
    assert "prefers-color-scheme: dark" in text and 'class="ground"' in text and 'class="ink"' in text


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.jpeg", "a name that ends in .svg or .png"),
        ("a", "a name that ends in"),
        ("no/a.svg", "Make it first"),
        (".svg", "a name that ends in"),
    ],
)
def test_what_cannot_be_written_is_refused(name: str, remedy: str, tmp_path: Path) -> None:
    picture = draw_timeline([Panel(holdings=[])], title="t")
    with pytest.raises(UsageError, match=remedy):
        write_picture(tmp_path / name, picture)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(UsageError, match="Name a file"):
        write_picture(tmp_path / "a.svg", draw_timeline([Panel(holdings=[])], title="t"))


def test_without_the_library_png_is_refused_and_svg_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find, load = importlib.util.find_spec, builtins.__import__

    def find_none(name: str, *arguments: Any) -> Any:
        return None if name == "matplotlib" else find(name, *arguments)

    def load_none(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return load(name, *arguments, **named)

    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    monkeypatch.setattr(builtins, "__import__", load_none)
    picture = draw_timeline([Panel(holdings=[])], title="t")
    with pytest.raises(UsageError, match=r"legato\[png\]"):
        write_picture(tmp_path / "a.png", picture)
    write_picture(tmp_path / "a.svg", picture)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
