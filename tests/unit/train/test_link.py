"""A worker's end of its connection to the driver: what it says, and says again to the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.core import wire
from legato.train.link import Link

WELCOME = wire.Welcome(
    heartbeat_interval_s=1.0,
    away_limit_s=60.0,
    collective_limit_s=60.0,
    checkpoint_dir=None,
    checkpoint_every=None,
    keep=1,
    resume=False,
)


class Line:
    """A connection that keeps what is sent over it."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, frame: bytes) -> None:
        self.said.append(wire.decode_worker_message(frame))

    def indices(self) -> list[int]:
        return [said.index for said in self.said if isinstance(said, wire.Metrics)]


@pytest.fixture
def link() -> Link:
    return Link(Path("/nowhere"), 0, "127.0.0.1")


def connect(link: Link) -> Line:
    line = Line()
    link._hear(WELCOME, line)  # type: ignore[arg-type]
    link.flush()
    return line


def log(link: Link, *indices: int) -> None:
    for index in indices:
        link.send(wire.Metrics(index=index, step=index, epoch=0, values={}))


def test_the_next_driver_hears_again_what_is_not_known_to_stand_in_the_records(link: Link) -> None:
    first = connect(link)
    log(link, 0, 1, 2)
    link.send(wire.Note(level="info", text="heard"))
    link._hear(wire.Heartbeat(num_metrics=2), first)  # type: ignore[arg-type]
    assert link.num_metrics == 2
    second = connect(link)
    assert first.indices() == [0, 1, 2]
    assert second.said == [wire.Metrics(index=2, step=2, epoch=0, values={})]


def test_what_was_said_to_nobody_is_said_once_and_in_order(link: Link) -> None:
    log(link, 0, 1)
    link.send(wire.Note(level="info", text="unheard"))
    log(link, 2)
    line = connect(link)
    assert line.indices() == [0, 1, 2]
    assert len(line.said) == 4
    log(link, 3)
    assert line.indices() == [0, 1, 2, 3]
