"""What ``legato verify`` asks of workers, and what they record. Data only."""

from __future__ import annotations

from typing import Final

import msgspec

VARIABLE: Final = "LEGATO_VERIFY"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do, as JSON in the variable ``LEGATO_VERIFY``.

    Args:
        directory: where it writes ``worker-N.jsonl``.
        num_steps: after so many steps it waits to be ended.
        sizes: step → it waits there until a membership of so many workers is prepared.
    """

    directory: str
    num_steps: int
    sizes: dict[int, int] = {}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's state after a step.

    Args:
        step: committed steps.
        num_workers: of its view when it wrote this.
        sums: 64-bit checksums by name: of what the step gave (``loss``), and of each piece of the state.
    """

    step: int
    num_workers: int
    sums: dict[str, int]
