"""Names of slots: what is one, and how they are ordered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.core.errors import UsageError
from legato.core.slots import check_slot, index_of, list_slots, make_node, make_slot, name_slot, node_of, slot_key


@pytest.mark.parametrize("slot", ["a/0", "0/0", "gpu-1.lab/12", "A_b/7", f"{'n' * 253}/0", "_old/1"])
def test_what_is_a_slot(slot: str) -> None:
    assert check_slot(slot) == slot
    assert make_slot(node_of(slot), index_of(slot)) == slot
    assert name_slot(slot, "other") == slot
    assert name_slot(index_of(slot), node_of(slot)) == slot


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "/0", "a/", "a/-1", "a/+1", "a/01", "a/x", "a/\u0663", "a b/0", "-a/0", ".a/0", "a/b/0", "\u00e9/0"),
        *("a/0\n", "a\n/0", f"{'n' * 254}/0", f"a/{'1' * 10}"),
    ],
)
def test_what_is_no_slot(text: str) -> None:
    with pytest.raises(UsageError, match="as a slot: a slot is written NODE/NUMBER"):
        check_slot(text)


def test_an_invalid_node_or_number_has_no_slot() -> None:
    with pytest.raises(UsageError, match="Cannot use 'a/b' as the name of a node"):
        make_slot("a/b", 0)
    with pytest.raises(UsageError, match="Cannot use 'a/-1' as a slot"):
        name_slot(-1, "a")


def test_slots_are_ordered_by_node_and_number() -> None:
    slots = ["b/0", "a/10", "a/9", "a-1/0", "a/0"]
    assert sorted(slots, key=slot_key) == ["a/0", "a/9", "a/10", "a-1/0", "b/0"]
    assert list_slots("n", 11)[-2:] == ("n/9", "n/10")


@given(st.text(max_size=300))
def test_every_host_has_a_valid_name_as_a_node(host: str) -> None:
    assert check_slot(make_slot(make_node(host), 0)) == f"{make_node(host)}/0"
