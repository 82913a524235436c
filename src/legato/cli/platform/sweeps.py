"""Commands on sweeps: start one from a file and watch it, list, show, stop, and show or save the best trial."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.platform.connecting import open_client
from legato.cli.platform.job_specs import check_fields, naming_file, read_described, read_yaml
from legato.cli.platform.options import OutputOption, ServerOption
from legato.cli.terminal.columns import SWEEP_COLUMNS, trial_columns
from legato.cli.terminal.output import Output, make_table, watch, write, write_list
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.api.sweeps import Sweep, Trial
    from legato.cli.terminal.table import Table
    from legato.client.client import Client
    from legato.client.sweeps import SweepOptions

SweepRef = Annotated[str, typer.Argument(metavar="SWEEP", help="Id or name of the sweep.")]

_BOUNDS: Final = ("low", "high", "step")
_EXPONENT: Final = re.compile(r"[-+]?[0-9]{1,20}(\.[0-9]{0,20})?[eE][-+]?[0-9]{1,3}")
"""A number that YAML takes as a text, because it has no point, or no sign after the e."""


def sweep(
    file: Annotated[str, typer.Argument(metavar="FILE.yaml", help="A YAML file that describes the sweep.")],
    key: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Idempotency key: repeating the command with it starts no second sweep."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once instead of watching the sweep.")
    ] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Start a sweep, many trials of one program with other parameters, and watch it. Ctrl-C stops watching."""
    path = Path(file)
    fields = read_yaml(path, "start sweep")
    name, job, options = _read_sweep(path, fields)
    wanted = read_described(path, job)
    client = open_client(server)
    with naming_file(file):
        made = client.start_sweep(
            name,
            wanted.program,
            *wanted.arguments,
            code=wanted.code,
            directory=wanted.directory,
            key=key,
            **cast("SweepOptions", {**options, "job": wanted.options}),
        )
    if not output.is_for_people:
        write(made, output, str)
        return
    follows = f"To watch it: legato sweeps show {made.id} --watch." if detach else "Ctrl-C stops watching."
    typer.echo(f"legato: sweep '{made.name}' is started as {made.id}. {follows}")
    if not detach:
        raise typer.Exit(_follow(made.id, server))


