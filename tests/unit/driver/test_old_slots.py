"""Journals of earlier releases, which have numbers instead of names of slots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from legato.core.spec import JobSpec
from legato.driver.events import MembershipSnapshot
from legato.driver.journal import JobDirectory, JobJournal


def write_numbers(directory: JobDirectory, *, is_assigned: bool) -> None:
    """Write a journal as an earlier release does."""
    spec = JobSpec(name="old", program=("p.py",), directory="/", max_workers=3, num_workers=2)
    snapshot = MembershipSnapshot(last_view=4, next_worker=3, slots={}, wanted=(), is_assigned=is_assigned)
    directory.make()
    directory.write_journal(JobJournal(spec=spec, token="t", snapshot=snapshot))
    journal = json.loads(directory.journal_file.read_text())
    del journal["book"]["available"]
    journal["book"] |= {"slots": {"0": 2, "2": 10}, "wanted": [2, 10], "given_up": [1], "surplus": [11]}
    directory.journal_file.write_text(json.dumps(journal))


@pytest.mark.parametrize("is_assigned", [False, True])
def test_numbers_become_names(tmp_path: Path, *, is_assigned: bool) -> None:
    directory = JobDirectory(tmp_path / "jobs" / "old")
    write_numbers(directory, is_assigned=is_assigned)
    journal = directory.read_journal("gpu-1")
    assert journal is not None
    assert journal.snapshot == MembershipSnapshot(
        last_view=4,
        next_worker=3,
        slots={0: "gpu-1/2", 2: "gpu-1/10"},
        wanted=("gpu-1/2", "gpu-1/10"),
        # The platform assigns slots of its own; a job of a terminal took the first ones.
        available=() if is_assigned else ("gpu-1/0", "gpu-1/1", "gpu-1/2"),
        given_up=("gpu-1/1",),
        surplus=("gpu-1/11",),
        is_assigned=is_assigned,
    )
    directory.write_journal(journal)
    assert directory.read_journal("another name") == directory.read_journal("gpu-1"), "it has names now"


def test_a_journal_that_is_no_journal_is_still_refused(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "jobs" / "old")
    directory.make()
    for content in ("[]", '{"book": 3}', '{"book": {"slots": 3, "wanted": null}, "spec": 1}', "{"):
        directory.journal_file.write_text(content)
        with pytest.raises(ValueError, match="Cannot read the journal"):
            directory.read_journal()
