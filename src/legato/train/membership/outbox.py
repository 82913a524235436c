"""Messages of a worker to its driver, kept in order until they are sent. Never waits for the driver.

A stopped driver does not read, and a writer waits for as long as it is stopped. So only one thread writes to the
connection; all others put messages into the outbox. It is bounded: beyond its limits it drops the oldest metrics, thins
out losses and drops notes. It counts what it drops, and reports that to the next driver.

Messages wait in memory, not on a disk. Each worker has the same metrics and losses, so they outlive any of the workers;
and if all workers die, the job repeats the steps since its last checkpoint, with their metrics.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import Final

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from legato.core import wire

_MAX_LOSSES: Final = 100_000  # that wait for the driver; with more, the outbox keeps those of every second step
_MAX_METRICS_BYTES: Final = 64 * 2**20  # that no driver has recorded; with more, the outbox drops the oldest
_KEPT_SHARE: Final = 7 / 8  # of the metrics, when the oldest are dropped
_MAX_NOTES: Final = 10_000
_TELL_DROPS_EVERY_S: Final = 60.0


class _Drops:
    """What was dropped, and not yet reported."""

    def __init__(self) -> None:
        self.num_metrics = self.num_notes = self.first_step = self.last_step = 0
        self.loss_every = 1

    def note_metrics(self, step: int) -> None:
        self.first_step = self.first_step if self.num_metrics else step
        self.num_metrics, self.last_step = self.num_metrics + 1, step

    def describe(self) -> wire.Note | None:
        """Return a message for the job's user; None if nothing was dropped."""
        told = []
        if self.num_metrics:
            told.append(
                f"the metrics of {self.num_metrics} calls of run.log, of steps {self.first_step} to {self.last_step}"
            )
        if self.loss_every > 1:
            told.append(f"the losses of steps whose number {self.loss_every} does not divide")
        if self.num_notes:
            told.append(f"{self.num_notes} messages")
        if not told:
            return None
        text = "Too much was waiting for a driver, so this worker has dropped " + "; ".join(told)
        return wire.Note(level="warning", text=f"{text}. Another worker may still have it.")


