"""Sweeps in the store: a trial and its job exist together or not at all, once, and end together."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, BEN, EYE, NOW, make_job, make_people, make_pool, start, write

from legato.api.sweeps import Report, TrialState
from legato.control.records import Queue, RequestKey
from legato.control.roles import Submitter
from legato.control.stages import Stage
from legato.control.store import Store
from legato.control.sweep_records import NewSweep, StoredSweep, SweepStage, TrialChange
from legato.core.errors import Conflict, FencedOut, Forbidden, NotFound, StaleVersion

OWNER = Submitter(ANN.name, ANN.role)
PLAN = {"metric": {"name": "loss", "direction": "minimize"}, "num_trials": 3}
LR = {"lr": 0.1}


@pytest.fixture
def fence(store: Store) -> int:
    make_people(store)
    return make_pool(store, 4)[0].fence


def begin(store: Store, **changes: Any) -> StoredSweep:
    fields = {"name": "digits", "queue": "default", "plan": PLAN, "job": {"program": ["a.py"]}, "template": {}}
    return store.sweeps.create(NewSweep(**{**fields, **changes}), OWNER, NOW)[0]


def add(store: Store, sweep: StoredSweep, number: int, fence: int, **limits: Any) -> bool:
    return store.sweeps.add_trial(sweep.id, number, LR, make_job(), OWNER, fence, NOW + number, **limits)


def stages(store: Store, sweep: StoredSweep) -> list[str | None]:
    return [trial.job_stage for trial in store.sweeps.list_trials(sweep.id)]


def test_a_trial_and_its_job_are_made_once(store: Store, fence: int) -> None:
    sweep = begin(store)
    assert add(store, sweep, 0, fence)
    assert not add(store, sweep, 0, fence)
    assert not add(store, sweep, 2, fence)
    assert add(store, sweep, 1, fence)
    assert [trial.number for trial in store.sweeps.list_trials(sweep.id)] == [0, 1]
    assert store.jobs.count() == 2
    first = store.sweeps.list_trials(sweep.id)[0]
    assert (first.parameters, first.state, first.job_stage) == (LR, TrialState.RUNNING, "queued")
    assert store.jobs.get(first.job).owner == "ann"


def test_a_refused_job_leaves_no_trial(store: Store, fence: int) -> None:
    sweep = begin(store)
    with pytest.raises(Conflict, match="already queued"):
        add(store, sweep, 0, fence, max_queued=0)
    with pytest.raises(NotFound, match="no queue 'gone'"):
        store.sweeps.add_trial(sweep.id, 0, LR, make_job(queue="gone"), OWNER, fence, NOW)
    assert store.sweeps.list_trials(sweep.id) == ()
    assert store.jobs.count() == 0


def test_two_servers_that_add_the_same_trial_make_one(new_url: NewUrl) -> None:
    url = new_url()
    with open_quickly(url) as one, open_quickly(url) as other:
        make_people(one)
        fence = make_pool(one, 1)[0].fence
        sweep = begin(one)
        done: list[bool] = []
        threads = [
            threading.Thread(target=lambda store=store: done.append(add(store, sweep, 0, fence)))  # type: ignore[misc]
            for store in (one, other) * 3
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [False] * 5 + [True]
        assert one.jobs.count() == len(one.sweeps.list_trials(sweep.id)) == 1


def test_a_server_that_lost_the_lease_writes_nothing(store: Store, fence: int) -> None:
    sweep = begin(store)
    add(store, sweep, 0, fence)
    store.loop.end_lease(NOW)
    assert store.loop.take_lease("another", NOW + 1, 10) is not None
    with pytest.raises(FencedOut):
        add(store, sweep, 1, fence)
    with pytest.raises(FencedOut):
        store.sweeps.record(sweep.id, TrialChange(number=0, state=TrialState.FAILED), fence, NOW)
    with pytest.raises(FencedOut):
        store.sweeps.end(sweep.id, SweepStage.FAILED, "", fence, NOW)
    assert stages(store, sweep) == ["queued"]


def test_a_pruned_trial_is_recorded_and_its_job_stopped_together(store: Store, fence: int) -> None:
    sweep = begin(store)
    add(store, sweep, 0, fence)
    job = store.sweeps.list_trials(sweep.id)[0].job
    start(store, fence, store.jobs.get(job))
    change = TrialChange(number=0, reports=(Report(1, 0.1 + 0.2),), marks={"completed_rung_0": 0.1 + 0.2})
    assert store.sweeps.record(sweep.id, change, fence, NOW + 5)
    trial = store.sweeps.list_trials(sweep.id)[0]
    assert (trial.reports, trial.marks, trial.ended_at) == (change.reports, change.marks, None)
    change = msgspec.structs.replace(change, state=TrialState.PRUNED, value=None, reason="not among the best")
    assert store.sweeps.record(sweep.id, change, fence, NOW + 6)
    trial = store.sweeps.list_trials(sweep.id)[0]
    assert (trial.state, trial.ended_at, trial.job_stage) == (TrialState.PRUNED, NOW + 6, "stopping")
    assert store.jobs.get(job).reason == "not among the best"
    # What ended does not change.
    assert not store.sweeps.record(sweep.id, TrialChange(number=0, state=TrialState.SUCCEEDED), fence, NOW + 7)
    assert store.sweeps.list_trials(sweep.id)[0].state is TrialState.PRUNED


def test_a_stop_ends_the_sweep_its_trials_and_their_jobs(store: Store, fence: int) -> None:
    sweep = begin(store)
    for number in range(3):
        add(store, sweep, number, fence)
    first, second, _ = store.sweeps.list_trials(sweep.id)
    running = start(store, fence, store.jobs.get(first.job))
    ended = start(store, fence, store.jobs.get(second.job))
    write(store, fence, ended, stage=Stage.SUCCEEDED, reason="it ended", exit_code=0)
    store.sweeps.record(sweep.id, TrialChange(number=1, state=TrialState.SUCCEEDED, value=0.5), fence, NOW)
    for asker, error in ((BEN, Forbidden), (EYE, Forbidden)):
        with pytest.raises(error):
            store.sweeps.stop(sweep.id, asker, NOW)
    with pytest.raises(StaleVersion):
        store.sweeps.stop(sweep.id, ANN, NOW, version=9)
    stopped = store.sweeps.stop(sweep.id, ANN, NOW + 9, version=1)
    assert (stopped.stage, stopped.version, stopped.ended_at) == (SweepStage.STOPPED, 2, NOW + 9)
    assert stages(store, sweep) == ["stopping", "succeeded", "stopped"]
    assert [trial.state for trial in store.sweeps.list_trials(sweep.id)] == ["stopped", "succeeded", "stopped"]
    assert "'ann' asked to stop it" in store.jobs.get(running.id).reason
    assert not add(store, sweep, 3, fence)
    with pytest.raises(Conflict, match="already ended"):
        store.sweeps.stop(sweep.id, ADMIN, NOW)


def test_a_repeated_request_starts_one_sweep(store: Store, fence: int) -> None:
    new = NewSweep(name="digits", queue="default", plan=PLAN, job={}, template={})
    key = RequestKey("key", "0" * 64)
    one, is_new = store.sweeps.create(new, OWNER, NOW, key)
    assert is_new
    assert store.sweeps.create(new, OWNER, NOW, key) == (one, False)
    assert store.sweeps.list_running() == (one,)


def test_a_user_has_a_limit_of_running_sweeps(store: Store, fence: int) -> None:
    sweep = begin(store)
    new = NewSweep(name="more", queue="default", plan=PLAN, job={}, template={})
    with pytest.raises(Conflict, match="a user may have 1"):
        store.sweeps.create(new, OWNER, NOW, max_running=1)
    store.sweeps.end(sweep.id, SweepStage.FAILED, "told", fence, NOW)
    assert store.sweeps.create(new, OWNER, NOW, max_running=1)[1]


def test_sweeps_are_seen_as_the_jobs_of_their_queue(store: Store, fence: int) -> None:
    store.queues.put(Queue(name="closed", is_open=False, members=("ann",)), ADMIN, NOW)
    with pytest.raises(Forbidden, match="closed to 'ben'"):
        store.sweeps.create(
            NewSweep(name="x", queue="closed", plan=PLAN, job={}, template={}), Submitter(BEN.name, BEN.role), NOW
        )
    hidden, shown = begin(store, queue="closed"), begin(store)
    for asker, seen in ((ANN, (shown, hidden)), (BEN, (shown,)), (EYE, (shown, hidden)), (ADMIN, (shown, hidden))):
        assert store.sweeps.list(sees_only=asker.sees_only).items == seen
    assert store.sweeps.find("digits", BEN) == shown
    assert store.sweeps.find(hidden.id, EYE) == hidden
    with pytest.raises(NotFound, match="legato sweeps"):
        store.sweeps.find(hidden.id, BEN)
    page = store.sweeps.list(limit=1)
    assert page.items == (shown,)
    assert store.sweeps.list(limit=1, after=page.after).items == (hidden,)


def test_the_code_of_a_running_sweep_is_kept(store: Store, fence: int) -> None:
    code = "a" * 64
    with pytest.raises(NotFound, match="code"):
        begin(store, template={"code": code})
    store.uploads.note(code, 10, ANN, NOW - 9)
    sweep = begin(store, template={"code": code})
    begin(store, template={"code": None})
    assert store.uploads.get(code, ANN).used_at == NOW

    def purge() -> tuple[str, ...]:
        return store.retention.purge(fence, NOW, jobs_before=None, uploads_before=1e12, keys_before=0).uploads

    assert purge() == ()
    store.sweeps.end(sweep.id, SweepStage.FAILED, "told", fence, NOW)
    assert purge() == (code,)


def test_retention_deletes_old_jobs_first_and_old_sweeps_with_their_trials(store: Store, fence: int) -> None:
    sweep = begin(store)
    add(store, sweep, 0, fence)
    trial = store.sweeps.list_trials(sweep.id)[0]
    store.jobs.stop(trial.job, ANN, NOW)

    def purge(before: float) -> None:
        store.retention.purge(fence, before, jobs_before=before, uploads_before=None, keys_before=0)

    purge(NOW + 1)
    assert stages(store, sweep) == [None]
    store.sweeps.end(sweep.id, SweepStage.FAILED, "told", fence, NOW + 2)
    purge(NOW + 2)
    assert store.sweeps.get(sweep.id).reason == "told"
    purge(NOW + 3)
    with pytest.raises(NotFound):
        store.sweeps.get(sweep.id)
    assert store.sweeps.list_trials(sweep.id) == ()


def test_retention_deletes_few_sweeps_at_a_time_and_says_how_many(store: Store, fence: int) -> None:
    for _ in range(7):
        store.sweeps.end(begin(store).id, SweepStage.FAILED, "told", fence, NOW)
    found = [
        store.retention.purge(fence, NOW + 9, jobs_before=NOW + 9, uploads_before=None, keys_before=0).num_sweeps
        for _ in range(3)
    ]
    assert found == [5, 2, 0]
