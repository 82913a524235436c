"""No process is killed by a number that was used again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import legato.system.processes
from legato.core.errors import LegatoError
from legato.system.processes import (
    Vital,
    boot_id,
    examine,
    is_alive,
    kill_all_of,
    kill_group,
    parse_stat,
    send_signal,
    start_time_of,
)

DEADLINE_S = 30.0
MARK = "LEGATO_ENGINE=/jobs/this-one/engine.json"
FAMILY = """
import os, sys, time
child = os.fork()
if child:
    print(child, flush=True)
    time.sleep(600)
for line in sys.stdin:
    print(line, end="", flush=True)
"""
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class Family:
    """A process that leads a session and a group of its own, and a child in that group."""

    def __init__(self, mark: str | None) -> None:
        name, _, value = (mark or "").partition("=")
        told = {name: value} if mark else {}
        self.leader = subprocess.Popen(
            [sys.executable, "-c", FAMILY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **told},
        )
        self.child = int(self._read())
        self.start_time = started(self.leader.pid)
        self.child_start_time = started(self.child)

    def lose_leader(self) -> None:
        self.leader.kill()
        self.leader.wait()

    @property
    def child_lives(self) -> bool:
        return is_alive(self.child, self.child_start_time)

    @property
    def child_answers(self) -> bool:
        """Whether it was spared: who was sent SIGKILL answers nothing any more, however late its end is seen."""
        assert self.leader.stdin is not None
        self.leader.stdin.write("well?\n")
        self.leader.stdin.flush()
        return self._read() == "well?\n"

    def end(self) -> None:
        self.lose_leader()
        send_signal(self.child, self.child_start_time, signal.SIGKILL)
        for stream in (self.leader.stdin, self.leader.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> str:
        assert self.leader.stdout is not None
        return self.leader.stdout.readline()


@pytest.fixture
def make_family() -> Iterator[Callable[[str | None], Family]]:
    families = []

    def make(mark: str | None) -> Family:
        families.append(Family(mark))
        return families[-1]

    yield make
    for family in families:
        family.end()


def started(pid: int) -> int:
    found = start_time_of(pid)
    assert found is not None
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


@contextlib.contextmanager
def session(code: str) -> Iterator[tuple[int, int]]:
    """Run a program in a session of its own; yields its number and start time once it has printed a line."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline()
            yield child.pid, started(child.pid)
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def vital(pid: int, start_time: int) -> Vital:
    return examine({7: (pid, start_time)})[7]


WAITS = "import time; print(1, flush=True); time.sleep(600)"
COMPUTES_IN_A_THREAD = """
import threading
def compute():
    while True:
        pass
threading.Thread(target=compute).start()
print(1, flush=True)
"""
COMPUTES_IN_A_CHILD = """
import os, time
if os.fork():
    print(1, flush=True)
    time.sleep(600)
while True:
    pass
"""


def test_a_waiting_process_is_distinguished_from_a_stopped_one_and_a_dead_one() -> None:
    with session(WAITS) as (pid, start_time):
        wait_for(lambda: vital(pid, start_time).state == "waiting")
        assert vital(pid, start_time + 1).state == "gone", "the number is another process's"
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: vital(pid, start_time).state == "stopped")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: vital(pid, start_time).state == "gone")
    assert vital(pid, start_time) == Vital("gone", 0.0)


@pytest.mark.parametrize("code", [COMPUTES_IN_A_THREAD, COMPUTES_IN_A_CHILD])
def test_what_threads_and_children_compute_counts(code: str) -> None:
    with session(code) as process:
        before = vital(*process)
        wait_for(lambda: vital(*process).cpu_s > before.cpu_s)
        wait_for(lambda: vital(*process).state == "running")


def has_ended(pid: int) -> bool:
    return parse_stat(Path(f"/proc/{pid}/stat").read_text()).has_ended


def test_a_process_is_its_number_and_its_start_time() -> None:
    mine = started(os.getpid())
    assert mine > 0
    assert is_alive(os.getpid(), mine)
    assert not is_alive(os.getpid(), mine + 1)
    assert boot_id() == boot_id() != ""


def test_one_that_waits_to_be_reaped_does_not_run_but_keeps_its_number() -> None:
    child = subprocess.Popen(["true"])
    wait_for(lambda: has_ended(child.pid))
    start_time = started(child.pid)
    assert not is_alive(child.pid, start_time)
    child.wait()
    assert start_time_of(child.pid) is None
    assert not is_alive(child.pid, start_time)


def test_a_signal_reaches_the_process_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    for without in (False, True):
        if without:
            monkeypatch.delattr(os, "pidfd_open", raising=False)
        with subprocess.Popen(SLEEP) as child:
            start_time = started(child.pid)
            send_signal(child.pid, start_time + 1, signal.SIGKILL)
            send_signal(child.pid, 0, signal.SIGKILL)
            send_signal(child.pid, start_time, signal.SIGTERM)
            assert child.wait() == -signal.SIGTERM
        send_signal(child.pid, start_time, signal.SIGKILL)


