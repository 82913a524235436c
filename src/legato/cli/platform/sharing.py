"""Commands on how the pool is shared: fair shares, moves of slots, usage over time. Divides nothing."""

from __future__ import annotations

import bisect
import enum
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry
from legato.cli.options import read_one_of
from legato.cli.platform.completion import complete_platform_jobs
from legato.cli.platform.connecting import find_job, is_title, open_client
from legato.cli.platform.options import LimitOption, OutputOption, ServerOption, SinceOption, UntilOption, WatchOption
from legato.cli.terminal.formatting import read_duration, read_period, render_clock, render_sparkline
from legato.cli.terminal.output import Output, make_table, watch, write, write_list
from legato.cli.terminal.table import Column
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.api.pool import HeldSlots, QueueShare, SlotMove, Timeline, UserShare

_UNKNOWN: Final = "-"
_HOUR_S: Final = 3600.0
_KEPT_S: Final = 90 * 24 * _HOUR_S
"""As `legato.control.store.usage.KEPT_S`, which takes long to import."""


def shares(
    over: Annotated[
        str | None,
        typer.Option("--over", metavar="TIME", help="Show what each user has used in that time, such as 7d or 12h."),
    ] = None,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    server: ServerOption = None,
) -> None:
    """Show for each queue its fair share, and the slots that it holds, borrows and wants; or what users have used."""
    over_s = None if over is None else read_duration(over, "--over")
    if over_s is not None and over_s < _HOUR_S:
        raise UsageError(f"Cannot show the use in {over}: use is counted by hour. Write --over 1h or more.")
    if over_s is not None and over_s > _KEPT_S:
        raise UsageError(f"Cannot show the use in {over}: use is kept for 90 days. Write --over 90d or less.")
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        if over_s is not None:
            used = client.use(over_s)
            drawn = draw_use(used, is_wide=output is Output.wide) if used else "No user has used a slot in that time."
            return list(used), drawn, True
        found = client.shares()
        drawn = draw_shares(found, is_wide=output is Output.wide) if found else "No queue is open to you."
        return list(found), drawn, True

    watch(look, output, again=again)


