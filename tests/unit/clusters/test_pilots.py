"""The decision how many pilots there are: bounds, idle pilots, time limits, and a cluster that does not answer."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.clusters.pilots import (
    Demand,
    Pilot,
    PilotAgent,
    PilotPlan,
    PilotRules,
    PilotState,
    plan_pilots,
)

RULES = PilotRules(max_pilots=4, idle_s=300, replace_s=900, leave_s=180)
NOW = 1_000_000.0


def pilot(node: str, state: PilotState = PilotState.RUNNING, ends_at: float | None = None) -> Pilot:
    return Pilot(id=f"id-{node}", node=node, state=state, ends_at=ends_at)


def agent(node: str, num_busy: int = 0, **given: float | None) -> PilotAgent:
    values = {"idle_since": None if num_busy else NOW, "silent_since": NOW, **given}
    return PilotAgent(node=node, num_busy=num_busy, **values)  # type: ignore[arg-type]


def demand(now: int, lately: int | None = None) -> Demand:
    return Demand(now, now if lately is None else lately)


def test_pilots_are_started_as_demand_grows() -> None:
    assert plan_pilots(RULES, demand(2), [], [], NOW) == PilotPlan(num_starts=2, target=2)
    assert plan_pilots(RULES, demand(9), [pilot("a")], [agent("a", 1)], NOW).num_starts == 3


def test_only_so_many_wait_in_the_queue_of_the_cluster() -> None:
    rules = msgspec.structs.replace(RULES, max_waiting=2)
    assert plan_pilots(rules, demand(4), [], [], NOW).num_starts == 2
    assert plan_pilots(rules, demand(4), [pilot("a", PilotState.WAITING)], [], NOW).num_starts == 1


def test_waiting_pilots_are_ended_first_and_the_newest_of_them() -> None:
    pilots = [pilot("a"), pilot("b", PilotState.WAITING), pilot("c", PilotState.WAITING)]
    plan = plan_pilots(RULES, demand(1), pilots, [agent("a", idle_since=NOW - 999)], NOW)
    assert [end.pilot.node for end in plan.ending] == ["c", "b"]
    assert plan.leaving == ()


def test_a_pilot_that_waited_when_it_was_seen_and_has_joined_since_is_not_ended() -> None:
    pilots = [pilot("a", PilotState.WAITING), pilot("b", PilotState.WAITING)]
    for busy in (0, 1):
        plan = plan_pilots(RULES, demand(0), pilots, [agent("b", busy)], NOW)
        assert [end.pilot.node for end in plan.ending] == ["a"]
        assert plan.leaving == ()


def test_an_idle_pilot_is_kept_for_a_while_and_then_let_go() -> None:
    pilots = [pilot("a"), pilot("b")]
    agents = [agent("a", 1), agent("b", idle_since=NOW - 299)]
    assert plan_pilots(RULES, demand(1), pilots, agents, NOW).leaving == ()
    assert [one.node for one in plan_pilots(RULES, demand(1), pilots, agents, NOW + 1).leaving] == ["b"]


def test_an_idle_pilot_that_demand_needs_is_kept() -> None:
    assert plan_pilots(RULES, demand(1), [pilot("a")], [agent("a", idle_since=0.0)], NOW).leaving == ()


def test_demand_that_is_gone_for_a_moment_ends_nothing() -> None:
    pilots = [pilot("a"), pilot("b", PilotState.WAITING)]
    plan = plan_pilots(RULES, demand(0, lately=2), pilots, [agent("a", idle_since=0.0)], NOW)
    assert (plan.leaving, plan.ending, plan.num_starts) == ((), (), 0)


def test_a_pilot_near_its_time_limit_is_replaced_and_then_emptied() -> None:
    busy = [agent("a", 1)]
    assert plan_pilots(RULES, demand(1), [pilot("a", ends_at=NOW + 901)], busy, NOW).num_starts == 0
    plan = plan_pilots(RULES, demand(1), [pilot("a", ends_at=NOW + 900)], busy, NOW)
    assert (plan.num_starts, plan.leaving) == (1, ())
    both = [pilot("a", ends_at=NOW + 180), pilot("b", PilotState.WAITING)]
    plan = plan_pilots(RULES, demand(1), both, busy, NOW)
    assert (plan.num_starts, [one.node for one in plan.leaving], plan.ending) == (0, ["a"], ())


def test_pilots_that_all_get_too_little_time_are_not_replaced_without_end() -> None:
    """Slurm gives less time than the settings ask for, for example before a maintenance."""
    pilots: list[Pilot] = []
    for _round in range(20):
        num_starts = plan_pilots(RULES, demand(9), pilots, [agent(p.node, 1) for p in pilots], NOW).num_starts
        pilots += [pilot(f"n{len(pilots) + index}", ends_at=NOW + 600) for index in range(num_starts)]
    assert len(pilots) == 2 * RULES.max_pilots


def test_an_empty_agent_that_does_not_end_is_ended_first_gently() -> None:
    def ends(ago_s: float, num_busy: int = 0) -> list[bool]:
        leaving = agent("a", num_busy, leaves_since=NOW - ago_s, idle_since=None if num_busy else NOW - ago_s)
        return [end.force for end in plan_pilots(RULES, demand(0), [pilot("a")], [leaving], NOW).ending]

    assert (ends(299), ends(300), ends(600), ends(999, num_busy=1)) == ([], [False], [True], [])


def test_a_pilot_whose_agent_is_silent_is_ended_unless_a_job_holds_it() -> None:
    silent = agent("a", silent_since=NOW - 300, idle_since=NOW - 300)
    assert [end.force for end in plan_pilots(RULES, demand(1), [pilot("a")], [silent], NOW).ending] == [True]
    busy = agent("a", 1, silent_since=NOW - 300)
    assert plan_pilots(RULES, demand(1), [pilot("a")], [busy], NOW).ending == ()


# ---------------------------------------------------------------- for all situations

NODES = ("a", "b", "c", "d", "e", "f")
TIMES = st.one_of(st.none(), st.integers(-100, 2000).map(lambda s: NOW + s))
PAST = st.integers(0, 2000).map(lambda s: NOW - s)


@st.composite
def situations(draw: st.DrawFn) -> tuple[PilotRules, Demand, list[Pilot], list[PilotAgent]]:
    least = draw(st.integers(0, 3))
    rules = PilotRules(
        min_pilots=least, max_pilots=draw(st.integers(least, 6)), idle_s=100, max_waiting=draw(st.integers(1, 6))
    )
    now = draw(st.integers(0, 9))
    pilots, agents = [], []
    for node in draw(st.lists(st.sampled_from(NODES), unique=True)):
        state = draw(st.sampled_from(list(PilotState)))
        pilots.append(pilot(node, state, draw(TIMES) if state is PilotState.RUNNING else None))
        if state is not PilotState.WAITING and draw(st.booleans()):
            busy = draw(st.integers(0, 2))
            idle = None if busy else draw(PAST)
            leaves = draw(st.one_of(st.none(), PAST))
            agents.append(agent(node, busy, idle_since=idle, leaves_since=leaves, silent_since=draw(PAST)))
    return rules, Demand(now, draw(st.integers(now, 9))), pilots, agents


@settings(max_examples=examples(300))
@given(situations())
def test_the_bounds_hold_and_busy_pilots_are_never_ended(
    situation: tuple[PilotRules, Demand, list[Pilot], list[PilotAgent]],
) -> None:
    rules, wanted, pilots, agents = situation
    plan = plan_pilots(rules, wanted, pilots, agents, NOW)
    known = {one.node: one for one in agents}
    busy = {node for node, one in known.items() if one.num_busy}
    assert not busy & {end.pilot.node for end in plan.ending}
    there = [one for one in pilots if one.state in (PilotState.WAITING, PilotState.RUNNING)]
    counted = {
        one.node
        for one in there
        if (one.ends_at is None or one.ends_at - NOW > rules.replace_s)
        and not (one.node in known and known[one.node].leaves_since is not None)
    }
    # Never above the maximum, of pilots that are not about to end anyway.
    assert plan.num_starts == 0 or len(counted) + plan.num_starts <= rules.max_pilots
    waiting = sum(one.state is PilotState.WAITING for one in there)
    assert plan.num_starts == 0 or waiting + plan.num_starts <= rules.max_waiting
    # What is let go by choice leaves the minimum and the demand.
    chosen = {one.node for one in plan.leaving if one.reason == "it is idle"}
    chosen |= {end.pilot.node for end in plan.ending if end.reason == "no job needs it"}
    assert chosen <= counted
    assert not chosen or len(counted) - len(chosen) >= min(max(wanted.now, rules.min_pilots), rules.max_pilots)
    # Nothing is started and let go at once.
    assert not (plan.num_starts and chosen)
    # A running pilot is emptied only after all waiting ones that are not needed.
    if any(one.reason == "it is idle" for one in plan.leaving):
        assert {one.node for one in there if one.state is PilotState.WAITING} <= chosen


@settings(max_examples=examples(50))
@given(situations())
def test_no_news_changes_nothing(situation: tuple[PilotRules, Demand, list[Pilot], list[PilotAgent]]) -> None:
    rules, wanted, _, agents = situation
    assert plan_pilots(rules, wanted, None, agents, NOW) == PilotPlan()


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 8), st.integers(0, 2), st.integers(1200, 4000))
def test_at_constant_demand_the_pool_is_steady_over_time_limits(seed: int, need: int, least: int, limit_s: int) -> None:
    """A day of a cluster with time limits and random waiting times: no flapping, and no gap where the queue is fast."""
    rng = random.Random(seed)
    replace_s = min(900, limit_s / 4)
    rules = PilotRules(min_pilots=least, max_pilots=6, idle_s=120, replace_s=replace_s, leave_s=min(180, replace_s / 2))
    target = min(max(need, least), 6)
    pilots: dict[str, Pilot] = {}
    agents: dict[str, PilotAgent] = {}
    starts: dict[str, float] = {}
    num_started, now = 0, NOW
    while now < NOW + 86_400:
        for node, one in list(pilots.items()):
            if one.state is PilotState.WAITING and now >= starts[node]:
                pilots[node] = pilot(node, ends_at=now + limit_s)
                agents[node] = PilotAgent(node=node, silent_since=now, idle_since=now)
            elif one.ends_at is not None and now >= one.ends_at:
                raise AssertionError(f"{node} was still there when its time limit came")
        for node, left in list(agents.items()):
            if left.leaves_since is not None and now - left.leaves_since >= 60:  # its agent ends by itself
                del pilots[node], agents[node]
        usable = [node for node in agents if agents[node].leaves_since is None]
        for node, before in list(agents.items()):  # jobs are on as many pilots as they need
            is_busy = node in usable[:need]
            since = None if is_busy else now if before.idle_since is None else before.idle_since
            agents[node] = msgspec.structs.replace(before, num_busy=int(is_busy), idle_since=since, silent_since=now)
        if now > NOW + 900:
            assert len(usable) >= target, "a pilot was not replaced before its end"
            assert len(usable) <= 2 * target
        plan = plan_pilots(rules, demand(need), list(pilots.values()), list(agents.values()), now)
        for one in plan.leaving:
            agents[one.node] = msgspec.structs.replace(agents[one.node], leaves_since=now)
        assert plan.ending == ()
        for _ in range(plan.num_starts):
            num_started += 1
            pilots[f"n{num_started}"] = pilot(f"n{num_started}", PilotState.WAITING)
            starts[f"n{num_started}"] = now + rng.uniform(0, rules.replace_s - rules.leave_s - 60)
        now += 30
    # Each place was filled once per time limit, not more often.
    assert num_started <= target * (86_400 / (limit_s - rules.replace_s) + 1)
