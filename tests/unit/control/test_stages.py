"""The life of a job: the table is sound, users are refused in whole sentences, and any life ends once."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from legato.control.roles import Asker, Role, lower_role
from legato.control.stages import ENDED, HOLDING, MOVES, Action, Stage, check_ask, stage_after
from legato.core.errors import Conflict, Forbidden, TransitionError
from legato.core.lifecycle import check_move

ADMIN, ANN, EYE = Asker("root", Role.ADMIN), Asker("ann", Role.USER), Asker("eye", Role.VIEWER)


def reachable(start: Stage) -> set[Stage]:
    seen = {start}
    while more := {after for stage in seen for after in MOVES[stage]} - seen:
        seen |= more
    return seen


def test_the_table_is_sound() -> None:
    assert set(MOVES) == set(Stage)
    assert reachable(Stage.QUEUED) == set(Stage)
    for stage in Stage:
        assert stage not in MOVES[stage]
        assert (MOVES[stage] == frozenset()) == (stage in ENDED)
        # Wherever a job is, it can come to each of its ends.
        if stage not in ENDED | {Stage.STOPPING, Stage.PAUSING}:
            assert reachable(stage) >= ENDED
    # An attempt begins in one way only.
    assert [stage for stage in Stage if Stage.STARTING in MOVES[stage]] == [Stage.QUEUED]


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("stage", Stage)
def test_each_action_is_a_legal_move_or_a_sentence(action: Action, stage: Stage) -> None:
    try:
        after = stage_after(action, "x", stage)
    except Conflict as error:
        told = str(error)
        assert told.startswith(f"Cannot {action} job 'x': it ")
        assert told.count(". ") == 1
        assert told.endswith(".")
    else:
        assert after in MOVES[stage] | {stage}
        repeats = (action, stage) == (Action.STOP, Stage.STOPPING)
        assert (after is stage) == (repeats or action not in {Action.PAUSE, Action.RESUME, Action.STOP})


@pytest.mark.parametrize(
    ("action", "stage", "told"),
    [
        (Action.RESUME, Stage.RUNNING, "Cannot resume job 'x': it is running. Only a paused job can be resumed."),
        (Action.RESUME, Stage.PAUSING, "Cannot resume job 'x': it is being paused. Wait until it is paused."),
        (
            Action.RESUME,
            Stage.FAILED,
            "Cannot resume job 'x': it has failed. A job that has ended cannot be resumed; clone it or submit it again.",  # noqa: E501
        ),
        (Action.PAUSE, Stage.STOPPING, "Cannot pause job 'x': it is being stopped. Wait until it has ended."),
        (Action.STOP, Stage.SUCCEEDED, "Cannot stop job 'x': it has succeeded. It has already ended."),
        (
            Action.RESIZE,
            Stage.STOPPED,
            "Cannot resize job 'x': it was stopped. A job that has ended cannot be changed.",
        ),
    ],
)
def test_sentences(action: Action, stage: Stage, told: str) -> None:
    with pytest.raises(Conflict) as caught:
        stage_after(action, "x", stage)
    assert str(caught.value) == told


def test_who_may_ask() -> None:
    assert check_ask(Action.STOP, "x", "ann", Stage.QUEUED, ANN) is Stage.STOPPED
    assert check_ask(Action.STOP, "x", "ann", Stage.QUEUED, ADMIN) is Stage.STOPPED
    with pytest.raises(
        Forbidden, match=r"Cannot stop job 'x': it belongs to 'ben', not to 'ann'\. Ask 'ben' or an admin\."
    ):
        check_ask(Action.STOP, "x", "ben", Stage.QUEUED, ANN)
    with pytest.raises(Forbidden, match="the role of 'eye' is 'viewer'"):
        check_ask(Action.STOP, "x", "eye", Stage.SUCCEEDED, EYE)


def test_roles_have_an_order() -> None:
    assert lower_role(Role.ADMIN, Role.USER) is Role.USER
    assert lower_role(Role.VIEWER, Role.USER) is Role.VIEWER
    assert [asker.sees_only for asker in (ADMIN, ANN, EYE)] == [None, "ann", None]


class Life(RuleBasedStateMachine):
    """A job that is moved at random, by users and by the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage.QUEUED
        self.story: list[str] = []
        self.attempt = 0
        self.has_attempt = False
        self.num_ends = 0

    def move(self, new: Stage) -> None:
        check_move("job 'x'", MOVES, self.stage, new, self.story)
        self.story.append(f"{self.stage} -> {new}")
        if new is Stage.STARTING:
            assert not self.has_attempt, "two attempts at once"
            self.attempt, self.has_attempt = self.attempt + 1, True
        elif new not in HOLDING:
            self.has_attempt = False
        self.num_ends += new in ENDED
        self.stage = new

    @rule(new=st.sampled_from(Stage))
    def loop_moves(self, new: Stage) -> None:
        before = self.stage
        if new in MOVES[before]:
            self.move(new)
            return
        with pytest.raises(TransitionError, match=f"from {before} to {new}") as caught:
            self.move(new)
        assert self.stage is before
        assert all(line in str(caught.value) for line in self.story)

    @rule(action=st.sampled_from(Action))
    def user_asks(self, action: Action) -> None:
        try:
            after = stage_after(action, "x", self.stage)
        except Conflict:
            return
        if after is not self.stage:
            self.move(after)

    @invariant()
    def an_end_is_final(self) -> None:
        assert self.num_ends == (self.stage in ENDED)

    @invariant()
    def it_has_an_attempt_where_it_may_hold_slots(self) -> None:
        assert self.has_attempt == (self.stage in HOLDING)


TestLife = Life.TestCase
