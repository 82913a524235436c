"""Routes of jobs: submit, list, get, change, pause, resume, stop, clone. The store checks permissions and stages."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API
from legato.control.records import CheckedJob, Job, JobFilter, JobPatch, NewJob, Page, RequestKey
from legato.control.roles import Asker, Role, Submitter, check_may_submit
from legato.control.stages import Stage
from legato.control.store import check_may_add, check_new_job, check_sha256, missing_code
from legato.control.work import Work, check_most_workers, check_resize, check_work, choose_python, find_data, read_work
from legato.core.errors import Forbidden, LayoutError, NotFound, StaleVersion, UsageError
from legato.core.frameworks import Framework
from legato.policy.whatif import Plan
from legato.server.answers import Answer, Encoded, add_warnings, encode, responses, show_job
from legato.server.authentication import CurrentUser
from legato.server.bodies import JobFields, Patch, Resize, Stop, Submission, make_job
from legato.server.etags import answer_unchanged, is_known, make_tag
from legato.server.frameworks import Frameworks
from legato.server.launches import (
    check_data_here,
    check_places_here,
    choose_framework,
    find_files,
    prepare_job,
    warn_of_limits,
)
from legato.server.planning import check_queue
from legato.server.problems import Problem
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["jobs"])

_MAX_TRIES: Final = 5
_LIST: Final[dict[str, Any]] = responses(Page[Job], errors=(404,))
_LIST["responses"][304] = {"description": "Nothing has changed since the answer with this ETag."}
_CHANGES: Final[dict[str, Any]] = responses(Job, errors=(404, 409, 412, 413, 415))

IfMatch = Annotated[str | None, Header(max_length=100)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=1000)]
After = Annotated[str | None, Query(max_length=64)]


class Spec(Work, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job runs. Only the owner and admins see the values of ``environment``; others get null in their place."""

    environment: dict[str, str | None] = msgspec.field(default_factory=dict)  # type: ignore[assignment]


class NewOrigin(NamedTuple):
    """Ids of the project, experiment and training definition that a new job is a run of. None: it is a run of none."""

    project: str | None = None
    experiment: str | None = None
    definition: str | None = None


# ---------------------------------------------------------------- submit


@router.post("/jobs", **responses(Job, 201, also=(200,), errors=(404, 409, 413, 415)))
def submit(body: Submission, here: Here, asker: CurrentUser, frameworks: Frameworks, key: Key = None) -> Response:
    """Submit a job."""
    submitter = check_may_submit(asker)
    request = read_key(key, "submit", body)
    before = find_made(request, here, asker)
    if before:
        return show_job(before[0])
    framework, notice = choose_framework(body, here, asker, frameworks)
    new = make_checked(body, here, asker, framework=framework)
    return submit_checked(new, here, submitter, request, notice=notice)


@router.post("/jobs/{job}/clone", **responses(Job, 201, also=(200,), errors=(404, 409, 413, 415)))
def clone(job: str, here: Here, asker: CurrentUser, body: JobFields | None = None, key: Key = None) -> Response:
    """Submit a copy of a job. The fields of the body replace those of the job."""
    submitter = check_may_submit(asker)
    fields = body or JobFields()
    request = read_key(key, f"clone {job}", fields)
    before = find_made(request, here, asker)
    if before:
        return show_job(before[0])
    found = here.store.jobs.find(job, asker)
    here.store.jobs.check_may_clone(found.id)
    spec = here.store.jobs.read_spec(found.id)
    origin = _find_origin(found, here, asker)
    if found.owner != asker.name:
        # The owner may have added variables that the definition does not have. No other user may see them.
        shared = None if origin.definition is None else here.store.definitions.find(origin.definition, asker)
        spec["environment"] = {} if shared is None else shared.environment
    if fields.program is not None and spec.get("launcher") is not None:
        # The path names a file of the old program.
        spec["launcher"].pop("script", None)
    base = NewJob(
        name=found.name,
        spec=spec,
        min_workers=found.min_workers,
        max_workers=found.max_workers,
        queue=found.queue,
        priority=found.priority,
        is_elastic=found.is_elastic,
        gpus_per_worker=found.gpus_per_worker,
        max_retries=found.max_retries,
        labels=found.labels,
        code=found.code,
    )
    new = make_checked(fields, here, asker, base=base)
    if fields.model_fields_set & {"program", "code", "directory"}:
        # The clone does not run what the definition describes.
        origin = origin._replace(definition=None)
    new = msgspec.structs.replace(new, **origin._asdict(), parent=found.id)
    if new.code is not None and new.code == found.code:
        _check_may_use(found, new.code, here, asker)
    return submit_checked(new, here, submitter, request)


