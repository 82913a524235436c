"""Commands on jobs of the platform: list, show, explain, change, pause, resume, wait. Decides nothing."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from legato.cli.entry import Entry
from legato.cli.platform.completion import complete_definitions, complete_experiments, complete_stages
from legato.cli.platform.connecting import find_job, open_client
from legato.cli.platform.options import (
    ChangedPriorityOption,
    ChangedQueueOption,
    ChangedWorkersOption,
    LimitOption,
    MaxWorkersOption,
    MinWorkersOption,
    OutputOption,
    PlatformJob,
    ServerOption,
    WaitOption,
    WatchOption,
    label_option,
    project_option,
    queue_option,
)
from legato.cli.terminal.formatting import clean, count_slots, read_duration, read_label, tell_when
from legato.cli.terminal.output import Output, make_table, watch, write
from legato.core.errors import NotFound, UsageError
from legato.core.spelling import ask_whether

if TYPE_CHECKING:
    from rich.console import RenderableType

    from legato.api.jobs import JobRecord, TrainingEvent
    from legato.client.client import Client
    from legato.client.jobs import Job

_LOSSES: Final = ("died", "fenced", "failed", "refused")
EXIT_TIME_IS_UP: Final = 124  # that of timeout(1)
_GOES_ON: Final = ("queued", "starting", "running", "pausing", "paused", "stopping")
_STAGES: Final = (*_GOES_ON, "succeeded", "failed", "stopped")


def ps(
    every: Annotated[bool, typer.Option("--all", "-a", help="Also list jobs that have ended.")] = False,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            "--stage",
            "-s",
            metavar="STAGE",
            help="Only jobs in this stage. Repeatable.",
            autocompletion=complete_stages,
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only jobs of this user.")] = None,
    queue: Annotated[str | None, queue_option("Only jobs of this queue.")] = None,
    label: Annotated[list[str] | None, label_option("Only jobs with this label. Repeatable.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Only jobs whose name begins with this text.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only jobs with this text in their name or id; case does not matter."),
    ] = None,
    project: Annotated[str | None, project_option("Only jobs of this project.")] = None,
    experiment: Annotated[
        str | None,
        typer.Option(metavar="EXPERIMENT", help="Only jobs of this experiment.", autocompletion=complete_experiments),
    ] = None,
    definition: Annotated[
        str | None,
        typer.Option(metavar="DEFINITION", help="Only jobs of this definition.", autocompletion=complete_definitions),
    ] = None,
    limit: LimitOption = 100,
    output: OutputOption = Output.table,
    again: WatchOption = False,
    server: ServerOption = None,
) -> None:
    """List jobs that have not ended (--all: all jobs), how many GPUs each has, and why."""
    stages = _read_stages(stage) or (None if every else _GOES_ON)
    labels = dict(_read_labels(label, example="team=vision"))
    client = open_client(server, is_watching=again)

    def look() -> tuple[Any, Any, bool]:
        found = client.jobs(
            stage=stages,
            owner=owner,
            queue=queue,
            labels=labels,
            name=name,
            search=search,
            project=project,
            experiment=experiment,
            definition=definition,
            limit=limit + 1,
        )
        records = [job.record for job in found[:limit]]
        if queue is not None and not records:
            _check_queue(client, queue)
        return records, _draw_jobs(records, output, is_more=len(found) > limit, is_every=every), True

    watch(look, output, again=again)


def show(
    job: PlatformJob, output: OutputOption = Output.table, again: WatchOption = False, server: ServerOption = None
) -> None:
    """Show all details of a job."""
    show_job(find_job(job, server, is_watching=again), output, again=again)


def explain(
    job: PlatformJob,
    decisions: Annotated[
        int,
        typer.Option(
            "--decisions", "-d", min=1, max=1000, metavar="NUMBER", help="Number of recent decisions to show."
        ),
    ] = 5,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Explain why a job has its GPUs: what it waits for, which jobs got its slots, and what you can do."""
    from legato.cli.terminal.cards import draw_explanation

    found = find_job(job, server)
    explanation = found.explain(decisions)

    def draw() -> RenderableType:
        pool = open_client(server).pool() if found.record.stage in ("queued", "starting", "running") else None
        losses, advice = _find_losses_and_advice(found, decisions)
        if found.record.stage == "failed":  # the explanation begins with the reason
            losses = [event for event in losses if event.reason != found.record.reason]
        return draw_explanation(found.record, explanation, job, time.time(), losses, advice, pool=pool)

    write(explanation, output, draw)


