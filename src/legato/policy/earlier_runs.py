"""Finds the speeds that a job can expect from earlier runs of the same code. Pure arithmetic; reads no store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from legato.core.speed import MAX_SPEEDS, Speed, is_possible

MAX_AGE_S: Final = 30 * 86_400.0
"""Older measurements do not count: drivers, libraries and machines have changed since."""
_MOST_APART: Final = 1.25
"""If a job is faster or slower than an earlier run by more than this factor, it computes something else."""


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that runs, or ran, the same code as another one; or several of them, as `merge_runs` returns them.

    Args:
        machine_kind: of the machines on which it trained, as in `legato.policy.snapshot.Decision`.
        num_micro_batches: per step. None: not known, or no limit.
        has_same_parameters: its parameters are those of the other job.
        speeds: as it measured them.
    """

    machine_kind: str
    num_micro_batches: int | None
    has_same_parameters: bool
    speeds: tuple[Speed, ...]


def merge_runs(runs: Iterable[EarlierRun], measured_speed_s: float) -> tuple[EarlierRun, ...]:
    """Return earlier runs with one entry for all runs that count alike, in the order of their newest ones.

    Args:
        runs: the newest first.
        measured_speed_s: as in `Rules`; speeds that were measured for a shorter time, or are impossible, are left out.
    """
    alike: dict[tuple[str, int | None, bool], list[Speed]] = {}
    for run in runs:
        key = (run.machine_kind, run.num_micro_batches, run.has_same_parameters)
        # A damaged row of another job may have any numbers.
        long = [one for one in run.speeds[-MAX_SPEEDS:] if one.measured_s >= measured_speed_s and is_possible(one)]
        if long:
            alike.setdefault(key, []).extend(long)
    return tuple(
        EarlierRun(
            machine_kind=kind,
            num_micro_batches=total,
            has_same_parameters=same,
            speeds=tuple(_find_newest(speeds).values()),
        )
        for (kind, total, same), speeds in alike.items()
    )


def _find_newest(speeds: Iterable[Speed]) -> dict[tuple[int, int], Speed]:
    """Return the newest speed with each number of workers and of machines."""
    newest: dict[tuple[int, int], Speed] = {}
    for speed in speeds:
        known = newest.get((speed.num_workers, speed.num_nodes))
        if known is None or speed.at > known.at:
            newest[speed.num_workers, speed.num_nodes] = speed
    return newest


def find_earlier_speeds(
    runs: Iterable[EarlierRun],
    own: Iterable[Speed],
    *,
    machine_kind: str,
    num_micro_batches: int | None,
    started_at: float,
    now: float,
) -> tuple[Speed, ...]:
    """Return the speeds of earlier runs for the numbers of workers that a job has not measured itself.

    They are scaled so that they agree with the job's own measurements, and dated to its start. So a number that was too
    slow in earlier runs is tried again as long after the start as one that the job has measured itself. If own
    measurements contradict those of earlier runs, the latter do not count.

    Args:
        runs: the newest first, as `merge_runs` returns them.
        own: speeds of the job that were measured for long enough.
        machine_kind: of the job. Only runs on the same kind count.
        num_micro_batches: of the job. Only runs with the same number count. None: not known; the newest run decides.
        started_at: of the job. In the future: it has not started.
        now: seconds since 1970.

    >>> def speeds(*found):
    ...     return tuple(
    ...         Speed(num_workers=number, num_nodes=1, samples_per_s=speed, measured_s=60.0, at=0.0)
    ...         for number, speed in found
    ...     )
    >>> run = EarlierRun(
    ...     machine_kind="x/cpu", num_micro_batches=8, has_same_parameters=True, speeds=speeds((1, 10.0), (2, 18.0))
    ... )
    >>> job = dict(machine_kind="x/cpu", num_micro_batches=8, started_at=60.0, now=90.0)
    >>> [(one.num_workers, one.samples_per_s, one.at) for one in find_earlier_speeds([run], speeds((1, 11.0)), **job)]
    [(2, 19.8, 60.0)]
    >>> find_earlier_speeds([run], speeds((1, 20.0)), **job)
    ()
    """
    same = [run for run in runs if run.machine_kind == machine_kind and run.speeds]
    if num_micro_batches is None and same:
        num_micro_batches = same[0].num_micro_batches
    same = [run for run in same if run.num_micro_batches == num_micro_batches]
    # Parameters may change the model, so runs with the same ones say more.
    same = [run for run in same if run.has_same_parameters] or same
    newest = _find_newest(speed for run in same for speed in run.speeds if 0 <= now - speed.at <= MAX_AGE_S)
    measured = {(speed.num_workers, speed.num_nodes): speed for speed in own}
    factors = [
        math.log(measured[size].samples_per_s / newest[size].samples_per_s) for size in measured if size in newest
    ]
    if any(abs(factor) > math.log(_MOST_APART) for factor in factors):
        return ()
    scale = math.exp(sum(factors) / len(factors)) if factors else 1.0
    numbers = {number for number, _ in measured}
    return tuple(
        msgspec.structs.replace(speed, samples_per_s=speed.samples_per_s * scale, at=min(started_at, now))
        for (number, _), speed in sorted(newest.items())
        if number not in numbers
    )
