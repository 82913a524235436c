"""Checkpoints on their way from another machine: when they count as saved, and what waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.driver.test_membership import job_of, make_training

from legato.core import wire
from legato.core.errors import LegatoError
from legato.driver import arrivals, events
from legato.driver.arrivals import Arrivals
from legato.engines.base import Exited
from legato.engines.fake import FakeEngine, FakeMachine
from legato.engines.incoming import NewerCheckpoint

LIMIT_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- several objects change without an event
        await asyncio.sleep(0.001)


class Distant(FakeEngine):
    """Workers on another machine, whose checkpoints come when the test says so."""

    def __init__(self) -> None:
        super().__init__(FakeMachine())
        self.coming: dict[str, asyncio.Future[str]] = {}
        self.hastened: list[int] = []

    async def bring(self, _worker: int, path: str) -> str:
        self.coming[path] = asyncio.get_running_loop().create_future()
        return await self.coming[path]

    def hasten(self, worker: int) -> None:
        self.hastened.append(worker)


class Bed:
    def __init__(self) -> None:
        self.engine = Distant()
        self.fed: list[events.Event] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.arrivals = Arrivals(self.engine, self.fed.append, self.warnings.append, self.notes.append)

    async def save(self, step: int) -> asyncio.Future[str]:
        path = f"/there/{step}"
        self.arrivals.await_checkpoint(1, wire.Saved(step=step, path=path))
        await until(lambda: path in self.engine.coming)
        return self.engine.coming[path]

    def heard(self) -> list[events.Event]:
        return [event for event in self.fed if not isinstance(event, events.Bringing)]


def run(test: Callable[[Bed], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            bed = Bed()
            await test(bed)
            await bed.arrivals.close()

    asyncio.run(limited())


FINISHED = events.Heard(1, wire.Finished(num_rounds=3, trained=True))
SAVED = events.Heard(1, wire.Saved(step=3, path="/here/3"))


def test_a_checkpoint_counts_as_saved_when_it_is_here_and_the_end_of_its_worker_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "_REMIND_EVERY_S", 0.001)
    monkeypatch.setattr(arrivals, "_TELL_AFTER_S", 0.0)

    async def test(bed: Bed) -> None:
        coming = await bed.save(3)
        beat = events.Heard(1, wire.Heartbeat())
        bed.arrivals.pass_on(1, beat)
        assert bed.fed == [beat], "training does not wait"
        bed.arrivals.pass_on(1, FINISHED)
        bed.arrivals.pass_on(1, Exited(1, 0))
        # A worker repeats what it has saved on each connection.
        bed.arrivals.await_checkpoint(1, wire.Saved(step=3, path="/there/3"))
        await until(lambda: bed.notes != [])
        assert bed.heard() == [beat]
        assert bed.fed[1:] and set(bed.fed[1:]) == {events.Bringing(1)}, "the worker is not late meanwhile"
        assert bed.engine.hastened == [1, 1]
        assert bed.notes == ["waiting until the last checkpoint of worker 1 is on the driver's machine"]
        coming.set_result("/here/3")
        await until(lambda: len(bed.heard()) == 4)
        assert bed.heard()[1:] == [SAVED, FINISHED, Exited(1, 0)]
        bed.arrivals.pass_on(1, beat)
        assert bed.fed[-1] == beat

    run(test)


def test_the_death_and_the_error_of_a_worker_do_not_wait_for_its_checkpoint() -> None:
    async def test(bed: Bed) -> None:
        coming = await bed.save(3)
        failed = events.Heard(1, wire.Failed(error="ValueError", traceback="", exit_code=1))
        for ends in (failed, Exited(1, -9)):
            bed.arrivals.pass_on(1, ends)
            assert bed.fed[-1] == ends, "the others must recover at once"
        assert bed.engine.hastened == [], "they train meanwhile"
        coming.set_result("/here/3")
        await until(lambda: len(bed.fed) == 3)
        assert bed.fed[-1] == SAVED

    run(test)


def test_an_error_after_the_end_of_a_program_keeps_its_place() -> None:
    async def test(bed: Bed) -> None:
        coming = await bed.save(3)
        failed = events.Heard(1, wire.Failed(error="ValueError", traceback="", exit_code=1))
        for ends in (FINISHED, failed, Exited(1, 1)):
            bed.arrivals.pass_on(1, ends)
        assert bed.heard() == []
        coming.set_result("/here/3")
        await until(lambda: len(bed.heard()) == 4)
        assert bed.heard() == [SAVED, FINISHED, failed, Exited(1, 1)]

    run(test)


def test_the_end_of_a_job_waits_only_for_checkpoints_that_are_newer_than_its_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "_REMIND_EVERY_S", 0.001)
    monkeypatch.setattr(arrivals, "_TELL_AFTER_S", 0.0)

    async def test(bed: Bed) -> None:
        coming = await bed.save(3)
        await bed.arrivals.finish(3)
        assert bed.engine.hastened == []
        ending = asyncio.create_task(bed.arrivals.finish(2))
        await until(lambda: bed.notes != [])
        assert bed.engine.hastened == [1] and not ending.done()
        coming.set_exception(LegatoError("it is only on the machine b, which is lost"))
        await ending

    run(test)


def test_a_checkpoint_that_does_not_come_is_reported_and_nothing_waits_for_it_any_more() -> None:
    async def test(bed: Bed) -> None:
        coming = await bed.save(3)
        bed.arrivals.pass_on(1, FINISHED)
        coming.set_exception(LegatoError("it is only on the machine b, which is lost"))
        await until(lambda: bed.heard() != [])
        assert bed.heard() == [FINISHED]
        assert bed.warnings == ["3 does not count as saved: it is only on the machine b, which is lost"]

    run(test)


def test_skipped_checkpoints_are_reported_but_not_each() -> None:
    async def test(bed: Bed) -> None:
        for step in range(10):
            (await bed.save(step)).set_exception(NewerCheckpoint("a newer one was saved"))
        await until(lambda: not bed.arrivals._coming)
        assert len(bed.warnings) == 4
        assert "So far that was so of 8 checkpoints" in bed.warnings[-1]

    run(test)


def test_a_job_that_is_stopped_at_once_waits_for_no_checkpoint() -> None:
    async def test(bed: Bed) -> None:
        await bed.save(3)
        bed.arrivals.pass_on(1, FINISHED)
        ending = asyncio.create_task(bed.arrivals.finish(-1))
        await asyncio.sleep(0)
        bed.arrivals.give_up()
        assert bed.heard() == [FINISHED]
        await ending
        await asyncio.sleep(0)
        assert bed.warnings == []

    run(test)


def test_a_job_that_stops_has_the_time_that_its_last_checkpoint_needs() -> None:
    world = make_training(num_workers=2)
    world.feed(events.StopAsked(False, "test"))
    for body in world.bodies.values():
        body.doing = "deaf"
    for _ in range(40):
        world.calm(3)
        for number in world.bodies:
            world.feed(events.Bringing(number))
    assert not world.ends, "120 s, twice as long as a stop may take"
    assert all(worker.phase != "fenced" for worker in job_of(world).workers.values())
    world.calm(10)
    assert world.ends[0].outcome == "stopped"
