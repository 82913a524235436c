"""An entry of the command line: its name, its help and an example."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import typer
import typer.main

from legato.cli.plain_values import read_plainly


class Entry(NamedTuple):
    """A command.

    Args:
        name: as the user types it.
        run: the function of the command; its parameters are the arguments and options.
        example: shown below its help.
        short: its description in the list of its group; `legato.cli.main.MODULES` has those of the main commands. None:
            the first line of its help.
        takes_all: all words after its first argument are passed on, also those that look like options.
        reads_below_zero: the command itself refuses numbers such as -1, which would otherwise be read as options.
    """

    name: str
    run: Callable[..., Any]
    example: str
    short: str | None = None
    takes_all: bool = False
    reads_below_zero: bool = False


def enter(app: typer.Typer, entries: Iterable[Entry]) -> None:
    """Add commands to a group."""
    for entry in entries:
        settings = {"allow_interspersed_args": not entry.takes_all, "ignore_unknown_options": entry.reads_below_zero}
        app.command(entry.name, short_help=entry.short, epilog=f"Example:  {entry.example}", context_settings=settings)(
            entry.run
        )


@functools.cache
def load_command(module: str, name: str) -> Any:
    """Import a module of commands, and return one of its ``ENTRIES`` or ``GROUPS`` in the form of typer."""
    # httpx would load its own command line and three libraries that Legato does not need. Without these libraries it
    # works as well.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    loaded = importlib.import_module(module)
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # otherwise typer makes no group of a single command
    # The library takes a millisecond for the parameters of each command, so only this one is added.
    enter(app, (entry for entry in loaded.ENTRIES if entry.name == name))
    for group in getattr(loaded, "GROUPS", ()):
        if group.info.name == name:
            app.add_typer(group)
    group_of_one: Any = typer.main.get_command(app)
    command = group_of_one.commands[name]
    read_plainly(command)
    return command


def make_group(name: str, example: str) -> typer.Typer:
    """Return a group of commands, such as ``legato queues …``; arguments as in `Entry`."""
    return typer.Typer(
        name=name,
        epilog=f"Example:  {example}",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
