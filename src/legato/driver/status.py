"""The status of a job: one dictionary for the command line and for clients. Changes nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from legato.core.lifecycle import JobState
from legato.core.slots import node_of, slot_key
from legato.core.system_metrics import WorkerLine, add_up
from legato.core.wire import Metrics, Progress
from legato.driver.data_waits import DataWaits
from legato.driver.delays import Delays
from legato.driver.job import JobFacts
from legato.driver.journal import Outcome
from legato.driver.record import Event
from legato.driver.speeds import Size, SpeedMeter
from legato.driver.system_log import SystemLog

NUM_EVENTS: Final = 20  # events shown in a status
_TRAINS: Final = "train"
_SMOOTHING_S: Final = 10.0  # after so many seconds, the weight of an old rate is a third
_NUM_FIRST: Final = 2  # reports of a view that count alone: the first one includes the time of the change


class Meter:
    """Progress and speed of the training, from reports of workers."""

    def __init__(self) -> None:
        self.last: Progress | None = None
        self.from_step: int | None = None
        self.samples_per_s: float | None = None
        self.metrics: Metrics | None = None
        self.logged_loss: float | None = None
        self.delays = Delays()
        self.speeds = SpeedMeter()
        self.data_waits = DataWaits()
        self.sent_bytes: dict[int, int] = {}
        self._measured_at: float | None = None
        self._view = -1
        self._num_in_view = 0

    def note_metrics(self, metrics: Metrics) -> None:
        """Keep the newest logged metrics."""
        self.metrics = metrics
        self.logged_loss = metrics.values.get("loss", self.logged_loss)

    def note_sent(self, worker: int, progress: Progress) -> None:
        """Keep how many bytes per step a worker sent to other nodes in its last steps."""
        if progress.num_samples:
            self.sent_bytes[worker] = progress.sent_bytes // (progress.last_step - progress.first_step + 1)

    def note(
        self,
        progress: Progress,
        num_new: int,
        now: float,
        *,
        size: Size | None = None,
        is_planned: bool = False,
    ) -> None:
        """Handle a report with ``num_new`` new steps.

        A job that went back to a checkpoint reports old steps, which count for its position but not for its speed.
        ``size``: of its view; None: not known. ``is_planned``: a planned change made its view.
        """
        evaluates = progress.phase != _TRAINS or (self.last is not None and self.last.phase != _TRAINS)
        if self.from_step is None:
            # A report without samples: the position of the checkpoint from which the job continues.
            self.from_step = progress.first_step - 1 if progress.num_samples else progress.last_step
        if self.last is None or (progress.view, progress.last_step) >= (self.last.view, self.last.last_step):
            self.last = progress
        if num_new <= 0:
            return
        num_reported = progress.last_step - progress.first_step + 1
        num_samples = progress.num_samples * num_new / num_reported
        elapsed_s = now - self._measured_at if self._measured_at is not None else 0.0
        self._measured_at = now
        if evaluates:
            self.delays.skip(progress.view)
        elif elapsed_s > 0:
            self.delays.note(progress.view, num_new, elapsed_s, is_planned=is_planned)
            if size is not None:
                self.speeds.note(progress.view, size, num_samples, elapsed_s, now)
        if elapsed_s > 0:
            rate = num_samples / elapsed_s
            self._num_in_view = self._num_in_view + 1 if progress.view == self._view else 1
            self._view = progress.view
            weight = 1.0 if self._num_in_view <= _NUM_FIRST else 1 - math.exp(-elapsed_s / _SMOOTHING_S)
            self.samples_per_s = (self.samples_per_s or 0.0) * (1 - weight) + rate * weight


def build_status(
    job: JobFacts,
    meter: Meter,
    events: deque[Event],
    outcome: Outcome | None,
    now: float,
    system: SystemLog | None = None,
) -> dict[str, Any]:
    """Return the job's status, as documented in ``docs/cli.md``. All values are plain JSON."""
    last, logged = meter.last, meter.metrics
    uses = {} if system is None else system.workers
    nodes = {} if system is None else system.nodes
    return {
        "name": job.spec.name,
        "state": _describe_state(job),
        "step": last.last_step if last else None,
        "from_step": meter.from_step,
        "epoch": last.epoch if last else None,
        "num_steps": last.num_steps if last else None,
        "num_epochs": last.num_epochs if last else None,
        "loss": last.loss if last and last.loss is not None else meter.logged_loss,
        "differed_step": job.differed_step,
        "phase": last.phase if last else None,
        "samples_per_s": meter.samples_per_s,
        "resize_s": meter.delays.last_s,
        "speeds": meter.speeds.list(now),
        "sent_bytes": _sum_by_node(job, meter),
        "data_wait": meter.data_waits.largest((member.number for member in job.members()), now),
        "metrics": {"step": logged.step, "epoch": logged.epoch, "values": logged.values} if logged else None,
        **_sum_up(uses.values()),
        # Workers may share a GPU.
        "gpu_memory_bytes": _add_known(gpu.memory_bytes for node in nodes.values() for gpu in node.gpus),
        "num_workers": sum(1 for member in job.members() if member.has_state)
        + len(job.where(lambda worker: worker.only_works)),
        "num_wanted": len(job.wanted),
        "slots": {
            "wanted": sorted(job.wanted, key=slot_key),
            "in_use": sorted({worker.slot for worker in job.present()}, key=slot_key),
            "given_up": sorted(job.given_up, key=slot_key),
            "surplus": sorted(job.surplus, key=slot_key),
            "available": list(job.available),
        },
        "refusals": dict(job.refusals),
        "lost_nodes": sorted({node_of(worker.slot) for worker in job.present() if job.is_lost(worker)}),
        "unconnected": job.unconnected if job.pending is not None else None,
        "num_micro_batches": job.num_micro_batches,
        "shares_freely": job.shares_freely,
        "min_workers": job.spec.min_workers,
        "max_workers": job.spec.max_workers,
        "view": job.current.number if job.current else None,
        "workers": [
            {
                "worker": worker.number,
                "slot": worker.slot,
                "pid": worker.pid,
                "phase": "working" if worker.only_works else str(worker.phase),
                "phase_s": round(max(now - worker.since, 0.0), 3),
                "rank": job.current.rank_of(worker.number) if job.current else None,
                "view": worker.view or None,
                "num_rounds": worker.num_rounds,
                "connected": not worker.away,
                "last_heard_s": round(max(now - worker.last_heard, 0.0), 3),
                "data_wait": meter.data_waits.share(worker.number, now),
                **_sum_up([uses[worker.number]] if worker.number in uses else []),
            }
            for worker in job.present()
        ],
        "nodes": {name: msgspec.to_builtins(node) for name, node in nodes.items()},
        "events": [msgspec.to_builtins(event) for event in events],
        "outcome": msgspec.to_builtins(outcome) if outcome else None,
    }


def _sum_up(uses: Collection[WorkerLine]) -> dict[str, Any]:
    """Return what workers use together. None: it was measured of none of them."""
    busy = [use.gpu_busy for use in uses if use.gpu_busy is not None]
    return {
        "cpus": _add_known(use.cpus for use in uses),
        "memory_bytes": _add_known(use.memory_bytes for use in uses),
        "gpu_memory_bytes": _add_known(use.gpu_memory_bytes for use in uses),
        "gpu_busy": sum(busy) / len(busy) if busy else None,
    }


def _add_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return add_up(known) if known else None


def _sum_by_node(job: JobFacts, meter: Meter) -> dict[str, int]:
    """Return how many bytes per step each node sends to other nodes; empty if nothing is known to pass."""
    sums: dict[str, int] = {}
    for member in job.members():
        node = node_of(member.slot)
        sums[node] = sums.get(node, 0) + meter.sent_bytes.get(member.number, 0)
    return sums if any(sums.values()) else {}


def _describe_state(job: JobFacts) -> str:
    """Return the state of a job; ``working`` if no worker trains, but some work for its plugin or on a command."""
    only_works = job.state is JobState.FORMING and any(worker.only_works for worker in job.present())
    return "working" if only_works else str(job.state)
