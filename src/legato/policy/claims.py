"""The working form of a snapshot: one claim per job, with its slots and bounds. Decides nothing.

Claims are filled in step by step: `admission` and `sizing` set the target of a job, `steadiness` its next size, and
`place` its slots. They exist for one decision and are used only in this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from legato.policy.ageing import find_behind
from legato.policy.curves import find_doubt, find_ratio
from legato.policy.node_sets import NodeSets
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import find_sizes
from legato.policy.snapshot import MAX_PRIORITY, OWNER_LABEL, JobDemand, Node, Queue, Slot, Snapshot, Standing, Trial

Needs = tuple[int, tuple[tuple[str, str], ...], tuple[str, ...], str | None]
"""GPUs per worker, sorted labels, sorted nodes that have refused the job, and the user whose machines suit besides
those of all users; "": those of all users only. None: no machine with these labels belongs to another user."""

Worker = tuple[Slot, ...]
"""The slots of one worker."""


_MAX_REFUSALS: Final = 3
_NO_NEEDS: Final[Needs] = (1, (), (), None)


def needs_of(job: JobDemand, owner: str | None = None) -> Needs:
    """Return the needs of a job that not every slot of its kind of machine meets. ``owner``: as in `Needs`."""
    # Few jobs have labels or refusals, and a pool may have thousands of jobs.
    if owner is None and job.gpus_per_worker == 1 and not job.labels and not job.refusals:
        return _NO_NEEDS
    labels = tuple(sorted(job.labels.items())) if job.labels else ()
    return job.gpus_per_worker, labels, tuple(sorted(job.refusals)) if job.refusals else (), owner


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a job does not get its minimum.

    Args:
        why: ``pool`` and ``ceiling``: the minimum is larger than the pool or the queue's ceiling; ``room`` and
            ``queue``: other jobs go first in the pool, or in its queue, which is at its ceiling; ``reserved``: slots
            are kept for a job that goes first; ``place``: its slots cannot be placed, as ``Claim.limit`` says;
            ``share``: its user has its share of the queue.
        left: slots that are available to it.
        first: whether it is the first job that was refused for this reason, for which the remaining slots are reserved.
    """

    why: Literal["pool", "ceiling", "room", "queue", "reserved", "place", "share"]
    left: int
    first: bool = False


class User(msgspec.Struct, eq=False, kw_only=True, gc=False):
    """A user of a queue on the way to a decision.

    Args:
        queue: its name.
        name: of the user.
        weight: above 0; users of a queue get slots in proportion to it.
        order: of its first claim.
        waiting: claims that can be placed and were not tried yet, in reverse order.
        admitted: claims with their minimum.
        wanted: slots that the claims could use.
        keeps: as of a claim, the sum of those that were admitted.
        share: exact share if minimums did not matter.
        entitled: the same in whole slots.
        taken: the sum of the admitted minimums.
        most: slots that the admitted claims could use.
        granted: slots for the admitted claims, before those that are left over.
        total: sum of the targets.
    """

    queue: str
    name: str
    weight: float
    order: int = 0
    waiting: list[Claim] = msgspec.field(default_factory=list)
    admitted: list[Claim] = msgspec.field(default_factory=list)
    wanted: int = 0
    keeps: int = 0
    share: float = 0.0
    entitled: int = 0
    taken: int = 0
    most: int = 0
    granted: int = 0
    total: int = 0


