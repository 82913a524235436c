"""Records of a job: events, metrics, losses, and the first commit of every step. Never blocks its caller.

A thread writes the lines, which wait in memory. With a full disk, lines are lost and a warning is shown; the job
continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from legato.core.wire import Metrics, Progress, StepLoss
from legato.driver.events import Record
from legato.driver.journal import JobDirectory

_log = logging.getLogger(__name__)

_MAX_WAITING_LINES: Final = 100_000  # with more waiting lines, the disk counts as failed and lines are dropped


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of ``events.jsonl``: what happened to the job, and why.

    Args:
        seq: grows by one with each event of the job.
        time: seconds since 1970.
        kind: see `Record`, which has the other fields too.
    """

    seq: int
    time: float
    kind: str
    level: str
    reason: str
    worker: int | None = None
    view: int | None = None
    step: int | None = None
    detail: str | None = None


class Numbers:
    """A compact set of integers that come nearly in order: all up to ``top`` except ``missing``."""

    def __init__(self) -> None:
        self.top: int | None = None
        self.missing: set[int] = set()

    @property
    def next(self) -> int:
        """The number after the highest one, 0 if there is none."""
        return 0 if self.top is None else self.top + 1

    @property
    def complete_to(self) -> int:
        """The highest number below which none is missing, 0 if there is none."""
        return min(self.missing) - 1 if self.missing else self.top or 0

    def add(self, number: int) -> bool:
        """Add a number and return whether it is new. The first one sets where counting starts."""
        if self.top is None:
            self.top = number
            return True
        if number > self.top:
            self.missing.update(range(self.top + 1, number))
            self.top = number
            return True
        if number in self.missing:
            self.missing.remove(number)
            return True
        return False


