"""Output of sacct becomes a workload, and what cannot be read is refused with its line.

``sacct.txt`` is what sacct of Slurm 22.05 printed for jobs of a test: an array, a heterogeneous job, a job whose name
contains the delimiter, jobs that failed, were cancelled or still ran.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core.errors import UsageError
from legato.sim.sacct import Imported, Scaling, SlotUnit, read_duration, read_sacct
from legato.sim.workload import read_workload, write_workload

REAL = Path(__file__).with_name("sacct.txt")
HEADER = "JobID|JobName|User|Partition|Submit|Eligible|ElapsedRaw|State|AllocTRES"
LINE = "7|train|ann|gpu|2026-01-31T12:00:00|2026-01-31T12:00:00|3600|COMPLETED|cpu=8,gres/gpu=4,node=1"


def read(
    tmp_path: Path, *lines: str, unit: SlotUnit = SlotUnit.GPU, scaling: Scaling | None = None, header: str = HEADER
) -> Imported:
    (tmp_path / "jobs.txt").write_text("\n".join([header, *lines, ""]))
    return read_sacct(tmp_path / "jobs.txt", unit, scaling or Scaling())


def but(**values: str) -> str:
    names = HEADER.casefold().split("|")
    parts = LINE.split("|")
    for name, value in values.items():
        parts[names.index(name)] = value
    return "|".join(parts)


def test_what_slurm_has_printed_is_read() -> None:
    found = read_sacct(REAL, SlotUnit.GPU, Scaling())
    assert [
        (plan.name, plan.submitted_at, plan.max_workers, plan.load.num_steps, plan.owner, plan.queue)
        for plan in found.plans
    ] == [
        ("single", 0.0, 2, 3, "legato-test", "low"),
        ("odd|na,me", 0.0, 1, 3, "legato-test", "low"),
        ("het", 0.0, 3, 2, "legato-test", "low"),
        ("two", 0.0, 8, 3, "legato-test", "low"),
        ("arr", 1.0, 1, 4, "legato-test", "low"),
        ("arr", 1.0, 1, 4, "legato-test", "low"),
        ("cancelled", 1.0, 4, 17, "legato-test", "low"),
        # The array had a limit of two tasks at a time, so these were not eligible before.
        ("arr", 5.0, 1, 4, "legato-test", "low"),
        ("arr", 5.0, 1, 4, "legato-test", "low"),
        ("running", 26.0, 1, 1, "legato-test", "low"),
    ]
    assert found.describe() == (
        "read 10 jobs from 27 lines; 14 lines of steps belong to them; 1 job had not ended: the time until "
        "then counts; 1 job left out that never ran; 1 job left out that had none of these slots"
    )


def test_a_heterogeneous_job_that_was_requeued_has_the_slots_of_one_run(tmp_path: Path) -> None:
    lines = [but(jobid=name, elapsedraw="5") for name in ("1+0", "1+1", "1+0", "1+1")]
    (plan,) = read(tmp_path, *lines).plans
    assert (plan.max_workers, plan.load.num_steps) == (8, 10)


def test_a_number_of_too_many_digits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Write a whole number"):
        read(tmp_path, but(alloctres=f"gres/gpu={'9' * 5000}"))


@pytest.mark.parametrize(("unit", "total"), [(SlotUnit.CPU, 14), (SlotUnit.NODE, 13)])
def test_slots_are_what_is_counted(unit: SlotUnit, total: int) -> None:
    assert sum(plan.max_workers for plan in read_sacct(REAL, unit, Scaling()).plans) == total


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93_784),
        ("02:03:04", 7_384),
        ("03:04", 184),
        ("00:00:00", 0),
        ("365-00:00:00", 31_536_000),
        ("00:01.500", 1),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text, "here") == seconds


@pytest.mark.parametrize(
    "text", ["", "UNLIMITED", "1-", "-1:00", "1:2:3:4", "5", "1-2", "Partition_Limit", "9" * 50 + ":00"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="here is "):
        read_duration(text, "here")


def test_other_columns_and_ends_of_lines(tmp_path: Path) -> None:
    lines = ["AllocCPUS|Elapsed|Submit|JobID|Timelimit|", "16|1-00:00:00|1795828228|9_3|UNLIMITED|"]
    (tmp_path / "jobs.txt").write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    (plan,) = read_sacct(tmp_path / "jobs.txt", SlotUnit.CPU, Scaling()).plans
    assert (plan.name, plan.owner, plan.queue) == ("9_3", "user", "default")
    assert (plan.max_workers, plan.load.num_steps) == (16, 86_400)


def test_a_requeued_job_counts_once_with_all_its_time(tmp_path: Path) -> None:
    again = but(submit="2026-01-31T13:00:00", eligible="2026-01-31T13:00:00", elapsedraw="100", state="PREEMPTED")
    found = read(tmp_path, LINE, again)
    assert [(plan.load.num_steps, plan.submitted_at) for plan in found.plans] == [(3700, 0.0)]


def test_jobs_without_a_start_or_a_gpu_are_left_out_and_counted(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        but(jobid="1", elapsedraw="0", state="CANCELLED by 1000", alloctres=""),
        but(jobid="2_[1-9%2]", elapsedraw="0", state="PENDING", alloctres="", eligible="Unknown"),
        but(jobid="3", alloctres="cpu=4,node=1"),
        but(jobid="4", alloctres="gres/gpu:a100=1,gres/gpu:h100=2"),
    )
    assert (found.num_not_run, found.num_without_slots, [plan.max_workers for plan in found.plans]) == (2, 1, [3])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([""], "it is empty"),
        (["JobID JobName State", "1 a COMPLETED"], "separated by spaces"),
        (["JobID,Submit,ElapsedRaw,AllocTRES"], "separated by commas"),
        ([LINE], "its first line does not name the columns"),
        (["JobID|JobID|Submit"], "'jobid' is there twice"),
        (["JobID|ElapsedRaw|AllocTRES"], "there is no column Submit"),
        (["JobID|Submit|AllocTRES"], "there is no column ElapsedRaw or Elapsed"),
        (["JobID|Submit|ElapsedRaw|NCPUS"], "there is no column AllocTRES or ReqTRES"),
        ([HEADER, "1|2|3"], "line 2: there are 3 values for 9 columns"),
        ([HEADER + "|Comment", LINE + "|a|b"], "there are 11 values for 10 columns"),
        ([HEADER, but(jobid="seven")], "line 2: JobID is 'seven'"),
        ([HEADER, LINE, but(state="DONE")], "line 3: State is 'DONE'"),
        ([HEADER, but(elapsedraw="-4")], "ElapsedRaw is '-4'"),
        ([HEADER, but(elapsedraw="99999999999")], "more than 366"),
        ([HEADER, but(submit="31.01.2026")], "Submit is '31.01.2026'"),
        ([HEADER, but(submit="Unknown")], "Submit is 'Unknown', although the job ran"),
        ([HEADER, but(alloctres="gres/gpu=four")], "AllocTRES has the number 'four'"),
        ([HEADER, but(alloctres="gres/gpu=99999999")], "AllocTRES has the number '99999999'"),
        ([HEADER, but(alloctres="everything")], "AllocTRES is 'everything'"),
        ([HEADER, but(alloctres="cpu=1")], "no job in it ran on a gpu"),
        ([HEADER, LINE, but(jobid="8", submit="2028-01-31T12:00:00", eligible="")], "730 days, more than 366"),
        (["JobID|\0"], "it is not text of sacct"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    (tmp_path / "jobs.txt").write_text("\n".join(lines))
    with pytest.raises(UsageError) as raised:
        read_sacct(tmp_path / "jobs.txt", SlotUnit.GPU, Scaling())
    assert told in str(raised.value), raised.value
    assert "Cannot read" in str(raised.value)


def test_no_file_and_too_many_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_sacct(tmp_path / "none", SlotUnit.GPU, Scaling())
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *(but(jobid=str(number)) for number in range(5))]))
    with pytest.raises(UsageError, match="more than 4 jobs"):
        read_sacct(tmp_path / "jobs.txt", SlotUnit.GPU, Scaling(), most_jobs=4)


def test_progress_reaches_the_length_of_the_file(tmp_path: Path) -> None:
    told: list[int] = []
    lines = [HEADER, *(but(jobid=str(number)) for number in range(2500))]
    (tmp_path / "jobs.txt").write_text("\n".join(lines))
    read_sacct(tmp_path / "jobs.txt", SlotUnit.GPU, Scaling(), on_progress=told.append)
    assert len(told) == 3 and told == sorted(told) and told[-1] == (tmp_path / "jobs.txt").stat().st_size


@settings(deadline=None)
@given(slots=st.integers(1, 64), efficiency=st.floats(0.05, 1.0), growth=st.floats(1.0, 4.0))
def test_a_job_takes_as_long_as_it_took_on_its_slots(
    tmp_path_factory: pytest.TempPathFactory, slots: int, efficiency: float, growth: float
) -> None:
    tmp_path = tmp_path_factory.mktemp("sacct")
    scaling = Scaling(efficiency=efficiency, growth=growth)
    (plan,) = read(tmp_path, but(alloctres=f"gres/gpu={slots}"), scaling=scaling).plans
    assert plan.asked_workers == slots <= plan.max_workers <= slots * growth + 1e-9
    assert plan.load.num_steps * plan.load.seconds_per_step(slots) == pytest.approx(3600)
    assert plan.load.num_useful(slots) == pytest.approx(max(slots * efficiency, 1.0), abs=0.002)
    write_workload(tmp_path / "w.csv", [plan])
    (again,) = read_workload(tmp_path / "w.csv")
    assert again.load == plan.load
