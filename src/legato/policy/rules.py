"""The settings of a policy. Decides nothing."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Policy(enum.StrEnum):
    """The rule by which slots are divided."""

    FAIR = "fair"  # by weight: queues first, then the jobs of each
    PRIORITY = "priority"  # the higher priority first, up to its maximum; equals share fairly
    FIFO = "fifo"  # in order of submission, each up to its maximum
    THROUGHPUT = "throughput"  # as fair, but jobs that share get each slot where it makes training faster by most

    @property
    def is_fair(self) -> bool:
        """Whether queues, and their users or jobs, share by weight."""
        return self in _FAIR


_FAIR: Final = (Policy.FAIR, Policy.THROUGHPUT)


class FairBy(enum.StrEnum):
    """The level on which the policies ``fair`` and ``throughput`` divide the slots of a queue first."""

    USER = "user"  # the users of the queue by weight, then the jobs of each
    JOB = "job"  # all jobs of the queue


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a policy.

    Args:
        policy: which jobs come first. fair: an earlier or larger job cannot exclude others. throughput: the same, and
            no slot goes to a job that it hardly helps while another one that shares with it gains more.
        fair_by: what shares the slots of a queue under a fair share. user: a user with many jobs gets no more slots
            than one with one job; priorities weigh the jobs of one user. job: a user with more jobs gets more slots.
        usage_half_life_s: seconds after which the past use of slots counts half, when the users of a queue share. A
            user who has used more than an equal share lately has half the weight, or a quarter, never less. None: past
            use does not count.
        stability_s: seconds; a change for mere fairness, or a growth, waits until it has been wanted this long. Starts,
            and the shrinks that make room for them, never wait. 3: a job that ends and the next one that comes in its
            place do not resize the others twice, and people do not notice.
        cooldown_factor: a job is not resized again for mere fairness or growth within this many times its own measured
            resize cost. 20: at most a twentieth of a job's time goes into resizes; in simulation that removed 38 % of
            them at no cost in mean completion time.
        gather_s: seconds; while slots are being freed, a job that could start or grow with fewer waits this long for
            all of its share, so that it is not resized again at once. 10: a worker that has to leave is
            gone or killed within that time.
        reserve_after_s: seconds; a job whose minimum does not fit always goes before those behind it as soon as it
            fits, and they pause for it. When it is older than this, no job behind it is started any more either: fewer
            pauses, but slots may stay idle. None: they may always start, because a pause costs seconds.
        ageing_s: seconds of waiting that weigh as much as 5000 points of priority when a fair share decides whose
            minimum comes first, so that no job is overtaken forever. None: priority decides, and age only among
            equals.
        fair_finish_s: seconds; a job that has had less than its share for longer than this goes before others when a
            fair share decides whose minimum comes first: twice its priority counts if it had half of what was due to
            it, up to eight times. Jobs then take turns, which pauses them more often. None: it does not count. 60: in
            simulation of a full pool that halved the 99th percentile of completion times; 600 did little.
        measured_speed_s: seconds of training with a number of workers after which its measured speed counts: a job then
            gets no slots with which it was slower than with fewer. 60: long enough to tell a slow machine from a slow
            minute. None: measured speeds do not count.
        long_job_slot_s: seconds of slots after which a job is long. Of the long jobs that share under a fair share, the
            one that comes first keeps its weight, and each later one weighs an eighth of the one before it, so that
            they end one after the other. None: all share alike.
    """

    policy: Policy = Policy.FAIR
    fair_by: FairBy = FairBy.USER
    usage_half_life_s: float | None = None
    stability_s: float = 3.0
    cooldown_factor: float = 20.0
    gather_s: float = 10.0
    reserve_after_s: float | None = None
    ageing_s: float | None = None
    fair_finish_s: float | None = None
    measured_speed_s: float | None = 60.0
    long_job_slot_s: float | None = None
