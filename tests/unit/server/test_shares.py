"""The share of each queue, and plans with other queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.control.records import Queue
from legato.policy.snapshot import RecentUse, Snapshot
from legato.server import services


@pytest.fixture
def two(platform: Platform) -> dict[str, str]:
    """Ann's job has all four slots; ben's waits in another queue."""
    platform.lead(num_slots=4)
    platform.store.queues.put(Queue(name="night", weight=3, is_open=False, members=("ben",)), ADMIN, NOW)
    anns = platform.submit(name="first", max_workers=4, directory=str(platform.home))
    platform.start(anns, *(f"node/{number}" for number in range(4)))
    return {"anns": anns, "bens": platform.submit("ben", name="second", max_workers=8, queue="night")}


def test_shares(platform: Platform, two: dict[str, str]) -> None:
    default = {
        "queue": "default",
        "weight": 1.0,
        "floor": 0,
        "ceiling": None,
        "fair": 1.0,
        "held": 4,
        "borrowed": 3.0,
        "wanted": 4,
    }
    night = default | {"queue": "night", "weight": 3.0, "fair": 3.0, "held": 0, "borrowed": 0.0, "wanted": 8}
    assert platform.get("pool/shares", who="eye")["items"] == [default, night]
    assert platform.get("pool/shares")["items"] == [default], "ann is no member of the other"
    assert platform.get("pool/shares", who="ben")["items"] == [default, night]


def test_what_users_have_used(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(usage_half_life_s=7200.0)
    fence = platform.lead(num_slots=4).fence
    platform.store.loop.count_usage(fence, NOW)
    job = platform.submit(name="first", max_workers=4, directory=str(platform.home))
    platform.start(job, *(f"node/{number}" for number in range(4)))
    bens = platform.submit("ben", name="second", max_workers=4)
    platform.now = NOW + 10_800.0
    platform.store.loop.count_usage(fence, platform.now)
    assert platform.get("pool/use", who="ben")["items"] == [] != bens
    for who in ("eye", "ann"):
        (one,) = platform.get("pool/use?over=14400", who=who)["items"]
        # One and a half half-lives of all slots: more than an equal share of two users, which is 2.
        assert one.pop("recent_slots") == pytest.approx(4 * (1 - 0.5**1.5), rel=0.05)
        assert one == {
            "queue": "default",
            "user": "ann",
            "slot_s": 4 * 10_800.0,
            "num_slots": 3.0,
            "part": 1.0,
            "weight": 0.5,
        }
    check_problem(platform.ask("GET", "pool/use?over=3599"), 422, "invalid")


@pytest.mark.parametrize(("settings", "weight"), [({"fair_by": "job"}, 1.0), ({"policy": "fifo"}, 1.0), ({}, 0.5)])
def test_a_server_that_does_not_decide_shows_no_weight_that_is_not_used(
    new_platform: Callable[..., Platform], settings: dict[str, str], weight: float
) -> None:
    platform = new_platform(usage_half_life_s=7200.0, **settings)
    fence = platform.lead(num_slots=4).fence
    platform.store.loop.count_usage(fence, NOW)
    job = platform.submit(name="first", max_workers=4, directory=str(platform.home))
    platform.start(job, *(f"node/{number}" for number in range(4)))
    platform.submit("ben", name="second", max_workers=4)
    platform.now = NOW + 10_800.0
    platform.store.loop.count_usage(fence, platform.now)
    (one,) = platform.get("pool/use")["items"]
    assert one["weight"] == weight


def test_use_in_the_last_hour_is_no_more_than_all_slots(platform: Platform) -> None:
    fence = platform.lead(num_slots=4).fence
    platform.now = NOW - NOW % 3600
    platform.store.loop.count_usage(fence, platform.now)
    job = platform.submit(name="first", max_workers=4, directory=str(platform.home))
    platform.start(job, *(f"node/{number}" for number in range(4)))
    for minute in (90, 119, 150):
        platform.now = NOW - NOW % 3600 + minute * 60.0
        platform.store.loop.count_usage(fence, platform.now)
        (one,) = platform.get("pool/use?over=3600")["items"]
        assert one["num_slots"] == pytest.approx(4.0)


def test_requests_use_what_the_loop_has_read_or_read_it_once_a_minute(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "POOL_VIEWS_S", 0.0)
    platform = new_platform(usage_half_life_s=7200.0)
    fence = platform.lead(num_slots=4).fence
    platform.store.loop.count_usage(fence, NOW)
    first = platform.submit(name="first", max_workers=4, directory=str(platform.home))
    platform.start(first, *(f"node/{number}" for number in range(4)))
    platform.now = NOW + 60.0
    platform.store.loop.count_usage(fence, platform.now)
    reads: list[float] = []
    read = platform.store.loop.read_recent_use

    def count(now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        reads.append(now)
        return read(now, half_life_s)

    platform.store.loop.read_recent_use = count  # type: ignore[method-assign]
    for _ in range(3):
        (one,) = platform.get("pool/use")["items"]
        assert one["recent_slots"] < 1
    assert len(reads) == 1
    use = RecentUse(queue="default", user="ann", num_slots=3.0)
    platform.loop.snapshot = Snapshot(now=NOW, slots=(), jobs=(), queues=(), recent_use=(use,))
    (one,) = platform.get("pool/use")["items"]
    assert one["recent_slots"] == 3.0
    assert len(reads) == 1


def test_waiting_jobs_have_their_position_in_their_queue(platform: Platform, two: dict[str, str]) -> None:
    later = platform.submit(name="later", max_workers=4, min_workers=4, directory=str(platform.home))
    sooner = platform.submit(name="sooner", max_workers=1, priority=9000, directory=str(platform.home))
    other = platform.submit("ben", name="other", max_workers=1, priority=8000, directory=str(platform.home))

    def positions(who: str) -> set[tuple[str, str, int, int]]:
        found = platform.get("pool/waiting", who=who)["items"]
        return {(one["job"], one["queue"], one["position"], one["num_waiting"]) for one in found}

    default = {(sooner, "default", 1, 3), (other, "default", 2, 3), (later, "default", 3, 3)}
    night = {(two["bens"], "night", 1, 1)}
    assert positions("eye") == positions("ben") == default | night
    assert positions("ann") == default, "ann is no member of the other"


def test_positions_follow_the_turns_of_users(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform()
    platform.lead(num_slots=2)
    jobs = [platform.submit(name=f"a{number}", max_workers=1, directory=str(platform.home)) for number in range(5)]
    jobs.append(platform.submit("ben", name="b", max_workers=1, directory=str(platform.home)))
    platform.start(jobs[0], "node/0")
    found = platform.get("pool/waiting")["items"]
    positions = {one["job"]: one["position"] for one in platform.get("pool/waiting", who="admin")["items"]}
    assert [positions[job] for job in (jobs[5], *jobs[1:5])] == [1, 2, 3, 4, 5]
    assert {one["num_waiting"] for one in found} == {5}


def test_policies_without_weights(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(policy="fifo")
    platform.lead()
    (one,) = platform.get("pool/shares")["items"]
    assert (one["fair"], one["borrowed"], one["wanted"]) == (None, None, 0)


def plan(platform: Platform, *queues: dict[str, Any], who: str = "admin") -> Any:
    return platform.ask("POST", "queues/plan", {"queues": queues}, who=who)


def test_a_plan_shows_the_effects_of_other_queues(platform: Platform, two: dict[str, str]) -> None:
    told = plan(platform, {"name": "night", "weight": 1}).json()
    assert told["effects"] == [
        {"job": two["anns"], "title": "ann/first", "before": 1, "after": 2},
        {"job": two["bens"], "title": "ben/second", "before": 3, "after": 2},
    ]
    assert told["reason"] == "in the end ann/first 1 → 2, ben/second 3 → 2"
    assert [(one["queue"], one["fair"], one["held"]) for one in told["shares"]] == [
        ("default", 2.0, 4),
        ("night", 2.0, 0),
    ]
    assert platform.get("queues/night", who="admin")["weight"] == 3, "nothing is changed"
    told = plan(platform, {"name": "default", "ceiling": 3, "floor": 3}, {"name": "new"}).json()
    assert [one["after"] for one in told["effects"]] == [3, 1]
    assert [one["queue"] for one in told["shares"]] == ["default", "new", "night"]
    same = plan(platform, {"name": "night", "weight": 3}).json()
    assert (same["effects"], same["reason"]) == ([], "no job would have more or fewer slots")
    assert plan(platform).json()["effects"] == []


def test_a_queue_as_it_is_listed_may_be_given_back(platform: Platform, two: dict[str, str]) -> None:
    queue = platform.get("queues/night", who="admin")
    for name in ("num_slots", "num_holding", "num_queued"):
        del queue[name]
    assert plan(platform, queue | {"members": ["nobody"]}).json()["effects"] == []


def test_plans_of_users_and_of_invalid_queues_are_refused(platform: Platform, two: dict[str, str]) -> None:
    for who in ("ann", "eye"):
        check_problem(plan(platform, {"name": "night"}, who=who), 403, "forbidden")
    for queues in (
        [{"name": "night", "weight": 0}],
        [{"name": "night", "floor": 3, "ceiling": 2}],
        [{"name": "night", "floor": -1}],
        [{"name": "no name"}],
        [{"name": "night"}, {"name": "night"}],
        [{"weight": 1}],
        [{"name": "night", "colour": 1}],
    ):
        check_problem(plan(platform, *queues), 422, "invalid")
    check_problem(platform.ask("POST", "queues/plan", {}, who="admin"), 422, "invalid")
