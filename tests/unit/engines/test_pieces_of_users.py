"""Checkpoints in a folder that a job's system user can write: nothing that it puts there reaches files of others."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.core.agent_messages import FilePiece, FileTaken
from legato.core.job_user import JobUser
from legato.engines.file_pieces import PieceReceiver, PieceSender
from legato.system.plain_files import replace_for

NAME = "step-00000005.legato"
SHA256 = hashlib.sha256(b"weights").hexdigest()
OTHER = 1
USER = JobUser(uid=2, gid=2, name="bin", home="/bin")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"of another user")
    os.chown(path, OTHER, OTHER)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints"
    path.mkdir()
    os.chown(path, USER.uid, USER.gid)
    return path


PLANTED: list[Callable[[Path, Path], None]] = [
    lambda path, secret: path.symlink_to(secret),
    lambda path, secret: path.hardlink_to(secret),
    lambda path, _secret: os.mkfifo(path),
]
IDS = ["link", "hard link", "pipe"]


@pytest.mark.parametrize("plant", PLANTED, ids=IDS)
def test_only_files_of_the_user_are_sent(plant: Callable[[Path, Path], None], folder: Path, secret: Path) -> None:
    plant(folder / NAME, secret)
    said: list[FilePiece] = []
    with pytest.raises(OSError, match=r"no plain file of the job's user|Too many levels of symbolic links"):
        asyncio.run(PieceSender(lambda piece: said.append(piece) is None).send(folder / NAME, 0, USER, is_urgent=True))
    assert said == []


@pytest.mark.parametrize("plant", PLANTED, ids=IDS)
def test_pieces_are_written_into_files_of_the_user_only(
    plant: Callable[[Path, Path], None], folder: Path, secret: Path
) -> None:
    plant(folder / f".{NAME}.part", secret)
    piece = FilePiece(name=NAME, offset=0, data=b"weights", num_bytes=7, sha256=SHA256)
    with pytest.raises(OSError, match=r"no plain file|Too many levels of symbolic links|No such device or address"):
        PieceReceiver(folder, USER).take(piece)
    assert secret.read_bytes() == b"of another user"


def test_what_comes_belongs_to_the_user_and_can_be_sent_again(folder: Path) -> None:
    receiver = PieceReceiver(folder, USER)
    assert receiver.take(FilePiece(name=NAME, offset=0, data=b"weig", num_bytes=7)) is None
    whole = receiver.take(FilePiece(name=NAME, offset=4, data=b"hts", num_bytes=7, sha256=SHA256))
    assert whole is not None
    assert (whole.read_bytes(), whole.stat().st_uid, whole.stat().st_mode & 0o777) == (b"weights", USER.uid, 0o600)
    said: list[FilePiece] = []

    def say(piece: FilePiece) -> bool:
        said.append(piece)
        sender.note_taken(FileTaken(name=piece.name, num_bytes=piece.offset + len(piece.data)))
        return True

    sender = PieceSender(say)
    assert asyncio.run(sender.send(whole, 0, USER, is_urgent=True))
    assert b"".join(piece.data for piece in said) == b"weights"


def test_an_answer_replaces_what_the_user_has_put_in_its_place(folder: Path, secret: Path) -> None:
    here = folder / ".here-7"
    here.symlink_to(secret)
    replace_for(here, b"answer", USER)
    assert (here.read_bytes(), here.is_symlink(), here.stat().st_uid) == (b"answer", False, USER.uid)
    assert (secret.read_bytes(), secret.stat().st_uid) == (b"of another user", OTHER)
    assert [path.name for path in folder.iterdir()] == [".here-7"]
