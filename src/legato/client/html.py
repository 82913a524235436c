"""Views for notebooks: small tables of HTML, with all foreign text escaped. Sends no requests."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from legato.api.jobs import JobRecord

_STYLE: Final = "text-align:left;vertical-align:top"
_NUM_SHOWN: Final = 200
_COLUMNS: Final = ("name", "stage", "slots", "step", "loss", "owner", "queue", "reason")


def render_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table.

    >>> render_table(["a"], [["<b>"]]).count("&lt;b&gt;")
    1
    """
    head = "".join(f'<th style="{_STYLE}">{html.escape(column)}</th>' for column in columns)
    lines = ["".join(f'<td style="{_STYLE}">{html.escape(_render_cell(value))}</td>' for value in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def render_job(job: JobRecord) -> str:
    """Return a table of one job, with a row for each field."""
    progress = job.progress
    rows = [
        ("id", job.id),
        ("stage", f"{job.stage}: {job.reason}"),
        ("slots", count_slots(job)),
        ("why", job.decided_reason),
        ("step", progress.reached if progress else None),
        ("loss", progress.loss if progress else None),
        ("samples/s", progress.samples_per_s if progress else None),
        ("submitted", f"{_render_time(job.submitted_at)} by {job.owner}, queue {job.queue}, priority {job.priority}"),
    ]
    return f"<b>{html.escape(job.name)}</b>" + render_table(["", ""], [row for row in rows if row[1] is not None])


def render_jobs(jobs: Sequence[JobRecord]) -> str:
    """Return a table of jobs, with a row for each job."""
    rows = [
        (
            job.name,
            job.stage,
            count_slots(job),
            job.progress.reached if job.progress else None,
            job.progress.loss if job.progress else None,
            job.owner,
            job.queue,
            job.decided_reason or job.reason,
        )
        for job in jobs[:_NUM_SHOWN]
    ]
    return render_table(_COLUMNS, rows) + _render_more(len(jobs))


def render_records(records: Sequence[msgspec.Struct]) -> str:
    """Return a table of records of one kind, with a row for each record."""
    if not records:
        return "<i>none</i>"
    columns = records[0].__struct_fields__
    rows = [[getattr(record, column) for column in columns] for record in records[:_NUM_SHOWN]]
    return render_table(columns, rows) + _render_more(len(records))


def count_slots(job: JobRecord) -> str:
    """Return a text with the number of slots that a job has and may have.

    >>> from types import SimpleNamespace as Job
    >>> count_slots(Job(num_slots=2, min_workers=1, max_workers=4, is_elastic=True, gpus_per_worker=1))
    '2 of 1..4'
    """
    each = job.gpus_per_worker
    if not job.is_elastic or job.min_workers == job.max_workers:
        return f"{job.num_slots} of {job.max_workers * each}"
    return f"{job.num_slots} of {job.min_workers * each}..{job.max_workers * each}"


def _render_more(num_all: int) -> str:
    return f"<i>and {num_all - _NUM_SHOWN} more</i>" if num_all > _NUM_SHOWN else ""


def _render_cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def _render_time(unix_s: float) -> str:
    return dt.datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")
