"""Finds where runs differ, from the records of their workers, and how this is reported."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from legato.cli.local.comparing import Finding, Moment, compare, describe, read_run
from legato.core.verification import Recorded

ONE = {step: Moment(1, {0: {"the loss": step, "parameter w": step}}) for step in range(4)}


def several(**changes: int) -> dict[int, Moment]:
    """Return a run that a second worker joins after step 1; ``w2_of_1`` is the checksum of worker 1 after step 2."""
    run = {step: Moment(1 if step < 2 else 2, {0: {"the loss": step, "parameter w": step}}) for step in range(4)}
    for step in (1, 2, 3):
        run[step].held[1] = {"the loss": step, "parameter w": changes.get(f"w{step}_of_1", step)}
        run[step].held[0]["parameter w"] = changes.get(f"w{step}_of_0", step)
    return run


def test_equal_runs_have_no_difference() -> None:
    assert compare(ONE, ONE, several()) is None


def test_a_program_that_does_not_repeat_itself_is_reported_first() -> None:
    again = {**ONE, 2: Moment(1, {0: {"the loss": 2, "parameter w": 7}})}
    assert compare(ONE, again, several(w1_of_0=9)) == Finding("repeat", 2, ["parameter w"])


def test_workers_that_differ_are_distinguished_from_a_result_that_depends_on_them() -> None:
    found = compare(ONE, ONE, several(w2_of_1=9))
    assert found == Finding("workers", 2, ["parameter w"], num_workers=2, changed=True)
    found = compare(ONE, ONE, several(w3_of_0=9, w3_of_1=9))
    assert found == Finding("number", 3, ["parameter w"], num_workers=2, changed=False)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A worker may be killed at any moment."""
    lines = [msgspec.json.encode(Recorded(step=step, num_workers=step, sums={"a": 2**64 - 1})) for step in (1, 2)]
    (tmp_path / "worker-10.jsonl").write_bytes(b"\n".join([*lines, lines[0][:9]]))
    (tmp_path / "worker-9.jsonl").write_bytes(lines[1].replace(b'"num_workers":2', b'"num_workers":3') + b"\n")
    run = read_run(tmp_path)
    assert {step: (moment.num_workers, sorted(moment.held)) for step, moment in run.items()} == {
        1: (1, [10]),
        2: (2, [9, 10]),
    }


@pytest.mark.parametrize(
    ("finding", "told", "cause"),
    [
        (Finding("repeat", 1, ["the loss"]), "two runs with one worker differ at step 1, in the loss.", "A clock"),
        (
            Finding("workers", 0, ["a", "b"], 2, changed=True),
            "differ in a, b. That step was computed by 2 workers, and was the first after a change.",
            "run.rank, a clock",
        ),
        (
            Finding("number", 4, list("abcdefgh"), 1),
            "differ at step 4, in a, b, c, d, e, f and 2 more. That step was computed by 1 worker.",
            "run.rank or run.num_workers",
        ),
    ],
)
def test_the_first_difference_is_reported_with_its_usual_causes(finding: Finding, told: str, cause: str) -> None:
    lines = describe(finding).splitlines()
    assert lines[0].endswith(told) and lines[1] == "Usual causes:" and cause in "".join(lines[2:])
