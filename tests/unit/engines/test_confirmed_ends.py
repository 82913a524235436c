"""What the engine of agents does when it learns that an agent has certainly ended (`AgentsEngine.confirm_end`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.engines.test_agents_engine import Bed, run, take

from legato.core.warm import UNKNOWN_EXIT_CODE
from legato.engines.agents_record import NodeRecord
from legato.engines.base import Exited, Launch, NodeBack, Noted


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 -- the engine has no event for it
        await asyncio.sleep(0.001)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Bed]:
    """An engine with machine a, whose first agent has gone again."""
    bed = Bed(path, ("a",), grows=True, silence_limit_s=1e6)
    await bed.door.open()
    opening = asyncio.create_task(bed.engine.open(1))
    await asyncio.sleep(0)
    async with await bed.join("a", identity="first"):
        await opening
    await until(lambda: bed.engine._nodes["a"].connection is None)
    try:
        yield bed
    finally:
        await bed.engine.detach()
        await bed.door.close()


def test_the_end_of_an_earlier_agent_ends_no_worker_of_the_one_that_came_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as bed:
            events = bed.engine.events()
            assert await take(events, 1) == [NodeBack("a", ("a/0",))]
            bed.now = 6.0
            async with await bed.join("a", identity="second"):
                await until(lambda: bed.engine._nodes["a"].record.identity == "second")
                place = {"directory": str(tmp_path), "log_path": str(tmp_path / "log")}
                await bed.engine.start(Launch(worker=7, slot="a/0", program=(), environment={}, **place))
                bed.engine.confirm_end("a", "its pod has ended", 5.0)
                assert bed.engine._nodes["a"].connection is not None
                assert not bed.engine._events.has(Exited, 7)
                bed.engine.confirm_end("a", "its pod has ended", 6.5)
                _, ended = await take(events, 2)
                assert ended == Exited(7, UNKNOWN_EXIT_CODE, "its pod has ended")

    run(test)


@pytest.mark.parametrize("had_rank_0", [True, False])
def test_the_files_of_an_agent_that_has_ended_are_missed_aloud(tmp_path: Path, had_rank_0: bool) -> None:
    async def test() -> None:
        async with opened(tmp_path) as bed:
            node = bed.engine._nodes["a"]
            node.record.work, node.record.had_rank_0 = "/examples", had_rank_0
            node.record.shifts[7] = 0  # a worker has run there
            bed.engine.confirm_end("a", "its pod has ended", 1.0)
            _, told = await take(bed.engine.events(), 2)
            assert isinstance(told, Noted) and told.is_warning is had_rank_0
            assert "on a in /examples did not come, because its pod has ended. Let programs write on a vol" in told.told

    run(test)


def test_a_machine_whose_end_is_confirmed_while_the_job_leaves_it_is_forgotten_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(tmp_path) as bed:
            leaving = bed.engine._nodes["a"]
            bed.engine.confirm_end("a", "its pod has ended", 1.0)
            bed.engine._forget_node(leaving)
            # The driver has named a slot of it again.
            bed.engine._nodes["a"] = again = bed.engine._new_node(leaving.spec, NodeRecord())
            bed.engine._forget_node(leaving)
            assert bed.engine._nodes == {"a": again}

    run(test)
