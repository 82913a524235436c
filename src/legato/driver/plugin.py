"""The interface of plugins: code of a compatibility layer that runs in a job's driver. Knows no plugin by name.

The driver tells a plugin which workers exist. The plugin passes its address to each worker in variables, and keeps
state for a new driver in a folder of the job's directory. The job's spec names the plugin, if there is one; a job
without a plugin has no cost.
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
    """The driver's interface for a plugin. Call it on the driver's event loop only."""

    @property
    def spec(self) -> JobSpec:
        """The job."""
        ...

    @property
    def directory(self) -> Path:
        """The folder of the plugin's state for a new driver. It is empty for a job that starts from scratch."""
        ...

    @property
    def uid(self) -> int:
        """The number of the system user of the job's workers."""
        ...

    def slot_of(self, worker: int) -> str | None:
        """Return the slot of a worker; None if there is no such worker."""
        ...

    def tell(self, text: str, level: str = "info") -> None:
        """Record an event of the job; ``level`` is info, warning or error."""
        ...

    def note_work(self, *, is_left: bool, by: int | None = None) -> None:
        """Report whether there is work that only workers can do, and which worker has just done some of it.

        While there is work, a worker that dies is replaced even if others have finished. Work of a worker resets the
        count of deaths in its slot.
        """
        ...

    def note_taken_up(self, by: int) -> None:
        """Report that a worker has begun some work: it then counts as a working one, even if it never trains."""
        ...

    def give_up(self, worker: int, reason: str) -> None:
        """Kill a worker and start another one in its slot; ``reason`` follows "worker N" in the event."""
        ...


class JobPlugin(Protocol):
    """A plugin in a driver's process. The driver makes all calls on its event loop."""

    async def open(self) -> None:
        """Start, or continue from the state of an earlier driver's plugin.

        Raises:
            UsageError: the plugin cannot start; the job then does not start either.
        """
        ...

    def variables_of(self, worker: int) -> dict[str, str]:
        """Return the variables of a worker that is about to start; they override those of the job."""
        ...

    def note_workers(self, workers: frozenset[int]) -> None:
        """Receive the list of all workers that exist, at first and after each change.

        A worker is in the list from before its start until its program has ended or it is given up. Numbers are never
        used again.
        """
        ...

    def describe_left(self) -> str | None:
        """Describe the work that is left at the end of a job; None if there is none."""
        ...

    async def close(self) -> None:
        """Close the plugin. Called once, even if the job continues with another driver."""
        ...


MakePlugin = Callable[[Host], JobPlugin]


def load_plugin(spec: JobSpec, host: Host) -> JobPlugin | None:
    """Return the plugin of a job, None if it has none.

    Raises:
        UsageError: this plugin is not installed.
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
    """The driver's side of a plugin; also used without a plugin.

    Args:
        spec: of the job.
        directory: of the plugin.
        feed: handles an event of the membership.
        show: records an event of the job.
        user: the system user of the job's workers. None: the user of this process.
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
        """Open the plugin."""
        self._job = job
        if self._plugin is not None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            await self._plugin.open()
            self._is_open = True
            self.note(job)

    async def close(self) -> None:
        """Close the plugin. An error does not affect the end of the job."""
        if self._plugin is not None:
            try:
                await self._plugin.close()
            except Exception:  # noqa: BLE001 -- the job is over, or another driver has it
                _log.exception("The plugin of job '%s' failed at its end", self._spec.name)

    def note(self, job: JobFacts) -> None:
        """Send the plugin the list of workers, if it has changed."""
        if self._plugin is None or not self._is_open:
            return
        workers = frozenset(worker.number for worker in job.workers.values() if worker.phase not in AWAY)
        if workers != self._workers:
            self._workers = workers
            self._plugin.note_workers(workers)

    def variables_of(self, worker: int) -> dict[str, str]:
        """Return the plugin's variables for a worker."""
        return self._plugin.variables_of(worker) if self._plugin is not None else {}

    def describe_left(self) -> str | None:
        """Describe the work that is left; None if there is none."""
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

    def slot_of(self, worker: int) -> str | None:
        """Return the slot of a worker; None if there is no such worker."""
        found = self._job.workers.get(worker) if self._job is not None else None
        return found.slot if found is not None else None

    def tell(self, text: str, level: str = "info") -> None:
        """Record an event of the job."""
        self._show(events.Record(kind="note", reason=text, level=level))

    def note_work(self, *, is_left: bool, by: int | None = None) -> None:
        """Handle a report of work; see `Host`."""
        assert self._job is not None
        worker = self._job.workers.get(by) if by is not None else None
        is_forgiven = worker is not None and worker.slot in self._job.deaths
        if is_left != self._is_left or is_forgiven:
            self._is_left = is_left
            self._feed(events.Worked(is_left, by))

    def note_taken_up(self, by: int) -> None:
        """Handle the report that a worker has begun some work."""
        assert self._job is not None
        worker = self._job.workers.get(by)
        if worker is not None and not worker.works:
            self._feed(events.TakenUp(by))

    def give_up(self, worker: int, reason: str) -> None:
        """Kill a worker and start another one in its slot; see `Host`."""
        self._feed(events.GivenUp(worker, reason))
