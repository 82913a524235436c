"""The plugin of ElasticDL: requests over gRPC in the form of each historic client, and a new plugin in its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.compat.elasticdl.raw import RawClient
from tests.unit.driver.players import make_spec

from legato.compat.elasticdl.master import Master
from legato.compat.elasticdl.peers import Pods
from legato.compat.elasticdl.stragglers import LIMIT_S
from legato.core.errors import UsageError
from legato.core.spec import GuestSpec, JobSpec
from legato.driver.plugin import load_plugin

TRAINING, NONE = 1, 0


class Host:
    """Stands for the driver."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.directory = directory
        self.uid = os.geteuid()
        self.spec: JobSpec = make_spec(guest=GuestSpec(entry="x:y", options=options))
        self.told: list[tuple[str, str]] = []
        self.work: list[tuple[bool, int | None]] = []
        self.at_work: list[int] = []

    def slot_of(self, worker: int) -> str | None:
        return f"pod-{worker}/0"

    def tell(self, text: str, level: str = "info") -> None:
        self.told.append((text, level))

    def note_work(self, *, is_left: bool, by: int | None = None) -> None:
        if not self.work or self.work[-1][0] != is_left or by is not None:
            self.work.append((is_left, by))

    def note_taken_up(self, by: int) -> None:
        self.at_work.append(by)

    def give_up(self, worker: int, reason: str) -> None:
        self.told.append((f"worker {worker} {reason}", "given up"))


@contextlib.asynccontextmanager
async def open_master(
    directory: Path, workers: tuple[int, ...] = (0, 1), pods: Pods | None = None, **options: str
) -> AsyncIterator[tuple[Master, Host, RawClient]]:
    host = Host(directory, **options)
    master = Master(host, pods)
    await master.open()
    master.note_workers(frozenset(workers))
    client = RawClient(master.variables_of(0)["MASTER_ADDR"])
    try:
        yield master, host, client
    finally:
        await client.close()
        await master.close()


def run(directory: Path, play: Callable[[Master, Host, RawClient], Awaitable[None]], **how: Any) -> None:
    async def act() -> None:
        async with asyncio.timeout(30), open_master(directory, **how) as (master, host, client):
            await play(master, host, client)

    asyncio.run(act())


def test_workers_find_it_by_the_historic_variables(tmp_path: Path) -> None:
    async def play(master: Master, _host: Host, _client: RawClient) -> None:
        variables = master.variables_of(3)
        host, _, port = variables.pop("MASTER_ADDR").partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert variables == {
            "WORKER_NUM": "4",
            "WORKER_ID": "3",
            "MY_POD_IP": "127.64.0.4",
            "RELAUNCHED_POD": "true",
        }

    run(tmp_path, play)


class PodsHere:
    """Pods that all have the address of this machine, or those of a test."""

    def __init__(self, *addresses: str, port: int = 0) -> None:
        self.address, self.port = "127.0.0.1", port
        self.addresses = addresses

    def address_of(self, slot: str) -> str | None:
        return {"pod-0/0": "10.0.1.1", "pod-1/0": "10.0.1.2"}.get(slot)

    def has(self, address: str) -> bool:
        return address in self.addresses


def test_in_pods_workers_are_known_by_the_addresses_of_their_pods(tmp_path: Path) -> None:
    async def play(master: Master, _host: Host, client: RawClient) -> None:
        assert set(master.variables_of(0)) == {"MASTER_ADDR", "WORKER_NUM", "WORKER_ID"}, "their pods have the rest"
        for address in ("10.0.1.1", "10.0.1.2"):
            await client.ask("report_training_loop_status", {1: address, 2: 1, 4: 3000})
        found = await client.ask("get_comm_rank", {1: "10.0.1.2"})
        assert (found[1], found[2], found[10]) == (1, 2, b"10.0.1.1")
        assert master.find_worker("127.64.0.1") is None

    run(tmp_path, play, pods=PodsHere("127.0.0.1"))


