"""The sentences, word for word: what a user reads who wonders at night why a job has what it has."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.policy.world import EAGER, carry_out, make_job, make_snapshot, settle, with_job, without_job

from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import DecisionKind, Decisions, JobDemand, Queue, Slot, Snapshot, Standing
from legato.policy.speeds import Slowdown

RULES = Rules()


def told(decisions: Decisions) -> dict[str, str]:
    return {decision.job: decision.reason for decision in decisions.decisions}


def causes(decisions: Decisions) -> dict[str, tuple[str, ...]]:
    return {decision.job: decision.because for decision in decisions.decisions if decision.because}


def changed(snapshot: Snapshot, name: str, **fields: object) -> Snapshot:
    jobs = tuple(msgspec.structs.replace(job, **fields) if job.id == name else job for job in snapshot.jobs)
    return msgspec.structs.replace(snapshot, jobs=jobs)


def test_a_job_gives_back_a_slot_that_made_it_slower_and_another_job_gets_it() -> None:
    snapshot = make_snapshot(4, [make_job("anna/resnet")])
    snapshot = carry_out(snapshot, decide(snapshot, EAGER))
    snapshot = changed(snapshot, "resnet", slowdown=Slowdown(best=2, slower=4, most=3))
    decisions = decide(snapshot, EAGER)
    assert told(decisions) == {"resnet": "shrinks 4 → 3: it was slower with 4 workers than with 2"}
    assert decide(snapshot, RULES).of("resnet").kind is DecisionKind.KEEP, "it waits as for a fairer share"
    snapshot = with_job(carry_out(snapshot, decisions), make_job("bob/bert", at=101.0))
    snapshot = carry_out(snapshot, decide(snapshot, EAGER))
    snapshot = changed(snapshot, "resnet", slowdown=Slowdown(best=2, slower=3, most=2))
    decisions = decide(snapshot, EAGER)
    assert told(decisions)["resnet"] == "2 of up to 4 slots: it was slower with 3 workers than with 2"
    for earlier, than in (((3,), "than it is with 2"), ((2, 3), "than with 2")):
        reason = told(decide(changed(snapshot, "resnet", earlier=earlier), EAGER))["resnet"]
        assert reason == f"2 of up to 4 slots: earlier runs of its code were slower with 3 workers {than}"
    want = "starts with 1 of up to 4 slots, on the way to 2: the slots that user anna leaves"
    assert told(decisions)["bert"] == want


def test_the_story_of_two_jobs() -> None:
    """Anna's job has the pool; Bob's comes; Anna's ends."""
    snapshot = make_snapshot(4, [make_job("anna/resnet")])
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {"resnet": "starts with 4 of up to 4 slots: its maximum"}
    snapshot = carry_out(snapshot, decisions)
    assert told(decide(snapshot, RULES)) == {"resnet": "4 of up to 4 slots: its maximum"}

    snapshot = with_job(snapshot, make_job("bob/bert", at=101.0))
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {
        "resnet": "shrinks 4 → 2: bob/bert was submitted and user bob is entitled to 2 slots",
        "bert": "waits: needs 1 slot and will get 2; none is free, 2 are being freed by anna/resnet",
    }
    assert causes(decisions) == {"resnet": ("bert",), "bert": ("resnet",)}
    assert decisions.summary == "1 job has 2 of 4 slots; 1 job waits"

    snapshot = carry_out(snapshot, decisions)
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {
        "resnet": "2 of up to 4 slots: an equal share with user bob",
        "bert": "waits: needs 1 slot and will get 2; none is free, 2 are being freed by anna/resnet",
    }
    assert decisions.summary == "1 job has 2 of 4 slots, 2 are being freed; 1 job waits"

    snapshot = carry_out(snapshot, decisions)
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {
        "resnet": "2 of up to 4 slots: an equal share with user bob",
        "bert": "starts with 2 of up to 4 slots: an equal share with user anna",
    }
    snapshot = carry_out(snapshot, decisions)
    assert told(decide(snapshot, RULES))["bert"] == "2 of up to 4 slots: an equal share with user anna"

    snapshot = without_job(snapshot, "resnet")
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {"bert": "2 of up to 4 slots: will grow to 4 if nothing changes for 3 s"}
    snapshot = carry_out(snapshot, decisions, after_s=3.0)
    assert told(decide(snapshot, RULES)) == {"bert": "grows 2 → 4: its maximum"}


def rested(
    num_slots: int, jobs: list[JobDemand], queues: tuple[Queue, ...] = (), policy: Policy = Policy.FAIR
) -> Callable[[], Decisions]:
    rules = msgspec.structs.replace(EAGER, policy=policy)
    return lambda: settle(make_snapshot(num_slots, jobs, queues), rules)[1]


