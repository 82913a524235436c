"""The driver's I/O: a real server and real files, with a made-up machine and workers without torch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import stat
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.driver.players import Orchestra, Player, make_spec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from legato.core import wire
from legato.core.errors import JobNotFound, UsageError
from legato.core.slots import index_of, make_slot
from legato.core.spec import JobSpec
from legato.driver import client
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory, Outcome
from legato.driver.log_marks import MARKS_FILE, Stretch, read_marks
from legato.driver.record import Event
from legato.driver.tokens import make_peer_secret
from legato.engines.base import ignore
from legato.engines.fake import FakeEngine, FakeMachine
from legato.system.hosts import name_this_machine


class Stage:
    """A driver at work with its machine and its players."""

    def __init__(
        self, home: Path, spec: JobSpec, behave: Any = None, engine: Callable[[FakeMachine], FakeEngine] = FakeEngine
    ) -> None:
        self.home = home
        self.engine = engine
        self.spec = spec
        self.orchestra = Orchestra()
        self.machine = FakeMachine(behave or self.orchestra.behave)
        self.directory = JobDirectory.of(spec.name, home)
        self.events: list[Event] = []
        self.driver: Driver
        self.running: asyncio.Task[Outcome]

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_status(self, status: dict[str, Any]) -> None:
        json.dumps(status)

    def raise_curtain(self, *, adopting: bool = False, port: int = 0) -> None:
        self.directory = JobDirectory.of(self.spec.name, self.home)
        spec = None if adopting else self.spec
        self.driver = Driver(spec, self.engine(self.machine), self.directory, observer=self, port=port)
        self.running = asyncio.create_task(self.driver.run())

    async def drop_driver(self) -> None:
        """Let the driver go as a crash does: without a message."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def player(self, worker: int) -> Player:
        return self.orchestra.players[worker]

    async def until_training(self, num_workers: int) -> None:
        def trains() -> bool:
            if self.running.done():
                self.running.result()
            status = self.driver.status() if hasattr(self.driver, "_membership") else {"state": "", "num_workers": 0}
            members = self.orchestra.members()
            settled = status["state"] == "training" and status["num_workers"] == num_workers == len(members)
            return settled and {player.number for player in members} == {status["view"]}

        await self.orchestra.until(trains)

    async def finish(self) -> Outcome:
        for player in self.orchestra.members():
            await player.finish()
        async with asyncio.timeout(10):
            return await self.running


@contextlib.asynccontextmanager
async def raise_stage(
    home: Path, behave: Any = None, engine: Callable[[FakeMachine], FakeEngine] = FakeEngine, **changes: Any
) -> AsyncIterator[Stage]:
    stage = Stage(home, make_spec(**changes), behave, engine)
    stage.raise_curtain()
    try:
        yield stage
    finally:
        stage.running.cancel()
        await asyncio.gather(stage.running, return_exceptions=True)
        lives = list(stage.machine._lives.values())
        for worker in stage.machine.running:
            stage.machine.end(worker, -9)
        await asyncio.gather(*lives, return_exceptions=True)


