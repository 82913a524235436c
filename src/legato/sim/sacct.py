"""Reads what Slurm's ``sacct`` has printed as a workload: the jobs of a cluster that has no elastic jobs.

``sacct --allusers --parsable2 --format=...`` prints a line per job and step. Steps (``123.batch``) are part of their
job. A task of an array (``123_4``) is a job. The components of a heterogeneous job (``123+0``, ``123+1``) run together,
and count as one. A job that was requeued has several lines with ``--duplicates``; their times add up.

Slurm knows how long a job took on the slots that it had, and not how it scales: `Scaling` assumes that.
"""

from __future__ import annotations

import calendar
import enum
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from legato.core.errors import UsageError
from legato.sim.load import Load
from legato.sim.workload import PlannedJob

COMMAND: Final = (
    "sacct --allusers --parsable2 --starttime=2026-01-01 "
    "--format=JobID,JobName,User,Partition,Submit,Eligible,Start,End,ElapsedRaw,State,AllocTRES"
)
_LONGEST_S: Final = 366 * 86_400.0
_MOST_SLOTS: Final = 1_000_000
_LEAST_SPEEDUP: Final = 1.001  # of a job on all slots that it had
_TELL_EVERY: Final = 1000  # lines
_MAX_LINE: Final = 1_000_000  # characters

