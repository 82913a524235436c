"""Decides about the pilots of users who have pilots of their own: how many each gets, and who gives some up. Pure.

The maximum of all together is divided by `legato.clusters.demand.divide_pilots`. A user who has more than that keeps
them, until another one has lacked pilots for a while; then jobs leave some of them, and lose no step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from legato.clusters.pilots import (
    NO_CLAIM,
    Claim,
    Demand,
    Ending,
    Leaving,
    Pilot,
    PilotAgent,
    PilotPlan,
    PilotRules,
    plan_pilots,
)

_TAKEN: Final = "jobs of other users need its place"
_UNFIT: Final = "its user can have no machines as this system user any more"
_NONE: Final = Demand(0, 0)


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """The pilots of one user that run as one system user.

    Args:
        owner: the user. None: pilots from a time when they were for all users.
        pilots, agents: as in `plan_pilots`.
        demand: of the user's jobs.
        given: how many pilots the user gets now. None: the user can have none, or runs as another system user by now.
        is_paused: no pilot is asked for now, after a failure.
    """

    owner: str | None
    pilots: tuple[Pilot, ...] = ()
    agents: tuple[PilotAgent, ...] = ()
    demand: Demand = _NONE
    given: int | None
    is_paused: bool = False


class OwnersPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now.

    Args:
        starts: how many pilots to start, by user; those with none are left out.
        missing: users who have fewer pilots than they are given, paused ones included.
        leaving, ending: as in `PilotPlan`, of all users.
        is_short: users lack pilots because others have more than they are given.
    """

    starts: dict[str | None, int] = {}
    missing: frozenset[str | None] = frozenset()
    leaving: tuple[Leaving, ...] = ()
    ending: tuple[Ending, ...] = ()
    is_short: bool = False


def plan_owners(rules: PilotRules, parties: Sequence[Party], now: float, *, takes: bool) -> OwnersPlan:
    """Decide which pilots of which users to start, to empty and to end.

    Args:
        rules: ``max_pilots`` is the maximum of all users, ``max_of_owner`` and ``max_waiting`` are those of each.
        parties: all; those of one user that can get pilots are one. Those who asked first are first.
        now: seconds since 1970.
        takes: users have lacked pilots for a while, so others give theirs up.
    """
    plans = [_plan(rules, party, now) for party in parties]
    room = rules.max_pilots - sum(plan.num_lasting for plan in plans)
    missing = {
        index: number
        for index, (party, plan) in enumerate(zip(parties, plans, strict=True))
        if party.given is not None and (number := party.given - plan.num_lasting) > 0
    }
    # Others give up only what can be asked for now: those that wait already may do so for long.
    wanted = sum(
        min(number, plans[index].num_starts) for index, number in missing.items() if not parties[index].is_paused
    )
    needed = wanted - max(room, 0)
    if takes and needed > 0:
        over = {
            index: plan.num_lasting - party.given
            for index, (party, plan) in enumerate(zip(parties, plans, strict=True))
            if party.given is not None and plan.num_lasting > party.given
        }
        for index in sorted(over, key=lambda index: -over[index]):
            number = min(needed, over[index])
            if number > 0:
                plans[index] = _plan(rules, parties[index], now, Claim(number, _TAKEN))
                needed -= number
    starts: dict[str | None, int] = {}
    for index, (party, plan) in enumerate(zip(parties, plans, strict=True)):
        number = min(plan.num_starts, room)
        if index in missing and not party.is_paused and number > 0:
            starts[party.owner] = number
            room -= number
    return OwnersPlan(
        starts=starts,
        missing=frozenset(parties[index].owner for index in missing),
        leaving=tuple(leaving for plan in plans for leaving in plan.leaving),
        ending=tuple(ending for plan in plans for ending in plan.ending),
        is_short=needed > 0,
    )


def _plan(rules: PilotRules, party: Party, now: float, claim: Claim = NO_CLAIM) -> PilotPlan:
    if party.given is None:
        nothing = msgspec.structs.replace(rules, min_pilots=0, max_pilots=0)
        return plan_pilots(nothing, _NONE, party.pilots, party.agents, now, Claim(len(party.pilots), _UNFIT))
    # What a user no longer gets is taken by a claim only; so a demand that is gone for a moment ends nothing.
    bounds = msgspec.structs.replace(rules, min_pilots=0, max_pilots=min(rules.max_pilots, rules.max_of_owner))
    demand = Demand(party.given, max(party.given, party.demand.lately))
    return plan_pilots(bounds, demand, party.pilots, party.agents, now, claim)


def group(
    pilots: Sequence[Pilot], agents: Sequence[PilotAgent], whose: Mapping[str, tuple[str | None, int | None]]
) -> dict[tuple[str | None, int | None], tuple[tuple[Pilot, ...], tuple[PilotAgent, ...]]]:
    """Return the pilots and agents of each user and system user.

    Args:
        pilots: of all users.
        agents: of all users.
        whose: node → user, and number of the system user. Others are left out.
    """
    found: dict[tuple[str | None, int | None], tuple[list[Pilot], list[PilotAgent]]] = {}
    for pilot in pilots:
        if pilot.node in whose:
            found.setdefault(whose[pilot.node], ([], []))[0].append(pilot)
    for agent in agents:
        if agent.node in whose:
            found.setdefault(whose[agent.node], ([], []))[1].append(agent)
    return {key: (tuple(found[key][0]), tuple(found[key][1])) for key in sorted(found, key=repr)}
