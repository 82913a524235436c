"""Runs measurements or tests, each in a process of its own with a limit, and keeps one file.

A part that fails, hangs or crashes is noted as failed, and the others go on. The file is written after every part, so
it is complete whenever the run ends. Measures nothing itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

FACTS: Final = "BENCHMARK_FACTS"
"""The variable that names a part's file of facts: a JSON object in each line."""
_MARK: Final = "BENCHMARK_PART"
_PASSED, _SKIPPED = 0, 5
_LEAST_S: Final = 10.0
_END_S: Final = 5.0
_SHOWN: Final = 25


@dataclass(frozen=True)
class Part:
    """A part of a run.

    Args:
        name: shown, and in the file.
        command: exit code 0: passed, 5: skipped, others: failed.
        limit_s: after which it counts as hanging.
        is_alone: no other part may run beside it.
    """

    name: str
    command: Sequence[str]
    limit_s: float
    is_alone: bool = False


@dataclass
class Finding:
    """What became of a part.

    Attributes:
        name: of the part.
        outcome: ``passed``, ``skipped``, ``failed`` or ``not run``.
        seconds: that it took.
        facts: that it has noted, in order.
        why: the last lines of its output, or what ended it; empty if it passed.
    """

    name: str
    outcome: str = "not run"
    seconds: float = 0.0
    facts: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""


def note_fact(what: str, **facts: Any) -> None:
    """Note a fact of the part that this process belongs to; without a part this does nothing."""
    path = os.environ.get(FACTS)
    if path is not None:
        with Path(path).open("a") as file:
            file.write(json.dumps({"what": what, **facts}) + "\n")


def run_parts(
    parts: Sequence[Part],
    out: Path,
    provenance: Mapping[str, Any],
    *,
    limit_s: float,
    say: Callable[[str], None],
    num_at_once: int = 1,
) -> list[Finding]:
    """Run parts and write their findings into a file.

    Args:
        parts: in this order; with ``num_at_once`` above 1, those that must run alone come after all others.
        out: the file, JSON: ``provenance`` and ``parts``.
        provenance: of the run.
        limit_s: for all parts together; parts that do not begin in time are not run.
        say: shows a line of progress.
        num_at_once: parts that run beside one another.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + limit_s
    findings = [Finding(part.name) for part in parts]

    def run(number: int) -> int:
        left_s = deadline - time.monotonic()
        if left_s < _LEAST_S:
            findings[number].why = f"The limit of {limit_s:g} s for all parts was reached before."
        else:
            say(f"[{number + 1}/{len(parts)}] {parts[number].name} ...")
            _run(parts[number], findings[number], min(parts[number].limit_s, left_s))
        return number

    def keep(number: int) -> None:
        finding = findings[number]
        say(f"[{number + 1}/{len(parts)}] {finding.name}: {finding.outcome} after {finding.seconds:.1f} s")
        if finding.outcome in ("failed", "not run"):
            say("\n".join(f"    {line}" for line in finding.why.splitlines()[-_SHOWN:]))
        content = {"provenance": provenance, "parts": [asdict(each) for each in findings]}
        out.write_text(json.dumps(content, indent=1) + "\n")

    beside = [number for number, part in enumerate(parts) if not part.is_alone] if num_at_once > 1 else []
    pool = ThreadPoolExecutor(num_at_once)
    try:
        for done in as_completed([pool.submit(run, number) for number in beside]):
            keep(done.result())
    finally:
        # After Ctrl-C: parts that have not begun do not begin, and those that run get the signal too.
        pool.shutdown(cancel_futures=True)
    for number in range(len(parts)):
        if number not in beside:
            keep(run(number))
    return findings


def _run(part: Part, finding: Finding, limit_s: float) -> None:
    mark = secrets.token_hex(8)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="legato-part-", ignore_cleanup_errors=True) as name:
        facts, log = Path(name, "facts"), Path(name, "log")
        own = {_MARK: mark, FACTS: str(facts), "LEGATO_HOME": str(Path(name, "home")), "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as file:
            process = subprocess.Popen(
                list(part.command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **own}
            )
        try:
            code = process.wait(limit_s)
            finding.outcome = {_PASSED: "passed", _SKIPPED: "skipped"}.get(code, "failed")
            ended = f"exit code {code}"
        except subprocess.TimeoutExpired:
            finding.outcome, ended = "failed", f"it did not end within {limit_s:.0f} s"
        finally:
            _end_all(process, mark)
        finding.seconds = round(time.monotonic() - began, 2)
        if finding.outcome != "passed":
            finding.why = f"{_tail(log)}\n{ended}".strip()
        with contextlib.suppress(OSError, ValueError):
            finding.facts = [json.loads(line) for line in facts.read_text().splitlines()]


def _tail(log: Path) -> str:
    return log.read_bytes()[-8000:].decode(errors="replace").strip()


def _end_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill every process that the part has left, also those in sessions of their own: they would hold the GPU."""
    deadline = time.monotonic() + _END_S
    while left := [pid for pid in _processes_with(mark) if pid != os.getpid()]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    process.wait(_END_S)


def _processes_with(mark: str) -> list[int]:
    found = []
    wanted = f"{_MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