def test_in_pods_only_the_pods_of_the_job_are_answered(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.ask("get_task", {1: 0, 2: TRAINING})
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    run(tmp_path, play, pods=PodsHere("10.0.1.1"))


# ---------------------------------------------------------------- as each historic client asks


def test_as_clients_of_the_head_ask(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        params = {1: 4, 2: 1, 3: 20, 4: True, 6: 2}
        assert await client.ask("report_training_params", params) == {}
        assert await client.ask("report_training_params", {1: 1, 2: 9, 3: 9}) == {}
        seen = []
        for number in (1, 2, 3):
            asked, kind, records = await client.ask_records("get_task", {1: 0, 2: TRAINING})
            assert (asked, kind) == (number, TRAINING)
            seen.append(records)
            assert await client.ask("report_task_result", {1: number}) == {}
        assert [len(records) for records in seen] == [8, 8, 4]
        handed_out = [record for records in seen for record in records]
        assert sorted(handed_out) == list(range(20)) != handed_out
        assert await client.ask_records("get_task", {1: 0, 2: TRAINING}) == (0, NONE, [])

    run(tmp_path, play)


def test_as_clients_of_version_1_ask(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        for name, size in (("left", 10), ("right", 6)):
            assert await client.ask("report_dataset_shard_params", {1: 2, 2: 2, 3: size, 7: name}) == {}
        assert await client.ask("get_dataset_epoch", {1: "left"}) == {}
        first, _, records = await client.ask_records("get_dataset_task", {1: 0, 2: "left"})
        assert records == list(range(10))
        assert await client.ask("get_dataset_epoch", {1: "left"}) == {1: 1}
        assert await client.ask("report_dataset_task_result", {1: first, 2: "no luck", 4: "left"}) == {}
        again, _, records = await client.ask_records("get_dataset_task", {1: 0, 2: "left"})
        assert again != first
        assert records == list(range(10))
        content = json.loads((await client.ask("get_shard_checkpoint", {1: "left"}))[1])
        assert content["doing"] == [[0, 10]]
        assert await client.ask("report_shard_checkpoint", {1: json.dumps(content)}) == {1: 1}
        assert await client.ask("report_shard_checkpoint", {1: "nonsense"}) == {}
        assert (await client.ask_records("get_dataset_task", {1: 0, 2: "left"}))[2] == list(range(10))
        assert await client.ask("reset_dataset", {1: "right"}) == {}
        assert (await client.ask_records("get_dataset_task", {1: 1, 2: "right"}))[2] == list(range(6))
        assert await client.ask_records("get_dataset_task", {1: 1, 2: "unknown"}) == (0, NONE, [])

    run(tmp_path, play)


def test_as_clients_of_version_1_4_ask(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        params = {1: 2, 2: 1, 3: 2**33, 5: True, 6: 3, 7: "_EDL_DEFAULT_EVALUATION_DATA", 8: 2}
        assert await client.ask("report_dataset_shard_params", params) == {}
        number, kind, records = await client.ask_records("get_dataset_task", {1: 0, 2: params[7]})
        assert (number, kind, len(records)) == (1, 2, 6)
        assert max(records) > 2**20
        assert await client.ask("report_training_loop_status", {1: "127.64.0.1", 2: 1, 4: 7001}) == {}
        standing = await client.ask("get_comm_rank", {1: "127.64.0.1"})
        assert standing == {2: 1, 3: 1, 6: 1, 8: 1, 9: 7001, 10: b"127.64.0.1"}
        assert await client.ask("barrier_sync", {1: "127.64.0.1", 3: 1}) == {1: 1}
        assert await client.ask("reset_sync", {1: "127.64.0.1", 3: 7}) == {}
        assert await client.ask("query_training_status") == {1: 1}
        assert await client.ask("acquire_remote_lock", {1: "door", 2: 1}) == {1: 1}
        assert await client.ask("acquire_remote_lock", {1: "door", 2: 1}) == {}
        assert await client.ask("release_remote_lock", {1: "door"}) == {}
        assert await client.ask("acquire_remote_lock", {1: "door", 2: -1}) == {1: 1}

    run(tmp_path, play)


@pytest.mark.parametrize(
    "method",
    [
        "query_relaunch_ps_pod",
        "ready_for_ps_relaunch",
        "update_critical_worker",
        "report_model_metric",
        "report_global_step",
        "get_cluster_version",
        "update_cluster_version",
        "query_ps_address",
        "init_remote_lock",
        "report_used_resource",
    ],
)
def test_what_other_strategies_ask_is_answered_with_nothing(tmp_path: Path, method: str) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        assert await client.ask(method, {1: 3, 2: "x"}) == {}

    run(tmp_path, play)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        with pytest.raises(grpc.RpcError, match="batch_size=0 is below 1"):
            await client.ask("report_training_params", {2: 1, 3: 9})
        with pytest.raises(grpc.RpcError, match="utf-8"):
            await client.ask("reset_dataset", {1: b"\xff"})

    run(tmp_path, play)


def test_any_bytes_are_answered_or_refused(tmp_path: Path) -> None:
    dice = random.Random(6)

    async def play(master: Master, _host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8})
        for method in master._service._handlers():
            for _ in range(20):
                with contextlib.suppress(grpc.RpcError):
                    async with asyncio.timeout(1):
                        await client.ask_bytes(method, dice.randbytes(dice.randrange(1, 12)))
        await client.ask("delete_worker_sync", {2: True})
        assert len((await client.ask_records("get_task", {1: 0, 2: TRAINING}))[2]) == 8

    run(tmp_path, play)


def test_without_grpc_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    for name in ("master", "service"):
        monkeypatch.delitem(sys.modules, f"legato.compat.elasticdl.{name}")
    host = Host(tmp_path)
    spec = make_spec(guest=GuestSpec(entry="legato.compat.elasticdl.master:make_guest"))
    with pytest.raises(UsageError, match=r"pip install legato\[elasticdl\]"):
        load_plugin(spec, host)


# ---------------------------------------------------------------- the end of the data


def test_a_waiting_request_gets_the_task_of_a_worker_that_dies(tmp_path: Path) -> None:
    async def play(master: Master, host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8, 6: 2})
        _, _, records = await client.ask_records("get_task", {1: 1, 2: TRAINING})
        waiting = asyncio.create_task(client.ask_records("get_task", {1: 0, 2: TRAINING}))
        await client.ask("get_dataset_epoch")  # its answer shows that the earlier request was read
        assert not waiting.done()
        master.note_workers(frozenset({0}))
        number, _, again = await waiting
        assert again == records
        assert master.describe_left() is not None
        await client.ask("report_task_result", {1: number})
        assert master.describe_left() is None
        assert host.work == [(False, None), (True, None), (False, None), (False, 0)]
        assert host.at_work == [1, 0], "the worker that got records, and no other before"
        await client.ask("reset_dataset")
        assert master.describe_left() is None

    run(tmp_path, play)


def test_a_waiting_request_gets_the_end_when_all_is_done(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8, 6: 2})
        number, _, _ = await client.ask_records("get_task", {1: 1, 2: TRAINING})
        waiting = asyncio.create_task(client.ask_records("get_task", {1: 0, 2: TRAINING}))
        await client.ask("get_dataset_epoch")
        await client.ask("report_task_result", {1: number})
        assert await waiting == (0, NONE, [])

    run(tmp_path, play)


def test_a_client_that_lost_the_answer_gets_the_same_again(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8, 6: 1})
        first, again, other = [
            await client.ask_records("get_task", {1: 0, 2: TRAINING}, **{"legato-ask": ask}) for ask in "aab"
        ]
        assert first == again != other
        how = {"legato-ask": "c", "legato-waits": "no"}
        assert await client.ask_records("get_task", {1: 1, 2: TRAINING}, **how) == (0, NONE, [])

    run(tmp_path, play)


