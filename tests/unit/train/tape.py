"""A worker's link to its driver, without a driver."""

from __future__ import annotations

from pathlib import Path

from legato.core import wire
from legato.train.membership.link import Link


class Tape(Link):
    """A link that leads nowhere, and keeps what is said."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), 0, "127.0.0.1")
        self.said: list[wire.Message] = []

    def send(self, message: wire.Message) -> None:
        self.said.append(message)
