"""(m) From the loss of one of three hosts to the next step that the others commit without it, beside two peers.

The hosts are those of `tests.hosts.bed`: network namespaces of this machine, so it needs root and iproute2. A host
crashes, or is cut off from the network while its processes run on. In both cases the others hear nothing more of it,
also no reset of a connection: only a time limit ends their wait. All peers get the same limit as Legato.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.hosts.bed import Command, Hosts, why_not
from tests.hosts.driving import Plan, command_of_agent, command_of_driver, prepare

from benchmarks.diaries import median_step, read_diaries
from benchmarks.figures import plain
from benchmarks.jobs import PROGRAMS, ROOT, BenchmarkError, Say, scratch
from benchmarks.peers import MEETING, Peer, Torchft, Torchrun, find_torchft
from legato.core.spec import JobSpec

_HOSTS: Final = 3
_DRIVER: Final = MEETING + 1
"""The host of the driver, as of what the peers meet by. It is not lost here."""
_VICTIMS: Final = (3, 1)
"""They take turns; on host 1 is rank 0, at first."""
_MODEL: Final = "100k"
_MICRO_BATCHES: Final = 6
_MICRO_BATCH_SIZE: Final = 16
_STEPS_BETWEEN: Final = 10
_DEFAULT_LIMIT_S: Final = 5.0  # of `JobSpec.heartbeat_limit_s`
_ALLOWED_S: Final = 1.0
_LIMIT_S: Final = 90.0
_POLL_S: Final = 0.1
_WAYS: Final = ("crash", "cut")


class _Job:
    """A job of Legato with a worker on each host.

    Args:
        hosts: that are up.
        directory: on a disk that they share.
        heartbeat_limit_s: of the job.
    """

    def __init__(self, hosts: Hosts, directory: Path, heartbeat_limit_s: float) -> None:
        self._hosts, self._directory = hosts, directory
        case = {
            "model": _MODEL,
            "micro_batches": _MICRO_BATCHES,
            "micro_batch_size": _MICRO_BATCH_SIZE,
            "directory": str(directory),
        }
        spec = JobSpec(
            name="benchmark",
            program=(str(PROGRAMS / "events.py"), json.dumps(case)),
            directory=str(directory),
            max_workers=_HOSTS,
            num_workers=_HOSTS,
            heartbeat_limit_s=heartbeat_limit_s,
            max_deaths=1_000,
        )
        nodes = {hosts.name(host): 1 for host in hosts.numbers}
        # As `legato run --hosts` sets them.
        lease_s, silence_limit_s = spec.away_limit_s + spec.stop_limit_s, min(4.0, 0.8 * heartbeat_limit_s)
        prepare(hosts, Plan(spec, str(directory / "home"), nodes, lease_s, silence_limit_s, str(directory)))
        for host in hosts.numbers:
            self.start_agent(host)
        self._driver = self._popen(_DRIVER, command_of_driver(directory))

    def start_agent(self, host: int) -> None:
        self._popen(host, command_of_agent()).wait()

    def _popen(self, host: int, command: list[str]) -> Command:
        with (self._directory / "log").open("ab") as log:
            return self._hosts.popen(host, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT)

    def wait_for_steps(self, num_workers: int) -> None:
        """Wait until so many workers have trained some steps together from now on."""
        began = time.monotonic()
        while True:
            moments = [moment for diary in read_diaries(self._directory).values() for moment in diary.commits.values()]
            if sum(1 for at, among in moments if at > began and among == num_workers) >= num_workers * _STEPS_BETWEEN:
                return
            if time.monotonic() > began + _LIMIT_S or self._driver.poll() is not None:
                told = (self._directory / "log").read_text()[-2000:]
                raise BenchmarkError(f"Waited {_LIMIT_S:g} s in vain until {num_workers} workers train.\n{told}")
            time.sleep(_POLL_S)

    def end(self) -> None:
        for host in self._hosts.numbers:
            self._hosts.crash(host)
        self._driver.wait()


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield a row for each limit and way to lose a host, with Legato and its peers."""
    if reason := why_not():
        raise BenchmarkError(reason)
    peers: dict[str, type[Peer]] = {"torchrun": Torchrun}
    if told := find_torchft():
        peers[told] = Torchft
    else:
        say("SKIPPED: torchft is not installed")
    for limit_s in (1.0,) if quick else (_DEFAULT_LIMIT_S, 1.0):
        for way in _WAYS:
            yield _measure_legato(way, limit_s, 2 if quick else 6, say)
            for name, peer in peers.items():
                yield _measure_peer(name, peer, way, limit_s, 1 if quick else 2, say)


def _measure_legato(way: str, limit_s: float, num_events: int, say: Say) -> dict[str, Any]:
    blows: list[float] = []
    with scratch() as directory, Hosts(_HOSTS) as hosts:
        job = _Job(hosts, directory, limit_s)
        try:
            for number in range(num_events):
                victim = _VICTIMS[number % len(_VICTIMS)]
                job.wait_for_steps(_HOSTS)
                blows.append(time.monotonic())
                getattr(hosts, way)(victim)
                job.wait_for_steps(_HOSTS - 1)
                if way == "crash":
                    hosts.boot(victim)
                    job.start_agent(victim)
                else:
                    hosts.heal(victim)
            job.wait_for_steps(_HOSTS)
        finally:
            job.end()
        diaries = read_diaries(directory)
    gaps, steps = [], []
    moments = [moment for diary in diaries.values() for moment in diary.commits.values()]
    for at in blows:
        # The lost worker may have committed the step that the others compute again.
        gaps.append(min(moment for moment, among in moments if moment > at and among == _HOSTS - 1) - at)
        usual = median_step(diaries, _HOSTS, 0.0, at)
        if usual is not None:
            steps.append(usual * _HOSTS / (_HOSTS - 1))
    row = _row("Legato", way, limit_s, gaps)
    row["step_s"], row["target_s"] = plain(steps), float(f"{limit_s + _ALLOWED_S + plain(steps)['median']:.4g}")
    say(f"Legato, {way}, limit {limit_s:g} s: next commit after {[round(gap, 2) for gap in gaps]} s")
    return row


def _measure_peer(
    name: str, make_peer: type[Peer], way: str, limit_s: float, num_tries: int, say: Say
) -> dict[str, Any]:
    gaps = []
    for number in range(num_tries):
        with scratch() as directory, Hosts(_HOSTS) as hosts:
            peer = make_peer(directory, hosts, limit_s)
            try:
                gaps.append(peer.measure_loss(getattr(hosts, way), _VICTIMS[number % len(_VICTIMS)] - 1))
            except BenchmarkError as error:
                say(f"FAILED: {error}")
            finally:
                peer.end()
    say(f"{name}, {way}, limit {limit_s:g} s: next step after {[round(gap, 2) for gap in gaps]} s")
    return _row(name, way, limit_s, gaps) | {"num_failed": num_tries - len(gaps)}


def _row(name: str, way: str, limit_s: float, gaps: list[float]) -> dict[str, Any]:
    return {"who": name, "way": way, "limit_s": limit_s, "gap_s": plain(gaps) if gaps else None}
