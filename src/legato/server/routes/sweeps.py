"""Routes of sweeps: start, list, get, stop, and their trials. The loop in `legato.server.sweeps` runs them."""

from __future__ import annotations

import contextlib
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from legato.api import API
from legato.api.sweeps import Direction, Sweep, SweepPlan, Trial, Tunable
from legato.control.records import CheckedJob, Page
from legato.control.roles import Asker, Role, check_may_submit
from legato.control.store import missing_code
from legato.control.sweep_records import NewSweep, StoredSweep, StoredTrial, TrialSummary
from legato.core.errors import BadField, UnreadableRow
from legato.core.spec import check_name
from legato.server.answers import Answer, Listed, add_warnings, responses, show_version
from legato.server.authentication import CurrentUser
from legato.server.frameworks import Frameworks, OfferedFrameworks
from legato.server.launches import check_places_here, choose_framework
from legato.server.planning import check_queue
from legato.server.routes.jobs import After, IfMatch, Key, make_checked, read_key, read_version
from legato.server.services import Here, Services
from legato.server.sweep_bodies import SweepBody
from legato.server.sweeps import LABEL, name_trial, read_plan
from legato.sweeps.checking import check_plan, is_integer, pick_sample, share_slots
from legato.sweeps.search import check_library

router = APIRouter(prefix=API, tags=["sweeps"])

_MAX_RUNNING: Final = 10
"""Maximum number of running sweeps of a user. Each is looked at in every round of the server's loop."""


@router.post("/sweeps", **responses(Sweep, 201, also=(200,), errors=(404, 409, 413, 415)))
def start_sweep(body: SweepBody, here: Here, asker: CurrentUser, frameworks: Frameworks, key: Key = None) -> Response:
    """Start a sweep. Its trials are submitted as jobs by the server that decides."""
    submitter = check_may_submit(asker)
    request = read_key(key, "sweep", body)
    before = None if request is None else here.store.requests.find_answer(asker.name, request)
    if before is not None:
        return _show(here.store.sweeps.get(before), here, asker)
    check_name(body.name)
    if body.clone_of is not None:
        original = here.store.sweeps.find(body.clone_of, asker)
        body = body.with_numbers_of(original.plan, original.job)
    plan = check_plan(body.as_plan())
    check_library()
    template, notice = _make_template(body, plan, here, asker, frameworks)
    new = NewSweep(
        name=body.name,
        queue=template.queue,
        plan=msgspec.to_builtins(plan),
        job=body.job.model_dump(mode="json", exclude_unset=True),
        template=msgspec.to_builtins(template),
    )
    limit = None if asker.role is Role.ADMIN else _MAX_RUNNING
    made, is_new = here.store.sweeps.create(new, submitter, here.now(), request, max_running=limit)
    answer = _show(made, here, asker, is_new=is_new)
    add_warnings(answer, notice)
    return answer


@router.get("/sweeps", **responses(Page[Sweep]))
def list_sweeps(
    here: Here, asker: CurrentUser, limit: Annotated[int, Query(ge=1, le=1000)] = 100, after: After = None
) -> Response:
    """List sweeps, the newest first."""
    found = here.store.sweeps.list(sees_only=asker.sees_only, after=after, limit=limit)
    summaries = here.store.sweeps.summarize([one.id for one in found.items])
    described: list[Sweep] = []
    for one in found.items:
        with contextlib.suppress(UnreadableRow):  # the log of the loop says why; the others are shown
            described.append(_describe(one, summaries[one.id], asker))
    return Answer(Page(tuple(described), found.after))


@router.get("/sweeps/{sweep}", **responses(Sweep, errors=(404,)))
def get_sweep(sweep: str, here: Here, asker: CurrentUser) -> Response:
    """Return a sweep, by id or by name."""
    return _show(here.store.sweeps.find(sweep, asker), here, asker)


@router.get("/sweeps/{sweep}/trials", **responses(Listed[Trial], errors=(404,)))
def list_trials(sweep: str, here: Here, asker: CurrentUser) -> Response:
    """List the trials of a sweep, in the order of their starts."""
    found = here.store.sweeps.find(sweep, asker)
    return Answer(Listed(tuple(_as_trial(trial) for trial in here.store.sweeps.list_trials(found.id))))


