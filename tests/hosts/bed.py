"""Several hosts on one machine, for tests of training on many machines. Needs Linux, root, iproute2 and util-linux.

    with Hosts(3) as hosts:
        server = hosts.popen(1, ["python", "-m", "http.server", "8000"])
        hosts.cut(2)
        hosts.heal(2)
        hosts.crash(3)
        hosts.boot(3)

Hosts are counted from 1: host 1 is named h1. The test itself is the *head*, outside of the hosts: they reach it at
`Hosts.head`, by the name ``head``, and it reaches them. They reach nothing else.

A host has its own name, addresses, processes, ``/dev/shm``, ``/run``, ``/etc/hosts`` and ``/etc/machine-id``, and its
own disk at `DISK`, which outlives a crash. All other folders are shared, as with NFS. Time, CPU and memory are the
machine's.

The kernel removes a bed when the process that made it ends, even by SIGKILL.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.hosts.inside import DISK, KILL

__all__ = ["DISK", "Command", "Hosts", "why_not"]

_INSIDE: Final = (sys.executable, "-IS", str(Path(__file__).with_name("inside.py")))
_NETWORK: Final = "10.213.{}.{}"
_NETWORK_6: Final = "fd00:213:{}::{}"
_HEAD: Final = 254
_MAX_BEDS: Final = 250


@functools.cache
def why_not() -> str | None:
    """Return why this machine cannot make hosts, None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts of their own need Linux and root"
    if missing := [program for program in ("ip", "tc", "nsenter") if not shutil.which(program)]:
        return f"hosts of their own need {' and '.join(missing)} (Debian: apt-get install iproute2 util-linux)"
    try:
        with Hosts(1):
            return None
    except PermissionError as error:
        return f"this machine allows no hosts of their own: {error}"


class _Host(NamedTuple):
    """A host that is up: the process that holds it, and the id of its own first process."""

    holder: subprocess.Popen[str]
    first: int


class Command(subprocess.Popen[Any]):
    """A command on a host: signals to it, also `kill`, reach the command."""

    def send_signal(self, sig: int) -> None:
        # If the process here were killed itself, the init process of this machine would reap the command, maybe late.
        super().send_signal(KILL if sig == signal.SIGKILL else sig)


