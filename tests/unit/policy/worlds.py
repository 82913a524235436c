"""Made-up snapshots for property tests: any pool, any mixture of jobs, in any state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.policy.world import make_job, make_slots, make_speed

from legato.core.speed import Speed
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import smallest_size
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Queue, Slot, Snapshot, Standing

QUEUES = ("a", "b", "c")
USERS = ("ann", "ben", "cleo")


def for_any(*drawn: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Do as `given` does, without limits of time: what else runs on a machine must not fail a test."""

    def decorate(test: Any) -> Any:
        return settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])(given(*drawn, **named)(test))

    return decorate


@st.composite
def any_speeds(draw: st.DrawFn) -> tuple[Speed, ...]:
    """Draw measured speeds, of most jobs none."""
    if draw(st.integers(0, 3)):
        return ()
    sizes = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 2)), unique=True, max_size=5))
    return tuple(make_speed(number, draw(st.sampled_from([1.0, 1.9, 2.0, 2.1, 4.0])), nodes) for number, nodes in sizes)


@st.composite
def any_jobs(draw: st.DrawFn, *, plain: bool = False, min_jobs: int = 0) -> list[JobDemand]:
    """Draw jobs.

    Args:
        draw: by Hypothesis.
        plain: elastic ones to which every slot is useful.
        min_jobs: not fewer.
    """
    jobs = []
    for index in range(draw(st.integers(min_jobs, 7))):
        low = draw(st.integers(1, 3))
        jobs.append(
            make_job(
                f"{draw(st.sampled_from(USERS))}/j{index}",
                low + draw(st.integers(0, 6)),
                at=float(draw(st.integers(0, 3))),
                queue=draw(st.sampled_from(QUEUES)),
                min_workers=low,
                priority=draw(st.sampled_from([1000, 5000, 5000, 5000, 10_000])),
                elastic=plain or draw(st.integers(0, 3)) > 0,
                num_micro_batches=None if plain else draw(st.sampled_from([None, None, None, 1, 2, 4, 6, 8])),
                shares_freely=draw(st.integers(0, 3)) == 0,
                speeds=() if plain else draw(any_speeds()),
            )
        )
    return jobs


@st.composite
def any_queues(draw: st.DrawFn) -> list[Queue]:
    queues = []
    for name in draw(st.lists(st.sampled_from(QUEUES), unique=True)):
        ceiling = draw(st.sampled_from([None, None, 1, 4, 8]))
        floor = draw(st.sampled_from([0, 0, 2, 5]))
        queues.append(Queue(name=name, weight=draw(st.sampled_from([1.0, 2.0, 0.5])), floor=floor, ceiling=ceiling))
    return queues


@st.composite
def any_snapshots(draw: st.DrawFn, *, plain: bool = False, used: bool = True) -> Snapshot:
    """Draw a snapshot in which jobs may hold slots.

    Args:
        draw: by Hypothesis.
        plain: as for jobs.
        used: False: all slots are free and usable.
    """
    jobs = draw(any_jobs(plain=plain))
    slots = list(make_slots(draw(st.integers(0, 16))))
    if used:
        order = draw(st.permutations(range(len(slots))))
        jobs = [_with_account(draw, _with_slots(draw, job, slots, order)) for job in jobs]
        for index, slot in enumerate(slots):
            if slot.holder is None and draw(st.integers(0, 7)) == 0:
                slots[index] = msgspec.structs.replace(slot, holder="an-ended-one", leaving=draw(st.booleans()))
            if draw(st.integers(0, 11)) == 0:
                slots[index] = msgspec.structs.replace(slots[index], usable=False)
    return Snapshot(now=100.0, slots=tuple(slots), jobs=tuple(jobs), queues=tuple(draw(any_queues())))


