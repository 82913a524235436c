"""Starts Python programs by forking a process that has imported torch: milliseconds instead of seconds of the CPU.

A program that is started here finds what a new interpreter would have given it: its command line, environment,
directory, session, descriptors, signals and search path, also in ``/proc``. It differs in two things: torch and NumPy
are imported already, and programs of one fork server share the order of their sets. Variables that a process or a
library reads once, when it starts, are never changed after that: for another set of them there is another fork server.

Tests of the start itself (a new interpreter, exit codes, what is imported) start a real process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_ROOM: Final = 32_768
"""Bytes for the environment, and as many for the command line, of a program as ``/proc`` shows them."""
_MAX_SERVERS: Final = 3
_ROOM_NAME: Final = "FORK_SERVER_ROOM"
_IMPORTS: Final = ("torch", "torch.distributed", "torch.optim", "torch._dynamo", "numpy")
# What only the programs themselves read, while they run.
_OWN_PREFIXES: Final = ("LEGATO_", "EDT_", "ELASTICDL_", "WMLA_", "HOROVOD_")
_OWN_NAMES: Final = frozenset({"DATA_DIR", "PYTEST_CURRENT_TEST", "PYTHONPATH", "RESULT_DIR", "WORKER_NUM"})


class _Order(NamedTuple):
    """What to become: ``numbers`` are those of the descriptors that come along, 0 to 2 among them."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    own_session: bool
    numbers: list[int]


# ---------------------------------------------------------------- in the tests


class ForkedProcess:
    """A process of a fork server, with the methods of `subprocess.Popen` that tests and the engine use."""

    def __init__(self, args: Sequence[str], pid: int, end: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None
        self._end = end
        self._handle = os.pidfd_open(pid) if Path(f"/proc/{pid}").exists() else -1

    def poll(self) -> int | None:
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(list(self.args), timeout)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _wait(self, limit_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], limit_s)[0]:
            # Nothing comes if the fork server was killed, which nothing here does.
            self.returncode = int(os.read(self._end, 16) or b"-9")
            os.close(self._end)
            if self._handle >= 0:
                os.close(self._handle)
        return self.returncode


class _ForkServer:
    """The other end of a fork server, which ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), "-" * _ROOM],
                env={**environment, _ROOM_NAME: "-" * _ROOM},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, order: _Order, descriptors: Sequence[int]) -> ForkedProcess:
        end, report = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(order).encode()], [report, *descriptors])
                pid = int(self._socket.recv(16) or 0)
        finally:
            os.close(report)
        assert pid, "the fork server has ended; its error stands above"
        return ForkedProcess(order.command, pid, end)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_servers: Final[dict[frozenset[tuple[str, str]], _ForkServer]] = {}
_starting: Final = threading.Lock()


def start(
    command: Sequence[str],
    *,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    start_new_session: bool = False,
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start ``python PROGRAM ...`` or ``python -m MODULE ...``; arguments as of `subprocess.Popen`, with files."""
    server = _find_server(env)
    if server is None:
        return subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=start_new_session,
        )
    with Path(os.devnull).open("r+b") as nothing:
        streams = [nothing if one == subprocess.DEVNULL else one for one in (stdin, stdout, stderr)]
        descriptors = [*(stream.fileno() for stream in streams), *pass_fds]
        order = _Order(list(command), str(cwd or Path.cwd()), dict(env), start_new_session, [0, 1, 2, *pass_fds])
        return server.start(order, descriptors)


