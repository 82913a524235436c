"""The history of the pool: slots held over time, moves of slots, and what each user may see of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.api.pool import StepLine
from legato.control.records import DeclaredSlot, Node, Queue, Verdict
from legato.control.store import history
from legato.server.step_lines import add_up, downsample, draw_held


@pytest.fixture
def story(platform: Platform) -> dict[str, str]:
    """The seed's: ann's job has both slots, ben's comes, each has one, ann's ends, ben's has both."""
    platform.lead()
    anns = platform.submit(name="first", max_workers=2)
    platform.start(anns, "node/0", "node/1")
    platform.now += 10
    bens = platform.submit("ben", name="second", max_workers=2)
    platform.write(anns, released=("node/1",), verdict=Verdict(1, "shrinks 2 → 1: ben/second came"))
    platform.now += 1
    platform.write(anns, closed=("node/1",))
    platform.start(bens, "node/1")
    platform.now += 9
    platform.end(anns)
    platform.write(bens, granted=("node/0",), verdict=Verdict(2, "grows 1 → 2: its maximum"))
    platform.now += 10
    return {"anns": anns, "bens": bens}


def timeline(platform: Platform, query: str = "", **options: Any) -> Any:
    return platform.get(f"timeline?since={NOW - 5}&until={NOW + 25}&{query}", **options)


# ---------------------------------------------------------------- the timeline


def test_two_jobs_cross(platform: Platform, story: dict[str, str]) -> None:
    told = timeline(platform)
    assert (told["since"], told["until"]) == (NOW - 5, NOW + 25)
    assert told["items"] == [
        {
            "key": story["anns"],
            "title": "ann/first",
            "times": [NOW, NOW + 11, NOW + 20],
            "slots": [2, 1, 0],
        },
        {"key": story["bens"], "title": "ben/second", "times": [NOW + 11, NOW + 20], "slots": [1, 2]},
    ]
    assert told["num_slots"] == {"times": [NOW - 5, NOW], "values": [0, 2]}
    later = platform.get(f"timeline?since={NOW + 12}&until={NOW + 15}")["items"]
    assert [(one["times"], one["slots"]) for one in later] == [([NOW + 12], [1]), ([NOW + 12], [1])]
    assert platform.get(f"timeline?since={NOW - 50}&until={NOW - 40}")["items"] == []
    assert len(platform.get("timeline")["items"]) == 2, "the last hour"


@pytest.mark.parametrize(
    ("by", "want"),
    [
        ("owner", {("ann", "ann"): [2, 1, 0], ("ben", "ben"): [1, 2]}),
        ("queue", {("default", "default"): [2]}),
        ("project", {("", "no project"): [2]}),
    ],
)
def test_the_timeline_groups_slots(platform: Platform, story: dict[str, str], by: str, want: Any) -> None:
    items = timeline(platform, f"by={by}")["items"]
    assert {(one["key"], one["title"]): one["slots"] for one in items} == want


def test_the_timeline_shows_single_jobs(platform: Platform, story: dict[str, str]) -> None:
    assert [one["key"] for one in timeline(platform, "job=first")["items"]] == [story["anns"]]
    both = timeline(platform, f"job=first&job={story['bens']}")["items"]
    assert [one["key"] for one in both] == [story["anns"], story["bens"]]
    check_problem(platform.ask("GET", "timeline?job=nothing"), 404, "not-found")


def test_hidden_jobs_are_one_line_without_a_name(platform: Platform) -> None:
    platform.lead(num_slots=3)
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    own = platform.submit()
    hidden = [platform.submit("ben", name=f"hidden-{number}", queue="closed") for number in range(2)]
    for number, job in enumerate([own, *hidden]):
        platform.start(job, f"node/{number}")
    platform.now += 10
    for by, key in (("job", own), ("owner", "ann"), ("queue", "default"), ("project", "")):
        items = timeline(platform, f"by={by}")["items"]
        assert [(one["key"], one["slots"]) for one in items] == [(key, [1]), (None, [2])]
        assert items[1]["title"] is None and "hidden" not in str(items)
    assert len(timeline(platform, who="eye")["items"]) == 3
    check_problem(platform.ask("GET", f"timeline?job={hidden[0]}"), 404, "not-found")


def test_slots_that_come_and_go(platform: Platform) -> None:
    lease = platform.lead(num_slots=2)

    def declare(*numbers: int) -> None:
        slots = tuple(DeclaredSlot(f"node/{number}", "cpu") for number in numbers)
        platform.store.pool.declare([Node(name="node", engine="local", slots=slots)], lease.fence, platform.now)

    for numbers in ((0,), (0, 1), (0, 1, 2)):
        platform.now += 10
        declare(*numbers)
    platform.now += 10
    assert timeline(platform)["num_slots"] == {
        "times": [NOW - 5, NOW, NOW + 10, NOW + 20],
        "values": [0, 2, 1, 2],
    }
    assert platform.get(f"timeline?since={NOW + 15}")["num_slots"]["values"] == [1, 2, 3]


def test_invalid_times_are_refused(platform: Platform) -> None:
    check_problem(platform.ask("GET", "timeline?since=5&until=4"), 422, "invalid", "it ends before it begins")
    for query in ("since=x", "by=colour", "points=3", "points=10001", "since=-1", "since=nan"):
        check_problem(platform.ask("GET", f"timeline?{query}"), 422, "invalid")


