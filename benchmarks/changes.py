"""(b) What a planned change costs the workers that stay, and (c) how long it takes until a new one contributes.

The extra time is that of the one step interval in which the switch happened, over the median step right after it. The
whole change, from the request until three steps after the switch, is given as well: on a machine with few cores the
new process competes with the others for them. So each change is measured three times: between one and two workers,
between two and three, and between three and four.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch

from benchmarks.diaries import Diary, first_step_among, median_step, read_diaries
from benchmarks.figures import plain
from benchmarks.jobs import BenchmarkError, Look, Say, run_job, scratch
from legato.driver.record import Event

_SIZES: Final = ((1, 2), (2, 3), (3, 4))
_NUM_EVENTS: Final = {"10MB": 20, "100MB": 20, "250MB": 8, "1GB": 3}
"""How often a job with that much state grows and shrinks."""
_UNITS: Final = {"MB": 10**6, "GB": 10**9}
_MICRO_BATCHES: Final = 6
_MICRO_BATCH_SIZE: Final = 8
_LIMIT_S: Final = 600.0
_TARGET_S: Final = 0.3
"""From the request to the first contribution, besides two steps and one copy of the state."""
_PARTS: Final = ("start", "build", "proposal", "switch", "transfer", "first step")


class Request(NamedTuple):
    """A change that was asked for."""

    kind: str
    at: float


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per size of state and number of workers."""
    cases = {"10MB": 4, "100MB": 4} if quick else _NUM_EVENTS
    for (model, num_events), (few, many) in itertools.product(cases.items(), _SIZES[:2] if quick else _SIZES):
        yield measure_case(model, few, many, num_events, say=say)


def measure_case(model: str, few: int, many: int, num_events: int, *, say: Say, settled: int = 5) -> dict[str, Any]:
    """Measure changes between two numbers of workers.

    Args:
        model: see `benchmarks.models`.
        few: number of workers before a growth.
        many: number of workers after it.
        num_events: how often the job grows and shrinks.
        say: shows a line of progress.
        settled: number of steps between two changes.
    """
    with scratch() as directory:
        arguments = {
            "model": model,
            "micro_batches": _MICRO_BATCHES,
            "micro_batch_size": _MICRO_BATCH_SIZE,
            "directory": str(directory),
        }
        requests: list[Request] = []

        async def conduct(look: Look) -> None:
            await look.wait_for_steps(settled)
            for _ in range(num_events):
                for kind, num_workers in (("grow", many), ("shrink", few)):
                    requests.append(Request(kind, time.monotonic()))
                    await look.resize(num_workers, settled)

        events = run_job(
            "events",
            (json.dumps(arguments),),
            directory,
            num_workers=few,
            max_workers=many,
            conduct=conduct,
            limit_s=_LIMIT_S,
        )
        diaries = read_diaries(directory)
    changes = _changes(diaries, requests, few, many)
    contribution = _joins(diaries, requests, events, many)
    two_steps_s = 2 * changes["grow"]["step_ms"]["median"] / 1e3
    contribution["target_s"] = _TARGET_S + two_steps_s + _copy_s(_bytes_of(model))
    case = f"{model} of state, {few} and {many} workers"
    for kind, change in changes.items():
        say(f"{case}, {kind}: {change['extra_ms']['median']:.1f} ms extra, {change['extra_steps']['median']:.2f} steps")
    say(f"{case}, request to first contribution: {contribution['total_s']['median']:.2f} s")
    return {"state": model, "few": few, "many": many, "changes": changes, "contribution": contribution}


def _bytes_of(state: str) -> int:
    """Return the size that the name of a model of `benchmarks.models` has."""
    return int(state[:-2]) * _UNITS[state[-2:]]


def _copy_s(num_bytes: int) -> float:
    """Return the seconds of a copy into memory that was used before, by one thread."""
    source, target = (torch.ones(num_bytes // 4) for _ in range(2))
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        took = []
        for _ in range(3):
            began = time.perf_counter()
            target.copy_(source)
            took.append(time.perf_counter() - began)
        return min(took)
    finally:
        torch.set_num_threads(num_threads)


def _changes(diaries: dict[int, Diary], requests: list[Request], few: int, many: int) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {}
    for index, request in enumerate(requests):
        end = requests[index + 1].at if index + 1 < len(requests) else float("inf")
        before, after = (few, many) if request.kind == "grow" else (many, few)
        step = first_step_among(diaries, after, request.at)
        stayers = [diary for diary in diaries.values() if diary.interval(step) is not None]
        switched = min(diary.commits[step][0] for diary in stayers)
        usual_after = median_step(diaries, after, switched, end)
        usual_before = median_step(diaries, before, requests[index - 1].at if index else 0.0, request.at)
        if usual_after is None or usual_before is None:
            raise BenchmarkError(f"No undisturbed step was seen beside the {request.kind} number {index}.")
        extra = max(diary.interval(step) or 0.0 for diary in stayers) - usual_after
        values = found.setdefault(request.kind, {"extra_ms": [], "extra_steps": [], "step_ms": [], "whole_steps": []})
        values["extra_ms"].append(1e3 * extra)
        values["extra_steps"].append(extra / usual_after)
        values["step_ms"].append(1e3 * usual_after)
        whole = [_whole(diary, request.at, step, usual_before, usual_after) for diary in stayers]
        values["whole_steps"].append(max(whole) / usual_after)
    return {kind: {name: plain(of_kind) for name, of_kind in values.items()} for kind, values in found.items()}


def _whole(diary: Diary, asked: float, step: int, usual_before: float, usual_after: float) -> float:
    """Return how much longer than usual it took from the request until three steps after the switch."""
    first = min(number for number, (at, _) in diary.commits.items() if at > asked)
    last = min(step + 3, max(diary.commits))
    began = diary.commits.get(first - 1, diary.commits[first])[0]
    return diary.commits[last][0] - began - (step - first) * usual_before - (last - step + 1) * usual_after


def _joins(
    diaries: dict[int, Diary], requests: list[Request], events: list[tuple[float, Event]], many: int
) -> dict[str, Any]:
    totals: list[float] = []
    parts: dict[str, list[float]] = {part: [] for part in _PARTS}
    for request in requests:
        if request.kind != "grow":
            continue
        step = first_step_among(diaries, many, request.at)
        (joiner,) = (diary for diary in diaries.values() if step in diary.commits and min(diary.commits) == step)
        proposed = next(at for at, event in events if event.kind == "proposed" and at > request.at)
        moments = [
            request.at,
            joiner.moments["begun"],
            joiner.moments["built"],
            proposed,
            joiner.moments["entered"],
            joiner.moments["loaded"],
            joiner.commits[step][0],
        ]
        totals.append(moments[-1] - request.at)
        for part, begin, end in zip(_PARTS, moments[:-1], moments[1:], strict=True):
            parts[part].append(end - begin)
    return {"total_s": plain(totals), "parts_s": {part: plain(values) for part, values in parts.items()}}