def test_a_client_in_a_loop_with_others_gets_the_answer_to_leave(tmp_path: Path) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8, 6: 2})
        await client.ask("report_training_loop_status", {1: "127.64.0.1", 2: 1})
        await client.ask_records("get_task", {1: 1, 2: TRAINING})
        assert await client.ask_records("get_task", {1: 0, 2: TRAINING}) == (0, NONE, [])

    run(tmp_path, play)


def test_an_unknown_worker_gets_nothing_and_is_reported_once(tmp_path: Path) -> None:
    async def play(_master: Master, host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8})
        for _ in range(2):
            assert await client.ask_records("get_task", {1: 9, 2: TRAINING}) == (0, NONE, [])
        assert [text for text, _ in host.told] == [
            "a client asks for tasks as worker 9, which does not run: it gets no tasks"
        ]

    run(tmp_path, play)


def test_a_task_that_fails_repeatedly_is_reported_now_and_then(tmp_path: Path) -> None:
    async def play(_master: Master, host: Host, client: RawClient) -> None:
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 8})
        for _ in range(12):
            number, _, _ = await client.ask_records("get_task", {1: 0, 2: TRAINING})
            await client.ask("report_task_result", {1: number, 2: "division by zero"})
        assert [text.partition(" and is handed")[0] for text, _ in host.told] == [
            "task 1 of data set '_EDL_DEFAULT_TRAINING_DATA' failed in worker 0",
            "task 3 of data set '_EDL_DEFAULT_TRAINING_DATA' failed in worker 0 for the 3. time",
            "task 10 of data set '_EDL_DEFAULT_TRAINING_DATA' failed in worker 0 for the 10. time",
        ]

    run(tmp_path, play)


