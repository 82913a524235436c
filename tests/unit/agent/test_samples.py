"""The samples of a machine go on after any error."""

from __future__ import annotations

import asyncio

import pytest

from legato.agent import samples
from legato.agent.samples import Samples
from legato.core.system_metrics import SystemSample, WorkerMetrics

SAMPLE = SystemSample(workers={1: WorkerMetrics(cpus=1.0, memory_bytes=1)})


def test_an_error_ends_no_agent_and_no_later_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MEASURE_EVERY_S", 0.0)
    answers = iter([TypeError("odd"), OSError("odd"), SAMPLE, asyncio.CancelledError()])

    async def measure() -> SystemSample:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def check() -> None:
        kept = Samples()
        measuring = asyncio.create_task(kept.measure_forever(measure))
        await asyncio.wait({measuring})
        assert measuring.cancelled() and kept.take() == SAMPLE

    asyncio.run(check())
