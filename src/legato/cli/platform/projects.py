"""Commands on projects and training definitions: list, create, show, change, delete, plan. Checks no code itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.options import CpuCapability
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import (
    CheckpointEveryOption,
    EnvironmentOption,
    FrameworkOption,
    NodePythonOption,
    OutputOption,
    OverwriteOption,
    ParameterOption,
    RetriesOption,
    SeedOption,
    ServerOption,
    ThreadsOption,
    naming_overwrite,
    project_option,
    queue_option,
    read_python,
)
from legato.cli.platform.project_options import (
    DefinitionRef,
    DescriptionOption,
    InProject,
    MemberOption,
    NewName,
    NodesOption,
    ProjectRef,
    RequestRef,
    Title,
    check_said,
)
from legato.cli.terminal.columns import (
    DEFINITION_COLUMNS,
    FRAMEWORK_COLUMNS,
    OWNER_COLUMNS,
    PROJECT_COLUMNS,
    REQUEST_COLUMNS,
)
from legato.cli.terminal.formatting import read_duration, read_parameter, read_variable
from legato.cli.terminal.output import Output, write, write_list
from legato.core.errors import UsageError
from legato.core.spec import parse_workers

if TYPE_CHECKING:
    from legato.client.projects import DefinitionOptions

_KINDS: Final = ("single", "static", "elastic")
_NO_PROJECT: Final = "There are no projects that you may see. 'legato projects create NAME' makes one."

# ---------------------------------------------------------------- projects

projects = make_group("projects", "legato projects")


@projects.callback(invoke_without_command=True)
def list_projects(context: typer.Context, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List projects. More: create, show, change, delete; owners, ask, requests, grant, decline, withdraw."""
    if context.invoked_subcommand is not None:
        return
    found = open_client(server).projects()

    write_list(found, output, PROJECT_COLUMNS, _NO_PROJECT)


