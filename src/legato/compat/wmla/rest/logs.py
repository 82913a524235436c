"""Output of an application: its loggers, its program, its processes. Reads the files that the launcher makes."""

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
    """Return a log of an execution; "" where nothing was written yet.

    Args:
        platform: the REST of the platform, with the token of the client.
        job: which one.
        kind: one of `TYPES`. None: what the driver's logger wrote, and nothing else; ``outlog`` of a framework that has
            none.

    Raises:
        Refusal: there is no such kind, or the log is not the user's to see.
    """
    if kind is None:
        framework = FRAMEWORKS.get(job["labels"].get(FRAMEWORK_LABEL, ""))
        text = await _read(platform, job, driver_id(job["id"]), ELOG_FILE)
        if text is not None or framework is None or framework.is_elastic:
            return text or ""
        kind = "outlog"
    if kind not in TYPES:
        raise Refusal(400, f"There is no logType {kind[:100]}. There are {', '.join(TYPES)}.")
    if kind == "outerrlog":
        return await _read_worker(platform, job, None) or ""
    file = OUT_FILE if kind == "outlog" else ERR_FILE
    for process in (driver_id(job["id"]), None):
        text = await _read(platform, job, process, file)
        if text:
            return text
    if kind == "errlog" and has_ended(job) and job["stage"] != "succeeded":
        # It did not come as far as its own files.
        return await _read_worker(platform, job, None) or f"{job['reason']}\n"
    return ""


async def read_process_log(platform: Platform, job: Job, number: int, log: str) -> str:
    """Return a log of the driver (number 0) or of an executor.

    Args:
        platform: the REST of the platform, with the token of the client.
        job: whose.
        number: of the executor.
        log: ``stdout``, ``stderr`` or ``launcherlog``.

    Raises:
        Refusal: there is no such log, or it is not the user's to see.
    """
    whose = f"executor {number}" if number else "the driver"
    text: str | None
    if log == LAUNCHER_LOG:
        text = await _read_launcher(platform, job, number) if number else await _read_driver(platform, job)
    elif log in FILES:
        process = executor_id(job["id"], number) if number else driver_id(job["id"])
        text = await _read(platform, job, process, FILES[log])
        if text is None and not number:
            # Before any process spoke for the driver; a program that has none is spoken for by its first process.
            text = await _read(platform, job, None, FILES[log])
        if not text and log == "stderr" and job["stage"] == "failed":
            text = await _read_worker(platform, job, number or None) or f"{job['reason']}\n"
    else:
        raise Refusal(404, f"There is no log {log[:100]}. There are stdout, stderr and {LAUNCHER_LOG}.")
    if text is None:
        if not number and not has_ended(job):
            return ""
        raise Refusal(404, f"There is no {log} of {whose} of {job['id']}.")
    return text


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text with their ends, as ``tail`` counts them: a progress bar is one line.

    >>> split_lines("1 %\r2 %\n\fa\u2028b")
    ['1 %\r2 %\n', '\x0ca\u2028b']
    """
    return list(io.StringIO(text, newline="\n"))


def take_last_lines(text: str, said: str | None) -> str:
    r"""Return the last lines of a text.

    >>> take_last_lines("a\nb\nc\n", "2"), take_last_lines("a", None)
    ('b\nc\n', 'a')
    """
    if said is None or not (said.isascii() and said.isdecimal() and len(said) < 10):
        return text
    lines = split_lines(text)
    return "".join(lines[max(len(lines) - int(said), 0) :])


async def _read(platform: Platform, job: Job, process: str | None, file: str) -> str | None:
    """Return a file of a process's log directory; process None: of the first executor that has it."""
    entries = await platform.list_files(job["id"], f"work/{LOG}")
    found = []
    for entry in entries:
        parts = entry["path"].split("/")
        if entry["kind"] == "file" and len(parts) == 4 and parts[3] == file:
            owner = parts[2].partition(".")[0]
            if owner == process:
                # On another host, after a pause, it is another directory; the newest is whole.
                found.append((entry["modified_at"], entry["path"]))
            elif process is None and owner.startswith("executor-"):
                found.append((-float(owner.rpartition("-")[2]), entry["path"]))
    return await platform.read_end(job["id"], max(found)[1]) if found else None


async def _read_worker(platform: Platform, job: Job, number: int | None) -> str | None:
    """Return the platform's own log of an executor's process; None: of the first one that there is."""
    worker = None if number is None else number - 1
    if worker is None:
        listed = (await platform.get(f"jobs/{job['id']}/logs"))["items"]
        numbers = [int(found[1]) for one in listed if (found := _WORKER.fullmatch(one["log"]))]
        if not numbers:
            return await _read_driver(platform, job)
        worker = min(numbers)
    return await platform.read_log(job["id"], f"worker-{worker}", _NUM_LINES)


async def _read_launcher(platform: Platform, job: Job, number: int) -> str | None:
    """Return what an executor's process said besides what its program printed, which is in the other logs."""
    text = await _read_worker(platform, job, number)
    if text is None:
        return None
    printed: Counter[str] = Counter()
    for file in FILES.values():
        printed.update(split_lines(await _read(platform, job, executor_id(job["id"], number), file) or ""))
    own = []
    for line in split_lines(text):
        # As often as the program printed a line it is the program's; again, and another process printed it too.
        printed[line] -= 1
        if printed[line] < 0:
            own.append(line)
    return "".join(own)


async def _read_driver(platform: Platform, job: Job) -> str | None:
    return await platform.read_log(job["id"], "driver", _NUM_LINES)
