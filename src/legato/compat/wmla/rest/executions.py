"""Routes of executions: submit, list, get, stop, delete, log, result, frameworks. The platform checks permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from legato.compat.wmla.frameworks import FRAMEWORKS, describe_framework
from legato.compat.wmla.names import DELETED_LABEL, MARK, STAGES_OF_STATES
from legato.compat.wmla.rest.logs import read_training_log, take_last_lines
from legato.compat.wmla.rest.platform import Handler, Job, Platform
from legato.compat.wmla.rest.records import describe_execution, has_ended
from legato.compat.wmla.rest.refusals import Refusal
from legato.compat.wmla.rest.results import answer_result, list_result
from legato.compat.wmla.rest.submitting import NOTICE, Submitter

Route = tuple[str, str, Handler]
"""Method, path below the base path, and the function that answers."""

_MAX_JOBS: Final = 10_000


def make_routes(submitter: Submitter, version: str) -> Sequence[Route]:
    """Return the routes of executions.

    Args:
        submitter: takes submissions.
        version: of Legato.
    """

    async def submit(request: Request, platform: Platform) -> Response:
        job, notice = await submitter.submit(request, platform)
        headers = {NOTICE: notice.encode("ascii", "replace").decode()} if notice else {}
        # A new job is SUBMITTED, whatever the platform has done with it since.
        return JSONResponse(describe_execution(job) | {"state": "SUBMITTED"}, 200, headers)

    async def list_frameworks(_: Request, platform: Platform) -> Response:
        await platform.get("me")
        return JSONResponse([describe_framework(framework, version) for framework in FRAMEWORKS.values()])

    return (
        ("GET", "/execs/frameworks", list_frameworks),
        ("POST", "/execs", submit),
        ("GET", "/execs", _list),
        ("DELETE", "/execs", _delete_all),
        ("GET", "/execs/{id}", _get),
        ("DELETE", "/execs/{id}", _delete),
        ("POST", "/execs/{id}/stop", _stop),
        ("PUT", "/execs/{id}/stop", _stop),
        ("POST", "/execs/{id}/deploy", _deploy),
        ("GET", "/execs/{id}/log", _get_log),
        ("GET", "/execs/{id}/result", _get_result),
    )


def read_stages(text: str | None) -> list[str]:
    """Return the stages of the states in a query; an empty list means all stages.

    Args:
        text: WMLA's states, separated by commas.

    Raises:
        Refusal: a state is unknown.

    >>> read_stages("FINISHED,KILLED")
    ['succeeded', 'stopped']
    """
    stages: dict[str, None] = {}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        found = STAGES_OF_STATES.get(word.upper())
        if found is None:
            raise Refusal(400, f"There is no state {word[:100]}. The states are {', '.join(STAGES_OF_STATES)}.")
        stages |= dict.fromkeys(found)
    # A state that no job is ever in finds no job; without a state, all jobs are found.
    return list(stages) if stages or not words else ["none"]


async def find_jobs(
    platform: Platform, state: str | None, max_jobs: int = _MAX_JOBS, *, oldest_first: bool = False, **query: Any
) -> list[Job]:
    """Return at most ``max_jobs`` jobs in some states, the newest first unless ``oldest_first``."""
    stages = read_stages(state)
    if stages == ["none"]:
        return []
    return await platform.list_jobs(
        max_jobs, oldest_first=oldest_first, **(query | ({"stage": stages} if stages else {}))
    )


def read_number(request: Request, name: str, default: int) -> int:
    """Return a whole number of the query, or a default.

    Raises:
        Refusal: the parameter is not a whole number.
    """
    value = request.query_params.get(name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise Refusal(400, f"Cannot read {name}={value[:100]}. Give a whole number of at least 0.")
    return int(value)


async def stop_job(platform: Platform, job: Job, *, now: bool = False) -> None:
    """Stop a job: after a checkpoint, or immediately if ``now``."""
    await platform.ask("POST", f"jobs/{job['id']}/stop", json={"now": now})


async def _list(request: Request, platform: Platform) -> Response:
    field, _, order = request.query_params.get("sort_by", "id:desc").partition(":")
    if order not in ("", "asc", "desc"):
        raise Refusal(400, f"Cannot sort by {field[:100]}:{order[:100]}. Write FIELD:asc or FIELD:desc.")
    is_by_time = field in ("id", "createTime")
    limit = read_number(request, "limit", _MAX_JOBS) or _MAX_JOBS
    state = request.query_params.get("state")
    me = await platform.get("me")
    # As in WMLA, users get their own jobs. Admins and viewers get all jobs.
    owner = {"owner": me["name"]} if me["role"] == "user" else {}
    is_ascending = order != "desc"
    max_jobs = limit if is_by_time else _MAX_JOBS
    jobs = await find_jobs(platform, state, max_jobs, oldest_first=is_by_time and is_ascending, **owner)
    records = [describe_execution(job) for job in jobs]
    if not is_by_time:
        if records and field not in records[0]:
            raise Refusal(400, f"Cannot sort by {field[:100]}. The fields are {', '.join(records[0])}.")
        records.sort(key=lambda record: str(record.get(field, "")), reverse=not is_ascending)
    return JSONResponse(records[:limit])


async def _get(request: Request, platform: Platform) -> Response:
    return JSONResponse(describe_execution(await platform.find_job(request.path_params["id"])))


async def _stop(request: Request, platform: Platform) -> Response:
    await stop_job(platform, await platform.find_job(request.path_params["id"]))
    return Response(status_code=204)


async def _delete(request: Request, platform: Platform) -> Response:
    await _delete_job(platform, await platform.find_job(request.path_params["id"]))
    return Response(status_code=204)


async def _delete_all(_: Request, platform: Platform) -> Response:
    user = (await platform.get("me"))["name"]
    # Even an admin deletes only the admin's own jobs with this.
    for job in await platform.list_jobs(owner=user):
        await _delete_job(platform, job)
    return Response(status_code=204)


async def _delete_job(platform: Platform, job: Job) -> None:
    """Stop a job, and hide it from WMLA's interface. The platform keeps its files as long as those of any job."""
    try:
        if not has_ended(job):
            # 409: the job has ended meanwhile, or it is being stopped.
            await platform.ask("POST", f"jobs/{job['id']}/stop", json={"now": True}, allowed=(409,))
        await platform.ask("PATCH", f"jobs/{job['id']}", json={"labels": {DELETED_LABEL: MARK}})
    except Refusal as refusal:
        if refusal.status != 403:
            raise
        # The refusal speaks of the request, to delete, not of one of its steps.
        raise Refusal(403, re.sub(r"^Cannot [a-z]+", "Cannot delete", refusal.message)) from refusal


async def _deploy(request: Request, platform: Platform) -> Response:
    await platform.find_job(request.path_params["id"])
    raise Refusal(
        501, "Deployment is not supported. Download the result, and serve the model with a server of your choice."
    )


async def _get_log(request: Request, platform: Platform) -> Response:
    job = await platform.find_job(request.path_params["id"])
    text = await read_training_log(platform, job, request.query_params.get("logType") or None)
    return answer_text(request, take_last_lines(text, request.query_params.get("lastlines")))


def answer_text(request: Request, text: str) -> Response:
    """Return a text as plain text or as a JSON string, as the client accepts; JSON if it does not say."""
    wanted = request.headers.get("accept", "").lower()
    if "json" not in wanted and ("text/" in wanted or "octet-stream" in wanted):
        return PlainTextResponse(text)
    return Response(json.dumps(text), media_type="application/json")


async def _get_result(request: Request, platform: Platform) -> Response:
    job = await platform.find_job(request.path_params["id"])
    files = await list_result(platform, job)
    return answer_result(platform, job, files, with_body=request.method != "HEAD")
