"""Earlier runs of a job's code: its own user's, of the same program, of which speeds are known."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.api.jobs import Progress
from legato.control.records import Job
from legato.control.roles import Asker
from legato.control.store import Store
from legato.control.store.earlier_runs import _RUNS
from legato.control.store.schema import jobs
from legato.core.speed import Speed
from legato.policy.earlier_runs import EarlierRun

CODE = "c" * 64
SPEC = {"program": ["train.py", "--deep"], "parameters": {"lr": 0.1}}


def submit(store: Store, asker: Asker = ANN, code: str | None = CODE, **spec: Any) -> Job:
    return store.jobs.submit(make_job(code=code, spec=SPEC | spec), asker, NOW).job


def run(store: Store, fence: int, rate: float | None, asker: Asker = ANN, code: str | None = CODE, **spec: Any) -> Job:
    """Let a job run and measure its speed with one worker. ``rate`` None: it measures nothing."""
    job = start(store, fence, submit(store, asker, code, **spec))
    speeds = () if rate is None else (make_speed(rate),)
    progress = Progress(time=NOW, num_workers=1, speeds=speeds, num_micro_batches=8)
    return write(store, fence, job, machine_kind="x/cpu", progress=progress)


def read(store: Store, job: Job) -> tuple[EarlierRun, ...]:
    return store.loop.read_earlier_runs([job.id])[job.id]


def make_speed(rate: float) -> Speed:
    return Speed(num_workers=1, num_nodes=1, samples_per_s=rate, measured_s=60.0, at=NOW)


def test_earlier_runs_of_the_same_code_are_found(store: Store) -> None:
    make_people(store)
    lease, _ = make_pool(store, 1)
    for asker in (ANN, BEN):
        store.uploads.note(CODE, 10, asker, NOW)
    store.uploads.note("d" * 64, 10, ANN, NOW)
    fence = lease.fence
    first = run(store, fence, 10.0)
    run(store, fence, 20.0, parameters={"lr": 0.2}, seed=7)
    run(store, fence, None)
    run(store, fence, 1.0, asker=BEN)
    run(store, fence, 2.0, code="d" * 64)
    run(store, fence, 3.0, program=["train.py"])
    run(store, fence, 8.0, framework="torch")
    run(store, fence, 4.0, environment={"BATCH": "8"})
    run(store, fence, 5.0, data="/data/other")
    run(store, fence, 6.0, code=None, directory="/code")
    damaged = run(store, fence, 7.0)
    with store._database.writing() as connection:
        connection.execute(update(jobs).where(jobs.c.id == damaged.id).values(progress={"time": "yesterday"}))
    submit(store)
    job = submit(store)
    found = read(store, job)
    assert [(one.speeds[0].samples_per_s, one.has_same_parameters) for one in found] == [(20.0, False), (10.0, True)]
    assert found[0].parameters != found[1].parameters
    assert found[0].speeds == (make_speed(20.0),)
    assert (found[0].machine_kind, found[0].num_micro_batches) == ("x/cpu", 8)
    assert store.loop.read_earlier_runs([submit(store, code=None, directory="/code").id, "j-00000000none"]) == {}
    several = store.loop.read_earlier_runs([job.id, first.id])
    assert several[job.id] == found
    assert [one.speeds[0].samples_per_s for one in several[first.id]] == [20.0], "a job is no earlier run of itself"


def test_only_the_newest_runs_are_read(store: Store) -> None:
    make_people(store)
    lease, _ = make_pool(store, 1)
    store.uploads.note(CODE, 10, ANN, NOW)
    for rate in range(1, 41):
        run(store, lease.fence, float(rate))
    for _ in range(40):
        run(store, lease.fence, None)
    found = read(store, submit(store))
    assert [one.speeds[0].samples_per_s for one in found] == [float(rate) for rate in range(40, 8, -1)]


def test_runs_are_found_by_an_index(new_sqlite_url: NewUrl) -> None:
    """Of a user with many jobs that ended; by SQLite's own account."""
    with open_quickly(new_sqlite_url()) as store, store._database.reading() as connection:
        statement = _RUNS.params(code=CODE, owner="ann", gpus_per_worker=1)
        text = str(statement.compile(connection.engine, compile_kwargs={"literal_binds": True}))
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    assert "SEARCH jobs USING INDEX ix_jobs_code_owner_id (code=? AND owner=?)" in plan
    assert sum("B-TREE" in line for line in plan) <= 1, "only the newest runs are sorted, those with speeds"
