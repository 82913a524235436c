"""The pool: nodes, slots and queues, now and over time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from legato.api.jobs import Effect
from legato.core.system_metrics import MachineMetrics

_MAX_NAMED: Final = 10


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of slots in the pool, and of jobs.

    Args:
        policy: name of the scheduling policy.
        num_slots: all slots.
        num_usable: slots that can be used.
        num_free: usable slots that no job holds.
        num_leaving: slots that were asked back from a job and are not yet confirmed free.
        jobs: number of jobs that you may see, by stage.
        summary: one sentence about the last decision. None: this server did not decide.
    """

    policy: str
    num_slots: int
    num_usable: int
    num_free: int
    num_leaving: int
    jobs: dict[str, int]
    summary: str | None


class NodeAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a machine.

    Args:
        state: ``ready``, ``drained`` by an admin, ``left`` (it gives its slots back), or ``silent`` (it does not
            answer).
        version: of its Legato.
        address: at which other machines reach it.
        joined_at: when it joined the pool, in seconds since 1970, as all times here.
        seen_at: when it last reported. None: never.
        drained_by: who drains it. None: no admin does.
        drain_reason: why.
    """

    state: str
    version: str
    address: str
    joined_at: float
    seen_at: float | None
    drained_by: str | None
    drain_reason: str | None


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token with which machines join the pool, without its secret.

    Args:
        id: the id by which it can be revoked.
        created_by: the admin who made it.
        created_at: seconds since 1970, as all times here.
        expires_at: when it ends.
        revoked_at: when it was revoked. None: it was not.
        num_uses: how often a machine has joined with it.
    """

    id: str
    created_by: str
    created_at: float
    expires_at: float
    revoked_at: float | None
    num_uses: int


class NewJoinToken(msgspec.Struct, frozen=True):
    """A new join token with its secret. Only the answer that creates a token contains the secret."""

    token: JoinToken
    secret: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the pool, and its numbers of slots.

    Args:
        kind: machines with the same kind give the same bits; a job uses machines of one kind. None: unknown.
        traits: what makes the kind: name → value.
        labels: jobs may ask for them.
        gpu_types: model → number of slots with it; without slots that have no known model.
        agent: its agent. None: it is the server's own machine, or a removed one whose slots jobs still hold.
        address: at which workers on other machines reach it. None: unknown, or they cannot.
        metrics: what its programs use now. None: not measured, or it reports to another server of the pool.
    """

    name: str
    num_slots: int
    num_usable: int
    num_free: int
    kind: str | None = None
    traits: dict[str, str] = {}
    labels: dict[str, str] = {}
    gpu_types: dict[str, int] = {}
    agent: NodeAgent | None = None
    address: str | None = None
    metrics: MachineMetrics | None = None


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that a cluster gives to the pool, or is to give.

    Args:
        id: by which the cluster names it.
        node: name of the machine in the pool.
        state: ``waiting`` in the queue of the cluster, ``running``, or ``ending``.
        reason: why, in the words of the cluster. None: it gives no reason.
        ends_at: when the cluster takes it back at the latest. None: unknown, or no limit.
        owner: the only user whose jobs use it, and as whose system user it runs. None: it is for the jobs of all users.
    """

    id: str
    node: str
    state: str
    reason: str | None
    ends_at: float | None
    owner: str | None = None


class PilotOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A user who has machines of a cluster for their own jobs only.

    Args:
        name: of the user.
        system_user: as whom the machines run. None: there is none, as ``trouble`` says.
        target: number of machines that the jobs of the user need now, and may have.
        state: ``ok``; ``paused``: no machine is asked for, after a failure or because the user can have none.
        trouble: why the user gets none now, as sentences. None: the user does. Other users do not see it.
        machine_kinds, gpu_types: as in `Cluster`, of the machines of this user.
    """

    name: str
    system_user: str | None
    target: int
    state: str = "ok"
    trouble: str | None = None
    machine_kinds: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()


class IdleMachines(msgspec.Struct, frozen=True, kw_only=True):
    """What the machines of a cluster cost while no job uses them: an estimate, and no bill.

    Time is not counted while no server leads, or after a pause of the leading server of more than 300 s.

    Args:
        num_machines: machines that no job uses now.
        num_slots: their slots.
        slot_s: seconds for which these have been idle as the leading server has seen it, times their slots. Begins at
            0 when another server leads.
        total_slot_s: seconds for which machines were idle since ``since``, times their slots.
        given_slot_s: seconds for which machines were in the pool since ``since``, times their slots.
        since: seconds since 1970.
    """

    num_machines: int = 0
    num_slots: int = 0
    slot_s: float = 0.0
    total_slot_s: float = 0.0
    given_slot_s: float = 0.0
    since: float


class ClusterTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a cluster: it gives one machine, on which a job trains ten steps.

    Args:
        job: id of the job.
        state: ``running``, ``passed`` or ``failed``.
        told: what happens, or what is wrong and what to do about it, as one sentence. "": only admins see it.
        node: name of the machine in the pool.
        began_at: seconds since 1970.
        ended_at: when it was decided. None: it runs.
        is_clean: the machine has been given back to the cluster.
    """

    job: str
    state: str
    told: str
    node: str
    began_at: float
    ended_at: float | None = None
    is_clean: bool = False


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that gives machines to the pool as its jobs need them.

    Args:
        kind: ``slurm``, for example; its machines have the label ``legato.cluster`` with this value.
        name: for people.
        min_pilots, max_pilots: bounds of the number of its machines.
        target: number of machines that the jobs need now: of the whole pool, or, if each user has machines of their
            own, of the users in ``owners``.
        pilots: its machines, as it last showed them.
        trouble: why it gives none now, as sentences. None: it does.
        machine_kinds: kinds of its machines, as far as known; they give the same bits as machines of equal kind.
        gpu_types: models of their GPUs, as far as known.
        state: ``ok``; ``away``: it does not answer; ``paused``: no machine is asked for for a while, after a failure.
        observed_at: when it last answered. None: not yet.
        num_slots: slots of each machine.
        has_gpus: each of these is a GPU.
        idle: what its idle machines cost. None: not known.
        test: the last test of it. None: there was none.
        owners: the users who have machines of their own. Empty: machines are for the jobs of all users, or no user has.
        num_of_others: machines of other users, which ``pilots`` leaves out. 0 for admins, who see all.
        max_pilots_per_user: maximum number of machines of each user, if it is lower than that of all. None: it is not,
            or machines are for the jobs of all users.
    """

    kind: str
    name: str
    min_pilots: int
    max_pilots: int
    target: int
    pilots: tuple[Pilot, ...]
    trouble: str | None
    machine_kinds: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    state: str = "ok"
    observed_at: float | None = None
    num_slots: int = 1
    has_gpus: bool = False
    idle: IdleMachines | None = None
    test: ClusterTest | None = None
    owners: tuple[PilotOwner, ...] = ()
    num_of_others: int = 0
    max_pilots_per_user: int | None = None

    def only_of(self, user: str) -> Cluster:
        """Return the part that concerns the jobs of one user."""
        pilots = tuple(pilot for pilot in self.pilots if pilot.owner in (None, user))
        owners = tuple(owner for owner in self.owners if owner.name == user)
        num_of_others = self.num_of_others + len(self.pilots) - len(pilots)
        target = sum(owner.target for owner in owners) if self.owners else self.target
        return msgspec.structs.replace(self, target=target, pilots=pilots, owners=owners, num_of_others=num_of_others)

    def describe(self) -> tuple[str, ...]:
        """Return what it gives, what waits and why, as sentences.

        >>> waiting = [Pilot(id="7", node="s-1", state="waiting", reason="Priority", ends_at=None)]
        >>> fields = {"kind": "slurm", "min_pilots": 0, "max_pilots": 4, "target": 1, "trouble": None}
        >>> Cluster(name="Slurm", pilots=tuple(waiting), **fields).describe()
        ('1 machine waits in the queue of Slurm: Priority.',)
        """
        said = []
        running = sum(pilot.state == "running" for pilot in self.pilots)
        if running:
            said.append(f"{_count_machines(running)} of {self.name} {'run' if running > 1 else 'runs'}.")
        waiting = Counter(pilot.reason or "no reason given" for pilot in self.pilots if pilot.state == "waiting")
        if waiting:
            reasons = [f"{reason} ({number})" if len(waiting) > 1 else reason for reason, number in waiting.items()]
            verb = "wait" if waiting.total() > 1 else "waits"
            told = f"{_count_machines(waiting.total())} {verb} in the queue of {self.name}"
            said.append(f"{told}: {', '.join(sorted(reasons))}.")
        if self.num_of_others:
            verb = "belong" if self.num_of_others > 1 else "belongs"
            said.append(f"{_count_machines(self.num_of_others)} of {self.name} {verb} to other users.")
        if self.trouble is not None:
            said.append(f"{self.trouble.rstrip('.')}.")
        counted = Counter(pilot.owner for pilot in self.pilots if pilot.owner is not None)
        if len(counted) > 1:
            told = ", ".join(f"{owner} {number}" for owner, number in sorted(counted.items())[:_MAX_NAMED])
            more = f" and {len(counted) - _MAX_NAMED} more users" if len(counted) > _MAX_NAMED else ""
            said.append(f"By user: {told}{more}.")
        blocked = [owner for owner in self.owners if owner.trouble is not None]
        said += [f"User {owner.name}: {(owner.trouble or '').rstrip('.')}." for owner in blocked[:_MAX_NAMED]]
        if len(blocked) > _MAX_NAMED:
            said.append(f"{len(blocked) - _MAX_NAMED} more users have such troubles.")
        return tuple(said)


def _count_machines(number: int) -> str:
    return f"{number} machine{'' if number == 1 else 's'}"


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, and the job that holds it.

    ``job`` None: no job holds it, or you may not see the job. ``gpu_type``: model of its GPU; None: no GPU, or unknown.
    """

    id: str
    node: str
    device: str
    unusable_since: float | None
    unusable_reason: str | None
    is_free: bool
    job: str | None
    attempt: int | None
    since: float | None
    release_asked_at: float | None
    gpu_type: str | None = None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A named share of the pool, as an admin sets it.

    Args:
        weight: queues share the pool in proportion to their weights.
        floor: slots that the queue gets back whenever it wants them.
        ceiling: maximum number of slots. None: the whole pool.
        is_open: all users may submit to the queue.
        members: users who may submit to it and see its jobs.
    """

    name: str
    weight: float = 1.0
    floor: int = 0
    ceiling: int | None = None
    is_open: bool = True
    members: tuple[str, ...] = ()


class Queue(QueueSettings, frozen=True, kw_only=True):
    """A queue, with its numbers of slots and jobs.

    Args:
        num_slots: slots that its jobs hold.
        num_holding: jobs that hold slots or are about to.
        num_queued: jobs that wait.
    """

    num_slots: int
    num_holding: int
    num_queued: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one user used in one queue. ``slot_s``: slot seconds; ``num_jobs``: jobs that held slots."""

    owner: str
    queue: str
    slot_s: float
    num_jobs: int


