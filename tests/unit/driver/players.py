"""Fake workers: plain websocket clients that keep the protocol's rules, without torch. They commit steps on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from legato.core import wire
from legato.core.spec import JobSpec
from legato.core.view import View
from legato.engines.base import Launch

FINGERPRINT = {"model": "m1", "data": "d1"}


def make_spec(**changes: Any) -> JobSpec:
    values: dict[str, Any] = {
        "name": "job-1",
        "program": ("train.py",),
        "directory": "/",
        "max_workers": 4,
        "num_workers": 2,
        "heartbeat_interval_s": 0.05,
        "heartbeat_limit_s": 1.0,
        "join_patience_s": 0.02,
        "form_patience_s": 5.0,
        "broken_patience_s": 0.1,
    }
    return JobSpec(**{**values, **changes})


class Orchestra:
    """All players of a job: what the in-band votes of real workers would decide, decided in one place."""

    def __init__(self) -> None:
        self.players: dict[int, Player] = {}
        self.change = asyncio.Condition()

    async def behave(self, launch: Launch) -> int:
        player = Player(self, launch)
        self.players[launch.worker] = player
        return await player.live()

    async def until(self, test: Callable[[], bool], limit_s: float = 10.0) -> None:
        async with asyncio.timeout(limit_s):
            while not test():  # noqa: ASYNC110 - the condition is in several objects, some of them not ours
                await asyncio.sleep(0.005)

    def members(self) -> list[Player]:
        return [player for player in self.players.values() if player.alive and player.phase == "member"]

    async def commit(self, step: int) -> None:
        """Commit one step in all members; switch to a view that all incumbents have prepared."""
        for player in self.members():
            await player.say(
                wire.Progress(
                    view=player.number,
                    first_step=step,
                    last_step=step,
                    epoch=0,
                    loss=1.0 / step,
                    num_samples=8,
                    num_steps=100,
                    num_epochs=1,
                )
            )
        await self.maybe_switch()

    async def maybe_switch(self) -> None:
        for proposed in {p.proposed.number: p.proposed for p in self.members() if p.proposed is not None}.values():
            incumbents = [p for p in self.members() if p.number < proposed.number]
            joiners = [self.players[n] for n in proposed.workers if self.players[n].phase == "warm"]
            ready = all(p.proposed is not None and p.proposed.number == proposed.number for p in incumbents + joiners)
            if incumbents and ready:
                for player in incumbents:
                    await player.switch(proposed)
                for player in joiners:
                    await player.switch(proposed)


class Player:
    """One worker."""

    def __init__(self, orchestra: Orchestra, launch: Launch) -> None:
        self.orchestra = orchestra
        self.worker = launch.worker
        self.driver_file = Path(launch.environment["LEGATO_DRIVER_FILE"])
        self.token = launch.environment.get("LEGATO_WORKER_TOKEN")
        self.phase = "joining"
        self.view: View | None = None
        self.proposed: View | None = None
        self.heard: list[wire.DriverMessage] = []
        self.connection: ClientConnection | None = None
        self.num_connections = 0
        self.num_metrics_told = 0
        self.alive = True
        self.term = 0  # the highest that it has seen
        self.protocol = wire.PROTOCOL
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def number(self) -> int:
        return self.view.number if self.view else 0

    def heard_of(self, kind: type) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    async def live(self) -> int:
        listening = asyncio.create_task(self._connect_forever())
        try:
            return await self.exit_code
        finally:
            self.alive = False
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            if self.connection is not None:
                await self.connection.close()

    def exit(self, code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(code)

    async def say(self, message: wire.Message) -> None:
        if self.connection is not None:
            with contextlib.suppress(ConnectionClosed):
                await self.connection.send(wire.encode(message))

    async def switch(self, view: View) -> None:
        self.proposed = None
        if self.worker not in view.workers:
            await self.say(wire.Leaving(view=self.number, num_rounds=0, reason="shrunk"))
            self.exit(0)
            return
        self.view = view
        self.phase = "member"
        await self.say(wire.Joined(view=view.number, num_rounds=0, pause_s=0.0))

    async def finish(self, code: int = 0) -> None:
        self.phase = "finished"
        await self.say(wire.Finished(view=self.number, num_rounds=0, trained=True))
        self.exit(code)

    async def _connect_forever(self) -> None:
        while True:
            try:
                where = json.loads(self.driver_file.read_text())
                headers = {"Authorization": f"Bearer {self.token or where['token']}"}
                async with connect(
                    where["url"], additional_headers=headers, compression=None, proxy=None
                ) as connection:
                    await self._serve(connection)
            except (OSError, ValueError, ConnectionClosed, InvalidStatus):
                pass
            self.connection = None
            await asyncio.sleep(0.02)

    async def _serve(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.num_connections += 1
        hello = wire.Hello(
            view=self.number,
            worker=self.worker,
            pid=1,
            host="127.0.0.1",
            current=self.view,
            phase=self.phase,
            num_rounds=0,
            term=self.term,
            protocol=self.protocol,
        )
        await self.say(hello)
        async for frame in connection:
            assert isinstance(frame, bytes)
            message = wire.decode_driver_message(frame)
            if isinstance(message, wire.Heartbeat):
                self.num_metrics_told = message.num_metrics
                await self.say(wire.Heartbeat(view=self.number))
                continue
            self.heard.append(message)
            await self._hear(message)

    async def _hear(self, message: wire.DriverMessage) -> None:
        if isinstance(message, wire.Welcome):
            self.term = max(self.term, message.term)
        match message:
            case wire.Welcome() if self.phase == "joining":
                self.phase = "warm"
                await self.say(wire.Warm(fingerprint=FINGERPRINT))
            case wire.Prepare(proposed=view) if view.number > self.number:
                self.proposed = view
                await self.say(wire.Prepared(view=self.number, prepared=view.number))
                await self.orchestra.maybe_switch()
            case wire.Recover(proposed=view) if view.number > self.number:
                if self.worker in view.workers:
                    await self.switch(view)
                elif self.phase == "member":
                    await self.say(wire.Leaving(view=self.number, num_rounds=0, reason="superseded"))
                    self.exit(0)
            case wire.Stop():
                await self.say(wire.Leaving(view=self.number, num_rounds=0, reason="stopped"))
                self.exit(0)
            case wire.Refused():
                self.exit(75)
            case _:
                pass
