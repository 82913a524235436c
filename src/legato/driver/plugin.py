"""The driver's plugin: code that a job brings along and that runs in its driver's process. Knows no plugin by name.

A plugin hears which workers are there, tells each of them by variables where it is, and keeps what a new driver must
know in a folder of the job's directory. Whether a job has one, and which, its spec says; who has none pays nothing.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from legato.core.errors import UsageError
from legato.core.job_user import JobUser
from legato.core.spec import JobSpec
from legato.driver import events
from legato.driver.job import AWAY, JobFacts

_log = logging.getLogger(__name__)


class Host(Protocol):
    """What a plugin may ask of its driver. Called on the driver's event loop only."""

    @property
    def spec(self) -> JobSpec:
        """The job."""
        ...

    @property
    def directory(self) -> Path:
        """Where the plugin keeps what a new driver must know. A job that starts from scratch gets an empty one."""
        ...

    @property
    def uid(self) -> int:
        """The number of the system's user as whom the job's workers run."""
        ...

    def tell(self, text: str, level: str = "info") -> None:
        """Have something written down as an event of the job; ``level`` is info, warning or error."""
        ...

    def note_work(self, *, is_left: bool, by: int | None = None) -> None:
        """Say whether there is work that only workers can do, and who did some of it just now.

        While there is, the place of a worker that dies is filled also when others have finished. Who does some is
        forgiven the deaths in its slot.
        """
        ...

    def note_taken_up(self, by: int) -> None:
        """Say that a worker has some work in hand: it counts as one that works, though it may never train."""
        ...

    def give_up(self, worker: int, reason: str) -> None:
        """Have a worker killed, and its place filled again; ``reason`` follows "worker N" in the event."""
        ...


class JobPlugin(Protocol):
    """Something that lives in a driver's process. All calls come on the driver's event loop."""

    async def open(self) -> None:
        """Begin, or continue where the plugin of an earlier driver stopped.

        Raises:
            UsageError: it cannot; the job does not start.
        """
        ...

    def variables_of(self, worker: int) -> dict[str, str]:
        """Return the variables of a worker that is about to start; they go before those of the job."""
        ...

    def note_workers(self, workers: frozenset[int]) -> None:
        """Hear which workers are there, all of them: at first, and whenever it changes.

        A worker is there from before it starts until its program has ended or it is given up; its number never comes
        again.
        """
        ...

    def describe_left(self) -> str | None:
        """Say what is left undone at the end of a job; None if nothing is."""
        ...

    async def close(self) -> None:
        """End. Called once, also if the job continues with another driver."""
        ...


MakePlugin = Callable[[Host], JobPlugin]


def load_plugin(spec: JobSpec, host: Host) -> JobPlugin | None:
    """Return the plugin of a job, None if it has none.

    Raises:
        UsageError: there is no such plugin here.
    """
    if spec.guest is None:
        return None
    module, _, function = spec.guest.entry.partition(":")
    try:
        make = cast("MakePlugin", getattr(importlib.import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"Cannot run job '{spec.name}': its plugin {spec.guest.entry} cannot be loaded: {error}. Install what it "
            "needs."
        ) from error
    return make(host)


class PluginHost:
    """The driver's side of a plugin, or of none.

    Args:
        spec: of the job.
        directory: of the plugin.
        feed: takes an event of the membership.
        show: writes an event of the job down.
        user: as whom the job's workers run. None: as the user of this process.
    """

    def __init__(
        self,
        spec: JobSpec,
        directory: Path,
        feed: Callable[[events.Event], None],
        show: Callable[[events.Record], None],
        user: JobUser | None = None,
    ) -> None:
        self._spec = spec
        self._user = user
        self._directory = directory
        self._feed = feed
        self._show = show
        self._workers: frozenset[int] = frozenset()
        self._job: JobFacts | None = None
        self._is_left = False
        self._is_open = False
        self._plugin = load_plugin(spec, self)

    # ------------------------------------------------------------ for the driver

    async def open(self, job: JobFacts) -> None:
        """Let the plugin in."""
        self._job = job
        if self._plugin is not None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            await self._plugin.open()
            self._is_open = True
            self.note(job)

    async def close(self) -> None:
        """Let the plugin go. What goes wrong with that keeps no job from its end."""
        if self._plugin is not None:
            try:
                await self._plugin.close()
            except Exception:  # noqa: BLE001 -- the job is over, or another driver has it
                _log.exception("The plugin of job '%s' failed at its end", self._spec.name)

    def note(self, job: JobFacts) -> None:
        """Tell the plugin who is there, if that has changed."""
        if self._plugin is None or not self._is_open:
            return
        workers = frozenset(worker.number for worker in job.workers.values() if worker.phase not in AWAY)
        if workers != self._workers:
            self._workers = workers
            self._plugin.note_workers(workers)

    def variables_of(self, worker: int) -> dict[str, str]:
        """Return what a worker is to find in its environment."""
        return self._plugin.variables_of(worker) if self._plugin is not None else {}

    def describe_left(self) -> str | None:
        """Say what is left undone; None if nothing is."""
        return self._plugin.describe_left() if self._plugin is not None else None

    # ------------------------------------------------------------ for the plugin

    @property
    def spec(self) -> JobSpec:
        return self._spec

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def uid(self) -> int:
        return os.geteuid() if self._user is None else self._user.uid

    def tell(self, text: str, level: str = "info") -> None:
        """Have something written down as an event of the job."""
        self._show(events.Record(kind="note", reason=text, level=level))

    def note_work(self, *, is_left: bool, by: int | None = None) -> None:
        """Take note of what is left and of who did something."""
        assert self._job is not None
        worker = self._job.workers.get(by) if by is not None else None
        is_forgiven = worker is not None and worker.slot in self._job.deaths
        if is_left != self._is_left or is_forgiven:
            self._is_left = is_left
            self._feed(events.Worked(is_left, by))

    def note_taken_up(self, by: int) -> None:
        """Take note of who has some work in hand."""
        assert self._job is not None
        worker = self._job.workers.get(by)
        if worker is not None and not worker.works:
            self._feed(events.TakenUp(by))

    def give_up(self, worker: int, reason: str) -> None:
        """Have a worker killed."""
        self._feed(events.GivenUp(worker, reason))