# ---------------------------------------------------------------- ranks, named points


def test_ranks_are_in_the_order_of_coming_and_change_when_all_know(tmp_path: Path) -> None:
    async def play(master: Master, _host: Host, client: RawClient) -> None:
        async def stand(worker: int) -> tuple[int, int, int]:
            answer = await client.ask("get_comm_rank", {1: f"127.64.0.{worker + 1}"})
            return answer.get(1, 0), answer.get(2, 0), answer.get(3, 0)

        async def enter(worker: int, status: int = 1) -> None:
            await client.ask("report_training_loop_status", {1: f"127.64.0.{worker + 1}", 2: status})

        assert await stand(0) == (-1, 0, 0)
        await enter(1)
        await enter(0)
        assert await stand(0) == (1, 2, 1)
        await enter(2)
        assert await stand(0) == (1, 2, 1)  # worker 1 has not asked for its rank in this world yet
        assert await stand(1) == (0, 2, 1)
        assert await stand(2) == (2, 3, 2)
        master.note_workers(frozenset({0, 2}))  # the oldest dies, before all have asked for their ranks
        assert await stand(0) == (0, 2, 3)
        assert await stand(1) == (-1, 0, 0)  # the worker is not known any more
        await enter(0, status=2)
        assert await stand(2) == (0, 1, 4)
        master.note_workers(frozenset({7}))  # all workers are gone, and a new one joins
        await enter(7)
        assert await stand(7) == (0, 1, 5)

    run(tmp_path, play, workers=(0, 1, 2))


def test_workers_wait_for_one_another_at_named_points(tmp_path: Path) -> None:
    async def play(master: Master, _host: Host, client: RawClient) -> None:
        assert await client.ask("worker_sync", {1: "a", 2: 0}) == {}
        assert await client.ask("worker_sync", {1: "a", 2: 1}) == {}
        master.note_workers(frozenset({0, 1, 3}))  # 2 dies; 3 joined later, and nothing waits for it
        assert await client.ask("worker_sync", {1: "a", 2: 0}) == {1: 1}
        assert await client.ask("wait_worker_sync", {1: "b"}) == {}
        await client.ask("wait_worker_sync", {1: "b", 2: True})
        assert await client.ask("wait_worker_sync", {1: "b"}) == {1: 1}
        await client.ask("delete_worker_sync", {1: "b"})
        assert await client.ask("wait_worker_sync", {1: "b"}) == {}
        await client.ask("delete_worker_sync", {2: True})
        assert await client.ask("wait_worker_sync", {1: "a"}) == {}

    run(tmp_path, play, workers=(0, 1, 2))


