"""Routes of hyperparameter searches, which are sweeps of the platform: start, list, get, stop, restart, delete."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from legato.compat.wmla.names import MARK, MARK_LABEL, NOTICE_LABEL, driver_id
from legato.compat.wmla.rest.executions import Route
from legato.compat.wmla.rest.platform import Platform
from legato.compat.wmla.rest.records import join_label, split_label
from legato.compat.wmla.rest.refusals import Refusal
from legato.compat.wmla.rest.submitting import NOTICE, Found, Submitter, read_data
from legato.compat.wmla.searches import ALGORITHMS, Wanted, find_algorithm, read_request
from legato.compat.wmla.trials import SEARCH, Search
from legato.system.decoding import decode

BASE: Final = "/platform/rest/deeplearning/v1/hypersearch"
Record = Mapping[str, Any]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_USER_LENGTH: Final = 40
_MAX_SEARCH_LENGTH: Final = 10_000
_PAGE: Final = 1000
_STATES: Final = {"running": "RUNNING", "succeeded": "FINISHED", "failed": "FAILED", "stopped": "STOPPED"}
# As those of the executions of the trials.
_TRIAL_STATES: Final = {"succeeded": "FINISHED", "failed": "ERROR", "stopped": "KILLED", "pruned": "KILLED"}
_WAITING: Final = ("queued", "starting", "paused")
_COPIED: Final = (
    *("metric", "parameters", "points", "search", "pruning", "num_trials", "parallel", "max_slots", "max_failures"),
    *("seed", "max_run_s"),
)
"""The fields of a sweep that a restarted one has too, besides its name and its job."""


def make_routes(submitter: Submitter) -> Sequence[Route]:
    """Return the routes of searches.

    Args:
        submitter: takes submissions.
    """

    async def start(request: Request, platform: Platform) -> Response:
        wanted: list[Wanted] = []

        def find(_: Request, form: FormData) -> Found:
            wanted.append(read_request(read_data(form)))
            return wanted[0].args, {}, wanted[0].search.group

        prepared = await submitter.prepare(request, platform, find)
        one = wanted[0]
        if prepared.main.startswith("/"):
            raise Refusal(
                400,
                f"A search cannot run {prepared.main[:200]}, because config.json is written beside the program. Upload "
                "the program, and name it by its path in --model-dir.",
            )
        search = msgspec.json.encode(one.search).decode()
        if len(search) > _MAX_SEARCH_LENGTH:
            raise Refusal(400, "The names of the parameters and the ids of the experiments are too long. Shorten them.")
        name = await _choose_name(platform, prepared.user, one.name)

        def wrap(job: dict[str, Any]) -> dict[str, Any]:
            labels = job["labels"]
            notice = " ".join(part for part in (join_label(labels, NOTICE_LABEL), *one.notices) if part)
            rest = {label: text for label, text in job.items() if label != "name"}
            rest |= {"labels": {**labels, **split_label(NOTICE_LABEL, notice)}, "parameters": {SEARCH: search}}
            return {"name": name, **one.fields, "job": rest}

        answer, _ = await submitter.post(platform, prepared, "sweeps", wrap)
        return _answer_new(answer.json())

    return (
        ("GET", "/hypersearch/algorithm", _list_algorithms),
        ("POST", "/hypersearch/algorithm/install", _install_algorithm),
        ("GET", "/hypersearch/algorithm/{name}", _get_algorithm),
        ("DELETE", "/hypersearch/algorithm/{name}", _delete_algorithm),
        ("POST", "/hypersearch", start),
        ("GET", "/hypersearch", _list),
        ("DELETE", "/hypersearch", _delete_all),
        ("GET", "/hypersearch/{name}", _get),
        ("PUT", "/hypersearch/{name}", _stop),
        ("PUT", "/hypersearch/{name}/force", _stop_now),
        ("PUT", "/hypersearch/{name}/restart", _restart),
        ("DELETE", "/hypersearch/{name}", _delete),
    )


# ---------------------------------------------------------------- searches


async def _list(_: Request, platform: Platform) -> Response:
    me = await platform.get("me")
    # As with executions, users get their own. Admins and viewers get all.
    owner = me["name"] if me["role"] == "user" else None
    found = await _list_sweeps(platform, owner)
    return JSONResponse([describe_search(sweep, await _list_trials(platform, sweep), time.time()) for sweep in found])


async def _get(request: Request, platform: Platform) -> Response:
    sweep = await _find(request, platform)
    return JSONResponse(describe_search(sweep, await _list_trials(platform, sweep), time.time()))


async def _stop(request: Request, platform: Platform) -> Response:
    sweep = await _find(request, platform)
    await platform.ask("POST", f"sweeps/{sweep['id']}/stop")
    return Response(status_code=204)


async def _stop_now(request: Request, platform: Platform) -> Response:
    """Stop a search, and its jobs without a checkpoint; also the jobs of one that is stopped already."""
    sweep = await _find(request, platform)
    if sweep["stage"] == "running":
        await platform.ask("POST", f"sweeps/{sweep['id']}/stop", allowed=(409,))
    for trial in await _list_trials(platform, sweep):
        if trial["job_stage"] not in (None, "succeeded", "failed", "stopped"):
            await platform.ask("POST", f"jobs/{trial['job']}/stop", json={"now": True}, allowed=(404, 409))
    return Response(status_code=204)


async def _restart(request: Request, platform: Platform) -> Response:
    """Start a search that has ended again, from its first trial, under the same name."""
    sweep = await _find(request, platform)
    if sweep["stage"] == "running":
        raise Refusal(409, f"Cannot restart {sweep['name']}: it is running. Stop it first.")
    if (await platform.get("me"))["name"] != sweep["owner"]:
        raise Refusal(403, f"Cannot restart {sweep['name']}: it is a search of '{sweep['owner']}'. Start one of yours.")
    body = {field: sweep[field] for field in ("name", *_COPIED, "job")}
    made = (await platform.ask("POST", "sweeps", json=body)).json()
    await platform.ask("DELETE", f"sweeps/{sweep['id']}", allowed=(404,))
    return _answer_new(made)


async def _delete(request: Request, platform: Platform) -> Response:
    sweep = await _find(request, platform)
    await platform.ask("DELETE", f"sweeps/{sweep['id']}")
    return Response(status_code=204)


async def _delete_all(_: Request, platform: Platform) -> Response:
    """Delete all searches of the user that have ended; refuse the request if others run."""
    running = []
    for sweep in await _list_sweeps(platform, (await platform.get("me"))["name"]):
        if sweep["stage"] == "running":
            running.append(sweep["name"])
        else:
            await platform.ask("DELETE", f"sweeps/{sweep['id']}", allowed=(404,))
    if running:
        raise Refusal(409, f"Those that have ended are deleted. {', '.join(running[:10])} run: stop and delete them.")
    return Response(status_code=204)


async def _find(request: Request, platform: Platform) -> Record:
    name = request.path_params["name"]
    missing = Refusal(404, f"There is no search {name[:100]} that you may see. GET {BASE} lists yours.")
    if not _NAME.fullmatch(name):
        raise missing
    answer = await platform.ask("GET", f"sweeps/{quote(name, safe='')}", allowed=(404,))
    if answer.status_code == 404 or not _is_search(found := answer.json()):
        raise missing
    sweep: Record = found
    return sweep


async def _list_sweeps(platform: Platform, owner: str | None) -> list[Record]:
    found: list[Record] = []
    after: dict[str, str] = {}
    while True:
        page = await platform.get("sweeps", limit=_PAGE, **after)
        found += [one for one in page["items"] if owner in (None, one["owner"]) and _is_search(one)]
        if page["after"] is None:
            return found
        after = {"after": page["after"]}


async def _list_trials(platform: Platform, sweep: Record) -> list[Record]:
    items: list[Record] = (await platform.get(f"sweeps/{sweep['id']}/trials"))["items"]
    return items


async def _choose_name(platform: Platform, user: str, given: str | None) -> str:
    """Return the name of a new search.

    Raises:
        Refusal: the user has a search of the given name.
    """
    if given is None:
        return f"{_ODD.sub('-', user)[:_MAX_USER_LENGTH].strip('-._') or 'user'}-hpo-{time.time_ns() // 1000}"
    if not _NAME.fullmatch(given):
        raise Refusal(400, f"hpoName is {given[:100]!a}. Use letters, digits, '.', '_' and '-'.")
    answer = await platform.ask("GET", f"sweeps/{quote(given, safe='')}", allowed=(404,))
    if answer.is_success and answer.json()["owner"] == user:
        raise Refusal(409, f"You have a search {given[:100]} already. Delete it, or use another hpoName.")
    return given


def _is_search(sweep: Record) -> bool:
    """Return whether a sweep was started by a request for a search. Others may have a parameter of this name too."""
    try:
        search = _read_search(sweep)
    except (KeyError, TypeError, RecursionError, msgspec.MsgspecError):
        return False
    known = [*sweep["parameters"], *(name for point in sweep["points"] for name in point)]
    known += [sweep["pruning"]["parameter"]] if sweep["pruning"] is not None else []
    is_marked = (sweep["job"].get("labels") or {}).get(MARK_LABEL) == MARK
    return (
        is_marked and search.kinds.keys() >= set(known) and (not search.ids or len(search.ids) >= sweep["num_trials"])
    )


def _read_search(sweep: Record) -> Search:
    return decode(sweep["job"]["parameters"][SEARCH], Search)


def _answer_new(sweep: Record) -> Response:
    """Return the answer to a start: in 1.2.x a name, later an object."""
    name, notice = sweep["name"], join_label(sweep["job"]["labels"], NOTICE_LABEL)
    headers = {NOTICE: notice.encode("ascii", "replace").decode()} if notice else {}
    if _read_search(sweep).group is not None:
        return JSONResponse(name, 200, headers)
    return JSONResponse({"uid": name, "href": f"{BASE}/{name}"}, 200, headers)


# ---------------------------------------------------------------- algorithms


async def _list_algorithms(request: Request, platform: Platform) -> Response:
    await platform.get("me")
    kind = request.query_params.get("type", "BUILD_IN")
    if kind not in ("BUILD_IN", "USER_PLUGIN"):
        raise Refusal(400, f"There is no type {kind[:100]}. The types are BUILD_IN and USER_PLUGIN.")
    known = ALGORITHMS if kind == "BUILD_IN" else ()
    return JSONResponse([_describe_algorithm(name) for name in known])


async def _get_algorithm(request: Request, platform: Platform) -> Response:
    await platform.get("me")
    return JSONResponse(_describe_algorithm(_find_algorithm(request.path_params["name"])))


async def _delete_algorithm(request: Request, platform: Platform) -> Response:
    await platform.get("me")
    name = _find_algorithm(request.path_params["name"])
    raise Refusal(409, f"{name} is built in and cannot be deleted. Only plug-ins can, and Legato has none.")


async def _install_algorithm(_: Request, platform: Platform) -> Response:
    await platform.get("me")
    raise Refusal(
        501,
        f"Algorithms of your own (plug-ins) are not supported. Use one of {', '.join(ALGORITHMS)}; or choose the "
        "parameters yourself, and give them as the experiments of ExperimentGridSearch.",
    )


def _find_algorithm(given: str) -> str:
    found = find_algorithm(given)
    if found is None:
        raise Refusal(404, f"There is no algorithm {given[:100]}. The algorithms are {', '.join(ALGORITHMS)}.")
    return found


def _describe_algorithm(name: str) -> dict[str, Any]:
    return {"name": name, "type": "BUILD_IN"}


# ---------------------------------------------------------------- records


def describe_search(sweep: Record, trials: Sequence[Record], now: float) -> dict[str, Any]:
    """Return the record of a search.

    Args:
        sweep: as the platform's REST interface returns it.
        trials: of the sweep.
        now: seconds since 1970.
    """
    search = _read_search(sweep)
    experiments = [_describe_trial(search, sweep, trial) for trial in trials]
    num_ended = sum(trial["state"] != "running" for trial in trials)
    record: dict[str, Any] = {
        "hpoName": sweep["name"],
        "state": "SUBMITTED" if sweep["stage"] == "running" and not trials else _STATES[sweep["stage"]],
        "running": len(trials) - num_ended,
        "complete": num_ended,
        "failed": sum(trial["state"] == "failed" for trial in trials),
        "progress": f"{num_ended}/{sweep['num_trials']}",
        "duration": write_duration((sweep["ended_at"] or now) - sweep["created_at"]),
        "createtime": write_time(sweep["created_at"]),
        "creator": sweep["owner"],
        "algoDef": {
            "algorithm": search.algorithm,
            "maxRunTime": -1 if sweep["max_run_s"] is None else round(sweep["max_run_s"] / 60),
            "maxJobNum": sweep["num_trials"],
            "maxParalleJobNum": sweep["parallel"],
            "objective": search.objective,
            "objectiveMetric": search.metric,
        },
        "experiments": experiments,
        "reason": sweep["reason"],
        "notice": join_label(sweep["job"]["labels"], NOTICE_LABEL),
    }
    if sweep["pruning"] is not None:
        record["algoDef"]["hyperbandEta"] = float(sweep["pruning"]["factor"])
        settings = {"ResourceName": search.resource, "ResourceValue": str(sweep["pruning"]["max_resource"])}
        record["algoDef"]["algoParams"] = [{"name": name, "value": value} for name, value in settings.items()]
    if sweep["parameters"]:
        record["hyperParams"] = [
            _describe_tunable(name, search.kinds[name], tunable) for name, tunable in sweep["parameters"].items()
        ]
    if sweep["best"] is not None:
        record["best"] = experiments[sweep["best"]]
    if search.group is not None:
        record |= {"sigName": search.group, "sigId": search.group}
    return record


def _describe_trial(search: Search, sweep: Record, trial: Record) -> dict[str, Any]:
    number = trial["number"]
    state = _TRIAL_STATES.get(trial["state"]) or ("SUBMITTED" if trial["job_stage"] in _WAITING else "RUNNING")
    fixed = {"type": "fix"} if sweep["search"] == "list" else {}
    record: dict[str, Any] = {
        "id": search.ids[number] if search.ids else number,
        "hyperParams": [
            # WMLA shows Hyperband's resource as a text.
            {
                "name": name,
                **fixed,
                "dataType": "str" if name == search.resource else search.kinds[name],
                "userDefined": False,
                "fixedVal": str(value),
            }
            for name, value in trial["parameters"].items()
        ],
        "state": state,
        "maxiteration": 0,
        "appId": trial["job"],
        "driverId": driver_id(trial["job"]),
        "startTime": write_time(trial["started_at"]),
    }
    if trial["value"] is not None:
        record["metricVal"] = trial["value"]
    if trial["ended_at"] is not None:
        record["endTime"] = write_time(trial["ended_at"])
    if trial["reason"] is not None:
        record["reason"] = trial["reason"]
    return record


def _describe_tunable(name: str, kind: str, tunable: Record) -> dict[str, Any]:
    record: dict[str, Any] = {"name": name, "dataType": kind, "userDefined": False}
    if tunable["values"] is not None:
        field = {"int": "discreteIntVal", "double": "discreteDbVal", "str": "discreateStrVal"}[kind]
        return record | {"type": "discrete", field: tunable["values"]}
    low, high = ("minIntVal", "maxIntVal") if kind == "int" else ("minDbVal", "maxDbVal")
    record |= {"type": "range", low: tunable["low"], high: tunable["high"]}
    if tunable["step"] is not None:
        record["step"] = str(tunable["step"])
    if tunable["log"]:
        record["log"] = True  # the values of a range with a power, not its exponents
    return record


def write_time(seconds: float) -> str:
    """Return a time in UTC as WMLA writes it in searches.

    >>> write_time(12.7)
    '1970-01-01 00:00:12'
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")


def write_duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> write_duration(3725.9), write_duration(360_000)
    ('01:02:05', '100:00:00')
    """
    minutes, rest = divmod(max(int(seconds), 0), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"
