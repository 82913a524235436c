"""Schedules of what happens to hosts (`tests.hosts.schedules`)."""

from __future__ import annotations

import pytest
from tests.hosts.schedules import KINDS, OUTAGES, ROLES, Act, draw, parse


def test_a_seed_repeats_its_schedule_and_its_text_can_be_read_again() -> None:
    drawn = draw(7, 400, hosts=3, max_workers=6, lease_s=8.0)
    assert drawn == draw(7, 400, hosts=3, max_workers=6, lease_s=8.0)
    assert drawn != draw(8, 400, hosts=3, max_workers=6, lease_s=8.0)
    assert parse("\n".join(map(str, drawn))) == drawn
    assert parse("then crash driver 12.5; also scale 3") == [
        Act(False, "crash", ("driver",), 12.5),
        Act(True, "scale", ("3",)),
    ]


def test_everything_happens_to_every_host_and_role_for_short_and_long() -> None:
    drawn = draw(1, 2000, hosts=3, max_workers=6, lease_s=8.0)
    assert {act.kind for act in drawn} == set(KINDS)
    for kind in ("crash", "cut", "freeze", "agent"):
        assert {act.targets for act in drawn if act.kind == kind} == {(name,) for name in ("h1", "h2", "h3", *ROLES)}
    assert {act.targets for act in drawn if act.kind == "split"} == {
        ("h1",), ("h2",), ("h3",), ("h1", "h2"), ("h1", "h3"), ("h2", "h3")
    }  # fmt: skip
    for kind in OUTAGES:
        lasting = [act.seconds for act in drawn if act.kind == kind]
        assert min(lasting) < 1 and max(lasting) > 16
    assert {act.at_once for act in drawn} == {True, False}


@pytest.mark.parametrize("line", ["crash h1 3", "then crash h1", "then break h1", "then driver h1", "then cut h1 soon"])
def test_a_line_that_is_no_act_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not an act|could not convert"):
        parse(line)
