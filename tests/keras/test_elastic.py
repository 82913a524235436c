"""A Keras model comes to the same weights, to the bit, whichever workers trained it or died meanwhile."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    after_event,
    at_step,
    both,
    kill,
    kill_all,
    nothing,
    steps_later,
    with_members,
)

PROGRAM = str(Path(__file__).parent / "programs" / "digits.py")
LIMIT_S = 110.0
pytestmark = pytest.mark.timeout(300)


def test_samples_as_dicts_and_all_workers_lost(stage: Stage, reference: Reference) -> None:
    args = ("--form", "samples", "--optimizer", "SGD", "--epochs", "4")
    want = reference.of(PROGRAM, *args)
    plan = [
        Act(both(at_step(6), with_members(2), after_event("saved")), kill_all, "all die"),
        Act(both(after_event("died"), with_members(2), steps_later(1)), nothing, "resumed"),
    ]
    result = stage.run(PROGRAM, *args, workers=(1, 2, 2), plan=plan, limit_s=LIMIT_S, checkpoint_every="2steps")
    result.check(want, finishers=2)
    assert any("Resumed from" in event["reason"] for event in result.events), result.story()


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="there is no tf_keras here")
def test_keras_2_and_its_old_optimizers(stage: Stage, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    args = ("--optimizer", "legacy.RMSprop", "--epochs", "5")
    want = reference.of(PROGRAM, *args)
    plan = [Act(both(at_step(2), with_members(2)), kill(0), "kill"), Act(after_event("died"), nothing, "it is dead")]
    stage.run(PROGRAM, *args, workers=(1, 2, 2), plan=plan, limit_s=LIMIT_S).check(want)
