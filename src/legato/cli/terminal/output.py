"""Writes results: as a table for people, or as JSON, YAML or CSV for programs. Sends no requests.

Output for programs has every field, with the names of `docs/rest.md`. Output for people has chosen fields, and no
control characters, because other users may have written the texts.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from legato.cli.terminal.formatting import render_clock
from legato.cli.terminal.table import Column, Table
from legato.core.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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


def make_table(
    columns: Sequence[Column[R]],
    records: Sequence[R],
    *,
    is_wide: bool,
    is_folded: bool = True,
    below: str | None = None,
) -> Table[R]:
    """Return records as a table; arguments as in `Table`; ``is_wide``: with the wide columns too."""
    if is_wide:
        # With wide output all columns are shown, however narrow the terminal.
        return Table([column._replace(gives_way=0) for column in columns], records, is_folded, below)
    return Table([column for column in columns if not column.is_wide], records, is_folded, below)


def write(found: Any, output: Output, draw: Callable[[], RenderableType | str]) -> None:
    """Write a result.

    Args:
        found: a record or a list of records, for programs.
        output: how.
        draw: returns the form for people; called only for them.
    """
    with ending_on_interrupt():
        if not output.is_for_people:
            typer.echo(render_for_programs(found, output), nl=False)
            return
        drawn = draw()
        if isinstance(drawn, str):
            typer.echo(drawn)
            return
        print_drawn(drawn)


def write_list(found: Sequence[R], output: Output, columns: Sequence[Column[R]], empty: str | None = None) -> None:
    """Write a list: to people as a table.

    Args:
        found: the records.
        output: how.
        columns: of the table.
        empty: text for people instead of a table without rows. None: the table.
    """

    def draw() -> Table[R] | str:
        return make_table(columns, found, is_wide=output is Output.wide) if found or empty is None else empty

    write(list(found), output, draw)


def print_drawn(drawn: RenderableType) -> None:
    """Print a drawing to the standard output."""
    if _may_be_terminal():
        console = make_console()
        if console.is_terminal:
            console.print(drawn)
            return
    typer.echo(_render_for_pipe(drawn))


def _render_for_pipe(drawn: RenderableType | str) -> str:
    """Return a drawing as text. A pipe has no width: lines for another program are neither wrapped nor padded."""
    if isinstance(drawn, str):
        return drawn
    if isinstance(drawn, Table):
        return drawn.render_plain()
    console = make_console()
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def make_console() -> Console:
    """Return the console of the standard output; very wide if that is no terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=_UNFOLDED_WIDTH)


def _may_be_terminal() -> bool:
    # Ask the library last, because its check takes longer than all others here.
    return sys.stdout.isatty() or any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))


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
    """Return a line with the names of the columns and one for each record; "" if there is no record."""
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
    """Get a result and write it: once, or with ``again`` repeatedly until it is final or until Ctrl-C.

    Args:
        look: returns the result, its form for people, and whether more results will come.
        output: format. Programs get a line (or document) per result.
        again: get a result every second. Where no terminal shows them, people get each form only once in a row.
    """
    if not again:
        found, drawn, _ = look()
        write(found, output, lambda: drawn)
        return
    console = make_console()
    silence = Silence()
    with ending_on_interrupt():
        if output.is_for_people and console.is_terminal:
            _watch_live(look, console)
            return
        last = None
        while True:
            try:
                found, drawn, goes_on = look()
            except Unavailable as error:
                if (message := silence.begin(error)) is not None:
                    typer.echo(f"legato: {message}", err=True)
                time.sleep(WATCH_EVERY_S)
                continue
            silence.end()
            if output.is_for_people:
                if (text := _render_for_pipe(drawn)) != last:
                    typer.echo(text)
                    last = text
            else:
                typer.echo(render_for_programs(found, output, is_one_line=True), nl=False)
            if not goes_on:
                return
            time.sleep(WATCH_EVERY_S)


@contextlib.contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Let the user stop watching by Ctrl-C, or by closing the pipe as ``head`` does: neither is an error."""
    try:
        yield
        # Flush here: so a closed pipe raises its error here, not at the end of the process.
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        give_up_output()


def give_up_output() -> None:
    """Discard output from now on, because the pipe is closed: flushing the rest must not fail at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _watch_live(look: Callable[[], tuple[Any, RenderableType | str, bool]], console: Console) -> None:
    from rich.live import Live
    from rich.text import Text

    silence = Silence()
    drawn: RenderableType = ""
    goes_on = True
    with Live(console=console, auto_refresh=False) as live:
        while goes_on:
            try:
                _, found, goes_on = look()
            except Unavailable as error:
                live.update(silence.draw_over(drawn, error), refresh=True)
            else:
                silence.end()
                drawn = Text(found) if isinstance(found, str) else found
                live.update(drawn, refresh=True)
            if goes_on:
                time.sleep(WATCH_EVERY_S)


class Silence:
    """Shows since when a server has not answered repeated requests; its last answer stays visible.

    The first request must have an answer: otherwise the address may be wrong.
    """

    def __init__(self) -> None:
        self._has_heard = False
        self._since: float | None = None

    def begin(self, error: Unavailable) -> str | None:
        """Return the message about a request without an answer; None if it was returned already.

        Raises:
            Unavailable: no request had an answer so far.
        """
        if not self._has_heard:
            raise error
        if self._since is not None:
            return None
        self._since = time.time()
        return self._describe_outage(error, self._since)

    def draw_over(self, drawn: RenderableType, error: Unavailable) -> RenderableType:
        """Return the last drawing, below a line that says that it is old; raises the errors of `begin`."""
        from rich.console import Group
        from rich.text import Text

        self.begin(error)
        assert self._since is not None, "begin has set it"
        return Group(Text(self._describe_outage(error, self._since), style="red"), drawn)

    def end(self) -> None:
        """Record an answer."""
        self._has_heard, self._since = True, None

    @staticmethod
    def _describe_outage(error: Unavailable, since: float) -> str:
        return f"no answer from the server since {render_clock(since, time.time())}; trying again. {error}"
