"""Commands on the events, attempts, metrics and files of jobs. Changes nothing on the platform."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry
from legato.cli.platform.completion import complete_platform_jobs
from legato.cli.platform.connecting import find_job, open_client
from legato.cli.platform.options import OutputOption, OverwriteOption, PlatformJob, ServerOption, naming_overwrite
from legato.cli.terminal.columns import ATTEMPT_COLUMNS, FILE_COLUMNS
from legato.cli.terminal.formatting import clean, render_clock
from legato.cli.terminal.output import Output, ending_on_interrupt, make_table, render_for_programs, write, write_list
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.api.jobs import Event, TrainingEvent
    from legato.api.outputs import Metrics
    from legato.client.jobs import Job

_NUM_EVENTS: Final = 100
_GOOD_ENDS: Final = ("returned", "recovered")  # of what warnings have reported: of a lost machine, of a broken view
_ASK_EVERY_S: Final = 2.0
_NUM_SLOTS: Final = 8  # named in one line


def events(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Name or id of a job. [default: the whole platform]",
            autocompletion=complete_platform_jobs,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new events until the job ends or Ctrl-C.")
    ] = False,
    after: Annotated[int | None, typer.Option(min=0, metavar="SEQ", help="Only events after this number.")] = None,
    training: Annotated[
        bool, typer.Option("--training", help="Show the events of the job's driver: workers, views, checkpoints.")
    ] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show the events of a job, or the last hundred of the platform, with their reasons."""
    if training and (job is None or follow):
        raise UsageError("--training needs a job, and cannot be combined with --follow.")
    if follow and output is Output.csv:
        raise UsageError("--follow cannot write CSV, because the columns are known only at the end. Use -o json.")
    if training:
        assert job is not None, "checked above"
        records = list(find_job(job, server).training_events(after=after or 0))
        write(records, output, lambda: "\n".join(map(_render_training, records)) or "There are no events yet.")
        return
    found: Iterable[Event | TrainingEvent]
    of: str | None = None
    if job is None:
        found = _find_events(follow=follow, after=after, server=server)
    else:
        found_job = find_job(job, server)
        of = found_job.id
        found = _follow_with_warnings(found_job, after) if follow else _list_with_warnings(found_job, after)
    if follow:
        with ending_on_interrupt():
            is_plain = output.is_for_people
            lines = (
                _render_all(found, with_job=job is None) if is_plain else (_as_line(one, of, output) for one in found)
            )
            for line in lines:
                typer.echo(line)
        return
    listed = list(found)
    write(
        [_as_record(one, of) for one in listed],
        output,
        lambda: "\n".join(_render_all(listed, with_job=job is None)) or "There are no events.",
    )


def _list_with_warnings(job: Job, after: int | None) -> list[Event | TrainingEvent]:
    """Return a job's events together with its driver's warnings, such as that of a worker's death.

    The numbers of events do not count for warnings. So with ``after`` there are only events.
    """
    warned = job.training_events() if after is None else ()
    found: list[Event | TrainingEvent] = [
        *job.events(after=after),
        *(event for event in warned if _is_told(event)),
    ]
    return sorted(found, key=lambda event: event.time)


def _follow_with_warnings(job: Job, after: int | None) -> Iterator[Event | TrainingEvent]:
    """Yield a job's events and its driver's warnings as they come."""
    came: queue.Queue[Event | Exception | None] = queue.Queue()

    def follow() -> None:
        try:
            for event in job.events(True, after=after):
                came.put(event)
            came.put(None)
        except Exception as error:  # noqa: BLE001 -- raised in the thread that shows the events
            came.put(error)

    seen = 0
    if after is not None:
        seen = max((event.seq for event in job.training_events()), default=0)
    threading.Thread(target=follow, name="events", daemon=True).start()
    waiting: deque[TrainingEvent] = deque()
    asked_at = -math.inf
    while True:
        if time.monotonic() - asked_at >= _ASK_EVERY_S:
            asked_at = time.monotonic()
            found = list(job.training_events(after=seen))
            seen = max((event.seq for event in found), default=seen)
            waiting.extend(event for event in found if _is_told(event))
        try:
            event = came.get(timeout=_ASK_EVERY_S)
        except queue.Empty:
            # All that the server has reported so far is shown.
            yield from _take_until(waiting, math.inf)
            continue
        if isinstance(event, Exception):
            raise event
        if event is None:
            break
        yield from _take_until(waiting, event.time)
        yield event
    waiting.extend(event for event in job.training_events(after=seen) if _is_told(event))
    yield from waiting


