"""(e) The same events under torchrun's elastic launch, set up as well as it can be; torchft where it is installed.

torchrun restarts all workers at every change and goes on from their last snapshot, so the gap is from the last step
before to the first step after. Left to its defaults it cannot grow in torch 2.13: hence the environment variable.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import plain
from benchmarks.jobs import PROGRAMS, BenchmarkError, Say, scratch

_MODEL: Final = "100k"
_FEW, _MANY = 2, 3
_POLL_S: Final = 0.02
_EVENT_LIMIT_S: Final = 60.0
_SETTLED_STEPS: Final = 30


class _Agents:
    """The agents of one elastic job, each with one worker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> int:
        """Start one more agent and return its number."""
        number = len(self._processes)
        case = json.dumps({"model": _MODEL, "directory": str(self._directory)})
        command = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:{_MANY}", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=benchmark"),
            *("--rdzv-conf=last_call_timeout=1,join_timeout=60", "--max-restarts=1000", "--monitor-interval=0.1"),
            *(str(PROGRAMS / "torchrun_elastic.py"), case),
        ]
        environment = {
            **os.environ,
            "BENCHMARK_AGENT": str(number),
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        with (self._directory / f"agent-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        self._processes.append(process)
        return number

    def lines(self) -> list[dict[str, Any]]:
        """Return all steps of all workers so far, in the order of time."""
        lines = []
        for path in self._directory.glob("agent-*.jsonl"):
            agent = int(path.stem.removeprefix("agent-"))
            for text in path.read_text().splitlines():
                # The last one may be half written.
                with contextlib.suppress(ValueError):
                    lines.append({**json.loads(text), "agent": agent})
        return sorted(lines, key=lambda line: float(line["at"]))

    def wait(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> list[dict[str, Any]]:
        """Wait until something is true of the steps.

        Raises:
            BenchmarkError: it was not in time.
        """
        deadline = time.monotonic() + _EVENT_LIMIT_S
        while not condition(lines := self.lines()):
            if time.monotonic() > deadline:
                raise BenchmarkError(f"torchrun: waited {_EVENT_LIMIT_S:g} s in vain until {what}.")
            time.sleep(_POLL_S)
        return lines

    def end(self) -> None:
        """Kill all agents and their workers."""
        # A worker has a session of its own under its agent, so it is found by what it wrote.
        pids = {int(line["pid"]) for line in self.lines()}
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, OSError):
                if str(self._directory) in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per peer and event."""
    if importlib.util.find_spec("torchft") is None:
        say("SKIPPED: torchft is not installed")
        yield {"peer": "torchft", "skipped": "not installed"}
    joins, contributions, kills = [], [], []
    for number in range(1 if quick else 3):
        with scratch() as directory:
            agents = _Agents(directory)
            try:
                join, contribution = _join(agents)
                joins.append(join)
                contributions.append(contribution)
                kills.append(_kill(agents))
            finally:
                agents.end()
        say(f"torchrun, try {number + 1}: join {joins[-1]:.1f} s, SIGKILL {kills[-1]:.1f} s")
    yield {"peer": "torchrun", "event": "join", "model": _MODEL, "gap_s": plain(joins)}
    yield {"peer": "torchrun", "event": "first contribution", "model": _MODEL, "gap_s": plain(contributions)}
    yield {"peer": "torchrun", "event": "SIGKILL", "model": _MODEL, "gap_s": plain(kills)}


def _join(agents: _Agents) -> tuple[float, float]:
    for _ in range(_FEW):
        agents.start()
    agents.wait(lambda lines: _num_steps_of_last(lines, _FEW) >= _SETTLED_STEPS, "two workers train")
    asked = time.monotonic()
    joiner = agents.start()
    lines = agents.wait(lambda lines: _num_steps_of_last(lines, _MANY) >= _SETTLED_STEPS, "the third worker trains")
    first = next(float(line["at"]) for line in lines if line["at"] > asked and line["agent"] == joiner)
    last_before = max(float(line["at"]) for line in lines if line["num_workers"] == _FEW)
    first_after = min(float(line["at"]) for line in lines if line["num_workers"] == _MANY)
    return first_after - last_before, first - asked


def _kill(agents: _Agents) -> float:
    victim = agents.lines()[-1]
    struck = time.monotonic()
    os.kill(victim["pid"], signal.SIGKILL)
    # Steps that needed nothing from the victim any more may still be committed at once: only new processes count.
    old = {line["pid"] for line in agents.lines()}
    lines = agents.wait(lambda lines: any(line["pid"] not in old for line in lines), "training goes on after SIGKILL")
    return min(float(line["at"]) for line in lines if line["pid"] not in old) - struck


def _num_steps_of_last(lines: list[dict[str, Any]], num_workers: int) -> int:
    return sum(1 for line in lines[-_SETTLED_STEPS * num_workers :] if line["num_workers"] == num_workers)
