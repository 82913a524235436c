"""Judges from samples whether a worker's process makes progress. Pure: time and samples are arguments.

CPU time is counted by the system in ticks, and a process that only waits still uses a little, for its heartbeats and
for threads that wait for Python's lock. So a process counts as busy if it used a sufficient share of a window of time,
or was runnable in half of its samples: a starved process runs seldom, but is always runnable. A few samples are not
enough, because every process is runnable sometimes, especially on an overloaded machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from legato.system.processes import ProcessState, Vital

MIN_CPU_S: Final = 0.05
"""Less CPU time than this in a window says nothing: it is a few ticks of the system's clock."""
MIN_SHARE: Final = 0.02
"""Of one CPU. A worker that waits uses less than 0.5 % for its heartbeats."""
MIN_SAMPLES: Final = 8
"""A process is judged by how often it was found running only after this many samples."""


@dataclass(slots=True)
class Evidence:
    """The samples of one process.

    Attributes:
        state: in the last sample; None before the first.
        taken_at: when the last sample was taken.
        busy_at: when the process was last known to be busy.
        stopped_since: the first of the latest samples in a row that found it stopped; infinite if the last one did not.
        unreachable_at: when its machine last did not answer.
    """

    state: ProcessState | None = None
    taken_at: float = -math.inf
    busy_at: float = -math.inf
    unreachable_at: float = -math.inf
    stopped_since: float = math.inf
    _begun_at: float = 0.0
    _begun_cpu_s: float = 0.0
    _num_samples: int = 0
    _num_running: int = 0

    def take(self, vital: Vital, now: float, window_s: float) -> None:
        """Add a sample.

        Args:
            vital: the sample.
            now: when it was taken; never earlier than the previous one.
            window_s: window in seconds over which a process is judged; between samples further apart than twice this,
                nothing is known.
        """
        if vital.state == "unreachable":
            self.unreachable_at = now
            return
        is_first = now - self.taken_at > 2 * window_s
        self.state, self.taken_at = vital.state, now
        if vital.state != "stopped":
            self.stopped_since = math.inf
        elif is_first or self.stopped_since == math.inf:
            self.stopped_since = now
        if is_first:
            self._begin(vital, now)
            return
        self._num_samples += 1
        self._num_running += vital.state == "running"
        span_s = now - self._begun_at
        # The CPU time decreases when a process of the session has ended, which is progress too.
        used_s = abs(vital.cpu_s - self._begun_cpu_s)
        if used_s >= max(MIN_CPU_S, MIN_SHARE * span_s):
            self.busy_at = now
        elif span_s < window_s or self._num_samples < MIN_SAMPLES:
            return
        elif 2 * self._num_running >= self._num_samples:
            self.busy_at = now
        self._begin(vital, now)

    def forgive(self, stalled_s: float, now: float) -> None:
        """Discard the time for which the driver itself was suspended."""
        self.busy_at = min(self.busy_at + stalled_s, now)
        self.stopped_since = max(self.stopped_since, now)

    def _begin(self, vital: Vital, now: float) -> None:
        self._begun_at, self._begun_cpu_s = now, vital.cpu_s
        self._num_samples = self._num_running = 0