class Records:
    """The record files of one job.

    Args:
        directory: their directory; existing files are continued.
        wall_clock: seconds since 1970.

    Attributes:
        num_metrics: number of calls of ``run.log``, from the first on, that workers need not send again, because they
            are on disk or the disk refused them.
        losses_to_step: the same of losses: workers need not send those of steps up to this one again.
    """

    def __init__(self, directory: JobDirectory, wall_clock: Callable[[], float]) -> None:
        self._directory = directory
        self._now = wall_clock
        self._waiting: list[tuple[Path, bytes]] = []
        self._ready = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None
        self._num_lost = self._num_lost_told = 0
        self._is_failing = False
        self._is_closed = False
        self._seq = 0
        self._steps = Numbers()
        self._indices = Numbers()
        self._losses = Numbers()
        self._last_reported: dict[int, int] = {}
        self.num_metrics = 0
        self.losses_to_step = 0

    def load(self) -> None:
        """Continue existing files. Reads them completely, so call it in a thread."""
        self._seq = max((line.get("seq", 0) for line in _read_lines(self._directory.events_file)), default=0)
        for path, key, numbers in (
            (self._directory.ledger_file, "step", self._steps),
            (self._directory.metrics_file, "index", self._indices),
        ):
            for number in sorted(line[key] for line in _read_lines(path) if isinstance(line.get(key), int)):
                numbers.add(number)
        losses = (line.get("step") for line in _read_lines(self._directory.losses_file))
        for step in sorted(step for steps in losses if isinstance(steps, list) for step in steps):
            self._losses.add(step)
        self.num_metrics, self.losses_to_step = self._indices.next, self._losses.complete_to

    # ------------------------------------------------------------ what happened

    def note_event(self, record: Record) -> Event:
        """Record an event, and return it with its number."""
        self._seq += 1
        event = Event(
            seq=self._seq,
            time=self._now(),
            kind=record.kind,
            level=record.level,
            reason=record.reason,
            worker=record.worker,
            view=record.view,
            step=record.step,
            detail=record.detail,
        )
        self._write(self._directory.events_file, event)
        return event

    def note_metrics(self, metrics: Metrics) -> bool:
        """Record the values of a call of ``run.log``, each call once. Returns whether the call was new."""
        new = self._indices.add(metrics.index)
        if new:
            self._write(
                self._directory.metrics_file,
                {
                    "index": metrics.index,
                    "step": metrics.step,
                    "epoch": metrics.epoch,
                    "time": self._now(),
                    "values": metrics.values,
                },
            )
        return new

    def note_progress(self, worker: int, progress: Progress) -> tuple[int, str | None]:
        """Record the first commit and the loss of each step, each once.

        If the job continued from a checkpoint, the steps before it were committed earlier, perhaps while no driver ran.
        If the ledger is empty, another job committed them. A report without samples repeats steps on purpose.

        Returns:
            The number of new steps, and a description of the error if a worker reported a step for the second time.
        """
        self._note_losses(progress.losses)
        if progress.resumed and self._steps.top is None:
            self._steps.top = progress.last_step
        last = self._last_reported.get(worker, 0) if progress.num_samples else 0
        complaint = None
        if progress.first_step <= last:
            again = f"{progress.first_step}..{min(last, progress.last_step)}"
            complaint = f"worker {worker} reported steps {again} as committed a second time"
        self._last_reported[worker] = max(last, progress.last_step)
        num_new = 0
        if not self._steps.missing and progress.last_step <= (self._steps.top or 0):
            return num_new, complaint
        for step in range(progress.first_step, progress.last_step + 1):
            if self._steps.add(step):
                num_new += 1
                line = {"step": step, "epoch": progress.epoch, "view": progress.view, "time": self._now()}
                self._write(self._directory.ledger_file, line)
        return num_new, complaint

    def _note_losses(self, losses: Sequence[StepLoss]) -> None:
        new = [each for each in losses if self._losses.add(each.step)]
        # What a worker leaves out between two steps is no longer in its memory.
        for one, other in pairwise(losses):
            self._losses.missing.difference_update(range(one.step + 1, other.step))
        if new:
            now = self._now()
            line = {
                "step": [each.step for each in new],
                "epoch": [each.epoch for each in new],
                "time": [round(now - each.age_s, 3) for each in new],
                "loss": [each.loss for each in new],
            }
            self._write(self._directory.losses_file, line)

    def note_connected(self, worker: int) -> None:
        """Expect repeated reports: a worker cannot know which reports arrived before it lost the connection."""
        self._last_reported.pop(worker, None)

    def describe_gap(self) -> str | None:
        """Describe steps that were not reported although later ones were; None if there are none.

        Call it at the end only: before that, a report may still come from a worker that was disconnected.
        """
        if not self._steps.missing:
            return None
        missing = sorted(self._steps.missing)
        shown = ", ".join(str(step) for step in missing[:10]) + (", …" if len(missing) > 10 else "")
        return f"{len(missing)} steps were never reported as committed: {shown}"

    def describe_lost_metrics(self) -> str | None:
        """Describe calls of ``run.log`` that did not arrive although later ones did; None if there are none.

        Call it at the end only, as `describe_gap`.
        """
        num_lost = len(self._indices.missing)
        return f"the metrics of {num_lost} calls of run.log were lost on their way to the driver" if num_lost else None

    # ------------------------------------------------------------ disk

    async def write_forever(self) -> None:
        """Write waiting lines until cancelled."""
        while True:
            await self._ready.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write all waiting lines."""
        self._ready.clear()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        batch, self._waiting = self._waiting, []
        num_metrics, losses_to_step = self._indices.next, self._losses.complete_to
        if batch:
            # Shielded, because cancellation happens at the end of the job, and its last lines must be written.
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._append, batch)
            await asyncio.shield(self._writing)
        self.num_metrics, self.losses_to_step = num_metrics, losses_to_step

    def drop(self) -> None:
        """Write nothing more, also not the lines that wait: another driver writes these files."""
        self._is_closed = True
        self._waiting.clear()

    def _write(self, path: Path, line: Any) -> None:
        if self._is_closed:
            return
        if len(self._waiting) >= _MAX_WAITING_LINES:
            self._count_lost(1, "the disk is too slow")
            return
        self._waiting.append((path, msgspec.json.encode(line) + b"\n"))
        self._ready.set()

    def _append(self, batch: list[tuple[Path, bytes]]) -> None:
        by_path: dict[Path, list[bytes]] = {}
        for path, line in batch:
            by_path.setdefault(path, []).append(line)
        self._is_failing = False
        # The commits last: a reader who sees that an epoch is over finds what was logged in it.
        for path, lines in sorted(by_path.items(), key=lambda item: item[0] == self._directory.ledger_file):
            try:
                with path.open("ab") as file:
                    file.write(b"".join(lines))
            except OSError as error:
                self._is_failing = True
                self._count_lost(len(lines), f"{path}: {error}")

    def take_lost(self) -> int:
        """Return how many lines were lost since the last call; 0 while the disk takes none, and no report of it."""
        if self._is_failing:
            return 0
        told, self._num_lost_told = self._num_lost_told, self._num_lost
        return self._num_lost - told

    def _count_lost(self, num_lines: int, why: str) -> None:
        # Warn at each power of two, so that a full disk does not fill the terminal.
        before, self._num_lost = self._num_lost, self._num_lost + num_lines
        if before.bit_length() != self._num_lost.bit_length():
            _log.warning("Cannot write the job's records (%d lines lost so far): %s", self._num_lost, why)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, without an incomplete last line."""
    lines: list[dict[str, Any]] = []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return lines
    for line in content.splitlines():
        try:
            decoded = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(decoded, dict):
            lines.append(decoded)
    return lines
