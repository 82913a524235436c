"""Named points: which workers wait for which others, also after a point was forgotten."""

from __future__ import annotations

import msgspec

from legato.compat.elasticdl.syncs import Point, Syncs
from legato.compat.elasticdl.world import World


def passed_by_all(syncs: Syncs, name: str = "start", workers: tuple[int, ...] = (0, 1)) -> None:
    found = [syncs.reach(name, worker, workers) for worker in (*workers, *workers)]
    assert found == [False] * (len(workers) - 1) + [True] * (len(workers) + 1)


def test_a_later_worker_does_not_wait_at_a_point_that_all_have_passed_and_deleted() -> None:
    syncs = Syncs()
    passed_by_all(syncs)
    syncs.forget("start")
    syncs = Syncs(msgspec.json.decode(msgspec.json.encode(syncs.points), type=dict[str, Point]))  # another driver
    assert syncs.reach("start", 2, (0, 1, 2))
    syncs.forget("start")
    assert not syncs.is_passed("start")
    assert not any(point.awaited for point in syncs.points.values())


def test_a_worker_without_an_answer_has_passed_a_deleted_point_too() -> None:
    syncs = Syncs()
    assert not syncs.reach("start", 0, (0, 1))
    assert syncs.reach("start", 1, (0, 1))
    syncs.forget(None)
    assert syncs.reach("start", 0, (0, 1))


def test_workers_that_passed_a_point_may_use_its_name_again() -> None:
    syncs = Syncs()
    for _ in range(3):
        passed_by_all(syncs)
        syncs.forget("start")
    assert syncs.reach("start", 2, (0, 1, 2))
    assert not syncs.reach("start", 2, (0, 1, 2)), "in the next round it is as the others"
    assert not syncs.reach("start", 0, (0, 1, 2))
    assert syncs.reach("start", 1, (0, 1, 2))


def test_a_worker_that_joins_after_all_others_left_starts_a_new_point() -> None:
    syncs = Syncs()
    passed_by_all(syncs)
    syncs.forget("start")
    syncs.set_workers((2, 3))
    assert not syncs.points
    assert not syncs.reach("start", 2, (2, 3))
    assert syncs.reach("start", 3, (2, 3))


def test_a_point_that_no_worker_passed_is_deleted() -> None:
    syncs = Syncs()
    syncs.reach("start", 0, (0, 1))
    syncs.notify("other")
    syncs.forget(None)
    assert not syncs.points
    assert not syncs.reach("start", 1, (0, 1))


def test_forgotten_names_are_not_kept_without_end() -> None:
    syncs = Syncs()
    for number in range(1100):
        assert syncs.reach(f"epoch {number}", 0, (0,))
        syncs.forget(f"epoch {number}")
    assert len(syncs.points) == 1000
    assert "epoch 1099" in syncs.points


def test_points_are_stored_by_their_former_names() -> None:
    syncs = Syncs()
    passed_by_all(syncs)
    assert msgspec.json.decode(msgspec.json.encode(syncs.points)) == {
        "start": {"awaited": [], "is_notified": False, "is_reached": True, "told": [0, 1], "is_forgotten": False}
    }
    world = World()
    world.enter(0)
    world.stand(0)
    assert msgspec.json.decode(msgspec.json.encode(world.state)) == {
        "inside": {"0": 0},
        "members": [0],
        "number": 1,
        "told": [0],
        "barriers": {},
    }
