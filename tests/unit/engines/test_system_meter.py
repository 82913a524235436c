"""What a machine and the workers of a job use: `/proc` of real processes, and a stand-in for NVML."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.core.system_metrics import MachineMetrics, SystemSample
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


def test_processes_that_have_ended_take_no_time_with_them() -> None:
    # Such as the loader processes of a pass: they are waited for, or not yet.
    program = """
import os, sys, time
def child():
    pid = os.fork()
    if not pid:
        while time.process_time() < 0.5: pass
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid
os.waitpid(child(), 0)
child()
print("done", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"done\n"
            assert measure_sessions({7: (process.pid, start_time_of(process.pid) or 0)})[7].cpu_s >= 0.9
        finally:
            process.kill()


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
    assert meter.measure({7: leader}, ()).workers[7].cpus is None, "a process has ended, and its time is gone"


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
        if device == "GPU-odd":
            raise TypeError("bytes or integer address expected")
        return device

    def rates(device: str) -> Any:
        if device.startswith("MIG"):
            raise FakeNvmlError("not supported")
        return types.SimpleNamespace(gpu=103 if device == "GPU-eager" else 78)

    def memory(device: str) -> Any:
        if device == "GPU-silent":
            return types.SimpleNamespace(used=2**64 - 1, total=2**64 - 1)
        return types.SimpleNamespace(used=2**30, total=2**34)

    return types.SimpleNamespace(
        NVMLError=FakeNvmlError,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetName=lambda device: b"NVIDIA A100" if device == "MIG-b" else "NVIDIA H100",
    )


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A stand-in for NVML, with a list of its calls."""
    calls: list[str] = []
    found = make_nvml(calls)
    found.calls = calls
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.setattr(system_meter, "_NVIDIA", tmp_path)
    return found


def measure_machine(meter: SystemMeter, devices: tuple[str, ...]) -> MachineMetrics:
    meter._busy = (0.0, 0.0)  # so that the sample has a time to compare with
    found = meter.measure({}, devices).machine
    assert found is not None
    return found


def test_gpus_of_slots_are_measured_by_nvml(nvml: Any) -> None:
    devices = ("GPU-a", "GPU-broken", "GPU-a", "MIG-b", "cpu", "cuda:1")
    told = [
        (gpu.device, gpu.name, gpu.slots, gpu.busy, gpu.memory_bytes, gpu.total_bytes)
        for gpu in measure_machine(SystemMeter(), devices).gpus
    ]
    assert told == [
        ("GPU-a", "NVIDIA H100", (0, 2), 0.78, 2**30, 2**34),
        ("MIG-b", "NVIDIA A100", (3,), None, 2**30, 2**34),
    ]
    assert nvml.calls == ["init", "shutdown"]


def test_samples_have_no_values_that_their_receivers_refuse(nvml: Any) -> None:
    found = measure_machine(SystemMeter(), ("GPU-eager", "GPU-silent", *["GPU-shared"] * 2000))
    assert [(gpu.device, gpu.busy, len(gpu.slots)) for gpu in found.gpus] == [
        ("GPU-eager", 1.0, 1),
        ("GPU-shared", 0.78, 64),
    ]
    assert msgspec.convert(msgspec.to_builtins(found), MachineMetrics) == found


def fail(error: Exception) -> Any:
    def call(*_: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "broken",
    [
        {"nvmlInit": fail(RuntimeError("odd"))},
        {"nvmlShutdown": fail(OSError("odd"))},
        {"nvmlDeviceGetHandleByUUID": None},
        {"nvmlDeviceGetName": fail(UnicodeDecodeError("utf8", b"x", 0, 1, "odd"))},
        {"nvmlDeviceGetMemoryInfo": lambda _: None},
    ],
)
def test_no_error_of_nvml_ends_a_sample(
    nvml: Any, broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    meter = SystemMeter()
    with monkeypatch.context() as patch:
        for name, value in broken.items():
            patch.setattr(nvml, name, value)
        assert measure_machine(meter, ("GPU-a",)).gpus == () == measure_machine(meter, ("GPU-a",)).gpus
    assert [record.levelname for record in caplog.records if "NVML cannot" in record.message] == ["WARNING"]
    assert len(measure_machine(meter, ("GPU-odd", "GPU-a")).gpus) == 1, "NVML is asked again, and other GPUs count"


def test_nothing_waits_for_an_nvml_that_hangs(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(nvml, "nvmlInit", lambda: answers.wait(20) or pytest.fail("the sample has waited for it"))
    meter = SystemMeter()
    with monkeypatch.context() as patch:
        patch.setattr(system_meter, "_NVML_PATIENCE_S", 0.01)
        assert [measure_machine(meter, ("GPU-a",)).gpus for _ in range(3)] == [()] * 3
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "nvml"]
    assert thread.daemon, "a process can end without it"
    answers.set()
    thread.join()
    assert len(measure_machine(meter, ("GPU-a",)).gpus) == 1


def test_nvml_is_not_asked_without_a_driver_of_nvidia(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system_meter, "_NVIDIA", tmp_path / "missing")
    assert measure_machine(SystemMeter(), ("GPU-a",)).gpus == () and nvml.calls == []


def test_without_nvidia_ml_py_gpus_are_left_out(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert measure_machine(SystemMeter(), ("GPU-a",)).gpus == () and not caplog.records


def test_any_other_error_gives_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_meter, "measure_sessions", fail(KeyError("odd")))
    assert SystemMeter().measure({}, ()) == SystemSample()
