"""Keeps what a job's workers and their machines use: the newest samples in memory, all of them in ``system.jsonl``.

The file stays below a limit: when it is full, each two lines become one with their averages, and new lines span twice
the time. Nothing is interpolated: where nothing was measured, there is no line.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from legato.core.clock import Clock
from legato.core.slots import indexes_of, node_of
from legato.core.system_metrics import (
    MEASURE_EVERY_S,
    MachineMetrics,
    SystemLine,
    SystemSample,
    WorkerLine,
    choose_gpus,
    describe_worker,
    follows,
    halve,
    merge,
)
from legato.driver.journal import replace_file
from legato.system.decoding import decode

_log = logging.getLogger(__name__)

_MAX_BYTES: Final = 2 * 2**20
_MIN_LINES: Final = 8
"""A line that takes a larger part of the file than one of so many is written without machines."""
_LONGEST_S: Final = 3 * MEASURE_EVERY_S
"""After a longer time between two samples, such as one in which the machine was suspended, there is a gap."""


class SystemLog:
    """The samples of one job. `load` and `write` use the disk, so call them in a thread, one at a time.

    Args:
        path: of the file; an existing one is continued.
        max_bytes: its maximum size.
        clock: seconds.
    """

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._path = path
        self._max_bytes = max_bytes
        self._every_s = MEASURE_EVERY_S
        self._num_bytes = 0
        self._is_cut = False
        self._last: float | None = None
        self._pending: SystemLine | None = None
        self._unwritten: list[SystemLine] = []
        self._workers: dict[int, WorkerLine] = {}
        self._nodes: dict[str, MachineMetrics] = {}
        self._noted_at = -math.inf

    @property
    def workers(self) -> dict[int, WorkerLine]:
        """Those of the last sample, by number; none if it is old."""
        return self._workers if self._is_new else {}

    @property
    def nodes(self) -> dict[str, MachineMetrics]:
        """Those of the last sample, by name, with the GPUs of the job's slots; none if it is old."""
        return self._nodes if self._is_new else {}

    @property
    def _is_new(self) -> bool:
        return self._clock() - self._noted_at < _LONGEST_S

    def load(self) -> None:
        """Continue an existing file, with lines that span the same time."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        if content and not content.endswith(b"\n"):
            # A crash has cut the last line off.
            content = content[: content.rfind(b"\n") + 1]
            replace_file(self._path, content)
        self._num_bytes = len(content)
        lines = read_lines(content)
        if lines:
            doublings = max(round(math.log2(max(lines[-1].span_s, 1.0) / MEASURE_EVERY_S)), 0)
            self._every_s = MEASURE_EVERY_S * 2**doublings

    def note(
        self, now: float, samples: Mapping[str, SystemSample], slots: Mapping[int, str], waits: Mapping[int, float]
    ) -> None:
        """Note the newest samples; `write` writes them.

        Args:
            now: seconds since 1970.
            samples: by node.
            slots: of the workers that run, by number.
            waits: the part of the time of its steps that each worker waited for data since the last call.
        """
        self._noted_at = self._clock()
        numbers: dict[str, set[int]] = {}
        for slot in slots.values():
            numbers.setdefault(node_of(slot), set()).update(indexes_of(slot))
        own = {node: choose_gpus(samples[node], numbers[node]) for node in numbers if node in samples}
        self._nodes = {node: sample.machine for node, sample in own.items() if sample.machine is not None}
        self._workers = {}
        for number, slot in slots.items():
            used = describe_worker(slot, indexes_of(slot), own.get(node_of(slot)), number)
            if number in waits:
                used = msgspec.structs.replace(used, data_wait=round(waits[number], 3))
            if used != WorkerLine(slot=slot):
                self._workers[number] = used
        before, self._last = self._last, now
        if before is None or not 0 < now - before < _LONGEST_S or not (self._workers or self._nodes):
            return
        line = SystemLine(time=now, span_s=now - before, workers=self._workers, nodes=self._nodes)
        if self._pending is not None and not follows(line, self._pending):
            self._unwritten.append(self._pending)
            self._pending = None
        joined = line if self._pending is None else merge(self._pending, line)
        self._pending = joined if joined.span_s < self._every_s - MEASURE_EVERY_S / 2 else None
        if self._pending is None:
            self._unwritten.append(joined)

    def write(self) -> None:
        """Write what is complete. With a full disk, lines are lost; the job continues."""
        lines, self._unwritten = self._unwritten, []
        content = _encode(
            line if len(_encode([line])) <= self._max_bytes // _MIN_LINES else msgspec.structs.replace(line, nodes={})
            for line in lines
        )
        if not content:
            return
        try:
            with self._path.open("ab") as file:
                # A full disk may have taken a part of the line before.
                file.write(b"\n" * self._is_cut + content)
            self._is_cut = False
            self._num_bytes += len(content)
            if self._num_bytes > self._max_bytes:
                self._thin()
        except OSError as error:
            self._is_cut = True
            _log.warning("Cannot write what the job's machines use to %s: %s", self._path, error)

    def _thin(self) -> None:
        thinned = halve(read_lines(self._path.read_bytes()))
        content = _encode(thinned)
        while len(content) > self._max_bytes * 3 // 4:
            # Lines that cannot be joined, because the job was away between them: the oldest go.
            thinned = thinned[len(thinned) // 4 + 1 :]
            content = _encode(thinned)
        replace_file(self._path, content)
        self._num_bytes = len(content)
        self._every_s *= 2


def read_lines(content: bytes) -> list[SystemLine]:
    """Read lines, without those that cannot be read."""
    lines = []
    for line in content.splitlines():
        try:
            lines.append(decode(line, SystemLine))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return lines


def _encode(lines: Iterable[SystemLine]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