_JOB: Final = re.compile(r"(?P<job>\d+)(?:_(?P<task>\d+|\[.*\]?)|\+(?P<part>\d+))?(?P<step>\..+)?")
_DURATION: Final = re.compile(r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?")
_TYPED_GPU: Final = re.compile(r"gres/gpu:[^=]+")
_FREE_TEXT: Final = frozenset(
    {"admincomment", "comment", "constraints", "container", "extra", "licenses", "reason", "reqreservation"}
    | {"reservation", "stderr", "stdin", "stdout", "submitline", "systemcomment", "wckey", "workdir"}
)
"""Columns besides JobName whose values may contain a delimiter."""
_NO_TIME: Final = ("", "unknown", "none", "n/a")
_STATES: Final = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "EXPEDITING", "FAILED"}
    | {"LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "POWER_UP_NODE", "PREEMPTED", "RECONFIG_FAIL"}
    | {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING"}
    | {"SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT", "UPDATE_DB"}
)


class SlotUnit(enum.StrEnum):
    """What counts as a slot of the pool."""

    GPU = "gpu"
    CPU = "cpu"
    NODE = "node"


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """What is assumed of jobs, of which Slurm knows one number of slots only.

    Args:
        efficiency: speed on the slots that a job had, divided by their number and by the speed on one slot. A step
            takes a / W + b, so that this is so.
        growth: how many times more slots than it had a job can use.
    """

    efficiency: float = 1.0
    growth: float = 1.0


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a file.

    Args:
        plans: in order of submission; the first one is submitted at 0.
        num_lines: lines below the header.
        num_steps: lines of steps.
        num_not_run: jobs that had not started, such as those that wait or were cancelled before.
        num_running: jobs that had not ended; their length is what had passed.
        num_without_slots: jobs without a slot, such as those without a GPU.
    """

    plans: list[PlannedJob]
    num_lines: int
    num_steps: int
    num_not_run: int
    num_running: int
    num_without_slots: int

    def describe(self) -> str:
        """Return one sentence for people."""
        parts = [f"read {_count(len(self.plans), 'job')} from {_count(self.num_lines, 'line')}"]
        if self.num_steps:
            parts.append(f"{_count(self.num_steps, 'line')} of steps belong to them")
        if self.num_running:
            parts.append(f"{_count(self.num_running, 'job')} had not ended: the time until then counts")
        if self.num_not_run:
            parts.append(f"{_count(self.num_not_run, 'job')} left out that never ran")
        if self.num_without_slots:
            parts.append(f"{_count(self.num_without_slots, 'job')} left out that had none of these slots")
        return "; ".join(parts)


class _Row(msgspec.Struct):
    """One job while its lines are read."""

    line: int
    name: str
    owner: str
    queue: str
    submitted_at: float
    slots: int
    elapsed_s: float
    parts: dict[str, tuple[int, float]]  # slots and seconds of each component of a heterogeneous job


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def read_sacct(
    path: Path,
    unit: SlotUnit,
    scaling: Scaling,
    *,
    most_jobs: int = 100_000,
    on_progress: Callable[[int], None] = lambda _characters: None,
) -> Imported:
    """Read the jobs that a cluster has run.

    Args:
        path: of the output of ``sacct`` with a header and ``--parsable``, ``--parsable2`` or ``--delimiter``.
        unit: what counts as a slot.
        scaling: what is assumed of the jobs.
        most_jobs: more are refused.
        on_progress: called again and again with the number of characters that were read.

    Raises:
        UsageError: the file is invalid; the message says in which line, why, and what to do.
    """
    told = f"Cannot read '{path}' as output of sacct"
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            return _read_lines(_guard(file, told, on_progress), unit, scaling, told, most_jobs)
    except OSError as error:
        raise UsageError(f"{told}: {error.strerror or error}.") from error


def _guard(file: Iterator[str], told: str, on_progress: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file; report the progress."""
    done = 0
    for number, line in enumerate(file, 1):
        if len(line) > _MAX_LINE or "\0" in line:
            raise UsageError(f"{told}, line {number}: it is not text of sacct. Write its output with: {COMMAND}")
        done += len(line)
        if number % _TELL_EVERY == 0:
            on_progress(done)
        yield number, line.rstrip("\r\n")
    on_progress(done)


def _read_lines(
    lines: Iterator[tuple[int, str]], unit: SlotUnit, scaling: Scaling, told: str, most_jobs: int
) -> Imported:
    _, header = next(lines, (1, ""))
    names, delimiter = _read_header(header, unit, told)
    rows: dict[tuple[str, str], _Row] = {}
    num_lines = num_steps = num_not_run = num_running = num_without = 0
    for number, line in lines:
        if not line.strip():
            continue
        num_lines += 1
        where = f"{told}, line {number}"
        values = _split(line, names, delimiter, where)
        found = _JOB.fullmatch(values["jobid"])
        if found is None:
            raise UsageError(
                f"{where}: JobID is '{values['jobid'][:80]}', and not like 123, 123_4, 123+0 or 123.batch. "
                f"Write the file with: {COMMAND}"
            )
        if found["step"]:
            num_steps += 1
            continue
        state = _read_state(values, where)
        elapsed_s = _read_elapsed(values, where)
        if not elapsed_s or state == "PENDING":
            num_not_run += 1
            continue
        slots = _count_slots(values, unit, where)
        if not slots:
            num_without += 1
            continue
        num_running += state in ("RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STOPPED")
        _add(rows, found, _make_row(values, number, slots, elapsed_s, where), where)
        if len(rows) > most_jobs:
            raise UsageError(
                f"{told}: it has more than {most_jobs:,} jobs. Choose a shorter time with --starttime and --endtime of "
                "sacct."
            )
    jobs = sorted(rows.values(), key=lambda row: (row.submitted_at, row.line))
    if not jobs:
        raise UsageError(
            f"{told}: no job in it ran on a {unit.value}. {_count(num_not_run, 'job')} never ran, and "
            f"{_count(num_without, 'job')} had no {unit.value}. Choose another time with --starttime of sacct, or "
            "count slots by --sacct cpu or --sacct node."
        )
    begin, end = jobs[0].submitted_at, jobs[-1].submitted_at
    if end - begin > _LONGEST_S:
        raise UsageError(
            f"{told}: from the first to the last submission it is {(end - begin) / 86_400:,.0f} days, more than 366. "
            "Choose a shorter time with --starttime and --endtime of sacct."
        )
    return Imported(
        plans=[_plan(row, begin, scaling) for row in jobs],
        num_lines=num_lines,
        num_steps=num_steps,
        num_not_run=num_not_run,
        num_running=num_running,
        num_without_slots=num_without,
    )


# ---------------------------------------------------------------- lines


def _read_header(header: str, unit: SlotUnit, told: str) -> tuple[list[str], str]:
    """Return the names of the columns in small letters, and what separates them."""
    header = header.removeprefix("\ufeff")
    delimiter = next((one for one in ("|", "\t", ";") if one in header), None)
    names = [name.strip().casefold() for name in header.split(delimiter)] if delimiter else []
    if "jobid" not in names:
        kind = "it is empty" if not header.strip() else "its first line does not name the columns, with JobID"
        if delimiter is None and header.split() and header.split()[0].casefold() == "jobid":
            kind = "its columns are separated by spaces, so sacct may have cut values off"
        elif header.casefold().startswith("jobid,"):
            kind = "its columns are separated by commas, which are also part of values"
        raise UsageError(f"{told}: {kind}. Write it with a header and --parsable2: {COMMAND}")
    if names[-1] == "":
        names.pop()  # --parsable ends each line with a delimiter
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{told}, line 1: the column '{twice}' is there twice. Name each once in --format.")
    assert delimiter is not None
    for choices in (("submit",), ("elapsedraw", "elapsed"), _SLOT_COLUMNS[unit]):
        if not set(choices) & set(names):
            shown = " or ".join(_SHOWN[name] for name in choices)
            raise UsageError(f"{told}, line 1: there is no column {shown}. Write the file with: {COMMAND}")
    return names, delimiter


_SLOT_COLUMNS: Final = {
    SlotUnit.GPU: ("alloctres", "reqtres"),
    SlotUnit.CPU: ("alloctres", "alloccpus", "ncpus"),
    SlotUnit.NODE: ("alloctres", "allocnodes", "nnodes"),
}
_SHOWN: Final = {
    "submit": "Submit",
    "elapsedraw": "ElapsedRaw",
    "elapsed": "Elapsed",
    "alloctres": "AllocTRES",
    "reqtres": "ReqTRES",
    "alloccpus": "AllocCPUS",
    "ncpus": "NCPUS",
    "allocnodes": "AllocNodes",
    "nnodes": "NNodes",
}


def _split(line: str, names: list[str], delimiter: str, where: str) -> dict[str, str]:
    parts = line.split(delimiter)
    if len(parts) == len(names) + 1 and parts[-1] == "":
        parts.pop()
    surplus = len(parts) - len(names)
    if surplus > 0 and "jobname" in names and not _FREE_TEXT & set(names):
        # sacct writes a delimiter in the name of a job as it is.
        place = names.index("jobname")
        parts[place : place + surplus + 1] = [delimiter.join(parts[place : place + surplus + 1])]
    if len(parts) != len(names):
        raise UsageError(
            f"{where}: there are {len(parts)} values for {len(names)} columns. If a name or a comment contains a line "
            f"break or '{delimiter}', leave its column out of --format."
        )
    return {name: part.strip() for name, part in zip(names, parts, strict=True)}


def _read_state(values: Mapping[str, str], where: str) -> str:
    """Return the state without what follows it, as in ``CANCELLED by 1000``; COMPLETED if there is no such column."""
    text = values.get("state", "COMPLETED")
    state = text.split(" ")[0].removesuffix("+").upper()
    if state not in _STATES:
        raise UsageError(f"{where}: State is '{text[:80]}', which is no state of Slurm. Is it the right column?")
    return state


def _read_elapsed(values: Mapping[str, str], where: str) -> float:
    raw, text = values.get("elapsedraw", ""), values.get("elapsed", "")
    if raw:
        if not raw.isdecimal():
            raise UsageError(f"{where}: ElapsedRaw is '{raw[:80]}'. Slurm writes whole seconds there.")
        elapsed_s = float(raw)
    elif text.casefold() in (*_NO_TIME, "invalid"):
        return 0.0  # Slurm writes INVALID if a clock was set back
    else:
        elapsed_s = read_duration(text, f"{where}: Elapsed")
    if elapsed_s > _LONGEST_S:
        raise UsageError(f"{where}: the job took {elapsed_s / 86_400:,.0f} days, more than 366. Leave this line out.")
    return elapsed_s


def read_duration(text: str, where: str) -> float:
    """Read a duration as Slurm writes it, ``[DD-[HH:]]MM:SS``, in seconds.

    Raises:
        UsageError: it is something else; the message begins with ``where``.

    >>> read_duration("1-02:03:04", ""), read_duration("02:03:04", ""), read_duration("03:04", "")
    (93784.0, 7384.0, 184.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None or len(text) > 40:
        raise UsageError(f"{where} is '{text[:80]}'. Slurm writes a duration as 1-02:03:04, 02:03:04 or 03:04.")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _read_time(text: str, where: str) -> float | None:
    """Read a time as Slurm writes it, also with ``SLURM_TIME_FORMAT=%s``; None if the job has none."""
    if text.casefold() in _NO_TIME:
        return None
    if text.isdecimal() and len(text) < 12:
        return float(text)
    try:
        # The zone does not matter, unless clocks change: only differences count.
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        raise UsageError(
            f"{where} is '{text[:80]}'. Slurm writes 2026-01-31T12:00:00, unless SLURM_TIME_FORMAT is set."
        ) from None


def _count_slots(values: Mapping[str, str], unit: SlotUnit, where: str) -> int:
    """Return the number of slots of a job: what it had, or what it asked for if that is not known."""
    for name in ("alloctres", "reqtres"):
        if values.get(name):
            return _count_resources(values[name], unit, f"{where}: {_SHOWN[name]}")
    for name in _SLOT_COLUMNS[unit]:
        if values.get(name):
            return _read_number(values[name], f"{where}: {_SHOWN[name]}")
    return 0


def _count_resources(text: str, unit: SlotUnit, where: str) -> int:
    """Count slots in trackable resources.

    >>> text = "billing=8,cpu=8,gres/gpu:a100=3,gres/gpu:h100=1,gres/gpu=4,mem=32G,node=2"
    >>> [_count_resources(text, unit, "") for unit in (SlotUnit.GPU, SlotUnit.CPU, SlotUnit.NODE)]
    [4, 8, 2]
    """
    total, typed = None, 0
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not equals:
            raise UsageError(f"{where} is '{text[:80]}'. Slurm writes cpu=8,gres/gpu=4,mem=32G,node=2.")
        if name == ("gres/gpu" if unit is SlotUnit.GPU else unit.value):
            total = _read_number(number, where)
        elif unit is SlotUnit.GPU and _TYPED_GPU.fullmatch(name):
            typed += _read_number(number, where)
    return typed if total is None else total


def _read_number(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) > _MOST_SLOTS:
        raise UsageError(f"{where} has the number '{text[:40]}'. Write a whole number up to {_MOST_SLOTS:,}.")
    return int(text)


# ---------------------------------------------------------------- jobs


def _make_row(values: Mapping[str, str], number: int, slots: int, elapsed_s: float, where: str) -> _Row:
    submitted_at = _read_time(values["submit"], f"{where}: Submit")
    if submitted_at is None:
        raise UsageError(f"{where}: Submit is '{values['submit']}', although the job ran. Leave this line out.")
    # A job that had to wait for another one, or was held, could not start before it was eligible.
    eligible_at = _read_time(values.get("eligible", ""), f"{where}: Eligible")
    return _Row(
        line=number,
        name=values.get("jobname") or values["jobid"],
        owner=values.get("user") or "user",
        queue=(values.get("partition") or "default").split(",")[0],
        submitted_at=max(submitted_at, eligible_at or 0.0),
        slots=slots,
        elapsed_s=elapsed_s,
        parts={},
    )


def _add(rows: dict[tuple[str, str], _Row], found: re.Match[str], row: _Row, where: str) -> None:
    """Add a job, a component of a heterogeneous job, or another run of a job that was requeued."""
    part = found["part"] or ""
    known = rows.setdefault((found["job"], found["task"] or ""), row)
    slots, elapsed_s = known.parts.get(part, (0, 0.0))
    known.parts[part] = max(slots, row.slots), elapsed_s + row.elapsed_s
    if known is row:
        return
    known.submitted_at = min(known.submitted_at, row.submitted_at)
    known.slots += known.parts[part][0] - slots
    known.elapsed_s = max(known.elapsed_s, known.parts[part][1])
    if known.slots > _MOST_SLOTS:
        raise UsageError(f"{where}: the components of the job have more than {_MOST_SLOTS:,} slots.")


def _plan(row: _Row, begin: float, scaling: Scaling) -> PlannedJob:
    num_steps = max(round(row.elapsed_s), 1)
    # A step takes one second on the slots that the job had.
    alone_s, fixed_s = 1.0, 0.0
    if row.slots > 1:
        alone_s = max(row.slots * scaling.efficiency, _LEAST_SPEEDUP)
        fixed_s = (row.slots - alone_s) / (row.slots - 1)
    return PlannedJob(
        name=row.name,
        owner=row.owner,
        queue=row.queue,
        submitted_at=row.submitted_at - begin,
        max_workers=max(int(row.slots * scaling.growth), row.slots),
        asked_workers=row.slots,
        load=Load(num_steps=num_steps, step_s=alone_s - fixed_s, fixed_s=fixed_s),
        line=row.line,
    )
