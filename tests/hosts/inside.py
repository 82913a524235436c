"""Makes the namespaces of a host, and runs commands in them. Only the standard library: it starts in milliseconds.

    inside.py keep OWNER             hold the switch between the hosts, and their disks
    inside.py boot OWNER KEEPER NAME start a host; prints the id of its first process
    inside.py enter FIRST COMMAND... run a command on the host with that first process

Everything that is made here belongs to a process that ends with its owner. The kernel then removes it: no file, mount
or interface is left to delete, even if all these processes are killed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

DISK: Final = "/mnt"
"""Where a host has its own disk, and the keeper the disks of all hosts."""
KILL: Final = signal.SIGRTMIN
"""Asks `enter` to kill its command."""

_NEW_MOUNTS, _NEW_NAME, _NEW_IPC, _NEW_PIDS, _NEW_NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_SIGNAL_AT_PARENTS_DEATH: Final = 1
_KINDS: Final = ("ipc", "uts", "net", "pid", "mnt")
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_libc: Final = ctypes.CDLL(None, use_errno=True)


def keep(owner: str) -> None:
    """Hold the network and the disks of a bed until its owner ends."""
    watched = os.pidfd_open(int(owner))
    _call("unshare", _NEW_NETWORK | _NEW_MOUNTS)
    _call("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    _mount("tmpfs", DISK)
    _say("ready")
    select.select([watched], [], [])


def boot(owner: str, keeper: str, name: str) -> None:
    """Start a host, and hold it until it, its keeper or its owner ends."""
    watched = [os.pidfd_open(int(owner)), os.pidfd_open(int(keeper))]
    _join(int(keeper), ("mnt",))
    _call("unshare", _NEW_MOUNTS | _NEW_NAME | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK)
    socket.sethostname(name)
    _bind(f"{DISK}/hosts", "/etc/hosts")
    # Without a name server, the lookup of an unknown name fails immediately.
    _bind(os.devnull, "/etc/resolv.conf")
    # By its id, programs tell a machine from others.
    own_id = Path(DISK, f"machine-id-{name}")
    own_id.write_text(f"{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()}\n")
    _bind(str(own_id), "/etc/machine-id")
    Path(DISK, name).mkdir(exist_ok=True)
    _bind(f"{DISK}/{name}", DISK)
    for place in ("/dev/shm", "/run"):
        _mount("tmpfs", place)
    up, ready = os.pipe()
    first = _fork()
    if first == 0:
        _mount("proc", "/proc")
        os.write(ready, b"1")
        _be_first_process()
    os.close(ready)
    if os.read(up, 1):
        _say(str(first))
        select.select([*watched, os.pidfd_open(first)], [], [])


def enter(first: str, *command: str) -> None:
    """Run a command on a host, pass signals on to it, and end as it ends."""
    directory = Path.cwd()
    try:
        _join(int(first), _KINDS)
    except FileNotFoundError:
        sys.exit("this host is down")
    child = _fork()
    if child == 0:
        os.chdir(directory)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(KILL, lambda *_: os.kill(child, signal.SIGKILL))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


def _be_first_process() -> NoReturn:
    """Reap the orphans of a host until it is killed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _fork() -> int:
    """Fork a child that is killed when this process ends, whatever ends it."""
    child = os.fork()
    if child == 0:
        _call("prctl", _SIGNAL_AT_PARENTS_DEATH, int(signal.SIGKILL))
    return child


def _join(process: int, kinds: Sequence[str]) -> None:
    """Enter namespaces of a process; that of processes only with later children."""
    opened = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    for descriptor in opened:
        _call("setns", descriptor, 0)
        os.close(descriptor)


def _mount(kind: str, place: str) -> None:
    _call("mount", kind.encode(), place.encode(), kind.encode(), 0, None)


def _bind(source: str, place: str) -> None:
    if Path(place).exists():
        _call("mount", source.encode(), place.encode(), None, _BIND, None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {"keep": keep, "boot": boot, "enter": enter}[sys.argv[1]](*sys.argv[2:])
