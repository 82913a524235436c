"""Many jobs that have ended: few are found among them by indexes and counters, and what is found is the same."""

from __future__ import annotations

import itertools
import re
from typing import Any, Self

import pytest
from sqlalchemy import delete, event, func, select, text, update
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, BEN, NOW, change, make_job, make_people, make_pool, write

from legato.control.records import Job, JobFilter, JobPatch, Queue, Verdict
from legato.control.stages import Stage
from legato.control.store import Store, events, job_filter, migrate
from legato.control.store.database import Database
from legato.control.store.schema import counters, job_labels, jobs

DAY_S = 86_400.0


class Asked:
    """The statements that a store sends to its database during a block."""

    def __init__(self, store: Store) -> None:
        self._database = store._database
        self.statements: list[tuple[str, Any]] = []

    def __enter__(self) -> Self:
        event.listen(self._database._engine, "before_cursor_execute", self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        event.remove(self._database._engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, values: Any, *_more: Any) -> None:
        self.statements.append((statement, values))

    def explain(self) -> list[str]:
        """Return the steps of SQLite's plans for the queries."""
        with self._database.reading() as connection:
            return [
                row[3]
                for statement, values in self.statements
                if statement.startswith(("SELECT", "WITH"))
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            ]


def end(store: Store, fence: int, job: Job, stage: Stage, now: float = NOW) -> Job:
    if stage is Stage.STOPPED:
        return store.jobs.stop(job.id, ADMIN, now)
    starting = write(store, fence, job, now, stage=Stage.STARTING, reason="its share")
    return write(store, fence, starting, now, stage=stage, reason="it ended")


def count_rows(store: Store) -> dict[Stage, int]:
    with store._database.reading() as connection:
        rows = connection.execute(select(jobs.c.stage, func.count()).group_by(jobs.c.stage)).all()
    return {Stage(stage): number for stage, number in rows}


def test_ended_jobs_are_counted_as_they_end_and_are_deleted(store: Store) -> None:
    make_people(store)
    lease, _ = make_pool(store, 1)
    for number, stage in enumerate((Stage.STOPPED, Stage.FAILED, Stage.SUCCEEDED, Stage.SUCCEEDED)):
        end(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, stage, NOW + number * DAY_S)
    store.jobs.submit(make_job(), ANN, NOW)
    counted = {Stage.QUEUED: 1, Stage.STOPPED: 1, Stage.FAILED: 1, Stage.SUCCEEDED: 2}
    assert store.jobs.count_by_stage() == store.jobs.count_by_stage(sees_only="ann") == count_rows(store) == counted
    store.retention.purge(
        lease.fence, NOW, jobs_before=NOW + 2.5 * DAY_S, uploads_before=None, keys_before=NOW
    )  # deletes the first three
    assert store.jobs.count_by_stage() == count_rows(store) == {Stage.QUEUED: 1, Stage.SUCCEEDED: 1}


def test_a_name_that_is_no_text_is_found_among_many(new_sqlite_url: NewUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_filter, "_NUM_LOOKED", 1)
    with open_quickly(new_sqlite_url()) as store:
        make_people(store)
        made = [store.jobs.submit(make_job(name=name), ANN, NOW).job.id for name in ("mnist", "mnist", "other")]
        with store._database.writing() as connection:
            damage = text("UPDATE jobs SET name = CAST(x'6d6e697374ff' AS TEXT) WHERE id = :job")
            connection.execute(damage, {"job": made[0]})
        found = store.jobs.list(JobFilter(search="mnist")).items
        assert [job.id for job in found] == [made[1], made[0]]


def test_a_server_that_begins_to_lead_counts_again(store: Store) -> None:
    make_people(store)
    lease, _ = make_pool(store, 1)
    for stage in (Stage.FAILED, Stage.FAILED, Stage.STOPPED):
        end(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, stage)
    with store._database.writing() as connection:
        connection.execute(update(counters).where(counters.c.name == "jobs_failed").values(value=7))
        connection.execute(update(counters).where(counters.c.name == "jobs_succeeded").values(value=1))
        connection.execute(delete(counters).where(counters.c.name == "jobs_stopped"))
    assert store.loop.take_lease(lease.owner, NOW, 10.0) is not None
    assert store.jobs.count_by_stage() != count_rows(store), "it leads already: it does not count each time"
    assert store.loop.take_lease("next", NOW + 100 * DAY_S, 10.0) is not None
    assert store.jobs.count_by_stage() == count_rows(store) == {Stage.FAILED: 2, Stage.STOPPED: 1}


def test_what_fails_is_not_counted(store: Store) -> None:
    make_people(store)
    lease, slots = make_pool(store, 1)
    ended, other = (store.jobs.submit(make_job(), ANN, NOW).job for _ in range(2))
    wrong = change(other, stage=Stage.STARTING, granted=(f"{slots[0]}0",), reason="its share")
    with pytest.raises(Exception, match="does not exist"):
        store.loop.write([change(ended, stage=Stage.FAILED, reason="r"), wrong], lease.fence, NOW)
    assert store.jobs.count_by_stage() == count_rows(store) == {Stage.QUEUED: 2}


NAMES = ("bert-1", "Bert-2", "gpt", "mnist", "gpt-j", "mnist_b")
FILTERS = (
    {"name_prefix": "bert"},
    {"name_prefix": "mnist", "search": "B"},
    {"search": "gpt"},
    {"search": "BERT"},
    {"search": "j-"},
    {"search": "nothing"},
    {"search": "t_"},
    {"labels": {"team": "a"}},
    {"labels": {"team": "b", "x": "1"}},
    {"labels": {"team": "a"}, "search": "mnist"},
    {"search": "mnist", "owner": "ben"},
    {"search": "mnist", "stages": frozenset({Stage.PAUSED})},
)


@pytest.mark.parametrize(
    ("num_looked", "max_names", "max_found"), [(3, 100, 100), (3, 4, 100), (3, 100, 1), (100, 1, 1)]
)
def test_every_way_finds_the_same_jobs(
    store: Store, monkeypatch: pytest.MonkeyPatch, num_looked: int, max_names: int, max_found: int
) -> None:
    monkeypatch.setattr(job_filter, "_NUM_LOOKED", num_looked)
    monkeypatch.setattr(job_filter, "_MAX_NAMES", max_names)
    monkeypatch.setattr(job_filter, "_MAX_FOUND", max_found)
    make_people(store)
    store.queues.put(Queue(name="lab", is_open=False), ADMIN, NOW)
    made = []
    for number, name in enumerate(NAMES * 2):
        labels = {"team": "ab"[number % 2], "x": str(number % 3)} if number % 5 else {}
        asker = (ANN, BEN, ADMIN)[number % 3]
        new = make_job(name=name, labels=labels, queue="lab" if asker is ADMIN else "default")
        made.append(store.jobs.submit(new, asker, NOW).job)
    store.jobs.pause(made[3].id, ADMIN, NOW)
    store.jobs.change(made[4].id, JobPatch(labels={"team": "a"}), ADMIN, NOW)
    filters = (*FILTERS, {"search": made[7].id}, {"search": made[7].id[2:].upper()})
    for wanted, (sees_only, oldest_first) in itertools.product(filters, ((None, False), ("ann", True))):
        expected = [job for job in store.jobs.list(oldest_first=oldest_first).items if _matches(job, wanted)]
        expected = [job.id for job in expected if sees_only is None or job.queue != "lab"]
        found: list[str] = []
        after = None
        while not found or after is not None:
            page = store.jobs.list(
                JobFilter(**wanted), sees_only=sees_only, after=after, limit=3, oldest_first=oldest_first
            )
            found += [job.id for job in page.items]
            after = page.after
            if not page.items:
                break
        assert found == expected, wanted


def _matches(job: Job, wanted: dict[str, Any]) -> bool:
    part = wanted.get("search", "").lower()
    return (
        job.name.startswith(wanted.get("name_prefix", ""))
        and (part in job.name.lower() or part in job.id)
        and wanted.get("labels", {}).items() <= job.labels.items()
        and job.owner == wanted.get("owner", job.owner)
        and job.stage in wanted.get("stages", {job.stage})
    )


def test_labels_that_were_changed_or_deleted_find_nothing(store: Store) -> None:
    make_people(store)
    lease, _ = make_pool(store, 1)
    job = store.jobs.submit(make_job(labels={"team": "a", "x": "1"}), ANN, NOW).job
    store.jobs.change(job.id, JobPatch(labels={"x": "2"}), ANN, NOW)
    assert store.jobs.list(JobFilter(labels={"team": "a"})).items == ()
    assert [found.id for found in store.jobs.list(JobFilter(labels={"x": "2"})).items] == [job.id]
    end(store, lease.fence, store.jobs.get(job.id), Stage.STOPPED)
    store.retention.purge(lease.fence, NOW, jobs_before=NOW + 1, uploads_before=None, keys_before=NOW)
    with store._database.reading() as connection:
        assert connection.execute(select(job_labels)).all() == []


def test_events_of_users_who_see_few_jobs_are_those_of_users_who_see_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_people(store)
    store.queues.put(Queue(name="lab", is_open=False), ADMIN, NOW)
    for number in range(12):
        store.jobs.submit(make_job(queue="lab" if number % 3 else "default"), ADMIN, NOW)
        store.events.append("hint", "a word", NOW)
    few = [store.events.read_after(seq, limit=5, sees_only="ann") for seq in range(40)]
    monkeypatch.setattr(events, "_FEW_JOBS", 3)
    assert [store.events.read_after(seq, limit=5, sees_only="ann") for seq in range(40)] == few
    assert any(event.job for event in few[0]) and any(event.job is None for event in few[0])


def test_lists_and_counts_scan_no_table(new_sqlite_url: NewUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_filter, "_NUM_LOOKED", 2)
    with open_quickly(new_sqlite_url()) as store:
        make_people(store)
        for number in range(60):
            store.jobs.submit(make_job(name=f"job-{number}"), ANN, NOW)
        with Asked(store) as asked:
            for wanted in ({"name_prefix": "x"}, {"search": "mnist"}, {"labels": {"a": "b"}}, {"owner": "ben"}):
                assert store.jobs.list(JobFilter(**wanted)).items == ()
                assert store.jobs.list(JobFilter(**wanted), sees_only="ann").items == ()
            store.jobs.count_by_stage()
            store.events.read_after(0, sees_only="ann")
        with Asked(store) as asked_by_name:
            for sees_only in (None, "ann"):
                assert len(store.jobs.list(JobFilter(search="job"), sees_only=sees_only).items) == 60
        by_name = asked_by_name.explain()
        plan = asked.explain()
    # The edge of those that are looked at in order is found in an index, of which only so many rows are read.
    scans = {line for line in plan if line.startswith("SCAN") and re.search(r"\b(jobs|events|job_labels)\b", line)}
    assert scans == {"SCAN jobs USING COVERING INDEX sqlite_autoindex_jobs_1"}, plan
    assert sum("INDEX ix_jobs_name_id (name=?" in line for line in by_name) == 2, by_name


def test_a_round_reads_and_decides_on_many_jobs_by_few_statements(new_sqlite_url: NewUrl) -> None:
    def count(number: int) -> int:
        with open_quickly(new_sqlite_url()) as store:
            make_people(store)
            lease, _ = make_pool(store, 1)
            made = [store.jobs.submit(make_job(), ANN, NOW).job for _ in range(number)]
            with Asked(store) as asked:
                assert len(store.loop.read_specs([job.id for job in made])) == number
                changes = [change(job, verdict=Verdict(0, "waits for slots")) for job in made]
                assert store.loop.write(changes, lease.fence, NOW).stale == ()
            assert [len(store.jobs.read_decisions(job.id)) for job in made] == [1] * number
            return len(asked.statements)

    assert count(20) == count(2)


DAMAGED = ('{"a"', "[1]", '"a"', '{"a": 1, "b": "x"}', '{"a": "' + "x" * 256 + '"}')


def test_a_filled_store_of_the_version_before_is_counted_and_its_labels_are_found(new_url: NewUrl) -> None:
    url = new_url()
    database = Database(url)
    with open_quickly(url) as store:
        make_people(store)
        lease, _ = make_pool(store, 1)
        one = store.jobs.submit(make_job(labels={"team": "vision: ä%", "a": "C:\\u0000"}), ANN, NOW).job
        for stage in (Stage.STOPPED, Stage.FAILED, Stage.FAILED):
            end(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, stage)
        others = [store.jobs.submit(make_job(), ANN, NOW).job.id for _ in DAMAGED]
        migrate.downgrade(database, "0017")
        with database.writing() as connection:
            for job, labels in zip(others, DAMAGED, strict=True):
                if database.is_sqlite or labels != DAMAGED[0]:
                    connection.execute(text("UPDATE jobs SET labels = :as WHERE id = :job"), {"as": labels, "job": job})
        migrate.upgrade(database)
        with database.reading() as connection:
            rows = connection.execute(select(job_labels).order_by(job_labels.c.job, job_labels.c.key)).all()
        assert [tuple(row) for row in rows] == [
            ("a", "C:\\u0000", one.id), ("team", "vision: ä%", one.id), ("b", "x", others[3])
        ]  # fmt: skip
        assert [job.id for job in store.jobs.list(JobFilter(labels={"team": "vision: ä%"})).items] == [one.id]
        ended = {Stage.STOPPED: 1, Stage.FAILED: 2}
        assert {stage: store.jobs.count_by_stage()[stage] for stage in ended} == ended
    database.close()
