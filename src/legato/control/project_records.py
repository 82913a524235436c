"""Projects, training definitions and experiments, as records of the store. Knows no SQL.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum

import msgspec

from legato.api.projects import Parameter


class Distributed(enum.StrEnum):
    """How many workers a run has."""

    SINGLE = "single"  # one
    STATIC = "static"  # exactly so many, or the run waits
    ELASTIC = "elastic"  # from so many to so many, as the pool allows


class NewProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project to make. ``queue``: of its jobs."""

    name: str
    description: str = ""
    queue: str = "default"
    members: tuple[str, ...] = ()


class ProjectPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a project. None: no change. ``members`` replaces all members."""

    name: str | None = None
    description: str | None = None
    queue: str | None = None
    members: tuple[str, ...] | None = None


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of each run of a definition, besides its program. They never change.

    Args:
        directory: directory of the program on the machines, instead of uploaded code.
        min_nodes: minimum number of nodes; the run waits for them. A node is one slot.
        num_threads: of each node.
        cpu_capability: the instruction set to which all workers are limited. None: the machines' own.
        python: the Python of the workers: a name, or a path. None: the server's own.
        parameters: of the program, by name.
        environment: variables of the workers.
        checkpoint_every, seed, max_retries, max_run_s: as in `legato.control.work.Work` and `NewJob`.
    """

    directory: str | None = None
    distributed: Distributed = Distributed.SINGLE
    min_nodes: int = 1
    max_nodes: int = 1
    num_threads: int = 1
    cpu_capability: str | None = None
    python: str | None = None
    parameters: dict[str, Parameter] = {}
    environment: dict[str, str] = {}
    seed: int | None = None
    checkpoint_every: str | None = None
    max_retries: int = 0
    max_run_s: float | None = None


class NewDefinition(RunSettings, frozen=True, kw_only=True):
    """A training definition to make.

    Args:
        framework: the name of what runs it.
        command: one line, split as a shell does and run without a shell.
        code: SHA-256 of uploaded code. None: it is in ``directory``.
    """

    name: str
    command: str
    description: str = ""
    framework: str = "legato"
    code: str | None = None


class Definition(NewDefinition, frozen=True, kw_only=True):
    """A training definition: what is trained and how. Only its name and description ever change."""

    id: str
    project: str
    created_by: str
    version: int
    created_at: float


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """Another name or description. None: no change."""

    name: str | None = None
    description: str | None = None


class NewExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment to make.

    Args:
        definitions: ids of training definitions of its project.
        data: directory of data on the machines. None: none.
        arguments: one line, added after the arguments of each program.
    """

    name: str
    definitions: tuple[str, ...]
    description: str = ""
    data: str | None = None
    arguments: str = ""


class ExperimentPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of an experiment. UNSET: no change."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    definitions: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    data: str | msgspec.UnsetType | None = msgspec.UNSET
    arguments: str | msgspec.UnsetType = msgspec.UNSET
