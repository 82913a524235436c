"""The slots of one machine and the device of each. Knows nothing of workers."""

from __future__ import annotations

from collections.abc import Iterable

from legato.core.errors import UsageError
from legato.engines.gpus import check_device


class Slots:
    """The slots of one machine, numbered from 0.

    Args:
        devices: of each slot, as in `legato.engines.gpus`; empty: any number of slots on the CPU.

    Raises:
        UsageError: a device has an invalid name.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self.devices = tuple(check_device(device) for device in devices)

    def device_in(self, slot: int) -> str:
        """Return the device of a slot.

        Raises:
            UsageError: there is no such slot.
        """
        num_slots = len(self.devices)
        if slot < 0 or (num_slots and slot >= num_slots):
            raise UsageError(
                f"Cannot use slot {slot}: this machine has {num_slots} slots ({', '.join(self.devices)}). "
                f"Ask for {num_slots} workers or fewer, or set LEGATO_DEVICE=cpu to train on the CPU."
            )
        return self.devices[slot] if num_slots else "cpu"
