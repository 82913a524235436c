"""Commands on the pool: slots, usage, queues. Divides nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.completion import complete_queues
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import OutputOption, ServerOption, SinceOption, UntilOption, WatchOption
from legato.cli.terminal.formatting import read_period
from legato.cli.terminal.output import Output, make_table, watch, write
from legato.core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from legato.client.client import Client

_NUM_JOBS: Final = 1000
_DAY_S: Final = 86400
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queues)]


def pool(output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """Show the pool: its policy, its GPUs, the number of jobs in each stage, the latest decision."""
    found = open_client(server).pool()

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_record

        return draw_record(found)

    write(found, output, draw)


def slots(output: OutputOption = Output.table, again: WatchOption = False, server: ServerOption = None) -> None:
    """List the slots (GPUs) of the pool, and the job that has each."""
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        from legato.cli.terminal.columns import slot_columns

        found = client.slots()
        names = {job.id: f"{job.record.owner}/{job.name}" for job in client.jobs(stage=_HOLDING, limit=_NUM_JOBS)}
        drawn = make_table(slot_columns(time.time(), names), found, is_wide=output is Output.wide)
        return list(found), drawn if found else "No machine has joined the pool yet.", True

    watch(look, output, again=again)


_HOLDING: Final = ("starting", "running", "pausing", "stopping")


def usage(
    since: SinceOption = None,
    until: UntilOption = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the slots of each job over time: .svg, or .png with legato[png]."),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show GPU hours (hours of slots) of the last day, or since --since, by user and queue."""
    if draw is not None:
        from legato.drawing.files import check_path

        check_path(draw)
    now = time.time()
    begins, ends = read_period(since, until, now)
    client = open_client(server)
    found = client.usage(begins, ends)

    def draw_table() -> Any:
        from legato.cli.terminal.columns import usage_columns

        if not found:
            return "No user that you may see had slots in that time."
        total = sum(one.slot_s for one in found)
        ordered = sorted(found, key=lambda one: -one.slot_s)
        is_all = client.me().role == "admin"
        below = None if is_all else "only your usage; admins see that of all users"
        return make_table(usage_columns(total, is_all=is_all), ordered, is_wide=output is Output.wide, below=below)

    write(list(found), output, draw_table)
    if draw is not None:
        end = now if ends is None else ends
        _draw_timeline(client, draw, end - _DAY_S if begins is None else begins, end)


def _draw_timeline(client: Client, path: Path, since: float, until: float) -> None:
    """Draw which job had which slots between two times; if jobs are too many or too old, show their ids."""
    from legato.drawing.files import write_picture
    from legato.drawing.holdings import Holding, Panel
    from legato.drawing.timeline import draw_timeline

    allocations = client.allocations(since, until)
    if not allocations:
        raise UsageError(f"Cannot draw '{path}': no job had slots in that time. Choose an earlier --since.")
    holdings = [Holding(slot=one.slot, job=one.job, since=one.since, until=one.until) for one in allocations]
    names = {job.id: f"{job.record.owner}/{job.name}" for job in client.jobs(limit=_NUM_JOBS)}
    picture = draw_timeline(
        [Panel(holdings=holdings, slots=[slot.id for slot in client.slots()])],
        title=f"Slots of {client.server.url} over time",
        names=names,
        begin=max(since, min(one.since for one in allocations)),
        end=until,
        by_the_clock=True,
    )
    write_picture(path, picture)
    typer.echo(f"legato: drawn: {path}", err=True)


# ---------------------------------------------------------------- queues

queues = make_group("queues", "legato queues")


@queues.callback(invoke_without_command=True)
def list_queues(
    context: typer.Context,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    server: ServerOption = None,
) -> None:
    """List queues: their weight, their slots, and the number of jobs that wait. To change them: set, plan, delete."""
    if context.invoked_subcommand is not None:
        return
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        from legato.cli.terminal.columns import QUEUE_COLUMNS

        found = client.queues()
        drawn = make_table(QUEUE_COLUMNS, found, is_wide=output is Output.wide)
        return list(found), drawn if found else "No queue is open to you. An admin can make you a member of one.", True

    watch(look, output, again=again)


