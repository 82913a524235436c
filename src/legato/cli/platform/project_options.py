"""The common arguments and options of commands on projects, training definitions and experiments."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from legato.cli.platform.completion import complete_definitions, complete_experiments, complete_projects
from legato.core.errors import UsageError

Title = Annotated[str, typer.Argument(metavar="NAME", help="Name, one line. Quote it if it contains spaces.")]
ProjectRef = Annotated[
    str, typer.Argument(metavar="PROJECT", help="Name or id of the project.", autocompletion=complete_projects)
]
RequestRef = Annotated[
    str, typer.Argument(metavar="REQUEST", help="Id of the request, from 'legato projects requests'.")
]
DefinitionRef = Annotated[
    str,
    typer.Argument(
        metavar="DEFINITION", help="Name or id of the training definition.", autocompletion=complete_definitions
    ),
]
ExperimentRef = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Name or id of the experiment.", autocompletion=complete_experiments)
]
InProject = Annotated[
    str,
    typer.Option("--project", metavar="PROJECT", help="Name or id of the project.", autocompletion=complete_projects),
]
NewName = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="New name.")]
DescriptionOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Description.")]
MemberOption = Annotated[
    list[str] | None,
    typer.Option("--member", metavar="USER", help="A member; repeatable. The new list replaces the old one."),
]


def definitions_option(text: str) -> Any:
    """Return the option ``--definition`` with a help text."""
    return typer.Option("--definition", "-d", metavar="DEFINITION", help=text, autocompletion=complete_definitions)


DefinitionsOption = Annotated[list[str] | None, definitions_option("A training definition. Repeatable.")]
ArgumentsOption = Annotated[
    str | None, typer.Option(metavar="LINE", help="Arguments to append to those of each program.")
]
NodesOption = Annotated[
    str | None,
    typer.Option("--nodes", metavar="[MIN..]MAX", help="Number of workers: a maximum such as 4, or a range 1..4."),
]


def check_said(what: str, name: str, *said: object) -> None:
    """Raise UsageError if a change has no value: all fields are None."""
    if all(value is None for value in said):
        raise UsageError(f"Cannot change {what} '{name}': no change is given. See --help for the options.")