def _is_told(event: TrainingEvent) -> bool:
    """Whether an event of a driver is shown between those of the platform."""
    return event.level != "info" or event.kind in _GOOD_ENDS


def _take_until(waiting: deque[TrainingEvent], end: float) -> Iterator[TrainingEvent]:
    while waiting and waiting[0].time <= end:
        yield waiting.popleft()


def attempts(job: PlatformJob, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List the attempts of a job: each pause and each retry begins a new one."""
    found = find_job(job, server).attempts()

    write_list(found, output, ATTEMPT_COLUMNS, f"Job '{job}' has not started yet. 'legato explain {job}' says why.")


def metrics(
    job: PlatformJob,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these metrics.")] = None,
    after_step: Annotated[int | None, typer.Option(min=0, metavar="STEP", help="Only values after this step.")] = None,
    points: Annotated[
        int,
        typer.Option(
            min=2,
            max=10_000,
            metavar="NUMBER",
            help="Maximum number of points per metric. Highest and lowest values are kept.",
        ),
    ] = 1000,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show a job's loss and the metrics that its program logged. -o csv prints all points."""
    found = find_job(job, server).series(*(names or ()), after_step=after_step, num_points=points, steps=False)
    missing = sorted(set(names or ()) - {series.name for series in found.series})
    if missing:
        raise UsageError(f"Job '{job}' has no metric '{missing[0]}'. To list all: legato metrics {job}")
    if output is Output.csv:
        typer.echo(render_for_programs(_as_rows(found), output), nl=False)
        return

    def draw() -> Any:
        from legato.cli.terminal.columns import SERIES_COLUMNS

        if not found.series:
            return (
                f"Job '{job}' has no metrics yet. Its loss appears here if the program calls run.backward(loss). To "
                "log other metrics, call run.log(accuracy=0.97)."
            )
        return make_table(SERIES_COLUMNS, found.series, is_wide=output is Output.wide)

    write(found, output, draw)


def download(
    job: PlatformJob,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders of the job, see --list. [default: all]"),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Target folder. [default: a new folder with the job's name]")
    ] = None,
    overwrite: OverwriteOption = False,
    listing: Annotated[bool, typer.Option("--list", help="Only list the files.")] = False,
    last: Annotated[bool, typer.Option("--checkpoint", help="Download the newest checkpoint.")] = False,
    code: Annotated[bool, typer.Option("--code", help="Download the uploaded code, as JOB-code.zip.")] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Download files of a job: the program's files, checkpoints, logs, metrics."""
    from legato.client.downloads import DOWNLOAD_MARK

    found = find_job(job, server)
    if last + code + bool(paths or listing) > 1:
        one = "the newest checkpoint" if last else "the code"
        raise UsageError(f"Cannot download {one} together with other files. Leave one of the options out.")
    if code:
        with naming_overwrite():
            file = found.download_code(Path(to or "", f"{found.name}-code.zip"), overwrite=overwrite)
        write([str(file)], output, lambda: f"The code of job '{found.name}' is in '{file}'.")
        return
    if listing:
        if paths and len(paths) > 1:
            raise UsageError("Cannot list several folders at once: name one of them.")
        _list_files(found.files((paths or [""])[0]), output)
        return
    if last:
        checkpoints = found.checkpoints()
        if not checkpoints:
            raise UsageError(f"Job '{job}' has no checkpoint yet. To save some, submit it with --checkpoint-every.")
        paths = [checkpoints[0].path]
    target = Path(to if to is not None else found.name)
    with naming_overwrite():
        written = [str(path) for one in paths or [""] for path in found.download(target, one, overwrite=overwrite)]
    kept = " (later uploads of code skip this folder)" if (target / DOWNLOAD_MARK).exists() else ""
    num_files = f"{len(written)} file{'' if len(written) == 1 else 's'}"
    write(
        written,
        output,
        lambda: f"{num_files} of job '{found.name}' {'is' if len(written) == 1 else 'are'} in '{target}'{kept}.",
    )


