"""The slots of one machine and the device of each. Knows nothing of workers."""

from __future__ import annotations

from collections.abc import Iterable

from legato.core.errors import UsageError
from legato.core.slots import check_slot, indexes_of, node_of
from legato.engines.gpus import check_device, check_several


class Slots:
    """The slots of one machine, numbered from 0.

    Args:
        devices: of each slot, as in `legato.engines.gpus`; empty: any number of slots on the CPU.
        node: the name of the machine, which its slots begin with; None: any.

    Raises:
        UsageError: a device has an invalid name.
    """

    def __init__(self, devices: Iterable[str], node: str | None = None) -> None:
        self.devices = tuple(check_device(device) for device in devices)
        self.node = node

    def devices_in(self, slot: str) -> tuple[str, ...]:
        """Return the devices of a slot: more than one for a worker with several GPUs.

        Raises:
            UsageError: there is no such slot, or a worker cannot use these devices together.
        """
        indexes, num_slots = indexes_of(check_slot(slot)), len(self.devices)
        if self.node is not None and node_of(slot) != self.node:
            raise UsageError(
                f"Cannot use slot {slot}: it is on node '{node_of(slot)}', and this machine is node '{self.node}'. "
                f"Assign slots of '{self.node}', or start the job's driver on '{node_of(slot)}'."
            )
        if num_slots and max(indexes) >= num_slots:
            raise UsageError(
                f"Cannot use slot {slot}: this machine has {num_slots} slots ({', '.join(self.devices)}). "
                f"Ask for {num_slots} workers or fewer, or set LEGATO_DEVICE=cpu to train on the CPU."
            )
        devices = tuple(self.devices[index] if num_slots else "cpu" for index in indexes)
        check_several(devices, f"Cannot use slot {slot}")
        return devices
