"""Pilots: agents of a server's pool that a cluster such as Slurm or Kubernetes starts. The seam, and the pure decision.

A *pilot* is one job of Slurm, or one pod of Kubernetes, that runs the pool agent of one machine. The server asks for
pilots as demand grows, and lets them go when they are idle. `Cluster` is the seam to the engine that starts them;
`plan_pilots` decides how many there are, without I/O and clock.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser

CLUSTER_LABEL: Final = "legato.cluster"
"""The label of machines that are pilots; its value is the kind of the cluster."""

_HOPELESS: Final = (
    *("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "BadConstraints", "PartitionNodeLimit"),
    *("PartitionTimeLimit", "PartitionDown", "PartitionInactive", "InvalidAccount", "InvalidQOS"),
)
"""Reasons of waiting pilots that do not go away by themselves."""


def is_hopeless(reason: str) -> bool:
    """Whether a pilot that waits for this reason never gets a machine.

    >>> is_hopeless("PartitionTimeLimit"), is_hopeless("Resources")
    (True, False)
    """
    return reason.startswith(_HOPELESS)


def name_test_node(kind: str) -> str:
    """Return the name of the machine on which a test of a cluster runs; no other pilot has it."""
    return f"{kind}-test"


class PilotState(enum.StrEnum):
    """Where a pilot is, as its cluster says."""

    WAITING = "waiting"  # the cluster has not given it a machine
    RUNNING = "running"
    ENDING = "ending"  # the cluster ends it; its processes may still run
    GONE = "gone"


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """A pilot as its cluster sees it.

    Args:
        id: by which the cluster names it.
        node: name of its machine in the pool, which the server chose.
        state: where it is.
        reason: why it is there, in the words of the cluster, such as ``Priority``. None: it gives no reason.
        ends_at: when the cluster ends it at the latest, in seconds since 1970. None: unknown, or no limit.
        uid: number of the system user as whom it runs. None: that of the server.
    """

    id: str
    node: str
    state: PilotState
    reason: str | None = None
    ends_at: float | None = None
    uid: int | None = None


class PilotOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A pilot to start.

    Args:
        node: name of its machine in the pool.
        url: of the server, or of several, separated by commas.
        token: with which its agent joins the pool, once. A secret: it must be on no command line, and no other user
            may be able to read it.
        user: the system user as whom the pilot runs. None: that of the server.
    """

    node: str
    url: str
    token: str
    user: JobUser | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order.

    Args:
        node: of the order.
        pilot: the new pilot. None: the cluster has not confirmed it.
        refusal: why the cluster does not start it, in its words. None: it does, or its answer is not known; then the
            next observation shows.
    """

    node: str
    pilot: Pilot | None = None
    refusal: str | None = None


class ClusterAwayError(LegatoError):
    """The cluster does not answer. This is no news: no pilot may be taken as gone because of it."""


class Cluster(ABC):
    """An engine that starts pilots. It recognises its own by their names, so a new process of the server finds them.

    Args:
        name: of the cluster for people, such as ``Slurm``.
        pool: identifies the pool; a cluster shows only the pilots of its own pool.
    """

    kind: ClassVar[str]
    """The value of the label `CLUSTER_LABEL`: ``slurm``."""
    observe_every_s: ClassVar[float]
    """The server observes the cluster at most this often."""

    def __init__(self, name: str, pool: str) -> None:
        self.name = name
        self.pool = pool

    @abstractmethod
    async def observe(self) -> Sequence[Pilot]:
        """Return all pilots of this pool; pilots that have ended may be missing.

        Users of the cluster may have given names of this pool to jobs of their own: then there are several pilots of
        one node, with different ``uid``.

        Raises:
            ClusterAwayError: the cluster does not answer, or only with a part.
        """

    @abstractmethod
    async def start(self, orders: Sequence[PilotOrder]) -> Sequence[Submitted]:
        """Start pilots of one user; returns what became of the orders. An order that is missing there was not tried.

        Raises:
            ClusterAwayError: the cluster does not answer, and has started none of them. An answer that the user can
                write is a refusal.
        """

    @abstractmethod
    async def end(self, pilots: Sequence[Pilot], *, force: bool) -> None:
        """End pilots, whose jobs have left them. A pilot that is gone already is no error.

        Args:
            pilots: of this pool.
            force: False: ask the agent to end. True: kill it. A pilot that is given as waiting, and has begun to run
                since it was observed, may run on.

        Raises:
            ClusterAwayError: the cluster does not answer. An answer that users can write is no reason.
        """

    def explain_failure(self, node: str, uid: int | None) -> str:  # noqa: ARG002
        """Return where a person sees why a pilot ended before its agent joined, as a sentence; "": nowhere.

        Args:
            node: name of its machine.
            uid: as in `Pilot`.
        """
        return ""

    def read_last_words(self, node: str, since: float, uid: int | None) -> str:  # noqa: ARG002
        """Return the last line that the agent of a pilot has written; "": it is not known. May block.

        Args:
            node: name of its machine.
            since: when the pilot was asked for; earlier words are those of another one.
            uid: as in `Pilot`.
        """
        return ""

    async def close(self) -> None:  # noqa: B027 -- most have nothing to close
        """Close connections. Pilots run on."""


# ---------------------------------------------------------------- the decision


class PilotRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many pilots there are.

    Args:
        min_pilots, max_pilots: bounds of their number. While a pilot that reaches its time limit is replaced, both
            exist for some minutes and count once.
        max_of_owner: the maximum of one user, if each has pilots of its own.
        idle_s: seconds without a job after which a pilot that is not needed is let go.
        max_waiting: maximum number of pilots that wait for a machine.
        replace_s: seconds before the end of a pilot at which another one is asked for in its place.
        leave_s: seconds before the end of a pilot at which jobs leave it.
        end_s: seconds after the last job has left a pilot, at which it is ended if its agent has not ended by itself.
        silent_s: seconds without a report of its agent after which a pilot without jobs is ended.
    """

    min_pilots: int = 0
    max_pilots: int
    max_of_owner: int = 1000
    idle_s: float = 300.0
    max_waiting: int = 8
    replace_s: float = 900.0
    leave_s: float = 180.0
    end_s: float = 300.0
    silent_s: float = 300.0


class PilotAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a pilot, as the server sees it.

    Args:
        node: name of its machine.
        num_busy: number of its slots that jobs hold.
        idle_since: since when no job holds a slot of it. None: jobs do.
        leaves_since: since when jobs are to leave it. None: they are not.
        silent_since: when it reported last.
    """

    node: str
    num_busy: int = 0
    idle_since: float | None = None
    leaves_since: float | None = None
    silent_since: float


class Demand(msgspec.Struct, frozen=True):
    """How many pilots the jobs of the pool could use.

    Args:
        now: at present.
        lately: the highest number of the last while; so a demand that is gone for a moment ends nothing.
    """

    now: int
    lately: int


class Leaving(msgspec.Struct, frozen=True):
    """A pilot that jobs must leave, and why, as a part of a sentence."""

    node: str
    reason: str


class Ending(msgspec.Struct, frozen=True):
    """A pilot to end, and why, as a part of a sentence. ``force``: as in `Cluster.end`."""

    pilot: Pilot
    force: bool
    reason: str


class PilotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now.

    Args:
        num_starts: how many pilots to start.
        leaving: pilots that jobs must leave now.
        ending: pilots to end; no job holds a slot of them.
        target: how many pilots there should be.
        num_lasting: how many there are now, without those that will end soon.
    """

    num_starts: int = 0
    leaving: tuple[Leaving, ...] = ()
    ending: tuple[Ending, ...] = ()
    target: int = 0
    num_lasting: int = 0


class Claim(msgspec.Struct, frozen=True):
    """Pilots that jobs must leave although they use them: how many, and why, as a part of a sentence."""

    number: int
    reason: str


NO_CLAIM: Final = Claim(0, "")


