"""A job with several GPUs per worker: from the facts to the driver's slots, and from its report back to slots."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.deciding import carry_out, make_snapshot
from legato.control.loop.driver_calls import SendSlots, Start, list_calls
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.records import Allocation, Facts, Job, JobChange, Slot, StoredNode
from legato.control.stages import Stage
from legato.control.work import Work
from legato.policy.policies import decide
from legato.policy.rules import Rules
from legato.policy.snapshot import Standing

NODE = StoredNode(name="n", engine="local", declared_at=0.0, kind="k1", traits={"torch": "2.13"}, labels={"site": "x"})
WORK = Work(program=("train.py",), directory="/d", gpu_type="T4", node_labels={"site": "x"})
RULES = Rules(stability_s=0.0, cooldown_factor=0.0, gather_s=0.0)


def make_job(stage: Stage, attempt: int, **changes: Any) -> Job:
    values: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    values |= {"id": "j-1", "name": "big", "owner": "ann", "queue": "all", "priority": 5000, "submitted_at": 0.0}
    values |= {"min_workers": 1, "max_workers": 2, "gpus_per_worker": 2, "is_elastic": True, "stage": stage}
    values |= {"attempt": attempt, "reason": "", "labels": {}, "num_retries": 0, "version": 1}
    return Job(**{**values, **changes})


def make_facts(job: Job, *workers: str, leaving: tuple[str, ...] = ()) -> RoundFacts:
    slots = tuple(
        Slot(
            id=f"n/{number}", node="n", device=f"GPU-{number}", unusable_since=None, unusable_reason=None, gpu_type="T4"
        )
        for number in range(5)
    )
    allocations = tuple(
        Allocation(
            slot=f"n/{number}",
            job=job.id,
            attempt=job.attempt,
            since=0.0,
            release_asked_at=1.0 if worker in leaving else None,
            until=None,
            worker=worker,
        )
        for worker in workers
        for number in worker.removeprefix("n/").split("+")
    )
    return RoundFacts(Facts(jobs=(job,), queues=(), slots=slots, allocations=allocations, nodes=(NODE,)))


def decide_on(facts: RoundFacts, reports: dict[str, DriverReport]) -> list[JobChange]:
    left_out, memories = LeftOut(), {"j-1": Memory(facts.facts.jobs[0].attempt)}
    snapshot = make_snapshot(facts, reports, memories, {"j-1": WORK}, 10.0, left_out)
    decisions = decide(snapshot, RULES)
    changes = carry_out(facts, decisions, memories, left_out)
    assert left_out.list_all() == set()
    return changes


def make_report(*slots: str, num_workers: int) -> DriverReport:
    status: dict[str, Any] = {"num_workers": num_workers, "min_workers": 1, "max_workers": 2}
    return DriverReport(
        attempt=1, state=DriverState.RUNNING, assigned=frozenset(slots), in_use=frozenset(slots), status=status
    )


def test_a_job_gets_whole_workers_and_its_kind_of_machine_is_recorded() -> None:
    (change,) = decide_on(make_facts(make_job(Stage.QUEUED, 0)), {})
    assert change.granted == ("n/0", "n/1", "n/2", "n/3")
    assert change.workers == {"n/0": "n/0+1", "n/1": "n/0+1", "n/2": "n/2+3", "n/3": "n/2+3"}
    assert change.machine_kind == "k1/T4"
    assert change.stage is Stage.STARTING


def test_its_driver_gets_one_slot_for_each_worker() -> None:
    facts = make_facts(make_job(Stage.STARTING, 1, machine_kind="k1/T4"), "n/1+2", "n/0+4")
    unknown = {"j-1": DriverReport(attempt=1, state=DriverState.UNKNOWN)}
    (start,) = list_calls(facts, unknown, {"j-1": Memory(1)}, 10.0, LeftOut())
    assert isinstance(start, Start) and start.slots == ("n/0+4", "n/1+2")


def test_a_lost_worker_is_taken_from_the_driver_as_a_whole() -> None:
    facts = make_facts(make_job(Stage.RUNNING, 1), "n/1+2", "n/0+4", leaving=("n/0+4",))
    reports = {"j-1": make_report("n/0", "n/1", "n/2", "n/4", num_workers=2)}
    (call,) = list_calls(facts, reports, {"j-1": Memory(1)}, 10.0, LeftOut())
    assert isinstance(call, SendSlots)
    assert (call.said.slots, call.said.min_workers, call.said.max_workers) == (frozenset({"n/1+2"}), 1, 2)


def test_a_job_whose_workers_all_train_is_settled() -> None:
    job = make_job(Stage.RUNNING, 1, machine_kind="k1/T4")
    facts = make_facts(job, "n/1+2", "n/0+4")
    for num_workers, want in ((2, Standing.RUNNING), (1, Standing.RESIZING)):
        reports = {"j-1": make_report("n/0", "n/1", "n/2", "n/4", num_workers=num_workers)}
        snapshot = make_snapshot(facts, reports, {}, {"j-1": WORK}, 10.0, LeftOut())
        assert snapshot.jobs[0].standing is want
    assert [slot.worker for slot in snapshot.slots] == ["n/0+4", "n/1+2", "n/1+2", "", "n/0+4"]
    assert (snapshot.jobs[0].gpu_type, snapshot.jobs[0].labels) == ("T4", {"site": "x"})
    assert msgspec.structs.asdict(snapshot.nodes[0])["labels"] == {"site": "x"}


def test_the_policy_knows_on_which_lost_nodes_workers_may_still_run() -> None:
    report = msgspec.structs.replace(make_report("n/0", "n/1", num_workers=1), lost_nodes=("n",))
    facts = make_facts(make_job(Stage.RUNNING, 1), "n/1+2", "n/0+4")
    assert make_snapshot(facts, {"j-1": report}, {}, {"j-1": WORK}, 10.0, LeftOut()).jobs[0].lost_nodes == ("n",)


def test_the_kind_of_a_running_job_of_an_earlier_release_is_recorded() -> None:
    job = make_job(Stage.RUNNING, 1, decided_slots=4, decided_reason="4 of up to 4 slots: its maximum")
    (change,) = decide_on(
        make_facts(job, "n/1+2", "n/0+4"), {"j-1": make_report("n/0", "n/1", "n/2", "n/4", num_workers=2)}
    )
    assert (change.machine_kind, change.granted, change.released) == ("k1/T4", (), ())


def test_a_job_of_an_earlier_release_stays_on_the_servers_kind_of_machine_when_others_join() -> None:
    """It began when the server's machine was the only one, and the record of its kind names none."""
    other = msgspec.structs.replace(NODE, name="a", engine="agent", kind="k2")
    slots = tuple(
        Slot(id=f"{node}/{number}", node=node, device="cpu", unusable_since=None, unusable_reason=None, gpu_type="")
        for node, num_slots in (("a", 3), ("n", 2))
        for number in range(num_slots)
    )
    job = make_job(Stage.QUEUED, 1, gpus_per_worker=1, machine_kind="/cpu")
    facts = RoundFacts(Facts(jobs=(job,), queues=(), slots=slots, allocations=(), nodes=(NODE, other)))
    work = Work(program=("train.py",), directory="/d")
    snapshot = make_snapshot(facts, {}, {"j-1": Memory(1)}, {"j-1": work}, 10.0, LeftOut())
    decision = decide(snapshot, RULES).of("j-1")
    assert (decision.slots, decision.machine_kind) == (("n/0", "n/1"), "k1/cpu")
    assert "another kind" not in decision.reason
