"""A row that this release cannot read costs that row alone: every other job is scheduled and finished."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from sqlalchemy import JSON, Table, insert, select, text
from structlog.testing import capture_logs
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, NOW, make_job, make_node, make_people

from legato.control.loop.loop import ControlLoop
from legato.control.project_records import NewDefinition, NewProject
from legato.control.records import Job, JobFilter, JobPatch, Lease
from legato.control.stages import ENDED, Stage
from legato.control.store import Store
from legato.control.store.rows import _warn
from legato.control.store.schema import allocations, definitions, events, jobs, queues, slots
from legato.control.work import Work
from legato.core.errors import UnreadableRow
from legato.policy.rules import Rules
from legato.server.explaining import Explainer
from legato.server.prometheus import ServerMetrics
from legato.sim import clock
from legato.sim.drivers import SimulatedDrivers
from legato.sim.load import Costs, Load
from legato.sim.simulation import at_once

_SLOTS = ["node/cpu:0", "node/cpu:1"]


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)
    _warn.cache_clear()


class Platform:
    """The real store and the real loop over made-up drivers, in virtual time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.drivers = SimulatedDrivers(Costs())
        self.loop = ControlLoop(
            store.loop,
            self.drivers,
            Rules(),
            code=None,  # type: ignore[arg-type]
            owner="loop",
            wall_clock=self.now,
            lease_s=1e6,
            on_lead=self._declare,
            in_thread=at_once,
        )

    @staticmethod
    def now() -> float:
        return NOW + clock.now()

    def _declare(self, lease: Lease) -> None:
        self.store.pool.declare([make_node(_SLOTS)], lease.fence, self.now())

    def submit(self, name: str, num_steps: int = 2, **changes: Any) -> Job:
        load = Load(num_steps=num_steps, step_s=1.0)
        spec = msgspec.to_builtins(Work(program=load.to_program(), directory="/made-up"))
        values = {"min_workers": 1, "max_workers": 1, "labels": {"team": "x"}, **changes}
        new = make_job(name=name, spec=spec, **values)
        return self.store.jobs.submit(new, ANN, self.now()).job

    async def run_until(self, *these: tuple[Job, Stage]) -> None:
        for _ in range(300):
            await self.loop.round()
            if all(self.store.jobs.get(job.id).stage is stage for job, stage in these):
                return
            await asyncio.sleep(1.0)
        pytest.fail(f"not reached: {[(job.name, self.store.jobs.get(job.id)) for job, _ in these]}")


@contextlib.contextmanager
def damaged(store: Store, table: Table, key: str, column: str, bad: str) -> Iterator[None]:
    """Have another value in a column of one row, which must not be touched by anything until the end.

    Args:
        store: on either database.
        table: of the row.
        key: of the row.
        column: to damage.
        bad: an SQL expression.
    """
    database, own = store._database, next(iter(table.primary_key)).name
    if database.is_sqlite:
        with contextlib.closing(sqlite3.connect(str(database._engine.url.database), isolation_level=None)) as raw:
            raw.execute("PRAGMA ignore_check_constraints=ON")
            raw.text_factory = bytes
            read = f'SELECT rowid, "{column}" FROM {table.name} WHERE '
            place, good = raw.execute(f'{read}"{own}" = ?', (key,)).fetchone()
            where = f'UPDATE {table.name} SET "{column}" = {{}} WHERE rowid = {place}'
            raw.execute(where.format(bad))
            before = raw.execute(f"{read}rowid = {place}").fetchone()
            yield
            assert raw.execute(f"{read}rowid = {place}").fetchone() == before, f"{table.name}.{column} was overwritten"
            raw.execute(where.format("CAST(? AS TEXT)" if isinstance(good, bytes) else "?"), (good,))
        return
    kind = table.c[column].type.compile(database._engine.dialect)
    read = f'SELECT CAST("{column}" AS TEXT) FROM {table.name} WHERE "{own}" = :key'
    change = f'UPDATE {table.name} SET "{column}" = {{}} WHERE "{own}" = :key'
    with database._engine.begin() as connection:
        good = connection.execute(text(read), {"key": key}).scalar()
        connection.execute(text(change.format(bad)), {"key": key})
        before = connection.execute(text(read), {"key": key}).scalar()
    yield
    with database._engine.begin() as connection:
        after = connection.execute(text(read), {"key": key}).scalar()
        assert after == before, f"{table.name}.{column} was overwritten"
        connection.execute(text(change.format(f"CAST(:good AS {kind})")), {"key": key, "good": good})


def damage_of(store: Store, table: Table, column: str) -> str | None:
    """Return an SQL expression that this release cannot read in a column. None: the database keeps no such value."""
    kind = table.c[column].type
    if column == "stage":
        return "'hibernating'"
    if isinstance(kind, JSON):
        return """'{"a'""" if store._database.is_sqlite else "'[1]'"
    if not store._database.is_sqlite:
        return None
    is_text = kind.python_type is str
    return "CAST(x'ff41' AS TEXT)" if is_text else "'many'"


