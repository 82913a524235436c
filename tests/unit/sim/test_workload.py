"""Workloads are read as they are written, and refused with the line where they cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from legato.core.errors import UsageError
from legato.sim.load import Costs, Load
from legato.sim.random_jobs import NUM_USERS, draw_training_jobs
from legato.sim.workload import PlannedJob, draw_workload, read_workload, write_workload

ROOT = Path(__file__).parents[3]


def read(tmp_path: Path, text: str) -> list[PlannedJob]:
    (tmp_path / "w.csv").write_text(text)
    return read_workload(tmp_path / "w.csv")


def test_all_columns(tmp_path: Path) -> None:
    text = """\
name,code,owner,queue,submitted_at,min,max,priority,static,steps,step_s,num_micro_batches,overhead_s,speedups
    a,resnet,ann,night,1.5,2,4,9000,no,100,0.25,8,0.01,2:1.9 4:0.5

    b,,ben,default,2,1,4,,yes,10,,,,
    """
    first, second = read(tmp_path, text)
    assert first == PlannedJob(
        name="a",
        owner="ann",
        queue="night",
        code="resnet",
        submitted_at=1.5,
        min_workers=2,
        max_workers=4,
        priority=9000,
        load=Load(num_steps=100, step_s=0.25, num_micro_batches=8, overhead_s=0.01, speedups=((2, 1.9), (4, 0.5))),
        line=2,
    )
    assert (second.line, second.is_elastic, second.priority, second.load) == (
        4,
        False,
        5000,
        Load(num_steps=10, step_s=1.0),
    )


def test_few_columns(tmp_path: Path) -> None:
    (plan,) = read(tmp_path, "max,duration_s\n4,90\n")
    assert (plan.name, plan.submitted_at, plan.min_workers, plan.load.num_steps) == ("line-2", 0.0, 1, 90)


def test_curves(tmp_path: Path) -> None:
    text = "max,asked,duration_s,a_s,b_s,node_s,resize_s\n8,4,90,2.5,0.5,0.25,1:2 5:6\n8,,90,1,,,7\n"
    first, second = read(tmp_path, text)
    assert (first.asked_workers, second.asked_workers) == (4, None)
    # 90 s on one worker are 30 steps of 3 s.
    assert first.load == Load(num_steps=30, step_s=2.5, fixed_s=0.5, node_s=0.25, resize_s=((1, 2.0), (5, 6.0)))
    assert second.load == Load(num_steps=90, step_s=1.0, resize_s=((1, 7.0),))
    assert [first.load.seconds_per_step(number, nodes) for number, nodes in ((1, 1), (5, 1), (5, 3))] == [3, 1, 1.5]
    assert [first.load.pause_s(number, Costs()) for number in (1, 3, 9)] == [2, 4, 6]
    costs = Costs(resize_by_size=((1, 1.0), (2, 5.0)))
    assert [Load(num_steps=1, step_s=1.0).pause_s(number, costs) for number in (1, 2, 4)] == [1, 5, 5]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: name at least the columns max and steps"),
        ("name,steps\na,1\n", "line 1: name at least the columns max"),
        ("name,max\na,1\n", "line 1: name at least the columns max and steps, or max and duration_s"),
        ("max,steps,colour\n1,1,red\n", "line 1: there is no column 'colour'"),
        ("max,max,steps\n1,1,1\n", "line 1: a column is named twice"),
        ("max,steps\n", "it has no jobs"),
        ("max,steps\n\n\n", "it has no jobs"),
        ("max,steps\n4,10\n4,-10\n", "line 3: steps and step_s must be above 0"),
        ("max,steps\n-4,10\n", "line 2: 1..-4 workers is not a range"),
        ("max,steps\n4,ten\n", "line 2: steps is 'ten'. Write a whole number"),
        ("max,steps\n,10\n", "line 2: max is empty"),
        ("max,steps\n4\n", "line 2: give either steps or duration_s"),
        ("max,steps\n4,10,7\n", "line 2: there are more values than columns"),
        ("min,max,steps\n5,4,10\n", "line 2: 5..4 workers is not a range"),
        ("max,steps,priority\n4,10,0\n", "line 2: priority is 0. Write a number from 1 to 10000"),
        ("max,steps,static\n4,10,maybe\n", "line 2: static is 'maybe'. Write yes or no"),
        ("max,steps,step_s\n4,10,0\n", "line 2: steps and step_s must be above 0"),
        ("max,steps,submitted_at\n4,10,-1\n", "line 2: submitted_at is '-1'. Write seconds, 0 or more"),
        ("max,steps,submitted_at\n4,10,nan\n", "line 2: submitted_at is 'nan'"),
        ("max,steps,submitted_at\n4,10,5\n4,10,9\n\n4,10,7\n", "line 5: submitted_at is 7, before the 9 of line 3"),
        ("max,steps,num_micro_batches\n4,10,0\n", "line 2: num_micro_batches is below 1"),
        ("max,steps,overhead_s\n4,10,-1\n", "line 2: overhead_s is '-1'"),
        ("max,steps,speedups\n4,10,4:1 2:2\n", "line 2: speedups is '4:1 2:2'. Write numbers of workers from 2 on"),
        ("max,steps,speedups\n4,10,1:1\n", "line 2: speedups is '1:1'"),
        ("max,steps,speedups\n4,10,2:0\n", "line 2: speedups is '2:0'"),
        ("max,steps,speedups\n4,10,fast\n", "line 2: speedups is 'fast'"),
        ("max,steps,duration_s\n4,10,10\n", "line 2: give either steps or duration_s"),
        ('max,steps,name\n4,10,"open\n', "it is not CSV"),
        ("max,steps,b_s\n4,10,1\n", "line 2: b_s needs a_s"),
        ("max,steps,a_s,step_s\n4,10,1,1\n", "line 2: a_s and b_s are the time of a step"),
        ("max,steps,a_s,speedups\n4,10,1,2:1\n", "line 2: a_s and b_s are the time of a step"),
        ("max,steps,a_s\n4,10,0\n", "line 2: steps and a_s must be above 0"),
        ("max,duration_s,step_s\n4,10,0\n", "line 2: steps and step_s must be above 0"),
        ("max,steps,node_s\n4,10,-1\n", "line 2: node_s is '-1'"),
        ("max,steps,resize_s\n4,10,8:1 2:1\n", "line 2: resize_s is '8:1 2:1'"),
        ("max,steps,resize_s\n4,10,0:1\n", "line 2: resize_s is '0:1'"),
        ("max,steps,resize_s\n4,10,long\n", "line 2: resize_s is 'long'"),
        ("max,steps,speedups\n4,10,2\n", "line 2: speedups is '2'"),
        ("min,max,asked,steps\n2,4,1,10\n", "line 2: asked is 1. Write a number from min to max, 2 to 4"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert told in str(raised.value), raised.value


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_workload(tmp_path / "w.csv")
    with pytest.raises(UsageError, match="No such file"):
        read_workload(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="directory"):
        read_workload(tmp_path)


@pytest.mark.parametrize("draw", [draw_workload, draw_training_jobs])
def test_what_is_drawn_can_be_written_and_read(tmp_path: Path, draw: Callable[[int, int], list[PlannedJob]]) -> None:
    plans = draw(7, 50)
    assert plans == draw(7, 50) != draw(8, 50)
    write_workload(tmp_path / "w.csv", plans)
    assert [msgspec.structs.replace(plan, line=None) for plan in read_workload(tmp_path / "w.csv")] == plans


def test_training_jobs_have_the_distributions_that_the_page_tells() -> None:
    plans = draw_training_jobs(1, 4000, mean_gap_s=60.0, num_slots=64)
    alone_s = sorted(plan.load.num_steps * plan.load.seconds_per_step(1) for plan in plans)
    assert alone_s[2000] == pytest.approx(1800, rel=0.1)
    assert alone_s[3960] > 15 * 3600 and alone_s[-1] <= 200 * 3600 + 1
    assert plans[-1].submitted_at / len(plans) == pytest.approx(60, rel=0.1)
    for plan in plans:
        asked = plan.asked_workers
        assert asked is not None and 1 <= asked <= 32 and plan.max_workers == 2 * asked
        if 1 < asked < 32:
            # With one worker more it would be less efficient than it wants.
            assert plan.load.num_useful(asked) / asked >= 0.5 - 1e-4
            assert plan.load.num_useful(asked + 1) / (asked + 1) <= 0.8 + 1e-4
    users = Counter(plan.owner for plan in plans)
    assert users["user-1"] == pytest.approx(2 * users["user-2"], rel=0.2) and len(users) == NUM_USERS


@pytest.mark.parametrize("path", sorted((ROOT / "examples/workloads").glob("*.csv")), ids=lambda path: path.name)
def test_the_examples_are_workloads(path: Path) -> None:
    assert len(read_workload(path)) >= 2
