"""The options that several commands of the platform share: what they are called, and how what is typed is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from legato.commands.completing import (
    complete_frameworks,
    complete_jobs,
    complete_platform_jobs,
    complete_projects,
    complete_queues,
    complete_servers,
)
from legato.commands.output import Output
from legato.options import read_one_of, read_seconds, read_whole

AS_TYPED: Final[dict[str, Any]] = {"allow_interspersed_args": True}

AnyJob = Annotated[str, typer.Argument(metavar="JOB", help="Its name, or its id.", autocompletion=complete_jobs)]
PlatformJob = Annotated[
    str, typer.Argument(metavar="JOB", help="Its name, or its id.", autocompletion=complete_platform_jobs)
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="NAME|URL",
        help="Which platform: a name of 'legato login', an address, or 'current'. [default: the one chosen last]",
        autocompletion=complete_servers,
    ),
]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Mean a job of this machine that 'legato run' started, not one of a platform.")
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        parser=read_one_of("the form of output", Output),
        metavar="[table|wide|json|yaml|csv]",
        help="How to write it.",
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")]
LimitOption = Annotated[
    int,
    typer.Option(parser=read_whole("the limit", 100, highest=1_000_000), metavar="NUMBER", help="At most so many."),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return only when that is so.")]
Now = Annotated[bool, typer.Option("--now", help="Kill the workers at once, without a checkpoint.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long ago (7d, 12h), or a date (2026-03-01).")
]
UntilOption = Annotated[str | None, typer.Option(metavar="TIME", help="As --since. [default: now]")]

OverwriteOption = Annotated[bool, typer.Option("--overwrite", "--force", help="Replace files that are there already.")]

# ---------------------------------------------------------------- what a job may be told

NameOption = Annotated[
    str | None, typer.Option("--name", "-n", metavar="NAME", help="The job's name. [default: the script's]")
]
WorkersOption = Annotated[
    str | None,
    typer.Option("--workers", metavar="[MIN..]MAX", help="How many: at most 4, or a range 1..4. [default: 1]"),
]
MinWorkersOption = Annotated[
    int | None,
    typer.Option(parser=read_whole("the minimum", 1), metavar="NUMBER", help="It waits while it cannot have so many."),
]
MaxWorkersOption = Annotated[
    int | None, typer.Option(parser=read_whole("the maximum", 4), metavar="NUMBER", help="It never has more.")
]
StaticOption = Annotated[bool, typer.Option("--static", help="Exactly the maximum of workers or none: not elastic.")]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", "-q", metavar="NAME", help="Its share of the pool.", autocompletion=complete_queues),
]
ProjectOption = Annotated[
    str | None,
    typer.Option("--project", metavar="PROJECT", help="Its name or id.", autocompletion=complete_projects),
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        "--priority", "-p", parser=read_whole("the priority", 7000), metavar="1..10000", help="Higher is more."
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="May be given several times.")
]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable of its workers; may be given several times."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "--param",
        metavar="NAME=VALUE",
        help="Handed to the program as '--NAME VALUE'; may be given several times.",
    ),
]
FrameworkOption = Annotated[
    str | None,
    typer.Option(
        "--framework",
        "-f",
        metavar="NAME",
        help="What runs it, as 'legato frameworks' lists them. [default: legato, Python scripts]",
        autocompletion=complete_frameworks,
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="A directory on the machines; the program finds it in LEGATO_DATA."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", parser=read_whole("the seed", 0), metavar="NUMBER", help="In place of the program's own seed."
    ),
]
RetriesOption = Annotated[
    int | None,
    typer.Option(
        "--retries", parser=read_whole("the retries", 2), metavar="NUMBER", help="Begin again if it fails, so often."
    ),
]
MaxTimeOption = Annotated[
    str | None,
    typer.Option("--max-time", metavar="TIME", help="Stop it, with a checkpoint, when it has run for so long: 12h."),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        parser=read_whole("the number of threads", 1),
        metavar="NUMBER",
        help="Of each worker; results depend on it.",
    ),
]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        "--micro-batches",
        parser=read_whole("the number of micro-batches", 16),
        metavar="NUMBER",
        help="Of one step, if known: slots that would not make it faster go to others.",
    ),
]
CheckpointEveryOption = Annotated[
    str | None,
    typer.Option("--checkpoint-every", metavar="HOW OFTEN", help="100steps, 2epochs or 60s."),
]
KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep", parser=read_whole("how many checkpoints to keep", 3), metavar="NUMBER", help="Checkpoints kept."
    ),
]
HeartbeatOption = Annotated[
    float | None,
    typer.Option(
        "--heartbeat-limit",
        parser=read_seconds("the heartbeat limit", 5),
        metavar="SECONDS",
        help="Replace a worker that is silent for so long and whose process does not compute. Seconds.",
    ),
]
CollectiveOption = Annotated[
    float | None,
    typer.Option(
        "--collective-limit",
        parser=read_seconds("the collective limit", 1800),
        metavar="SECONDS",
        help="Replace a worker that hangs: for so long it makes no progress and uses no CPU. Seconds.",
    ),
]


@contextlib.contextmanager
def naming_overwrite() -> Iterator[None]:
    """Let the refusal to overwrite name the option that allows it."""
    from legato.client.downloads import FileIsThere

    try:
        yield
    except FileIsThere as error:
        raise FileIsThere(error.to, error.there, "--overwrite") from None