ENTRIES: Final = (
    Entry("events", events, "legato events mnist --follow"),
    Entry("attempts", attempts, "legato attempts mnist"),
    Entry(
        "metrics",
        metrics,
        "legato metrics mnist accuracy -o csv > accuracy.csv",
    ),
    Entry("download", download, "legato download mnist work/results --to ."),
)


def _find_events(*, follow: bool, after: int | None, server: str | None) -> Iterable[Event]:
    client = open_client(server)
    if after is None:
        # The numbers have no gaps, so the last hundred begin here.
        after = max(client.last_event() - _NUM_EVENTS, 0) if not follow else None
    return client.events(follow, after="now" if after is None else after)


def _render_all(events: Iterable[Event | TrainingEvent], *, with_job: bool) -> Iterator[str]:
    """Render events, with each reason once: one decision causes several events with the same reason."""
    from legato.api.jobs import TrainingEvent

    before = None
    for event in events:
        if isinstance(event, TrainingEvent):
            yield _render_training(event)
            continue
        decided = (event.job, event.time, event.reason)
        if decided != before:
            yield _render(event, event.reason, with_job=with_job)
        elif _name_what(event):
            yield _render(event, "", with_job=with_job)
        before = decided


def _render(event: Event, reason: str, *, with_job: bool) -> str:
    who = f"  {event.job or '-':<12}" if with_job else ""
    text = ": ".join(filter(None, (_name_what(event), reason)))
    return clean(f"{render_clock(event.time, time.time())}{who}  {event.kind:<9} {text}")


def _name_what(event: Event) -> str:
    """Return the stages between which a job moved, or the slots of an event; "" for other events."""
    detail = event.detail or {}
    if event.kind == "stage":
        return " → ".join(str(stage) for stage in (detail.get("from"), detail.get("to")) if stage)
    slots = detail.get("slots") or ()
    more = f" and {len(slots) - _NUM_SLOTS} more" if len(slots) > _NUM_SLOTS else ""
    return ", ".join(map(str, slots[:_NUM_SLOTS])) + more


def _render_training(event: TrainingEvent) -> str:
    step = "" if event.step is None else f" (step {event.step})"
    return clean(f"{render_clock(event.time, time.time())}  {event.kind:<9} {event.reason}{step}")


def _as_record(event: Event | TrainingEvent, job: str | None) -> dict[str, Any]:
    """Return an event for programs; a driver's warning has no number, because it is no event of the platform."""
    import msgspec

    from legato.api.jobs import Event

    record: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(event, Event):
        return record
    kept = {name: record.pop(name) for name in ("level", "worker", "view", "step", "detail")}
    return {**record, "seq": None, "job": job, "attempt": None, "detail": kept}


def _as_line(event: Event | TrainingEvent, job: str | None, output: Output) -> str:
    return render_for_programs(_as_record(event, job), output, is_one_line=True).rstrip("\n")


def _as_rows(metrics: Metrics) -> list[dict[str, Any]]:
    return [
        {"name": series.name, "step": step, "epoch": epoch, "time": moment, "value": value}
        for series in metrics.series
        for step, epoch, moment, value in zip(series.step, series.epoch, series.time, series.value, strict=True)
    ]


def _list_files(files: Sequence[Any], output: Output) -> None:
    write_list(files, output, FILE_COLUMNS, "There are no files yet.")
