"""(e) The same events under torchrun's elastic launch and under torchft, each set up as well as it can be.

torchrun restarts all workers at every change and goes on from their last snapshot, so the gap is from the last step
before to the first step after. Left to its defaults it cannot grow in torch 2.13: hence the environment variable.

torchft keeps its workers, as we do: the gap is the longest time that one of them needs for one step while it lets
another one in. It is measured where it is installed, which nothing else here needs.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.hosts.bed import Hosts

from benchmarks.figures import plain
from benchmarks.jobs import PROGRAMS, BenchmarkError, Say, scratch

_MODEL: Final = "100k"
_FEW, _MANY = 2, 3
MEETING: Final = 1
"""The worker on whose host is what all meet by: the store of torchrun's rendezvous, or the lighthouse."""
_POLL_S: Final = 0.02
_EVENT_LIMIT_S: Final = 120.0
_SETTLED_STEPS: Final = 30
# torchrun's: agents that are silent for twice the interval are left out.
_RENDEZVOUS: Final = "last_call_timeout=1,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=2"
# torchft's: how long a quorum waits for a member that is late, how long for one that is silent, and how long a group's
# operation waits: now and then a quorum still counts the dead, and only this ends it.
_JOIN_LIMIT_S: Final = 0.3
_HEARTBEAT_LIMIT_S: Final = 1.0
_GROUP_LIMIT_S: Final = 1.0
# It tells of several events per step otherwise.
_QUIET: Final = {"RUST_LOG": "warn"}

_Lines = list[dict[str, Any]]


class Peer(ABC):
    """The processes of one job of a peer, each with one worker that writes down its steps.

    Args:
        directory: for what they write.
        hosts: on which they run, with worker 0 on host 1. None: on this machine.
        limit_s: for how long they wait for a silent worker. None: as `measure` does.

    Attributes:
        name: the peer's, for people.
    """

    name: str

    def __init__(self, directory: Path, hosts: Hosts | None = None, limit_s: float | None = None) -> None:
        self._directory = directory
        self._hosts = hosts
        self._limit_s = limit_s
        self._workers: list[subprocess.Popen[bytes]] = []
        self._helpers: list[subprocess.Popen[bytes]] = []

    def start(self) -> int:
        """Start one more worker and return its number."""
        number = len(self._workers)
        self._workers.append(self._start(f"worker-{number}", *self._make_command(number), number=number))
        return number

    @abstractmethod
    def _make_command(self, number: int) -> tuple[list[str], dict[str, str]]:
        """Make the command of a worker, and what it has in its environment besides."""

    @abstractmethod
    def measure_join(self) -> tuple[float, float]:
        """Let two workers become three.

        Returns:
            The gap, and the time from the request to the joiner's first contribution, in seconds.
        """

    @abstractmethod
    def measure_kill(self) -> float:
        """Kill one of three workers and return the seconds to the next step without it."""

    def measure_loss(self, lose: Callable[[int], None], victim: int) -> float:
        """Lose the host of one of three workers, and return the seconds to the next step of the other two.

        Args:
            lose: is called with the number of the host.
            victim: a worker on another host than what all meet by.
        """
        for _ in range(_MANY):
            self.start()
        self.wait(lambda lines: _num_steps_of_last(lines, _MANY) >= _SETTLED_STEPS, "three workers train")
        struck = time.monotonic()
        lose(victim + 1)

        def after(lines: _Lines) -> list[float]:
            left = [line for line in lines if line["at"] > struck and line["worker"] != victim]
            return [float(line["at"]) for line in left if line["num_workers"] == _FEW]

        return min(after(self.wait(lambda lines: bool(after(lines)), "the others train without the host"))) - struck

    def address_of(self, number: int) -> str:
        """Return the address of a worker."""
        return "127.0.0.1" if self._hosts is None else self._hosts.address(number + 1)

    def lines(self) -> _Lines:
        """Return all steps of all workers so far, in the order of time."""
        lines = []
        for path in self._directory.glob("worker-*.jsonl"):
            worker = int(path.stem.removeprefix("worker-"))
            for text in path.read_text().splitlines():
                # The last one may be half written.
                with contextlib.suppress(ValueError):
                    lines.append({**json.loads(text), "worker": worker})
        return sorted(lines, key=lambda line: float(line["at"]))

    def wait(self, condition: Callable[[_Lines], bool], what: str) -> _Lines:
        """Wait until something is true of the steps.

        Raises:
            BenchmarkError: it was not in time.
        """
        deadline = time.monotonic() + _EVENT_LIMIT_S
        while not condition(lines := self.lines()):
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name}: waited {_EVENT_LIMIT_S:g} s in vain until {what}.")
            time.sleep(_POLL_S)
        return lines

    def end(self) -> None:
        """Kill all processes."""
        # A worker of torchrun has a session of its own under its agent, so it is found by what it wrote.
        # On a host, it ends with the host, and its id means nothing here.
        pids = {int(line["pid"]) for line in self.lines()} if self._hosts is None else set()
        processes = [*self._workers, *self._helpers]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
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

    def _start(
        self, name: str, command: list[str], environment: dict[str, str], *, number: int
    ) -> subprocess.Popen[bytes]:
        """Start a process, on the host of a worker."""
        if self._hosts is not None:
            command = self._hosts.command_on(number + 1, command)
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                start_new_session=True,
            )

    def _grow(self) -> tuple[float, int, _Lines]:
        """Start two workers, then a third.

        Returns:
            When it was asked for, its number, and the steps until all three had trained for a while.
        """
        for _ in range(_FEW):
            self.start()
        self.wait(lambda lines: _num_steps_of_last(lines, _FEW) >= _SETTLED_STEPS, "two workers train")
        asked = time.monotonic()
        joiner = self.start()
        lines = self.wait(lambda lines: _num_steps_of_last(lines, _MANY) >= _SETTLED_STEPS, "the third worker trains")
        return asked, joiner, lines


