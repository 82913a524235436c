"""What jobs and machines use, as the server answers it: series with gaps, the newest values, sums for Prometheus."""

from __future__ import annotations

import asyncio
import math
import random
import re
from typing import Any

import msgspec
import pytest
from tests.unit.server.platform import NOW, Platform, check_problem
from tests.unit.server.test_agents import (
    declare,
    find_node,
    join,
    make_token,
    report,
)

from legato.core.system_metrics import GpuMetrics, MachineMetrics, SystemLine, SystemSample, WorkerLine
from legato.driver.journal import JobDirectory
from legato.server import node_samples
from legato.server.machine import Declaration
from legato.server.node_samples import NodeSamples, measure_own
from legato.server.system_series import make_series


@pytest.fixture
def declared(platform: Platform) -> Declaration:
    """The declaration of the server's machine, which has one slot."""
    return Declaration(platform.store, "node", ("cpu",))


GPU = GpuMetrics(device="GPU-a", name="H100", slots=(0,), busy=0.25, memory_bytes=10, total_bytes=80)
MACHINE = MachineMetrics(cpus=3.0, num_cpus=16, memory_bytes=100, total_bytes=1000, gpus=(GPU,))


def line(time: float, *workers: int, cpus: float = 1.0, node: bool = True) -> SystemLine:
    return SystemLine(
        time=time,
        span_s=10.0,
        workers={number: WorkerLine(slot=f"a/{number}", cpus=cpus, data_wait=0.5) for number in workers},
        nodes={"a": MACHINE} if node else {},
    )


def write(platform: Platform, job: str, *lines: SystemLine) -> None:
    JobDirectory(platform.directory(job)).system_file.write_bytes(
        b"".join(msgspec.json.encode(one) + b"\n" for one in lines)
    )


def test_series_have_gaps_where_nothing_was_measured() -> None:
    found = make_series([line(10, 1), line(20, 1, 2), line(100, 1, 2), line(110, 2, node=False)], None, 100)
    one, two = found.workers
    assert (one.worker, one.slot) == (1, "a/1")
    assert one.time == (10, 20, 90, 100) and one.cpus == (1.0, 1.0, None, 1.0)
    assert one.data_wait == (0.5, 0.5, None, 0.5) and one.memory_bytes == (None,) * 4
    assert two.time == (20, 90, 100, 110) and two.cpus == (1.0, None, 1.0, 1.0)
    (node,) = found.nodes
    assert (node.node, node.num_cpus, node.total_bytes) == ("a", 16, 1000)
    assert node.time == (10, 20, 90, 100) and node.cpus == (3.0, 3.0, None, 3.0)
    assert node.gpus[0].busy == (0.25, 0.25, None, 0.25) and node.gpus[0].slots == (0,)


def test_too_many_points_are_averaged_but_not_over_a_gap() -> None:
    lines = [line(10 * number, 1, cpus=float(number)) for number in (1, 2, 3, 4, 101, 102, 103, 104)]
    (worker,) = make_series(lines, None, 4).workers
    assert worker.time == (20, 40, 1000, 1020, 1040)
    assert worker.cpus == (1.5, 3.5, None, 101.5, 103.5)
    (worker,) = make_series([lines[0], lines[3], lines[4], lines[7]], None, 2).workers
    assert worker.time == (1010, 1030, 1040), "lines that cannot be averaged: the newest"
    (worker,) = make_series(lines, 1015.0, 100).workers
    assert worker.time == (1020, 1030, 1040)


def test_a_job_cannot_ask_for_any_number_of_series() -> None:
    # A job can write the file. Each line has other GPUs and other workers.
    lines = []
    for number in range(40):
        gpus = tuple(msgspec.structs.replace(GPU, device=f"GPU-{number}-{other}") for other in range(256))
        workers = {1000 * number + other: WorkerLine(slot="a/0", cpus=1.0) for other in range(1000)}
        nodes = {"a": msgspec.structs.replace(MACHINE, gpus=gpus)}
        lines.append(SystemLine(time=10.0 * number, span_s=10.0, workers=workers, nodes=nodes))
    found = make_series(lines, None, 100)
    assert len(found.workers) == 10_000
    assert [gpu.device for gpu in found.nodes[0].gpus] == [f"GPU-0-{other}" for other in range(256)]
    assert found.nodes[0].gpus[0].busy == (0.25, *[None] * 39)


def test_times_of_a_series_grow_also_after_a_clock_was_set_back() -> None:
    lines = [line(10 * number, 1) for number in range(1, 100)] + [line(10 * number + 3, 1) for number in range(50, 200)]
    lines.append(line(990, 1, cpus=2.0))
    for num_points in (1000, 10):
        (worker,) = make_series(lines, None, num_points).workers
        assert list(worker.time) == sorted(worker.time) and worker.time[-1] == 1993


