"""Who had which slots when, as the store tells it afterwards."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from sqlalchemy import Subquery
from tests.contract.store.making import ADMIN, ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.control.project_records import NewProject
from legato.control.records import DeclaredSlot, Node, Queue, Verdict
from legato.control.store import Store, history
from legato.control.store.history import Move, SlotChange
from legato.core.errors import UsageError


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


def test_spans_and_who_may_see_whose_they_are(store: Store) -> None:
    lease, slots = make_pool(store, 3)
    store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    ann = start(store, lease.fence, store.jobs.submit(make_job(name="a"), ANN, NOW).job, (slots[0], slots[1]), NOW)
    hidden = store.jobs.submit(make_job(name="b", queue="closed"), BEN, NOW).job
    start(store, lease.fence, hidden, (slots[2],), NOW + 5)
    write(store, lease.fence, ann, NOW + 10, closed=(slots[1],))

    def spans(
        since: float, until: float, sees_only: str | None = None, these: set[str] | None = None
    ) -> list[tuple[str, float, float | None, bool]]:
        found = store.history.list_spans(since, until, sees_only, these)
        ordered = sorted(found, key=lambda one: (one.job.name, one.until or 2 * NOW))
        return [(one.job.name, one.since - NOW, one.until and one.until - NOW, one.job.is_visible) for one in ordered]

    assert spans(NOW, NOW + 20) == [("a", 0, 10, True), ("a", 0, None, True), ("b", 5, None, True)]
    assert spans(NOW, NOW + 20, "ann") == [("a", 0, 10, True), ("a", 0, None, True), ("b", 5, None, False)]
    assert spans(NOW + 10, NOW + 20) == [("a", 0, None, True), ("b", 5, None, True)]
    assert spans(NOW, NOW + 5) == [("a", 0, 10, True), ("a", 0, None, True)]
    assert spans(NOW, NOW + 20, these={hidden.id}) == [("b", 5, None, True)]
    assert spans(NOW - 9, NOW) == [] and spans(NOW, NOW + 20, these=set()) == []


def test_a_project_is_named_to_those_who_may_see_it(store: Store) -> None:
    lease, slots = make_pool(store, 1)
    project = store.projects.create(NewProject(name="Digits"), BEN, NOW)
    job = store.jobs.submit(make_job(project=project.id), BEN, NOW).job
    start(store, lease.fence, job, (slots[0],))
    for sees_only, want in ((None, (project.id, "Digits")), ("ben", (project.id, "Digits")), ("ann", None)):
        (span,) = store.history.list_spans(NOW, NOW + 1, sees_only)
        assert (span.job.has_project, span.job.project, span.job.is_visible) == (True, want, True), sees_only


def test_too_many_spans_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, slots = make_pool(store, 3)
    start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, tuple(slots))
    monkeypatch.setattr(history, "MAX_SPANS", 2)
    with pytest.raises(UsageError, match="more than 2 changes"):
        store.history.list_spans(NOW, NOW + 1, None)


def test_moves(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    ann = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, tuple(slots), NOW - 5)
    ben = store.jobs.submit(make_job(), BEN, NOW).job
    assert store.history.list_moves(NOW - 4, NOW) == ()
    assert store.history.list_moves(NOW - 5, NOW) == tuple(
        Move(NOW - 5, slot, None, ann.id, "", NOW - 5) for slot in slots
    )
    ann = write(store, lease.fence, ann, NOW + 10, released=(slots[1],), verdict=Verdict(1, "shrinks 2 → 1"))
    first = Move(NOW + 10, slots[1], ann.id, None, "shrinks 2 → 1")
    assert store.history.list_moves(NOW, NOW + 10) == (first,)
    ann = write(store, lease.fence, ann, NOW + 12, closed=(slots[1],))
    ben = start(store, lease.fence, ben, (slots[1],), NOW + 15)
    first = first._replace(taker=ben.id, taken_at=NOW + 15)
    ann = write(store, lease.fence, ann, NOW + 20, released=(slots[0],))
    ann = write(store, lease.fence, ann, NOW + 21, closed=(slots[0],))
    second = Move(NOW + 20, slots[0], ann.id, None, "")
    assert store.history.list_moves(NOW, NOW + 30) == (second, first)
    assert store.history.list_moves(NOW + 16, NOW + 19) == ()
    assert store.history.list_moves(NOW + 16, NOW + 30) == (second,)
    assert store.history.list_moves(NOW + 11, NOW + 30) == (second, first), "its next job came in that time"
    free = Move(NOW + 15, slots[1], None, ben.id, "", NOW + 15)
    assert store.history.list_moves(NOW + 12, NOW + 30) == (second, free), "the slot was free at the beginning"
    ann = write(store, lease.fence, ann, NOW + 22, granted=(slots[0],), verdict=Verdict(1, "grows 0 → 1"))
    second = second._replace(taker=ann.id, taken_at=NOW + 22, taken_reason="grows 0 → 1")
    assert store.history.list_moves(NOW, NOW + 30) == (second, first), "it has the slot again"
    ben = write(store, lease.fence, ben, NOW + 40, closed=(slots[1],))
    write(store, lease.fence, ann, NOW + 41, granted=(slots[1],), verdict=Verdict(2, "grows 1 → 2: its maximum"))
    third = Move(NOW + 41, slots[1], None, ann.id, "", NOW + 41, "grows 1 → 2: its maximum")
    assert store.history.list_moves(NOW, NOW + 50) == (third, second, first)
    assert store.history.list_moves(NOW + 41, NOW + 50) == (third,)


def test_moves_read_nothing_that_ended_before_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, slots = make_pool(store, 1)
    ann = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, tuple(slots), NOW)
    ann = write(store, lease.fence, ann, NOW + 1000, released=tuple(slots))
    write(store, lease.fence, ann, NOW + 1001, closed=tuple(slots))
    ben = start(store, lease.fence, store.jobs.submit(make_job(), BEN, NOW).job, tuple(slots), NOW + 1001)
    between, begun = history._between, []

    def spy(since: float, until: float | None, these: Collection[str] | None = None) -> Subquery:
        begun.append(since - NOW)
        return between(since, until, these)

    monkeypatch.setattr(history, "_between", spy)
    (move,) = store.history.list_moves(NOW + 900, NOW + 1100)
    assert (move.taker, begun) == (ben.id, [900, 900, 1001])
    monkeypatch.setattr(history, "_MAX_HELD", 1)
    assert store.history.list_moves(NOW + 900, NOW + 1100) == (move,)
    assert begun[3:] == [900, 940, 1001], "from a minute before the newest but one"


@pytest.mark.parametrize("most", [1, 2, 3])
def test_who_gave_slots_up_is_known_also_if_many_slots_moved(
    store: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    lease, slots = make_pool(store, 3)
    ann = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, tuple(slots), NOW)
    ann = write(store, lease.fence, ann, NOW + 1000, released=tuple(slots), verdict=Verdict(0, "shrinks 3 → 0"))
    ann = write(store, lease.fence, ann, NOW + 1001, closed=tuple(slots))
    ben = start(store, lease.fence, store.jobs.submit(make_job(), BEN, NOW).job, tuple(slots), NOW + 1002)
    moved = tuple(Move(NOW + 1000, slot, ann.id, ben.id, "shrinks 3 → 0", NOW + 1002) for slot in slots)
    begun = tuple(Move(NOW, slot, None, ann.id, "", NOW) for slot in slots)
    assert store.history.list_moves(NOW, NOW + 2000) == moved + begun
    monkeypatch.setattr(history, "_MAX_HELD", most)
    assert store.history.list_moves(NOW, NOW + 2000) == moved
    write(store, lease.fence, ben, NOW + 3000, released=tuple(slots))
    before = tuple(one._replace(reason="shrinks 3 → 0") for one in moved)
    assert store.history.list_moves(NOW, NOW + 2000) == before, "what came later counts for no place"


def test_slots_that_join_and_leave(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    store.pool.declare(
        [Node(name="node", engine="local", slots=(DeclaredSlot(slots[0], "cpu"),))], lease.fence, NOW + 5
    )
    store.queues.put(Queue(name="other"), ADMIN, NOW + 6)
    assert store.history.list_slot_changes(NOW) == (SlotChange(NOW + 5, slots[1]),)
    assert {one.slot for one in store.history.list_slot_changes(NOW - 1)} == set(slots)
    assert len(store.history.list_slot_changes(NOW - 1)) == 3


def test_another_reason_of_an_unusable_slot_is_no_change(store: Store) -> None:
    """The number of usable slots over time is counted by the changes."""
    lease, (slot,) = make_pool(store, 1)
    for seconds, trouble in ((1, "it is drained"), (2, "it is silent"), (3, None), (4, None), (5, "it is silent")):
        node = Node(name="node", engine="local", slots=(DeclaredSlot(slot, "cpu"),), trouble=trouble)
        store.pool.declare([node], lease.fence, NOW + seconds)
    newcomer = Node(name="other", engine="local", slots=(DeclaredSlot("other/0", "cpu"),), trouble="it is drained")
    store.pool.declare([newcomer], lease.fence, NOW + 6)
    assert [change.time - NOW for change in store.history.list_slot_changes(NOW)] == [5, 3, 1]
