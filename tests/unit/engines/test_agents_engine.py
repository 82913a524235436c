"""What the driver's end of agents reports of machines, with agents that only speak the protocol."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from legato.agent.orders import AgentOrder
from legato.agent.refusing import refuse_job
from legato.core.agent_messages import (
    AGENT_PROTOCOL,
    Acknowledge,
    AgentHello,
    AgentRefused,
    AgentWelcome,
    Beat,
    Closed,
    CloseJob,
    Examine,
    LogBytes,
    Opened,
    OpenJob,
    OpenRefused,
    Outranked,
    StartOne,
    TookLog,
    Vitals,
    WorkerEvent,
    decode_agent_request,
    encode_agent_frame,
)
from legato.core.errors import MachinesRefused, Superseded
from legato.core.exits import EXIT_REFUSED
from legato.core.job_user import JobUser
from legato.engines import agent_node, term_watch
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, AgentsEngine
from legato.engines.agents_record import AgentsRecord, NodeRecord, read_record, write_record
from legato.engines.base import EngineEvent, Exited, Launch, NodeBack, NodeLost, Started, StoreMoved
from legato.engines.term_watch import TERM_LIMIT_S
from legato.system.door import Door
from legato.system.processes import Vital
from legato.system.tls import choose_tls

LIMIT_S = 30.0


class Bed:
    """An engine whose clock the test moves, and a pretended agent for each machine."""

    def __init__(self, path: Path, nodes: tuple[str, ...], *, is_encrypted: bool = False, **options: Any) -> None:
        self.now = 0.0
        self.door = Door(paths=(PATH,), is_encrypted=is_encrypted)
        job = OpenJob(environment={}, directory=str(path))
        specs = [NodeSpec(node, 1) for node in nodes]
        self.engine = AgentsEngine(
            path,
            self.door,
            specs,
            job,
            log_path=lambda worker: path / str(worker),
            **{"clock": lambda: self.now, "beat_every_s": 0.01, **options},
        )

    async def greet(
        self,
        node: str,
        identity: str,
        *,
        switches_users: bool = False,
        runs_as: str = "",
        term: int = 0,
        protocol: int = AGENT_PROTOCOL,
        workers: tuple[int, ...] = (),
    ) -> ClientConnection:
        agent = await connect(
            self.door.url(PATH),
            additional_headers={"Authorization": f"Bearer {self.engine.secret}"},
            proxy=None,
            **choose_tls(self.door.certificate),
        )
        hello = AgentHello(node=node, identity=identity, devices=("cpu",), address="127.0.0.1")
        hello = msgspec.structs.replace(
            hello, switches_users=switches_users, runs_as=runs_as, term=term, protocol=protocol, workers=workers
        )
        await agent.send(encode_agent_frame(hello))
        return agent

    async def join(
        self,
        node: str,
        workers: tuple[int, ...] = (),
        *,
        identity: str | None = None,
        switches_users: bool = False,
        runs_as: str = "",
        address: str = "",
    ) -> ClientConnection:
        agent = await self.greet(node, identity or node, switches_users=switches_users, runs_as=runs_as)
        await agent.send(encode_agent_frame(Opened(rendezvous=f"{address or node}:1", workers=workers)))
        return agent


def make_bed_of_worker_7(path: Path, **options: Any) -> Bed:
    """Return an engine whose earlier driver had a worker on the machine a, under the agent of that name."""
    record = NodeRecord(("cpu",), {7: 4711}, identity="a")
    write_record(path / "agents.json", AgentsRecord("secret", {"a": record}))
    return Bed(path, ("a",), **options)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


async def wait_for_answer(agent: ClientConnection, sent_s: float) -> None:
    while True:
        frame = await agent.recv()
        assert isinstance(frame, bytes)
        if decode_agent_request(frame) == Beat(sent_s=sent_s):
            return


async def confirm_close(agent: ClientConnection) -> None:
    while not isinstance(decode_agent_request(_bytes_of(await agent.recv())), CloseJob):
        pass
    await agent.send(encode_agent_frame(Closed()))


async def take(events: AsyncIterator[EngineEvent], num: int) -> list[EngineEvent]:
    return [await anext(events) for _ in range(num)]


ADDRESSES = {"a": "fd00::1", "b": "10.0.0.2", "c": "10.0.0.3"}


def test_the_store_is_where_most_machines_reach_it(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a", "b", "c"))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        events, agents = bed.engine.events(), []
        for node, address in ADDRESSES.items():
            agents.append(await bed.join(node, address=address))
            assert await anext(events) == NodeBack(node, (f"{node}/0",))
        await opening
        assert await bed.engine.rendezvous() in ("10.0.0.2:1", "10.0.0.3:1"), "a machine with IPv4 may not reach IPv6"
        assert len(agents) == 3
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_the_store_moves_to_machines_of_the_other_family_only_before_there_is_a_view(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",), grows=True)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agents = [await bed.join("a", address=ADDRESSES["a"])]
        await opening
        assert await bed.engine.rendezvous() == "fd00::1:1"
        bed.engine.note_slots(["a/0", "b/0", "c/0"])
        bed.engine.note_rank_0("a/0")
        events = bed.engine.events()
        asked = [asyncio.create_task(bed.engine.device_of(f"{node}/0")) for node in "bc"]
        await asyncio.sleep(0)
        agents += [await bed.join(node, address=ADDRESSES[node]) for node in "bc"]
        await asyncio.gather(*asked)
        assert [type(event) for event in await take(events, 3)] == [NodeBack] * 3
        bed.engine.note_slots(["b/0", "c/0"])
        told = await anext(events)
        assert isinstance(told, StoreMoved) and told.rendezvous in ("10.0.0.2:1", "10.0.0.3:1")
        assert told.reason == "machines of the job have addresses of this family"
        assert len(agents) == 3
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_the_store_moves_before_its_machine_is_lost_and_wherever_a_machine_is_back_first(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a", "b"))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agents = {node: await bed.join(node) for node in ("a", "b")}
        await opening
        events = bed.engine.events()
        assert sorted(map(str, await take(events, 2))) == sorted(map(str, (NodeBack(n, (f"{n}/0",)) for n in "ab")))
        store = await bed.engine.rendezvous()
        first, other = ("a", "b") if store == "a:1" else ("b", "a")

        async def lose(node: str, others: tuple[str, ...] = ()) -> list[EngineEvent]:
            bed.now += 3.0
            for each in others:
                await agents[each].send(encode_agent_frame(Beat(sent_s=bed.now)))
                await wait_for_answer(agents[each], bed.now)
            bed.now += 2.0
            return await take(events, 2 if others else 1)

        told = await lose(first, (other,))
        assert told == [StoreMoved(f"{other}:1"), NodeLost(first, "its agent is silent for 4 s", silent_s=5.0)]
        (lost,) = await lose(other)
        assert isinstance(lost, NodeLost)
        await bed.join(first)
        assert set(await take(events, 2)) == {StoreMoved(f"{first}:1"), NodeBack(first, (f"{first}/0",))}
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_machines_that_are_silent_together_are_lost_together_and_the_store_moves_to_none_of_them(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a", "b", "c"), beat_every_s=1e6)  # so the test alone lets the engine look
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        for node in ("a", "b", "c"):
            await bed.join(node)
        await opening
        await bed.engine.rendezvous()
        events = bed.engine.events()
        await take(events, 3)
        bed.now += 5.0
        for _ in range(10):
            bed.engine._look()
        lost = await take(events, 3)
        assert {event.node: event.silent_s for event in lost if isinstance(event, NodeLost)} == dict.fromkeys(
            "abc", 5.0
        )
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_no_machine_is_lost_because_the_driver_itself_was_paused(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a", "b"), beat_every_s=1e6)  # so the test alone lets the engine look
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agents = [await bed.join(node) for node in ("a", "b")]
        await opening
        bed.now += 100.0
        bed.engine._look()
        assert not any(node.is_lost for node in bed.engine._nodes.values()), "what they sent is not read yet"
        for agent in agents:
            await agent.send(encode_agent_frame(Beat(sent_s=1.0)))
            await wait_for_answer(agent, 1.0)
        for _ in range(10):
            bed.engine._look()
        assert not any(node.is_lost for node in bed.engine._nodes.values())
        bed.now += 5.0
        bed.engine._look()
        assert all(node.is_lost for node in bed.engine._nodes.values()), "they are silent while the driver runs"
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_new_driver_waits_for_agents_of_running_workers_only_as_long_as_these_live(tmp_path: Path) -> None:
    async def test() -> None:
        write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 4711})}))
        bed = Bed(tmp_path, ("a",), grows=True, start_limit_s=1e6, adopt_limit_s=0.05, clock=time.monotonic)
        await bed.door.open()
        await bed.engine.open(2)
        assert await bed.engine.running() == {7: 4711}
        assert await bed.engine.rendezvous() == "", "it is not waited for"
        events = bed.engine.events()
        lost = await anext(events)
        assert isinstance(lost, NodeLost)
        assert re.fullmatch(r"its agent has not connected within \d+\.\d s", lost.reason)
        await bed.join("a")
        assert StoreMoved("a:1") in await take(events, 2)
        starting = asyncio.create_task(bed.engine.start(launch(8, "b/0", tmp_path)))
        await asyncio.sleep(0.1)
        assert not starting.done(), "an agent that is started now has the usual time"
        await bed.join("b")
        await starting
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_another_agent_does_not_end_workers_of_a_machine_before_the_lease_does(tmp_path: Path) -> None:
    async def test() -> None:
        bed = make_bed_of_worker_7(tmp_path, lease_s=100.0)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(2))
        await asyncio.sleep(0)
        other = await bed.join("a", identity="other")
        await other.wait_closed()
        await opening
        events = bed.engine.events()
        told = "another agent has connected for it, and waits until workers of the previous one have ended"
        assert await anext(events) == NodeLost("a", told)
        assert bed.engine.last_running == {7: 4711}
        bed.now += 111.0
        assert await anext(events) == Exited(7, -9, "the machine a was lost, and the lease of its agent is over")
        other = await bed.join("a", identity="other")
        assert await anext(events) == NodeBack("a", ("a/0",))
        found = read_record(tmp_path / "agents.json")
        assert found is not None
        assert found.nodes["a"] == NodeRecord(("cpu",), {}, identity="other")
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_the_lease_is_counted_from_the_last_answered_beat_also_before_an_agent_is_open(tmp_path: Path) -> None:
    async def test() -> None:
        bed = make_bed_of_worker_7(tmp_path, lease_s=100.0, start_limit_s=0.0, beat_every_s=1e6)
        await bed.door.open()
        await bed.engine.open(2)
        events = bed.engine.events()
        assert isinstance(await anext(events), NodeLost)
        bed.now = 90.0
        agent = await bed.greet("a", "a")
        await agent.send(encode_agent_frame(Beat(sent_s=1.0)))
        await wait_for_answer(agent, 1.0)
        bed.now = 190.0
        bed.engine._look()
        assert bed.engine.last_running == {7: 4711}, "the agent's lease runs until 190, and the margin is 10 s"
        bed.now = 201.0
        bed.engine._look()
        assert isinstance(await anext(events), Exited)
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_machine_that_fails_again_and_again_is_used_less_and_less_often(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agent = await bed.join("a")
        await opening
        events = bed.engine.events()
        assert await anext(events) == NodeBack("a", ("a/0",))
        await bed.engine.start(launch(7, "a/0", tmp_path))
        for delay_s in (1.0, 2.0, 4.0):
            await agent.send(encode_agent_frame(OpenRefused(reason="no space left")))
            lost = await anext(events)
            assert isinstance(lost, NodeLost) and (lost.node, lost.reason) == ("a", "no space left")
            bed.now += delay_s - 0.5
            await (await bed.join("a")).wait_closed()
            bed.now += 1.0
            agent = await bed.join("a")
            assert await anext(events) == NodeBack("a", ("a/0",)), "nothing was reported in between"
            if delay_s == 1.0:
                assert await anext(events) == Exited(7, -9, "its end was not seen")
        await agent.send(encode_agent_frame(Beat(sent_s=1.0)))
        while not isinstance(message := await next_request(agent), Beat):
            assert not isinstance(message, StartOne), "what it has failed at is not repeated"
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_machine_has_the_devices_with_which_its_agent_is_open(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agent = await bed.greet("a", "a")
        await agent.send(encode_agent_frame(Opened(rendezvous="a:1", workers=(), devices=("cuda:0",))))
        await opening
        assert await bed.engine.device_of("a/0") == "cuda:0"
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_an_event_is_acknowledged_when_it_is_handled_and_only_to_the_agent_that_counts_so(tmp_path: Path) -> None:
    async def test() -> None:
        write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 1, 8: 2})}))
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(2))
        await asyncio.sleep(0)
        opened, exited = Opened(rendezvous="a:1", workers=(7, 8)), WorkerEvent(number=5, worker=7, exit_code=0)
        agent = await bed.greet("a", "a")
        for said in (opened, exited, exited, Beat(sent_s=1.0)):
            await agent.send(encode_agent_frame(said))
        await opening
        while not isinstance(message := await next_request(agent), Beat):
            assert not isinstance(message, Acknowledge), "no driver has handled it, also not the first copy"
        # The agent begins again, and counts its events from 1.
        await agent.close()
        agent = await bed.greet("a", "a")
        for said in (opened, WorkerEvent(number=1, worker=8, exit_code=0), Beat(sent_s=2.0)):
            await agent.send(encode_agent_frame(said))
        await wait_for_answer(agent, 2.0)
        events = bed.engine.events()
        assert await take(events, 3) == [NodeBack("a", ("a/0",)), Exited(7, 0, ""), Exited(8, 0, "")]
        await agent.send(encode_agent_frame(Beat(sent_s=3.0)))
        while not isinstance(message := await next_request(agent), Beat):
            assert not isinstance(message, Acknowledge), "number 5 would acknowledge number 1 too"
        next_event = asyncio.create_task(anext(events))
        assert await wait_for(agent, Acknowledge) == Acknowledge(number=1)
        await agent.send(encode_agent_frame(msgspec.structs.replace(exited, number=2)))
        assert await wait_for(agent, Acknowledge) == Acknowledge(number=2), "it is handled"
        next_event.cancel()
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_an_agent_says_nothing_of_workers_on_other_machines(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = {"a": NodeRecord(("cpu",), {7: 1}), "b": NodeRecord(("cpu",), {8: 2})}
        write_record(tmp_path / "agents.json", AgentsRecord("secret", nodes))
        bed = Bed(tmp_path, ("a", "b"))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(2))
        await asyncio.sleep(0)
        agents = {"a": await bed.join("a", (7,)), "b": await bed.join("b", (8,))}
        await opening
        events = bed.engine.events()
        await take(events, 2)
        for said in (WorkerEvent(number=1, worker=8, pid=4711), WorkerEvent(number=2, worker=8, exit_code=0)):
            await agents["a"].send(encode_agent_frame(said))
            assert await wait_for(agents["a"], Acknowledge) == Acknowledge(number=said.number), "it goes on"
        assert bed.engine.last_running == {7: 1, 8: 2}
        examining = asyncio.create_task(bed.engine.examine((7, 8)))
        questions = {node: (await wait_for(agents[node], Examine)).question for node in agents}
        for node, worker in (("a", 8), ("a", 7), ("b", 8)):
            found = {7: (node, 1.0), 8: (node, 2.0)}
            await agents[node].send(encode_agent_frame(Vitals(question=questions["ab"[worker - 7]], found=found)))
        assert await examining == {7: Vital("a", 1.0), 8: Vital("b", 2.0)}
        await agents["b"].send(encode_agent_frame(WorkerEvent(number=1, worker=8, exit_code=3)))
        assert await anext(events) == Exited(8, 3, "")
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_of_many_workers_that_have_ended_only_the_last_ones_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_node, "_NUM_ENDED", 3)

    async def test() -> None:
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agent = await bed.join("a")
        await opening
        events = bed.engine.events()
        await anext(events)
        for worker in range(1, 9):
            await bed.engine.start(launch(worker, "a/0", tmp_path))
            await agent.send(encode_agent_frame(WorkerEvent(number=2 * worker, worker=worker, pid=5)))
            assert await anext(events) == Started(worker, 5)
            if worker < 8:
                await agent.send(encode_agent_frame(WorkerEvent(number=2 * worker + 1, worker=worker, exit_code=0)))
                assert await anext(events) == Exited(worker, 0)
        found = read_record(tmp_path / "agents.json")
        assert found is not None
        assert sorted(found.nodes["a"].shifts) == [5, 6, 7, 8]
        assert {worker for _, worker in bed.engine._events._reported} == {5, 6, 7, 8}
        for worker in (4, 7):
            await agent.send(encode_agent_frame(LogBytes(worker=worker, offset=0, data=b"late")))
            assert (await wait_for(agent, TookLog)).num_bytes == 4
        assert not (tmp_path / "4").exists() and (tmp_path / "7").exists()
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def launch(worker: int, slot: str, path: Path) -> Launch:
    return Launch(worker=worker, slot=slot, program=(), environment={}, directory=str(path), log_path=str(path / "log"))


async def next_request(agent: ClientConnection) -> Any:
    frame = await agent.recv()
    assert isinstance(frame, bytes)
    return decode_agent_request(frame)


async def wait_for(agent: ClientConnection, kind: type[Any]) -> Any:
    while not isinstance(found := await next_request(agent), kind):
        pass
    return found


def test_a_further_machine_is_used_when_the_driver_names_a_slot_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",), grows=True)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        await bed.join("a")
        await opening
        events = bed.engine.events()
        assert await anext(events) == NodeBack("a", ("a/0",))
        starting = asyncio.create_task(bed.engine.start(launch(7, "b/0", tmp_path)))
        await asyncio.sleep(0)
        assert not starting.done(), "it waits for the agent"
        agent = await bed.join("b")
        await starting
        assert await anext(events) == NodeBack("b", ("b/0",))
        assert (await wait_for(agent, StartOne)).worker == 7
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_an_agent_that_has_refused_is_asked_again_when_the_driver_names_its_slot_again(tmp_path: Path) -> None:
    async def refuse(bed: Bed) -> ClientConnection:
        agent = await connect(
            bed.door.url(PATH), additional_headers={"Authorization": f"Bearer {bed.engine.secret}"}, proxy=None
        )
        await agent.send(encode_agent_frame(AgentHello(node="b", identity="b", devices=("cpu",), address="127.0.0.1")))
        await wait_for(agent, OpenJob)
        await agent.send(encode_agent_frame(OpenRefused(reason="it has no data")))
        return agent

    async def test() -> None:
        bed = Bed(tmp_path, ("a",), grows=True, silence_limit_s=1000.0)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        await bed.join("a")
        await opening
        events = bed.engine.events()
        await anext(events)
        starting = asyncio.create_task(bed.engine.start(launch(7, "b/0", tmp_path)))
        await asyncio.sleep(0)
        await refuse(bed)
        await starting
        assert isinstance((await take(events, 3))[-1], Exited)
        agent = await refuse(bed)  # it was disconnected, and comes again
        await agent.send(encode_agent_frame(Beat(sent_s=1.0)))
        await wait_for_answer(agent, 1.0)
        bed.now += 60.0
        again = asyncio.create_task(bed.engine.start(launch(8, "b/0", tmp_path)))
        await wait_for(agent, OpenJob)
        await agent.send(encode_agent_frame(Opened(rendezvous="b:1", workers=())))
        await again
        assert NodeBack("b", ("b/0",)) in await take(events, 1)
        assert (await wait_for(agent, StartOne)).worker == 8
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_machine_that_cannot_start_an_agent_tells_the_driver_why(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",), grows=True, is_encrypted=True)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        await bed.join("a")
        await opening
        events = bed.engine.events()
        await anext(events)
        starting = asyncio.create_task(bed.engine.start(launch(7, "b/0", tmp_path)))
        await asyncio.sleep(0)
        urls = ("wss://127.0.0.1:1/agent", bed.door.url(PATH))
        order = AgentOrder(job="j", node="b", urls=urls, token=bed.engine.secret, address="127.0.0.1")
        order = msgspec.structs.replace(order, certificate=bed.door.certificate)
        assert not await refuse_job(msgspec.structs.replace(order, token="wrong"), "the disk is full")
        assert await refuse_job(order, "the disk is full")
        await starting
        told = await take(events, 3)
        assert NodeLost("b", "the disk is full", is_refusal=True) in told
        assert told[-1] == Exited(7, EXIT_REFUSED, "the disk is full")
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_further_machine_without_an_agent_or_whose_agent_refuses_gives_its_slot_back(tmp_path: Path) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",), grows=True)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        await bed.join("a")
        await opening
        events = bed.engine.events()
        await anext(events)
        starting = asyncio.create_task(bed.engine.start(launch(7, "b/0", tmp_path)))
        await asyncio.sleep(0)
        agent = await connect(
            bed.door.url(PATH), additional_headers={"Authorization": f"Bearer {bed.engine.secret}"}, proxy=None
        )
        await agent.send(encode_agent_frame(AgentHello(node="b", identity="b", devices=("cpu",), address="127.0.0.1")))
        await agent.send(encode_agent_frame(OpenRefused(reason="it has no data directory '/data'")))
        await starting
        told = await take(events, 3)
        assert NodeLost("b", "it has no data directory '/data'", is_refusal=True) in told
        assert told[-1] == Exited(7, EXIT_REFUSED, "it has no data directory '/data'")

        slow = asyncio.create_task(bed.engine.start(launch(8, "c/0", tmp_path)))
        await asyncio.sleep(0)
        bed.now += 1000.0
        bed.engine._changed.set()
        await slow
        lost, ended = await take(events, 2)
        assert isinstance(lost, NodeLost) and lost.node == "c"
        assert (
            f"port {bed.door.port} of the driver's machine {platform.node()} (" in lost.reason
            and "driver_ports" in lost.reason
        )
        assert isinstance(ended, Exited) and ended.exit_code == EXIT_REFUSED
        assert "its agent has not connected within 120 s" in ended.reason
        assert bed.engine.last_running == {}
        await bed.engine.detach()
        await bed.door.close()

    run(test)


@pytest.mark.parametrize("difference", [-2, -1, 1, 2])
def test_an_agent_of_a_release_that_is_too_far_away_is_refused_and_a_neighbouring_one_used(
    tmp_path: Path, difference: int
) -> None:
    async def play() -> None:
        bed = Bed(tmp_path, ("a", "b"))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        await bed.join("a")
        agent = await bed.greet("b", "b", protocol=AGENT_PROTOCOL + difference)
        await agent.send(encode_agent_frame(Opened(rendezvous="b:1", workers=())))
        answer = decode_agent_request(_bytes_of(await agent.recv()))
        await opening
        if abs(difference) == 1:
            assert isinstance(answer, AgentWelcome) and bed.engine.slots == ("a/0", "b/0")
        else:
            told = f"its Legato speaks protocol {AGENT_PROTOCOL + difference} with drivers, and this driver"
            assert isinstance(answer, AgentRefused) and answer.reason.startswith(told)
            assert bed.engine.slots == ("a/0",)
        await bed.engine.detach()
        await bed.door.close()

    run(play)


@pytest.mark.parametrize("waits_s", [470.0, 490.0])
def test_a_driver_waits_for_agents_that_import_torch_as_long_as_no_other_machine_can_be_used(
    tmp_path: Path, waits_s: float
) -> None:
    async def play() -> None:
        bed = Bed(tmp_path, ("a", "b"), gather_limit_s=0.0)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        slow = await bed.greet("a", "a")
        assert isinstance(decode_agent_request(_bytes_of(await slow.recv())), AgentWelcome)
        bed.now += waits_s
        other = await bed.greet("b", "b")  # the driver looks at its limits again
        if waits_s > 480:
            closing = [asyncio.create_task(confirm_close(agent)) for agent in (slow, other)]
            with pytest.raises(MachinesRefused, match=r"a: its agent has connected, .* within 490\.0 s: it imports"):
                await opening
            await asyncio.gather(*closing)
        else:
            await slow.send(encode_agent_frame(Opened(rendezvous="a:1", workers=())))
            await opening
            assert "a/0" in bed.engine.slots
        await bed.engine.detach()
        await bed.door.close()

    run(play)


def test_a_driver_does_not_wait_for_an_agent_that_has_gone_while_it_imported_torch(tmp_path: Path) -> None:
    async def play() -> None:
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await asyncio.sleep(0)
        agent = await bed.greet("a", "a")
        assert isinstance(decode_agent_request(_bytes_of(await agent.recv())), AgentWelcome)
        bed.now += 130.0
        await agent.close()
        with pytest.raises(MachinesRefused, match=r"a: its agent has not connected within 130\.0 s"):
            await opening
        await bed.engine.detach()
        await bed.door.close()

    run(play)


@pytest.mark.parametrize("workers", [(7,), ()], ids=["they train", "they have ended"])
def test_a_driver_leads_no_job_whose_workers_an_agent_of_a_distant_release_has(
    tmp_path: Path, workers: tuple[int, ...]
) -> None:
    """A refused agent kills its workers, and these would lose all steps since the last checkpoint."""

    async def play() -> None:
        bed = make_bed_of_worker_7(tmp_path, adopt_limit_s=5.0)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(2))
        await asyncio.sleep(0)
        agent = await bed.greet("a", "a", protocol=AGENT_PROTOCOL + 2, workers=workers)
        if workers:
            with pytest.raises(Superseded, match=r"train on a, .*protocol .*They train on without a driver"):
                await opening
            with pytest.raises(ConnectionClosed):
                await agent.recv()
        else:
            assert isinstance(decode_agent_request(_bytes_of(await agent.recv())), AgentRefused)
            await opening
        await bed.engine.detach()
        await bed.door.close()

    run(play)


@pytest.mark.parametrize("runs_as", ["", "ann"])
def test_an_agent_that_would_run_the_job_as_another_user_is_refused(tmp_path: Path, runs_as: str) -> None:
    """Agents of earlier releases do not know the field that names the user."""
    me = JobUser(uid=os.geteuid(), gid=os.getegid(), name="ann", home="/")

    async def play() -> None:
        bed = Bed(tmp_path, ("a", "b"), user=me, gather_limit_s=0.0, clock=time.monotonic)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(1))
        await _until_open(bed)
        for other in ("", "ben"):
            old = await bed.join("b", runs_as=other)
            refused = decode_agent_request(_bytes_of(await old.recv()))
            assert isinstance(refused, AgentRefused)
            assert refused.reason == (
                "its agent cannot run jobs as the system user 'ann': run this release of 'legato agent' there as root, "
                "or as this user"
            )
        agent = await bed.join("a", switches_users=runs_as == "", runs_as=runs_as)
        received = [decode_agent_request(_bytes_of(await agent.recv())) for _ in range(2)]
        assert isinstance(received[1], OpenJob)
        assert received[1].user == "ann"
        await opening
        assert bed.engine.slots[:1] == ("a/0",)
        await bed.engine.detach()
        await bed.door.close()

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


async def _until_open(bed: Bed) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not bed.engine.is_open:  # noqa: ASYNC110 -- the engine has no event for that
            await asyncio.sleep(0)


def _bytes_of(frame: str | bytes) -> bytes:
    assert isinstance(frame, bytes)
    return frame


def test_a_driver_that_cannot_read_its_term_renews_no_lease_and_one_that_reads_a_higher_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_watch, "_TERM_EVERY_S", 0.01)

    async def test() -> None:
        terms = [3]
        reads = threading.Semaphore(0)

        def read_term() -> int:
            reads.release()
            if not terms:
                raise OSError(5, "the disk does not answer")
            return terms[0]

        async def until_read() -> None:
            while reads.acquire(blocking=False):
                pass
            for _ in range(3):
                await asyncio.to_thread(reads.acquire)

        async def answers(sent_s: float) -> bool:
            for said in (Beat(sent_s=sent_s), LogBytes(worker=7, offset=0, data=b"")):
                await agent.send(encode_agent_frame(said))
            seen = []
            while not any(isinstance(message, TookLog) for message in seen):
                frame = await agent.recv()
                assert isinstance(frame, bytes)
                seen.append(decode_agent_request(frame))
            return Beat(sent_s=sent_s) in seen

        write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 4711})}))
        bed = Bed(tmp_path, ("a",), silence_limit_s=1e6, read_term=read_term)
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(3))
        await asyncio.sleep(0)
        agent = await bed.join("a", workers=(7,))
        await opening
        await until_read()
        assert await answers(1.0)
        terms.clear()
        await until_read()
        bed.now += TERM_LIMIT_S - 0.1
        assert await answers(2.0), "a disk may be slow for a moment"
        bed.now += 0.2
        assert not await answers(3.0)
        terms.append(3)
        await until_read()
        assert await answers(4.0)
        terms[0] = 4
        with pytest.raises(Superseded, match="it has term 4"):
            async for _ in bed.engine.events():
                pass
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_driver_whose_machine_was_suspended_renews_no_lease_before_it_has_read_its_term_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(term_watch, "read_boot_clock", lambda: now)
    monkeypatch.setattr(term_watch, "_TERM_EVERY_S", 1e6)

    async def test() -> None:
        nonlocal now
        has_read = asyncio.Event()
        loop = asyncio.get_running_loop()

        def read_term() -> int:
            loop.call_soon_threadsafe(has_read.set)
            return 1

        bed = Bed(tmp_path, ("a",), clock=None, adopt_limit_s=-1.0, read_term=read_term)
        write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 4711})}))
        await bed.door.open()
        await bed.engine.open(1)
        await has_read.wait()
        while not bed.engine._terms.may_renew():  # noqa: ASYNC110 -- this has no event
            await asyncio.sleep(0)
        now += TERM_LIMIT_S + 0.1  # no other clock runs meanwhile
        assert not bed.engine._terms.may_renew()
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_an_earlier_driver_may_have_renewed_the_lease_of_a_machine_until_it_could_not_read_its_term(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        for read_term, renewed_s in ((None, 0.0), (lambda: 1, TERM_LIMIT_S)):
            write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 4711})}))
            bed = Bed(tmp_path, ("a",), lease_s=100.0, adopt_limit_s=-1.0, read_term=read_term)
            await bed.door.open()
            await bed.engine.open(1)
            assert bed.engine._nodes["a"].lease_ends == pytest.approx(110.0 + renewed_s)
            await bed.engine.detach()
            await bed.door.close()

    run(test)


@pytest.mark.parametrize("said", ["in the first message", "in the answer to its welcome"])
def test_a_driver_stops_when_an_agent_has_seen_a_higher_term(tmp_path: Path, said: str) -> None:
    async def test() -> None:
        bed = Bed(tmp_path, ("a",))
        await bed.door.open()
        opening = asyncio.create_task(bed.engine.open(4))
        await asyncio.sleep(0)
        events = bed.engine.events()
        first = await bed.join("a")
        assert await anext(events) == NodeBack("a", ("a/0",))
        await opening
        await first.send(encode_agent_frame(Outranked(term=4)))  # its own term: a message that came late
        await first.close()
        agent = await bed.greet("a", "a", term=5 if said == "in the first message" else 4)
        if said == "in the answer to its welcome":
            await agent.send(encode_agent_frame(Outranked(term=5)))
        with pytest.raises(Superseded, match="its agents have seen a higher term"):
            [event async for event in events]
        await bed.engine.detach()
        await bed.door.close()

    run(test)


def test_a_driver_that_another_one_has_replaced_does_not_overwrite_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_watch, "_TERM_EVERY_S", 1e6)

    async def test() -> None:
        terms = [1]
        write_record(tmp_path / "agents.json", AgentsRecord("secret", {"a": NodeRecord(("cpu",), {7: 4711})}))
        bed = Bed(tmp_path, ("a",), adopt_limit_s=-1.0, read_term=lambda: terms[0])
        await bed.door.open()
        await bed.engine.open(1)
        terms[0] = 2
        other = AgentsRecord("secret", {"a": NodeRecord(("cpu",), {8: 4712})}, port=1)
        write_record(tmp_path / "agents.json", other)
        # The lease of the lost machine ends, so the earlier driver would remove the worker 7.
        bed.now += 1e6
        with pytest.raises(Superseded, match="it has term 2"):
            async for _ in bed.engine.events():
                pass
        assert read_record(tmp_path / "agents.json") == other
        await bed.engine.detach()
        await bed.door.close()

    run(test)
