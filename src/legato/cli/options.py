"""The options and arguments of the command line: their names, and how to read their values. Starts nothing.

The library's messages name its types ("unable to parse string as an integer"). The errors of these readers name a valid
value.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

_E = TypeVar("_E", bound=StrEnum)


class Output(StrEnum):
    """How results are written."""

    table = "table"
    json = "json"


class Start(StrEnum):
    """How Legato starts worker processes."""

    fork = "fork"
    fresh = "fresh"


# ---------------------------------------------------------------- readers


def read_whole(what: str, example: int, *, highest: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers.

    Args:
        what: name of the value, for the error: ``the number of workers``.
        example: of a valid value.
        highest: values above this, or below 0, are refused; None for no limits.
    """

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise typer.BadParameter(f"Cannot read {what} '{text}'. Write a whole number, such as {example}.") from None
        if highest is not None and not 0 <= number <= highest:
            raise typer.BadParameter(f"Cannot take {what} {number}. Write a number from 0 to {highest}.")
        return number

    return read


def read_seconds(what: str, example: float) -> Callable[[str], float]:
    """Return a reader of durations in seconds; arguments as in `read_whole`."""

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise typer.BadParameter(
                f"Cannot read {what} '{text}'. Write a number of seconds, such as {example:g}."
            ) from None

    return read


def read_one_of(what: str, words: type[_E]) -> Callable[[str], _E]:
    """Return a reader of one of a few words; ``what`` as in `read_whole`."""

    def read(text: str) -> _E:
        try:
            return words(text)
        except ValueError:
            raise typer.BadParameter(f"Cannot read {what} '{text}'. Write {' or '.join(words)}.") from None

    return read


# ---------------------------------------------------------------- arguments and options

_read_workers = read_whole("the number of workers", 2)

JobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the job.")]
NumWorkers = Annotated[int, typer.Argument(parser=_read_workers, metavar="WORKERS", help="Number of workers.")]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines even on a terminal.")]
Worker = Annotated[
    int | None,
    typer.Option("--worker", "-k", parser=read_whole("the worker", 0), metavar="NUMBER", help="Only this worker."),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        parser=read_one_of("the output format", Output),
        metavar="[table|json]",
        help="Output format.",
    ),
]

GpusPerWorker = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-worker",
        parser=read_whole("the number of GPUs", 2),
        metavar="NUMBER",
        help="GPUs of each worker, all on one machine. The worker trains on the first one, and the program may use "
        "the others. [default: 1]",
    ),
]
CpuCapability = Annotated[
    str | None,
    typer.Option(
        "--cpu-capability",
        metavar="[default|avx2|avx512]",
        help="Instruction set of all workers. Results depend on it. [default: the best of the machine]",
    ),
]

PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Python of the workers: an executable, or the folder of a venv or conda environment. [default: Legato's]",
    ),
]

MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="Memory limit of each worker: 8G. The kernel kills a worker that exceeds it."
    ),
]
CpusOption = Annotated[
    float | None, typer.Option("--cpus", metavar="NUMBER", help="CPU limit of each worker, in cores: 2, 0.5.")
]

# Of `legato run`.
InitialWorkers = Annotated[
    int | None,
    typer.Option(
        parser=_read_workers, metavar="NUMBER", help="Number of workers to start with. [default: the maximum]"
    ),
]
Keep = Annotated[
    int,
    typer.Option(
        parser=read_whole("how many checkpoints to keep", 3), metavar="NUMBER", help="Number of checkpoints to keep."
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        parser=read_whole("the number of threads", 1),
        metavar="NUMBER",
        help="Threads of each worker. Results depend on it.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        parser=read_whole("the port", 0, highest=65535),
        metavar="PORT",
        help="Port of the driver; 0 for any free port.",
    ),
]
HeartbeatLimit = Annotated[
    float,
    typer.Option(
        parser=read_seconds("the heartbeat limit", 5),
        metavar="SECONDS",
        help="Replace a worker that sends no heartbeat for this many seconds, unless its process computes or waits.",
    ),
]
CollectiveLimit = Annotated[
    float,
    typer.Option(
        parser=read_seconds("the collective limit", 1800),
        metavar="SECONDS",
        help="Replace a worker that neither computes nor makes progress for this many seconds.",
    ),
]
GuestOption = Annotated[
    str | None,
    typer.Option(
        "--guest",
        metavar="MODULE:FUNCTION",
        help="A plugin that runs in the driver's process. Its options follow: 'MODULE:FUNCTION NAME=VALUE'.",
    ),
]
StartOption = Annotated[
    Start,
    typer.Option(
        parser=read_one_of("the way to start workers", Start),
        metavar="[fork|fresh]",
        help="How to start workers: fork from a warm process (fast), or a fresh process each.",
    ),
]