FLOOR_OF_SIX = Queue(name="day", floor=6)
STATIC = make_job("u/c", 4, at=2.0, elastic=False)


@pytest.mark.parametrize(
    ("decisions", "want"),
    [
        (rested(3, [make_job("u/a")]), {"a": "3 of up to 4 slots: all that the pool has"}),
        (
            rested(6, [make_job("u/a", 6), make_job("u/b", 6, at=1.0), STATIC]),
            {
                "a": "1 of up to 6 slots: an equal share with u/b of the slots that u/c leaves",
                "c": "4 slots: all that it needs",
            },
        ),
        (
            rested(6, [make_job(f"u/a{index}", 6, at=float(index)) for index in range(4)]),
            {"a0": "2 of up to 6 slots: an equal share with u/a1 and 2 others"},
        ),
        (
            rested(6, [make_job("u/a", 6), make_job("u/b", 6, priority=10_000)]),
            {
                "a": "2 of up to 6 slots: a share by its priority 5000 with u/b",
                "b": "4 of up to 6 slots: a share by its priority 10000 with u/a",
            },
        ),
        (
            rested(6, [make_job("u/a", 6, min_workers=4), make_job("u/b", 6)]),
            {"a": "4 of up to 6 slots: its minimum, next to u/b"},
        ),
        (
            rested(3, [make_job("u/a", 4, num_micro_batches=4)]),
            {"a": "2 of up to 4 slots: 3 workers would be no faster than 2 with its 4 micro-batches"},
        ),
        (
            rested(9, [make_job("u/a", 9, num_micro_batches=4)]),
            {"a": "4 of up to 9 slots: its step has only 4 micro-batches"},
        ),
        (
            rested(9, [make_job("u/a", 7, num_micro_batches=8)]),
            {"a": "4 of up to 7 slots: 5 to 7 workers would be no faster than 4 with its 8 micro-batches"},
        ),
        (
            rested(9, [make_job("u/a", 4, min_workers=3, num_micro_batches=1)]),
            {"a": "1 of up to 4 slots: its step has only 1 micro-batch, fewer than its minimum of 3 workers"},
        ),
        (
            rested(9, [make_job("u/a", 4, elastic=False, num_micro_batches=2)]),
            {"a": "2 of its 4 slots: its step has only 2 micro-batches, fewer than its minimum of 4 workers"},
        ),
        (
            rested(8, [make_job("u/a", 8, queue="a"), make_job("u/b", 8, queue="b"), make_job("v/b2", 8, queue="b")]),
            {
                "a": "4 of up to 8 slots: the fair share of queue 'a', next to queue 'b'",
                "b": "2 of up to 8 slots: an equal share with user v of the 4 slots of queue 'b'",
            },
        ),
        (
            rested(8, [make_job("u/a", 8)], (Queue(name="all", ceiling=5),)),
            {"a": "5 of up to 8 slots: the ceiling of queue 'all', 5 slots"},
        ),
        (
            rested(5, [make_job("u/a", 8)], (Queue(name="all", ceiling=5),)),
            {"a": "5 of up to 8 slots: all that the pool has"},
        ),
        (
            rested(8, [make_job("u/a", 8), make_job("u/b", 8, at=1.0)], (Queue(name="all", ceiling=4),)),
            {"a": "2 of up to 8 slots: an equal share with u/b of the 4 slots that queue 'all' can have at most"},
        ),
        (
            rested(8, [make_job("u/a", 8), make_job("u/b", 1, at=1.0)], (Queue(name="all", ceiling=4),)),
            {"a": "3 of up to 8 slots: the slots that u/b leaves of the 4 slots that queue 'all' can have at most"},
        ),
        (  # without the ceiling it would have 4, so it is no share
            rested(8, [make_job("u/a", 8), make_job("u/b", 8, queue="day")], (Queue(name="all", ceiling=2),)),
            {
                "a": "2 of up to 8 slots: the ceiling of queue 'all', 2 slots",
                "b": "6 of up to 8 slots: the fair share of queue 'day', next to queue 'all'",
            },
        ),
        (  # with a higher one it would have no more
            rested(8, [make_job("u/a", 8), make_job("u/b", 8, queue="day")], (Queue(name="all", ceiling=4),)),
            {"a": "4 of up to 8 slots: the fair share of queue 'all', next to queue 'day'"},
        ),
        (  # so here: what the other queue has more is its floor
            rested(
                8, [make_job("u/a", 8), make_job("u/b", 8, queue="day")], (Queue(name="all", ceiling=2), FLOOR_OF_SIX)
            ),
            {"a": "2 of up to 8 slots: the fair share of queue 'all', next to queue 'day'"},
        ),
        (  # minimums come before the shares of queues
            rested(
                4,
                [make_job("u/a", 8), make_job("u/b", 3, elastic=False, queue="b")],
            ),
            {"a": "1 of up to 8 slots: the slots that the minimums of queue 'b' leave"},
        ),
        (  # the floor would give it 6, which help no more than 4
            rested(8, [make_job("u/a", 8, num_micro_batches=8, queue="day"), make_job("u/b", 8)], (FLOOR_OF_SIX,)),
            {"a": "4 of up to 8 slots: 5 to 7 workers would be no faster than 4 with its 8 micro-batches"},
        ),
        (  # 1 slot more would be no worker
            rested(
                6, [make_job("u/a", 4, gpus_per_worker=2), make_job("u/b", 8, queue="b")], (Queue(name="all", floor=3),)
            ),
            {"a": "2 of up to 8 slots: the fair share of queue 'all', next to queue 'b'"},
        ),
        (  # 1 slot more would not help it, and 2 do not fit
            rested(8, [make_job("u/a", 4, num_micro_batches=4)], (Queue(name="all", ceiling=3),)),
            {"a": "2 of up to 4 slots: 3 workers would be no faster than 2 with its 4 micro-batches"},
        ),
        (
            rested(
                8,
                [make_job("u/a", 8), make_job("u/b", 3, priority=9000), make_job("v/c", 1, queue="day", priority=9000)],
                (Queue(name="all", ceiling=4),),
                policy=Policy.PRIORITY,
            ),
            {
                "a": "1 of up to 8 slots: its share by priority of the 4 slots that queue 'all' can have at most, "
                "shared with u/b"
            },
        ),
        (
            rested(
                8, [make_job("u/a", 3), make_job("u/b", 3, at=1.0)], (Queue(name="all", ceiling=4),), policy=Policy.FIFO
            ),
            {
                "b": "1 of up to 3 slots: its share by submission of the 4 slots that queue 'all' can have at most, "
                "shared with u/a"
            },
        ),
        (
            rested(4, [make_job("u/huge", 9, elastic=False)]),
            {"huge": "waits: needs 9 slots at once, but the pool has 4; lower its minimum or add nodes"},
        ),
        (
            rested(4, [make_job("u/huge", 9, elastic=False, coming="1 machine of Slurm is on its way", num_coming=5)]),
            {"huge": "waits: needs 9 slots at once, but the pool has 4; 1 machine of Slurm is on its way"},
        ),
        (
            rested(4, [make_job("u/huge", 9, elastic=False, coming="1 machine of Slurm is on its way", num_coming=4)]),
            {"huge": "waits: needs 9 slots at once, but the pool has 4; lower its minimum or add nodes"},
        ),
        (
            rested(4, [make_job("u/a", labels={"x": "y"}, coming="Slurm may give more machines", num_coming=1)]),
            {
                "a": "waits: needs 1 slot; it asks for labels x=y, for which its kind of machine has no slots; "
                "Slurm may give more machines"
            },
        ),
        (
            rested(4, [make_job("u/huge", 4, elastic=False)], (Queue(name="all", ceiling=2),)),
            {
                "huge": "waits: needs 4 slots at once, but queue 'all' may have 2; "
                "lower its minimum or raise the ceiling"
            },
        ),
        (
            rested(4, [make_job("bob/bert"), make_job("u/wide", 4, at=1.0, elastic=False)]),
            {
                "wide": "waits: needs 4 slots at once; 3 are reserved for it and lent to other jobs, "
                "1 more must become free; bob/bert goes first"
            },
        ),
        (
            rested(2, [make_job(f"u/a{index}", 1, at=float(index)) for index in range(3)]),
            {"a2": "waits: needs 1 slot, but none is left; u/a0 and u/a1 go first"},
        ),
        (
            rested(8, [make_job("u/b", 3, priority=9000), make_job("u/c", 9, priority=9000)], policy=Policy.PRIORITY),
            {"c": "5 of up to 9 slots: the slots that u/b leaves"},
        ),
        (
            rested(
                8, [make_job("u/b", 3, priority=9000), make_job("u/c", 9), make_job("u/d", 9)], policy=Policy.PRIORITY
            ),
            {"c": "3 of up to 9 slots: the slots left by u/b, which has a higher priority; an equal share with u/d"},
        ),
        (
            rested(8, [make_job(f"u/f{index}", 3, at=float(index)) for index in range(3)], policy=Policy.FIFO),
            {"f2": "2 of up to 3 slots: the slots left by u/f0 and u/f1, which were submitted earlier"},
        ),
    ],
)
def test_at_rest(decisions: Callable[[], Decisions], want: dict[str, str]) -> None:
    found = told(decisions())
    assert found | want == found


