"""Counts the pilots of a cluster that the jobs of a pool could use. Pure; decides on no job.

It asks what the policy would give to the jobs if the cluster had machines for all: each job gets as many slots as help
it. Slots of other machines are used first. What pilots cannot satisfy, such as a label that they do not have, does not
count.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from fractions import Fraction

import msgspec

from legato.policy.free_slots import can_run
from legato.policy.kinds import is_type, kind_of
from legato.policy.sizes import fit_size, smallest_size
from legato.policy.snapshot import TEST_LABEL, JobDemand, Node, Slot, Snapshot


class PilotShape(msgspec.Struct, frozen=True, kw_only=True):
    """What each pilot of a cluster is.

    Args:
        num_slots: slots of its machine.
        has_gpus: each of them is a GPU.
        labels: of its machine.
        machine_kinds: kinds of machines that the cluster has, as `legato.policy.snapshot.Node.kind`. Empty: unknown.
        gpu_types: models of the GPUs that it has. Empty: unknown.
    """

    num_slots: int
    has_gpus: bool
    labels: dict[str, str]
    machine_kinds: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()


def find_refused(snapshot: Snapshot, shape: PilotShape) -> set[str]:
    """Return the jobs that pilots have refused, and that hold no slot of another pilot."""
    pilots = find_pilots(snapshot, shape)
    holders = {(slot.holder, slot.node) for slot in snapshot.slots if slot.holder is not None and slot.node in pilots}
    return {
        job.id
        for job in snapshot.jobs
        if pilots & job.refusals.keys()
        and not any(holder == job.id and node not in job.refusals for holder, node in holders)
    }


def count_pilots(snapshot: Snapshot, shape: PilotShape, max_pilots: int, refused: Collection[str] = frozenset()) -> int:
    """Return how many pilots the jobs could use, at most ``max_pilots``.

    Args:
        snapshot: of the pool.
        shape: of each pilot.
        max_pilots: the maximum.
        refused: jobs that pilots have refused before, as `find_refused` found them.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    pilots = find_pilots(snapshot, shape)
    others = _Others((slot for slot in snapshot.slots if slot.node not in pilots), nodes)
    held: dict[str, Counter[bool]] = defaultdict(Counter)
    for slot in snapshot.slots:
        if slot.holder is not None and slot.usable and not slot.leaving:
            held[slot.holder][slot.node in pilots] += 1
    ceilings = {queue.name: queue.ceiling for queue in snapshot.queues if queue.ceiling is not None}
    total = Fraction(0)
    for job in snapshot.jobs:
        of_pilot = shape.num_slots // job.gpus_per_worker
        # A machine that has refused a job says something about all of its cluster.
        fits = of_pilot > 0 and job.id not in refused and not pilots & job.refusals.keys() and _fits(job, shape)
        room = ceilings.get(job.queue)
        elsewhere = held[job.id][False]
        free = others.count(job)
        most = elsewhere + free + (max_pilots * of_pilot * job.gpus_per_worker if fits else 0)
        size = fit_size(job, min(job.max_slots, most) if room is None else min(job.max_slots, most, room))
        if room is not None:
            ceilings[job.queue] = max(0, room - size)
        if size < smallest_size(job):
            continue  # it could not start, however many pilots there are
        others.take(job, min(free, max(0, size - elsewhere)))
        wanted = max(0, size - elsewhere - free) if fits else held[job.id][True]
        total += Fraction(math.ceil(wanted / job.gpus_per_worker), max(of_pilot, 1))
        if total >= max_pilots:
            return max_pilots
    return math.ceil(total)


def find_typed(snapshot: Snapshot, shape: PilotShape) -> list[JobDemand]:
    """Return the jobs that ask for a type of GPU that neither pilots nor other machines have, as far as is known."""
    there = {slot.gpu_type for slot in snapshot.slots if slot.usable}
    return [
        job
        for job in snapshot.jobs
        if job.gpu_type is not None
        and not _has_type(job.gpu_type, shape)
        and not any(is_type(job.gpu_type, found) for found in there)
    ]


def find_pilots(snapshot: Snapshot, shape: PilotShape) -> set[str]:
    """Return the machines that are pilots of this shape, by their labels, without that of a test."""
    return {
        node.name
        for node in snapshot.nodes
        if shape.labels.items() <= node.labels.items() and TEST_LABEL not in node.labels
    }


def _fits(job: JobDemand, shape: PilotShape) -> bool:
    """Return whether a job could use the slots of a pilot."""
    if not job.labels.items() <= shape.labels.items():
        return False
    if job.gpus_per_worker > 1 and not shape.has_gpus:
        return False
    if job.gpu_type is not None and not _has_type(job.gpu_type, shape):
        return False
    if job.machine_kind is None or not shape.machine_kinds:
        return True
    # The kind of a job ends with its GPU model, or 'cpu'.
    return any(job.machine_kind.startswith(f"{kind}/") for kind in shape.machine_kinds)


def _has_type(asked: str, shape: PilotShape) -> bool:
    """Return whether pilots have, or may have, GPUs of a type."""
    return shape.has_gpus and (not shape.gpu_types or any(is_type(asked, found) for found in shape.gpu_types))


class _Others:
    """The free slots of machines that are no pilots."""

    def __init__(self, slots: Iterable[Slot], nodes: dict[str, Node]) -> None:
        self._nodes = nodes
        self._free: dict[tuple[str, str], list[Slot]] = defaultdict(list)
        for slot in slots:
            if slot.usable and slot.holder is None:
                self._free[slot.node, slot.gpu_type].append(slot)

    def count(self, job: JobDemand) -> int:
        """Return how many free slots a job can use, in whole workers."""
        return sum(len(slots) // job.gpus_per_worker for slots in self._find(job)) * job.gpus_per_worker

    def take(self, job: JobDemand, number: int) -> None:
        """Remove so many of the slots that a job can use."""
        for slots in self._find(job):
            part = min(number, len(slots) // job.gpus_per_worker * job.gpus_per_worker)
            del slots[:part]
            number -= part

    def _find(self, job: JobDemand) -> list[list[Slot]]:
        return [slots for slots in self._free.values() if slots and self._can_use(job, slots[0])]

    def _can_use(self, job: JobDemand, slot: Slot) -> bool:
        node = self._nodes.get(slot.node)
        if not can_run(slot.node, node, job):
            return False
        if job.gpus_per_worker > 1 and slot.device == "cpu":
            return False
        if job.gpu_type is not None and not is_type(job.gpu_type, slot.gpu_type):
            return False
        return job.machine_kind in (None, kind_of(node, slot))
