"""Real workers that are silent: a busy one is left alone, one that hangs is replaced, and the result is the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    World,
    after_event,
    arm,
    at_step,
    both,
    freeze,
    nothing,
    steps_later,
    with_members,
)

two_again = both(after_event("recovered"), with_members(2))
LEFT_ALONE = "is left alone"
HEARD_AGAIN = "is heard again"


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


@pytest.mark.timeout(300)
def test_silent_workers(stage: Stage, reference: Reference, starvation: Starvation) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), arm("hold", "compute", 1), "one computes with Python's lock held"),
        Act(after_event("note", HEARD_AGAIN), arm("hold", "sleep", 0), "rank 0 sleeps with Python's lock held"),
        Act(after_event("note", HEARD_AGAIN), starvation.begin, "one gets no CPU"),
        Act(after_event("note", LEFT_ALONE), starvation.end, "it gets some again"),
        Act(both(steps_later(1), with_members(2)), freeze(1), "one is stopped"),
        Act(two_again, arm("hold", "lock", 0), "rank 0 hangs while its heartbeats come"),
        Act(two_again, arm("hold", "lock", 0, 1), "all hang"),
        Act(both(after_event("resumed"), with_members(2)), nothing, "all are back"),
    ]
    result = stage.run(
        "text.py", workers=(1, 2, 2), plan=plan, heartbeat_limit_s=1.0, collective_limit_s=8.0, limit_s=240.0
    )
    result.check(want, finishers=2)
    story = result.story()
    fenced = [event["reason"] for event in result.of_kind("fenced")]
    assert sum("its process is stopped" in reason for reason in fenced) == 1, story
    assert sum("its program hangs" in reason for reason in fenced) == len(fenced) - 1 == 3, story
    notes = [event["reason"] for event in result.of_kind("note")]
    assert sum("computes, so it is left alone" in reason for reason in notes) >= 2, story
    assert any("waits for something" in reason for reason in notes), story
