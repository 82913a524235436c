"""Reads the logs of an application: of its loggers, its program and its processes, from the files of the launcher."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from legato.compat.wmla.frameworks import FRAMEWORKS
from legato.compat.wmla.names import (
    ELOG_FILE,
    ERR_FILE,
    FRAMEWORK_LABEL,
    LOG,
    OUT_FILE,
    driver_id,
    executor_id,
)
from legato.compat.wmla.rest.platform import Job, Platform
from legato.compat.wmla.rest.records import has_ended
from legato.compat.wmla.rest.refusals import Refusal

TYPES: Final = ("outlog", "errlog", "outerrlog")
FILES: Final[Mapping[str, str]] = {"stdout": OUT_FILE, "stderr": ERR_FILE}
LAUNCHER_LOG: Final = "launcherlog"

_NUM_LINES: Final = 100_000
_WORKER: Final = re.compile(r"worker-([0-9]+)")


async def read_training_log(platform: Platform, job: Job, kind: str | None) -> str:
    """Return a log of an execution; "" if nothing was written yet.

    Args:
        platform: the platform's REST interface, with the client's token.
        job: the job.
        kind: one of `TYPES`. None: the output of the driver's logger, or ``outlog`` if there is none and the framework
            is not elastic.

    Raises:
        Refusal: there is no such kind, or the user may not see the log.
    """
    if kind is None:
        framework = FRAMEWORKS.get(job["labels"].get(FRAMEWORK_LABEL, ""))
        text = await _read(platform, job, driver_id(job["id"]), ELOG_FILE)
        if text is not None or framework is None or framework.is_elastic:
            return text or ""
        kind = "outlog"
    if kind not in TYPES:
        raise Refusal(400, f"There is no logType {kind[:100]}. Use one of {', '.join(TYPES)}.")
    if kind == "outerrlog":
        return await _read_worker(platform, job, None) or ""
    file = OUT_FILE if kind == "outlog" else ERR_FILE
    for process in (driver_id(job["id"]), None):
        text = await _read(platform, job, process, file)
        if text:
            return text
    if kind == "errlog" and has_ended(job) and job["stage"] != "succeeded":
        # The job failed before its program wrote to its own files.
        return await _read_worker(platform, job, None) or f"{job['reason']}\n"
    return ""


async def read_process_log(platform: Platform, job: Job, number: int, log: str) -> str:
    """Return a log of the driver (number 0) or of an executor.

    Args:
        platform: the platform's REST interface, with the client's token.
        job: the job.
        number: of the executor; 0 for the driver.
        log: ``stdout``, ``stderr`` or ``launcherlog``.

    Raises:
        Refusal: there is no such log, or the user may not see it.
    """
    process_name = f"executor {number}" if number else "the driver"
    text: str | None
    if log == LAUNCHER_LOG:
        text = await _read_launcher(platform, job, number) if number else await _read_driver(platform, job)
    elif log in FILES:
        process = executor_id(job["id"], number) if number else driver_id(job["id"])
        text = await _read(platform, job, process, FILES[log])
        if text is None and not number:
            # No process writes the driver's files yet, so take those of the first executor.
            text = await _read(platform, job, None, FILES[log])
        if not text and log == "stderr" and job["stage"] == "failed":
            text = await _read_worker(platform, job, number or None) or f"{job['reason']}\n"
    else:
        raise Refusal(404, f"There is no log {log[:100]}. The logs are stdout, stderr and {LAUNCHER_LOG}.")
    if text is None:
        if not number and not has_ended(job):
            return ""
        raise Refusal(404, f"There is no {log} of {process_name} of {job['id']}.")
    return text


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text with their newlines. Only ``\n`` ends a line, so a progress bar is one line.

    >>> split_lines("1 %\r2 %\n\fa\u2028b")
    ['1 %\r2 %\n', '\x0ca\u2028b']
    """
    return list(io.StringIO(text, newline="\n"))


def take_last_lines(text: str, number: str | None) -> str:
    r"""Return the last lines of a text; all lines if ``number`` is not a whole number.

    >>> take_last_lines("a\nb\nc\n", "2"), take_last_lines("a", None)
    ('b\nc\n', 'a')
    """
    if number is None or not (number.isascii() and number.isdecimal() and len(number) < 10):
        return text
    lines = split_lines(text)
    return "".join(lines[max(len(lines) - int(number), 0) :])


async def _read(platform: Platform, job: Job, process: str | None, file: str) -> str | None:
    """Return a file of a process's log directory; if ``process`` is None, of the first executor that has it."""
    entries = await platform.list_files(job["id"], f"work/{LOG}")
    found = []
    for entry in entries:
        parts = entry["path"].split("/")
        if entry["kind"] == "file" and len(parts) == 4 and parts[3] == file:
            owner = parts[2].partition(".")[0]
            if owner == process:
                # After a pause, a process on another host has another directory; the newest file is complete.
                found.append((entry["modified_at"], entry["path"]))
            elif process is None and owner.startswith("executor-"):
                found.append((-float(owner.rpartition("-")[2]), entry["path"]))
    return await platform.read_end(job["id"], max(found)[1]) if found else None


async def _read_worker(platform: Platform, job: Job, number: int | None) -> str | None:
    """Return the platform's log of an executor's process; if ``number`` is None, of the first one that has a log."""
    worker = None if number is None else number - 1
    if worker is None:
        listed = (await platform.get(f"jobs/{job['id']}/logs"))["items"]
        numbers = [int(found[1]) for one in listed if (found := _WORKER.fullmatch(one["log"]))]
        if not numbers:
            return await _read_driver(platform, job)
        worker = min(numbers)
    return await platform.read_log(job["id"], f"worker-{worker}", _NUM_LINES)


async def _read_launcher(platform: Platform, job: Job, number: int) -> str | None:
    """Return the lines of an executor's process that its program did not print; the other logs have the program's."""
    text = await _read_worker(platform, job, number)
    if text is None:
        return None
    printed: Counter[str] = Counter()
    for file in FILES.values():
        printed.update(split_lines(await _read(platform, job, executor_id(job["id"], number), file) or ""))
    own = []
    for line in split_lines(text):
        # If the program printed a line n times, the first n are the program's, and further ones are not.
        printed[line] -= 1
        if printed[line] < 0:
            own.append(line)
    return "".join(own)


async def _read_driver(platform: Platform, job: Job) -> str | None:
    return await platform.read_log(job["id"], "driver", _NUM_LINES)
