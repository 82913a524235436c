"""Programs written for ElasticDL, unchanged: the same weights, whatever befalls their workers."""

from __future__ import annotations

import os
import re

import pytest
from tests.integration.harness import (
    PROGRAMS,
    Act,
    Result,
    Stage,
    after_event,
    at_step,
    both,
    kill,
    nothing,
    run_alone,
    scale,
    with_members,
)
from tests.png_folders import write_png_folders

from legato.compat.elasticdl.site import launch

LAUNCHER = launch.__file__
_RATES = re.compile(r"^rates (.*)$", re.MULTILINE)


class Job:
    """A program of `programs/elasticdl`, and the same one trained alone."""

    def __init__(self, stage: Stage, name: str, *args: str, mini_batches: int = 4) -> None:
        self.stage = stage
        os.environ["WORKER_NUM"] = str(mini_batches)
        data = stage.home.parent / "data"
        if not data.exists():
            write_png_folders(data, every=20)
        folders = ("--training_data", f"{data}/training", "--validation_data", f"{data}/testing")
        self.program = (str(PROGRAMS / "elasticdl" / name), *folders, *args)
        self.want = run_alone(LAUNCHER, *self.program, directory=data)

    def run(self, **options: object) -> Result:
        return self.stage.run(LAUNCHER, *self.program, **options)  # type: ignore[arg-type]

    def check(self, result: Result, num_steps: int, *, finishers: int | None = None) -> None:
        """Assert that the job came to what the program comes to alone, and committed each step once."""
        story = result.story()
        assert result.outcome.outcome == "succeeded", story
        assert set(result.digests.values()) == {(self.want.sha256, self.want.num_steps)}, f"{self.want}\n{story}"
        assert finishers is None or len(result.digests) == finishers, story
        result.check_records(num_steps)
        rates = {_RATES.findall(text)[-1] for text in result.logs.values() if _RATES.search(text)}
        assert len(rates) == 1, story


@pytest.fixture
def stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name in ("WORKER_NUM", "ELASTICDL_TEST_LEDGER", "LEGATO_ELASTICDL_SUM"):
        monkeypatch.setenv(name, "")  # put back afterwards, whatever the test sets
        monkeypatch.delenv(name)
    return stage


@pytest.mark.parametrize("loaders", [0, 2])
def test_the_program_of_the_tutorial_grows_shrinks_and_loses_workers(stage: Stage, loaders: int) -> None:
    job = Job(stage, "mnist.py", "--batch_size", "8", "--num_epochs", "8", "--loaders", str(loaders))
    plan = [
        Act(both(at_step(3), with_members(2)), scale(4), "grow to 4"),
        Act(with_members(4), kill(1), "kill one"),
        Act(both(after_event("joined"), with_members(4)), kill(0), "kill the first"),
        Act(both(after_event("joined"), with_members(4)), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = job.run(workers=(1, 4, 2), plan=plan)
    job.check(result, num_steps=63, finishers=1)
