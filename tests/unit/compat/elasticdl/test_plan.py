"""Tickets and micro-batches: whatever changes while a loader is ahead, the loop brings the due batches, and ends.

The tests play the runtime: it divides the micro-batches of each step among workers, and sometimes fails a step.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator

from hypothesis import example, given, settings
from hypothesis import strategies as st

from legato.compat.elasticdl.plan import LoaderPlan
from legato.compat.elasticdl.stream import Record, Stream, StreamSteps
from legato.core.span import split
from legato.train.data.order import Key

BATCH, NUM_PER_STEP, LIMIT_S = 2, 4, 20.0


def leaves_of(steps: StreamSteps, step: int, rank: int, size: int) -> list[int]:
    span = split(steps.num_micro_batches_of(step), size)[rank]
    return list(range(span.start, span.stop)) or [0]


class Loop:
    """A worker's loop, its loader of some processes, and the runtime under it.

    Args:
        num_records: of the data set.
        num_ahead: batches that the loader is ahead of the loop.
        changes: for the turns of the loop, one after another: rank and number of workers from then on, or None.
        is_fixed: steps have that many micro-batches with any workers; else as many as there are workers.
    """

    def __init__(
        self, num_records: int, num_ahead: int, changes: list[tuple[int, int] | None], *, is_fixed: bool
    ) -> None:
        self.is_fixed = is_fixed
        self.stream = Stream(num_records, 1, BATCH, seed=0)
        self.steps = StreamSteps(self.stream, NUM_PER_STEP)
        self.plan = LoaderPlan(self.stream, self.steps)
        self.changes = deque(changes)
        self.rank, self.size = 0, 1
        self.step = 0
        self._due: deque[tuple[Key, int]] = deque()
        self._loaded: queue.Queue[tuple[Record, ...] | None] = queue.Queue(num_ahead + 1)

    def leaves(self, step: int) -> list[int]:
        return leaves_of(self.steps, step, self.rank, self.size)

    def keys(self, first: int) -> Iterator[Key]:
        rank, size = self.rank, self.size
        for step in range(first, self.steps.num_steps):
            for leaf in leaves_of(self.steps, step, rank, size):
                yield Key(0, step, leaf)

    def follow(self) -> None:
        if not self.is_fixed:
            self.steps.go_on(self.step, self.steps.place_before(self.step), self.size)
        self.plan.follow(self.keys(self.step))
        self._begin_step()

    def run(self) -> None:
        """Go through the loop as a program does."""
        generation = self.plan.begin_generation()
        loading = threading.Thread(target=self._load, args=(generation,), daemon=True)
        loading.start()
        self.follow()
        while (records := self._loaded.get(timeout=LIMIT_S)) is not None:
            self.plan.deliver()
            self._turn(records)
        loading.join()

    def _load(self, generation: int) -> None:
        number = 0
        while (records := self.plan.ask(number, generation)) is not None:
            self._loaded.put(records)
            number += 1
        self._loaded.put(None)

    def _turn(self, records: tuple[Record, ...]) -> None:
        place = self.plan.begin_call()
        if place is not None:
            want = self.stream.records(place)
            assert records == want + want[-1:] * (BATCH - len(want)), "the ticket's records are those of its place"
            self.plan.hold(place, records)
        change = self.changes.popleft() if self.changes else None
        while self._due and self.plan.held(self._due[0][1]) is not None:
            if change is not None:
                # The step fails: micro-batches that were computed for it do not count any more.
                (self.rank, self.size), change = change, None
                self.follow()
                continue
            self._due.popleft()
            if not self._due:
                self._commit()
                break
        self.plan.end_call()

    def _commit(self) -> None:
        self.step += 1
        self.plan.drop_before(self.steps.place_before(self.step))
        if self.step == self.steps.num_steps:
            self.plan.close()
        else:
            self._begin_step()

    def _begin_step(self) -> None:
        self._due.clear()
        for _ in self.leaves(self.step):
            _, found = self.plan.take()
            assert found[0].step == self.step
            self._due.append(found)


places = st.integers(1, 4).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size)))


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(0, 5), st.lists(st.one_of(st.none(), places), max_size=30), st.booleans())
@example(60, 5, [(1, 4), None, None, (1, 2)], False)
def test_every_step_is_trained_in_its_order(
    num_records: int, num_ahead: int, changes: list[tuple[int, int] | None], is_fixed: bool
) -> None:
    loop = Loop(num_records, num_ahead, changes, is_fixed=is_fixed)
    loop.run()
    assert loop.step == loop.steps.num_steps
    assert not loop.plan.is_stuck


def make(num_records: int, num_per_step: int = 2) -> tuple[LoaderPlan, StreamSteps]:
    stream = Stream(num_records, 1, BATCH, seed=0)
    steps = StreamSteps(stream, num_per_step)
    return LoaderPlan(stream, steps), steps


def all_keys(steps: StreamSteps) -> Iterator[Key]:
    return (Key(0, step, leaf) for step in range(steps.num_steps) for leaf in range(steps.num_micro_batches_of(step)))


def test_tickets_are_answered_by_their_number_and_not_by_the_order_of_requests() -> None:
    plan, steps = make(12)
    plan.follow(all_keys(steps))
    assert [record.index for record in plan.ask(2, 0) or ()] == [4, 5]
    assert [record.index for record in plan.ask(0, 0) or ()] == [0, 1]
    assert [plan.begin_call() for _ in range(3)] == [0, 1, 2]


def test_a_request_before_the_worker_has_joined_waits() -> None:
    plan, steps = make(4)
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(plan.ask(0, 0)))
    asking.start()
    plan.follow(all_keys(steps))
    asking.join()
    assert answers == [(Record(0, 0), Record(0, 1))]


def test_all_waiting_requests_get_the_end_when_nothing_is_left_to_train() -> None:
    plan, steps = make(4)
    plan.follow(all_keys(steps))
    assert plan.ask(0, 0) and plan.ask(1, 0)
    answers: list[object] = []
    asking = [threading.Thread(target=lambda number=number: answers.append(plan.ask(number, 0))) for number in (2, 3)]
    for thread in asking:
        thread.start()
    plan.close()
    for thread in asking:
        thread.join()
    assert answers == [None, None]


def test_a_replaced_loader_reaches_its_end_and_the_next_one_gets_its_records() -> None:
    plan, steps = make(8)
    plan.follow(all_keys(steps))
    assert plan.ask(0, 0) and plan.ask(1, 0)
    assert plan.begin_call() == 0
    plan.hold(0, "batch")
    assert plan.begin_generation() == 1
    assert plan.ask(2, 0) is None
    assert [record.index for record in plan.ask(0, 1) or ()] == [2, 3]


def test_a_loop_that_does_not_train_its_batches_is_detected() -> None:
    plan, steps = make(4)
    plan.follow(all_keys(steps))
    for number in range(2):
        assert plan.ask(number, 0)
        plan.deliver()
    assert plan.begin_call() == 0
    plan.end_call()
    assert plan.ask(2, 0) is None
    assert plan.is_stuck


def test_after_a_change_only_batches_that_are_still_needed_are_kept() -> None:
    plan, steps = make(16, num_per_step=4)
    plan.follow(all_keys(steps))
    for number in range(6):
        assert plan.ask(number, 0)
    for place in range(3):
        assert plan.begin_call() == place
        plan.hold(place, f"batch {place}")
    plan.follow(Key(0, step, leaf) for step in range(2) for leaf in (1, 2))
    assert [plan.held(place) for place in range(3)] == [None, "batch 1", "batch 2"]
    # This worker does not need the batches of tickets 3 and 4 any more, but that of 5; missing batches come after them.
    assert [plan.begin_call() for _ in range(3)] == [None, None, 5]
    plan.hold(5, "batch 5")
    assert [record.index for record in plan.ask(6, 0) or ()] == [12, 13]