class Outbox:
    """Messages to a driver, or to the next one.

    Attributes:
        connection: to the driver; None while there is none, or before it has answered.
        num_dropped_metrics: number of calls of ``run.log``, from the first on, up to the last one that was dropped.
    """

    def __init__(self) -> None:
        self.connection: ClientConnection | None = None
        self._changed = threading.Condition()
        self._unsent: deque[wire.Message] = deque()
        self._unrecorded: deque[tuple[wire.Metrics, int]] = deque()  # with their size in bytes
        self._num_metrics_bytes = 0
        self.num_dropped_metrics = 0
        self._drops = _Drops()
        self._tell_drops_at = 0.0
        self._progress: wire.Progress | None = None
        self._reported: wire.Progress | None = None
        self._resumed: wire.Progress | None = None
        self._saved: wire.Saved | None = None
        self._losses: deque[tuple[int, int, float, float]] = deque()  # step, epoch, time of the commit, loss
        self._losses_sent_to = 0
        self._loss_every = 1

    def put(self, message: wire.Message) -> None:
        """Put a message into the outbox, for this or the next driver. `report` takes progress, unless it is a resume.

        Raises:
            ProgramError: the message is larger than any driver accepts.
        """
        # Encode here, where the caller gets the error, and not in the thread that sends.
        message = wire.sendable(message)
        with self._changed:
            if isinstance(message, wire.Metrics):
                self._keep_metrics(message)
            elif isinstance(message, wire.Note) and self._count_notes() >= _MAX_NOTES:
                self._drops.num_notes += 1
                return
            elif isinstance(message, wire.Saved):
                self._saved = message
            elif isinstance(message, wire.Progress):
                self._resumed = message
            self._unsent.append(message)
            self._changed.notify_all()

    def _count_notes(self) -> int:
        if len(self._unsent) < _MAX_NOTES:
            return 0
        return sum(isinstance(message, wire.Note) for message in self._unsent)

    def _keep_metrics(self, message: wire.Metrics) -> None:
        num_bytes = len(wire.encode(message))
        self._unrecorded.append((message, num_bytes))
        self._num_metrics_bytes += num_bytes
        if self._num_metrics_bytes <= _MAX_METRICS_BYTES:
            return
        dropped: set[int] = set()
        while self._num_metrics_bytes > _MAX_METRICS_BYTES * _KEPT_SHARE and len(self._unrecorded) > 1:
            oldest, num_bytes = self._unrecorded.popleft()
            self._num_metrics_bytes -= num_bytes
            self.num_dropped_metrics = oldest.index + 1
            self._drops.note_metrics(oldest.step)
            dropped.add(oldest.index)
        self._unsent = deque(
            kept for kept in self._unsent if not isinstance(kept, wire.Metrics) or kept.index not in dropped
        )

    def put_heartbeat(self, message: wire.Heartbeat) -> None:
        """Send a heartbeat, unless another message is about to be sent."""
        with self._changed:
            if self.connection is not None and not self._unsent:
                self._unsent.append(message)
                self._changed.notify_all()

    def report(self, progress: wire.Progress) -> None:
        """Keep a report of committed steps until `flush`, merged with the reports that wait already."""
        with self._changed:
            if self._progress is not None and self._progress.epoch != progress.epoch:
                # A report names the epoch of its last step; it has steps of several epochs only while no driver
                # listens.
                self.flush()
            self._progress = _merge(self._progress, progress)
            self._reported = _merge(self._reported, progress)
            if progress.loss is not None and progress.num_samples and progress.last_step % self._loss_every == 0:
                self._losses.append((progress.last_step, progress.epoch, time.monotonic(), progress.loss))
                if len(self._losses) > _MAX_LOSSES:
                    self._loss_every *= 2
                    self._drops.loss_every = max(self._drops.loss_every, self._loss_every)
                    self._losses = deque(kept for kept in self._losses if kept[0] % self._loss_every == 0)

    def flush(self) -> None:
        """Send the merged report."""
        with self._changed:
            if self._progress is not None and self.connection is not None:
                self._unsent.append(msgspec.structs.replace(self._progress, losses=self._take_losses()))
                self._progress = None
                self._changed.notify_all()
            if self.connection is not None and time.monotonic() >= self._tell_drops_at:
                self._tell_drops()

    def _tell_drops(self) -> None:
        told = self._drops.describe()
        if told is not None:
            self._drops, self._tell_drops_at = _Drops(), time.monotonic() + _TELL_DROPS_EVERY_S
            self._unsent.append(told)
            self._changed.notify_all()

    def connect(self, connection: ClientConnection, broken: wire.Broken | None) -> None:
        """Send over another connection from now on, and repeat the messages that may be lost with the last one.

        A driver that died may have lost messages on their way. So the next one gets all steps, the last checkpoint, all
        metrics and losses that are not confirmed to be in the records, and the view that ``broken`` reports.
        """
        repeated_kinds = wire.Progress | wire.Metrics | wire.Broken | wire.Heartbeat
        with self._changed:
            kept = [message for message in self._unsent if not isinstance(message, repeated_kinds)]
            saved = self._saved if self._saved not in kept else None
            metrics = [each for each, _ in self._unrecorded]
            again = [self._resumed, *metrics, saved, *kept, broken and wire.sendable(broken)]
            self._unsent = deque(message for message in again if message is not None)
            self._progress, self._losses_sent_to = self._reported, 0
            self.connection = connection
            self._changed.notify_all()

    def disconnect(self) -> ClientConnection | None:
        """Send nothing more until the next `connect`. Returns the connection that there was."""
        with self._changed:
            connection, self.connection = self.connection, None
            self._changed.notify_all()
            return connection

    def forget_metrics(self, num_recorded: int) -> None:
        """Record that the driver's records have the metrics of lower indices."""
        with self._changed:
            while self._unrecorded and self._unrecorded[0][0].index < num_recorded:
                self._num_metrics_bytes -= self._unrecorded.popleft()[1]

    def forget_losses(self, to_step: int) -> None:
        """Record that the driver's records have the losses up to this step."""
        with self._changed:
            while self._losses and self._losses[0][0] <= to_step:
                self._losses.popleft()
                self._loss_every = 1

    def wait_until_sent(self, limit_s: float) -> bool:
        """Wait until all messages are sent. Return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unsent and self._progress is None, limit_s)

    def _take_losses(self) -> tuple[wire.StepLoss, ...]:
        """Return the losses that were not yet sent over this connection."""
        now, sent_to = time.monotonic(), self._losses_sent_to
        newest = itertools.takewhile(lambda kept: kept[0] > sent_to, reversed(self._losses))
        taken = [wire.StepLoss(step, epoch, now - at, loss) for step, epoch, at, loss in newest]
        if taken:
            self._losses_sent_to = taken[0].step
        return tuple(reversed(taken))

    def send_forever(self) -> None:
        """Send the messages in order. Only the thread that runs this may have to wait for the driver."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.connection is not None and self._unsent)
                connection, message = self.connection, self._unsent[0]
            assert connection is not None
            try:
                connection.send(wire.encode(message))
            except (ConnectionClosed, OSError):
                with self._changed:
                    if self.connection is connection:
                        self.connection = None
                continue
            with self._changed:
                if self.connection is not connection:
                    # The message may be lost with that connection: `connect` repeats it over the next one.
                    continue
                if self._unsent and self._unsent[0] is message:
                    self._unsent.popleft()
                else:
                    # The driver has accepted this worker again, and `connect` has put other messages before this one,
                    # or dropped it.
                    self._unsent = deque(other for other in self._unsent if other is not message)
                self._changed.notify_all()


def _merge(known: wire.Progress | None, later: wire.Progress) -> wire.Progress:
    if known is None:
        return later
    return msgspec.structs.replace(
        later,
        # Without samples it repeats a step to report the phase. That step may be the one of the checkpoint from which
        # this worker resumed, which has a report of its own.
        first_step=known.first_step if known.num_samples else later.first_step,
        num_samples=known.num_samples + later.num_samples,
        sent_bytes=known.sent_bytes + later.sent_bytes,
        measured_s=known.measured_s + later.measured_s,
        waited_s=known.waited_s + later.waited_s,
    )
