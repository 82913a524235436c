"""Schedules of what happens to hosts (`tests.hosts.schedules`)."""

from __future__ import annotations

import pytest
from tests.hosts.schedules import JOB, LASTING, POOL, ROLES, Act, draw, parse


def test_a_seed_repeats_its_schedule_and_its_text_can_be_read_again() -> None:
    drawn = draw(7, 400, hosts=3, max_workers=6, lease_s=8.0, kinds=POOL)
    assert drawn == draw(7, 400, hosts=3, max_workers=6, lease_s=8.0, kinds=POOL)
    assert drawn != draw(8, 400, hosts=3, max_workers=6, lease_s=8.0, kinds=POOL)
    assert parse("\n".join(map(str, drawn))) == drawn
    assert parse("then crash driver 12.5; also scale 3; then server 2; also leave h2 7") == [
        Act(False, "crash", ("driver",), 12.5),
        Act(True, "scale", ("3",)),
        Act(False, "server", (), 2.0),
        Act(True, "leave", ("h2",), 7.0),
    ]


def test_everything_happens_to_every_host_and_role_for_short_and_long() -> None:
    drawn = draw(1, 4000, hosts=3, max_workers=6, lease_s=8.0, kinds=POOL)
    assert {act.kind for act in drawn} == set(POOL)
    for kind in ("crash", "cut", "freeze", "agent"):
        assert {act.targets for act in drawn if act.kind == kind} == {(name,) for name in ("h1", "h2", "h3", *ROLES)}
    for kind in ("pool", "drain", "leave"):
        assert {act.targets for act in drawn if act.kind == kind} == {("h2",), ("h3",)}, "h1 has no pool agent"
    assert {act.targets for act in drawn if act.kind == "split"} == {
        ("h1",), ("h2",), ("h3",), ("h1", "h2"), ("h1", "h3"), ("h2", "h3")
    }  # fmt: skip
    for kind in LASTING:
        lasting = [act.seconds for act in drawn if act.kind == kind]
        assert min(lasting) < 1 and max(lasting) > 16
    assert {act.at_once for act in drawn} == {True, False}
    assert {act.kind for act in draw(1, 2000, hosts=3, max_workers=6, lease_s=8.0)} == set(JOB)


@pytest.mark.parametrize(
    "line",
    [
        "crash h1 3",
        "then crash h1",
        "then break h1",
        "then driver h1",
        "then cut h1 soon",
        "then server",
        "then drain h2",
    ],
)
def test_a_line_that_is_no_act_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not an act|could not convert"):
        parse(line)
