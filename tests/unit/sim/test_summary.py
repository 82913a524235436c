"""Intervals over workloads are those of Student's t, and ratios are taken within each workload."""

from __future__ import annotations

import random

import pytest

from legato.sim.load import Load
from legato.sim.report import list_figures, run_scheme
from legato.sim.schemes import SCHEMES
from legato.sim.simulation import Setting
from legato.sim.summary import estimate, estimate_ratio, find_quantile, summarize
from legato.sim.workload import PlannedJob


def test_the_interval_contains_the_mean_in_95_of_100_cases() -> None:
    source = random.Random(1)
    hits = 0
    for _ in range(4000):
        found = estimate([source.gauss(5.0, 2.0) for _ in range(6)])
        assert found is not None and found.margin is not None
        hits += abs(found.mean - 5.0) <= found.margin
    assert hits / 4000 == pytest.approx(0.95, abs=0.012)


def test_the_interval_of_a_ratio_contains_it_too() -> None:
    source = random.Random(2)
    hits = 0
    for _ in range(4000):
        bases = [source.uniform(50.0, 150.0) for _ in range(8)]
        found = estimate_ratio([0.5 * base + source.gauss(0.0, 5.0) for base in bases], bases)
        assert found is not None and found.margin is not None
        hits += abs(found.mean - 0.5) <= found.margin
    assert hits / 4000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (7, 2.365), (30, 2.042), (31, 2.040), (60, 2.000), (120, 1.980)]
)
def test_quantiles_are_those_of_tables(degrees: int, quantile: float) -> None:
    assert find_quantile(degrees) == pytest.approx(quantile, abs=6e-4)


def test_ratios_are_paired() -> None:
    reports = []
    for steps in (400, 800, 1600):
        plans = [PlannedJob(name=name, load=Load(num_steps=steps, step_s=1.0), max_workers=4) for name in "ab"]
        reports.append([run_scheme(plans, Setting(num_slots=4), SCHEMES[name]).report for name in ("gang", "fair")])
    gang, fair = summarize(reports)
    values = [[list_figures(report)["mean_completion_s"] for report in own] for own in reports]
    ratio, mean = fair.ratios["mean_completion_s"], fair.figures["mean_completion_s"]
    assert ratio is not None and mean is not None and ratio.margin is not None and mean.margin is not None
    assert ratio.mean == pytest.approx(sum(own[1] or 0 for own in values) / sum(own[0] or 0 for own in values))
    # The workloads differ by a factor of four, but the policies by the same in each.
    assert mean.margin / mean.mean > 1 > 0.2 > ratio.margin / ratio.mean
    assert (gang.num_workloads, gang.num_jobs, gang.num_unfinished, gang.policy) == (3, 6, 0, "gang")
    base = gang.ratios["mean_completion_s"]
    assert base is not None and (base.mean, base.margin) == (1.0, 0.0)


def test_a_figure_that_some_workloads_do_not_have_is_that_of_the_others() -> None:
    empty, one = [], [PlannedJob(name="a", load=Load(num_steps=5, step_s=1.0))]
    reports = [[run_scheme(plans, Setting(), SCHEMES["fair"]).report] for plans in (empty, one)]
    (found,) = summarize(reports)
    mean = found.figures["mean_completion_s"]
    assert mean is not None and mean.margin is None
    assert found.ratios["pauses_per_job"] is None
