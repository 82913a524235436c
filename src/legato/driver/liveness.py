"""Whether a worker's process makes progress, judged by samples of it. Pure: time and samples come in.

CPU time is counted by the system in ticks, and a process that only waits still uses a little, for its heartbeats and
for threads that wait for Python's lock. So a process counts as busy when it used a fair share of a window of time, or
was found running in half of its samples: a starved process runs seldom but always wants to. A few samples do not show
that, because any process is found running now and then, most of all on a machine that has too much to do.
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
    """What is known of one process.

    Attributes:
        state: in the last sample; None before the first.
        taken_at: when the last sample was taken.
        busy_at: when the process was last known to be busy.
    """

    state: ProcessState | None = None
    taken_at: float = -math.inf
    busy_at: float = -math.inf
    _begun_at: float = 0.0
    _begun_cpu_s: float = 0.0
    _num_samples: int = 0
    _num_running: int = 0

    def take(self, vital: Vital, now: float, window_s: float) -> None:
        """Take a sample in.

        Args:
            vital: the sample.
            now: when it was taken; never earlier than the one before.
            window_s: a process is judged by what it did within this time; samples further apart than twice that say
                nothing about the time between them.
        """
        is_first = now - self.taken_at > 2 * window_s
        self.state, self.taken_at = vital.state, now
        if is_first:
            self._begin(vital, now)
            return
        self._num_samples += 1
        self._num_running += vital.state == "running"
        span_s = now - self._begun_at
        # It is less than before when a process of the session has ended, which is making progress too.
        used_s = abs(vital.cpu_s - self._begun_cpu_s)
        if used_s >= max(MIN_CPU_S, MIN_SHARE * span_s):
            self.busy_at = now
        elif span_s < window_s or self._num_samples < MIN_SAMPLES:
            return
        elif 2 * self._num_running >= self._num_samples:
            self.busy_at = now
        self._begin(vital, now)

    def forgive(self, stalled_s: float, now: float) -> None:
        """Take note that the driver itself slept: that time does not count."""
        self.busy_at = min(self.busy_at + stalled_s, now)

    def _begin(self, vital: Vital, now: float) -> None:
        self._begun_at, self._begun_cpu_s = now, vital.cpu_s
        self._num_samples = self._num_running = 0
