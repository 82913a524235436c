"""What a driver keeps of what its workers and machines use: bounded, and with gaps where nothing was measured."""

from __future__ import annotations

import errno
import random
from itertools import pairwise
from pathlib import Path

import pytest

from legato.core.system_metrics import (
    GpuMetrics,
    MachineMetrics,
    SystemLine,
    SystemSample,
    WorkerLine,
    WorkerMetrics,
    merge,
)
from legato.driver.system_log import SystemLog, read_lines


def machine(cpus: float, *gpus: GpuMetrics) -> MachineMetrics:
    return MachineMetrics(cpus=cpus, num_cpus=16, memory_bytes=100, total_bytes=1000, gpus=gpus)


def gpu(device: str, slots: tuple[int, ...], busy: float | None) -> GpuMetrics:
    return GpuMetrics(device=device, name="H100", slots=slots, busy=busy, memory_bytes=10, total_bytes=80)


def sample(cpus: float, *workers: int) -> SystemSample:
    used = {number: WorkerMetrics(cpus=cpus, memory_bytes=50) for number in workers}
    return SystemSample(machine=machine(cpus), workers=used)


def run(log: SystemLog, times: list[float]) -> None:
    for time in times:
        log.note(time, {"a": sample(time / 10, 1)}, {1: "a/0"}, {1: 0.5})
        log.write()


def lines_of(path: Path) -> list[SystemLine]:
    return read_lines(path.read_bytes())


def test_a_line_has_the_workers_on_their_machines(tmp_path: Path) -> None:
    log = SystemLog(tmp_path / "system.jsonl")
    gpus = (gpu("GPU-a", (0,), 0.2), gpu("GPU-b", (1,), 0.4), gpu("MIG-c", (2,), None))
    samples = {
        "a": SystemSample(machine=machine(3.0, *gpus), workers={1: WorkerMetrics(cpus=1.5, memory_bytes=50)}),
        "elsewhere": sample(1.0, 2),
    }
    slots = {1: "a/0+1", 2: "a/2", 3: "b/0", 4: "b/1"}
    for time in (1000.0, 1010.0):
        log.note(time, samples, slots, {3: 0.78123})
    log.write()
    (line,) = lines_of(tmp_path / "system.jsonl")
    assert (line.time, line.span_s) == (1010.0, 10.0)
    assert line.workers == {
        1: WorkerLine(slot="a/0+1", cpus=1.5, memory_bytes=50, gpu_busy=0.3, gpu_memory_bytes=20),
        2: WorkerLine(slot="a/2", gpu_memory_bytes=10),
        3: WorkerLine(slot="b/0", data_wait=0.781),
    }, "worker 2 has no processes on its machine, and nothing is known of worker 4"
    assert line.nodes == {"a": samples["a"].machine} == log.nodes, "the job has no slots elsewhere"


def test_nothing_is_written_of_times_without_samples(tmp_path: Path) -> None:
    log = SystemLog(tmp_path / "system.jsonl")
    for time in (1000.0, 1010.0):
        log.note(time, {}, {1: "a/0"}, {})
    log.write()
    assert not (tmp_path / "system.jsonl").exists() and log.workers == {} == log.nodes


def test_a_full_file_is_thinned_to_averages_and_stays_bounded(tmp_path: Path) -> None:
    path, most = tmp_path / "system.jsonl", 4000
    log = SystemLog(path, most)
    times = [1000.0 + 10 * number for number in range(200)]
    run(log, times)
    lines = lines_of(path)
    assert path.stat().st_size <= most and len(lines) >= 5
    assert lines[0].begins == times[0], "the beginning of the job stays"
    assert all(line.begins == before.time for before, line in pairwise(lines)), "and so does all the time after it"
    first = [time / 10 for time in times[1:] if time <= lines[0].time]
    assert lines[0].nodes["a"].cpus == pytest.approx(sum(first) / len(first), abs=0.01)
    assert lines[0].workers[1].cpus == pytest.approx(sum(first) / len(first), abs=0.01)
    assert lines[0].workers[1].data_wait == 0.5


def test_a_later_driver_continues_the_file_and_leaves_a_gap(tmp_path: Path) -> None:
    path, most = tmp_path / "system.jsonl", 4000
    run(SystemLog(path, most), [1000.0 + 10 * number for number in range(60)])
    span_s = lines_of(path)[-1].span_s
    assert span_s > 10.0
    with path.open("ab") as file:
        file.write(b'{"time": 16')  # a crash
    later = SystemLog(path, most)
    later.load()
    run(later, [9000.0 + 10 * number for number in range(20)])
    lines = lines_of(path)
    assert len([line for line in lines if line.time > 9000.0 and line.span_s == span_s]) > 2
    assert not any(line.begins < 8990.0 < line.time for line in lines), "nothing is averaged over the gap"


