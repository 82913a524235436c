"""Pilots of users who have their own: bounds, isolation between users, and how a scarce maximum is divided."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.clusters.test_demand import LABELS, job, pool, slots
from tests.unit.clusters.test_pilots import NOW, agent, pilot

from legato.clusters.demand import PilotShape, Wish, count_wishes, divide_pilots
from legato.clusters.owner_plans import Party, group, plan_owners
from legato.clusters.pilots import Demand, PilotRules, PilotState
from legato.policy.snapshot import OWNER_LABEL, Snapshot

RULES = PilotRules(max_pilots=4, max_of_owner=3, idle_s=300)
SHAPE = PilotShape(num_slots=2, has_gpus=False, labels=LABELS)


def wish(owner: str, most: int, least: int = 1) -> Wish:
    return Wish(owner=owner, least=least, most=most)


def count(snapshot: Snapshot, most: int = 9) -> dict[str | None, int]:
    return {one.owner: one.most for one in count_wishes(snapshot, lambda _: SHAPE, most, by_owner=True)}


def party(owner: str, given: int | None, *busy: int, waiting: int = 0, **more: object) -> Party:
    """A user with a running pilot for each number of busy slots, and waiting ones."""
    names = [f"{owner}-{index}" for index in range(len(busy))]
    pilots = [pilot(name) for name in names]
    pilots += [pilot(f"{owner}-w{index}", PilotState.WAITING) for index in range(waiting)]
    agents = tuple(agent(name, number) for name, number in zip(names, busy, strict=True))
    demand = Demand(given or 0, given or 0)
    return Party(owner=owner, pilots=tuple(pilots), agents=agents, demand=demand, given=given, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------- demand


def test_each_user_is_counted_alone_and_the_oldest_job_is_first() -> None:
    jobs = [job(3, id="b", owner="ben", submitted_at=5.0), job(2, id="a", owner="anna", submitted_at=7.0)]
    assert list(count(pool(*jobs)).items()) == [("ben", 2), ("anna", 1)]
    assert count(pool(job(100, owner="anna")), most=3) == {"anna": 3}


def test_pilots_of_a_user_are_no_other_machines_for_the_jobs_of_another() -> None:
    nodes = {"slurm-anna-1": {"labels": {**LABELS, OWNER_LABEL: "anna"}}, "head": {}}
    there = slots("slurm-anna-1", 2) + slots("head", 1)
    assert count(pool(job(4, owner="ben"), slots=there, **nodes)) == {"ben": 2}
    # The machine of all is used first, and only once.
    both = [job(4, id="b", owner="ben"), job(2, id="a", owner="anna", labels={OWNER_LABEL: "anna"})]
    assert count(pool(both[0], job(2, id="a", owner="anna", labels={OWNER_LABEL: "ben"}))) == {"ben": 2}
    assert count(pool(*both, slots=slots("head", 1), **nodes)) == {"ben": 2, "anna": 1}


def test_what_a_machine_of_a_user_shows_says_nothing_for_others() -> None:
    shapes = {"anna": msgspec.structs.replace(SHAPE, machine_kinds=("odd",))}
    jobs = pool(*(job(2, id=name, owner=name, machine_kind="k/cpu") for name in ("anna", "ben")))
    wishes = count_wishes(jobs, lambda name: shapes.get(name or "", SHAPE), 9, by_owner=True)
    assert [one.owner for one in wishes] == ["ben"]


def test_the_least_is_what_one_job_needs() -> None:
    (found,) = count_wishes(
        pool(job(8, id="a", min_workers=5), job(6, id="b", min_workers=3)), lambda _: SHAPE, 9, by_owner=True
    )
    assert (found.least, found.most) == (2, 7)


# ---------------------------------------------------------------- who gets how many


def test_a_scarce_maximum_is_divided_equally_after_what_one_job_needs() -> None:
    assert divide_pilots([wish("anna", 4), wish("ben", 4)], {}, 4) == {"anna": 2, "ben": 2}
    assert divide_pilots([wish("anna", 4), wish("ben", 1)], {}, 4) == {"anna": 3, "ben": 1}
    # The odd one stays with who has it.
    assert divide_pilots([wish("anna", 4), wish("ben", 4)], {"ben": 3}, 3) == {"anna": 1, "ben": 2}
    assert divide_pilots([wish("anna", 4, 3), wish("ben", 4, 2)], {}, 4) == {"anna": 4, "ben": 0}
    assert divide_pilots([wish("anna", 4, 2), wish("ben", 4, 2)], {}, 4) == {"anna": 2, "ben": 2}


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 6)), max_size=6, unique=True),
    st.integers(0, 12),
)
def test_a_division_gives_no_more_than_is_wanted_and_wastes_nothing(
    users: list[tuple[int, int, int]], total: int
) -> None:
    wishes = [wish(f"u{i}", least + more, least) for i, (least, more, _) in enumerate(users)]
    has: dict[str | None, int] = {f"u{i}": number for i, (_, _, number) in enumerate(users)}
    found = divide_pilots(wishes, has, total)
    assert sum(found.values()) <= total
    assert all(found[one.owner] == 0 or one.least <= found[one.owner] <= one.most for one in wishes)
    admitted = [one for one in wishes if found[one.owner]]
    if sum(found.values()) < total:
        assert all(found[one.owner] == one.most for one in admitted)
        assert all(one.least > total - sum(each.least for each in admitted) for one in wishes if not found[one.owner])
    assert divide_pilots(wishes, dict(found), total) == found, "it changes although nothing has changed"


# ---------------------------------------------------------------- what is done


def test_a_user_who_is_short_gets_pilots_of_another_only_after_a_while_and_busy_ones_are_emptied() -> None:
    parties = [party("anna", 2, 2, 1, 2, 2), party("ben", 2)]
    rules = msgspec.structs.replace(RULES, max_of_owner=4)
    soon = plan_owners(rules, parties, NOW, takes=False)
    assert (soon.starts, soon.leaving, soon.ending, soon.is_short) == ({}, (), (), True)
    later = plan_owners(rules, parties, NOW, takes=True)
    assert [one.node for one in later.leaving] == ["anna-1", "anna-0"]
    assert later.ending == ()
    assert "jobs of other users" in later.leaving[0].reason


def test_busy_pilots_are_given_up_only_for_those_that_can_be_asked_for_now() -> None:
    rules = PilotRules(max_pilots=32, max_of_owner=32, max_waiting=8)
    busy = [2] * 24
    first = plan_owners(rules, [party("anna", 16, *busy, 2, 2, 2, 2, 2, 2, 2, 2), party("ben", 16)], NOW, takes=True)
    assert (len(first.leaving), first.is_short) == (8, False)
    # These wait in the queue now. Others are asked for when they have machines.
    waits = plan_owners(rules, [party("anna", 16, *busy), party("ben", 16, waiting=8)], NOW, takes=True)
    assert (waits.starts, waits.leaving, waits.is_short) == ({}, (), False)
    some = plan_owners(rules, [party("anna", 16, *busy), party("ben", 16, 2, 2, 2, waiting=5)], NOW, takes=True)
    assert (some.starts, len(some.leaving)) == ({}, 3)


def test_a_user_who_is_paused_takes_no_pilots_of_others() -> None:
    plan = plan_owners(RULES, [party("anna", 3, 2, 2, 2), party("ben", 2, is_paused=True)], NOW, takes=True)
    assert (plan.starts, plan.leaving, plan.is_short, plan.missing) == ({}, (), False, {"ben"})


def test_pilots_of_a_user_who_can_have_none_are_emptied_and_those_that_wait_are_ended() -> None:
    plan = plan_owners(RULES, [party("anna", None, 2, 0, waiting=1), party("ben", 1, 2)], NOW, takes=False)
    assert {one.node for one in plan.leaving} == {"anna-0", "anna-1"}
    assert [one.pilot.node for one in plan.ending] == ["anna-w0"]


def test_a_demand_that_is_gone_for_a_moment_ends_nothing() -> None:
    before = Party(owner="anna", pilots=(pilot("a", PilotState.WAITING),), demand=Demand(0, 1), given=0)
    assert plan_owners(RULES, [before], NOW, takes=False).ending == ()
    gone = msgspec.structs.replace(before, demand=Demand(0, 0))
    assert [one.pilot.node for one in plan_owners(RULES, [gone], NOW, takes=False).ending] == ["a"]


PARTIES = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), max_size=3), st.integers(0, 2), st.booleans()), max_size=4
)


@settings(max_examples=examples(200))
@given(PARTIES, st.integers(1, 8), st.booleans(), st.integers(1, 3))
def test_there_are_no_more_than_allowed_no_busy_pilot_is_ended_and_pauses_hold(
    users: list[tuple[int, list[int], int, bool]], total: int, takes: bool, max_waiting: int
) -> None:
    wishes = [wish(f"u{i}", given) for i, (given, *_) in enumerate(users) if given]
    given = divide_pilots(wishes, {}, total)
    parties = [
        party(f"u{i}", given.get(f"u{i}", 0), *busy, waiting=waiting, is_paused=paused)
        for i, (_, busy, waiting, paused) in enumerate(users)
    ]
    rules = PilotRules(max_pilots=total, max_of_owner=3, max_waiting=max_waiting)
    plan = plan_owners(rules, parties, NOW, takes=takes)
    there = sum(len(one.pilots) for one in parties)
    starts = sum(plan.starts.values())
    assert starts == 0 or there + starts <= total
    busy = {one.node for each in parties for one in each.agents if one.num_busy}
    assert not busy & {one.pilot.node for one in plan.ending}
    assert takes or not busy & {one.node for one in plan.leaving}
    waiting = {one.owner: sum(each.state is PilotState.WAITING for each in one.pilots) for one in parties}
    usable = sum(max(0, rules.max_waiting - waiting[owner]) for owner in plan.missing)
    assert len(busy & {one.node for one in plan.leaving}) <= usable, "more is taken than can be asked for"
    for one in parties:
        assert one.owner not in plan.starts or not one.is_paused
        assert len(one.pilots) + plan.starts.get(one.owner, 0) <= max(rules.max_of_owner, len(one.pilots))
    assert not set(plan.starts) - plan.missing


@settings(max_examples=examples(100))
@given(PARTIES, st.integers(0, 3), st.lists(st.integers(0, 2), max_size=3))
def test_users_do_not_feel_one_another_while_there_is_room(
    users: list[tuple[int, list[int], int, bool]], given: int, busy: list[int]
) -> None:
    rules = PilotRules(max_pilots=1000, max_of_owner=3)
    own = party("own", given, *busy)
    others = [
        party(f"u{i}", most, *others, waiting=waiting, is_paused=paused)
        for i, (most, others, waiting, paused) in enumerate(users)
    ]
    alone, together = (plan_owners(rules, each, NOW, takes=True) for each in ([own], [*others, own]))
    assert together.starts.get("own") == alone.starts.get("own")
    assert [one for one in together.leaving if one.node.startswith("own")] == list(alone.leaving)
    assert [one for one in together.ending if one.pilot.node.startswith("own")] == list(alone.ending)


def test_pilots_are_grouped_by_user_and_system_user() -> None:
    whose = {"a": ("anna", 1), "b": ("anna", 2)}
    found = group([pilot("a"), pilot("b"), pilot("x")], [agent("a")], whose)
    assert {key: [one.node for one in pilots] for key, (pilots, _) in found.items()} == {
        ("anna", 1): ["a"],
        ("anna", 2): ["b"],
    }