class Claim(msgspec.Struct, eq=False, kw_only=True):
    """One job on its way to a decision.

    Args:
        job: as in the snapshot.
        order: its place in the order of precedence; the smaller one goes first.
        age_order: its place in the order of submission, which decides ties.
        weight: of its share; its priority, or less for a long job that comes after another one.
        owners: users to whom machines with its labels belong.
        needs: its needs that not every slot of its kind of machine meets.
        behind: how many times its precedence is doubled.
        comes_after: the first of the long jobs with which it shares. None: it is not long, or is the first.
        due: its slots if slots were divisible.
        lo: its smallest size.
        hi: its largest useful size.
        slots: its usable slots that are not leaving; after `place`, its new slots.
        held: number of slots before `place`.
        keeps: slots with which it wins ties: those that it has or that are being freed for it. 0: order decides.
        lost: slots that it still has but that it can no longer use.
        lost_on: the nodes of lost slots that are not usable, and why; "": unknown.
        strayed: how many of these are on another kind of machine than its others, or were part of a worker that has
            lost another slot.
        ratio: part of its step that more workers do not make faster (`legato.policy.curves`). None: that does
            not count.
        doubt: how uncertain the gain of a step is, per difference of 1 / e (`legato.policy.curves`).
        trial: ``target`` is a number of workers that it tries for a while, so that its speed is measured.
        tries_with: the other job of the trial.
        num_trials: that it has begun.
        limit: why it cannot have more than ``hi`` slots, if that depends on the places of slots; "": it does not.
        limit_because: ids of jobs that are the cause of the limit.
        unplaced: it does not get some free slots yet, for the reason ``limit``.
        new_workers: slots of each worker that it gets, if a worker has several.
        moves: slots that it leaves and the slots that it gets instead, with the job that needs the former.
        leaving: slots that it is giving back already.
        turn: how many claims were tried before it.
        refusal: None: it has its minimum.
        share: its exact share.
        target: number of slots that it should have in the end.
        size: number of slots that it gets now.
        since: since when the target has been above, or below, what it holds. None: they are equal.
        ready_at: when it may be resized for fairness or growth only.
        from_free: number of free slots that are kept for it.
        from_others: number of slots that other jobs are freeing for it.
        gains_from: the jobs that free them; None for jobs that are not in the snapshot.
        gives_to: the jobs that gain the slots that it loses.
    """

    job: JobDemand
    lo: int
    hi: int
    weight: float
    order: int = 0
    age_order: int = 0
    owners: frozenset[str] = frozenset()
    needs: Needs = _NO_NEEDS
    behind: int = 0
    comes_after: Claim | None = None
    due: float = 0.0
    slots: list[Slot] = msgspec.field(default_factory=list)
    held: int = 0
    keeps: int = 0
    lost: int = 0
    lost_on: dict[str, str] = msgspec.field(default_factory=dict)
    strayed: int = 0
    ratio: float | None = None
    doubt: float = 0.0
    trial: Trial | None = None
    tries_with: Claim | None = None
    num_trials: int = 0
    limit: str = ""
    limit_because: tuple[str, ...] = ()
    unplaced: bool = False
    new_workers: tuple[Worker, ...] = ()
    moves: tuple[tuple[Worker, Worker, Claim], ...] = ()
    leaving: int = 0
    turn: int = 0
    refusal: Refusal | None = None
    share: float = 0.0
    target: int = 0
    size: int = 0
    since: float | None = None
    ready_at: float = 0.0
    from_free: int = 0
    from_others: int = 0
    gains_from: tuple[Claim | None, ...] = ()
    gives_to: tuple[Claim, ...] = ()

    @property
    def had(self) -> int:
        """Number of slots before the decision, including those that it cannot keep."""
        return self.held + self.lost

    @property
    def frozen(self) -> bool:
        """Whether its slots must not change now."""
        return self.held > 0 and self.job.standing == Standing.RESIZING

    @property
    def awaits_lease(self) -> bool:
        """Whether it has no usable slot, and cannot start in others before its workers on lost nodes have ended."""
        return not self.held and bool(self.job.lost_nodes)

    @property
    def is_picky(self) -> bool:
        """Whether it cannot use every slot of its kind of machine."""
        return self.needs is not _NO_NEEDS

    @property
    def limit_in_full(self) -> str:
        """``limit``, why the job is bound to one machine, and the nodes that have refused it."""
        bound = [self.job.bound_because] if self.job.bound_because else []
        refusals = self.job.refusals
        told = [f"node {node} has refused it: {refusals[node]}" for node in sorted(refusals)[:_MAX_REFUSALS]]
        left = len(refusals) - _MAX_REFUSALS
        more = [f"{left} more node{' has' if left == 1 else 's have'} refused it"] if left > 0 else []
        return "; ".join([self.limit, *bound, *told, *more])

    def list_workers(self) -> list[Worker]:
        """Return its slots by worker, in any order."""
        if self.job.gpus_per_worker == 1:
            return [(slot,) for slot in self.slots]
        workers: dict[str, list[Slot]] = {}
        for slot in self.slots:
            workers.setdefault(slot.worker or slot.id, []).append(slot)
        return [tuple(slots) for slots in workers.values()]


