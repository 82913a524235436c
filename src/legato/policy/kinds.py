"""Divides the pool by kind of machine, so that a job uses machines of one kind only. Pure.

Machines of different kinds compute different bits: CPU capability, GPU model and library versions matter. A job that
has slots, or that has begun to train, stays on its kind of machine. Other jobs get the kind on which they would have
the most slots. The slots of each kind are then shared among the jobs on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from legato.policy.causes import MAX_NODES_NAMED, count, explain_needs, list_some, name_unusable
from legato.policy.claims import Claim, SortedSnapshot, deal_slots, is_by_user, needs_of, note_owners, sort_jobs
from legato.policy.free_slots import belongs_to_other, can_run, has_labels
from legato.policy.recent_use import find_levels
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, Part, make_whole, share_out
from legato.policy.sizes import fit_size
from legato.policy.snapshot import OWN_MACHINE, OWNER_LABEL, JobDemand, Node, Queue, Slot, Snapshot

CPU: Final = "cpu"
"""The device of slots without a GPU."""
_WORD: Final = re.compile(r"[a-z0-9]+")


def kind_of(node: Node | None, slot: Slot) -> str:
    """Return the kind of a slot: that of its node, and its GPU model.

    >>> kind_of(Node(name="a", kind="x1"), Slot(id="a/0", node="a", device="GPU-6e", gpu_type="NVIDIA A100"))
    'x1/NVIDIA A100'
    """
    return f"{'' if node is None else node.kind}/{CPU if slot.device == CPU else slot.gpu_type}"


def is_type(asked: str, gpu_type: str) -> bool:
    """Whether a GPU is of the type that a job asks for: its model contains every word, in upper or lower case.

    >>> is_type("a100", "NVIDIA A100-SXM4-80GB"), is_type("A10", "NVIDIA A100-SXM4-80GB")
    (True, False)
    """
    words = set(_WORD.findall(asked.lower()))
    return bool(words) and words <= set(_WORD.findall(gpu_type.lower()))


class _Kind:
    """The slots of one kind.

    Args:
        name: of the kind.
        slots: of this kind, unusable ones included.
        nodes: all whose kind or labels are known, by name.
    """

    def __init__(self, name: str, slots: Sequence[Slot], nodes: Mapping[str, Node]) -> None:
        self.name = name
        self.slots = slots
        self.usable = Counter(slot.node for slot in slots if slot.usable)
        self.capacity = sum(self.usable.values())
        self.claims: list[Claim] = []
        self.wanted = self.weight = 0
        self._nodes = nodes
        owned = (name for name in self.usable if name in nodes and OWNER_LABEL in nodes[name].labels)
        self._owners = {nodes[name].labels[OWNER_LABEL] for name in owned}
        unusable = {slot.node: slot for slot in slots if not slot.usable}
        self._unusable = {node: unusable[node] for node in sorted(unusable)}
        self._room: dict[object, int] = {}

    @property
    def gpu_type(self) -> str | None:
        """Model of its GPUs; "": unknown. None: they are CPUs."""
        return None if not self.slots or self.slots[0].device == CPU else self.slots[0].gpu_type

    def find_room(self, job: JobDemand) -> int:
        """Return the most slots that a job could have if no other job had any."""
        if job.gpus_per_worker == 1 and job.gpu_type is None and not (job.labels or job.refusals or self._owners):
            return self.capacity
        key = (job.gpu_type, needs_of(job)[:2], job.owner if job.owner in self._owners else "")
        room = self._room.get(key)
        if room is None:
            room = self._room[key] = self._find_room(job)
        return room - sum(self._find_room_on(node, job) for node in job.refusals) if room else 0

    def _find_room(self, job: JobDemand) -> int:
        """Return the room of a job if no node had refused it."""
        if self.gpu_type is None and (job.gpus_per_worker > 1 or job.gpu_type is not None):
            return 0
        if job.gpu_type is not None and not is_type(job.gpu_type, self.gpu_type or ""):
            return 0
        return sum(self._find_room_on(node, job) for node in self.usable)

    def _find_room_on(self, node: str, job: JobDemand) -> int:
        each = job.gpus_per_worker
        return self.usable[node] // each * each if has_labels(self._nodes.get(node), job) else 0

    def has_of_others(self, job: JobDemand) -> bool:
        """Whether a job would have more room if no node belonged to another user."""
        if not self._owners or (job.gpu_type is not None and not is_type(job.gpu_type, self.gpu_type or "")):
            return False
        return any(
            number >= job.gpus_per_worker and node not in job.refusals and belongs_to_other(self._nodes.get(node), job)
            for node, number in self.usable.items()
        )

    def explain_unusable(self, job: JobDemand) -> str:
        """Name the nodes that could run a job if they were usable, as the end of a sentence."""
        found = [slot for name, slot in self._unusable.items() if can_run(name, self._nodes.get(name), job)]
        told = "; ".join(name_unusable(slot) for slot in found[:MAX_NODES_NAMED])
        left = len(found) - MAX_NODES_NAMED
        more = f"; {left} more node{'' if left == 1 else 's'} cannot be used" if left > 0 else ""
        return f"; {told}{more}" if found else ""

    def add(self, claim: Claim) -> None:
        """Assign a claim to this kind."""
        self.claims.append(claim)
        self.wanted += min(claim.hi, self.find_room(claim.job))
        self.weight += claim.job.priority


def divide(snapshot: Snapshot, rules: Rules) -> list[SortedSnapshot]:
    """Return one sorted snapshot for each kind of machine. Every claim is limited to the slots that it could have."""
    claims, queues = sort_jobs(snapshot, rules)
    by_user = is_by_user(snapshot, rules)
    levels = find_levels(snapshot, queues, rules) if by_user else {}
    nodes = {node.name: node for node in snapshot.nodes}
    names: dict[tuple[str, str, bool], str] = {}
    inside: dict[str, list[Slot]] = {}
    for slot in snapshot.slots:
        key = (slot.node, slot.gpu_type, slot.device == CPU)
        name = names.get(key)
        if name is None:
            name = names[key] = kind_of(nodes.get(slot.node), slot)
            inside.setdefault(name, [])
        inside[name].append(slot)
    kinds = {name: _Kind(name, inside[name], nodes) for name in sorted(inside)} or {"": _Kind("", (), nodes)}
    if len(kinds) == 1:
        held = {}
        next(iter(kinds.values())).claims = claims
    else:
        held = _count_held(kinds)
        note_owners(claims, snapshot.nodes)
        _assign(claims, kinds, held, rules.policy)
    pools = []
    for kind in kinds.values():
        note_owners(kind.claims, (nodes[name] for name in kind.usable if name in nodes))
        pool = deal_slots(kind.slots, kind.claims, queues, snapshot.now, nodes)
        pool.kind = kind.name
        pool.by_user, pool.levels = by_user, levels
        if len(kinds) > 1:
            pool.others = _explain_others(kind, kinds.values(), nodes)
            _find_strayed(kind, held)
        _limit(pool, kind, list(kinds.values()))
        pools.append(pool)
    if len(pools) > 1:
        _divide_queues(pools, queues)
    return pools


class _Held:
    """Numbers of slots of one job by kind: ``kept``; ``leaving``: those that it was asked to give back."""

    def __init__(self) -> None:
        self.kept: Counter[str] = Counter()
        self.usable: Counter[str] = Counter()
        self.leaving: Counter[str] = Counter()


def _count_held(kinds: Mapping[str, _Kind]) -> dict[str, _Held]:
    held: dict[str, _Held] = {}
    for name, kind in kinds.items():
        for slot in kind.slots:
            if slot.holder is not None:
                of = held.get(slot.holder)
                if of is None:
                    of = held[slot.holder] = _Held()
                if slot.leaving:
                    of.leaving[name] += 1
                else:
                    of.kept[name] += 1
                    of.usable[name] += slot.usable
    return held


def _find_strayed(kind: _Kind, held: Mapping[str, _Held]) -> None:
    """Count the slots that jobs have on another kind than their own. They are given back."""
    for claim in kind.claims:
        of = held.get(claim.job.id)
        if of is not None and len(of.kept) > 1:
            strayed = sum(number for name, number in of.kept.items() if name != kind.name)
            claim.strayed += strayed
            claim.lost += strayed


def _assign(claims: Sequence[Claim], kinds: Mapping[str, _Kind], held: Mapping[str, _Held], policy: Policy) -> None:
    """Assign every claim to a kind: those that can use one only, then the others in order of precedence."""
    nothing = _Held()
    bound = {
        claim.job.id: kinds[name]
        for claim in claims
        if (name := _find_only(claim, kinds, held.get(claim.job.id, nothing))) is not None
    }
    if policy.is_fair:
        for claim in claims:
            if claim.job.id in bound:
                bound[claim.job.id].add(claim)
    for claim in claims:
        if claim.job.id not in bound:
            _choose(claim, kinds.values(), policy).add(claim)
        elif not policy.is_fair:
            # Later jobs get what earlier ones leave.
            bound[claim.job.id].add(claim)
    for kind in kinds.values():
        kind.claims.sort(key=lambda claim: claim.order)


def _find_only(claim: Claim, kinds: Mapping[str, _Kind], of: _Held) -> str | None:
    """Return the kind that a claim has slots of, or began on, or that alone has what it asks for, if any."""
    before = claim.job.machine_kind
    has = +of.usable or of.leaving
    if has:
        return _find_most(has, before)
    if before is not None and before in kinds:
        return before
    if not claim.is_picky and claim.job.gpu_type is None:
        return None
    fitting = [name for name, kind in kinds.items() if kind.find_room(claim.job) >= claim.lo]
    return fitting[0] if len(fitting) == 1 else None


def _find_most(has: Mapping[str, int], before: str | None) -> str:
    return max(has, key=lambda name: (has[name], name == before, name))


def _choose(claim: Claim, kinds: Iterable[_Kind], policy: Policy) -> _Kind:
    """Choose the kind on which a claim would have the most slots; of equal ones, the smallest that fits."""

    def rank(kind: _Kind) -> tuple[bool, int, int, int, str]:
        room = kind.find_room(claim.job)
        left = kind.capacity - kind.wanted
        if policy.is_fair:
            left = max(left, int(kind.capacity * claim.job.priority / (kind.weight + claim.job.priority)))
        share = min(room, max(left, 0), claim.hi)
        return (room < claim.lo, -share, -room if room < claim.lo else 0, kind.capacity, kind.name)

    return min(kinds, key=rank)


def _limit(pool: SortedSnapshot, kind: _Kind, kinds: Sequence[_Kind]) -> None:
    """Limit every claim to the slots that it could have if no other job had any."""
    for claim in pool.claims:
        job = claim.job
        if claim.is_picky or job.gpu_type is not None:
            if claim.is_picky:
                pool.rooms.setdefault(claim.needs, kind.find_room(job))
            room = max(kind.find_room(job), claim.held)
            if room < claim.hi:
                claim.hi = fit_size(job, room)
                claim.limit = _explain_room(claim, kind, kinds)


def _explain_room(claim: Claim, kind: _Kind, kinds: Sequence[_Kind]) -> str:
    """Explain why a job cannot have more slots of a kind even if no other job had any, as a part of a sentence."""
    job = claim.job
    types = sorted({found for each in kinds if (found := each.gpu_type) is not None})
    if not types:
        asks = f"{job.gpus_per_worker} GPUs per worker" if job.gpus_per_worker > 1 else f"GPU type {job.gpu_type}"
        if job.gpus_per_worker > 1 or job.gpu_type is not None:
            return f"it asks for {asks}, and the pool has no GPUs"
    if job.gpu_type is not None and not any(is_type(job.gpu_type, found) for found in types):
        return (
            f"it asks for GPU type {job.gpu_type}, and the pool has {', '.join(found or 'unknown' for found in types)}"
        )
    room = kind.find_room(job)
    out = kind.explain_unusable(job)
    told = [] if job.gpu_type is None else [f"GPU type {job.gpu_type}"]
    told += [text] if (text := explain_needs((*claim.needs[:2], (), None))) else []
    has = count(room) if room else "no slots"
    if kind.has_of_others(job):
        owned = f"machines that belong to no other user than {job.owner}"
        if not told:
            return f"{owned} have {has}{out}"
        has += f" on {owned}"
    if told == [explain_needs((1, (OWN_MACHINE,), (), None))]:
        return f"it can use {told[0]} only, which has {has}{' for it' if job.refusals else ''}{out}"
    if not told:
        return f"the other nodes have {has}{out}"
    return f"it asks for {' and '.join(told)}, for which its kind of machine has {has}{out}"


def _explain_others(kind: _Kind, kinds: Iterable[_Kind], nodes: Mapping[str, Node]) -> str:
    """Name some usable nodes of other kinds, and say how they differ."""
    own = next((nodes[name] for name in sorted({slot.node for slot in kind.slots}) if name in nodes), None)
    told = []
    for other in kinds:
        if other is kind or not other.usable:
            continue
        names = sorted(other.usable)
        difference = _explain_difference(own, kind, nodes.get(names[0]), other)
        are = f"node {names[0]} is" if len(names) == 1 else f"nodes {list_some(names)} are"
        told.append(f"{are} of another kind ({difference})" if difference else f"{are} of another kind")
    return "; ".join(told)


def _explain_difference(own: Node | None, kind: _Kind, other: Node | None, other_kind: _Kind) -> str:
    mine, theirs = ({} if node is None else node.traits for node in (own, other))
    told = [
        f"{name} {theirs.get(name, 'unknown')} instead of {mine.get(name, 'unknown')}"
        for name in sorted({*mine, *theirs})
        if mine.get(name) != theirs.get(name)
    ]
    if kind.gpu_type != other_kind.gpu_type:
        types = ["CPU" if found is None else found or "GPU" for found in (other_kind.gpu_type, kind.gpu_type)]
        told.append(f"{types[0]} instead of {types[1]}")
    return ", ".join(told)


def _divide_queues(pools: Sequence[SortedSnapshot], queues: Mapping[str, Queue]) -> None:
    """Divide floors and ceilings of queues among the kinds, by the weights of the jobs that are on them."""
    claims: list[dict[str, list[Claim]]] = []
    for pool in pools:
        inside: dict[str, list[Claim]] = {}
        for claim in pool.claims:
            inside.setdefault(claim.job.queue, []).append(claim)
        claims.append(inside)
        pool.queues = dict(queues)
        pool.elsewhere = {}
    for name, queue in queues.items():
        if not queue.floor and queue.ceiling is None:
            continue
        bounds = [
            Bounds(
                sum(claim.job.priority for claim in inside.get(name, ())) or 1,
                0,
                min(sum(claim.hi for claim in inside.get(name, ())), pool.capacity),
            )
            for pool, inside in zip(pools, claims, strict=True)
        ]
        floors = _divide_number(queue.floor, bounds)
        ceilings = None if queue.ceiling is None else _divide_number(queue.ceiling, bounds)
        for index, pool in enumerate(pools):
            pool.queues = {**pool.queues, name: msgspec.structs.replace(queue, floor=floors[index])}
            if ceilings is not None and queue.ceiling is not None:
                pool.elsewhere = {**pool.elsewhere, name: queue.ceiling - ceilings[index]}


def _divide_number(number: int, bounds: Sequence[Bounds]) -> list[int]:
    shares = share_out(number, bounds)
    parts = [
        Part(share, bound.weight, 0, (index,)) for index, (share, bound) in enumerate(zip(shares, bounds, strict=True))
    ]
    return make_whole(min(number, sum(bound.hi for bound in bounds)), parts)
