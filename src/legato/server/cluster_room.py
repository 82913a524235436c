"""Chooses the machine whose place the test of a cluster takes if there is no room for its own. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from legato.clusters.pilots import Demand, Pilot, PilotAgent, PilotRules, PilotState, find_spare

_IDLE_S = 5.0
"""A machine that is idle for less may be about to get a job."""


class Room(msgspec.Struct, frozen=True):
    """The machine whose place a test takes, since when it is given back, and when it had left. None: it has not."""

    node: str
    since: float
    left_at: float | None = None

    def watch(self, pilots: Sequence[Pilot], now: float) -> Room:
        """Note when the machine has left; later ones may have its name."""
        is_there = any(one.node == self.node and one.state is not PilotState.GONE for one in pilots)
        return self if is_there or self.left_at is not None else msgspec.structs.replace(self, left_at=now)

    def mark(self, agents: Sequence[PilotAgent], now: float) -> list[PilotAgent]:
        """Return the agents, of which that of the machine leaves, also in the round in which it is chosen."""
        leaves = None if self.left_at is not None else self.node
        return [
            msgspec.structs.replace(agent, leaves_since=now)
            if agent.node == leaves and agent.leaves_since is None
            else agent
            for agent in agents
        ]


class Choice(NamedTuple):
    """A machine whose place a test takes, whether jobs must leave it first, and whether there may be one soon."""

    node: str | None
    is_spare: bool = False
    is_awaited: bool = False


def choose_room(
    rules: PilotRules,
    demand: Demand,
    pilots: Sequence[Pilot],
    agents: Sequence[PilotAgent],
    own: Collection[str],
    now: float,
    *,
    any_helps: bool,
    takes_idle: bool,
) -> Choice:
    """Choose a machine that is on its way out, or else an idle one that no job has needed lately.

    Args:
        rules: of the pool.
        demand: of the jobs of the user who has asked for the test, or of all users.
        pilots: all, as the cluster shows them, without that of the test.
        agents: of pilots that have joined the pool.
        own: names of the machines of the user who has asked for the test, or of the pool of all users.
        now: seconds since 1970.
        any_helps: a machine of another user that leaves makes room, too. No idle one of others is chosen.
        takes_idle: False: only a machine that is on its way out is chosen.
    """
    leaves = {agent.node for agent in agents if agent.leaves_since is not None}
    for pilot in pilots:
        goes = pilot.state is PilotState.ENDING or (pilot.state is not PilotState.GONE and pilot.node in leaves)
        if goes and (any_helps or pilot.node in own):
            return Choice(pilot.node)
    if not takes_idle:
        return Choice(None)
    there = [pilot for pilot in pilots if pilot.node in own]
    spare = find_spare(rules, demand.lately, there, agents, now)
    if spare is not None and spare.idle_since is not None and now - spare.idle_since >= _IDLE_S:
        return Choice(spare.node, is_spare=True)
    return Choice(None, is_awaited=find_spare(rules, demand.now, there, agents, now) is not None)
