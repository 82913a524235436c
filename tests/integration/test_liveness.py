"""Real workers that are silent: a busy one is not replaced, one that hangs is, and the result is the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.integration.harness import (
    Act,
    Do,
    Reference,
    Stage,
    World,
    after_event,
    arm,
    at_step,
    both,
    freeze,
    marked,
    nothing,
    scale,
    with_members,
)

SPINNERS_PER_CPU = 4
CROWDED_S = 20.0

two_again = both(after_event("recovered"), with_members(2))


def hold(how: str, rank: int) -> Do:
    """Let a worker hold Python's lock until `release`."""

    def do(world: World) -> None:
        (world.reins / "held").touch()
        arm("hold", how, rank)(world)

    return do


def release(world: World) -> None:
    (world.reins / "held").unlink()


class Starvation:
    """Takes the CPU away from a worker, so that it is ready to run and hardly ever does."""

    def __init__(self) -> None:
        self._spinner: subprocess.Popen[bytes] | None = None
        self._share = Path("/proc/self/autogroup")

    def begin(self, world: World) -> None:
        pid = world.members()[1]["pid"]
        cpu = max(os.sched_getaffinity(0))
        self._spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        os.sched_setaffinity(self._spinner.pid, {cpu})
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cpu})
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
        # Where the system shares a CPU fairly between sessions, it is the session that must want little.
        self._share = Path(f"/proc/{pid}/autogroup")
        if self._share.exists():
            self._share.write_text("19")

    def end(self, _world: World | None = None) -> None:
        if self._spinner is not None:
            self._spinner.kill()
            self._spinner.wait()
            self._spinner = None
            with contextlib.suppress(OSError):
                self._share.write_text("0")


@pytest.fixture
def starvation() -> Iterator[Starvation]:
    starvation = Starvation()
    yield starvation
    starvation.end()


@pytest.mark.timeout(120)
def test_a_worker_that_holds_pythons_lock_is_not_replaced_and_one_that_is_stopped_is(
    stage: Stage, reference: Reference
) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), hold("compute", 1), "one computes with Python's lock held"),
        Act(both(marked("hold-compute"), after_event("note", "worker 1 is silent")), release, "it may go on"),
        Act(
            after_event("note", "worker 1 answers again after"),
            hold("sleep", 0),
            "rank 0 sleeps with Python's lock held",
        ),
        Act(both(marked("hold-sleep"), after_event("note", "worker 0 is silent")), release, "it may go on"),
        Act(after_event("note", "worker 0 answers again after"), freeze(1), "one is stopped"),
        Act(two_again, nothing, "both train"),
    ]
    result = stage.run("text.py", workers=(1, 2, 2), plan=plan, heartbeat_limit_s=0.5)
    result.check(want, finishers=2)
    (fenced,) = result.of_kind("fenced")
    assert fenced["worker"] == 1 and "its process is stopped" in fenced["reason"], result.story()


def has_answered_again(world: World) -> bool:
    """A worker may answer again before the test sees that it was silent, so all events count."""
    return any(event.kind == "note" and "answers again after" in event.reason for event in world.events)


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_worker_without_cpu_is_not_replaced(stage: Stage, reference: Reference, starvation: Starvation) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), starvation.begin, "one gets no CPU"),
        Act(after_event("note", "Legato does not replace it"), starvation.end, "it gets some again"),
        Act(has_answered_again, nothing, "it is heard"),
    ]
    result = stage.run("text.py", workers=(1, 2, 2), plan=plan, heartbeat_limit_s=0.5, limit_s=150.0)
    result.check(want, finishers=2)
    assert not result.of_kind("fenced"), result.story()


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_workers_whose_programs_hang_are_replaced(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), arm("hold", "lock", 0), "rank 0 hangs while its heartbeats come"),
        Act(two_again, arm("hold", "lock", 0, 1), "all hang"),
        Act(both(after_event("resumed"), with_members(2)), nothing, "all are back"),
    ]
    result = stage.run(
        "text.py", workers=(1, 2, 2), plan=plan, heartbeat_limit_s=0.5, collective_limit_s=3.0, limit_s=150.0
    )
    result.check(want, finishers=2)
    fenced = [event["reason"] for event in result.of_kind("fenced")]
    assert len(fenced) == 3 and all("its program hangs" in reason for reason in fenced), result.story()


class Crowd:
    """Programs that take most of each CPU, so that each worker gets a small share of it. They end with this process."""

    PROGRAM = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"

    def __init__(self) -> None:
        self._num_cpus = len(os.sched_getaffinity(0))
        self._began = time.monotonic()
        self._programs: list[psutil.Popen] = []

    def begin(self) -> None:
        for _ in range(SPINNERS_PER_CPU * self._num_cpus):
            # Where the system shares a CPU fairly between sessions, each is one.
            self._programs.append(psutil.Popen([sys.executable, "-c", self.PROGRAM], start_new_session=True))

    def measure(self) -> float:
        """Return which part of all CPUs the programs have had."""
        used_s = sum(program.cpu_times().user for program in self._programs)
        return used_s / (time.monotonic() - self._began) / self._num_cpus

    def end(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd()
    try:
        crowd.begin()
        yield crowd
    finally:
        crowd.end()


@pytest.mark.timeout(0)
@pytest.mark.soak
def test_no_worker_of_a_crowded_machine_is_replaced(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reference: Reference,
    crowd: Crowd,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    """With the default limits. ``--soak-seconds`` sets for how long jobs train."""
    del stage  # it has prepared the environment
    limit_s = request.config.getoption("--soak-seconds") or CROWDED_S
    defaults = {"heartbeat_interval_s": 0.25, "heartbeat_limit_s": 5.0}
    want = reference.of("text.py")
    counts: Counter[str] = Counter()
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        plan = [
            Act(at_step(2), scale(4), "it grows"),
            Act(with_members(4), scale(1), "it shrinks"),
            Act(with_members(1), scale(3), "it grows again"),
            Act(with_members(3), nothing, "all train"),
        ]
        path = tmp_path / f"job-{counts['jobs']}"
        path.mkdir()
        job = Stage(path, monkeypatch)
        try:
            result = job.run("text.py", workers=(1, 4, 2), plan=plan, limit_s=600.0, **defaults)
        finally:
            job.clear()
        result.check(want, finishers=3)
        assert not result.of_kind("fenced") and not result.of_kind("recovered"), result.story()
        counts.update(jobs=1, steps=len(result.ledger))
        counts["silences"] += sum("is silent" in event["reason"] for event in result.of_kind("note"))
    share = crowd.measure()
    print(f"{time.monotonic() - began:.0f} s: {dict(counts)}; other programs had {share:.0%} of the CPUs")
    record_property("counts", dict(counts))
    assert share > 0.2