def moves(
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 100,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show which jobs got and gave up GPUs in the last hour, or since --since, and why."""
    now = time.time()
    begins, ends = read_period(since, until, now)
    found = open_client(server).moves(begins, ends, limit=limit)

    write_list(found, output, _move_columns(now), "No job got or gave up a GPU in that time.")


class By(enum.StrEnum):
    """The grouping of slots into lines."""

    JOB = "job"
    OWNER = "owner"
    QUEUE = "queue"
    PROJECT = "project"


def timeline(
    job: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...", help="Only these jobs, by name or id.", autocompletion=complete_platform_jobs
        ),
    ] = None,
    by: Annotated[
        By,
        typer.Option(
            parser=read_one_of("what one line stands for", By),
            metavar="[job|owner|queue|project]",
            help="Show one line for each of these.",
        ),
    ] = By.JOB,
    since: SinceOption = None,
    until: UntilOption = None,
    points: Annotated[
        int,
        typer.Option(
            min=4,
            max=10_000,
            metavar="NUMBER",
            help="Maximum number of points per line. Highest and lowest values are kept.",
        ),
    ] = 500,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show how many GPUs each job held in the last hour, or since --since. -o json prints every change."""
    now = time.time()
    begins, ends = read_period(since, until, now)
    names = [find_job(one, server).id if is_title(one) else one for one in job or ()]
    found = open_client(server).timeline(begins, ends, by=by.value, points=points, jobs=names or None)

    def draw() -> Any:
        if not found.items:
            return "No job held a GPU in that time."
        return make_table(_line_columns(found), found.items, is_wide=output is Output.wide)

    write(found, output, draw)


def draw_shares(found: Sequence[QueueShare], *, is_wide: bool, below: str | None = None) -> Any:
    """Return the parts of queues as a table; ``below``: a line under it."""
    columns = (
        Column["QueueShare"]("QUEUE", lambda share: share.queue),
        Column["QueueShare"]("WEIGHT", lambda share: f"{share.weight:g}", is_number=True),
        Column["QueueShare"]("FLOOR", lambda share: share.floor, is_number=True),
        Column["QueueShare"](
            "CEILING", lambda share: "none" if share.ceiling is None else share.ceiling, is_number=True
        ),
        Column["QueueShare"]("FAIR", lambda share: _render(share.fair), is_number=True),
        Column["QueueShare"]("HELD", lambda share: share.held, is_number=True),
        Column["QueueShare"]("BORROWED", lambda share: _render(share.borrowed), is_number=True),
        Column["QueueShare"]("WANTED", lambda share: share.wanted, is_number=True),
    )
    return make_table(columns, found, is_wide=is_wide, below=below)


def draw_use(found: Sequence[UserShare], *, is_wide: bool) -> Any:
    """Return what users have used as a table, the largest part of each queue first."""
    columns = (
        Column["UserShare"]("QUEUE", lambda one: one.queue),
        Column["UserShare"]("USER", lambda one: one.user),
        Column["UserShare"]("GPU HOURS", lambda one: f"{one.slot_s / 3600:.1f}", is_number=True),
        Column["UserShare"]("GPUS", lambda one: f"{one.num_slots:.1f}", is_number=True),
        Column["UserShare"]("PART", lambda one: f"{one.part:.0%}", is_number=True),
        Column["UserShare"]("RECENT", lambda one: _render(one.recent_slots), is_number=True),
        Column["UserShare"]("WEIGHT", lambda one: f"{one.weight:g}", is_number=True),
    )
    return make_table(columns, sorted(found, key=lambda one: (one.queue, -one.slot_s, one.user)), is_wide=is_wide)


def sum_held(line: HeldSlots, until: float) -> float:
    """Return how many slots were held for how long, in slot-seconds.

    >>> from types import SimpleNamespace as Line
    >>> sum_held(Line(times=(0.0, 10.0), slots=(4, 2)), 15.0)
    50.0
    """
    ends = (*line.times, until)[1:]
    return sum((end - begin) * held for begin, end, held in zip(line.times, ends, line.slots, strict=True))


def sample_held(line: HeldSlots, since: float, until: float, number: int = 24) -> list[float]:
    """Return how many slots were held at the given number of moments, evenly distributed between two times.

    >>> from types import SimpleNamespace as Line
    >>> sample_held(Line(times=(2.0, 10.0), slots=(4, 2)), 0.0, 12.0, 4)
    [0.0, 4.0, 4.0, 2.0]
    """
    moments = [since + (until - since) * place / (number - 1) for place in range(number)]
    held = [bisect.bisect_right(line.times, moment) for moment in moments]
    return [float(line.slots[place - 1]) if place else 0.0 for place in held]


ENTRIES: Final = (
    Entry("shares", shares, "legato shares -w"),
    Entry("moves", moves, "legato moves --since 8h"),
    Entry("timeline", timeline, "legato timeline --by queue --since 8h"),
)


def _line_columns(found: Timeline) -> Sequence[Column[HeldSlots]]:
    return (
        Column("WHO", lambda line: "others" if line.title is None else line.title or "no project"),
        Column("LEAST", lambda line: min(line.slots, default=0), is_number=True),
        Column("MOST", lambda line: max(line.slots, default=0), is_number=True),
        Column("AT THE END", lambda line: line.slots[-1] if line.slots else 0, is_number=True),
        Column("GPU HOURS", lambda line: f"{sum_held(line, found.until) / 3600:.2f}", is_number=True),
        Column("COURSE", lambda line: render_sparkline(sample_held(line, found.since, found.until))),
    )


def _move_columns(now: float) -> Sequence[Column[SlotMove]]:
    return (
        Column("ASKED", lambda move: _UNKNOWN if move.from_title is None else render_clock(move.time, now)),
        Column("SLOT", lambda move: move.slot, gives_way=1),
        Column("FROM", lambda move: move.from_title or "free"),
        Column("TO", lambda move: move.to_title or _UNKNOWN),
        Column("TAKEN", lambda move: _UNKNOWN if move.taken_at is None else render_clock(move.taken_at, now)),
        Column("REASON", _list_reasons),
    )


def _list_reasons(move: SlotMove) -> str:
    """Return why the first job was asked to give the slot up, and why the next job got it."""
    taken = f"{move.to_title} {move.taken_reason}" if move.reason and move.taken_reason else move.taken_reason
    return "; ".join(reason for reason in (move.reason, taken) if reason)


def _render(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{round(number, 2):g}"