def test_a_number_that_no_process_can_have_means_none() -> None:
    for number in (2**40, 2**70):
        send_signal(number, 1, signal.SIGKILL)
        kill_group(number, 1, MARK)
        assert not is_alive(number, 1)
        assert examine({0: (number, 1)}) == {0: Vital("gone", 0.0)}


def test_a_leader_falls_with_its_group(make_family: Callable[[str | None], Family]) -> None:
    family = make_family(None)
    kill_group(family.leader.pid, family.start_time, MARK)
    assert family.leader.wait() == -signal.SIGKILL
    wait_for(lambda: not family.child_lives)


def test_a_dead_leader_that_waits_to_be_reaped_still_stands_for_its_group(
    make_family: Callable[[str | None], Family],
) -> None:
    family = make_family(None)
    os.kill(family.leader.pid, signal.SIGKILL)
    wait_for(lambda: has_ended(family.leader.pid))
    assert family.child_lives
    kill_group(family.leader.pid, family.start_time, MARK)
    wait_for(lambda: not family.child_lives)


@pytest.mark.parametrize("mark", [None, MARK])
def test_a_leader_of_another_start_time_is_a_stranger(
    mark: str | None, make_family: Callable[[str | None], Family]
) -> None:
    family = make_family(mark)
    kill_group(family.leader.pid, family.start_time - 1, MARK)
    kill_group(family.leader.pid, 0, MARK)
    assert family.child_answers


@pytest.mark.parametrize("mark", [None, "LEGATO_ENGINE=/jobs/another/engine.json", MARK + "x"])
def test_what_a_gone_leader_left_is_a_strangers_without_the_mark(
    mark: str | None, make_family: Callable[[str | None], Family]
) -> None:
    family = make_family(mark)
    family.lose_leader()
    kill_group(family.leader.pid, family.start_time, MARK)
    assert family.child_answers


def test_what_a_gone_leader_left_is_known_by_the_mark(make_family: Callable[[str | None], Family]) -> None:
    family = make_family(MARK)
    family.lose_leader()
    assert family.child_lives
    kill_group(family.leader.pid, family.start_time, MARK)
    wait_for(lambda: not family.child_lives)


def test_what_is_older_than_the_leader_is_a_strangers(make_family: Callable[[str | None], Family]) -> None:
    family = make_family(MARK)
    family.lose_leader()
    kill_group(family.leader.pid, family.child_start_time + 1, MARK)
    assert family.child_answers


def test_a_process_of_another_user_is_a_strangers(make_family: Callable[[str | None], Family]) -> None:
    family = make_family(MARK)
    stranger = os.getuid() + 1
    assert is_alive(family.leader.pid, family.start_time, os.getuid())
    assert not is_alive(family.leader.pid, family.start_time, stranger)
    send_signal(family.leader.pid, family.start_time, signal.SIGKILL, stranger)
    kill_group(family.leader.pid, family.start_time, MARK, stranger)
    assert family.child_answers
    assert family.leader.poll() is None


def test_a_refused_signal_is_an_error(
    make_family: Callable[[str | None], Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    family = make_family(None)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse, raising=False)
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(os, "killpg", refuse)
    with pytest.raises(LegatoError, match=f"Cannot end process {family.leader.pid}: the system refuses it"):
        send_signal(family.leader.pid, family.start_time, signal.SIGTERM)
    with pytest.raises(LegatoError, match="run the server as root, or with the capability KILL"):
        kill_group(family.leader.pid, family.start_time, MARK)
    monkeypatch.undo()


def test_a_process_that_ends_while_it_is_examined_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: object) -> list[str]:
        raise FileNotFoundError(path)

    with session(WAITS) as (pid, start_time):
        found = parse_stat(Path(f"/proc/{pid}/stat").read_text())._replace(state="S")
        monkeypatch.setattr(legato.system.processes, "_all_stats", lambda: iter([(pid, found)]))
        monkeypatch.setattr(os, "listdir", fail)
        monkeypatch.setattr(os, "scandir", fail)
        assert vital(pid, start_time).state == "waiting"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_all_processes_of_a_user_end_and_no_others() -> None:
    first, second = 2_000_000_771, 2_000_000_772
    children = {
        user: subprocess.Popen(["/bin/sleep", "600"], user=user, group=user, extra_groups=[], env={}, cwd="/")
        for user in (first, second)
    }
    try:
        assert kill_all_of([first], min_age_s=3600.0) == {}, "it has just begun"
        assert kill_all_of([], min_age_s=0.0) == {}
        assert kill_all_of([first], min_age_s=0.0) == {first: 1}
        assert children[first].wait(DEADLINE_S) == -signal.SIGKILL
        assert children[second].poll() is None
    finally:
        for child in children.values():
            child.kill()
            child.wait()
