"""The first actions of a forked child: it becomes a worker or the store. Never runs in the warm parent itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from legato.core.warm import StartWorker
from legato.system import resolver


def become_worker(launch: StartWorker, gate: int, *, entry: str, fresh: bool) -> NoReturn:
    """Turn this forked child into a worker and run its entry; never returns.

    Args:
        launch: what to run, in which directory and with which environment.
        gate: a pipe that delivers one byte when the worker is in the record, or closes when the warm parent ends.
        entry: ``module:function``.
        fresh: start a new interpreter instead of using this one.
    """
    exit_code = 1
    try:
        os.setsid()
        _redirect(launch.log_path)
        if os.read(gate, 1) != b"1":
            os._exit(0)
        os.close(gate)
        _set_title(f"legato-w{launch.worker}")
        os.environ.update(launch.environment)
        os.chdir(launch.directory)
        if fresh:
            _execute(entry, launch.program)
        _reset_inherited_state(launch.program)
        module, _, function = entry.partition(":")
        exit_code = getattr(importlib.import_module(module), function)(list(launch.program)) or 0
    except SystemExit as leave:
        exit_code = _code_of(leave)
    except BaseException:  # noqa: BLE001 -- logged whole, and the process ends
        # No error may reach the loop of the warm parent, of which this process is a copy.
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(exit_code)


def serve_store(address: str, lifeline: int, report: int) -> NoReturn:
    """Serve the store and end with the warm parent; never returns.

    Args:
        address: of this machine, at which it listens.
        lifeline: a pipe whose other end only the warm parent holds: it closes whenever that process ends.
        report: a pipe to which ``host:port`` is written.
    """
    try:
        os.setsid()
        _set_title("legato-store")
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # By default the store would listen on all interfaces.
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=1024)
        address, port = listener.getsockname()[:2]
        # torch looks up the name of each client. No client would be served while a DNS server does not answer.
        resolver.use_no_dns()
        store = TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        os.write(report, f"{address}:{store.port}".encode())
        os.close(report)
        os.read(lifeline, 1)
    except BaseException:  # noqa: BLE001 -- logged whole, and the process ends
        # As above: this process is a copy of the warm parent and must not continue as one.
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _set_title(title: str) -> None:
    # `top` and `ps -o comm` show this name for the forked process; only Linux has it.
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(title)


def _redirect(log_path: str) -> None:
    Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream in (sys.stdout, sys.stderr):
        # Write line by line: lines of several processes in one file stay whole, and a reader sees each at once.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _execute(entry: str, program: tuple[str, ...]) -> NoReturn:
    module, _, function = entry.partition(":")
    run = ["-c", f"import sys; from {module} import {function}; sys.exit({function}(sys.argv[1:]))"]
    if entry == "legato.train.process.worker:main":
        run = ["-m", module]
    os.execv(sys.executable, [sys.executable, "-u", *run, *program])  # noqa: S606 -- a shell would read the user's arguments


def _reset_inherited_state(program: tuple[str, ...]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = list(program)
    # Python reseeds its own generator after a fork; NumPy does not, and all children would draw the same numbers.
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _code_of(leave: SystemExit) -> int:
    if leave.code is None:
        return 0
    if isinstance(leave.code, int):
        return leave.code
    sys.stderr.write(f"{leave.code}\n")
    return 1
