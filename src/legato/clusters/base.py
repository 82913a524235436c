"""Starts the agents of a job, each by a command such as ssh that runs `legato.agent.starting` on its machine.

The command leads to that program's input and output, so the token of the job is on no command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

import msgspec

from legato.agent.orders import AgentOrder
from legato.agent.starting import Facts, Reply
from legato.core.errors import UsageError
from legato.core.version import __version__
from legato.system.decoding import decode
from legato.system.door import Door
from legato.system.tls import is_loopback

_log = logging.getLogger(__name__)

_Message = TypeVar("_Message", Facts, Reply)

_START_LIMIT_S: Final = 120.0
_FIRST_LIMIT_S: Final = 20.0
_RETRY_S: Final = 1.0
_MAX_LINE_BYTES: Final = 2**16
_KEPT_LINES: Final = 20


def check_network(text: str) -> str:
    """Return a network in its usual form. Raises UsageError if it is none.

    >>> check_network("10.1.2.3/16")
    '10.1.0.0/16'
    """
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise UsageError(f"Cannot read the network '{text[:200]}'. Write it as 10.0.0.0/24.") from None


class CommandStarter(ABC):
    """Makes the agents of a job exist by one command per machine; a `legato.engines.agents.Starter`.

    Args:
        slots: machine → number of its slots; None: as its agent finds them. In the order in which slots are used.
        job: name of the job.
        door: of the driver.
    """

    permanent: ClassVar[tuple[str, ...]] = ()
    """Parts of what a command says for which it is not tried again."""
    max_retry_s: ClassVar[float] = 10.0
    """The longest pause before a command is run again."""

    def __init__(self, slots: Mapping[str, int | None], job: str, door: Door) -> None:
        self._slots = dict(slots)
        self._job = job
        self._door = door
        self._facts: dict[str, Facts] = {}
        self._is_known = {node: asyncio.Event() for node in self._slots}
        self._started: set[str] = set()

    @abstractmethod
    def connect(self, node: str) -> AgentConnection:
        """Return a new connection to a machine, not open yet."""

    def list_again(self, node: str) -> list[str]:
        """Return the option that spares a machine whose agent was started before to look at its Python and torch.

        That takes seconds. The driver would count a machine as lost that has only lost its connection.
        """
        return ["--again"] if node in self._started else []

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Keep the agent of a machine started and its connection open, until cancelled; see `Starter.keep`."""
        if node not in self._slots:
            return  # of an earlier driver with other machines: its agent ends when its lease is over
        said, wait_s = "", _RETRY_S
        try:
            while True:
                connection = self.connect(node)
                try:
                    if await self._hold(connection, node, secret):
                        wait_s = _RETRY_S
                except UnfitError as error:
                    if node not in self._started:
                        refuse(str(error))
                        return
                    # It was fit before, and its agent may still run: the machine may only be busy.
                    _log.warning("Cannot connect to %s again: %s. Legato tries again", node, error)
                if connection.is_over:
                    return
                if node not in self._started:
                    if connection.trouble != said:
                        said = connection.trouble
                        refuse(said)
                    self._is_known[node].set()
                    if any(text in said for text in self.permanent):
                        return
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, self.max_retry_s)
        finally:
            self._is_known[node].set()

    async def _hold(self, connection: AgentConnection, node: str, secret: str) -> bool:
        """Open a connection, and wait for its end; returns whether the agent was started. Raises UnfitError."""
        has_started = False
        try:
            await connection.open()
            async with asyncio.timeout(_START_LIMIT_S):
                has_started = await self._start(connection, node, secret)
            await connection.wait()
        except TimeoutError:
            connection.note_silence(_START_LIMIT_S)
        except OSError as error:
            connection.trouble += f": {error}"
        finally:
            await connection.close()
        return has_started

    async def _start(self, connection: AgentConnection, node: str, secret: str) -> bool:
        """Return whether the agent was started; False: the connection has ended before."""
        facts = await connection.read(Facts)
        if facts is None:
            return False
        if node not in self._started:
            self._facts[node] = facts
            await self.check(node, facts)
            self._is_known[node].set()
        elif facts.error is not None:
            raise UnfitError(facts.error)
        urls = await connection.find_urls()
        if urls is None:
            return False
        order = AgentOrder(
            job=self._job,
            node=node,
            urls=urls,
            certificate=self._door.certificate,
            token=secret,
            address=facts.address,
            num_slots=self._slots[node],
            is_temporary=True,
        )
        await connection.write(msgspec.json.encode(order))
        reply = await connection.read(Reply)
        if reply is not None and reply.error is not None:
            raise UnfitError(reply.error)
        if reply is not None:
            self._started.add(node)
        return reply is not None

    async def check(self, node: str, facts: Facts) -> None:
        """Raise UnfitError if a machine cannot train with the others; the first one of the list that can is right."""
        if facts.error is not None:
            raise UnfitError(facts.error)
        if facts.legato != __version__:
            raise UnfitError(
                f"it has Legato {facts.legato}, and this machine {__version__}: install the same release on both"
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LIMIT_S):
                for earlier in self._slots:
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
                    raise UnfitError(
                        f"it has {what} {mine}, and {earlier} has {its}: results would differ. Use machines that are "
                        "equal in this"
                    )
            if is_loopback(facts.address) != is_loopback(known.address):
                inner, outer = (node, earlier) if is_loopback(facts.address) else (earlier, node)
                raise UnfitError(
                    f"{outer} cannot reach {inner} at a loopback address: name {inner} by its address in the network "
                    "that both share, or give this network by --network"
                )
            return


