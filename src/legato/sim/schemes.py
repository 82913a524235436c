"""Ways to share the pool that can be compared: the policies, and a model of platforms without elastic jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from legato.core.errors import UsageError
from legato.policy.rules import FairBy, Policy
from legato.sim.simulation import Setting
from legato.sim.workload import PlannedJob

_replace = msgspec.structs.replace


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """One way to share the pool.

    Args:
        name: on the command line.
        policy: by which slots are divided.
        fair_by: what shares the slots of a queue under a fair share.
        all_static: every job has its maximum of workers or none.
    """

    name: str
    policy: Policy
    fair_by: FairBy = FairBy.USER
    all_static: bool = False

    def apply(self, plans: Iterable[PlannedJob], setting: Setting) -> tuple[list[PlannedJob], Setting]:
        """Return a workload and a platform, adapted to this scheme.

        If all jobs are static, a job that asks for more slots than the pool has asks for all slots of the pool.
        """
        setting = _replace(setting, rules=_replace(setting.rules, policy=self.policy, fair_by=self.fair_by))
        if not self.all_static:
            return list(plans), setting
        return [_make_static(plan, find_limit(plan, setting)) for plan in plans], setting


SCHEMES: Final = {
    "fair": Scheme(name="fair", policy=Policy.FAIR),
    "fair-by-job": Scheme(name="fair-by-job", policy=Policy.FAIR, fair_by=FairBy.JOB),
    "throughput": Scheme(name="throughput", policy=Policy.THROUGHPUT),
    "throughput-by-job": Scheme(name="throughput-by-job", policy=Policy.THROUGHPUT, fair_by=FairBy.JOB),
    "priority": Scheme(name="priority", policy=Policy.PRIORITY),
    "fifo": Scheme(name="fifo", policy=Policy.FIFO),
    "gang": Scheme(name="gang", policy=Policy.FIFO, all_static=True),
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
    width = min(plan.max_workers, limit)
    return _replace(plan, is_elastic=False, min_workers=width, max_workers=width)
