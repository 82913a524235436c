"""What the loop over a cluster remembers of each user who has pilots of their own, and of all users if none has.

It also decides about the pilots of several users, from what it remembers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from legato.api import pool
from legato.clusters.demand import PilotShape, Wish, divide_pilots
from legato.clusters.owner_plans import OwnersPlan, Party, group, plan_owners
from legato.clusters.pilots import Demand, Pilot, PilotAgent, PilotRules, PilotState
from legato.control.records import StoredPilot
from legato.core.errors import NoSystemUser, UsageError
from legato.core.job_user import JobUser
from legato.policy.snapshot import JobDemand

REFUSAL: Final = "Cannot ask for machines for"
"""The beginning of why a user can have none; the user's name in quotes follows."""
FIRST_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 900.0
SLOW_S: Final = 900.0
"""A user whose pilots wait for this long, while no job can train without them, lets other users go first."""
_LONGEST_SLOW_S: Final = 14_400.0
SETTLE_S: Final = 60.0
"""A demand that is gone for less than this ends no pilot: a job may only be between two attempts."""
_LOST_S: Final = 600.0
"""A system user that is not found for this long is gone. Before, the directory of users may only not answer."""
_LOOK_UP_S: Final = 60.0
"""A system user is looked up this often: a directory of users may be slow."""
_MAX_JOBS: Final = 20
"""So many refused jobs are named: their reasons depend on it."""

FindUser = Callable[[str], JobUser]
"""Returns the system user as whom the pilots of a user run. May block.

Raises NoSystemUser if it is not found now, and UsageError if there can be none.
"""


