"""Speeds for the policy: those of earlier runs on the same kind of machine, and none of another kind after a move."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.loop.test_rounds import NOTHING, SLOTS, decide, make_pool, make_running

from legato.api.jobs import Progress
from legato.control.loop import deciding
from legato.control.loop.deciding import carry_out, make_snapshot
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts, memory_of
from legato.control.records import Job, StoredNode
from legato.control.stages import Stage
from legato.core.speed import Speed
from legato.policy.earlier_runs import EarlierRun, merge_runs
from legato.policy.snapshot import JobDemand, Trial

NOW = 1000.0


def make_speed(number: int, rate: float, measured_s: float = 60.0) -> Speed:
    return Speed(num_workers=number, num_nodes=1, samples_per_s=rate, measured_s=measured_s, at=NOW - 10)


RUN = EarlierRun(
    machine_kind="x/cpu",
    num_micro_batches=None,
    has_same_parameters=True,
    speeds=(make_speed(1, 10.0), make_speed(2, 8.0)),
)


def see(job: Job, *kinds: str, **options: object) -> JobDemand:
    """Return the job as the policy sees it in a pool with machines of these kinds."""
    facts = make_pool(job, SLOTS[:2] if job.attempt else ()).facts
    nodes = tuple(
        StoredNode(name=name, engine="local", declared_at=0.0, kind=kind, traits=None, labels=None)
        for name, kind in zip(("n", "m"), kinds, strict=False)
    )
    slots = (*facts.slots, *(msgspec.structs.replace(facts.slots[0], id="m/0", node="m") for _ in kinds[1:]))
    pool = RoundFacts(msgspec.structs.replace(facts, nodes=nodes, slots=slots))
    given = {"measured_speed_s": 60.0, "earlier_runs": {job.id: merge_runs([RUN], 60.0, NOW)}} | options
    works = {job.id: None} if job.stage is Stage.QUEUED else {}
    (demand,) = make_snapshot(pool, NOTHING, {}, works, NOW, LeftOut(), **given).jobs  # type: ignore[arg-type]
    return demand


def test_a_job_without_measurements_gets_those_of_earlier_runs_on_its_kind_of_machine() -> None:
    job = msgspec.structs.replace(make_running(2, "said"), started_at=NOW - 60, machine_kind="x/cpu")
    found = see(job, "x")
    assert [(one.num_workers, one.samples_per_s, one.at) for one in found.speeds] == [
        (1, 10.0, NOW - 60),
        (2, 8.0, NOW - 60),
    ]
    assert found.earlier == (1, 2)
    assert found.slowdown is not None
    assert see(job, "x", measured_speed_s=None).speeds == ()
    assert see(msgspec.structs.replace(job, machine_kind="y/cpu"), "x").speeds == ()


def test_a_waiting_job_gets_them_if_all_machines_are_of_one_kind() -> None:
    job = msgspec.structs.replace(make_running(0, "said"), stage=Stage.QUEUED, attempt=0, started_at=None)
    assert see(job, "x").earlier == (1, 2)
    assert see(job, "x", "x").earlier == (1, 2)
    assert see(job, "x", "y").earlier == (), "which one it gets is not known"
    assert see(job, "y").earlier == ()


def test_a_run_of_an_earlier_release_was_on_the_servers_kind_of_machine() -> None:
    job = msgspec.structs.replace(make_running(2, "said"), started_at=NOW - 60, machine_kind="x/cpu")
    runs = merge_runs([msgspec.structs.replace(RUN, machine_kind="/cpu")], 60.0, NOW)
    assert see(job, "x", earlier_runs={job.id: runs}).earlier == (1, 2)
    assert see(msgspec.structs.replace(job, machine_kind="y/cpu"), "x", earlier_runs={job.id: runs}).earlier == ()


def test_the_only_kind_of_the_pool_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("legato.control.loop.deciding._find_only_kind", lambda pool: asked.append(pool) or "x/cpu")
    job = msgspec.structs.replace(make_running(0, "said"), stage=Stage.QUEUED, attempt=0, started_at=None)
    jobs = tuple(msgspec.structs.replace(job, id=f"j{number}") for number in range(5))
    pool = RoundFacts(msgspec.structs.replace(make_pool(job, ()).facts, jobs=jobs))
    runs = {one.id: merge_runs([RUN], 60.0, NOW) for one in jobs}
    works = dict.fromkeys(runs)
    seen = make_snapshot(
        pool,
        NOTHING,
        {},
        works,  # type: ignore[arg-type]
        NOW,
        LeftOut(),
        measured_speed_s=60.0,
        earlier_runs=runs,
    )
    assert [one.earlier for one in seen.jobs] == [(1, 2)] * 5
    assert len(asked) == 1


def test_earlier_speeds_are_found_once_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    find = deciding.find_earlier_speeds
    monkeypatch.setattr(deciding, "find_earlier_speeds", lambda *args, **named: asked.append(1) or find(*args, **named))
    job = msgspec.structs.replace(make_running(2, "said"), started_at=NOW - 60, machine_kind="x/cpu")
    options = {"earlier_runs": {job.id: merge_runs([RUN], 60.0, NOW)}, "earlier_speeds": {}}
    assert see(job, "x", **options) == see(job, "x", **options)
    assert len(asked) == 1
    measured = msgspec.structs.replace(job, progress=Progress(time=NOW, speeds=(make_speed(2, 9.0),)))
    assert see(measured, "x", **options).earlier == (1,)
    assert len(asked) == 2
    other = msgspec.structs.replace(job, id="other", progress=None)
    see(other, "x", **options | {"earlier_runs": {}})
    assert options["earlier_speeds"] == {}, "those of jobs that are gone are forgotten"


def test_own_measurements_replace_them_number_by_number() -> None:
    progress = Progress(time=NOW, speeds=(make_speed(2, 9.0), make_speed(1, 1.0, measured_s=20.0)))
    job = msgspec.structs.replace(make_running(2, "said"), started_at=NOW, machine_kind="x/cpu", progress=progress)
    found = see(job, "x")
    assert found.earlier == (1,)
    assert {one.num_workers: one.samples_per_s for one in found.speeds} == {2: 9.0, 1: pytest.approx(10.0 * 9 / 8)}


def test_earlier_runs_that_cannot_be_used_leave_the_job_in_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.control.loop.deciding.find_earlier_speeds", lambda *_args, **_options: 1 / 0)
    progress = Progress(time=NOW, speeds=(make_speed(2, 9.0), make_speed(1, 0.0)))
    job = msgspec.structs.replace(make_running(2, "said"), started_at=NOW, machine_kind="x/cpu", progress=progress)
    found = see(job, "x")
    assert (found.earlier, found.speeds) == ((), (make_speed(2, 9.0),))


@pytest.mark.parametrize(
    ("before", "now", "forgets"), [("x/cpu", "x/cpu", False), ("x/cpu", "y/cpu", True), (None, "x/cpu", False)]
)
def test_a_job_that_continues_on_another_kind_of_machine_forgets_its_speeds(
    before: str | None, now: str, forgets: bool
) -> None:
    progress = Progress(time=NOW, step=7, speeds=(make_speed(2, 9.0),))
    job = msgspec.structs.replace(make_running(0, "said"), stage=Stage.QUEUED, progress=progress, machine_kind=before)
    decisions = decide(job, SLOTS[:2], "resumes", 2)
    (decision,) = decisions.decisions
    decisions = msgspec.structs.replace(decisions, decisions=(msgspec.structs.replace(decision, machine_kind=now),))
    (change,) = carry_out(make_pool(job, ()), decisions, {job.id: Memory(1)}, LeftOut())
    assert change.progress == (msgspec.structs.replace(progress, speeds=()) if forgets else None)


TRIAL = Trial(partner="other", usual=2, tried=3, since=NOW, has_begun=True)


def test_trials_are_counted_over_decisions_and_attempts() -> None:
    job, memories = make_running(2, "said"), dict[str, Memory]()
    decisions = decide(job, SLOTS, "tries 3", 3)
    (decision,) = decisions.decisions
    decision = msgspec.structs.replace(decision, trial=TRIAL, num_trials=2)
    pool = make_pool(job, SLOTS[:2])
    carry_out(pool, msgspec.structs.replace(decisions, decisions=(decision,)), memories, LeftOut())
    (found,) = make_snapshot(pool, NOTHING, memories, {}, NOW, LeftOut()).jobs
    assert (found.trial, found.num_trials) == (TRIAL, 2)
    memory_of(msgspec.structs.replace(job, attempt=2), memories)
    (found,) = make_snapshot(pool, NOTHING, memories, {}, NOW, LeftOut()).jobs
    assert (found.trial, found.num_trials) == (None, 2)
