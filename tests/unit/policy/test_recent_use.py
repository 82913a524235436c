"""Recent use lowers the weight of a user, by a bounded amount, and never starves it."""

from __future__ import annotations

import math

import msgspec
from hypothesis import strategies as st
from tests.unit.policy.world import carry_out, make_job, make_snapshot, settle, wanted
from tests.unit.policy.worlds import QUEUES, USERS, any_snapshots, for_any

from legato.policy.policies import decide
from legato.policy.recent_use import MAX_LEVEL, find_level
from legato.policy.rules import Rules
from legato.policy.snapshot import RecentUse, Snapshot

HALF_LIFE_S = 7 * 24 * 3600.0
RULES = Rules(usage_half_life_s=HALF_LIFE_S, stability_s=0.0, cooldown_factor=0.0, gather_s=0.0)


def with_use(snapshot: Snapshot, queue: str = "all", **num_slots: float) -> Snapshot:
    use = tuple(RecentUse(queue=queue, user=user, num_slots=number) for user, number in num_slots.items())
    return msgspec.structs.replace(snapshot, recent_use=use)


@st.composite
def used_snapshots(draw: st.DrawFn) -> Snapshot:
    snapshot = draw(any_snapshots())
    use = tuple(
        RecentUse(queue=queue, user=user, num_slots=draw(st.sampled_from([0.0, 0.5, 2.0, 5.0, 40.0])))
        for queue in QUEUES
        for user in USERS
    )
    return msgspec.structs.replace(snapshot, recent_use=use)


def test_who_has_used_more_gets_less_and_the_reason_says_so() -> None:
    pool = make_snapshot(10, [make_job("ann/a", 10), make_job("ben/b", 10, at=1.0)])
    for ann, want in ((0.0, (5, 5)), (4.9, (5, 5)), (5.0, (3, 7)), (10.0, (2, 8)), (1e9, (2, 8))):
        sizes = wanted(decide(with_use(pool, ann=ann), RULES))
        assert (sizes["a"], sizes["b"]) == want
    _, decisions = settle(with_use(pool, ann=10.0), RULES)
    assert [one.reason for one in decisions.decisions] == [
        "2 of up to 10 slots: a share by recent use (weight 1/4) with user ben",
        "8 of up to 10 slots: a share by recent use (weight 1) with user ann",
    ]
    assert [(one.user, one.level) for one in decisions.use_levels] == [("ann", 2)]


def test_equal_use_leaves_equal_shares() -> None:
    pool = make_snapshot(10, [make_job("ann/a", 10), make_job("ben/b", 10)])
    _, decisions = settle(with_use(pool, ann=9.0, ben=9.0), RULES)
    assert decisions.of("a").reason == "5 of up to 10 slots: an equal share with user ben"


def test_past_use_does_not_count_without_the_setting_or_without_a_rival() -> None:
    pool = make_snapshot(10, [make_job("ann/a", 10), make_job("ben/b", 10)])
    assert wanted(decide(with_use(pool, ann=9.0), Rules())) == {"a": 5, "b": 5}
    alone = make_snapshot(10, [make_job("ann/a", 10)])
    assert wanted(decide(with_use(alone, ann=99.0), RULES)) == {"a": 10}


@for_any(st.integers(2, 40), st.integers(1, 400), st.floats(0, 1e12))
def test_no_user_gets_less_than_a_quarter_of_an_equal_share(num_users: int, num_slots: int, used: float) -> None:
    jobs = [make_job(f"u{index}/j{index}", num_slots, at=float(index)) for index in range(num_users)]
    decisions = decide(with_use(make_snapshot(num_slots, jobs), u0=used), RULES)
    least = num_slots / (4 * num_users - 3)
    assert least > num_slots / num_users / 4
    assert decisions.of("j0").wanted >= math.floor(least)


@for_any(st.integers(2, 12))
def test_a_user_without_slots_has_its_full_weight_again_after_some_half_lives(num_users: int) -> None:
    """On a pool with one slot: the user who had all of it for long, and others who use it now."""
    share, use, level = 1 / num_users, 1.0, MAX_LEVEL
    half_lives = 0
    while level:
        half_lives += 1
        use /= 2
        level = find_level(use, share, level)
    assert half_lives <= math.floor(math.log2(2 * num_users)) + 1


def test_users_take_turns_on_a_slot_that_only_one_can_have() -> None:
    """Each has it for a part of the half-life: no slot goes back and forth from decision to decision."""
    snapshot = with_use(make_snapshot(1, [make_job("ann/a", 1), make_job("ben/b", 1, at=1.0)]), ann=0.0, ben=0.0)
    step_s, use, owners = HALF_LIFE_S / 100, {"ann": 0.0, "ben": 0.0}, []
    for _ in range(1000):
        decisions = decide(snapshot, RULES)
        snapshot = carry_out(snapshot, decisions)
        sizes = {"ann": len(decisions.of("a").slots), "ben": len(decisions.of("b").slots)}
        owners += [user for user in use if sizes[user]]
        kept = 0.5 ** (step_s / HALF_LIFE_S)
        use = {user: use[user] * kept + sizes[user] * (1 - kept) for user in use}
        snapshot = msgspec.structs.replace(
            snapshot,
            recent_use=tuple(msgspec.structs.replace(one, num_slots=use[one.user]) for one in snapshot.recent_use),
        )
    changes = sum(before != after for before, after in zip(owners, owners[1:], strict=False))
    assert 2 <= changes <= 25
    assert min(owners.count("ann"), owners.count("ben")) > 300


@for_any(used_snapshots())
def test_deciding_twice_changes_nothing(snapshot: Snapshot) -> None:
    decisions = decide(snapshot, RULES)
    after = carry_out(snapshot, decisions, after_s=0.0, slow=True)
    assert wanted(decide(after, RULES)) == wanted(decisions)
    settle(snapshot, RULES, rounds=250)


@for_any(st.floats(0, 100), st.floats(0.01, 100), st.sampled_from([None, 0, 1, 2]))
def test_a_level_that_was_found_is_kept(num_slots: float, share: float, before: int | None) -> None:
    level = find_level(num_slots, share, before)
    assert 0 <= level <= MAX_LEVEL
    assert find_level(num_slots, share, level) == level
