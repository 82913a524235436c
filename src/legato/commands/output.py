"""Writes what was found: as a table for people, or as JSON, YAML or CSV for programs. Asks nobody.

What programs read has the names of `docs/rest.md` and every field; what people read is chosen, and has no control
characters in it, because others may have written it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import typer

from legato.commands.words import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

R = TypeVar("R")

WATCH_EVERY_S: Final = 1.0
_UNFOLDED_WIDTH: Final = 400


class Output(StrEnum):
    """How results are written."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    csv = "csv"

    @property
    def is_for_people(self) -> bool:
        return self in (Output.table, Output.wide)


class Column(NamedTuple, Generic[R]):
    """A column of a table.

    Args:
        title: in capitals.
        read: makes the text of a cell.
        style: of a cell, by its record. None: as usual.
        is_wide: left out unless asked for.
        is_number: stands to the right.
    """

    title: str
    read: Callable[[R], object]
    style: Callable[[R], str] | None = None
    is_wide: bool = False
    is_number: bool = False


def make_table(columns: Sequence[Column[R]], records: Sequence[R], *, is_wide: bool, is_folded: bool = True) -> Table:
    """Draw records, a row each.

    Args:
        columns: of the table.
        records: in order.
        is_wide: show the columns that are wide too.
        is_folded: the last column takes several lines where it is too long for one; else it is cut off.
    """
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if is_wide or not column.is_wide]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for number, column in enumerate(shown):
        # Where there is no room for all, it is the last one that gives way.
        is_last = number == len(shown) - 1
        table.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not is_last,
            overflow="fold" if is_last else "ellipsis",
        )
    for record in records:
        cells = []
        for column in shown:
            value = column.read(record)
            style = column.style(record) if column.style else ""
            text = "" if value is None else clean(value)
            cells.append(Text(text, style, no_wrap=not is_folded or None, overflow=None if is_folded else "ellipsis"))
        table.add_row(*cells)
    return table


def write(found: Any, output: Output, draw: Callable[[], RenderableType | str]) -> None:
    """Write what was found.

    Args:
        found: a record or a list of records, for programs.
        output: how.
        draw: makes what people see; called only for them.
    """
    if not output.is_for_people:
        typer.echo(render_for_programs(found, output), nl=False)
        return
    drawn = draw()
    if isinstance(drawn, str):
        typer.echo(drawn)
        return
    print_drawn(drawn)


def print_drawn(drawn: RenderableType) -> None:
    """Print to standard output what was drawn."""
    console = make_console()
    if console.is_terminal:
        console.print(drawn)
        return
    # A pipe has no width: lines that another program reads are neither folded nor filled up.
    with console.capture() as capture:
        console.print(drawn)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def make_console() -> Console:
    """Return the console of standard output; wide where nobody sees its edge."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=_UNFOLDED_WIDTH)


def render_for_programs(found: Any, output: Output, *, is_one_line: bool = False) -> str:
    """Return a record or a list of records as JSON, YAML or CSV, with its line end."""
    import msgspec

    plain = msgspec.to_builtins(found)
    match output:
        case Output.yaml:
            text: str = msgspec.yaml.encode(plain).decode()
            return f"---\n{text}" if is_one_line else text
        case Output.csv:
            return _render_csv(plain if isinstance(plain, list) else [plain])
        case _:
            encoded = msgspec.json.encode(plain)
            return (encoded if is_one_line else msgspec.json.format(encoded, indent=2)).decode() + "\n"


def _render_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line with the names of the columns and one for each record; nothing where there is no record."""
    flat = [dict(_flatten(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    if not columns:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    import msgspec

    for name, value in row.items():
        if isinstance(value, dict) and prefix == "" and name == "progress":
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, dict | list | tuple):
            yield prefix + name, msgspec.json.encode(value).decode()
        else:
            yield prefix + name, "" if value is None else str(value).lower() if isinstance(value, bool) else value


def watch(look: Callable[[], tuple[Any, RenderableType | str, bool]], output: Output, *, again: bool) -> None:
    """Look once and write what was found, or ``again`` and again until it is over or Ctrl-C.

    Args:
        look: returns what was found, how people see it, and whether more is to come.
        output: how. Programs get a line (or document) per look.
        again: look every second.
    """
    if not again:
        found, drawn, _ = look()
        write(found, output, lambda: drawn)
        return
    console = make_console()
    with contextlib.suppress(KeyboardInterrupt):
        if output.is_for_people and console.is_terminal:
            _watch_live(look, console)
            return
        while True:
            found, drawn, goes_on = look()
            if output.is_for_people:
                write(found, output, lambda drawn=drawn: drawn)  # type: ignore[misc]
            else:
                typer.echo(render_for_programs(found, output, is_one_line=True), nl=False)
            if not goes_on:
                return
            time.sleep(WATCH_EVERY_S)


def _watch_live(look: Callable[[], tuple[Any, RenderableType | str, bool]], console: Console) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, auto_refresh=False) as live:
        while True:
            _, drawn, goes_on = look()
            live.update(Text(drawn) if isinstance(drawn, str) else drawn, refresh=True)
            if not goes_on:
                return
            time.sleep(WATCH_EVERY_S)
