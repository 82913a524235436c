"""The columns of each table for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from legato.cli.terminal.formatting import (
    render_age,
    render_bytes,
    render_gpus,
    render_part,
    render_reason,
    render_sparkline,
    render_time,
)
from legato.cli.terminal.job_view import render_number
from legato.cli.terminal.table import Column

if TYPE_CHECKING:
    from legato.api.jobs import Attempt, JobRecord
    from legato.api.outputs import Checkpoint, File, Series
    from legato.api.people import AuditEntry, Token, User
    from legato.api.pool import Cluster, JoinToken, Node, Queue, Slot, Usage
    from legato.api.projects import AccessRequest, Definition, Experiment, Framework, Project, ProjectOwner
    from legato.api.sweeps import Sweep, Trial
    from legato.api.webhooks import Delivery, Webhook

STAGE_STYLES: Final[Mapping[str, str]] = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "green",
    "pausing": "yellow",
    "paused": "yellow",
    "stopping": "yellow",
    "succeeded": "bold green",
    "failed": "bold red",
    "stopped": "yellow",
}


def _describe_nodes(definition: Definition) -> str:
    if definition.distributed != "elastic":
        return str(definition.max_nodes)
    return f"{definition.min_nodes}..{definition.max_nodes}"


def _count_steps(job: JobRecord) -> str:
    """Return the step, and the total if it is known: ``42/60``."""
    if job.progress is None or job.progress.step is None:
        return ""
    return f"{job.progress.step}/{job.progress.num_steps}" if job.progress.num_steps else str(job.progress.step)


def style_stage(job: JobRecord) -> str:
    """Return the style of a job's stage."""
    return STAGE_STYLES.get(job.stage, "")


def job_columns(now: float) -> Sequence[Column[JobRecord]]:
    """Return the columns of jobs.

    Args:
        now: seconds since 1970.
    """
    return (
        Column("ID", lambda job: job.id, gives_way=4),
        Column("NAME", lambda job: job.name),
        Column("OWNER", lambda job: job.owner, gives_way=3),
        Column("QUEUE", lambda job: job.queue, is_wide=True),
        Column("PRIORITY", lambda job: job.priority, is_wide=True, is_number=True),
        Column("STAGE", lambda job: job.stage, style=style_stage),
        Column("GPUS", render_gpus),
        Column(
            "STEP",
            lambda job: job.progress and job.progress.reached,
            is_number=True,
            gives_way=1,
            read_short=_count_steps,
        ),
        Column("EPOCH", _count_epochs, is_wide=True, is_number=True),
        Column("LOSS", lambda job: _number(_progress(job, "loss")), is_number=True, gives_way=2),
        Column("SAMPLES/S", lambda job: _number(_progress(job, "samples_per_s")), is_wide=True, is_number=True),
        Column("ATTEMPT", lambda job: job.attempt, is_wide=True, is_number=True),
        Column("LABELS", lambda job: render_labels(job.labels), is_wide=True),
        Column("NOTES", lambda job: job.notes, is_wide=True),
        Column("AGE", lambda job: render_age(now - job.submitted_at), is_number=True, gives_way=5),
        Column("REASON", render_reason),
    )


def use_columns(jobs: Sequence[JobRecord]) -> Sequence[Column[JobRecord]]:
    """Return columns of what jobs use, without those of which nothing is measured.

    Args:
        jobs: that are shown.
    """
    columns: tuple[tuple[str, Column[JobRecord]], ...] = (
        ("cpus", Column("CPU", lambda job: _number(_progress(job, "cpus")))),
        ("memory_bytes", Column("MEMORY", lambda job: _bytes(job, "memory_bytes"))),
        ("gpu_busy", Column("GPU USE", lambda job: render_part(_progress(job, "gpu_busy")))),
        ("gpu_memory_bytes", Column("GPU MEMORY", lambda job: _bytes(job, "gpu_memory_bytes"))),
        ("data_wait", Column("DATA WAIT", lambda job: render_part(_progress(job, "data_wait")))),
    )
    return [
        column._replace(is_number=True, gives_way=6)
        for field, column in columns
        if any(_progress(job, field) is not None for job in jobs)
    ]


QUEUE_COLUMNS: Final[Sequence[Column[Queue]]] = (
    Column("NAME", lambda queue: queue.name),
    Column("WEIGHT", lambda queue: f"{queue.weight:g}", is_number=True),
    Column("FLOOR", lambda queue: queue.floor, is_number=True),
    Column("CEILING", lambda queue: "none" if queue.ceiling is None else queue.ceiling, is_number=True),
    Column("GPUS", lambda queue: queue.num_slots, is_number=True),
    Column("RUNNING", lambda queue: queue.num_holding, is_number=True),
    Column("QUEUED", lambda queue: queue.num_queued, is_number=True),
    Column("OPEN TO", lambda queue: "all users" if queue.is_open else ", ".join(queue.members) or "no user"),
)