def test_a_damaged_column_of_a_job_leaves_all_other_jobs_alone(store: Store) -> None:
    async def story() -> None:
        platform = Platform(store)
        held = platform.submit("held", num_steps=100_000)
        await platform.run_until((held, Stage.RUNNING))
        # It waits for as many slots as the pool never has.
        waits = platform.submit("waits", min_workers=3, max_workers=3)
        for column in (column.name for column in jobs.c if column.name not in ("id", "spec")):
            if (bad_value := damage_of(store, jobs, column)) is not None:
                for bad in (held, waits):
                    await see_others_run(platform, bad, column, bad_value)
        platform.store.jobs.stop(held.id, ANN, platform.now(), stop_now=True)
        await platform.run_until((held, Stage.STOPPED))
        assert platform.loop.stats.left_out["job"] == 0, "put right, it goes on"

    clock.run(story())


async def see_others_run(platform: Platform, bad: Job, column: str, bad_value: str) -> None:
    with capture_logs() as logs, damaged(platform.store, jobs, bad.id, column, bad_value):
        other = platform.submit("other")
        await platform.run_until((other, Stage.SUCCEEDED))
        assert platform.loop.stats.num_failed == 0 and not platform.drivers.clashes
        check_shown(platform, bad, column)
        told = [line for line in logs if line["event"] == "the scheduler ignores an object that it cannot use"]
        assert [(line["kind"], line["name"]) for line in told] == [("job", bad.id)], column
        assert f"column '{column}'" in told[0]["error"]
        assert 'legato_left_out{kind="job"} 1.0' in scrape(platform)
    await platform.loop.round()
    assert platform.loop.stats.left_out["job"] == 0


def check_shown(platform: Platform, bad: Job, column: str) -> None:
    """See why in all that users look at; and that no user changes the job."""
    seen = ADMIN if column in ("owner", "queue") else ANN
    found = platform.store.jobs.get(bad.id)
    assert found.reason.startswith("its row ") and f"column '{column}'" in found.reason
    is_held = bad.min_workers == 1
    assert (found.num_slots, found.stage) == ((1, Stage.RUNNING) if is_held else (0, Stage.QUEUED))
    listed = platform.store.jobs.list(sees_only=seen.sees_only).items
    assert bad.id in {job.id for job in listed}
    platform.store.jobs.list(JobFilter(labels={"team": "x"}), sees_only=seen.sees_only)
    sentences = Explainer(platform.store, seen, platform.now()).explain(found, None, 5).sentences
    assert f"column '{column}'" in sentences[0] and "administrator" in sentences[0]
    for act in (platform.store.jobs.stop, platform.store.jobs.pause):
        with pytest.raises(UnreadableRow, match="cannot be read"):
            act(bad.id, ADMIN, platform.now())
    with pytest.raises(UnreadableRow, match="cannot be read"):
        platform.store.jobs.change(bad.id, JobPatch(priority=7), ADMIN, platform.now())
    platform.store.pool.measure_usage(NOW - 1, platform.now())
    platform.store.history.list_spans(NOW - 1, platform.now(), None)
    platform.store.jobs.list_holders(None)
    assert msgspec.json.encode(listed)


def scrape(platform: Platform) -> str:
    return ServerMetrics(platform.store, platform.loop.stats, lambda: True, lambda: 0).render().decode()


def test_a_damaged_queue_slot_or_allocation_holds_back_only_its_own(store: Store) -> None:
    async def story() -> None:
        platform = Platform(store)
        held = platform.submit("held", num_steps=400)
        await platform.run_until((held, Stage.RUNNING))
        (had,) = store.jobs.read_allocations(held.id)
        with store._database.reading() as connection:
            row = connection.execute(text("SELECT id FROM allocations")).scalar_one()
        for table, key, column in (
            (slots, had.slot, "unusable_since"),
            (slots, had.slot, "device"),
            (allocations, str(row), "since"),
            (allocations, str(row), "release_asked_at"),
            (allocations, str(row), "attempt"),
        ):
            bad_value = damage_of(store, table, column)
            if bad_value is None:
                continue
            with damaged(store, table, key, column, bad_value):
                other = platform.submit("other")
                await platform.run_until((other, Stage.SUCCEEDED))
                assert platform.drivers.attempts[held.id].state == "running", (table.name, column)
                assert not platform.drivers.clashes
                assert {one.id for one in store.pool.list_slots()} == set(_SLOTS)
                store.jobs.read_allocations(held.id)
                store.pool.list_between(NOW - 1, platform.now())
                store.history.list_spans(NOW - 1, platform.now(), None)
                scrape(platform)
        assert store.jobs.get(held.id).stage is Stage.RUNNING

    clock.run(story())


