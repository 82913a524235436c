"""Names of slots, ``NODE/i``: the name of a machine and the number of the slot on it; names of its labels. Pure.

A worker with several GPUs occupies several slots of one node. Drivers and engines treat these as one slot, whose name
has all numbers: ``NODE/0+1``.

Earlier releases wrote numbers into journals, orders and messages. `name_slot` gives them their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from legato.core.errors import UsageError

MAX_NODE_LENGTH: Final = 253  # of a host name in DNS
_MAX_HOST_LENGTH: Final = 63  # of its first label
# An underscore comes first in the names that earlier releases made of such host names.
_NODE: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_NODE_LENGTH - 1}}}")
_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,8})(\+[1-9][0-9]{0,8})*")
_INVALID: Final = re.compile(r"[^A-Za-z0-9._-]+")
_OWN_LABELS: Final = "legato."


def check_node(node: str) -> str:
    """Return the name of a node. Raises UsageError if it is invalid."""
    if not _NODE.fullmatch(node):
        raise UsageError(
            f"Cannot use '{node}' as the name of a node: it must have 1 to {MAX_NODE_LENGTH} letters, digits, dots, "
            "underscores or hyphens, and begin with a letter, a digit or an underscore."
        )
    return node


def check_slot(slot: str) -> str:
    """Return the name of a slot. Raises UsageError if it is invalid."""
    node, _, index = slot.rpartition("/")
    if not _NODE.fullmatch(node) or not _INDEX.fullmatch(index):
        raise UsageError(
            f"Cannot use '{slot}' as a slot: a slot is written NODE/NUMBER, with the name of its node and its number "
            "on that node, such as 'gpu-1/0', or with several numbers for a worker with several GPUs: 'gpu-1/0+1'."
        )
    return slot


def make_slot(node: str, index: int) -> str:
    """Return the name of a slot, from the name of its node and its number on that node, from 0.

    Raises:
        UsageError: one of them is invalid.

    >>> make_slot("gpu-1", 0)
    'gpu-1/0'
    """
    check_node(node)
    return check_slot(f"{node}/{index}")


def node_of(slot: str) -> str:
    """Return the name of a slot's node.

    >>> node_of("gpu-1/10")
    'gpu-1'
    """
    return slot.rpartition("/")[0]


def indexes_of(slot: str) -> tuple[int, ...]:
    """Return the numbers of a slot on its node: more than one for a worker with several GPUs.

    >>> indexes_of("gpu-1/10"), indexes_of("gpu-1/0+1")
    ((10,), (0, 1))
    """
    return tuple(map(int, slot.rpartition("/")[2].split("+")))


def index_of(slot: str) -> int:
    """Return the number of a slot on its node, the first one if it has several.

    >>> index_of("gpu-1/10")
    10
    """
    return indexes_of(slot)[0]


def slot_key(slot: str) -> tuple[str, int]:
    """Return the key by which slots are sorted: by node, then by number.

    >>> sorted(["b/0", "a/10", "a/9"], key=slot_key)
    ['a/9', 'a/10', 'b/0']
    """
    return node_of(slot), index_of(slot)


def join_slots(slots: Iterable[str]) -> str:
    """Return the name of the slots of one worker, which are on one node.

    >>> join_slots(["gpu-1/10", "gpu-1/9"]), join_slots(["gpu-1/3"])
    ('gpu-1/9+10', 'gpu-1/3')
    """
    ordered = sorted(slots, key=slot_key)
    assert len({node_of(slot) for slot in ordered}) == 1, ordered
    return "/".join((node_of(ordered[0]), "+".join(str(index_of(slot)) for slot in ordered)))


def split_slot(slot: str) -> tuple[str, ...]:
    """Return the single slots of a worker's slot.

    >>> split_slot("gpu-1/9+10"), split_slot("gpu-1/3")
    (('gpu-1/9', 'gpu-1/10'), ('gpu-1/3',))
    """
    return tuple(f"{node_of(slot)}/{index}" for index in indexes_of(slot))


def join_by(slots: Sequence[str], each: int) -> tuple[str, ...]:
    """Return slots for workers that take ``each`` of these slots, all of one node. Slots that are left over are unused.

    >>> join_by(["a/0", "a/1", "a/2", "b/0", "b/1"], 2)
    ('a/0+1', 'b/0+1')
    """
    by_node: dict[str, list[str]] = {}
    for slot in slots:
        by_node.setdefault(node_of(slot), []).append(slot)
    return tuple(
        join_slots(inside[first : first + each])
        for inside in by_node.values()
        for first in range(0, len(inside) - each + 1, each)
    )


def name_slot(slot: int | str, node: str) -> str:
    """Return the name of a slot that may be given as its number on a node, as earlier releases write it.

    Raises:
        UsageError: the number or the name is invalid.

    >>> name_slot(2, "gpu-1"), name_slot("gpu-2/0", "gpu-1")
    ('gpu-1/2', 'gpu-2/0')
    """
    return make_slot(node, slot) if isinstance(slot, int) else check_slot(slot)


def list_slots(node: str, num_slots: int) -> tuple[str, ...]:
    """Return the names of a node's first slots.

    >>> list_slots("gpu-1", 2)
    ('gpu-1/0', 'gpu-1/1')
    """
    check_node(node)
    return tuple(f"{node}/{index}" for index in range(num_slots))


def make_node(host: str) -> str:
    """Return a valid name of a node, from a host name.

    >>> make_node("gpu-1.lab.example"), make_node("Anna's laptop"), make_node("")
    ('gpu-1', 'Anna-s-laptop', 'here')
    """
    return _INVALID.sub("-", host.partition(".")[0]).strip("-")[:_MAX_HOST_LENGTH] or "here"


def check_node_labels(names: Iterable[str]) -> None:
    """Check the names of the labels that an agent gives its machine. Raises UsageError if Legato uses one itself."""
    for name in names:
        if name.startswith(_OWN_LABELS):
            raise UsageError(
                f"Cannot use the label '{name[:200]}': names that begin with '{_OWN_LABELS}' are Legato's own. Choose "
                "another name."
            )
