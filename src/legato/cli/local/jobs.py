"""Commands on a job of this machine from another terminal: scale, stop, attach, status. Decides nothing."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import typer

from legato.cli.local import run
from legato.cli.terminal.output import Output, ending_on_interrupt, print_drawn, render_for_programs
from legato.core.errors import JobNotFound, LegatoError, UsageError
from legato.driver.journal import JobDirectory

_WATCH_EVERY_S: Final = 1.0


def is_there(name: str) -> bool:
    """Return whether this machine has a job of this name, running or not."""
    directory = JobDirectory.of(name)
    return directory.is_locked() or directory.read_journal() is not None


def is_running(name: str) -> bool:
    """Return whether this machine has a running job of this name."""
    return JobDirectory.of(name).is_locked()


def find_end(name: str) -> float | None:
    """Return when an ended job that was started in the present directory ended, in seconds since 1970; else None."""
    directory = JobDirectory.of(name)
    journal = directory.read_journal()
    if journal is None or Path(journal.spec.directory) != Path.cwd():
        return None
    return directory.journal_file.stat().st_mtime


def scale(name: str, num_workers: int) -> None:
    """Give a running job another number of workers."""
    from legato.core.wire import ScaleRequest
    from legato.driver import client

    _wait_for_driver(name)
    reply = client.request(name, ScaleRequest(num_workers=num_workers))
    if reply.error is not None:
        raise UsageError(reply.error)
    there = reply.status.get("num_workers", 0)
    if there == num_workers:
        typer.echo(f"Job '{name}' has {num_workers} workers.")
        return
    if there == 0:  # counted are workers that have the state of the model
        typer.echo(f"Job '{name}' gets {num_workers} worker{'s' * (num_workers != 1)}. Its first workers are starting.")
        return
    typer.echo(f"Job '{name}' is resized from {there} to {num_workers} workers while it trains.")


def stop(name: str, *, now: bool) -> None:
    """Stop a running job."""
    from legato.core.wire import StopRequest
    from legato.driver import client

    _wait_for_driver(name)
    reply = client.request(name, StopRequest(now=now))
    if reply.error is not None:
        raise UsageError(reply.error)
    how = "now" if now else "after the current step, with a checkpoint"
    typer.echo(f"Job '{name}' stops {how}.")


def _wait_for_driver(name: str) -> None:
    from legato.driver import client

    message = f"legato: job '{name}' is just starting; waiting until its driver answers"
    client.wait_for_driver(name, lambda: typer.echo(message, err=True))


def attach(name: str, *, plain: bool) -> int:
    """Watch a job until it ends, or take it over, and return its exit code."""
    from legato.cli.local.resuming import find_resume_command
    from legato.cli.local.watching import watch
    from legato.driver import client

    directory = JobDirectory.of(name)
    if not directory.is_locked():
        journal = directory.read_journal()
        if journal is None:
            client.find_job(name)  # raises, and says which jobs there are
        elif journal.outcome is not None:
            raise JobNotFound(
                f"Cannot attach to job '{name}': it has ended ({journal.outcome.outcome}: {journal.outcome.reason}). "
                f"To see its logs: legato logs {name}"
            )
        message = f"legato: the driver of job '{name}' is gone; this process takes over. Ctrl-C stops the job."
        typer.echo(message, err=True)
        return run.drive(directory, None, plain=plain)
    try:
        with run.open_screen(plain=plain) as screen:
            outcome = watch(name, screen)
    except KeyboardInterrupt:
        typer.echo(f"legato: detached; job '{name}' keeps running.", err=True)
        return 0
    if outcome is None:
        raise LegatoError(f"Lost job '{name}': its driver died. To start a new driver: legato attach {name}")
    typer.echo(f"legato: job '{name}' {outcome.outcome}: {outcome.reason}")
    if (again := find_resume_command(directory)) is not None:
        typer.echo(f"resume with: {again}")
    return outcome.exit_code


def show_status(name: str | None, output: Output, *, again: bool) -> None:
    """Show where a job is, or all jobs of this machine."""
    from legato.cli.local import watching

    def show() -> bool:
        if name is None:
            _write(watching.statuses(), output)
            return again
        found = watching.status_of(name)
        _write(found, output)
        return again and found["state"] != "abandoned" and found.get("outcome") is None

    with contextlib.suppress(KeyboardInterrupt):
        watching.repeat(show, _WATCH_EVERY_S)


def show_logs(name: str, worker: int | None, *, follow: bool, tail: int | None = None) -> None:
    """Show the logs of a job's workers; ``tail``: only that many last lines of each, without ``follow``."""
    from legato.cli.local.watching import read_logs
    from legato.driver import client

    directory = JobDirectory.of(name)
    if not directory.logs.is_dir():
        client.find_job(name)  # raises, and says which jobs there are
    found = read_logs(directory, worker, follow=follow)
    # Only a newline ends a line, as in the server's answers: a progress bar is one line.
    lines = (
        (number, line.removesuffix("\r")) for number, text in found for line in text.removesuffix("\n").split("\n")
    )
    with ending_on_interrupt():
        for number, line in lines if tail is None else _keep_last(lines, tail):
            typer.echo(line if worker is not None else f"{number} | {line}")


def _keep_last(lines: Iterable[tuple[int, str]], tail: int) -> Sequence[tuple[int, str]]:
    """Return the last lines of each worker, in the original order.

    >>> _keep_last([(0, "a"), (1, "b"), (0, "c"), (0, "d")], 2)
    [(1, 'b'), (0, 'c'), (0, 'd')]
    """
    last: dict[int, deque[tuple[int, str]]] = {}
    for place, (number, line) in enumerate(lines):
        last.setdefault(number, deque(maxlen=tail)).append((place, line))
    kept = sorted((place, number, line) for number, own in last.items() for place, line in own)
    return [(number, line) for _, number, line in kept]


def _write(found: dict[str, Any] | list[dict[str, Any]], output: Output) -> None:
    from legato.cli.terminal.job_view import render_jobs, render_status

    if not output.is_for_people:
        typer.echo(render_for_programs(found, output, is_one_line=output is Output.json), nl=False)
        return
    if found == []:
        typer.echo("No jobs on this machine. Start one with 'legato run'.")
        return
    print_drawn(render_jobs(found) if isinstance(found, list) else render_status(found))