class Hosts:
    """A number of hosts in one network.

    Args:
        count: how many, up to 99. Each has an IPv4 and an IPv6 address.

    Raises:
        PermissionError: this machine does not let this process make namespaces or interfaces.
    """

    def __init__(self, count: int) -> None:
        self.numbers = range(1, count + 1)
        self._up: dict[int, _Host] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._network = stack.enter_context(_one_network())
            self._keeper, _ = _start(stack, "keep", str(os.getpid()))
            names = ["127.0.0.1 localhost", "::1 localhost"]
            for name, number in [("head", _HEAD), *((self.name(i), i) for i in self.numbers)]:
                names += [f"{pattern.format(self._network, number)} {name}" for pattern in (_NETWORK, _NETWORK_6)]
            self._on_keeper("hosts").write_text("\n".join([*names, ""]))
            head = f"lg-head{self._network}"
            _ip(None, f"link add {head} type veth peer name head netns {self._keeper.pid}")
            _ip(None, *self._addressing(head, _HEAD))
            _ip(self._keeper.pid, "link set head up")
            self._connect("head", 0)
            stack.callback(lambda: self._power_off(*self.numbers))
            for host in self.numbers:
                self.boot(host)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------ what they are

    @property
    def head(self) -> str:
        """The address at which hosts reach this process."""
        return _NETWORK.format(self._network, _HEAD)

    @property
    def head_6(self) -> str:
        """Its IPv6 address."""
        return _NETWORK_6.format(self._network, _HEAD)

    def name(self, host: int) -> str:
        return f"h{host}"

    def address(self, host: int) -> str:
        return _NETWORK.format(self._network, host)

    def address_6(self, host: int) -> str:
        return _NETWORK_6.format(self._network, host)

    def is_up(self, host: int) -> bool:
        return host in self._up

    def disk(self, host: int) -> Path:
        """Return where this process sees a host's own disk, also while the host is down."""
        return self._on_keeper(self.name(host))

    def pids(self, host: int) -> list[int]:
        """Return the processes that run on a host, by their ids here, without its first process."""
        if host not in self._up:
            return []
        first = self._up[host].first
        own = os.readlink(f"/proc/{first}/ns/pid")
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and os.readlink(process / "ns/pid") == own:
                    found.append(int(process.name))
        return [pid for pid in found if pid != first]

    def bytes_sent(self, host: int) -> int:
        """Return how many bytes a host has sent since it was started, with all headers."""
        return self._counters(host)[0]

    def bytes_received(self, host: int) -> int:
        """Return how many bytes have come to a host since it was started, with all headers."""
        return self._counters(host)[8]

    # ------------------------------------------------------------ running commands

    def command_on(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on a host, with the caller's directory and environment."""
        if host not in self._up:
            raise ValueError(f"{self.name(host)} is down")
        return [*_INSIDE, "enter", str(self._up[host].first), *command]

    def popen(self, host: int, command: Sequence[str], **options: Any) -> Command:
        """Start a command on a host; options as for `subprocess.Popen`.

        The command is killed with its host, and with the process that asked for it. Its own children end with the host.
        """
        return Command(self.command_on(host, command), **options)

    def run_on(self, host: int, *command: str, **options: Any) -> str:
        """Run a command on a host to its end, and return what it wrote.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        settings = {"check": True, "stdout": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL, **options}
        return str(subprocess.run(self.command_on(host, command), **settings).stdout)

    # ------------------------------------------------------------ what happens to them

    def crash(self, host: int) -> None:
        """Cut a host off and kill all its processes at once. Returns when all are gone; its disk stays."""
        self.cut(host)
        self._power_off(host)

    def boot(self, host: int) -> None:
        """Start a host that is down, with a new network connection."""
        if host in self._up:
            raise ValueError(f"{self.name(host)} is up")
        name, keeper = self.name(host), self._keeper.pid
        holder, first = _start(None, "boot", str(os.getpid()), str(keeper), name)
        self._up[host] = _Host(holder, int(first))
        if name in self._links():
            _ip(keeper, f"link delete {name}")
        # Others remember the hardware's address, so it stays the same.
        _ip(keeper, f"link add {name} type veth peer name eth0 address 02:00:00:00:00:{host:02x} netns {first}")
        _ip(int(first), "link set lo up", *self._addressing("eth0", host))
        self._connect(name, 0)
        self.heal(host)

    def cut(self, *hosts: int) -> None:
        """Unplug hosts from the network; their processes run on."""
        _ip(self._keeper.pid, *(f"link set {self.name(host)} down" for host in hosts))

    def split(self, *groups: Sequence[int]) -> None:
        """Divide the network: the hosts of a group reach only one another. The head stays with hosts of no group."""
        for number, group in enumerate(groups, 1):
            for host in group:
                self._connect(self.name(host), number)

    def heal(self, *hosts: int) -> None:
        """Undo `cut` and `split` for hosts; for all that are up, if none are named."""
        for host in hosts or self._up:
            self._connect(self.name(host), 0)
            _ip(self._keeper.pid, f"link set {self.name(host)} up")

    def rate(self, host: int, mbit: float | None) -> None:
        """Limit what a host sends, and what it receives, to so many Mbit/s each; None for no limit."""
        limit = "noqueue" if mbit is None else f"tbf rate {mbit}mbit burst 256kb latency 50ms"
        for process, link in ((self._keeper.pid, self.name(host)), (self._up[host].first, "eth0")):
            _run(process, "tc", "qdisc", "replace", "dev", link, "root", *limit.split())

    def freeze(self, host: int) -> None:
        """Stop all processes of a host, as if it hung."""
        stopped: set[int] = set()
        while found := set(self.pids(host)) - stopped:  # one may have started others meanwhile
            _signal(found, signal.SIGSTOP)
            stopped |= found

    def thaw(self, host: int) -> None:
        """Let a frozen host go on."""
        _signal(self.pids(host), signal.SIGCONT)

    # ------------------------------------------------------------ inside

    def _power_off(self, *hosts: int) -> None:
        ended = [self._up.pop(host) for host in hosts if host in self._up]
        _signal([host.first for host in ended], signal.SIGKILL)
        for host in ended:
            host.holder.wait()  # which ends when the last of the host's processes is gone

    def _on_keeper(self, name: str) -> Path:
        return Path(f"/proc/{self._keeper.pid}/root{DISK}", name)

    def _addressing(self, link: str, number: int) -> list[str]:
        address = f"addr add {_NETWORK.format(self._network, number)}/24 dev {link}"
        commands = [address, f"link set {link} up"]
        if Path("/proc/net/if_inet6").exists():
            commands.insert(0, f"addr add {_NETWORK_6.format(self._network, number)}/64 dev {link} nodad")
        return commands

    def _connect(self, link: str, bridge: int) -> None:
        """Plug a link into one of the bridges that divide the network."""
        if f"bridge{bridge}" not in self._links():
            _ip(self._keeper.pid, f"link add bridge{bridge} type bridge", f"link set bridge{bridge} up")
        _ip(self._keeper.pid, f"link set {link} master bridge{bridge}")

    def _links(self) -> dict[str, list[int]]:
        """Return the counters of all links at the switch: bytes received and sent are numbers 0 and 8."""
        lines = Path(f"/proc/{self._keeper.pid}/net/dev").read_text().splitlines()[2:]
        parts = [line.partition(":") for line in lines]
        return {name.strip(): [int(value) for value in values.split()] for name, _, values in parts}

    def _counters(self, host: int) -> list[int]:
        return self._links()[self.name(host)]


@contextlib.contextmanager
def _one_network() -> Iterator[int]:
    """Take the number of a network that no other bed and no interface of this machine uses."""
    used = _run(None, "ip", "-json", "address")
    taken = {int(word["local"].split(".")[2]) for link in json.loads(used) for word in link["addr_info"]
             if word.get("local", "").startswith(_NETWORK.partition("{")[0])}  # fmt: skip
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as lock:
        for number in ((os.getpid() + offset) % _MAX_BEDS for offset in range(_MAX_BEDS)):
            # The kernel removes the interface of a bed that has ended some moments later.
            if number not in taken and _bind(lock, f"\0legato-test-hosts-{number}"):
                yield number
                return
    raise RuntimeError(f"all {_MAX_BEDS} networks for test hosts are in use")


def _bind(lock: socket.socket, name: str) -> bool:
    with contextlib.suppress(OSError):
        lock.bind(name)
        return True
    return False


def _start(stack: contextlib.ExitStack | None, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a process that holds namespaces, and return it with the line that it writes when they are ready."""
    process = subprocess.Popen(
        [*_INSIDE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if stack is not None:
        stack.callback(lambda: (process.kill(), process.wait()))
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        if line := process.stdout.readline().strip():
            return process, line
        told = process.stderr.read()
    process.wait()
    raise _explain(told, arguments)


def _ip(process: int | None, *commands: str) -> None:
    """Run commands of ``ip`` in the network of a process; None for that of this process."""
    _run(process, "ip", "-batch", "-", given="\n".join(commands))


def _run(process: int | None, *command: str, given: str = "") -> str:
    place = [] if process is None else ["nsenter", f"--net=/proc/{process}/ns/net"]
    done = subprocess.run([*place, *command], input=given, capture_output=True, text=True)
    if done.returncode:
        raise _explain(done.stderr, [*command, given])
    return done.stdout


def _explain(told: str, command: Sequence[str]) -> Exception:
    refused = any(words in told for words in ("not permitted", "not supported", "Unknown device type"))
    return (PermissionError if refused else RuntimeError)(f"{' '.join(command)}: {told.strip()[-1000:]}")


def _signal(pids: Sequence[int] | set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
