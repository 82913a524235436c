"""Where a program runs: which devices are refused, and in which words; whose seed it has."""

from __future__ import annotations

import pytest
import torch

from legato.core.errors import UsageError
from legato.train.process import job
from legato.train.process.job import check_device, choose_seed


@pytest.mark.parametrize(
    ("name", "num_gpus", "built", "want"),
    [
        ("cuda", 0, None, "Cannot train on device 'cuda': torch was built without CUDA. Do this."),
        ("cuda:0", 0, "12", "Cannot train on device 'cuda:0': torch finds no GPUs here. Do this."),
        ("cuda:2", 2, "12", "Cannot train on device 'cuda:2': torch finds 2 GPUs here. Do this."),
        ("gpu", 2, "12", "Cannot train on device 'gpu': torch knows no such device. Do this."),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    name: str, num_gpus: int, built: str | None, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(UsageError) as refusal:
        check_device(name, "Do this.")
    assert str(refusal.value) == want


def test_a_device_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:1"):
        check_device(name, "Do this.")


def test_the_seed_of_the_job_takes_the_place_of_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEGATO_SEED", raising=False)
    assert choose_seed(3) == 3
    monkeypatch.setenv("LEGATO_SEED", "7")
    assert choose_seed(3) == 7
    for odd in ("", "-1", "seven", "1.5"):
        monkeypatch.setenv("LEGATO_SEED", odd)
        with pytest.raises(UsageError, match=f"^LEGATO_SEED={odd} cannot be used"):
            choose_seed(3)
    monkeypatch.delenv("LEGATO_SEED")
    with pytest.raises(UsageError, match=r"^seed=-1 cannot be used"):
        choose_seed(-1)


def test_a_program_that_computes_on_the_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_DEVICE", "cuda:0")
    place = job.Place(None, None, "cuda:0", 1)
    monkeypatch.setattr(job, "_place", place)
    job.stay_on_cpu()
    assert job.take_place().device == "cpu"
    monkeypatch.setattr(job, "_place", None)
    assert job.take_place().device == "cpu"
