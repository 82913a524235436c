"""Checkpoints in pieces: complete and equal at the other side, whatever breaks, and no byte sent twice for nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from legato.core.agent_messages import (
    MAX_PIECE_BYTES,
    FilePiece,
    FileTaken,
    SendCheckpoint,
    decode_agent_message,
    encode_agent_frame,
)
from legato.core.errors import CheckpointError
from legato.engines.file_pieces import DamagedFile, PieceReceiver, PieceSender, Window, find_newest

LIMIT_S = 30.0
NAME = "step-00000010.legato"


class Wire:
    """Two folders, and pieces that go from one to the other, as far as the test lets them."""

    def __init__(self, path: Path, num_bytes: int = 3 * 2**20 + 17) -> None:
        self.source, self.folder = path / "source", path / "target"
        self.source.mkdir()
        self.folder.mkdir()
        self.content = os.urandom(num_bytes)
        (self.source / NAME).write_bytes(self.content)
        self.receiver = PieceReceiver(self.folder)
        self.sender = PieceSender(self.say)
        self.num_bytes = 0
        self.limit: int | None = None
        self.change: Callable[[FilePiece], FilePiece] = lambda piece: piece
        self.whole: Path | None = None
        self.error: Exception | None = None

    def say(self, piece: FilePiece) -> bool:
        if self.limit is not None and self.num_bytes + len(piece.data) > self.limit:
            return False
        self.num_bytes += len(piece.data)
        asyncio.get_running_loop().call_soon(self.take, self.change(piece))
        return True

    def take(self, piece: FilePiece) -> None:
        if self.error is not None:
            return
        try:
            self.whole = self.receiver.take(piece)
        except (CheckpointError, OSError) as error:
            self.error = error
        self.sender.note_taken(FileTaken(name=piece.name, num_bytes=piece.offset + len(piece.data)))

    async def send(self) -> bool:
        self.error = None
        sent = await self.sender.send(self.source / NAME, self.receiver.num_bytes_of(NAME), is_urgent=True)
        await asyncio.sleep(0)
        return sent


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


def test_a_transfer_that_breaks_goes_on_where_it_ended(tmp_path: Path) -> None:
    async def test() -> None:
        wire = Wire(tmp_path)
        wire.limit = 2 * 2**20
        assert not await wire.send()
        assert wire.whole is None and find_newest(wire.folder) is None, "it has no name before it is complete"
        wire.limit = None
        # Both sides have started again.
        wire.sender, wire.receiver = PieceSender(wire.say), PieceReceiver(wire.folder)
        assert wire.receiver.find_begun() == NAME
        assert await wire.send()
        assert wire.whole == wire.folder / NAME == find_newest(wire.folder)
        assert wire.whole.read_bytes() == wire.content
        assert wire.num_bytes == len(wire.content), "no byte was sent twice"

    run(test)


def test_a_file_that_is_there_already_is_compared_and_not_sent(tmp_path: Path) -> None:
    async def test() -> None:
        wire = Wire(tmp_path)
        (wire.folder / NAME).write_bytes(wire.content)
        assert await wire.send()
        assert wire.whole == wire.folder / NAME and wire.num_bytes == 0
        (wire.folder / NAME).write_bytes(wire.content[::-1])
        await wire.send()
        assert isinstance(wire.error, DamagedFile)

    run(test)


@pytest.mark.parametrize("what", ["a bit", "a part of another file"])
def test_changed_bytes_are_noticed_and_the_file_is_sent_again(tmp_path: Path, what: str) -> None:
    async def test() -> None:
        wire = Wire(tmp_path)
        if what == "a bit":
            wire.change = lambda piece: (
                msgspec.structs.replace(piece, data=piece.data[:-1] + bytes([piece.data[-1] ^ 1]))
                if piece.offset == MAX_PIECE_BYTES
                else piece
            )
        else:
            (wire.folder / f".{NAME}.part").write_bytes(os.urandom(2**20))
        await wire.send()
        assert isinstance(wire.error, DamagedFile)
        assert hashlib.sha256(wire.content).hexdigest() in str(wire.error)
        assert list(wire.folder.iterdir()) == [], "nothing of it is kept"
        wire.change = lambda piece: piece
        assert await wire.send()
        assert (wire.folder / NAME).read_bytes() == wire.content

    run(test)


def test_a_file_is_compared_while_it_comes_and_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_read = 0
    real = os.pread

    def count(descriptor: int, num_bytes: int, at: int) -> bytes:
        nonlocal num_read
        data = real(descriptor, num_bytes, at)
        num_read += len(data)
        return data

    monkeypatch.setattr(os, "pread", count)

    async def test() -> None:
        wire = Wire(tmp_path)
        assert await wire.send()
        assert num_read == len(wire.content), "by the sender"
        assert (wire.folder / NAME).read_bytes() == wire.content

    run(test)


def test_a_file_that_two_machines_send_at_once_is_never_kept_with_bytes_that_were_not_compared(tmp_path: Path) -> None:
    content = os.urandom(6)
    sha256 = hashlib.sha256(content).hexdigest()
    pieces = [piece(offset=at, data=content[at : at + 2], num_bytes=6, sha256=sha256) for at in (0, 2, 4)]
    receiver = PieceReceiver(tmp_path)
    for number in (0, 1, 0, 1):
        assert receiver.take(pieces[number]) is None
    # The other machine sends its first piece once more, so the last one of this machine does not follow.
    assert receiver.take(pieces[0]) is None
    with pytest.raises(DamagedFile, match="is missing"):
        receiver.take(pieces[2])
    assert list(tmp_path.iterdir()) == []
    other = [piece(offset=at, data=b"xx", num_bytes=6, sha256=sha256) for at in (0, 2, 4)]
    for mixed in ((pieces[0], other[1], pieces[2]), (other[0], pieces[1], pieces[2])):
        for each in mixed[:-1]:
            receiver.take(each)
        with pytest.raises(DamagedFile, match="has SHA-256"):
            receiver.take(mixed[-1])
    for each in (other[0], other[1], pieces[0], pieces[1]):
        receiver.take(each)
    assert receiver.take(pieces[2]) == tmp_path / NAME
    assert (tmp_path / NAME).read_bytes() == content


def test_an_empty_file_and_one_that_became_shorter(tmp_path: Path) -> None:
    async def test() -> None:
        wire = Wire(tmp_path, 0)
        assert await wire.send()
        assert (wire.folder / NAME).read_bytes() == b""
        (wire.folder / NAME).unlink()
        (wire.folder / f".{NAME}.part").write_bytes(b"of a longer file")
        assert await wire.send()
        assert (wire.folder / NAME).read_bytes() == b""

    run(test)


def piece(**changed: object) -> FilePiece:
    plain = FilePiece(name=NAME, offset=0, data=b"x", num_bytes=1, sha256=hashlib.sha256(b"x").hexdigest())
    return msgspec.structs.replace(plain, **changed)


@pytest.mark.parametrize(
    "bad",
    [
        piece(name="../step-00000010.legato"),
        piece(name="step-10.legato/x"),
        piece(name=".legato-mark"),
        piece(name="step-" + "1" * 19 + ".legato"),
        piece(offset=1),
        piece(offset=2**62, data=b"", num_bytes=2**62),
        piece(data=b"xy"),
        piece(data=b"", num_bytes=1),
        piece(sha256=""),
        piece(sha256="0" * 64),
    ],
)
def test_pieces_that_do_not_fit_are_refused(tmp_path: Path, bad: FilePiece) -> None:
    folder = tmp_path / "folder"
    with pytest.raises(CheckpointError):
        PieceReceiver(folder).take(bad)
    assert not folder.exists() or list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "message",
    [
        piece(offset=-1),
        piece(num_bytes=-1),
        piece(num_bytes=2**63 - 1),
        piece(data=bytes(MAX_PIECE_BYTES + 1)),
        FileTaken(name=NAME, num_bytes=-1),
        SendCheckpoint(name=NAME, offset=-1),
    ],
)
def test_impossible_numbers_are_refused_before_anything_is_done(message: FilePiece) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_agent_message(encode_agent_frame(message))


def test_a_file_for_which_the_disk_has_no_room_is_refused_at_its_first_byte(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left on device: \d+ bytes are to come, and the disk has \d+"):
        PieceReceiver(tmp_path).take(piece(num_bytes=2**60))
    assert list(tmp_path.iterdir()) == []


def test_old_files_and_parts_that_nothing_continues_are_removed(tmp_path: Path) -> None:
    for name in ("step-1.legato", "step-2.legato", "step-3.legato", "notes"):
        (tmp_path / name).touch()
    for name in ("step-1.legato", "step-4.legato", "step-9.legato"):
        (tmp_path / f".{name}.part").touch()
        (tmp_path / f".{name}.node-1.part").touch()
    PieceReceiver(tmp_path).prune(2, {"step-4.legato"})
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"step-2.legato", "step-3.legato", "notes", ".step-4.legato.part", ".step-4.legato.node-1.part"}


def test_the_window_follows_the_link(tmp_path: Path) -> None:
    """On each link, what is on the way takes about a tenth of a second; on fast ones there is an upper limit."""
    for num_bytes_per_s, low, high in (
        (10**5, 0.0, 0.4),
        (10**6, 0.03, 0.2),
        (12 * 10**6, 0.03, 0.2),
        (10**10, 0, 0.1),
    ):
        window = Window()
        took = []
        for _ in range(200):
            took.append(window.num_bytes / num_bytes_per_s)
            window.note(took[-1])
        assert low <= min(took[100:]) and max(took[100:]) <= high, (num_bytes_per_s, took[-3:])
        assert window.num_bytes <= 4 * 2**20 and 2**14 <= window.piece_bytes <= MAX_PIECE_BYTES
