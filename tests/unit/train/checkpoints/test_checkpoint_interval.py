"""When a checkpoint is due."""

from __future__ import annotations

import pytest

from legato.core.errors import UsageError
from legato.train.checkpoints.checkpoint_interval import CheckpointInterval


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("100steps", CheckpointInterval(100, "steps")),
        ("1step", CheckpointInterval(1, "steps")),
        ("2epochs", CheckpointInterval(2, "epochs")),
        ("1epoch", CheckpointInterval(1, "epochs")),
        (" 60s ", CheckpointInterval(60, "s")),
        ("0.5s", CheckpointInterval(0.5, "s")),
    ],
)
def test_parse(text: str, want: CheckpointInterval) -> None:
    assert CheckpointInterval.parse(text) == want


@pytest.mark.parametrize(
    "text", ["", "steps", "100", "0steps", "-1steps", "1.5steps", "5 min", "0s", "1e3s", "10stepss"]
)
def test_what_is_not_understood_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="100steps"):
        CheckpointInterval.parse(text)


def test_steps_and_epochs_count_from_the_start_of_the_job() -> None:
    steps, epochs = CheckpointInterval.parse("3steps"), CheckpointInterval.parse("2epochs")
    assert [n for n in range(1, 10) if steps.due(step=n, epochs_ended=range(0), now=0, last=0)] == [3, 6, 9]
    assert [n for n in range(1, 7) if epochs.due(step=5, epochs_ended=range(n, n + 1), now=0, last=0)] == [2, 4, 6]
    assert epochs.due(step=5, epochs_ended=range(5, 8), now=0, last=0), "several with one step"
    assert not epochs.due(step=5, epochs_ended=range(0), now=0, last=0)


def test_seconds_count_from_the_last_one() -> None:
    every = CheckpointInterval.parse("60s")
    assert not every.due(step=1, epochs_ended=range(0), now=159.9, last=100)
    assert every.due(step=1, epochs_ended=range(0), now=160, last=100)
