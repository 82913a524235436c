"""Starts the agents of a job on other machines by the system's ``ssh``, with its configuration, keys and jump hosts.

Each machine has one ssh connection. It starts the agent, and forwards a port of that machine's loopback interface to
the driver's door, so that no port of the driver is open to the network. The agent survives the end of the connection;
the connection is made again, and the agent then uses its new port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from legato.agent.orders import AgentOrder
from legato.agent.starting import Facts, Reply
from legato.core.errors import UsageError
from legato.core.slots import make_node
from legato.core.version import __version__
from legato.engines.agents import PATH
from legato.system.decoding import decode
from legato.system.door import LOOPBACK, Door

_log = logging.getLogger(__name__)

_Message = TypeVar("_Message", Facts, Reply)

MAX_HOSTS: Final = 1000
MAX_SLOTS: Final = 1024
_START_LIMIT_S: Final = 120.0
_FIRST_LIMIT_S: Final = 20.0
_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 10.0
_MAX_LINE_BYTES: Final = 2**16
_KEPT_LINES: Final = 20
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_FORWARDED: Final = re.compile(r"Allocated port (\d+) for remote forward")
_PERMANENT: Final = ("Could not resolve hostname", "Permission denied", "Host key verification failed", "Bad owner")
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


def check_network(text: str) -> str:
    """Return a network in its usual form. Raises UsageError if it is none.

    >>> check_network("10.1.2.3/16")
    '10.1.0.0/16'
    """
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise UsageError(f"Cannot read the network '{text[:200]}'. Write it as 10.0.0.0/24.") from None


def check_ssh() -> None:
    """Raise UsageError if this machine has no ssh."""
    if shutil.which("ssh") is None:
        raise UsageError("Cannot use --hosts: there is no program 'ssh' on this machine. Install OpenSSH's client.")


class SshStarter:
    """Makes the agents of a job exist; a `legato.engines.agents.Starter`.

    Args:
        hosts: the machines.
        job: name of the job.
        door: of the driver.
        python: the interpreter of the workers, at the same path on all machines; None: that of this process.
    """

    def __init__(self, hosts: Hosts, job: str, door: Door, python: str | None = None) -> None:
        self._hosts = {host.node: host for host in hosts.hosts}
        self._network = hosts.network
        self._job = job
        self._door = door
        self._python = python
        self._facts: dict[str, Facts] = {}
        self._is_known = {node: asyncio.Event() for node in self._hosts}

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Keep the agent of a machine started and its connection open, until cancelled; see `Starter.keep`."""
        host = self._hosts.get(node)
        if host is None:
            return  # of an earlier driver with other hosts: its agent ends when its lease is over
        said, wait_s, has_started = "", _RETRY_S, False
        try:
            while True:
                connection = _Connection(host, self._command(host))
                try:
                    await connection.open()
                    async with asyncio.timeout(_START_LIMIT_S):
                        if await self._start(connection, host, secret):
                            has_started, wait_s = True, _RETRY_S
                    await connection.wait()
                except TimeoutError:
                    connection.trouble = f"nothing was heard from it for {_START_LIMIT_S:g} s"
                except OSError as error:
                    connection.trouble = f"ssh cannot be started: {error}"
                except _UnfitError as error:
                    if not has_started:
                        refuse(str(error))
                        return
                    # It was fit before, and its agent may still run: the machine may only be busy.
                    _log.warning("Cannot connect to %s again: %s. Legato tries again", host.name, error)
                finally:
                    await connection.close()
                if not has_started:
                    if connection.trouble != said:
                        said = connection.trouble
                        refuse(said)
                    self._is_known[node].set()
                    if any(text in said for text in _PERMANENT):
                        return
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _MAX_RETRY_S)
        finally:
            self._is_known[node].set()

    def _command(self, host: Host) -> list[str]:
        remote = [sys.executable, "-m", "legato.agent.starting"]
        remote += [] if self._python is None else ["--python", self._python]
        remote += [] if self._network is None else ["--network", self._network]
        options = [word for option in _OPTIONS for word in ("-o", option)]
        forward = f"{LOOPBACK}:0:{LOOPBACK}:{self._door.port}"
        return ["ssh", "-T", *options, "-R", forward, "--", host.name, shlex.join(remote)]

    async def _start(self, connection: _Connection, host: Host, secret: str) -> bool:
        """Return whether the agent was started; False: the connection has ended before."""
        facts = await connection.read(Facts)
        if facts is None:
            return False
        self._facts[host.node] = facts
        await self._check(host.node, facts)
        self._is_known[host.node].set()
        port = await connection.forwarded()
        if port is None:
            return False
        order = AgentOrder(
            job=self._job,
            node=host.node,
            urls=(f"wss://{LOOPBACK}:{port}{PATH}",),
            certificate=self._door.certificate,
            token=secret,
            address=facts.address,
            num_slots=host.num_slots,
            is_temporary=True,
        )
        await connection.write(msgspec.json.encode(order))
        reply = await connection.read(Reply)
        if reply is not None and reply.error is not None:
            raise _UnfitError(reply.error)
        return reply is not None

    async def _check(self, node: str, facts: Facts) -> None:
        """Raise _UnfitError if a machine cannot train with the others; the first one of the list that can is right."""
        if facts.error is not None:
            raise _UnfitError(facts.error)
        if facts.legato != __version__:
            raise _UnfitError(
                f"it has Legato {facts.legato}, and this machine {__version__}: install the same release on both"
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LIMIT_S):
                for earlier in self._hosts:
                    if earlier == node:
                        break
                    await self._is_known[earlier].wait()
        for earlier, known in self._facts.items():
            if earlier == node or known.error is not None or not self._is_known[earlier].is_set():
                continue
            for what, mine, its in (
                ("Python", facts.python, known.python),
                ("torch", facts.torch, known.torch),
                ("the CPU capability", facts.capability, known.capability),
            ):
                if mine != its and not (what.startswith("the CPU") and "" in (mine, its)):
                    raise _UnfitError(
                        f"it has {what} {mine}, and {earlier} has {its}: results would differ. Use machines that are "
                        "equal in this"
                    )
            if _is_loopback(facts.address) != _is_loopback(known.address):
                inner, outer = (node, earlier) if _is_loopback(facts.address) else (earlier, node)
                raise _UnfitError(
                    f"{outer} cannot reach {inner} at a loopback address: name {inner} by its address in the network "
                    "that both share, or give this network by --network"
                )
            return