def test_users_see_what_their_jobs_use(platform: Platform) -> None:
    job = platform.submit()
    nothing: dict[str, Any] = {"workers": [], "nodes": []}
    assert platform.get(f"jobs/{job}/system-metrics") == nothing
    write(platform, job, line(10, 1), line(20, 1))
    told = platform.get(f"jobs/{job}/system-metrics?since=15")
    assert told["workers"][0]["cpus"] == [1.0] and told["nodes"][0]["gpus"][0]["busy"] == [0.25]
    check_problem(platform.ask("GET", "jobs/j-00000000gone/system-metrics"), 404, "not-found", "")
    assert platform.ask("GET", f"jobs/{job}/system-metrics?points=1").status_code == 422


def test_agents_report_what_their_machines_use(platform: Platform, declared: Declaration) -> None:
    declare(platform, declared)
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    assert report(platform, secret).json()["takes_metrics"] is True
    assert find_node(platform)["metrics"] is None
    assert platform.get("nodes/b/system-metrics") == {"workers": [], "nodes": []}
    assert report(platform, secret, metrics=msgspec.to_builtins(MACHINE)).status_code == 200
    assert msgspec.convert(find_node(platform)["metrics"], MachineMetrics) == MACHINE
    assert platform.get("nodes/b/system-metrics")["nodes"][0]["memory_bytes"] == [100]
    check_problem(platform.ask("GET", "nodes/nowhere/system-metrics"), 404, "not-found", "no node 'nowhere'")
    text = re.sub(r"^# .*$", "", platform.ask("GET", "/metrics", who=None).text, flags=re.MULTILINE)
    for want in (
        "legato_measured_machines 1.0",
        'legato_cpus{state="busy"} 3.0',
        'legato_memory_bytes{state="all"} 1000.0',
        'legato_gpus{state="busy"} 0.25',
        'legato_gpu_memory_bytes{state="used"} 10.0',
    ):
        assert want in text.splitlines(), text
    platform.now += 60
    assert find_node(platform)["metrics"] is None, "it is old"


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpus": -1.0},
        {"cpus": math.nan},
        {"cpus": "many"},
        {"memory_bytes": 2**50 + 1},
        {"memory_bytes": 2**70},
        {"gpus": [{"device": "GPU-a"}]},
        {"gpus": [msgspec.to_builtins(GPU) | {"slots": [1024]}]},
        {"gpus": [msgspec.to_builtins(GPU) | {"slots": [0] * 65}]},
        {"gpus": [msgspec.to_builtins(GPU) | {"slots": [1023] * 64}] * 256},
        {"cpus": None},
    ],
)
def test_impossible_metrics_are_left_out_of_a_report(
    platform: Platform, declared: Declaration, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    declare(platform, declared)
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    answer = report(platform, secret, metrics=msgspec.to_builtins(MACHINE) | wrong)
    assert answer.status_code == 200, answer.text
    assert find_node(platform)["metrics"] is None and find_node(platform)["agent"]["state"] == "ready"
    assert "The metrics of machine 'b' are left out" in caplog.text


def test_machines_keep_an_hour_of_half_minutes() -> None:
    samples = NodeSamples()
    for number in range(1000):
        busy = msgspec.structs.replace(MACHINE, cpus=float(number % 3))
        samples.note("a", busy, NOW + 10.0 * number)
    lines = samples.lines("a")
    assert len(lines) == 120 and lines[-1].time == NOW + 9990.0
    assert {one.span_s for one in lines} <= {30.0, 10.0, 20.0} and lines[0].nodes["a"].cpus == pytest.approx(1.0)
    samples.note("b", MACHINE, NOW + 20_000.0)
    assert samples.lines("a") == () and list(samples.newest(NOW + 20_001.0)) == ["b"], "a machine that is gone"


def test_a_clock_that_is_set_back_gives_no_impossible_averages() -> None:
    chance = random.Random(1)
    for _ in range(200):
        samples, now, back_s = NodeSamples(), NOW, 0.0
        for number in range(30):
            now += 10 + chance.random() / 50
            back_s = chance.uniform(1, 60) if number == 15 else back_s
            samples.note("a", msgspec.structs.replace(MACHINE, cpus=chance.uniform(1, 8)), now - back_s)
            samples.note("a", msgspec.structs.replace(MACHINE, cpus=chance.uniform(1, 8)), now - back_s)
        assert all(1 <= found.nodes["a"].cpus <= 8 and found.span_s > 0 for found in samples.lines("a"))


def test_the_server_goes_on_when_its_own_machine_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_samples, "MEASURE_EVERY_S", 0.0)
    monkeypatch.setattr(node_samples.SystemMeter, "measure", lambda *_: SystemSample(machine=MACHINE))
    times = iter([ZeroDivisionError("odd"), NOW, asyncio.CancelledError()])

    def now() -> float:
        moment = next(times)
        if isinstance(moment, BaseException):
            raise moment
        return moment

    async def check() -> None:
        samples = NodeSamples()
        measuring = asyncio.create_task(measure_own(samples, "a", (), now))
        await asyncio.wait({measuring})
        assert measuring.cancelled() and list(samples.newest(NOW)) == ["a"]

    asyncio.run(check())