class UnfitError(Exception):
    """A machine that cannot be used; the text is a sentence without its period."""


class AgentConnection(ABC):
    """One command that runs `legato.agent.starting` on a machine.

    Args:
        command: with its arguments.
        environment: of the command; None: that of this process.

    Attributes:
        trouble: why the connection has ended, a sentence without its period.
        is_over: the agent has ended because its job has.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = environment
        self._lines: list[str] = []
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.trouble = f"{command[0]} cannot be started"
        self.is_over = False

    @abstractmethod
    async def find_urls(self) -> tuple[str, ...] | None:
        """Return the URLs at which the machine reaches the driver; None if the connection has ended."""

    def take_line(self, line: str) -> None:
        """Take a line that the command wrote, and that is no message; the last ones are kept for `trouble`."""
        self._lines = [*self._lines, line][-_KEPT_LINES:]

    def explain(self, code: int, last: str) -> str:
        """Return why the command ended, and what to do, from its exit code and its last line."""
        return last or f"{self._command[0]} ended with code {code}"

    @property
    def _last_line(self) -> str:
        return next((line for line in reversed(self._lines) if line), "")

    def note_silence(self, limit_s: float) -> None:
        """Note that the command has said nothing that counts for too long."""
        last = f"; the last line was: {self._last_line}" if self._last_line else ""
        self.trouble = f"nothing was heard from it for {limit_s:g} s{last}"

    async def open(self) -> None:
        """Start the command."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            env=self._environment,
            start_new_session=True,  # Ctrl-C stops the job, which still needs the connection
        )
        assert self._process.stderr is not None
        self._reading = asyncio.create_task(self._read_errors(self._process.stderr))

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        while line := await _read_line(stream):
            self.take_line(line.decode(errors="replace").strip())

    async def read(self, kind: type[_Message]) -> _Message | None:
        """Return the next message of the machine; None if the connection has ended. Other lines are skipped."""
        assert self._process is not None and self._process.stdout is not None
        while line := await _read_line(self._process.stdout):
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):
                return decode(line, kind)
            self.take_line(line.decode(errors="replace").strip())
        await self.wait()
        return None

    async def write(self, message: bytes) -> None:
        """Send a message to the machine."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(message + b"\n")
            await self._process.stdin.drain()

    async def wait(self) -> None:
        """Wait for the end of the connection, and find its reason."""
        code = await self._read_rest()
        self.trouble = self.explain(code, self._last_line)

    async def _read_rest(self) -> int:
        """Take what the command still writes, and return its exit code."""
        assert self._process is not None and self._process.stdout is not None and self._reading is not None
        while line := await _read_line(self._process.stdout):
            self.take_line(line.decode(errors="replace").strip())
        code = await self._process.wait()
        await self._reading
        return code

    async def close(self) -> None:
        """Kill the command."""
        if self._process is None or self._reading is None:
            return
        # This kills the command, and closes the pipes first: `wait` would wait for all processes that have them.
        self._process._transport.close()  # type: ignore[attr-defined]
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._process.wait()


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, empty at the end; a line that is too long is skipped."""
    while True:
        with contextlib.suppress(ValueError):
            return await stream.readline()
