"""Projects, training definitions and experiments."""

from __future__ import annotations

import msgspec

Parameter = str | bool | int | float
"""The value of a parameter of a program. True: a bare ``--name``; false: it is left out."""


class Framework(msgspec.Struct, frozen=True):
    """What runs programs of training definitions. ``distributed``: how many workers it can have."""

    name: str
    title: str
    description: str
    distributed: tuple[str, ...]


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """People who work together.

    Args:
        queue: to which their jobs go.
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
        code: SHA-256 of uploaded code. None: the program is in ``directory`` on the machines.
        distributed: ``single``, ``static`` or ``elastic``.
        min_nodes: it runs with at least so many, or waits. A node is one slot.
    """

    id: str
    project: str
    name: str
    description: str = ""
    framework: str = "legato"
    command: str
    code: str | None = None
    directory: str | None = None
    distributed: str = "single"
    min_nodes: int = 1
    max_nodes: int = 1
    num_threads: int = 1
    cpu_capability: str | None = None
    parameters: dict[str, Parameter] = {}
    environment: dict[str, str | None] = {}
    seed: int | None = None
    checkpoint_every: str | None = None
    max_retries: int = 0
    max_run_s: float | None = None
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
    description: str = ""
    definitions: tuple[str, ...]
    data: str | None = None
    arguments: str = ""
    created_by: str
    version: int
    created_at: float
    runs: tuple[str, ...]
