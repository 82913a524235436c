"""Compares runs of one program step by step, by the records of their workers. Pure, except for reading files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from legato.core.verification import Recorded
from legato.system.decoding import decode

_NUM_SHOWN: Final = 6


class Moment(NamedTuple):
    """The states of one run's workers after a step.

    Args:
        num_workers: number of workers that computed the step; workers that join after it have its state too.
        held: number of the worker → checksums by name.
    """

    num_workers: int
    held: dict[int, dict[str, int]]

    @property
    def differing(self) -> list[str]:
        """The names of the pieces that differ between the workers."""
        return _differing(list(self.held.values()))

    @property
    def sums(self) -> dict[str, int]:
        """The checksums of the worker with the lowest number."""
        return self.held[min(self.held)]


class Finding(NamedTuple):
    """The first difference between two runs, or between the workers of one run.

    Args:
        kind: ``repeat``: two runs with one worker; ``workers``: the workers of one run among themselves; ``number``:
            a run with one worker and one with several.
        step: the first step after which they differ.
        names: of the pieces that differ.
        num_workers: number of workers in that step.
        changed: the number of workers differs from that of the step before.
    """

    kind: str
    step: int
    names: list[str]
    num_workers: int = 1
    changed: bool = False


Run = Mapping[int, Moment]


def read_run(directory: Path) -> dict[int, Moment]:
    """Return the records of a run's workers, by step; an incomplete last line is left out."""
    moments: dict[int, Moment] = {}
    for path in sorted(directory.glob("worker-*.jsonl")):
        worker = int(path.stem.partition("-")[2])
        for line in path.read_bytes().splitlines():
            try:
                recorded = decode(line, Recorded)
            except msgspec.DecodeError:
                continue
            moment = moments.setdefault(recorded.step, Moment(recorded.num_workers, {}))
            moment.held[worker] = recorded.sums
            moments[recorded.step] = moment._replace(num_workers=min(moment.num_workers, recorded.num_workers))
    return dict(sorted(moments.items()))


def compare(first: Run, again: Run, several: Run) -> Finding | None:
    """Return the first difference, None if all three runs are the same.

    Args:
        first: with one worker.
        again: with one worker, again.
        several: with several workers.
    """
    for step in sorted(first.keys() & again.keys()):
        if names := _differing([first[step].sums, again[step].sums]):
            return Finding("repeat", step, names)
    before = 1
    for step in sorted(several):
        moment = several[step]
        changed, before = moment.num_workers != before, moment.num_workers
        if names := moment.differing:
            return Finding("workers", step, names, moment.num_workers, changed)
        if step in first and (names := _differing([first[step].sums, moment.sums])):
            return Finding("number", step, names, moment.num_workers, changed)
    return None


def describe(finding: Finding) -> str:
    """Return a text for users: where runs differ, and the usual causes."""
    names, more = finding.names[:_NUM_SHOWN], len(finding.names) - _NUM_SHOWN
    what = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    there = "at the start" if finding.step == 0 else f"at step {finding.step}"
    title, causes = _CAUSES[finding.kind]
    where = ""
    if finding.kind != "repeat":
        where = f" That step was computed by {finding.num_workers} worker{'s' if finding.num_workers > 1 else ''}" + (
            ", and was the first after a change." if finding.changed else "."
        )
    return f"{title.format(there=there, what=what)}{where}\nUsual causes:{causes}"


def _differing(checksums: Iterable[Mapping[str, int]]) -> list[str]:
    found = list(checksums)
    names = dict.fromkeys(name for sums in found for name in sums)
    return [name for name in names if len({sums.get(name) for sums in found}) > 1]


_CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "repeat": (
        "The program does not repeat its result: two runs with one worker differ {there}, in {what}.",
        """
  - A clock, or a number of the process or the machine, in a computation.
  - A generator without a seed: numpy.random.default_rng(), random.Random(), torch.Generator().seed(). Draw from the
    global generators: Legato seeds them.
  - A file that the program changes itself, such as a cache of its data set.
  - Kernels that are not deterministic: call torch.use_deterministic_algorithms(True).""",
    ),
    "workers": (
        "The workers do not have the same state {there}: they differ in {what}.",
        """
  - The loop changes parameters, buffers or an averaged model in every turn instead of under `if run.stepped:`.
  - Forward assigns a buffer or writes a parameter, or the forward pass of an evaluation changes a buffer.
  - run.rank, a clock, or something else that differs between workers, in what the program does after a step.
  - An optimizer keeps numbers as its own attributes, which do not reach workers that join.""",
    ),
    "number": (
        "The result depends on the workers: a run with one worker and one with several differ {there}, in {what}.",
        """
  - run.rank or run.num_workers in a computation.
  - A generator that the program makes, such as torch.Generator or numpy.random.default_rng(seed), in the model, in a
    transform or in the loop: each worker draws for its own micro-batches only. Draw from the global generators.
  - State in Python attributes or in a hook, such as a counter or a running mean, that forward or the loop changes in
    every turn: each worker has its own. Register it as a buffer, or use run.step.
  - Augmented samples that are cached, or a data set that counts: a sample may depend on its index and the global
    generators only.
  - Parameters that the loop changes in every turn instead of under `if run.stepped:`.""",
    ),
}
