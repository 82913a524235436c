"""Legato's client of tasks with the real plugin over gRPC: all requests, drivers that are replaced, giving up."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from grpc import aio
from tests.unit.compat.elasticdl.test_master import open_master

from legato.compat.elasticdl.dataset import Dataset
from legato.compat.elasticdl.task_types import DatasetParams, Standing, Task
from legato.compat.elasticdl.tasks import TaskManager
from legato.compat.elasticdl.tasks_client import TasksClient, TasksUnreachable
from legato.compat.elasticdl.tasks_client_grpc import GrpcTasksClient, connect_tasks
from legato.core.errors import DataError

PARAMS = DatasetParams(name="d", batch_size=2, num_epochs=1, dataset_size=10, shuffle=True, num_minibatches_per_shard=2)


def run(directory: Path, play: Callable[[TasksClient, TasksClient], None]) -> None:
    """Run two workers' clients on another thread, and the plugin on this one."""

    async def act() -> None:
        async with asyncio.timeout(30), open_master(directory) as (master, _, _):
            clients = [connect_tasks(master.variables_of(worker)) for worker in (0, 1)]
            try:
                await asyncio.to_thread(play, *clients)
            finally:
                for client in clients:
                    client.close()

    asyncio.run(act())


def test_all_requests_of_the_client(tmp_path: Path) -> None:
    def play(client: TasksClient, other: TasksClient) -> None:
        assert (client.worker, other.worker) == (0, 1)
        client.report_params(PARAMS)
        assert client.get_dataset_epoch("d") == 0
        task = client.get_task("d")
        assert task is not None
        assert (task.dataset, task.epoch, task.num_records) == ("d", 1, 4)
        client.report_task_result(task.number, "d", error="no luck")
        content = client.get_checkpoint("d")
        assert client.restore_checkpoint(content)
        assert not client.restore_checkpoint("nonsense")
        seen: list[int] = []
        while (task := client.get_task("d")) is not None:
            seen += task.records
            client.report_task_result(task.number, "d")
        assert sorted(seen) == list(range(10))
        assert client.get_dataset_epoch("d") == 1
        client.reset_dataset("d")
        assert client.get_task("d", wait=False) is not None
        assert client.get_task("unknown") is None
        assert not client.worker_sync("point")
        assert not client.wait_worker_sync("point")
        assert other.worker_sync("point")
        client.delete_worker_sync("point")
        assert not client.wait_worker_sync("point")
        assert client.wait_worker_sync("point", notify=True)
        client.delete_all_worker_syncs()
        other.report_training_loop(inside=True)
        client.report_training_loop(inside=True)
        assert client.get_standing() == Standing(rank=1, world_size=2, rendezvous=1)
        other.report_training_loop(inside=False)
        assert client.get_standing() == Standing(rank=0, world_size=1, rendezvous=2)

    run(tmp_path, play)


def test_the_client_computes_the_records_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = TaskManager(seed=0)
    alone.set_workers([0])
    params = msgspec.structs.replace(PARAMS, num_epochs=2, shuffle_shards=True)
    alone.register(params)
    want = []
    while isinstance(task := alone.get(0, "d"), Task):
        want.append(task.records)
        alone.report(task.number)
    # The plugin computes no record numbers, because it runs in the driver's event loop.
    monkeypatch.setattr(Dataset, "_order", only_of_tasks(Dataset._order))
    found = []

    def play(client: TasksClient, _other: TasksClient) -> None:
        client.report_params(params)
        while (task := client.get_task("d")) is not None:
            found.append(task.records)
            client.report_task_result(task.number, "d")

    run(tmp_path, play)
    assert found == want and len(found) == 6


def only_of_tasks(usual: Callable[..., Any]) -> Callable[..., Any]:
    def order(dataset: Dataset, epoch: int, what: int) -> Any:
        assert what == 1, "an order of records"
        return usual(dataset, epoch, what)

    return order


def test_an_invalid_request_is_a_data_error(tmp_path: Path) -> None:
    def play(client: TasksClient, _other: TasksClient) -> None:
        with pytest.raises(DataError, match="data set 'd': dataset_size=0 is below 1"):
            client.report_params(DatasetParams(name="d", batch_size=1, num_epochs=1, dataset_size=0))

    run(tmp_path, play)


