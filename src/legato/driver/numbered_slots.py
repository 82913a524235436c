"""Journals and statuses with numbers instead of names of slots, as earlier releases write and read them. Pure.

The names of a platform's slots are in its store. Its drivers of earlier releases knew only the number in a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from legato.core.slots import index_of, list_slots, make_slot

_LISTS: Final = ("wanted", "in_use", "given_up", "surplus")


def name_slots(journal: Any, find_node: Callable[[], str]) -> Any:
    """Return the content of a journal with names of slots; the same content if it has names.

    Args:
        journal: decoded JSON, which may be no journal.
        find_node: returns the name of the machine to which numbers belong.

    Raises:
        UsageError: a number cannot be that of a slot.
    """
    snapshot = journal.get("book") if isinstance(journal, dict) else None
    if not isinstance(snapshot, dict) or "available" in snapshot:
        return journal
    node = find_node()
    named = _map_slots(snapshot, lambda slot: make_slot(node, slot) if isinstance(slot, int) else slot)
    spec = journal.get("spec")
    max_workers = spec.get("max_workers") if isinstance(spec, dict) else None
    if isinstance(max_workers, int) and not snapshot.get("is_assigned"):
        named["available"] = list_slots(node, max_workers)
    return {**journal, "book": named}


def number_journal(journal: msgspec.Struct) -> dict[str, Any]:
    """Return the content of a journal with numbers of slots."""
    content: dict[str, Any] = msgspec.to_builtins(journal)
    if content["book"] is not None:
        content["book"] = _map_slots(content["book"], index_of)
        del content["book"]["available"]
    return content


def number_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status with numbers of slots."""
    workers = [{**worker, "slot": index_of(worker["slot"])} for worker in status["workers"]]
    return {**status, "slots": _map_slots(status["slots"], index_of), "workers": workers}


def _map_slots(content: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of a snapshot, or of the lists of a status, with other slots."""
    changed = dict(content)
    for key in _LISTS:
        if isinstance(slots := content.get(key), list | tuple):
            changed[key] = [change(slot) for slot in slots]
    if isinstance(slots := content.get("slots"), dict):
        changed["slots"] = {worker: change(slot) for worker, slot in slots.items()}
    return changed
