"""Checkpoints of a machine that does not share the job's directory: sends what was saved, fetches what is wanted.

A worker that resumes leaves a file ``.wanted-PID`` in the folder, and waits until the agent has written ``.here-PID``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from legato.core import agent_messages as messages
from legato.core.checkpoint_requests import HERE, WANTED, Answer
from legato.core.errors import CheckpointError
from legato.core.job_user import JobUser
from legato.driver.journal import replace_file
from legato.engines.file_pieces import PieceReceiver, PieceSender, check_file_name
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
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._partial = ""
        self._asked = False

    def serve(self, user: JobUser) -> None:
        """Send only files of a system user, who can write the folder, and give received ones to it."""
        self._user = self._receiver.user = user

    async def watch_forever(self) -> None:
        """Ask the driver for the newest checkpoint when a worker wants it."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            wanted = await asyncio.to_thread(self._list_wanted)
            if wanted and not self._asked:
                num_bytes = self._receiver.num_bytes_of(self._partial) if self._partial else 0
                self._asked = self._say(messages.WantCheckpoint(name=self._partial, num_bytes=num_bytes))

    def begin_again(self) -> None:
        """Drop transfers of a lost connection; the driver asks again for what it wants, and so does the agent."""
        self._asked = False
        for task in self._sending.values():
            task.cancel()
        self._sending.clear()
        self._sender = PieceSender(self._say)

    def send(self, request: messages.SendCheckpoint) -> None:
        """Send a checkpoint in the background."""
        if request.name not in self._sending:
            self._sending[request.name] = asyncio.create_task(self._send(request))

    def note_taken(self, message: messages.FileTaken) -> None:
        """Note what the driver has on its disk."""
        self._sender.note_taken(message)

    async def take(self, piece: messages.FilePiece) -> None:
        """Write a piece of the checkpoint that a worker waits for."""
        try:
            self._partial = check_file_name(piece.name)
            whole = await asyncio.to_thread(self._receiver.take, piece)
        except (CheckpointError, OSError) as error:
            _log.warning("Cannot write the checkpoint %s: %s", piece.name, error)
            await self.answer(f"cannot write {self.folder / piece.name}: {error}")
            return
        self._say(messages.FileTaken(name=piece.name, num_bytes=piece.offset + len(piece.data)))
        if whole is not None:
            self._partial = ""
            await self.answer(None)

    async def answer(self, error: str | None) -> None:
        """Let all workers that wait go on; ``error``: why the newest checkpoint has not come."""
        self._asked = False
        content = msgspec.json.encode(Answer(error))
        for wanted in await asyncio.to_thread(self._list_wanted):
            here = self.folder / wanted.name.replace(WANTED, HERE)
            if self._user is None:
                await asyncio.to_thread(replace_file, here, content)
            else:
                await asyncio.to_thread(replace_for, here, content, self._user)
            wanted.unlink(missing_ok=True)

    async def _send(self, request: messages.SendCheckpoint) -> None:
        try:
            path = self.folder / check_file_name(request.name)
            await self._sender.send(path, request.offset, self._user)
        except (CheckpointError, OSError) as error:
            _log.warning("Cannot send the checkpoint %s: %s", request.name, error)
            self._say(messages.CheckpointGone(name=request.name))
        finally:
            self._sending.pop(request.name, None)

    def _list_wanted(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return list(self.folder.glob(f"{WANTED}*"))
        return []