def test_the_reason_of_a_waiting_job_says_how_many_are_free_and_which_jobs_free_the_rest() -> None:
    snapshot, _ = settle(make_snapshot(6, [make_job("anna/resnet", 6)]))
    snapshot = with_job(snapshot, STATIC)
    snapshot = carry_out(snapshot, decide(snapshot, RULES), slow=True)
    slots = [
        msgspec.structs.replace(slot, holder=None, leaving=False) if slot.leaving else slot for slot in snapshot.slots
    ]
    late = [index for index, slot in enumerate(slots) if slot.holder is None][:2]
    for index in late:
        slots[index] = msgspec.structs.replace(slots[index], holder="resnet", leaving=True)
    decisions = decide(msgspec.structs.replace(snapshot, slots=tuple(slots)), RULES)
    assert told(decisions)["c"] == "waits: needs 4 slots at once; 2 are free, 2 more are being freed by anna/resnet"


def test_a_pause_tells_who_goes_first_and_that_it_resumes() -> None:
    rules = msgspec.structs.replace(RULES, policy=Policy.PRIORITY)
    snapshot, _ = settle(
        make_snapshot(4, [make_job("anna/low")]), msgspec.structs.replace(EAGER, policy=Policy.PRIORITY)
    )
    snapshot = with_job(snapshot, make_job("bob/high", at=1.0, priority=9000))
    decisions = decide(snapshot, rules)
    assert told(decisions)["low"] == (
        "pauses with a checkpoint: bob/high was submitted and has the higher priority 9000; "
        "it resumes when 1 slot is available again"
    )
    snapshot, _ = settle(snapshot, rules)
    decisions = decide(without_job(snapshot, "high"), rules)
    assert told(decisions) == {"low": "resumes with 4 of up to 4 slots: its maximum"}