class Pause:
    """Asks for no pilots for a while after a failure, twice as long after each failure in a row.

    Args:
        first_s: seconds of the first pause.
        longest_s: seconds of the longest one.

    Attributes:
        why: the last failure. None: there is none.
        begun_at: time of the last failure.
    """

    def __init__(self, first_s: float = FIRST_PAUSE_S, longest_s: float = _LONGEST_PAUSE_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.why: str | None = None
        self.begun_at = float("-inf")
        self._length_s = 0.0
        self._until = float("-inf")

    def begin(self, why: str, now: float) -> None:
        """Note a failure; several at one moment count once."""
        if not self.holds(now):
            self._length_s = min(max(2 * self._length_s, self._first_s), self._longest_s)
            self._until = now + self._length_s
        self.why, self.begun_at = why, now

    def holds(self, now: float) -> bool:
        """Whether the pause is not over."""
        return 0 < self._until - now <= self._length_s  # the clock may be set


class PilotOwner:
    """What is known of the pilots of one user, or of all.

    Args:
        name: the user. None: the pilots are for the jobs of all users.
        shape: of each pilot, as far as known.

    Attributes:
        user: the system user as whom pilots run. None: that of the server; or none is known, see ``unfit``.
        unfit: why the user can have no new pilots, as a sentence. None: the user can.
        is_gone: the user can keep no pilots either.
        is_here: the user has jobs or pilots now.
        refused, failed: since the cluster has refused a pilot; since one has ended before its agent joined.
        slow: other users go first, since pilots have waited for long.
        demand: how many pilots the jobs could use.
        target: how many there should be.
        refused_jobs: those that pilots have refused.
        typed: jobs with a type of GPU that pilots do not have.
    """

    def __init__(self, name: str | None, shape: PilotShape) -> None:
        self.name = name
        self.shape = shape
        self.user: JobUser | None = None
        self.unfit: str | None = None
        self.is_gone = False
        self.is_here = True
        self.refused = Pause()
        self.failed = Pause()
        self.slow = Pause(SLOW_S, _LONGEST_SLOW_S)
        self.demand = Demand(0, 0)
        self.target = 0
        self.refused_jobs: tuple[str, ...] = ()
        self.typed: list[JobDemand] = []
        self._demands: list[tuple[float, int]] = []
        self._lost_since: float | None = None
        self._looked_up_at = float("-inf")

    @property
    def uid(self) -> int | None:
        """Number of the system user as whom pilots run. None: that of the server."""
        return None if self.user is None else self.user.uid

    @property
    def refusal(self) -> str | None:
        """Why the user can have no new pilots, as a part of a sentence that does not say what to do."""
        if self.name is None or self.unfit is None:
            return None
        return self.unfit.split(". ")[0].removeprefix(f"{REFUSAL} '{self.name}': ")

    def look_up(self, find_user: FindUser, now: float) -> None:
        """Find the system user of the pilots. May block."""
        self._looked_up_at = now
        if self.name is None:
            self.user, self.unfit, self.is_gone = None, "Each user has machines of their own", True
            return
        try:
            self.user, self.unfit, self.is_gone = find_user(self.name), None, False
            self._lost_since = None
        except NoSystemUser as error:  # the last known one stays
            self._lost_since = now if self._lost_since is None else self._lost_since
            self.unfit, self.is_gone = str(error), self.is_gone or now - self._lost_since >= _LOST_S
        except UsageError as error:
            self.user, self.unfit, self.is_gone = None, str(error), True

    def needs_look_up(self, now: float) -> bool:
        """Whether the system user was not looked up for a while."""
        return not 0 <= now - self._looked_up_at < _LOOK_UP_S  # the clock may be set

    def is_known(self, now: float) -> bool:
        """Whether there is something to remember of a user who is not here."""
        is_failing = self.refused.holds(now) or self.failed.holds(now)
        return is_failing or bool(self.shape.machine_kinds or self.demand.lately)

    def note_demand(self, number: int, now: float) -> None:
        """Note how many pilots the jobs could use now."""
        self._demands = [(at, each) for at, each in self._demands if 0 <= now - at < SETTLE_S]
        self._demands.append((now, number))
        self.demand = Demand(number, max(each for _, each in self._demands))
        if not self.demand.lately:
            self.slow = Pause(SLOW_S, _LONGEST_SLOW_S)

    def note_wait(self, least: int, num_running: int, waits_since: float | None, now: float) -> None:
        """Let other users go first for a while if pilots wait for long, and no job can train without them.

        Args:
            least: with fewer pilots no job can train.
            num_running: pilots that do not wait.
            waits_since: since when the first of the others waits. None: there is none.
            now: seconds since 1970.
        """
        if num_running >= least:
            self.slow = Pause(SLOW_S, _LONGEST_SLOW_S)
        elif waits_since is not None and now - waits_since >= SLOW_S and not self.slow.holds(now):
            minutes = SLOW_S / 60
            self.slow.begin(f"Machines of this user have waited for {minutes:.0f} minutes, so others come first", now)

    def is_paused(self, now: float) -> bool:
        """Whether no pilot is asked for now: after a failure, or because the system user is not found."""
        return self.unfit is not None or self.refused.holds(now) or self.failed.holds(now)

    def forgive(self, now: float, *, all_joined: bool) -> None:
        """Forget failures whose pause is over, if no pilot is missing. ``all_joined``: all pilots have agents."""
        if not self.refused.holds(now):
            self.refused = Pause()
        if not self.failed.holds(now) and all_joined:
            self.failed = Pause()

    def find_trouble(self, cluster: str, kind: str) -> str | None:
        """Return why the user gets no more pilots, as sentences; None: nothing is wrong.

        Args:
            cluster: its name for people.
            kind: of the cluster.
        """
        if not self.is_here:
            return None
        unfit = None if self.name is None else self.unfit
        return (
            unfit
            or self.refused.why
            or self.failed.why
            or (self.slow.why if self.target < self.demand.now else None)
            or self._describe_refused_jobs(cluster)
            or self._describe_typed(cluster, kind)
        )

    def _describe_refused_jobs(self, cluster: str) -> str | None:
        if not self.refused_jobs:
            return None
        jobs, left = self.refused_jobs[:_MAX_JOBS], len(self.refused_jobs) - _MAX_JOBS
        more = f" and {left} more" if left > 0 else ""
        them = "them" if len(self.refused_jobs) > 1 else "it"
        return (
            f"Machines of {cluster} have refused job {', '.join(jobs)}{more}: 'legato explain {jobs[0]}' says why. "
            f"For an hour, no further machine is asked for {them}"
        )

    def _describe_typed(self, cluster: str, kind: str) -> str | None:
        """Say why no machine is asked for jobs with a type of GPU, and what to do."""
        if not self.typed:
            return None
        job = self.typed[0]
        more = f" and {len(self.typed) - 1} more" if len(self.typed) > 1 else ""
        there = ", ".join(self.shape.gpu_types) if self.shape.has_gpus else "no GPUs"
        return (
            f"Job {job.id}{more} asks for GPU type {job.gpu_type}, and the machines of {cluster} have {there}: none is "
            f"asked for it. A section of the settings gives one kind of machines; if it gives another one by now, "
            f"'legato clusters test {kind}' finds out"
        )

    def describe(self, cluster: str, kind: str) -> pool.PilotOwner:
        """Return what users may know. ``name`` must be that of a user."""
        assert self.name is not None
        is_paused = self.is_here and (self.unfit or self.refused.why or self.failed.why)
        return pool.PilotOwner(
            name=self.name,
            system_user=None if self.user is None else self.user.name,
            target=self.target,
            state="paused" if is_paused else "ok",
            trouble=self.find_trouble(cluster, kind),
            machine_kinds=self.shape.machine_kinds,
            gpu_types=self.shape.gpu_types,
        )


class PilotOwners:
    """All users who have, had or want pilots; or one entry, without a name, if pilots are for the jobs of all users.

    Args:
        shape: of each pilot, as far as the settings say.
        find_user: finds the system users. None: pilots are for the jobs of all users.
    """

    def __init__(self, shape: PilotShape, find_user: FindUser | None) -> None:
        self._shape = shape
        self._find_user = find_user
        self._owners: dict[str | None, PilotOwner] = {}
        self._short_since: float | None = None  # since when users lack pilots because others have too many
        if find_user is None:
            self.get(None)

    @property
    def are_several(self) -> bool:
        """Whether each user has pilots of their own."""
        return self._find_user is not None

    def get(self, name: str | None) -> PilotOwner:
        """Return a user's entry, or that for all users."""
        name = name if self.are_several else None  # pilots of a user may be left from other settings
        if name not in self._owners:
            self._owners[name] = PilotOwner(name, self._shape)
        return self._owners[name]

    def list(self) -> tuple[PilotOwner, ...]:
        """Return all entries, by name."""
        return tuple(self._owners[name] for name in sorted(self._owners, key=lambda name: name or ""))

    def find_shape(self, name: str | None) -> PilotShape:
        """Return what the pilots of a user are, as far as known."""
        return self._owners[name].shape if name in self._owners else self._shape

    def learn(self, name: str | None, machine_kinds: tuple[str, ...], gpu_types: tuple[str, ...]) -> None:
        """Take what an earlier server has learned about the machines of a user, unless more is known by now."""
        owner = self.get(name)
        if machine_kinds and not owner.shape.machine_kinds:
            owner.shape = msgspec.structs.replace(owner.shape, machine_kinds=machine_kinds, gpu_types=gpu_types)

    def look_up(self, names: Iterable[str | None], now: float) -> None:
        """Find the system users of those who are here, and forget others of whom nothing is known. May block.

        Args:
            names: users who have jobs or pilots now.
            now: seconds since 1970.
        """
        if self._find_user is None:
            return
        here = set(names)
        for name in here:
            self.get(name)
        for name, owner in list(self._owners.items()):
            owner.is_here = name in here
            if owner.is_here and owner.needs_look_up(now):
                owner.look_up(self._find_user, now)
            elif not owner.is_here and not owner.is_known(now):
                del self._owners[name]

    def plan(
        self,
        rules: PilotRules,
        wishes: Sequence[Wish],
        pilots: Sequence[Pilot],
        stored: Sequence[StoredPilot],
        agents: Sequence[PilotAgent],
        now: float,
    ) -> OwnersPlan:
        """Decide about the pilots of users who have pilots of their own.

        Args:
            rules: how many there are.
            wishes: how many the jobs of each user could use.
            pilots: as the cluster shows them.
            stored: as the store knows them.
            agents: of pilots that have joined the pool.
            now: seconds since 1970.
        """
        whose = {one.node: (one.owner, one.uid) for one in stored}
        fit = {owner.name: owner for owner in self.list() if not owner.is_gone}
        # While the system user of a user is not found, it is that of the newest pilot.
        latest = {one.owner: one.uid for one in sorted(stored, key=lambda one: one.created_at)}
        uids = {name: latest.get(name) if owner.user is None else owner.uid for name, owner in fit.items()}
        alive = [pilot for pilot in pilots if pilot.state is not PilotState.GONE]
        has = Counter(whose[pilot.node][0] for pilot in alive if pilot.node in whose)
        self._note_waits(wishes, alive, stored, now)
        first: list[Wish] = []
        last: list[Wish] = []
        for wish in wishes:
            owner = fit.get(wish.owner)
            # What a user does not get for now, others can have.
            most = 0 if owner is None else min(wish.most, has[wish.owner]) if owner.is_paused(now) else wish.most
            if owner is not None and most and owner.slow.holds(now):
                last.append(msgspec.structs.replace(wish, least=1, most=most))
            elif most:
                first.append(msgspec.structs.replace(wish, least=min(wish.least, most), most=most))
        given = divide_pilots((*first, *last), dict(has), rules.max_pilots)
        groups = group(pilots, agents, whose)
        asked = [(name, uids[name]) for name in given]
        parties: list[Party] = []
        for key in dict.fromkeys((*asked, *groups)):
            owner, (mine, own_agents) = fit.get(key[0]), groups.get(key, ((), ()))
            if owner is None or uids[key[0]] != key[1]:
                parties.append(Party(owner=key[0], pilots=mine, agents=own_agents, given=None))
                continue
            owner.target = given.get(key[0], 0)
            parties.append(
                Party(
                    owner=key[0],
                    pilots=mine,
                    agents=own_agents,
                    demand=owner.demand,
                    given=owner.target,
                    is_paused=owner.is_paused(now),
                )
            )
        is_long = self._short_since is not None and now - self._short_since >= SETTLE_S
        plan = plan_owners(rules, parties, now, takes=is_long)
        self._short_since = None if not plan.is_short else now if self._short_since is None else self._short_since
        joined = {agent.node for agent in agents}
        without_agent = {whose[one.node][0] for one in pilots if one.node in whose and one.node not in joined}
        for owner in self.list():
            if owner.name not in given:
                owner.target = 0
            if owner.name not in plan.missing:
                owner.forgive(now, all_joined=owner.name not in without_agent)
        return plan

    def _note_waits(
        self, wishes: Sequence[Wish], alive: Sequence[Pilot], pilots: Sequence[StoredPilot], now: float
    ) -> None:
        """Note of each user who wants pilots how long the present ones wait."""
        stored = {one.node: one for one in pilots}
        running, waits_since = Counter[str | None](), dict[str | None, float]()
        for pilot in alive:
            if (one := stored.get(pilot.node)) is not None and pilot.state is PilotState.WAITING:
                waits_since[one.owner] = min(one.created_at, waits_since.get(one.owner, now))
            elif one is not None:
                running[one.owner] += 1
        for wish in wishes:
            owner = self.get(wish.owner)
            owner.note_wait(wish.least, running[wish.owner], waits_since.get(wish.owner), now)


def sort_out(
    found: Sequence[Pilot], stored: Sequence[StoredPilot], *, are_several: bool
) -> tuple[tuple[Pilot, ...], tuple[Pilot, ...]]:
    """Divide what a cluster shows into the pilots of this pool, and jobs that only have the name of one. Pure.

    A pilot from a time when pilots were for all users ran as the system user that the server had then. Which one that
    was, the store does not know: the oldest job of that name is taken for it, and no other one is ended while the store
    has the pilot.

    Args:
        found: what the cluster shows.
        stored: the pilots that the store knows.
        are_several: each user has pilots of their own.
    """
    known = {(one.node, one.uid) for one in stored}
    seen = [pilot for pilot in found if (pilot.node, pilot.uid) in known]
    others = [pilot for pilot in found if (pilot.node, pilot.uid) not in known]
    earlier = {one.node for one in stored if one.owner is None and one.uid is None} if are_several else set()
    possible: dict[str, list[Pilot]] = {}
    for pilot in others:
        if pilot.node in earlier:
            possible.setdefault(pilot.node, []).append(pilot)
    shown = {pilot.node for pilot in seen if pilot.state is not PilotState.GONE}
    seen += [
        min(possible[node], key=lambda one: (one.state is PilotState.GONE, len(one.id), one.id))
        for node in sorted(possible.keys() - shown)
    ]
    return tuple(seen), tuple(pilot for pilot in others if pilot.node not in possible)
