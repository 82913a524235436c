"""Draws a job's status for people: as a line, a table or a live region. Pure; prints nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from legato.cli.terminal.formatting import render_bytes
from legato.core.wire import NOTABLE_WAIT

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# The library for drawing is loaded only by commands that draw; most commands only write lines.

Status = Mapping[str, Any]
Event = Mapping[str, Any]

_LEVEL_STYLES: Final = {"info": "", "warning": "yellow", "error": "bold red"}
_WAITING_STATES: Final = ("adopting", "forming", "holding")
_STATE_STYLES: Final = {
    "training": "green",
    "working": "green",
    "succeeded": "bold green",
    "unsaved": "bold red",
    "holding": "yellow",
    "stopping": "yellow",
    "stopped": "yellow",
    "abandoned": "yellow",
    "failing": "red",
    "failed": "bold red",
}
_CONNECTED_PHASES: Final = ("joining", "working", "warm", "member")
_COMING_PHASES: Final = ("starting", "joining")
_NUM_COMING_NAMED: Final = 3
_RESIZES: Final = ("scaled",)
_DEATHS: Final = ("died", "fenced")
_PACE_WINDOW_S: Final = 30.0
_SILENT_S: Final = 5.0  # workers send several heartbeats a second


# ---------------------------------------------------------------- pace


class Pace:
    """A job's steps per second, over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, step: int | None) -> None:
        """Record the job's step. A step that is lower than the last one starts the measurement again."""
        if step is None:
            return
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, step))
        while now - self._seen[0][0] > _PACE_WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()

    @property
    def steps_per_s(self) -> float | None:
        if len(self._seen) < 2:
            return None
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - begun) if ended > begun and last > first else None

    def remaining_s(self, status: Status) -> float | None:
        """Return how many seconds the rest takes at this pace, None if unknown."""
        step, num_steps, pace = status.get("step"), status.get("num_steps"), self.steps_per_s
        return (num_steps - step) / pace if step is not None and num_steps and pace else None


# ---------------------------------------------------------------- lines


