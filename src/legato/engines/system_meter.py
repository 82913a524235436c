"""Measures what this machine and the workers of a job use: CPU, memory, and GPUs by NVML. Decides nothing.

It reads `/proc`, once for all workers, in the process of a driver or an agent: never in a worker, and never in a step.
A system without `/proc` gives no samples. NVML is asked only where a driver of NVIDIA is loaded and ``nvidia-ml-py`` is
installed. A sample never raises an error and never waits for an NVML that hangs.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from legato.core.clock import Clock
from legato.core.system_metrics import (
    MAX_GPUS,
    MAX_NAME,
    MAX_SLOTS,
    MAX_SLOTS_OF_GPU,
    GpuMetrics,
    MachineMetrics,
    SystemSample,
    WorkerMetrics,
)
from legato.system.decoding import convert
from legato.system.kernel_files import read_kib
from legato.system.processes import SessionUse, measure_sessions

_log = logging.getLogger(__name__)

_MEMORY: Final = "/proc/meminfo"
_CPU: Final = Path("/proc/stat")
_NVIDIA: Final = Path("/proc/driver/nvidia/version")
_NAMED: Final = ("GPU-", "MIG-")
_NVML_PATIENCE_S: Final = 1.0

_T = TypeVar("_T")


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
        self._gpus = _GpuMeter()

    def measure(self, leaders: Mapping[int, tuple[int, int]], devices: Sequence[str]) -> SystemSample:
        """Take a sample. What cannot be measured, or has impossible values, is left out.

        Args:
            leaders: worker → the number and the start time of its process, which leads a session.
            devices: of the machine's slots, as in `legato.engines.gpus`.
        """
        try:
            workers = self._measure_workers(leaders)
            machine = self._measure_machine()
            if machine is not None:
                machine = msgspec.structs.replace(machine, gpus=self._gpus.measure(devices))
            return _check(SystemSample(machine=machine, workers=workers))
        except Exception as error:  # noqa: BLE001 -- no error of a sample may end a job, an agent or a server
            _log.debug("This machine cannot be measured: %s", error)
            return SystemSample()

    def _measure_machine(self) -> MachineMetrics | None:
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
        )

    def _measure_workers(self, leaders: Mapping[int, tuple[int, int]]) -> dict[int, WorkerMetrics]:
        now, before, found = self._clock(), self._sessions, measure_sessions(leaders)
        self._sessions = {worker: (now, use) for worker, use in found.items()}
        measured = {}
        for worker, use in found.items():
            at, earlier = before.get(worker, (now, use))
            if now > at:
                # Processes that nothing of the session reaps take their time with them.
                is_known = use.cpu_s >= earlier.cpu_s
                cpus = round((use.cpu_s - earlier.cpu_s) / (now - at), 2) if is_known else None
                measured[worker] = WorkerMetrics(cpus=cpus, memory_bytes=use.memory_bytes)
        return measured


class _GpuMeter:
    """Asks NVML in a thread of its own, for which the end of this process does not wait: a driver of NVIDIA can hang.

    While a thread waits for NVML, GPUs are left out of the samples, and no other thread asks.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._found: tuple[GpuMetrics, ...] = ()
        self._has_failed = False

    def measure(self, devices: Sequence[str]) -> tuple[GpuMetrics, ...]:
        """Return the GPUs of slots, as far as NVML has answered; wait for it at most `_NVML_PATIENCE_S`."""
        slots: dict[str, list[int]] = {}
        for number, device in enumerate(devices[:MAX_SLOTS]):
            if device.startswith(_NAMED):
                slots.setdefault(device, []).append(number)
        if not slots or not _NVIDIA.exists():
            return ()
        if self._thread is None:
            self._found = ()
            self._thread = threading.Thread(target=self._ask, args=(slots,), name="nvml", daemon=True)
            self._thread.start()
        self._thread.join(_NVML_PATIENCE_S)
        if self._thread.is_alive():
            self._note_failure("it has not answered yet")
            return ()
        self._thread = None
        return self._found

    def _ask(self, slots: Mapping[str, Sequence[int]]) -> None:
        try:
            self._found = tuple(_ask_nvml(slots, self._note_failure))
        except ImportError:
            pass
        except Exception as error:  # noqa: BLE001 -- an old or broken library raises anything
            self._note_failure(repr(error))

    def _note_failure(self, what: str) -> None:
        _log.log(logging.DEBUG if self._has_failed else logging.WARNING, "NVML cannot measure the GPUs: %s", what)
        self._has_failed = True


def _ask_nvml(slots: Mapping[str, Sequence[int]], note_failure: Callable[[str], None]) -> Iterator[GpuMetrics]:
    nvml: Any = importlib.import_module("pynvml")
    # Opened each time: a driver can be loaded again meanwhile, or fail for a while.
    nvml.nvmlInit()
    try:
        for device in list(slots)[:MAX_GPUS]:
            try:
                yield _check(_measure_gpu(nvml, device, tuple(slots[device][:MAX_SLOTS_OF_GPU])))
            except Exception as error:  # noqa: BLE001 -- such as a GPU that has failed, or has no values; others count
                note_failure(f"{device}: {error!r}")
    finally:
        nvml.nvmlShutdown()


def _measure_gpu(nvml: Any, device: str, slots: tuple[int, ...]) -> GpuMetrics:
    handle = nvml.nvmlDeviceGetHandleByUUID(device)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        # NVML can say a little more than 100.
        busy = min(nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, 1.0)
    except nvml.NVMLError:
        busy = None  # not measured for a part of a GPU
    name = nvml.nvmlDeviceGetName(handle)
    return GpuMetrics(
        device=device,
        name=(name.decode(errors="replace") if isinstance(name, bytes) else str(name))[:MAX_NAME],
        slots=slots,
        busy=busy,
        memory_bytes=int(memory.used),
        total_bytes=int(memory.total),
    )


def _check(record: _T) -> _T:
    """Check a record as its receiver does. For "not available", NVML has numbers such as 2**64 - 1.

    Raises:
        msgspec.ValidationError: a value is impossible.
    """
    return convert(msgspec.to_builtins(record), type(record))


def read_busy(text: str) -> tuple[float, float]:
    r"""Return the ticks in which the CPUs worked, and all ticks, from the text of ``/proc/stat``.

    Guests are in the time of users already, so the first eight numbers are all.

    >>> read_busy("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 2 3 4\n")
    (16, 100)
    """
    ticks = [int(field) for field in text.split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