def test_a_client_may_ask_for_a_task_without_waiting(tmp_path: Path) -> None:
    def play(client: TasksClient, other: TasksClient) -> None:
        client.report_params(DatasetParams(name="d", batch_size=10, num_epochs=1, dataset_size=10))
        task = other.get_task("d")
        assert task is not None
        assert client.get_task("d", wait=False) is None
        ends: list[object] = []
        waiting = threading.Thread(target=lambda: ends.append(client.get_task("d")))
        waiting.start()
        other.report_task_result(task.number, "d")
        waiting.join()
        assert ends == [None]

    run(tmp_path, play)


def test_the_client_outlasts_a_driver_that_is_replaced(tmp_path: Path) -> None:
    async def act() -> None:
        async with open_master(tmp_path) as (first, _, _):
            client = connect_tasks(first.variables_of(0))
            await asyncio.to_thread(client.report_params, PARAMS)
            other = connect_tasks(first.variables_of(1))
            held = [await asyncio.to_thread(other.get_task, "d") for _ in range(3)]
            waiting = asyncio.create_task(asyncio.to_thread(client.get_task, "d"))
            while not first._changed._waiters:  # noqa: ASYNC110 - until the guest has heard it
                await asyncio.sleep(0.01)
        assert not waiting.done()
        reporting = asyncio.create_task(asyncio.to_thread(other.report_task_result, held[0].number, "d"))
        async with open_master(tmp_path, workers=(0,)):  # worker 1 has died meanwhile
            task = await waiting
            assert task is not None
            assert task.records in [lost.records for lost in held]
            await reporting
        client.close()
        other.close()

    asyncio.run(act())


def test_a_request_without_an_answer_is_repeated_with_the_same_name() -> None:
    heard: list[dict[str, str]] = []

    async def answer(_request: bytes, context: Any) -> bytes:
        heard.append(dict(context.invocation_metadata()))
        if len(heard) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        return b""

    async def act() -> None:
        server = aio.server()
        handlers = {"get_dataset_task": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("proto.Master", handlers)])
        client = GrpcTasksClient(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", 0)
        await server.start()
        for _ in range(2):
            assert await asyncio.to_thread(client.get_task, "d") is None
        client.close()
        await server.stop(None)

    asyncio.run(act())
    first, again, other = [told["legato-ask"] for told in heard]
    assert first == again != other


def test_the_client_gives_up_when_no_driver_has_answered_for_long() -> None:
    client = GrpcTasksClient("127.0.0.1:9", 0, away_limit_s=2.5, clock=itertools.count().__next__)
    with pytest.raises(TasksUnreachable, match=r"has not answered at 127.0.0.1:9 for 2.5 s"):
        client.get_task("d")
    client.close()


def test_closing_the_client_ends_waiting_calls(tmp_path: Path) -> None:
    def play(client: TasksClient, other: TasksClient) -> None:
        client.report_params(DatasetParams(name="d", batch_size=10, num_epochs=1, dataset_size=10))
        assert other.get_task("d") is not None
        ends: list[object] = []

        def wait() -> None:
            try:
                client.get_task("d")
            except TasksUnreachable as error:
                ends.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        client.close()
        waiting.join()
        assert len(ends) == 1
        with pytest.raises(TasksUnreachable, match="was closed"):
            client.get_dataset_epoch("d")

    run(tmp_path, play)


def test_a_forked_process_may_not_use_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = GrpcTasksClient("127.0.0.1:9", 0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(TasksUnreachable, match="Only the process that made"):
        client.get_task("d")
    client.close()


@pytest.mark.parametrize(
    "variables",
    [{}, {"MASTER_ADDR": "h:1"}, {"MASTER_ADDR": "h", "WORKER_ID": "0"}, {"MASTER_ADDR": "h:1", "WORKER_ID": "x"}],
    ids=["none", "number", "port", "word"],
)
def test_without_an_address_there_are_no_tasks(variables: dict[str, str]) -> None:
    with pytest.raises(TasksUnreachable, match="elasticdl train"):
        connect_tasks(variables)
