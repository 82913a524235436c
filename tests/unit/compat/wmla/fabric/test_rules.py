"""The arguments of ``train()``: checks and the size of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from legato.compat.wmla.fabric.rules import TrainArguments, fit_engines, read_arguments
from legato.core.errors import UsageError


def plan_of(*, generation: int = 2, max_workers: int = 1, **given: Any) -> TrainArguments:
    arguments = {
        "epoch_number": 1,
        "batch_size": 64,
        "engines_number": None,
        "num_dataloader_threads": 4,
        "validation_freq": 1,
        "checkpoint_freq": None,
        "effective_batch_size": None,
        **given,
    }
    return read_arguments(**arguments, generation=generation, max_workers=max_workers)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"engines_number": 16}, 16),
        ({"effective_batch_size": 256}, 4),
        ({"engines_number": 2, "effective_batch_size": 256}, 4),
        ({"engines_number": 8, "effective_batch_size": 256}, 8),
        ({"engines_number": np.int64(3)}, 3),
        ({"max_workers": 5}, 5),
        ({"effective_batch_size": 64, "max_workers": 5}, 1),
    ],
)
def test_how_many_engines(given: dict[str, Any], want: int) -> None:
    assert plan_of(**given).engines_number == want


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"epoch_number": 0}, "epoch_number=0. Give a whole number of at least 1."),
        ({"epoch_number": 1.0}, "epoch_number=1.0. Give a whole number"),
        ({"epoch_number": None}, "epoch_number=None. Give a whole number"),
        ({"batch_size": "64"}, "batch_size='64'. Give a whole number"),
        ({"batch_size": True}, "batch_size=True. Give a whole number"),
        ({"engines_number": 0}, "engines_number=0. Give a whole number of at least 1."),
        ({"engines_number": 2.5}, "engines_number=2.5. Give a whole number"),
        ({"effective_batch_size": 100}, "effective_batch_size=64 or 128, or another batch_size."),
        ({"effective_batch_size": 63}, "effective_batch_size=64, or another batch_size."),
        ({"effective_batch_size": 100, "engines_number": 16}, "is not a multiple"),
        ({"effective_batch_size": "256"}, "effective_batch_size='256'. Give a whole number"),
        ({"validation_freq": -1}, "validation_freq=-1. Give a whole number of at least 0."),
        ({"checkpoint_freq": -1}, "checkpoint_freq=-1. Give a whole number of at least 0."),
        ({"num_dataloader_threads": None}, "num_dataloader_threads=None. Give a whole number of at least 0."),
    ],
)
def test_an_argument_that_cannot_be_used(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_of(**given)
    assert told in str(error.value)


def test_the_default_frequency_of_saved_models() -> None:
    assert plan_of(generation=1).checkpoint_freq == 5
    assert plan_of(generation=2).checkpoint_freq == 1
    assert plan_of(generation=1, checkpoint_freq=0).checkpoint_freq == 0


def test_after_which_epochs() -> None:
    often = plan_of(checkpoint_freq=5, validation_freq=3)
    assert [epoch for epoch in range(12) if often.saves_after(epoch)] == [4, 9]
    assert [epoch for epoch in range(12) if often.validates_after(epoch)] == [2, 5, 8, 11]
    never = plan_of(checkpoint_freq=0, validation_freq=0)
    assert not any(never.saves_after(epoch) or never.validates_after(epoch) for epoch in range(12))


def test_an_epoch_of_fewer_micro_batches_than_engines() -> None:
    assert [fit_engines(16, 64, n) for n in (1, 64, 65, 244, 1023, 1024, 5000)] == [1, 1, 2, 4, 16, 16, 16]
