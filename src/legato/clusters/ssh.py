"""Starts the agents of a job on other machines by the system's ``ssh``, with its configuration, keys and jump hosts.

Each machine has one ssh connection. It starts the agent, and forwards a port of that machine's loopback interface to
the driver's door, so that no port of the driver is open to the network. The agent survives the end of the connection;
the connection is made again, and the agent then uses its new port.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from legato.clusters.base import AgentConnection, CommandStarter
from legato.core.errors import UsageError
from legato.core.slots import make_node
from legato.engines.agents import PATH
from legato.system.door import LOOPBACK, Door

MAX_HOSTS: Final = 1000
MAX_SLOTS: Final = 1024
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_FORWARDED: Final = re.compile(r"Allocated port (\d+) for remote forward")
_ADVICE: Final = {
    "Could not resolve hostname": "check the name, or define the host in ~/.ssh/config",
    "Host key verification failed": "connect once by hand with ssh, and accept the key of the host",
    "Permission denied": "ssh must log in without a password, for example with ssh-copy-id",
    "Connection refused": "check that the machine runs an ssh server",
    "No route to host": "check that the machine runs, and that this one reaches it",
    "timed out": "check that the machine runs, and that no firewall is between",
    "remote port forwarding failed": "its ssh server must allow that: AllowTcpForwarding yes in sshd_config",
}
_OPTIONS: Final = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=3",
    "ExitOnForwardFailure=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "LogLevel=INFO",
)


class Host(msgspec.Struct, frozen=True):
    """A machine, as ssh knows it.

    Args:
        name: what ssh connects to, such as ``anna@gpu-1``.
        num_slots: number of its slots; None: its GPUs, or one without GPUs.
    """

    name: str
    num_slots: int | None = None

    @property
    def node(self) -> str:
        """The name of the machine in the job."""
        host = self.name.rpartition("@")[2]
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            return make_node(host)

    def __str__(self) -> str:
        return self.name if self.num_slots is None else f"{self.name}:{self.num_slots}"


class Hosts(msgspec.Struct, frozen=True):
    """The machines of a job.

    Args:
        hosts: in the order in which their slots are used.
        network: in which workers of different machines connect; None: by the addresses to which ssh connects.
    """

    hosts: tuple[Host, ...]
    network: str | None = None


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return machines from their names, separated by commas, each with its number of slots if it is given.

    Raises:
        UsageError: a name or number is invalid, or a machine is named twice.

    >>> [str(host) for host in parse_hosts("a, anna@b:4")]
    ['a', 'anna@b:4']
    """
    hosts = []
    for item in text.split(","):
        name, _, number = item.strip().partition(":")
        if ":" in number:
            raise UsageError(
                f"Cannot read the host '{item.strip()}': give the host of an IPv6 address a name in ~/.ssh/config, and "
                "use this name."
            )
        if not _HOST.fullmatch(name):
            raise UsageError(f"Cannot read the host '{name[:200]}' in --hosts. Write --hosts a,b:4 or --hosts anna@a.")
        if ":" in item and not (number.isdecimal() and len(number) < 5 and 1 <= int(number) <= MAX_SLOTS):
            raise UsageError(
                f"Cannot read the number of slots in '{item.strip()[:200]}': it must be from 1 to {MAX_SLOTS}, as in "
                f"--hosts {name}:4."
            )
        hosts.append(Host(name, int(number) if number else None))
    nodes = [host.node for host in hosts]
    for node in nodes:
        if nodes.count(node) > 1:
            raise UsageError(
                f"Cannot use two hosts with the name '{node}'. Name each machine once, with its number of slots, such "
                f"as {node}:2; give machines of different domains different names in ~/.ssh/config."
            )
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"Cannot use {len(hosts)} hosts: {MAX_HOSTS} is the limit.")
    return tuple(hosts)


def check_ssh() -> None:
    """Raise UsageError if this machine has no ssh."""
    if shutil.which("ssh") is None:
        raise UsageError("Cannot use --hosts: there is no program 'ssh' on this machine. Install OpenSSH's client.")


class SshStarter(CommandStarter):
    """Makes the agents of a job exist by ssh.

    Args:
        hosts: the machines.
        job: name of the job.
        door: of the driver.
        python: the interpreter of the workers, at the same path on all machines; None: that of this process.
    """

    permanent: ClassVar = (
        "Could not resolve hostname",
        "Permission denied",
        "Host key verification failed",
        "Bad owner",
    )

    def __init__(self, hosts: Hosts, job: str, door: Door, python: str | None = None) -> None:
        super().__init__({host.node: host.num_slots for host in hosts.hosts}, job, door)
        self._hosts = {host.node: host for host in hosts.hosts}
        self._network = hosts.network
        self._python = python

    def connect(self, node: str) -> AgentConnection:
        """Return a new connection to a machine, not open yet."""
        name = self._hosts[node].name
        remote = [sys.executable, "-m", "legato.agent.starting", *self.list_again(node)]
        remote += [] if self._python is None else ["--python", self._python]
        remote += [] if self._network is None else ["--network", self._network]
        options = [word for option in _OPTIONS for word in ("-o", option)]
        forward = f"{LOOPBACK}:0:{LOOPBACK}:{self._door.port}"
        return _SshConnection(["ssh", "-T", *options, "-R", forward, "--", name, shlex.join(remote)])


class _SshConnection(AgentConnection):
    """One ssh connection to a machine."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def take_line(self, line: str) -> None:
        """Take a line of ssh; one of them names the port that it forwards."""
        found = _FORWARDED.search(line)
        if found is None:
            super().take_line(line)
        elif not self._port.done():
            self._port.set_result(int(found[1]))

    async def find_urls(self) -> tuple[str, ...] | None:
        """Return the URL at which the machine reaches the driver: at the port that ssh forwards."""
        assert self._reading is not None
        waits: list[asyncio.Future[Any]] = [self._port, self._reading]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return (f"wss://{LOOPBACK}:{self._port.result()}{PATH}",) if self._port.done() else None

    def explain(self, code: int, last: str) -> str:
        """Return why ssh ended, and what to do."""
        if code in (126, 127):
            last = f"it has no Legato at {sys.executable}: install Legato at the same path as here"
        elif "No module named" in last:
            last = f"{last} at {sys.executable} there: install Legato at the same path as here"
        advice = next((f": {advice}" for text, advice in _ADVICE.items() if text in last), "")
        return (last or f"ssh ended with code {code}").rstrip(".") + advice
