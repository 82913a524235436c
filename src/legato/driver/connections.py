"""Connections of the driver: a websocket per worker and client, authentication, queues of messages. Decides nothing.

A worker that does not read never blocks the driver: its messages wait in memory, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from legato.core import wire
from legato.driver import tokens
from legato.system.door import Door

_log = logging.getLogger(__name__)

_MAX_WAITING: Final = 1000  # messages to one worker; with more the connection counts as lost
_HELLO_LIMIT_S: Final = 10.0  # from the connection to its first frame
_BEARER: Final = "Bearer "
_WORKERS: Final = "/worker"
_PATHS: Final = (_WORKERS, "/client")


class _WorkerConnection:
    """A connection to one worker, and the messages that wait to be sent over it."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.waiting: asyncio.Queue[wire.DriverMessage] = asyncio.Queue(_MAX_WAITING)

    async def send_forever(self) -> None:
        while True:
            await self.connection.send(wire.encode(await self.waiting.get()))

    def cut(self) -> None:
        """Drop the connection without a closing handshake, which a worker that does not read would never answer."""
        self.connection.transport.abort()


class Connections:
    """All connections of one driver.

    Args:
        secret: the secret that authenticates clients. Each worker has a separate token, which authenticates only that
            worker.
        hear: called with worker number and message, in the order in which a worker sent them.
        lose: called when a worker's connection is lost and no newer one has replaced it.
        answer: called with a client's request.
        admits_old_workers: accept workers that show the secret, because an earlier release of Legato started them.
    """

    def __init__(
        self,
        secret: str,
        *,
        hear: Callable[[int, wire.WorkerMessage], None],
        lose: Callable[[int], None],
        answer: Callable[[wire.ClientRequest], Awaitable[wire.Reply]],
        admits_old_workers: bool = False,
    ) -> None:
        self._secret = secret
        self._admits_old_workers = admits_old_workers
        self._hear = hear
        self._lose = lose
        self._answer = answer
        self._lines: dict[int, _WorkerConnection] = {}
        self._clients: set[ServerConnection] = set()
        self._door: Door | None = None

    def open(self, door: Door) -> str:
        """Accept workers and clients at a door, and return the URL for workers."""
        self._door = door
        door.mount(_PATHS, self._admit, self._serve)
        return door.url("/worker")

    def close_workers(self) -> None:
        """Accept no further connections of workers, and close the present ones."""
        if self._door is not None:
            self._door.unmount((_WORKERS,))
        for line in self._lines.values():
            line.cut()

    def close(self) -> None:
        """Accept no further connections, and close the present ones."""
        self.close_workers()
        if self._door is not None:
            self._door.unmount(_PATHS)
        # Clients that watch the job may keep their connections open without end, so they are not waited for.
        for client in self._clients:
            client.transport.abort()

    def send(self, worker: int, message: wire.DriverMessage) -> None:
        """Send a message to a worker, in order; without a connection to it, drop the message."""
        line = self._lines.get(worker)
        if line is None:
            return
        try:
            line.waiting.put_nowait(message)
        except asyncio.QueueFull:
            _log.warning("Worker %d does not read its messages; the driver closes its connection", worker)
            line.cut()

    def beat(self, num_metrics: int, losses_to_step: int) -> None:
        """Send a heartbeat to every worker to which nothing else waits to be sent.

        Args:
            num_metrics: as in `Heartbeat`.
            losses_to_step: as in `Heartbeat`.
        """
        beat = wire.Heartbeat(num_metrics=num_metrics, losses_to_step=losses_to_step, is_waiting=False)
        for line in self._lines.values():
            if line.waiting.empty():
                line.waiting.put_nowait(beat)

    # ------------------------------------------------------------ one connection

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        shown = _read_token(request)
        is_client, worker = tokens.is_same(self._secret, shown), tokens.find_worker(self._secret, shown)
        if not is_client and worker is None:
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "The token is wrong or missing.\n")
        if request.path == "/client" and not is_client:
            return connection.respond(http.HTTPStatus.FORBIDDEN, "The token of a worker cannot command the job.\n")
        if request.path == "/worker" and worker is None and not self._admits_old_workers:
            return connection.respond(http.HTTPStatus.FORBIDDEN, "A worker must give its own token.\n")
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        try:
            if connection.request.path == "/client":
                await self._serve_client(connection)
            else:
                await self._serve_worker(connection)
        except ConnectionClosed:
            pass  # the other side closed it, or we did: `lose` reports both
        except (msgspec.DecodeError, UnicodeError) as error:
            _log.warning("Cannot read a message on %s: %s. The connection is closed", connection.request.path, error)
            await connection.close(1002, "cannot read the message")

    async def _serve_client(self, connection: ServerConnection) -> None:
        self._clients.add(connection)
        try:
            async for frame in connection:
                reply = await self._answer(wire.decode_request(_as_bytes(frame)))
                await connection.send(wire.encode(reply))
        finally:
            self._clients.discard(connection)

    async def _serve_worker(self, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(_HELLO_LIMIT_S):
                hello = wire.decode_worker_message(_as_bytes(await connection.recv()))
        except TimeoutError:
            await connection.close(1002, "the worker did not send Hello in time")
            return
        if not isinstance(hello, wire.Hello):
            await connection.close(1002, "the first message must be Hello")
            return
        number = hello.worker
        assert connection.request is not None
        if tokens.find_worker(self._secret, _read_token(connection.request)) not in (number, None):
            await connection.close(1008, "the token belongs to another worker")
            return
        line = _WorkerConnection(connection)
        older = self._lines.pop(number, None)
        if older is not None:
            older.cut()  # the worker has given the old connection up, because it has connected again
        self._lines[number] = line
        sender = asyncio.create_task(line.send_forever())
        try:
            self._hear(number, hello)
            async for frame in connection:
                if self._lines.get(number) is not line:
                    return  # messages of the old connection were sent before the new Hello
                self._hear(number, wire.decode_worker_message(_as_bytes(frame)))
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sender
            if self._lines.get(number) is line:
                del self._lines[number]
                self._lose(number)


def _read_token(request: Request) -> str:
    shown = request.headers.get("Authorization", "")
    return shown.removeprefix(_BEARER) if shown.startswith(_BEARER) else ""


def _as_bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame
