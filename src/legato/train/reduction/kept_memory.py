"""The memory that this process shares, used in one view after the other.

New memory costs time before the next step: the system fills it with zeros. Used memory must not be used by a process of
an earlier view any more; ``docs/design/0026-memory-of-earlier-views.md`` says why it is not. Knows nothing of its
content.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Collection
from typing import Final

from legato.train.reduction.segments import Segment

# A killed process takes a few hundredths of a second to end, and longer if it has much memory. To make new memory takes
# longer, too.
_END_LIMIT_MS: Final = 50
_BYTES_PER_MS: Final = 10**6
_MOST_TIMES: Final = 2
"""So much larger can the memory become, or a later view's need be smaller; otherwise it is not kept."""


class KeptMemory:
    """This process's segment, the workers that may have mapped it, and the segments of its peers."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        # A descriptor of each worker's process, by which the system says that it has ended; None: none is known.
        self._users: dict[int, int | None] = {}
        self._of_peers: dict[int, Segment] = {}
        self._lock = threading.Lock()

    def take(self, num_bytes: int, peers: Collection[int], later_bytes: int = 0) -> Segment:
        """Return a segment for a view.

        Used memory is returned only if each worker that may have mapped it is a member of this view, or its process
        has ended.

        Args:
            num_bytes: the size that is needed.
            peers: the other members of the view, by their numbers.
            later_bytes: the size that a later view may need at once. The first memory of a process, for which no step
                waits, has it.

        Raises:
            OSError: there is not enough memory, or this system is not Linux.
        """
        with self._lock:
            found, most_bytes = self._segment, max(num_bytes, later_bytes)
            if found is None:
                num_bytes = most_bytes
            is_used = (
                found is not None
                and found.num_bytes <= _MOST_TIMES * most_bytes
                and num_bytes <= found.room_bytes
                and self._have_others_ended(peers, num_bytes)
            )
            if found is None or not is_used:
                self._drop()
                found = self._segment = Segment(num_bytes, room_bytes=_MOST_TIMES * most_bytes)
            found.grow(num_bytes)
            # Before any of them can know the address.
            self._users = dict.fromkeys(peers) | self._users
            self._of_peers = {worker: segment for worker, segment in self._of_peers.items() if worker in peers}
            return found

    def find(self, worker: int, address: str, num_bytes: int) -> Segment:
        """Return the segment of a peer, which is mapped once.

        Args:
            worker: the peer's number.
            address: of its segment.
            num_bytes: the size that is needed.

        Raises:
            StrangeSegment: the address leads to memory that is not that peer's.
            OSError: the segment cannot be mapped.
        """
        with self._lock:
            found = self._of_peers.get(worker)
            if found is None or found.address != address:
                # The memory has the mark in the address, so the process with the number in the address lives.
                found = self._of_peers[worker] = Segment(num_bytes, address)
            found.grow(num_bytes)
            if worker in self._users and self._users[worker] is None:
                self._users[worker] = _open_process(int(address.split("/")[2]))
            return found

    def drop(self) -> None:
        """Keep nothing; the memory goes with the last exchange that uses it."""
        with self._lock:
            self._drop()

    def file_descriptors(self) -> list[int]:
        """Return the descriptors that child processes must close."""
        with self._lock:
            processes = [descriptor for descriptor in self._users.values() if descriptor is not None]
            return [*processes, *(self._segment.file_descriptors() if self._segment is not None else [])]

    def _have_others_ended(self, peers: Collection[int], num_bytes: int) -> bool:
        for worker, process in list(self._users.items()):
            if worker in peers:
                continue
            if process is None or not _has_ended(process, _END_LIMIT_MS + num_bytes // _BYTES_PER_MS):
                return False
            os.close(process)
            del self._users[worker]
        return True

    def _drop(self) -> None:
        for process in self._users.values():
            if process is not None:
                os.close(process)
        self._users = {}
        self._of_peers = {}
        self._segment = None


def _open_process(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # it has ended, or the system or Python is too old
        return None


def _has_ended(process: int, limit_ms: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(limit_ms))
