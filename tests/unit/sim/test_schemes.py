"""Pools of unequal nodes, costs by size, and the schemes that policies are compared with."""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legato.control.records import Allocation
from legato.policy.rules import FairBy, Rules
from legato.sim.load import Costs, Load
from legato.sim.random_jobs import draw_training_jobs
from legato.sim.report import run_scheme
from legato.sim.schemes import LONG_JOB_SLOT_S, SCHEMES
from legato.sim.simulation import Setting, World, simulate
from legato.sim.workload import PlannedJob

FREE = Costs(driver_s=0.0, start_s=0.0, resize_s=0.0, drain_s=0.0, checkpoint_s=0.0)


def plan(name: str, steps: int, most: int = 1, at: float = 0.0, **fields: object) -> PlannedJob:
    values = {"step_s": 1.0} | {key: value for key, value in fields.items() if key in Load.__struct_fields__}
    others = {key: value for key, value in fields.items() if key not in values}
    load = msgspec.convert({"num_steps": steps, **values}, Load)
    return PlannedJob(name=name, load=load, max_workers=most, submitted_at=at, **others)  # type: ignore[arg-type]


def run(scheme: str, plans: list[PlannedJob], setting: Setting) -> World:
    return simulate(*SCHEMES[scheme].apply(plans, setting))


def ends(world: World) -> dict[str, float]:
    return {job.name: job.ended_at for job in world.store.jobs.values() if job.ended_at is not None}


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 10_000), st.sampled_from([(8, 8), (4, 4, 4), (9,), (1, 2, 3, 5)]), st.sampled_from(sorted(SCHEMES))
)
def test_no_slot_is_used_twice_and_all_work_is_done(seed: int, nodes: tuple[int, ...], scheme: str) -> None:
    plans = draw_training_jobs(seed, 12, mean_gap_s=120.0, num_slots=sum(nodes))
    plans = [
        msgspec.structs.replace(one, load=msgspec.structs.replace(one.load, num_steps=one.load.num_steps % 3000 + 1))
        for one in plans
    ]
    setting = Setting(num_slots=sum(nodes), nodes=nodes, costs=Costs(resize_by_size=((1, 1.0), (8, 9.0))))
    world = run(scheme, plans, setting)
    assert world.has_ended() and not world.store.open
    by_slot: dict[str, list[Allocation]] = defaultdict(list)
    for found in world.store.closed:
        by_slot[found.slot].append(found)
    assert set(by_slot) <= {f"node-{node}/{number}" for node, size in enumerate(nodes) for number in range(size)}
    for held in by_slot.values():
        held.sort(key=lambda found: found.since)
        for one, following in itertools.pairwise(held):
            assert one.until is not None and one.until <= following.since
    for job, saved in world.drivers.saved.items():
        load = plans[int(job.split("-")[1])].load
        assert saved.step == load.num_steps and saved.num_successes == 1
        # The trained time, in workers, is at least the work.
        spans = itertools.pairwise([*saved.trained, (world.store.jobs[job].ended_at or 0.0, 0)])
        trained = sum((end - begin) * (1 / load.seconds_per_step(size)) for (begin, size), (end, _) in spans if size)
        assert trained >= load.num_steps - 1e-3
    again = run(scheme, plans, setting)
    assert again.store.closed == world.store.closed


def test_a_job_on_several_nodes_is_slower() -> None:
    one = plan("a", 600, 4, node_s=1.0)
    setting = Setting(num_slots=4, costs=FREE)
    alone = ends(run("gang", [one], setting))["a"]
    apart = ends(run("gang", [one], msgspec.structs.replace(setting, nodes=(2, 1, 1))))["a"]
    # A step takes a quarter of a second, and 2 seconds more on three nodes.
    assert apart - alone == pytest.approx(1200, abs=2)


def test_a_resize_costs_what_its_size_says() -> None:
    plans = [plan("a", 4000, 8), plan("b", 400, 4, at=50.0)]
    setting = Setting(num_slots=8, rules=Rules(stability_s=0.0, cooldown_factor=0.0))
    cheap = run("fair", plans, msgspec.structs.replace(setting, costs=Costs(resize_by_size=((1, 1.0), (8, 1.0)))))
    dear = run("fair", plans, msgspec.structs.replace(setting, costs=Costs(resize_by_size=((4, 1.0), (8, 101.0)))))
    # It shrinks to 4 and grows to 8 again: only the growth costs more.
    assert ends(dear)["a"] - ends(cheap)["a"] == pytest.approx(100, abs=3)
    # 49 s more with 4 workers, and 49 s with 8.
    own = [msgspec.structs.replace(one, load=msgspec.structs.replace(one.load, resize_s=((1, 50.0),))) for one in plans]
    assert ends(run("fair", own, setting))["a"] - ends(cheap)["a"] == pytest.approx(49 + 49 * 4 / 8, abs=3)


def test_static_schemes_use_the_number_that_is_asked_for() -> None:
    one = plan("a", 800, 8, asked_workers=2)
    setting = Setting(num_slots=8, costs=FREE)
    assert ends(run("gang", [one], setting))["a"] == pytest.approx(400, abs=3)
    assert ends(run("fair", [one], setting))["a"] == pytest.approx(100, abs=5)


def test_las_lets_a_new_job_go_before_one_that_has_had_much_service() -> None:
    setting = Setting(num_slots=4)
    # 16 hours on one slot are 4 hours on 4.
    late = [plan("long", 80_000, 4), plan("new", 400, 4, at=15_000.0)]
    fifo, las = ends(run("gang", late, setting)), run("las", late, setting)
    assert fifo["new"] > 20_000 and ends(las)["new"] < 15_300
    assert las.store.jobs["j-0000000000"].priority == 5000
    early = [plan("long", 80_000, 4), plan("new", 400, 4, at=10_000.0)]
    assert 14_400 < ends(run("las", early, setting))["new"] < 15_000


def test_serial_schemes_serve_long_jobs_one_after_the_other() -> None:
    plans = [plan(name, 100_000, 8) for name in ("a", "b", "c")]
    setting = Setting(num_slots=8, rules=Rules(cooldown_factor=0.0))
    equal, serial = ends(run("fair", plans, setting)), ends(run("fair-serial", plans, setting))
    assert serial["a"] < 0.75 * equal["a"] and serial["b"] < 0.95 * equal["b"]
    assert serial["c"] == pytest.approx(equal["c"], rel=0.01)
    rules = SCHEMES["fair-serial"].apply([], setting)[1].rules
    assert rules.long_job_slot_s == LONG_JOB_SLOT_S
    assert SCHEMES["fair"].apply([], setting)[1].rules.long_job_slot_s is None


def test_max_min_does_not_look_at_speeds() -> None:
    rules = SCHEMES["max-min"].apply([], Setting(rules=Rules(long_job_slot_s=1.0)))[1].rules
    assert (rules.measured_speed_s, rules.long_job_slot_s, rules.fair_by) == (None, None, FairBy.JOB)


def test_the_scheme_of_a_report_is_named() -> None:
    assert run_scheme([plan("a", 10)], Setting(), SCHEMES["las"]).report.policy == "las"