def _with_slots(draw: st.DrawFn, job: JobDemand, slots: list[Slot], order: list[int]) -> JobDemand:
    """Give a job some of the slots that no job has, or none."""
    held = draw(st.integers(smallest_size(job), job.max_workers)) if draw(st.booleans()) else 0
    free = [index for index in order if slots[index].holder is None]
    if not held or len(free) < held:
        return job
    for index in free[:held]:
        slots[index] = msgspec.structs.replace(slots[index], holder=job.id)
    for index in free[held : held + draw(st.integers(0, 2))]:
        slots[index] = msgspec.structs.replace(slots[index], holder=job.id, leaving=True)
    return msgspec.structs.replace(
        job,
        standing=draw(st.sampled_from([Standing.RUNNING, Standing.RUNNING, Standing.RESIZING])),
        wanted=draw(st.none() | st.integers(0, job.max_workers)),
        wanted_since=draw(st.sampled_from([None, 90.0, 99.0])),
        last_resized_at=draw(st.sampled_from([None, 50.0, 99.5])),
        resize_cost_s=draw(st.sampled_from([None, 0.1, 5.0])),
    )


def _with_account(draw: st.DrawFn, job: JobDemand) -> JobDemand:
    """Give a job some time in which it had more or less than was due to it."""
    return msgspec.structs.replace(
        job,
        due_slot_s=draw(st.sampled_from([0.0, 100.0, 1e4])),
        served_slot_s=draw(st.sampled_from([0.0, 100.0, 1e4])),
        behind=draw(st.integers(0, 3)),
        used_slot_s=draw(st.sampled_from([0.0, 0.0, 2e4, 3e4])),
    )


@st.composite
def mixed_snapshots(draw: st.DrawFn, *, owned: bool = False) -> Snapshot:
    """Draw an idle pool with nodes of several kinds, GPU models and labels, and jobs that ask for some of them.

    ``owned``: some of the nodes belong to users.
    """
    nodes, slots = [], []
    for index in range(draw(st.integers(1, 5))):
        name = f"n{index}"
        labels = draw(st.sampled_from([{}, {}, {"site": "x"}, {"site": "y", "disk": "ssd"}]))
        if owned and (owner := draw(st.sampled_from(["", *USERS]))):
            labels = {**labels, OWNER_LABEL: owner}
        kinds = ["", "", "", "k1"] if owned else ["", "k1", "k2"]
        nodes.append(Node(name=name, kind=draw(st.sampled_from(kinds)), labels=labels))
        device, gpu_type = draw(st.sampled_from([("cpu", ""), ("GPU-1", "A100"), ("GPU-1", "A100"), ("GPU-1", "H100")]))
        for number in range(draw(st.integers(1, 6))):
            usable = draw(st.integers(0, 9)) > 0
            slots.append(Slot(id=f"{name}/{number}", node=name, device=device, gpu_type=gpu_type, usable=usable))
    jobs = [
        msgspec.structs.replace(
            job,
            gpus_per_worker=draw(st.sampled_from([1, 1, 2, 3])),
            gpu_type=draw(st.sampled_from([None, None, None, "a100", "T4"])),
            labels=draw(st.sampled_from([{}, {}, {}, {"site": "x"}, {"site": "y"}, {"site": "z"}])),
            refusals=draw(st.sampled_from([{}, {}, {}, {"n0": "no data"}, {"n0": "no data", "n1": "a full disk"}])),
        )
        for job in draw(any_jobs())
    ]
    return Snapshot(now=0.0, slots=tuple(slots), jobs=tuple(jobs), queues=tuple(draw(any_queues())), nodes=tuple(nodes))


def any_rules() -> st.SearchStrategy[Rules]:
    return st.builds(
        Rules,
        fair_by=st.sampled_from([FairBy.USER, FairBy.USER, FairBy.JOB]),
        policy=st.sampled_from(list(Policy)),
        ageing_s=st.sampled_from([None, 10.0]),
        fair_finish_s=st.sampled_from([None, None, 60.0]),
        stability_s=st.just(3.0),
        long_job_slot_s=st.sampled_from([None, None, 28_800.0]),
    )