def test_runs_a_job_to_its_end(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            driver_file = stage.directory.driver_file
            assert stat.S_IMODE(driver_file.stat().st_mode) == 0o600
            for step in (1, 2, 3):
                await stage.orchestra.commit(step)
            await stage.orchestra.until(lambda: stage.driver.status()["step"] == 3)
            assert await stage.finish() == Outcome("succeeded", 0, "the program ran to its end, after 3 of 100 steps")
            assert not driver_file.exists()
            ledger = [json.loads(line) for line in stage.directory.ledger_file.read_text().splitlines()]
            assert [line["step"] for line in ledger] == [1, 2, 3]
            events = [json.loads(line) for line in stage.directory.events_file.read_text().splitlines()]
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert all(event["reason"] for event in events)
            assert [event["level"] for event in events if event["level"] != "info"] == []

    asyncio.run(play())


def test_each_worker_may_have_several_gpus(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, gpus_per_worker=2) as stage:
            await stage.until_training(2)
            wanted = stage.driver.status()["slots"]["wanted"]
            assert [slot.rpartition("/")[2] for slot in wanted] == ["0+1", "2+3"]
            reply = await asyncio.to_thread(client.request, "job-1", wire.ScaleRequest(num_workers=4), tmp_path)
            assert [slot.rpartition("/")[2] for slot in reply.status["slots"]["wanted"]] == ["0+1", "2+3", "4+5", "6+7"]
            await stage.until_training(4)
            # The next driver keeps the slots of every worker.
            await stage.drop_driver()
            stage.raise_curtain(adopting=True)
            await stage.until_training(4)
            assert stage.driver.status()["slots"]["wanted"] == reply.status["slots"]["wanted"]
            await stage.finish()

    asyncio.run(play())


def test_scale_up_and_down(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            reply = await asyncio.to_thread(client.request, "job-1", wire.ScaleRequest(num_workers=4), tmp_path)
            assert reply.error is None
            assert reply.status["num_wanted"] == 4
            await stage.until_training(4)
            reply = await asyncio.to_thread(client.request, "job-1", wire.ScaleRequest(num_workers=1), tmp_path)
            await stage.until_training(1)
            await stage.orchestra.until(lambda: len(stage.machine.running) == 1)
            assert "died" not in stage.kinds()
            reply = await asyncio.to_thread(client.request, "job-1", wire.ScaleRequest(num_workers=9), tmp_path)
            assert reply.error is not None
            assert "to 9 workers: its maximum is 4" in reply.error
            await stage.finish()

    asyncio.run(play())


def test_the_status_tells_what_the_last_planned_change_cost(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, num_workers=1) as stage:
            steps = itertools.count(1)

            async def commit_some() -> float | None:
                for step in itertools.islice(steps, 4):
                    await stage.orchestra.commit(step)
                    await stage.orchestra.until(lambda step=step: stage.driver.status()["step"] == step)  # type: ignore[misc]
                cost: float | None = stage.driver.status()["resize_s"]
                return cost

            await stage.until_training(1)
            assert await commit_some() is None
            stage.driver.scale(2, "to have a change")
            await stage.until_training(2)
            planned = await commit_some()
            assert planned is not None
            stage.machine.slots = 1  # no worker replaces a dead one
            stage.machine.end(1, -9)
            await stage.until_training(1)
            assert await commit_some() == planned, "a death is no resize"
            await stage.finish()

    asyncio.run(play())


def test_it_is_noted_when_logs_grow(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            stage.directory.logs.mkdir(parents=True, exist_ok=True)
            stage.directory.log_path(1).write_text("hello\n")
            marks = stage.directory.logs / MARKS_FILE
            await stage.orchestra.until(marks.exists)
            assert read_marks(marks.read_bytes().splitlines()) == (Stretch(1, 6),)
            await stage.finish()

    asyncio.run(play())


def test_logs_that_are_too_long_are_shortened_while_it_runs_and_at_the_end(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, log_max_bytes=2**16) as stage:
            await stage.until_training(2)
            stage.directory.logs.mkdir(parents=True, exist_ok=True)
            log = stage.directory.log_path(1)
            for _ in range(2):
                with log.open("a") as file:
                    file.write("a line\n" * 100_000)
                if log.stat().st_size < 10**6:
                    await stage.orchestra.until(lambda: log.stat().st_blocks * 512 <= 2**16)
            await stage.finish()
            assert log.stat().st_size == 1_400_000
            assert log.stat().st_blocks * 512 <= 2**16

    asyncio.run(play())


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            stage.machine.end(1, -9)
            await stage.orchestra.until(lambda: 2 in stage.orchestra.players)
            await stage.until_training(2)
            assert [event.worker for event in stage.events if event.kind == "died"] == [1]
            await stage.finish()

    asyncio.run(play())


def test_a_start_that_the_engine_refuses_is_not_tried_again_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, num_workers=1) as stage:
            await stage.until_training(1)
            stage.machine.slots = 1
            stage.driver.scale(2, "to have a start refused")
            await stage.orchestra.until(lambda: "died" in stage.kinds())
            told = [event.reason for event in stage.events if event.kind in ("note", "died")]
            assert (
                f"the engine could not start or stop worker 1: Cannot use slot {make_slot(name_this_machine(), 1)}"
                in told[0]
            )
            assert told[1] == "worker 1 died: exit code 71: no process could be started for it"
            status = stage.driver.status()
            assert status["slots"]["in_use"] == [make_slot(name_this_machine(), 0)], (
                "no worker is started in its place yet"
            )
            stage.machine.slots = 2
            await stage.until_training(2)
            assert sorted(stage.machine.running) == [0, 2], "it was tried again once"
            await stage.finish()

    asyncio.run(play())


@pytest.mark.parametrize("now", [False, True])
def test_a_stop_does_not_wait_for_a_machine_on_which_a_worker_is_to_start(tmp_path: Path, now: bool) -> None:
    class Late(FakeEngine):
        async def device_of(self, slot: str) -> str:
            if index_of(slot) == 1:
                await asyncio.Event().wait()
            return await super().device_of(slot)

    async def play() -> None:
        async with raise_stage(tmp_path, engine=Late, min_workers=1) as stage:
            await stage.orchestra.until(lambda: 1 in stage.driver._devices and len(stage.orchestra.players) == 1)
            stage.driver.stop("the user stops it", now=now)
            await stage.orchestra.until(lambda: not stage.driver._devices)
            for player in stage.orchestra.players.values():
                player.exit(0)
            async with asyncio.timeout(10):
                assert (await stage.running).outcome == "stopped"
            assert 1 not in stage.machine.launches

    asyncio.run(play())


def test_stop_by_request(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await asyncio.to_thread(client.request, "job-1", wire.StopRequest(), tmp_path)
            outcome = await stage.running
            assert (outcome.outcome, outcome.exit_code) == ("stopped", 0)
            assert stage.machine.running == {}
            with pytest.raises(JobNotFound, match="it is not running"):
                await asyncio.to_thread(client.request, "job-1", wire.StatusRequest(), tmp_path)
            assert client.last_status("job-1", tmp_path)["state"] == "stopped"  # type: ignore[index]

    asyncio.run(play())


class SlowToClose(FakeEngine):
    """An engine that brings files when the job ends, until it must stop that."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__(machine)
        self.is_closing = asyncio.Event()
        self.is_abandoned = asyncio.Event()
        self.first_slots: list[str] = []
        self.slots: list[set[str]] = []

    def note_rank_0(self, slot: str) -> None:
        self.first_slots.append(slot)

    def note_slots(self, slots: Collection[str]) -> None:
        self.slots.append(set(slots))

    async def close(self, note: Callable[[str], None] = ignore) -> None:
        if not self.is_closing.is_set():
            self.is_closing.set()
            note("bringing 3 files")
            await self.is_abandoned.wait()
        await super().close()

    def abandon_results(self) -> None:
        self.is_abandoned.set()


def test_a_job_has_not_ended_while_its_files_come_but_needs_no_slots_and_can_be_ended_now(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, engine=SlowToClose) as stage:
            await stage.until_training(2)
            engine = stage.driver._engine
            assert isinstance(engine, SlowToClose)
            wanted = stage.driver.status()["slots"]["wanted"]
            assert engine.slots[-1] == set(wanted) and engine.first_slots == [wanted[0]]
            ending = asyncio.create_task(stage.finish())
            await engine.is_closing.wait()

            async def ask(request: wire.ClientRequest) -> dict[str, Any]:
                reply = await asyncio.to_thread(client.request, "job-1", request, tmp_path)
                return reply.status

            status = await ask(wire.StatusRequest())
            assert (status["outcome"], status["slots"]["wanted"], status["slots"]["in_use"]) == (None, [], [])
            journal = stage.directory.read_journal()
            assert journal is not None and journal.outcome is None
            assert "bringing 3 files" in [event.reason for event in stage.events]
            await ask(wire.StopRequest())
            assert not engine.is_abandoned.is_set(), "an ordinary stop waits for the files"
            await ask(wire.StopRequest(now=True))
            assert (await ending).outcome == "succeeded"

    asyncio.run(play())


def test_who_has_not_the_token_stays_outside(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            where = json.loads(stage.directory.driver_file.read_text())
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(where["url"], additional_headers=headers, proxy=None)
                assert refused.value.response.status_code == 401
            right = {"Authorization": f"Bearer {where['token']}"}
            with pytest.raises(InvalidStatus) as refused:
                await connect(where["url"] + "s", additional_headers=right, proxy=None)
            assert refused.value.response.status_code == 404
            await stage.finish()

    asyncio.run(play())


def test_a_worker_s_token_is_good_for_its_own_place_only(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            where = json.loads(stage.directory.driver_file.read_text())
            own = {"Authorization": f"Bearer {stage.player(1).token}"}
            client_url = where["url"].removesuffix("/worker") + "/client"
            with pytest.raises(InvalidStatus) as refused:
                await connect(client_url, additional_headers=own, proxy=None)
            assert refused.value.response.status_code == 403, "it cannot command the job"
            shared = {"Authorization": f"Bearer {where['token']}"}
            with pytest.raises(InvalidStatus) as refused:
                await connect(where["url"], additional_headers=shared, proxy=None)
            assert refused.value.response.status_code == 403, "clients are no workers"
            async with connect(where["url"], additional_headers=own, proxy=None) as posing:
                hello = wire.Hello(view=1, worker=0, pid=1, host="h", current=None, phase="joining", num_rounds=0)
                await posing.send(wire.encode(hello))
                with pytest.raises(ConnectionClosed) as closed:
                    await posing.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008, "it is the token of another worker"
            assert stage.player(0).num_connections == 1
            assert where["token"] not in stage.directory.address_file.read_text()
            await stage.finish()

    asyncio.run(play())


def test_workers_of_an_earlier_release_are_adopted_with_the_token_they_have(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, heartbeat_limit_s=10.0) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            # As that release left it: it kept one token for all, and its workers look for it in driver.json.
            left = json.loads(stage.directory.journal_file.read_text())
            del left["has_worker_tokens"]
            stage.directory.journal_file.write_text(json.dumps(left))
            stage.directory.address_file.unlink()
            for number in (0, 1):
                stage.player(number).driver_file, stage.player(number).token = stage.directory.driver_file, None
            stage.raise_curtain(adopting=True)
            await stage.until_training(2)
            await stage.orchestra.until(lambda: "adopted" in stage.kinds())
            # The warm parent is of that release too, and so is a worker that it starts now.
            stage.machine.end(0, -9)
            await stage.orchestra.until(lambda: 2 in stage.orchestra.players)
            assert stage.player(2).driver_file == stage.directory.driver_file
            await stage.until_training(2)
            assert (await stage.finish()).outcome == "succeeded"
            assert not json.loads(stage.directory.journal_file.read_text())["has_worker_tokens"]

    asyncio.run(play())


def test_the_newer_of_two_connections_counts(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            player = stage.player(1)
            where = json.loads(stage.directory.driver_file.read_text())
            headers = {"Authorization": f"Bearer {player.token}"}
            async with connect(where["url"], additional_headers=headers, proxy=None) as second:
                hello = wire.Hello(view=1, worker=1, pid=1, host="h", current=player.view, phase="member", num_rounds=0)
                await second.send(wire.encode(hello))
                welcome = wire.decode_driver_message(await second.recv())
                assert isinstance(welcome, wire.Welcome)
                # All workers of the attempt get the same secret, and the job can read no file that has it.
                secret = json.loads(stage.directory.journal_file.read_text())["token"]
                assert welcome.peer_secret == make_peer_secret(secret, 1)
                assert welcome.peer_secret not in stage.directory.address_file.read_text()
                # The driver cut the first; the player comes back and takes over from the second.
                await stage.orchestra.until(lambda: player.num_connections == 2)
            await stage.orchestra.commit(1)
            await stage.orchestra.until(lambda: stage.driver.status()["step"] == 1)
            assert not {"died", "fenced", "recovered"} & set(stage.kinds())
            await stage.finish()

    asyncio.run(play())


def test_a_lost_connection_is_no_death(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            player = stage.player(1)
            assert player.connection is not None
            player.connection.transport.abort()
            await stage.orchestra.until(lambda: player.num_connections == 2)
            await stage.orchestra.commit(1)
            await stage.orchestra.until(lambda: stage.driver.status()["step"] == 1)
            assert not {"died", "fenced", "recovered"} & set(stage.kinds())
            await stage.finish()

    asyncio.run(play())


def test_workers_learn_which_metrics_are_on_disk(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            for index in range(3):
                await stage.player(0).say(wire.Metrics(index=index, step=1, epoch=0, values={"loss": 1.0}))
            await stage.orchestra.until(lambda: stage.player(1).num_metrics_told == 3)
            assert len(stage.directory.metrics_file.read_text().splitlines()) == 3
            await stage.drop_driver()
            stage.player(1).num_metrics_told = 0
            stage.raise_curtain(adopting=True)
            await stage.orchestra.until(lambda: stage.player(1).num_metrics_told == 3)
            await stage.until_training(2)
            await stage.finish()

    asyncio.run(play())


def test_views_use_the_store_that_lives(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            stage.machine.move_store()
            stage.machine.end(1, -9)
            await stage.orchestra.until(lambda: 2 in stage.orchestra.players)
            await stage.until_training(2)
            view = stage.player(2).view
            assert view is not None
            assert view.rendezvous == stage.machine.rendezvous
            await stage.finish()

    asyncio.run(play())


def test_a_silent_worker_is_fenced_and_replaced_when_its_process_is_stopped(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, heartbeat_limit_s=0.4) as stage:
            await stage.until_training(2)

            async def be_silent(message: wire.Message) -> None:
                pass

            stage.player(1).say = be_silent  # type: ignore[method-assign]
            await stage.orchestra.until(lambda: any("is silent for" in event.reason for event in stage.events))
            assert "fenced" not in stage.kinds(), "its process is there"
            stage.machine.hang(1)
            await stage.orchestra.until(lambda: "fenced" in stage.kinds())
            await stage.orchestra.until(lambda: 2 in stage.orchestra.players)
            await stage.until_training(2)
            assert 1 not in stage.machine.running
            await stage.finish()

    asyncio.run(play())


def test_a_new_driver_adopts_the_workers(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path, heartbeat_limit_s=10.0) as stage:  # all of it may be slow
            await stage.until_training(2)
            await stage.orchestra.commit(1)
            first_url = json.loads(stage.directory.driver_file.read_text())["url"]
            await stage.drop_driver()
            assert sorted(stage.machine.running) == [0, 1]
            # Keeps the old port from being drawn again; it does not listen, or workers would wait there for an answer.
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    other.bind(("127.0.0.1", int(first_url.rsplit(":", 1)[1].split("/")[0])))
                stage.raise_curtain(adopting=True)
                await stage.until_training(2)
            # The event is shown after the journal is written.
            await stage.orchestra.until(lambda: "adopted" in stage.kinds())
            assert sorted(stage.machine.running) == [0, 1]
            assert json.loads(stage.directory.driver_file.read_text())["url"] != first_url
            assert stage.driver.status()["view"] == 1
            await stage.orchestra.commit(2)
            assert (await stage.finish()).outcome == "succeeded"
            ledger = [json.loads(line)["step"] for line in stage.directory.ledger_file.read_text().splitlines()]
            assert ledger == [1, 2]

    asyncio.run(play())


def test_an_adopted_job_keeps_its_slots_after_the_host_was_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        monkeypatch.setattr("legato.driver.driver.name_this_machine", lambda: "laptop")
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            monkeypatch.setattr("legato.driver.driver.name_this_machine", lambda: "at-home")
            stage.raise_curtain(adopting=True)
            await stage.until_training(2)
            stage.driver.scale(3, "to see where the third one starts")
            await stage.until_training(3)
            assert stage.driver.status()["slots"]["in_use"] == ["laptop/0", "laptop/1", "laptop/2"]
            await stage.finish()

    asyncio.run(play())


def give_slots(stage: Stage, **options: Any) -> None:
    """Start a driver with slots of two machines; the job has not begun yet."""
    stage.directory = JobDirectory.of(stage.spec.name, stage.home)
    stage.driver = Driver(stage.spec, FakeEngine(stage.machine), stage.directory, node="b", **options)
    stage.running = asyncio.create_task(stage.driver.run())


def test_a_job_uses_available_slots_in_their_order(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.drop_driver()
            give_slots(stage, available=("b/1", "a/0", "b/0"))
            await stage.until_training(2)
            assert stage.driver.status()["slots"]["in_use"] == ["a/0", "b/1"]
            stage.driver.scale(3, "test")
            await stage.until_training(3)
            assert stage.driver.status()["slots"]["available"] == ["b/1", "a/0", "b/0"]
            assert stage.driver.status()["slots"]["in_use"] == ["a/0", "b/0", "b/1"]
            await stage.finish()

    asyncio.run(play())


def test_a_request_may_have_numbers_which_are_slots_of_the_driver_s_machine(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.drop_driver()
            give_slots(stage, slots=("b/1", "a/0"))
            await stage.until_training(2)
            request = wire.AssignRequest(slots=(1, 3), reason="test")
            reply = await asyncio.to_thread(client.request, "job-1", request, tmp_path)
            assert reply.error is None
            assert reply.status["slots"]["wanted"] == ["b/1", "b/3"]
            request = wire.AssignRequest(slots=("gpu-1",), reason="test")
            reply = await asyncio.to_thread(client.request, "job-1", request, tmp_path)
            assert reply.error is not None and "Cannot use 'gpu-1' as a slot" in reply.error
            await stage.until_training(2)
            await stage.finish()

    asyncio.run(play())


def test_a_death_without_a_driver_is_seen_by_the_next(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            stage.machine.end(0, -9)
            stage.raise_curtain()
            await stage.orchestra.until(lambda: 2 in stage.orchestra.players)
            await stage.until_training(2)
            assert stage.player(1).number > 1
            await stage.finish()

    asyncio.run(play())


def test_two_drivers_never_drive_one_job(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            second = Driver(stage.spec, FakeEngine(stage.machine), JobDirectory.of("job-1", tmp_path))
            with pytest.raises(UsageError, match="a job of this name is running"):
                await second.run()
            await stage.finish()

    asyncio.run(play())


def test_a_port_in_use_is_said_clearly(tmp_path: Path) -> None:
    async def play() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            machine = FakeMachine(Orchestra().behave)
            driver = Driver(make_spec(), FakeEngine(machine), JobDirectory.of("job-1", tmp_path), port=port)
            with pytest.raises(UsageError, match=f"{port}: the port is in use"):
                await driver.run()

    asyncio.run(play())


def test_an_unknown_job_is_said_with_those_that_run(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            with pytest.raises(JobNotFound, match=r"no such job on this machine\. .*Known jobs: job-1 \(running\)"):
                client.find_job("job-2", tmp_path)
            await stage.finish()

    asyncio.run(play())


def test_a_full_disk_costs_lines_and_not_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            # In one move: a driver that still has lines to write makes the file again as soon as it is missing.
            full = tmp_path / "full"
            full.symlink_to("/dev/full")
            full.replace(stage.directory.events_file)
            stage.driver.scale(3, "to have something to write")
            await stage.until_training(3)
            assert (await stage.finish()).outcome == "succeeded"

    asyncio.run(play())
    assert "lines lost so far" in caplog.text


def test_a_failing_program_fails_the_job_and_is_shown_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            for worker in (0, 1):
                player = stage.player(worker)
                failed = wire.Failed(view=1, error="ValueError: no", traceback="Traceback …", exit_code=1)
                await player.say(failed)
                player.exit(1)
            outcome = await stage.running
            assert (outcome.outcome, outcome.exit_code) == ("failed", 1)
            assert "ValueError: no" in outcome.reason
            assert [event.detail for event in stage.events if event.detail] == ["Traceback …"]

    asyncio.run(play())


class Distant(FakeEngine):
    """Workers on another machine: their checkpoints come when the test says so."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__(machine)
        self.coming = asyncio.get_running_loop().create_future()

    def is_away(self, _worker: int) -> bool:
        return True

    async def bring(self, _worker: int, _path: str) -> str:
        return await asyncio.shield(self.coming)


def test_a_killed_worker_is_replaced_at_once_and_what_it_saved_counts_when_it_has_come(tmp_path: Path) -> None:
    async def play() -> None:
        engines: list[Distant] = []

        def make_engine(machine: FakeMachine) -> FakeEngine:
            engines.append(Distant(machine))
            return engines[-1]

        async with raise_stage(tmp_path, engine=make_engine) as stage:
            await stage.until_training(2)
            await stage.orchestra.commit(1)
            await stage.player(0).say(wire.Saved(step=1, path="/there/step-1.legato"))
            await stage.orchestra.until(lambda: 0 in stage.driver._arrivals._coming)
            stage.machine.end(0, -9)
            await stage.orchestra.until(lambda: "died" in stage.kinds())
            await stage.until_training(2)
            assert "saved" not in stage.kinds()
            engines[0].coming.set_result("/here/step-1.legato")
            await stage.orchestra.until(lambda: "saved" in stage.kinds())
            assert stage.driver._membership.job.saved_step == 1
            await stage.finish()

    asyncio.run(play())


def test_a_failed_job_says_so_at_once_and_ends_when_its_last_checkpoint_has_come(tmp_path: Path) -> None:
    async def play() -> None:
        engines: list[Distant] = []

        def make_engine(machine: FakeMachine) -> FakeEngine:
            engines.append(Distant(machine))
            return engines[-1]

        async with raise_stage(tmp_path, engine=make_engine, num_workers=1, max_workers=1) as stage:
            await stage.until_training(1)
            await stage.orchestra.commit(1)
            await stage.player(0).say(wire.Saved(step=1, path="/there/step-1.legato"))
            await stage.orchestra.until(lambda: 0 in stage.driver._arrivals._coming)
            stage.machine.end(0, 3)
            await stage.orchestra.until(lambda: "failed" in stage.kinds())
            await stage.orchestra.until(lambda: 0 in stage.driver._arrivals._waiting)
            assert not stage.running.done()
            engines[0].coming.set_result("/here/step-1.legato")
            async with asyncio.timeout(10):
                assert (await stage.running).exit_code == 3

    asyncio.run(play())


def test_a_run_whose_workers_differed_is_marked_until_its_end(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            assert stage.driver.status()["differed_step"] is None
            for worker in (0, 1):
                text = "After step 1 the workers do not hold the same state.\n  buffer mean: rank 0 has 1; rank 1 has 2"
                await stage.player(worker).say(wire.Differed(view=1, step=1, text=text))
            await stage.orchestra.until(lambda: stage.driver.status()["differed_step"] == 1)
            outcome = await stage.finish()
            assert outcome.outcome == "succeeded"
            assert outcome.reason.endswith("; not exact since step 1: its result depends on the workers")
            (told,) = [event for event in stage.events if event.kind == "differed"]
            assert told.level == "warning" and told.detail == "  buffer mean: rank 0 has 1; rank 1 has 2"

    asyncio.run(play())


def test_a_warning_that_several_workers_send_is_shown_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            for worker, level in ((0, "warning"), (1, "warning"), (0, "warning"), (1, "info")):
                await stage.player(worker).say(wire.Note(level=level, text="temperature is 1"))
            await stage.finish()
            told = [(event.worker, event.level) for event in stage.events if event.reason == "temperature is 1"]
            assert len({worker for worker, level in told if level == "warning"}) == 1
            assert (1, "info") in told

    asyncio.run(play())


def test_a_driver_that_did_not_hear_of_a_difference_learns_it_from_the_next_report(tmp_path: Path) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            report = wire.Progress(
                view=1,
                first_step=1,
                last_step=1,
                epoch=0,
                loss=None,
                num_samples=8,
                num_steps=40,
                num_epochs=None,
                differed_step=1,
            )
            await stage.player(0).say(report)
            await stage.orchestra.until(lambda: stage.driver.status()["differed_step"] == 1)
            await stage.finish()
            ended = client.last_status("job-1", tmp_path)
            assert ended is not None and ended["num_steps"] == 40, "an ended job is shown with all its steps"

    asyncio.run(play())


def test_a_program_whose_sources_cannot_be_kept_is_never_run_as_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise PermissionError("a folder cannot be entered")

    async def play() -> None:
        directory = JobDirectory.of("job-1", tmp_path)
        directory.path.mkdir(parents=True)
        directory.program_file.write_text("what an earlier run left")
        monkeypatch.setattr("legato.driver.driver.take_snapshot", fail)
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            assert not directory.program_file.exists()
            await stage.finish()

    asyncio.run(play())


@pytest.mark.parametrize("drops_stop", [False, True])
def test_the_next_driver_completes_the_stop_of_the_last_one_unless_it_drops_it(
    tmp_path: Path, *, drops_stop: bool
) -> None:
    async def play() -> None:
        async with raise_stage(tmp_path) as stage:
            await stage.until_training(2)
            await stage.drop_driver()
            journal = stage.directory.read_journal()
            assert journal is not None and journal.snapshot is not None
            snapshot = msgspec.structs.replace(journal.snapshot, stopping="SIGTERM")
            stage.directory.write_journal(msgspec.structs.replace(journal, snapshot=snapshot))
            driver = stage.driver = Driver(None, FakeEngine(stage.machine), stage.directory, drops_stop=drops_stop)
            stage.running = asyncio.create_task(driver.run())
            if drops_stop:
                await stage.until_training(2)
                await stage.orchestra.commit(1)
                assert driver.status()["state"] == "training"
            else:
                async with asyncio.timeout(10):
                    outcome = await stage.running
                assert (outcome.outcome, outcome.reason) == ("stopped", "SIGTERM")

    asyncio.run(play())