def test_what_is_held_back_says_until_when_and_keeps_its_words() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a"), make_job("anna/b", at=1.0)]))
    raised = changed(snapshot, "b", priority=10_000)
    want = {
        "a": "2 of up to 4 slots, 1 more than its share, until other jobs can use it",
        "b": "2 of up to 4 slots: will grow to 3 if nothing changes for 3 s",
    }
    for after_s in (0.0, 1.0, 2.0):
        assert told(decide(msgspec.structs.replace(raised, now=raised.now + after_s), RULES)) == want
    due = changed(changed(raised, "b", wanted=3, wanted_since=0.0), "a", wanted=1, wanted_since=0.0)
    assert told(decide(due, RULES)) == {
        "a": "shrinks 2 → 1: anna/b grows to 3 and has the higher priority 10000",
        "b": "2 of up to 4 slots: will grow to 3 when anna/a has freed the slots",
    }
    lately = changed(due, "b", last_resized_at=due.now, resize_cost_s=1.5)
    assert told(decide(lately, RULES))["b"] == (
        "2 of up to 4 slots: will grow to 3 when 30 s have passed since its last resize, 20 times as long as a resize "
        "takes"
    )
    resizing = changed(due, "b", standing=Standing.RESIZING)
    want = "2 of up to 4 slots: its workers are starting or leaving, and it grows to 3 afterwards"
    assert told(decide(resizing, RULES))["b"] == want


def test_a_job_that_waits_for_its_own_leaving_workers_is_not_its_own_cause() -> None:
    job = changed(make_snapshot(4, [make_job("anna/a")]), "a", standing=Standing.RUNNING, wanted=4, wanted_since=0.0)
    slots = [msgspec.structs.replace(slot, holder="a", leaving=slot.id == "n0/g3") for slot in job.slots]
    decisions = decide(msgspec.structs.replace(job, slots=tuple(slots)), EAGER)
    assert told(decisions) == {
        "a": "3 of up to 4 slots: will grow to 4 when its own leaving workers have freed the slots",
    }
    assert decisions.of("a").because == ()


def test_a_floor_that_is_taken_back_says_whose_it_is() -> None:
    queues = (Queue(name="a", floor=6), Queue(name="b"))
    snapshot, _ = settle(make_snapshot(8, [make_job("bob/b", 8, queue="b")], queues))
    decisions = decide(with_job(snapshot, make_job("anna/a", 8, at=1.0, queue="a")), RULES)
    assert told(decisions)["b"] == "shrinks 8 → 2: anna/a was submitted and queue 'a' is entitled to them"


