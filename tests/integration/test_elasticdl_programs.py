"""Unchanged programs for ElasticDL: the same weights, whatever happens to their workers."""

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
# Each worker starts its own loaders, and some loaders start a new interpreter.
pytestmark = pytest.mark.timeout(300)
LIMIT_S = 200.0
_RATES = re.compile(r"^rates (.*)$", re.MULTILINE)
_LEDGER = re.compile(r"^ledger (.*)$", re.MULTILINE)


class Job:
    """A program of `programs/elasticdl`, and the same one trained alone."""

    def __init__(self, stage: Stage, name: str, *args: str, mini_batches: int = 4) -> None:
        self.stage = stage
        os.environ["WORKER_NUM"] = str(mini_batches)
        self.program = (str(PROGRAMS / "elasticdl" / name), *args)
        self.want = run_alone(LAUNCHER, *self.program, directory=stage.home.parent)

    def run(self, **options: object) -> Result:
        return self.stage.run(LAUNCHER, *self.program, limit_s=LIMIT_S, **options)  # type: ignore[arg-type]

    def check(self, result: Result, num_steps: int, *, finishers: int | None = None) -> None:
        """Assert that the job has the result of the program alone, and committed each step once."""
        story = result.story()
        assert result.outcome.outcome == "succeeded", story
        assert set(result.digests.values()) == {(self.want.sha256, self.want.num_steps)}, f"{self.want}\n{story}"
        assert finishers is None or len(result.digests) == finishers, story
        result.check_records(num_steps)
        assert len(_last(_RATES, result) or {""}) == 1, story


def _last(pattern: re.Pattern[str], result: Result) -> set[str]:
    return {found[-1] for text in result.logs.values() if (found := pattern.findall(text))}


@pytest.fixture
def stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name in ("WORKER_NUM", "ELASTICDL_TEST_LEDGER", "LEGATO_ELASTICDL_SUM"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever the test sets
        monkeypatch.delenv(name)
    return stage


def test_the_program_of_the_tutorial_grows_shrinks_and_loses_workers(stage: Stage) -> None:
    write_png_folders(data := stage.home.parent / "data", every=20)
    folders = ("--training_data", f"{data}/training", "--validation_data", f"{data}/testing")
    sizes = ("--batch_size", "8", "--num_epochs", "8", "--loaders", "2")
    job = Job(stage, "mnist.py", *folders, *sizes)
    plan = [
        Act(both(at_step(3), with_members(2)), scale(4), "grow to 4"),
        Act(with_members(4), kill(1), "kill one"),
        Act(both(after_event("joined"), with_members(4)), kill(0), "kill the first"),
        Act(both(after_event("joined"), with_members(4)), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = job.run(workers=(1, 4, 2), plan=plan)
    job.check(result, num_steps=63, finishers=1)


@pytest.mark.parametrize(
    ("form", "loaders", "start_method"),
    [("head", "4", "fork"), ("by_hand", "2", "fork"), ("december_2020", "0", "")],
)
@pytest.mark.soak
def test_each_historic_form_trains_every_record_once_per_epoch(
    stage: Stage, form: str, loaders: str, start_method: str
) -> None:
    job = Job(stage, "forms.py", form, loaders, start_method)
    plan = [
        Act(both(at_step(2), with_members(2)), kill(0), "kill the first"),
        Act(both(after_event("joined"), with_members(2)), scale(3), "grow to 3"),
        Act(with_members(3), nothing, "3 at the end"),
    ]
    result = job.run(workers=(1, 3, 2), plan=plan, checkpoint_every="4epochs")
    job.check(result, num_steps=48)
    assert _last(_LEDGER, result) == {"4.00000 to 4.00000"}
    # Three steps each, though the runtime goes through all of them in one pass; who joins tells of several at once.
    epochs = {line["step"]: line["epoch"] for line in result.ledger}
    assert all((step - 1) // 3 <= epoch <= 15 for step, epoch in epochs.items()), epochs
    assert len(set(epochs.values())) > 8, epochs
    assert {int(event["reason"].split()[3]) for event in result.of_kind("saved")} == {12, 24, 36, 48}


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.soak
def test_restarted_loaders_end_with_their_worker_and_change_nothing(stage: Stage, start_method: str) -> None:
    job = Job(stage, "forms.py", "release_1_0", "2", start_method)
    # Only the start of its loaders decides whether another worker joins in time.
    result = job.run(workers=(1, 2, 2), plan=[Act(both(at_step(2), with_members(2)), kill(0), "kill the first")])
    job.check(result, num_steps=48)
    assert _last(_LEDGER, result) == {"4.00000 to 4.00000"}
    assert not result.left_over


@pytest.mark.soak
def test_without_a_fixed_batch_every_record_is_trained_once_per_epoch_all_the_same(stage: Stage) -> None:
    os.environ["LEGATO_ELASTICDL_SUM"] = "1"
    job = Job(stage, "forms.py", "november_2020", "0", "", "0", mini_batches=3)
    plan = [
        Act(both(at_step(2), with_members(2)), scale(3), "grow to 3"),
        Act(with_members(3), kill(1), "kill one"),
        Act(both(after_event("joined"), with_members(3)), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = job.run(workers=(1, 3, 2), plan=plan)
    story = result.story()
    assert result.outcome.outcome == "succeeded" and len(result.digests) == 1, story
    assert {num_batches for _, num_batches in result.digests.values()} == {192}, story
    # The gradients are added up, so that each record counts the same with any workers.
    assert _last(_LEDGER, result) == {"16.00000 to 16.00000"}, story
    # The loop steps its scheduler in each turn, which counts once for each step of the job.
    assert _last(_RATES, result) == {str(len(result.ledger))}, story


@pytest.mark.soak
def test_more_workers_than_mini_batches_are_not_kept(stage: Stage) -> None:
    job = Job(stage, "forms.py", "release_1_0", mini_batches=1)
    result = job.run(workers=(1, 2, 2))
    job.check(result, job.want.num_steps, finishers=1)
    assert result.of_kind("scaled")[0]["reason"] == (
        "2 -> 1 workers: its step has only 1 micro-batch, so more cannot help"
    )
