"""Jobs: submit, list, get, change, pause, resume, stop, clone. The store decides what is allowed."""

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
from legato.control.work import Work, check_most_workers, check_resize, check_work, read_work
from legato.core.errors import Forbidden, NotFound, StaleVersion, UsageError
from legato.core.frameworks import Framework
from legato.policy.whatif import Plan
from legato.server.answers import Answer, Encoded, encode, show_job, tells
from legato.server.authentication import WhoAsks
from legato.server.bodies import JobFields, Patch, Resize, Stop, Submission, make_job
from legato.server.etags import is_known, make_tag, tell_unchanged
from legato.server.frameworks import Frameworks
from legato.server.launches import check_places_here, find_files, run_by, warn_of_limits
from legato.server.planning import check_queue
from legato.server.problems import Problem
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["jobs"])

WARNING: Final = "X-Legato-Warning"
_MAX_TRIES: Final = 5
_LIST: Final[dict[str, Any]] = tells(Page[Job], errors=(404,))
_LIST["responses"][304] = {"description": "Nothing has changed since the answer with this ETag."}
_CHANGES: Final[dict[str, Any]] = tells(Job, errors=(404, 409, 412, 413, 415))

IfMatch = Annotated[str | None, Header(max_length=100)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=1000)]
After = Annotated[str | None, Query(max_length=64)]


