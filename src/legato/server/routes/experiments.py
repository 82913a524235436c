"""Routes of experiments: create, list, get, change, delete, and run them. The store checks permissions."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from legato.api import API
from legato.api.projects import Experiment
from legato.control.arguments import split_line
from legato.control.project_records import Definition
from legato.control.records import CheckedJob, Job
from legato.control.roles import Asker, Submitter, check_may_act
from legato.control.store import check_may_add, missing_code
from legato.control.work import find_data
from legato.core.errors import BadField
from legato.server.answers import Answer, Listed, responses, show_version
from legato.server.authentication import CurrentUser
from legato.server.frameworks import Frameworks, OfferedFrameworks
from legato.server.launches import RunChanges, check_data_here, check_places_here, make_run
from legato.server.project_bodies import ExperimentBody, ExperimentPatchBody, RunsBody
from legato.server.routes.jobs import IfMatch, Key, find_made, read_key, read_version
from legato.server.services import Here, Services

router = APIRouter(prefix=API, tags=["experiments"])

_CHANGES = (404, 409, 412, 413, 415)


@router.get("/projects/{project}/experiments", **responses(Listed[Experiment], errors=(404,)))
def list_experiments(project: str, here: Here, asker: CurrentUser) -> Response:
    """List the experiments of a project."""
    found = here.store.projects.find(project, asker)
    return Answer(Listed(here.store.experiments.list(found.id, asker)))


@router.post("/projects/{project}/experiments", **responses(Experiment, 201, errors=(404, 409, 413, 415)))
def create_experiment(project: str, body: ExperimentBody, here: Here, asker: CurrentUser) -> Response:
    """Create an experiment."""
    found = here.store.projects.find(project, asker)
    new = body.as_record()
    _check(f"Cannot make experiment '{new.name[:100]}'", new.data, new.arguments, here, asker)
    made = here.store.experiments.create(found.id, new, asker, here.now(), most=here.settings.max_in_project)
    return show_version(made, made.version, f"experiments/{made.id}")


@router.get("/experiments/{experiment}", **responses(Experiment, errors=(404,)))
def get_experiment(experiment: str, here: Here, asker: CurrentUser) -> Response:
    """Return an experiment, by id or by name."""
    found = here.store.experiments.find(experiment, asker)
    return show_version(found, found.version)


@router.patch("/experiments/{experiment}", **responses(Experiment, errors=_CHANGES))
def patch_experiment(
    experiment: str, body: ExperimentPatchBody, here: Here, asker: CurrentUser, if_match: IfMatch = None
) -> Response:
    """Change an experiment, as a merge patch. Jobs that it has started do not change."""
    found = here.store.experiments.find(experiment, asker)
    _check(f"Cannot change experiment '{found.name}'", body.data, body.arguments, here, asker)
    changed = here.store.experiments.change(
        found.id, body.as_record(), asker, here.now(), version=read_version(if_match, "experiment")
    )
    return show_version(changed, changed.version)


@router.delete("/experiments/{experiment}", **responses(None, 204, errors=_CHANGES))
def delete_experiment(experiment: str, here: Here, asker: CurrentUser, if_match: IfMatch = None) -> Response:
    """Delete an experiment. Jobs that it has started stay."""
    found = here.store.experiments.find(experiment, asker)
    here.store.experiments.delete(found.id, asker, here.now(), version=read_version(if_match, "experiment"))
    return Response(status_code=204)


@router.post("/experiments/{experiment}/runs", **responses(Listed[Job], 201, also=(200,), errors=(404, 409, 413, 415)))
def run_experiment(
    experiment: str,
    here: Here,
    asker: CurrentUser,
    frameworks: Frameworks,
    body: RunsBody | None = None,
    key: Key = None,
) -> Response:
    """Run an experiment: submit one job for each of its training definitions. If one is refused, none is submitted."""
    check_may_act(f"run experiment '{experiment[:100]}'", asker)
    given = body or RunsBody()
    request = read_key(key, f"run {experiment}", given)
    before = find_made(request, here, asker)
    if before:
        return Answer(Listed(before))
    found = here.store.experiments.find(experiment, asker)
    project = here.store.projects.find(found.project, asker)
    check_may_add(f"run experiment '{found.name}'", project, asker)
    changes = RunChanges(
        priority=here.settings.default_priority if given.priority is None else given.priority,
        min_nodes=given.min_nodes,
        max_nodes=given.max_nodes,
        parameters=given.parameters,
        labels=given.labels,
        seed=given.seed,
    )
    new = [
        _make(definition, found, project.queue, changes, here, asker, frameworks)
        for definition in _choose(found, given.definitions, here, asker)
    ]
    most = here.settings.max_queued_jobs
    submitter = Submitter(asker.name, asker.role)  # `check_may_act` has checked the role
    made, is_new = here.store.jobs.submit_runs(new, submitter, here.now(), request, max_queued=most)
    return Answer(Listed(made), 201 if is_new else 200)


def _choose(
    experiment: Experiment, wanted: tuple[str, ...] | None, here: Services, asker: Asker
) -> tuple[Definition, ...]:
    chosen = experiment.definitions if wanted is None else tuple(dict.fromkeys(wanted))
    for definition in chosen:
        if definition not in experiment.definitions:
            raise BadField(
                "definitions",
                f"Cannot run experiment '{experiment.name}': it has no training definition '{definition[:100]}'. It "
                f"has {', '.join(experiment.definitions)}.",
            )
    if not chosen:
        raise BadField("definitions", f"Cannot run experiment '{experiment.name}': no training definition is named.")
    return tuple(here.store.definitions.find(definition, asker) for definition in chosen)


def _make(
    definition: Definition,
    experiment: Experiment,
    queue: str,
    changes: RunChanges,
    here: Services,
    asker: Asker,
    frameworks: OfferedFrameworks,
) -> CheckedJob:
    framework = frameworks.find_again(definition.framework, definition.name)
    if definition.code is not None and not here.code.has(definition.code):
        raise missing_code(definition.code)
    files = None if definition.code is None else here.code.names.list(definition.code)
    placed = msgspec.structs.replace(experiment, data=find_data(experiment.data, here.settings.wmla_data_path))
    new = make_run(
        definition,
        framework,
        files,
        asker.name,
        changes,
        queue=queue,
        experiment=placed,
        pythons=here.settings.python_paths,
    )
    check_places_here(here, f"Cannot run training definition '{definition.name}'", new, asker.name)
    return new


def _check(refusal: str, data: str | None, arguments: str, here: Services, asker: Asker) -> None:
    """Raise BadField unless an experiment can have this data directory and these arguments."""
    check_data_here(here, refusal, data, asker.name)
    split_line("arguments", arguments)