def node_columns(now: float) -> Sequence[Column[Node]]:
    """Return the columns of nodes.

    Args:
        now: seconds since 1970.
    """
    return (
        Column("NAME", lambda node: node.name),
        Column("GPUS", lambda node: node.num_slots, is_number=True),
        Column("USABLE", lambda node: node.num_usable, is_number=True),
        Column("FREE", lambda node: node.num_free, is_number=True),
        Column("GPU TYPE", lambda node: ", ".join(node.gpu_types)),
        Column("LABELS", lambda node: render_labels(node.labels)),
        Column("STATE", lambda node: _describe_state(node, now)),
        Column("ADDRESS", lambda node: node.address or (node.agent.address if node.agent else ""), is_wide=True),
        Column("VERSION", lambda node: "" if node.agent is None else node.agent.version, is_wide=True),
        Column(
            "MACHINE",
            lambda node: ", ".join(f"{name} {value}" for name, value in sorted(node.traits.items())) or node.kind or "",
            is_wide=True,
        ),
    )


def cluster_columns(now: float) -> Sequence[Column[Cluster]]:
    """Return the columns of clusters.

    Args:
        now: seconds since 1970.
    """
    return (
        Column("NAME", lambda cluster: cluster.kind),
        Column("STATE", lambda cluster: cluster.state),
        Column("SEEN", lambda cluster: _describe_seen(cluster, now)),
        Column("WAITING", lambda cluster: _count_pilots(cluster, "waiting"), is_number=True),
        Column("RUNNING", lambda cluster: _count_pilots(cluster, "running"), is_number=True),
        Column("ENDING", lambda cluster: _count_pilots(cluster, "ending"), is_number=True),
        Column("NEEDED", lambda cluster: cluster.target, is_number=True),
        Column("LIMITS", _describe_limits),
        Column("SLOTS EACH", lambda cluster: cluster.num_slots, is_number=True, is_wide=True),
        Column("IDLE NOW", _describe_idle),
    )


def _describe_seen(cluster: Cluster, now: float) -> str:
    return "never" if cluster.observed_at is None else f"{render_age(max(0.0, now - cluster.observed_at))} ago"


def _describe_limits(cluster: Cluster) -> str:
    each = cluster.max_pilots_per_user
    return f"{cluster.min_pilots}..{cluster.max_pilots}{'' if each is None else f', {each} per user'}"


def _count_pilots(cluster: Cluster, state: str) -> int:
    return sum(pilot.state == state for pilot in cluster.pilots)


def _describe_idle(cluster: Cluster) -> str:
    """Return how many slots are idle, and for how many hours together; "": none is."""
    idle = cluster.idle
    if idle is None or not idle.num_slots:
        return ""
    return f"{idle.num_slots} slot{'' if idle.num_slots == 1 else 's'}, {idle.slot_s / 3600:.2f} slot hours"


def _describe_state(node: Node, now: float) -> str:
    agent = node.agent
    if agent is None:
        return "server" if node.num_usable else "removed"
    match agent.state:
        case "drained":
            why = f": {agent.drain_reason}" if agent.drain_reason else ""
            return f"drained by {agent.drained_by}{why}"
        case "silent":
            return f"silent for {render_age(now - (agent.joined_at if agent.seen_at is None else agent.seen_at))}"
        case "left":
            return "has left"
    return agent.state


def join_token_columns(now: float) -> Sequence[Column[JoinToken]]:
    """Return the columns of join tokens.

    Args:
        now: seconds since 1970.
    """
    return (
        Column("ID", lambda token: token.id),
        Column("BY", lambda token: token.created_by),
        Column("MADE", lambda token: render_time(token.created_at)),
        Column("EXPIRES", lambda token: render_time(token.expires_at)),
        Column("USES", lambda token: token.num_uses, is_number=True),
        Column("STATE", lambda token: _describe_token(token, now)),
    )


