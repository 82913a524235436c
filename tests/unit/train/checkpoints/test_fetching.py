"""A worker that waits for the newest checkpoint from the driver's machine."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from legato.core import wire
from legato.core.checkpoint_requests import DIRECTORY_VARIABLE, HERE, WANTED
from legato.core.errors import CheckpointError
from legato.driver.journal import replace_file
from legato.train.checkpoints import fetching
from legato.train.checkpoints.fetching import fetch_newest

LIMIT_S = 20.0


def answer(wanted: Path, content: bytes) -> None:
    replace_file(wanted.with_name(wanted.name.replace(WANTED, HERE)), content)


def test_a_long_fetch_says_how_far_it_is_and_only_while_bytes_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setattr(fetching, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(fetching, "_FIRST_NOTE_S", 0.001)
    monkeypatch.setattr(fetching, "_MAX_NOTE_S", 0.001)
    part = tmp_path / ".step-00000010.legato.part"
    said: list[str] = []

    def say(note: wire.Note) -> None:
        said.append(note.text)
        if len(said) == 1:
            part.write_bytes(bytes(3 * 2**20))
        else:
            (wanted,) = tmp_path.glob(f"{WANTED}*")
            # In a moment: nothing more comes meanwhile, so nothing more is said.
            threading.Timer(0.05, answer, [wanted, b'{"error": null}']).start()

    part.write_bytes(bytes(2**20))
    fetch_newest(tmp_path, say)
    assert len(said) == 2
    assert said[0].startswith("the newest checkpoint comes from the driver's machine: 1 MiB so far, after ")
    assert ": 3 MiB so far" in said[1]


def test_a_fetch_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))

    def refuse() -> None:
        while not (found := list(tmp_path.glob(f"{WANTED}*"))):
            pass
        answer(found[0], b'{"error": "the disk is full"}')

    thread = threading.Thread(target=refuse)
    thread.start()
    with pytest.raises(CheckpointError, match=r"Cannot fetch the newest checkpoint .*: the disk is full"):
        fetch_newest(tmp_path, pytest.fail)
    thread.join(LIMIT_S)


def test_nothing_is_fetched_where_the_directory_is_shared(tmp_path: Path) -> None:
    fetch_newest(tmp_path, pytest.fail)
    assert list(tmp_path.iterdir()) == []
