"""What a worker reports to its driver: each step once, whether it committed the step itself or received it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from legato.core import wire
from legato.driver.journal import JobDirectory
from legato.driver.record import Records
from legato.train.loop.cursor import Cursor
from legato.train.loop.reporting import Reporter
from legato.train.membership.link import Link


class LinkToRecords:
    """A link whose reports go straight into the records of a job."""

    num_metrics = 0

    def __init__(self, directory: Path) -> None:
        self._records = Records(JobDirectory(directory), lambda: 0.0)
        self.num_new: list[int] = []
        self.complaints: list[str] = []

    def report(self, progress: wire.Progress) -> None:
        num_new, complaint = self._records.note_progress(7, progress)
        self.num_new.append(num_new)
        self.complaints += [complaint] if complaint else []

    send = report

    def flush(self) -> None: ...


def commit(reporter: Reporter, cursor: Cursor, step: int) -> None:
    cursor.step = step
    reporter.report_commit(cursor.past(step - 1, num_samples=8))


def test_a_worker_that_missed_one_commit_reports_no_step_twice(tmp_path: Path) -> None:
    link = LinkToRecords(tmp_path)
    reporter, cursor = Reporter(cast(Link, link)), Cursor()
    cursor.step = 3
    reporter.report_received(cursor)
    commit(reporter, cursor, 4)
    # A peer died after the others had received its sums of step 5; this worker had not.
    cursor.step = 5
    reporter.report_received(cursor)
    commit(reporter, cursor, 6)
    assert (link.num_new, link.complaints) == ([3, 1, 1, 1], [])


def test_a_worker_that_resumed_reports_no_step_before_the_checkpoint_again(tmp_path: Path) -> None:
    link = LinkToRecords(tmp_path)
    reporter, cursor = Reporter(cast(Link, link)), Cursor()
    cursor.step = 15
    reporter.report_resumed(cursor)
    cursor.step = 16
    reporter.report_received(cursor)
    assert link.complaints == []


def test_a_step_that_a_worker_commits_twice_is_an_error(tmp_path: Path) -> None:
    link = LinkToRecords(tmp_path)
    reporter, cursor = Reporter(cast(Link, link)), Cursor()
    commit(reporter, cursor, 1)
    commit(reporter, cursor, 1)
    assert link.complaints == ["worker 7 reported steps 1..1 as committed a second time"]