def test_an_allocation_that_does_not_say_its_slot_holds_back_all_that_seem_free(store: Store) -> None:
    bad_value = damage_of(store, allocations, "slot")
    if bad_value is None:
        pytest.skip("this database keeps no such value")

    async def story() -> None:
        platform = Platform(store)
        held = platform.submit("held", num_steps=100_000)
        await platform.run_until((held, Stage.RUNNING))
        with store._database.reading() as connection:
            row = connection.execute(text("SELECT id FROM allocations")).scalar_one()
        other = platform.submit("other")
        with damaged(store, allocations, str(row), "slot", bad_value):
            for _ in range(20):
                await platform.loop.round()
                await asyncio.sleep(1.0)
            assert store.jobs.get(other.id).stage is Stage.QUEUED
            assert platform.loop.stats.left_out["slot"] >= len(_SLOTS)
        await platform.run_until((other, Stage.SUCCEEDED))
        assert platform.drivers.attempts[held.id].state == "running" and not platform.drivers.clashes

    clock.run(story())


def test_a_job_whose_id_is_damaged_and_comes_last_stops_no_submission(store: Store) -> None:
    store.jobs.submit(make_job(), ANN, NOW)
    with store._database._engine.begin() as connection:
        row = connection.execute(select(jobs)).mappings().one()
        connection.execute(insert(jobs).values({**row, "id": "z-~", "name": "damaged"}))
    new = store.jobs.submit(make_job(name="new"), ANN, NOW + 1).job
    assert store.jobs.get(new.id) == new


def test_history_and_lists_leave_out_what_cannot_be_read(store: Store) -> None:
    project = store.projects.create(NewProject(name="p", queue="default"), ANN, NOW)
    new = NewDefinition(name="good", framework="legato", command="python train.py")
    good = store.definitions.create(project.id, new, ANN, NOW)
    bad = store.definitions.create(project.id, msgspec.structs.replace(new, name="bad"), ANN, NOW)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    seq = store.events.read_after(0, job=job.id)[0].seq
    odd = "'[1]'"
    with damaged_json(store, definitions, bad.id, "plan", odd), damaged_json(store, events, seq, "detail", odd):
        assert [one.name for one in store.definitions.list(project.id, ANN)] == ["good"]
        assert store.definitions.find("good", ANN) == good
        with pytest.raises(UnreadableRow, match="column 'plan'"):
            store.definitions.find("bad", ANN)
        told = store.events.read_after(0, job=job.id, sees_only="ann")
        assert "column 'detail'" in told[0].reason and told[0].seq == seq
    assert store.definitions.find("bad", ANN) == bad


@contextlib.contextmanager
def damaged_json(store: Store, table: Table, key: str | int, column: str, bad: str) -> Iterator[None]:
    own = next(iter(table.primary_key))
    kept = f"CAST({bad} AS {'TEXT' if store._database.is_sqlite else 'JSON'})"
    with store._database.writing() as connection:
        good = connection.execute(table.select().where(own == key)).mappings().one()[column]
        connection.execute(text(f"UPDATE {table.name} SET {column} = {kept} WHERE {own.name} = '{key}'"))
    yield
    with store._database.writing() as connection:
        connection.execute(table.update().where(own == key).values({column: good}))


def test_retention_takes_no_job_whose_stage_is_not_known(store: Store) -> None:
    job = store.jobs.submit(make_job(), ANN, NOW).job
    lease = store.loop.take_lease("loop", NOW, 1e9)
    assert lease is not None and Stage.QUEUED not in ENDED
    with store._database.writing() as connection:
        connection.execute(jobs.update().where(jobs.c.id == job.id).values(stage="hibernating", ended_at=1.0))
    purged = store.retention.purge(lease.fence, NOW, jobs_before=NOW, uploads_before=None, keys_before=0)
    assert purged.jobs == () and store.jobs.get(job.id).reason.startswith("its row")


def test_retention_keeps_all_code_while_a_job_does_not_say_which_code_it_has(store: Store) -> None:
    if not store._database.is_sqlite:
        pytest.skip("PostgreSQL has no job with code that does not exist")
    sha256, unused = "a" * 64, "b" * 64
    for each in (sha256, unused):
        store.uploads.note(each, 10, ANN, NOW)
    job = store.jobs.submit(make_job(code=sha256), ANN, NOW).job
    lease = store.loop.take_lease("loop", NOW, 1e9)
    assert lease is not None

    def purge() -> tuple[str, ...]:
        later = NOW + 100
        return store.retention.purge(lease.fence, later, jobs_before=None, uploads_before=later, keys_before=0).uploads

    with damaged(store, jobs, job.id, "code", "'rotten'"):
        assert purge() == ()
    assert purge() == (unused,)