def _find_losses_and_advice(job: Job, count: int) -> tuple[list[TrainingEvent], list[TrainingEvent]]:
    """Return the latest losses of workers, the newest first, and the newest advice of each kind on the speed.

    Advice on loading data is left out unless the workers wait for data now, and have got it in the present attempt.
    """
    from legato.core.wire import COST_ADVICE, DATA_ADVICE, NOTABLE_WAIT

    losses: deque[TrainingEvent] = deque(maxlen=count)
    advice: dict[str, TrainingEvent] = {}
    for event in job.training_events():
        is_end_of_job = event.kind == "failed" and event.worker is None  # the explanation says it
        if event.kind in _LOSSES and not is_end_of_job:
            losses.append(event)
        elif event.kind == "note":
            advice.update({kind: event for kind in (DATA_ADVICE, COST_ADVICE) if event.reason.startswith(kind)})
    if DATA_ADVICE in advice:
        waits = job.record.progress is not None and (job.record.progress.data_wait or 0.0) >= NOTABLE_WAIT
        began_at = max((attempt.started_at for attempt in job.attempts()), default=0.0)
        if not waits or advice[DATA_ADVICE].time < began_at:
            del advice[DATA_ADVICE]
    return list(reversed(losses)), list(advice.values())


def change(
    job: PlatformJob,
    workers: ChangedWorkersOption = None,
    min_workers: MinWorkersOption = None,
    max_workers: MaxWorkersOption = None,
    priority: ChangedPriorityOption = None,
    queue: ChangedQueueOption = None,
    label: Annotated[list[str] | None, label_option("Label to set; KEY= removes it. Repeatable.")] = None,
    notes: Annotated[
        str | None,
        typer.Option("--notes", metavar="TEXT", help="Notes for people, at most 1000 characters. '' removes them."),
    ] = None,
    if_version: Annotated[
        int | None,
        typer.Option(
            "--if-version", min=0, metavar="NUMBER", help="Refuse the change if the job no longer has this version."
        ),
    ] = None,
    server: ServerOption = None,
) -> None:
    """Change a job's priority, queue, number of workers, labels or notes, also while it trains."""
    found = find_job(job, server)
    low, high = read_bounds(workers, min_workers, max_workers)
    said: dict[str, Any] = {"min_workers": low, "max_workers": high, "priority": priority, "queue": queue}
    said["notes"] = notes
    if label:
        said["labels"] = dict(read_label(one) for one in label)
    if all(value is None for value in said.values()):
        raise UsageError(
            f"Cannot change job '{job}': no change is given. Give --priority, --queue, --workers, --label or --notes; "
            "see 'legato set --help'."
        )
    if if_version is not None:
        found.record = _with_version(found.record, if_version)
    before = found.record
    found.set(**said, only_if_unchanged=if_version is not None)
    typer.echo(_describe_change(before, found.record))


def pause(job: PlatformJob, wait: WaitOption = False, server: ServerOption = None) -> None:
    """Save a checkpoint of a job and free its GPUs, until you resume it."""
    found = find_job(job, server).pause()
    if wait:
        found.wait(until=("paused",))
    way = "is paused" if found.stage == "paused" else "saves its state and frees its slots"
    typer.echo(f"Job '{found.name}' {way}. To resume it: legato resume {job}.")


def resume(job: PlatformJob, wait: WaitOption = False, server: ServerOption = None) -> None:
    """Resume a paused job from where it was."""
    found = find_job(job, server).resume()
    if wait:
        found.wait(until=("running",))
    if found.stage == "running":
        typer.echo(f"Job '{found.name}' runs again, with {count_slots(found.num_slots)}.")
        return
    typer.echo(f"Job '{found.name}' resumes as soon as it gets slots. To see when: legato explain {job}.")


def wait_for(
    job: PlatformJob,
    until: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="Wait for this stage instead of the end.",
            autocompletion=complete_stages,
        ),
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after this time: 30m, 12h.")] = None,
    server: ServerOption = None,
) -> None:
    """Wait until a job has ended, and exit with its exit code."""
    from legato.api.jobs import ENDED

    limit_s = None if timeout is None else read_duration(timeout, "the timeout")
    found = find_job(job, server)
    try:
        found.wait(limit_s, until=_read_stages(until) or ENDED)
    except TimeoutError as error:
        typer.echo(f"legato: {error}", err=True)
        raise typer.Exit(EXIT_TIME_IS_UP) from None
    typer.echo(f"Job '{found.name}' {tell_stage(found.record)}")
    raise typer.Exit(exit_code_of(found.record) if found.has_ended else 0)


ENTRIES: Final = (
    Entry("ps", ps, "legato ps --stage running -w"),
    Entry("show", show, "legato show mnist -o json | jq .num_slots"),
    Entry("explain", explain, "legato explain mnist"),
    Entry(
        "set",
        change,
        "legato set mnist --priority 8000 --label team=vision",
    ),
    Entry("pause", pause, "legato pause mnist --wait"),
    Entry("resume", resume, "legato resume mnist"),
    Entry("wait", wait_for, "legato wait mnist --timeout 2h && legato download mnist"),
)