def render_duration(seconds: float) -> str:
    """Return a duration as text for people.

    >>> render_duration(7.25), render_duration(83), render_duration(7384)
    ('7.2 s', '1:23', '2:03:04')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"


def render_number(value: float) -> str:
    """Return a number with four digits, or more if it is large; with an exponent only if that is necessary.

    >>> render_number(0.123456), render_number(812.36), render_number(10230.4), render_number(1e-7)
    ('0.1235', '812.4', '10230', '1e-07')
    """
    return f"{value:.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def render_metrics(status: Status) -> str | None:
    """Return the metrics that the program logged last as text, None if there are none.

    >>> render_metrics({"metrics": {"step": 63, "epoch": 0, "values": {"accuracy": 0.961}}})
    'step 63 · accuracy 0.961'
    """
    logged = status.get("metrics")
    if not logged:
        return None
    values = [f"{name} {render_number(value)}" for name, value in logged["values"].items()]
    return " · ".join([f"step {logged['step']}", *values])


def render_progress_line(status: Status, remaining_s: float | None = None) -> str:
    """Return a job's progress as one line.

    >>> render_progress_line({"state": "training", "step": 5, "num_steps": 20, "num_workers": 2, "num_wanted": 3})
    'step 5/20 (25 %) · workers 2/3'
    """
    parts = [] if status.get("state") in (None, "training") else [str(status["state"])]
    silent_s = find_silence_s(status)
    if silent_s is not None:
        parts.append(f"no worker has answered for {render_duration(silent_s)}")
    if status.get("state") in _WAITING_STATES and (coming := render_coming(status)):
        parts.append(coming)
    step, num_steps = status.get("step"), status.get("num_steps")
    if step is not None:
        parts.append(f"step {step}/{num_steps} ({100 * step // num_steps} %)" if num_steps else f"step {step}")
    epoch, num_epochs = status.get("epoch"), status.get("num_epochs")
    if epoch is not None:
        parts.append(f"epoch {epoch + 1}/{num_epochs}" if num_epochs else f"epoch {epoch + 1}")
    if status.get("phase") == "evaluate":
        parts.append("evaluating")
    if status.get("loss") is not None:
        parts.append(f"loss {render_number(status['loss'])}")
    if status.get("samples_per_s") and silent_s is None:
        parts.append(f"{render_number(status['samples_per_s'])} samples/s")
    if status.get("sent_bytes"):
        parts.append(f"{render_bytes(max(status['sent_bytes'].values()))} between nodes a step")
    if (status.get("data_wait") or 0) >= NOTABLE_WAIT:
        parts.append(f"{status['data_wait']:.0%} of a step is waiting for data")
    parts.append(f"workers {_count_workers(status)}")
    if status.get("differed_step") is not None:
        parts.append(f"not exact since step {status['differed_step']}")
    if remaining_s and silent_s is None:
        parts.append(f"{render_duration(remaining_s)} left")
    return " · ".join(parts)


def find_silence_s(status: Status) -> float | None:
    """Return for how long a job that trains has heard nothing of any worker; None if it has not been for long.

    >>> find_silence_s({"state": "training", "workers": [{"last_heard_s": 12.5}, {"last_heard_s": 30.0}]})
    12.5
    """
    heard = [worker["last_heard_s"] for worker in status.get("workers") or () if worker.get("last_heard_s") is not None]
    silent_s = min(heard, default=0.0)
    return silent_s if status.get("state") in (None, "training") and silent_s > _SILENT_S else None


def render_coming(status: Status) -> str | None:
    """Return which workers are starting or joining, and for how long; None if there are none.

    >>> render_coming({"workers": [{"worker": 1, "phase": "starting", "phase_s": 3.21}]})
    'worker 1 starting, 3.2 s'
    """
    coming = [worker for worker in status.get("workers") or () if worker.get("phase") in _COMING_PHASES]
    named = [f"worker {worker['worker']} {_phase_and_time(worker)}" for worker in coming[:_NUM_COMING_NAMED]]
    more = len(coming) - len(named)
    return "; ".join([*named, f"{more} more"] if more else named) or None


def render_event_line(event: Event) -> str:
    """Return an event as one line, with its reason as it is in ``events.jsonl``.

    >>> render_event_line({"time": None, "kind": "died", "reason": "worker 2 died: killed by SIGKILL", "step": 7})
    'died       worker 2 died: killed by SIGKILL (step 7)'
    """
    is_warning = event["kind"] == "note" and event.get("level") == "warning"
    line = f"{'warning' if is_warning else event['kind']:<10} {event['reason']}"
    # A checkpoint is of an earlier step than the present one; its text names that step.
    if event.get("step") is not None and event["kind"] != "saved":
        line += f" (step {event['step']})"
    return f"{_clock_time(event['time'])} {line}" if event.get("time") is not None else line


def _phase_and_time(worker: Mapping[str, Any]) -> str:
    waited_s = worker.get("phase_s")
    return f"{worker['phase']}, {render_duration(waited_s)}" if waited_s is not None else str(worker["phase"])


def _clock_time(unix_s: float) -> str:
    return dt.datetime.fromtimestamp(unix_s).astimezone().strftime("%H:%M:%S")


def _wanted(status: Status) -> int:
    return int(status.get("num_wanted", status.get("wanted")) or 0)


def _count_workers(status: Status) -> str:
    return f"{status.get('num_workers') or 0}/{_wanted(status)}"


# ---------------------------------------------------------------- live region and tables


def render_live(status: Status, events: Sequence[Event], remaining_s: float | None = None) -> RenderableType:
    """Draw a running job: progress, workers, the last events."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble(
        (str(status.get("name", "")), "bold"),
        "  ",
        (str(status.get("state", "")), _STATE_STYLES.get(str(status.get("state")), "")),
        (f"  {coming}" if status.get("state") in _WAITING_STATES and (coming := render_coming(status)) else "", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    bar = Table.grid(padding=(0, 1))
    step, num_steps = status.get("step") or 0, status.get("num_steps")
    # If the number of steps is unknown, the bar shows only that the job is active.
    bar.add_row(
        ProgressBar(total=num_steps or 1, completed=step if num_steps else 0, width=24),
        Text(render_progress_line({**status, "state": None}, remaining_s), no_wrap=True, overflow="ellipsis"),
    )
    lines = [
        Text(render_event_line(event), style=_LEVEL_STYLES.get(event.get("level", "info"), ""), overflow="ellipsis")
        for event in events
    ]
    for line in lines:
        line.no_wrap = True
    metrics = render_metrics(status)
    logged = [Text(f"logged  {metrics}", no_wrap=True, overflow="ellipsis")] if metrics else []
    return Group(head, bar, *logged, render_workers(status), *lines)


def render_worker_bar(num_there: int, num_wanted: int) -> str:
    """Draw how many of the wanted workers take part.

    >>> render_worker_bar(2, 4)
    '■■□□ 2/4'
    """
    shown = min(max(num_wanted, num_there), 16)
    filled = min(num_there, shown)
    return f"{'■' * filled}{'□' * (shown - filled)} {num_there}/{num_wanted}"


def render_workers(status: Status) -> Table:
    """Draw a row per worker."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    bar = render_worker_bar(int(status.get("num_workers") or 0), _wanted(status))
    for column in (bar, "SLOT", "PID", "PHASE", "RANK", "VIEW", "SILENT"):
        table.add_column(Text(column))
    for worker in status.get("workers") or ():
        away = worker.get("connected") is False and worker.get("phase") in _CONNECTED_PHASES
        phase = _phase_and_time(worker) if worker.get("phase") in _COMING_PHASES else worker.get("phase", "")
        table.add_row(
            f"worker {worker['worker']}",
            _cell(worker.get("slot")),
            _cell(worker.get("pid") or None),
            f"{phase}{' (no connection)' if away else ''}",
            _cell(worker.get("rank")),
            _cell(worker.get("view")),
            f"{worker['last_heard_s']:.1f} s" if worker.get("last_heard_s") is not None else "",
        )
    return table


def render_status(status: Status) -> RenderableType:
    """Draw the status of one job, running or not."""
    from rich.console import Group
    from rich.text import Text

    if "workers" in status:
        return render_live(status, list(status.get("events") or ())[-8:])
    outcome = status.get("outcome") or {}
    state = str(status.get("state", ""))
    line = Text.assemble((str(status.get("name", "")), "bold"), "  ", (state, _STATE_STYLES.get(state, "")))
    reason = outcome.get("reason") or ""
    if state == "abandoned":
        reason = f"its driver died; to start a new one: legato attach {status.get('name', '')}"
    if status.get("step") is not None:
        total = f" of {status['num_steps']}" if status.get("num_steps") else ""
        reason += f" (step {status['step']}{total})"
    head = Text.assemble(line, f"  {reason}") if reason else line
    if not status.get("go_on_with"):
        return head
    # On one line of any length, so that the user can copy it.
    return Group(head, Text(f"resume with:  {status['go_on_with']}", no_wrap=True, overflow="ignore"))


def render_jobs(statuses: Iterable[Status]) -> Table:
    """Draw a row per job."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("NAME", "STATE", "STEP", "EPOCH", "LOSS", "WORKERS", "RANGE"):
        table.add_column(column)
    for status in statuses:
        state = str(status.get("state", ""))
        running = "workers" in status
        step, num_steps = status.get("step"), status.get("num_steps")
        epoch, num_epochs = status.get("epoch"), status.get("num_epochs")
        table.add_row(
            str(status.get("name", "")),
            Text(state, style=_STATE_STYLES.get(state, "")),
            "" if step is None else f"{step}/{num_steps}" if num_steps else str(step),
            "" if epoch is None else f"{epoch + 1}/{num_epochs}" if num_epochs else str(epoch + 1),
            "" if status.get("loss") is None else f"{status['loss']:.4g}",
            _count_workers(status) if running else "",
            f"{status['min_workers']}..{status['max_workers']}" if running else "",
        )
    return table


def _cell(value: object) -> str:
    return "" if value is None else str(value)


# ---------------------------------------------------------------- the end


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The facts about a run when it is over.

    Args:
        outcome: ``succeeded``, ``failed`` or ``stopped``.
        from_step: the step from which it continued: 0, that of a checkpoint, or that at which this driver took over;
            None if nothing was trained.
        has_taken_over: whether this driver continued a job that trained under another one.
        elapsed_s: of this driver, with its start.
        counts: how many events of each kind this driver had.
        saved: the last event of kind ``saved``, None if there was none.
        go_on_with: the command that resumes the job, None if the job cannot resume.
        checkpoint_every: as the user set it.
    """

    name: str
    outcome: str
    reason: str
    exit_code: int
    step: int | None
    num_steps: int | None
    from_step: int | None
    has_taken_over: bool = False
    elapsed_s: float
    counts: Counter[str]
    saved: str | None
    directory: Path
    go_on_with: str | None = None
    checkpoint_every: str | None = None


def render_summary(ending: Ending) -> str:
    """Return how a job ended and where its files are."""
    num_deaths = sum(ending.counts[kind] for kind in _DEATHS)
    num_resizes = sum(ending.counts[kind] for kind in _RESIZES)
    then = " since then" if ending.has_taken_over else ""
    rows = [
        ("job", f"{ending.name} {ending.outcome}: {ending.reason}"),
        ("steps", f"{_render_steps(ending)} in {render_duration(ending.elapsed_s)} (start included)"),
        ("changes", f"{_plural(num_deaths, 'worker')} lost, {_plural(num_resizes, 'resize')}{then}"),
        ("saved", ending.saved or "no checkpoint in this run"),
        ("directory", str(ending.directory)),
        ("logs", str(ending.directory / "logs")),
    ]
    if ending.go_on_with is not None:
        rows.append(("resume", ending.go_on_with))
    elif ending.outcome != "succeeded" and ending.step:
        rows.append(("next time", _render_advice(ending)))
    return "\n".join(f"{label + ':':<12} {text}" for label, text in rows)


def _render_steps(ending: Ending) -> str:
    if ending.step is None:
        return "no step"
    reached = f"step {ending.step}" + (f" of {ending.num_steps}" if ending.num_steps else "")
    if not ending.from_step:
        return reached
    when = "since this process took over" if ending.has_taken_over else "in this run"
    return f"{_plural(ending.step - ending.from_step, 'step')} {when}, from step {ending.from_step} to {reached},"


def _render_advice(ending: Ending) -> str:
    if ending.checkpoint_every is None:
        return "--checkpoint-every 100steps, or 2epochs or 60s, saves a checkpoint from which to resume"
    return f"a shorter --checkpoint-every than {ending.checkpoint_every} saves a checkpoint from which to resume"


def _plural(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
