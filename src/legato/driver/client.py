"""Sends one request of a command to a running job: finds its driver, asks, returns the answer. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
from websockets.exceptions import InvalidStatus, WebSocketException

from legato.core import wire
from legato.core.clock import Clock
from legato.core.errors import JobNotFound
from legato.driver.journal import DriverFile, JobDirectory, iterate_jobs
from legato.system.door_client import connect_to_door

_ANSWER_LIMIT_S: Final = 10.0  # the driver answers from memory
_START_LIMIT_S: Final = 120.0  # torch may be imported from a slow disk
_LOOK_EVERY_S: Final = 0.1
_NUM_NAMED: Final = 10  # jobs named in a refusal


def list_running(home: Path | None = None) -> list[str]:
    """Return the names of the jobs that have a driver now."""
    return [directory.path.name for directory in iterate_jobs(home) if directory.is_locked()]


def find_job(name: str, home: Path | None = None) -> DriverFile:
    """Return where the driver of a running job listens.

    Raises:
        JobNotFound: there is no such job, or it has no driver; the message lists the existing jobs.
    """
    directory = JobDirectory.of(name, home)
    is_driven = directory.is_locked()
    found = directory.read_driver_file() if is_driven else None
    if found is not None:
        return found
    if is_driven:
        raise JobNotFound(f"Cannot reach job '{name}': its driver is just starting. Try again in a moment.")
    journal = directory.read_journal()
    if journal is not None and journal.outcome is None:
        raise JobNotFound(f"Cannot reach job '{name}': its driver died. To start a new driver: legato attach {name}")
    running = list_running(home)
    if journal is None:
        known = [found.path.name for found in iterate_jobs(home) if found.journal_file.exists()]
        remedy = render_known_jobs(name, running, known)
        raise JobNotFound(f"Cannot reach job '{name}': there is no such job on this machine. {remedy}")
    remedy = f"Running now: {', '.join(running)}." if running else "No job is running; start one with 'legato run'."
    raise JobNotFound(f"Cannot reach job '{name}': it is not running. {remedy}")


def render_known_jobs(name: str, running: list[str], known: list[str]) -> str:
    """List the existing jobs for a user who asked for an unknown one: similar names, running jobs, the rest.

    >>> render_known_jobs("bret", ["mnist"], ["bert", "mnist"])
    "Did you mean 'bert'? Known jobs: bert, mnist (running)."
    >>> render_known_jobs("bert", [], [])
    "No job is known yet; start one with 'legato run PROGRAM'."
    """
    there = list(dict.fromkeys([*running, *known]))
    if not there:
        return "No job is known yet; start one with 'legato run PROGRAM'."
    folded = {other.lower(): other for other in reversed(there)}
    close = [folded[match] for match in get_close_matches(name.lower(), folded)]
    meant = f"Did you mean '{close[0]}'? " if close else ""
    told = [f"{other} (running)" if other in running else other for other in dict.fromkeys([*close, *there])]
    more = f" and {len(told) - _NUM_NAMED} more, see 'legato status'" if len(told) > _NUM_NAMED else ""
    return f"{meant}Known jobs: {', '.join(told[:_NUM_NAMED])}{more}."


def wait_for_driver(
    name: str,
    tell: Callable[[], None],
    home: Path | None = None,
    *,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait while a job's driver is just starting and accepts no messages yet.

    Args:
        name: of the job.
        tell: called once if it has to wait.
        home: home with the jobs. None: the default.
        clock: monotonic seconds.
        sleep: waits for the given number of seconds.
    """
    directory = JobDirectory.of(name, home)
    until = clock() + _START_LIMIT_S
    has_called = False
    while directory.is_locked() and directory.read_driver_file() is None and clock() < until:
        if not has_called:
            tell()
            has_called = True
        sleep(_LOOK_EVERY_S)


def request(name: str, what: wire.ClientRequest, home: Path | None = None) -> wire.Reply:
    """Send one request to a job's driver and return its answer.

    Raises:
        JobNotFound: no driver answers.
    """
    found = find_job(name, home)
    url = found.url.removesuffix("/worker") + "/client"
    try:
        with connect_to_door(
            url,
            found.certificate,
            _ANSWER_LIMIT_S,
            additional_headers={"Authorization": f"Bearer {found.token}"},
            compression=None,
            max_size=None,
        ) as connection:
            connection.send(wire.encode(what))
            frame = connection.recv(timeout=_ANSWER_LIMIT_S)
    except InvalidStatus as error:
        raise JobNotFound(
            f"Cannot reach job '{name}': its driver refuses the connection (HTTP {error.response.status_code}). The "
            "job was probably restarted at this moment; try again."
        ) from error
    except (OSError, TimeoutError, WebSocketException) as error:
        raise JobNotFound(
            f"Cannot reach job '{name}': its driver (process {found.pid}) does not answer at {url}: {error}. If that "
            f"process is gone, start a new driver: legato attach {name}"
        ) from error
    return wire.decode_reply(frame if isinstance(frame, bytes) else frame.encode())


def last_status(name: str, home: Path | None = None) -> dict[str, Any] | None:
    """Return name, progress and outcome of a job that is not running. None if the job is unknown."""
    directory = JobDirectory.of(name, home)
    journal = directory.read_journal()
    if journal is None:
        return None
    outcome = journal.outcome
    state = outcome.outcome if outcome else "abandoned"
    last = directory.read_last_committed()
    return {
        "name": name,
        "state": state,
        "step": last.step if last is not None else None,
        "epoch": last.epoch if last is not None else None,
        "num_steps": journal.num_steps,
        "outcome": msgspec.to_builtins(outcome),
    }