class Torchrun(Peer):
    name = "torchrun"

    def __init__(self, directory: Path, hosts: Hosts | None = None, limit_s: float | None = None) -> None:
        super().__init__(directory, hosts, limit_s)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def _make_command(self, number: int) -> tuple[list[str], dict[str, str]]:
        case = json.dumps({"model": _MODEL, "directory": str(self._directory), "limit_s": self._limit_s})
        address = self.address_of(number)
        command = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:{_MANY}", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={self.address_of(MEETING)}:{self._port}"),
            *("--rdzv-id=benchmark", f"--local-addr={address}"),
            *(f"--rdzv-conf={_RENDEZVOUS}", "--max-restarts=1000", "--monitor-interval=0.1"),
            *(str(PROGRAMS / "torchrun_elastic.py"), case),
        ]
        return command, {"BENCHMARK_WORKER": str(number), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def measure_join(self) -> tuple[float, float]:
        asked, joiner, lines = self._grow()
        first = next(float(line["at"]) for line in lines if line["at"] > asked and line["worker"] == joiner)
        last_before = max(float(line["at"]) for line in lines if line["num_workers"] == _FEW)
        first_after = min(float(line["at"]) for line in lines if line["num_workers"] == _MANY)
        return first_after - last_before, first - asked

    def measure_kill(self) -> float:
        victim = self.lines()[-1]
        struck = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)
        # Steps that needed nothing from the victim any more may still be committed at once: only new processes count.
        old = {line["pid"] for line in self.lines()}
        lines = self.wait(lambda lines: any(line["pid"] not in old for line in lines), "training goes on after SIGKILL")
        return min(float(line["at"]) for line in lines if line["pid"] not in old) - struck


