"""What a job says and does when a GPU or a worker fails, and what a dead worker leaves on its GPU."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from benchmarks.jobs import Look
from benchmarks.parts import note_fact
from tests.gpu.runs import Bench

LIMIT_S = 30.0


def test_too_little_memory_is_named_with_what_to_change(bench: Bench) -> None:
    why = bench.fail("too large")
    if bench.device == "cuda":
        assert "CUDA out of memory" in why and "Take a smaller micro_batch_size" in why


def test_an_operation_that_is_not_deterministic_is_refused_by_name(bench: Bench) -> None:
    if bench.device == "cpu":
        pytest.skip("the operations of the CPU are deterministic")
    why = bench.fail("not deterministic")
    assert "avg_pool3d_backward" in why and "reduction='exact' has torch refuse" in why


def test_a_killed_worker_leaves_the_others_training_and_its_memory_free(bench: Bench) -> None:
    free: list[int] = []

    async def conduct(look: Look) -> None:
        await look.wait_for_steps(3)
        victim = look.members()[-1]
        began = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)
        await look.wait_until(
            lambda: all(member["worker"] != victim["worker"] for member in look.members()), "the death is seen"
        )
        await look.wait_for_workers(2)
        note_fact("replaced after a kill", seconds=round(time.monotonic() - began, 3))
        await look.wait_for_steps(3)

    if bench.device == "cuda":
        free.append(torch.cuda.mem_get_info(0)[0])
    bench.train(2, conduct=conduct, epochs=100_000)
    if bench.device == "cuda":
        # The driver of the GPU frees a dead process's memory a moment after the process has ended.
        deadline = time.monotonic() + LIMIT_S
        while (now := torch.cuda.mem_get_info(0)[0]) < free[0] - 64 * 2**20 and time.monotonic() < deadline:
            time.sleep(0.1)
        note_fact("memory of the GPU", free_before=free[0], free_after=now)
        assert now >= free[0] - 64 * 2**20
