"""How many pilots jobs could use: sizes that help, other machines first, and what pilots cannot satisfy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.clusters.demand import PilotShape, count_pilots, find_refused, find_typed
from legato.clusters.pilots import CLUSTER_LABEL
from legato.policy.snapshot import OWN_MACHINE, JobDemand, Node, Queue, Slot, Snapshot

LABELS = {CLUSTER_LABEL: "slurm"}
CPUS = PilotShape(num_slots=2, has_gpus=False, labels=LABELS)
GPUS = PilotShape(num_slots=4, has_gpus=True, labels=LABELS, machine_kinds=("k",), gpu_types=("NVIDIA A100",))


def job(max_workers: int = 4, **given: Any) -> JobDemand:
    values: dict[str, Any] = {"id": "j", "name": "n", "owner": "o", "queue": "q", "submitted_at": 0.0, **given}
    return JobDemand(max_workers=max_workers, **values)


def slots(node: str, number: int, holder: str | None = None, **given: Any) -> list[Slot]:
    return [Slot(id=f"{node}/{i}", node=node, holder=holder, **{"device": "cpu", **given}) for i in range(number)]


def pool(*jobs: JobDemand, slots: list[Slot] | None = None, **nodes: Any) -> Snapshot:
    described = [Node(name=name, **given) for name, given in nodes.items()]
    return Snapshot(now=0, slots=tuple(slots or ()), jobs=jobs, nodes=tuple(described))


def test_pilots_for_all_slots_that_help() -> None:
    assert count_pilots(pool(), CPUS, 9) == 0
    assert count_pilots(pool(job(4)), CPUS, 9) == 2
    assert count_pilots(pool(job(3)), CPUS, 9) == 2
    assert count_pilots(pool(job(3, id="a"), job(3, id="b")), CPUS, 9) == 3
    assert count_pilots(pool(job(100)), CPUS, 9) == 9
    # With 4 micro-batches, a third worker would not help.
    assert count_pilots(pool(job(3, num_micro_batches=4)), CPUS, 9) == 1


def test_a_job_that_has_its_slots_on_pilots_keeps_them() -> None:
    held = slots("slurm-1", 2, "j") + slots("slurm-2", 2)
    nodes = {"slurm-1": {"labels": LABELS}, "slurm-2": {"labels": LABELS}}
    assert count_pilots(pool(job(2), slots=held, **nodes), CPUS, 9) == 1


def test_slots_of_other_machines_come_first() -> None:
    own = slots("head", 3)
    assert count_pilots(pool(job(4), slots=own, head={}), CPUS, 9) == 1
    assert count_pilots(pool(job(3, id="a"), job(2, id="b"), slots=own, head={}), CPUS, 9) == 1
    # A machine that has refused the job, or of another kind, does not help it.
    assert count_pilots(pool(job(4, refusals={"head": "no disk"}), slots=own, head={}), CPUS, 9) == 2
    assert count_pilots(pool(job(4, machine_kind="x/cpu"), slots=own, head={"kind": "y"}), CPUS, 9) == 2


@pytest.mark.parametrize(
    "wanted",
    [
        job(labels={"site": "x"}),
        job(labels=dict([OWN_MACHINE])),
        job(gpu_type="H100"),
        job(gpus_per_worker=8),
        job(machine_kind="other/NVIDIA A100"),
        job(min_workers=40, max_workers=40),
    ],
)
def test_what_pilots_cannot_satisfy_does_not_count(wanted: JobDemand) -> None:
    assert count_pilots(pool(wanted), GPUS, 9) == 0


def test_what_they_can_satisfy_counts() -> None:
    assert count_pilots(pool(job(labels=LABELS)), GPUS, 9) == 1
    assert count_pilots(pool(job(gpu_type="a100")), GPUS, 9) == 1
    assert count_pilots(pool(job(machine_kind="k/NVIDIA A100")), GPUS, 9) == 1
    # Workers of three GPUs: one fits on a machine of four.
    assert count_pilots(pool(job(3, gpus_per_worker=3)), GPUS, 9) == 3
    assert count_pilots(pool(job(2, gpus_per_worker=2)), CPUS, 9) == 0


def test_jobs_whose_type_of_gpu_is_nowhere_are_found() -> None:
    h100 = job(gpu_type="h100")
    assert find_typed(pool(h100, job(gpu_type="a100", id="k"), job(id="l")), GPUS) == [h100]
    assert find_typed(pool(h100), msgspec.structs.replace(GPUS, gpu_types=())) == []  # it may have it
    assert find_typed(pool(h100), CPUS) == [h100]
    other = slots("head", 1, device="GPU-1", gpu_type="NVIDIA H100")
    assert find_typed(pool(h100, slots=other, head={}), GPUS) == []


def test_a_machine_of_the_cluster_that_refuses_a_job_speaks_for_all() -> None:
    there = pool(job(refusals={"slurm-1": "no data"}), slots=slots("slurm-1", 2), **{"slurm-1": {"labels": LABELS}})
    assert count_pilots(there, CPUS, 9) == 0


def test_a_job_that_pilots_have_refused_before_does_not_count() -> None:
    assert count_pilots(pool(job(2, id="a"), job(4, id="b")), CPUS, 9, {"b"}) == 1


def test_a_job_is_refused_by_pilots_if_it_runs_on_none_of_them() -> None:
    nodes: dict[str, Any] = {"slurm-1": {"labels": LABELS}, "slurm-2": {"labels": LABELS}, "head": {}}
    by_pilot, by_other = job(refusals={"slurm-1": "no data"}), job(refusals={"head": "no data"})
    assert find_refused(pool(by_pilot, slots=slots("head", 2, "j") + slots("slurm-1", 2, "j"), **nodes), CPUS) == {"j"}
    assert find_refused(pool(by_pilot, slots=slots("slurm-2", 2, "j"), **nodes), CPUS) == set()
    assert find_refused(pool(by_other, **nodes), CPUS) == set()


def test_the_ceiling_of_a_queue_counts_for_all_its_jobs() -> None:
    found = Snapshot(
        now=0, slots=(), jobs=(job(8, id="a"), job(8, id="b")), queues=(Queue(name="q", ceiling=6),), nodes=()
    )
    assert count_pilots(found, CPUS, 9) == 3


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=5), st.integers(1, 4), st.integers(0, 6))
def test_pilots_hold_all_that_is_wanted_and_no_more_than_is_allowed(
    wanted: list[tuple[int, int]], num_slots: int, most: int
) -> None:
    shape = PilotShape(num_slots=num_slots, has_gpus=True, labels=LABELS)
    jobs = [job(number, id=str(index), gpus_per_worker=each) for index, (number, each) in enumerate(wanted)]
    found = count_pilots(pool(*jobs), shape, most)
    assert 0 <= found <= most
    if found < most:
        able = [(number, each) for number, each in wanted if each <= num_slots]
        assert found * num_slots >= sum(number * each for number, each in able)
