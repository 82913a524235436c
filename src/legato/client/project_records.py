"""What the server answers of projects, as typed records; as `records` has them of jobs. Sends no requests."""

from __future__ import annotations

import msgspec

Parameter = str | bool | int | float


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """What runs programs of training definitions. ``distributed``: how many workers it can have."""

    name: str
    title: str
    description: str
    distributed: tuple[str, ...]


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """People who work together.

    Args:
        queue: to which their runs go.
        members: besides its owner.
    """

    id: str
    name: str
    owner: str
    description: str
    queue: str
    members: tuple[str, ...]
    version: int
    created_at: float


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A training definition: what is trained and how. Values of ``environment`` are None for those who only look.

    Args:
        command: one line.
        code: SHA-256 of uploaded code. None: the program lies in ``directory`` on the machines.
        distributed: ``single``, ``static`` or ``elastic``.
        min_nodes: it runs with at least so many, or waits. A node is one slot.
    """

    id: str
    project: str
    name: str
    description: str
    framework: str
    command: str
    code: str | None
    directory: str | None
    distributed: str
    min_nodes: int
    max_nodes: int
    num_threads: int
    cpu_capability: str | None = None
    parameters: dict[str, Parameter]
    environment: dict[str, str | None]
    seed: int | None
    checkpoint_every: str | None
    max_retries: int
    max_run_s: float | None
    created_by: str
    version: int
    created_at: float


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Training definitions that are run together.

    Args:
        definitions: their ids.
        data: a directory on the machines.
        arguments: one line, for each of them.
        runs: ids of the newest jobs that came from it, the newest first.
    """

    id: str
    project: str
    name: str
    description: str
    definitions: tuple[str, ...]
    data: str | None
    arguments: str
    created_by: str
    version: int
    created_at: float
    runs: tuple[str, ...]
