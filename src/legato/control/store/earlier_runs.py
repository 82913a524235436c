"""Finds the earlier runs of the code of a job, with the speeds that they have measured. Decides nothing.

Two jobs run the same code if one user submitted both, with the same uploaded files, program, arguments, variables and
data, and with as many GPUs per worker. Parameters and the seed may differ. Code in a directory on the machines may have
changed between two jobs, so jobs that run such code have no earlier runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, select

from legato.api.jobs import Progress
from legato.control.store.rows import at, fetch_each
from legato.control.store.schema import jobs
from legato.policy.earlier_runs import EarlierRun
from legato.system.decoding import convert

_NUM_RUNS: Final = 32
_MOST_SEARCHED: Final = 500
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

_JOBS: Final = select(jobs.c.id, jobs.c.owner, jobs.c.code, jobs.c.gpus_per_worker, jobs.c.spec).where(
    jobs.c.id.in_(bindparam("jobs", expanding=True))
)
_NEWEST: Final = (
    select(jobs.c.id, jobs.c.spec, jobs.c.progress, jobs.c.machine_kind)
    .where(
        jobs.c.code == bindparam("code"),
        jobs.c.owner == bindparam("owner"),
        jobs.c.gpus_per_worker == bindparam("gpus_per_worker"),
        jobs.c.started_at.is_not(None),
        jobs.c.machine_kind.is_not(None),
    )
    .order_by(jobs.c.id.desc())
    .limit(_MOST_SEARCHED)
    .subquery()
)
_RUNS: Final = (
    select(_NEWEST)
    .where(at(_NEWEST.c.progress, ("speeds", 0)).as_string().is_not(None))
    .order_by(_NEWEST.c.id.desc())
    .limit(_NUM_RUNS + 1)  # one of them may be the job itself
)


class _Run(msgspec.Struct, frozen=True):
    id: str
    spec: dict[str, Any]
    progress: Progress
    machine_kind: str


def read_earlier_runs(connection: Connection, names: Sequence[str]) -> dict[str, tuple[EarlierRun, ...]]:
    """Return earlier runs of the code of jobs that have measured speeds, by job, the newest first.

    At most the newest 32 of the newest 500 runs are read. A run that cannot be read is left out.

    Args:
        connection: to the database.
        names: ids of jobs. Jobs of one user with the same code are read together.
    """
    read: dict[tuple[Any, ...], list[_Run]] = {}
    found = {}
    for row in fetch_each(connection, _JOBS.params(jobs=list(names))):
        own, spec = (row["code"], row["owner"], row["gpus_per_worker"]), row["spec"]
        if row["code"] is None or not isinstance(spec, dict):
            continue
        if own not in read:
            read[own] = _read_runs(connection, *own)
        others = [run for run in read[own] if run.id != row["id"]][:_NUM_RUNS]
        found[row["id"]] = tuple(_describe(run, spec) for run in others if _is_same(run.spec, spec))
    return found


def _read_runs(connection: Connection, code: Any, owner: Any, gpus_per_worker: Any) -> list[_Run]:
    runs = []
    for row in fetch_each(connection, _RUNS.params(code=code, owner=owner, gpus_per_worker=gpus_per_worker)):
        try:
            runs.append(convert({str(name): value for name, value in row.items()}, _Run))
        except msgspec.ValidationError:
            continue
    return runs


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _SAME)


def _describe(run: _Run, spec: Mapping[str, Any]) -> EarlierRun:
    return EarlierRun(
        machine_kind=run.machine_kind,
        num_micro_batches=run.progress.num_micro_batches,
        has_same_parameters=run.spec.get("parameters") == spec.get("parameters"),
        speeds=run.progress.speeds,
        parameters=json.dumps(run.spec.get("parameters"), sort_keys=True),
    )
