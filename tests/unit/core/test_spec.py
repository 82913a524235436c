"""What a job may ask for, and the errors for what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from legato.core.errors import LayoutError, TransitionError, UsageError
from legato.core.lifecycle import JOB_MOVES, WORKER_MOVES, JobState, WorkerPhase, check_move
from legato.core.spec import JobSpec, parse_workers


def make_spec(**changes: Any) -> JobSpec:
    values: dict[str, Any] = {
        "name": "bert-7",
        "program": ("train.py",),
        "directory": "/",
        "max_workers": 4,
        "num_workers": 4,
    }
    return JobSpec(**{**values, **changes})


@pytest.mark.parametrize(("text", "want"), [("4", (1, 4, 4)), ("1..4", (1, 4, 4)), ("2..2", (2, 2, 2))])
def test_workers_are_a_number_or_a_range(text: str, want: tuple[int, int, int]) -> None:
    assert parse_workers(text) == want


@pytest.mark.parametrize("text", ["", "0", "-1", "4..2", "0..3", "a", "1..", "..4", "1...4", "1.5"])
def test_other_workers_are_refused_with_what_was_written(text: str) -> None:
    with pytest.raises(LayoutError, match="workers"):
        parse_workers(text)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"name": ""}, UsageError, "the name is empty"),
        ({"name": "a/b"}, UsageError, "a name has 1 to 63 letters"),
        ({"name": ".."}, UsageError, "a name has 1 to 63 letters"),
        ({"program": ()}, UsageError, "there is no program"),
        ({"min_workers": 0}, LayoutError, "min_workers=0 is below 1"),
        ({"min_workers": 5}, LayoutError, "min_workers=5 is above max_workers=4"),
        ({"num_workers": 5}, LayoutError, "num_workers=5 is outside 1..4"),
        ({"num_workers": 0}, LayoutError, "num_workers=0 is outside 1..4"),
        ({"num_threads": 0}, UsageError, "num_threads=0 is below 1"),
        ({"cpu_capability": "sse"}, UsageError, "no CPU capability 'sse'. Write default, avx2, avx512"),
        ({"grace_s": 0.0}, UsageError, "grace_s=0.0 is not above 0"),
        ({"grace_s": float("nan")}, UsageError, "grace_s=nan is not above 0"),
        ({"heartbeat_limit_s": 0.3}, UsageError, "heartbeat_limit_s=0.3 is too short"),
        ({"checkpoint_every": "10"}, UsageError, "checkpoint_every='10' is not understood"),
        ({"checkpoint_every": "0steps"}, UsageError, "not understood"),
    ],
)
def test_an_impossible_job_is_refused(changes: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        make_spec(**changes).validate()


@pytest.mark.parametrize("every", [None, "100steps", "1step", "2epochs", "60s"])
def test_a_sound_job_is_returned_as_it_is(every: str | None) -> None:
    spec = make_spec(checkpoint_every=every)
    assert spec.validate() is spec


def test_an_illegal_move_tells_its_story() -> None:
    with pytest.raises(TransitionError, match=r"worker 3 from gone to member(?s:.*)killed by SIGKILL"):
        check_move("worker 3", WORKER_MOVES, WorkerPhase.GONE, WorkerPhase.MEMBER, ["killed by SIGKILL"])


def test_every_state_has_its_row() -> None:
    assert set(WORKER_MOVES) == set(WorkerPhase)
    assert set(JOB_MOVES) == set(JobState)
