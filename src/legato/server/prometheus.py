"""Metrics for Prometheus. Requests are counted as they come; the platform is read at a scrape. No names of users."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from legato.control.loop.loop_stats import TROUBLED, LoopStats
from legato.control.stages import Stage
from legato.control.store import Store
from legato.core.errors import StoreError
from legato.core.system_metrics import MachineMetrics

_KEPT_S: Final = 2.0  # anyone may request the page, so the store is read at most this often


class ServerMetrics:
    """The metrics of one server.

    Args:
        store: the store of the platform.
        stats: statistics of this process's control loop.
        leads: returns whether this server decides.
        num_followers: returns the number of open streams.
        read_machines: returns what the machines that report to this server use, by name.
        now: returns seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        stats: LoopStats,
        leads: Callable[[], bool],
        num_followers: Callable[[], int],
        read_machines: Callable[[], Mapping[str, MachineMetrics]] = dict,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "legato_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._elapsed = Histogram(
            "legato_request_seconds",
            "Time from a request to the end of its answer; for streams, how long they were open.",
            ["method", "route"],
            registry=self._registry,
        )
        self._registry.register(_Platform(store, stats, leads, num_followers, read_machines, now))
        self._lock = threading.Lock()
        self._rendered = b""
        self._rendered_at = -_KEPT_S

    def note_request(self, method: str, route: str, status: int, elapsed_s: float) -> None:
        """Count one request.

        Args:
            method: of the request.
            route: template of the path, because paths contain names.
            status: of the answer.
            elapsed_s: seconds from the request to the end of the answer.
        """
        self._requests.labels(method, route, str(status)).inc()
        self._elapsed.labels(method, route).observe(elapsed_s)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus, at most two seconds old."""
        with self._lock:
            now = time.monotonic()
            if now - self._rendered_at >= _KEPT_S:
                self._rendered, self._rendered_at = generate_latest(self._registry), now
            return self._rendered


class _Platform:
    """Collects the metrics of the control loop and the store at each scrape."""

    def __init__(
        self,
        store: Store,
        stats: LoopStats,
        leads: Callable[[], bool],
        num_followers: Callable[[], int],
        read_machines: Callable[[], Mapping[str, MachineMetrics]],
        now: Callable[[], float],
    ) -> None:
        self._read_machines = read_machines
        self._now = now
        self._store = store
        self._stats = stats
        self._leads = leads
        self._num_followers = num_followers

    def describe(self) -> list[Metric]:
        """Return no metrics, because their description would read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Leaves out those of the store while it cannot be read."""
        try:
            of_store = list(self._ask_store())
        except StoreError:
            of_store = []
        yield GaugeMetricFamily("legato_store_up", "1 if the store answers.", value=float(bool(of_store)))
        yield CounterMetricFamily(
            "legato_store_errors", "Number of failed uses of the store.", value=self._store.num_errors
        )
        yield GaugeMetricFamily("legato_followers", "Open streams of events and logs.", value=self._num_followers())
        yield from self._describe_rounds()
        yield from _describe_machines(list(self._read_machines().values()))
        yield from of_store

    def _describe_rounds(self) -> Iterator[Metric]:
        stats = self._stats
        counted = CounterMetricFamily(
            "legato_rounds", "Rounds of this server's control loop, while it decides.", labels=["outcome"]
        )
        counted.add_metric(["done"], stats.num_done)
        counted.add_metric(["failed"], stats.num_failed)
        yield counted
        text = "Duration of complete rounds in seconds."
        yield SummaryMetricFamily("legato_round_seconds", text, count_value=stats.num_done, sum_value=stats.elapsed_s)
        text = "End of the last complete round, in seconds since 1970; 0: there was none, or another server decides."
        yield GaugeMetricFamily("legato_last_round_time_seconds", text, value=stats.done_at or 0.0)
        text = "Messages that could not be sent to drivers."
        yield CounterMetricFamily("legato_failed_calls", text, value=stats.num_failed_calls)
        drivers = GaugeMetricFamily(
            "legato_drivers", "Drivers of jobs that died, or do not answer, in the last round.", labels=["state"]
        )
        for state in TROUBLED:
            drivers.add_metric([state], stats.drivers[state])
        yield drivers
        text = "Objects that the last round could not handle and left unchanged; the log says why."
        left_out = GaugeMetricFamily("legato_left_out", text, labels=["kind"])
        for kind in ("job", "queue", "slot"):
            left_out.add_metric([kind], stats.left_out[kind])
        yield left_out

    def _describe_clusters(self) -> Iterator[Metric]:
        """Yield numbers of the clusters, without names of users: anyone may request the page."""
        text = "Machines of a cluster by state, as it last showed them."
        machines = GaugeMetricFamily("legato_cluster_machines", text, labels=["cluster", "state"])
        text = "Users with machines of their own, by state; paused: no machine is asked for."
        users = GaugeMetricFamily("legato_cluster_users", text, labels=["cluster", "state"])
        for cluster in self._store.pilots.read_states(self._now()):
            counted = collections.Counter(pilot.state for pilot in cluster.pilots)
            for state in ("waiting", "running", "ending"):
                machines.add_metric([cluster.kind, state], counted[state])
            of_users = collections.Counter(owner.state for owner in cluster.owners)
            for state in ("ok", "paused"):
                users.add_metric([cluster.kind, state], of_users[state])
        yield machines
        yield users

    def _ask_store(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("legato_jobs", "Jobs by stage.", labels=["stage"])
        counted = self._store.jobs.count_by_stage()
        for stage in Stage:
            jobs.add_metric([stage], counted.get(stage, 0))
        yield jobs
        usable = [slot for slot in self._store.pool.list_slots() if slot.unusable_since is None]
        held = {allocation.slot: allocation for allocation in self._store.pool.list_open()}
        leaving = sum(1 for allocation in held.values() if allocation.release_asked_at is not None)
        slots = GaugeMetricFamily("legato_slots", "Slots by state.", labels=["state"])
        slots.add_metric(["held"], len(held) - leaving)
        slots.add_metric(["leaving"], leaving)
        slots.add_metric(["free"], sum(1 for slot in usable if slot.id not in held))
        yield slots
        yield from self._describe_clusters()
        leads = "1 if this server has the control loop."
        yield GaugeMetricFamily("legato_leads", leads, value=float(self._leads()))
        last = "Number of the newest event."
        yield GaugeMetricFamily("legato_last_event", last, value=self._store.events.read_last_seq())


def _describe_machines(machines: Sequence[MachineMetrics]) -> Iterator[Metric]:
    """Yield sums over the machines that report to this server. Without their names: anyone may request the page."""
    text = "Machines that have reported to this server in the last 30 s what they use."
    yield GaugeMetricFamily("legato_measured_machines", text, value=len(machines))
    cpus = GaugeMetricFamily("legato_cpus", "CPU cores of the measured machines.", labels=["state"])
    cpus.add_metric(["busy"], sum(machine.cpus for machine in machines))
    cpus.add_metric(["all"], sum(machine.num_cpus for machine in machines))
    yield cpus
    memory = GaugeMetricFamily("legato_memory_bytes", "Memory of the measured machines.", labels=["state"])
    memory.add_metric(["used"], sum(machine.memory_bytes for machine in machines))
    memory.add_metric(["all"], sum(machine.total_bytes for machine in machines))
    yield memory
    gpus = [gpu for machine in machines for gpu in machine.gpus]
    measured = GaugeMetricFamily("legato_gpus", "GPUs whose computing time is measured.", labels=["state"])
    measured.add_metric(["busy"], sum(gpu.busy for gpu in gpus if gpu.busy is not None))
    measured.add_metric(["all"], sum(1 for gpu in gpus if gpu.busy is not None))
    yield measured
    memory = GaugeMetricFamily("legato_gpu_memory_bytes", "Memory of the GPUs that NVML knows.", labels=["state"])
    memory.add_metric(["used"], sum(gpu.memory_bytes for gpu in gpus))
    memory.add_metric(["all"], sum(gpu.total_bytes for gpu in gpus))
    yield memory
