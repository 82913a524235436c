"""Explains why a job has its number of slots: bounds, shares, and the order of jobs. Changes nothing."""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

import msgspec

from legato.policy.claim_sizes import weigh_step
from legato.policy.claims import Claim, Needs, SortedSnapshot, User
from legato.policy.curves import find_gain, is_measured
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, share_out
from legato.policy.sizes import fit_size, next_size
from legato.policy.snapshot import OWN_MACHINE, JobDemand, Slot
from legato.policy.users import group_by_queue

MAX_CAUSES: Final = 5
MAX_NODES_NAMED: Final = 3
_ALL: Final = "all that the pool has"
_WEIGHTS: Final = {1.0: "1", 0.5: "1/2", 0.25: "1/4"}


class Cause(msgspec.Struct, frozen=True, gc=False):
    """A part of a sentence, and the jobs that it names."""

    text: str
    because: tuple[str, ...] = ()


class Peers(msgspec.Struct, frozen=True, dict=True):
    """Jobs that share with one another.

    Args:
        claims: all of them, in order of precedence.
        hungry: claims that could use more slots.
        full: claims that could not, or whose minimum exceeds their share.
        least: the fewest slots per priority of those that could use more; a minimum above that exceeds a share.
        equal: whether the hungry ones have the same weight.
        has_long: whether one of the hungry ones is a later long job.
    """

    claims: list[Claim]
    hungry: list[Claim]
    full: list[Claim]
    least: float
    equal: bool
    has_long: bool

    @cached_property
    def last_winners(self) -> list[Claim]:
        """The two claims that gain least from their last step above their minimum, as far as there are two."""
        winners = [claim for claim in self.claims if claim.target > claim.lo and claim.trial is None]
        return heapq.nsmallest(2, winners, key=lambda claim: (weigh_step(claim, _size_before(claim)), claim.order))


class Sharers(msgspec.Struct, frozen=True):
    """The users of a queue that have slots of it.

    Args:
        users: all of them.
        hungry: those that have their share and could use more.
        full: the others.
        equal: whether recent use gives the hungry ones the same weight.
        sharing: the names of the hungry ones.
        named: the names of the users that reasons may name or whose jobs they list.
    """

    users: list[User]
    hungry: list[User]
    full: list[User]
    equal: bool
    sharing: set[str]
    named: set[str]


class UserCause(msgspec.Struct, frozen=True, gc=False):
    """Why a user has its slots.

    Args:
        jobs: what its jobs have.
        job: the same if it has one job.
        beside: further words: whom it shares with, or what else it has.
        because: the jobs that are named.
    """

    jobs: str
    job: str
    beside: str
    because: tuple[str, ...]

    def tell(self, among: str = "", *, lone: bool = False) -> str:
        """Return a part of a sentence about the user, or about its one job. ``among``: of what."""
        return f"{self.job if lone else self.jobs}{among}{self.beside}"


