"""Real workers under the limits of real control groups: each test needs groups that this user may write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.test_engine import ENTRY

from legato.control.drivers.job_directories import end_leftovers
from legato.core.errors import UsageError
from legato.core.limits import Limits
from legato.engines import local
from legato.engines.base import Exited, Launch, Noted
from legato.engines.cgroups import JobGroup, LimitHits, Place, Support, find_support
from legato.engines.local import LocalEngine
from legato.system.processes import parse_stat, start_time_of

MIB = 2**20
SUPPORT = find_support()
needs_memory = pytest.mark.skipif("memory" not in SUPPORT.places, reason=f"no memory groups: {SUPPORT.why_not}")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yield
    # Of this job: others may run beside it.
    assert [group for group in JobGroup(tmp_path, Limits(), SUPPORT).folders() if group.exists()] == []


Ended = tuple[dict[int, Exited], list[str]]


def run(engine: LocalEngine, directory: Path, programs: dict[int, tuple[str, ...]]) -> Ended:
    """Run workers to their ends; returns how each one ended, and what the engine noted."""

    async def conduct() -> Ended:
        await engine.open()
        ended: dict[int, Exited] = {}
        noted: list[str] = []
        try:
            for worker, program in programs.items():
                launch = Launch(
                    worker=worker,
                    slot=f"n/{worker}",
                    program=program,
                    environment={},
                    directory=str(directory),
                    log_path=str(directory / f"logs/worker-{worker}.log"),
                )
                await engine.start(launch)
            async for event in engine.events():
                if isinstance(event, Noted):
                    noted.append(event.told)
                if isinstance(event, Exited):
                    ended[event.worker] = event
                if len(ended) == len(programs):
                    break
        finally:
            await engine.close()
        return ended, noted

    return asyncio.run(conduct())


def make(directory: Path, limits: Limits) -> LocalEngine:
    return LocalEngine(directory, entry=ENTRY, preload=(), limits=limits)


def read_state(pid: int) -> str:
    return parse_stat(Path(f"/proc/{pid}/stat").read_text()).state


@needs_memory
def test_a_worker_that_uses_too_much_memory_ends_alone_and_the_reason_says_why(tmp_path: Path) -> None:
    engine = make(tmp_path, Limits(memory_bytes=96 * MIB))
    ended, _ = run(engine, tmp_path, {0: ("eat", str(400 * MIB)), 1: ("eat", str(10 * MIB))})
    assert ended[0].exit_code == -9
    assert ended[0].reason.startswith("killed by the kernel: out of memory; the limit is 96 MiB for each worker. Use")
    assert (ended[1].exit_code, ended[1].reason) == (0, "")


@needs_memory
@pytest.mark.soak
def test_a_worker_that_is_killed_otherwise_is_not_said_to_lack_memory(tmp_path: Path) -> None:
    ended, _ = run(make(tmp_path, Limits(memory_bytes=96 * MIB)), tmp_path, {0: ("kill", "9")})
    assert (ended[0].exit_code, ended[0].reason) == (-9, "")


@pytest.mark.parametrize(
    ("is_named", "told"),
    [
        (True, "killed by the kernel: the machine was out of memory. Use a smaller micro-batch"),
        (False, ""),
        (None, "killed by SIGKILL by an unknown process. While it ran, the kernel killed 1 process of this machine"),
    ],
)
def test_a_kill_is_called_a_lack_of_memory_only_if_the_kernel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool | None, told: str
) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(local, "count_machine_oom_kills", lambda: next(counts))
    monkeypatch.setattr(local, "count_limit_hits", lambda: LimitHits({}, is_certain=True))
    monkeypatch.setattr(local, "is_named_victim", lambda _pid, _since: is_named)
    ended, _ = run(make(tmp_path, Limits()), tmp_path, {0: ("kill", "9")})
    assert ended[0].reason.startswith(told) and bool(ended[0].reason) == bool(told)


@needs_memory
def test_a_worker_in_its_own_group_is_not_blamed_when_the_machine_is_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(local, "count_machine_oom_kills", lambda: next(counts))
    ended, _ = run(make(tmp_path, Limits(memory_bytes=96 * MIB)), tmp_path, {0: ("kill", "9")})
    assert (ended[0].exit_code, ended[0].reason) == (-9, "")


@pytest.mark.skipif("pids" not in SUPPORT.places, reason=f"no groups: {SUPPORT.why_not}")
def test_a_process_that_hides_from_everything_ends_with_its_job(tmp_path: Path) -> None:
    told = tmp_path / "hidden"
    ended, _ = run(make(tmp_path, Limits(num_processes=100)), tmp_path, {0: ("hide", str(told))})
    assert ended[0].exit_code == 0
    pid = int(told.read_text())
    assert start_time_of(pid) is None or read_state(pid) == "Z"


@pytest.mark.skipif("pids" not in SUPPORT.places, reason=f"no groups: {SUPPORT.why_not}")
def test_a_job_that_is_given_up_leaves_nothing_in_its_groups(tmp_path: Path) -> None:
    group = JobGroup(tmp_path, Limits(num_processes=9), SUPPORT)
    group.open()
    hidden = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    group.add_worker(0, hidden.pid)
    asyncio.run(end_leftovers(tmp_path))
    assert hidden.wait(60) == -9


def test_the_kernel_ends_a_whole_group_of_version_2(tmp_path: Path) -> None:
    mounted = Path("/sys/fs/cgroup/unified")
    base = mounted if (mounted / "cgroup.procs").exists() else mounted.parent
    if not (base / "cgroup.procs").exists() or not os.access(base, os.W_OK):
        pytest.skip("no groups of version 2 that this user may make")
    group = JobGroup(tmp_path, Limits(), Support({"memory": Place(2, base)}, ""))
    (top,) = group.folders()
    inner = top / "worker-0"
    top.mkdir()
    try:
        inner.mkdir()
        children = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        for child in children:
            (inner / "cgroup.procs").write_text(str(child.pid))
        killing = threading.Thread(target=group.kill)
        killing.start()
        assert [child.wait(30) for child in children] == [-9, -9, -9]
        killing.join()
    finally:
        group.close()
    assert not top.exists()


def test_limits_that_cannot_be_enforced_are_refused_or_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_support", lambda: Support({}, "no control groups are mounted"))
    with pytest.raises(UsageError, match="cannot limit memory of a job: no control groups are mounted"):
        run(make(tmp_path, Limits(memory_bytes=96 * MIB)), tmp_path, {})
    engine = make(tmp_path, Limits(memory_bytes=96 * MIB, must_hold=False))
    ended, noted = run(engine, tmp_path, {0: ("exit", "0")})
    assert ended[0].exit_code == 0
    assert noted and "are not enforced" in noted[0]


def test_workers_are_victims_before_the_server_is(tmp_path: Path) -> None:
    ended, _ = run(
        make(tmp_path, Limits()), tmp_path, {0: ("copy", "/proc/self/oom_score_adj", str(tmp_path / "told"))}
    )
    assert ended[0].exit_code == 0
    assert (tmp_path / "told").read_text().strip() == "500"
