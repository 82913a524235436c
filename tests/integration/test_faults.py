"""The same result whatever befalls the workers, at every phase of a step."""

from __future__ import annotations

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Result,
    Stage,
    after_event,
    arm,
    at_step,
    both,
    close_door,
    do_all,
    freeze,
    kill,
    kill_all,
    kill_warm_parent,
    nothing,
    open_door,
    scale,
    steps_later,
    with_members,
)
from tests.tiers import first_now

three_again = both(after_event("recovered"), with_members(3))


@pytest.mark.parametrize("program", first_now([("vision.py", "--loaders", "2"), ("text.py",), ("twice.py",)]))
def test_a_death_in_every_phase(stage: Stage, reference: Reference, program: tuple[str, ...]) -> None:
    want = reference.of(*program)
    plan = [
        Act(both(at_step(2), with_members(3)), arm("forward", "kill", 1), "one dies in a forward pass"),
        Act(three_again, arm("reduce", "kill", 0), "rank 0 dies in the reduction"),
        Act(three_again, arm("reduce", "kill", 2), "another dies in the reduction"),
        Act(three_again, arm("commit", "kill", 1), "one dies after the reduction"),
        Act(three_again, arm("commit", "kill", 0), "rank 0 dies after the reduction"),
        Act(three_again, arm("partly", "kill", 0), "rank 0 dies when only one has its part"),
        Act(three_again, arm("partly", "kill", 1), "another dies when only one has its part"),
        Act(three_again, arm("reduce", "kill", 0, 1), "two die at once"),
        Act(three_again, nothing, "all are back"),
    ]
    result = stage.run(*program, workers=(1, 3, 3), plan=plan)
    result.check(want, finishers=3)
    assert len(result.of_kind("died")) == 9, result.story()


@pytest.mark.parametrize("program", first_now([("vision.py",), ("text.py",)]))
def test_a_worker_that_hangs(stage: Stage, reference: Reference, program: tuple[str, ...]) -> None:
    want = reference.of(*program)
    plan = [
        Act(both(at_step(2), with_members(3)), arm("reduce", "stop", 1), "one stops in the reduction"),
        Act(three_again, arm("commit", "stop", 0), "rank 0 stops after the reduction"),
        Act(three_again, freeze(2), "one stops anywhere"),
        Act(three_again, nothing, "all are back"),
    ]
    result = stage.run(*program, workers=(1, 3, 3), plan=plan, heartbeat_limit_s=1.5)
    result.check(want, finishers=3)
    assert len(result.of_kind("fenced")) >= 3, result.story()


def test_deaths_where_gradients_are_large(stage: Stage, reference: Reference) -> None:
    """The survivors use their memory again, whatever the dead worker still had to read or to send."""
    want = reference.of("wide.py")
    plan = [
        Act(both(at_step(2), with_members(3)), kill(1), "one dies anywhere"),
        Act(three_again, arm("partly", "kill", 2), "one dies when only one has its part"),
        Act(three_again, arm("reduce", "stop", 0), "rank 0 stops in the reduction"),
        Act(three_again, kill(0), "rank 0 dies anywhere"),
        Act(three_again, freeze(2), "one stops anywhere"),
        Act(three_again, nothing, "all are back"),
    ]
    result = stage.run("wide.py", workers=(1, 3, 3), plan=plan, heartbeat_limit_s=1.5)
    result.check(want, finishers=3)


@pytest.mark.soak
def test_a_death_during_a_planned_change(stage: Stage, reference: Reference) -> None:
    want = reference.of("vision.py")
    plan = [
        Act(both(at_step(2), with_members(2)), scale(4), "grow to 4"),
        Act(after_event("proposed"), kill(0), "rank 0 dies with a view proposed"),
        Act(with_members(4), do_all(scale(2), kill(3)), "a leaver dies at the moment of its leave"),
        Act(with_members(2), do_all(scale(4), kill(1)), "grow, and one dies meanwhile"),
        Act(after_event("started"), do_all(kill(0), scale(1)), "the other one dies, and only 1 is wanted"),
        Act(with_members(1), scale(3), "grow"),
        Act(with_members(3), nothing, "3 at the end"),
    ]
    stage.run("vision.py", workers=(1, 4, 2), plan=plan).check(want, finishers=3)


def test_deaths_during_state_transfer(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), do_all(arm("transfer", "kill", 1), scale(3)), "a source dies"),
        Act(both(after_event("died"), with_members(3)), scale(2), "shrink"),
        Act(with_members(2), do_all(arm("transfer", "kill", 0), scale(3)), "the first source dies"),
        Act(both(after_event("died"), with_members(3)), nothing, "3 again"),
    ]
    # Worker 2 is the first to join: it dies as it receives. Then worker 4, whichever way it comes.
    result = stage.run("text.py", workers=(1, 3, 2), plan=plan, faults="2@0:transfer=kill,4@0:transfer=kill")
    result.check(want, finishers=3)
    assert len(result.of_kind("died")) >= 3, result.story()


