"""(d) From the death or the hanging of a worker to the next step that the others commit without it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from benchmarks.diaries import Diary, first_step_among, median_step, read_diaries
from benchmarks.figures import plain
from benchmarks.jobs import Look, Say, run_job, scratch

_MODELS: Final = ("100k", "10M", "resnet-medium")
_WORKERS: Final = 3
_MICRO_BATCHES: Final = 6
_MICRO_BATCH_SIZE: Final = 16
_STEPS_BETWEEN: Final = 10
_LIMIT_S: Final = 1.0
ALLOWED_S: Final = 0.1


class Blow(NamedTuple):
    """A worker that was struck."""

    at: float
    worker: int


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per signal and model."""
    for name, num_events in (("SIGKILL", 4 if quick else 12), ("SIGSTOP", 2 if quick else 6)):
        for model in _MODELS[:1] if quick else _MODELS:
            yield measure_case(name, model, num_events, say=say)


def measure_case(name: str, model: str, num_events: int, *, say: Say) -> dict[str, Any]:
    """Measure what follows a signal to one of three workers.

    Args:
        name: of the signal.
        model: see `benchmarks.models`.
        num_events: how many workers get the signal, one after the other.
        say: shows a line of progress.
    """
    with scratch() as directory:
        case = {
            "model": model,
            "micro_batches": _MICRO_BATCHES,
            "micro_batch_size": _MICRO_BATCH_SIZE,
            "directory": str(directory),
        }
        blows: list[Blow] = []

        async def conduct(look: Look) -> None:
            await look.wait_for_steps(_STEPS_BETWEEN)
            for index in range(num_events):
                await _strike(look, signal.Signals[name], index % _WORKERS, blows)

        run_job(
            "events",
            (json.dumps(case),),
            directory,
            num_workers=_WORKERS,
            conduct=conduct,
        )
        diaries = read_diaries(directory)
    row = {"signal": name, "model": model, **_figures(diaries, blows, name)}
    say(f"{name}, {model}: next commit after {row['gap_s']['median']:.3f} s (reach {row['target_s']:.3f} s)")
    return row


async def _strike(look: Look, number: signal.Signals, rank: int, blows: list[Blow]) -> None:
    victim = look.members()[rank]
    blows.append(Blow(time.monotonic(), victim["worker"]))
    os.kill(victim["pid"], number)
    await look.wait_until(
        lambda: all(member["worker"] != victim["worker"] for member in look.members()),
        f"worker {victim['worker']} is known to be lost",
    )
    await look.wait_for_workers(_WORKERS)
    await look.wait_for_steps(_STEPS_BETWEEN)


def _figures(diaries: dict[int, Diary], blows: list[Blow], name: str) -> dict[str, Any]:
    gaps, steps = [], []
    for index, blow in enumerate(blows):
        survivors = {number: diary for number, diary in diaries.items() if number != blow.worker}
        step = first_step_among(survivors, _WORKERS - 1, blow.at)
        gaps.append(min(diary.commits[step][0] for diary in survivors.values() if step in diary.commits) - blow.at)
        begin = blows[index - 1].at if index else 0.0
        usual = median_step(diaries, _WORKERS, begin, blow.at)
        if usual is not None:
            # The survivors compute the interrupted step again, each more of it.
            steps.append(usual * _WORKERS / (_WORKERS - 1))
    step_s = plain(steps)
    limit_s = ALLOWED_S + (step_s["median"] if name == "SIGKILL" else _LIMIT_S)
    return {"gap_s": plain(gaps), "step_s": step_s, "target_s": float(f"{limit_s:.4g}")}
