"""Divides the pool by kind of machine, so that a job uses machines of one kind only. Pure.

Machines of different kinds compute different bits: CPU capability, GPU model and library versions matter. A job that
has slots, or that has begun to train, stays on its kind of machine. Other jobs get the kind on which they would have
the most slots. The slots of each kind are then shared among the jobs on it.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from legato.policy.causes import MAX_NODES_NAMED, count, explain_needs, list_some, name_unusable
from legato.policy.claims import Claim, SortedSnapshot, deal_slots, is_by_user, note_needs, sort_jobs
from legato.policy.free_slots import belongs_to_other, can_run, has_labels
from legato.policy.node_sets import NodeSets
from legato.policy.owned import Used
from legato.policy.recent_use import find_levels
from legato.policy.rules import Rules
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
        self.usable = Counter([slot.node for slot in slots if slot.usable])
        self.claims: list[Claim] = []
        self._nodes = nodes
        # Usable nodes by owner; "": those of all users.
        self._nodes_of: dict[str, list[str]] = {"": []}
        for node in self.usable:
            owner = nodes[node].labels.get(OWNER_LABEL, "") if node in nodes else ""
            self._nodes_of.setdefault(owner, []).append(node)
        unusable = {slot.node: slot for slot in slots if not slot.usable}
        self._unusable = {node: unusable[node] for node in sorted(unusable)}
        self._has_owners = len(self._nodes_of) > 1
        self._room: dict[object, tuple[int, dict[str, int]]] = {}
        # Usable slots by owner, those beside what the claims want and beside their minimums, and priorities by user.
        self.owned = {owner: sum([self.usable[node] for node in nodes]) for owner, nodes in self._nodes_of.items()}
        self._wanted, self._least = Used(self.owned), Used(self.owned)
        self._weight = 0
        self._weight_of = Counter[str]()

    @property
    def gpu_type(self) -> str | None:
        """Model of its GPUs; "": unknown. None: they are CPUs."""
        return None if not self.slots or self.slots[0].device == CPU else self.slots[0].gpu_type

    def find_room(self, claim: Claim) -> int:
        """Return the most slots that a job could have if no other job had any."""
        job = claim.job
        if not claim.is_picky and job.gpu_type is None:
            return self.find_capacity(claim)
        owners = ("", job.owner) if self._has_owners and job.owner and job.owner in self._nodes_of else ("",)
        room = 0
        for owner in owners:
            total, on_node = self._list_rooms(claim, owner)
            room += total
            if total and job.refusals:
                room -= sum([on_node[node] for node in job.refusals if node in on_node])
        return room

    def find_room_of(self, claim: Claim, owner: str) -> int:
        """Return the room of a job on the nodes of an owner if no node had refused it. "": the nodes of all users."""
        return self._list_rooms(claim, owner)[0]

    def _list_rooms(self, claim: Claim, owner: str) -> tuple[int, dict[str, int]]:
        """Return this room, and how much of it is on each node."""
        key = (claim.job.gpu_type, *claim.needs[:2], owner)
        room = self._room.get(key)
        if room is None:
            on_node = self._count_room(claim.job, owner)
            room = self._room[key] = sum(on_node.values()), on_node
        return room

    def _count_room(self, job: JobDemand, owner: str) -> dict[str, int]:
        if self.gpu_type is None and (job.gpus_per_worker > 1 or job.gpu_type is not None):
            return {}
        if job.gpu_type is not None and not is_type(job.gpu_type, self.gpu_type or ""):
            return {}
        each = job.gpus_per_worker
        return {
            node: self.usable[node] // each * each
            for node in self._nodes_of[owner]
            if has_labels(self._nodes.get(node), job)
        }

    def has_of_others(self, job: JobDemand) -> bool:
        """Whether a job would have more room if no node belonged to another user."""
        if not self._has_owners or (job.gpu_type is not None and not is_type(job.gpu_type, self.gpu_type or "")):
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

    def find_capacity(self, claim: Claim) -> int:
        """Return how many slots belong to no other user than the owner of a claim."""
        return self.owned[""] + self.owned.get(claim.job.owner, 0)

    def find_share(self, claim: Claim) -> int:
        """Return how many of these slots a claim would have if all claims shared by priority."""
        user, priority = claim.job.owner, claim.job.priority
        share = self.owned[""] * priority / (self._weight + priority)
        if user in self.owned:
            share += self.owned[user] * priority / (self._weight_of[user] + priority)
        return int(share)

    def count_left(self, claim: Claim) -> int:
        """Return how many slots the claims on this kind leave to a claim."""
        return self._wanted.count_left(claim)

    def add(self, claim: Claim, *, is_fair: bool) -> None:
        """Assign a claim to this kind."""
        self.claims.append(claim)
        room = self.find_room(claim)
        # A claim that will wait leaves these slots to others.
        if room >= claim.lo and self.has_room_for(claim, is_fair=is_fair):
            self._wanted.add(claim, min(claim.hi, room, self.count_left(claim)))
            self._least.add(claim, claim.lo)
            self._weight += claim.job.priority
            self._weight_of[claim.job.owner] += claim.job.priority

    def has_room_for(self, claim: Claim, *, is_fair: bool) -> bool:
        """Whether the minimum of a claim fits beside the claims on this kind: if all share, beside their minimums."""
        return claim.lo <= (self._least if is_fair else self._wanted).count_left(claim)


def divide(snapshot: Snapshot, rules: Rules, chosen: Mapping[str, str] | None = None) -> list[SortedSnapshot]:
    """Return one sorted snapshot for each kind of machine. Every claim is limited to the slots that it could have.

    Args:
        snapshot: of the whole pool.
        rules: the policy and its settings.
        chosen: the kind of each job. None: choose them.
    """
    claims, queues = sort_jobs(snapshot, rules)
    by_user = is_by_user(snapshot, rules)
    levels = find_levels(snapshot, queues, rules) if by_user else {}
    nodes = {node.name: node for node in snapshot.nodes}
    inside: dict[tuple[str, str, bool], list[Slot]] = {}
    by_kind: dict[str, list[Slot]] = {}
    alike: list[Slot] = []
    before: Slot | None = None
    # Which of its slots a job leaves must not depend on the order in which they came.
    for slot in sorted(snapshot.slots, key=operator.attrgetter("id")):
        # Mostly, the slots of a node follow one another.
        if (
            before is None
            or slot.node != before.node
            or slot.gpu_type != before.gpu_type
            or slot.device != before.device
        ):
            key = (slot.node, slot.gpu_type, slot.device == CPU)
            known = inside.get(key)
            if known is None:
                known = inside[key] = by_kind.setdefault(kind_of(nodes.get(slot.node), slot), [])
            alike, before = known, slot
        alike.append(slot)
    kinds = {name: _Kind(name, by_kind[name], nodes) for name in sorted(by_kind)} or {"": _Kind("", (), nodes)}
    note_needs(claims, snapshot.nodes)
    if len(kinds) == 1:
        held = None
        next(iter(kinds.values())).claims = claims
    else:
        held = _Held(kinds)
        _assign(claims, kinds, held, chosen, is_fair=rules.policy.is_fair)
    pools = []
    for kind in kinds.values():
        if any(claim.owners for claim in kind.claims):
            # Machines of this kind that can be used may belong to fewer users.
            note_needs(kind.claims, (nodes[name] for name in kind.usable if name in nodes))
        pool = deal_slots(kind.slots, kind.claims, queues, snapshot.now, nodes)
        pool.kind = kind.name
        pool.by_user, pool.levels = by_user, levels
        pool.usable, pool.owned = kind.usable, kind.owned
        if held is not None:
            pool.others = _explain_others(kind, kinds.values(), nodes)
            _find_strayed(kind, held)
        _limit(pool, kind, list(kinds.values()))
        pool.node_sets = NodeSets(sorted(pool.usable) if pool.rooms else ())
        pools.append(pool)
    if len(pools) > 1:
        _divide_queues(pools, queues)
    return pools


def find_idle(pools: Sequence[SortedSnapshot]) -> dict[str, str]:
    """Return the jobs that wait for slots of one kind, each with another kind whose idle slots it could use.

    Kinds are chosen before slots are divided. So a job may have to wait for the share of its user on its kind, or until
    another minimum leaves room, while no job uses some slots of another kind. Jobs of queues with a ceiling stay: the
    ceiling is divided by the jobs on each kind, so another kind for one of them could make others pause.

    Args:
        pools: decided ones, of all kinds.
    """
    names = {pool.kind for pool in pools}
    waiting = [
        (claim, pool.kind)
        for pool in pools
        for claim in pool.claims
        if not (claim.target or claim.had or claim.leaving)
        and claim.job.machine_kind not in names
        and pool.queues[claim.job.queue].ceiling is None
    ]
    idle = [kind for pool in pools if (kind := _find_idle_slots(pool)).slots] if waiting else []
    if not idle:
        return {}
    waiting.sort(key=lambda item: item[0].order)
    found = {}
    for claim, own in waiting:
        others = [kind for kind in idle if kind.name != own]
        chosen = _choose(claim, others, is_fair=False) if others else None
        if chosen and claim.lo <= chosen.find_room(claim) and chosen.has_room_for(claim, is_fair=False):
            chosen.add(claim, is_fair=False)
            found[claim.job.id] = chosen.name
    return found


def _find_idle_slots(pool: SortedSnapshot) -> _Kind:
    """Return the free slots that no job gets now or later."""
    left = pool.capacity - sum([claim.target for claim in pool.claims])
    taken = {slot.id for claim in pool.claims for slot in claim.slots}
    free = [slot for slot in pool.free if slot.id not in taken]
    return _Kind(pool.kind, free[:left], pool.nodes)


class _Held:
    """Numbers of slots of each job by kind, without zeros.

    Attributes:
        usable: usable ones that it was not asked to give back.
        unusable: the same, of those that it cannot use.
        leaving: those that it was asked to give back.
    """

    def __init__(self, kinds: Mapping[str, _Kind]) -> None:
        self.usable: dict[str, dict[str, int]] = {}
        self.unusable: dict[str, dict[str, int]] = {}
        self.leaving: dict[str, dict[str, int]] = {}
        for name, kind in kinds.items():
            odd = [slot for slot in kind.slots if slot.leaving or not slot.usable]
            plain = [slot for slot in kind.slots if slot.usable and not slot.leaving] if odd else kind.slots
            _count(self.usable, name, plain)
            _count(self.unusable, name, [slot for slot in odd if not slot.leaving])
            _count(self.leaving, name, [slot for slot in odd if slot.leaving])

    def find_strayed(self, job: str, kind: str) -> int:
        """Return how many slots a job has on other kinds than its own, without those that it was asked to give back."""
        usable, unusable = self.usable.get(job, {}), self.unusable.get(job, {})
        return sum([number for found in (usable, unusable) for name, number in found.items() if name != kind])


def _count(numbers: dict[str, dict[str, int]], kind: str, slots: Iterable[Slot]) -> None:
    for holder, number in Counter([slot.holder for slot in slots]).items():
        if holder is not None:
            numbers.setdefault(holder, {})[kind] = number


def _find_strayed(kind: _Kind, held: _Held) -> None:
    """Count the slots that jobs have on another kind than their own. They are given back."""
    for claim in kind.claims:
        job = claim.job.id
        if job in held.unusable or len(held.usable.get(job, ())) > 1:
            strayed = held.find_strayed(job, kind.name)
            claim.strayed += strayed
            claim.lost += strayed


def _assign(
    claims: Sequence[Claim], kinds: Mapping[str, _Kind], held: _Held, chosen: Mapping[str, str] | None, *, is_fair: bool
) -> None:
    """Assign every claim to a kind: to ``chosen``, or those that can use one only first, the others by precedence."""
    if chosen is not None:
        for claim in claims:
            kinds[chosen[claim.job.id]].claims.append(claim)
        return
    bound = {claim.job.id: kinds[name] for claim in claims if (name := _find_only(claim, kinds, held)) is not None}
    if is_fair:
        for claim in claims:
            if claim.job.id in bound:
                bound[claim.job.id].add(claim, is_fair=is_fair)
    for claim in claims:
        if claim.job.id not in bound:
            _choose(claim, kinds.values(), is_fair=is_fair).add(claim, is_fair=is_fair)
        elif not is_fair:
            # Later jobs get what earlier ones leave.
            bound[claim.job.id].add(claim, is_fair=is_fair)
    for kind in kinds.values():
        kind.claims.sort(key=operator.attrgetter("order"))


def _find_only(claim: Claim, kinds: Mapping[str, _Kind], held: _Held) -> str | None:
    """Return the kind that a claim has slots of, or began on, or that alone has what it asks for, if any."""
    before = claim.job.machine_kind
    if has := held.usable.get(claim.job.id) or held.leaving.get(claim.job.id):
        return _find_most(has, before)
    if before is not None and before in kinds:
        return before
    if not claim.is_picky and claim.job.gpu_type is None:
        return None
    fitting = [name for name, kind in kinds.items() if kind.find_room(claim) >= claim.lo]
    return fitting[0] if len(fitting) == 1 else None


def _find_most(has: Mapping[str, int], before: str | None) -> str:
    return max(has, key=lambda name: (has[name], name == before, name)) if len(has) > 1 else next(iter(has))


def _choose(claim: Claim, kinds: Iterable[_Kind], *, is_fair: bool) -> _Kind:
    """Choose the kind on which a claim would have the most slots; of equal ones, the smallest that fits."""
    ranks = []
    for kind in kinds:
        room, left = kind.find_room(claim), kind.count_left(claim)
        if is_fair:
            share = kind.find_share(claim)
            left = share if share > left else left
        share = 0 if left <= 0 else min(room, left, claim.hi)
        is_small, fits = room < claim.lo, kind.has_room_for(claim, is_fair=is_fair)
        ranks.append((is_small, not fits, -share, -room if is_small else 0, kind.find_capacity(claim), kind.name, kind))
    return min(ranks)[-1]


def _limit(pool: SortedSnapshot, kind: _Kind, kinds: Sequence[_Kind]) -> None:
    """Limit every claim to the slots that it could have if no other job had any."""
    for claim in pool.claims:
        job = claim.job
        if claim.is_picky or job.gpu_type is not None:
            room = kind.find_room(claim)
            if claim.is_picky and room:  # without room it competes for nothing, as if its GPU type is missing
                _note_room(pool, claim, kind, room)
            room = max(room, claim.held)
            if room < claim.hi:
                claim.hi = fit_size(job, room)
                claim.limit = _explain_room(claim, kind, kinds)


def _note_room(pool: SortedSnapshot, claim: Claim, kind: _Kind, room: int) -> None:
    """Note the room of a claim's needs, and that of users without machines, with which it shares."""
    needs = claim.needs
    if needs not in pool.rooms:
        pool.rooms[needs] = room
        if needs[3] and not needs[2]:
            pool.rooms.setdefault((*needs[:3], ""), kind.find_room_of(claim, ""))


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
    room = kind.find_room(claim)
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
    weights, wanted = [], []
    for pool in pools:
        weights.append(dict.fromkeys(queues, 0))
        wanted.append(dict.fromkeys(queues, 0))
        for claim in pool.claims:
            weights[-1][claim.job.queue] += claim.job.priority
            wanted[-1][claim.job.queue] += claim.hi
        pool.queues = dict(queues)
        pool.elsewhere = {}
    for name, queue in queues.items():
        if not queue.floor and queue.ceiling is None:
            continue
        bounds = [
            Bounds(weight[name] or 1, 0, min(number[name], pool.capacity))
            for pool, weight, number in zip(pools, weights, wanted, strict=True)
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