def set_queue(
    queue: QueueName,
    weight: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Weight: the queue's share in proportion to other queues. [default for a new queue: 1]",
        ),
    ] = None,
    floor: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="GPUs that the queue can always claim.")
    ] = None,
    ceiling: Annotated[
        str | None, typer.Option(metavar="NUMBER|none", help="Maximum number of GPUs; none: no limit.")
    ] = None,
    is_open: Annotated[
        bool | None,
        typer.Option("--open/--closed", help="Let all users submit jobs to the queue, or only its members."),
    ] = None,
    member: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="A member; repeatable. The new list replaces the old one."),
    ] = None,
    no_members: Annotated[bool, typer.Option("--no-members", help="Remove all members.")] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Create or change a queue. Settings that you do not give stay as they are. For admins."""
    if member and no_members:
        raise UsageError("--member and --no-members exclude each other. Use one of them.")
    found = open_client(server).set_queue(
        queue,
        weight=weight,
        floor=floor,
        ceiling=_read_ceiling(ceiling),
        is_open=is_open,
        members=[] if no_members else member or None,
    )

    def draw() -> Any:
        from legato.cli.terminal.columns import QUEUE_COLUMNS

        return make_table(QUEUE_COLUMNS, [found], is_wide=True)

    write(found, output, draw)


def plan_queue(
    queue: QueueName,
    weight: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Weight: the queue's share in proportion to other queues. [default for a new queue: 1]",
        ),
    ] = None,
    floor: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="GPUs that the queue can always claim.")
    ] = None,
    ceiling: Annotated[
        str | None, typer.Option(metavar="NUMBER|none", help="Maximum number of GPUs; none: no limit.")
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show which jobs would gain or lose GPUs if a queue were changed. Changes nothing. For admins."""
    client = open_client(server)
    try:
        found = client.queue(queue)
        wanted: dict[str, Any] = {"weight": found.weight, "floor": found.floor, "ceiling": found.ceiling}
    except NotFound:
        wanted = {}  # the queue would be created
    said = {"weight": weight, "floor": floor, "ceiling": _read_ceiling(ceiling)}
    wanted |= {key: value for key, value in said.items() if value is not None}
    if ceiling == "none":
        wanted["ceiling"] = None
    planned = client.plan_queues([{"name": queue, **wanted}])

    def draw() -> Any:
        from legato.cli.platform.sharing import draw_shares

        return draw_shares(planned.shares, is_wide=output is Output.wide, below=planned.reason)

    write(planned, output, draw)


def delete_queue(queue: QueueName, server: ServerOption = None) -> None:
    """Delete a queue that no job uses. For admins."""
    open_client(server).delete_queue(queue)
    typer.echo(f"Queue '{queue}' is deleted.")


enter(
    queues,
    (
        Entry("set", set_queue, "legato queues set night --weight 2 --ceiling 8", short="Create or change a queue."),
        Entry("plan", plan_queue, "legato queues plan night --weight 2", short="Show the effect of a change."),
        Entry("delete", delete_queue, "legato queues delete night", short="Delete a queue."),
    ),
)

GROUPS: Final = (queues,)
ENTRIES: Final = (
    Entry("pool", pool, "legato pool -o json | jq .num_free"),
    Entry("slots", slots, "legato slots -w"),
    Entry("usage", usage, "legato usage --since 7d"),
)


def _read_ceiling(said: str | None) -> int | Literal["none"] | None:
    if said is None or said == "none":
        return cast("Literal['none'] | None", said)
    if not said.isascii() or not said.isdecimal():
        raise UsageError(f"Cannot read the ceiling '{said}'. Write a whole number, such as 8, or none.")
    return int(said)
