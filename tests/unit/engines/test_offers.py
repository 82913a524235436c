"""Files between two sides of a connection that breaks, with a program or another side that breaks the rules."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from legato.core.agent_messages import (
    MAX_PIECE_BYTES,
    AgentEnvelope,
    FetchFile,
    FileGone,
    FilePiece,
    FileTaken,
    OfferedFile,
    OfferFiles,
)
from legato.core.errors import LegatoError
from legato.engines import offers
from legato.engines.offers import FileFetcher, FileOffer, StalledTransfer
from legato.engines.result_files import MAX_BYTES, Stamp, list_files

LIMIT_S = 30.0


class Line:
    """A connection between the side that offers and the side that fetches. It may change messages, or lose them."""

    def __init__(self, tmp_path: Path, stall_limit_s: float = 10.0) -> None:
        self.root, self.stage = tmp_path / "work", tmp_path / "incoming"
        self.root.mkdir(exist_ok=True)
        self.offer = FileOffer(self._to_fetcher)
        self.fetcher = FileFetcher(self.stage, self._to_offer, stall_limit_s=stall_limit_s)
        self.waiting: asyncio.Queue[AgentEnvelope] = asyncio.Queue()
        self.on_the_way: Callable[[AgentEnvelope], AgentEnvelope | None] = lambda message: message
        self.num_bytes = 0

    def _to_fetcher(self, message: AgentEnvelope) -> bool:
        self.waiting.put_nowait(message)
        return True

    def _to_offer(self, message: AgentEnvelope) -> None:
        match message:
            case FetchFile():
                self.offer.send(message)
            case FileTaken():
                self.offer.note_taken(message)

    async def carry(self) -> None:
        while True:
            message = self.on_the_way(await self.waiting.get())
            match message:
                case OfferFiles():
                    self.fetcher.note_offer(message)
                case FilePiece():
                    self.num_bytes += len(message.data)
                    await self.fetcher.take(message)
                case FileGone():
                    self.fetcher.note_gone(message)

    def break_off(self) -> None:
        """Lose what is on the way, and connect again."""
        self.offer.stop()
        self.waiting = asyncio.Queue()
        self.fetcher.ask_again()

    async def offer_all(self) -> None:
        listing = list_files(self.root)

        def describe(path: str, stamp: Stamp) -> OfferedFile:
            return OfferedFile(path, stamp.num_bytes, stamp.sha256)

        await self.offer.offer(self.root, None, listing, list(listing.found), describe)

    async def fetch(self) -> dict[str, bytes | str]:
        """Fetch all files; returns contents, or why they did not come."""
        files = await self.fetcher.fetch_list()
        found: dict[str, bytes | str] = {}
        async for file, staged, reason in self.fetcher.fetch_all(files, is_urgent=True):
            found[file.path] = reason if staged is None else staged.read_bytes()
        return found


def run(line: Line, test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        carrying = asyncio.create_task(line.carry())
        try:
            async with asyncio.timeout(LIMIT_S):
                await test()
        finally:
            carrying.cancel()
            line.offer.stop()

    asyncio.run(limited())


def test_all_files_come_also_empty_ones_and_copies(tmp_path: Path) -> None:
    line = Line(tmp_path)
    contents = {"a": b"", "b": b"same", "c": b"same", "d": os.urandom(3 * MAX_PIECE_BYTES + 5)}
    for name, content in contents.items():
        (line.root / name).write_bytes(content)

    async def test() -> None:
        await line.offer_all()
        assert await line.fetch() == contents
        assert set(line.offer.sent) >= {"a", "d"}

    run(line, test)


def test_a_transfer_that_breaks_goes_on_where_it_ended(tmp_path: Path) -> None:
    line = Line(tmp_path)
    content = os.urandom(8 * MAX_PIECE_BYTES)
    (line.root / "model.pt").write_bytes(content)
    broken: list[int] = []

    def break_once(message: AgentEnvelope) -> AgentEnvelope | None:
        if isinstance(message, FilePiece) and message.offset == 5 * MAX_PIECE_BYTES and not broken:
            broken.append(line.num_bytes)
            line.break_off()
            return None
        return message

    line.on_the_way = break_once

    async def test() -> None:
        await line.offer_all()
        assert await line.fetch() == {"model.pt": content}
        assert broken and line.num_bytes == len(content), "no byte came twice"

    run(line, test)


@pytest.mark.parametrize("change", ["grows", "shrinks", "is written again", "becomes a link", "is deleted"])
def test_a_file_that_changes_while_it_is_sent_is_named_and_the_others_come(tmp_path: Path, change: str) -> None:
    line = Line(tmp_path)
    (line.root / "a").write_bytes(b"fine")
    file = line.root / "log"
    file.write_bytes(b"x" * 1000)
    (tmp_path / "secret").write_bytes(b"y" * 1000)

    async def test() -> None:
        await line.offer_all()
        match change:
            case "grows":
                file.write_bytes(b"x" * 1001)
            case "shrinks":
                file.write_bytes(b"x")
            case "is written again":
                file.write_bytes(b"z" * 1000)
            case "becomes a link":
                file.unlink()
                file.symlink_to(tmp_path / "secret")
            case "is deleted":
                file.unlink()
        found = await line.fetch()
        assert found["a"] == b"fine"
        assert isinstance(found["log"], str), "its content is not what was offered"
        wanted = {"becomes a link": "symbolic links", "is deleted": "No such file"}
        assert wanted.get(change, "it changes while it is sent") in found["log"]

    run(line, test)


def test_a_file_that_grows_while_its_pieces_are_on_the_way_comes_as_it_was_offered(tmp_path: Path) -> None:
    line = Line(tmp_path)
    content = os.urandom(4 * MAX_PIECE_BYTES)
    file = line.root / "log"
    file.write_bytes(content)

    def grow(message: AgentEnvelope) -> AgentEnvelope:
        if isinstance(message, FilePiece):
            with file.open("ab") as opened:
                opened.write(b"more")
        return message

    line.on_the_way = grow

    async def test() -> None:
        await line.offer_all()
        assert await line.fetch() == {"log": content}

    run(line, test)


def test_bytes_that_change_on_the_way_are_sent_again_three_times_at_most(tmp_path: Path) -> None:
    line = Line(tmp_path)
    (line.root / "a").write_bytes(b"fine")
    num_pieces = 0

    def spoil(message: AgentEnvelope) -> AgentEnvelope:
        nonlocal num_pieces
        if isinstance(message, FilePiece):
            num_pieces += 1
            return FilePiece(name=message.name, offset=message.offset, data=b"evil", num_bytes=4, sha256=message.sha256)
        return message

    line.on_the_way = spoil

    async def test() -> None:
        await line.offer_all()
        (reason,) = (await line.fetch()).values()
        assert isinstance(reason, str) and "SHA-256" in reason
        assert num_pieces == 3

    run(line, test)


def test_a_side_that_is_silent_is_given_up_and_every_file_is_named(tmp_path: Path) -> None:
    line = Line(tmp_path, stall_limit_s=0.05)
    for name in ("a", "b"):
        (line.root / name).write_bytes(name.encode())
    line.on_the_way = lambda message: None if isinstance(message, FilePiece) else message

    async def test() -> None:
        await line.offer_all()
        assert set((await line.fetch()).values()) == {"nothing has come for 0.05 s"}

    run(line, test)


def test_a_side_that_sends_no_list_or_drips_bytes_is_given_up(tmp_path: Path) -> None:
    now = [0.0]
    line = Line(tmp_path, stall_limit_s=0.05)

    async def test() -> None:
        with pytest.raises(StalledTransfer, match=r"nothing has come for 0\.05 s"):
            await line.fetch()

    run(line, test)

    said: list[FetchFile] = []

    def note(message: AgentEnvelope) -> None:
        if isinstance(message, FetchFile):
            said.append(message)

    async def drip() -> None:
        fetcher = FileFetcher(tmp_path / "s", note, stall_limit_s=0.2, clock=lambda: now[0])
        name = hashlib.sha256(b"x" * 100_000).hexdigest()
        fetcher.note_offer(OfferFiles(files=(OfferedFile("a", 100_000, name),), is_first=True, is_last=True))

        async def send() -> None:
            for at in range(100_000):
                await fetcher.take(FilePiece(name=name, offset=at, data=b"x", num_bytes=100_000))

        sending = asyncio.create_task(send())
        files = await fetcher.fetch_list()
        async with asyncio.timeout(LIMIT_S):
            results = [reason async for _, _, reason in fetcher.fetch_all(files, is_urgent=True)]
        sending.cancel()
        assert results == [f"less than {offers._MIN_BYTES_PER_S} bytes have come in each second"]

    asyncio.run(drip())


def _offer(count: int, num_bytes: int = 1) -> OfferFiles:
    return OfferFiles(files=tuple(OfferedFile(f"f{i}", num_bytes, "a" * 64) for i in range(count)), is_last=True)


@pytest.mark.parametrize("offer", [_offer(4), _offer(1, MAX_BYTES + 1)], ids=["files", "bytes"])
def test_a_list_beyond_the_limits_is_refused(
    tmp_path: Path, offer: OfferFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "MAX_FILES", 3)
    line = Line(tmp_path)

    async def test() -> None:
        line.fetcher.note_offer(offer)
        with pytest.raises(LegatoError, match="are offered"):
            await line.fetch()

    run(line, test)


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil"])
def test_a_path_out_of_the_folder_is_never_fetched(tmp_path: Path, path: str) -> None:
    line = Line(tmp_path)
    asked: list[AgentEnvelope] = []

    async def test() -> None:
        line.fetcher._say = asked.append
        line.fetcher.note_offer(OfferFiles(files=(OfferedFile(path, 1, "a" * 64),), is_last=True))
        assert await line.fetch() == {path: "it is not below the working directory"}
        assert asked == []

    run(line, test)


def test_a_piece_of_another_size_than_offered_is_refused(tmp_path: Path) -> None:
    line = Line(tmp_path)
    (line.root / "a").write_bytes(b"four")

    def enlarge(message: AgentEnvelope) -> AgentEnvelope:
        if isinstance(message, FilePiece):
            return FilePiece(name=message.name, offset=0, data=b"x" * 100, num_bytes=2**40)
        return message

    line.on_the_way = enlarge

    async def test() -> None:
        await line.offer_all()
        (reason,) = (await line.fetch()).values()
        assert isinstance(reason, str) and "it changes while it is sent" in reason
        assert not list(line.stage.glob("*")), "nothing of it is left"

    run(line, test)
