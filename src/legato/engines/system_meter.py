"""Measures what this machine and the workers of a job use: CPU, memory, and GPUs by NVML. Decides nothing.

It reads `/proc`, once for all workers, in the process of a driver or an agent: never in a worker, and never in a step.
A system without `/proc` gives no samples. NVML is asked only where a driver of NVIDIA is loaded and ``nvidia-ml-py`` is
installed.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from legato.core.clock import Clock
from legato.core.system_metrics import MAX_GPUS, GpuMetrics, MachineMetrics, SystemSample, WorkerMetrics
from legato.system.kernel_files import read_kib
from legato.system.processes import SessionUse, measure_sessions

_log = logging.getLogger(__name__)

_MEMORY: Final = "/proc/meminfo"
_CPU: Final = Path("/proc/stat")
_NVIDIA: Final = Path("/proc/driver/nvidia/version")
_NAMED: Final = ("GPU-", "MIG-")


class SystemMeter:
    """Takes samples. CPU is measured from one sample to the next one, so the first one has none.

    For use by one thread at a time. A call reads a small file per process of the machine.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._busy: tuple[float, float] | None = None
        self._sessions: dict[int, tuple[float, SessionUse]] = {}
        self._nvml: Any = None
        self._has_asked = False

    def measure(self, leaders: Mapping[int, tuple[int, int]], devices: Sequence[str]) -> SystemSample:
        """Take a sample.

        Args:
            leaders: worker → the number and the start time of its process, which leads a session.
            devices: of the machine's slots, as in `legato.engines.gpus`.
        """
        try:
            return SystemSample(machine=self._measure_machine(devices), workers=self._measure_workers(leaders))
        except (OSError, ValueError, IndexError) as error:
            _log.debug("This machine cannot be measured: %s", error)
            return SystemSample()

    def _measure_machine(self, devices: Sequence[str]) -> MachineMetrics | None:
        busy, before = read_busy(_CPU.read_text()), self._busy
        self._busy = busy
        total, available = read_kib(_MEMORY, "MemTotal"), read_kib(_MEMORY, "MemAvailable")
        if before is None or busy[1] <= before[1]:
            return None
        num_cpus = os.cpu_count() or 1
        share = min(max((busy[0] - before[0]) / (busy[1] - before[1]), 0.0), 1.0)
        return MachineMetrics(
            cpus=round(share * num_cpus, 2),
            num_cpus=num_cpus,
            memory_bytes=1024 * max(total - available, 0),
            total_bytes=1024 * total,
            gpus=self._measure_gpus(devices),
        )

    def _measure_workers(self, leaders: Mapping[int, tuple[int, int]]) -> dict[int, WorkerMetrics]:
        now, before, found = self._clock(), self._sessions, measure_sessions(leaders)
        self._sessions = {worker: (now, use) for worker, use in found.items()}
        measured = {}
        for worker, use in found.items():
            at, earlier = before.get(worker, (now, use))
            if now > at:
                # Processes that have ended meanwhile take their time with them.
                cpus = round(max(use.cpu_s - earlier.cpu_s, 0.0) / (now - at), 2)
                measured[worker] = WorkerMetrics(cpus=cpus, memory_bytes=use.memory_bytes)
        return measured

    def _measure_gpus(self, devices: Sequence[str]) -> tuple[GpuMetrics, ...]:
        slots: dict[str, list[int]] = {}
        for number, device in enumerate(devices):
            if device.startswith(_NAMED):
                slots.setdefault(device, []).append(number)
        if not slots or not self._open_nvml():
            return ()
        measured = []
        for device in list(slots)[:MAX_GPUS]:
            try:
                measured.append(self._measure_gpu(device, tuple(slots[device])))
            except self._nvml.NVMLError as error:
                # Such as a GPU that has failed; the others count.
                _log.debug("NVML cannot measure %s: %s", device, error)
        return tuple(measured)

    def _open_nvml(self) -> bool:
        """Return whether NVML answers. It is opened once, because opening it may take seconds."""
        if not self._has_asked:
            self._has_asked = True
            if _NVIDIA.exists():
                try:
                    nvml: Any = importlib.import_module("pynvml")
                except ImportError:
                    return False
                try:
                    nvml.nvmlInit()
                except nvml.NVMLError as error:
                    _log.warning("NVML cannot measure the GPUs: %s", error)
                    return False
                self._nvml = nvml
        return self._nvml is not None

    def _measure_gpu(self, device: str, slots: tuple[int, ...]) -> GpuMetrics:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByUUID(device)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except nvml.NVMLError:
            busy = None  # not measured for a part of a GPU
        return GpuMetrics(
            device=device,
            name=str(nvml.nvmlDeviceGetName(handle)),
            slots=slots,
            busy=busy,
            memory_bytes=int(memory.used),
            total_bytes=int(memory.total),
        )


def read_busy(text: str) -> tuple[float, float]:
    r"""Return the ticks in which the CPUs worked, and all ticks, from the text of ``/proc/stat``.

    Guests are in the time of users already, so the first eight numbers are all.

    >>> read_busy("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 2 3 4\n")
    (16, 100)
    """
    ticks = [int(field) for field in text.split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