class Causes:
    """The circumstances of one decision.

    Args:
        pool: with targets and sizes set.
        rules: by which they were set.
    """

    def __init__(self, pool: SortedSnapshot, rules: Rules) -> None:
        self._pool = pool
        self._all = _ALL if not pool.others else "all that its kind of machine has"
        self.policy = rules.policy
        self._is_fair = rules.policy.is_fair
        self.admitted = [claim for claim in pool.claims if claim.refusal is None]
        self._inside: dict[str, list[Claim]] = {}
        for claim in self.admitted:
            self._inside.setdefault(claim.job.queue, []).append(claim)
        inside: dict[str | int, list[Claim]] = {}
        # Priorities of jobs in several queues, which share by the weights of these.
        self._over_queues: set[str | int] = set()
        if self._is_fair:
            inside.update(self._inside)
        elif rules.policy is Policy.PRIORITY:
            for claim in self.admitted:
                inside.setdefault(claim.job.priority, []).append(claim)
            self._over_queues = {key for key, claims in inside.items() if len({each.job.queue for each in claims}) > 1}
        self._peers = {
            name: _make_peers(claims, is_one_queue=name not in self._over_queues) for name, claims in inside.items()
        }
        users = group_by_queue({key: user for key, user in pool.users.items() if user.admitted})
        self._sharers = {queue: _find_sharers(inside) for queue, inside in users.items()}
        self._peers_of_user: dict[tuple[str, str], Peers] = {}
        self._user_causes: dict[tuple[str, str | None, float, bool, bool, int], UserCause] = {}
        # By queue; None: all.
        self._by_turn: dict[str | None, list[Claim]] = {}
        # Slots of the first claims together, by their number; only strict policies need it.
        self._sums = [] if self._is_fair else [0, *accumulate(claim.target for claim in self.admitted)]
        self._place = {} if self._is_fair else {claim.job.id: place for place, claim in enumerate(self.admitted)}
        # Places of the claims of queues with floors, and how many slots the first of them have together.
        self._with_floors: dict[str, tuple[list[int], list[int]]] = {}
        if not self._is_fair:
            for name, held in self._inside.items():
                if pool.queues[name].floor:
                    places = [self._place[claim.job.id] for claim in held]
                    self._with_floors[name] = places, [0, *accumulate(claim.target for claim in held)]
        queues = self._queues = {name: sum([claim.target for claim in held]) for name, held in self._inside.items()}
        self._unused = pool.capacity - sum(queues.values())
        self._ceilings: dict[str, int | None] = {}
        self._behind: dict[tuple[str, int], bool] = {}
        self._shared_causes: dict[tuple[str, str, str], Cause] = {}
        self._queue_names = sorted(queues)[:2]
        self._among = dict.fromkeys(queues, "")
        if len(queues) > 1:
            self._among = {name: f" of the {count(number)} of queue '{name}'" for name, number in queues.items()}

    def explain_number(self, claim: Claim) -> Cause:
        """Explain why the target of a job that has its minimum is not higher."""
        job = claim.job
        each = job.gpus_per_worker
        num_workers = claim.target // each
        if claim.tries_with is not None:
            return explain_trial(claim, claim.tries_with)
        if num_workers in (job.max_workers, job.num_micro_batches):
            return Cause(_explain_most(job, num_workers))
        if claim.limit and claim.target == claim.hi:
            return Cause(claim.limit_in_full, claim.limit_because)
        slowdown = job.slowdown
        if slowdown is not None and claim.target == claim.hi and num_workers <= slowdown.most < job.max_workers:
            was = "earlier runs of its code were" if slowdown.slower in job.earlier else "it was"
            is_mixed = slowdown.slower in job.earlier and slowdown.best not in job.earlier
            best = f"it is with {slowdown.best}" if is_mixed else f"with {slowdown.best}"
            return Cause(f"{was} slower with {slowdown.slower} workers than {best}")
        if claim.target == claim.hi or claim.share >= claim.target + each:
            return _explain_useless(claim)
        cause = self._explain_share(claim)
        return Cause(f"{cause.text}; {self._pool.others}", cause.because) if self._pool.others else cause

    def _explain_share(self, claim: Claim) -> Cause:
        ceiling = self.find_ceiling(claim)
        if ceiling is not None:
            return self._explain_ceiling(claim, ceiling)
        return self._explain_fair(claim) if self._is_fair else self._explain_strict(claim)

    def find_ceiling(self, claim: Claim) -> int | None:
        """Return the ceiling of a job's queue if the job would get more slots with a higher ceiling."""
        if self._pool.queues[claim.job.queue].ceiling is None:
            return None
        known = self._ceilings.get(claim.job.id, -1)
        if known == -1:
            known = self._ceilings[claim.job.id] = self._find_ceiling(claim)
        return known

    def _find_ceiling(self, claim: Claim) -> int | None:
        queue = claim.job.queue
        ceiling = self._pool.queues[queue].ceiling
        if ceiling is None or claim.refusal is not None:
            return ceiling if claim.refusal is not None and claim.refusal.why == "ceiling" else None
        larger = next_size(claim.job, claim.target)
        if larger is None or self._used(queue) + larger - claim.target <= ceiling:
            return None
        if self._unused >= larger - claim.target:
            return ceiling
        if not self._is_fair and self._count_behind(claim) >= larger - claim.target:
            return ceiling
        return ceiling if self.policy != Policy.FIFO and self._is_behind(claim) else None

    def is_within_floor(self, queue: str) -> bool:
        """Whether the jobs of a queue have no more slots than its floor."""
        return self._queues.get(queue, 0) <= self._pool.queues[queue].floor

    def _used(self, queue: str) -> int:
        """Slots of a queue that count towards its ceiling."""
        return self._queues[queue] + self._pool.elsewhere.get(queue, 0)

    def _is_behind(self, claim: Claim) -> bool:
        """Whether the queue would win its next slot from another queue, above that one's floor and minimums.

        If priorities decide, only jobs of the same priority count.
        """
        queue, inside = claim.job.queue, self._inside
        key = (queue, 0 if self._is_fair else claim.job.priority)
        known = self._behind.get(key)
        if known is None:
            if not self._is_fair:
                inside = {}
                for peer in self._peers[claim.job.priority].claims:
                    inside.setdefault(peer.job.queue, []).append(peer)
            numbers = {name: sum(each.target for each in claims) for name, claims in inside.items()}
            level = self._level(queue, numbers[queue] + 1)
            known = self._behind[key] = any(
                self._level(other, number) > level and number > self._firm(other, inside[other])
                for other, number in numbers.items()
            )
        return known

    def _firm(self, queue: str, inside: Sequence[Claim]) -> int:
        return max(self._pool.queues[queue].floor, sum(claim.lo for claim in inside))

    def _level(self, queue: str, number: int) -> float:
        return (number - 0.5) / self._pool.queues[queue].weight

    def _explain_ceiling(self, claim: Claim, ceiling: int) -> Cause:
        """Explain that the ceiling of the queue is the limit; jobs of other queues do not matter then."""
        queue, inside = claim.job.queue, self._inside[claim.job.queue]
        if self._shares_with_users(claim):
            return self._explain_user(claim, f" of the {count(ceiling)} that queue '{queue}' can have at most")
        if len(inside) == 1:
            return Cause(f"the ceiling of queue '{queue}', {count(ceiling)}")
        among = f" of the {count(ceiling)} that queue '{queue}' can have at most"
        if self._is_fair:
            return self._explain_peers(claim, self._peers[queue], among)
        order = "priority" if self.policy == Policy.PRIORITY else "submission"
        others = without(inside, claim)
        return Cause(f"its share by {order}{among}, shared with {names(others, len(inside) - 1)}", ids(others))

    def _explain_fair(self, claim: Claim) -> Cause:
        queue = claim.job.queue
        peers = self._peers[queue]
        num_others = len(self._queues) - 1
        if len(peers.claims) == 1:
            if not num_others:
                # With slots left, it is at a ceiling, and the next number of workers that helps does not fit.
                return _explain_useless(claim) if self._unused and claim.job.num_micro_batches else Cause(self._all)
            each, larger = claim.job.gpus_per_worker, next_size(claim.job, claim.target) or 0
            has_gap = larger > claim.target + each  # more workers help, but not one more
            if has_gap and claim.target < self._pool.queues[queue].floor < larger <= claim.hi:
                return _explain_useless(claim)
            other = self._queue_names[self._queue_names[0] == queue]
            beside = f"queue '{other}'" if num_others == 1 else f"{num_others} other queues"
            if self._has_less_than_share(queue):
                return Cause(f"the slots that the minimums of {beside} leave")
            return Cause(f"the fair share of queue '{queue}', next to {beside}")
        among = self._among[queue]
        if self._shares_with_users(claim):
            return self._explain_user(claim, among)
        return self._explain_peers(claim, peers, among)

    def _has_less_than_share(self, queue: str) -> bool:
        """Whether a queue has less than its share because the jobs of all others have just their minimums."""
        others = [claim for name, claims in self._inside.items() if name != queue for claim in claims]
        if self._unused or any(claim.target > claim.lo for claim in others):
            return False
        bounds = []
        for name, claims in self._inside.items():
            limits = self._pool.queues[name]
            most = min(sum(claim.hi for claim in claims), limits.ceiling or self._pool.capacity)
            bounds.append(Bounds(limits.weight, min(limits.floor, most), most))
        if sum(bound.lo for bound in bounds) > self._pool.capacity:
            return False
        share = dict(zip(self._inside, share_out(self._pool.capacity, bounds), strict=True))[queue]
        return share >= self._queues[queue] + 1

    def _explain_peers(self, claim: Claim, peers: Peers, among: str) -> Cause:
        """Explain how a job that could use more slots shares with others.

        Args:
            claim: the job.
            peers: the job and the others.
            among: of what.
        """
        if claim.target == claim.lo > 1 and (claim.share == claim.lo or _exceeds_share(claim, peers.least)):
            others = without(peers.claims, claim)
            return Cause(f"its minimum{among}, next to {names(others, len(peers.claims) - 1)}", ids(others))
        if claim.comes_after is not None:
            return Cause(f"it is a long job that comes after {claim.comes_after.job.title}", ids([claim.comes_after]))
        if claim.ratio is not None:
            rival = next((winner for winner in peers.last_winners if winner is not claim), None)
            if rival is not None and (told := _compare_gains(claim, rival)) is not None:
                return Cause(told, ids([rival]))
            kind = "a share by speed"
        else:
            kind = _name_share(claim, peers)
            if self._over_queues and claim.job.priority in self._over_queues:
                kind = "a share by the weights of their queues"
        if claim in peers.hungry[: MAX_CAUSES + 1]:
            return _share_with(claim, peers, kind, among)
        # All these jobs share with the same jobs, so one Cause serves all of them: a pool may have thousands of jobs.
        key = (peers.claims[0].job.id, kind, among)
        cause = self._shared_causes.get(key)
        if cause is None:
            cause = self._shared_causes[key] = _share_with(claim, peers, kind, among)
        return cause

    def _shares_with_users(self, claim: Claim) -> bool:
        """Whether other users have slots of a job's queue, and users share before jobs do."""
        sharers = self._sharers.get(claim.job.queue)
        return sharers is not None and len(sharers.users) > 1

    def _explain_user(self, claim: Claim, among: str) -> Cause:
        """Explain how a job shares with the others of its user, and its user with other users of the queue."""
        user = self._pool.users[claim.job.queue, claim.job.owner]
        part = self._share_of_user(user)
        if len(user.admitted) == 1:
            if claim.target == claim.lo > 1 and claim.share == claim.lo:
                users = self._sharers[user.queue].users
                others = _name_users(_without_user(users, user), len(users) - 1)
                return Cause(f"its minimum{among}, next to {others}", part.because)
            return Cause(part.tell(among, lone=True), part.because)
        key = (user.queue, user.name)
        peers = self._peers_of_user.get(key)
        if peers is None:
            peers = self._peers_of_user[key] = _make_peers(user.admitted)
        cause = self._explain_peers(claim, peers, "")
        told = f"{cause.text}; user {user.name} has {count(user.total)}{among}, {part.tell()}"
        because = dict.fromkeys((*cause.because, *part.because))
        return Cause(told, tuple(because)[:MAX_CAUSES])

    def explain_full_user(self, claim: Claim) -> Cause:
        """Explain that a job has to wait because its user has its share of the queue."""
        user = self._pool.users[claim.job.queue, claim.job.owner]
        has = f"user {user.name} has {count(user.total)}"
        has += f" of queue '{user.queue}'" if len(self._queues) > 1 else ""
        if not self._shares_with_users(claim):
            assert claim.refusal is not None
            left = claim.refusal.left
            return Cause(f"{has}, and {left or 'no'} more {'is' if left == 1 else 'are'} left", ids(user.admitted))
        part = self._share_of_user(user)
        return Cause(f"{has}, {part.tell()}", part.because or ids(user.admitted))

    def _share_of_user(self, user: User) -> UserCause:
        """Name the users with whom a user shares the slots of a queue, and those who leave it slots."""
        sharers = self._sharers[user.queue]
        is_sharing = user.name in sharers.sharing
        more = user.total - (user.granted if is_sharing else user.taken)
        # The same holds for all users whom no reason names: a queue may have hundreds of users.
        name = user.name if user.name in sharers.named else None
        key = (user.queue, name, user.weight, is_sharing, user.granted > 0, more)
        known = self._user_causes.get(key)
        if known is None:
            known = self._user_causes[key] = _explain_share_of_user(user, sharers)
        return known

    def _explain_strict(self, claim: Claim) -> Cause:
        before = self.before(claim)
        first = self._place[claim.job.id]
        peers = [claim]
        sharing, because = "", ids(before)
        if self.policy == Policy.PRIORITY:
            known = self._peers[claim.job.priority]
            peers = known.claims
            first = self._place[peers[0].job.id]
            if len(peers) > 1:
                cause = self._explain_peers(claim, known, "")
                sharing, because = cause.text, (*because, *cause.because)[:MAX_CAUSES]
        floors = ""
        if self._count_left(first + len(peers)) >= claim.job.gpus_per_worker:
            queue = self._pool.queues[claim.job.queue]
            if any(name != queue.name for name in self._with_floors):
                floors = "the floors of other queues"
            elif queue.ceiling is not None:
                return self._explain_ceiling(claim, queue.ceiling)
        if not first:
            if not sharing:
                return Cause(f"the slots left by {floors}" if floors else self._all, because)
            return Cause(f"{sharing} of the slots left by {floors}" if floors else sharing, because)
        told = names(before, first)
        if self.policy == Policy.PRIORITY:
            told = f"the slots left by {told}, which {'has' if first == 1 else 'have'} a higher priority"
        else:
            told = f"the slots left by {told}, which {'was' if first == 1 else 'were'} submitted earlier"
        told += f", and by {floors}" if floors else ""
        return Cause(f"{told}; {sharing}" if sharing else told, because)

    def _count_left(self, end: int) -> int:
        """Count the slots of the pool that the first admitted claims do not have."""
        return self._pool.capacity - self._sums[end]

    def _count_behind(self, claim: Claim) -> int:
        """Count the slots behind a claim and its equals that no floor of another queue keeps."""
        end = self._place[claim.job.id] + 1
        if self.policy == Policy.PRIORITY:
            end = self._place[self._peers[claim.job.priority].claims[-1].job.id] + 1
        kept = 0
        for name, (places, sums) in self._with_floors.items():
            if name != claim.job.queue:
                before = sums[bisect_left(places, end)]
                kept += max(min(self._pool.queues[name].floor, sums[-1]) - before, 0)
        return self._count_left(end) - kept

    def before(self, claim: Claim) -> Sequence[Claim]:
        """Return some of the jobs that precede a job, or that precede all jobs of its priority."""
        if self.policy == Policy.PRIORITY:
            peers = self._peers.get(claim.job.priority)
            if peers is None:
                return self.admitted[:MAX_CAUSES]
            return self.admitted[: min(self._place[peers.claims[0].job.id], MAX_CAUSES)]
        return self.admitted[: min(self._place.get(claim.job.id, MAX_CAUSES), MAX_CAUSES)]

    def rivals(self, claim: Claim) -> tuple[list[Claim], int]:
        """Return some of the admitted jobs that kept a job from being admitted, and their total number.

        These are the jobs that got their minimums before it.
        """
        assert claim.refusal is not None
        scope = claim.job.queue if claim.refusal.why == "queue" else None
        held = self._by_turn.get(scope)
        if held is None:
            some = self.admitted if scope is None else self._inside.get(scope, [])
            held = self._by_turn[scope] = sorted(some, key=operator.attrgetter("turn"))
        number = bisect_left(held, claim.turn, key=operator.attrgetter("turn"))
        return held[: min(number, MAX_CAUSES)], number


