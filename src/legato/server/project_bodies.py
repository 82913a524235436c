"""Bodies of requests about projects, training definitions and experiments. They check only the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from legato.control.project_records import (
    ExperimentPatch,
    Naming,
    NewDefinition,
    NewExperiment,
    NewProject,
    ProjectPatch,
)
from legato.server.bodies import Body, Count, Name, Parameters, Seconds, Texts
from legato.server.javascript_numbers import take_numbers
from legato.system.decoding import convert

_MANY: Final = 1_000
_MAX_VARIABLES: Final = 1_000

Line = Annotated[str, StringConstraints(max_length=100_000)]
Description = Annotated[str, StringConstraints(max_length=100_000)]
Members = Annotated[Texts, Field(max_length=_MANY)]
Ids = Annotated[Texts, Field(max_length=_MANY)]


class ProjectBody(Body):
    """A project to create.

    Args:
        name: of the project.
        description: for people.
        queue: the queue to which jobs of experiments go.
        members: users besides the owner.
    """

    name: Name
    description: Description = ""
    queue: Name = "default"
    members: Members = ()

    def as_record(self) -> NewProject:
        """Return the record of the new project."""
        return NewProject(**self.model_dump())


class ProjectPatchBody(Body):
    """A merge patch of a project. Missing fields stay as they are."""

    name: Name = ""
    description: Description = ""
    queue: Name = ""
    members: Members = ()

    def as_record(self) -> ProjectPatch:
        """Return the record of the change."""
        return ProjectPatch(**_given_fields(self))


class TrialBody(Body):
    """A trial of a sweep, by the id or name of the sweep and the trial's number."""

    sweep: str
    number: Count


class DefinitionBody(Body):
    """A training definition to create. ``docs/rest.md`` describes the fields."""

    name: Name
    description: Description = ""
    framework: Name | None = None
    command: Line
    code: str | None = None
    directory: str | None = None
    distributed: Literal["single", "static", "elastic"] = "single"
    min_nodes: Count | None = None
    max_nodes: Count = 1
    num_threads: Count = 1
    cpu_capability: str | None = None
    python: Line | None = None
    parameters: Parameters = Field(default_factory=dict)
    environment: Annotated[dict[str, str], Field(max_length=_MAX_VARIABLES)] = Field(default_factory=dict)
    seed: Count | None = None
    checkpoint_every: str | None = None
    max_retries: Count = 0
    max_run_s: Seconds | None = None
    clone_of: str | None = None
    clone_of_trial: TrialBody | None = None

    def with_numbers_of(self, parameters: Mapping[str, Any]) -> DefinitionBody:
        """Return this definition with the numbers of the parameters that it repeats, where both are equal."""
        return self.model_copy(update={"parameters": take_numbers(self.parameters, parameters)})

    def as_record(self) -> NewDefinition:
        """Return the record of the new definition. The default of ``min_nodes`` is 1 if elastic, else ``max_nodes``."""
        found = self.model_dump(exclude={"clone_of", "clone_of_trial"})
        if self.framework is None:
            del found["framework"]
        if self.min_nodes is None:
            found["min_nodes"] = 1 if self.distributed == "elastic" else self.max_nodes
        return convert(found, NewDefinition)


class NamingBody(Body):
    """A merge patch of a training definition. Missing fields stay as they are."""

    name: Name = ""
    description: Description = ""

    def as_record(self) -> Naming:
        """Return the record of the change."""
        return Naming(**_given_fields(self))


class ExperimentBody(Body):
    """An experiment to create.

    Args:
        name: of the experiment.
        description: for people.
        definitions: ids of the training definitions to run.
        data: a data directory on the nodes, absolute or below the server's ``wmla_data_root``. Null: none.
        arguments: one line, appended to the arguments of each program.
    """

    name: Name
    description: Description = ""
    definitions: Ids
    data: str | None = None
    arguments: Line = ""

    def as_record(self) -> NewExperiment:
        """Return the record of the new experiment."""
        return NewExperiment(**self.model_dump())


class ExperimentPatchBody(Body):
    """A merge patch of an experiment. Missing fields stay as they are."""

    name: Name = ""
    description: Description = ""
    definitions: Ids = ()
    data: str | None = None
    arguments: Line = ""

    def as_record(self) -> ExperimentPatch:
        """Return the record of the change."""
        return ExperimentPatch(**_given_fields(self))


class RunsBody(Body):
    """How to run an experiment. Missing and null fields are as in its training definitions.

    Args:
        definitions: ids of the training definitions to run. Null: all of the experiment.
        priority: of the jobs. Null: the server's default.
        parameters: added to those of each definition; the same names replace them.
        labels: of the jobs.
    """

    definitions: Ids | None = None
    priority: Count | None = None
    min_nodes: Count | None = None
    max_nodes: Count | None = None
    parameters: Parameters = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    seed: Count | None = None


class AccessBody(Body):
    """A request for access to training definitions of another user. ``message``: for that user."""

    owner: Name
    message: Description = ""


class GrantBody(Body):
    """The project, by id or name, of which the user who asked becomes a member."""

    project: Name


def _given_fields(body: Body) -> dict[str, Any]:
    return {name: getattr(body, name) for name in body.model_fields_set}