class SortedSnapshot(msgspec.Struct, eq=False, kw_only=True):
    """A snapshot in sorted form.

    Args:
        now: the present time.
        claims: all jobs, in order of precedence.
        queues: all queues, including those that only jobs name.
        capacity: all usable slots, free or not.
        free: slots that can be assigned now.
        leaving: usable slots that are being given back, by holder; None for holders that are not in the snapshot.
        coming: the same slots, in one list.
        nodes: all whose kind or labels are known, by name.
        kind: of all machines.
        others: how other machines of the whole pool differ, as a part of a sentence. "": all machines are of this kind.
        rooms: for all needs of its claims, the most slots that jobs with these needs can have together.
        usable: usable slots of each node.
        node_sets: gives the bits of these nodes, by name, and of others.
        owned: usable slots of each user to whom machines belong; "": of machines of all users.
        elsewhere: slots that queues with a ceiling have, or may have, on machines of other kinds.
        by_user: whether the users of a queue share before their jobs do.
        levels: how many times recent use halves the weights of users, as in `legato.policy.recent_use`.
        users: by queue and name, with what they got; empty without ``by_user``.
    """

    now: float
    claims: list[Claim]
    queues: Mapping[str, Queue]
    capacity: int
    free: list[Slot]
    leaving: list[tuple[Claim | None, int]]
    coming: list[Slot]
    nodes: Mapping[str, Node] = {}
    kind: str = ""
    others: str = ""
    rooms: dict[Needs, int] = {}
    usable: Mapping[str, int] = {}
    node_sets: NodeSets = msgspec.field(default_factory=NodeSets)
    owned: Mapping[str, int] = {}
    elsewhere: Mapping[str, int] = {}
    by_user: bool = False
    levels: Mapping[tuple[str, str], int] = {}
    users: Mapping[tuple[str, str], User] = {}


def find_room(pool: SortedSnapshot) -> dict[str, int]:
    """Return how many slots each queue may have besides the targets of its claims; without a ceiling, all slots."""
    room = {
        name: pool.capacity if queue.ceiling is None else queue.ceiling - pool.elsewhere.get(name, 0)
        for name, queue in pool.queues.items()
    }
    for claim in pool.claims:
        if pool.queues[claim.job.queue].ceiling is not None:
            room[claim.job.queue] -= claim.target
    return room


Limits = dict[str, tuple[int, str, tuple[str, ...]]]
"""Of each job the most slots that it can use, why it can use no more, and the jobs that are the causes."""


def ignore_holders(pool: SortedSnapshot) -> None:
    """Let order alone decide ties, so that targets do not depend on who has slots now."""
    for claim in pool.claims:
        claim.keeps = 0


def list_limits(pool: SortedSnapshot) -> Limits:
    """Return the limits of all claims."""
    return {claim.job.id: (claim.hi, claim.limit, claim.limit_because) for claim in pool.claims}


def set_limits(pool: SortedSnapshot, limits: Limits) -> None:
    """Set the limits of all claims."""
    for claim in pool.claims:
        claim.hi, claim.limit, claim.limit_because = limits[claim.job.id]


def sort_snapshot(snapshot: Snapshot, rules: Rules) -> SortedSnapshot:
    """Sort a snapshot, so that decisions do not depend on the order of its parts."""
    claims, queues = sort_jobs(snapshot, rules)
    nodes = {node.name: node for node in snapshot.nodes}
    pool = deal_slots(snapshot.slots, claims, queues, snapshot.now, nodes)
    pool.by_user = is_by_user(snapshot, rules)
    return pool


def is_by_user(snapshot: Snapshot, rules: Rules) -> bool:
    """Whether the users of a queue share before their jobs do. With one user there is nothing to share between them."""
    if not rules.policy.is_fair or rules.fair_by != FairBy.USER:
        return False
    return len({job.owner for job in snapshot.jobs}) > 1


def sort_jobs(snapshot: Snapshot, rules: Rules) -> tuple[list[Claim], dict[str, Queue]]:
    """Return a claim without slots for each job, in order of precedence, and all queues by name."""
    claims = [_make_claim(job, rules) for job in snapshot.jobs]
    # Places in these orders instead of the keys: thousands of comparisons follow.
    claims.sort(key=lambda claim: (claim.job.submitted_at, claim.job.id))
    for place, claim in enumerate(claims):
        claim.age_order = place
    if rules.policy is not Policy.FIFO:
        claims.sort(key=lambda claim: _find_precedence(claim, rules))
    assert len({claim.job.id for claim in claims}) == len(claims), "two jobs have the same id"
    queues = {queue.name: queue for queue in snapshot.queues}
    for place, claim in enumerate(claims):
        claim.order = place
        job = claim.job
        assert 1 <= job.min_workers <= job.max_workers and 1 <= job.priority <= MAX_PRIORITY, job
        if job.queue not in queues:
            queues[job.queue] = Queue(name=job.queue)
    return claims, queues


