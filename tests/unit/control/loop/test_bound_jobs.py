"""Jobs that can use slots of the server's own machine only, in a pool with machines that have agents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.control.loop.test_several_gpus import RULES, make_job, make_report

from legato.control.drivers.drivers import DriverReport
from legato.control.loop.deciding import make_snapshot
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.records import AGENT, LOCAL, Allocation, Facts, Job, Slot, StoredNode
from legato.control.stages import Stage
from legato.control.work import Work
from legato.core.frameworks import Launcher
from legato.policy.policies import decide
from legato.policy.snapshot import OWNER_LABEL, TEST_LABEL, Decision, DecisionKind

LAUNCHER = Launcher(module="legato.compat.wmla.site.launch", script="train.py", most_workers=4, environment={})


def make_pool(job: Job, *held: str, engines: dict[str, str]) -> RoundFacts:
    slots = tuple(
        Slot(id=f"{node}/{number}", node=node, device="cpu", unusable_since=None, unusable_reason=None)
        for node in engines
        for number in range(2)
    )
    nodes = tuple(
        StoredNode(name=node, engine=engine, declared_at=0.0, kind="k1", traits={}, labels=None)
        for node, engine in engines.items()
    )
    allocations = tuple(
        Allocation(slot=slot, job=job.id, attempt=job.attempt, since=0.0, release_asked_at=None, until=None)
        for slot in held
    )
    return RoundFacts(Facts(jobs=(job,), queues=(), slots=slots, allocations=allocations, nodes=nodes))


def decide_on(facts: RoundFacts, work: Work, report: DriverReport | None) -> Decision:
    reports: dict[str, Any] = {} if report is None else {"j-1": report}
    memories = {"j-1": Memory(facts.facts.jobs[0].attempt)}
    left_out = LeftOut()
    decision = decide(make_snapshot(facts, reports, memories, {"j-1": work}, 10.0, left_out), RULES).of("j-1")
    assert left_out.list_all() == set()
    return decision


@pytest.mark.parametrize(
    ("launcher", "want"), [(LAUNCHER, {"a/0", "a/1"}), (None, {"a/0", "a/1", "b/0", "b/1"})], ids=["launched", "own"]
)
def test_a_job_that_a_framework_launches_is_placed_on_the_servers_machine(
    launcher: Launcher | None, want: set[str]
) -> None:
    job = make_job(Stage.QUEUED, 0, max_workers=4, gpus_per_worker=1)
    work = Work(program=("train.py",), directory="/d", launcher=launcher)
    decision = decide_on(make_pool(job, engines={"a": LOCAL, "b": AGENT}), work, None)
    assert set(decision.slots) == want
    told = (
        "it can use the server's own machine only, which has 2 slots; workers of WMLA and ElasticDL programs find one "
        "another on one machine only"
    )
    assert (told in decision.reason) is (launcher is not None), decision.reason


@pytest.mark.parametrize("is_local", [True, False])
def test_a_job_that_began_before_the_first_agent_stays_where_it_is(is_local: bool) -> None:
    job = make_job(Stage.RUNNING, 1, max_workers=4, gpus_per_worker=1)
    report = make_report("a/0", "a/1", num_workers=2)
    report = DriverReport(**{name: getattr(report, name) for name in report.__struct_fields__} | {"is_local": is_local})
    work = Work(program=("train.py",), directory="/d")
    decision = decide_on(make_pool(job, "a/0", "a/1", engines={"a": LOCAL, "b": AGENT}), work, report)
    assert set(decision.slots) == ({"a/0", "a/1"} if is_local else {"a/0", "a/1", "b/0", "b/1"})
    told = "it began before other machines joined: pause and resume it to use them"
    assert (told in decision.reason) is is_local
    alone = decide_on(make_pool(job, "a/0", "a/1", engines={"a": LOCAL}), work, report)
    assert "own machine" not in alone.reason, "a pool of one machine has no other"


@pytest.mark.parametrize(("asked", "want"), [({}, {"a/0", "a/1"}), ({TEST_LABEL: "slurm"}, {"b/0", "b/1"})])
def test_the_machine_of_a_test_is_used_by_the_test_alone(asked: dict[str, str], want: set[str]) -> None:
    job = make_job(Stage.QUEUED, 0, max_workers=4, gpus_per_worker=1)
    pool = make_pool(job, engines={"a": AGENT, "b": AGENT})
    nodes = tuple(
        msgspec.structs.replace(node, labels={TEST_LABEL: "slurm"} if node.name == "b" else {})
        for node in pool.facts.nodes
    )
    pool = RoundFacts(msgspec.structs.replace(pool.facts, nodes=nodes))
    decision = decide_on(pool, Work(program=("train.py",), directory="/d", node_labels=asked), None)
    assert set(decision.slots) == want


def own(pool: RoundFacts, **owners: str) -> RoundFacts:
    """Give machines to users, by name of the machine."""
    nodes = tuple(
        msgspec.structs.replace(node, labels={OWNER_LABEL: owners[node.name]} if node.name in owners else None)
        for node in pool.facts.nodes
    )
    return RoundFacts(msgspec.structs.replace(pool.facts, nodes=nodes))


@pytest.mark.parametrize("asked", [{}, {OWNER_LABEL: "ann"}, {OWNER_LABEL: "ben"}])
def test_the_machine_of_a_user_is_used_by_jobs_of_this_user_alone(asked: dict[str, str]) -> None:
    job = make_job(Stage.QUEUED, 0, max_workers=4, gpus_per_worker=1)
    assert job.owner == "ann"
    work = Work(program=("train.py",), directory="/d", node_labels=asked)
    pool = make_pool(job, engines={"a": AGENT, "b": AGENT})
    decision = decide_on(own(pool, a="ann", b="ben"), work, None)
    # A label in a submission gives no right to machines of another user.
    assert set(decision.slots) == ({"a/0", "a/1"} if asked.get(OWNER_LABEL) != "ben" else set())
    refused = decide_on(own(pool, a="ben", b="ben"), work, None)
    assert refused.slots == ()
    # A machine without an owner is for all, except for jobs that ask for others.
    assert len(decide_on(own(pool, b="ann"), work, None).slots) == {None: 4, "ann": 2, "ben": 0}[asked.get(OWNER_LABEL)]


def test_a_reason_names_owners_of_machines_only_if_they_matter() -> None:
    job = make_job(Stage.QUEUED, 0, max_workers=4, gpus_per_worker=1)
    engines = {"a": AGENT, "b": AGENT, "c": LOCAL}
    pool = own(make_pool(job, engines=engines), b="ben")
    bound = Work(program=("train.py",), directory="/d", launcher=LAUNCHER)
    reason = decide_on(pool, bound, None).reason
    assert "it can use the server's own machine only, which has 2 slots; workers of WMLA" in reason
    assert "belong" not in reason
    pool = own(make_pool(job, engines={"a": AGENT, "b": AGENT}), b="ben")
    reason = decide_on(pool, Work(program=("train.py",), directory="/d"), None).reason
    assert "machines that belong to no other user than ann have 2 slots" in reason
    sited = {"site": "x"}
    nodes = tuple(msgspec.structs.replace(node, labels={**(node.labels or {}), **sited}) for node in pool.facts.nodes)
    pool = RoundFacts(msgspec.structs.replace(pool.facts, nodes=nodes))
    reason = decide_on(pool, Work(program=("train.py",), directory="/d", node_labels=sited), None).reason
    assert (
        "it asks for labels site=x, for which its kind of machine has 2 slots on machines that belong to no other user "
        "than ann"
    ) in reason


def test_a_job_on_a_machine_of_all_stays_there_when_machines_of_users_come_and_go() -> None:
    job = make_job(Stage.RUNNING, 1, max_workers=4, gpus_per_worker=1)
    work, report = Work(program=("train.py",), directory="/d"), make_report("a/0", "a/1", num_workers=2)
    engines = {"a": AGENT, "b": AGENT}
    held = "a/0", "a/1"
    before = decide_on(make_pool(job, *held, engines={"a": AGENT}), work, report)
    there = decide_on(own(make_pool(job, *held, engines=engines), b="ben"), work, report)
    assert set(before.slots) == set(there.slots) == set(held)
    assert before.kind is there.kind is DecisionKind.KEEP
    assert set(decide_on(own(make_pool(job, *held, engines=engines), b="ann"), work, report).slots) == {
        *held,
        "b/0",
        "b/1",
    }
