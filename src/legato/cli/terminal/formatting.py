"""Formats numbers of slots, ages, durations and texts from other users. Pure."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final

from legato.api.jobs import DRIVER_TROUBLE
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.api.jobs import JobRecord

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")
_DAY_S: Final = 86400
_WAITING: Final = ("queued", "starting", "running", "pausing", "stopping")


def clean(text: object) -> str:
    r"""Return another user's text on one line, without characters that could move the cursor.

    >>> clean("a\x1b[31mb\nc")
    'a?[31mb c'
    """
    told = str(text)
    if told.isprintable():
        return told
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in told)


def count_slots(number: int) -> str:
    """Write a number of slots. A slot is a GPU or, in a pool without GPUs, a share of a CPU.

    >>> count_slots(1), count_slots(4)
    ('1 slot', '4 slots')
    """
    return f"{number} slot{'' if number == 1 else 's'}"


def render_gpus(job: JobRecord) -> str:
    """Return how many slots a job has, and may have: ``2 of 1..4``; and how many help, if these are fewer.

    >>> from types import SimpleNamespace as Some
    >>> job = Some(num_slots=2, min_workers=1, max_workers=4, is_elastic=True, gpus_per_worker=1)
    >>> job.progress = Some(num_micro_batches=2)
    >>> render_gpus(job)
    '2 of 1..4 (2 help)'
    """
    each = job.gpus_per_worker
    bounds = str(job.max_workers * each)
    if job.is_elastic and job.min_workers != job.max_workers:
        bounds = f"{job.min_workers * each}..{job.max_workers * each}"
    most = job.progress.num_micro_batches if job.progress is not None else None
    helping = ""
    if most is not None and most < job.max_workers:
        helping = f" ({most * each} help{'s' if most * each == 1 else ''})"
    return f"{job.num_slots} of {bounds}{helping}"


def tell_when(job: JobRecord) -> str:
    """Return when a job's new bounds take effect, with a space before it; "" if they take effect at once.

    >>> from types import SimpleNamespace as Job
    >>> tell_when(Job(stage="starting")), tell_when(Job(stage="running"))
    (' It is starting; the change takes effect when it trains.', '')
    """
    return " It is starting; the change takes effect when it trains." if job.stage == "starting" else ""


def tell_waiting(job: JobRecord) -> str | None:
    """Return why a job produces no output, and what to type; None for a job that may produce output.

    >>> from types import SimpleNamespace as Job
    >>> reason = "'anna' asked to pause it."
    >>> tell_waiting(Job(stage="paused", name="m3", id="j-1", reason=reason, progress=None))
    "job 'm3' is paused: 'anna' asked to pause it. To resume it: legato resume j-1"
    >>> tell_waiting(Job(stage="running"))
    """
    if job.stage not in ("paused", "queued"):
        return None
    ways = {"paused": f"To resume it: legato resume {job.id}", "queued": f"For details: legato explain {job.id}"}
    return f"job '{job.name}' is {job.stage}: {render_reason(job).rstrip('.')}. {ways[job.stage]}"


def render_reason(job: JobRecord) -> str:
    """Return the reason to show for a job: the policy's while it has or wants slots, else that of its stage."""
    reason = (job.stage in _WAITING and job.decided_reason) or job.reason
    if job.progress is not None and job.progress.differed_step is not None and "not exact" not in reason:
        reason = f"not exact since step {job.progress.differed_step}; {reason}"
    if job.progress is not None and job.progress.unconnected and job.stage in _WAITING:
        reason = f"some workers cannot connect; {reason}"
    trouble = job.reason.partition(DRIVER_TROUBLE)[2]
    if trouble and DRIVER_TROUBLE not in reason:
        reason = f"its driver {trouble}; {reason}"
    return clean(reason)


def render_age(seconds: float) -> str:
    """Return an age in one unit or two.

    >>> [render_age(seconds) for seconds in (5, 83, 7384, 100000, 9e6)]
    ['5s', '1m23s', '2h03m', '1d03h', '104d']
    """
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < _DAY_S:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    days, rest = divmod(whole, _DAY_S)
    return f"{days}d{rest // 3600:02}h" if days < 10 else f"{days}d"