def test_too_much_is_refused(platform: Platform, story: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_SPANS", 3)
    check_problem(platform.ask("GET", "timeline"), 422, "invalid", "more than 3 changes")
    assert platform.ask("GET", "timeline?job=first").status_code == 200


# ---------------------------------------------------------------- lines of steps


def test_a_thinned_line_keeps_what_is_seen() -> None:
    draw = random.Random(1)
    changes = [(draw.uniform(0, 1000), draw.choice([-1, 1])) for _ in range(5000)]
    line = add_up([*changes, (500.0, 1000), (500.1, -1000)])
    for most in (4, 40, 100):
        thinned = downsample(line, 0, 1000, most)
        assert len(thinned.times) <= most
        assert thinned.times == tuple(sorted(thinned.times))
        assert max(thinned.values) == max(line.values) and min(thinned.values) == min(line.values)
        assert (thinned.times[0], thinned.values[0]) == (line.times[0], line.values[0])
        assert (thinned.times[-1], thinned.values[-1]) == (line.times[-1], line.values[-1])
        assert set(zip(thinned.times, thinned.values, strict=True)) <= set(zip(line.times, line.values, strict=True))
    assert downsample(line, 0, 1000, 10_000) is line
    assert len(downsample(StepLine((1, 2, 3, 4, 5), (1, 2, 3, 4, 5)), 1, 1, 4).times) <= 4, "no time at all"


def test_a_line_is_the_sum_of_its_spans() -> None:
    draw = random.Random(2)
    spans = [("a", begun, begun + draw.randint(1, 20)) for begun in (draw.randint(-20, 60) for _ in range(200))]
    line = draw_held(spans, 0, 50)["a"]
    for time in range(50):
        at = max((index for index, one in enumerate(line.times) if one <= time), default=None)
        assert (0 if at is None else line.values[at]) == sum(begun <= time < ended for _, begun, ended in spans)


# ---------------------------------------------------------------- moves


def test_moves_name_the_job_that_shrank_and_the_job_that_grew(platform: Platform, story: dict[str, str]) -> None:
    shrunk = {
        "time": NOW + 10,
        "slot": "node/1",
        "from_job": story["anns"],
        "from_title": "ann/first",
        "to_job": story["bens"],
        "to_title": "ben/second",
        "reason": "shrinks 2 → 1: ben/second came",
        "taken_at": NOW + 11,
        "taken_reason": "",
    }
    free = {"from_job": None, "from_title": None, "reason": ""}
    grown = shrunk | free | {"time": NOW + 20, "slot": "node/0", "taken_at": NOW + 20}
    grown |= {"taken_reason": "grows 1 → 2: its maximum"}
    begun = shrunk | free | {"to_job": story["anns"], "to_title": "ann/first", "time": NOW, "taken_at": NOW}
    all_begun = [begun | {"slot": slot} for slot in ("node/0", "node/1")]
    assert platform.get("moves")["items"] == [grown, shrunk, *all_begun]
    assert platform.get(f"moves?since={NOW + 10.5}")["items"] == [grown, shrunk]
    assert platform.get(f"moves?since={NOW + 11.5}")["items"] == [grown]
    assert platform.get(f"moves?since={NOW + 20.5}")["items"] == []
    assert platform.get(f"moves?until={NOW + 9}")["items"] == all_begun
    platform.write(story["bens"], released=("node/1",), verdict=Verdict(1, "shrinks 2 → 1"))
    asked, *others = platform.get("moves")["items"]
    assert others == [grown, shrunk, *all_begun]
    given = {"from_job": story["bens"], "from_title": "ben/second", "to_job": None, "to_title": None}
    given |= {"time": NOW + 30, "reason": "shrinks 2 → 1", "taken_at": None}
    assert asked == shrunk | given
    assert platform.get("moves?limit=1")["items"] == [asked]
    platform.now += 2
    platform.write(story["bens"], closed=("node/1",))
    platform.write(story["bens"], granted=("node/1",), verdict=Verdict(2, "grows 1 → 2: again"))
    again = {"to_job": story["bens"], "to_title": "ben/second", "taken_at": NOW + 32}
    again |= {"taken_reason": "grows 1 → 2: again"}
    assert platform.get("moves?limit=1")["items"] == [asked | again]


def test_moves_among_jobs_that_one_may_not_see(platform: Platform) -> None:
    platform.lead()
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    jobs = [platform.submit("ben", name=f"hidden-{number}", queue="closed") for number in range(2)]
    own = platform.submit()
    for giver, taker in ((jobs[0], jobs[1]), (jobs[1], own)):
        if giver is jobs[0]:
            platform.start(giver, "node/0")
        platform.now += 10
        platform.write(giver, released=("node/0",), verdict=Verdict(0, "pauses"))
        platform.write(giver, closed=("node/0",))
        platform.start(taker, "node/0")
    (one,) = platform.get("moves")["items"]
    assert (one["from_job"], one["from_title"], one["to_job"]) == (None, "ben/hidden-1", own)
    for who in ("ben", "eye"):
        titles = [one["to_title"] for one in platform.get("moves", who=who)["items"]]
        assert titles == ["ann/mnist", "ben/hidden-1", "ben/hidden-0"], who