class QueueShare(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's share of the pool.

    Args:
        ceiling: maximum number of slots. None: the whole pool.
        fair: slots that the queue has when every queue wants as many as it can get. None: the policy does not divide
            by weight.
        held: slots that its jobs hold.
        borrowed: how many of these are above ``fair``. None if ``fair`` is None.
        wanted: slots that its jobs could use.
    """

    queue: str
    weight: float
    floor: int
    ceiling: int | None
    fair: float | None
    held: int
    borrowed: float | None
    wanted: int


class UserShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one user has used of a queue.

    Args:
        slot_s: slot seconds in the asked time.
        num_slots: the same as an average number of slots.
        part: the part of it in all that was used of the queue, 0 to 1.
        recent_slots: average number of slots with the decay of the setting ``usage_half_life_s``. None: not set.
        weight: weight of the user in the queue: 1, or 0.5 or 0.25 after much recent use.
    """

    queue: str
    user: str
    slot_s: float
    num_slots: float
    part: float
    recent_slots: float | None
    weight: float


class WaitingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for its first slots, or for slots again.

    Args:
        position: of the job among the waiting jobs of its queue, from 1, in the order in which the policy considers
            them. A later job starts first if it needs fewer slots.
        num_waiting: number of waiting jobs of its queue.
    """

    job: str
    queue: str
    position: int
    num_waiting: int


class QueuesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen with other settings of queues. ``shares``: those of all queues after the change."""

    effects: tuple[Effect, ...]
    shares: tuple[QueueShare, ...]
    reason: str


class SlotMove(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a job was asked to give up, with the job that had it next, or a free slot that a job got.

    Args:
        time: when the job was asked; for a free slot, when the other job got it.
        from_job: id of the job that was asked. None: you may not see the job, or the slot was free.
        from_title: ``OWNER/NAME`` of that job. None: the slot was free.
        to_job: id of the job that had the slot next. None: you may not see the job, or no job has had the slot yet.
        to_title: ``OWNER/NAME`` of that job. None: no job has had the slot yet.
        reason: why the first job was asked. Empty: the slot was free, or the decision is no longer stored.
        taken_at: when the next job got the slot; until then, the first one still used it or it was free. None: no job
            has had the slot yet.
        taken_reason: why the next job got the slot. Empty: no job has had it yet, or the decision is no longer stored.
    """

    time: float
    slot: str
    from_job: str | None
    from_title: str | None
    to_job: str | None
    to_title: str | None
    reason: str
    taken_at: float | None = None
    taken_reason: str = ""


class StepLine(msgspec.Struct, frozen=True):
    """A step function of time: from each time on, it has the value at the same index."""

    times: tuple[float, ...]
    values: tuple[int, ...]


class HeldSlots(msgspec.Struct, frozen=True):
    """The slots that one job, owner, queue or project held over time: from each time on, the number at the same index.

    ``key`` and ``title`` None: all jobs that you may not see, together.
    """

    key: str | None
    title: str | None
    times: tuple[float, ...]
    slots: tuple[int, ...]


class Timeline(msgspec.Struct, frozen=True):
    """The slots that were held over time. ``num_slots``: usable slots of the pool."""

    since: float
    until: float
    num_slots: StepLine
    items: tuple[HeldSlots, ...]