@pytest.mark.soak
def test_a_death_in_the_very_first_transfer(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    result = stage.run("text.py", workers=(1, 2, 2), faults="1@0:transfer=kill")
    result.check(want, finishers=2)
    assert len(result.of_kind("died")) == 1, result.story()
    assert len(result.of_kind("broken")) <= 1, result.story()


@pytest.mark.soak
def test_a_joiner_hangs_as_it_receives(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(2)), scale(3), "a joiner that stops as it receives"),
        Act(both(after_event("fenced"), with_members(3)), nothing, "another one takes its place"),
    ]
    result = stage.run("text.py", workers=(1, 3, 2), plan=plan, faults="2@0:transfer=stop", heartbeat_limit_s=1.5)
    result.check(want, finishers=3)


def test_the_warm_parent_dies_and_the_store_with_it(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(2), with_members(3)), do_all(kill_warm_parent, kill(1)), "and one with them"),
        Act(three_again, kill(0), "another, when there is a store again"),
        Act(three_again, nothing, "all are back"),
    ]
    result = stage.run("text.py", workers=(1, 3, 3), plan=plan)
    # How a worker ended that the next warm parent took over is unknown: the end may be done again.
    result.check(want)
    assert any("the store was lost" in event["reason"] for event in result.events), result.story()


@pytest.mark.soak
def test_all_die_without_a_checkpoint(stage: Stage, reference: Reference) -> None:
    want = reference.of("twice.py")
    plan = [
        Act(both(at_step(7), with_members(2)), kill_all, "all die"),
        Act(both(after_event("died"), with_members(2), steps_later(1)), nothing, "begun again"),
    ]
    result = stage.run("twice.py", workers=(1, 2, 2), plan=plan)
    result.check(want, finishers=2)
    assert any(event["level"] == "warning" for event in result.events), result.story()


def test_all_die_with_a_checkpoint(stage: Stage, reference: Reference) -> None:
    want = reference.of("vision.py")
    plan = [
        Act(both(at_step(10), with_members(2), after_event("saved")), kill_all, "all die"),
        Act(
            both(after_event("died"), with_members(2), steps_later(1)), arm("checkpoint", "kill", 0), "one dies saving"
        ),
        Act(both(after_event("died"), with_members(2)), nothing, "2 at the end"),
    ]
    result = stage.run("vision.py", workers=(1, 2, 2), plan=plan, checkpoint_every="3steps")
    result.check(want, finishers=2)
    assert any("Resumed from" in event["reason"] for event in result.events), result.story()


def check_that_nothing_was_done_again(result: Result, num_steps: int) -> None:
    story = result.story()
    assert len(result.of_kind("died")) == 1, story
    assert not result.of_kind("resumed"), story
    assert not any("the end again" in event["reason"] for event in result.of_kind("started")), story
    assert {event["reason"].split()[3] for event in result.of_kind("saved")} == {str(num_steps)}, story


@pytest.mark.parametrize("leaving", first_now([(), ("--leave-after", "2")]), ids=["at the end", "left early"])
def test_a_death_in_the_last_checkpoint(stage: Stage, reference: Reference, leaving: tuple[str, ...]) -> None:
    program = ("text.py", "--epochs", "3", *leaving)
    want = reference.of(*program)
    result = stage.run(*program, workers=(1, 3, 3), faults=f"0@{want.num_steps}:checkpoint=kill")
    # One who leaves the loop early tells its result before its end.
    result.check(want, finishers=3 if leaving else 2)
    check_that_nothing_was_done_again(result, want.num_steps)


@pytest.mark.parametrize("leaving", [(), ("--leave-after", "2")], ids=["at the end", "left early"])
@pytest.mark.soak
def test_a_death_in_the_last_checkpoint_below_the_minimum(
    stage: Stage, reference: Reference, leaving: tuple[str, ...]
) -> None:
    program = ("text.py", "--epochs", "3", *leaving)
    want = reference.of(*program)
    result = stage.run(*program, workers=(2, 2, 2), faults=f"0@{want.num_steps}:checkpoint=kill")
    result.check(want, finishers=2)
    check_that_nothing_was_done_again(result, want.num_steps)


@pytest.mark.soak
def test_below_the_minimum(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    plan = [
        Act(both(at_step(3), with_members(2)), kill(0), "one of two dies"),
        Act(
            both(after_event("held"), with_members(2)), do_all(close_door, kill(1)), "another, with none to replace it"
        ),
        Act(both(after_event("held"), after_event("saved")), do_all(kill_all, open_door), "the last one"),
        Act(both(after_event("resumed"), with_members(2)), nothing, "2 again"),
    ]
    result = stage.run("text.py", workers=(2, 2, 2), plan=plan)
    result.check(want, finishers=2)
    assert any("Resumed from" in event["reason"] for event in result.events), result.story()
