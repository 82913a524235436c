"""The common arguments and options of commands on projects, training definitions and experiments."""

from __future__ import annotations

from typing import Annotated

import typer

from legato.cli.platform.completion import complete_definitions, complete_experiments, complete_projects
from legato.core.errors import UsageError

Title = Annotated[str, typer.Argument(metavar="NAME", help="Name, one line. Quote it if it contains spaces.")]
ProjectRef = Annotated[
    str, typer.Argument(metavar="PROJECT", help="Name or id of the project.", autocompletion=complete_projects)
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
    typer.Option("--project", metavar="PROJECT", help="Project.", autocompletion=complete_projects),
]
NewName = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="New name.")]
DescriptionOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Description.")]
MemberOption = Annotated[
    list[str] | None,
    typer.Option("--member", metavar="USER", help="A member. Repeat it for each; the list replaces the old one."),
]
DefinitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--definition",
        "-d",
        metavar="DEFINITION",
        help="A training definition of the experiment. Repeatable.",
        autocompletion=complete_definitions,
    ),
]
ArgumentsOption = Annotated[
    str | None, typer.Option(metavar="LINE", help="Arguments that are appended to those of each program.")
]
NodesOption = Annotated[
    str | None,
    typer.Option("--nodes", metavar="[MIN..]MAX", help="Number of workers: a maximum such as 4, or a range 1..4."),
]


def check_said(what: str, name: str, *said: object) -> None:
    """Raise UsageError if a change has no value: all fields are None."""
    if all(value is None for value in said):
        raise UsageError(f"Cannot change {what} '{name}': no change is given. See --help for the options.")
