"""The workers in the training loop, for programs with their own collectives: ranks, and when they change. Pure.

A new world is formed when every member of the present world has asked for its rank in it, or when a member has left the
loop. So a world whose members are all in the loop is never replaced before each of them knows it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from legato.compat.elasticdl.task_types import Standing


class WorldState(msgspec.Struct, kw_only=True):
    """The state that a new driver needs.

    Args:
        inside: workers in the loop, in the order in which they entered → the port that each reported, 0 for none.
        members: of the present world, by rank.
        number: of the present world; 0 before the first.
        informed: members that have asked for their rank in the present world. Stored by its former name ``told``.
        barriers: name of a barrier in the present world → members that have reached it.
    """

    inside: dict[int, int] = {}
    members: list[int] = []
    number: int = 0
    informed: set[int] = msgspec.field(default_factory=set, name="told")
    barriers: dict[str, set[int]] = {}


class World:
    """The workers in the training loop.

    Args:
        state: of an earlier driver at its end; None at the beginning.
    """

    def __init__(self, state: WorldState | None = None) -> None:
        self.state = state if state is not None else WorldState()

    def enter(self, worker: int, port: int = 0) -> None:
        """Record that a worker enters the loop. A new one comes after the workers that are in it."""
        self.state.inside[worker] = port

    def leave(self, worker: int) -> None:
        """Record that a worker leaves the loop. Nothing happens if it was not in it."""
        self.state.inside.pop(worker, None)

    def set_workers(self, workers: Collection[int]) -> None:
        """Remove workers that do not run any more."""
        for worker in set(self.state.inside) - set(workers):
            self.leave(worker)

    def stand(self, worker: int) -> tuple[Standing, bool]:
        """Return the rank of a worker, and whether its request has changed the state."""
        state = self.state
        before = (state.number, len(state.informed))
        inside = list(state.inside)
        is_broken = not set(state.members) <= set(inside)
        if inside != state.members and (is_broken or set(state.members) <= state.informed):
            state.members, state.number = inside, state.number + 1
            state.informed, state.barriers = set(), {}
        rank = state.members.index(worker) if worker in state.members else -1
        if rank >= 0:
            state.informed.add(worker)
        standing = Standing(rank=rank, world_size=len(state.members), rendezvous=state.number)
        return standing, before != (state.number, len(state.informed))

    def meet(self, name: str, worker: int, number: int) -> bool:
        """Record that a member has reached a barrier of a world.

        Return whether all members have, and the world is still the present one.
        """
        state = self.state
        if number != state.number or worker not in state.members:
            return False
        there = state.barriers.setdefault(name, set())
        there.add(worker)
        return there >= set(state.members)

    @property
    def first(self) -> tuple[int, int] | None:
        """The member of rank 0 and its port; None without members."""
        members = self.state.members
        return (members[0], self.state.inside.get(members[0], 0)) if members else None
