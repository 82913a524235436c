"""Compares a table for a pipe with the same table as the library for terminals draws it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
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


def draw(table: Table[str]) -> str:
    console = Console(file=io.StringIO(), width=400, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


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