def create_project(
    name: Title,
    description: DescriptionOption = None,
    queue: Annotated[str | None, queue_option("Queue of the project's jobs. [default: default]")] = None,
    member: Annotated[list[str] | None, typer.Option("--member", metavar="USER", help="A member. Repeatable.")] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Create a project. You become its owner."""
    made = open_client(server).add_project(
        name, description=description or "", queue=queue or "default", members=member or ()
    )
    write(made, output, lambda: f"Project '{made.name}' is created: {made.id}.")


def show_project(project: ProjectRef, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """Show a project, its definitions and its experiments."""
    client = open_client(server)
    found = client.project(project)

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_record

        inside = {
            "definitions": ", ".join(one.name for one in client.definitions(found.id)),
            "experiments": ", ".join(one.name for one in client.experiments(found.id)),
        }
        return draw_record(found, inside)

    write(found, output, draw)


def change_project(
    project: ProjectRef,
    name: NewName = None,
    description: DescriptionOption = None,
    queue: Annotated[str | None, queue_option("New queue of the project's jobs.")] = None,
    member: MemberOption = None,
    no_members: Annotated[bool, typer.Option("--no-members", help="Remove all members but the owner.")] = False,
    server: ServerOption = None,
) -> None:
    """Change a project. For its owner and admins."""
    if member and no_members:
        raise UsageError("--member and --no-members exclude each other. Use one of them.")
    members: Sequence[str] | None = [] if no_members else member or None
    check_said("project", project, name, description, queue, members)
    found = open_client(server).change_project(
        project, name=name, description=description, queue=queue, members=members
    )
    typer.echo(f"Project '{found.name}' is changed (version {found.version}).")


def delete_project(project: ProjectRef, server: ServerOption = None) -> None:
    """Delete a project that has no experiments and no training definitions. Its jobs stay."""
    open_client(server).delete_project(project)
    typer.echo(f"Project '{project}' is deleted.")


def list_owners(output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List the users whom you can ask for access to their training definitions, with 'legato projects ask'."""
    write_list(open_client(server).project_owners(), output, OWNER_COLUMNS, "You can see all projects already.")


def ask_for_access(
    owner: Annotated[str, typer.Argument(metavar="USER", help="Owner of the projects.")],
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Message for that user.")] = "",
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Ask a user for access to training definitions. The user grants it in the console or with 'projects grant'."""
    made = open_client(server).ask_for_access(owner, message)
    write(made, output, lambda: f"'{made.owner}' was asked for access: request {made.id}.")


def list_requests(output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List the requests for access that you have sent or received."""
    write_list(open_client(server).access_requests(), output, REQUEST_COLUMNS, "There are none.")


def grant_access(
    request: RequestRef,
    project: ProjectRef,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Grant a request for access: the user who asked becomes a member of your project."""
    found = open_client(server).grant_access(request, project)
    write(found, output, lambda: f"'{found.user}' is now a member of project '{project}'.")


def decline_access(request: RequestRef, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """Decline a request for access."""
    found = open_client(server).decline_access(request)
    write(found, output, lambda: f"The request of '{found.user}' is declined.")


def withdraw_request(request: RequestRef, server: ServerOption = None) -> None:
    """Withdraw a request for access that you have sent."""
    open_client(server).withdraw_access_request(request)
    typer.echo(f"Request {request} is withdrawn.")


enter(
    projects,
    (
        Entry("create", create_project, "legato projects create Digits --member ben", short="Create a project."),
        Entry("show", show_project, "legato projects show Digits", short="Show a project and its content."),
        Entry("change", change_project, "legato projects change Digits --queue night", short="Change a project."),
        Entry("delete", delete_project, "legato projects delete Digits", short="Delete an empty project."),
        Entry("owners", list_owners, "legato projects owners", short="List whom you can ask for access."),
        Entry("ask", ask_for_access, "legato projects ask ann", short="Ask a user for access."),
        Entry("requests", list_requests, "legato projects requests", short="List requests for access."),
        Entry("grant", grant_access, "legato projects grant a-37efnd0000 Digits", short="Grant a request."),
        Entry("decline", decline_access, "legato projects decline a-37efnd0000", short="Decline a request."),
        Entry("withdraw", withdraw_request, "legato projects withdraw a-37efnd0000", short="Withdraw a request."),
    ),
)

# ---------------------------------------------------------------- training definitions

definitions = make_group("definitions", "legato definitions")


@definitions.callback(invoke_without_command=True)
def list_definitions(
    context: typer.Context,
    project: Annotated[str | None, project_option("Only definitions of this project.")] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """List training definitions, of all projects or of one. More: create, show, change, delete, plan."""
    if context.invoked_subcommand is not None:
        return
    client = open_client(server)
    found = client.definitions(project) if project is not None else list(client.iterate_definitions())

    write_list(found, output, DEFINITION_COLUMNS, "There are none.")


def create_definition(
    name: Title,
    project: InProject,
    command: Annotated[
        str,
        typer.Option(metavar="LINE", help="Command: 'train.py --epochs 3'. Shell features such as pipes do not work."),
    ],
    code: Annotated[
        str | None, typer.Option(metavar="FOLDER|FILE", help="Code to upload: a folder, .zip, .tar or .tar.gz.")
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Upload nothing; run the program in this directory of the nodes."),
    ] = None,
    framework: FrameworkOption = None,
    distributed: Annotated[
        str | None,
        typer.Option(
            metavar="[single|static|elastic]",
            help="Distributed training type. [default: elastic if --nodes is above 1]",
        ),
    ] = None,
    nodes: NodesOption = None,
    threads: ThreadsOption = None,
    cpu_capability: CpuCapability = None,
    python: NodePythonOption = None,
    parameter: ParameterOption = None,
    env: EnvironmentOption = None,
    seed: SeedOption = None,
    checkpoint_every: CheckpointEveryOption = None,
    retries: RetriesOption = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop its jobs after this running time: 12h.")
    ] = None,
    description: DescriptionOption = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Create a training definition. Only its name and description can be changed later."""
    said = {
        "framework": framework,
        "description": description,
        "num_threads": threads,
        "cpu_capability": cpu_capability,
        "python": None if python is None else read_python(python),
        "parameters": dict(map(read_parameter, parameter or ())) or None,
        "environment": dict(map(read_variable, env or ())) or None,
        "seed": seed,
        "checkpoint_every": checkpoint_every,
        "max_retries": retries,
        "max_run_s": None if max_time is None else read_duration(max_time, "the time"),
        **_read_nodes(nodes, distributed, framework),
    }
    options = {field: value for field, value in said.items() if value is not None}
    made = open_client(server).add_definition(
        project,
        name,
        command,
        code=code if code is None else Path(code),
        directory=directory,
        **cast("DefinitionOptions", options),
    )
    told = f"Training definition '{made.name}' is created: {made.id}. Framework: {made.framework}."
    write(made, output, lambda: told if made.notice is None else f"{told}\n{made.notice}")


def show_definition(
    definition: DefinitionRef, output: OutputOption = Output.table, server: ServerOption = None
) -> None:
    """Show all details of a training definition."""
    found = open_client(server).definition(definition)

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_record

        return draw_record(found)

    write(found, output, draw)


def download_definition(
    definition: DefinitionRef,
    to: Annotated[
        str | None, typer.Option("--to", "-o", metavar="FILE", help="Target file. [default: NAME-code.zip]")
    ] = None,
    overwrite: OverwriteOption = False,
    server: ServerOption = None,
) -> None:
    """Download the code of a training definition as a zip."""
    from legato.client.submission import make_name

    client = open_client(server)
    found = client.definition(definition)
    if found.code is None:
        raise UsageError(
            f"Cannot download the code of training definition '{found.name}': it was not uploaded, "
            f"but lies in '{found.directory}' on the nodes."
        )
    with naming_overwrite():
        file = client.download_code(found.code, to or f"{make_name(found.name)}-code.zip", overwrite=overwrite)
    typer.echo(f"The code of training definition '{found.name}' is in '{file}'.")


def plan_definition(
    definition: DefinitionRef, output: OutputOption = Output.table, server: ServerOption = None
) -> None:
    """Show what would happen if you ran a training definition now. Runs nothing."""
    plan = open_client(server).plan_definition(definition)

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_plan

        return draw_plan(plan)

    write(plan, output, draw)


def change_definition(
    definition: DefinitionRef, name: NewName = None, description: DescriptionOption = None, server: ServerOption = None
) -> None:
    """Change the name or description of a training definition. For other changes, create a new one."""
    check_said("training definition", definition, name, description)
    found = open_client(server).change_definition(definition, name=name, description=description)
    typer.echo(f"Training definition '{found.name}' is changed (version {found.version}).")


def delete_definition(definition: DefinitionRef, server: ServerOption = None) -> None:
    """Delete a training definition that no experiment uses. Its jobs stay."""
    open_client(server).delete_definition(definition)
    typer.echo(f"Training definition '{definition}' is deleted.")


enter(
    definitions,
    (
        Entry(
            "create",
            create_definition,
            "legato definitions create CNN --project Digits --code cnn.zip --command 'train.py' --nodes 1..4",
            short="Create a training definition.",
        ),
        Entry("show", show_definition, "legato definitions show CNN", short="Show a training definition."),
        Entry(
            "code",
            download_definition,
            "legato definitions code CNN --to cnn.zip",
            short="Download the code of a definition.",
        ),
        Entry("plan", plan_definition, "legato definitions plan CNN", short="Show what running it now would do."),
        Entry(
            "change",
            change_definition,
            "legato definitions change CNN --name Old",
            short="Rename or describe a definition.",
        ),
        Entry("delete", delete_definition, "legato definitions delete CNN", short="Delete an unused definition."),
    ),
)


def list_frameworks(output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List frameworks: names for --framework, and the numbers of nodes that each supports."""
    found = open_client(server).frameworks()

    write_list(found, output, FRAMEWORK_COLUMNS)


GROUPS: Final = (projects, definitions)
ENTRIES: Final = (Entry("frameworks", list_frameworks, "legato frameworks"),)


def _read_nodes(nodes: str | None, distributed: str | None, framework: str | None) -> dict[str, Any]:
    """Return the numbers of nodes of a definition; if only one number is given, with the rule for the others."""
    if distributed is not None and distributed not in _KINDS:
        raise UsageError(f"Cannot read '{distributed}' as a distributed type. Write single, static or elastic.")
    low, high, _ = (1, 1, 1) if nodes is None else parse_workers(nodes)
    if distributed is None:
        distributed = "single" if high == 1 else "static" if framework == "command" else "elastic"
    return {
        "distributed": distributed,
        "max_nodes": high,
        "min_nodes": low if distributed == "elastic" else None,
    }
