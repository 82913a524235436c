"""Routes of applications: those of WMLA's scheduler, of the scheduler's engine, and of the Conductor of 1.2.x."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from legato.compat.wmla.names import APPLICATION_LABEL, find_job
from legato.compat.wmla.rest.executions import Route, find_jobs, read_number, stop_job
from legato.compat.wmla.rest.groups import check_group
from legato.compat.wmla.rest.logs import read_process_log, take_last_lines
from legato.compat.wmla.rest.members import EMPTY, MembershipReader
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.records import (
    describe_application,
    describe_conductor_application,
    describe_engine_application,
    has_ended,
)
from legato.compat.wmla.rest.refusals import Refusal

_OCTETS: Final = "application/octet-stream"
_MAX_APPLICATIONS: Final = 10_000


def make_scheduler_routes(reader: MembershipReader) -> Sequence[Route]:
    """Return the routes of applications below ``/scheduler``."""

    async def list_applications(request: Request, platform: Platform) -> Response:
        query = request.query_params
        wanted = query.get("applicationid") or query.get("driverid")
        if wanted:
            job = await platform.find_job(wanted)
            return JSONResponse([describe_application(job, await reader.find(platform, job), time.time())])
        more: dict[str, Any] = {"queue": query["sigId"]} if query.get("sigId") else {}
        jobs = [job for job in await find_jobs(platform, query.get("state"), **more) if _matches(job, request)]
        records = [describe_application(job, EMPTY, time.time()) for job in jobs]
        return JSONResponse(_cut(request, _sort(request, records, "submittedtime")))

    async def get_application(request: Request, platform: Platform) -> Response:
        job = await platform.find_job(request.path_params["id"])
        return JSONResponse(describe_application(job, await reader.find(platform, job), time.time()))

    return (
        ("GET", "/scheduler/applications", list_applications),
        ("GET", "/scheduler/applications/{id}", get_application),
        ("GET", "/scheduler/applications/{id}/driver/logs/{log}", _get_process_log),
        ("GET", "/scheduler/applications/{id}/executor/{number:int}/logs/{log}", _get_process_log),
        ("PUT", "/scheduler/applications/{id}/stop", _stop),
        ("GET", "/scheduler/engine/applications", _list_engine_applications),
        ("GET", "/scheduler/engine/applications/{id}", _get_engine_application),
    )


def make_conductor_routes(reader: MembershipReader) -> Sequence[Route]:
    """Return the routes of the Conductor."""

    async def list_applications(request: Request, platform: Platform) -> Response:
        group = request.path_params["group"]
        await check_group(platform, group, "Instance group name", 404)
        jobs = await find_jobs(platform, request.query_params.get("state"), queue=group)
        records = []
        for job in jobs:
            members = EMPTY if has_ended(job) else await reader.find(platform, job)
            records.append(describe_conductor_application(job, members, time.time()))
        return JSONResponse(records)

    return (
        ("GET", "/instances", _list_groups),
        ("GET", "/instances/{group}", _get_group),
        ("GET", "/instances/{group}/applications", list_applications),
        ("GET", "/instances/{group}/applications/{id}/logs/{log}/download", _download),
        ("GET", "/instances/{group}/applications/{id}/{executor}/logs/{log}/download", _download),
    )


# ---------------------------------------------------------------- the scheduler


async def _get_process_log(request: Request, platform: Platform) -> Response:
    job = await platform.find_job(request.path_params["id"])
    number = request.path_params.get("number")
    if number == 0:
        raise Refusal(404, "Executors are counted from 1.")
    text = await read_process_log(platform, job, number or 0, request.path_params["log"])
    return PlainTextResponse(take_last_lines(text, request.query_params.get("lastlines")))


async def _stop(request: Request, platform: Platform) -> Response:
    await stop_job(platform, await platform.find_job(request.path_params["id"]))
    return Response(status_code=204)


async def _list_engine_applications(request: Request, platform: Platform) -> Response:
    jobs = [job for job in await find_jobs(platform, request.query_params.get("state")) if _matches(job, request)]
    return JSONResponse(
        _cut(request, _sort(request, [describe_engine_application(job) for job in jobs], "submit_time"))
    )


async def _get_engine_application(request: Request, platform: Platform) -> Response:
    return JSONResponse(describe_engine_application(await platform.find_job(request.path_params["id"])))


def _matches(job: Job, request: Request) -> bool:
    name = job["labels"].get(APPLICATION_LABEL, job["name"])
    wanted, part = request.query_params.get("applicationname"), request.query_params.get("search")
    return (not wanted or wanted == name) and (not part or part in name or part in job["id"] or part in job["owner"])


def _sort(request: Request, records: list[dict[str, Any]], example: str) -> list[dict[str, Any]]:
    value = request.query_params.get("sort")
    if not value:
        return records  # the newest first
    field = value.lstrip("+-")
    if records and (field not in records[0] or isinstance(records[0][field], dict | list)):
        raise Refusal(400, f"Cannot sort by {field[:100]}. Use a field of the records, for example {example}.")
    is_descending = value.startswith("-") or request.query_params.get("order", "").lower().startswith("desc")
    # In ascending order, records without a value come first.
    return sorted(records, key=lambda one: (one[field] is not None, one[field] or 0), reverse=is_descending)


def _cut(request: Request, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    start, length = read_number(request, "start", 0), read_number(request, "length", _MAX_APPLICATIONS)
    if start and start >= len(records):
        raise Refusal(416, f"There are only {len(records)} applications, but start={start}. Use a smaller start.")
    return records[start : start + (length or _MAX_APPLICATIONS)]


# ---------------------------------------------------------------- the Conductor


async def _list_groups(request: Request, platform: Platform) -> Response:
    wanted = request.query_params.get("id") or request.query_params.get("name")
    queues = (await platform.get("queues"))["items"]
    return JSONResponse([_describe_group(queue) for queue in queues if not wanted or queue["name"] == wanted])


async def _get_group(request: Request, platform: Platform) -> Response:
    name = request.path_params["group"]
    await check_group(platform, name, "Instance group name", 404)
    return JSONResponse(_describe_group(await platform.get(f"queues/{name}")))


def _describe_group(queue: Any) -> dict[str, Any]:
    return {
        "id": queue["name"],
        "name": queue["name"],
        "state": "STARTED",
        "consumer": queue["name"],
        "runningapplications": queue["num_holding"],
        "pendingapplications": queue["num_queued"],
        "gpuslots": queue["num_slots"],
        "slots": queue["num_slots"],
    }


async def _download(request: Request, platform: Platform) -> Response:
    group = request.path_params["group"]
    job = await platform.find_job(request.path_params["id"])
    executor = request.path_params.get("executor")
    number = 0 if executor is None else _read_executor(executor, job)
    if job["queue"] != group or number is None:
        raise Refusal(
            404, f"Application {request.path_params['id'][:100]} in {group[:100]} not found, or it has no such log."
        )
    log = request.path_params["log"]
    text = await read_process_log(platform, job, number, log)
    name = f"{job['id']}-{'driver' if not number else f'executor-{number}'}-{log}.txt"
    return Response(text, headers={"Content-Disposition": f"attachment;filename={name}"}, media_type=_OCTETS)


def _read_executor(value: str, job: Job) -> int | None:
    """Return the number of an executor, which is given by its id or its number; None if it is neither."""
    if find_job(value) == job["id"] and value.startswith("executor-"):
        value = value.rpartition("-")[2]
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 7 and int(value) > 0 else None