# ---------------------------------------------------------------- for other commands


def show_job(job: Job, output: Output, *, again: bool) -> None:
    """Show a job of the platform, once or every second until it has ended."""
    from legato.cli.terminal.cards import draw_job

    spec = job.spec()

    def look() -> tuple[Any, Any, bool]:
        found = job.refresh()
        return found.record, draw_job(found.record, spec, time.time()), not found.has_ended

    watch(look, output, again=again)


def exit_code_of(job: JobRecord) -> int:
    """Return the exit code for an ended job: that of its program, if it is known.

    A job that was stopped while it did not run has no exit code; then it is 1, because the job has no result.

    >>> from types import SimpleNamespace as Job
    >>> [exit_code_of(Job(stage=stage, exit_code=code)) for stage, code in (("stopped", 0), ("stopped", None))]
    [0, 1]
    """
    if job.exit_code is not None:
        return job.exit_code
    return 0 if job.stage == "succeeded" else 1


def tell_stage(job: JobRecord) -> str:
    """Return the stage of a job and its reason, as a text.

    >>> from types import SimpleNamespace as Job
    >>> tell_stage(Job(stage="stopped", reason="'anna' asked to stop it"))
    "was stopped: 'anna' asked to stop it."
    """
    verb = {"succeeded": "has succeeded", "failed": "has failed", "stopped": "was stopped"}
    return f"{verb.get(job.stage, f'is {job.stage}')}: {clean(job.reason).rstrip('.')}."


def read_bounds(workers: str | None, low: int | None, high: int | None) -> tuple[int | None, int | None]:
    """Return the given minimum and maximum of workers: ``4`` is the maximum alone, ``1..4`` is both.

    Raises:
        UsageError: they were given twice, or do not fit together.
    """
    from legato.core.spec import parse_workers

    if workers is None:
        return low, high
    if low is not None or high is not None:
        raise UsageError("--workers cannot be combined with --min-workers or --max-workers. Use one of the two ways.")
    first, last, _ = parse_workers(workers)
    return (first if ".." in workers else None), last


def _check_queue(client: Client, name: str) -> None:
    """Raise NotFound if no jobs are found because the queue does not exist."""
    known = [queue.name for queue in client.queues()]
    if name not in known:
        raise NotFound(
            f"There is no queue '{name}' that you may see.{ask_whether(name, known)} 'legato queues' lists all."
        )


def _read_stages(said: list[str] | None) -> list[str]:
    for stage in said or ():
        if stage not in _STAGES:
            raise UsageError(f"Cannot read the stage '{stage}'. Write one of {', '.join(_STAGES)}.")
    return list(said or ())


def _read_labels(said: list[str] | None, *, example: str) -> list[tuple[str, str]]:
    labels = []
    for one in said or ():
        key, value = read_label(one)
        if value is None:
            raise UsageError(f"Cannot look for the label '{one}'. Write KEY=VALUE, such as {example}.")
        labels.append((key, value))
    return labels


def _draw_jobs(records: list[JobRecord], output: Output, *, is_more: bool, is_every: bool) -> Any:
    from legato.cli.terminal.columns import job_columns

    if not records:
        hint = "'legato submit' submits one." if is_every else "'legato ps --all' lists those that have ended too."
        return f"No such jobs. {hint}"
    newest = "job is" if len(records) == 1 else f"{len(records)} jobs are"
    below = f"Only the newest {newest} shown. To show more, raise --limit." if is_more else None
    return make_table(job_columns(time.time()), records, is_wide=output is Output.wide, below=below)


def _describe_change(before: JobRecord, after: JobRecord) -> str:
    changes = []
    for field, name in (("priority", "priority"), ("queue", "queue"), ("labels", "labels"), ("notes", "notes")):
        if getattr(before, field) != getattr(after, field):
            changes.append(f"{name} {_plain(getattr(before, field))} → {_plain(getattr(after, field))}")
    old, new = ((job.min_workers, job.max_workers) for job in (before, after))
    if old != new:
        changes.append(f"workers {old[0]}..{old[1]} → {new[0]}..{new[1]}")
    summary = ", ".join(changes) or "nothing changed: it has these values already"
    later = tell_when(after) if old != new else ""
    return f"Job '{after.name}': {summary} (version {after.version}).{later}"


def _plain(value: object) -> str:
    from legato.cli.terminal.columns import render_labels

    return clean(render_labels(value) if isinstance(value, dict) else value) or "none"


def _with_version(record: JobRecord, version: int) -> JobRecord:
    import msgspec

    return msgspec.structs.replace(record, version=version)
