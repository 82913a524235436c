"""Routes of one job's details: explanation, attempts, slots, metrics, and events of its driver."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from legato.api import API
from legato.api.jobs import TrainingEvent
from legato.api.outputs import JobValues, Metrics, SystemSeries
from legato.control.records import Allocation, Attempt
from legato.driver.journal import JobDirectory
from legato.policy.snapshot import Decision, JobDemand
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.explaining import Explainer, Explanation
from legato.server.json_lines import Lines
from legato.server.last_values import LastValues
from legato.server.routes.events import EventPage
from legato.server.services import Here, Services
from legato.server.system_series import make_series, read_system_lines
from legato.server.time_series import read_metrics

router = APIRouter(prefix=API, tags=["jobs"])

_MAX_INT: Final = 2**53
_MAX_TIME: Final = 1e12
_MAX_JOBS: Final = 100


_EVENTS: Final = Lines(TrainingEvent, lambda event: event.seq)
_LAST: Final = LastValues()


@router.get("/jobs/{job}/explain", **responses(Explanation, errors=(404,)))
def explain(job: str, here: Here, asker: CurrentUser, limit: Annotated[int, Query(ge=1, le=1000)] = 20) -> Response:
    """Explain why a job is in its stage, and why it has its number of slots."""
    found = here.store.jobs.find(job, asker)
    explainer = Explainer(here.store, asker, here.now())
    demand = _find_last_demand(here, found.id)
    return Answer(explainer.explain(found, _find_last_decision(here, found.id), limit, demand=demand))


@router.get("/jobs/{job}/attempts", **responses(Listed[Attempt], errors=(404,)))
def list_attempts(job: str, here: Here, asker: CurrentUser) -> Response:
    """List the attempts of a job."""
    found = here.store.jobs.find(job, asker)
    return Answer(Listed(here.store.jobs.read_attempts(found.id)))


@router.get("/jobs/{job}/allocations", **responses(Listed[Allocation], errors=(404,)))
def list_allocations_of_job(job: str, here: Here, asker: CurrentUser) -> Response:
    """List the slots that a job held, and when."""
    found = here.store.jobs.find(job, asker)
    return Answer(Listed(here.store.jobs.read_allocations(found.id)))


@router.get("/jobs/{job}/training-events", **responses(EventPage[TrainingEvent], errors=(404,)))
def list_training_events(
    job: str,
    here: Here,
    asker: CurrentUser,
    after: Annotated[int, Query(ge=0, le=_MAX_INT)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> Response:
    """List the events that a job's driver recorded."""
    found = here.store.jobs.find(job, asker)
    events = _EVENTS.read(JobDirectory(here.directory(found)).events_file, after)
    items = tuple(itertools.islice(events, limit))
    return Answer(EventPage(items, items[-1].seq if items else after))


@router.get("/jobs/{job}/metrics", **responses(Metrics, errors=(404,)))
def get_metrics(
    job: str,
    here: Here,
    asker: CurrentUser,
    name: Annotated[list[str] | None, Query(max_length=100)] = None,
    after_step: Annotated[int | None, Query(ge=0, le=_MAX_INT)] = None,
    points: Annotated[int, Query(ge=2, le=10_000)] = 1000,
    steps: bool = True,
) -> Response:
    """Return the values that a job's program logged, the losses and the commits of its steps, as time series."""
    found = here.store.jobs.find(job, asker)
    directory = JobDirectory(here.directory(found))
    metrics = read_metrics(
        directory.metrics_file,
        directory.losses_file,
        directory.ledger_file,
        names=frozenset(name or ()),
        after_step=after_step,
        num_points=points,
        has_steps=steps,
    )
    return Answer(metrics)


@router.get("/job-values", **responses(Listed[JobValues]))
def list_values(here: Here, asker: CurrentUser, job: Annotated[list[str], Query(max_length=_MAX_JOBS)]) -> Response:
    """Return the parameters and the last metrics of several jobs, for tables. Jobs that you do not see are left out."""
    specs = here.store.jobs.read_specs(job, asker)
    seen = [one for one in dict.fromkeys(job) if one in specs]
    values = _LAST.read(JobDirectory(here.directory_of(one)).metrics_file for one in seen)
    return Answer(
        Listed(
            tuple(
                JobValues(
                    job=one,
                    parameters=_read_parameters(specs[one]),
                    metrics=last.values,
                    is_complete=last.is_complete,
                )
                for one, last in zip(seen, values, strict=True)
            )
        )
    )


def _read_parameters(spec: dict[str, Any]) -> dict[str, str | bool | int | float]:
    given = spec.get("parameters")
    plain = (str, bool, int, float)
    return {name: value for name, value in given.items() if isinstance(value, plain)} if isinstance(given, dict) else {}


@router.get("/jobs/{job}/system-metrics", **responses(SystemSeries, errors=(404,)))
def get_system_metrics(
    job: str,
    here: Here,
    asker: CurrentUser,
    since: Annotated[float | None, Query(ge=0, le=_MAX_TIME, allow_inf_nan=False)] = None,
    points: Annotated[int, Query(ge=2, le=10_000)] = 1000,
) -> Response:
    """Return what a job's workers and their machines used over time: CPU, memory, GPUs, waiting for data."""
    found = here.store.jobs.find(job, asker)
    lines = read_system_lines(JobDirectory(here.directory(found)).system_file)
    return Answer(make_series(lines, since, points))


def _find_last_demand(here: Services, job: str) -> JobDemand | None:
    """Return a job as the policy saw it in its last decision; None if this server did not make it."""
    snapshot = here.loop.snapshot  # read once: the loop, in another thread, replaces it
    seen = () if snapshot is None else snapshot.jobs
    return next((demand for demand in seen if demand.id == job), None)


def _find_last_decision(here: Services, job: str) -> Decision | None:
    """Return the last decision of this server for a job. None: it made none."""
    decisions = here.loop.decisions
    if decisions is None:
        return None
    try:
        return decisions.of(job)
    except KeyError:
        return None
