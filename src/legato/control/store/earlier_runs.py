"""Finds the earlier runs of the code of a job, with the speeds that they have measured. Decides nothing.

Two jobs run the same code if one user submitted both, with the same uploaded files, program, arguments, variables and
data, and with as many GPUs per worker. Parameters and the seed may differ. Code in a directory on the machines may have
changed between two jobs, so jobs that run such code have no earlier runs.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, select

from legato.api.jobs import Progress
from legato.control.store.database import Undecodable
from legato.control.store.rows import fetch_each
from legato.control.store.schema import jobs
from legato.policy.earlier_runs import EarlierRun
from legato.system.decoding import convert

_NUM_RUNS: Final = 32
_SAME: Final = (
    "framework",
    "program",
    "launcher",
    "environment",
    "data",
    "python",
    "num_threads",
    "cpu_capability",
    "num_cpus",
)
"""Fields of the spec that are equal in two runs of the same code."""

_JOB: Final = select(jobs.c.owner, jobs.c.code, jobs.c.gpus_per_worker, jobs.c.spec).where(
    jobs.c.id == bindparam("job")
)
_RUNS: Final = (
    select(jobs.c.spec, jobs.c.progress, jobs.c.machine_kind)
    .where(
        jobs.c.code == bindparam("code"),
        jobs.c.owner == bindparam("owner"),
        jobs.c.gpus_per_worker == bindparam("gpus_per_worker"),
        jobs.c.id != bindparam("job"),
        jobs.c.started_at.is_not(None),
        jobs.c.machine_kind.is_not(None),
    )
    .order_by(jobs.c.id.desc())
    .limit(_NUM_RUNS)
)


def read_earlier_runs(connection: Connection, job: str) -> tuple[EarlierRun, ...]:
    """Return earlier runs of a job's code that have measured speeds, of the newest 32 runs, the newest first.

    A run that cannot be read is left out.
    """
    found = fetch_each(connection, _JOB.params(job=job))
    if not found or found[0]["code"] is None or not isinstance(found[0]["spec"], dict):
        return ()
    own = dict(found[0])
    spec = own.pop("spec")
    rows = fetch_each(connection, _RUNS.params(job=job, **own))
    runs = (_read_run(spec, row["spec"], row["progress"], row["machine_kind"]) for row in rows)
    return tuple(run for run in runs if run is not None)


def _read_run(own: dict[str, Any], spec: Any, progress: Any, machine_kind: Any) -> EarlierRun | None:
    if not isinstance(spec, dict) or progress is None or isinstance(progress, Undecodable):
        return None
    if any(spec.get(name) != own.get(name) for name in _SAME):
        return None
    try:
        known = convert(progress, Progress)
        kind = convert(machine_kind, str)
    except msgspec.ValidationError:
        return None
    if not known.speeds:
        return None
    return EarlierRun(
        machine_kind=kind,
        num_micro_batches=known.num_micro_batches,
        has_same_parameters=spec.get("parameters") == own.get("parameters"),
        speeds=known.speeds,
        parameters=json.dumps(spec.get("parameters"), sort_keys=True),
    )
