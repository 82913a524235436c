"""Which slots: least movement, own nodes, the emptiest node."""

from __future__ import annotations

from tests.unit.policy.world import make_job

from legato.policy.claims import Claim
from legato.policy.place import FreeSlots, place
from legato.policy.snapshot import Slot


def slots(*names: str) -> list[Slot]:
    return [Slot(id=name, node=name.partition("/")[0]) for name in names]


def placed(held: list[Slot], size: int, free: list[Slot]) -> list[str]:
    claim = Claim(job=make_job("u/j", 99), order=("j",), lo=1, hi=99, slots=list(held), size=size)
    place([claim], FreeSlots(free))
    return sorted(slot.id for slot in claim.slots)


def test_an_incumbent_keeps_its_slots() -> None:
    held = slots("a/0", "c/1")
    assert placed(held, 2, slots("a/1", "b/0", "b/1")) == ["a/0", "c/1"]


def test_growth_goes_to_its_own_nodes_first() -> None:
    free = slots("a/1", "b/0", "b/1", "b/2", "c/0", "c/3")
    assert placed(slots("c/1", "c/2", "a/0"), 6, free) == ["a/0", "a/1", "c/0", "c/1", "c/2", "c/3"]


def test_then_to_the_emptiest_node() -> None:
    free = slots("a/0", "b/0", "b/1", "c/0", "c/1", "c/2")
    assert placed([], 2, free) == ["c/0", "c/1"]
    assert placed([], 5, free) == ["b/0", "b/1", "c/0", "c/1", "c/2"]


def test_a_shrinking_job_gives_up_stragglers() -> None:
    assert placed(slots("a/0", "b/0", "b/1", "c/0"), 2, []) == ["b/0", "b/1"]


def test_free_slots_run_out_node_by_node() -> None:
    free = FreeSlots(slots("a/0", "a/1", "b/0", "b/1", "b/2"))
    taken = [sorted(slot.id for slot in free.take(number, [])) for number in (1, 1, 2, 1)]
    assert taken == [["b/0"], ["a/0"], ["b/1", "b/2"], ["a/1"]]
