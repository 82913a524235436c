"""Speeds of earlier runs: only where a job has not measured itself, of the same work and machines, and not forever."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st
from tests.unit.policy.world import make_speed
from tests.unit.policy.worlds import for_any

from legato.core.speed import FORGET_S, MAX_SPEEDS, Speed
from legato.policy.earlier_runs import ALONE_S, MAX_AGE_S, AlikeRuns, EarlierRun, find_earlier_speeds, merge_runs
from legato.policy.speeds import find_slowdown

NOW = 1e9


def make_run(*speeds: Speed, kind: str = "k", total: int | None = 8, other: str = "") -> EarlierRun:
    """Return a run with the same parameters as the job, or with other ones."""
    return EarlierRun(
        machine_kind=kind, num_micro_batches=total, has_same_parameters=not other, speeds=speeds, parameters=other
    )


def measured(number: int, speed: float, nodes: int = 1, at: float = NOW - 3600) -> Speed:
    return msgspec.structs.replace(make_speed(number, speed, nodes), at=at)


def find(
    runs: Sequence[EarlierRun],
    own: Sequence[Speed] = (),
    total: int | None = 8,
    started_at: float = NOW - 60,
    now: float = NOW,
) -> tuple[Speed, ...]:
    merged = merge_runs(runs, 60.0, now)
    return find_earlier_speeds(merged, own, machine_kind="k", num_micro_batches=total, started_at=started_at, now=now)


def numbers(found: Sequence[Speed]) -> dict[int, float]:
    return {speed.num_workers: round(speed.samples_per_s, 6) for speed in found}


def test_runs_of_other_machines_and_other_steps_do_not_count() -> None:
    here, there = make_run(measured(1, 10.0)), make_run(measured(2, 20.0), kind="other")
    assert numbers(find([there, here])) == {1: 10.0}
    assert numbers(find([make_run(measured(2, 20.0), total=16), here])) == {1: 10.0}
    # Before it has reported its micro-batches, the newest run is the most likely one.
    assert numbers(find([make_run(measured(2, 20.0), total=16), here], total=None)) == {2: 20.0}


def test_runs_with_the_same_parameters_say_more_and_others_are_better_than_none() -> None:
    other, same = make_run(measured(1, 10.0), measured(2, 20.0), other="b"), make_run(measured(1, 11.0))
    assert numbers(find([other])) == {1: 10.0, 2: 20.0}
    assert numbers(find([other, same])) == {1: 11.0, 2: 22.0}
    old = make_run(measured(1, 9.0, at=NOW - MAX_AGE_S - 1))
    assert numbers(find([old, other])) == {1: 10.0, 2: 20.0}, "too old ones with the same parameters hide nothing"


def test_speeds_of_different_models_are_not_mixed() -> None:
    small, big = make_run(measured(1, 30.0), measured(2, 58.0), other="s"), make_run(measured(4, 40.0), other="b")
    assert numbers(find([small, big])) == numbers(find([big, small])) == {1: 30.0, 2: 58.0}
    assert find([big], [measured(2, 58.0)]) == (), "nothing shows that it is the same model"
    assert numbers(find([small, big], [measured(2, 58.0)])) == {1: 30.0}
    same = make_run(measured(1, 30.0), measured(2, 58.0))
    assert numbers(find([same, big])) == {1: 30.0, 2: 58.0}
    assert numbers(find([make_run(measured(4, 40.0))], [measured(2, 58.0)])) == {4: 40.0}, "the parameters are the same"
    alike = make_run(measured(2, 55.0), measured(4, 110.0), other="a")
    assert numbers(find([small, big, alike])) == {1: 30.0, 2: 58.0, 4: 116.0}


def test_factors_that_contradict_one_another_show_another_model() -> None:
    run = make_run(measured(1, 10.0), measured(2, 20.0), measured(4, 40.0))
    assert numbers(find([run], [measured(1, 11.5), measured(2, 23.0)])) == {4: 46.0}
    assert find([run], [measured(1, 11.8), measured(2, 17.0)]) == ()


def test_one_slow_measurement_does_not_keep_a_job_small() -> None:
    def slowdown(*runs: EarlierRun) -> int | None:
        found = find_slowdown(find(runs), 1, NOW)
        return None if found is None else found.slower

    good, bad = make_run(measured(2, 20.0), measured(4, 39.0)), make_run(measured(2, 20.0), measured(4, 10.0))
    assert slowdown(bad) == 4
    assert slowdown(bad, good) is slowdown(good, bad) is slowdown(good, bad, good) is None
    assert slowdown(bad, bad, good) == 4

    def old(rate: float) -> EarlierRun:
        return make_run(measured(2, 20.0, at=NOW - ALONE_S - 1), measured(4, rate, at=NOW - ALONE_S - 1))

    assert numbers(find([old(10.0)])) == {2: 20.0}
    assert slowdown(old(10.0), old(10.2)) == 4, "two runs agree"
    assert slowdown(old(10.0), old(12.0)) is None
    assert numbers(find([old(39.0)])) == {2: 20.0, 4: 39.0}


def test_the_median_counts_and_nothing_older_than_a_month() -> None:
    runs = [make_run(measured(1, rate, at=NOW - 60 * rate)) for rate in (10.0, 12.0, 20.0)]
    assert numbers(find(runs)) == {1: 12.0}
    assert numbers(find(runs[1:])) == {1: 20.0}
    assert find([make_run(measured(1, 10.0, at=NOW - MAX_AGE_S - 1))]) == ()
    ahead = make_run(measured(1, 99.0, at=NOW + 60))
    assert numbers(find([ahead, runs[0]])) == {1: 10.0}, "the clock was set back"


def test_runs_that_count_alike_become_one_without_short_measurements() -> None:
    short = msgspec.structs.replace(measured(3, 30.0), measured_s=59.0)
    old = measured(2, 18.0, at=NOW - 9999)
    runs = [
        make_run(measured(1, 10.0), short),
        make_run(measured(1, 9.8, at=NOW - 9999), old),
        make_run(measured(1, 1.0), total=16),
        make_run(measured(1, 2.0), other="b"),
        make_run(short, kind="other"),
    ]
    alike = AlikeRuns(
        machine_kind="k",
        num_micro_batches=8,
        has_same_parameters=True,
        speeds=(measured(1, 10.0), old),
        agreed=frozenset({(1, 1)}),
    )
    one = msgspec.structs.replace(alike, speeds=(measured(1, 1.0),), agreed=frozenset())
    assert merge_runs(runs, 60.0, NOW) == (
        alike,
        msgspec.structs.replace(one, num_micro_batches=16),
        msgspec.structs.replace(one, has_same_parameters=False, speeds=(measured(1, 2.0),)),
    )


def test_a_damaged_row_of_another_job_changes_nothing() -> None:
    bad = [measured(2, rate) for rate in (0.0, -1.0, float("nan"), float("inf"), 1e300)]
    bad += [measured(-1, 5.0), measured(3, 5.0, nodes=0), measured(10**9, 5.0), measured(3, 5.0, at=float("nan"))]
    assert merge_runs([make_run(*bad)], 60.0, NOW) == ()
    assert numbers(find([make_run(*bad, measured(1, 10.0))], [measured(2, 18.0)])) == {1: 10.0}
    many = make_run(*(measured(number, 10.0) for number in range(1, 10_000)))
    assert len(merge_runs([many], 60.0, NOW)[0].speeds) <= MAX_SPEEDS


def test_another_model_by_the_same_code_is_noticed() -> None:
    run = make_run(measured(2, 20.0), measured(4, 40.0))
    assert numbers(find([run], [measured(2, 22.0)])) == {4: 44.0}
    assert find([run], [measured(2, 30.0)]) == ()
    assert find([run], [measured(2, 10.0)]) == ()
    assert numbers(find([run], [measured(2, 10.0, nodes=2)])) == {4: 40.0}, "several machines are slower"


def test_a_number_that_was_too_slow_is_tried_again_half_an_hour_after_the_start() -> None:
    run = make_run(measured(2, 20.0), measured(4, 10.0))
    for now, want in ((NOW, 3), (NOW + FORGET_S - 61, 3), (NOW + FORGET_S, None)):
        slowdown = find_slowdown(find([run], now=now), 1, now)
        assert (None if slowdown is None else slowdown.most) == want
    # While it waits for its start, time does not pass.
    waiting = find_slowdown(find([run, run], started_at=NOW + 9e5, now=NOW + 9e5), 1, NOW + 9e5)
    assert waiting is not None


@st.composite
def any_measured(draw: st.DrawFn) -> Speed:
    age_s = draw(st.sampled_from([0.0, 60.0, 3600.0, MAX_AGE_S, 2 * MAX_AGE_S]))
    return measured(
        draw(st.integers(1, 6)),
        draw(st.sampled_from([5.0, 9.0, 10.0, 11.0, 40.0])),
        draw(st.integers(1, 2)),
        NOW - age_s,
    )


any_runs = st.lists(
    st.builds(
        EarlierRun,
        machine_kind=st.sampled_from(["k", "other"]),
        num_micro_batches=st.sampled_from([None, 4, 8]),
        has_same_parameters=st.booleans(),
        speeds=st.lists(any_measured(), max_size=5).map(tuple),
        parameters=st.sampled_from(["a", "b"]),
    ),
    max_size=5,
)


@for_any(any_runs, st.lists(any_measured(), max_size=5), st.sampled_from([None, 4, 8]))
def test_earlier_runs_never_replace_what_a_job_has_measured(
    runs: list[EarlierRun], own: list[Speed], total: int | None
) -> None:
    found = find(runs, own, total)
    assert not {speed.num_workers for speed in found} & {speed.num_workers for speed in own}
    known = {(s.num_workers, s.num_nodes) for run in runs if run.machine_kind == "k" for s in run.speeds}
    assert {(speed.num_workers, speed.num_nodes) for speed in found} <= known
    assert len(numbers(found)) == len(found)
    assert all(speed.at == NOW - 60 for speed in found)