class Torchft(Peer):
    name = "torchft"

    def __init__(self, directory: Path, hosts: Hosts | None = None, limit_s: float | None = None) -> None:
        super().__init__(directory, hosts, limit_s)
        case = {
            "directory": str(directory),
            "address": self.address_of(MEETING),
            "min_workers": _FEW,
            "join_limit_s": _JOIN_LIMIT_S,
            "heartbeat_limit_s": _HEARTBEAT_LIMIT_S if limit_s is None else limit_s,
        }
        command = [sys.executable, str(PROGRAMS / "torchft_lighthouse.py"), json.dumps(case)]
        self._helpers.append(self._start("lighthouse", command, _QUIET, number=MEETING))

    def _make_command(self, number: int) -> tuple[list[str], dict[str, str]]:
        self.wait(lambda _: (self._directory / "lighthouse").exists(), "the lighthouse is there")
        case = {
            "model": _MODEL,
            "directory": str(self._directory),
            "number": number,
            "address": self.address_of(number),
            "lighthouse": f"http://{self.address_of(MEETING)}:{(self._directory / 'lighthouse').read_text()}",
            "min_workers": _FEW,
            "limit_s": _GROUP_LIMIT_S if self._limit_s is None else self._limit_s,
        }
        return [sys.executable, str(PROGRAMS / "torchft_elastic.py"), json.dumps(case)], _QUIET

    def measure_join(self) -> tuple[float, float]:
        asked, joiner, lines = self._grow()
        first = next(float(line["at"]) for line in lines if line["worker"] == joiner and line["contributed"])
        return max(longest_step_of_join(lines, worker, _MANY) for worker in range(joiner)), first - asked

    def measure_kill(self) -> float:
        victim = self.lines()[-1]
        struck = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)

        def after(lines: _Lines) -> list[float]:
            return [float(line["at"]) for line in lines if line["at"] > struck and line["num_workers"] == _FEW]

        return min(after(self.wait(lambda lines: bool(after(lines)), "training goes on after SIGKILL"))) - struck


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per peer and event."""
    yield from _rows(Torchrun, "torchrun", 1 if quick else 3, say)
    if (told := find_torchft()) is None:
        say("SKIPPED: torchft is not installed")
        yield {"peer": "torchft", "skipped": "not installed"}
        return
    yield from _rows(Torchft, told, 2 if quick else 5, say)


def find_torchft() -> str | None:
    """Return torchft's name and version, None where it is not installed."""
    if importlib.util.find_spec("torchft") is None:
        return None
    # It comes as a nightly package, too.
    packages = importlib.metadata.packages_distributions()["torchft"]
    return f"{packages[0]} {importlib.metadata.version(packages[0])}"


def _rows(make_peer: Callable[[Path], Peer], told: str, num_tries: int, say: Say) -> Iterator[dict[str, Any]]:
    joins, contributions, kills = [], [], []
    for number in range(num_tries):
        with scratch() as directory:
            peer = make_peer(directory)
            try:
                join, contribution = peer.measure_join()
                joins.append(join)
                contributions.append(contribution)
                kills.append(peer.measure_kill())
            finally:
                peer.end()
        say(
            f"{told}, try {number + 1}: join {join:.3f} s, first contribution {contribution:.1f} s, "
            f"SIGKILL {kills[-1]:.3f} s"
        )
    for event, gaps in (("join", joins), ("first contribution", contributions), ("SIGKILL", kills)):
        yield {"peer": told, "event": event, "model": _MODEL, "gap_s": plain(gaps)}


def longest_step_of_join(lines: _Lines, worker: int, num_workers: int) -> float:
    """Return the longest time that a worker of torchft took for one step while it let another one in.

    The switch begins with its last step in the old group and ends with the first step to which all contribute. Between
    the two is at least one in which the newcomer belongs to the group already, but only receives the state.

    >>> steps = [(1.0, 2, 2), (1.1, 2, 2), (1.5, 3, 2), (1.8, 3, 3), (2.9, 3, 3)]
    >>> lines = [{"worker": 0, "at": at, "group_size": size, "num_workers": num} for at, size, num in steps]
    >>> round(longest_step_of_join(lines, 0, 3), 3)
    0.4
    """
    own = [line for line in lines if line["worker"] == worker]
    last = next(index for index, line in enumerate(own) if line["num_workers"] == num_workers)
    first = max(index for index in range(last) if own[index]["group_size"] < num_workers)
    moments = [float(line["at"]) for line in own[first : last + 1]]
    return max(after - before for before, after in zip(moments[:-1], moments[1:], strict=True))


def _num_steps_of_last(lines: _Lines, num_workers: int) -> int:
    return sum(1 for line in lines[-_SETTLED_STEPS * num_workers :] if line["num_workers"] == num_workers)
