"""Finds the speeds that a job can expect from earlier runs of the same code. Pure arithmetic; reads no store."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from legato.core.speed import MAX_SPEEDS, Speed, is_possible
from legato.policy.speeds import MARGIN, find_fastest

MAX_AGE_S: Final = 30 * 86_400.0
"""Older measurements do not count: drivers, libraries and machines have changed since."""
ALONE_S: Final = 86_400.0
"""A measurement that no second run confirms shows for so long that a job is slower with more workers."""
_MOST_ALIKE: Final = 8
"""So many sets of parameters count, those of the newest runs: more would cost time in each decision."""
_MOST_APART: Final = 1.25
"""Runs whose speeds differ by more than this factor compute something else."""

_Size = tuple[int, int]  # workers, machines


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that runs, or ran, the same code as another one.

    Args:
        machine_kind: of the machines on which it trained, as in `legato.policy.snapshot.Decision`.
        num_micro_batches: per step. None: not known, or no limit.
        has_same_parameters: its parameters are those of the other job.
        speeds: as it measured them.
        parameters: equal in two runs whose parameters are the same.
    """

    machine_kind: str
    num_micro_batches: int | None
    has_same_parameters: bool
    speeds: tuple[Speed, ...]
    parameters: str = ""


class AlikeRuns(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What earlier runs with the same parameters have measured together.

    Args:
        machine_kind, num_micro_batches, has_same_parameters: as in `EarlierRun`.
        speeds: one for each number of workers and of machines: the median of the runs, dated to the newest of them.
        agreed: the numbers of workers and of machines of which at least two runs have measured this speed.
    """

    machine_kind: str
    num_micro_batches: int | None
    has_same_parameters: bool
    speeds: tuple[Speed, ...]
    agreed: frozenset[tuple[int, int]]


def merge_runs(runs: Iterable[EarlierRun], measured_speed_s: float, now: float) -> tuple[AlikeRuns, ...]:
    """Return earlier runs with one entry for all that have the same parameters, in the order of their newest ones.

    Args:
        runs: the newest first.
        measured_speed_s: as in `Rules`; speeds that were measured for a shorter time, or are impossible, are left out.
        now: seconds since 1970. Older measurements than `MAX_AGE_S`, and those from the future, are left out.
    """
    alike: dict[tuple[str, int | None, bool, str], dict[_Size, list[Speed]]] = {}
    for run in runs:
        # A damaged row of another job may have any numbers.
        for speed in run.speeds[-MAX_SPEEDS:]:
            if speed.measured_s >= measured_speed_s and is_possible(speed) and 0 <= now - speed.at <= MAX_AGE_S:
                key = (run.machine_kind, run.num_micro_batches, run.has_same_parameters, run.parameters)
                size = (speed.num_workers, speed.num_nodes)
                alike.setdefault(key, {}).setdefault(size, []).append(speed)
    return tuple(
        AlikeRuns(
            machine_kind=kind,
            num_micro_batches=total,
            has_same_parameters=same,
            speeds=tuple(_find_median(found) for found in sizes.values()),
            agreed=frozenset(size for size, found in sizes.items() if _agree(found)),
        )
        for (kind, total, same, _), sizes in itertools.islice(alike.items(), _MOST_ALIKE)
    )


def _find_median(speeds: Iterable[Speed]) -> Speed:
    """Return the median, of an even number the faster one: one slow measurement of two does not count."""
    found = sorted(speeds, key=lambda speed: speed.samples_per_s)
    return msgspec.structs.replace(found[len(found) // 2], at=max(speed.at for speed in found))


def _agree(speeds: Iterable[Speed]) -> bool:
    found = sorted(speed.samples_per_s for speed in speeds)
    median = found[len(found) // 2]
    return sum(abs(one - median) <= MARGIN * median for one in found) > 1


def find_earlier_speeds(
    runs: Iterable[AlikeRuns],
    own: Iterable[Speed],
    *,
    machine_kind: str,
    num_micro_batches: int | None,
    started_at: float,
    now: float,
) -> tuple[Speed, ...]:
    """Return the speeds of earlier runs for the numbers of workers that a job has not measured itself.

    Runs with other parameters may train another model. So they count only if they measured a number that is known, at
    most 1.25 times as fast or as slow, and their speeds are scaled to it. What is known is what the job has measured,
    then runs with the same parameters; if there is neither, the newest runs with at least two numbers.

    The speeds are dated to the job's start. So a number that was too slow in earlier runs is tried again as long after
    the start as one that the job has measured itself.

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
    >>> runs = merge_runs([run], 60.0, now=90.0)
    >>> job = dict(machine_kind="x/cpu", num_micro_batches=8, started_at=60.0, now=90.0)
    >>> [(one.num_workers, one.samples_per_s, one.at) for one in find_earlier_speeds(runs, speeds((1, 11.0)), **job)]
    [(2, 19.8, 60.0)]
    >>> find_earlier_speeds(runs, speeds((1, 20.0)), **job)
    ()
    """
    same = [run for run in runs if run.machine_kind == machine_kind]
    if num_micro_batches is None and same:
        num_micro_batches = same[0].num_micro_batches
    same = [run for run in same if run.num_micro_batches == num_micro_batches]
    same.sort(key=lambda run: not run.has_same_parameters)
    measured = {(speed.num_workers, speed.num_nodes): speed for speed in own}
    known, trusted = dict(measured), set(measured)
    if not known and same and not same[0].has_same_parameters:
        first = next((run for run in same if len({speed.num_workers for speed in run.speeds}) > 1), same[0])
        same = [first, *(run for run in same if run is not first)]
    for run in same:
        young = (speed for speed in run.speeds if now - speed.at <= MAX_AGE_S)
        found = {(speed.num_workers, speed.num_nodes): speed for speed in young}
        scale = _find_scale(known, found, 1.0 if run.has_same_parameters or not known else None)
        if scale is not None:
            new = found.keys() - known.keys()
            trusted |= {size for size in new if size in run.agreed or now - found[size].at <= ALONE_S}
            known |= {size: _scale(found[size], scale) for size in new}
    numbers = {number for number, _ in measured}
    fastest = find_fastest(_leave_out_doubtful(known, trusted))
    return tuple(
        msgspec.structs.replace(speed, at=min(started_at, now))
        for number, speed in sorted(fastest.items())
        if number not in numbers
    )


def _find_scale(known: Mapping[_Size, Speed], found: Mapping[_Size, Speed], without: float | None) -> float | None:
    """Return by what factor the known speeds are higher than those found. None: they are not of the same work.

    Args:
        known: by number of workers and of machines.
        found: as well.
        without: returned if they have no number in common.
    """
    factors = [math.log(known[size].samples_per_s / found[size].samples_per_s) for size in found if size in known]
    if not factors:
        return without
    if max(*factors, 0.0) - min(*factors, 0.0) > math.log(_MOST_APART):
        return None
    return math.exp(sum(factors) / len(factors))


def _scale(speed: Speed, factor: float) -> Speed:
    return msgspec.structs.replace(speed, samples_per_s=speed.samples_per_s * factor)


def _leave_out_doubtful(known: Mapping[_Size, Speed], trusted: Iterable[_Size]) -> list[Speed]:
    """Return the speeds without those that are not trusted and say that more workers are slower."""
    kept = {size: known[size] for size in trusted}
    for size in sorted(known.keys() - kept.keys()):
        number, rate = size[0], known[size].samples_per_s
        is_slower = any(
            (less < number and rate < (1 - MARGIN) * one.samples_per_s)
            or (less > number and one.samples_per_s < (1 - MARGIN) * rate)
            for (less, _), one in kept.items()
        )
        if not is_slower:
            kept[size] = known[size]
    return list(kept.values())
