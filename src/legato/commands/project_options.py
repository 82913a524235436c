"""What commands on projects, training definitions and experiments share: their arguments and options."""

from __future__ import annotations

from typing import Annotated

import typer

from legato.commands.completing import complete_definitions, complete_experiments, complete_projects
from legato.core.errors import UsageError

Title = Annotated[str, typer.Argument(metavar="NAME", help="One line; quote what has spaces.")]
ProjectRef = Annotated[str, typer.Argument(metavar="PROJECT", help="Its name or id.", autocompletion=complete_projects)]
DefinitionRef = Annotated[
    str, typer.Argument(metavar="DEFINITION", help="Its name or id.", autocompletion=complete_definitions)
]
ExperimentRef = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Its name or id.", autocompletion=complete_experiments)
]
InProject = Annotated[
    str,
    typer.Option("--project", metavar="PROJECT", help="In which project.", autocompletion=complete_projects),
]
NewName = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="Another name.")]
DescriptionOption = Annotated[str | None, typer.Option(metavar="TEXT", help="For people.")]
MemberOption = Annotated[
    list[str] | None, typer.Option("--member", metavar="USER", help="Who works in it; all of them, each by itself.")
]
DefinitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--definition",
        "-d",
        metavar="DEFINITION",
        help="One of its training definitions; may be repeated.",
        autocompletion=complete_definitions,
    ),
]
ArgumentsOption = Annotated[
    str | None, typer.Option(metavar="LINE", help="Handed to each program behind its own arguments.")
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", metavar="[MIN..]MAX", help="How many slots: at most 4, or a range 1..4.")
]


def check_said(what: str, name: str, *said: object) -> None:
    """Raise UsageError if a change says nothing: all of it is None."""
    if all(value is None for value in said):
        raise UsageError(f"Cannot change {what} '{name}': nothing is said. See its --help for what can be changed.")
