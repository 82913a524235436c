"""An agent as a process: ``python -m legato.agent.process DIRECTORY``. It outlives what started it.

The lock of the directory makes it the only one; a second process ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from legato.agent.agent import JOB_ENDED, Agent, AgentFailedError
from legato.agent.orders import AgentOrder, read_agent_order, write_agent_order
from legato.core.errors import LegatoError, UsageError
from legato.driver.journal import is_held
from legato.system.plain_files import delete_tree
from legato.system.processes import boot_id, send_signal, start_time_of

_log = logging.getLogger(__name__)

LOCK_FILE: Final = "agent.lock"
LOG_FILE: Final = "agent.log"
_GONE: Final = ".gone-"
_MIN_FREE_BYTES: Final = 64 * 2**20
_NUM_POLLS: Final = 500
_POLL_S: Final = 0.01
_RESTART_S: Final = 5.0


def start_agent(directory: Path, order: AgentOrder, scratch: Path | None = None) -> None:
    """Write an agent's order, and start the agent's process in its own session if it does not run.

    A running agent uses the order for its next connection.

    Args:
        directory: of the agent.
        order: which it gets.
        scratch: folder for temporary files of the agent and of the job. None: that of this process.

    Raises:
        UsageError: the disk is full.
        OSError: the directory cannot be written.
    """
    if not is_running(directory):
        check_disk(directory)
    write_agent_order(directory, order)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with os.fdopen(os.open(directory / LOG_FILE, flags, 0o600), "ab") as log:
        subprocess.run(
            [sys.executable, "-m", "legato.agent.process", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=None if scratch is None else {**os.environ, "TMPDIR": str(scratch)},
            start_new_session=True,
            check=True,
        )


def check_disk(directory: Path) -> None:
    """Raise UsageError if there is no room for the files of an agent: logs, sources, checkpoints."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < _MIN_FREE_BYTES:
        raise UsageError(
            f"The disk with {directory} is full ({free // 2**20} MiB are free, and {_MIN_FREE_BYTES // 2**20} are "
            "needed): free some space, or choose another folder with LEGATO_HOME or --home."
        )


def is_running(directory: Path) -> bool:
    """Return whether the agent of a directory runs: it holds the lock."""
    return is_held(directory / LOCK_FILE)


def has_died(directory: Path) -> bool:
    """Return whether the agent of a directory has died: it does not run, and has not ended by itself."""
    try:
        return not is_running(directory) and (directory / LOCK_FILE).stat().st_size > 0
    except FileNotFoundError:
        return False


def wait_for_agent(directory: Path) -> bool:
    """Wait until the agent of a directory, which was started, has ended; returns whether its job has ended.

    Signals are handled meanwhile.
    """
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            os.close(lock)
    return not directory.exists()


def kill_agent(directory: Path) -> None:
    """Kill the agent of a directory, if it runs. Its workers and their warm parent are in sessions of their own.

    Raises:
        LegatoError: it still runs.
    """
    for _ in range(_NUM_POLLS):
        if not is_running(directory):
            return
        # The process that holds the lock may not have written its identity yet: then it is that of an earlier one,
        # whose number another process may have by now.
        with contextlib.suppress(ValueError, OSError):
            pid, start_time, boot = (directory / LOCK_FILE).read_text().split()
            if boot == boot_id():
                send_signal(int(pid), int(start_time), signal.SIGKILL)
        time.sleep(_POLL_S)
    raise LegatoError(f"The agent in {directory} cannot be killed. End it by hand.")


def main(directory: Path) -> int:
    """Run the agent of a directory to its end in a process of its own; returns the exit code.

    The calling process returns as soon as the agent holds the lock: what starts an agent need not wait for its end.
    """
    locked, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(locked, 1)  # which ends when the child closes its end
        return 0
    os.close(locked)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # This logger reports each connection, which says nothing about the job.
    logging.getLogger("websockets").setLevel(logging.WARNING)
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("The agent of %s runs already", directory)
        return 0
    os.close(tell)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {start_time_of(os.getpid())} {boot_id()}\n".encode(), 0)
    try:
        reason = _serve(directory)
        _log.info("The agent ends: %s", reason)
        if reason == JOB_ENDED and read_agent_order(directory).is_temporary:
            # The driver has all of its logs, checkpoints and results. Another agent of the job may begin at any time.
            gone = directory.with_name(f"{_GONE}{secrets.token_hex(8)}")
            with contextlib.suppress(OSError):
                directory.rename(gone)
            delete_tree(gone)
    except LegatoError:
        _log.exception("The agent of %s failed", directory)
        return 1
    finally:
        os.ftruncate(lock, 0)  # see `has_died`
    return 0


def _serve(directory: Path) -> str:
    """Serve the job until the end, and begin again after a fault; returns the reason of the end."""
    while True:
        try:
            return asyncio.run(Agent(directory).run())
        except AgentFailedError as error:
            _log.error("%s It starts again in %g s", error, _RESTART_S)
            time.sleep(_RESTART_S)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1])))