def test_a_ceiling_that_comes_down_is_the_reason_of_the_loss() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    snapshot = msgspec.structs.replace(snapshot, queues=(Queue(name="all", ceiling=2),))
    decisions = decide(snapshot, EAGER)
    assert told(decisions) == {"a": "shrinks 4 → 2: the ceiling of queue 'all', 2 slots"}
    assert decisions.of("a").ceiling == 2


def test_slots_that_no_job_can_use_are_given_back_later_and_the_reason_says_so() -> None:
    """It moved to a queue with a low ceiling: that others could use its slots is not what it waits for."""
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    snapshot = msgspec.structs.replace(snapshot, queues=(Queue(name="all", ceiling=2),))
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {
        "a": "4 of up to 4 slots, 2 more than the ceiling of queue 'all' (2) allows: it gives them back if "
        "nothing changes for 3 s"
    }
    snapshot = carry_out(snapshot, decisions, after_s=3.0)
    assert told(decide(snapshot, RULES))["a"].startswith("shrinks 4 → 2")
    # Another one wants exactly these, and waits for its own time: then it keeps them so long.
    wants = make_job("bob/b", 2, at=1.0, queue="day", standing=Standing.RUNNING)
    slots = (*snapshot.slots, Slot(id="n9/g0", node="n9", holder="b"))
    jobs = (changed(snapshot, "a", wanted=None, wanted_since=None).jobs[0], wants)
    both = msgspec.structs.replace(snapshot, slots=slots, jobs=jobs, queues=())
    assert told(decide(both, RULES)) == {
        "a": "4 of up to 4 slots, 1 more than its share, until other jobs can use it",
        "b": "1 of up to 2 slots: will grow to 2 if nothing changes for 3 s",
    }


@pytest.mark.parametrize(
    ("job", "ceiling", "want"),
    [
        (make_job("u/a", 4), 2, 2),
        (make_job("u/a", 4), 4, None),
        (make_job("u/a", 2), 2, None),
        (make_job("u/a", 4, elastic=False), 2, 2),
        (make_job("u/a", 9, elastic=False), None, None),
    ],
)
def test_a_decision_says_whether_a_higher_ceiling_would_help(
    job: JobDemand, ceiling: int | None, want: int | None
) -> None:
    assert rested(4, [job], (Queue(name="all", ceiling=ceiling),))().of("a").ceiling == want


def test_a_lost_node_is_named_as_the_cause() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    slots = tuple(msgspec.structs.replace(slot, usable=index > 0) for index, slot in enumerate(snapshot.slots))
    decisions = decide(msgspec.structs.replace(snapshot, slots=slots), RULES)
    assert told(decisions) == {"a": "shrinks 4 → 3: one of its slots is on node n0 (down or drained)"}
    silent = tuple(msgspec.structs.replace(slot, trouble="its agent does not answer") for slot in slots)
    decisions = decide(msgspec.structs.replace(snapshot, slots=silent), RULES)
    assert told(decisions) == {"a": "shrinks 4 → 3: one of its slots is on node n0 (its agent does not answer)"}


def test_behind_a_reservation_the_reason_says_for_which_job_slots_are_kept() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("u/a", 1)]))
    jobs = (make_job("u/wide", 4, at=1.0, elastic=False), make_job("u/new", 1, at=2.0))
    decisions = decide(with_job(snapshot, *jobs), Rules(reserve_after_s=0.0))
    assert told(decisions)["new"] == (
        "waits: needs 1 slot; the next free slots are reserved for u/wide, which has waited longer"
    )
    assert decisions.of("new").because == ("wide",)


@pytest.mark.parametrize(
    ("policy", "floor", "want"),
    [
        (Policy.FIFO, 0, "shrinks 4 → 1: u/b resumes and comes before it"),
        (Policy.PRIORITY, 0, "shrinks 4 → 2: u/b resumes and has the same priority"),
        (Policy.FIFO, 3, "shrinks 4 → 1: u/b resumes and queue 'b' is entitled to them"),
    ],
)
def test_under_other_policies_only_a_floor_entitles_a_queue(policy: Policy, floor: int, want: str) -> None:
    rules = msgspec.structs.replace(EAGER, policy=policy)
    queues = (Queue(name="b", floor=floor),)
    snapshot, _ = settle(make_snapshot(4, [make_job("u/a", 4, at=1.0, queue="a")], queues), rules)
    earlier = make_job("u/b", 3, queue="b", standing=Standing.PAUSED)
    assert told(decide(with_job(snapshot, earlier), rules))["a"] == want
