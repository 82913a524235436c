"""The checkpoints that one machine sends to the driver: one at a time, and of those that wait only the newest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from legato.core.agent_messages import AgentRequest, FilePiece, FileTaken, HastenCheckpoint, SendCheckpoint
from legato.core.clock import Clock
from legato.core.errors import CheckpointError, LegatoError
from legato.engines.file_pieces import MAX_TRIES, DamagedFile, PieceReceiver

_log = logging.getLogger(__name__)

STALL_LIMIT_S: Final = 300.0
"""A transfer without progress for this long is begun again."""


class NewerCheckpoint(LegatoError):
    """A checkpoint does not come, because a newer one was saved before its turn."""


class Transfer:
    """One checkpoint on its way.

    Args:
        name: of the file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrival: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.next = 0
        self.num_tries = 0
        self.is_urgent = False
        self.progressed_at = 0.0

    def expects(self, piece: FilePiece) -> bool:
        """Return whether this piece may be written. Others were on their way when the transfer was begun again."""
        return piece.name == self.name and piece.offset <= self.next

    def fail(self, error: LegatoError) -> None:
        """Let what waits for the checkpoint go on without it."""
        if not self.arrival.done():
            self.arrival.set_exception(error)
            self.arrival.exception()  # it is no mistake if nothing waits for it


class Incoming:
    """The checkpoints of one machine: the present transfer, and the next.

    Args:
        node: name of the machine.
        receiver: writes the files.
        keep: how many checkpoints are kept.
        ask: sends a request to the machine's agent, if it is connected and open.
        list_coming: returns the names of the files that come from all machines.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        node: str,
        receiver: PieceReceiver,
        keep: int,
        ask: Callable[[AgentRequest], None],
        list_coming: Callable[[], Collection[str]],
        clock: Clock,
    ) -> None:
        self._node = node
        self._receiver = receiver
        self._keep = keep
        self._ask = ask
        self._list_coming = list_coming
        self._clock = clock
        self._present: Transfer | None = None
        self._following: Transfer | None = None
        self._is_writing = False

    @property
    def names(self) -> list[str]:
        """Of the files that are coming."""
        return [each.name for each in (self._present, self._following) if each is not None]

    def add(self, name: str) -> asyncio.Future[str]:
        """Return the arrival of a checkpoint: its path. It comes now if no other one does, else after that."""
        for known in (self._present, self._following):
            if known is not None and known.name == name:
                return known.arrival
        added = Transfer(name)
        if self._present is None:
            self._present = added
            self.ask()
        else:
            if self._following is not None:
                self._following.fail(NewerCheckpoint("a newer one was saved before its transfer could begin"))
            self._following = added
        return added.arrival

    def ask(self, *, from_start: bool = False) -> None:
        """Ask for the present checkpoint, from the first byte on that is not here; also on each new connection."""
        transfer = self._present
        if transfer is not None:
            transfer.next = 0 if from_start else self._receiver.num_bytes_of(transfer.name)
            transfer.progressed_at = self._clock()
            self._ask(SendCheckpoint(name=transfer.name, offset=transfer.next, is_urgent=transfer.is_urgent))

    def hasten(self) -> None:
        """Bring all as fast as the network allows."""
        if self._following is not None:
            self._following.is_urgent = True
        if self._present is not None and not self._present.is_urgent:
            self._present.is_urgent = True
            self._ask(HastenCheckpoint(name=self._present.name))

    async def take(self, piece: FilePiece) -> None:
        """Write a piece of the present checkpoint; others are ignored."""
        transfer = self._present
        if transfer is None or not transfer.expects(piece):
            return
        self._is_writing = True
        try:
            whole = await asyncio.to_thread(self._receiver.take, piece)
            if whole is not None:
                await asyncio.to_thread(self._prune, self._list_coming())
        except DamagedFile as error:
            self._try_again(transfer, str(error))
            return
        except (CheckpointError, OSError) as error:
            transfer.fail(LegatoError(f"it cannot be kept: {error}"))
            self._end(transfer)
            return
        finally:
            self._is_writing = False
            transfer.progressed_at = self._clock()
        if transfer is not self._present:
            return  # it was given up meanwhile
        transfer.next = piece.offset + len(piece.data)
        self._ask(FileTaken(name=piece.name, num_bytes=transfer.next))
        if whole is not None:
            transfer.arrival.set_result(str(whole))
            self._end(transfer)

    def _prune(self, coming: Collection[str]) -> None:
        try:
            self._receiver.prune(self._keep, coming)
        except OSError as error:
            _log.warning("Cannot delete old checkpoints, which is tried again with the next one: %s", error)

    def note_gone(self, name: str) -> None:
        """The machine has no such checkpoint any more."""
        if self._present is not None and self._present.name == name:
            self._present.fail(LegatoError(f"the machine {self._node} does not have it any more"))
            self._end(self._present)

    def check_progress(self, now: float) -> None:
        """Begin again if nothing has come for too long, although the agent is connected and this disk is not slow."""
        is_stalled = self._present is not None and now - self._present.progressed_at > STALL_LIMIT_S
        if self._present is not None and is_stalled and not self._is_writing:
            self._try_again(self._present, f"no byte has come for {STALL_LIMIT_S:g} s")

    def fail_all(self, reason: str) -> None:
        """Give up all transfers."""
        for transfer in (self._present, self._following):
            if transfer is not None:
                transfer.fail(LegatoError(reason))
        self._present = self._following = None

    def _try_again(self, transfer: Transfer, reason: str) -> None:
        if transfer is not self._present:
            return
        _log.warning("The transfer of %s from %s begins again: %s", transfer.name, self._node, reason)
        transfer.num_tries += 1
        if transfer.num_tries < MAX_TRIES:
            self.ask(from_start=True)
        else:
            transfer.fail(LegatoError(f"it does not come from {self._node}: {reason.rstrip('.')}"))
            self._end(transfer)

    def _end(self, transfer: Transfer) -> None:
        if transfer is self._present:
            self._present, self._following = self._following, None
            self.ask()