def _find_sharers(users: list[User]) -> Sharers:
    """Divide the users of a queue into those that have their share and could use more, and others."""
    hungry = [user for user in users if user.granted < user.most or user.entitled <= user.granted < user.wanted]
    least = min([user.granted / user.weight for user in hungry], default=0.0)
    # A user whose minimums exceed its share gets no more than those, and shares with none.
    hungry = [user for user in hungry if user.granted > user.taken or (user.granted - 1) / user.weight < least]
    sharing = {user.name for user in hungry}
    full = [user for user in users if user.name not in sharing]
    named = {user.name for some in (users, hungry) for user in some[: MAX_CAUSES + 1]}
    return Sharers(users, hungry, full, len({user.weight for user in hungry}) <= 1, sharing, named)


def _explain_share_of_user(user: User, sharers: Sharers) -> UserCause:
    """Explain the slots of a user by those of the other users of its queue, which all have some."""
    if user.name not in sharers.sharing:
        more = _count_more(user.total - user.taken)
        others = _without_user(sharers.users, user)
        beside = f", next to {_name_users(others, len(sharers.users) - 1)}"
        left = f" and {more}" if more else ""
        return UserCause(f"as many as the minimums of its jobs{left}", f"its minimum{left}", beside, _ids_of(others))
    if not user.granted:
        others = _without_user(sharers.users, user)
        told = f"left over by {_name_users(others, len(sharers.users) - 1)}"
        return UserCause(told, told, "", _ids_of(others))
    rivals, full = _without_user(sharers.hungry, user), sharers.full
    leave = "leaves" if len(full) == 1 else "leave"
    left = f"the slots that {_name_users(full, len(full))} {leave}" if full else ""
    kind = "an equal share"
    if not sharers.equal:
        kind = f"a share by recent use (weight {_WEIGHTS[user.weight]})"
    told = f"{kind} with {_name_users(rivals, len(sharers.hungry) - 1)}" if rivals else left
    if rivals and left:
        told += f" of {left}"
    more = _count_more(user.total - user.granted)
    beside = f", and {more}" if rivals and more else ""
    return UserCause(told, told, beside, _ids_of([*rivals, *full[:MAX_CAUSES]]))


