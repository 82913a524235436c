"""Figures for Prometheus: requests as they come, the platform as it is when somebody looks. Names nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from legato.control.stages import Stage
from legato.control.store import Store

_KEPT_S: Final = 2.0  # the page is open to all: the store is asked no more often than this


class Figures:
    """The figures of one server.

    Args:
        store: of the platform.
        leads: whether this server has the control loop.
        num_followers: streams that are open.
    """

    def __init__(self, store: Store, leads: Callable[[], bool], num_followers: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "legato_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._elapsed = Histogram(
            "legato_request_seconds",
            "From a request to the end of its answer; of streams, how long they were open.",
            ["method", "route"],
            registry=self._registry,
        )
        self._registry.register(_Platform(store, leads, num_followers))
        self._turn = threading.Lock()
        self._rendered = b""
        self._rendered_at = -_KEPT_S

    def note_request(self, method: str, route: str, status: int, elapsed_s: float) -> None:
        """Count one request. ``route``: its template, never its path."""
        self._requests.labels(method, route, str(status)).inc()
        self._elapsed.labels(method, route).observe(elapsed_s)

    def render(self) -> bytes:
        """Return all figures in the text format; at most a moment old."""
        with self._turn:
            now = time.monotonic()
            if now - self._rendered_at >= _KEPT_S:
                self._rendered, self._rendered_at = generate_latest(self._registry), now
            return self._rendered


class _Platform:
    """Collects what the store says when somebody looks."""

    def __init__(self, store: Store, leads: Callable[[], bool], num_followers: Callable[[], int]) -> None:
        self._store = store
        self._leads = leads
        self._num_followers = num_followers

    def describe(self) -> list[Metric]:
        """Name nothing beforehand: that would ask the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        jobs = GaugeMetricFamily("legato_jobs", "Jobs by stage.", labels=["stage"])
        counted = self._store.jobs.count_by_stage()
        for stage in Stage:
            jobs.add_metric([stage], counted.get(stage, 0))
        yield jobs
        usable = [slot for slot in self._store.pool.list_slots() if slot.unusable_since is None]
        held = {allocation.slot: allocation for allocation in self._store.pool.list_open()}
        leaving = sum(1 for allocation in held.values() if allocation.release_asked_at is not None)
        slots = GaugeMetricFamily("legato_slots", "Slots by what they do.", labels=["state"])
        slots.add_metric(["held"], len(held) - leaving)
        slots.add_metric(["leaving"], leaving)
        slots.add_metric(["free"], sum(1 for slot in usable if slot.id not in held))
        yield slots
        leads = "1 if this server has the control loop."
        yield GaugeMetricFamily("legato_leads", leads, value=float(self._leads()))
        followers = "Open streams of events and logs."
        yield GaugeMetricFamily("legato_followers", followers, value=self._num_followers())
        last = "Number of the newest event."
        yield GaugeMetricFamily("legato_last_event", last, value=self._store.events.read_last_seq())
