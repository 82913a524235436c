"""Starts Python programs by forking a process that has imported torch: milliseconds instead of seconds of the CPU.

A program that is started here finds what a new interpreter would have given it: its command line, environment,
directory, session, descriptors, signals and search path, also in ``/proc``. It differs in two things: torch and NumPy
are imported already, and programs of one fork server share the order of their sets. Variables that a process or a
library reads once, when it starts, are never changed after that: for another set of them there is another fork server.

Tests of the start itself (a new interpreter, exit codes, what is imported) start a real process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
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
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_ROOT: Final = Path(__file__).parents[1]
_ROOM: Final = 32_768
"""Bytes for the environment, and as many for the command line, of a program as ``/proc`` shows them."""
_ROOM_NAME: Final = "FORK_SERVER_ROOM"
_FOLDER: Final = "FORK_SERVERS"
_LIFE: Final = "life"
_MAX_SERVERS: Final = 6
_IMPORTS: Final = ("torch", "torch.distributed", "torch.optim", "torch._dynamo", "numpy")
# What only the programs themselves read, while they run.
_OWN_PREFIXES: Final = ("DLI_", "EDT_", "ELASTICDL_", "LEGATO_", "PYTEST_", "WMLA_")
_OF_WMLA: Final = (
    "DATA_DIR",
    "DATA_PATH",
    "EXEC_TYPE",
    "FABRIC_BACKEND",
    "FRAME_WORK",
    "GATE",
    "RESULT_DIR",
    "SPACE_ID",
)
_OWN_NAMES: Final = frozenset({_FOLDER, "COLOUR", "OWN", "PYTHONPATH", "TMPDIR", "WORKER_NUM", *_OF_WMLA})
_SPACES: Final = [Path("/proc/self/ns", name) for name in ("mnt", "net")]


class _Order(NamedTuple):
    """What to become: ``numbers`` are those of the descriptors that come along, 0 to 2 among them."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    own_session: bool
    numbers: list[int]


# ---------------------------------------------------------------- in the tests


@contextlib.contextmanager
def open_folder() -> Iterator[None]:
    """Keep the fork servers of this process, and of those that it starts: they end with it, or with this block."""
    if _FOLDER in os.environ:
        yield
        for server in _started:
            server.returncode = 0  # it continues for the other processes of pytest, and ends with the first one
        return
    with tempfile.TemporaryDirectory(prefix="legato-forks-") as folder:
        os.environ[_FOLDER] = folder
        os.mkfifo(Path(folder, _LIFE))
        # No byte goes through it: the fork servers see when no process has it open any more.
        life = os.open(Path(folder, _LIFE), os.O_RDWR)
        try:
            yield
        finally:
            os.close(life)
            del os.environ[_FOLDER]
            for server in _started:
                server.wait()


