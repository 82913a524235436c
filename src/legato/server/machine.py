"""This machine as a node of the pool: its name and its slots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from legato.control.records import DeclaredSlot, Lease, Node
from legato.control.store import Store
from legato.core.errors import SettingsError
from legato.core.slots import make_slot
from legato.driver.journal import replace_file
from legato.engines.gpus import find_devices, find_gpu_types
from legato.system.hosts import name_this_machine

_ENGINE: Final = "local"
_NAME_FILE: Final = "node"


def find_slots(num_slots: int | None) -> tuple[str, ...]:
    """Return the torch device of each slot of this machine.

    Args:
        num_slots: the number of slots. None: one per GPU, or one per CPU core where there is no GPU.

    Raises:
        SettingsError: the machine has fewer GPUs than that.
    """
    devices = find_devices()
    if not devices:
        return ("cpu",) * (num_slots or len(os.sched_getaffinity(0)))
    if num_slots is not None and num_slots > len(devices):
        raise SettingsError(
            f"Cannot offer slots={num_slots}: this machine has {len(devices)} GPUs, one for each slot. Ask for fewer, "
            "or hide the GPUs with CUDA_VISIBLE_DEVICES= to offer slots of the CPU."
        )
    return devices[:num_slots]


def name_node(home: Path) -> str:
    """Return the name of this machine in the pool: the host name at the first start of a server.

    It stays the same when the host is renamed, because running jobs know their slots by it.
    """
    file = home / _NAME_FILE
    if file.exists():
        return file.read_text().strip()
    name = name_this_machine()
    replace_file(file, f"{name}\n".encode())
    return name


class Declaration:
    """Declares the slots of this machine in the store each time this server becomes the deciding one.

    Args:
        store: the store of the platform.
        node: the name of this machine.
        devices: the torch device of each slot, by number of the slot.
    """

    def __init__(self, store: Store, node: str, devices: Sequence[str]) -> None:
        self._store = store
        self._node = node
        self._devices = tuple(devices)

    def declare(self, lease: Lease, now: float) -> None:
        """Declare this machine's slots, and that other machines have none.

        Raises:
            FencedOut: another loop has the lease.
        """
        types = find_gpu_types(self._devices)
        own = tuple(
            DeclaredSlot(make_slot(self._node, number), device, gpu_type)
            for number, (device, gpu_type) in enumerate(zip(self._devices, types, strict=True))
        )
        # Nodes are taken from ids of slots, because a damaged row may name a missing node.
        slots = self._store.pool.list_slots()
        known = {slot.node for slot in slots if slot.node and slot.id.startswith(f"{slot.node}/")}
        nodes = [Node(name=self._node, engine=_ENGINE, slots=own)]
        nodes += [Node(name=name, engine=_ENGINE, slots=()) for name in sorted(known - {self._node})]
        self._store.pool.declare(nodes, lease.fence, now)
