"""Programs for ElasticDL here, beside what was measured of the original: its end, a join, SIGKILLs.

The original's figures are constants: it was measured on another day, on another machine of two cores, its processes
standing for pods, with real Horovod over Gloo, and steps of 0.1 s as here. So ratios between the two say how many times
longer, and nothing finer. A case in which no step follows within a minute counts as a job that has collapsed.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.deaths import Blow
from benchmarks.diaries import Diary, first_step_among, median_step, read_diaries
from benchmarks.figures import plain
from benchmarks.jobs import BenchmarkError, Conduct, Look, Say, run_job, scratch
from legato.compat.elasticdl.site import launch
from legato.core.spec import GuestSpec

_GUEST: Final = GuestSpec(entry="legato.compat.elasticdl.master:make_guest")
_WORKERS: Final = 3
_BATCH_SIZE: Final = 16
_WAIT_S: Final = 0.1
_NUM_RECORDS: Final = 6400
_STEPS_BETWEEN: Final = 8
_LIMIT_S: Final = 600.0


class Original(NamedTuple):
    """What was measured of the original: H's master, rendezvous and controller with Horovod 0.28.1.

    Args:
        told: for the table.
        shortest_s: the best of its runs, for the ratio; None: there is none to make.
    """

    told: str
    shortest_s: float | None = None


ORIGINAL: Final = {
    "end": Original("30.0 s for a worker without data, 92.8 s for the last (12.9 s of training took 105.7 s)", 30.0),
    "join": Original("55.3 s from the start of the process", 55.3),
    "pause": Original("none was seen"),
    "kill": Original("30.2, 31.2, 32.3 and 30.3 s, where it recovered", 30.2),
    "collapse": Original("3 of 7"),
    "forming": Original("2 lost, 1 hung, 1 continued with new initial weights, of 4"),
}


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per case."""
    for rows in (
        _measure_end(1 if quick else 3, 1600 if quick else _NUM_RECORDS),
        _measure_joins(2 if quick else 10),
        _measure_kills(3 if quick else 12),
        _measure_kills_while_forming(2 if quick else 8),
    ):
        for row in rows:
            told = f"{row['gap_s']['median']:.2f} s" if "gap_s" in row else f"{row['lost']} of {row['number']} lost"
            say(f"{row['case']}: {told}, the original {row['original']}")
            yield row


def _run(directory: Path, num_workers: int, num_records: int, num_epochs: int, conduct: Conduct | None) -> float:
    """Run the program; returns when its job had ended."""
    case = {
        "directory": str(directory),
        "num_records": num_records,
        "num_epochs": num_epochs,
        "batch_size": _BATCH_SIZE,
        "wait_s": _WAIT_S,
    }
    run_job(
        "elasticdl_steps",
        (json.dumps(case),),
        directory,
        num_workers=num_workers,
        max_workers=_WORKERS,
        conduct=conduct,
        limit_s=_LIMIT_S,
        launcher=(launch.__file__,),
        guest=_GUEST,
    )
    return time.monotonic()


def _row(case: str, values: list[float]) -> dict[str, Any]:
    """Return the row of a case whose times, in seconds, were measured."""
    gap_s = plain(values)
    known = ORIGINAL[case]
    ratio = None if known.shortest_s is None else float(f"{known.shortest_s / gap_s['median']:.3g}")
    return {"case": case, "gap_s": gap_s, "step_s": _WAIT_S, "original": known.told, "ratio": ratio}


def _counted(case: str, lost: int, number: int) -> dict[str, Any]:
    """Return the row of a case in which jobs that did not continue were counted."""
    return {"case": case, "lost": lost, "number": number, "original": ORIGINAL[case].told, "ratio": None}


# ---------------------------------------------------------------- the end


