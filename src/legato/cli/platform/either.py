"""Commands for jobs of this machine and of a platform. This module decides which of the two a command means.

A name means the job of this machine if that job runs. If it has ended and was started in the present directory, it is
meant unless the platform's job has not ended, or was submitted later. Otherwise the name means the job of the platform,
if a platform is known. ``--local`` and ``--server`` decide explicitly. An id, and ``OWNER/NAME``, always mean a job of
the platform.
"""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from legato.cli.entry import Entry
from legato.cli.local import jobs
from legato.cli.options import Plain, Worker, read_one_of, read_whole
from legato.cli.platform.completion import complete_jobs
from legato.cli.platform.connecting import find_job, is_server_known, is_title
from legato.cli.platform.options import AnyJob, LocalOption, Now, OutputOption, ServerOption, WaitOption, WatchOption
from legato.cli.terminal.formatting import read_moment, tell_waiting, tell_when
from legato.cli.terminal.output import Output, ending_on_interrupt
from legato.core.errors import NotFound, ServerError, Unauthenticated, UsageError
from legato.core.spec import parse_workers
from legato.driver.journal import PLATFORM_JOB

if TYPE_CHECKING:
    from legato.client.jobs import Job

_NUM_LINES: Final = 20


class LogLevel(enum.StrEnum):
    """How much a line of a log matters."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def find(name: str, *, local: bool, server: str | None, is_watching: bool = False) -> Job | None:
    """Return the job of a platform that a command means, None if it means a job of this machine.

    Raises:
        UsageError: both options are given, or neither has the job.
    """
    if local and server is not None:
        raise UsageError("--local and --server exclude each other: a job is either of this machine or of a platform.")
    if local:
        return None
    if server is not None or is_title(name):
        return find_job(name, server, is_watching=is_watching)
    is_id = PLATFORM_JOB.fullmatch(name) is not None
    if (not is_id and jobs.is_running(name)) or not is_server_known():
        return None
    ended_at = None if is_id else jobs.find_end(name)
    if ended_at is not None and not _has_later(name, ended_at):
        return None
    try:
        return find_job(name, None, is_watching=is_watching)
    except (NotFound, ServerError) as error:
        if not jobs.is_there(name):
            raise
        if isinstance(error, NotFound):
            return None
        raise type(error)(f"{error} To use the job '{name}' of this machine, add --local.") from error


def _has_later(name: str, ended_at: float) -> bool:
    """Return whether the platform has a job of this name that has not ended, or was submitted after ``ended_at``."""
    try:
        job = find_job(name, None, is_watching=True)
    except (NotFound, ServerError, Unauthenticated):
        return False
    return not job.has_ended or job.record.submitted_at > ended_at


def scale(
    job: AnyJob,
    workers: Annotated[
        str,
        typer.Argument(
            metavar="WORKERS", help="Number of workers. For a job of a platform: a maximum such as 4, or a range 2..4."
        ),
    ],
    local: LocalOption = False,
    server: ServerOption = None,
) -> None:
    """Change the number of workers of a running job, or the bounds of a job of a platform."""
    is_range = ".." in workers
    number = 0 if is_range else read_whole("the number of workers", 2)(workers)
    low, high = parse_workers(workers)[:2] if is_range else (None, number)
    if high <= 0:
        raise UsageError(
            f"Cannot scale job '{job}' to {high} workers: it needs at least 1. To end it: legato stop {job}. To free "
            f"the slots of a platform's job: legato pause {job}."
        )
    found = find(job, local=local, server=server)
    if found is None:
        if is_range:
            raise UsageError(
                f"Cannot scale job '{job}' of this machine to '{workers}': its bounds are fixed at its start. Give one "
                "number."
            )
        jobs.scale(job, number)
        return
    before = found.record
    if low is None and (not before.is_elastic or high < before.min_workers):
        low = high
    found.resize(high, low)
    now = found.record
    is_same = (now.min_workers, now.max_workers) == (before.min_workers, before.max_workers)
    changed = f" now (it had {before.min_workers}..{before.max_workers}).{tell_when(now)}"
    note = ", as before." if is_same else changed
    typer.echo(
        f"Job '{now.name}' may have {now.min_workers}..{now.max_workers} workers{note} "
        f"To see how many it gets: legato explain {job}."
    )


def stop(
    job: AnyJob, now: Now = False, wait: WaitOption = False, local: LocalOption = False, server: ServerOption = None
) -> None:
    """Stop a job after the current step, with a checkpoint. On a platform, a stopped job cannot resume: pause it."""
    found = find(job, local=local, server=server)
    if found is None:
        if wait:
            raise UsageError(
                f"--wait is for jobs of a platform. To watch job '{job}' of this machine: legato attach {job}."
            )
        jobs.stop(job, now=now)
        return
    found.stop(now)
    if wait:
        found.wait()
    if found.has_ended:
        typer.echo(f"Job '{found.name}' is stopped.")
        return
    how = "without another checkpoint" if now else "after the current step, with a checkpoint"
    typer.echo(
        f"Job '{found.name}' stops {how}. A stopped job of a platform cannot be resumed; to continue a job later, use "
        "'legato pause' instead."
    )


def attach(
    job: AnyJob,
    plain: Plain = False,
    tail: Annotated[
        int,
        typer.Option(
            parser=read_whole("how many lines", _NUM_LINES),
            metavar="LINES",
            help="Number of earlier log lines to show first. For jobs of a platform.",
        ),
    ] = _NUM_LINES,
    local: LocalOption = False,
    server: ServerOption = None,
) -> None:
    """Watch a job until it ends. If the driver of a job of this machine has died, start a new one. Ctrl-C detaches."""
    found = find(job, local=local, server=server)
    if found is None:
        raise typer.Exit(jobs.attach(job, plain=plain))
    from legato.cli.platform.attach import attach as follow

    raise typer.Exit(follow(found, tail=tail, is_new=False))


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Name or id of the job. [default: all jobs of this machine]",
            autocompletion=complete_jobs,
        ),
    ] = None,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    local: LocalOption = False,
    server: ServerOption = None,
) -> None:
    """Show the state and progress of a job, or list all jobs of this machine. 'legato ps' lists those of a platform."""
    if job is None and server is not None:
        raise UsageError(
            "'legato status' lists the jobs of this machine only. For those of a platform: legato ps --server …"
        )
    found = None if job is None else find(job, local=local, server=server, is_watching=again)
    if found is None:
        jobs.show_status(job, output, again=again)
        return
    from legato.cli.platform.jobs import show_job

    show_job(found, output, again=again)


def logs(
    job: AnyJob,
    worker: Worker = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until the job ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            parser=read_whole("how many lines", 50, highest=1_000_000),
            metavar="LINES",
            help="Print only this number of last lines of each log.",
        ),
    ] = None,
    driver: Annotated[
        bool, typer.Option("--driver", help="Show the log of the driver instead. For jobs of a platform.")
    ] = False,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only lines that contain this text. For jobs of a platform.")
    ] = None,
    level: Annotated[
        LogLevel | None,
        typer.Option(
            parser=read_one_of("the level", LogLevel),
            metavar="[debug|info|warning|error]",
            help="Only lines of this level or a higher one. For jobs of a platform.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only lines written since: 10m or 2h ago, or a date and time. For jobs of a platform."
        ),
    ] = None,
    local: LocalOption = False,
    server: ServerOption = None,
) -> None:
    """Show the logs of a job's workers. With several workers each line begins with the worker's number."""
    is_searching = search is not None or level is not None
    if is_searching and (follow or tail is not None):
        raise UsageError("--search and --level cannot be combined with --follow or --tail. Leave one of them out.")
    if since is not None and (is_searching or follow or tail is not None):
        raise UsageError("--since cannot be combined with other options that choose lines. Leave one of them out.")
    begins = None if since is None else read_moment(since, time.time(), "the beginning")
    found = find(job, local=local, server=server)
    if found is None:
        if is_searching:
            raise UsageError(
                f"Cannot search the logs of job '{job}' of this machine: --search and --level are for jobs of a "
                f"platform. Use: legato logs {job} | grep TEXT"
            )
        if begins is not None:
            raise UsageError(f"Cannot use --since with job '{job}' of this machine: it is for jobs of a platform.")
        if driver:
            raise UsageError(
                f"Cannot show the driver's log of job '{job}' of this machine: --driver is for jobs of a platform. "
                "The log is in the directory that 'legato run' names."
            )
        if tail is not None and follow:
            raise UsageError(
                f"Cannot combine --tail and --follow for job '{job}' of this machine. Leave one of them out."
            )
        jobs.show_logs(job, worker, follow=follow, tail=tail)
        return
    is_alone = worker is not None or driver
    if is_searching:
        for hit in found.search_logs(search or "", level=level, worker=worker, driver=driver):
            typer.echo(hit.text if is_alone else f"{hit.log.removeprefix('worker-')} | {hit.text}")
        return
    if follow and (why := tell_waiting(found.record)) is not None:
        typer.echo(f"legato: {why}", err=True)
    with ending_on_interrupt():
        for line in found.logs(follow, worker=worker, driver=driver, tail=tail, since=begins):
            typer.echo(line.text if is_alone else f"{line.worker} | {line.text}")


ENTRIES: Final = (
    Entry("scale", scale, "legato scale mnist 4", reads_below_zero=True),
    Entry(
        "status",
        status,
        "legato status mnist -o json | jq .step",
    ),
    Entry("stop", stop, "legato stop mnist"),
    Entry("attach", attach, "legato attach mnist"),
    Entry("logs", logs, "legato logs mnist --worker 0 --follow"),
)