def _count_more(number: int) -> str:
    return f"{number} more that {'is' if number == 1 else 'are'} left over" if number > 0 else ""


def _without_user(users: Sequence[User], user: User) -> list[User]:
    """Return the first few others."""
    return [other for other in users[: MAX_CAUSES + 1] if other is not user][:MAX_CAUSES]


def _ids_of(users: Sequence[User]) -> tuple[str, ...]:
    """Return the ids of the first jobs of the first few users."""
    return ids([user.admitted[0] for user in users[:MAX_CAUSES]])


def _name_users(users: Sequence[User], number: int) -> str:
    """Name a user or two, and count the rest.

    Args:
        users: some of them, at least two if there are two.
        number: their total number.

    >>> _name_users([User(queue="q", name="ann", weight=1)], 3)
    'user ann and 2 other users'
    """
    if number == 1:
        return f"user {users[0].name}"
    if number == 2:
        return f"users {users[0].name} and {users[1].name}"
    return f"user {users[0].name} and {number - 1} other users"


def _make_peers(claims: list[Claim], *, is_one_queue: bool = True) -> Peers:
    hungry = [claim for claim in claims if claim.target < claim.hi]
    least = 0.0
    if claims and claims[0].ratio is None and is_one_queue:
        least = min([claim.target / claim.weight for claim in hungry], default=0.0)
        hungry = [claim for claim in hungry if not _exceeds_share(claim, least)]
    full = [claim for claim in claims if claim.target >= claim.hi or _exceeds_share(claim, least)]
    equal = len({claim.weight for claim in hungry}) <= 1
    has_long = any(claim.comes_after is not None for claim in hungry)
    return Peers(claims, hungry, full, least, equal, has_long)


