"""The weights are the same on any number of GPUs, and with any number of workers on one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.parts import note_fact
from tests.gpu.runs import Bench


@pytest.mark.parametrize("mode", ["plain", "float16", "bfloat16", "compiled"])
def test_any_number_of_workers_gives_the_weights_of_one(bench: Bench, mode: str) -> None:
    # A CPU takes a second for a step with half precision.
    case = {"epochs": 1} if mode == "float16" and bench.device == "cpu" else {}
    alone = bench.train_alone(mode, **case)
    numbers = {2, max(2, bench.num_gpus)} | ({1, 3} if mode == "plain" else set())
    for num_workers in sorted(numbers):
        found = bench.train(num_workers, mode, **case)
        note_fact("weights", mode=mode, num_workers=num_workers, same=found.digest == alone.digest)
        assert found.digest == alone.digest, f"{num_workers} workers"


def test_a_second_run_gives_the_same_weights(bench: Bench) -> None:
    assert bench.train_alone().digest == bench.train_alone().digest


def test_workers_that_share_a_gpu_give_the_weights_of_one(bench: Bench) -> None:
    if bench.num_gpus < 2:
        pytest.skip("with one GPU, workers share it in the other tests")
    assert bench.train(3, shared=True).digest == bench.train_alone().digest


def test_joins_leaves_and_deaths_change_no_bit_after_any_step(bench: Bench) -> None:
    bench.verify()


def test_loader_processes_and_pinned_memory_change_no_bit(bench: Bench) -> None:
    """Loader processes are forked from a process that uses CUDA; they must not use it."""
    assert bench.train(2, num_loaders=2).digest == bench.train_alone().digest


def test_a_run_goes_on_from_a_checkpoint(bench: Bench, tmp_path: Path) -> None:
    checkpoints = str(tmp_path / "checkpoints")
    bench.train_alone(epochs=2, checkpoints=checkpoints)
    assert bench.train_alone(epochs=4, checkpoints=checkpoints).digest == bench.train_alone(epochs=4).digest
