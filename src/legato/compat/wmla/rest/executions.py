"""Executions: submit, list, look at, stop, delete, log, result, frameworks. The platform says what is allowed."""

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
from legato.compat.wmla.rest.records import has_ended, tell_execution
from legato.compat.wmla.rest.refusals import Refusal
from legato.compat.wmla.rest.results import answer_result, list_result
from legato.compat.wmla.rest.submitting import NOTICE, Submitter

Route = tuple[str, str, Handler]
"""Method, path below the base, and what answers."""

_MOST: Final = 10_000


def make_routes(submitter: Submitter, version: str) -> Sequence[Route]:
    """Return the routes of executions.

    Args:
        submitter: takes submissions.
        version: of Legato.
    """

    async def submit(request: Request, platform: Platform) -> Response:
        job, notice = await submitter.submit(request, platform)
        headers = {NOTICE: notice.encode("ascii", "replace").decode()} if notice else {}
        told = tell_execution(job)
        # It was submitted this moment; no loop has seen it.
        return JSONResponse(told | {"state": "SUBMITTED"}, 200, headers)

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


def read_stages(said: str | None) -> list[str]:
    """Return the stages that a query for states asks for; none of them: all.

    Raises:
        Refusal: a state is unknown.

    >>> read_stages("FINISHED,KILLED")
    ['succeeded', 'stopped']
    """
    stages: dict[str, None] = {}
    words = [word.strip() for word in (said or "").split(",") if word.strip()]
    for word in words:
        found = STAGES_OF_STATES.get(word.upper())
        if found is None:
            raise Refusal(400, f"There is no state {word[:100]}. There are {', '.join(STAGES_OF_STATES)}.")
        stages |= dict.fromkeys(found)
    # A state that nothing is ever in finds nothing; no state finds all.
    return list(stages) if stages or not words else ["none"]


async def find_jobs(
    platform: Platform, state: str | None, most: int = _MOST, *, oldest_first: bool = False, **query: Any
) -> list[Job]:
    """Return jobs in some states, the newest first."""
    stages = read_stages(state)
    if stages == ["none"]:
        return []
    return await platform.list_jobs(most, oldest_first=oldest_first, **(query | ({"stage": stages} if stages else {})))


def read_number(request: Request, name: str, default: int) -> int:
    """Return a whole number of the query.

    Raises:
        Refusal: it is none.
    """
    said = request.query_params.get(name, "").strip()
    if not said:
        return default
    if not (said.isascii() and said.isdecimal() and len(said) < 10):
        raise Refusal(400, f"Cannot read {name}={said[:100]}. Give a whole number of at least 0.")
    return int(said)


async def stop_job(platform: Platform, job: Job, *, now: bool = False) -> None:
    """Stop a job, with a checkpoint or at once."""
    await platform.ask("POST", f"jobs/{job['id']}/stop", json={"now": now})


async def _list(request: Request, platform: Platform) -> Response:
    field, _, order = request.query_params.get("sort_by", "id:desc").partition(":")
    if order not in ("", "asc", "desc"):
        raise Refusal(400, f"Cannot sort by {field[:100]}:{order[:100]}. Write FIELD:asc or FIELD:desc.")
    is_by_time = field in ("id", "createTime")
    limit = read_number(request, "limit", _MOST) or _MOST
    state = request.query_params.get("state")
    me = await platform.get("me")
    # As theirs, a user's own; who is there to look after all, or only to look, has all.
    whose = {"owner": me["name"]} if me["role"] == "user" else {}
    is_ascending = order != "desc"
    most = limit if is_by_time else _MOST
    jobs = await find_jobs(platform, state, most, oldest_first=is_by_time and is_ascending, **whose)
    told = [tell_execution(job) for job in jobs]
    if not is_by_time:
        if told and field not in told[0]:
            raise Refusal(400, f"Cannot sort by {field[:100]}. There are {', '.join(told[0])}.")
        told.sort(key=lambda record: str(record.get(field, "")), reverse=not is_ascending)
    return JSONResponse(told[:limit])


async def _get(request: Request, platform: Platform) -> Response:
    return JSONResponse(tell_execution(await platform.find_job(request.path_params["id"])))


async def _stop(request: Request, platform: Platform) -> Response:
    await stop_job(platform, await platform.find_job(request.path_params["id"]))
    return Response(status_code=204)


async def _delete(request: Request, platform: Platform) -> Response:
    await _delete_job(platform, await platform.find_job(request.path_params["id"]))
    return Response(status_code=204)


async def _delete_all(_: Request, platform: Platform) -> Response:
    user = (await platform.get("me"))["name"]
    # These commands never mean the jobs of other users, not even for an admin.
    for job in await platform.list_jobs(owner=user):
        await _delete_job(platform, job)
    return Response(status_code=204)


async def _delete_job(platform: Platform, job: Job) -> None:
    """Stop a job, and show it as theirs no more. What it left is kept as long as that of any job."""
    try:
        if not has_ended(job):
            # That it ended meanwhile, or is being stopped, is as well.
            await platform.ask("POST", f"jobs/{job['id']}/stop", json={"now": True}, allowed=(409,))
        await platform.ask("PATCH", f"jobs/{job['id']}", json={"labels": {DELETED_LABEL: MARK}})
    except Refusal as refusal:
        if refusal.status != 403:
            raise
        # Who may not do it hears of what was asked for, not of the steps.
        raise Refusal(403, re.sub(r"^Cannot [a-z]+", "Cannot delete", refusal.told)) from refusal


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
    """Return a text as it is, or as a JSON string, whichever is wanted; who says nothing gets JSON."""
    wanted = request.headers.get("accept", "").lower()
    if "json" not in wanted and ("text/" in wanted or "octet-stream" in wanted):
        return PlainTextResponse(text)
    return Response(json.dumps(text), media_type="application/json")


async def _get_result(request: Request, platform: Platform) -> Response:
    job = await platform.find_job(request.path_params["id"])
    files = await list_result(platform, job)
    return answer_result(platform, job, files, with_body=request.method != "HEAD")
