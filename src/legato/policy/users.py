"""Divides the slots of the queues among users, and those of each user among jobs. Moves nothing.

First it computes what each user is entitled to: queues share by weight, then the users of each, between 0 and the slots
that their jobs could use, but no queue with less than one slot while slots last. The sizes of minimums do not count
there, so a user gets no more by splitting a job. Then minimums are assigned in turns. The user with the fewest slots
goes next, with the first of its jobs, until it has what it is entitled to. A minimum is all or nothing, so the last one
may exceed that; other users then get less. Slots that a user cannot use go one by one to the user with the fewest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from legato.policy.admission import Budget, Reservations
from legato.policy.claim_sizes import grow, rank, size_together
from legato.policy.claims import Claim, User
from legato.policy.share import Bounds, Part, deal_key, make_whole, round_shares, share_out
from legato.policy.sizes import fit_size

Users = dict[tuple[str, str], User]

Steps = list[tuple[tuple[float, bool, int], int]]
"""A heap of claims that may grow: their ranks and their places among the admitted claims of their user."""


def divide_by_user(
    claims: Iterable[Claim], levels: Mapping[tuple[str, str], int], budget: Budget, reservations: Reservations
) -> Users:
    """Set refusal, share and target of every claim. Returns the users by queue and name, with what they got.

    Args:
        claims: in order of precedence; each has a size that can be placed.
        levels: how many times the weight of a user is halved, by queue and user.
        budget: all slots; those that claims get are taken out of it.
        reservations: without refusals.
    """
    users = _group(claims, levels)
    _entitle(users, budget)
    _admit(list(users.values()), budget, reservations)
    _grant(users, budget)
    for user in users.values():
        _size(user, budget)
    _assign_rest(list(users.values()), budget, reservations)
    return users


def find_shares(claims: Iterable[Claim], levels: Mapping[tuple[str, str], int], budget: Budget) -> Users:
    """Return the users as `divide_by_user` does, only with what each of them is entitled to. Changes no claim."""
    users = _group(claims, levels)
    _share(users, budget)
    return users


def group_by_queue(users: Mapping[tuple[str, str], User]) -> dict[str, list[User]]:
    """Return the users of each queue, those with the first claims first."""
    inside: dict[str, list[User]] = {}
    for user in users.values():
        inside.setdefault(user.queue, []).append(user)
    return inside


def list_turns(claims: Iterable[Claim], levels: Mapping[tuple[str, str], int]) -> list[Claim]:
    """Return claims in the order in which the users of each queue take turns if all minimums fit.

    Args:
        claims: all, in order of precedence.
        levels: as for `divide_by_user`.
    """
    turns = []
    for place, user in enumerate(_group(claims, levels).values()):
        turns.append((0.0, user.order, place, user))
    heapq.heapify(turns)
    found = []
    while turns:
        _, _, place, user = turns[0]
        claim = user.waiting.pop()
        found.append(claim)
        user.taken += claim.lo
        if user.waiting:
            heapq.heapreplace(turns, (user.taken / user.weight, user.waiting[-1].order, place, user))
        else:
            heapq.heappop(turns)
    return found


def _group(claims: Iterable[Claim], levels: Mapping[tuple[str, str], int]) -> Users:
    users: Users = {}
    for claim in claims:
        job = claim.job
        key = (job.queue, job.owner)
        user = users.get(key)
        if user is None:
            weight = 0.5 ** levels[key] if key in levels else 1.0
            users[key] = User(
                queue=job.queue, name=job.owner, weight=weight, order=claim.order, waiting=[claim], wanted=claim.hi
            )
            continue
        user.waiting.append(claim)
        user.wanted += claim.hi
    for user in users.values():
        user.waiting.reverse()
    return users


def _entitle(users: Users, budget: Budget) -> None:
    """Set what each user is entitled to, in whole slots."""
    for sharers, whole in _share(users, budget):
        if len(sharers) == 1:
            sharers[0].entitled = whole
            continue
        sizes = round_shares(whole, [user.share for user in sharers], partial(_rank_new, sharers))
        for user, size in zip(sharers, sizes, strict=True):
            user.entitled = size


def _share(users: Users, budget: Budget) -> list[tuple[list[User], int]]:
    """Set the exact share of each user, independent of the sizes of minimums.

    While slots last, each queue is entitled to one, so that a low weight starves no queue: `_admit` gives its first
    job a turn. In a tie, the user with the first claim goes first. Present slots do not count, as when minimums are
    assigned.

    Returns:
        The users of each queue, and the whole slots of the queue.
    """
    # By their first claims, as the first turns of `_admit`.
    inside = group_by_queue(users)
    bounds, capacity, left = [], budget.common, budget.common
    for name, sharers in inside.items():
        most = min(sum([user.wanted for user in sharers]), budget.room[name])
        least = min(budget.set_aside[name], most)
        capacity += least
        fits = budget.available(name)
        if not least and left and any(claim.lo <= fits for user in sharers for claim in user.waiting):
            least = 1
            left -= 1
        bounds.append(Bounds(budget.queues[name].weight, least, most))
    shares = share_out(capacity, bounds)
    parts = [
        Part(share, bound.weight, 0, sharers[0].order)
        for share, bound, sharers in zip(shares, bounds, inside.values(), strict=True)
    ]
    wholes = make_whole(min(capacity, sum(bound.hi for bound in bounds)), parts)
    for sharers, share in zip(inside.values(), shares, strict=True):
        for user, exact in zip(
            sharers, share_out(share, [Bounds(user.weight, 0, user.wanted) for user in sharers]), strict=True
        ):
            user.share = exact
    return list(zip(inside.values(), wholes, strict=True))


def _admit(users: Sequence[User], budget: Budget, reservations: Reservations) -> None:
    """Assign minimums in turns to users that have less than they are entitled to."""
    inside: dict[str, list[tuple[float, int, User]]] = {}
    for user in users:
        if user.entitled:
            inside.setdefault(user.queue, []).append((0.0, user.order, user))
    turns = []
    for sharers in inside.values():
        heapq.heapify(sharers)
        turns.append((0.0, sharers[0][1], sharers))
    heapq.heapify(turns)
    while turns:
        sharers = turns[0][2]
        user = sharers[0][2]
        _try_next(user, budget, reservations)
        if user.waiting and user.taken < user.entitled:
            heapq.heapreplace(sharers, (user.taken / user.weight, user.waiting[-1].order, user))
        else:
            heapq.heappop(sharers)
        if sharers:
            taken = budget.taken[user.queue] / budget.queues[user.queue].weight
            heapq.heapreplace(turns, (taken, sharers[0][1], sharers))
        else:
            heapq.heappop(turns)


def _try_next(user: User, budget: Budget, reservations: Reservations) -> Claim | None:
    """Assign its minimum to the next claim of a user, if it fits. Returns the claim; None if it does not fit."""
    claim = user.waiting.pop()
    claim.refusal = reservations.check(claim, budget, has_share=user.taken >= user.entitled > 0)
    if claim.refusal is not None:
        return None
    budget.take(user.queue, claim.lo)
    user.taken += claim.lo
    user.most += claim.hi
    user.admitted.append(claim)
    user.keeps += claim.keeps
    claim.share, claim.target = float(claim.lo), claim.lo
    return claim


def _grant(users: Users, budget: Budget) -> None:
    """Set the slots of every user: what it is entitled to and can use, or less if minimums of others exceed theirs."""
    inside = group_by_queue(users)
    bounds, parts, own_bounds, capacity = [], [], {}, budget.common
    for name, sharers in inside.items():
        own_bounds[name] = [_bound(user) for user in sharers]
        least = sum([bound.lo for bound in own_bounds[name]])
        most = min(sum([bound.hi for bound in own_bounds[name]]), least + budget.room[name])
        own = least + min(budget.set_aside[name], most - least)
        bounds.append(Bounds(budget.queues[name].weight, own, most))
        capacity += own
    shares = share_out(capacity, bounds)
    for share, bound, sharers in zip(shares, bounds, inside.values(), strict=True):
        parts.append(Part(share, bound.weight, sum([user.keeps for user in sharers]), sharers[0].order))
    wholes = make_whole(min(capacity, sum(bound.hi for bound in bounds)), parts)
    for (name, sharers), share, whole in zip(inside.items(), shares, wholes, strict=True):
        if len(sharers) == 1:
            sharers[0].granted = whole
            continue
        own_shares = share_out(share, own_bounds[name])
        sizes = round_shares(whole, own_shares, partial(_rank_at, sharers))
        for user, size in zip(sharers, sizes, strict=True):
            user.granted = size


def _bound(user: User) -> Bounds:
    most = user.entitled if user.entitled < user.most else user.most
    return Bounds(user.weight, user.taken, most if most > user.taken else user.taken)


def _rank_new(sharers: Sequence[User], place: int, size: int) -> tuple[float, bool, int]:
    """Rank one of some users that has ``size`` for the next slot, as if it had no slots before."""
    return deal_key(size, sharers[place].weight, 0, sharers[place].order)


def _rank_at(sharers: Sequence[User], place: int, size: int) -> tuple[float, bool, int]:
    """Rank one of some users that has ``size`` for the next slot."""
    return _rank_user(sharers[place], size)


def _rank_user(user: User, size: int) -> tuple[float, bool, int]:
    return deal_key(size, user.weight, user.keeps, user.order)


def _size(user: User, budget: Budget) -> None:
    """Divide the slots of a user among its admitted claims, by priority."""
    claims = user.admitted
    if not claims:
        return
    is_exact = user.granted == user.entitled and user.taken <= user.share <= user.most
    if len(claims) == 1:
        # The usual case of a large pool.
        claim, most = claims[0], min(user.granted, claims[0].hi)
        claim.target = most if most in (claim.lo, claim.hi) else fit_size(claim.job, most)
        claim.share = user.share if is_exact else float(most if claim.ratio is None else claim.target)
        user.total = claim.target
        if claim.target > claim.lo:
            budget.take(user.queue, claim.target - claim.lo)
    else:
        size_together(claims, user.share if is_exact else user.granted, user.granted, budget)
        user.total = sum([claim.target for claim in claims])


def _assign_rest(users: Sequence[User], budget: Budget, reservations: Reservations) -> None:
    """Assign the remaining slots step by step, each time to the user with the fewest slots per weight."""
    if all(budget.available(name) <= 0 for name in {user.queue for user in users}):
        for user in users:
            while user.waiting:
                _try_next(user, budget, reservations)
        return
    turns = []
    for index, user in enumerate(users):
        # The available slots only decrease.
        if user.waiting or (user.total < user.most and budget.available(user.queue) > 0):
            # What its other claims hold counts too, or two users could take slots from one another without end.
            user.keeps += sum([claim.keeps for claim in user.waiting])
            turns.append((_rank_user(user, user.total), index))
    heapq.heapify(turns)
    growing: dict[int, Steps] = {}
    while turns:
        index = turns[0][1]
        user = users[index]
        if user.waiting or budget.available(user.queue) > 0:
            steps = growing.get(index)
            if steps is None:
                steps = growing[index] = _list_steps(user)
            gained = _take_step(user, steps, budget, reservations)
        else:
            gained = 0
        if gained:
            user.total += gained
            heapq.heapreplace(turns, (_rank_user(user, user.total), index))
        else:
            heapq.heappop(turns)


def _list_steps(user: User) -> Steps:
    """Return the admitted claims of a user that can use more slots, as a heap."""
    places = [place for place, claim in enumerate(user.admitted) if claim.target < claim.hi]
    if len(places) == 1 and not user.waiting:
        return [((0.0, False, 0), places[0])]  # any rank: no other claim will be in the heap
    steps = [(rank(user.admitted[place]), place) for place in places]
    heapq.heapify(steps)
    return steps


def _take_step(user: User, steps: Steps, budget: Budget, reservations: Reservations) -> int:
    """Give slots to one claim of a user: a minimum first, else the next size. Returns their number; 0: none fits."""
    while user.waiting:
        user.keeps -= user.waiting[-1].keeps
        claim = _try_next(user, budget, reservations)
        if claim is not None:
            if claim.target < claim.hi:
                heapq.heappush(steps, (rank(claim), len(user.admitted) - 1))
            return claim.lo
    while steps:
        place = steps[0][1]
        claim = user.admitted[place]
        if gained := grow(claim, budget):
            claim.share = max(claim.share, float(claim.target))
            if len(steps) > 1:
                heapq.heapreplace(steps, (rank(claim), place))
            return gained
        heapq.heappop(steps)  # the available slots only decrease
    return 0
