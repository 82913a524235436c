"""Every reason is read completely, and each of its parts is compared with the pool and the decisions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.lives import draw_rules, live
from tests.unit.policy.sentences import GRAMMAR
from tests.unit.policy.test_kinds import TWO_KINDS, make_pool, refused_by
from tests.unit.policy.test_moves import R1, give
from tests.unit.policy.test_recent_use import used_snapshots
from tests.unit.policy.test_trials import REAL, RULES, make_pair, measure
from tests.unit.policy.truth import Truth
from tests.unit.policy.world import EAGER, carry_out, make_job, make_speed, settle, with_job
from tests.unit.policy.worlds import any_jobs, any_rules, any_snapshots, for_any, mixed_snapshots

from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.sizes import smallest_size
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Queue, Snapshot
from legato.policy.speeds import Slowdown
from legato.policy.whatif import plan


def check(snapshot: Snapshot, rules: Rules) -> set[str]:
    return Truth(snapshot, rules, decide(snapshot, rules)).check_all()


@for_any(st.randoms(use_true_random=False))
def test_every_reason_in_the_life_of_a_pool_is_true(source: random.Random) -> None:
    rules = draw_rules(source)
    for snapshot, decisions in live(source, rules, rounds=5):
        Truth(snapshot, rules, decisions).check_all()


@for_any(any_snapshots(), any_rules())
def test_every_reason_in_any_pool_is_true(snapshot: Snapshot, rules: Rules) -> None:
    check(snapshot, rules)


@for_any(mixed_snapshots(), any_rules())
def test_every_reason_in_a_pool_of_several_kinds_is_true(snapshot: Snapshot, rules: Rules) -> None:
    check(snapshot, rules)


@for_any(mixed_snapshots(owned=True), any_rules())
def test_every_reason_about_machines_of_users_is_true(snapshot: Snapshot, rules: Rules) -> None:
    check(snapshot, rules)


@for_any(used_snapshots(), st.just(Rules(usage_half_life_s=3600.0)))
def test_every_reason_about_recent_use_is_true(snapshot: Snapshot, rules: Rules) -> None:
    check(snapshot, rules)


def say_rare_things() -> Iterator[tuple[Snapshot, Rules]]:
    """Yield pools in which jobs have reasons that are rare in random ones."""
    pool, _ = settle(make_pool(make_job("anna/j", 6), a=4, b=2))
    yield msgspec.structs.replace(pool, nodes=TWO_KINDS), EAGER
    pool, _ = settle(make_pool(make_job("anna/j", 2, gpus_per_worker=2), gpu_types={"a": "T4"}, a=4))
    slots = tuple(msgspec.structs.replace(slot, usable=slot.id != "a/1") for slot in pool.slots)
    yield msgspec.structs.replace(pool, slots=slots), EAGER
    static = [make_job(f"anna/{name}", 3, elastic=False) for name in "ij"]
    pool, _ = settle(make_pool(*static, gpu_types=dict.fromkeys("ab", "T4"), a=4, b=4))
    yield with_job(pool, make_job("bob/k", 1, gpus_per_worker=2, at=5.0)), EAGER
    racks = (Node(name="n0"), Node(name="n1", labels=R1), Node(name="n2", labels=R1))
    jobs = (make_job("anna/a", 2, labels=R1), refused_by(make_job("bob/j", 1, at=5.0), n0="no data", n2="no data"))
    yield make_pool(*jobs, nodes=racks, n0=2, n1=1, n2=1), EAGER
    jobs = (make_job("anna/a", 1, labels=R1), refused_by(make_job("anna/j", 1, at=5.0), n0="no data"))
    yield make_pool(*jobs, nodes=racks, n0=2, n1=1), EAGER
    pool = give(make_pool(make_job("anna/dat", 2, min_workers=2), nodes=racks, n0=2, n1=2), "dat", "n1/0", "n1/1")
    yield with_job(pool, make_job("bob/j", 1, at=5.0, labels=R1)), Rules()
    pool = give(make_pool(make_job("anna/dat", 2), a=4), "dat", "a/0", "a/1", "a/2")
    yield pool, EAGER
    jobs = (make_job("anna/a", 3, labels=R1), make_job("bob/j", 3, labels=R1))
    yield make_pool(*jobs, nodes=racks, n0=2, n1=2, n2=2), EAGER
    jobs = (make_job("anna/a", 3), make_job("bob/b", 3, at=1.0))
    queues = (Queue(name="all", ceiling=4),)
    fifo = msgspec.structs.replace(EAGER, policy=Policy.FIFO)
    yield msgspec.structs.replace(make_pool(*jobs, a=8), queues=queues), fifo
    pool, _ = settle(make_pool(make_job("anna/a", 4), make_job("anna/b", 4, at=1.0), a=4))
    raised = tuple(msgspec.structs.replace(job, priority=1000 + 9000 * (job.id == "b")) for job in pool.jobs)
    yield msgspec.structs.replace(pool, jobs=raised), Rules()
    speeds = tuple(make_speed(number, 1 / (1 / number + 0.5)) for number in (1, 2, 4))
    jobs = (make_job("anna/a", 8, speeds=speeds), make_job("anna/b", 8))
    yield make_pool(*jobs, a=6), msgspec.structs.replace(EAGER, policy=Policy.THROUGHPUT)
    late = make_job("anna/late", 4, min_workers=4, at=1.0, due_slot_s=1e4)
    yield (
        make_pool(make_job("anna/a", 8, min_workers=8, coming="Slurm may give more machines", num_coming=4), a=4),
        EAGER,
    )
    pool, _ = settle(make_pool(make_job("anna/a", 4, min_workers=4, served_slot_s=1e4), a=4))
    yield with_job(pool, late), msgspec.structs.replace(EAGER, fair_finish_s=60.0)
    first, second = (
        msgspec.structs.replace(make_job(f"anna/{name}", 8, at=at), used_slot_s=100.0)
        for name, at in (("first", 0.0), ("second", 1.0))
    )
    pool, _ = settle(make_pool(first, a=8))
    yield with_job(pool, second), msgspec.structs.replace(EAGER, long_job_slot_s=50.0)


def say_whose_machines_they_are() -> Iterator[tuple[Snapshot, Rules]]:
    """Yield pools in which machines belong to users."""
    jobs = [make_job(f"{owner}/{owner}", 8, at=float(at)) for at, owner in enumerate(("ann", "ben", "carl", "dan"))]
    for owners in (("", "carl", "carl", "dan"), ("", "", "", "carl", "dan")):
        nodes = tuple(
            Node(name=f"n{index}", labels={OWNER_LABEL: owner} if owner else {}) for index, owner in enumerate(owners)
        )
        for rules in (EAGER, msgspec.structs.replace(EAGER, policy=Policy.FIFO)):
            yield make_pool(*jobs, nodes=nodes, **{node.name: 4 for node in nodes}), rules


def say_what_is_measured() -> Iterator[tuple[Snapshot, Rules]]:
    """Yield pools with speeds of earlier runs, and with jobs that try other numbers of workers."""
    speeds = (make_speed(2, 2.0), make_speed(4, 1.5))
    slow = Slowdown(best=2, slower=4, most=3)
    for earlier in ((), (2, 4), (4,)):
        job = make_job("anna/a", 8, speeds=speeds, slowdown=slow, earlier=earlier)
        yield make_pool(job, a=8), EAGER
    # One job gives a slot up, and the taker of a trial gets it.
    jobs = [
        make_job(f"ann/{name}", most, at=float(at))
        for at, (name, most) in enumerate(zip("abcd", (4, 8, 4, 8), strict=True))
    ]
    pool = measure(settle(make_pool(*jobs, a=12), RULES)[0], dict.fromkeys("abcd", 0.0))
    smaller = msgspec.structs.replace(pool.jobs[0], max_workers=2, speeds=())
    yield msgspec.structs.replace(pool, jobs=(smaller, *pool.jobs[1:])), RULES
    pool = measure(settle(make_pair(), RULES)[0], {"a": 0.0, "b": 1.0})
    yield pool, REAL
    for _ in range(6):
        yield pool, RULES
        pool = carry_out(pool, decide(pool, RULES), after_s=4.0)


def test_every_sentence_of_the_grammar_is_said() -> None:
    """So no sentence stays unchecked, and the grammar has no sentence that the policy never says."""
    missing = set(GRAMMAR)
    for snapshot, rules in (*say_rare_things(), *say_whose_machines_they_are(), *say_what_is_measured()):
        missing -= check(snapshot, rules)
    for seed in range(500):
        source = random.Random(seed)
        rules = draw_rules(source)
        for snapshot, decisions in live(source, rules):
            missing -= Truth(snapshot, rules, decisions).check_all()
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize(
    "wrong",
    [
        "3 of up to 4 slots: its maximum",
        "4 of up to 4 slots: all that it needs",
        "4 of up to 4 slots: its maximum, so far",
        "grows 3 → 4: its maximum",
        "4 of up to 4 slots: an equal share with ben/b",
    ],
)
def test_a_reason_that_is_unknown_or_untrue_is_found(wrong: str) -> None:
    snapshot, decisions = settle(make_pool(make_job("anna/a", 4), a=4))
    (right,) = decisions.decisions
    assert right.reason == "4 of up to 4 slots: its maximum"
    changed = msgspec.structs.replace(decisions, decisions=(msgspec.structs.replace(right, reason=wrong),))
    with pytest.raises((AssertionError, ValueError, KeyError)):
        Truth(snapshot, EAGER, changed).check_all()


_PLANNED = re.compile(
    r"would start with (?P<number>\d+) slots? (?P<when>at once|as soon as they are freed); "
    r"(?:no other job loses slots|other jobs lose slots: (?P<losses>[^;]+?)(?: and (?P<more>\d+) more)?)"
)
_NEVER = re.compile(
    r"could not start: it needs (?P<least>\d+) slots? at once, but (?:the pool has (?P<slots>\d+)"
    r"|its queue '(?P<queue>\w+)' may have (?P<ceiling>\d+))"
)


@for_any(any_snapshots(), any_jobs(min_jobs=1), any_rules())
def test_every_reason_of_a_planned_job_is_true(snapshot: Snapshot, jobs: list[JobDemand], rules: Rules) -> None:
    job = msgspec.structs.replace(jobs[0], id="new", name="new")
    found = plan(snapshot, job, rules)
    after = decide(with_job(snapshot, job), rules)
    if told := _NEVER.fullmatch(found.reason):
        assert not after.of("new").wanted
        assert int(told["least"]) == smallest_size(job)
        ceilings = {queue.name: queue.ceiling for queue in snapshot.queues}
        usable = sum(slot.usable for slot in snapshot.slots)
        if told["queue"]:
            assert told["queue"] == job.queue and ceilings[job.queue] == int(told["ceiling"]) < int(told["least"])
        else:
            assert int(told["slots"]) == usable < int(told["least"])
    elif told := _PLANNED.fullmatch(found.reason):
        assert (told["when"] == "at once") == bool(after.of("new").slots)
        assert int(told["number"]) == (len(after.of("new").slots) or after.of("new").wanted)
        losses = [effect for effect in found.effects if effect.after < effect.before]
        named = [f"{effect.title} {effect.before} → {effect.after}" for effect in losses[:3]]
        assert (told["losses"] or "") == ", ".join(named)
        assert int(told["more"] or 0) == max(len(losses) - 3, 0)
        wanted = {one.job: one.wanted for one in decide(snapshot, rules).decisions}
        assert all((wanted[one.job], after.of(one.job).wanted) == (one.before, one.after) for one in found.effects)
    else:
        assert found.reason.removeprefix("would not start yet; it ") == after.of("new").reason
        Truth(with_job(snapshot, job), rules, after).check_all()