class _UnfitError(Exception):
    """A machine that cannot be used; the text is a sentence without its period."""


class _Connection:
    """One ssh connection to a machine."""

    def __init__(self, host: Host, command: Sequence[str]) -> None:
        self._command = command
        self._lines: list[str] = []
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.trouble = f"ssh cannot connect to {host.name}"

    async def open(self) -> None:
        """Start ssh."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl-C stops the job, which still needs the connection
        )
        self._reading = asyncio.create_task(self._read_errors(self._process))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = (await process.stderr.readline()).decode(errors="replace")
            except ValueError:
                continue  # a line that is too long is skipped
            if not line:
                return
            found = _FORWARDED.search(line)
            if found is None:
                self._lines = [*self._lines, line.strip()][-_KEPT_LINES:]
            elif not self._port.done():
                self._port.set_result(int(found[1]))

    async def read(self, kind: type[_Message]) -> _Message | None:
        """Return the next message of the machine; None if the connection has ended. Other lines are skipped."""
        assert self._process is not None and self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                continue
            if not line:
                await self.wait()
                return None
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):
                return decode(line, kind)
            self._lines = [*self._lines, line.decode(errors="replace").strip()][-_KEPT_LINES:]

    async def forwarded(self) -> int | None:
        """Return the port of the machine that leads to the driver; None if the connection has ended."""
        assert self._reading is not None
        waits: list[asyncio.Future[Any]] = [self._port, self._reading]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return self._port.result() if self._port.done() else None

    async def write(self, message: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(message + b"\n")
            await self._process.stdin.drain()

    async def wait(self) -> None:
        """Wait for the end of the connection, and find its reason."""
        assert self._process is not None and self._reading is not None
        code = await self._process.wait()
        await self._reading
        last = next((line for line in reversed(self._lines) if line), "")
        if code in (126, 127):
            last = f"it has no Legato at {sys.executable}: install Legato at the same path as here"
        elif "No module named" in last:
            last = f"{last} at {sys.executable} there: install Legato at the same path as here"
        advice = next((f": {advice}" for text, advice in _ADVICE.items() if text in last), "")
        self.trouble = (last or f"ssh ended with code {code}").rstrip(".") + advice

    async def close(self) -> None:
        if self._process is None or self._reading is None:
            return
        # This kills ssh, and closes the pipes first: `wait` would wait for all processes that have them.
        self._process._transport.close()  # type: ignore[attr-defined]
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._process.wait()


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
