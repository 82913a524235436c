"""The options and arguments of the command line: what they are called, and how what is typed is read. Starts nothing.

The readers are our own: a library's words name its types ("unable to parse string as an integer"), these say what to
write instead.
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
    """How worker processes come to be."""

    fork = "fork"
    fresh = "fresh"


# ---------------------------------------------------------------- readers


def read_whole(what: str, example: int, *, highest: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers.

    Args:
        what: is read, for the refusal: ``the number of workers``.
        example: of what may be written.
        highest: what is above this, or below 0, is refused; None for no limits.
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

JobName = Annotated[str, typer.Argument(metavar="NAME", help="The job.")]
NumWorkers = Annotated[int, typer.Argument(parser=_read_workers, metavar="WORKERS", help="How many.")]
Plain = Annotated[bool, typer.Option("--plain", help="Write plain lines also on a terminal.")]
Worker = Annotated[
    int | None,
    typer.Option("--worker", "-k", parser=read_whole("the worker", 0), metavar="NUMBER", help="One worker only."),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        parser=read_one_of("the form of output", Output),
        metavar="[table|json]",
        help="How to write it.",
    ),
]

CpuCapability = Annotated[
    str | None,
    typer.Option(
        "--cpu-capability",
        metavar="[default|avx2|avx512]",
        help="Limit all workers to one instruction set, on which results depend. [default: that of the machine]",
    ),
]

MemoryOption = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help="Of each worker at most: 8G. The kernel ends one that uses more."),
]
CpusOption = Annotated[
    float | None, typer.Option("--cpus", metavar="NUMBER", help="CPU cores of each worker at most: 2, 0.5.")
]

# Of `legato run`.
InitialWorkers = Annotated[
    int | None,
    typer.Option(
        parser=_read_workers, metavar="NUMBER", help="How many to start with. [default: as many as there may be]"
    ),
]
Keep = Annotated[
    int,
    typer.Option(
        parser=read_whole("how many checkpoints to keep", 3), metavar="NUMBER", help="How many checkpoints to keep."
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        parser=read_whole("the number of threads", 1),
        metavar="NUMBER",
        help="Threads of each worker; results depend on it.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        parser=read_whole("the port", 0, highest=65535),
        metavar="PORT",
        help="Where the driver listens; 0 for any free port.",
    ),
]
HeartbeatLimit = Annotated[
    float,
    typer.Option(
        parser=read_seconds("the heartbeat limit", 5),
        metavar="SECONDS",
        help="Replace a worker that is silent for so long and whose process does not compute. Seconds.",
    ),
]
CollectiveLimit = Annotated[
    float,
    typer.Option(
        parser=read_seconds("the collective limit", 1800),
        metavar="SECONDS",
        help="Replace a worker that hangs: it has neither computed nor got on for so long. Seconds.",
    ),
]
GuestOption = Annotated[
    str | None,
    typer.Option(
        "--guest", metavar="MODULE:FUNCTION", help="What lives in the driver's process beside the job, and its options."
    ),
]
StartOption = Annotated[
    Start,
    typer.Option(
        parser=read_one_of("the way to start workers", Start),
        metavar="[fork|fresh]",
        help="Fork workers from a warm process, or start each afresh.",
    ),
]
