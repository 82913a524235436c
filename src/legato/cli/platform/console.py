"""The command that opens the web console. Shows no token: the link contains a code that works once."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from legato.cli.entry import Entry
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import ServerOption
from legato.cli.terminal.formatting import render_time


def console(
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open a browser; only print the link.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Open the web console, logged in as you. The link works once, within an hour; it does not contain your token."""
    link = open_client(server).link_to_console()
    is_opened = not no_browser and _has_screen(os.environ) and webbrowser.open(link.url)
    what = "is opened in your browser" if is_opened else "logs in as you: open it in a browser"
    typer.echo(f"legato: this link {what}. It works once, until {render_time(link.expires_at)}:", err=True)
    typer.echo(link.url)


ENTRIES: Final = (Entry("console", console, "legato console"),)


def _has_screen(environment: Mapping[str, str], system: str = sys.platform) -> bool:
    """Return whether the user of this terminal would see a browser that opens here; text browsers do not count.

    >>> [_has_screen({"DISPLAY": ":0"} | more, "linux") for more in ({}, {"SSH_CONNECTION": "1"})]
    [True, False]
    >>> _has_screen({}, "linux"), _has_screen({}, "darwin")
    (False, True)
    """
    if "SSH_CONNECTION" in environment:
        return False
    return system == "darwin" or any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
