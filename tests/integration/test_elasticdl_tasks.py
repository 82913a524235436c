"""Tasks of ElasticDL under a real driver with real workers: SIGKILL of a worker, of the driver, of both, at the end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tests import fork_server
from tests.integration.harness import LIMIT_S, PROGRAMS, Result, Stage

from legato.cli.local.resuming import find_resume_command
from legato.compat.elasticdl.site import launch
from legato.core.spec import GuestSpec, JobSpec
from legato.driver.journal import Outcome

NAME: Final = "job"
RECORDS: Final = str(PROGRAMS / "records.py")
_GUEST: Final = "legato.compat.elasticdl.master:make_guest"
_DRIVE: Final = """
import sys, msgspec
from legato.cli.local import run as driving
from legato.core.spec import JobSpec
from legato.driver.journal import JobDirectory
spec = msgspec.json.decode(open(sys.argv[1], "rb").read(), type=JobSpec)
sys.exit(driving.drive(JobDirectory.of(spec.name), spec, plain=True))
"""


class Line(NamedTuple):
    what: str
    worker: int
    pid: int
    task: int
    record: int


class Job:
    """A job that processes records, with its driver in a separate process."""

    def __init__(self, stage: Stage, num_records: int, *words: str, program: Sequence[str] = (RECORDS,)) -> None:
        self.stage = stage
        self.here = stage.home.parent
        self.num_records = num_records
        self.spec = JobSpec(
            name=NAME,
            program=(*program, str(self.here), str(num_records), *words),
            directory=str(self.here),
            max_workers=2,
            num_workers=2,
            heartbeat_interval_s=0.1,
            guest=GuestSpec(entry=_GUEST),
        )
        (self.here / "spec.json").write_bytes(msgspec.json.encode(self.spec))

    def begin(self) -> None:
        program = fork_server.begin_guest() + _DRIVE
        self.driver = self._start([sys.executable, "-c", program, str(self.here / "spec.json")])

    def type(self, *words: str) -> None:
        """Start the job as a user who types ``legato`` and these words."""
        self.driver = self._start(fork_server.command_of("legato.cli.main", *words))

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with (self.here / "driver.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                cwd=self.here,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def lines(self) -> list[Line]:
        path = self.here / "written"
        found = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [Line(what, *map(int, numbers)) for what, *numbers in found]

    def read_by(self, worker: int) -> list[Line]:
        return [line for line in self.lines if line.what == "read" and line.worker == worker]

    def open_gate(self, worker: int | None = None) -> None:
        (self.here / ("gate" if worker is None else f"gate-{worker}")).touch()

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver.wait()

    def take_over(self) -> None:
        self.type("attach", "--plain", NAME)

    def kill_worker(self, worker: int) -> Line:
        """SIGKILL a worker that has read one record of a task; return the record."""
        (read,) = self.read_by(worker)
        os.kill(read.pid, signal.SIGKILL)
        return read

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline and self.driver.poll() is None, f"never: {what}\n{self.story()}"
            time.sleep(0.02)

    def story(self) -> str:
        log = (self.here / "driver.log").read_text()
        return f"{self.stage.collect(Outcome('', 0, '')).story()}\n{log}\n{self.lines}"

    def finish(self) -> Result:
        code = self.driver.wait(timeout=LIMIT_S)
        result = self.stage.collect(Outcome("succeeded", code, ""))
        assert code == 0, self.story()
        assert not result.left_over
        assert not [event for event in result.events if event["level"] == "error"], self.story()
        return result

    def check(self, *killed: Line) -> None:
        """Assert that each record was done once in each epoch, and read twice only if a worker died with it."""
        done = Counter((line.what, line.record) for line in self.lines if line.what.startswith("done"))
        both = [(f"done-in-{epoch}", record) for epoch in (1, 2) for record in range(self.num_records)]
        assert done == Counter(both), self.story()
        read = Counter(line.record for line in self.lines if line.what == "read")
        twice = Counter(line.record for line in killed)
        assert read == Counter(dict.fromkeys(range(self.num_records), 2)) + twice, self.story()

    def end(self) -> None:
        self.driver.kill()
        self.driver.wait()


@pytest.fixture
def start(stage: Stage) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def begin(num_records: int, *words: Any, **how: Any) -> Job:
        made.append(Job(stage, num_records, *words, **how))
        made[-1].begin()
        return made[-1]

    yield begin
    for job in made:
        job.end()


def test_tasks_of_a_killed_worker_are_handed_out_again(start: Callable[..., Job]) -> None:
    job = start(30)
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both are in the middle of a task")
    killed = job.kill_worker(1)
    job.open_gate()
    result = job.finish()
    job.check(killed)
    assert [event["worker"] for event in result.of_kind("died")] == [1]
    assert not [line for line in job.lines if line.worker == 1 and line.what != "read"]


def test_a_killed_driver_loses_nothing_and_hands_out_nothing_twice(start: Callable[..., Job]) -> None:
    job = start(30)
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both are in the middle of a task")
    job.kill_driver()
    job.open_gate(0)  # it reports to no driver
    job.take_over()
    job.wait_for(lambda: len(job.read_by(0)) > 8, "worker 0 goes on with the new driver")
    job.open_gate()
    result = job.finish()
    job.check()
    assert not result.of_kind("died")
    assert {line.worker for line in job.lines} == {0, 1}


@pytest.mark.soak
def test_driver_and_worker_are_killed_at_once(start: Callable[..., Job]) -> None:
    job = start(30)
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both are in the middle of a task")
    job.kill_driver()
    killed = job.kill_worker(0)
    job.take_over()
    job.open_gate()
    job.finish()
    job.check(killed)


@pytest.mark.soak
def test_a_waiting_worker_takes_over_from_one_that_dies(start: Callable[..., Job]) -> None:
    job = start(2)  # one task in each epoch
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both are in the middle of a task")
    job.open_gate(0)  # its task done, it waits for the other's
    job.wait_for(lambda: any(line.what != "read" for line in job.lines), "one is done")
    killed = job.kill_worker(1)
    job.open_gate()
    job.finish()
    job.check(killed)


@pytest.mark.soak
def test_a_worker_that_dies_last_is_replaced_while_there_are_tasks(start: Callable[..., Job]) -> None:
    job = start(8, "all")  # each takes two of four tasks at once, and ends behind them
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both have their tasks")
    job.open_gate(0)
    events = job.stage.directory.events_file
    job.wait_for(lambda: "worker 0 exited after finishing" in events.read_text(), "one has ended")
    killed = job.kill_worker(1)
    job.open_gate()
    result = job.finish()
    job.check(killed)
    assert any("work is left" in event["reason"] for event in result.of_kind("started")), job.story()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.soak
def test_records_of_loaders_are_processed_once_each_after_a_kill(start: Callable[..., Job], start_method: str) -> None:
    # 61 records: the last task and the last batch are short, and batches run across tasks.
    program = (str(launch.__file__), str(PROGRAMS / "elasticdl/handed.py"))
    job = start(61, start_method, program=program)
    job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both have a batch, and their loaders more")
    job.kill_worker(1)
    job.wait_for(lambda: job.read_by(2), "another one is in its place")
    job.open_gate()
    result = job.finish()
    done = Counter(line.record for line in job.lines if line.what == "done")
    assert done == Counter(range(61)), job.story()
    assert [event["worker"] for event in result.of_kind("died")] == [1]
    assert not [event for event in result.events if "not all tasks" in event["reason"]], job.story()


def test_a_loop_ends_while_a_worker_that_waits_for_it_has_the_last_records(start: Callable[..., Job]) -> None:
    job = start(program=(str(launch.__file__), str(PROGRAMS / "elasticdl/left.py")), num_records=64)
    job.finish()
    done = Counter(line.record for line in job.lines if line.what == "done")
    assert done == Counter(range(64)), job.story()


def test_loops_that_the_collector_ends_on_any_thread_do_not_hang() -> None:
    site = Path(launch.__file__).parent
    path = os.pathsep.join([str(site), *(path for path in sys.path if path)])
    ended = subprocess.run(
        [sys.executable, str(PROGRAMS / "elasticdl/collected.py"), "30"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ended.stdout == "left 30\n", ended.stderr


@pytest.mark.soak
def test_a_job_that_was_stopped_at_a_terminal_resumes_its_tasks(stage: Stage) -> None:
    job = Job(stage, 30)
    try:
        job.type("run", "--name", NAME, "--workers", "2", "--guest", _GUEST, *job.spec.program)
        job.wait_for(lambda: job.read_by(0) and job.read_by(1), "both are in the middle of a task")
        job.open_gate(0)
        job.wait_for(lambda: len(job.read_by(0)) > 16, "four tasks are done")
        job.driver.send_signal(signal.SIGINT)
        assert job.driver.wait(timeout=LIMIT_S) == 0, job.story()
        told = find_resume_command(stage.directory)
        assert told is not None and f"--name {NAME} --resume" in told, job.story()
        job.open_gate()
        legato, *words = shlex.split(told.rpartition(" && ")[2])
        assert legato == "legato"
        job.type(*words)
        job.finish()
    finally:
        job.end()
    done = [(line.what, line.record) for line in job.lines if line.what != "read"]
    assert {record for what, record in done if what == "done-in-1"} == set(range(30)), job.story()
    assert {record for what, record in done if what == "done-in-2"} == set(range(30)), job.story()
    # At most the tasks that the workers had when all of them were stopped are processed again.
    assert len(done) <= 60 + 2 * 4, job.story()
