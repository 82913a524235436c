"""Lets the workers of a gang find one another: their number, their order and their addresses.

Programs of ``torch.distributed`` and ``tf.distribute`` need these before they begin. Each worker reserves a port,
writes its address into a directory of its job, and waits for all addresses; ranks follow the numbers of the workers. A
gang exists as a whole or not at all: there is one directory for each attempt of the job, and a worker that replaces a
lost one finds more addresses than there are ranks, and ends the attempt. A gang also ends as a whole: a worker leaves
when the programs of all workers have ended. Knows nothing of what is computed.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from legato.core.errors import LegatoError, UsageError

MEETING_LIMIT_S: Final = 300.0
"""How long a worker waits for the others; all are started at the same time."""

_POLL_S: Final = 0.02
_COME: Final = re.compile(r"come-([0-9]+)")


class Seat(NamedTuple):
    """A worker's rank in its gang, and all addresses.

    Args:
        rank: from 0 to the number of workers less 1.
        addresses: ``host:port`` of each rank.
    """

    rank: int
    addresses: tuple[str, ...]


class Gang:
    """A gang, from the view of one of its workers.

    Args:
        directory: of the gang, the same one for all of its workers and for no others.
        worker: number of this worker.
        num_workers: number of workers of the gang.
        limit_s: how long a worker waits for the others at the beginning, in seconds.
        clock: returns monotonic seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        directory: Path,
        worker: int,
        num_workers: int,
        *,
        limit_s: float = MEETING_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._worker = worker
        self._num_workers = num_workers
        self._limit_s = limit_s
        self._clock = clock
        self._sleep = sleep

    def meet(self, address: str) -> Seat:
        """Publish this worker's address, and wait for the addresses of all workers.

        Args:
            address: ``host:port``.

        Raises:
            LegatoError: a worker is gone, or did not publish its address in time.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write(f"come-{self._worker}", address)
        until = self._clock() + self._limit_s
        while len(found := self._find()) < self._num_workers:
            if self._clock() >= until:
                raise LegatoError(
                    f"Only {len(found)} of the {self._num_workers} workers of this job came within {self._limit_s:g} s "
                    f"(workers {', '.join(map(str, found))}). Check the logs of the others, and submit it again."
                )
            self._sleep(_POLL_S)
        if len(found) > self._num_workers:
            raise LegatoError(
                f"A worker of this job is gone, and worker {found[-1]} has come in its place. But the program is "
                f"not elastic: its {self._num_workers} workers begin together or not at all, so the job ends here. The "
                "events of the job say how the worker was lost. Submit the job again; to continue where it was, the "
                "program must save its own state."
            )
        addresses = [(self._directory / f"come-{number}").read_text() for number in found]
        return Seat(found.index(self._worker), tuple(addresses))

    def part(self) -> None:
        """Report that the program has ended on this worker, and wait until it has ended on all workers.

        If the program still fails on another worker, the job fails. If another worker is lost, its replacement ends the
        job, and so this wait.
        """
        self._write(f"gone-{self._worker}", "")
        while sum(1 for _ in self._directory.glob("gone-*")) < self._num_workers:
            self._sleep(_POLL_S)

    def _find(self) -> list[int]:
        found = (_COME.fullmatch(path.name) for path in self._directory.iterdir())
        return sorted(int(one[1]) for one in found if one is not None)

    def _write(self, name: str, content: str) -> None:
        scratch = self._directory / f".{name}"
        scratch.write_text(content)
        scratch.replace(self._directory / name)


def name_attempt(driver_file: Path) -> str:
    """Return a name for the present attempt of a job, the same for all its workers and for no other attempt.

    Args:
        driver_file: the file that ``LEGATO_DRIVER_FILE`` names. It holds the name of the attempt, which a driver that
            adopts the attempt keeps; a file of an earlier release holds a token instead.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        said = json.loads(driver_file.read_text())
        if "attempt" in said:
            return str(said["attempt"])
        token: str = said["token"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"Cannot tell which job this is: {driver_file} cannot be read ({error}).") from error
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def reserve_port() -> socket.socket:
    """Return a socket bound to a free port of this machine, on which no process listens yet.

    While the socket is open, the system does not give the port to a process that asks for any free port. A server of
    torch or TensorFlow that asks for this port gets it, because these servers also allow the reuse of addresses.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held


def variables_of_seat(seat: Seat) -> dict[str, str]:
    """Return the environment variables by which programs find their gang, as torchrun sets them.

    Each worker is a node with one device: it sees no other device.

    >>> found = variables_of_seat(Seat(1, ("127.0.0.1:4000", "127.0.0.1:4001")))
    >>> found["RANK"], found["WORLD_SIZE"], found["MASTER_PORT"]
    ('1', '2', '4000')
    """
    host, _, port = seat.addresses[0].rpartition(":")
    return {
        "RANK": str(seat.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(seat.addresses)),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
