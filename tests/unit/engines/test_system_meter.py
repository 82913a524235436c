"""What a machine and the workers of a job use: `/proc` of real processes, and a stand-in for NVML."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.core.system_metrics import SystemSample
from legato.engines import system_meter
from legato.engines.system_meter import SystemMeter
from legato.system.processes import measure_sessions, start_time_of

# Holds 64 MiB, computes for half a second, says so, and waits; a child of it does the same.
PROGRAM = """
import subprocess, sys, time
held = bytearray(b"x" * 2**26)
while time.process_time() < 0.5:
    pass
if len(sys.argv) > 1:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
print("done", flush=True)
sys.stdin.read()
"""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def leader() -> Iterator[tuple[int, int]]:
    """A process with a child, as long as both hold their memory and have computed."""
    command = [sys.executable, "-c", PROGRAM, PROGRAM]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == b"done\n"
        yield process.pid, start_time_of(process.pid) or 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def test_a_worker_counts_with_the_processes_that_it_has_started(leader: tuple[int, int]) -> None:
    pid, started = leader
    used = measure_sessions({7: leader})[7]
    assert used.cpu_s >= 0.9 and 2 * 2**26 <= used.memory_bytes < 2**30
    assert measure_sessions({7: (pid, started + 1)}) == {}, "another process has its number"
    assert measure_sessions({7: (2**22 + 1, 0)}) == {} == measure_sessions({})


def test_cpu_is_measured_from_one_sample_to_the_next(
    leader: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(system_meter, "_CPU", stat)
    clock = Clock()
    meter = SystemMeter(clock)
    stat.write_text("cpu  100 0 0 100 0 0 0 0 0 0\n")
    assert meter.measure({7: leader}, ()) == SystemSample(), "there is nothing to compare it with"
    before = measure_sessions({7: leader})[7]
    monkeypatch.setattr(
        system_meter, "measure_sessions", lambda _: {7: before._replace(cpu_s=before.cpu_s + 15.0), 8: before}
    )
    stat.write_text("cpu  175 0 0 115 10 0 0 0 0 0\n")
    clock.now += 10.0
    sample = meter.measure({7: leader}, ())
    assert sample.machine is not None
    assert sample.machine.cpus == pytest.approx(0.75 * (os.cpu_count() or 1), abs=0.01)
    assert 0 < sample.machine.memory_bytes < sample.machine.total_bytes and not sample.machine.gpus
    assert sample.workers[7].cpus == 1.5 and sample.workers[7].memory_bytes == before.memory_bytes
    assert 8 not in sample.workers, "its first sample"
    monkeypatch.setattr(system_meter, "measure_sessions", lambda _: {7: before})
    clock.now += 10.0
    assert meter.measure({7: leader}, ()).workers[7].cpus == 0.0, "a process has ended, and its time is gone"


def test_a_system_that_shows_nothing_gives_no_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system_meter, "_CPU", tmp_path / "missing")
    assert SystemMeter().measure({}, ()) == SystemSample()
    monkeypatch.setattr(system_meter, "_CPU", tmp_path / "odd")
    (tmp_path / "odd").write_text("what?\n")
    assert SystemMeter().measure({}, ()) == SystemSample()


class FakeNvmlError(Exception):
    pass


def make_nvml(calls: list[str]) -> Any:
    def handle(device: str) -> str:
        if device == "GPU-broken":
            raise FakeNvmlError("it has fallen off the bus")
        return device

    def rates(device: str) -> Any:
        if device.startswith("MIG"):
            raise FakeNvmlError("not supported")
        return types.SimpleNamespace(gpu=78)

    return types.SimpleNamespace(
        NVMLError=FakeNvmlError,
        nvmlInit=lambda: calls.append("init"),
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetMemoryInfo=lambda _: types.SimpleNamespace(used=2**30, total=2**34),
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetName=lambda _: "NVIDIA H100",
    )


def measure_twice(meter: SystemMeter, devices: tuple[str, ...]) -> SystemSample:
    meter.measure({}, devices)
    meter._busy = (0.0, 0.0)  # so that the second sample has a time to compare with
    return meter.measure({}, devices)


def test_gpus_of_slots_are_measured_by_nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "pynvml", make_nvml(calls))
    monkeypatch.setattr(system_meter, "_NVIDIA", tmp_path)
    meter = SystemMeter()
    devices = ("GPU-a", "GPU-broken", "GPU-a", "MIG-b", "cpu", "cuda:1")
    sample = measure_twice(meter, devices)
    assert sample.machine is not None
    told = [(gpu.device, gpu.slots, gpu.busy, gpu.memory_bytes, gpu.total_bytes) for gpu in sample.machine.gpus]
    assert told == [("GPU-a", (0, 2), 0.78, 2**30, 2**34), ("MIG-b", (3,), None, 2**30, 2**34)]
    measure_twice(meter, devices)
    assert calls == ["init"], "NVML is opened once"


def test_nvml_is_not_imported_without_a_driver_of_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system_meter.importlib, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    monkeypatch.setattr(system_meter, "_NVIDIA", tmp_path / "missing")
    sample = measure_twice(SystemMeter(), ("GPU-a",))
    assert sample.machine is not None and sample.machine.gpus == ()


def test_without_nvidia_ml_py_gpus_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(system_meter, "_NVIDIA", tmp_path)
    sample = measure_twice(SystemMeter(), ("GPU-a",))
    assert sample.machine is not None and sample.machine.gpus == ()
