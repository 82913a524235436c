"""Sends a worker's reports to its driver, or to the user of a program that runs alone. Decides nothing."""

from __future__ import annotations

import sys

from legato.core import wire
from legato.train.loop.cursor import Cursor
from legato.train.membership.link import Link


class Reporter:
    """Sends a worker's messages to its driver.

    Args:
        link: to the driver; None when the program runs alone.
    """

    def __init__(self, link: Link | None) -> None:
        self._link = link
        self._num_steps_reported = 0

    def say(self, message: wire.Message) -> None:
        """Send a message to the driver; in a program that runs alone, print messages that are meant for its user."""
        if self._link is not None:
            self._link.send(message)
        elif isinstance(message, wire.Note):
            sys.stderr.write(f"legato: {message.level}: {message.text}\n")

    def log(self, cursor: Cursor, values: dict[str, float]) -> None:
        """Report metrics at the present step."""
        if self._link is None:
            shown = "  ".join(f"{name} {value:.6g}" for name, value in values.items())
            sys.stdout.write(f"epoch {cursor.epoch}  step {cursor.step}  {shown}\n")
            sys.stdout.flush()
        self.say(cursor.log(values))
        self.forget_known(cursor)

    def forget_known(self, cursor: Cursor) -> None:
        """Drop the metrics that the driver has from a cursor; alone all of them, because the user has seen them."""
        cursor.forget_metrics(cursor.num_logs if self._link is None else self._link.num_metrics)

    def report_commit(self, progress: wire.Progress) -> None:
        """Report a step that this worker has committed."""
        if self._link is not None:
            self._link.report(progress)
            self._num_steps_reported = progress.last_step

    def report_resumed(self, cursor: Cursor) -> None:
        """Report what came before a checkpoint: the driver of that time may have ended before it received it."""
        if cursor.step:
            self.say(cursor.past(0, num_samples=0, resumed=True))
            self._num_steps_reported = cursor.step
            self._report_metrics(cursor)

    def report_received(self, cursor: Cursor) -> None:
        """Report the steps that this worker did not commit itself: the workers that did may have died unheard.

        A worker receives the state when it joins, and again when a view broke after others had committed one step more.
        """
        if self._link is not None and cursor.step > self._num_steps_reported:
            self._link.report(cursor.past(self._num_steps_reported, num_samples=1))
            self._link.flush()
            self._num_steps_reported = cursor.step
        self._report_metrics(cursor)

    def _report_metrics(self, cursor: Cursor) -> None:
        self.forget_known(cursor)
        for metrics in cursor.kept_metrics():
            self.say(metrics)