def test_a_job_that_cannot_be_read_is_not_cloned(store: Store) -> None:
    job = store.jobs.submit(make_job(labels={"team": "x"}), ANN, NOW).job
    store.jobs.check_may_clone(job.id)
    bad = damage_of(store, jobs, "labels")
    assert bad is not None
    refused = pytest.raises(UnreadableRow, match=f"Cannot clone job '{job.name}': its row .*'labels'")
    with damaged(store, jobs, job.id, "labels", bad), refused:
        store.jobs.check_may_clone(job.id)


def test_a_damaged_queue_holds_back_its_jobs_alone(store: Store) -> None:
    async def story() -> None:
        platform = Platform(store)
        if not store._database.is_sqlite:
            return  # keeps no weight that is no number
        from legato.control.records import Queue

        store.queues.put(Queue(name="night"), ADMIN, NOW)
        waits = platform.submit("waits", queue="night")
        with store._database.writing() as connection:
            connection.execute(text("UPDATE queues SET weight = 'heavy' WHERE name = 'night'"))
        other = platform.submit("other")
        await platform.run_until((other, Stage.SUCCEEDED))
        found = store.jobs.get(waits.id)
        assert found.stage is Stage.QUEUED and "column 'weight'" in str(found.decided_reason)
        assert [queue.name for queue in store.queues.list()] == ["default"]
        with pytest.raises(UnreadableRow, match="column 'weight'"):
            store.queues.get("night")
        store.queues.put(Queue(name="night"), ADMIN, NOW)
        await platform.run_until((waits, Stage.SUCCEEDED))

    clock.run(story())
    assert queues is not None


def test_a_job_whose_spec_is_damaged_waits_until_it_is_put_right(store: Store) -> None:
    async def story() -> None:
        platform = Platform(store)
        bad = platform.submit("bad")
        with damaged(store, jobs, bad.id, "spec", """'{"a'""" if store._database.is_sqlite else "'[1]'"):
            other = platform.submit("other")
            await platform.run_until((other, Stage.SUCCEEDED))
            found = store.jobs.get(bad.id)
            assert found.stage is Stage.QUEUED and "column 'spec'" in str(found.decided_reason)
            with pytest.raises(UnreadableRow, match="column 'spec'"):
                store.jobs.read_spec(bad.id)
        await platform.run_until((bad, Stage.SUCCEEDED))

    clock.run(story())


def test_a_spec_that_is_nested_too_deeply_costs_only_its_own_job(new_sqlite_url: NewUrl) -> None:
    with open_quickly(new_sqlite_url()) as store:
        make_people(store)
        bad, good = (store.jobs.submit(make_job(), ANN, NOW).job.id for _ in range(2))
        with damaged(store, jobs, bad, "spec", "'" + "[" * 5000 + "]" * 5000 + "'"):
            found = store.loop.read_specs([bad, good])
            assert isinstance(found[bad], UnreadableRow) and isinstance(found[good], dict)
            assert store.jobs.read_specs([bad, good], ANN).keys() == {good}


def test_a_job_without_driver_is_not_given_up_while_its_spec_is_damaged(store: Store) -> None:
    """As after a restart of the machine: its driver is gone, and a new server has not read its spec yet."""

    async def story() -> None:
        platform = Platform(store)
        bad = platform.submit("bad", num_steps=250)
        await platform.run_until((bad, Stage.RUNNING))
        with damaged(store, jobs, bad.id, "spec", """'{"a'""" if store._database.is_sqlite else "'[1]'"):
            platform.drivers.kill_driver(bad.id)
            platform.loop._works.clear()
            for _ in range(120):
                await platform.loop.round()
                await asyncio.sleep(2.0)
            assert store.jobs.get(bad.id).stage is Stage.RUNNING
        await platform.run_until((bad, Stage.SUCCEEDED))

    clock.run(story())


def test_a_damaged_slot_is_put_right_when_its_node_declares_it_again(store: Store) -> None:
    lease = store.loop.take_lease("loop", NOW, 1e9)
    assert lease is not None
    store.pool.declare([make_node(_SLOTS)], lease.fence, NOW)
    if store._database.is_sqlite:
        with contextlib.closing(sqlite3.connect(str(store._database._engine.url.database))) as raw:
            raw.execute("UPDATE slots SET node = 'gone', device = CAST(x'ff' AS TEXT), declared_at = 'x'")
            raw.commit()
        assert [slot.unusable_reason is None for slot in store.pool.list_slots()] == [False, False]
    store.pool.declare([make_node(_SLOTS)], lease.fence, NOW)
    assert [(slot.node, slot.unusable_reason) for slot in store.pool.list_slots()] == [("node", None)] * 2
