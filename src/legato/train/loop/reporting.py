"""What a worker tells of its run: to its driver, or to the user of a program that runs alone. Decides nothing."""

from __future__ import annotations

import sys

from legato.core import wire
from legato.train.loop.cursor import Cursor
from legato.train.membership.link import Link


class Teller:
    """Tells what a driver must hear.

    Args:
        link: to the driver; None when the program runs alone.
    """

    def __init__(self, link: Link | None) -> None:
        self._link = link
        self._num_steps_told = 0

    def say(self, message: wire.Message) -> None:
        """Tell the driver something; alone, tell the user what concerns them."""
        if self._link is not None:
            self._link.send(message)
        elif isinstance(message, wire.Note):
            sys.stderr.write(f"legato: {message.level}: {message.text}\n")

    def log(self, cursor: Cursor, values: dict[str, float]) -> None:
        """Tell metrics at the present step."""
        if self._link is None:
            shown = "  ".join(f"{name} {value:.6g}" for name, value in values.items())
            sys.stdout.write(f"epoch {cursor.epoch}  step {cursor.step}  {shown}\n")
            sys.stdout.flush()
        self.say(cursor.log(values))
        self.forget_known(cursor)

    def forget_known(self, cursor: Cursor) -> None:
        """Let a cursor keep only the metrics that the driver may not have; alone they are the user's, who has them."""
        cursor.forget_metrics(cursor.num_logs if self._link is None else self._link.num_metrics)

    def tell_resumed(self, cursor: Cursor) -> None:
        """Tell what was before a checkpoint: it happened before, but perhaps with no driver to hear of it."""
        if cursor.step:
            self.say(cursor.past(0, num_samples=0, resumed=True))
            self._tell_metrics(cursor)

    def tell_received(self, cursor: Cursor) -> None:
        """Tell what was before a joiner came: who committed these steps may be dead before its report is sent."""
        if self._link is not None and cursor.step > self._num_steps_told:
            self._link.report(cursor.past(self._num_steps_told, num_samples=1))
            self._link.flush()
            self._num_steps_told = cursor.step
        self._tell_metrics(cursor)

    def _tell_metrics(self, cursor: Cursor) -> None:
        self.forget_known(cursor)
        for metrics in cursor.kept_metrics():
            self.say(metrics)
