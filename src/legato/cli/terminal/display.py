"""Shows a running job: a live region on a terminal, plain lines elsewhere. Decides nothing about the job."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from legato.cli.terminal.job_view import (
    Event,
    Pace,
    Status,
    render_duration,
    render_event_line,
    render_live,
    render_metrics,
    render_progress_line,
)
from legato.driver.log_caps import find_begin

_PROGRESS_EVERY_S: Final = 5.0
_METRICS_EVERY_S: Final = 1.0
_SAVED_EVERY_S: Final = 30.0
_PRELUDE: Final = ("joining", "warm")  # later events repeat them; events.jsonl has them
_MAX_READ_BYTES: Final = 1 << 20
_MAX_REMEMBERED: Final = 1 << 16
_NUM_LIVE_EVENTS: Final = 6
_NUM_HELD_READS: Final = 3
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_ENDED: Final = ("succeeded", "unsaved", "failed", "stopped")
WAITS_AT_START: Final = "importing torch"  # shown until a driver has a status


class Screen(Protocol):
    """Shows events, progress and output."""

    def show_event(self, event: Event) -> None:
        """Show one event."""

    def show_status(self, status: Status) -> None:
        """Show the job's progress."""

    def show_waiting(self, what: str) -> None:
        """Show what the job waits for while there is no status yet; called repeatedly."""

    def show_output(self, text: str) -> None:
        """Show whole lines that the program wrote."""

    def show_message(self, text: str, *, problem: bool = False) -> None:
        """Show a message of Legato itself."""

    def close(self) -> None:
        """Leave the terminal as it was; nothing is shown after this."""