def _exceeds_share(claim: Claim, least: float) -> bool:
    """Whether the minimum of a claim is more than its share, so it shares with none. ``least``: as in `Peers`."""
    return claim.target == claim.lo > 1 and 0 < least <= (claim.lo - 1) / claim.weight


def _explain_useless(claim: Claim) -> Cause:
    """Explain that the next workers would not make a step faster."""
    job, each = claim.job, claim.job.gpus_per_worker
    has = claim.target // each
    last = (next_size(job, claim.target) or job.max_slots + each) // each - 1
    more = f"{last}" if last == has + 1 else f"{has + 1} to {last}"
    return Cause(f"{more} workers would be no faster than {has} with its {job.num_micro_batches} micro-batches")


def _name_share(claim: Claim, peers: Peers) -> str:
    """Name the rule by which a job that is not a later long one shares with others."""
    if peers.equal:
        return "an equal share"
    if peers.has_long:
        return "a share by weight (later long jobs weigh less)"
    return f"a share by its priority {claim.job.priority}"


def _share_with(claim: Claim, peers: Peers, kind: str, among: str) -> Cause:
    hungry_peers, full = without(peers.hungry, claim), peers.full[:MAX_CAUSES]
    leave = "leaves" if len(peers.full) == 1 else "leave"
    left = f"the slots that {names(full, len(peers.full))} {leave}" if full else ""
    if not hungry_peers:
        return Cause(left + among, ids(full))
    told = f"{kind} with {names(hungry_peers, len(peers.hungry) - 1)}"
    return Cause(f"{told} of {left}{among}" if left else f"{told}{among}", ids([*hungry_peers, *full]))


