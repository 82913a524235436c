"""Runs a job in this terminal, as its driver. Decides nothing about the job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from legato.cli.options import Start
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.cli.terminal.display import Screen
    from legato.core.spec import JobSpec
    from legato.driver.journal import JobDirectory

EXIT_INTERRUPTED: Final = 130


@contextlib.contextmanager
def open_screen(*, plain: bool = False) -> Iterator[Screen]:
    """Open the screen for a job on the standard output, and restore the terminal at the end."""
    from legato.cli.terminal.display import make_screen

    screen = make_screen(sys.stdout, sys.stderr, plain=plain)
    try:
        yield screen
    finally:
        screen.close()


def check_syntax(script: Path) -> None:
    """Raise UsageError if a script is a notebook, or has a syntax error."""
    from legato.system.scripts import find_syntax_error

    if script.suffix == ".ipynb":
        raise UsageError(
            f"Cannot run '{script}': it is a notebook. Make a script of it: jupyter nbconvert --to script '{script}'"
        )
    error = find_syntax_error(script)
    if error is not None:
        raise UsageError(f"Cannot run '{script}': it has a syntax error.\n{error}")


def check_port(port: int) -> None:
    """Raise UsageError unless a process can listen on a port."""
    import socket

    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"Cannot listen on port {port}: {error.strerror}. Choose another port, or 0 for any free one."
            ) from error


def _check_limits(spec: JobSpec) -> None:
    """Raise UsageError if this machine cannot enforce the limits of a job."""
    from legato.engines.cgroups import find_support, prepare_server

    if spec.limits.is_empty:
        return
    prepare_server()
    why_not = find_support().check(spec.limits)
    if why_not is not None:
        raise UsageError(f"Cannot run job '{spec.name}': {why_not}. Or leave --memory and --cpus out.")


def drive(
    directory: JobDirectory,
    spec: JobSpec | None,
    *,
    devices: tuple[str, ...] | None = None,
    port: int = 0,
    start: Start = Start.fork,
    plain: bool = False,
) -> int:
    """Run the driver of a job until the job ends, and return the exit code.

    Args:
        directory: of the job.
        spec: of a new job. None: adopt an orphaned job.
        devices: of its slots. None: all devices of this machine.
        port: on which to listen; 0 for any free one.
        start: how worker processes are started.
        plain: write plain lines also on a terminal.
    """
    import asyncio

    from legato.cli.local.foreground import Foreground
    from legato.cli.terminal.job_view import Ending, render_summary
    from legato.driver.driver import Driver
    from legato.engines.imports import imported_packages
    from legato.engines.local import LocalEngine

    if spec is not None:
        _check_limits(spec)
    directory.make()
    journal = directory.read_journal() if spec is None else None
    job = journal.spec if journal is not None else spec
    engine = LocalEngine(
        directory.path,
        devices,
        environment=job.variables if job is not None else None,
        directory=job.directory if job is not None else None,
        start=start.value,
        limits=job.limits if job is not None else None,
        wished=imported_packages(Path(job.directory, job.program[0]), python=job.python) if job is not None else (),
        python=job.python if job is not None else None,
        cpu_capability=job.cpu_capability if job is not None else None,
    )

    async def conduct(foreground: Foreground) -> Ending:
        return await foreground.drive(Driver(spec, engine, directory, observer=foreground, port=port), engine)

    try:
        with open_screen(plain=plain) as screen:
            if spec is not None:
                screen.show_message(f"legato: job '{spec.name}' starts; its files: {directory.path}")
            foreground = Foreground(directory, screen)
            ending = asyncio.run(conduct(foreground))
    except (asyncio.CancelledError, KeyboardInterrupt):
        name = directory.path.name
        what = "nothing is left running"
        if foreground.left_running:
            what = f"the workers of job '{name}' continue to train; to start a new driver: legato attach {name}"
        typer.echo(f"legato: interrupted; {what}.", err=True)
        return EXIT_INTERRUPTED
    typer.echo(render_summary(ending), err=ending.outcome in ("failed", "unsaved"))
    return ending.exit_code
