"""The options that several commands of the platform share: their names, and how to read their values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from legato.cli.options import read_one_of, read_seconds, read_whole
from legato.cli.platform.completion import (
    complete_frameworks,
    complete_jobs,
    complete_platform_jobs,
    complete_projects,
    complete_queues,
    complete_servers,
)
from legato.cli.terminal.output import Output

AS_TYPED: Final[dict[str, Any]] = {"allow_interspersed_args": True}

_JOB: Final = "Name or id of the job; OWNER/NAME for that of another user."
AnyJob = Annotated[str, typer.Argument(metavar="JOB", help=_JOB, autocompletion=complete_jobs)]
PlatformJob = Annotated[str, typer.Argument(metavar="JOB", help=_JOB, autocompletion=complete_platform_jobs)]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="NAME|URL",
        help="Platform: a name from 'legato config servers', an address, or 'current'. [default: the current one]",
        autocompletion=complete_servers,
    ),
]
LocalOption = Annotated[
    bool,
    typer.Option(
        "--local", help="Look for JOB among the jobs that 'legato run' started on this machine, not on a platform."
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        parser=read_one_of("the output format", Output),
        metavar="[table|wide|json|yaml|csv]",
        help="Output format.",
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Repeat every second, until Ctrl-C.")]
LimitOption = Annotated[
    int,
    typer.Option(
        parser=read_whole("the limit", 100, highest=1_000_000), metavar="NUMBER", help="Maximum number of rows."
    ),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the change has taken effect.")]
Now = Annotated[bool, typer.Option("--now", help="Kill the workers at once, without a checkpoint.")]
SinceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start of the period: 7d or 12h ago, or a date (2026-03-01).")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="End of the period, written like --since. [default: now]")
]

OverwriteOption = Annotated[bool, typer.Option("--overwrite", "--force", help="Replace existing files.")]

# ---------------------------------------------------------------- fields of a job


def name_option(text: str) -> Any:
    """Return the option ``--name`` with a help text."""
    return typer.Option("--name", "-n", metavar="NAME", help=text)


def workers_option(text: str) -> Any:
    """Return the option ``--workers`` with a help text."""
    return typer.Option("--workers", metavar="[MIN..]MAX", help=text)


def queue_option(text: str) -> Any:
    """Return the option ``--queue`` with a help text."""
    return typer.Option("--queue", "-q", metavar="NAME", help=text, autocompletion=complete_queues)


def project_option(text: str) -> Any:
    """Return the option ``--project`` with a help text."""
    return typer.Option("--project", metavar="PROJECT", help=text, autocompletion=complete_projects)


def priority_option(text: str) -> Any:
    """Return the option ``--priority`` with a help text."""
    return typer.Option("--priority", "-p", parser=read_whole("the priority", 7000), metavar="1..10000", help=text)


def label_option(text: str) -> Any:
    """Return the option ``--label`` with a help text."""
    return typer.Option("--label", "-l", metavar="KEY=VALUE", help=text)


def retries_option(text: str) -> Any:
    """Return the option ``--retries`` with a help text."""
    return typer.Option("--retries", parser=read_whole("the retries", 2), metavar="NUMBER", help=text)


def threads_option(text: str) -> Any:
    """Return the option ``--threads`` with a help text."""
    return typer.Option("--threads", parser=read_whole("the number of threads", 1), metavar="NUMBER", help=text)


NameOption = Annotated[str | None, name_option("Name of the job. [default: the script's name]")]
WorkersOption = Annotated[
    str | None, workers_option("Number of workers: a maximum such as 4, or a range 1..4. [default: 1]")
]
ChangedWorkersOption = Annotated[
    str | None, workers_option("New number of workers: a maximum such as 4, or a range 1..4.")
]
MinWorkersOption = Annotated[
    int | None,
    typer.Option(
        parser=read_whole("the minimum", 1),
        metavar="NUMBER",
        help="Minimum number of workers. The job waits until that many slots are free.",
    ),
]
MaxWorkersOption = Annotated[
    int | None, typer.Option(parser=read_whole("the maximum", 4), metavar="NUMBER", help="Maximum number of workers.")
]
StaticOption = Annotated[
    bool, typer.Option("--static", help="Not elastic: always exactly the maximum number of workers.")
]
GpuTypeOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-type", metavar="MODEL", help="GPU model, or a part of its name such as A100. [default: any machine]"
    ),
]
NodeLabelOption = Annotated[
    list[str] | None,
    typer.Option("--node-label", metavar="KEY=VALUE", help="Use only nodes with this label. Repeatable."),
]
QueueOption = Annotated[str | None, queue_option("Queue of the job. [default: default]")]
ChangedQueueOption = Annotated[str | None, queue_option("New queue of the job.")]
PriorityOption = Annotated[int | None, priority_option("Priority; a higher one gets a larger share. [default: 5000]")]
ChangedPriorityOption = Annotated[int | None, priority_option("New priority; a higher one gets a larger share.")]
LabelOption = Annotated[list[str] | None, label_option("Label of the job. Repeatable.")]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable of the workers. Repeatable."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "--param",
        metavar="NAME=VALUE",
        help="Passed to the program as '--NAME VALUE'. Repeatable.",
    ),
]
NodePythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="NAME|PATH",
        help="Python of the workers: a name of the setting interpreters, or the path on the nodes of an executable or "
        "of the folder of a venv or conda environment. [default: the server's]",
    ),
]


def read_python(text: str) -> str:
    """Return a Python as the server takes it: a name, or an absolute path.

    >>> read_python("torch28"), read_python("/envs/a/")
    ('torch28', '/envs/a')
    """
    is_path = "/" in text or text.startswith((".", "~"))
    return str(Path(text).expanduser().absolute()) if is_path else text


FrameworkOption = Annotated[
    str | None,
    typer.Option(
        "--framework",
        "-f",
        metavar="NAME",
        help="Framework, see 'legato frameworks'. [default: recognised from imports; else legato]",
        autocompletion=complete_frameworks,
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="PATH", help="Data directory on the nodes. The program finds its path in $LEGATO_DATA."
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", parser=read_whole("the seed", 0), metavar="NUMBER", help="Seed; replaces the one in the program."
    ),
]
RetriesOption = Annotated[int | None, retries_option("Number of retries after a failure. [default: 0]")]
MaxTimeOption = Annotated[
    str | None,
    typer.Option(
        "--max-time",
        metavar="TIME",
        help="Stop the job, with a checkpoint, after this running time: 90s, 30m, 12h, 7d.",
    ),
]
ThreadsOption = Annotated[int | None, threads_option("Threads of each worker. Results depend on it. [default: 1]")]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        "--micro-batches",
        parser=read_whole("the number of micro-batches", 16),
        metavar="NUMBER",
        help="Micro-batches per step, if you know it. Legato then assigns no slots that cannot speed the job up.",
    ),
]
CheckpointEveryOption = Annotated[
    str | None,
    typer.Option("--checkpoint-every", metavar="INTERVAL", help="How often to save: 100steps, 2epochs or 60s."),
]
KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        parser=read_whole("how many checkpoints to keep", 3),
        metavar="NUMBER",
        help="Number of checkpoints to keep.",
    ),
]
HeartbeatOption = Annotated[
    float | None,
    typer.Option(
        "--heartbeat-limit",
        parser=read_seconds("the heartbeat limit", 5),
        metavar="SECONDS",
        help="Replace a worker that sends no heartbeat for this many seconds, unless its process computes or waits.",
    ),
]
CollectiveOption = Annotated[
    float | None,
    typer.Option(
        "--collective-limit",
        parser=read_seconds("the collective limit", 1800),
        metavar="SECONDS",
        help="Replace a worker that neither computes nor makes progress for this many seconds.",
    ),
]


@contextlib.contextmanager
def naming_overwrite() -> Iterator[None]:
    """Add the option that allows overwriting to the error that refuses it."""
    from legato.client.downloads import FileIsThere

    try:
        yield
    except FileIsThere as error:
        raise FileIsThere(error.to, error.there, "--overwrite") from None