@router.post("/sweeps/{sweep}/stop", **responses(Sweep, errors=(404, 409, 412)))
def stop_sweep(sweep: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Stop a sweep and the jobs of its trials, each with a checkpoint."""
    found = here.store.sweeps.find(sweep, asker)
    version = read_version(if_match, "sweep")
    return _show(here.store.sweeps.stop(found.id, asker, here.now(), version=version), here, asker)


@router.delete("/sweeps/{sweep}", **responses(None, 204, errors=(404, 409, 412)))
def delete_sweep(sweep: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Delete a sweep that has ended. The jobs of its trials stay."""
    found = here.store.sweeps.find(sweep, asker)
    here.store.sweeps.delete(found.id, asker, here.now(), version=read_version(if_match, "sweep"))
    return Response(status_code=204)


def _make_template(
    body: SweepBody, plan: SweepPlan, here: Services, asker: Asker, frameworks: OfferedFrameworks
) -> tuple[CheckedJob, str | None]:
    """Return the job of a trial, with parameters that a trial could have, and a notice about its framework.

    All checks of a submission are done.
    """
    own = body.job.parameters or {}
    sample = pick_sample(plan)
    for name in sample:
        if name in own:
            raise BadField(
                f"job.parameters.{name}",
                f"The parameter '{name}' is a parameter of the sweep and of the job. Remove one of the two.",
            )
    labels = body.job.labels or {}
    if LABEL in labels:
        raise BadField(
            f"job.labels.{LABEL}",
            f"The label '{LABEL}' of a trial is the id of its sweep. Give your label another name.",
        )
    # The label of the trials has no value yet, but counts.
    given = {
        "name": name_trial(body.name, 0),
        "parameters": {**own, **sample},
        "labels": {**labels, LABEL: ""},
    }
    fields = body.job.model_copy(update=given)
    framework, notice = choose_framework(fields, here, asker, frameworks)
    try:
        new = make_checked(fields, here, asker, framework=framework)
    except BadField as error:
        raise BadField(f"job.{error.field}", str(error)) from error
    workers = share_slots(plan, new.min_workers, new.max_workers, new.gpus_per_worker)
    if workers < new.max_workers and not new.is_elastic:
        at_once = min(plan.parallel, plan.num_trials)
        raise BadField(
            "max_slots",
            f"max_slots={plan.max_slots} is too low: {at_once} static trials at once need "
            f"{at_once * new.max_workers * new.gpus_per_worker} slots. Raise max_slots, or lower parallel.",
        )
    check_queue(here.store, new.queue, asker)
    if new.code is not None:
        here.store.uploads.get(new.code, asker)
        if not here.code.has(new.code):
            raise missing_code(new.code)
    check_places_here(here, f"Cannot start sweep '{body.name}'", new, asker.name)
    return msgspec.structs.replace(new, max_workers=workers), notice


def _show(found: StoredSweep, here: Services, asker: Asker, *, is_new: bool = False) -> Response:
    summary = here.store.sweeps.summarize([found.id])[found.id]
    return show_version(_describe(found, summary, asker), found.version, f"sweeps/{found.id}" if is_new else None)


def _describe(found: StoredSweep, summary: TrialSummary, asker: Asker) -> Sweep:
    plan = read_plan(found)
    job = dict(found.job)
    if "environment" in job and asker.role is not Role.ADMIN and asker.name != found.owner:
        job["environment"] = dict.fromkeys(job["environment"] or {})
    return Sweep(
        **{name: getattr(plan, name) for name in SweepPlan.__struct_fields__ if name != "parameters"},
        parameters={name: _show_kind(tunable) for name, tunable in plan.parameters.items()},
        id=found.id,
        name=found.name,
        owner=found.owner,
        queue=found.queue,
        stage=found.stage,
        reason=found.reason,
        trials=summary.states,
        best=summary.highest if plan.metric.direction is Direction.MAXIMIZE else summary.lowest,
        job=job,
        version=found.version,
        created_at=found.created_at,
        ended_at=found.ended_at,
    )


def _show_kind(tunable: Tunable) -> Tunable:
    """Return a parameter that says whether its range has other numbers than integers: JavaScript reads 1.0 as 1."""
    return msgspec.structs.replace(tunable, is_float=tunable.values is None and not is_integer(tunable))


def _as_trial(trial: StoredTrial) -> Trial:
    return Trial(**{name: getattr(trial, name) for name in Trial.__struct_fields__})
