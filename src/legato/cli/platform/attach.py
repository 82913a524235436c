"""Shows a job of the platform until it ends: the output of its rank 0, and the decisions about it.

Detaching never affects the job. All workers write the same, so only rank 0 is shown.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import typer

from legato.cli.platform.jobs import exit_code_of, tell_stage
from legato.cli.terminal.formatting import clean, render_clock, tell_waiting
from legato.cli.terminal.job_view import render_number
from legato.cli.terminal.output import give_up_output
from legato.core.errors import ServerError

if TYPE_CHECKING:
    from legato.api.jobs import Event, Progress, TrainingEvent
    from legato.client.jobs import Job
    from legato.core.clock import Clock

_LOOK_EVERY_S: Final = 1.0
_PROGRESS_EVERY_S: Final = 5.0
_OVER: Final = ("finished", "stopped", "failed")
_TOLD: Final = ("stage", "decision", "changed")


def attach(job: Job, *, tail: int | None, is_new: bool) -> int:
    """Show a job until it ends, and return its exit code; 0 if the user detaches by Ctrl-C or by closing the pipe.

    Args:
        job: of the platform.
        tail: number of lines from the end of the log with which to begin. None: all.
        is_new: the job was submitted a moment ago, so all its events are shown.
    """
    try:
        _show(job, tail=tail, is_new=is_new)
    except KeyboardInterrupt:
        typer.echo(
            f"legato: detached; job '{job.name}' keeps running. To watch it again: legato attach {job.id}. "
            f"To stop it: legato stop {job.id}.",
            err=True,
        )
        return 0
    except BrokenPipeError:
        give_up_output()
        return 0
    except ServerError as error:
        again = f"The job keeps running. To watch it again: legato attach {job.id}."
        raise type(error)(f"{error} {again}") from error
    record = job.refresh().record
    typer.echo(f"legato: job '{job.name}' {tell_stage(record)}", err=record.stage == "failed")
    if record.stage == "failed":
        typer.echo(
            f"legato: all logs: 'legato logs {job.id}'; the driver's log: 'legato logs {job.id} --driver'.", err=True
        )
    elif record.stage == "succeeded":
        typer.echo(f"legato: to download its files: legato download {job.id}")
    return exit_code_of(record)


class Speaker:
    """Finds the worker whose output is shown: the lowest number in the newest view, which is its rank 0.

    Args:
        read: returns the entries of the driver's journal after an event.
        clock: monotonic seconds.
    """

    def __init__(self, read: Callable[[int], Iterable[TrainingEvent]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._seq = 0
        self._started: set[int] = set()
        self._seen: set[int] = set()
        self._view = 0
        self._members: set[int] = set()
        self._is_over = False
        self._next_look = clock()
        self._look()
        # Output that a worker wrote while it was rank 0 is shown even if it arrives late.
        self._have_spoken: set[int] = set(self._current())

    def speaks(self, worker: int) -> bool:
        """Return whether the output of a worker is shown."""
        if worker not in self._seen or self._clock() >= self._next_look:
            self._look()
            self._seen.add(worker)
            self._have_spoken |= self._current()
        return worker in self._have_spoken

    def _current(self) -> set[int]:
        # After the end of an attempt, its last rank 0 counts.
        among = self._members or self._started or self._seen
        return {min(among)} if among else set()

    def _look(self) -> None:
        self._next_look = self._clock() + _LOOK_EVERY_S
        for event in self._read(self._seq):
            self._seq = event.seq
            if event.kind in _OVER and event.worker is None:
                self._is_over = True
            elif event.worker is None:
                continue
            elif event.kind == "started":
                if self._is_over:
                    # The next attempt.
                    self._is_over, self._started, self._members, self._view = False, set(), set(), 0
                self._started.add(event.worker)
            elif event.kind == "joined" and event.view is not None and event.view >= self._view:
                if event.view > self._view:
                    self._view, self._members = event.view, set()
                self._members.add(event.worker)


def _show(job: Job, *, tail: int | None, is_new: bool) -> None:
    """Print lines and events until both streams have ended."""
    from legato.client.logs import LogLine

    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    streams: list[Callable[[], Iterable[Any]]] = [
        lambda: job.logs(follow=True, tail=tail),
        lambda: job.events(follow=True, after=None if is_new else "now"),
    ]
    for read in streams:
        threading.Thread(target=_pump, args=(read, messages), daemon=True).start()
    speaker = Speaker(lambda after: job.training_events(after=after), time.monotonic)
    progress = _ProgressLine(job)
    if not is_new and (why := tell_waiting(job.record)) is not None:
        typer.echo(f"legato: {why}")
    last_reason = ""
    num_open = len(streams)
    while num_open:
        try:
            found = messages.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            progress.look()
            continue
        if isinstance(found, _End):
            num_open -= 1
            if found.error is not None:
                raise found.error
            continue
        if isinstance(found, LogLine):
            if found.worker is None or speaker.speaks(found.worker):
                typer.echo(found.text)
        # A decision and its effect have the same reason: print it once.
        elif found.kind in _TOLD and found.reason != last_reason:
            last_reason = found.reason
            typer.echo(f"legato: {render_event(found)}")
            if (found.detail or {}).get("to") == "paused":
                typer.echo(f"legato: to resume it: legato resume {job.id}")
        progress.look()


class _End:
    """A stream has ended, or failed."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _pump(read: Callable[[], Iterable[Any]], messages: queue.SimpleQueue[Any]) -> None:
    try:
        for found in read():
            messages.put(found)
    except BaseException as error:  # noqa: BLE001 -- raised again in the thread that waits for it
        messages.put(_End(error))
    else:
        messages.put(_End())


def render_event(event: Event) -> str:
    """Return an event of a job as a line."""
    detail = event.detail or {}
    label = {"stage": str(detail.get("to", "stage")), "decision": "decided"}.get(event.kind, event.kind)
    return f"{render_clock(event.time, time.time())} {label:<9} {clean(event.reason)}"


class _ProgressLine:
    """Prints the job's progress from time to time, if there is any."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._next = time.monotonic() + _PROGRESS_EVERY_S
        self._last: tuple[int | None, int] | None = None

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        record = self._job.refresh().record
        self._next = time.monotonic() + _PROGRESS_EVERY_S
        progress = record.progress
        if progress is None or record.stage != "running":
            return
        now = (progress.step, progress.num_workers)
        if now != self._last:
            self._last = now
            typer.echo(f"legato: {render_progress(progress)}")


def render_progress(progress: Progress) -> str:
    """Return a job's progress as a line."""
    is_training = progress.num_workers > 0
    parts = [
        None if progress.reached is None else f"step {progress.reached}",
        None if progress.epoch is None else f"epoch {progress.epoch + 1}",
        None if progress.loss is None else f"loss {render_number(progress.loss)}",
        f"{render_number(progress.samples_per_s)} samples/s" if is_training and progress.samples_per_s else None,
        f"workers {progress.num_workers}" if is_training else None,
    ]
    return " · ".join(part for part in parts if part is not None)
