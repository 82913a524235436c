"""Routes of projects and training definitions: create, list, get, change, delete. The store checks permissions."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API, projects
from legato.api.projects import Project
from legato.control.arguments import split_command
from legato.control.project_records import Definition, Distributed
from legato.control.records import NewJob, Page
from legato.control.roles import Asker, Role
from legato.control.store import check_may_add
from legato.core.errors import BadField
from legato.core.frameworks import DistributedName
from legato.policy.whatif import Plan
from legato.server.answers import Answer, Listed, responses, show_version
from legato.server.authentication import CurrentUser
from legato.server.frameworks import Frameworks, OfferedFrameworks
from legato.server.launches import (
    RunChanges,
    check_definition,
    check_places_here,
    find_files,
    make_run,
    read_imports_of,
)
from legato.server.planning import check_queue
from legato.server.project_bodies import DefinitionBody, NamingBody, ProjectBody, ProjectPatchBody, TrialBody
from legato.server.routes.jobs import After, IfMatch, read_version
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["projects"])

_CHANGES: Final = (404, 409, 412, 413, 415)
_MAKES: Final = (404, 409, 413, 415)
_KINDS: Final[tuple[DistributedName, ...]] = ("single", "static", "elastic")


class OfferedFramework(projects.Framework, frozen=True):
    """A framework that can run training definitions. ``distributed``: which kinds of runs it supports."""

    distributed: tuple[DistributedName, ...]


class ShownDefinition(projects.Definition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training definition. Viewers get null in place of ``code`` and of the values of ``environment``."""

    distributed: Distributed = Distributed.SINGLE


@router.get("/frameworks", **responses(Listed[OfferedFramework]))
def list_frameworks(frameworks: Frameworks, asker: CurrentUser) -> Response:  # noqa: ARG001 -- a user must be logged in
    """List the frameworks that can run training definitions."""
    offered = [
        OfferedFramework(one.name, one.title, one.description, tuple(one.distributed)) for one in frameworks.list()
    ]
    offered += [
        OfferedFramework(one.name, one.name, f"A runtime of IBM's documents. Runs here with {one.real}.", _KINDS)
        for one in frameworks.list_runtimes()
    ]
    return Answer(Listed(tuple(offered)))


@router.get("/interpreters", **responses(Listed[projects.Interpreter]))
def list_interpreters(here: Here, asker: CurrentUser) -> Response:  # noqa: ARG001 -- a user must be logged in
    """List the Python environments that jobs and training definitions may name."""
    found = (projects.Interpreter(name, path) for name, path in here.settings.python_paths.items())
    return Answer(Listed(tuple(found)))


# ---------------------------------------------------------------- projects


@router.get("/projects", **responses(Page[Project]))
def list_projects(
    here: Here, asker: CurrentUser, limit: Annotated[int, Query(ge=1, le=1000)] = 100, after: After = None
) -> Response:
    """List the projects that you may see, the newest first."""
    return Answer(here.store.projects.list(sees_only=asker.sees_only, after=after, limit=limit))


@router.post("/projects", **responses(Project, 201, errors=_MAKES))
def create_project(body: ProjectBody, here: Here, asker: CurrentUser) -> Response:
    """Create a project."""
    made = here.store.projects.create(body.as_record(), asker, here.now(), max_owned=here.settings.max_projects)
    return show_version(made, made.version, f"projects/{made.id}")


@router.get("/projects/{project}", **responses(Project, errors=(404,)))
def get_project(project: str, here: Here, asker: CurrentUser) -> Response:
    """Return a project, by id or by name."""
    found = here.store.projects.find(project, asker)
    return show_version(found, found.version)


@router.patch("/projects/{project}", **responses(Project, errors=_CHANGES))
def patch_project(
    project: str, body: ProjectPatchBody, here: Here, asker: CurrentUser, if_match: IfMatch = None
) -> Response:
    """Change a project, as a merge patch."""
    found = here.store.projects.find(project, asker)
    changed = here.store.projects.change(
        found.id, body.as_record(), asker, here.now(), version=read_version(if_match, "project")
    )
    return show_version(changed, changed.version)