def prepare(environment: Mapping[str, str]) -> None:
    """Have a fork server for programs that begin with these variables; other processes find it too."""
    place = _place_of(environment)
    if place is None or not hasattr(os, "pidfd_open"):
        return
    folder = place.parent
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists() or len(list(folder.glob("*.socket"))) >= _MAX_SERVERS:
            return
        # Opened here, while the tests still run: a FIFO reports no end to a reader that came after the last writer.
        life = os.open(folder / _LIFE, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(str(place))
                listener.listen(64)
                server = subprocess.Popen(
                    [sys.executable, __file__, str(listener.fileno()), str(life), "-" * _ROOM],
                    env={**_kept(environment), _ROOM_NAME: "-" * _ROOM},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[listener.fileno(), life],
                )
        finally:
            os.close(life)
    _started.append(server)


def prepare_parents(*, by_agents: bool = False) -> None:
    """Have a fork server for the warm parents of jobs that begin with the variables of this process.

    Args:
        by_agents: agents start them, which pass on all variables; others pass on some.
    """
    from legato.engines.environment import pass_on
    from legato.engines.variables import variables_of_parent

    prepare(variables_of_parent(os.environ if by_agents else pass_on(os.environ), {}, "/", "/"))


class ForkedProcess:
    """A process of a fork server, with the methods of `subprocess.Popen` that tests and the engine use."""

    def __init__(self, args: Sequence[str], pid: int, end: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None
        self._end = end
        self._handle = -1
        with contextlib.suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid)

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
        if self.returncode is None and self._has_ended(limit_s):
            code = os.read(self._end, 16)
            assert code, "the fork server has ended before its process"
            self.returncode = int(code)
            os.close(self._end)
            if self._handle >= 0:
                os.close(self._handle)
        return self.returncode

    def _has_ended(self, limit_s: float | None) -> bool:
        # Not select.select: it refuses descriptors above 1023, and a process of pytest may hold as many.
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(None if limit_s is None else limit_s * 1000))


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
    """Start ``python PROGRAM ...`` or ``python -m MODULE ...``; arguments as for `subprocess.Popen`, with files."""
    if not _is_guest:
        prepare(env)
    place = _place_of(env)
    if place is None or not place.exists():
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
    end, report = os.pipe()
    with (
        Path(os.devnull).open("r+b") as nothing,
        open(report, "wb", buffering=0),  # noqa: PTH123 -- a descriptor
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        contextlib.ExitStack() as stack,
    ):
        streams = [nothing if one == subprocess.DEVNULL else one for one in (stdin, stdout, stderr)]
        spaces = [stack.enter_context(path.open("rb")) for path in _SPACES]
        descriptors = [report, *(one.fileno() for one in (*spaces, *streams)), *pass_fds]
        order = _Order(list(command), str(cwd or Path.cwd()), dict(env), start_new_session, [0, 1, 2, *pass_fds])
        server.connect(str(place))
        socket.send_fds(server, [json.dumps(order).encode()], descriptors)
        pid = server.recv(16)
    assert pid, "the fork server has ended; its error stands above"
    return ForkedProcess(order.command, int(pid), end)


def run(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str],
    timeout: float | None = None,
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


class ForkedParents:
    """The module `subprocess` for `legato.engines.parent`: warm parents come from a fork server, all else does not."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:  # noqa: N802
        is_parent = command[1:3] == ["-m", "legato.train.process.warm_parent"]
        return (start if is_parent else subprocess.Popen)(command, **options)


def command_of(module: str, *arguments: str, starts_agents: bool = False) -> list[str]:
    """Return the command of ``python -m MODULE ...``, with warm parents from the fork servers of this process.

    Args:
        module: to run.
        arguments: of it.
        starts_agents: it starts agents of jobs, which do the same; `prepare_parents` for them first.
    """
    enter_more = "fork_server.enter_agents(); " if starts_agents else ""
    return [sys.executable, "-c", f"{begin_guest()}{enter_more}fork_server.run_module({module!r})", *arguments]


def prefix_of_server() -> list[str]:
    """Return what goes before ``python -m legato.cli ...``: its drivers take warm parents from these fork servers."""
    prepare_parents()
    program = begin_guest() + "fork_server.enter_drivers(); del sys.argv[1:3]; fork_server.run_module(sys.argv.pop(1))"
    return [sys.executable, "-c", program]


def begin_guest() -> str:
    """Return how a program of ``python -c`` begins that is none of pytest's and takes warm parents from here."""
    begin = f"from tests import fork_server; fork_server.enter({_folder or os.environ[_FOLDER]!r}); "
    return f"import sys; sys.path.insert(0, {str(_ROOT)!r}); {begin}"


def enter(folder: str) -> None:
    """Let engines of this process, which is none of pytest's, take warm parents from the fork servers of a folder."""
    global _is_guest, _folder
    from legato.engines import parent

    del sys.path[0]
    _is_guest, _folder = True, folder
    parent.subprocess = ForkedParents()  # type: ignore[assignment]


def enter_drivers() -> None:
    """Let the drivers and agents that this process, a server, starts do what `enter` does."""
    from legato.control.drivers import local

    local.subprocess = ForkingDrivers()  # type: ignore[assignment]
    enter_agents()


def enter_agents() -> None:
    """Let the agents of jobs that this process starts do what `enter` does."""
    from legato.agent import process

    process.subprocess = ForkingAgents()  # type: ignore[assignment]


