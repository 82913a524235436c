"""State of every kind reaches workers that join, replacements and new processes, or they are refused for its sake."""

from __future__ import annotations

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    World,
    after_event,
    at_step,
    both,
    do_all,
    kill,
    kill_all,
    nothing,
    scale,
    steps_later,
    with_members,
)


def make_odd(world: World) -> None:
    (world.reins / "odd").touch()


def make_equal(world: World) -> None:
    (world.reins / "odd").unlink()


def test_state_of_every_kind_is_carried(stage: Stage, reference: Reference) -> None:
    want = reference.of("kinds.py")
    plan = [
        Act(at_step(3), scale(2), "one joins"),
        Act(both(at_step(12), with_members(2)), kill(0), "one dies in another order of memory"),
        Act(both(after_event("died"), with_members(2), after_event("saved")), kill_all, "all die"),
        Act(both(after_event("died"), with_members(2), steps_later(1)), scale(3), "one more joins"),
        Act(with_members(3), nothing, "3 at the end"),
    ]
    result = stage.run("kinds.py", workers=(1, 3, 1), plan=plan, checkpoint_every="2steps")
    result.check(want, finishers=3)
    assert any("Resumed from" in event["reason"] for event in result.events), result.story()


@pytest.mark.soak
def test_a_joiner_of_state_that_cannot_be_carried_is_refused_and_the_job_goes_on(
    stage: Stage, reference: Reference
) -> None:
    want = reference.of("kinds.py")
    plan = [
        Act(at_step(3), make_odd, "from the next step on it cannot be carried"),
        Act(steps_later(2), scale(2), "one joins"),
        Act(both(after_event("refused"), steps_later(2), with_members(1)), do_all(make_equal, scale(3)), "others join"),
        Act(both(steps_later(1), with_members(3)), nothing, "3 at the end"),
    ]
    result = stage.run("kinds.py", "--how", "late", workers=(1, 3, 1), plan=plan)
    result.check(want, finishers=3, errors=["worker 1"])
    (refused,) = result.of_kind("refused")
    assert "No worker can join" in refused["reason"] and "['other'] of the Journal" in refused["reason"], refused