class Spec(Work, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job runs, as it is shown. ``environment``: values are null for whom they do not concern."""

    environment: dict[str, str | None] = msgspec.field(default_factory=dict)  # type: ignore[assignment]


class NewOrigin(NamedTuple):
    """Of what a new job is a run. None: of none."""

    project: str | None = None
    experiment: str | None = None
    definition: str | None = None


# ---------------------------------------------------------------- new ones


@router.post("/jobs", **tells(Job, 201, also=(200,), errors=(404, 409, 413, 415)))
def submit(body: Submission, here: Here, asker: WhoAsks, frameworks: Frameworks, key: Key = None) -> Response:
    """Submit a job."""
    submitter = check_may_submit(asker)
    request = read_key(key, "submit", body)
    before = find_made(request, here, asker)
    if before:
        return show_job(before[0])
    framework = None if body.framework is None else frameworks.find(body.framework)
    new = _make_checked(body, here, asker, framework=framework)
    return _submit(new, here, submitter, request)


@router.post("/jobs/{job}/clone", **tells(Job, 201, also=(200,), errors=(404, 409, 413, 415)))
def clone(job: str, here: Here, asker: WhoAsks, body: JobFields | None = None, key: Key = None) -> Response:
    """Submit a job like another one."""
    submitter = check_may_submit(asker)
    said = body or JobFields()
    request = read_key(key, f"clone {job}", said)
    before = find_made(request, here, asker)
    if before:
        return show_job(before[0])
    found = here.store.jobs.find(job, asker)
    here.store.jobs.check_may_clone(found.id)
    spec = here.store.jobs.read_spec(found.id)
    origin = _find_origin(found, here, asker)
    if found.owner != asker.name:
        # Its owner may have added variables that the definition has not: no other user may see them.
        shared = None if origin.definition is None else here.store.definitions.find(origin.definition, asker)
        spec["environment"] = {} if shared is None else shared.environment
    if said.program is not None and spec.get("launcher") is not None:
        # It names a file of the old program.
        spec["launcher"].pop("script", None)
    base = NewJob(
        name=found.name,
        spec=spec,
        min_workers=found.min_workers,
        max_workers=found.max_workers,
        queue=found.queue,
        priority=found.priority,
        is_elastic=found.is_elastic,
        max_retries=found.max_retries,
        labels=found.labels,
        code=found.code,
    )
    new = _make_checked(said, here, asker, base=base)
    if said.model_fields_set & {"program", "code", "directory"}:
        # It runs something else than its definition says.
        origin = origin._replace(definition=None)
    new = msgspec.structs.replace(new, **origin._asdict(), parent=found.id)
    if new.code is not None and new.code == found.code:
        _check_may_use(found, new.code, here, asker)
    return _submit(new, here, submitter, request)


@router.post("/plan", **tells(Plan, errors=(404, 413, 415)))
async def plan(body: Submission, here: Here, asker: WhoAsks) -> Response:
    """Say what would happen if a job were submitted now."""
    new = await run_in_threadpool(_make_planned, body, here, asker)
    return Answer(await here.plan(new, asker))


def _make_planned(body: Submission, here: Services, asker: Asker) -> NewJob:
    check_may_submit(asker)
    if body.code is None and body.directory is None:
        # Where the program lies does not matter to a plan.
        body = body.model_copy(update={"directory": "/"})
    # Nor does it what runs it.
    body = body.model_copy(update={"framework": None})
    new = _make_checked(body, here, asker)
    check_queue(here.store, new.queue, asker)
    return new


# ---------------------------------------------------------------- look


@router.get("/jobs", **_LIST)
async def list_jobs(
    here: Here,
    asker: WhoAsks,
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
    """List jobs, unless what the asker has is the same."""
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

    # The version first: whatever is read after it is at least so new.
    version, wanted = await run_in_threadpool(lambda: (store.events.read_version(), read_filter()))
    asked = _tell_list(wanted, asker, after, limit, order)
    tag = make_tag(version, asked)
    if is_known(if_none_match, tag):
        return tell_unchanged(tag)

    def read() -> bytes:
        is_oldest_first = order == "oldest"
        page = store.jobs.list(
            wanted, sees_only=asker.sees_only, after=after, limit=limit, oldest_first=is_oldest_first
        )
        return encode(Page(tuple(_as_seen(job, asker) for job in page.items), page.after))

    return Encoded(await here.lists.get(asked, version, read), headers={"ETag": tag})


@router.get("/jobs/{job}", **tells(Job, errors=(404,)))
def get_job(job: str, here: Here, asker: WhoAsks) -> Response:
    """Return a job, by id or by name."""
    return show_job(_as_seen(here.store.jobs.find(job, asker), asker))


@router.get("/jobs/{job}/spec", **tells(Spec, errors=(404,)))
def get_spec(job: str, here: Here, asker: WhoAsks) -> Response:
    """Return what a job runs."""
    found = here.store.jobs.find(job, asker)
    work = read_work(here.store.jobs.read_spec(found.id))
    told = {field: getattr(work, field) for field in Work.__struct_fields__}
    if not may_see_inside(found, asker):
        told["environment"] = dict.fromkeys(work.environment)
    return Answer(told)


# ---------------------------------------------------------------- change


@router.patch("/jobs/{job}", **_CHANGES)
def patch(job: str, body: Patch, here: Here, asker: WhoAsks, if_match: IfMatch = None) -> Response:
    """Change what a job may have, as a merge patch."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    version = read_version(if_match)
    for left in reversed(range(_MAX_TRIES)):
        found = here.store.jobs.find(job, asker)
        values, seen = dict(given), version
        if "labels" in given:
            # A merge rests on what was there; if that changes in between it is merged again.
            values["labels"] = _merge(found.labels, given["labels"])
            seen = found.version if version is None else version
        try:
            return _change(found, JobPatch(**values), here, asker, seen)
        except StaleVersion:
            if version is not None or left == 0:
                raise
    raise AssertionError("the last try returns or raises")


@router.post("/jobs/{job}/resize", **_CHANGES)
def resize(job: str, body: Resize, here: Here, asker: WhoAsks, if_match: IfMatch = None) -> Response:
    """Change the bounds of a job's workers."""
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
def pause(job: str, here: Here, asker: WhoAsks, if_match: IfMatch = None) -> Response:
    """Save a job's state and take all its slots back, until it is resumed."""
    found = here.store.jobs.find(job, asker)
    return show_job(here.store.jobs.pause(found.id, asker, here.now(), version=read_version(if_match)))


@router.post("/jobs/{job}/resume", **_CHANGES)
def resume(job: str, here: Here, asker: WhoAsks, if_match: IfMatch = None) -> Response:
    """Resume a paused job from where it was."""
    found = here.store.jobs.find(job, asker)
    return show_job(here.store.jobs.resume(found.id, asker, here.now(), version=read_version(if_match)))


@router.post("/jobs/{job}/stop", **_CHANGES)
def stop(job: str, here: Here, asker: WhoAsks, body: Stop | None = None, if_match: IfMatch = None) -> Response:
    """End a job, with a checkpoint or at once."""
    found = here.store.jobs.find(job, asker)
    how = body or Stop()
    version = read_version(if_match)
    return show_job(here.store.jobs.stop(found.id, asker, here.now(), version=version, stop_now=how.now))


# ---------------------------------------------------------------- what is read of a request


def read_version(if_match: str | None, what: str = "job") -> int | None:
    """Return the version that ``If-Match`` names; None: any.

    Raises:
        Problem: it names none.

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
    """Read ``KEY=VALUE`` as often as it is given.

    Raises:
        UsageError: one of them is not of this form.

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
    """Return a job without the SHA-256 of its code, unless its code is the asker's to see."""
    return job if job.code is None or may_see_inside(job, asker) else msgspec.structs.replace(job, code=None)


def _tell_list(wanted: JobFilter, asker: Asker, *more: Any) -> str:
    """Return all that a list of jobs depends on besides the jobs: the same text for the same list alone."""
    told = msgspec.structs.asdict(wanted) | {"stages": sorted(wanted.stages), "labels": sorted(wanted.labels.items())}
    # Who sees all sees the same.
    return repr((asker.role, asker.sees_only, told, more))


def _merge(labels: dict[str, str], given: dict[str, str | None] | None) -> dict[str, str]:
    if given is None:
        return {}
    merged = {**labels, **given}
    return {key: value for key, value in merged.items() if value is not None}


def _make_checked(
    said: JobFields,
    here: Services,
    asker: Asker,
    *,
    base: NewJob | None = None,
    framework: Framework | None = None,
) -> CheckedJob:
    """Return the job of a submission, checked as far as that can be done without asking what there is."""
    new = check_new_job(make_job(said, default_priority=here.settings.default_priority, base=base))
    if framework is None:
        if new.code is not None:
            check_sha256(new.code)
    else:
        new = run_by(new, framework, find_files(new.code, here, asker), asker.name)
    work = read_work(new.spec)
    check_work(
        work, name=new.name, min_workers=new.min_workers, max_workers=new.max_workers, has_code=new.code is not None
    )
    # As the work says it, not as it came: what is usual is left out.
    return msgspec.structs.replace(new, spec=msgspec.to_builtins(work))


def read_key(key: str | None, doing: str, said: BaseModel) -> RequestKey | None:
    """Return the idempotency key of a request.

    It is the request that is remembered, not what it means: a clone made again may find another job under that name.
    """
    if key is None:
        return None
    request = msgspec.json.encode([doing, said.model_dump(exclude_unset=True)], order="deterministic")
    return RequestKey(key, hashlib.sha256(request).hexdigest())


def find_made(request: RequestKey | None, here: Services, asker: Asker) -> tuple[Job, ...]:
    """Return the jobs that the same request made before; none: it made none.

    Ask this before you look for what the request names: that may be gone by now. It claims nothing, so the store
    looks again when it submits, in case the same request is being answered at this moment.

    Raises:
        KeyReused: the key was used for another request.
        NotFound: one of the jobs was too old to be kept.
    """
    if request is None:
        return ()
    answer = here.store.requests.find_answer(asker.name, request)
    return tuple(here.store.jobs.get(job) for job in (answer or "").split())


def _find_origin(job: Job, here: Services, asker: Asker) -> NewOrigin:
    """Return of what a clone of a job is a run too: of what the asker could run as well."""
    if job.project is None:
        return NewOrigin()
    try:
        project = here.store.projects.find(job.project, asker)
        check_may_add("clone it", project, asker)
    except (NotFound, Forbidden):
        return NewOrigin()
    return NewOrigin(job.project, job.experiment, job.definition)


def _check_may_use(job: Job, code: str, here: Services, asker: Asker) -> None:
    """Raise Forbidden unless a clone of the job may run its code: a user who runs it can read it."""
    try:
        here.store.uploads.get(code, asker)
    except NotFound as error:
        raise Forbidden(
            f"Cannot clone job '{job.name}' with its code: it belongs to '{job.owner}', who uploaded it. "
            f"Submit your own copy of the program, or ask '{job.owner}' or an admin."
        ) from error


def _submit(new: CheckedJob, here: Services, asker: Submitter, key: RequestKey | None) -> Response:
    if new.code is not None and not here.code.has(new.code):
        raise missing_code(new.code)
    check_places_here(here, f"Cannot submit job '{new.name}'", new, asker.name)
    done = here.store.jobs.submit(new, asker, here.now(), key, max_queued=here.settings.max_queued_jobs)
    answer = show_job(done.job, 201 if done.is_new else 200)
    warning = warn_of_limits(here, new)
    if warning is not None:
        answer.headers[WARNING] = warning.encode("ascii", "replace").decode()
    return answer
