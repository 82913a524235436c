"""A server that is killed in the middle of writing leaves a store that is true and has all that was acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from legato.control.stages import HOLDING
from legato.control.store import open_store

WRITER = """
import sys, threading, time
from legato.control.records import DeclaredSlot, JobChange, NewJob, Node, RequestKey
from legato.control.roles import Asker, Role
from legato.control.stages import Stage
from legato.control.store import open_store

url, life = sys.argv[1:]
store = open_store(url)
store.tokens.create_first(time.time())
admin = Asker("admin", Role.ADMIN)
lease = store.loop.take_lease(life, 1e9 * (1 + int(life)), 10)
slots = [f"n/{number}" for number in range(4)]
store.pool.declare([Node(name="n", engine="local", slots=tuple(DeclaredSlot(s, "cpu") for s in slots))], lease.fence, 0)

def submit(thread):
    for number in range(10_000):
        key = f"{life}-{thread}-{number}"
        new = NewJob(name="a", spec={"key": key}, min_workers=1, max_workers=4)
        answer = store.jobs.submit(new, admin, time.time(), RequestKey(key, "a"))
        sys.stdout.write(f"{key} {answer.job.id}\\n")
        sys.stdout.flush()

for thread in range(3):
    threading.Thread(target=submit, args=(thread,), daemon=True).start()
while True:
    facts = store.loop.read_facts()
    owners = {row.slot: row.job for row in facts.allocations}
    free = [slot for slot in slots if slot not in owners]
    changes = []
    for job in facts.jobs[:20]:
        seen = dict(job=job.id, seen_stage=job.stage, seen_attempt=job.attempt)
        mine = tuple(slot for slot, owner in owners.items() if owner == job.id)
        if job.stage is Stage.QUEUED and free:
            changes.append(JobChange(**seen, stage=Stage.STARTING, granted=(free.pop(),)))
        elif job.stage is Stage.STARTING:
            changes.append(JobChange(**seen, stage=Stage.RUNNING))
        elif job.stage is Stage.RUNNING:
            changes.append(JobChange(**seen, stage=Stage.SUCCEEDED, closed=mine))
    store.loop.write(changes, lease.fence, time.time())
"""


@pytest.mark.timeout(120)
@pytest.mark.soak
def test_kill_in_the_middle_of_writing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/legato.db"
    dice = random.Random(7)
    acknowledged: dict[str, str] = {}
    for life in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(life)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
        with writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(dice.randint(20, 60))]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        # The kill may have cut the last line off.
        acknowledged.update(line.split() for line in lines if line.endswith("\n"))
        check(url, acknowledged)
    assert len(acknowledged) >= 80


def check(url: str, acknowledged: dict[str, str]) -> None:
    with open_store(url) as store:
        with store._database.reading() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
        jobs = {job.id: job for job in store.jobs.list(limit=100_000).items}
        # Nothing that was acknowledged is lost, nothing was done twice.
        assert set(acknowledged.values()) <= set(jobs)
        keys = [store.jobs.read_spec(job)["key"] for job in jobs]
        assert len(set(keys)) == len(keys)
        assert {key: job for key, job in acknowledged.items() if store.jobs.read_spec(job)["key"] != key} == {}
        held = store.pool.list_open()
        assert len({row.slot for row in held}) == len(held)
        for row in held:
            assert jobs[row.job].stage in HOLDING and jobs[row.job].attempt == row.attempt
        for job in jobs.values():
            assert job.num_slots == (job.stage in HOLDING)
        events = store.events.read_after(0, limit=1_000_000)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        moves: dict[str, list[str]] = {}
        for event in events:
            if event.kind == "stage" and event.job is not None and event.detail is not None:
                moves.setdefault(event.job, []).append(event.detail["to"])
        assert {job: told[-1] for job, told in moves.items()} == {job.id: job.stage for job in jobs.values()}