@pytest.mark.parametrize(
    ("method", "number"),
    [("get_dataset_task", 2), ("worker_sync", 1), ("report_task_result", 2), ("acquire_remote_lock", 1)],
)
def test_requests_that_are_too_large_are_refused(tmp_path: Path, method: str, number: int) -> None:
    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match=r"A request has .* bytes; at most 1048576 are allowed"):
            await client.ask(method, {number: "x" * 2**20})
        # Checkpoints may be larger than other requests.
        assert await client.ask("report_shard_checkpoint", {1: "x" * 2**20}) == {}

    run(tmp_path, play)


def test_long_names_and_too_many_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.compat.elasticdl.service._MAX_NAMES", 2)

    async def play(_master: Master, _host: Host, client: RawClient) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="longer than 1000 characters"):
            await client.ask("reset_dataset", {1: "x" * 1001})
        for name in ("a", "b", "a"):
            await client.ask("worker_sync", {1: name})
            await client.ask("acquire_remote_lock", {1: name, 2: 1})
            await client.ask("release_remote_lock", {1: name})
            await client.ask("report_dataset_shard_params", {1: 2, 2: 1, 3: 20, 7: name})
            await client.ask("wait_worker_sync", {1: name, 2: True})
        for method, more in (
            ("worker_sync", {1: "c"}),
            ("wait_worker_sync", {1: "c", 2: True}),
            ("acquire_remote_lock", {1: "c", 2: 1}),
            ("report_dataset_shard_params", {1: 2, 2: 1, 3: 20, 7: "c"}),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match=r"There are 2 .* already"):
                await client.ask(method, more)

    run(tmp_path, play)


class Hour:
    """The timers of the running loop that end in an hour; the test calls them."""

    def __init__(self) -> None:
        self._due: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
        loop = asyncio.get_running_loop()
        usual = loop.call_later

        def call_later(delay: float, act: Callable[..., None], *words: Any, **how: Any) -> asyncio.TimerHandle:
            handle = usual(delay, act, *words, **how)
            if delay == LIMIT_S:
                self._due.append((handle, lambda: act(*words)))
            return handle

        loop.call_later = call_later  # type: ignore[method-assign,assignment]

    def pass_by(self) -> None:
        due, self._due = self._due, []
        for handle, act in due:
            if not handle.cancelled():
                act()


def given_up(host: Host) -> list[str]:
    return [text for text, level in host.told if level == "given up"]


def test_a_worker_that_lets_others_wait_for_an_hour_is_given_up(tmp_path: Path) -> None:
    async def play(master: Master, host: Host, client: RawClient) -> None:
        hour = Hour()
        # No worker is given up because of a point that was passed, or whose name has a new point now.
        for worker in range(4):
            await client.ask("worker_sync", {1: "passed", 2: worker})
        await client.ask("worker_sync", {1: "told", 2: 0})
        await client.ask("wait_worker_sync", {1: "told", 2: True})
        await client.ask("worker_sync", {1: "forgotten", 2: 0})
        await client.ask("delete_worker_sync", {1: "forgotten"})
        await client.ask("worker_sync", {1: "late", 2: 0})
        await client.ask("worker_sync", {1: "late", 2: 2})
        assert given_up(host) == []
        hour.pass_by()
        want = [f"worker {worker} did not reach 'late' within 3600 s, where others wait for it" for worker in (1, 3)]
        assert given_up(host) == want
        assert await client.ask("wait_worker_sync", {1: "late"}) == {}
        master.note_workers(frozenset({0, 2, 4, 5}))  # new workers have their places; nothing waits for later workers
        assert await client.ask("wait_worker_sync", {1: "late"}) == {1: 1}
        hour.pass_by()
        assert given_up(host) == want

    run(tmp_path, play, workers=(0, 1, 2, 3))


