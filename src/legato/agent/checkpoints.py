"""Checkpoints of a machine that does not share the job's directory: sends what was saved, fetches what is wanted.

A worker that resumes leaves a file ``.wanted-PID`` in the folder, and waits until the agent has written ``.here-PID``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from legato.core import agent_messages as messages
from legato.core.checkpoint_requests import HERE, WANTED, Answer
from legato.core.errors import CheckpointError
from legato.core.job_user import JobUser
from legato.driver.journal import replace_file
from legato.engines.file_pieces import LINK, MAX_TRIES, DamagedFile, PieceReceiver, PieceSender, check_file_name
from legato.system.plain_files import replace_for

_log = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.1


class CheckpointRelay:
    """The agent's part of the transfer of checkpoints.

    Args:
        folder: in which this machine's workers save and look for checkpoints.
        say: sends a message to the driver; returns False without a connection.
    """

    def __init__(self, folder: Path, say: Callable[[messages.AgentMessage], bool]) -> None:
        self.folder = folder
        self._say = say
        self._user: JobUser | None = None
        self._receiver = PieceReceiver(folder)
        self._sender = PieceSender(say)
        self._sending: asyncio.Task[None] | None = None
        self._hastened = ""
        self._asked = False
        self._next: tuple[str, int] | None = None  # of the checkpoint that comes: its name, and the next byte
        self._num_tries = 0

    def serve(self, user: JobUser) -> None:
        """Send only files of a system user, who can write the folder, and give received ones to it."""
        self._user = self._receiver.user = user

    async def watch_forever(self) -> None:
        """Ask the driver for the newest checkpoint when a worker wants it."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            wanted = await asyncio.to_thread(self._list_wanted)
            if wanted and not self._asked:
                self._ask(await asyncio.to_thread(self._receiver.find_begun))

    def _ask(self, begun: str) -> None:
        """Ask for the newest checkpoint; of that of this name, a part or all is here."""
        num_bytes = self._receiver.num_bytes_of(begun) if begun else 0
        self._next = (begun, num_bytes)
        self._asked = self._say(messages.WantCheckpoint(name=begun, num_bytes=num_bytes))

    def begin_again(self) -> None:
        """Drop transfers of a lost connection; the driver asks again for what it wants, and so does the agent."""
        self._asked = False
        if self._sending is not None:
            self._sending.cancel()
        self._sender = PieceSender(self._say)

    def send(self, request: messages.SendCheckpoint) -> None:
        """Send a checkpoint in the background, and nothing more of an earlier one."""
        if self._sending is not None:
            self._sending.cancel()
        self._sending = asyncio.create_task(self._send(request))

    def hasten(self, name: str) -> None:
        """Send the present checkpoint faster."""
        self._hastened = name
        if name == self._sender.name:
            self._sender.is_urgent = True

    def note_taken(self, message: messages.FileTaken) -> None:
        """Note what the driver has on its disk."""
        self._sender.note_taken(message)

    async def take(self, piece: messages.FilePiece) -> None:
        """Write a piece of the checkpoint that a worker waits for."""
        if self._next is None or (piece.offset and not self._expects(piece)):
            return  # it was on its way when this agent asked again
        try:
            whole = await asyncio.to_thread(self._receiver.take, piece)
        except DamagedFile as error:
            _log.warning("The checkpoint %s is fetched again: %s", piece.name, error)
            self._num_tries += 1
            if self._num_tries < MAX_TRIES:
                self._ask("")
            else:
                await self.answer(f"{piece.name} is damaged on its way: {error}")
            return
        except (CheckpointError, OSError) as error:
            await self.answer(f"cannot write {self.folder / piece.name}: {error}")
            return
        end = piece.offset + len(piece.data)
        self._next = (piece.name, end)
        self._say(messages.FileTaken(name=piece.name, num_bytes=end))
        if whole is not None:
            await asyncio.to_thread(self._receiver.clear)
            await self.answer(None)

    def _expects(self, piece: messages.FilePiece) -> bool:
        name, num_bytes = self._next or ("", 0)
        return piece.name == name and piece.offset <= num_bytes

    async def answer(self, error: str | None) -> None:
        """Let all workers that wait go on; ``error``: why the newest checkpoint has not come."""
        self._next, self._num_tries = None, 0
        content = msgspec.json.encode(Answer(error))
        try:
            for wanted in await asyncio.to_thread(self._list_wanted):
                here = self.folder / wanted.name.replace(WANTED, HERE)
                if self._user is None:
                    await asyncio.to_thread(replace_file, here, content)
                else:
                    await asyncio.to_thread(replace_for, here, content, self._user)
                wanted.unlink(missing_ok=True)
        finally:
            self._asked = False  # not before: an answered request would be sent once more

    async def _send(self, request: messages.SendCheckpoint) -> None:
        try:
            path = self._hold(check_file_name(request.name))
            is_urgent = request.is_urgent or request.name == self._hastened
            if await self._sender.send(path, request.offset, self._user, is_urgent=is_urgent):
                self._release("")
        except (CheckpointError, OSError) as error:
            _log.warning("Cannot send the checkpoint %s: %s", request.name, error)
            self._say(messages.CheckpointGone(name=request.name))

    def _hold(self, name: str) -> Path:
        """Return a path of a checkpoint that stays until it is sent: workers delete old checkpoints."""
        path, held = self.folder / name, self.folder / f"{LINK}{name}"
        is_same = held.exists() and (not path.exists() or held.samefile(path))
        self._release(held.name if is_same else "")
        if not is_same:
            try:
                os.link(path, held, follow_symlinks=False)
            except FileNotFoundError:
                raise
            except OSError:
                return path  # no hard links here: a broken transfer may not be able to go on
        return held

    def _release(self, kept: str) -> None:
        for path in self.folder.glob(f"{LINK}*"):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _list_wanted(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return list(self.folder.glob(f"{WANTED}*"))
        return []


def shares_checkpoints(job: messages.OpenJob, user: JobUser | None) -> bool:
    """Return whether this machine sees the driver's directory of checkpoints, and its workers may write there."""
    if not job.mark:
        return True
    folder = Path(job.checkpoints)
    return Path(folder, job.mark).is_file() and (user is None or folder.stat().st_uid == user.uid)
