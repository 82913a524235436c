"""The agent's part of the files that the program writes: fetches earlier ones, and hands over new and changed ones."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from legato.core.agent_messages import (
    AgentEnvelope,
    AgentMessage,
    FetchFile,
    FilesTaken,
    FileTaken,
    OfferedFile,
    WantFiles,
)
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.core.program import ProgramSnapshot
from legato.driver.journal import replace_file
from legato.engines.offers import FileFetcher, FileOffer, explain
from legato.engines.result_files import MAX_BYTES, Listing, Stamp, list_files, place, select, stamp_all
from legato.system.decoding import decode

_BEGIN: Final = "work.json"
_STAGE: Final = "incoming"
_TAKEN_LIMIT_S: Final = 1800.0
"""A driver that asks for nothing for so long, although it is connected, takes no more files."""


class ResultFiles:
    """The files of the program's working directory, if only this machine has that directory.

    Args:
        directory: of the agent.
        program: the file with the program's sources, which an agent writes into the working directory too.
        say: sends a message to the driver; returns False without a connection.

    Attributes:
        root: the working directory. None: its files do not travel.
    """

    def __init__(self, directory: Path, program: Path, say: Callable[[AgentMessage], bool]) -> None:
        self.root: Path | None = None
        self._begin = directory / _BEGIN
        self._program = program
        self._say = say
        self._user: JobUser | None = None
        self._offer = FileOffer(self._say_any)
        self._stage = directory / _STAGE
        self.fetcher = FileFetcher(self._stage, self._say_any)
        self._is_fetching = False
        self._taken: asyncio.Future[int] | None = None
        self._offering: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._is_list_known = False

    def _say_any(self, message: AgentEnvelope) -> bool:
        return self._say(message)  # type: ignore[arg-type]  # both sides use the same messages

    @property
    def work(self) -> str:
        """The working directory, for the driver; "": its files do not travel."""
        return "" if self.root is None else str(self.root)

    def connect_again(self) -> None:
        """Begin the present transfer again on a new connection; the driver asks again for what it wants."""
        self._offer.stop()
        if self._is_fetching and self.fetcher.has_list:
            self.fetcher.ask_again()
        elif self._is_fetching:
            self._say(WantFiles())

    # ------------------------------------------------------------ before the first worker

    async def prepare(self, root: Path, user: JobUser | None, *, has_earlier: bool) -> str | None:
        """Note the content of the working directory; before, fetch the files of earlier attempts.

        Does nothing if an earlier process of the agent has done it.

        Returns:
            What could not be fetched, as a sentence without its period.

        Raises:
            OSError: the agent's folder cannot be written.
        """
        self.root, self._user = root, user
        if self._begin.is_file():
            return None
        told = await self._fetch(root, user) if has_earlier else None
        stamps = await asyncio.to_thread(stamp_all, root, user)
        await asyncio.to_thread(replace_file, self._begin, msgspec.json.encode(stamps))
        return told

    async def _fetch(self, root: Path, user: JobUser | None) -> str | None:
        failed: list[str] = []
        num_failed = 0
        self._is_fetching = True
        try:
            self._say(WantFiles())
            offered = await self.fetcher.fetch_list()
            have = await asyncio.to_thread(stamp_all, root, user)
            wanted = [file for file in offered if file.path not in have or have[file.path].sha256 != file.sha256]
            async with contextlib.aclosing(self.fetcher.fetch_all(wanted, is_urgent=True)) as coming:
                async for file, staged, why_not in coming:
                    reason = why_not if staged is None else await self._place(root, file.path, staged, user)
                    if reason:
                        failed.append(f"{file.path}: {reason}")
            failed += [f"{left.path}: {left.reason}" for left in self.fetcher.left_out]
            num_failed = len(failed) - len(self.fetcher.left_out) + self.fetcher.num_left_out
        except LegatoError as error:
            failed, num_failed = [explain(error)], 1
        finally:
            self._is_fetching = False
            await asyncio.to_thread(self.fetcher.clear)
        if not num_failed:
            return None
        more = f"; and {num_failed - 5} more" if num_failed > 5 else ""
        return (
            f"its workers do not find all files that the program wrote earlier ({'; '.join(failed[:5])}{more}). The "
            "job's own copies stay as they are"
        )

    async def _place(self, root: Path, path: str, staged: Path, user: JobUser | None) -> str:
        try:
            await asyncio.to_thread(place, root, path, staged, user)
        except (LegatoError, OSError) as error:
            return explain(error)
        return ""

    # ------------------------------------------------------------ after the last worker

    async def hand_over(self) -> bool:
        """Offer all new and changed files to the driver, until it has taken them; returns whether none is missing."""
        assert self.root is not None
        self._taken, self._is_list_known = asyncio.get_running_loop().create_future(), False
        self.offer_again()
        with contextlib.suppress(TimeoutError):
            while not self._taken.done():
                self._heard.clear()
                async with asyncio.timeout(_TAKEN_LIMIT_S):
                    await self._heard.wait()
        return self._taken.done() and self._taken.result() == 0

    def offer_again(self) -> None:
        """Send the list of new and changed files; also on a new connection, if the driver may not know it."""
        if self._is_list_known:
            return
        self.stop()
        self._offering = asyncio.create_task(self._offer_changed())

    async def _offer_changed(self) -> None:
        assert self.root is not None
        try:
            before = await asyncio.to_thread(self._read_begin)
            sources = await asyncio.to_thread(self._list_sources)
            listing = await asyncio.to_thread(list_files, self.root, self._user)
        except OSError as error:
            before, sources, listing = {}, set(), Listing()
            listing.leave_out("all files", explain(error))

        def describe(path: str, stamp: Stamp) -> OfferedFile | None:
            base = before[path].sha256 if path in before else ""
            if stamp.sha256 == base or (path, stamp.sha256) in sources:
                return None
            # A driver that has died may have got a version in between.
            return OfferedFile(path, stamp.num_bytes, stamp.sha256, self._offer.sent.get(path, base))

        changed = [path for path, stamp in listing.found.items() if not stamp.is_same(before.get(path))]
        chosen = select(listing, changed, MAX_BYTES)
        await self._offer.offer(self.root, self._user, listing, chosen, describe)

    def _read_begin(self) -> dict[str, Stamp]:
        try:
            return decode(self._begin.read_bytes(), dict[str, Stamp])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def _list_sources(self) -> set[tuple[str, str]]:
        """Return path and SHA-256 of the program's sources, which the driver has."""
        try:
            program = decode(self._program.read_bytes(), ProgramSnapshot)
        except (FileNotFoundError, msgspec.DecodeError):
            return set()
        return {(source.path, hashlib.sha256(source.content).hexdigest()) for source in program.sources}

    def send(self, request: FetchFile) -> None:
        """Send a file in the background."""
        self._heard.set()
        self._is_list_known = True
        self._offer.send(request)

    def note_taken(self, message: FileTaken) -> None:
        """Note what the driver has on its disk."""
        self._heard.set()
        self._offer.note_taken(message)

    def note_end(self, message: FilesTaken) -> None:
        """Note that the driver fetches no more files."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(message.num_missing)
            self._heard.set()

    def stop(self) -> None:
        """Send nothing more."""
        self._offer.stop()
        if self._offering is not None:
            self._offering.cancel()
