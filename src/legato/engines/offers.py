"""One side offers files of a working directory, the other fetches them one by one. Both sides limit what they accept.

An agent offers what the program wrote when the job leaves its machine; a driver offers what earlier attempts wrote. A
file has the SHA-256 of its content as its name on the way, so a transfer that breaks goes on where it ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Final

from legato.core.agent_messages import (
    MAX_OFFERED,
    AgentEnvelope,
    FetchFile,
    FileGone,
    FilePiece,
    FileTaken,
    LeftOut,
    OfferedFile,
    OfferFiles,
)
from legato.core.clock import Clock
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.engines.file_pieces import CONTENT, MAX_TRIES, DamagedFile, PieceReceiver, PieceSender
from legato.engines.result_files import MAX_BYTES, MAX_FILES, Listing, Stamp, open_file, split, stamp

_log = logging.getLogger(__name__)

STALL_LIMIT_S: Final = 60.0
"""A transfer without progress for this long is given up."""

_LIST_LIMIT_S: Final = 1200.0
_FILE_LIMIT_S: Final = 1.0
_MIN_BYTES_PER_S: Final = 2**16
_MAX_PARTS: Final = 1000
_OFFER_EVERY_S: Final = 5.0


class StalledTransfer(LegatoError):
    """The other side sends nothing more, or too slowly."""


class FileOffer:
    """The side that has the files.

    Args:
        say: sends a message; returns False without a connection.

    Attributes:
        sent: path → SHA-256 of the version that the other side has got last.
    """

    def __init__(self, say: Callable[[AgentEnvelope], bool]) -> None:
        self.sent: dict[str, str] = {}
        self._say = say
        self._root = Path()
        self._user: JobUser | None = None
        self._offered: dict[str, OfferedFile] = {}
        self._sender = PieceSender(say)
        self._sending: asyncio.Task[None] | None = None

    async def offer(
        self,
        root: Path,
        user: JobUser | None,
        listing: Listing,
        paths: Sequence[str],
        known: Callable[[str, Stamp], OfferedFile | None],
    ) -> None:
        """Send the list of files. Reads them to compute their SHA-256.

        Args:
            root: the working directory.
            user: the system user whose files may travel. None: any.
            listing: of the working directory.
            paths: of the files to offer.
            known: returns what is offered of a file, None if that is not offered.
        """
        self._root, self._user = root, user
        part: list[OfferedFile] = []
        is_first = True
        for path in paths:
            reading = asyncio.create_task(asyncio.to_thread(stamp, root, path, user))
            # Also while a large file is read, the other side must see that this one works.
            while not (await asyncio.wait([reading], timeout=_OFFER_EVERY_S))[0]:
                self._say(OfferFiles(files=tuple(part), is_first=is_first))
                part, is_first = [], False
            try:
                found = known(path, await reading)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except (LegatoError, OSError) as error:
                listing.leave_out(path, explain(error))
                continue
            if found is not None:
                self._offered[found.sha256] = found
                part.append(found)
            if len(part) == MAX_OFFERED:
                self._say(OfferFiles(files=tuple(part), is_first=is_first))
                part, is_first = [], False
        self._say(
            OfferFiles(
                files=tuple(part),
                left_out=tuple(listing.left_out),
                num_left_out=listing.num_left_out,
                odd=tuple(listing.odd),
                num_odd=listing.num_odd,
                is_first=is_first,
                is_last=True,
            )
        )

    def send(self, request: FetchFile) -> None:
        """Send a file in the background, and nothing more of an earlier one."""
        self.stop()
        self._sending = asyncio.create_task(self._send(request))

    def note_taken(self, message: FileTaken) -> None:
        """Note what the other side has on its disk."""
        self._sender.note_taken(message)

    def stop(self) -> None:
        """Send nothing more of the present file, for example because the connection is lost."""
        if self._sending is not None:
            self._sending.cancel()
        self._sender = PieceSender(self._say)

    async def _send(self, request: FetchFile) -> None:
        offered = self._offered.get(request.name)
        try:
            if offered is None:
                raise LegatoError("it is not offered any more")
            descriptor = await asyncio.to_thread(open_file, self._root, offered.path, self._user)
            if os.fstat(descriptor).st_size != offered.num_bytes:
                os.close(descriptor)
                raise LegatoError("it changes while it is sent, so a process of the program may still run")
            if await self._sender.send_opened(descriptor, request.name, request.offset, is_urgent=request.is_urgent):
                self.sent[offered.path] = offered.sha256
        except (LegatoError, OSError) as error:
            self._say(FileGone(name=request.name, reason=explain(error)))


class FileFetcher:
    """The side that fetches the files into a folder, which the program cannot change.

    Args:
        stage: the folder; made when the first file comes.
        say: sends a message; its result is not used.
        stall_limit_s: without progress for this long, a transfer is given up.
        clock: monotonic seconds.

    Attributes:
        left_out: the first files that the other side could not offer, with the reasons.
        num_left_out: of all these files.
        odd: the first paths at which the other side has no plain file.
        num_odd: of all these.
    """

    def __init__(
        self,
        stage: Path,
        say: Callable[[AgentEnvelope], object],
        *,
        stall_limit_s: float = STALL_LIMIT_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._stage = stage
        self._receiver = PieceReceiver(stage, names=CONTENT)
        self._say = say
        self._stall_limit_s = stall_limit_s
        self._clock = clock
        self._files: dict[str, OfferedFile] = {}
        self._num_parts = 0
        self._total = 0
        self._is_whole = False
        self._error: LegatoError | None = None
        self._present: OfferedFile | None = None
        self._is_urgent = True
        self._next = 0
        self._num_tries = 0
        self._here: Path | None = None
        self._progress = asyncio.Event()
        self.left_out: tuple[LeftOut, ...] = ()
        self.num_left_out = 0
        self.odd: tuple[str, ...] = ()
        self.num_odd = 0

    @property
    def has_list(self) -> bool:
        """Whether the list of files is complete."""
        return self._is_whole

    # ------------------------------------------------------------ what the other side says

    def note_offer(self, offer: OfferFiles) -> None:
        """Note a part of the list. A list beyond the limits is refused as a whole."""
        if offer.is_first:
            self._files, self._total, self._is_whole = {}, 0, False
        self._num_parts += 1
        for file in offer.files:
            self._files[file.path] = file
            self._total += file.num_bytes
        if len(self._files) > MAX_FILES or self._total > MAX_BYTES or self._num_parts > _MAX_PARTS:
            self._fail(f"more than {MAX_FILES} files or {MAX_BYTES} bytes are offered")
        self.left_out, self.num_left_out = offer.left_out, offer.num_left_out
        self.odd, self.num_odd = offer.odd, offer.num_odd
        self._is_whole = offer.is_last
        self._progress.set()

    async def take(self, piece: FilePiece) -> None:
        """Write a piece of the present file; others were on their way when the transfer was begun again."""
        file = self._present
        if file is None or piece.name != file.sha256 or piece.offset > self._next or self._here is not None:
            return
        try:
            if piece.num_bytes != file.num_bytes or (piece.sha256 and piece.sha256 != file.sha256):
                raise LegatoError("it changes while it is sent, so a process of the program may still run")
            whole = await asyncio.to_thread(self._receiver.take, piece)
        except DamagedFile as error:
            self._num_tries += 1
            _log.warning("The transfer of %s begins again: %s", file.path, error)
            if self._num_tries < MAX_TRIES:
                self._ask(from_start=True)
            else:
                self._fail(explain(error))
            return
        except (LegatoError, OSError) as error:
            self._fail(explain(error))
            return
        self._next = piece.offset + len(piece.data)
        self._say(FileTaken(name=piece.name, num_bytes=self._next))
        self._here = whole
        if piece.data or whole is not None:
            self._progress.set()

    def note_gone(self, message: FileGone) -> None:
        """Note that the other side cannot send the present file."""
        if self._present is not None and message.name == self._present.sha256:
            self._fail(message.reason)

    def ask_again(self) -> None:
        """Ask for the rest of the present file, because the connection is new."""
        if self._present is not None and self._here is None:
            self._ask()

    # ------------------------------------------------------------ what this side wants

    async def fetch_list(self) -> tuple[OfferedFile, ...]:
        """Return the list of files when it is complete.

        Raises:
            StalledTransfer: it does not come.
            LegatoError: it is beyond the limits.
        """
        try:
            async with asyncio.timeout(_LIST_LIMIT_S):
                await self._await(lambda: self._is_whole)
        except TimeoutError as error:
            raise StalledTransfer(f"the list of files is not complete after {_LIST_LIMIT_S:g} s") from error
        return tuple(self._files.values())

    async def fetch_all(
        self, files: Sequence[OfferedFile], *, is_urgent: bool
    ) -> AsyncGenerator[tuple[OfferedFile, Path | None, str], None]:
        """Fetch files, and yield each with its path in the stage, or None and why it did not come.

        Args:
            files: of the list.
            is_urgent: False: workers train meanwhile.
        """
        total = sum(file.num_bytes for file in files)
        ends_at = self._clock() + self._stall_limit_s + total / _MIN_BYTES_PER_S + _FILE_LIMIT_S * len(files)
        stalled = ""
        for file in files:
            path, reason = None, stalled
            if not stalled:
                try:
                    split(file.path)
                    path = await self._fetch(file, ends_at, is_urgent=is_urgent)
                except StalledTransfer as error:
                    # The other files of this machine would not come either.
                    reason = stalled = explain(error)
                except LegatoError as error:
                    reason = explain(error)
            yield file, path, reason
        self._present = None

    def clear(self) -> None:
        """Delete what was left in the stage. Blocks."""
        shutil.rmtree(self._stage, ignore_errors=True)

    async def _fetch(self, file: OfferedFile, ends_at: float, *, is_urgent: bool) -> Path:
        self._is_urgent = is_urgent
        self._begin(file)
        try:
            async with asyncio.timeout(max(ends_at - self._clock(), 0.0)):
                await self._await(lambda: self._here is not None)
        except TimeoutError as error:
            raise StalledTransfer(f"less than {_MIN_BYTES_PER_S} bytes have come in each second") from error
        finally:
            self._present = None
        assert self._here is not None
        return self._here

    def _begin(self, file: OfferedFile) -> None:
        self._present, self._here, self._error, self._num_tries = file, None, None, 0
        self._ask()

    def _ask(self, *, from_start: bool = False) -> None:
        assert self._present is not None
        self._next = 0 if from_start else self._receiver.num_bytes_of(self._present.sha256)
        self._say(FetchFile(name=self._present.sha256, offset=self._next, is_urgent=self._is_urgent))

    def _fail(self, reason: str) -> None:
        self._error = LegatoError(reason)
        self._progress.set()

    async def _await(self, is_done: Callable[[], bool]) -> None:
        while True:
            if self._error is not None:
                raise self._error
            if is_done():
                return
            self._progress.clear()
            try:
                async with asyncio.timeout(self._stall_limit_s):
                    await self._progress.wait()
            except TimeoutError as error:
                raise StalledTransfer(f"nothing has come for {self._stall_limit_s:g} s") from error


def explain(error: LegatoError | OSError) -> str:
    """Return the reason of an error as a clause without its period, short enough for a message."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told.rstrip(".")[:1000]
