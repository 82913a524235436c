"""The requests of ``legato verify`` to workers, and their records. Data only."""

from __future__ import annotations

from typing import Final

import msgspec

VARIABLE: Final = "LEGATO_VERIFY"


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The request to a worker, as JSON in the variable ``LEGATO_VERIFY``.

    Args:
        directory: in which the worker writes ``worker-N.jsonl``.
        num_steps: after this number of steps the worker waits until it is ended.
        sizes: step → number of workers: after the step the worker waits until a view of this size is prepared.
    """

    directory: str
    num_steps: int
    sizes: dict[int, int] = {}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's state after a step.

    Args:
        step: number of committed steps.
        num_workers: of its view when it wrote this record.
        sums: 64-bit checksums by name: of the step's results (``loss``), and of each piece of the state.
    """

    step: int
    num_workers: int
    sums: dict[str, int]