def test_a_new_plugin_gives_up_workers_that_the_last_one_awaited(tmp_path: Path) -> None:
    async def act() -> None:
        async with open_master(tmp_path) as (_, first, client):
            await client.ask("worker_sync", {1: "late", 2: 0})
        hour = Hour()
        async with open_master(tmp_path) as (_, second, _client):
            hour.pass_by()
            assert (len(given_up(first)), len(given_up(second))) == (0, 1)

    asyncio.run(act())


# ---------------------------------------------------------------- a new one in its place


def test_a_new_plugin_continues_where_the_last_one_was_killed(tmp_path: Path) -> None:
    async def act() -> None:
        async with open_master(tmp_path) as (first, _, client):
            address = first.variables_of(0)["MASTER_ADDR"]
            await client.ask("report_dataset_shard_params", {1: 2, 2: 1, 3: 20, 4: True, 6: 2, 7: "d"})
            seen = []
            for _ in range(2):
                number, _, records = await client.ask_records("get_dataset_task", {1: 0, 2: "d"})
                await client.ask("report_dataset_task_result", {1: number, 4: "d"})
                seen += records
            mine, _, my_records = await client.ask_records("get_dataset_task", {1: 0, 2: "d"})
            await client.ask_records("get_dataset_task", {1: 1, 2: "d"})
            await client.ask("worker_sync", {1: "a", 2: 0})
        with (tmp_path / "tasks.jsonl").open("ab") as file:
            file.write(b'{"type":"Get","wor')  # as if the driver was killed in the middle of a line
        async with open_master(tmp_path, workers=(0,)) as (second, host, client):
            assert second.variables_of(0)["MASTER_ADDR"] == address
            assert host.work[0] == (True, None)
            await client.ask("report_dataset_task_result", {1: mine, 4: "d"})
            seen += my_records
            while (answer := await client.ask_records("get_dataset_task", {1: 0, 2: "d"}))[1] == TRAINING:
                assert answer[0] > 1000
                await client.ask("report_dataset_task_result", {1: answer[0], 4: "d"})
                seen += answer[2]
            assert sorted(seen) == list(range(20))
            assert await client.ask("wait_worker_sync", {1: "a"}) == {1: 1}

    asyncio.run(act())


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    async def act() -> None:
        async with open_master(tmp_path) as (first, _, _client):
            port = int(first.variables_of(0)["MASTER_ADDR"].partition(":")[2])
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            async with open_master(tmp_path) as (second, host, client):
                assert not second.variables_of(0)["MASTER_ADDR"].endswith(f":{port}")
                assert [level for _, level in host.told] == ["warning"]
                assert await client.ask("get_dataset_epoch") == {}

    asyncio.run(act())


def test_tasks_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"port":"far"}\n')
    with pytest.raises(UsageError, match="start the job from scratch"):
        asyncio.run(Master(Host(tmp_path)).open())


@pytest.mark.parametrize("said", ["0", "-1", "many", "", "²"])
def test_options_that_are_no_numbers_are_refused(tmp_path: Path, said: str) -> None:
    with pytest.raises(UsageError, match="num_minibatches_per_task="):
        Master(Host(tmp_path, num_minibatches_per_task=said))


def test_the_job_says_how_large_tasks_are_and_how_many_workers_there_are(tmp_path: Path) -> None:
    async def play(master: Master, _host: Host, client: RawClient) -> None:
        assert master.variables_of(0)["WORKER_NUM"] == "9"
        await client.ask("report_training_params", {1: 4, 2: 1, 3: 80})
        assert len((await client.ask_records("get_task", {1: 0, 2: TRAINING}))[2]) == 12

    run(tmp_path, play, num_minibatches_per_task="3", num_workers="9")
