"""Random schedules of what may happen to a job on several hosts. Pure: a seed in, a text out.

A schedule is a line for each act: ``then crash driver 12.5``. Its words are:

- ``then`` (when what came before is over and the job trains again) or ``also`` (immediately),
- what happens: one of `KINDS`,
- to which host: ``h1``, ``h2``, …, or the host of the ``driver``, of rank 0 (``first``) or of the ``store``. ``split``
  takes several, and separates them together from all others. ``scale`` takes a number of workers, ``worker`` a rank,
- and for how many seconds, if it ends.

Lines of a text that fails can be removed, to find those that matter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

KINDS: Final = {"scale": 4, "worker": 4, "agent": 2, "driver": 3, "crash": 4, "cut": 4, "split": 3, "freeze": 2}
"""What may happen, and how often: another number of workers, SIGKILL of a process, an outage of hosts."""

OUTAGES: Final = ("crash", "cut", "split", "freeze")
ROLES: Final = ("driver", "first", "store")
_ALSO: Final = 0.3
_SHARE_OF_ROLES: Final = 0.5


class Act(NamedTuple):
    """One line of a schedule.

    Args:
        at_once: it happens while the job still deals with what came before.
        kind: one of `KINDS`.
        targets: hosts by name or role, a number of workers, or a rank; empty for ``driver``.
        seconds: until hosts come back; 0 for other kinds.
    """

    at_once: bool
    kind: str
    targets: tuple[str, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        words = ["also" if self.at_once else "then", self.kind]
        words += [",".join(self.targets)] if self.targets else []
        words += [f"{self.seconds:g}"] if self.kind in OUTAGES else []
        return " ".join(words)

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a line. Raises ValueError if it is none."""
        when, kind, *rest = line.split()
        if when not in ("then", "also") or kind not in KINDS or len(rest) != (kind != "driver") + (kind in OUTAGES):
            raise ValueError(f"not an act: {line!r}")
        targets = tuple(rest[0].split(",")) if rest else ()
        return cls(when == "also", kind, targets, float(rest[1]) if kind in OUTAGES else 0.0)


def draw(seed: int, num_acts: int, *, hosts: int, max_workers: int, lease_s: float) -> list[Act]:
    """Draw a schedule.

    Args:
        seed: the same seed gives the same schedule.
        num_acts: how many lines.
        hosts: how many there are.
        max_workers: of the job.
        lease_s: of agents: some outages are shorter, and some longer.
    """
    dice = random.Random(seed)
    return [_draw_one(dice, hosts, max_workers, lease_s) for _ in range(num_acts)]


def parse(text: str) -> list[Act]:
    """Read a schedule: lines, or parts that are separated by semicolons."""
    return [Act.parse(line) for line in text.replace(";", "\n").splitlines() if line.strip()]


def _draw_one(dice: random.Random, hosts: int, max_workers: int, lease_s: float) -> Act:
    at_once = dice.random() < _ALSO
    (kind,) = dice.choices(list(KINDS), weights=list(KINDS.values()))
    names = [f"h{number}" for number in range(1, hosts + 1)]
    if kind == "scale":
        return Act(at_once, kind, (str(dice.randint(1, max_workers)),))
    if kind == "worker":
        return Act(at_once, kind, (str(dice.randrange(max_workers)),))
    if kind == "driver":
        return Act(at_once, kind)
    if kind == "split":
        targets: Sequence[str] = sorted(dice.sample(names, dice.randint(1, hosts - 1)))
    else:
        targets = [dice.choice(ROLES if dice.random() < _SHARE_OF_ROLES else names)]
    # As often shorter than the lease as longer.
    seconds = round(dice.choice((dice.uniform(0.2, lease_s), dice.uniform(lease_s, 2.5 * lease_s))), 1)
    return Act(at_once, kind, tuple(targets), seconds if kind in OUTAGES else 0.0)
