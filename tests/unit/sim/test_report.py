"""What a report says of workloads whose answers are known."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from legato.control.records import Queue
from legato.control.stages import Stage
from legato.core.errors import UsageError
from legato.sim.load import Costs, Load
from legato.sim.report import Report, Run, compare, list_figures, run_scheme
from legato.sim.schemes import SCHEMES, check_fits, parse_schemes
from legato.sim.simulation import Setting
from legato.sim.workload import PlannedJob, draw_workload, read_workload

ROOT = Path(__file__).parents[3]
FREE = Costs(driver_s=0.0, start_s=0.0, resize_s=0.0, drain_s=0.0, checkpoint_s=0.0)


def plan(name: str, max_workers: int, seconds: int, at: float = 0.0, **others: object) -> PlannedJob:
    load = Load(num_steps=seconds, step_s=1.0)
    return PlannedJob(name=name, max_workers=max_workers, submitted_at=at, load=load, **others)  # type: ignore[arg-type]


def run(
    plans: list[PlannedJob], scheme: str = "fair", *, num_slots: int = 4, costs: Costs = FREE, **others: object
) -> Run:
    setting = Setting(num_slots=num_slots, costs=costs, **others)  # type: ignore[arg-type]
    return run_scheme(plans, setting, SCHEMES[scheme])


def test_one_job_alone() -> None:
    report = run([plan("a", 4, 400)], costs=Costs(driver_s=1.0, start_s=2.0, drain_s=0.0)).report
    (job,) = report.jobs
    assert (job.stage, job.waiting_s, job.completion_s) == (Stage.SUCCEEDED, 0.0, pytest.approx(103.0, abs=2.0))
    assert job.slowdown == pytest.approx(1.0, abs=0.02)
    assert (job.num_resizes, job.num_pauses, report.num_unfinished) == (0, 0, 0)
    assert report.makespan_s == job.completion_s
    assert report.allocation == pytest.approx(1.0, abs=0.01)
    assert report.useful_allocation == pytest.approx(400 / (4 * 103), abs=0.02)


def test_half_of_the_pool_is_half_of_the_allocation() -> None:
    report = run([plan("a", 2, 200)]).report
    assert report.allocation == pytest.approx(0.5, abs=0.01)
    assert report.useful_allocation == pytest.approx(0.5, abs=0.02)


def test_two_that_share_and_one_that_grows_when_the_other_ends() -> None:
    """Both have 2; the short one ends after 100 s; the long one has done 200 of 400, and does the rest with 4."""
    report = run([plan("short", 4, 200), plan("long", 4, 400)]).report
    short, long = report.jobs
    assert short.completion_s == pytest.approx(100, abs=3)
    assert long.completion_s == pytest.approx(150, abs=6)
    assert (short.num_resizes, long.num_resizes) == (0, 1)
    assert report.resizes_per_job == 0.5


def test_the_report_shows_that_a_job_waited() -> None:
    report = run([plan("first", 4, 400), plan("second", 4, 40, at=10.0)], "gang").report
    first, second = report.jobs
    assert (first.waiting_s, second.waiting_s) == (0.0, pytest.approx(90, abs=2))
    assert report.completion_s.max == pytest.approx(100, abs=2)
    assert report.completion_s.p50 in (first.completion_s, second.completion_s)


def test_the_report_shows_that_a_job_was_paused() -> None:
    low = plan("low", 4, 400, min_workers=4, priority=1000)
    high = plan("high", 4, 40, at=20.0, min_workers=4, priority=9000)
    report = run([low, high], "priority").report
    assert [job.num_pauses for job in report.jobs] == [1, 0]
    assert report.jobs[0].completion_s == pytest.approx(110, abs=6)


def test_gang_gives_all_or_nothing_and_at_most_what_there_is() -> None:
    found = run([plan("a", 16, 100), plan("b", 3, 30)], "gang")
    assert {holding.job for holding in found.panel.holdings} == set(found.names)
    for moment in range(0, 100, 7):
        held = [holding.job for holding in found.panel.holdings if holding.since <= moment < (holding.until or 1e9)]
        assert len(held) in (0, 3, 4)
    assert found.report.jobs[0].slowdown == pytest.approx(1.0, abs=0.1)


def test_what_can_never_start_is_refused_before_anything_runs() -> None:
    setting = Setting(num_slots=4, queues=(Queue(name="small", ceiling=1),))
    with pytest.raises(UsageError, match=r"job 'a' needs 5 slots at once, but the pool has 4\. Lower its min"):
        check_fits([plan("a", 8, 1, min_workers=5)], setting)
    with pytest.raises(UsageError, match=r"needs 8 slots at once, but the pool has 4\. Lower its max"):
        check_fits([plan("a", 8, 1, is_elastic=False)], setting)
    with pytest.raises(UsageError, match=r"line 7: .*but queue 'small' may have 1"):
        check_fits([plan("a", 8, 1, min_workers=2, queue="small", line=7)], setting)
    check_fits([plan("a", 8, 1, min_workers=4), plan("b", 8, 1, queue="small")], setting)


def test_what_never_starts_does_not_hold_a_simulation_up() -> None:
    report = run([plan("fits", 2, 10), plan("never", 9, 10, min_workers=9)]).report
    assert report.num_unfinished == 1
    fits, never = report.jobs
    assert fits.stage is Stage.SUCCEEDED
    assert (never.stage, never.waiting_s, never.completion_s, never.slowdown) == (Stage.QUEUED, None, None, None)
    assert "needs 9 slots at once, but the pool has 4" in never.reason


def test_a_limit_of_time_ends_it() -> None:
    found = run_scheme([plan("a", 1, 10_000)], Setting(), SCHEMES["fair"], limit_s=50.0)
    assert found.report.num_unfinished == 1
    assert found.panel.holdings[0].until is None
    assert found.report.makespan_s == 50.0


def test_slots_count_until_the_limit_after_the_last_end() -> None:
    report = run_scheme([plan("a", 1, 10_000), plan("b", 1, 10)], Setting(num_slots=2), SCHEMES["fair"], limit_s=50.0)
    (_, ended), report = report.report.jobs, report.report
    assert ended.completion_s is not None and ended.completion_s < 20 and report.makespan_s == 50.0
    assert 0.5 < report.useful_allocation <= report.allocation < 0.8


def test_progress_is_reported() -> None:
    told: list[tuple[int, float]] = []
    plans = [plan(f"j{number}", 1, 100, at=100.0 * number) for number in range(5)]
    run_scheme(plans, Setting(), SCHEMES["fair"], on_progress=lambda ended, now: told.append((ended, now)))
    assert told[-1][0] == 5
    assert told == sorted(told)


def test_the_same_seed_gives_the_same_report() -> None:
    first, again = (run(draw_workload(5, 40, mean_gap_s=20.0, max_workers=4)).report for _ in range(2))
    assert first == again


def test_ratios_are_those_of_the_figures() -> None:
    plans = draw_workload(5, 30, mean_gap_s=20.0, max_workers=4)
    reports = [run(plans, scheme).report for scheme in ("fair", "gang")]
    ratios = compare(reports)
    for name, value in list_figures(reports[1]).items():
        base = list_figures(reports[0])[name]
        assert ratios[1][name] == (value / base if base and value is not None else None)
    assert {value for value in ratios[0].values() if value is not None} == {1.0}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_drawn_is_what_was_counted(scheme: str) -> None:
    found = run(draw_workload(3, 40, mean_gap_s=15.0, max_workers=4), scheme)
    report = found.report
    drawn = sum((holding.until or 0.0) - holding.since for holding in found.panel.holdings)
    assert drawn == pytest.approx(sum(job.slot_s for job in report.jobs))
    assert drawn == pytest.approx(report.allocation * 4 * report.makespan_s)
    assert 0 < report.useful_allocation <= report.allocation <= 1
    by_slot = sorted((holding.slot, holding.since, holding.until) for holding in found.panel.holdings)
    for (slot, _, until), (other, since, _) in itertools.pairwise(by_slot):
        assert slot != other or (until is not None and until <= since)
    assert all(mark.told for mark in found.panel.marks)


def test_names_of_schemes() -> None:
    assert [scheme.name for scheme in parse_schemes(",".join(SCHEMES))] == list(SCHEMES)
    assert [scheme.name for scheme in parse_schemes("gang, las")] == ["gang", "las"]
    for wrong in ("fairr", "fair,fair", "", "fair,,fifo"):
        with pytest.raises(UsageError):
            parse_schemes(wrong)


def test_elastic_against_gang_as_others_measured_it() -> None:
    """Experiment 1 of ElasticDL: 809 s against 968 s. See docs/simulation.md for what is assumed."""
    plans = read_workload(ROOT / "examples/workloads/elasticdl.csv")
    costs = Costs(start_s=33.5, resize_s=10.0, drain_s=1.0)
    reports: dict[str, Report] = {
        name: run(plans, name, num_slots=6, costs=costs).report for name in ("gang", "fifo", "fair")
    }
    makespans = {name: report.makespan_s for name, report in reports.items()}
    assert makespans["gang"] == pytest.approx(968, rel=0.02)
    assert makespans["fifo"] / makespans["gang"] == pytest.approx(809 / 968, abs=0.03)
    assert makespans["fair"] < makespans["fifo"]
    # The first one waits for no other, the second one starts at once.
    assert reports["fifo"].jobs[0].completion_s == reports["gang"].jobs[0].completion_s
    assert reports["fifo"].jobs[1].waiting_s == pytest.approx(0, abs=2)
