"""Further routes of the scheduler: settings, status, instances, resource plans, pods, from the pool and the queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from legato.compat.wmla.rest.executions import Route, find_jobs
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.records import count_slots, has_ended, state_of
from legato.compat.wmla.rest.refusals import Refusal


def make_routes(version: str, data_root: str) -> Sequence[Route]:
    """Return the routes.

    Args:
        version: of Legato.
        data_root: the directory of all data on the machines.
    """

    async def get_settings(_: Request, platform: Platform) -> Response:
        await platform.get("me")
        return JSONResponse(
            {
                "MSD_ENABLED": "true",
                "DLI_DATA_FS": data_root,
                "DLI_VERSION": f"legato-{version}",
                "EDI_ENABLED": "false",
                "HPO_ENABLED": "false",
            }
        )

    async def get_status(_: Request, platform: Platform) -> Response:
        pool = await platform.get("pool")
        record = {"status": "OK", "state": "RUNNING", "version": f"legato-{version}", "policy": pool["policy"]}
        return JSONResponse(record | {name: pool[name] for name in ("num_slots", "num_usable", "num_free")})

    return (
        ("GET", "/conf", get_settings),
        ("GET", "/status", get_status),
        ("GET", "/scheduler/instances", _list_instances),
        ("GET", "/scheduler/kubernetesobjects", _list_objects),
        ("GET", "/resplans/resplantree", _get_plans),
        ("GET", "/resplans/resplan", _get_plans),
        ("GET", "/resplans/resplan/{name}", _get_plan),
        ("DELETE", "/resplans/resplan/{name}", _delete_plan),
    )


async def _list_instances(_: Request, platform: Platform) -> Response:
    pool = await platform.get("pool")
    record = {"name": "legato", "state": "RUNNING", "slots": pool["num_slots"], "freeslots": pool["num_free"]}
    return JSONResponse([record])


async def _list_objects(request: Request, platform: Platform) -> Response:
    """List Kubernetes objects. Legato runs without Kubernetes: jobs are parallel jobs, and slots of jobs are pods."""
    kind, name = request.query_params.get("type", ""), request.query_params.get("name")
    if kind not in ("pod", "paralleljob"):
        raise Refusal(400, f"There is no type {kind[:100]} of objects. The types are pod and paralleljob.")
    jobs = [job for job in await find_jobs(platform, None) if not has_ended(job)]
    items = [_describe_job(job) for job in jobs] if kind == "paralleljob" else await _list_pods(platform, jobs)
    if name is not None:
        items = [item for item in items if item["metadata"]["name"] == name]
        if not items:
            raise Refusal(404, f"There is no {kind} {name[:100]}.")
    return JSONResponse({"kind": "List", "apiVersion": "v1", "items": items})


async def _list_pods(platform: Platform, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    by_id = {job["id"]: job for job in jobs}
    slots = (await platform.get("slots"))["items"]
    return [
        {
            "kind": "Pod",
            "metadata": {
                "name": f"{slot['job']}-{slot['id'].replace('/', '-')}",
                "namespace": by_id[slot["job"]]["queue"],
                "creationTimestamp": _write_time(slot["since"]),
                "labels": {"app": slot["job"]},
            },
            "spec": {"nodeName": slot["node"]},
            "status": {"phase": "Running", "startTime": _write_time(slot["since"])},
        }
        for slot in slots
        if slot["job"] in by_id
    ]


def _describe_job(job: Job) -> dict[str, Any]:
    return {
        "kind": "ParallelJob",
        "metadata": {
            "name": job["id"],
            "namespace": job["queue"],
            "creationTimestamp": _write_time(job["submitted_at"]),
            "labels": {"app": job["id"], "user": job["owner"]},
        },
        "spec": {"priority": job["priority"], "minWorkers": job["min_workers"], "maxWorkers": job["max_workers"]},
        "status": {"jobStatus": state_of(job), "running": count_slots(job), "reason": job["reason"]},
    }


async def _get_plans(_: Request, platform: Platform) -> Response:
    queues = (await platform.get("queues"))["items"]
    return JSONResponse({"name": "root", "children": [_describe_plan(queue) for queue in queues]})


async def _get_plan(request: Request, platform: Platform) -> Response:
    return JSONResponse(_describe_plan(await _find_plan(request, platform)))


async def _delete_plan(request: Request, platform: Platform) -> Response:
    queue = await _find_plan(request, platform)
    await platform.ask("DELETE", f"queues/{queue['name']}")
    return Response(status_code=204)


async def _find_plan(request: Request, platform: Platform) -> Any:
    """Return the queue of a resource plan."""
    wanted = request.path_params["name"]
    for queue in (await platform.get("queues"))["items"]:
        if queue["name"] == wanted:
            return queue
    raise Refusal(404, f"There is no resource plan {wanted[:100]}. In Legato, resource plans are queues.")


def _describe_plan(queue: Any) -> dict[str, Any]:
    return {
        "name": queue["name"],
        "consumer": queue["name"],
        "shareRatio": queue["weight"],
        "reserved": queue["floor"],
        "limit": queue["ceiling"],
        "allocated": queue["num_slots"],
        "running": queue["num_holding"],
        "pending": queue["num_queued"],
        "children": [],
    }


def _write_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