@router.post("/plan", **responses(Plan, errors=(404, 413, 415)))
async def plan(body: Submission, here: Here, asker: CurrentUser) -> Response:
    """Say what would happen if this job were submitted now. Nothing is submitted."""
    new = await run_in_threadpool(_make_planned, body, here, asker)
    return Answer(await here.plan(new, asker))


def _make_planned(body: Submission, here: Services, asker: Asker) -> NewJob:
    check_may_submit(asker)
    if body.code is None and body.directory is None:
        # The plan does not depend on the place of the program.
        body = body.model_copy(update={"directory": "/"})
    # The plan does not depend on the framework either.
    body = body.model_copy(update={"framework": None})
    new = make_checked(body, here, asker)
    check_queue(here.store, new.queue, asker)
    check_data_here(here, f"Cannot run job '{new.name}'", new.spec.get("data"), asker.name)
    return new


# ---------------------------------------------------------------- read


@router.get("/jobs", **_LIST)
async def list_jobs(
    here: Here,
    asker: CurrentUser,
    stage: Annotated[list[Stage] | None, Query(max_length=20)] = None,
    owner: Annotated[str | None, Query(max_length=255)] = None,
    queue: Annotated[str | None, Query(max_length=255)] = None,
    label: Annotated[list[str] | None, Query(max_length=64)] = None,
    name: Annotated[str | None, Query(max_length=255)] = None,
    search: Annotated[str | None, Query(max_length=255)] = None,
    project: Annotated[str | None, Query(max_length=255)] = None,
    experiment: Annotated[str | None, Query(max_length=255)] = None,
    definition: Annotated[str | None, Query(max_length=255)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: After = None,
    order: Literal["newest", "oldest"] = "newest",
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
) -> Response:
    """List jobs. With ``If-None-Match``, answer 304 if nothing has changed since the answer with that ETag."""
    store = here.store

    def read_filter() -> JobFilter:
        return JobFilter(
            stages=frozenset(stage or ()),
            owner=owner,
            queue=queue,
            labels=read_labels(label or []),
            name_prefix=name,
            search=search,
            project=None if project is None else store.projects.find(project, asker).id,
            experiment=None if experiment is None else store.experiments.find(experiment, asker).id,
            definition=None if definition is None else store.definitions.find(definition, asker).id,
        )

    # Read the version first, so that the list is at least as new as its version.
    version, wanted = await run_in_threadpool(lambda: (store.events.read_version(), read_filter()))
    asked = _make_list_key(wanted, asker, after, limit, order)
    tag = make_tag(version, asked)
    if is_known(if_none_match, tag):
        return answer_unchanged(tag)

    def read() -> bytes:
        is_oldest_first = order == "oldest"
        page = store.jobs.list(
            wanted, sees_only=asker.sees_only, after=after, limit=limit, oldest_first=is_oldest_first
        )
        return encode(Page(tuple(_as_seen(job, asker) for job in page.items), page.after))

    return Encoded(await here.lists.get(asked, version, read), headers={"ETag": tag})


@router.get("/jobs/{job}", **responses(Job, errors=(404,)))
def get_job(job: str, here: Here, asker: CurrentUser) -> Response:
    """Return a job, by id or by name."""
    found = here.store.jobs.find(job, asker)
    seen = _as_seen(found, asker)
    if seen.code is None and found.code is not None and _may_use_code(found.code, here, asker):
        seen = found
    return show_job(seen)


@router.get("/jobs/{job}/spec", **responses(Spec, errors=(404,)))
def get_spec(job: str, here: Here, asker: CurrentUser) -> Response:
    """Return what a job runs."""
    found = here.store.jobs.find(job, asker)
    work = read_work(here.store.jobs.read_spec(found.id))
    spec = {field: getattr(work, field) for field in Work.__struct_fields__}
    if not may_see_inside(found, asker):
        spec["environment"] = dict.fromkeys(work.environment)
    return Answer(spec)


# ---------------------------------------------------------------- change


@router.patch("/jobs/{job}", **_CHANGES)
def patch(job: str, body: Patch, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Change a job's numbers of workers, priority, queue, labels or notes, as a merge patch."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    version = read_version(if_match)
    for left in reversed(range(_MAX_TRIES)):
        found = here.store.jobs.find(job, asker)
        values, seen = dict(given), version
        if "labels" in given:
            # The merge uses the present labels. If they change before it is stored, merge again.
            values["labels"] = _merge(found.labels, given["labels"])
            seen = found.version if version is None else version
        try:
            return _change(found, JobPatch(**values), here, asker, seen)
        except StaleVersion:
            if version is not None or left == 0:
                raise
    raise AssertionError("the last try returns or raises")


@router.post("/jobs/{job}/resize", **_CHANGES)
def resize(job: str, body: Resize, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Change the minimum or maximum number of a job's workers."""
    found = here.store.jobs.find(job, asker)
    wanted = JobPatch(min_workers=body.min_workers, max_workers=body.max_workers)
    return _change(found, wanted, here, asker, read_version(if_match))


def _change(job: Job, patch: JobPatch, here: Services, asker: Asker, version: int | None) -> Response:
    wanted = (patch.min_workers or job.min_workers, patch.max_workers or job.max_workers)
    if wanted != (job.min_workers, job.max_workers):
        work = read_work(here.store.jobs.read_spec(job.id))
        check_resize(job, work)
        check_most_workers(work, f"Cannot change job '{job.name}'", patch.max_workers or 0)
    return show_job(here.store.jobs.change(job.id, patch, asker, here.now(), version=version))


@router.post("/jobs/{job}/pause", **_CHANGES)
def pause(job: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Pause a job: save its state and free all its slots. It gets no slots until a user resumes it."""
    found = here.store.jobs.find(job, asker)
    return show_job(here.store.jobs.pause(found.id, asker, here.now(), version=read_version(if_match)))


@router.post("/jobs/{job}/resume", **_CHANGES)
def resume(job: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Resume a paused job from its saved state."""
    found = here.store.jobs.find(job, asker)
    return show_job(here.store.jobs.resume(found.id, asker, here.now(), version=read_version(if_match)))


@router.post("/jobs/{job}/stop", **_CHANGES)
def stop(job: str, here: Here, asker: CurrentUser, body: Stop | None = None, if_match: IfMatch = None) -> Response:
    """Stop a job after a last checkpoint, or at once without one."""
    found = here.store.jobs.find(job, asker)
    how = body or Stop()
    version = read_version(if_match)
    return show_job(here.store.jobs.stop(found.id, asker, here.now(), version=version, stop_now=how.now))


# ---------------------------------------------------------------- parts of requests


def read_version(if_match: str | None, what: str = "job") -> int | None:
    """Return the version that ``If-Match`` names. None: the change applies to any version.

    Raises:
        Problem: the header names no version.

    >>> read_version('"7"'), read_version("*"), read_version(None)
    (7, None, None)
    """
    if if_match is None or if_match.strip() == "*":
        return None
    digits = if_match.strip().removeprefix('"').removesuffix('"')
    if not (digits.isascii() and digits.isdecimal()):
        raise Problem("bad-request", f"Cannot read 'If-Match': send the ETag of the {what} unchanged, such as \"7\".")
    return int(digits)


def read_labels(given: list[str]) -> dict[str, str]:
    """Read labels of the form ``KEY=VALUE``.

    Raises:
        UsageError: a label does not have this form.

    >>> read_labels(["team=vision", "run=1=a"])
    {'team': 'vision', 'run': '1=a'}
    """
    labels = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"Cannot list jobs by the label '{one[:100]}': write KEY=VALUE.")
        labels[key] = value
    return labels


def may_see_inside(job: Job, asker: Asker) -> bool:
    """Return whether a user may see the variables and files of a job, which may hold secrets."""
    return asker.role is Role.ADMIN or (asker.role is Role.USER and asker.name == job.owner)


def _as_seen(job: Job, asker: Asker) -> Job:
    """Return a job without the SHA-256 of its code, unless it is the asker's own, or the asker is an admin."""
    return job if job.code is None or may_see_inside(job, asker) else msgspec.structs.replace(job, code=None)


def _make_list_key(wanted: JobFilter, asker: Asker, *more: Any) -> str:
    """Return the key of a list of jobs: everything that the list depends on, except for the jobs themselves."""
    fields = msgspec.structs.asdict(wanted) | {
        "stages": sorted(wanted.stages),
        "labels": sorted(wanted.labels.items()),
    }
    # No name of the user: all users of one role who see all jobs get the same list.
    return repr((asker.role, asker.sees_only, fields, more))


def _merge(labels: dict[str, str], given: dict[str, str | None] | None) -> dict[str, str]:
    if given is None:
        return {}
    merged = {**labels, **given}
    return {key: value for key, value in merged.items() if value is not None}


def make_checked(
    fields: JobFields,
    here: Services,
    asker: Asker,
    *,
    base: NewJob | None = None,
    framework: Framework | None = None,
    is_test: bool = False,
) -> CheckedJob:
    """Return the job of a submission. Checks it without looking for its queue or its files on the nodes.

    Args:
        fields: of the submission.
        here: what routes use.
        asker: who submits it.
        base: of which it is a clone. None: of none.
        framework: that makes its command line. None: it has a program.
        is_test: it tests a cluster.
    """
    made = make_job(fields, default_priority=here.settings.default_priority, base=base)
    new = check_new_job(made, is_test=is_test)
    places = {
        "data": find_data(new.spec.get("data"), here.settings.wmla_data_path),
        "python": choose_python(new.spec.get("python"), here.settings.python_paths),
    }
    new = msgspec.structs.replace(
        new, spec={**new.spec, **{name: place for name, place in places.items() if place is not None}}
    )
    if framework is None:
        if new.code is not None:
            check_sha256(new.code)
    else:
        new = prepare_job(new, framework, find_files(new.code, here, asker), asker.name)
    work = read_work(new.spec)
    check_work(
        work, name=new.name, min_workers=new.min_workers, max_workers=new.max_workers, has_code=new.code is not None
    )
    if new.gpus_per_worker > 1:
        _check_gpus(new, here)
    # The spec as the work gives it, not as it came: fields with default values are left out.
    return msgspec.structs.replace(new, spec=msgspec.to_builtins(work))


def _check_gpus(new: NewJob, here: Services) -> None:
    """Raise LayoutError if a job asks for several GPUs per worker and the pool has slots, but no GPUs."""
    slots = here.store.pool.list_slots()
    if slots and all(slot.device == "cpu" for slot in slots):
        raise LayoutError(
            f"Cannot submit job '{new.name}': gpus_per_worker={new.gpus_per_worker} needs nodes with GPUs, and all "
            "slots of the pool are CPUs. Leave gpus_per_worker out, or add a node with GPUs."
        )


def read_key(key: str | None, doing: str, fields: BaseModel) -> RequestKey | None:
    """Return the idempotency key of a request.

    The key goes with the request as it was sent, not with the objects that it names: if a client repeats the request,
    a name may mean another job.
    """
    if key is None:
        return None
    request = msgspec.json.encode([doing, fields.model_dump(exclude_unset=True)], order="deterministic")
    return RequestKey(key, hashlib.sha256(request).hexdigest())


def find_made(request: RequestKey | None, here: Services, asker: Asker) -> tuple[Job, ...]:
    """Return the jobs that the same request made before. Empty: it made none.

    Call this before you look up the objects that the request names, because they may have been deleted since. It does
    not reserve the key, so the store checks the key again when it submits: another thread may be answering the same
    request at this moment.

    Raises:
        KeyReused: the key was used for another request.
        NotFound: one of the jobs was deleted because of its age.
    """
    if request is None:
        return ()
    answer = here.store.requests.find_answer(asker.name, request)
    return tuple(here.store.jobs.get(job) for job in (answer or "").split())


def _find_origin(job: Job, here: Services, asker: Asker) -> NewOrigin:
    """Return the origin of a clone: that of the job, if the asker may add to its project; else none."""
    if job.project is None:
        return NewOrigin()
    try:
        project = here.store.projects.find(job.project, asker)
        check_may_add("clone it", project, asker)
    except (NotFound, Forbidden):
        return NewOrigin()
    return NewOrigin(job.project, job.experiment, job.definition)


def _check_may_use(job: Job, code: str, here: Services, asker: Asker) -> None:
    """Raise Forbidden unless the asker may use the job's code, because a user who runs code can read it."""
    if not _may_use_code(code, here, asker):
        raise Forbidden(
            f"Cannot clone job '{job.name}' with its code: it belongs to '{job.owner}', who uploaded it. "
            f"Submit your own copy of the program, or ask '{job.owner}' or an admin."
        )


def _may_use_code(code: str, here: Services, asker: Asker) -> bool:
    if asker.role is Role.VIEWER:
        return False
    try:
        here.store.uploads.get(code, asker)
    except NotFound:
        return False
    return True


def submit_checked(
    new: CheckedJob,
    here: Services,
    asker: Submitter,
    key: RequestKey | None,
    *,
    test_of: str | None = None,
    notice: str | None = None,
) -> Response:
    """Submit a job that was checked, and answer with it.

    Args:
        new: the job.
        here: what routes use.
        asker: who submits it.
        key: of the request.
        test_of: the cluster that the job tests. None: it tests none.
        notice: about the job, for its user.
    """
    if new.code is not None and not here.code.has(new.code):
        raise missing_code(new.code)
    check_places_here(here, f"Cannot submit job '{new.name}'", new, asker.name)
    most = here.settings.max_queued_jobs
    done = here.store.jobs.submit(new, asker, here.now(), key, max_queued=most, test_of=test_of)
    answer = show_job(done.job, 201 if done.is_new else 200)
    add_warnings(answer, notice, warn_of_limits(here, new))
    return answer