def _size_before(claim: Claim) -> int:
    return fit_size(claim.job, claim.target - claim.job.gpus_per_worker)


def _compare_gains(claim: Claim, rival: Claim) -> str | None:
    """Compare what two claims gain from a step. None: the comparison does not explain their numbers of slots."""
    larger, before = next_size(claim.job, claim.target), _size_before(rival)
    assert larger is not None and claim.ratio is not None and rival.ratio is not None
    more = (larger - claim.target) // claim.job.gpus_per_worker
    last = (rival.target - before) // rival.job.gpus_per_worker
    if weigh_step(claim, claim.target) > weigh_step(rival, before):
        return None
    mine = find_gain(claim.job, claim.ratio, claim.target, larger)
    theirs = find_gain(rival.job, rival.ratio, before, rival.target)
    workers = "one more worker" if more == 1 else f"{more} more workers"
    priority = rival.job.priority
    weight = "" if priority == claim.job.priority else f", with its priority {priority},"
    return (
        f"{workers} would make it {_at_most(claim)}{_percent(mine)} % faster; {rival.job.title}{weight} gains "
        f"{_at_most(rival)}{_percent(theirs)} % from its last {'one' if last == 1 else last}"
    )


def _at_most(claim: Claim) -> str:
    """Return the words for a job whose speed was not measured: no job is faster than in proportion to its workers."""
    return "" if is_measured(claim.job) else "at most "