def _measure_end(repetitions: int, num_records: int) -> Iterator[dict[str, Any]]:
    waits = []
    for _ in range(repetitions):
        with scratch() as directory:
            ended_at = _run(directory, _WORKERS, num_records, 1, None)
            diaries = read_diaries(directory)
        last = max(at for diary in diaries.values() for at, _ in diary.commits.values())
        num_steps = max(max(diary.commits) for diary in diaries.values())
        if num_steps != -(-num_records // (_BATCH_SIZE * _WORKERS)):
            raise BenchmarkError(f"The job ended after {num_steps} steps.")
        # The whole job, its processes included, not the loops alone.
        waits.append(ended_at - last)
    yield _row("end", waits)


# ---------------------------------------------------------------- joins


def _measure_joins(num_events: int) -> Iterator[dict[str, Any]]:
    requests: list[float] = []

    async def conduct(look: Look) -> None:
        await look.wait_for_steps(_STEPS_BETWEEN)
        for _ in range(num_events):
            requests.append(time.monotonic())
            await look.resize(_WORKERS, _STEPS_BETWEEN)
            await look.resize(_WORKERS - 1, _STEPS_BETWEEN)

    with scratch() as directory:
        _run(directory, _WORKERS - 1, _NUM_RECORDS, 1000, conduct)
        diaries = read_diaries(directory)
    steps = [first_step_among(diaries, _WORKERS, asked) for asked in requests]
    firsts = [min(diary.commits[step][0] for diary in diaries.values() if step in diary.commits) for step in steps]
    yield _row("join", [first - asked for first, asked in zip(firsts, requests, strict=True)])
    yield _row("pause", [_pause(diaries, step, asked) for step, asked in zip(steps, requests, strict=True)])


def _pause(diaries: dict[int, Diary], step: int, asked: float) -> float:
    """Return how much longer than usual the longest step was from the request until three steps after the switch."""
    first = min(number for diary in diaries.values() for number, (at, _) in diary.commits.items() if at > asked)
    longest = 0.0
    for number in range(first, step + 3):
        found = [diary for diary in diaries.values() if diary.interval(number) is not None]
        for diary in found:
            usual = median_step(diaries, diary.commits[number][1], 0.0, float("inf"))
            longest = max(longest, (diary.interval(number) or 0.0) - (usual or 0.0))
    return longest


# ---------------------------------------------------------------- kills


def _measure_kills(num_events: int) -> Iterator[dict[str, Any]]:
    blows: list[Blow] = []
    lost: list[str] = []

    async def conduct(look: Look) -> None:
        await look.wait_for_steps(_STEPS_BETWEEN)
        for index in range(num_events):
            blows.append(_kill(look, index % _WORKERS))
            if not await _goes_on(look, blows[-1], lost):
                return

    with scratch() as directory:
        _run(directory, _WORKERS, _NUM_RECORDS, 1000, conduct)
        diaries = read_diaries(directory)
    settled = blows[: len(blows) - len(lost)]
    if settled:
        yield _row("kill", [_gap(diaries, blow) for blow in settled])
    yield _counted("collapse", len(lost), len(blows))


def _measure_kills_while_forming(num_events: int) -> Iterator[dict[str, Any]]:
    blows: list[Blow] = []
    lost: list[str] = []

    async def conduct(look: Look) -> None:
        await look.wait_for_steps(_STEPS_BETWEEN)
        for index in range(num_events):
            num_events_before = len(look.events)
            look.driver.scale(_WORKERS, "measured")
            await look.wait_until(
                lambda before=num_events_before: any(event.kind == "proposed" for _, event in look.events[before:]),
                "a new world is proposed",
            )
            blows.append(_kill(look, index % (_WORKERS - 1)))
            if not await _goes_on(look, blows[-1], lost):
                return
            await look.resize(_WORKERS - 1, _STEPS_BETWEEN)

    with scratch() as directory:
        _run(directory, _WORKERS - 1, _NUM_RECORDS, 1000, conduct)
        diaries = read_diaries(directory)
    lost += _begun_anew(diaries, blows)
    yield _counted("forming", len(lost), len(blows))


def _kill(look: Look, rank: int) -> Blow:
    victim = look.members()[rank]
    os.kill(victim["pid"], signal.SIGKILL)
    return Blow(time.monotonic(), victim["worker"])


async def _goes_on(look: Look, blow: Blow, lost: list[str]) -> bool:
    """Wait until the job trains as before; if it never does, note why and return False."""
    try:
        await look.wait_until(
            lambda: all(member["worker"] != blow.worker for member in look.members()),
            f"worker {blow.worker} is known to be lost",
        )
        await look.wait_for_workers(_WORKERS)
        await look.wait_for_steps(_STEPS_BETWEEN)
    except BenchmarkError as error:
        lost.append(str(error))
        return False
    return True


def _gap(diaries: dict[int, Diary], blow: Blow) -> float:
    survivors = {number: diary for number, diary in diaries.items() if number != blow.worker}
    step = first_step_among(survivors, _WORKERS - 1, blow.at)
    return min(diary.commits[step][0] for diary in survivors.values() if step in diary.commits) - blow.at


def _begun_anew(diaries: dict[int, Diary], blows: list[Blow]) -> list[str]:
    """Return after which blows the job continued behind where it was."""
    commits = sorted((at, step) for diary in diaries.values() for step, (at, _) in diary.commits.items())
    told = []
    for blow in blows:
        before = max(step for at, step in commits if at <= blow.at)
        after = statistics.median([step for at, step in commits if at > blow.at][:3])
        told += [f"after the death of worker {blow.worker} it restarted from scratch"] if after < before else []
    return told
