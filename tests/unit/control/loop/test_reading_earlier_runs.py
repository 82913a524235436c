"""Earlier runs are read in batches, running jobs first, for a short time; an error leaves a job without them only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from tests.unit.control.loop.test_rounds import make_running

from legato.control.loop.earlier_runs import EarlierRuns
from legato.control.records import Job
from legato.control.stages import Stage
from legato.core.speed import Speed
from legato.policy.earlier_runs import EarlierRun

NOW = 1000.0
SPEED = Speed(num_workers=1, num_nodes=1, samples_per_s=10.0, measured_s=60.0, at=NOW - 10)
RUN = EarlierRun(machine_kind="x/cpu", num_micro_batches=None, has_same_parameters=True, speeds=(SPEED,))


def make_job(name: str, stage: Stage, code: str = "c" * 64, **changes: object) -> Job:
    return msgspec.structs.replace(make_running(1, "said"), id=name, stage=stage, code=code, **changes)


class Source:
    """The store and the clock: each call takes some time."""

    def __init__(self, lasts_s: float = 0.0, bad: frozenset[str] = frozenset()) -> None:
        self.now, self.lasts_s, self.bad = NOW, lasts_s, bad
        self.runs: tuple[EarlierRun, ...] = (RUN,)
        self.calls: list[list[str]] = []
        self.known = EarlierRuns(self.read, lambda: self.now)

    def read(self, jobs: Sequence[str]) -> dict[str, tuple[EarlierRun, ...]]:
        self.calls.append(list(jobs))
        self.now += self.lasts_s
        if self.bad & set(jobs):
            raise ValueError("damaged")
        return dict.fromkeys(jobs, self.runs)

    def do_round(self, jobs: Sequence[Job]) -> None:
        self.known.read(self.known.list_due(jobs), 60.0)


def test_many_jobs_are_read_in_batches_and_those_that_run_first() -> None:
    source = Source()
    waiting = [make_job(f"w{number:03}", Stage.QUEUED, attempt=0) for number in range(150)]
    running = [make_job(f"r{number}", Stage.RUNNING, code=str(number % 2) * 64) for number in range(4)]
    jobs = [*waiting, *running]
    source.do_round(jobs)
    assert source.calls[:2] == [["r0", "r2"], ["r1", "r3"]]
    assert [len(call) for call in source.calls[2:]] == [100, 50]
    assert source.known.list_known().keys() == {job.id for job in jobs}
    source.do_round(jobs)
    assert len(source.calls) == 4, "each attempt once"
    source.do_round(running)
    assert source.known.list_known().keys() == {job.id for job in running}


def test_a_long_work_is_continued_in_the_next_round() -> None:
    source = Source(lasts_s=0.15)
    jobs = [make_job(f"j{number}", Stage.RUNNING, code=str(number) * 64) for number in range(5)]
    for want in (2, 4, 5, 5):
        source.do_round(jobs)
        assert len(source.known.list_known()) == want


def test_an_error_leaves_only_its_job_without_earlier_runs() -> None:
    source = Source(bad=frozenset({"b"}))
    jobs = [make_job(name, Stage.RUNNING) for name in "abc"]
    source.do_round(jobs)
    assert source.known.list_known().keys() == {"a", "c"}
    assert not source.known.list_due(jobs), "it is logged once"


def test_runs_that_have_disappeared_among_others_are_remembered() -> None:
    source = Source()
    job = make_job("j", Stage.QUEUED, attempt=0)
    source.do_round([job])
    before = source.known.list_known()["j"]
    source.runs = ()
    source.do_round([msgspec.structs.replace(job, stage=Stage.RUNNING, attempt=1)])
    assert source.known.list_known() == {"j": before}