def test_lines_that_cannot_be_joined_do_not_exceed_the_limit(tmp_path: Path) -> None:
    path, most = tmp_path / "system.jsonl", 4000
    log = SystemLog(path, most)
    for number in range(100):
        run(log, [1000.0 * number, 1000.0 * number + 10.0])
    assert path.stat().st_size <= most
    assert lines_of(path)[-1].time > 98_000, "the newest stay"


def test_a_line_after_a_full_disk_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "system.jsonl"
    log = SystemLog(path)
    run(log, [1000.0, 1010.0])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        run(log, [1020.0])
    with path.open("ab") as file:
        file.write(b'{"time": 10')  # what the disk has taken
    run(log, [1030.0, 1040.0])
    assert [line.time for line in lines_of(path)] == [1010.0, 1030.0, 1040.0]
    assert path.read_bytes().count(b"\n") == 4


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_odd_lines_are_left_out() -> None:
    odd = [
        b'{"x":' + 100_000 * b"[" + 100_000 * b"]" + b"}",
        b'{"time": 1.0, "span_s": 0.0, "workers": {}, "nodes": {}}',
        b'{"time": 1.0, "span_s": 1.0, "workers": {"1": {"slot": "a/0", "memory_bytes": 1e30}}, "nodes": {}}',
        b"\xff",
    ]
    right = b'{"time": 1.0, "span_s": 1.0, "workers": {}, "nodes": {}}'
    assert len(read_lines(b"\n".join([*odd, right]))) == 1


def test_a_disk_that_takes_nothing_does_not_end_the_job(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.mkdir()
    log = SystemLog(path)
    run(log, [1000.0, 1010.0])
    assert log.workers[1].cpus == 101.0


def test_an_average_leaves_out_what_was_not_measured() -> None:
    def line(time: float, worker: WorkerLine | None, *gpus: GpuMetrics) -> SystemLine:
        workers = {} if worker is None else {1: worker}
        return SystemLine(time=time, span_s=10.0, workers=workers, nodes={"a": machine(1.0, *gpus)})

    one = line(10.0, WorkerLine(slot="a/0", cpus=1.0), gpu("GPU-a", (0,), None))
    other = line(20.0, WorkerLine(slot="a/0", cpus=3.0, data_wait=0.4), gpu("GPU-a", (0,), 0.5), gpu("GPU-b", (1,), 1))
    both = merge(one, other)
    assert (both.time, both.span_s) == (20.0, 20.0)
    assert both.workers == {1: WorkerLine(slot="a/0", cpus=2.0, data_wait=0.4)}
    assert [gpu.busy for gpu in both.nodes["a"].gpus] == [0.5, 1.0]
    assert merge(one, line(20.0, None)).workers == one.workers


def test_a_clock_that_is_set_back_gives_no_impossible_averages(tmp_path: Path) -> None:
    chance = random.Random(2)
    for number in range(200):
        path, now, back_s = tmp_path / f"{number}.jsonl", 1000.0, 0.0
        log = SystemLog(path, 5000)
        for step in range(80):
            now += chance.choice((0.1, 10.0, 10.02))
            back_s = chance.uniform(1, 300) if step == 40 else back_s
            log.note(now - back_s, {"a": sample(chance.uniform(1, 8), 1)}, {1: "a/0"}, {})
            log.write()
        lines = lines_of(path)
        assert lines and all(1 <= (line.workers[1].cpus or 0) <= 8 and 0 < line.span_s < 1000 for line in lines)


def test_a_machine_with_many_gpus_erases_nothing(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    log, slots = SystemLog(path, 20_000), {1: "a/0", 2: "b/0"}
    gpus = tuple(gpu(f"GPU-{number}-" + 150 * "x", tuple(range(64)), 0.5) for number in range(256))
    odd = SystemSample(machine=machine(1.0, *gpus))
    for number in range(20):
        log.note(1000.0 + 10 * number, {"a": sample(1.0, 1), "b": odd}, slots, {})
        log.write()
    lines = lines_of(path)
    assert lines[0].time == 1010.0 and len(lines) == 19, "each slot has one GPU"
    assert len(lines[-1].nodes["b"].gpus) == 1 == len(log.nodes["b"].gpus)


def test_a_line_that_is_too_large_is_written_without_machines(tmp_path: Path) -> None:
    log = SystemLog(tmp_path / "system.jsonl", 4000)
    gpus = tuple(gpu(f"GPU-{number}", (number,), 0.5) for number in range(8))
    slot = "a/0+1+2+3+4+5+6+7"
    for number in range(9):
        log.note(1000.0 + 10 * number, {"a": SystemSample(machine=machine(1.0, *gpus))}, {1: slot}, {1: 0.5})
        log.write()
    lines = lines_of(tmp_path / "system.jsonl")
    assert len(lines) == 8 and all(line.workers[1].gpu_busy == 0.5 and not line.nodes for line in lines)
    assert len(log.nodes["a"].gpus) == 8
