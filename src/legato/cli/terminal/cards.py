"""Text for people about one job, a plan or an explanation. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from legato.cli.terminal.columns import render_labels, style_stage
from legato.cli.terminal.formatting import clean, count_slots, render_age, render_clock, render_gpus, render_time
from legato.cli.terminal.job_view import render_duration, render_number
from legato.core.balance import describe_cheap_numbers
from legato.core.limits import render_size
from legato.core.speed import Speed

if TYPE_CHECKING:
    import msgspec

    from legato.api.jobs import Explanation, JobRecord, Plan, Spec, TrainingEvent
    from legato.api.pool import Pool


def draw_job(job: JobRecord, spec: Spec, now: float) -> RenderableType:
    """Draw all details of a job.

    Args:
        job: to describe.
        spec: of the job.
        now: seconds since 1970.
    """
    head = Text.assemble((clean(f"{job.owner}/{job.name}"), "bold"), "  ", (job.stage, style_stage(job)), f"  {job.id}")
    return Group(
        head, _draw_pairs([*_describe_state(job, now), *_describe_terms(job, spec), *_describe_times(job, now)])
    )


def draw_explanation(
    job: JobRecord,
    explanation: Explanation,
    called: str,
    now: float,
    losses: Sequence[TrainingEvent] = (),
    advice: Sequence[TrainingEvent] = (),
    *,
    pool: Pool | None = None,
) -> RenderableType:
    """Draw why a job has its slots, and what the user can do.

    Args:
        job: to describe.
        explanation: of the server.
        called: how the user named the job: its own name may mean a newer job.
        now: seconds since 1970.
        losses: of workers, with the newest first.
        advice: of workers on the speed.
        pool: of the job; None: not known.
    """
    parts: list[RenderableType] = [Text(clean(sentence)) for sentence in explanation.sentences]
    if explanation.because:
        named = ", ".join(f"{party.title} (has {party.num_slots})" for party in explanation.because)
        parts.append(Text(clean(f"Because of: {named}.")))
    if explanation.decisions:
        parts += ["", Text("Decisions, the newest first:", style="dim")]
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
        for _ in range(3):
            table.add_column()
        for decision in explanation.decisions:
            slots = count_slots(decision.num_slots)
            table.add_row(render_clock(decision.time, now), slots, Text(clean(decision.reason)))
        parts.append(Padding(table, (0, 0, 0, 2)))
    if losses:
        parts += ["", Text("Lost workers, the newest first:", style="dim")]
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
        for _ in range(2):
            table.add_column()
        for event in losses:
            table.add_row(render_clock(event.time, now), Text(clean(event.reason)))
        parts.append(Padding(table, (0, 0, 0, 2)))
    for event in advice:
        parts += ["", Text(clean(f"Speed: {event.reason}"))]
    hint = suggest_next(job, explanation, called, pool)
    return Group(*parts, "", Text(hint)) if hint else Group(*parts)


def suggest_next(job: JobRecord, explanation: Explanation, called: str, pool: Pool | None = None) -> str | None:
    """Suggest commands, None if there is nothing to do; arguments as in `draw_explanation`."""
    match job.stage:
        case "paused":
            return f"To resume it: legato resume {called}"
        case "failed":
            return (
                f"The end of its logs: legato logs {called} --tail 50. The driver's log: legato logs {called} --driver"
            )
        case "queued" if pool is not None and pool.num_usable < job.min_workers:
            return (
                f"The pool has {count_slots(pool.num_usable)} that can be used, so the job cannot start with its "
                f"minimum of {job.min_workers}, whatever its priority. To ask for less: legato scale {called} N. To "
                "see the slots: legato slots"
            )
        case "queued" | "running" | "starting" if explanation.ceiling is not None:
            return (
                f"Queue '{job.queue}' may have {count_slots(explanation.ceiling)}, whatever the priority: 'legato set "
                f"{called} --queue NAME' moves it to another, 'legato queues' lists them. An admin can raise it: "
                f"'legato queues set {job.queue} --ceiling N'."
            )
        case "queued" | "running" | "starting" if explanation.because and _wants_more(job, explanation):
            ways = []
            if _can_rise(job, explanation, pool):
                ways.append(f"'legato set {called} --priority N' (it has {job.priority}, higher is more)")
            if job.stage == "queued" and job.min_workers > 1:
                ways.append(f"'legato scale {called} …' to ask for less")
            sooner = f"To get more slots sooner: {', or '.join(ways)}. " if ways else ""
            return f"{sooner}To see all jobs and their slots: legato top"
    return None


def _can_rise(job: JobRecord, explanation: Explanation, pool: Pool | None) -> bool:
    """Whether a higher priority may get the job slots of others; under fair shares, only of jobs of the same user."""
    if pool is not None and pool.policy in ("fifo", "priority"):
        return pool.policy == "priority"
    others = [party for party in (*explanation.because, *explanation.holders) if party.job != job.id]
    return any(party.title.startswith(f"{job.owner}/") for party in others)


def draw_record(record: msgspec.Struct, more: Mapping[str, str] | None = None) -> RenderableType:
    """Draw all fields of a project, a training definition or an experiment, a line for each.

    Args:
        record: of the project, the definition or the experiment.
        more: additional lines at the end; they replace fields with the same names.
    """
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    texts = {name: _describe_field(name, value) for name, value in fields.items()} | dict(more or {})
    return _draw_pairs([(name.replace("_", " "), text) for name, text in texts.items() if text])


def draw_plan(plan: Plan) -> RenderableType:
    """Draw what would happen after the submission of a job."""
    parts: list[RenderableType] = [Text(clean(f"It {plan.reason.rstrip('.')}."))]
    if plan.slots:
        in_the_end = count_slots(plan.slots)
        sentence = f"It would end up with {in_the_end} if nothing else changes; its exact share is {plan.share:.2f}."
        parts.append(Text(sentence))
    if plan.cheap_workers:
        parts.append(Text(describe_cheap_numbers(plan.cheap_workers)))
    if plan.effects:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title in ("JOB", "GPUS NOW", "GPUS THEN"):
            table.add_column(title, justify="left" if title == "JOB" else "right")
        for effect in plan.effects:
            then = "0 (waits)" if effect.after == 0 else str(effect.after)
            table.add_row(Text(clean(effect.title)), str(effect.before), then)
        parts += ["", table]
    return Group(*parts)


def _wants_more(job: JobRecord, explanation: Explanation) -> bool:
    most = (
        job.max_workers * job.gpus_per_worker
        if explanation.wanted is None
        else max(explanation.wanted, job.num_slots + bool(explanation.lost))
    )
    return job.stage == "queued" or job.num_slots < min(most, job.max_workers * job.gpus_per_worker)


def _describe_speed(speed: Speed) -> str:
    """Write a measured speed.

    >>> _describe_speed(Speed(num_workers=4, num_nodes=2, samples_per_s=812.36, measured_s=60.0, at=0.0))
    '812.4 samples/s with 4 workers on 2 nodes'
    """
    workers = f"{speed.num_workers} worker{'' if speed.num_workers == 1 else 's'}"
    nodes = f" on {speed.num_nodes} nodes" if speed.num_nodes > 1 else ""
    return f"{render_number(speed.samples_per_s)} samples/s with {workers}{nodes}"


def _describe_state(job: JobRecord, now: float) -> Iterable[tuple[str, str | None]]:
    since = f"for {render_age(now - job.staged_at)}"
    yield "stage", f"{job.stage} {since}: {job.reason}"
    yield "gpus", render_gpus(job)
    yield "why", job.decided_reason if job.ended_at is None else None
    progress = job.progress
    if progress is not None:
        parts = [
            f"step {progress.reached}" if progress.reached else "",
            f"epoch {progress.epoch + 1}" if progress.epoch is not None else "",
            f"loss {render_number(progress.loss)}" if progress.loss is not None else "",
            f"{render_number(progress.samples_per_s)} samples/s" if progress.samples_per_s else "",
            f"{render_duration(progress.step_s)} a step" if progress.step_s and progress.step_s >= 0.1 else "",
            f"not exact since step {progress.differed_step}" if progress.differed_step is not None else "",
        ]
        yield "progress", " · ".join(filter(None, parts)) or None
        if len(progress.speeds) > 1:
            yield "measured", " · ".join(map(_describe_speed, sorted(progress.speeds, key=lambda one: one.num_workers)))
        yield "cannot connect", progress.unconnected if job.ended_at is None else None
    yield "exit code", None if job.exit_code is None else str(job.exit_code)


def _describe_terms(job: JobRecord, spec: Spec) -> Iterable[tuple[str, str | None]]:
    kind = "elastic" if job.is_elastic else "static"
    yield "terms", f"{kind}, queue {job.queue}, priority {job.priority}, version {job.version}"
    yield "labels", render_labels(job.labels) or None
    yield "notes", job.notes or None
    yield "run of", _describe_origin(job)
    yield "clone of", job.parent
    yield "framework", None if spec.framework == "legato" else spec.framework
    yield "program", shlex.join(spec.program)
    yield "parameters", render_labels({name: _plain(value) for name, value in spec.parameters.items()}) or None
    yield "code", f"uploaded, {job.code[:12]}…" if job.code else None
    yield "directory", spec.directory
    variables = [f"{name}={'…' if value is None else value}" for name, value in spec.environment.items()]
    yield "variables", " ".join(variables) or None
    yield "data", spec.data
    yield "seed", None if spec.seed is None else str(spec.seed)
    yield "checkpoints", f"every {spec.checkpoint_every}, {spec.keep} kept" if spec.checkpoint_every else None
    yield "at most", render_duration(spec.max_run_s) if spec.max_run_s else None
    limits = [
        render_size(spec.memory_bytes) if spec.memory_bytes else "",
        f"{spec.num_cpus:g} CPU cores" if spec.num_cpus else "",
    ]
    yield "worker limit", ", ".join(filter(None, limits)) or None
    silent, hung = spec.heartbeat_limit_s, spec.collective_limit_s
    yield "replaces", f"workers that are silent for {silent:g} s, or hang for {hung:g} s"


def _describe_field(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, float):
        return render_time(value)
    if isinstance(value, dict):
        return render_labels({key: "…" if inner is None else _plain(inner) for key, inner in value.items()})
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def _describe_origin(job: JobRecord) -> str | None:
    parts = [("experiment", job.experiment), ("definition", job.definition), ("project", job.project)]
    return ", ".join(f"{what} {made}" for what, made in parts if made is not None) or None


def _plain(value: str | bool | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe_times(job: JobRecord, now: float) -> Iterable[tuple[str, str | None]]:
    yield "submitted", f"{render_time(job.submitted_at)} ({render_age(now - job.submitted_at)} ago)"
    yield "started", render_time(job.started_at) or None
    yield "ended", render_time(job.ended_at) or None
    retries = f", {job.num_retries} of {job.max_retries} retries" if job.max_retries else ""
    yield "attempt", f"{job.attempt}{retries}" if job.attempt else None


def _draw_pairs(pairs: Sequence[tuple[str, str | None]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None:
            table.add_row(label, Text(clean(value)))
    return table