def _percent(gain: float) -> int:
    return round((gain - 1) * 100)


def without(claims: Sequence[Claim], claim: Claim) -> list[Claim]:
    """Return the first few others."""
    return [other for other in claims[: MAX_CAUSES + 1] if other is not claim][:MAX_CAUSES]


def _explain_most(job: JobDemand, num_workers: int) -> str:
    """Explain that a job has its maximum, or a worker for each micro-batch."""
    if num_workers == job.max_workers:
        return "its maximum" if job.elastic else "all that it needs"
    return explain_few_micro_batches(job)


def explain_trial(claim: Claim, other: Claim) -> Cause:
    """Explain that two jobs have other numbers of workers than their shares, to measure their speeds."""
    number, theirs = (one.target // one.job.gpus_per_worker for one in (claim, other))
    workers = f"{number} worker{'' if number == 1 else 's'}"
    return Cause(f"it tries {workers}, and {other.job.title} {theirs}, to measure their speeds", ids([other]))


def explain_few_micro_batches(job: JobDemand) -> str:
    """Explain that a step of a job has too few micro-batches for more workers."""
    total = job.num_micro_batches
    told = f"its step has only {total} micro-batch{'' if total == 1 else 'es'}"
    least = job.min_workers if job.elastic else job.max_workers
    return told if least <= (total or 0) else f"{told}, fewer than its minimum of {least} workers"


def count(number: int) -> str:
    """Write a number of slots.

    >>> count(1), count(2)
    ('1 slot', '2 slots')
    """
    return "1 slot" if number == 1 else f"{number} slots"


def names(claims: Sequence[Claim], number: int) -> str:
    """Name a job or two, and count the rest.

    Args:
        claims: some of them, at least two if there are two.
        number: their total number.
    """
    if number == 1:
        return claims[0].job.title
    if number == 2:
        return f"{claims[0].job.title} and {claims[1].job.title}"
    return f"{claims[0].job.title} and {number - 1} others"


def list_some(told: Sequence[str]) -> str:
    """List the first few of some nodes, and count the rest.

    >>> list_some(["a", "b"]), list_some(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(told) - MAX_NODES_NAMED} more" if len(told) > MAX_NODES_NAMED else ""
    return ", ".join(told[:MAX_NODES_NAMED]) + more


def ids(claims: Sequence[Claim]) -> tuple[str, ...]:
    """Return the ids of the first few."""
    return tuple([claim.job.id for claim in claims[:MAX_CAUSES]])


def name_unusable(slot: Slot) -> str:
    """Name the node of a slot that cannot be used, and say why.

    >>> name_unusable(Slot(id="a/0", node="a", usable=False, trouble="its agent does not answer"))
    'node a cannot be used: its agent does not answer'
    """
    return f"node {slot.node} cannot be used: {slot.trouble or 'it is down or drained'}"


def explain_needs(needs: Needs, *, of: str = "") -> str:
    """Write what some jobs need. ``of``: the user to whom the machines belong.

    >>> explain_needs((2, (("site", "x"),), (), None))
    '2 GPUs per worker and labels site=x'
    >>> explain_needs((1, (), (), "ann")), explain_needs((1, (), (), None), of="ann")
    ('machines that belong to no other user than ann', 'machines that belong to user ann')
    """
    each, labels, refused, owner = needs
    told = [f"{each} GPUs per worker"] if each > 1 else []
    if OWN_MACHINE in labels:
        told.append("the server's own machine")
        labels = tuple(label for label in labels if label != OWN_MACHINE)
    told += [f"labels {','.join(f'{name}={value}' for name, value in labels)}"] if labels else []
    told += [f"nodes other than {', '.join(refused)}"] if refused else []
    if owner is not None:
        told.append(f"machines that belong to no {f'other user than {owner}' if owner else 'user'}")
    if of:
        told.append(f"machines that belong to user {of}")
    return " and ".join(told)


def name_owners(users: Sequence[str]) -> str:
    """Name a user or two, and count the rest; "": there is none.

    >>> name_owners([]), name_owners(["ann", "ben"]), name_owners(["ann", "ben", "cleo"])
    ('', 'ann and ben', 'ann and 2 others')
    """
    if len(users) > 2:
        return f"{users[0]} and {len(users) - 1} others"
    return " and ".join(users)
