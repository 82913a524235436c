"""Commands on how the pool is shared: what is fair, who borrows, who gave GPUs up to whom. Divides nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from legato.commands.connecting import open_client
from legato.commands.entry import Entry
from legato.commands.options import LimitOption, OutputOption, ServerOption, SinceOption, UntilOption, WatchOption
from legato.commands.output import Output, make_table, watch, write
from legato.commands.table import Column
from legato.commands.words import read_moment, render_clock

if TYPE_CHECKING:
    from legato.client.platform_records import QueueShare, SlotMove

_UNKNOWN: Final = "-"


def shares(output: OutputOption = Output.table, again: WatchOption = False, server: ServerOption = None) -> None:
    """Show each queue's part of the pool: what is fair, and what it holds, borrows and wants."""
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
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
    """Show who was asked to give GPUs up, and who had them next; of the last hour, unless said otherwise."""
    now = time.time()
    begins = None if since is None else read_moment(since, now, "the beginning")
    ends = None if until is None else read_moment(until, now, "the end")
    found = open_client(server).moves(begins, ends, limit=limit)

    def draw() -> Any:
        if not found:
            return "Nobody was asked to give a GPU up in that time."
        return make_table(_move_columns(now), found, is_wide=output is Output.wide)

    write(list(found), output, draw)


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


ENTRIES: Final = (
    Entry("shares", shares, "legato shares -w", short="Show what is fair, and who borrows."),
    Entry("moves", moves, "legato moves --since 8h", short="Show who gave GPUs up to whom."),
)


def _move_columns(now: float) -> Sequence[Column[SlotMove]]:
    return (
        Column("WHEN", lambda move: render_clock(move.time, now)),
        Column("SLOT", lambda move: move.slot, gives_way=1),
        Column("FROM", lambda move: move.from_title),
        Column("TO", lambda move: move.to_title or _UNKNOWN),
        Column("REASON", lambda move: move.reason),
    )


def _render(number: float | None) -> str:
    return _UNKNOWN if number is None else f"{round(number, 2):g}"
