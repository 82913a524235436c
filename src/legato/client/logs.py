"""Reads the logs of a job: existing lines, and new ones. Stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from legato.api.lists import Page
from legato.api.outputs import Log
from legato.client.connection import Line
from legato.core.errors import NotFound
from legato.system.decoding import decode

DRIVER: Final = "driver"
_WORKER: Final = "worker-"
_MAX_LINE: Final = 1 << 16  # characters; a longer line is yielded in parts
_NUM_NAMED: Final = 10


class LogLine(NamedTuple):
    """One line of a log, without its end. ``log``: ``worker-N`` or ``driver``."""

    log: str
    text: str

    @property
    def worker(self) -> int | None:
        """The number of the worker that wrote the line; None: the driver wrote it."""
        return int(self.log.removeprefix(_WORKER)) if self.log.startswith(_WORKER) else None

    def __str__(self) -> str:
        return self.text


class FoundLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a search has found.

    Args:
        log: the log that contains it; ``worker-N`` or ``driver``.
        offset: of its first byte in the log.
        time: when it was written, in seconds since 1970. None: not known.
        level: ``debug``, ``info``, ``warning`` or ``error``. None: the line names no level.
        text: without its end; only the beginning of a very long line.
    """

    log: str = ""
    offset: int
    time: float | None
    level: str | None
    text: str


class _Found(msgspec.Struct, frozen=True):
    items: tuple[FoundLine, ...]
    after: int | None


class LogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a log, in bytes. ``time``: when the text there was written; None: not known."""

    offset: int
    time: float | None


class _Piece(msgspec.Struct, frozen=True):
    log: str
    text: str


def name_log(worker: int) -> str:
    """Return the name of a worker's log."""
    return f"{_WORKER}{worker}"


def search_logs(line: Line, job: str, logs: Sequence[str], contains: str, level: str | None) -> Iterator[FoundLine]:
    """Yield the lines of logs that contain a text, one log after the other.

    Args:
        line: the connection to the server.
        job: its id.
        logs: their names. Empty: those of all workers.
        contains: the text, regardless of case.
        level: at least this one. None: any.

    Raises:
        NotFound: there is no such log.
    """
    there = logs or [one.log for one in line.ask(Page[Log], "GET", f"/jobs/{job}/logs").items if one.log != DRIVER]
    for log in there:
        after: int | None = 0
        while after is not None:
            params = {"contains": contains, "level": level, "after": after}
            found = line.ask(_Found, "GET", f"/jobs/{job}/logs/{log}/search", params=params)
            yield from (msgspec.structs.replace(one, log=log) for one in found.items)
            after = found.after


def read_logs(line: Line, job: str, logs: Sequence[str], tail: int | None) -> Iterator[LogLine]:
    """Yield the lines that logs have now.

    Args:
        line: the connection to the server.
        job: its id.
        logs: their names; they come one after the other. Empty: those of all workers, in the order of time as far as it
            is known.
        tail: number of last lines of each log. None: all.

    Raises:
        NotFound: there is no such log.
    """
    if not logs:
        yield from _read_stream(line, job, {"tail": tail, "follow": "false"})
        return
    there = line.ask(Page[Log], "GET", f"/jobs/{job}/logs").items
    ends = {found.log: found.num_bytes for found in there}
    for log in logs:
        if log not in ends:
            raise NotFound(f"The job has no log '{log}', or it does not exist yet. {_name_logs(list(ends))}")
        buffer = _LineBuffer()
        for text in _read_pieces(line, job, log, {"offset": 0} if tail is None else {"tail": tail}, ends.get(log, 0)):
            yield from buffer.add(log, text)
        yield from buffer.close()


def read_logs_since(line: Line, job: str, logs: Sequence[str], time: float) -> Iterator[LogLine]:
    """Yield lines that were written to logs from a time on (seconds since 1970), one log after the other.

    A log whose times are not known comes completely. Other arguments are those of `read_logs`.
    """
    ends = {found.log: found.num_bytes for found in line.ask(Page[Log], "GET", f"/jobs/{job}/logs").items}
    for log in logs or [name for name in ends if name != DRIVER]:
        place = line.ask(LogPlace, "GET", f"/jobs/{job}/logs/{log}/at", params={"time": time})
        buffer = _LineBuffer()
        for text in _read_pieces(line, job, log, {"offset": place.offset}, ends.get(log, 0)):
            yield from buffer.add(log, text)
        yield from buffer.close()


def follow_logs(line: Line, job: str, logs: Sequence[str], tail: int | None) -> Iterator[LogLine]:
    """Yield the lines of logs, also of future ones, until the job has ended; arguments are those of `read_logs`."""
    yield from _read_stream(line, job, {"log": list(logs) or None, "tail": tail})


def _read_stream(line: Line, job: str, params: dict[str, Any]) -> Iterator[LogLine]:
    buffer = _LineBuffer()
    for message in line.follow(f"/jobs/{job}/logs", params=params):
        if message.event == "log":
            piece = decode(message.data, _Piece)
            yield from buffer.add(piece.log, piece.text)
    yield from buffer.close()


def _name_logs(known: Sequence[str]) -> str:
    """Return a text with the names of existing logs; of many, the last ones."""
    left_out = f" and {len(known) - _NUM_NAMED} before them" if len(known) > _NUM_NAMED else ""
    return (
        f"There are: {', '.join(known[-_NUM_NAMED:])}{left_out}."
        if known
        else "There are no logs yet; try again later."
    )


def _read_pieces(line: Line, job: str, log: str, begin: Mapping[str, int], end: int) -> Iterator[str]:
    """Yield a log up to byte ``end``. ``begin``: the ``tail``, or the ``offset``, from which to begin."""
    params = dict(begin)
    while True:
        response = line.send("GET", f"/jobs/{job}/logs/{log}", params=params)
        yield response.content.decode(errors="replace")
        at = int(response.headers.get("legato-log-end", end))
        if at >= end or not response.content:
            return
        params = {"offset": at}


class _LineBuffer:
    """Joins pieces of logs to lines; keeps the beginning of each log's last line until its end arrives."""

    def __init__(self) -> None:
        self._begun: dict[str, str] = {}

    def add(self, log: str, text: str) -> Iterator[LogLine]:
        *lines, rest = (self._begun.pop(log, "") + text).split("\n")
        for line in lines:
            yield LogLine(log, line.removesuffix("\r"))
        if len(rest) > _MAX_LINE:
            yield LogLine(log, rest)
        elif rest:
            self._begun[log] = rest

    def close(self) -> Iterator[LogLine]:
        for log, rest in self._begun.items():
            yield LogLine(log, rest)
        self._begun.clear()
