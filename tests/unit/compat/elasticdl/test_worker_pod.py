"""What runs in a worker's pod before it has a job, and how it ends: the order of the master, GPUs, SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import msgspec
import pytest

from legato.agent.agent import Agent
from legato.agent.orders import AgentOrder, read_agent_order
from legato.compat.elasticdl import worker_pod
from legato.compat.elasticdl.manifests import NO_ORDER

LIMIT_S = 30.0
# Port 9 is the discard service, which does not run.
ORDER = AgentOrder(job="mnist", node="w-0", urls=("wss://127.0.0.1:9/agent",), token="s3cret", address="127.0.0.1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the agent of pod w-0."""
    monkeypatch.setattr(worker_pod, "_PLACE", tmp_path)
    monkeypatch.setattr(worker_pod, "_TERMINATION_LOG", tmp_path / "termination-log")
    return worker_pod.find_folder("w-0")


def test_the_order_of_the_master_is_kept_where_only_the_agent_reads_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/jobs/tmp")  # a volume that all pods share
    assert worker_pod.find_folder("w-0") == folder != worker_pod.find_folder("w-1")
    assert worker_pod.take_order("w-0", msgspec.json.encode(ORDER) + b"\n") == 0
    assert read_agent_order(folder) == ORDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_next_container_of_a_pod_uses_nothing_of_the_earlier_one_even_if_tmp_is_a_volume(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Otherwise the master would count workers as ended that run in a container whose start it has not seen.
    assert worker_pod.take_order("w-0", msgspec.json.encode(ORDER)) == 0
    other = worker_pod.find_folder("w-0-1")
    other.mkdir()
    monkeypatch.setattr(worker_pod, "start_time_of", lambda _: 12345)
    monkeypatch.setattr(worker_pod, "_ORDER_LIMIT_S", 0.0)
    assert worker_pod.main(["--pod", "w-0"]) == 0
    assert "waited 0 s for its master" in caplog.text
    assert not folder.exists() and other.exists()
    # An order that comes before the agent looks for it is of this container.
    assert worker_pod.take_order("w-0", msgspec.json.encode(ORDER)) == 0
    worker_pod.remove_earlier("w-0")
    assert read_agent_order(worker_pod.find_folder("w-0")) == ORDER


def test_what_is_no_order_for_this_pod_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = (msgspec.json.encode(msgspec.structs.replace(ORDER, node=node)) for node in ("../x", "w-1"))
    for line in (b"", b"{}\n", *others):
        assert worker_pod.take_order("w-0", line) == 1
        assert "Cannot take the order of the master" in capsys.readouterr().err
    assert not folder.exists()


def test_a_pod_that_must_have_a_gpu_does_not_train_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_pod, "find_devices", lambda: ())
    assert worker_pod.main(["--pod", "w-0", "--gpus", "1"]) == 2
    assert "This pod must have 1 GPU, and Legato finds 0" in caplog.text


@pytest.mark.parametrize("has_order", [False, True])
def test_a_pod_without_a_worker_ends_at_once(folder: Path, has_order: bool) -> None:
    if has_order:
        worker_pod.take_order("w-0", msgspec.json.encode(ORDER))

    async def act() -> int:
        serving = asyncio.create_task(worker_pod.serve(folder))
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        return await serving

    assert asyncio.run(asyncio.wait_for(act(), LIMIT_S)) == 0


def test_a_pod_that_gets_no_order_ends_and_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pod, "_ORDER_LIMIT_S", 0.0)
    assert asyncio.run(asyncio.wait_for(worker_pod.serve(folder), LIMIT_S)) == 0, "so that Kubernetes starts no other"
    assert (tmp_path / "termination-log").read_text() == NO_ORDER


def test_a_pod_stays_until_its_worker_has_left(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(worker_pod, "_LOOK_EVERY_S", 0.001)
    left = asyncio.Event()
    monkeypatch.setattr(Agent, "has_workers", property(lambda _: not left.is_set()))

    async def act() -> None:
        worker_pod.take_order("w-0", msgspec.json.encode(ORDER))
        leaving = asyncio.Event()
        waiting = asyncio.create_task(worker_pod._wait_until_free(Agent(folder), leaving))
        leaving.set()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        left.set()
        await waiting

    asyncio.run(asyncio.wait_for(act(), LIMIT_S))
