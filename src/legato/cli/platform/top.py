"""`legato top`: the pool and its jobs on the whole screen, redrawn every second. Changes nothing."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from legato.cli.entry import Entry
from legato.cli.options import read_seconds
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import ServerOption
from legato.cli.terminal.output import Silence, make_console, print_drawn
from legato.core.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from legato.api.jobs import JobRecord
    from legato.client.client import Client

_HOLDING: Final = ("starting", "running", "pausing", "stopping")
_WAITING: Final = ("queued", "paused")
_NUM_JOBS: Final = 500
_ENDS: Final = ("q", "Q", "\x1b")


def top(
    every: Annotated[
        float,
        typer.Option(
            parser=read_seconds("the time between two updates", 1), metavar="SECONDS", help="Time between two updates."
        ),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit.")] = False,
    server: ServerOption = None,
) -> None:
    """Watch the pool live: which job has which GPUs, and why. q quits."""
    if not 0.1 <= every <= 3600:
        raise UsageError(f"Cannot update every {every:g} s. Write a number of seconds from 0.1 to 3600.")
    client = open_client(server, is_watching=not once)
    console = make_console()
    if once or not console.is_terminal:
        # Without a terminal there are no keys that end the command, and nothing can be redrawn.
        print_drawn(draw_once(client, height=None))
        return
    from rich.live import Live

    silence = Silence()
    drawn: RenderableType = ""
    live = Live(console=console, screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), _keys() as key_within, live:
        while True:
            try:
                drawn = draw_once(client, height=console.height)
            except Unavailable as error:
                # Repeated until the server answers again, or the user ends this command.
                live.update(silence.draw_over(drawn, error), refresh=True)
            else:
                silence.end()
                live.update(drawn, refresh=True)
            if key_within(every) in _ENDS:
                return


ENTRIES: Final = (Entry("top", top, "legato top"),)


def draw_once(client: Client, *, height: int | None) -> RenderableType:
    """Request all data, and draw it.

    Args:
        client: of the platform.
        height: number of lines of the screen. None: no limit.
    """
    from legato.cli.terminal.top_view import draw_top

    jobs = [job.record for job in client.jobs(stage=(*_HOLDING, *_WAITING), limit=_NUM_JOBS)]
    metrics = {node.name: node.metrics for node in client.nodes() if node.metrics is not None}
    return draw_top(client.pool(), client.slots(), _in_order(jobs), time.time(), height=height, metrics=metrics)


def _in_order(jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
    return sorted(jobs, key=lambda job: (job.stage in _WAITING, -job.num_slots, job.id))


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits a number of seconds for a key, and returns the key or ""."""
    if not sys.stdin.isatty():
        yield time.sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key_within(limit_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], limit_s)
        return os.read(descriptor, 32).decode(errors="replace") if ready else ""

    try:
        yield key_within
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