def plan_pilots(
    rules: PilotRules,
    demand: Demand,
    pilots: Sequence[Pilot] | None,
    agents: Sequence[PilotAgent],
    now: float,
    claim: Claim = NO_CLAIM,
) -> PilotPlan:
    """Decide which pilots to start, to empty and to end. Pure.

    Args:
        rules: of the pool.
        demand: of its jobs.
        pilots: as the cluster sees them now. None: it does not answer; then nothing changes.
        agents: of pilots that have joined the pool.
        now: seconds since 1970.
        claim: so many pilots are given up also if jobs need them; those that jobs use are only emptied.
    """
    if pilots is None:
        return PilotPlan()
    known = {agent.node: agent for agent in agents}
    there = [pilot for pilot in pilots if pilot.state in (PilotState.WAITING, PilotState.RUNNING)]
    # A pilot that jobs leave, or that reaches its time limit, is no longer counted, so that another one replaces it.
    staying = [pilot for pilot in there if not _leaves(pilot, known)]
    lasting = [pilot for pilot in staying if _rest_s(pilot, now) > rules.replace_s]
    target = _bound(demand.now, rules)
    num_waiting = sum(pilot.state is PilotState.WAITING for pilot in there)
    # Each may have one that replaces it. If the cluster gives all of them less time than `replace_s`, none lasts.
    num_room = min(rules.max_waiting - num_waiting, 2 * rules.max_pilots - len(there))
    num_starts = max(0, min(target - len(lasting), num_room))
    surplus = max(len(lasting) - _bound(max(demand.now, demand.lately), rules), claim.number)
    waiting, idle = _choose_surplus(rules, lasting, known, surplus, now)
    leaving = [Leaving(pilot.node, "it is idle") for pilot in idle]
    num_claimed = claim.number - len(waiting) - len(idle)
    if num_claimed > 0:
        joined = [pilot for pilot in lasting if pilot.node in known and pilot not in (*waiting, *idle)]
        joined.sort(key=lambda pilot: known[pilot.node].num_busy)
        leaving += [Leaving(pilot.node, claim.reason) for pilot in joined[:num_claimed]]
    leaving += [
        Leaving(pilot.node, "it reaches its time limit")
        for pilot in staying
        if pilot.node in known and _rest_s(pilot, now) <= rules.leave_s
    ]
    ending = [Ending(pilot, force=True, reason="no job needs it") for pilot in waiting]
    ending += [end for pilot in there if (end := _find_end(rules, pilot, known.get(pilot.node), now)) is not None]
    return PilotPlan(
        num_starts=num_starts,
        leaving=tuple(leaving),
        ending=tuple(ending),
        target=target,
        num_lasting=len(lasting),
    )


def find_spare(
    rules: PilotRules, needed: int, pilots: Sequence[Pilot], agents: Sequence[PilotAgent], now: float
) -> PilotAgent | None:
    """Return the agent of the pilot that is idle for longest, if more have joined than jobs need. Pure.

    Pilots that wait, that jobs leave, or that reach their time limit do not count.

    Args:
        rules: of the pool.
        needed: how many pilots jobs need.
        pilots: as the cluster sees them.
        agents: of pilots that have joined the pool.
        now: seconds since 1970.
    """
    lasting = {
        pilot.node for pilot in pilots if pilot.state is PilotState.RUNNING and _rest_s(pilot, now) > rules.replace_s
    }
    joined = [agent for agent in agents if agent.node in lasting and agent.leaves_since is None]
    if len(joined) <= needed:
        return None
    idle = [(agent.idle_since, agent.node, agent) for agent in joined if agent.idle_since is not None]
    return min(idle)[2] if idle else None


def _bound(number: int, rules: PilotRules) -> int:
    return min(max(number, rules.min_pilots), rules.max_pilots)


def _rest_s(pilot: Pilot, now: float) -> float:
    return float("inf") if pilot.ends_at is None else pilot.ends_at - now


def _leaves(pilot: Pilot, agents: dict[str, PilotAgent]) -> bool:
    agent = agents.get(pilot.node)
    return agent is not None and agent.leaves_since is not None


def _choose_surplus(
    rules: PilotRules, lasting: Sequence[Pilot], agents: dict[str, PilotAgent], surplus: int, now: float
) -> tuple[list[Pilot], list[Pilot]]:
    """Return the waiting pilots to end, the newest first, and the idle ones to empty, the longest idle first."""
    if surplus <= 0:
        return [], []
    # A pilot with an agent runs, also if the cluster was observed before it began to.
    waiting = [pilot for pilot in reversed(lasting) if pilot.state is PilotState.WAITING and pilot.node not in agents]
    waiting = waiting[:surplus]
    since = {agent.node: agent.idle_since for agent in agents.values() if not agent.num_busy}
    idle = [
        (found, index)
        for index, pilot in enumerate(lasting)
        if pilot.state is PilotState.RUNNING
        and (found := since.get(pilot.node)) is not None
        and now - found >= rules.idle_s
    ]
    return waiting, [lasting[index] for _, index in sorted(idle)[: surplus - len(waiting)]]


def _find_end(rules: PilotRules, pilot: Pilot, agent: PilotAgent | None, now: float) -> Ending | None:
    """Return how to end a pilot that has not ended by itself; None: it is needed, or may still end by itself."""
    if pilot.state is not PilotState.RUNNING or agent is None or agent.num_busy:
        return None
    if agent.leaves_since is not None:
        since = max(agent.leaves_since, agent.idle_since or 0.0)
        if now - since >= rules.end_s:
            return Ending(pilot, force=now - since >= 2 * rules.end_s, reason="its agent does not end by itself")
        return None
    if now - max(agent.silent_since, agent.idle_since or 0.0) >= rules.silent_s:
        return Ending(pilot, force=True, reason="its agent does not answer")
    return None
