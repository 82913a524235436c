"""What jobs that have ended cost: the same requests to two servers, one with few ended jobs and one with 100,000.

Both stores have the same waiting jobs. All ended jobs are of one user in a closed queue, so another user, who may not
see them, has them in the way only. A request goes to both servers in turn; what is compared is the CPU time of all
threads of the server, as the system counts it in nanoseconds.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.figures import plain
from benchmarks.jobs import BenchmarkError, Say, scratch
from benchmarks.load import LIMITS, make_submission
from benchmarks.platform import Platform, platform
from legato.control.ids import make_id
from legato.control.store.database import Database
from legato.control.store.schema import allocations, attempts, audit_log, counters, decisions, events, job_labels, jobs
from legato.control.store.transactions import ENDED_AS, EVENTS

_FEW_JOBS: Final = 1_000
_NUM_WAITING: Final = 100
_BATCH: Final = 5_000
_DAY_S: Final = 86_400.0
_TARGET: Final = 1.2
_LIMIT_S: Final = 120.0
_ADMIN, _USER = "admin", "ann"
_PASSWORD: Final = "a password of a benchmark"
_CLOSED: Final = "closed"
_STAGES: Final = ("succeeded", "succeeded", "succeeded", "failed", "stopped")

_REQUESTS: Final[dict[str, tuple[str, str, str]]] = {
    "list of jobs": (_ADMIN, "GET", "/jobs"),
    "list of jobs, of a user who sees none of them": (_USER, "GET", "/jobs"),
    "list of jobs, waiting": (_ADMIN, "GET", "/jobs?stage=queued"),
    "list of jobs, failed": (_ADMIN, "GET", "/jobs?stage=failed"),
    "list of jobs, of an owner": (_ADMIN, "GET", "/jobs?owner=ann"),
    "list of jobs, by name": (_ADMIN, "GET", "/jobs?name=waits"),
    "list of jobs, search": (_ADMIN, "GET", "/jobs?search=waits"),
    "list of jobs, by label": (_ADMIN, "GET", "/jobs?label=team%3Dvision"),
    "list of jobs, a late page": (_ADMIN, "GET", "/jobs?after=AFTER"),
    "a job by name": (_ADMIN, "GET", "/jobs/waits-5"),
    "events of a job": (_ADMIN, "GET", "/jobs/AFTER/events"),
    "events, the newest": (_ADMIN, "GET", "/events?after=NEWEST"),
    "events from the first on, of a user who sees none of them": (_USER, "GET", "/events?after=0"),
    "the pool": (_ADMIN, "GET", "/pool"),
    "the pool, of a user who sees none of them": (_USER, "GET", "/pool"),
    "the queues": (_ADMIN, "GET", "/queues"),
    "the timeline of the last hour": (_ADMIN, "GET", "/timeline"),
    "use of the last day": (_ADMIN, "GET", "/usage"),
    "moves of the last hour": (_ADMIN, "GET", "/moves"),
    "the audit log": (_ADMIN, "GET", "/audit"),
    "figures for Prometheus": (_ADMIN, "GET", "/metrics"),
    "a submission": (_ADMIN, "POST", "/jobs"),
}


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per request."""
    num_jobs, num_rounds = (20_000, 3) if quick else (100_000, 4)
    with scratch() as directory, contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(_serve(directory / name, number))
            for name, number in (("many", num_jobs), ("few", _FEW_JOBS))
        ]
        say(f"two servers, with {num_jobs:,} and {_FEW_JOBS:,} ended jobs")
        for what, request in _REQUESTS.items():
            took = [_compare(sides, request) for _ in range(num_rounds + 1)][1:]
            ratio = plain([many / few for (many, _), (few, _) in took])
            cpu_ms, ms = ([[1e3 * side[which] for side in one] for one in took] for which in (0, 1))
            yield {
                "what": what,
                "jobs": num_jobs,
                "few": _FEW_JOBS,
                "ratio": ratio,
                "target": _TARGET,
                "cpu_ms": [statistics.median(one[side] for one in cpu_ms) for side in (0, 1)],
                "ms": [statistics.median(one[side] for one in ms) for side in (0, 1)],
            }
            say(f"{what}: {ratio['median']:.2f}")


class _Side:
    """One server, and a connection to it for each user."""

    def __init__(self, server: Platform, lines: dict[str, httpx.Client], after: str, newest: int) -> None:
        self.server = server
        self.lines = lines
        self._places = {"AFTER": after, "NEWEST": str(newest)}

    def ask(self, user: str, method: str, path: str) -> tuple[float, float]:
        """Send a request; return the CPU time of the server and the time until the answer, in seconds."""
        for name, place in self._places.items():
            path = path.replace(name, place)
        body = make_submission("another") if method == "POST" else None
        line = self.lines[user]
        before_s, began = read_cpu_s(self.server.pid), time.monotonic()
        answer = line.request(method, f"{self.server.url}{path}" if path == "/metrics" else path, json=body)
        took_s = time.monotonic() - began
        if not answer.is_success:
            raise BenchmarkError(f"{method} {path} was answered with {answer.status_code}: {answer.text[:200]}.")
        time.sleep(0.01)  # what the server still does for it
        return read_cpu_s(self.server.pid) - before_s, took_s


