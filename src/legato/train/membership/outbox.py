"""Messages of a worker to its driver, kept in order until they are sent. Loses nothing and never waits for the driver.

A stopped driver does not read, and a writer waits for as long as it is stopped. So only one thread writes to the
connection; all others put messages into the outbox. Workers train without a driver for a limited time only, which
bounds the number of messages.
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


class Outbox:
    """Messages to a driver, or to the next one.

    Attributes:
        connection: to the driver; None while there is none, or before it has answered.
    """

    def __init__(self) -> None:
        self.connection: ClientConnection | None = None
        self._changed = threading.Condition()
        self._unsent: deque[wire.Message] = deque()
        self._unrecorded: deque[wire.Metrics] = deque()
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
                self._unrecorded.append(message)
            elif isinstance(message, wire.Saved):
                self._saved = message
            elif isinstance(message, wire.Progress):
                self._resumed = message
            self._unsent.append(message)
            self._changed.notify_all()

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
                    self._losses = deque(kept for kept in self._losses if kept[0] % self._loss_every == 0)

    def flush(self) -> None:
        """Send the merged report."""
        with self._changed:
            if self._progress is not None and self.connection is not None:
                self._unsent.append(msgspec.structs.replace(self._progress, losses=self._take_losses()))
                self._progress = None
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
            again = [self._resumed, *self._unrecorded, saved, *kept, broken and wire.sendable(broken)]
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
            while self._unrecorded and self._unrecorded[0].index < num_recorded:
                self._unrecorded.popleft()

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
        first_step=known.first_step,
        num_samples=known.num_samples + later.num_samples,
        sent_bytes=known.sent_bytes + later.sent_bytes,
    )
