"""An entry of the command line: its name, its help and an example."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import typer
import typer.main


class Entry(NamedTuple):
    """A command.

    Args:
        name: as the user types it.
        run: the function of the command; its parameters are the arguments and options.
        example: shown below its help.
        short: its description in the list of all commands. None: the first line of its help.
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


@functools.cache  # the list of all commands needs the same module for each of its commands
def load_commands(name: str) -> Mapping[str, Any]:
    """Import a module of commands, and return them by name: its ``ENTRIES``, and its ``GROUPS`` if it has any."""
    # httpx would load its own command line and three libraries that Legato does not need. Without these libraries it
    # works as well.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    module = importlib.import_module(name)
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # otherwise typer makes no group of a single command
    enter(app, module.ENTRIES)
    for group in getattr(module, "GROUPS", ()):
        app.add_typer(group)
    loaded: Any = typer.main.get_command(app)
    commands: Mapping[str, Any] = loaded.commands
    return commands


def make_group(name: str, short: str, example: str) -> typer.Typer:
    """Return a group of commands, such as ``legato queues …``; arguments as in `Entry`."""
    return typer.Typer(
        name=name,
        short_help=short,
        epilog=f"Example:  {example}",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