def render_time(unix_s: float | None) -> str:
    """Return a time in the local time zone; "" for None."""
    if unix_s is None:
        return ""
    return dt.datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def render_clock(unix_s: float, now: float) -> str:
    """Return a time of today as a time of day; another one with its date."""
    moment = dt.datetime.fromtimestamp(unix_s).astimezone()
    today = dt.datetime.fromtimestamp(now).astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def render_bytes(number: int) -> str:
    """Write a number of bytes.

    >>> render_bytes(512), render_bytes(123456), render_bytes(3 * 2**30)
    ('512 B', '120.6 KiB', '3.0 GiB')
    """
    if number < 1024:
        return f"{number} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((number.bit_length() - 1) // 10, len(units))
    return f"{number / 1024**power:.1f} {units[power - 1]}"


def render_part(part: float | None) -> str:
    """Write a part of a whole; "": it is not known.

    >>> render_part(0.784), render_part(None)
    ('78%', '')
    """
    return "" if part is None else f"{part:.0%}"


def render_sparkline(values: list[float]) -> str:
    """Draw the course of a number, in at most 24 characters.

    >>> render_sparkline([0.0, 1.0, 2.0, 3.0])
    '▁▃▆█'
    """
    marks = "▁▂▃▄▅▆▇█"
    if not values:
        return ""
    shown = [values[place * (len(values) - 1) // 23] for place in range(24)] if len(values) > 24 else values
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return "".join(marks[round((value - low) / span * (len(marks) - 1))] for value in shown)


def read_duration(text: str, what: str) -> float:
    """Read ``90s``, ``30m``, ``1.5h`` or ``7d``; return seconds. A number without a unit is ambiguous, so refused.

    Raises:
        UsageError: the text has another form.

    >>> read_duration("90s", "a time"), read_duration("1.5h", "a time")
    (90.0, 5400.0)
    """
    found = _DURATION.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS_S[found[2]] if found is not None else -1.0
    if not 0 <= seconds < 1e12:
        raise UsageError(f"Cannot read {what} '{text}'. Write a number and a unit, such as 90s, 30m, 12h or 7d.")
    return seconds


def read_moment(text: str, now: float, what: str) -> float:
    """Read ``7d`` (so long ago), ``2026-03-01`` or ``2026-03-01T12:00``; return seconds since 1970.

    Raises:
        UsageError: the text has another form.
    """
    if re.match(r"\d{4}-\d", text):
        try:
            return dt.datetime.fromisoformat(text).timestamp()
        except ValueError as error:
            raise UsageError(f"Cannot read {what} '{text}': {error}. Write 2026-03-01, or 2026-03-01T12:00.") from None
    return now - read_duration(text, what)


def read_period(since: str | None, until: str | None, now: float) -> tuple[float | None, float | None]:
    """Read ``--since`` and ``--until``, as `read_moment` does; return seconds since 1970, None for a text that is None.

    Raises:
        UsageError: a text has another form, or the period has no length or lies in the future.
    """
    begins = None if since is None else read_moment(since, now, "the beginning")
    ends = None if until is None else read_moment(until, now, "the end")
    if begins is not None and begins >= now:
        raise UsageError(f"The time of --since {since} is not in the past. Give an earlier one.")
    if begins is not None and ends is not None and begins >= ends:
        raise UsageError(f"--since {since} is not before --until {until}. Exchange them, or give other times.")
    return begins, ends


def read_label(text: str) -> tuple[str, str | None]:
    """Read ``KEY=VALUE``, or ``KEY=`` for a label to remove.

    Raises:
        UsageError: the text has another form.

    >>> read_label("team=vision"), read_label("team=")
    (('team', 'vision'), ('team', None))
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"Cannot read the label '{text}'. Write KEY=VALUE, such as team=vision.")
    return key, value or None


def read_parameter(text: str) -> tuple[str, str | bool | int | float]:
    """Read ``NAME=VALUE``, the value as a number or a boolean if it is one; ``NAME`` alone means true.

    Raises:
        UsageError: the text has another form.

    >>> [read_parameter(text) for text in ("epochs=3", "rate=1e-3", "wide", "quiet=false", "title=3 a")]
    [('epochs', 3), ('rate', 0.001), ('wide', True), ('quiet', False), ('title', '3 a')]
    """
    name, equals, said = text.partition("=")
    if not name:
        raise UsageError(f"Cannot read the parameter '{text}'. Write NAME=VALUE, such as epochs=3.")
    if not equals or said in ("true", "false"):
        return name, said != "false"
    if _NUMBER.fullmatch(said) is None:
        return name, said
    return name, int(said) if said.lstrip("-").isdecimal() else float(said)


def read_variable(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``.

    Raises:
        UsageError: the text has another form.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"Cannot read the variable '{text}'. Write NAME=VALUE, such as DATA=/data.")
    return name, value
