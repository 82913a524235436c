"""Where a program runs: which devices are refused, and in which words."""

from __future__ import annotations

import pytest
import torch

from legato.core.errors import UsageError
from legato.train.job import check_device


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
