"""What a status tells of the training: how far, how fast, what was logged last."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path

import msgspec
import pytest

from legato.core.spec import JobSpec
from legato.core.system_metrics import (
    MAX_GPUS,
    GpuMetrics,
    MachineMetrics,
    SystemSample,
    WorkerLine,
    WorkerMetrics,
)
from legato.core.view import Member, View
from legato.core.wire import Metrics, Progress, Reply, encode
from legato.driver.data_waits import DataWaits
from legato.driver.job import JobFacts, Worker
from legato.driver.status import Meter, build_status
from legato.driver.system_log import SystemLog

SPEC = JobSpec(name="digits", program=("train.py",), directory="/", max_workers=1, num_workers=1)


def progress(view: int, step: int) -> Progress:
    return Progress(
        view=view, first_step=step, last_step=step, epoch=0, loss=None, num_samples=8, num_steps=9, num_epochs=1
    )


def test_bytes_between_nodes_are_those_of_a_step_of_each_node() -> None:
    job, meter = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="", now=0.0, wanted=set()), Meter()
    members = {1: "a/0", 2: "a/1", 3: "b/0"}
    for number, slot in members.items():
        job.workers[number] = Worker(number=number, slot=slot, last_heard=0.0)
    job.current = View(1, tuple(Member(number, "host") for number in members), "")
    assert build_status(job, meter, deque(), None, 0.0)["sent_bytes"] == {}
    for number, sent_bytes in ((1, 300), (2, 60), (3, 90)):
        told = msgspec.structs.replace(progress(1, 4), last_step=6, num_samples=24, sent_bytes=sent_bytes)
        meter.note_sent(number, told)
    meter.note_sent(1, msgspec.structs.replace(progress(1, 6), num_samples=0))
    assert build_status(job, meter, deque(), None, 0.0)["sent_bytes"] == {"a": 120, "b": 30}


def test_the_speed_with_each_number_of_workers_is_measured_without_evaluations() -> None:
    job, meter = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="", now=0.0, wanted=set()), Meter()
    for step in range(1, 60):
        evaluates = step % 10 == 0
        told = msgspec.structs.replace(progress(1, step), phase="evaluate" if evaluates else "train")
        meter.note(told, 1, 2.0 * step, size=(3, 2))
    (speed,) = build_status(job, meter, deque(), None, 120.0)["speeds"]
    assert (speed["num_workers"], speed["num_nodes"], speed["samples_per_s"]) == (3, 2, 4.0)
    assert speed["measured_s"] == 2 * 44, "59 stretches, without the first one, 3 to warm up, and 11 with evaluations"
    assert speed["age_s"] == 2.0
    meter.note(progress(1, 60), 1, 300.0)
    assert build_status(job, meter, deque(), None, 300.0)["speeds"][0]["measured_s"] == speed["measured_s"], "no size"


def test_the_speed_of_a_job_is_that_of_its_present_workers_at_once() -> None:
    meter = Meter()
    for step in range(1, 30):
        meter.note(progress(1, step), 1, 2.0 * step)
    assert meter.samples_per_s == pytest.approx(4.0)
    # The first report of the next view includes the time of the change.
    for step, at in enumerate((61.0, 62.0, 63.0), start=30):
        meter.note(progress(2, step), 1, at)
    assert meter.samples_per_s == pytest.approx(8.0)
    meter.note(progress(2, 33), 1, 65.0)
    assert 4.0 < meter.samples_per_s < 8.0, "within a view it is smoothed"


def test_the_worker_that_waits_longest_for_data_sets_the_wait_of_the_job() -> None:
    job, meter = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="", now=0.0, wanted=set()), Meter()
    for number in (1, 2, 3):
        job.workers[number] = Worker(number=number, slot=f"a/{number}", last_heard=0.0)
    job.current = View(1, tuple(Member(number, "host") for number in (1, 2)), "")
    assert build_status(job, meter, deque(), None, 0.0)["data_wait"] is None
    for number, waited_s in ((1, 1.0), (2, 3.0), (3, 4.0)):
        meter.data_waits.note(number, msgspec.structs.replace(progress(1, 4), measured_s=4.0, waited_s=waited_s), 0.0)
    status = build_status(job, meter, deque(), None, 0.0)
    assert status["data_wait"] == 0.75, "worker 3 is no member"
    assert [worker["data_wait"] for worker in status["workers"]] == [0.25, 0.75, 1.0]
    later = build_status(job, meter, deque(), None, 61.0)
    assert later["data_wait"] is None and later["workers"][0]["data_wait"] is None, "no step for a minute"


def test_waits_follow_the_newest_steps_and_leave_out_repeated_and_impossible_reports() -> None:
    waits, said = DataWaits(), msgspec.structs.replace(progress(1, 4), measured_s=100.0, waited_s=100.0)
    waits.note_connected(1)
    waits.note(1, said, 0.0)
    for measured_s, waited_s in (
        (1.0, 2.0),
        (1.0, -1.0),
        (math.nan, math.nan),
        (math.inf, 1.0),
        (1.7e308, 1.7e308),
        (0.0, 0.0),
    ):
        waits.note(1, msgspec.structs.replace(said, measured_s=measured_s, waited_s=waited_s), 0.0)
    assert waits.share(1, 0.0) is None and waits.take() == {}
    waits.note(1, said, 0.0)
    assert waits.share(1, 0.0) == 1.0
    waits.note(1, msgspec.structs.replace(said, waited_s=0.0), 0.0)
    share = waits.share(1, 0.0)
    assert share is not None and share < 0.01
    assert waits.take() == {1: 0.5}, "of all the time since the last call"


def test_a_laggard_does_not_set_the_job_back() -> None:
    meter = Meter()
    meter.note(progress(1, 5), 1, 0.0)
    meter.note(progress(1, 4), 0, 0.1)
    assert meter.last == progress(1, 5)


def test_steps_that_are_done_again_show_where_the_job_is() -> None:
    meter = Meter()
    meter.note(progress(1, 5), 1, 0.0)
    for step in (2, 3):
        meter.note(progress(2, step), 0, 1.0)
    assert meter.last == progress(2, 3)
    assert meter.samples_per_s is None


def test_a_run_begins_at_the_first_step_or_at_its_checkpoint() -> None:
    anew, resumed = Meter(), Meter()
    anew.note(progress(1, 1), 1, 0.0)
    # What a worker says of the steps before its checkpoint has no samples.
    before = msgspec.structs.replace(progress(1, 30), first_step=1, num_samples=0, resumed=True)
    resumed.note(before, 0, 0.0)
    for meter, step in ((anew, 2), (resumed, 31)):
        meter.note(progress(1, step), 1, 1.0)
    assert (anew.from_step, resumed.from_step) == (0, 30)


def test_the_last_metrics_are_kept() -> None:
    meter = Meter()
    metrics = Metrics(index=0, step=3, epoch=0, values={"accuracy": 0.5})
    meter.note_metrics(metrics)
    assert meter.metrics == metrics


def test_the_loss_is_that_of_the_step_or_else_the_one_that_the_program_logs() -> None:
    job, meter = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="/c", now=0.0, wanted={"n/0"}), Meter()

    def read_loss() -> float | None:
        loss: float | None = build_status(job, meter, deque(), None, 0.0)["loss"]
        return loss

    meter.note(progress(1, 5), 1, 0.0)
    assert read_loss() is None, "the program calls loss.backward(), so Legato does not know its loss"
    meter.note_metrics(Metrics(index=0, step=5, epoch=0, values={"loss": 0.5}))
    meter.note_metrics(Metrics(index=1, step=5, epoch=0, values={"accuracy": 0.9}))
    assert read_loss() == 0.5
    meter.note(msgspec.structs.replace(progress(1, 6), loss=0.25), 1, 1.0)
    assert read_loss() == 0.25


def test_what_a_planned_change_costs_is_measured() -> None:
    meter, now, step = Meter(), 0.0, 0

    def do(view: int, seconds: float, *, is_planned: bool = True, phase: str = "train") -> None:
        nonlocal now, step
        now, step = now + seconds, step + 1
        report = Progress(
            view=view,
            first_step=step,
            last_step=step,
            epoch=0,
            loss=None,
            num_samples=8,
            num_steps=99,
            num_epochs=1,
            phase=phase,
        )
        meter.note(report, 1, now, is_planned=is_planned)

    for view, seconds in [(1, 9.0), (1, 1.0), (1, 1.0), (2, 3.0)]:
        do(view, seconds)
    assert meter.delays.last_s is None, "how fast it is with more workers is not known yet"
    do(2, 0.5)
    assert meter.delays.last_s == 2.0, "growing"
    do(3, 2.5)
    do(3, 1.0)
    assert meter.delays.last_s == 1.5, "shrinking: a step takes longer afterwards, which is no delay"
    do(4, 20.0, is_planned=False)
    do(4, 1.0)
    assert meter.delays.last_s == 1.5, "a death is no resize"
    do(4, 30.0, phase="evaluate")
    do(5, 60.0)
    do(5, 1.0)
    do(6, 1.2)
    do(6, 1.0)
    assert meter.delays.last_s is not None and abs(meter.delays.last_s - 0.2) < 1e-9, "evaluations are none either"


def test_reports_of_an_older_view_measure_nothing() -> None:
    meter = Meter()
    for view, step, now in [(2, 1, 0.0), (2, 2, 1.0), (1, 3, 9.0), (3, 4, 20.0), (3, 5, 21.0)]:
        meter.note(progress(view, step), 1, now, is_planned=True)
    assert meter.delays.last_s is None


def test_impossible_amounts_of_a_machine_do_not_make_a_status_that_cannot_be_sent(tmp_path: Path) -> None:
    gpus = tuple(
        GpuMetrics(device=f"GPU-{number}", name="", slots=(0,), busy=1.0, memory_bytes=2**50, total_bytes=2**50)
        for number in range(MAX_GPUS)
    )
    machine = MachineMetrics(cpus=1.0, num_cpus=1, memory_bytes=1, total_bytes=1, gpus=gpus)
    nodes = [f"n{number}" for number in range(100)]
    slots = {number: f"{node}/0" for number, node in enumerate(nodes)}
    used = {number: WorkerMetrics(cpus=1.0, memory_bytes=2**50) for number in slots}
    log = SystemLog(tmp_path / "system.jsonl")
    log.note(1.0, {node: SystemSample(machine=machine, workers=used) for node in nodes}, slots, {})
    log.workers.update({1000 + number: WorkerLine(slot="a/0", memory_bytes=2**53) for number in range(3000)})
    job = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="", now=0.0, wanted=set())
    status = build_status(job, Meter(), deque(), None, 0.0, log)
    assert encode(Reply(error=None, status=status))
    assert max(status["memory_bytes"], status["gpu_memory_bytes"]) <= 2**53
    with pytest.raises(msgspec.ValidationError, match="memory_bytes"):
        msgspec.convert(msgspec.to_builtins(machine) | {"memory_bytes": 2**50 + 1}, MachineMetrics)


def test_memory_of_a_gpu_counts_once_where_workers_share_it(tmp_path: Path) -> None:
    def gpu(device: str, *slots: int) -> GpuMetrics:
        return GpuMetrics(device=device, name="", slots=slots, busy=0.5, memory_bytes=70, total_bytes=80)

    gpus = (gpu("GPU-a", 0, 1), gpu("GPU-b", 2))
    machine = MachineMetrics(cpus=1.0, num_cpus=1, memory_bytes=1, total_bytes=1, gpus=gpus)
    now = [0.0]
    log = SystemLog(tmp_path / "system.jsonl", clock=lambda: now[0])
    log.note(1.0, {"a": SystemSample(machine=machine)}, {1: "a/0", 2: "a/1"}, {})
    job = JobFacts(spec=SPEC, rendezvous="", checkpoint_dir="", now=0.0, wanted=set())
    status = build_status(job, Meter(), deque(), None, 0.0, log)
    assert status["gpu_memory_bytes"] == 70
    assert [gpu["device"] for gpu in status["nodes"]["a"]["gpus"]] == ["GPU-a"], "no slot of the job has the other one"
    now[0] = 31.0
    status = build_status(job, Meter(), deque(), None, 0.0, log)
    assert status["gpu_memory_bytes"] is None and status["nodes"] == {}, "the sample is old"