def _describe_token(token: JoinToken, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if now < token.expires_at else "expired"


def slot_columns(now: float, names: Mapping[str, str]) -> Sequence[Column[Slot]]:
    """Return the columns of slots.

    Args:
        now: seconds since 1970.
        names: of jobs, by id.
    """
    return (
        Column("SLOT", lambda slot: slot.id),
        Column("DEVICE", lambda slot: slot.device),
        Column("STATE", _slot_state),
        Column("JOB", lambda slot: slot.job and names.get(slot.job, slot.job)),
        Column("FOR", lambda slot: None if slot.since is None else render_age(now - slot.since), is_number=True),
        Column("REASON", lambda slot: slot.unusable_reason),
    )


def usage_columns(total_slot_s: float, *, is_all: bool) -> Sequence[Column[Usage]]:
    """Return the columns of the usage of slots.

    Args:
        total_slot_s: sum of all shown lines.
        is_all: all users are shown. False: others are missing, so shares of the whole are unknown.
    """
    part = "OF ALL" if is_all else "OF YOURS"
    return (
        Column("OWNER", lambda usage: usage.owner),
        Column("QUEUE", lambda usage: usage.queue),
        Column("GPU HOURS", lambda usage: f"{usage.slot_s / 3600:.2f}", is_number=True),
        Column(part, lambda usage: f"{100 * usage.slot_s / (total_slot_s or 1):.0f} %", is_number=True),
        Column("JOBS", lambda usage: usage.num_jobs, is_number=True),
    )


FILE_COLUMNS: Final[Sequence[Column[File]]] = (
    Column("PATH", lambda file: file.path + ("/" if file.kind == "folder" else "")),
    Column("SIZE", lambda file: render_bytes(file.num_bytes) if file.kind == "file" else None, is_number=True),
    Column("CHANGED", lambda file: render_time(file.modified_at)),
)

CHECKPOINT_COLUMNS: Final[Sequence[Column[Checkpoint]]] = (
    Column("STEP", lambda checkpoint: checkpoint.step, is_number=True),
    Column("SIZE", lambda checkpoint: render_bytes(checkpoint.num_bytes), is_number=True),
    Column("WRITTEN", lambda checkpoint: render_time(checkpoint.modified_at)),
    Column("PATH", lambda checkpoint: checkpoint.path),
)

SERIES_COLUMNS: Final[Sequence[Column[Series]]] = (
    Column("NAME", lambda series: series.name),
    Column("STEP", lambda series: series.step[-1] if series.step else None, is_number=True),
    Column("LAST", lambda series: _number(_values(series)[-1] if _values(series) else None), is_number=True),
    Column("LOWEST", lambda series: _number(min(_values(series), default=None)), is_number=True),
    Column("HIGHEST", lambda series: _number(max(_values(series), default=None)), is_number=True),
    Column("COURSE", lambda series: render_sparkline(_values(series))),
)

ATTEMPT_COLUMNS: Final[Sequence[Column[Attempt]]] = (
    Column("ATTEMPT", lambda attempt: attempt.attempt, is_number=True),
    Column("STARTED", lambda attempt: render_time(attempt.started_at)),
    Column("ENDED", lambda attempt: render_time(attempt.ended_at)),
    Column("OUTCOME", lambda attempt: attempt.outcome),
    Column("REASON", lambda attempt: attempt.reason),
)

PROJECT_COLUMNS: Final[Sequence[Column[Project]]] = (
    Column("ID", lambda project: project.id, gives_way=1),
    Column("NAME", lambda project: project.name),
    Column("OWNER", lambda project: project.owner),
    Column("QUEUE", lambda project: project.queue),
    Column("MEMBERS", lambda project: ", ".join(project.members)),
    Column("CREATED", lambda project: render_time(project.created_at), gives_way=2),
    Column("DESCRIPTION", lambda project: project.description, is_wide=True),
)

OWNER_COLUMNS: Final[Sequence[Column[ProjectOwner]]] = (Column("USER", lambda owner: owner.name),)

REQUEST_COLUMNS: Final[Sequence[Column[AccessRequest]]] = (
    Column("ID", lambda request: request.id),
    Column("FROM", lambda request: request.user),
    Column("TO", lambda request: request.owner),
    Column("STAGE", lambda request: request.stage),
    Column("PROJECT", lambda request: request.project or "", gives_way=1),
    Column("CREATED", lambda request: render_time(request.created_at), gives_way=2),
    Column("MESSAGE", lambda request: request.message, is_wide=True),
)

FRAMEWORK_COLUMNS: Final[Sequence[Column[Framework]]] = (
    Column("NAME", lambda framework: framework.name),
    Column("RUNS", lambda framework: ", ".join(framework.distributed)),
    Column("DESCRIPTION", lambda framework: framework.description),
)

DEFINITION_COLUMNS: Final[Sequence[Column[Definition]]] = (
    Column("ID", lambda definition: definition.id),
    Column("NAME", lambda definition: definition.name),
    Column("FRAMEWORK", lambda definition: definition.framework),
    Column("NODES", _describe_nodes),
    Column("COMMAND", lambda definition: definition.command),
    Column("PROJECT", lambda definition: definition.project, is_wide=True),
    Column("MADE BY", lambda definition: definition.created_by, gives_way=1),
    Column("CREATED", lambda definition: render_time(definition.created_at), is_wide=True),
    Column("DESCRIPTION", lambda definition: definition.description, is_wide=True),
)

EXPERIMENT_COLUMNS: Final[Sequence[Column[Experiment]]] = (
    Column("ID", lambda experiment: experiment.id),
    Column("NAME", lambda experiment: experiment.name),
    Column("DEFINITIONS", lambda experiment: len(experiment.definitions), is_number=True),
    Column("RUNS", lambda experiment: len(experiment.runs), is_number=True),
    Column("DATA", lambda experiment: experiment.data),
    Column("ARGUMENTS", lambda experiment: experiment.arguments),
    Column("PROJECT", lambda experiment: experiment.project, is_wide=True),
    Column("MADE BY", lambda experiment: experiment.created_by, gives_way=1),
    Column("CREATED", lambda experiment: render_time(experiment.created_at), is_wide=True),
    Column("DESCRIPTION", lambda experiment: experiment.description, is_wide=True),
)

SWEEP_COLUMNS: Final[Sequence[Column[Sweep]]] = (
    Column("ID", lambda sweep: sweep.id),
    Column("NAME", lambda sweep: sweep.name),
    Column("OWNER", lambda sweep: sweep.owner, gives_way=2),
    Column("STAGE", lambda sweep: sweep.stage, style=lambda sweep: STAGE_STYLES.get(sweep.stage, "")),
    Column("TRIALS", lambda sweep: f"{sum(sweep.trials.values())}/{sweep.num_trials}"),
    Column("BEST", lambda sweep: sweep.best, is_number=True),
    Column("METRIC", lambda sweep: sweep.metric.name),
    Column("SEARCH", lambda sweep: sweep.search, gives_way=1),
    Column("STARTED", lambda sweep: render_time(sweep.created_at), is_wide=True),
    Column("REASON", lambda sweep: sweep.reason, is_wide=True),
)


def trial_columns(sweep: Sweep) -> Sequence[Column[Trial]]:
    """Return the columns of the trials of a sweep, one for each parameter."""
    from legato.api.sweeps import list_names

    def show(name: str) -> Column[Trial]:
        return Column(name, lambda trial: _show_parameter(trial.parameters.get(name)), is_number=True)

    return (
        Column("TRIAL", lambda trial: f"{trial.number}{' *' if trial.number == sweep.best else ''}"),
        Column("JOB", lambda trial: trial.job, gives_way=1),
        Column("STATE", _name_state, style=lambda trial: STAGE_STYLES.get(_name_state(trial), "")),
        Column("GPUS", lambda trial: trial.num_slots or "", is_number=True, gives_way=2),
        Column(sweep.metric.name, lambda trial: _show_parameter(_last_value(trial)), is_number=True),
        *map(show, list_names(sweep)),
        Column("REASON", lambda trial: trial.reason, is_wide=True),
    )


def _name_state(trial: Trial) -> str:
    """Return the state of a trial; of a running one the stage of its job."""
    return trial.job_stage or trial.state if trial.state == "running" else str(trial.state)


def _last_value(trial: Trial) -> float | None:
    return trial.reports[-1].value if trial.value is None and trial.reports else trial.value


def _show_parameter(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


USER_COLUMNS: Final[Sequence[Column[User]]] = (
    Column("NAME", lambda user: user.name),
    Column("ROLE", lambda user: user.role),
    Column("PASSWORD", lambda user: "yes" if user.has_password else "no"),
    Column("CREATED", lambda user: render_time(user.created_at)),
    Column("DISABLED", lambda user: render_time(user.disabled_at)),
)

TOKEN_COLUMNS: Final[Sequence[Column[Token]]] = (
    Column("ID", lambda token: token.id),
    Column("USER", lambda token: token.user),
    Column("NAME", lambda token: token.name),
    Column("ROLE", lambda token: token.role),
    Column("CREATED", lambda token: render_time(token.created_at), is_wide=True),
    Column("LAST USED", lambda token: render_time(token.used_at)),
    Column("EXPIRES", lambda token: "never" if token.expires_at is None else render_time(token.expires_at)),
    Column("REVOKED", lambda token: render_time(token.revoked_at)),
)


def describe_conditions(webhook: Webhook) -> str:
    """Return in short when a webhook is called."""
    told = [*webhook.on]
    if webhook.below_workers is not None:
        told.append(f"below {webhook.below_workers}")
    if webhook.waiting_s is not None:
        told.append(f"waiting {webhook.waiting_s:g}s")
    return ", ".join(told)


def describe_last_try(webhook: Webhook) -> str | None:
    """Return when a message was sent to a webhook last, and why it was not accepted."""
    if webhook.tried_at is None:
        return None
    return f"{render_time(webhook.tried_at)}: {webhook.error or 'accepted'}"


WEBHOOK_COLUMNS: Final[Sequence[Column[Webhook]]] = (
    Column("ID", lambda webhook: webhook.id),
    Column("OWNER", lambda webhook: webhook.owner, gives_way=2),
    Column("JOBS OF", lambda webhook: webhook.project or webhook.owner, gives_way=3),
    Column("WHEN", describe_conditions),
    Column("PENDING", lambda webhook: webhook.num_pending, is_number=True),
    Column("FAILED", lambda webhook: webhook.num_failed, is_number=True),
    Column("LAST TRY", describe_last_try, style=lambda webhook: "red" if webhook.error is not None else ""),
    Column("DROPPED", lambda webhook: webhook.num_dropped, is_number=True, is_wide=True),
    Column("CREATED", lambda webhook: render_time(webhook.created_at), is_wide=True),
    Column("URL", lambda webhook: webhook.url, gives_way=1),
)

DELIVERY_COLUMNS: Final[Sequence[Column[Delivery]]] = (
    Column("ID", lambda delivery: delivery.id, is_wide=True),
    Column("CREATED", lambda delivery: render_time(delivery.created_at)),
    Column("EVENT", lambda delivery: delivery.event),
    Column("JOB", lambda delivery: delivery.job),
    Column("STATE", lambda delivery: delivery.state, style=lambda delivery: _DELIVERY_STYLES.get(delivery.state, "")),
    Column("TRIES", lambda delivery: delivery.num_tries, is_number=True),
    Column("NEXT TRY", lambda delivery: render_time(delivery.next_at), gives_way=1),
    Column("ERROR", lambda delivery: delivery.error),
)

_DELIVERY_STYLES: Final[Mapping[str, str]] = {"pending": "yellow", "delivered": "green", "failed": "bold red"}


AUDIT_COLUMNS: Final[Sequence[Column[AuditEntry]]] = (
    Column("TIME", lambda entry: render_time(entry.time)),
    Column("WHO", lambda entry: entry.who),
    Column("ACTION", lambda entry: entry.action),
    Column("TARGET", lambda entry: entry.target),
    Column("DETAIL", lambda entry: render_detail(entry.detail)),
)


def render_labels(labels: Mapping[str, str]) -> str:
    """Return labels as the user types them.

    >>> render_labels({"team": "vision", "run": "1"})
    'team=vision,run=1'
    """
    return ",".join(f"{key}={value}" for key, value in labels.items())


def render_detail(detail: Mapping[str, Any] | None) -> str:
    """Return the details of a record as one line.

    >>> render_detail({"role": "user", "is_disabled": True, "members": ["anna", "ben"], "labels": {"team": "a"}})
    'role: user, is_disabled: yes, members: anna ben, labels: team=a'
    """
    return ", ".join(f"{key}: {_plain(value)}" for key, value in (detail or {}).items() if value is not None)


def _plain(value: Any) -> str:
    """Return a value as text without quotes or brackets."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "none"
        case dict():
            return " ".join(f"{key}={_plain(inner)}" for key, inner in value.items()) or "none"
        case list() | tuple():
            return " ".join(map(_plain, value)) or "none"
        case _:
            return str(value)


def _progress(job: JobRecord, field: str) -> float | None:
    found: float | None = getattr(job.progress, field, None)
    return found


def _bytes(job: JobRecord, field: str) -> str:
    number = _progress(job, field)
    return "" if number is None else render_bytes(int(number))


def _count_epochs(job: JobRecord) -> int | None:
    epoch = job.progress.epoch if job.progress is not None else None
    return None if epoch is None else epoch + 1


def _number(value: float | None) -> str | None:
    return None if value is None else render_number(value)


def _values(series: Series) -> list[float]:
    return [value for value in series.value if value is not None and abs(value) != float("inf") and value == value]  # noqa: PLR0124


def _slot_state(slot: Slot) -> str:
    if slot.unusable_since is not None:
        return "unusable"
    if slot.release_asked_at is not None:
        return "leaving"
    return "free" if slot.is_free else "held"
