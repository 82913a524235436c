"""Random schedules of what may happen to jobs on several hosts. Pure: a seed in, a text out.

A schedule is a line for each act: ``then crash driver 12.5``. Its words are:

- ``then`` (when what came before is over and the jobs train again) or ``also`` (immediately),
- what happens: one of `JOB` or `POOL`,
- to which host: ``h1``, ``h2``, …, or the host of the ``driver``, of rank 0 (``first``) or of the ``store``. ``split``
  takes several, and separates them together from all others. ``scale`` takes a number of workers, ``worker`` a rank,
- and for how many seconds, if it ends.

Lines of a text that fails can be removed, to find those that matter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

OUTAGES: Final = ("crash", "cut", "split", "freeze")
JOB: Final = {"scale": 4, "worker": 4, "agent": 2, "driver": 3, "crash": 4, "cut": 4, "split": 3, "freeze": 2}
"""What may happen to a job, and how often: another number of workers, SIGKILL of a process, an outage of hosts."""
POOL: Final = {**JOB, "server": 3, "pool": 2, "drain": 3, "leave": 3}
"""Also to a pool: SIGKILL of the server, or of a host's pool agent; an admin drains a host, or its agent leaves."""

LASTING: Final = (*OUTAGES, "server", "drain", "leave")
ROLES: Final = ("driver", "first", "store")
_WITHOUT_TARGET: Final = ("driver", "server")
_OF_POOL_AGENTS: Final = ("pool", "drain", "leave")
_ALSO: Final = 0.3
_SHARE_OF_ROLES: Final = 0.5


class Act(NamedTuple):
    """One line of a schedule.

    Args:
        at_once: it happens while the jobs still deal with what came before.
        kind: one of `POOL`.
        targets: hosts by name or role, a number of workers, or a rank; empty for ``driver`` and ``server``.
        seconds: until it is over; 0 for kinds that do not last.
    """

    at_once: bool
    kind: str
    targets: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        words = ["also" if self.at_once else "then", self.kind]
        words += [",".join(self.targets)] if self.targets else []
        words += [f"{self.seconds:g}"] if self.kind in LASTING else []
        return " ".join(words)

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a line. Raises ValueError if it is none."""
        when, kind, *rest = line.split()
        has_target, lasts = kind not in _WITHOUT_TARGET, kind in LASTING
        if when not in ("then", "also") or kind not in POOL or len(rest) != has_target + lasts:
            raise ValueError(f"not an act: {line!r}")
        targets = tuple(rest[0].split(",")) if has_target else ()
        return cls(when == "also", kind, targets, float(rest[-1]) if lasts else 0.0)


def draw(
    seed: int, num_acts: int, *, hosts: int, max_workers: int, lease_s: float, kinds: Mapping[str, int] = JOB
) -> list[Act]:
    """Draw a schedule.

    Args:
        seed: the same seed gives the same schedule.
        num_acts: how many lines.
        hosts: how many there are. The first has no pool agent.
        max_workers: of a job.
        lease_s: of agents: some outages are shorter, and some longer.
        kinds: what may happen, and how often.
    """
    dice = random.Random(seed)
    return [_draw_one(dice, hosts, max_workers, lease_s, kinds) for _ in range(num_acts)]


def parse(text: str) -> list[Act]:
    """Read a schedule: lines, or parts that are separated by semicolons."""
    return [Act.parse(line) for line in text.replace(";", "\n").splitlines() if line.strip()]


def _draw_one(dice: random.Random, hosts: int, max_workers: int, lease_s: float, kinds: Mapping[str, int]) -> Act:
    at_once = dice.random() < _ALSO
    (kind,) = dice.choices(list(kinds), weights=list(kinds.values()))
    targets = tuple(_draw_targets(dice, kind, [f"h{number}" for number in range(1, hosts + 1)], max_workers))
    if kind not in LASTING:
        return Act(at_once, kind, targets)
    # As often shorter than the lease as longer.
    seconds = round(dice.choice((dice.uniform(0.2, lease_s), dice.uniform(lease_s, 2.5 * lease_s))), 1)
    return Act(at_once, kind, targets, seconds)


def _draw_targets(dice: random.Random, kind: str, names: list[str], max_workers: int) -> Sequence[str]:
    if kind in _WITHOUT_TARGET:
        return ()
    if kind == "scale":
        return (str(dice.randint(1, max_workers)),)
    if kind == "worker":
        return (str(dice.randrange(max_workers)),)
    if kind == "split":
        return sorted(dice.sample(names, dice.randint(1, len(names) - 1)))
    if kind in _OF_POOL_AGENTS:
        return (dice.choice(names[1:]),)
    return (dice.choice(ROLES if dice.random() < _SHARE_OF_ROLES else names),)
