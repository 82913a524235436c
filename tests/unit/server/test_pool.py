"""The pool: nodes, slots, queues, allocations and usage, and what each user may see of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.control.records import DeclaredSlot, Node, Queue


@pytest.fixture
def busy(platform: Platform) -> dict[str, str]:
    """Ann's job is leaving one of its two slots; Ben's runs in a queue that Ann may not see; one slot is broken."""
    lease = platform.lead(num_slots=4)
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    anns = platform.submit(max_workers=2)
    bens = platform.submit("ben", queue="closed")
    platform.submit("ben", queue="closed", name="waits")
    platform.start(anns, "node/0", "node/1")
    platform.start(bens, "node/2")
    platform.now += 100
    platform.write(anns, released=("node/1",), reason="shrinks")
    left = tuple(DeclaredSlot(f"node/{number}", "cpu") for number in range(3))
    other = Node(
        name="other",
        engine="local",
        slots=(DeclaredSlot("other/0", "cuda:0", "T4"),),
        kind="k1",
        traits={"CPU capability": "AVX2"},
        labels={"site": "x"},
    )
    platform.store.pool.declare([Node(name="node", engine="local", slots=left), other], lease.fence, platform.now)
    return {"anns": anns, "bens": bens}


def test_the_pool_in_numbers(platform: Platform, busy: dict[str, str]) -> None:
    told = platform.get("pool")
    assert {name: told[name] for name in told if name != "jobs"} == {
        "policy": "fair",
        "num_slots": 5,
        "num_usable": 4,
        "num_free": 1,
        "num_leaving": 1,
        "summary": None,
    }
    assert {stage: number for stage, number in told["jobs"].items() if number} == {"running": 1}
    seen = platform.get("pool", who="eye")["jobs"]
    assert {stage: number for stage, number in seen.items() if number} == {"running": 2, "queued": 1}
    assert len(seen) == 9
    platform.decide()
    assert platform.get("pool")["summary"] == "as decided"


def test_nodes_and_slots(platform: Platform, busy: dict[str, str]) -> None:
    assert platform.get("nodes")["items"] == [
        {
            "name": "node",
            "num_slots": 4,
            "num_usable": 3,
            "num_free": 0,
            "kind": None,
            "traits": {},
            "labels": {},
            "gpu_types": {},
            "agent": None,
            "address": None,
            "metrics": None,
        },
        {
            "name": "other",
            "num_slots": 1,
            "num_usable": 1,
            "num_free": 1,
            "kind": "k1",
            "traits": {"CPU capability": "AVX2"},
            "labels": {"site": "x"},
            "gpu_types": {"T4": 1},
            "agent": None,
            "address": None,
            "metrics": None,
        },
    ]
    slots = {slot["id"]: slot for slot in platform.get("slots")["items"]}
    assert slots["node/1"] == {
        "id": "node/1",
        "node": "node",
        "device": "cpu",
        "unusable_since": None,
        "unusable_reason": None,
        "is_free": False,
        "job": busy["anns"],
        "attempt": 1,
        "since": NOW,
        "release_asked_at": NOW + 100,
        "gpu_type": None,
    }
    assert (slots["node/2"]["job"], slots["node/2"]["is_free"]) == (None, False), (
        "held, but by whom is not Ann's to see"
    )
    assert (slots["node/3"]["is_free"], slots["node/3"]["unusable_since"]) == (False, NOW + 100)
    assert slots["other/0"]["is_free"] is True
    seen = {slot["id"]: slot["job"] for slot in platform.get("slots", who="eye")["items"]}
    assert seen["node/2"] == busy["bens"]


def test_allocations_show_which_job_had_a_slot_and_when(platform: Platform, busy: dict[str, str]) -> None:
    platform.write(busy["anns"], closed=("node/1",))
    platform.now += 50

    def had(query: str, who: str = "ann") -> list[tuple[Any, ...]]:
        items = platform.get(f"allocations?{query}", who=who)["items"]
        return [(one["slot"], one["job"], one["since"], one["until"]) for one in items]

    assert had("") == [
        ("node/0", busy["anns"], NOW, None),
        ("node/1", busy["anns"], NOW, NOW + 100),
        ("node/2", None, NOW, None),
    ]
    assert had("", "ben")[2] == ("node/2", busy["bens"], NOW, None)
    assert [slot for slot, *_ in had(f"since={NOW + 120}")] == ["node/0", "node/2"]
    assert had(f"since={NOW - 10}&until={NOW - 5}") == []
    check_problem(platform.ask("GET", "allocations?since=5&until=4"), 422, "invalid", "it ends before it begins")
    for odd in ("since=x", "since=nan", "since=-1", "until=inf"):
        check_problem(platform.ask("GET", f"allocations?{odd}"), 422, "invalid")


def test_usage(platform: Platform, busy: dict[str, str]) -> None:
    platform.now += 100
    anns = {"owner": "ann", "queue": "default", "slot_s": 400.0, "num_jobs": 1}
    bens = {"owner": "ben", "queue": "closed", "slot_s": 200.0, "num_jobs": 1}
    assert platform.get("usage")["items"] == [anns]
    for who in ("admin", "eye"):
        assert platform.get("usage", who=who)["items"] == [anns, bens]
    half = platform.get(f"usage?since={NOW + 150}&until={NOW + 160}", who="ben")["items"]
    assert half == [bens | {"slot_s": 10.0}]


# ---------------------------------------------------------------- queues


def test_queues_and_what_is_in_them(platform: Platform, busy: dict[str, str]) -> None:
    own = platform.get("queues")["items"]
    usual = {"weight": 1.0, "floor": 0, "ceiling": None, "is_open": True, "members": []}
    default = {"name": "default", **usual, "num_slots": 2, "num_holding": 1, "num_queued": 0}
    assert own == [default]
    closed = {**usual, "name": "closed", "is_open": False, "members": ["ben"]}
    closed |= {"num_slots": 1, "num_holding": 1, "num_queued": 1}
    for who in ("ben", "eye", "admin"):
        assert platform.get("queues", who=who)["items"] == [closed, default]
        assert platform.get("queues/closed", who=who) == closed
    check_problem(platform.ask("GET", "queues/closed"), 404, "not-found", "no queue 'closed' that you may see")
    check_problem(platform.ask("GET", "queues/nothing", who="admin"), 404, "not-found")


def test_a_queue_is_made_changed_and_deleted(platform: Platform) -> None:
    def put(body: Any, name: str = "q") -> Any:
        return platform.ask("PUT", f"queues/{name}", body, who="admin")

    made = put({"weight": 2, "floor": 1, "ceiling": 4, "is_open": False, "members": ["ann", "ben", "ann"]})
    assert made.status_code == 200, made.text
    assert made.json() == {
        "name": "q",
        "weight": 2.0,
        "floor": 1,
        "ceiling": 4,
        "is_open": False,
        "members": ["ann", "ben"],
        "num_slots": 0,
        "num_holding": 0,
        "num_queued": 0,
    }
    assert put({}).json()["members"] == [], "all of it is replaced"
    job = platform.submit(queue="q")
    check_problem(platform.ask("DELETE", "queues/q", who="admin"), 409, "conflict", "1 job in it has not ended")
    platform.ask("PATCH", f"jobs/{job}", {"queue": "default"})
    answer = platform.ask("DELETE", "queues/q", who="admin")
    assert (answer.status_code, answer.content) == (204, b"")
    check_problem(platform.ask("DELETE", "queues/q", who="admin"), 404, "not-found")
    for body, status, name in [
        ({"weight": 0}, 422, "invalid"),
        ({"weight": "2"}, 422, "invalid"),
        ({"weight": -1}, 422, "invalid"),
        ({"floor": -1}, 422, "invalid"),
        ({"ceiling": 0}, 422, "invalid"),
        ({"floor": 3, "ceiling": 2}, 422, "invalid"),
        ({"floor": 2**40}, 422, "invalid"),
        ({"colour": "red"}, 422, "invalid"),
        ({"members": ["nobody"]}, 404, "not-found"),
    ]:
        check_problem(put(body), status, name)
    check_problem(put({}, "-odd"), 422, "invalid", "Cannot name a queue")
    for who in ("ann", "eye"):
        check_problem(platform.ask("PUT", "queues/q", {}, who=who), 403, "forbidden", "only admins may")
        check_problem(platform.ask("DELETE", "queues/default", who=who), 403, "forbidden")