class PlainScreen:
    """One line per event and a progress line now and then, without control codes; warnings and errors to ``problems``.

    Args:
        out: to which lines are written.
        problems: to which warnings and errors are written.
        clock: monotonic seconds.
    """

    def __init__(self, out: IO[str], problems: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._problems = problems
        self._clock = clock
        self._pace = Pace()
        self._next_metrics = self._next_saved = clock()
        self._next_progress = self._next_metrics + _PROGRESS_EVERY_S
        self._last_line = ""
        self._has_waited = False
        self._last_metrics: str | None = None

    def show_event(self, event: Event) -> None:
        """Write one line. Checkpoints are shown only at intervals: the summary names the last one."""
        if event["kind"] in _PRELUDE:
            return
        if event["kind"] == "saved":
            now = self._clock()
            if now < self._next_saved:
                return
            self._next_saved = now + _SAVED_EVERY_S
        stream = self._out if event.get("level", "info") == "info" else self._problems
        self._write(stream, f"legato: {render_event_line(event)}\n")

    def show_status(self, status: Status) -> None:
        """Write a progress line if the last one is old and the progress has changed."""
        now = self._clock()
        self._show_metrics(now, status)
        self._pace.note(now, status.get("step"))
        if now < self._next_progress or status.get("state") in _ENDED:
            return
        self._next_progress = now + _PROGRESS_EVERY_S
        line = render_progress_line(status, self._pace.remaining_s(status))
        if line != self._last_line:
            self._last_line = line
            self._write(self._out, f"legato: {line}\n")

    def show_waiting(self, what: str) -> None:
        """Write one line, once."""
        if not self._has_waited:
            self._has_waited = True
            self._write(self._out, f"legato: {what}; this may take some seconds\n")

    def show_output(self, text: str) -> None:
        """Write the program's lines as they are."""
        self._write(self._out, text)

    def show_message(self, text: str, *, problem: bool = False) -> None:
        """Write a message."""
        self._write(self._problems if problem else self._out, text.rstrip("\n") + "\n")

    def close(self) -> None:
        """Do nothing: every line was flushed."""

    def _show_metrics(self, now: float, status: Status) -> None:
        # A program may log at every step; the last values are always shown.
        line = render_metrics(status)
        if line in (None, self._last_metrics) or (now < self._next_metrics and status.get("state") not in _ENDED):
            return
        self._next_metrics = now + _METRICS_EVERY_S
        self._last_metrics = line
        self._write(self._out, f"legato: logged     {line}\n")

    def _write(self, stream: IO[str], text: str) -> None:
        stream.write(text)
        stream.flush()


class LiveScreen:
    """A region at the bottom of the terminal that is redrawn; the program's lines scroll above it.

    Args:
        console: the terminal.
        problems: to which warnings and errors are written if it is not the terminal.
        clock: monotonic seconds.
    """

    def __init__(self, console: Console, problems: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._problems = problems
        self._clock = clock
        self._pace = Pace()
        self._events: deque[Event] = deque(maxlen=_NUM_LIVE_EVENTS)
        self._status: Status = {}
        self._begun_at = clock()
        # Drawn when a status comes, four times a second; a separate thread would draw while this one prints.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._live.update(Text("starting …", style="dim"), refresh=True)

    def show_event(self, event: Event) -> None:
        """Add the event to the region; a warning or error stays on the screen as well."""
        if event["kind"] == "saved" and self._events and self._events[-1]["kind"] == "saved":
            self._events.pop()
        self._events.append(event)
        if event.get("level", "info") != "info":
            self.show_message(render_event_line(event), problem=True)
        self._draw()

    def show_status(self, status: Status) -> None:
        """Redraw the region."""
        self._status = status
        self._pace.note(self._clock(), status.get("step"))
        self._draw()

    def show_waiting(self, what: str) -> None:
        """Show a clock that moves."""
        waited = render_duration(self._clock() - self._begun_at)
        self._live.update(Text(f"starting  {what}, {waited}", style="dim"), refresh=True)

    def show_output(self, text: str) -> None:
        """Print the program's lines above the region, with their colours."""
        self._console.print(Text.from_ansi(text), highlight=False, soft_wrap=True)

    def show_message(self, text: str, *, problem: bool = False) -> None:
        """Print a message above the region; a problem goes to ``problems`` if that is not the same terminal."""
        if problem and not self._problems.isatty():
            self._problems.write(text.rstrip("\n") + "\n")
            self._problems.flush()
            return
        self._console.print(Text(text.rstrip("\n"), style="yellow" if problem else ""), soft_wrap=True)

    def close(self) -> None:
        """Remove the region."""
        self._live.stop()

    def _draw(self) -> None:
        if self._status:
            remaining_s = self._pace.remaining_s(self._status)
            self._live.update(render_live(self._status, list(self._events), remaining_s), refresh=True)


def make_screen(out: IO[str], problems: IO[str], *, plain: bool = False) -> Screen:
    """Return the screen for the standard output: live on a terminal, plain elsewhere."""
    console = Console(file=out)
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return PlainScreen(out, problems)
    return LiveScreen(console, problems)


class LogFollower:
    """Reads new lines of workers' logs: of the main worker, or of a given one.

    Args:
        directory: of the logs; their present content is old and is not shown.
    """

    def __init__(self, directory: Path, *, from_start: bool = False) -> None:
        self._directory = directory
        self._offsets: dict[int, int] = {}
        self._partial: dict[int, bytes] = {}
        self._held: dict[int, tuple[int, str]] = {}
        self._shown = ""
        self._skip = ""
        self._noted: dict[int, int] | None = None
        if not from_start:
            self._offsets = self.sizes()

    def sizes(self) -> dict[int, int]:
        """Return the size of each log in bytes, by the number of its worker."""
        found = {}
        for path in self._directory.glob("worker-*.log"):
            number = path.stem.removeprefix("worker-")
            if number.isdecimal():
                found[int(number)] = path.stat().st_size
        return dict(sorted(found.items()))

    def note_sizes(self, status: Mapping[str, Any]) -> None:
        """Note how much the workers of a status have written up to now; see `switch`."""
        workers = [int(worker["worker"]) for worker in status.get("workers") or ()]
        self._noted = {worker: self._size(worker) for worker in workers}

    def switch(self, worker: int) -> None:
        """Skip what a worker had written at the last `note_sizes`; without one, what it has written.

        What it has written since then may be its output as the main worker: the status comes later.
        """
        written = self._size(worker) if self._noted is None else self._noted.get(worker, 0)
        self._offsets[worker] = max(self._offsets.get(worker, 0), written)

    def _size(self, worker: int) -> int:
        try:
            return (self._directory / f"worker-{worker}.log").stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, worker: int, *, whole: bool = False, upto: int | None = None) -> str:
        """Return the new complete lines; with ``whole`` an incomplete last one too.

        Args:
            worker: number of the worker.
            whole: the log will not grow any more.
            upto: the byte at which to stop. None: the end of the log.
        """
        try:
            with (self._directory / f"worker-{worker}.log").open("rb") as file:
                at = max(self._offsets.get(worker, 0), find_begin(file.fileno()))
                file.seek(at)
                data = file.read(_MAX_READ_BYTES if upto is None else min(max(upto - at, 0), _MAX_READ_BYTES))
        except FileNotFoundError:
            return ""
        self._offsets[worker] = at + len(data)
        data = self._partial.pop(worker, b"") + data
        end = len(data) if whole else data.rfind(b"\n") + 1
        if end < len(data):
            self._partial[worker] = data[end:]
        num_reads, held = self._held.pop(worker, (0, ""))
        text = held + data[:end].decode(errors="replace")
        if self._skip and self._skip in text:
            text = text.replace(self._skip, "", 1)
            self._skip = ""
        start = -1 if whole else text.find(_TRACEBACK)
        if start >= 0 and (num_reads < _NUM_HELD_READS or self._skip.startswith(text[start:])):
            # The driver is about to report the same text as an error, which is shown instead; or it has, and the worker
            # is about to write the rest of the text.
            self._held[worker] = (num_reads + 1, text[start:])
            text = text[:start]
        self._shown = (self._shown + text)[-_MAX_REMEMBERED:]
        return text

    def show_once(self, text: str) -> bool:
        """Return whether ``text`` was not among the lines read so far; if it comes later, `read` leaves it out."""
        if text.strip() in self._shown:
            return False
        self._skip = text
        return True


def main_worker(status: Mapping[str, Any]) -> int | None:
    """Return the worker whose output is shown: rank 0, or the first one while there are no ranks."""
    workers = status.get("workers") or ()
    by_rank = {worker["rank"]: worker["worker"] for worker in workers if worker.get("rank") is not None}
    if by_rank:
        return int(by_rank[min(by_rank)])
    return min((int(worker["worker"]) for worker in workers), default=None)
