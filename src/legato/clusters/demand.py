"""Counts the pilots of a cluster that the jobs of a pool could use. Pure; decides on no job.

It asks what the policy would give to the jobs if the cluster had machines for all: each job gets as many slots as help
it. Slots of other machines are used first. What pilots cannot satisfy, such as a label that they do not have, does not
count.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from fractions import Fraction

import msgspec

from legato.policy.free_slots import can_run
from legato.policy.kinds import is_type, kind_of
from legato.policy.sizes import fit_size, smallest_size
from legato.policy.snapshot import OWNER_LABEL, TEST_LABEL, JobDemand, Node, Slot, Snapshot


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


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The pilots that jobs could use.

    Args:
        owner: who has submitted the jobs. None: they are those of all users.
        least: with fewer none of the jobs can train.
        most: more would help none of them.
    """

    owner: str | None
    least: int
    most: int


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
    return sum(wish.most for wish in count_wishes(snapshot, lambda _: shape, max_pilots, refused, by_owner=False))


def count_wishes(
    snapshot: Snapshot,
    find_shape: Callable[[str | None], PilotShape],
    max_pilots: int,
    refused: Collection[str] = frozenset(),
    *,
    by_owner: bool,
) -> list[Wish]:
    """Return how many pilots the jobs of each user could use, those whose oldest job waits longest first.

    Args:
        snapshot: of the pool.
        find_shape: returns what each pilot of a user is; all have the same labels.
        max_pilots: the maximum of one user.
        refused: as in `count_pilots`.
        by_owner: False: pilots are for the jobs of all users; then there is at most one wish.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    pilots = find_pilots(snapshot, find_shape(None))
    others = _Others((slot for slot in snapshot.slots if slot.node not in pilots), nodes)
    held: dict[str, Counter[bool]] = defaultdict(Counter)
    for slot in snapshot.slots:
        if slot.holder is not None and slot.usable and not slot.leaving:
            held[slot.holder][slot.node in pilots] += 1
    ceilings = {queue.name: queue.ceiling for queue in snapshot.queues if queue.ceiling is not None}
    totals: dict[str | None, Fraction] = defaultdict(Fraction)
    least: dict[str | None, int] = {}
    oldest: dict[str | None, tuple[float, str]] = {}
    for job in snapshot.jobs:
        owner = job.owner if by_owner else None
        shape = find_shape(owner)
        of_pilot = shape.num_slots // job.gpus_per_worker
        # A machine that has refused a job says something about all of its cluster.
        fits = job.id not in refused and not pilots & job.refusals.keys() and can_use(job, shape, owner)
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
        if not wanted:
            continue
        totals[owner] += Fraction(math.ceil(wanted / job.gpus_per_worker), max(of_pilot, 1))
        first = max(1, smallest_size(job) - elsewhere - free)
        needs = math.ceil(Fraction(math.ceil(first / job.gpus_per_worker), max(of_pilot, 1)))
        least[owner] = min(least.get(owner, needs), needs)
        oldest[owner] = min(oldest.get(owner, (job.submitted_at, job.id)), (job.submitted_at, job.id))
    found = sorted(totals, key=lambda owner: oldest[owner])
    wishes = [(owner, min(math.ceil(totals[owner]), max_pilots)) for owner in found]
    return [Wish(owner=owner, least=min(least[owner], most), most=most) for owner, most in wishes]


def divide_pilots(wishes: Iterable[Wish], has: dict[str | None, int], total: int) -> dict[str | None, int]:
    """Return how many of ``total`` pilots each user gets. Pure, and the same as long as nothing changes.

    First each user gets the pilots with which one job can train, in the order of the wishes, as far as they fit. What
    is left goes to those who have fewest of these; of equal ones to who has such pilots already.

    Args:
        wishes: of the users.
        has: pilots of each user now.
        total: the maximum of all together.
    """
    wishes = list(wishes)
    given: dict[str | None, int] = {wish.owner: 0 for wish in wishes}
    left, admitted = total, []
    for wish in wishes:
        if 0 < wish.least <= left:
            given[wish.owner] = wish.least
            left -= wish.least
            admitted.append(wish)
    if sum(wish.most for wish in admitted) <= total:
        return given | {wish.owner: wish.most for wish in admitted}

    def rank(index: int) -> tuple[int, bool, int]:
        owner = admitted[index].owner
        return given[owner], given[owner] >= has.get(owner, 0), index

    hungry = [rank(index) for index, wish in enumerate(admitted) if given[wish.owner] < wish.most]
    heapq.heapify(hungry)
    while left and hungry:
        *_, index = heapq.heappop(hungry)
        wish = admitted[index]
        given[wish.owner] += 1
        left -= 1
        if given[wish.owner] < wish.most:
            heapq.heappush(hungry, rank(index))
    return given


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


def can_use(job: JobDemand, shape: PilotShape, owner: str | None) -> bool:
    """Return whether a job could use the slots of a pilot. ``owner``: whose it is. None: it is for all users."""
    if job.gpus_per_worker > shape.num_slots:
        return False
    labels = shape.labels if owner is None else {**shape.labels, OWNER_LABEL: owner}
    if not job.labels.items() <= labels.items():
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
