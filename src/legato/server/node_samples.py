"""What the machines of the pool use: the newest samples and the last hour, in the memory of this server.

A machine reports to one server at a time, so other servers of the pool do not know its samples.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from legato.core.system_metrics import MEASURE_EVERY_S, MachineMetrics, SystemLine, follows, merge
from legato.engines.system_meter import SystemMeter

_log = logging.getLogger(__name__)

_SPAN_S: Final = 30.0
_MAX_LINES: Final = 120
_NEWEST_S: Final = 3 * MEASURE_EVERY_S
_PURGE_EVERY_S: Final = 60.0


class NodeSamples:
    """The samples of all machines that report to this server. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, tuple[SystemLine, deque[SystemLine]]] = {}
        self._purged_at = 0.0

    def note(self, node: str, metrics: MachineMetrics, now: float) -> None:
        """Keep a sample of a machine.

        Args:
            node: its name.
            metrics: the sample.
            now: seconds since 1970.
        """
        with self._lock:
            before, lines = self._nodes.get(node, (None, deque[SystemLine](maxlen=_MAX_LINES)))
            # A new machine, a silent one, or a clock that was set back: the sample is that of the last seconds.
            is_next = before is not None and 0 < now - before.time < _NEWEST_S
            span_s = now - before.time if before is not None and is_next else MEASURE_EVERY_S
            line = SystemLine(time=now, span_s=span_s, workers={}, nodes={node: metrics})
            if lines and lines[-1].span_s < _SPAN_S - MEASURE_EVERY_S / 2 and follows(line, lines[-1]):
                lines[-1] = merge(lines[-1], line)
            else:
                lines.append(line)
            self._nodes[node] = line, lines
            if abs(now - self._purged_at) > _PURGE_EVERY_S:
                self._purged_at, oldest = now, now - _MAX_LINES * _SPAN_S
                self._nodes = {name: kept for name, kept in self._nodes.items() if kept[0].time > oldest}

    def newest(self, now: float) -> dict[str, MachineMetrics]:
        """Return the newest sample of each machine; old ones are left out."""
        with self._lock:
            return {
                name: line.nodes[name] for name, (line, _) in self._nodes.items() if abs(now - line.time) < _NEWEST_S
            }

    def lines(self, node: str) -> Sequence[SystemLine]:
        """Return the samples of a machine in the last hour, the oldest first; each is an average over half a minute."""
        with self._lock:
            return tuple(self._nodes[node][1]) if node in self._nodes else ()


async def measure_own(samples: NodeSamples, node: str, devices: Sequence[str], now: Callable[[], float]) -> None:
    """Measure the server's own machine until cancelled.

    Args:
        samples: for its samples.
        node: its name in the pool.
        devices: of its slots.
        now: seconds since 1970.
    """
    meter = SystemMeter()
    while True:
        try:
            machine = (await asyncio.to_thread(meter.measure, {}, devices)).machine
            if machine is not None:
                samples.note(node, machine, now())
        except Exception:  # noqa: BLE001 -- the end of this would stop the server
            _log.exception("The server cannot keep what its machine uses")
        await asyncio.sleep(MEASURE_EVERY_S)
