"""How a command connects to the platform and finds a job. Decides nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from legato.cli.terminal.formatting import render_clock
from legato.core.errors import LegatoError, NotFound, Unauthenticated, Unavailable
from legato.core.spelling import ask_whether

if TYPE_CHECKING:
    from legato.client.client import Client
    from legato.client.connection import Line
    from legato.client.jobs import Job
    from legato.client.servers import Server
    from legato.driver.journal import JobDirectory

# A user waits at a terminal: long enough for a server that restarts, not for a wrong address.
_PATIENCE_S: Final = 60.0
_FIRST_PATIENCE_S: Final = 2.0
_LOOK_LIMIT_S: Final = 10.0
_NUM_NAMES: Final = 1000
_NUM_NAMED: Final = 3
_ID_PREFIX: Final = "j-"


_lines: Final[list[Line]] = []


def open_line(server: Server, *, is_watching: bool = False) -> Line:
    """Return a connection to a server; it is closed when the command ends.

    Args:
        server: address of the server.
        is_watching: the caller repeats its requests, and itself shows if there was no answer.
    """
    from legato.client.connection import Line

    if is_watching:
        line = Line(
            server,
            patience_s=0.0,
            first_patience_s=_FIRST_PATIENCE_S,
            answer_limit_s=_LOOK_LIMIT_S,
            on_warning=_report_warning,
        )
    else:
        line = Line(
            server,
            patience_s=_PATIENCE_S,
            first_patience_s=_FIRST_PATIENCE_S,
            on_outage=_report_outage,
            on_warning=_report_warning,
        )
    _lines.append(line)
    return line


def _report_outage(is_silent: bool) -> None:
    since = f"no answer from the server since {render_clock(time.time(), time.time())}; trying again"
    typer.echo(f"legato: {since if is_silent else 'the server answers again'}", err=True)


def _report_warning(text: str) -> None:
    typer.echo(f"legato: {text}", err=True)


def close_lines() -> None:
    """Close the connections that the command has opened."""
    while _lines:
        _lines.pop().close()


def open_client(said: str | None = None, *, is_watching: bool = False) -> Client:
    """Return a client of the server that a command uses.

    Args:
        said: a name or an address. None: the server that `legato.client.servers.find_server` returns.
        is_watching: as in `open_line`.

    Raises:
        Unauthenticated: no server is known, or no token for it.
        NotFound: no server has that name.
    """
    from legato.client.client import Client
    from legato.client.connection import need_token
    from legato.client.servers import find_server

    return Client.on(open_line(need_token(find_server(said)), is_watching=is_watching))


def describe_jobs_without_server(error: LegatoError) -> str:
    """Return which jobs of this machine's platform train although its server does not run, with a space before it.

    Returns "" if the error is about something else, or if this machine never had a platform.
    """
    from legato.client.servers import find_local, find_local_home, find_start, is_loopback
    from legato.driver.journal import list_platform_jobs

    is_here = all(is_loopback(line.server.url) for line in _lines)
    is_refused = isinstance(error, Unauthenticated) and _lines
    if not is_here or is_refused or not isinstance(error, Unavailable | Unauthenticated) or find_local() is not None:
        return ""
    jobs = list_platform_jobs()
    running = [job for job in jobs if job.is_locked()]
    if not running:
        return " None of the platform's jobs on this machine is running." if jobs else ""
    names = [_name_by_program(job) for job in running[:_NUM_NAMED]]
    more = f" and {len(running) - _NUM_NAMED} more" if len(running) > _NUM_NAMED else ""
    count = "1 job keeps" if len(running) == 1 else f"{len(running)} jobs keep"
    it = "it" if len(running) == 1 else "them"
    start = find_start(find_local_home())
    return f" {count} training without the server: {', '.join(names)}{more}. The next '{start}' finds {it}."


def _name_by_program(job: JobDirectory) -> str:
    """Return a job's id and its program, because only the server knows its name."""
    journal = job.read_journal()
    return job.path.name if journal is None else f"{job.path.name} ({Path(journal.spec.program[0]).name})"


def is_server_known() -> bool:
    """Return whether there is a current platform."""
    from legato.client.servers import find_server

    try:
        find_server()
    except Unauthenticated:
        return False
    return True


def is_title(name: str) -> bool:
    """Whether a job is named as ``OWNER/NAME``, which only jobs of a platform have."""
    return "/" in name


def find_job(name: str, server: str | None, *, is_watching: bool = False) -> Job:
    """Return a job of the platform; arguments as in `open_client`.

    Raises:
        NotFound: there is no such job; the message suggests a similar name.
    """
    try:
        client = open_client(server, is_watching=is_watching)
    except Unauthenticated as error:
        raise Unauthenticated(f"{error}{_mention_local_job(name)}") from None
    try:
        return client.job(name)
    except NotFound as error:
        if local := _mention_local_job(name):
            raise NotFound(f"{error}{local}") from None
        found = client.jobs(limit=_NUM_NAMES)
        known = [job.id for job in found] if name.startswith(_ID_PREFIX) else [job.name for job in found]
        known = [f"{job.record.owner}/{job.name}" for job in found] if is_title(name) else known
        raise NotFound(f"{error}{ask_whether(name, known)}") from None


def _mention_local_job(name: str) -> str:
    """Return a sentence that this machine has a job of that name, with a space before it; "" if it has none."""
    from legato.cli.local import jobs

    if is_title(name) or not jobs.is_there(name):
        return ""
    return f" This machine has a job '{name}' that 'legato run' started. To see it: legato status {name}"