def _compare(sides: list[_Side], request: tuple[str, str, str]) -> list[tuple[float, float]]:
    took = [side.ask(*request) for side in sides]
    if request[2] == "/metrics":
        time.sleep(2.1)  # its answer is kept for two seconds
    elif request[1] == "GET":
        time.sleep(1.1)  # lists are shared for a second
    return took


@contextlib.contextmanager
def _serve(home: Path, num_jobs: int) -> Iterator[_Side]:
    with (
        platform(home, slots=1, **LIMITS, keep_jobs_days=10_000) as server,
        _open_line(server.url, server.token) as admin,
    ):
        admin.post("/users", json={"name": _USER, "role": "user", "password": _PASSWORD}).raise_for_status()
        admin.put(f"/queues/{_CLOSED}", json={"is_open": False}).raise_for_status()
        after, newest = fill(Database(f"sqlite:///{home / 'legato.db'}"), num_jobs)
        for index in range(_NUM_WAITING):
            admin.post("/jobs", json=make_submission(f"waits-{index}")).raise_for_status()
        login = admin.post("/login", json={"user": _USER, "password": _PASSWORD}).raise_for_status()
        with _open_line(server.url, login.json()["secret"]) as user:
            yield _Side(server, {_ADMIN: admin, _USER: user}, after, newest)


def _open_line(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=f"{url}/api/v1", timeout=_LIMIT_S, headers={"Authorization": f"Bearer {token}"})


def fill(database: Database, num_jobs: int) -> tuple[str, int]:
    """Insert jobs that have ended over the last 90 days; return the id of one in the middle, and the newest event."""
    drawn = random.Random(1)
    now = time.time()
    first_s, every_s = now - 90 * _DAY_S, 89.9 * _DAY_S / num_jobs
    with database.writing() as connection:
        seq = connection.execute(counters.select().where(counters.c.name == EVENTS)).one().value
        slot = connection.exec_driver_sql("select id from slots").scalar_one()
    middle = last = ""
    for begin in range(0, num_jobs, _BATCH):
        tables = (jobs, job_labels, attempts, allocations, decisions, events, audit_log)
        rows: dict[Any, list[dict[str, Any]]] = {table: [] for table in tables}
        for index in range(begin, min(begin + _BATCH, num_jobs)):
            at = first_s + index * every_s
            last = job = make_id("j", at, drawn.getrandbits, last)
            middle = job if index == num_jobs // 2 else middle
            _add_job(rows, job, at, every_s, drawn.choice(_STAGES), slot, seq)
            seq += 5
        with database.writing() as connection:
            for table, these in rows.items():
                connection.execute(table.insert(), these)
            connection.execute(counters.update().where(counters.c.name == EVENTS).values(value=seq))
            for stage, counter in ENDED_AS.items():
                number = sum(row["stage"] == stage for row in rows[jobs])
                counting = counters.update().where(counters.c.name == counter)
                connection.execute(counting.values(value=counters.c.value + number))
    database.close()
    return middle, seq


def _add_job(
    rows: dict[Any, list[dict[str, Any]]], job: str, at: float, for_s: float, stage: str, slot: str, seq: int
) -> None:
    times = {"submitted_at": at, "started_at": at, "ended_at": at + for_s, "staged_at": at + for_s}
    rows[jobs].append(
        {
            "id": job,
            "name": f"ended-{seq % 997}",
            "owner": _ADMIN,
            "queue": _CLOSED,
            "priority": 5000,
            "min_workers": 1,
            "max_workers": 4,
            "is_elastic": True,
            "max_retries": 0,
            "labels": {"team": "text"},
            "spec": {"program": ["train.py", "--epochs", "10"], "directory": "/home/admin/work"},
            "stage": stage,
            "reason": "the program ended",
            "attempt": 1,
            "num_retries": 0,
            "exit_code": 0,
            "stop_now": False,
            "version": 4,
            "decided_slots": None,
            "decided_reason": None,
            "progress": {"time": at, "num_workers": 1, "step": 100, "epoch": 9, "loss": 0.5},
            "gpus_per_worker": 1,
            **times,
        }
    )
    rows[job_labels].append({"key": "team", "value": "text", "job": job})
    rows[attempts].append(
        {"job": job, "attempt": 1, "started_at": at, "ended_at": at + for_s, "outcome": stage, "reason": "it ended"}
    )
    rows[allocations].append({"slot": slot, "job": job, "attempt": 1, "since": at, "until": at + for_s})
    row = {"job": job, "attempt": 1, "time": at}
    rows[decisions] += [{**row, "num_slots": number, "reason": "its share of the pool"} for number in (1, 2)]
    moves = ("queued", "starting", "running", "running", stage)
    told = {"kind": "stage", "reason": "it moved on", **{name: row[name] for name in ("job", "attempt", "time")}}
    rows[events] += [
        {**told, "seq": seq + 1 + place, "detail": {"from": None, "to": move}} for place, move in enumerate(moves)
    ]
    rows[audit_log].append({"time": at, "who": _ADMIN, "action": "job.submit", "target": job, "detail": None})


def read_cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, in seconds."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9