class ForkingDrivers:
    """The module `subprocess` for what starts drivers: they take warm parents from fork servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:  # noqa: N802
        if command[1:4] == ["-P", "-m", "legato.control.drivers.process"]:
            command = [command[0], "-P", *command_of(command[3], starts_agents=True)[1:], *command[4:]]
        return subprocess.Popen(command, **options)


class ForkingAgents:
    """The module `subprocess` for what starts agents of jobs: they take warm parents from fork servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def run(self, command: list[str], **options: Any) -> Any:
        assert command[1:3] == ["-m", "legato.agent.process"], command
        if not _is_guest:
            prepare_parents(by_agents=True)
        # Not None: readline, which pytest imports, puts variables behind the back of os.environ.
        options["env"] = dict(options.get("env") or os.environ)
        return subprocess.run(command_of(command[2], *command[3:]), **options)


def run_module(name: str) -> None:
    """Continue as ``python -m NAME`` does."""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


_started: Final[list[subprocess.Popen[bytes]]] = []
_is_guest = False
_folder = ""


def _place_of(environment: Mapping[str, str]) -> Path | None:
    """Return the socket of the fork server for these variables, None where a real process is to be started."""
    paths = [Path(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if any((path / f"{name}.py").exists() for path in paths for name in ("sitecustomize", "usercustomize")):
        return None
    told = json.dumps(sorted(_kept(environment).items()))
    return Path(_folder or os.environ[_FOLDER], f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.socket")


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {n: v for n, v in environment.items() if not n.startswith(_OWN_PREFIXES) and n not in _OWN_NAMES}


# ---------------------------------------------------------------- in the fork server


def _serve(listener: socket.socket, life: int) -> tuple[_Order, list[int]] | None:
    """Fork for each order. Returns in the child, with its order and descriptors, and, with None, when the tests end."""
    reports: dict[int, int] = {}
    ours: set[int] = set()
    wake, waker = socket.socketpair()
    for one in (wake, waker):
        one.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
    signal.set_wakeup_fd(waker.fileno())
    watched = select.poll()  # select() knows no descriptor above 1023, and a process of tests may have more
    for one in (listener.fileno(), wake.fileno(), life):
        watched.register(one, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in watched.poll()}
        if wake.fileno() in ready:
            wake.recv(4096)
            for pid in list(reports):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    ours.discard(pid)
                    _report(reports.pop(pid), str(os.waitstatus_to_exitcode(status)))
        if life in ready:
            for pid in ours:
                os.kill(pid, signal.SIGKILL)
            return None
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            with connection:
                message, (report, *descriptors), _, _ = socket.recv_fds(connection, 2**20, 64)
                order = _Order(*json.loads(message))
                pid = os.fork()
                if pid == 0:
                    return order, descriptors
                for descriptor in descriptors:
                    os.close(descriptor)
                reports[pid] = report
                if not order.own_session:
                    ours.add(pid)
                connection.send(str(pid).encode())


def _report(report: int, code: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(report, code.encode())
    os.close(report)


def _become(order: _Order, descriptors: Sequence[int]) -> None:
    """Give this process what a new one would have been given."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if order.own_session:
        os.setsid()
    for space, path in zip(descriptors, _SPACES, strict=False):
        # The orderer may be on a machine of its own, with other disks: only root may enter it, and only root made it.
        if not os.path.samestat(os.fstat(space), path.stat()) and ctypes.CDLL(None, use_errno=True).setns(space, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter {path.name} of the orderer")
    os.chdir(order.directory)
    _place(descriptors[len(_SPACES) :], order.numbers)
    os.environ.clear()
    os.environ.update(order.environment)
    tempfile.tempdir = None  # it may have been found by the variables of the fork server
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
    sys.path.append(str(_ROOT / "src"))
    from legato.train.process.preloading import preload

    del sys.path[-1]
    assert preload(_IMPORTS, ()), "torch cannot be forked here"
    life = int(sys.argv[2])
    found = _serve(socket.socket(fileno=int(sys.argv[1])), life)
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
