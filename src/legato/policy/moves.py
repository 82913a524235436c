"""Plans the slots of jobs that not every slot suits, and which slots other jobs leave for them. Changes no claim.

Every job keeps slots that it has, as far as that is possible. If a job with labels, refusals or several GPUs per worker
then cannot have its target, other jobs leave slots that it can use: first jobs that shrink anyway, which give up these
slots and keep others; then elastic jobs that can use slots which remain. A static job leaves none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from legato.policy.claims import Claim, Needs, SortedSnapshot, Worker
from legato.policy.free_slots import FreeSlots, has_labels
from legato.policy.snapshot import OWNER_LABEL, Slot

_LEVELS: Final = ((1, True), (1, False), (2, False), (4, False), (16, False))
"""Searches, one after the other: how many jobs move at most for one worker, and whether only shrinking jobs do."""


class Plan:
    """The slots that the jobs would have in the end, by worker.

    Attributes:
        wanting: claims that not every slot suits and that want more slots than they hold, the most difficult first.
        left: the slots that remain for the other claims.
        owners: the claims that get slots which they do not hold, by slot; empty if no other job holds a slot that these
            claims need, and no static job starts.
    """

    def __init__(self, pool: SortedSnapshot) -> None:
        self.wanting = sort_by_difficulty(
            claim for claim in pool.claims if claim.target > claim.held and claim.is_picky
        )
        self.owners: dict[str, Claim] = {}
        self._pool = pool
        self._workers: dict[str, list[Worker]] = {}
        self._moved: dict[str, Claim] = {}
        self.left = FreeSlots(())
        if self.wanting or any(each > 1 for each, _, _, _ in pool.rooms):
            self._plan()

    def list_short(self) -> list[Claim]:
        """Return the claims whose targets cannot be placed."""
        return [claim for claim in self.wanting if self.count_slots(claim) < claim.target]

    def count_slots(self, claim: Claim) -> int:
        """Return how many slots a claim would have in the end."""
        return len(self.find_workers(claim)) * claim.job.gpus_per_worker

    def find_slots(self, claim: Claim) -> list[Slot]:
        """Return the slots that a claim would have in the end."""
        return [slot for worker in self.find_workers(claim) for slot in worker]

    def find_workers(self, claim: Claim) -> Sequence[Worker]:
        """Return the slots of each worker that a claim would have in the end."""
        workers = self._workers.get(claim.job.id)
        return claim.list_workers() if workers is None else workers

    def count_left_to(self, claim: Claim, gainers: Collection[str]) -> int:
        """Return how many of its slots a claim leaves to some others. ``gainers``: ids of their jobs."""
        if claim.job.id not in self._workers or not self.owners:
            return 0
        owners = (self.owners.get(slot.id) for slot in claim.slots)
        return sum(owner is not None and owner is not claim and owner.job.id in gainers for owner in owners)

    def _plan(self) -> None:
        pool = self._pool
        left = [*pool.free, *pool.coming]
        num_idle = len(left)
        for claim in pool.claims:
            if claim.target < claim.held:
                kept = self._workers[claim.job.id] = keep_workers(claim, claim.target)
                ids = {slot.id for worker in kept for slot in worker}
                left += (slot for slot in claim.slots if slot.id not in ids)
        self.left = FreeSlots(left, pool.nodes)
        given_up = {slot.id for slot in left[num_idle:]}
        short = []
        for claim in self.wanting:
            taken = self.left.take(claim.target - claim.held, claim.slots, claim.job)
            self._workers[claim.job.id] = [*claim.list_workers(), *split(taken, claim.job.gpus_per_worker)]
            if claim.held + len(taken) < claim.target:
                short.append(claim)
        if short and not self.left.is_empty:
            self._make_room(short)
        is_given = given_up and any(slot.id in given_up for claim in self.wanting for slot in self.find_slots(claim))
        starts_static = any(claim.target > claim.held and not claim.job.elastic for claim in pool.claims)
        if self._moved or is_given or starts_static:
            self._find_owners()

    def _make_room(self, short: Sequence[Claim]) -> None:
        search = _Search(self._pool, self.left, self._workers)
        for claim in short:
            while len(self._workers[claim.job.id]) * claim.job.gpus_per_worker < claim.target:
                if not search.make_room(claim):
                    break
        self._moved = search.moved
        for claim in self._moved.values():
            self._stay(claim)

    def _stay(self, claim: Claim) -> None:
        """Let a claim keep slots of its own that remain after all, instead of others."""
        workers, held = self._workers[claim.job.id], {slot.id for slot in claim.slots}
        for own in claim.list_workers():
            new = next((worker for worker in workers if worker[0].id not in held), None)
            if new is None:
                break
            if self.left.has(own):
                self.left.remove(own)
                self.left.give(new)
                workers[workers.index(new)] = own

    def _find_owners(self) -> None:
        for claim in (*self.wanting, *self._moved.values()):
            held = {slot.id for slot in claim.slots}
            for slot in self.find_slots(claim):
                if slot.id not in held:
                    self.owners[slot.id] = claim


def sort_by_difficulty(claims: Iterable[Claim]) -> list[Claim]:
    """Sort claims for placement: first those that fit on the fewest nodes, then in order of precedence."""
    return sorted(
        claims,
        key=lambda claim: (
            -claim.job.gpus_per_worker,
            -len(claim.job.labels),
            ("", claim.job.owner, None).index(claim.needs[3]),
            -len(claim.job.refusals),
        ),
    )


def keep_workers(claim: Claim, num_slots: int, rank: Callable[[Worker], int] = lambda _: 0) -> list[Worker]:
    """Choose the workers to keep: first on nodes where the job has most, so that its workers stay together.

    Args:
        claim: with its slots.
        num_slots: of the workers to keep.
        rank: comes before that; workers with a smaller number are kept first.
    """
    num_on_node = Counter(slot.node for slot in claim.slots)
    workers = claim.list_workers()
    workers.sort(
        key=lambda slots: (rank(slots), -num_on_node[slots[0].node], slots[0].node, min(slot.id for slot in slots))
    )
    return workers[: num_slots // claim.job.gpus_per_worker]


def split(slots: Sequence[Slot], each: int) -> list[Worker]:
    """Divide slots into workers of so many slots that follow one another."""
    return [tuple(slots[first : first + each]) for first in range(0, len(slots), each)]


class _Search:
    """Finds room for workers by moving others. What failed once at one level fails later too, so it is not repeated."""

    def __init__(self, pool: SortedSnapshot, left: FreeSlots, workers: dict[str, list[Worker]]) -> None:
        self.moved: dict[str, Claim] = {}
        self._pool = pool
        self._left = left
        self._workers = workers
        self._rank = {claim.job.id: index for index, claim in enumerate(pool.claims)}
        self._held: dict[str, set[str]] = {}
        # The claims that have, or would have, workers on each node.
        self._claims_on: dict[str, list[Claim]] = {slot.node: [] for slot in (*pool.free, *pool.coming)}
        for claim in pool.claims:
            for node in dict.fromkeys(self._list_nodes(claim)):
                self._claims_on.setdefault(node, []).append(claim)
        self._by_owner: dict[str, list[str]] = {}
        for node in self._claims_on:
            known = pool.nodes.get(node)
            owner = "" if known is None else known.labels.get(OWNER_LABEL, "")
            self._by_owner.setdefault(owner, []).append(node)
        # Only of the nodes that were looked at: a pool may have hundreds of nodes and thousands of workers.
        self._on_node: dict[str, dict[str, list[Worker]]] = {}
        self._usable: dict[tuple[tuple[tuple[str, str], ...], str | None], list[str]] = {}
        self._few_usable: dict[str, list[str]] = {}
        self._level: dict[Needs, int] = {}
        self._cut_off: set[str] = set()
        self._tried_nodes: dict[tuple[int, int, str], int] = {}
        self._tried_needs: dict[tuple[int, Needs], int] = {}
        self._clearing: set[str] = set()
        self._log: list[tuple[str, Claim | None, Worker, Worker]] = []

    def make_room(self, claim: Claim) -> bool:
        """Find one more worker for a claim; return whether there is one."""
        needs = claim.needs
        first = self._level.get(needs, -1)
        for level in range(max(first, 0), len(_LEVELS)):
            # Searches that find nothing take long.
            if level > first and not self._can_reach_left(claim):
                break
            self._level[needs] = level
            self._log.clear()
            worker = None if self._left.is_empty else self._find(claim, claim, level, _LEVELS[level][0])
            if worker is not None:
                self._list_on(worker[0].node).setdefault(claim.job.id, []).append(worker)
                self._workers_of(claim).append(worker)
                self.moved.update((mover.job.id, mover) for _, mover, _, _ in self._log if mover is not None)
                return True
        self._level[needs] = len(_LEVELS)
        return False

    def _list_nodes(self, claim: Claim) -> list[str]:
        """Return the node of each planned worker of a claim, or of each of its slots."""
        planned = self._workers.get(claim.job.id)
        return [slot.node for slot in (claim.slots if planned is None else [worker[0] for worker in planned])]

    def _find(self, claim: Claim, root: Claim, level: int, depth: int) -> Worker | None:
        """Return slots for one worker, which remain, or which others leave in at most so many moves in a row."""
        needs = claim.needs
        if self._tried_needs.get((level, needs), -1) >= depth:
            return None
        each = claim.job.gpus_per_worker
        beside = [slot for worker in self._workers_of(claim) for slot in worker]
        taken = tuple(self._left.take(each, beside, claim.job))
        if taken:
            self._log.append(("took", None, taken, ()))
            return taken
        if depth:
            for node in self._find_usable(claim):
                key = (level, each, node)
                if node in self._clearing or self._tried_nodes.get(key, -1) >= depth:
                    continue
                self._clearing.add(node)
                cleared = self._clear(node, claim, root, level, depth)
                self._clearing.remove(node)
                if cleared is not None:
                    return cleared
                self._tried_nodes[key] = depth
        self._tried_needs[level, needs] = depth
        return None

    def _can_reach_left(self, claim: Claim) -> bool:
        """Whether slots are left that a claim, or others which would move for it one after the other, could use."""
        if self._left.has_left(claim.job):
            return True
        nodes, seen, new = set[str](), {claim.needs}, [claim]
        while new:
            for node in self._find_usable(new.pop()):
                if node in nodes or node in self._cut_off:
                    continue
                nodes.add(node)
                for mover in self._find_claims_on(node):
                    if mover.needs not in seen and (mover.job.elastic or mover.target > mover.held):
                        if self._left.has_left(mover.job):
                            return True
                        seen.add(mover.needs)
                        new.append(mover)
        # No move can change that: no claim can leave these nodes, and none of them has free slots.
        self._cut_off |= nodes
        return False

    def _find_usable(self, claim: Claim) -> list[str]:
        """Return the nodes with workers on which a claim can run, by name."""
        refusals = claim.job.refusals
        if not refusals:
            return self._list_usable(claim, claim.needs[3])
        usable = self._few_usable.get(claim.job.id)
        if usable is None:
            usable = [node for node in self._list_usable(claim, claim.needs[3]) if node not in refusals]
            # Many jobs may have refusals of their own, so only short lists are kept.
            if len(usable) < len(refusals):
                self._few_usable[claim.job.id] = usable
        return usable

    def _list_usable(self, claim: Claim, owner: str | None) -> list[str]:
        """Return the nodes with a claim's labels that an owner may use, as in `Needs`."""
        key = claim.needs[1], owner
        usable = self._usable.get(key)
        if usable is None:
            some = self._claims_on if owner is None else self._by_owner.get(owner, ())
            usable = [node for node in some if has_labels(self._pool.nodes.get(node), claim.job)]
            if owner:
                usable += self._list_usable(claim, "")
            usable.sort()
            self._usable[key] = usable
        return usable

    def _clear(self, node: str, claim: Claim, root: Claim, level: int, depth: int) -> Worker | None:
        """Return slots of a node for one worker, after as many others have moved as necessary."""
        if not any(self._could_leave(mover, level, depth - 1) for mover in self._find_claims_on(node)):
            return None
        each, begun = claim.job.gpus_per_worker, len(self._log)
        found = tuple(self._left.take_on(node, each))
        self._log.append(("took", None, found, ()))
        inside = self._list_on(node)
        for name in sorted(inside, key=lambda name: -self._rank[name]):
            mover = self._pool.claims[self._rank[name]]
            for worker in tuple(inside.get(name, ())):
                if mover in (claim, root) or len(found) >= each or not self._may_move(mover, worker, level):
                    break
                new = self._find(mover, root, level, depth - 1)
                if new is None:
                    break
                self._move(mover, worker, new)
                self._log.append(("moved", mover, worker, new))
                found += worker
        if len(found) < each:
            self._undo(begun)
            return None
        if found[each:]:
            self._left.give(found[each:])
            self._log.append(("gave", None, found[each:], ()))
        return found[:each]

    def _could_leave(self, mover: Claim, level: int, depth: int) -> bool:
        """Whether a claim may leave a node, as far as that is known without a look at its workers there."""
        if _LEVELS[level][1] and mover.target == mover.held and mover.job.id not in self._workers:
            return False
        return self._tried_needs.get((level, mover.needs), -1) < depth

    def _may_move(self, mover: Claim, worker: Worker, level: int) -> bool:
        if mover.job.elastic and (mover.target < mover.held or not _LEVELS[level][1]):
            return True
        held = self._held.get(mover.job.id)
        if held is None:
            held = self._held[mover.job.id] = {slot.id for slot in mover.slots}
        return worker[0].id not in held

    def _move(self, mover: Claim, old: Worker, new: Worker) -> None:
        self._list_on(old[0].node)[mover.job.id].remove(old)
        self._list_on(new[0].node).setdefault(mover.job.id, []).append(new)
        workers = self._workers_of(mover)
        workers[workers.index(old)] = new

    def _workers_of(self, claim: Claim) -> list[Worker]:
        """Return the workers that a claim would have, as they are planned so far."""
        workers = self._workers.get(claim.job.id)
        if workers is None:
            workers = self._workers[claim.job.id] = claim.list_workers()
        return workers

    def _list_on(self, node: str) -> dict[str, list[Worker]]:
        """Return the planned workers on a node, by job. Call this before the workers of one of its jobs change."""
        inside = self._on_node.get(node)
        if inside is None:
            inside = self._on_node[node] = {}
            for claim in self._claims_on.get(node, ()):
                inside[claim.job.id] = [worker for worker in self._workers_of(claim) if worker[0].node == node]
        return inside

    def _find_claims_on(self, node: str) -> list[Claim]:
        """Return the claims with planned workers on a node."""
        inside = self._on_node.get(node)
        if inside is None:
            return self._claims_on.get(node, [])
        return [self._pool.claims[self._rank[name]] for name, workers in inside.items() if workers]

    def _undo(self, begun: int) -> None:
        while len(self._log) > begun:
            what, mover, slots, new = self._log.pop()
            if what == "took":
                self._left.give(slots)
            elif what == "gave":
                self._left.remove(slots)
            elif mover is not None:
                self._move(mover, new, slots)
