"""``legato doctor``: examines this machine for training, one sentence for each thing that trainings need."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from legato.cli.entry import Entry
from legato.cli.options import PythonOption

EXIT_FOUND: Final = 1
_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    python: PythonOption = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="NUMBER", envvar="LEGATO_PORT", help="Port of 'legato up'. 0: any."),
    ] = 8765,
) -> None:
    """Examine this machine: Python, torch, GPUs, NCCL, memory, disk, network and ports.

    Changes nothing. The exit code is 1 if something prevents every training, else 0.
    """
    from legato.driver.journal import find_jobs_directory
    from legato.engines.checkup import check_up
    from legato.engines.interpreter import find_python

    executable = Path(sys.executable) if python is None else find_python(python)
    typer.echo("legato: importing torch ...", err=True)
    levels = []
    for subject, level, text in check_up(executable, find_jobs_directory().parent, port):
        typer.echo(f"{typer.style(f'{level:<8}', fg=_COLOURS[level])}{subject}: {text}")
        levels.append(level)
    if "error" in levels:
        raise typer.Exit(EXIT_FOUND)


ENTRIES: Final = (Entry("doctor", doctor, "legato doctor --python ~/envs/vision"),)
