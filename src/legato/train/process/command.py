"""Runs a plain command as the program of a job: ``command.py COMMAND [ARGUMENTS…]``, in every worker.

The command runs without a shell. Its output is the worker's log, its exit code is the worker's exit code, and it ends
with the worker. In a job with several nodes all commands begin together, with the environment variables of torchrun.
The command saves its own state: a worker that is to stop sends it SIGTERM. Trains nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from legato.core.errors import UsageError
from legato.train.membership.connection import Leave
from legato.train.membership.gang import Gang, name_attempt, reserve_port, variables_of_seat
from legato.train.process import job

NUM_NODES: Final = "LEGATO_NODES"
"""How many workers the job has. The platform sets it."""

_GANGS: Final = ".gangs"
_THREADS: Final = "OMP_NUM_THREADS"
_POLL_S: Final = 0.2
_EXIT_NOT_EXECUTABLE: Final = 126
_EXIT_NOT_FOUND: Final = 127
_SIGNALLED: Final = 128


def main(words: Sequence[str]) -> None:
    """Run a command to its end.

    Args:
        words: the command and its arguments.

    Raises:
        SystemExit: with the command's exit code, if that is not 0.
        UsageError: there is no command.
    """
    # The worker put this folder first in `sys.path`; programs must not import from it.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    if not words:
        raise UsageError("There is no command to run. Name it in the training definition.")
    job.expect_no_run()
    num_nodes = int(os.environ.get(NUM_NODES, "1"))
    if num_nodes == 1 or "LEGATO_DRIVER_FILE" not in os.environ:
        _run(words, {})
        return
    directory = Path(_GANGS, name_attempt(Path(os.environ["LEGATO_DRIVER_FILE"])))
    gang = Gang(directory.absolute(), int(os.environ["LEGATO_WORKER"]), num_nodes)
    # The port is held until this process ends: no other process gets it before the command asks for it.
    with reserve_port() as held:
        seat = gang.meet(f"{os.environ.get('LEGATO_HOST', '127.0.0.1')}:{held.getsockname()[1]}")
        _run(words, variables_of_seat(seat))
        gang.part()


def find_environment(given: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command: `python` is this interpreter, and the job sets the number of threads."""
    found = {_THREADS: given.get("LEGATO_THREADS", "1"), **given, **more}
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), given.get("PATH", os.defpath)])
    return found


def _run(words: Sequence[str], more: Mapping[str, str]) -> None:
    environment = find_environment(os.environ, more)
    # Search the command's own PATH, which puts this interpreter first, instead of this process's.
    found = shutil.which(words[0], path=environment["PATH"])
    if found is None:
        there = Path(words[0]).is_file()
        told = "may not be executed: make it executable (chmod +x) and upload it again" if there else "does not exist"
        sys.stderr.write(f"legato: The command '{words[0]}' {told}.\n")
        raise SystemExit(_EXIT_NOT_EXECUTABLE if there else _EXIT_NOT_FOUND)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        # In the worker's process group: killing the worker kills the command and its children.
        child = subprocess.Popen([found, *words[1:]], env=environment, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"legato: The command '{words[0]}' cannot be run: {error.strerror or error}.\n")
        raise SystemExit(_EXIT_NOT_EXECUTABLE) from error
    code = _wait(child)
    if code:
        raise SystemExit(code if code > 0 else _SIGNALLED - code)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the command; send it SIGTERM if the worker is to stop."""
    is_terminating = False
    while True:
        try:
            code = child.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if not is_terminating and job.is_to_leave():
                is_terminating = True
                child.send_signal(signal.SIGTERM)
            continue
        if is_terminating:
            raise Leave(0)
        return code


if __name__ == "__main__":
    main(sys.argv[1:])
