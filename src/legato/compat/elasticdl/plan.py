"""Maps the loader's next batch to a micro-batch: tickets on one side, the runtime's keys on the other.

A `DataLoader` returns batches to the loop in the order of their numbers, whichever process was faster. So a loader
process requests a batch by its number, its ticket. The plan answers with this worker's micro-batches, in the order in
which it will train them, and says later which of them a call of the training function has. Threads that serve loader
processes send the requests; the training thread updates the plan. The runtime decides which worker trains what.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from legato.compat.elasticdl.stream import Record, Stream, StreamSteps
from legato.train.data.order import Key

_LISTEN_EVERY_S: Final = 0.5


class LoaderPlan:
    """The tickets of one worker.

    Args:
        stream: of the records to train.
        steps: how the stream is divided into steps.
    """

    def __init__(self, stream: Stream, steps: StreamSteps) -> None:
        self._stream = stream
        self._steps = steps
        self._changed = threading.Condition()
        self._keys: Iterator[Key] = iter(())
        # This worker's keys from the present step on, and how many of them are planned and begun.
        self._ahead: deque[tuple[Key, int]] = deque()
        self._num_planned = self._num_taken = 0
        self._held: dict[int, Any] = {}
        self._tickets: dict[int, int | None] = {}
        self._answered: set[int] = set()
        self._num_calls = self._num_delivered = 0
        self._is_begun = self._is_closed = self._is_training = False
        self.generation = 0
        self.is_stuck = False
        """Whether the loop waits for a batch that cannot come, before it has passed on all batches that it has."""

    # ------------------------------------------------------------ what the runtime says

    def follow(self, keys: Iterator[Key]) -> None:
        """Set the keys that will be trained from now on; batches of other keys are dropped."""
        with self._changed:
            self._keys, self._num_planned, self._num_taken = keys, 0, 0
            self._ahead.clear()
            known = self._known()
            # Keys come in the order of the stream.
            while known and (not self._ahead or self._ahead[-1][1] < max(known)):
                if not self._look_ahead():
                    break
            mine = {place for _, place in self._ahead}
            self._held = {place: batch for place, batch in self._held.items() if place in mine}
            self._tickets = {
                number: place if place is not None and place in mine else None
                for number, place in self._tickets.items()
            }
            self._is_begun, self.is_stuck = True, False
            self._changed.notify_all()

    def take(self) -> tuple[Key, tuple[Key, int]]:
        """Return the next key to train, and in place of its batch the key with its place in the stream."""
        with self._changed:
            if self._num_taken == len(self._ahead):
                self._look_ahead()
            self._num_taken += 1
            found = self._ahead[self._num_taken - 1]
            return found[0], found

    # ------------------------------------------------------------ what the loop brings

    def deliver(self) -> None:
        """Record that the loader has returned a batch to the loop."""
        with self._changed:
            self._num_delivered += 1
            self._changed.notify_all()

    def begin_call(self) -> int | None:
        """Record that the loop has its next batch, and return its place; None if the batch is not needed any more."""
        with self._changed:
            self._is_training = True
            number, self._num_calls = self._num_calls, self._num_calls + 1
            self._answered.discard(number)
            return self._tickets.pop(number, None)

    def end_call(self) -> None:
        """Record that the loop will request its next batch."""
        with self._changed:
            self._is_training = False
            self._changed.notify_all()

    def hold(self, place: int, batch: Any) -> None:
        """Keep the batch of a place until it is trained."""
        with self._changed:
            self._held[place] = batch

    def held(self, place: int) -> Any:
        """Return the batch of a place, None if it has not arrived."""
        return self._held.get(place)

    def drop_before(self, place: int) -> None:
        """Drop the batches before a place, which were trained."""
        with self._changed:
            self._held = {key: batch for key, batch in self._held.items() if key >= place}
            while self._ahead and self._ahead[0][1] < place:
                self._ahead.popleft()
                self._num_planned = max(self._num_planned - 1, 0)
                self._num_taken = max(self._num_taken - 1, 0)

    # ------------------------------------------------------------ tickets

    def begin_generation(self) -> int:
        """Restart with ticket 0 for another loader. Return the name of its generation."""
        with self._changed:
            self.generation += 1
            self._tickets.clear()
            self._answered.clear()
            self._num_calls = self._num_delivered = 0
            # Plan again: the loader that is gone had some of these batches.
            self._num_planned = 0
            self._changed.notify_all()
            return self.generation

    def close(self) -> None:
        """End the training: every later request gets the end of the data."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether the training has ended."""
        return self._is_closed

    def ask(self, number: int, generation: int, *, is_direct: bool = False) -> tuple[Record, ...] | None:
        """Return the records of a ticket, None at the end of the data; waits until either is known.

        A batch always has ``batch_size`` records: its last one is repeated as often as necessary.

        Args:
            number: of the ticket.
            generation: of the loader that asks.
            is_direct: the loop itself requests it, so it has all earlier batches.
        """
        with self._changed:
            if is_direct:
                self._num_delivered = number
            while not self._is_closed and not self.is_stuck and generation == self.generation:
                place = self._find(number) if self._is_begun else None
                if place is not None:
                    self._answered.add(number)
                    records = self._stream.records(place)
                    return records + records[-1:] * (self._stream.batch_size - len(records))
                if self._is_begun and not self._is_training and self._num_delivered == number != self._num_calls:
                    # The loop waits for a batch, but it has received all remaining batches already.
                    self.is_stuck = True
                    self._changed.notify_all()
                    break
                self._changed.wait(_LISTEN_EVERY_S)
        return None

    def _find(self, number: int) -> int | None:
        """Return the place of a ticket; None if other tickets have all known places of this worker."""
        for earlier in range(self._num_calls, number + 1):
            # Batches of the loader that are no longer needed keep their tickets: they will arrive and be skipped.
            if self._tickets.get(earlier) is None and earlier not in self._answered:
                place = self._next_place()
                if place is None:
                    return self._filler(number)
                self._tickets[earlier] = place
        return self._tickets.get(number)

    def _next_place(self) -> int | None:
        """Return the next place that has not been requested yet."""
        known = self._known()
        while self._num_planned < len(self._ahead) or self._look_ahead():
            _, place = self._ahead[self._num_planned]
            self._num_planned += 1
            if place not in known:
                return place
        return None

    def _filler(self, number: int) -> int | None:
        """Return a place for a turn of the loop without a new batch: the due batch was loaded in an earlier turn.

        Only at the end, and after a change: the loop has at least one turn for each step.
        """
        if number != self._num_calls or self._is_training or not self._held:
            return None
        return min(self._held)

    def _known(self) -> set[int]:
        return {place for place in self._tickets.values() if place is not None} | self._held.keys()

    def _look_ahead(self) -> bool:
        key = next(self._keys, None)
        if key is None:
            return False
        self._ahead.append((key, self._steps.place(key)))
        return True