@router.delete("/projects/{project}", **responses(None, 204, errors=_CHANGES))
def delete_project(project: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Delete a project that has no training definitions and no experiments."""
    found = here.store.projects.find(project, asker)
    here.store.projects.delete(found.id, asker, here.now(), version=read_version(if_match, "project"))
    return Response(status_code=204)


# ---------------------------------------------------------------- training definitions


@router.get("/projects/{project}/definitions", **responses(Listed[ShownDefinition], errors=(404,)))
def list_definitions(project: str, here: Here, asker: CurrentUser) -> Response:
    """List the training definitions of a project."""
    found = here.store.projects.find(project, asker)
    return Answer(Listed(tuple(_as_seen(one, asker) for one in here.store.definitions.list(found.id, asker))))


@router.post("/projects/{project}/definitions", **responses(ShownDefinition, 201, errors=_MAKES))
def create_definition(
    project: str, body: DefinitionBody, here: Here, asker: CurrentUser, frameworks: Frameworks
) -> Response:
    """Create a training definition. The server first checks that it could run."""
    found = here.store.projects.find(project, asker)
    check_may_add(f"make training definition '{body.name[:100]}'", found, asker)
    if body.clone_of is not None:
        body = body.with_numbers_of(here.store.definitions.find(body.clone_of, asker).parameters)
    if body.clone_of_trial is not None:
        body = body.with_numbers_of(_read_parameters_of(body.clone_of_trial, here, asker))
    files = find_files(body.code, here, asker)
    imports = read_imports_of(split_command(body.command), body.code, here, asker)
    framework, notice = frameworks.choose(body.framework, imports)
    new = msgspec.structs.replace(body.as_record(), framework=framework.name)
    run = check_definition(new, framework, files, asker.name, here.settings.python_paths)
    check_places_here(here, f"Cannot make training definition '{new.name}'", run, asker.name)
    made = here.store.definitions.create(found.id, new, asker, here.now(), most=here.settings.max_in_project)
    shown = _as_seen(made, asker) if notice is None else ShownDefinition(**_fields_of(made), notice=notice)
    return show_version(shown, made.version, f"definitions/{made.id}")


def _read_parameters_of(trial: TrialBody, here: Services, asker: Asker) -> dict[str, Any]:
    sweep = here.store.sweeps.find(trial.sweep, asker)
    for one in here.store.sweeps.list_trials(sweep.id):
        if one.number == trial.number:
            return {**(sweep.job.get("parameters") or {}), **one.parameters}
    raise BadField("clone_of_trial", f"Sweep {sweep.id} has no trial {trial.number}.")


@router.get("/definitions/{definition}", **responses(ShownDefinition, errors=(404,)))
def get_definition(definition: str, here: Here, asker: CurrentUser) -> Response:
    """Return a training definition, by id or by name."""
    found = here.store.definitions.find(definition, asker)
    return show_version(_as_seen(found, asker), found.version)


@router.patch("/definitions/{definition}", **responses(ShownDefinition, errors=_CHANGES))
def patch_definition(
    definition: str, body: NamingBody, here: Here, asker: CurrentUser, if_match: IfMatch = None
) -> Response:
    """Change the name or the description of a training definition, as a merge patch."""
    found = here.store.definitions.find(definition, asker)
    changed = here.store.definitions.change(
        found.id, body.as_record(), asker, here.now(), version=read_version(if_match, "training definition")
    )
    return show_version(_as_seen(changed, asker), changed.version)


@router.delete("/definitions/{definition}", **responses(None, 204, errors=_CHANGES))
def delete_definition(definition: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Delete a training definition that no experiment contains."""
    found = here.store.definitions.find(definition, asker)
    version = read_version(if_match, "training definition")
    here.store.definitions.delete(found.id, asker, here.now(), version=version)
    return Response(status_code=204)


@router.post("/definitions/{definition}/plan", **responses(Plan, errors=(404, 409)))
async def plan_definition(definition: str, here: Here, asker: CurrentUser, frameworks: Frameworks) -> Response:
    """Say what would happen if a training definition were run now. Nothing is submitted."""
    new = await run_in_threadpool(_make_planned, definition, here, asker, frameworks)
    return Answer(await here.plan(new, asker))


def _make_planned(definition: str, here: Services, asker: Asker, frameworks: OfferedFrameworks) -> NewJob:
    found = here.store.definitions.find(definition, asker)
    project = here.store.projects.find(found.project, asker)
    check_may_add(f"run training definition '{found.name}'", project, asker)
    framework = frameworks.find_again(found.framework, found.name)
    files = None if found.code is None else here.code.names.list(found.code)
    changes = RunChanges(priority=here.settings.default_priority)
    new = make_run(
        found, framework, files, asker.name, changes, queue=project.queue, pythons=here.settings.python_paths
    )
    check_queue(here.store, new.queue, asker)
    return new


def _as_seen(definition: Definition, asker: Asker) -> Any:
    """Return a definition; for viewers, without the values of its environment variables and its code."""
    if asker.role is not Role.VIEWER:
        return definition
    return ShownDefinition(
        **_fields_of(definition) | {"environment": dict.fromkeys(definition.environment), "code": None}
    )


def _fields_of(definition: Definition) -> dict[str, Any]:
    return {name: getattr(definition, name) for name in Definition.__struct_fields__}
