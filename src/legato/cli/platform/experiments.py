"""Commands on experiments: list, create, show, change, delete, run. Runs nothing itself: the platform does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import (
    DataOption,
    OutputOption,
    ParameterOption,
    PriorityOption,
    SeedOption,
    ServerOption,
    label_option,
    project_option,
)
from legato.cli.platform.project_options import (
    ArgumentsOption,
    DefinitionsOption,
    DescriptionOption,
    ExperimentRef,
    InProject,
    NewName,
    NodesOption,
    Title,
    check_said,
    definitions_option,
)
from legato.cli.terminal.columns import EXPERIMENT_COLUMNS
from legato.cli.terminal.formatting import read_label, read_parameter
from legato.cli.terminal.output import Output, make_table, write, write_list
from legato.core.errors import UsageError
from legato.core.spec import parse_workers

if TYPE_CHECKING:
    from legato.client.client import Client
    from legato.client.projects import RunOptions

experiments = make_group("experiments", "legato experiments")


@experiments.callback(invoke_without_command=True)
def list_experiments(
    context: typer.Context,
    project: Annotated[str | None, project_option("Only experiments of this project.")] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """List experiments, of all projects or of one. More: create, show, change, delete, run."""
    if context.invoked_subcommand is not None:
        return
    client = open_client(server)
    found = client.experiments(project) if project is not None else list(client.iterate_experiments())

    write_list(found, output, EXPERIMENT_COLUMNS, "There are none.")


def create_experiment(
    name: Title,
    project: InProject,
    definition: DefinitionsOption = None,
    data: DataOption = None,
    arguments: ArgumentsOption = None,
    description: DescriptionOption = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Create an experiment from one or more training definitions of a project."""
    if not definition:
        raise UsageError(
            f"Cannot create experiment '{name}': it has no training definition. Name one with --definition."
        )
    client = open_client(server)
    made = client.add_experiment(
        project,
        name,
        _find_definitions(client, project, definition),
        data=data,
        arguments=arguments or "",
        description=description or "",
    )
    write(
        made,
        output,
        lambda: f"Experiment '{made.name}' is created: {made.id}. To run it: legato experiments run {made.id}",
    )


def show_experiment(
    experiment: ExperimentRef, output: OutputOption = Output.table, server: ServerOption = None
) -> None:
    """Show an experiment, its training definitions and its jobs."""
    client = open_client(server)
    found = client.experiment(experiment)

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_record

        titles = {one.id: one.name for one in client.definitions(found.project)}
        named = ", ".join(f"{titles.get(one, '?')} ({one})" for one in found.definitions)
        return draw_record(found, {"definitions": named})

    write(found, output, draw)


def change_experiment(
    experiment: ExperimentRef,
    name: NewName = None,
    definition: DefinitionsOption = None,
    data: Annotated[
        str | None, typer.Option(metavar="PATH|none", help="Data directory on the nodes; none: no directory.")
    ] = None,
    arguments: ArgumentsOption = None,
    description: DescriptionOption = None,
    server: ServerOption = None,
) -> None:
    """Change an experiment. Its existing jobs stay as they are."""
    check_said("experiment", experiment, name, definition, data, arguments, description)
    client = open_client(server)
    project = client.experiment(experiment).project
    found = client.change_experiment(
        experiment,
        name=name,
        definitions=_find_definitions(client, project, definition) if definition else None,
        data="" if data == "none" else data,
        arguments=arguments,
        description=description,
    )
    typer.echo(f"Experiment '{found.name}' is changed (version {found.version}).")


def delete_experiment(experiment: ExperimentRef, server: ServerOption = None) -> None:
    """Delete an experiment. Its jobs stay."""
    open_client(server).delete_experiment(experiment)
    typer.echo(f"Experiment '{experiment}' is deleted.")


def run_experiment(
    experiment: ExperimentRef,
    definition: Annotated[
        list[str] | None, definitions_option("Run only this training definition. Repeatable. [default: all]")
    ] = None,
    nodes: NodesOption = None,
    parameter: ParameterOption = None,
    seed: SeedOption = None,
    priority: PriorityOption = None,
    label: Annotated[list[str] | None, label_option("Label of each job. Repeatable.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Idempotency key: repeating the command with it runs the experiment only once."
        ),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Run an experiment: submit one job for each of its training definitions, all or none. Returns at once."""
    client = open_client(server)
    said: dict[str, Any] = {
        "seed": seed,
        "priority": priority,
        "parameters": dict(map(read_parameter, parameter or ())) or None,
        "labels": {name: value or "" for name, value in map(read_label, label or ())} or None,
    }
    if definition:
        said["definitions"] = _find_definitions(client, client.experiment(experiment).project, definition)
    if nodes is not None:
        low, high, _ = parse_workers(nodes)
        said |= {"max_nodes": high, "min_nodes": low if ".." in nodes else None}
    options = {field: value for field, value in said.items() if value is not None}
    made = client.run_experiment(experiment, key=key, **cast("RunOptions", options))
    records = [job.record for job in made]

    def draw() -> Any:
        from legato.cli.terminal.columns import job_columns

        return make_table(job_columns(time.time()), records, is_wide=output is Output.wide)

    write(records, output, draw)


enter(
    experiments,
    (
        Entry(
            "create",
            create_experiment,
            "legato experiments create First --project Digits --definition CNN",
            short="Create an experiment.",
        ),
        Entry("show", show_experiment, "legato experiments show First", short="Show an experiment and its jobs."),
        Entry("run", run_experiment, "legato experiments run First --param rate=0.1", short="Run an experiment."),
        Entry(
            "change",
            change_experiment,
            "legato experiments change First -d CNN -d Linear",
            short="Change an experiment.",
        ),
        Entry(
            "delete", delete_experiment, "legato experiments delete First", short="Delete an experiment; its jobs stay."
        ),
    ),
)

GROUPS: Final = (experiments,)
ENTRIES: Final[tuple[Entry, ...]] = ()


def _find_definitions(client: Client, project: str, wanted: Sequence[str]) -> list[str]:
    """Return the ids of training definitions of a project, by their ids or names."""
    there = client.definitions(project)
    names, ids = {one.name: one.id for one in there}, {one.id for one in there}
    for one in wanted:
        if one not in ids and one not in names:
            known = ", ".join(f"'{name}'" for name in names) or "none"
            raise UsageError(f"Project '{project}' has no training definition '{one}'. It has: {known}.")
    return [one if one in ids else names[one] for one in wanted]
