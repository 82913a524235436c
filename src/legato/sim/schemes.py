"""Ways to share the pool that can be compared: the policies, and a model of platforms without elastic jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from legato.core.errors import UsageError
from legato.policy.rules import FairBy, Policy
from legato.policy.snapshot import MAX_PRIORITY
from legato.sim.simulation import Setting
from legato.sim.workload import PlannedJob

_replace = msgspec.structs.replace


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """One way to share the pool.

    Args:
        name: on the command line.
        policy: by which slots are divided.
        fair_by: what shares the slots of a queue under a fair share.
        all_static: every job has the number of workers that it asks for, or none.
        is_plain: measured speeds and lengths of jobs do not count.
        is_serial: long jobs are served one after the other.
        demote_after_slot_s: as in `Setting`; all jobs begin with the same priority.
    """

    name: str
    policy: Policy
    fair_by: FairBy = FairBy.USER
    all_static: bool = False
    is_plain: bool = False
    is_serial: bool = False
    demote_after_slot_s: tuple[float, ...] = ()

    def apply(self, plans: Iterable[PlannedJob], setting: Setting) -> tuple[list[PlannedJob], Setting]:
        """Return a workload and a platform, adapted to this scheme.

        If all jobs are static, a job that asks for more slots than the pool has asks for all slots of the pool.
        A scheme that is not serial keeps ``Rules.long_job_slot_s``, unless it is plain.
        """
        rules = setting.rules
        long_s = rules.long_job_slot_s
        if self.is_serial:
            long_s = LONG_JOB_SLOT_S if long_s is None else long_s
        elif self.is_plain:
            long_s = None
        rules = _replace(
            rules,
            policy=self.policy,
            fair_by=self.fair_by,
            long_job_slot_s=long_s,
            measured_speed_s=None if self.is_plain else rules.measured_speed_s,
        )
        setting = _replace(setting, rules=rules, demote_after_slot_s=self.demote_after_slot_s)
        found = list(plans)
        if self.demote_after_slot_s:
            found = [_replace(plan, priority=MAX_PRIORITY) for plan in found]
        if self.all_static:
            found = [_make_static(plan, find_limit(plan, setting)) for plan in found]
        return found, setting


LONG_JOB_SLOT_S: Final = 28_800.0
"""8 hours on one slot: from then on a job is long, where long jobs are served one after the other."""

_LAS_SLOT_S: Final = 57_600.0
"""16 hours on one slot, as in the evaluation of Pollux (OSDI 2021): jobs with less service go first."""

SCHEMES: Final = {
    scheme.name: scheme
    for scheme in (
        Scheme(name="fair", policy=Policy.FAIR),
        Scheme(name="fair-by-job", policy=Policy.FAIR, fair_by=FairBy.JOB),
        Scheme(name="fair-serial", policy=Policy.FAIR, is_serial=True),
        Scheme(name="throughput", policy=Policy.THROUGHPUT),
        Scheme(name="throughput-by-job", policy=Policy.THROUGHPUT, fair_by=FairBy.JOB),
        Scheme(name="throughput-serial", policy=Policy.THROUGHPUT, is_serial=True),
        Scheme(name="max-min", policy=Policy.FAIR, fair_by=FairBy.JOB, is_plain=True),
        Scheme(name="priority", policy=Policy.PRIORITY),
        Scheme(name="fifo", policy=Policy.FIFO),
        Scheme(name="gang", policy=Policy.FIFO, all_static=True),
        Scheme(name="las", policy=Policy.PRIORITY, all_static=True, demote_after_slot_s=(_LAS_SLOT_S,)),
    )
}


def parse_schemes(text: str) -> tuple[Scheme, ...]:
    """Read the names of schemes, separated by commas.

    Raises:
        UsageError: a scheme is unknown or named twice.

    >>> [scheme.name for scheme in parse_schemes("fair, gang")]
    ['fair', 'gang']
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SCHEMES:
            raise UsageError(f"There is no policy '{name}'. Write one or more of {', '.join(SCHEMES)}, with commas.")
        if names.count(name) > 1:
            raise UsageError(f"The policy '{name}' is named twice. Name each once.")
    return tuple(SCHEMES[name] for name in names)


def find_limit(plan: PlannedJob, setting: Setting) -> int:
    """Return how many slots a job can have at most, however long it waits."""
    ceilings = [queue.ceiling for queue in setting.queues if queue.name == plan.queue and queue.ceiling is not None]
    return min([setting.num_slots, *ceilings])


def check_fits(plans: Iterable[PlannedJob], setting: Setting) -> None:
    """Check that every job can start at some time.

    Raises:
        UsageError: a job cannot start; the message says which one, and what to change.
    """
    for plan in plans:
        least, limit = plan.min_workers if plan.is_elastic else plan.max_workers, find_limit(plan, setting)
        if least > limit:
            line = f"line {plan.line}: " if plan.line is not None else ""
            where = "the pool has" if limit == setting.num_slots else f"queue '{plan.queue}' may have"
            column = "min" if plan.is_elastic else "max"
            raise UsageError(
                f"Cannot simulate: {line}job '{plan.name}' needs {least} slots at once, but {where} {limit}. "
                f"Lower its {column}, or give more slots."
            )


def _make_static(plan: PlannedJob, limit: int) -> PlannedJob:
    asked = plan.max_workers if plan.asked_workers is None else plan.asked_workers
    width = min(asked, limit)
    return _replace(plan, is_elastic=False, min_workers=width, max_workers=width)
