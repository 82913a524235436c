"""Objects that a round of the control loop cannot handle and leaves out, so that all others continue. Logs nothing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from legato.control.loop.driver_failures import on_one_line
from legato.core.errors import FencedOut, StoreError


class LeftOut:
    """The jobs, queues and slots that one round leaves as they are.

    Attributes:
        jobs: why, by id.
        queues: why, by name; the jobs of these are in ``jobs`` too.
        slots: why, by id.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.queues: dict[str, str] = {}
        self.slots: dict[str, str] = {}

    def add(self, unreadable: Mapping[tuple[str, str], str]) -> None:
        """Leave out the rows of the store that cannot be read."""
        kinds = {"job": self.jobs, "queue": self.queues, "slot": self.slots}
        for (kind, name), why in unreadable.items():
            kinds[kind][name] = why

    @contextlib.contextmanager
    def unless_fails(self, job: str, what: str) -> Iterator[None]:
        """Do one job's part of a round; if that fails, leave the job out and continue.

        Args:
            job: its id.
            what: which part of the job failed, for the message: ``its state``.

        Raises:
            FencedOut, StoreError: these concern all jobs.
        """
        try:
            yield
        except (FencedOut, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 -- an error in one job's data must not stop the other jobs
            self.jobs[job] = f"{what} cannot be used: {describe(error)}"

    def count(self) -> Counter[str]:
        """Return the number of objects of each kind."""
        return Counter(job=len(self.jobs), queue=len(self.queues), slot=len(self.slots))

    def list_all(self) -> set[tuple[str, str, str]]:
        """Return the kind, the name and the reason of each."""
        kinds = {"job": self.jobs, "queue": self.queues, "slot": self.slots}
        return {(kind, name, why) for kind, found in kinds.items() for name, why in found.items()}


def describe(error: Exception) -> str:
    """Return an error as part of a sentence, with its type, because many messages are unclear without it."""
    return on_one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
