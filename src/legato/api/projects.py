"""Projects, training definitions and experiments."""

from __future__ import annotations

import enum

import msgspec

Parameter = str | bool | int | float
"""The value of a program's parameter. True becomes an option without a value, ``--name``; false is omitted."""


class Framework(msgspec.Struct, frozen=True):
    """A framework that can run training definitions.

    Args:
        name: what definitions and submissions give.
        title: the name for people.
        description: which programs it runs, and how.
        distributed: the kinds of runs that it supports: ``single``, ``static``, ``elastic``.
    """

    name: str
    title: str
    description: str
    distributed: tuple[str, ...]


class Interpreter(msgspec.Struct, frozen=True):
    """A Python environment that the operator has named for jobs.

    Args:
        name: what jobs and definitions give as ``python``.
        path: of an executable, or of the folder of an environment, on the nodes.
    """

    name: str
    path: str


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A group of users: an owner and members, who share training definitions and experiments.

    Args:
        queue: the queue to which jobs of experiments go.
        members: users besides the owner.
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
    """A training definition: what is trained and how. Viewers get None in place of the values of ``environment``.

    Args:
        command: one line, split into words as a shell does.
        code: SHA-256 of uploaded code. None: the program is in ``directory`` on the nodes.
        distributed: ``single``: one node; ``static``: exactly ``max_nodes``; ``elastic``: ``min_nodes`` to
            ``max_nodes``.
        min_nodes: minimum number of nodes; a job waits until they are free. A node is one slot.
        max_nodes: maximum number of nodes.
        python: the Python of the workers: a name in the server's setting ``interpreters``, or a path. None: the
            server's own.
        notice: what its maker should know. Only in the answer that creates the definition.
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
    python: str | None = None
    parameters: dict[str, Parameter] = {}
    environment: dict[str, str | None] = {}
    seed: int | None = None
    checkpoint_every: str | None = None
    max_retries: int = 0
    max_run_s: float | None = None
    created_by: str
    version: int
    created_at: float
    notice: str | None = None


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment: one or more training definitions that are run together.

    Args:
        definitions: ids of the training definitions.
        data: a data directory on the nodes, absolute or below the server's ``wmla_data_root``. None: none.
        arguments: one line, appended to the arguments of each program.
        runs: ids of the newest jobs that were started from it, the newest first, at most 100.
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


class ProjectOwner(msgspec.Struct, frozen=True):
    """A user whom you can ask for access to training definitions."""

    name: str


class AccessStage(enum.StrEnum):
    """What became of a request for access."""

    OPEN = "open"
    GRANTED = "granted"
    DECLINED = "declined"


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a user for access to a project of another user.

    Args:
        user: the user who asks.
        owner: the user who decides.
        message: of the user who asks.
        stage: ``open``, ``granted`` or ``declined``.
        project: the project of which the user became a member. None: not granted.
        decided_at: when it was granted or declined. None: it is open.
    """

    id: str
    user: str
    owner: str
    message: str = ""
    stage: AccessStage
    project: str | None = None
    created_at: float
    decided_at: float | None = None
