"""A job of the platform for Python programs: reads it, waits for it and changes it, through the server."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from legato.api.jobs import (
    ENDED,
    STAGES,
    Allocation,
    Attempt,
    Event,
    Explanation,
    JobRecord,
    Progress,
    Spec,
    TrainingEvent,
)
from legato.api.lists import Page
from legato.api.outputs import Checkpoint, File, Metrics, SystemSeries
from legato.client.connection import Line, PerhapsDone
from legato.client.dataframes import make_frame
from legato.client.downloads import download, download_code, list_files
from legato.client.html import render_job, render_jobs
from legato.client.lists import Listing
from legato.client.logs import (
    DRIVER,
    FoundLine,
    LogLine,
    LogPlace,
    follow_logs,
    name_log,
    read_logs,
    read_logs_since,
    search_logs,
)
from legato.client.submission import JobOptions, check_options
from legato.core.errors import Conflict, UsageError
from legato.system.decoding import decode

if TYPE_CHECKING:
    import pandas

_LONGEST_WAIT_S: Final = 30.0
_PAGE: Final = 500
_ALL_POINTS: Final = 10_000
_TERMS: Final = ("min_workers", "max_workers", "priority", "queue", "labels", "notes")


class Job:
    """A job, as of the last answer of the server; `refresh` gets it again.

    Args:
        line: the connection to the server.
        record: the answer of the server.
    """

    def __init__(self, line: Line, record: JobRecord) -> None:
        self._line = line
        self.record = record

    # ------------------------------------------------------------ state

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def stage(self) -> str:
        return self.record.stage

    @property
    def reason(self) -> str:
        """Why the job is in its stage."""
        return self.record.reason

    @property
    def progress(self) -> Progress | None:
        """The progress of the job; None: not known yet."""
        return self.record.progress

    @property
    def num_slots(self) -> int:
        """Number of slots that the job holds."""
        return self.record.num_slots

    @property
    def exit_code(self) -> int | None:
        """The exit code of the program; None: it has not ended, or never ran."""
        return self.record.exit_code

    @property
    def has_ended(self) -> bool:
        return self.record.stage in ENDED

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.record.owner}/{self.name}: {self.stage}>"

    def _repr_html_(self) -> str:
        return render_job(self.record)

    # ------------------------------------------------------------ read and wait

    def refresh(self) -> Job:
        """Get the job from the server again, and return the job itself."""
        self.record = self._line.ask(JobRecord, "GET", self._path())
        return self

    def wait(self, timeout_s: float | None = None, *, until: str | Collection[str] = ENDED) -> Job:
        """Wait until the job is in a certain stage, by default until it has ended, and return the job itself.

        Args:
            timeout_s: maximum time, in seconds. None: no limit.
            until: the stage; of several stages, any one.

        Raises:
            UsageError: there is no such stage.
            TimeoutError: the job has not reached the stage in this time.
            Conflict: the job has ended in another stage.
        """
        stages = {until} if isinstance(until, str) else set(until)
        if unknown := sorted(stages.difference(STAGES)):
            raise UsageError(
                f"Cannot wait for job '{self.name}': there is no stage '{unknown[0]}'. Write one of "
                f"{', '.join(STAGES)}."
            )
        deadline = math.inf if timeout_s is None else self._line.clock() + timeout_s
        # Read before the job itself, so that no event is missed between two requests.
        after = self._ask_events(after="now", limit=1).after
        while self.refresh().stage not in stages:
            if self.has_ended:
                wanted = " or ".join(sorted(stages))
                raise Conflict(f"Job '{self.name}' will not be {wanted} any more: it {self.stage}: {self.reason}.")
            left_s = deadline - self._line.clock()
            if left_s <= 0:
                raise TimeoutError(f"Job '{self.name}' is {self.stage} after {timeout_s:g} s: {self.reason}.")
            after = self._ask_events(after=after, limit=_PAGE, wait=min(left_s, _LONGEST_WAIT_S)).after
        return self

    def explain(self, num_decisions: int = 20) -> Explanation:
        """Return why the job has its slots, with at most ``num_decisions`` decisions."""
        return self._line.ask(Explanation, "GET", self._path("explain"), params={"limit": num_decisions})

    def spec(self) -> Spec:
        """Return the specification of the job: what it runs."""
        return self._line.ask(Spec, "GET", self._path("spec"))

    def attempts(self) -> Listing[Attempt]:
        """Return its attempts: a new one begins after each pause and each retry."""
        return Listing(self._line.ask(Page[Attempt], "GET", self._path("attempts")).items)

    def allocations(self) -> Listing[Allocation]:
        """Return its slots over time."""
        return Listing(self._line.ask(Page[Allocation], "GET", self._path("allocations")).items)

    def events(self, follow: bool = False, *, after: int | Literal["now"] | None = None) -> Iterator[Event]:
        """Yield the events of the job, the oldest first.

        Args:
            follow: continue until the job has ended.
            after: begin after the event with this ``seq``. None: with the oldest one that is kept.
        """
        if follow:
            for message in self._line.follow(self._path("events"), params={"after": after}):
                yield decode(message.data, Event)
            return
        while (page := self._ask_events(after=after, limit=_PAGE)).items:
            yield from page.items
            after = _as_seq(page.after)

    def training_events(self, *, after: int = 0) -> Iterator[TrainingEvent]:
        """Yield the events of the job's drivers: workers that joined, left and died, checkpoints, views.

        Args:
            after: begin after the event with this ``seq``.
        """
        kind = Page[TrainingEvent]
        while (page := self._ask_page(kind, "training-events", after=after, limit=_PAGE)).items:
            yield from page.items
            after = _as_seq(page.after)

    # ------------------------------------------------------------ outputs

    def logs(
        self,
        follow: bool = False,
        *,
        worker: int | None = None,
        driver: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """Yield the output of the job, line by line.

        Args:
            follow: continue until the job has ended; lines of different workers come as they are written.
            worker: only the output of this worker. None: of all workers.
            driver: the log of the job's driver instead.
            tail: number of last lines of each log. None: all.
            since: only lines written from this time on (seconds since 1970), one log after the other. None: all.
        """
        if worker is not None and driver:
            raise UsageError(
                "Cannot show logs of both a worker and the driver: choose one, or neither for all workers."
            )
        chosen = [DRIVER] if driver else [] if worker is None else [name_log(worker)]
        if since is not None:
            if follow or tail is not None:
                raise UsageError("Cannot combine since with follow or tail. Omit it, or both of them.")
            return read_logs_since(self._line, self.id, chosen, since)
        return (follow_logs if follow else read_logs)(self._line, self.id, chosen, tail)

    def search_logs(
        self, contains: str = "", *, level: str | None = None, worker: int | None = None, driver: bool = False
    ) -> Iterator[FoundLine]:
        """Yield the lines that contain a text, one log after the other.

        Args:
            contains: the text, regardless of case and without colours.
            level: at least ``debug``, ``info``, ``warning`` or ``error``; lines without a level are left out.
            worker: only in the log of this worker. None: of all workers.
            driver: in the log of the job's driver instead.
        """
        chosen = [DRIVER] if driver else [] if worker is None else [name_log(worker)]
        return search_logs(self._line, self.id, chosen, contains, level)

    def log_at(self, time: float, worker: int = 0, *, driver: bool = False) -> LogPlace:
        """Return the position in a worker's log, or the driver's, of a time (seconds since 1970)."""
        log = DRIVER if driver else name_log(worker)
        return self._line.ask(LogPlace, "GET", f"/jobs/{self.id}/logs/{log}/at", params={"time": time})

    def series(
        self, *names: str, after_step: int | None = None, num_points: int = _ALL_POINTS, steps: bool = True
    ) -> Metrics:
        """Return the metrics that the program logged, and the losses of its steps, as columns.

        Args:
            names: of the series. If none is given: all.
            after_step: only values of later steps.
            num_points: maximum number of points of each series; the smallest and largest of each interval stay.
            steps: also return when each step was committed. False: this part is empty, and the server reads less.
        """
        params: dict[str, Any] = {"name": list(names) or None, "after_step": after_step, "points": num_points}
        params["steps"] = None if steps else "false"
        return self._line.ask(Metrics, "GET", self._path("metrics"), params=params)

    def system_metrics(self, since: float | None = None, num_points: int = _ALL_POINTS) -> SystemSeries:
        """Return what the job's workers and their machines used over time: CPU, memory, GPUs, waiting for data.

        Args:
            since: seconds since 1970. None: from the first sample on.
            num_points: maximum number of points of each series; neighbouring samples are averaged.
        """
        params = {"since": since, "points": num_points}
        return self._line.ask(SystemSeries, "GET", self._path("system-metrics"), params=params)

    def metrics(self, *names: str) -> pandas.DataFrame:
        """Return the metrics that the program logged, and the losses of its steps: a row for each step.

        Args:
            names: of the columns, one for each metric. If none is given: all.

        Raises:
            UsageError: pandas is not installed; `series` works without it.
        """
        return make_frame(self.series(*names, steps=False))

    def files(self, path: str = "", *, recursive: bool = False) -> Listing[File]:
        """Return the entries of a folder of the job: ``work``, ``checkpoints``, ``logs``, …; at most 10,000."""
        return Listing(list_files(self._line, self.id, path, is_recursive=recursive).items)

    def checkpoints(self) -> Listing[Checkpoint]:
        """Return the checkpoints, the newest first."""
        return Listing(self._line.ask(Page[Checkpoint], "GET", self._path("checkpoints")).items)

    def download(self, to: str | Path = ".", path: str = "", *, overwrite: bool = False) -> list[Path]:
        """Download files of the job, and return the paths that were written.

        Args:
            to: the target folder; it is made if it does not exist.
            path: of a file or folder of the job, as `files` lists them. Empty: all.
            overwrite: replace existing files.
        """
        return download(self._line, self.id, path, Path(to), is_overwriting=overwrite)

    def download_code(self, to: str | Path, *, overwrite: bool = False) -> Path:
        """Download the uploaded code of the job as a zip file; arguments are those of `Client.download_code`.

        Raises:
            UsageError: the job has no uploaded code, or you may not see it.
        """
        # Lists do not have the code of other users' jobs.
        code = self.record.code or self.refresh().record.code
        if code is None:
            directory, owner = self.spec().directory, self.record.owner
            private = (
                f"it belongs to '{owner}', and you are a viewer, or no training definition of a project of yours has "
                f"it. Users can ask '{owner}' to make a training definition with it in a project that both are in"
            )
            why = f"it runs in '{directory}' on the machines" if directory else private
            raise UsageError(f"Cannot download the code of job '{self.name}': {why}.")
        return download_code(self._line, code, Path(to), is_overwriting=overwrite)

    # ------------------------------------------------------------ change

    def pause(self) -> Job:
        """Pause the job: save its state and free its slots, until `resume`. Returns at once, with the present stage."""
        return self._act("pause", lambda now: now.stage in ("pausing", "paused"))

    def resume(self) -> Job:
        """Resume the job where it was paused."""
        return self._act("resume", lambda now: now.stage in ("queued", "starting", "running"))

    def stop(self, now: bool = False) -> Job:
        """Stop the job after the present step, with a checkpoint; or ``now``, without one. Returns at once."""
        return self._act("stop", lambda record: record.stage in ("stopping", "stopped"), {"now": now})

    def resize(
        self, max_workers: int | None = None, min_workers: int | None = None, *, only_if_unchanged: bool = False
    ) -> Job:
        """Change the minimum and maximum number of workers; arguments are those of `set`."""
        said = {"min_workers": min_workers, "max_workers": max_workers}
        return self._change("POST", "resize", _strip(said), only_if_unchanged=only_if_unchanged)

    def set(
        self,
        *,
        min_workers: int | None = None,
        max_workers: int | None = None,
        priority: int | None = None,
        queue: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        notes: str | None = None,
        only_if_unchanged: bool = False,
    ) -> Job:
        """Change the job; arguments that are None change nothing.

        Args:
            min_workers: minimum number of workers; the job waits until that many slots are free.
            max_workers: maximum number of workers.
            priority: 1 to 10000; a higher one gets a larger share.
            queue: the new queue.
            labels: labels to add or replace; a value of None removes a label.
            notes: a text for people, at most 1000 characters; an empty one removes it.
            only_if_unchanged: refuse if the job has changed since this object was last refreshed.

        Raises:
            StaleVersion: the job has changed.
        """
        said = dict(zip(_TERMS, (min_workers, max_workers, priority, queue, labels, notes), strict=True))
        return self._change("PATCH", "", _strip(said), only_if_unchanged=only_if_unchanged)

    def clone(self, *, key: str | None = None, **options: Unpack[JobOptions]) -> Job:
        """Submit a clone of this job, which starts from scratch.

        Args:
            key: as in `Client.submit`.
            options: fields to change.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        body = check_options(options)
        record = self._line.ask(JobRecord, "POST", self._path("clone"), body=body, headers=headers)
        return Job(self._line, record)

    # ------------------------------------------------------------ requests

    def _path(self, below: str = "") -> str:
        return f"/jobs/{self.id}/{below}" if below else f"/jobs/{self.id}"

    def _ask_events(self, **params: Any) -> Page[Event]:
        return self._ask_page(Page[Event], "events", **params)

    def _ask_page(self, kind: type[Page[Any]], below: str, **params: Any) -> Page[Any]:
        return self._line.ask(kind, "GET", self._path(below), params=params)

    def _act(self, verb: str, is_done: Callable[[JobRecord], bool], body: Any = None) -> Job:
        try:
            self.record = self._line.ask(JobRecord, "POST", self._path(verb), body=body, tells_repeats=True)
        except PerhapsDone as perhaps:
            # The first try may have succeeded although its answer was lost: then the job shows the change.
            if not is_done(self.refresh().record):
                raise perhaps.refusal from None
        return self

    def _change(self, method: str, below: str, said: dict[str, Any], *, only_if_unchanged: bool) -> Job:
        headers = {"If-Match": f'"{self.record.version}"'} if only_if_unchanged else None
        wanted = {name: value for name, value in said.items() if name != "labels"}
        try:
            self.record = self._line.ask(
                JobRecord, method, self._path(below), body=said, headers=headers, tells_repeats=True
            )
        except PerhapsDone as perhaps:
            now = self.refresh().record
            merged = {**now.labels, **said.get("labels", {})}
            kept = {key: value for key, value in merged.items() if value is not None}
            if kept != now.labels or any(getattr(now, name) != value for name, value in wanted.items()):
                raise perhaps.refusal from None
        return self


class Jobs(list[Job]):
    """Several jobs; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        return render_jobs([job.record for job in self])


def _strip(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _as_seq(after: str | int | None) -> int:
    return int(after or 0)
