"""Two users who share four slots of a real cluster, and everything that happens to their machines meanwhile.

The same story for each engine: both get 2 + 2 slots; a worker is killed, a node crashes, a machine is drained, and both
machines are preempted; each time both come back to two workers; and both get the weights of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.integration.cluster_program import DIGEST, PROGRAM

from legato.client.client import Client
from legato.client.connection import Line
from legato.client.jobs import Job
from legato.client.servers import Server
from legato.core.errors import LegatoError
from legato.engines.agents import RECORD
from legato.engines.agents_record import read_record

USERS: Final = ("anna", "ben")
EPOCHS: Final = 40  # 320 steps: more than the story lasts; the last ones take no time
PAUSE_S: Final = 1.0


class SharedCluster(ABC):
    """A server with two machines of a cluster, two slots each, and who disturbs them.

    Attributes:
        home: of the server.
        gate: a file that the programs see; when it exists, they do not wait in each step any more.
    """

    home: Path
    gate: Path

    @abstractmethod
    def server(self) -> Server:
        """Return the address of the server, with the token of an administrator."""

    @abstractmethod
    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something, but not without end."""

    @abstractmethod
    def kill(self, node: str, pid: int) -> None:
        """Kill a process on a machine, with its number there."""

    @abstractmethod
    def preempt(self) -> None:
        """Let something of more priority take the place of both machines, and end."""

    @abstractmethod
    def crash(self, node: str) -> None:
        """Let the host of a machine crash."""


def share(cluster: SharedCluster, alone: str) -> None:
    """Tell the story. ``alone``: SHA-256 of the weights of an undisturbed run."""
    with contextlib.ExitStack() as stack:
        _share(cluster, alone, lambda server: stack.enter_context(contextlib.closing(Client.on(Line(server)))))


def _share(cluster: SharedCluster, alone: str, connect: Callable[[Server], Client]) -> None:
    admin = connect(cluster.server())
    folder = cluster.home.parent / "program"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    jobs: list[Job] = []
    for name in USERS:
        admin.add_user(name)
        token = admin.add_token("story", user=name, role="user").secret
        server = cluster.server()
        user = connect(Server(url=server.url, token=token, ca=server.ca))
        arguments = (str(PAUSE_S), str(EPOCHS), str(cluster.gate))
        limits = {"min_workers": 1, "max_workers": 4, "heartbeat_limit_s": 3.0, "checkpoint_every": "10steps"}
        jobs.append(user.submit(folder / "train.py", *arguments, name=f"of-{name}", **limits))  # type: ignore[arg-type]
        if len(jobs) == 1:
            cluster.wait(lambda: _count(jobs) == [4], "the first user has all slots")

    begun = time.monotonic()

    def settle(after: str) -> None:
        nonlocal begun
        steps = [_step(job) for job in jobs]
        cluster.wait(lambda: len(_machines(admin)) == 2, f"there are two machines after {after}")
        cluster.wait(lambda: _count(jobs) == [2, 2], f"both have two workers after {after}")
        cluster.wait(
            lambda: all(_step(job) > step for job, step in zip(jobs, steps, strict=True)), f"both train after {after}"
        )
        print(f"{time.monotonic() - begun:.0f} s until both trained with two workers after {after}")
        begun = time.monotonic()

    settle("the second user came")

    node, worker, pid = _find_worker(cluster, jobs[0])
    cluster.kill(node, pid)
    cluster.wait(lambda: not _runs(cluster, jobs[0], worker), "the killed worker is given up")
    settle("a worker was killed")

    lost = _machines(admin)[-1]
    cluster.crash(lost)
    # Not by numbers of workers: if all workers of a job were there, its last view stays as it was until the lease ends.
    cluster.wait(lambda: lost not in _machines(admin), "a machine is lost")
    settle("a node crashed")

    nodes = _machines(admin)
    admin.drain_node(nodes[0], "the story")
    cluster.wait(lambda: nodes[0] not in _machines(admin), "the drained machine is left")
    settle("a machine was drained")

    cluster.preempt()
    settle("both machines were preempted")

    cluster.gate.touch()
    for job in jobs:
        cluster.wait(lambda job=job: job.refresh().has_ended, "the job ends")  # type: ignore[misc]
        assert job.record.stage == "succeeded", job.record.reason
        logs = (cluster.home / "jobs" / job.id / "logs").glob("worker-*.log*")
        assert {each for log in logs for each in DIGEST.findall(log.read_text(errors="replace"))} == {alone}


def _count(jobs: list[Job]) -> list[int]:
    return [(found.num_workers if (found := job.refresh().record.progress) else 0) for job in jobs]


def _step(job: Job) -> int:
    progress = job.refresh().record.progress
    return 0 if progress is None else progress.step or 0


def _machines(admin: Client) -> list[str]:
    """Return the machines that can be used, by name."""
    return [node.name for node in admin.nodes() if "legato.cluster" in node.labels and node.num_usable]


def _find_worker(cluster: SharedCluster, job: Job) -> tuple[str, object, int]:
    """Return machine, worker and process of one worker of a job."""
    record = read_record(cluster.home / "jobs" / job.id / RECORD)
    assert record is not None
    for node, about in record.nodes.items():
        for worker, pid in about.workers.items():
            if pid:
                return node, worker, pid
    raise AssertionError(f"no worker runs: {record}")


def _runs(cluster: SharedCluster, job: Job, worker: object) -> bool:
    with contextlib.suppress(LegatoError):
        record = read_record(cluster.home / "jobs" / job.id / RECORD)
        return record is not None and any(worker in about.workers for about in record.nodes.values())
    return True