def _read_sweep(file: Path, fields: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the name of a sweep, the fields of its job, and its other fields. The server checks the values."""
    from legato.client.submission import JobOptions
    from legato.client.sweeps import SweepOptions

    check_fields(file, "a sweep", fields, ("name", *SweepOptions.__annotations__))
    for field in ("name", "metric", "points" if "points" in fields else "parameters", "job"):
        if field not in fields:
            raise UsageError(
                f"Cannot read '{file}': the field '{field}' is missing. See docs/sweeps.md for the format."
            )
    options = dict(fields)
    name, job = options.pop("name"), options.pop("job")
    if not isinstance(name, str):
        raise UsageError(f"Cannot read 'name' in '{file}': it must be a text, such as 'digits'.")
    if not isinstance(job, dict):
        raise UsageError(f"Cannot read 'job' in '{file}': it must be a list of 'field: value', with the program.")
    known = ("program", "code", "directory", "workers", *(one for one in JobOptions.__annotations__ if one != "name"))
    check_fields(file, "the job of a sweep", job, known)
    parameters = options.get("parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(one, dict) for one in parameters.values()):
        raise UsageError(
            f"Cannot read 'parameters' in '{file}': each needs a line such as 'lr: {{low: 0.001, high: 0.1}}' or "
            "'optimizer: {values: [sgd, adam]}'."
        )
    options["parameters"] = {str(name): _read_bounds(one) for name, one in parameters.items()}
    points = options.get("points", [])
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise UsageError(f"Cannot read 'points' in '{file}': it must be a list of points, such as '- {{lr: 0.1}}'.")
    if points:
        options["points"] = [{str(name): _as_number(value) for name, value in point.items()} for point in points]
    return name, job, options


def _read_bounds(tunable: dict[str, Any]) -> dict[str, Any]:
    """Return a range or list in which texts like ``1e-3`` are numbers, as YAML has it: there it is a text.

    A list of which all are such texts or numbers has numbers; in any other list, texts stay texts.
    """
    found = {field: _as_number(value) if field in _BOUNDS else value for field, value in tunable.items()}
    values = found.get("values")
    if isinstance(values, list):
        numbers = [_as_number(value) for value in values]
        if not any(isinstance(number, str) for number in numbers):
            found["values"] = numbers
    return found


def _as_number(value: Any) -> Any:
    """Return a text such as ``1e-3`` as a number; other values, and texts such as ``'64'``, which YAML quotes, stay."""
    if not isinstance(value, str) or _EXPONENT.fullmatch(value) is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else value


def _look(client: Client, ref: str, *, is_wide: bool) -> tuple[Sweep, list[Trial], Table[Trial]]:
    found = client.sweep(ref)
    trials = list(client.trials(found.id))
    return found, trials, make_table(trial_columns(found), trials, is_wide=is_wide, below=_describe(found))


def _describe(found: Sweep) -> str:
    states = ", ".join(f"{number} {state}" for state, number in found.trials.items()) or "no trial yet"
    best = "" if found.best is None else f" Best: trial {found.best} (*)."
    return f"{found.name}: {found.stage}, {found.reason.removesuffix('.')}. {states} of {found.num_trials}.{best}"


def _follow(ref: str, server: str | None) -> int:
    """Show a sweep until it ends, and return the exit code; 0 if the user stops watching."""
    last = _watch(open_client(server, is_watching=True), ref, Output.table, again=True)
    if not last or last[0].stage == "running":
        typer.echo(
            f"legato: detached; the sweep goes on. To watch it again: legato sweeps show {ref} --watch. To stop it: "
            f"legato sweeps stop {ref}.",
            err=True,
        )
        return 0
    found = last[0]
    typer.echo(f"legato: sweep '{found.name}' {found.stage}: {found.reason}", err=found.stage != "succeeded")
    if found.best is not None:
        typer.echo(f"legato: to see the best trial, and to save it: legato sweeps best {found.id}")
    return _exit_code(found)


def _watch(client: Client, ref: str, output: Output, *, again: bool) -> list[Sweep]:
    """Show a sweep once or until it ends, and return it as it was shown last; empty: it was not shown."""
    last: list[Sweep] = []

    def look() -> tuple[Any, Any, bool]:
        found, trials, drawn = _look(client, ref, is_wide=output is Output.wide)
        last[:] = [found]
        return trials, drawn, found.stage == "running"

    watch(look, output, again=again)
    return last


def _exit_code(found: Sweep) -> int:
    return 0 if found.stage in ("running", "succeeded") else 1


sweeps = make_group("sweeps", "legato sweeps")


@sweeps.callback(invoke_without_command=True)
def list_sweeps(context: typer.Context, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List sweeps, the newest first. More: show, stop, best."""
    if context.invoked_subcommand is not None:
        return
    found = open_client(server).sweeps(limit=None)
    write_list(found, output, SWEEP_COLUMNS, "There are none. To start one: legato sweep FILE.yaml")


def show_sweep(
    sweep: SweepRef,
    again: Annotated[bool, typer.Option("--watch", "-w", help="Repeat every second until the sweep ends.")] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show the trials of a sweep: their parameters, their metric, and what became of them."""
    last = _watch(open_client(server, is_watching=again), sweep, output, again=again)
    if again and last:
        raise typer.Exit(_exit_code(last[0]))


def stop_sweep(sweep: SweepRef, server: ServerOption = None) -> None:
    """Stop a sweep and the jobs of its trials, each with a checkpoint."""
    found = open_client(server).stop_sweep(sweep)
    typer.echo(f"Sweep '{found.name}' is stopped. Its jobs end after their present steps, with checkpoints.")


def show_best(
    sweep: SweepRef,
    save_as: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create a training definition of this name from the best trial.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", "-p", metavar="PROJECT", help="Project of the training definition.")
    ] = None,
    with_environment: Annotated[
        bool,
        typer.Option(
            "--with-environment", help="Save the variables of 'environment' too; all who see the project see them."
        ),
    ] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show the best trial of a sweep; with --save-as, save it as a training definition."""
    from legato.client.sweeps import list_unsaved

    if (save_as is None) != (project is None):
        raise UsageError("Cannot save the best trial: give both --save-as and --project. 'legato projects' lists them.")
    client = open_client(server)
    if save_as is not None and project is not None:
        made = client.save_best(sweep, project, save_as, with_environment=with_environment)
        write(made, output, lambda: f"Training definition '{made.name}' is created: {made.id}")
        if unsaved := list_unsaved(client.sweep(sweep), with_environment=with_environment):
            hint = " To save the environment too: --with-environment." if "environment" in unsaved else ""
            typer.echo(
                f"legato: fields of the sweep's jobs that it does not have: {', '.join(unsaved)}.{hint}", err=True
            )
        return
    found, best = client.sweep(sweep), client.best_trial(sweep)

    def draw() -> str:
        lines = [f"trial {best.number} ({best.job}): {found.metric.name} {best.value:.6g}"]
        lines += [f"  {name}: {value}" for name, value in best.parameters.items()]
        lines.append(
            f"To run it again: legato clone {best.job}. To save it: legato sweeps best {found.id} --save-as NAME "
            "--project PROJECT"
        )
        return "\n".join(lines)

    write(best, output, draw)


enter(
    sweeps,
    (
        Entry("show", show_sweep, "legato sweeps show digits --watch", short="Show the trials of a sweep."),
        Entry("stop", stop_sweep, "legato sweeps stop digits", short="Stop a sweep and its jobs."),
        Entry(
            "best",
            show_best,
            "legato sweeps best digits --save-as Best --project Digits",
            short="Show or save the best trial.",
        ),
    ),
)

GROUPS: Final = (sweeps,)
ENTRIES: Final = (Entry("sweep", sweep, "legato sweep sweep.yaml"),)
