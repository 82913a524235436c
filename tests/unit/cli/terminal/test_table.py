"""Compares a table for a pipe with that for a terminal, and that with the table that Rich would draw itself."""

from __future__ import annotations

import io
import random
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text
from tests.unit.cli.conftest import Call
from tests.unit.client.platform import Platform

from legato.cli.terminal.output import make_table
from legato.cli.terminal.table import Column, Table

WORDS = ("plain", "", "数据", "e\u0301t\u00e9", "🚀 up", "a [bold]b[/] \x1b[31m", "two\nlines\tof it")
COLUMNS = (
    Column[str]("WORD", lambda word: word),
    Column[str]("SIZE", lambda word: len(word) or None, is_number=True),
    Column[str]("AGAIN", lambda word: word, style=lambda word: "green", is_wide=True),
    Column[str]("LAST", lambda word: word * 3),
)


def draw(table: RenderableType, width: int = 400) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def draw_as_rich(table: Table[list[str]], width: int) -> str:
    """Draw a table, of which all columns fit, by Rich's own one."""
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in table.columns:
        is_last = column is table.columns[-1]
        grid.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not is_last,
            overflow="fold" if is_last else "ellipsis",
        )
    overflow: Literal["ellipsis"] | None = None if table.is_folded else "ellipsis"
    for record in table.records:
        cells = (Text(cell, no_wrap=None if table.is_folded else True, overflow=overflow) for cell in record)
        grid.add_row(*cells)
    return draw(grid if table.below is None else Group(grid, Text(table.below, style="dim")), width)


@pytest.mark.parametrize("seed", range(60))
def test_a_terminal_gets_what_rich_would_draw(seed: int) -> None:
    rng = random.Random(seed)
    words = ("a", "12", "waits:", "x-y/z", "longlonglonglongword", "数据", "e\u0301t\u00e9", "🚀")
    num_columns = rng.randint(1, 4)

    def make_column(place: int) -> Column[list[str]]:
        title = "ABCDEFGH"[: rng.randint(1, 8)]
        return Column(title, lambda record: record[place], is_number=rng.random() < 0.3)

    columns = [make_column(place) for place in range(num_columns)]
    most = [2] * (num_columns - 1) + [9]
    records = [[" ".join(rng.choices(words, k=rng.randint(0, many))) for many in most] for _ in range(4)]
    table = Table(columns, records, is_folded=rng.random() < 0.5, below=rng.choice((None, "and more of them")))
    # The columns before the last one fit.
    texts = [[column.title, *(record[place] for record in records)] for place, column in enumerate(columns[:-1])]
    needed = sum(max(map(cell_len, cells)) + 2 for cells in texts)
    for width in (needed + 8, needed + 40, needed + rng.randint(9, 200)):
        assert draw(table, width) == draw_as_rich(table, width), width


def test_a_terminal_that_is_too_narrow_cuts_the_other_columns() -> None:
    table = make_table(COLUMNS, ["plain words", "b"], is_wide=True)
    assert draw(table, 14).splitlines() == ["W…  SI…  AG…", "p…   11  pl…", "b     1  b"]


def test_cells_and_titles_have_their_styles() -> None:
    console = Console(file=io.StringIO(), width=40, highlight=False, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(make_table(COLUMNS, ["ab"], is_wide=True, below="and more"))
    assert capture.get().splitlines() == [
        "\x1b[2mWORD\x1b[0m  \x1b[2mSIZE\x1b[0m  \x1b[2mAGAIN\x1b[0m  \x1b[2mLAST\x1b[0m",
        "ab       2  \x1b[32mab\x1b[0m     ababab",
        "\x1b[2mand more\x1b[0m",
    ]


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("below", [None, "and more"])
@pytest.mark.parametrize("words", [WORDS, WORDS[:1], ()])
def test_a_pipe_gets_what_a_wide_terminal_gets(words: tuple[str, ...], below: str | None, is_wide: bool) -> None:
    table = make_table(COLUMNS, words, is_wide=is_wide, below=below)
    assert table.render_plain() == draw(table)


def test_a_pipe_gets_a_row_whole_however_long_it_is(platform: Platform, call: Call) -> None:
    platform.add_job(1, decided_reason="because " * 200)
    row = call("ps")[1].splitlines()[1]
    assert row.count("because") == 200


@pytest.mark.parametrize(
    ("name", "value", "is_coloured"),
    [
        ("FORCE_COLOR", "1", True),
        ("TTY_COMPATIBLE", "1", True),
        ("TTY_COMPATIBLE", "0", False),
        ("FORCE_COLOR", "", False),
    ],
)
def test_what_is_like_a_terminal_gets_colours(
    name: str, value: str, is_coloured: bool, platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.add_job(1)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(name, value)
    assert ("\x1b[32mrunning" in call("ps")[1]) is is_coloured