def note_needs(claims: Iterable[Claim], nodes: Iterable[Node]) -> None:
    """Note in each claim its needs, and the users to whom nodes with its labels belong. ``nodes``: those that count."""
    owned = [node for node in nodes if OWNER_LABEL in node.labels]
    if not owned:
        for claim in claims:
            claim.owners, claim.needs = frozenset(), needs_of(claim.job)
        return
    known: dict[tuple[tuple[str, str], ...], frozenset[str]] = {}
    for claim in claims:
        labels = claim.job.labels
        key = tuple(sorted(labels.items())) if labels else ()
        owners = known.get(key)
        if owners is None:
            found = (node.labels[OWNER_LABEL] for node in owned if labels.items() <= node.labels.items())
            owners = known[key] = frozenset(found)
        claim.owners, claim.needs = owners, needs_of(claim.job, _whose(claim.job.owner, owners))


def _whose(user: str, owners: frozenset[str]) -> str | None:
    """Return whose machines a user may use besides those of all users, as in `Needs`. ``owners``: who has machines."""
    if not owners:
        return None
    if user not in owners:
        return ""
    return user if len(owners) > 1 else None


def deal_slots(
    slots: Iterable[Slot], claims: list[Claim], queues: Mapping[str, Queue], now: float, nodes: Mapping[str, Node]
) -> SortedSnapshot:
    """Assign every slot to its claim. Slots of other jobs are about to become free.

    Args:
        slots: in any order.
        claims: in order of precedence, without slots.
        queues: of all claims, by name.
        now: the present time.
        nodes: all whose kind or labels are known, by name.
    """
    by_id = {claim.job.id: claim for claim in claims}
    capacity = 0
    free, coming = [], []
    for slot in slots:
        holder = slot.holder
        claim = None if holder is None else by_id.get(holder)
        if slot.usable:
            capacity += 1
            if slot.leaving:
                coming.append(slot)
                if claim is not None:
                    claim.leaving += 1
            elif claim is not None:
                claim.slots.append(slot)
            elif holder is None:
                free.append(slot)
            else:
                coming.append(slot)
        elif claim is not None and not slot.leaving:
            claim.lost += 1
            claim.lost_on[slot.node] = slot.trouble
    orphaned = sum(slot.holder not in by_id for slot in coming)
    for claim in claims:
        if claim.job.gpus_per_worker > 1:
            _drop_incomplete(claim, coming)
        claim.held = len(claim.slots)
        claim.keeps = max(claim.held, claim.job.wanted or 0)
    leaving: list[tuple[Claim | None, int]] = [(claim, claim.leaving) for claim in claims if claim.leaving]
    if orphaned:
        leaving.append((None, orphaned))
    return SortedSnapshot(
        now=now,
        claims=claims,
        queues=queues,
        capacity=capacity,
        free=free,
        leaving=leaving,
        coming=coming,
        nodes=nodes,
    )


def _drop_incomplete(claim: Claim, coming: list[Slot]) -> None:
    """Give up the slots of workers that have lost another slot: a worker needs all of its GPUs."""
    workers = claim.list_workers()
    if all(len(slots) == claim.job.gpus_per_worker for slots in workers):
        return
    whole: list[Slot] = []
    for slots in workers:
        if len(slots) == claim.job.gpus_per_worker:
            whole.extend(slots)
        else:
            coming.extend(slots)
            claim.lost += len(slots)
            claim.strayed += len(slots)
            claim.leaving += len(slots)
    claim.slots = whole


def _make_claim(job: JobDemand, rules: Rules) -> Claim:
    lo, hi = find_sizes(job)
    behind = 0
    if rules.fair_finish_s is not None and rules.policy.is_fair:
        behind = find_behind(job, lo, rules.fair_finish_s)
    by_speed = rules.policy is Policy.THROUGHPUT
    return Claim(
        job=job,
        lo=lo,
        hi=hi,
        weight=float(job.priority),
        behind=behind,
        ratio=find_ratio(job) if by_speed else None,
        doubt=find_doubt(job) if by_speed else 0.0,
        num_trials=job.num_trials,
    )


def _find_precedence(claim: Claim, rules: Rules) -> tuple[float, str]:
    """Return the sort key of a job under a policy other than fifo; among equals, the order of submission decides."""
    priority = claim.job.priority * 2**claim.behind
    if rules.ageing_s is not None and rules.policy.is_fair:
        # A fixed head start instead of a growing bonus, so that time alone never changes the order of two jobs.
        return claim.job.submitted_at - priority / 5000 * rules.ageing_s, claim.job.id
    return -priority, ""
