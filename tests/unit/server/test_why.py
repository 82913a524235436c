"""Explanations of jobs, and plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from tests.unit.server.platform import ADMIN, JOB, NOW, Platform, check_problem

from legato.api.jobs import Progress
from legato.control.records import DeclaredSlot, Node, Queue, Verdict
from legato.control.stages import Stage
from legato.core.balance import describe_cheap_numbers
from legato.core.speed import Speed
from legato.policy.snapshot import Decision, DecisionKind, JobDemand, Snapshot
from legato.server.routes.job_details import _find_last_demand


def decision(job: str, wanted: int, *because: str) -> Decision:
    return Decision(
        job=job, slots=(), kind=DecisionKind.KEEP, reason="as decided", wanted=wanted, share=1.5, because=because
    )


# ---------------------------------------------------------------- explain


def test_a_job_that_waits(platform: Platform) -> None:
    platform.lead()
    big = platform.submit("ben", name="big", max_workers=2)
    platform.start(big, "node/0", "node/1")
    job = platform.submit(max_workers=2)
    platform.write(job, verdict=Verdict(0, "waits: needs 2 slots at once"))
    told = platform.get(f"jobs/{job}/explain")
    assert told["job"] == job
    assert told["sentences"] == [
        "ann/mnist waits in its queue: waits for slots.",
        "The policy: waits: needs 2 slots at once.",
        "Slots that others hold: ben/big 2; free: 0.",
    ]
    assert (told["wanted"], told["share"], told["because"]) == (None, None, []), "this server has decided nothing"
    assert told["holders"] == [{"job": big, "title": "ben/big", "num_slots": 2}]
    assert told["decisions"] == [{"time": NOW, "attempt": 0, "num_slots": 0, "reason": "waits: needs 2 slots at once"}]
    platform.decide(decision(job, 2, big, "j-00000000gone"))
    told = platform.get(f"jobs/{job}/explain")
    assert (told["wanted"], told["share"]) == (2, 1.5)
    assert told["because"] == [{"job": big, "title": "ben/big", "num_slots": 2}], "what is gone is no cause"


def test_a_reason_that_ends_a_sentence_gets_no_second_full_stop(platform: Platform) -> None:
    platform.lead()
    job = platform.submit()
    platform.write(job, stage=Stage.FAILED, reason="DataError: /dev/shm is full. Enlarge it.")
    assert platform.get(f"jobs/{job}/explain")["sentences"][0].endswith(
        "has failed: DataError: /dev/shm is full. Enlarge it."
    )


def test_the_machines_of_a_job_are_named_and_why_they_are_several(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=3)
    platform.start(job, "node/0", "node/1")
    assert not any("slots are on" in one for one in platform.get(f"jobs/{job}/explain")["sentences"]), "there is one"
    lease = platform.lead()
    nodes = [
        Node(name=name, engine="local", slots=tuple(DeclaredSlot(f"{name}/{number}", "cpu") for number in range(2)))
        for name in ("node", "gpu-1")
    ]
    platform.store.pool.declare(nodes, lease.fence, platform.now)
    platform.write(job, granted=("gpu-1/0",), verdict=Verdict(3, "grows 2 → 3"))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    assert "Its slots are on: gpu-1 (1), node (2); no node has 3 slots." in told
    platform.write(job, released=("node/1",), verdict=Verdict(2, "shrinks 3 → 2"))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    rule = "A job keeps its slots, and fills the nodes that it has before it uses others."
    assert f"Its slots are on: gpu-1 (1), node (1). {rule}" in told
    platform.write(job, released=("gpu-1/0",), verdict=Verdict(1, "shrinks 2 → 1"))
    assert "Its slots are on: node (1)." in platform.get(f"jobs/{job}/explain")["sentences"]


def test_a_step_that_is_larger_than_the_workers_of_a_job_is_reported(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    platform.write(job, progress=Progress(time=NOW, num_workers=2, num_micro_batches=2))
    assert not any("enough for" in one for one in platform.get(f"jobs/{job}/explain")["sentences"])
    platform.write(job, progress=Progress(time=NOW, num_workers=2, num_micro_batches=100))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    assert "Each step has 100 micro-batches, enough for 100 workers; its maximum is 2." in told


def test_cheap_numbers_of_workers_are_named(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=6)
    platform.start(job, "node/0", "node/1")
    cheap = describe_cheap_numbers((1, 2, 4))
    for shares_freely in (False, True):
        progress = Progress(time=NOW, num_workers=2, num_micro_batches=8, shares_freely=shares_freely)
        platform.write(job, progress=progress)
        assert (cheap in platform.get(f"jobs/{job}/explain")["sentences"]) is not shares_freely


def test_bytes_between_machines_are_named(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    platform.write(job, progress=Progress(time=NOW, num_workers=2, sent_bytes=3 * 2**20))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    assert "In each step, its busiest machine sends 3 MiB of gradients to other machines." in told


def test_a_long_wait_for_data_is_named(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    for data_wait, want in ((0.781, True), (0.29, False), (None, False)):
        platform.write(job, stage=Stage.RUNNING, progress=Progress(time=NOW, num_workers=2, data_wait=data_wait))
        told = platform.get(f"jobs/{job}/explain")["sentences"]
        assert ("Its workers wait for data 78% of the time of a step." in told) is want
        assert platform.get(f"jobs/{job}")["progress"]["data_wait"] == data_wait


def test_measured_speeds_are_named_with_those_of_earlier_runs(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=4)
    platform.start(job, "node/0", "node/1")
    own, earlier = (
        Speed(num_workers=number, num_nodes=nodes, samples_per_s=rate, measured_s=60.0, at=NOW)
        for number, nodes, rate in ((2, 2, 12345.6), (1, 1, 812.36))
    )
    platform.write(job, progress=Progress(time=NOW, num_workers=2, speeds=(own,)))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    assert "Its measured speed: 12346 samples/s with 2 workers on 2 nodes." in told
    assert not any("earlier runs" in one for one in told), "this server has decided nothing"
    demand = JobDemand(
        id=job, name="mnist", owner="ann", queue="default", submitted_at=NOW, max_workers=4, speeds=(own, earlier)
    )
    platform.loop.snapshot = Snapshot(now=NOW, slots=(), jobs=(msgspec.structs.replace(demand, earlier=(1,)),))
    told = platform.get(f"jobs/{job}/explain")["sentences"]
    assert "Its measured speed: 12346 samples/s with 2 workers on 2 nodes." in told
    earlier_told = "From earlier runs of the same code: 812.4 samples/s with 1 worker."
    assert earlier_told in told
    assert earlier_told in platform.get(f"jobs/{job}/explain", who="admin")["sentences"]
    assert earlier_told not in platform.get(f"jobs/{job}/explain", who="eye")["sentences"], "it is about other jobs"


def test_a_decision_in_another_thread_does_not_break_an_explanation() -> None:
    class Loop:
        """The loop forgets its snapshot between any two reads."""

        def __init__(self) -> None:
            self.seen = [None, Snapshot(now=NOW, slots=(), jobs=())]

        @property
        def snapshot(self) -> Snapshot | None:
            return self.seen.pop()

    assert _find_last_demand(SimpleNamespace(loop=Loop()), "j-1") is None  # type: ignore[arg-type]


def test_slots_of_workers_that_cannot_connect_are_explained(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    platform.write(job, progress=Progress(time=NOW, num_workers=1, unconnected="10.0.0.2 cannot reach 10.0.0.1."))
    want = "Some of its slots are held by workers that cannot connect and do not train: 10.0.0.2 cannot reach 10.0.0.1."
    assert want in platform.get(f"jobs/{job}/explain")["sentences"]


def test_moves_name_the_job_that_got_the_slot(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    other = platform.submit("ben", name="other")
    platform.now += 10
    platform.write(job, released=("node/1",), reason="shrinks", verdict=Verdict(1, "shrinks 2 → 1: ben/other came"))
    lost = platform.get(f"jobs/{job}/explain")["lost"]
    want: dict[str, Any] = {"slot": "node/1", "time": NOW + 10, "reason": "shrinks 2 → 1: ben/other came"}
    assert lost == [want | {"job": None, "title": None}]
    platform.write(job, closed=("node/1",))
    platform.start(other, "node/1")
    told = platform.get(f"jobs/{job}/explain")
    assert told["lost"] == [want | {"job": other, "title": "ben/other"}]
    assert told["sentences"][-1] == (
        "It was asked to leave slot node/1 (shrinks 2 → 1: ben/other came); ben/other has it now."
    )


def test_a_slot_that_a_job_got_back_and_lost_again_is_explained_once(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=4)
    platform.start(job, "node/0", "node/1")
    for _ in range(2):
        platform.now += 10
        platform.write(job, released=("node/1",), reason="shrinks", verdict=Verdict(1, "shrinks 2 → 1"))
        platform.write(job, closed=("node/1",))
        platform.now += 10
        platform.write(job, granted=("node/1",))
    platform.now += 10
    platform.write(job, released=("node/1",), reason="shrinks", verdict=Verdict(1, "shrinks 2 → 1"))
    told = platform.get(f"jobs/{job}/explain")
    assert [(lost["slot"], lost["time"]) for lost in told["lost"]] == [("node/1", platform.now)]
    assert " ".join(told["sentences"]).count("asked to leave slot node/1") == 1


def test_former_slots_explain_nothing_once_a_job_has_its_maximum(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")

    def explain() -> tuple[list[str], bool]:
        told = platform.get(f"jobs/{job}/explain")
        return [lost["slot"] for lost in told["lost"]], "asked to leave" in " ".join(told["sentences"])

    platform.now += 10
    platform.write(job, released=("node/1",), reason="shrinks", verdict=Verdict(1, "shrinks 2 → 1"))
    assert explain() == (["node/1"], True), "it is leaving it"
    platform.write(job, closed=("node/1",))
    assert explain() == (["node/1"], True), "it may have 2 and has 1"
    platform.now += 10
    platform.write(job, granted=("node/1",))
    assert explain() == ([], False), "it has the slot again"
    platform.now += 10
    platform.write(job, released=("node/1",), reason="shrinks", verdict=Verdict(1, "its maximum is 1"))
    platform.write(job, closed=("node/1",))
    platform.ask("PATCH", f"jobs/{job}", {"min_workers": 1, "max_workers": 1})
    assert explain() == ([], False), "it may have 1 and has 1"


def test_explain_shows_only_the_title_of_a_hidden_job(platform: Platform) -> None:
    platform.lead()
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    hidden = platform.submit("ben", name="hidden", queue="closed")
    platform.start(hidden, "node/0")
    job = platform.submit()
    platform.decide(decision(job, 1, hidden))
    told = platform.get(f"jobs/{job}/explain")
    assert told["holders"] == told["because"] == [{"job": None, "title": "ben/hidden", "num_slots": 1}]
    assert platform.get(f"jobs/{job}/explain", who="eye")["because"][0]["job"] == hidden


def test_jobs_that_want_nothing_more(platform: Platform) -> None:
    platform.lead()
    job = platform.submit()
    platform.start(job, "node/0")
    platform.start(platform.submit("ben"), "node/1")
    assert platform.get(f"jobs/{job}/explain")["holders"] == []
    platform.end(job)
    assert platform.get(f"jobs/{job}/explain")["sentences"] == ["ann/mnist has succeeded: it ended."]
    shrunk = platform.submit(name="shrunk", max_workers=2)
    platform.start(shrunk, "node/0")
    platform.write(shrunk, released=("node/0",), verdict=Verdict(0, "shrinks"))
    assert "It was asked to leave slot node/0" in platform.get(f"jobs/{shrunk}/explain")["sentences"][-1]
    platform.end(shrunk)
    assert platform.get(f"jobs/{shrunk}/explain")["sentences"] == ["ann/shrunk has succeeded: it ended."]
    other = platform.submit(name="paused")
    platform.ask("POST", f"jobs/{other}/pause")
    assert platform.get(f"jobs/{other}/explain")["sentences"][-1] == "It gets no slots until a user resumes it."


def test_explain_shows_only_the_pause_of_a_paused_job(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_workers=2)
    platform.start(job, "node/0", "node/1")
    platform.write(job, released=("node/1",), verdict=Verdict(1, "shrinks 2 → 1: ben/other came"))
    platform.write(job, closed=("node/1",))
    platform.now += 10
    platform.ask("POST", f"jobs/{job}/pause")
    pausing = platform.get(f"jobs/{job}")
    assert (pausing["stage"], pausing["decided_slots"], pausing["decided_reason"]) == ("pausing", None, None)
    platform.write(job, stage=Stage.PAUSED, reason="paused by 'ann'", closed=("node/0",))
    assert platform.get(f"jobs/{job}")["decided_reason"] is None
    told = platform.get(f"jobs/{job}/explain")
    assert told["sentences"] == [
        "ann/mnist is paused: paused by 'ann'.",
        "It gets no slots until a user resumes it.",
        "The pause freed slot node/0; no job has it yet.",
    ]
    freed: dict[str, Any] = {"slot": "node/0", "time": NOW + 10, "reason": "paused by 'ann'"}
    assert [one["slot"] for one in told["lost"]] == ["node/0", "node/1"]
    assert told["lost"][0] == freed | {"job": None, "title": None}
    other = platform.submit("ben", name="other")
    platform.start(other, "node/0")
    told = platform.get(f"jobs/{job}/explain")
    assert told["sentences"][-1] == "The pause freed slot node/0; ben/other has it now."
    assert told["lost"][0] == freed | {"job": other, "title": "ben/other"}
    platform.ask("POST", f"jobs/{job}/resume")
    assert not any("pause freed" in sentence for sentence in platform.get(f"jobs/{job}/explain")["sentences"])


def test_explain_shows_as_many_decisions_as_the_limit(platform: Platform) -> None:
    platform.lead()
    job = platform.submit()
    for number in range(5):
        platform.now += 1
        platform.write(job, verdict=Verdict(0, f"reason {number}"))
    told = platform.get(f"jobs/{job}/explain?limit=2")["decisions"]
    assert [one["reason"] for one in told] == ["reason 4", "reason 3"]
    check_problem(platform.ask("GET", f"jobs/{job}/explain?limit=0"), 422, "invalid")


# ---------------------------------------------------------------- plan


def test_a_plan_shows_what_the_scheduler_would_do(platform: Platform) -> None:
    platform.lead()
    plan = platform.ask("POST", "plan", JOB | {"max_workers": 4}).json()
    assert plan == {
        "starts": "now",
        "slots_now": 2,
        "slots": 2,
        "share": 2.0,
        "reason": "would start with 2 slots at once; no other job loses slots",
        "effects": [],
        "cheap_workers": [],
    }
    job = platform.submit("ben", name="big", max_workers=4)
    platform.start(job, "node/0", "node/1")
    plan = platform.ask("POST", "plan", JOB).json()
    assert (plan["starts"], plan["slots_now"], plan["slots"]) == ("soon", 0, 1)
    assert plan["effects"] == [{"job": job, "title": "ben/big", "before": 2, "after": 1}]
    assert "ben/big 2 → 1" in plan["reason"]
    large = platform.ask("POST", "plan", JOB | {"min_workers": 3, "max_workers": 3}).json()
    assert (large["starts"], large["slots"]) == ("later", 0)
    assert [found["id"] for found in platform.get("jobs", who="admin")["items"]] == [job], "nothing was submitted"


def test_plans_need_no_place_for_the_program_but_a_queue(platform: Platform) -> None:
    platform.lead()
    nowhere = {"name": "a", "program": ["train.py"]}
    assert platform.ask("POST", "plan", nowhere).status_code == 200
    assert platform.ask("POST", "plan", nowhere | {"code": "0" * 64}).status_code == 200
    check_problem(platform.ask("POST", "plan", nowhere | {"queue": "no"}), 404, "not-found", "no queue 'no'")
    check_problem(platform.ask("POST", "plan", nowhere, who="eye"), 403, "forbidden")


def test_a_plan_is_made_beside_jobs_whose_spec_cannot_be_read(platform: Platform) -> None:
    from legato.control.records import NewJob

    platform.lead()
    odd = NewJob(name="odd", spec={"program": ["a"], "colour": "red"}, min_workers=1, max_workers=1)
    platform.store.jobs.submit(odd, ADMIN, NOW)
    assert platform.ask("POST", "plan", JOB).json()["starts"] == "now"
    check_problem(platform.ask("GET", "jobs/odd/spec", who="admin"), 422, "invalid", "Cannot read the job's spec")
    assert platform.get("jobs/odd", who="admin")["stage"] == Stage.QUEUED
