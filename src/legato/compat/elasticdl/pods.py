"""Jobs in the form of `kubectl get pods`: a master and its workers, with names and states of pods. Pure.

The master is the job's driver. Workers that left because the job shrank are not listed, as their pods would be gone;
workers that died are listed, as their pods would stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from legato.api.jobs import JobRecord, TrainingEvent

_STATES: Final = {
    "queued": "Pending",
    "starting": "ContainerCreating",
    "running": "Running",
    "pausing": "Terminating",
    "paused": "Paused",
    "stopping": "Terminating",
    "succeeded": "Completed",
    "failed": "Error",
    "stopped": "Stopped",
}
_WORKER_STATES: Final = {
    "started": "ContainerCreating",
    "joining": "Running",
    "working": "Running",
    "warm": "Running",
    "joined": "Running",
    "finished": "Completed",
    "died": "Error",
    "failed": "Error",
    "refused": "Error",
    "fenced": "Error",
}
_TITLES: Final = ("NAME", "READY", "STATUS", "RESTARTS", "AGE")
_OVER: Final = ("Completed", "Error")
_READY: Final = frozenset({"Running", "Terminating"})


class Pod(NamedTuple):
    """A line of the listing.

    Args:
        name: of the pod.
        status: as Kubernetes calls it.
        num_restarts: of it.
        age_s: since it was made.
    """

    name: str
    status: str
    num_restarts: int
    age_s: float


def list_pods(job: JobRecord, events: Iterable[TrainingEvent], now: float) -> list[Pod]:
    """Return the pods of a job.

    Args:
        job: to list.
        events: of its training, all of them.
        now: seconds since 1970.
    """
    has_finished = False
    born: dict[int, float] = {}
    states: dict[int, str] = {}
    for event in events:
        if event.worker is None:
            has_finished = event.kind == "finished"
            continue
        if event.kind == "started":
            has_finished = False
            born[event.worker] = event.time
        if event.kind in _WORKER_STATES:
            states[event.worker] = _WORKER_STATES[event.kind]
        elif event.kind == "left" and states.get(event.worker) not in _OVER:
            states.pop(event.worker, None)
    status = _STATES.get(job.stage, "Unknown")
    if has_finished and job.stage in ("starting", "running"):
        # The platform records it a moment later.
        status = "Completed"
    elif job.stage == "starting" and any(state not in _OVER for state in states.values()):
        # Its driver runs, for it has started workers; to the platform a job runs when one of them trains.
        status = "Running"
    master = Pod(f"elasticdl-{job.name}-master", status, max(job.attempt - 1, 0), now - job.submitted_at)
    workers = [
        Pod(f"{job.name}-edljob-worker-{number}", _of_worker(state, job.stage), 0, now - born.get(number, now))
        for number, state in sorted(states.items())
    ]
    return [master, *(worker for worker in workers if worker.status)]


def _of_worker(state: str, stage: str) -> str:
    """Return the state of a worker whose job may be over; "" if it is gone with its job."""
    is_over = stage in ("paused", "stopped", "failed", "succeeded")
    return "" if is_over and state not in _OVER else state


def render_pods(pods: Sequence[Pod]) -> str:
    """Return the listing.

    >>> print(render_pods([Pod("elasticdl-a-master", "Running", 0, 7.2), Pod("a-edljob-worker-0", "Running", 0, 150)]))
    NAME                 READY   STATUS    RESTARTS   AGE
    elasticdl-a-master   1/1     Running   0          7s
    a-edljob-worker-0    1/1     Running   0          2m30s
    """
    rows = [_TITLES, *(_row(pod) for pod in pods)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _row(pod: Pod) -> tuple[str, ...]:
    ready = "1/1" if pod.status in _READY else "0/1"
    return (pod.name, ready, pod.status, str(pod.num_restarts), render_age(pod.age_s))


def render_age(age_s: float) -> str:
    """Return an age as Kubernetes writes it.

    >>> [render_age(age_s) for age_s in (7.9, 119, 120, 599, 3600, 11000, 30000, 200000, 9e7)]
    ['7s', '119s', '2m', '9m59s', '60m', '3h3m', '8h', '2d7h', '2y311d']
    """
    seconds = max(int(age_s), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for is_it, large, unit, small, small_unit in (
        (seconds < 120, seconds, "s", 0, ""),
        (minutes < 10, minutes, "m", seconds % 60, "s"),
        (minutes < 180, minutes, "m", 0, ""),
        (hours < 8, hours, "h", minutes % 60, "m"),
        (hours < 48, hours, "h", 0, ""),
        (days < 8, days, "d", hours % 24, "h"),
        (days < 730, days, "d", 0, ""),
    ):
        if is_it:
            return f"{large}{unit}" + (f"{small}{small_unit}" if small else "")
    return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