def run(
    command: Sequence[str], *, cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does, and return what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(list(command), code, *texts)


def _find_server(environment: Mapping[str, str]) -> _ForkServer | None:
    """Return the fork server whose programs begin with these variables, None if a real process is to be started."""
    paths = [Path(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if any((path / f"{name}.py").exists() for path in paths for name in ("sitecustomize", "usercustomize")):
        return None
    kept = {n: v for n, v in environment.items() if not n.startswith(_OWN_PREFIXES) and n not in _OWN_NAMES}
    key = frozenset(kept.items())
    with _starting:
        if key not in _servers and len(_servers) < _MAX_SERVERS and hasattr(os, "pidfd_open"):
            _servers[key] = _ForkServer(kept)
        return _servers.get(key)


@atexit.register
def _close_all() -> None:
    for server in _servers.values():
        server.close()
    _servers.clear()


# ---------------------------------------------------------------- in the fork server


def _serve(connection: socket.socket) -> tuple[_Order, list[int]] | None:
    """Fork for each order. Returns in the child, with its order and descriptors, and, with None, when the tests end."""
    reports: dict[int, int] = {}
    wake, waker = socket.socketpair()
    for one in (wake, waker):
        one.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    signal.set_wakeup_fd(waker.fileno())
    while True:
        ready, _, _ = select.select([connection, wake], [], [])
        if wake in ready:
            wake.recv(4096)
            for pid in list(reports):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    report = reports.pop(pid)
                    with contextlib.suppress(BrokenPipeError):
                        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(report)
        if connection not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(connection, 2**20, 64)
        if not message:
            return None
        report, *descriptors = descriptors
        pid = os.fork()
        if pid == 0:
            return _Order(*json.loads(message)), descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        reports[pid] = report
        connection.send(str(pid).encode())


def _become(order: _Order, descriptors: Sequence[int]) -> None:
    """Give this process what a new one would have been given."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if order.own_session:
        os.setsid()
    os.chdir(order.directory)
    _place(descriptors, order.numbers)
    os.environ.clear()
    os.environ.update(order.environment)
    _show_in_proc(order)
    # NumPy's generator would draw the same numbers in each child.
    sys.modules["numpy"].random.seed()
    importlib.invalidate_caches()


def _place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors their numbers, and close all others."""
    held = max(*descriptors, *numbers) + 1
    for descriptor in descriptors:
        os.dup2(descriptor, held := held + 1)
    first = held - len(descriptors) + 1
    for index, number in enumerate(numbers):
        os.dup2(first + index, number)
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    for descriptor in opened - set(numbers):
        with contextlib.suppress(OSError):  # the one by which the folder was read
            os.close(descriptor)


def _show_in_proc(order: _Order) -> None:
    """Let ``/proc`` show the order's command line and environment: processes are found by them."""
    # See proc(5): the fields 48 to 51, counted behind the name, which is the second.
    places = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]
    arguments, arguments_end, variables, variables_end = map(int, places)
    for begin, end, texts in (
        (arguments, arguments_end, order.command),
        (variables, variables_end, [f"{name}={value}" for name, value in order.environment.items()]),
    ):
        content = b"".join(os.fsencode(text) + b"\0" for text in texts)
        assert len(content) <= end - begin, "give it more room"
        ctypes.memmove(begin, content.ljust(end - begin, b"\0"), end - begin)


def _run(command: list[str]) -> None:
    """Run ``python PROGRAM ...`` or ``python -m MODULE ...`` in this process."""
    sys.orig_argv = list(command)
    is_module = command[1] == "-m"
    name, *arguments = command[2:] if is_module else command[1:]
    path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    first = str(Path.cwd()) if is_module else str(Path(name).resolve().parent)
    # The first of this process is the folder of this file.
    sys.path[:] = [first, *path, *sys.path[1:]]
    sys.argv[:] = [name, *arguments]
    if is_module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    exec(compile(Path(name).read_bytes(), name, "exec"), main.__dict__)


def _main() -> None:
    sys.path.append(str(Path(__file__).parents[1] / "src"))
    from legato.train.preloading import preload

    del sys.path[-1]
    assert preload(_IMPORTS, ()), "torch cannot be forked here"
    found = _serve(socket.socket(fileno=int(sys.argv[1])))
    if found is None:
        return
    order, descriptors = found
    try:
        _become(order, descriptors)
    except BaseException:
        traceback.print_exc()
        os._exit(127)
    _run(order.command)


if __name__ == "__main__":
    _main()
