"""Brings the files that the program wrote on other machines into the job's folder, and gives machines earlier ones."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from legato.core.agent_messages import (
    AgentRequest,
    CloseJob,
    FetchFile,
    FileGone,
    FilesTaken,
    LeftOut,
    OfferedFile,
    OfferFiles,
    WantFiles,
)
from legato.core.clock import Clock
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.engines.agents_record import NodeRecord
from legato.engines.offers import FileFetcher, FileOffer, explain
from legato.engines.result_files import (
    MAX_EARLIER_BYTES,
    Choice,
    Stamp,
    Standing,
    choose,
    find_sha256,
    list_files,
    place,
    select,
)

_NUM_NAMED: Final = 5
_NOTED_BYTES: Final = 2**25
"""A transfer of so many bytes is announced, because the user may wait for it."""


class ResultFolder(msgspec.Struct, frozen=True):
    """Where the driver keeps the files that the program writes.

    Args:
        path: of the folder; made when the first file comes.
        stage: a folder on the same disk that the job cannot change. Each machine has a folder in it, for files that are
            coming.
        user: the system user who gets the files. None: the user of this process.
    """

    path: Path
    stage: Path
    user: JobUser | None = None

    def clear(self) -> None:
        """Delete what was left in the stage. Blocks."""
        shutil.rmtree(self.stage, ignore_errors=True)


class ResultIntake:
    """The files of one machine.

    Args:
        node: name of the machine.
        folder: where they go.
        say: sends a message to the machine's agent, if it is connected.
        clock: monotonic seconds.

    Attributes:
        fetcher: receives the files.
        offer: of files of earlier attempts.
        asked_at: when the machine last asked for one of these.
    """

    def __init__(
        self, node: str, folder: ResultFolder, say: Callable[[AgentRequest], bool], clock: Clock = time.monotonic
    ) -> None:
        self._node = node
        self._folder = folder
        self._say = say
        self._clock = clock
        self.offer = FileOffer(self._say_any)
        self.fetcher = self._new_fetcher()
        self._offering: asyncio.Task[None] | None = None
        self._taken: FilesTaken | None = None
        self.asked_at = -math.inf

    def _new_fetcher(self) -> FileFetcher:
        return FileFetcher(self._folder.stage / self._node, self._say_any, clock=self._clock)

    def _say_any(self, message: object) -> bool:
        return self._say(message)  # type: ignore[arg-type]  # both sides use the same messages

    def hear(self, message: WantFiles | OfferFiles | FetchFile | FileGone) -> None:
        """Handle what the machine's agent says about files."""
        match message:
            case WantFiles():
                self.asked_at = self._clock()
                self._offer_soon()
            case FetchFile():
                self.asked_at = self._clock()
                self.offer.send(message)
            case OfferFiles():
                self.fetcher.note_offer(message)
            case FileGone():
                self.fetcher.note_gone(message)

    # ------------------------------------------------------------ to the machine

    def _offer_soon(self) -> None:
        """Offer the files of earlier attempts, small ones first."""
        self.stop()
        self._offering = asyncio.create_task(self._offer_earlier())

    async def _offer_earlier(self) -> None:
        def describe(path: str, stamp: Stamp) -> OfferedFile:
            return OfferedFile(path, stamp.num_bytes, stamp.sha256)

        path, user = self._folder.path, self._folder.user
        listing = await asyncio.to_thread(list_files, path, user)
        chosen = await asyncio.to_thread(select, listing, listing.found, MAX_EARLIER_BYTES)
        await self.offer.offer(path, user, listing, chosen, describe)

    def stop(self) -> None:
        """Send nothing more, for example because the connection is lost."""
        self.offer.stop()
        if self._offering is not None:
            self._offering.cancel()

    # ------------------------------------------------------------ from the machine

    @property
    def is_done(self) -> bool:
        """Whether the agent knows that no more of its files are fetched."""
        return self._taken is not None

    def close_request(self, record: NodeRecord) -> CloseJob:
        """Return the request to close the job on the machine, which then offers its files if workers have run there."""
        return CloseJob(takes_results=bool(record.work and record.shifts))

    def continue_closing(self, record: NodeRecord) -> None:
        """Close the job on the machine, also on a new connection."""
        self._say(self.close_request(record))
        if self._taken is not None:
            self._say(self._taken)
        self.fetcher.ask_again()

    def give_up(self) -> None:
        """Let the agent end, and keep its files."""
        self._taken = FilesTaken(num_missing=1)
        self._say(self._taken)

    async def bring(self, standing: Standing, work: str, note: Callable[[str], None], *, is_urgent: bool) -> list[str]:
        """Bring the files, after the agent was asked to close, and tell it the number of those that did not come.

        Args:
            standing: of the machine.
            work: where the files are on the machine, for messages.
            note: called with a sentence about what comes.
            is_urgent: False: workers train meanwhile.

        Returns:
            Warnings, as sentences without their periods.
        """
        brought: list[str] = []
        moved: list[str] = []
        refused: list[str] = []
        failed: list[LeftOut] = []
        num_failed = 0
        try:
            wanted = await self._choose(await self.fetcher.fetch_list(), standing, refused, failed)
            failed += self.fetcher.left_out
            num_failed = len(failed) - len(self.fetcher.left_out) + self.fetcher.num_left_out
            if (total := sum(file.num_bytes for file, _ in wanted)) >= _NOTED_BYTES:
                note(f"bringing {_count(len(wanted))} ({total / 2**20:.0f} MiB) that the program wrote on {self._node}")
            choices = {file.path: choice for file, choice in wanted}
            async with contextlib.aclosing(
                self.fetcher.fetch_all([file for file, _ in wanted], is_urgent=is_urgent)
            ) as coming:
                async for file, staged, why_not in coming:
                    choice = choices[file.path]
                    reason = why_not if staged is None else await self._keep(file, staged, choice, brought, moved)
                    if reason:
                        failed.append(LeftOut(file.path, reason))
                        num_failed += 1
        except LegatoError as error:
            failed.append(LeftOut("all of them", f"its agent sends no list of them that can be used: {explain(error)}"))
            num_failed += 1
        odd, num_odd = self.fetcher.odd, self.fetcher.num_odd
        self._taken = FilesTaken(num_missing=num_failed)
        self._say(self._taken)
        await asyncio.to_thread(self.fetcher.clear)
        self.fetcher = self._new_fetcher()
        if brought:
            note(
                f"brought {_count(len(brought))} that the program wrote on {self._node} into {self._folder.path}: "
                f"{_name(brought)}"
            )
        told = self._warn(moved, refused, failed, num_failed, work)
        if num_odd:
            told.append(
                f"only plain files come: the program made {num_odd} links or other special files on {self._node}, such "
                f"as {_name(odd)}"
            )
        return told

    async def _choose(
        self, offered: Sequence[OfferedFile], standing: Standing, refused: list[str], failed: list[LeftOut]
    ) -> list[tuple[OfferedFile, Choice]]:
        found: list[tuple[OfferedFile, Choice]] = []
        for file in offered:
            try:
                here = await asyncio.to_thread(find_sha256, self._folder.path, file.path, file)
            except (LegatoError, OSError) as error:
                failed.append(LeftOut(file.path, explain(error)))
                continue
            choice = choose(file, here, standing)
            if choice is Choice.REFUSE:
                refused.append(file.path)
            elif choice is not Choice.SAME:
                found.append((file, choice))
        return found

    async def _keep(self, file: OfferedFile, staged: Path, choice: Choice, brought: list[str], moved: list[str]) -> str:
        """Move a file that has come to its place; returns why that failed."""
        keep = f"before-{self._node}" if choice is Choice.DISPLACE else ""
        own = f"from-{self._node}" if choice is Choice.ASIDE else ""
        folder = self._folder
        try:
            at = await asyncio.to_thread(place, folder.path, file.path, staged, folder.user, keep=keep, own=own)
        except (LegatoError, OSError) as error:
            return explain(error)
        brought.append(file.path)
        if at != file.path:
            moved.append(at)
        return ""

    def _warn(
        self, moved: list[str], refused: list[str], failed: list[LeftOut], num_failed: int, work: str
    ) -> list[str]:
        told = []
        if moved:
            told.append(
                f"the job had other versions of {_count(len(moved))} that the program wrote on {self._node}. Both are "
                f"kept; compare them: {_name(moved)}"
            )
        if refused:
            told.append(
                f"{_count(len(refused))} of {self._node} did not come, because the job has other versions from the "
                f"machine of rank 0: {_name(refused)}. Let each rank write files of its own name"
            )
        if num_failed:
            named = "; ".join(f"{each.path}: {each.reason}" for each in failed[:_NUM_NAMED])
            more = f"; and {num_failed - _NUM_NAMED} more" if num_failed > _NUM_NAMED else ""
            told.append(
                f"{_count(num_failed)} that the program wrote on {self._node} did not come ({named}{more}). They stay "
                f"on {self._node} in {work}: copy them from there"
            )
        return told


def _count(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"


def _name(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NUM_NAMED} more" if len(paths) > _NUM_NAMED else ""
    return ", ".join(paths[:_NUM_NAMED]) + more
