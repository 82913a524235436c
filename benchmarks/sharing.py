"""Two jobs on one pool, elastic against gang: ElasticDL's experiment 1, on a real server with real training.

A pool of six slots; each job may use four. The second one is submitted while the first one runs. As gangs they need
exactly four, so the second waits until the first has ended; elastic ones share. Measured is the time from the first
submission until both have ended.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.jobs import PROGRAMS, ROOT, BenchmarkError, Say, scratch
from benchmarks.platform import platform
from legato.client.client import Client
from legato.client.jobs import Job
from legato.drawing.files import write_picture
from legato.drawing.holdings import Holding, Panel
from legato.drawing.timeline import draw_timeline

PICTURE: Final = ROOT / "docs" / "pictures" / "sharing.svg"
ELASTICDL_RATIO: Final = 809 / 968  # of its experiment 1, on a Kubernetes cluster
_SLOTS: Final = 6
_WORKERS: Final = 4
_WAIT_S: Final = 0.0025  # per image
_SECOND_AFTER_STEPS: Final = 20
_LIMIT_S: Final = 300.0
_HASH: Final = re.compile(r"weights sha256 (\w{64})")


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row for each repetition: both totals, their ratio, and whether all weights are the same."""
    epochs = 4 if quick else 20
    for repetition in range(1 if quick else 3):
        with scratch() as directory, platform(directory / "platform", slots=_SLOTS) as server:
            begun: dict[str, float] = {}
            totals: dict[str, float] = {}
            jobs: dict[str, list[Job]] = {}
            for kind in ("gang", "elastic"):
                begun[kind] = time.time()
                jobs[kind] = _play(server.client, kind, epochs, is_elastic=kind == "elastic")
                totals[kind] = max(job.record.ended_at or 0.0 for job in jobs[kind]) - begun[kind]
            hashes = {_hash_of(job) for job in itertools.chain(*jobs.values())}
            if repetition == 0 and not quick:
                _draw(jobs, begun, PICTURE)
        row = {
            "elastic_s": totals["elastic"],
            "gang_s": totals["gang"],
            "ratio": totals["elastic"] / totals["gang"],
            "same_weights": len(hashes) == 1,
        }
        say(f"elastic {row['elastic_s']:.1f} s, gang {row['gang_s']:.1f} s: {row['ratio']:.2f}")
        yield row


def _play(client: Client, kind: str, epochs: int, *, is_elastic: bool) -> list[Job]:
    """Let the two jobs come and end; returns them."""
    jobs = []
    for number in (1, 2):
        job = client.submit(
            "slow_digits.py",
            epochs,
            _WAIT_S,
            0,
            directory=PROGRAMS,
            name=f"{kind}-{number}",
            max_workers=_WORKERS,
            is_elastic=is_elastic,
        )
        jobs.append(job)
        if number == 1:
            _wait_for_step(job, _SECOND_AFTER_STEPS)
    for job in jobs:
        job.wait(_LIMIT_S)
        if job.stage != "succeeded":
            raise BenchmarkError(f"Job {job.name} {job.stage}: {job.reason}.")
    return jobs


def _wait_for_step(job: Job, step: int) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while job.refresh().progress is None or (job.progress and (job.progress.step or 0) < step):
        if job.has_ended or time.monotonic() > deadline:
            raise BenchmarkError(f"Job {job.name} never came to step {step}: {job.reason}.")
        time.sleep(0.2)


def _hash_of(job: Job) -> str:
    found = [match.group(1) for line in job.logs() if (match := _HASH.search(line.text))]
    if len(found) != 1:
        raise BenchmarkError(f"Job {job.name} told {len(found)} hashes of its weights, not one.")
    return found[0]


def _draw(jobs: dict[str, list[Job]], begun: dict[str, float], path: Path) -> None:
    """Draw who had which slots, both ways below one another, on the same axis."""
    panels = []
    for kind, of_kind in jobs.items():
        holdings = [
            Holding(
                slot=held.slot,
                job=f"job {number}",
                since=held.since - begun[kind],
                until=None if held.until is None else held.until - begun[kind],
            )
            for number, job in enumerate(of_kind, 1)
            for held in job.allocations()
        ]
        panels.append(Panel(holdings=holdings, title=kind))
    path.parent.mkdir(exist_ok=True)
    write_picture(path, draw_timeline(panels, title="Two jobs of up to 4 workers on 6 slots", begin=0.0))
