"""The command line: reads what is asked, refuses what cannot be done before anything starts. Thin; decides no more."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core

from legato import __version__
from legato.core.errors import JobNotFound, LegatoError, UsageError
from legato.options import (
    HeartbeatLimit,
    InitialWorkers,
    JobName,
    Keep,
    NumWorkers,
    Output,
    OutputOption,
    Plain,
    Port,
    Start,
    StartOption,
    Threads,
    Worker,
)

if TYPE_CHECKING:
    from legato.core.spec import JobSpec
    from legato.driver.journal import JobDirectory
    from legato.terminal import Screen

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_WATCH_EVERY_S: Final = 1.0


class _Commands(typer.core.TyperGroup):
    """Turns errors into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LegatoError as error:
            typer.echo(f"legato: {error}", err=True)
            raise typer.Exit(EXIT_USAGE if isinstance(error, UsageError) else 1) from error
        except typer.BadParameter as error:
            # Of our readers only: the library's own, such as a missing argument, say more than their message.
            if type(error) is not typer.BadParameter:
                raise
            typer.echo(f"legato: {error.message}", err=True)
            raise typer.Exit(EXIT_USAGE) from error


app = typer.Typer(
    cls=_Commands,
    name="legato",
    help="Elastic training: workers come and go while a program trains, and the result stays the same.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"legato {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[  # noqa: ARG001 -- its callback acts
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="legato: %(message)s")


# ---------------------------------------------------------------- run


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The Python script to train with.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Handed to the script, with or without -- before.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option("--workers", "-w", help="How many: 4, or a range 1..4. [default: one per GPU, or 1]")
    ] = None,
    initial_workers: InitialWorkers = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="The job's name. [default: the script's]")] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="100steps, 2epochs or 60s. [default: at the end and on stop only]")
    ] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Where checkpoints go. [default: the job's directory]")
    ] = None,
    keep: Keep = 3,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Go on from the newest checkpoint. [default: yes, if the last run under this --name did not succeed]",
        ),
    ] = None,
    threads: Threads = 1,
    port: Port = 0,
    heartbeat_limit: HeartbeatLimit = 5.0,
    start: StartOption = Start.fork,
    plain: Plain = False,
) -> None:
    """Train with a program on this machine."""
    from msgspec import structs

    from legato.core.spec import JobSpec, parse_workers
    from legato.driver.journal import JobDirectory
    from legato.engines.gpus import find_devices
    from legato.resuming import is_unfinished

    script = Path(program)
    if not script.is_file():
        what = "it is a directory" if script.is_dir() else "there is no such file"
        raise UsageError(f"Cannot run '{program}': {what}. Name the Python script to train with.")
    handed = list(arguments or ())
    if handed[:1] == ["--"]:
        del handed[0]
    devices = find_devices()
    asked = workers if workers is not None else str(len(devices) or 1)
    min_workers, max_workers, num_workers = parse_workers(asked)
    if initial_workers is not None:
        num_workers = initial_workers
    job = name if name is not None else _free_name(script)
    if heartbeat_limit <= 0:
        raise UsageError(f"--heartbeat-limit {heartbeat_limit:g} is not above 0. Give the seconds of silence allowed.")
    spec = JobSpec(
        name=job,
        program=(str(script.absolute()), *handed),
        directory=str(Path.cwd()),
        min_workers=min_workers,
        max_workers=max_workers,
        num_workers=num_workers,
        num_threads=threads,
        checkpoint_every=checkpoint_every,
        checkpoint_dir=str(Path(checkpoint_dir).absolute()) if checkpoint_dir else None,
        keep=keep,
        resume=bool(resume),
        heartbeat_limit_s=heartbeat_limit,
        heartbeat_interval_s=min(0.25, heartbeat_limit / 4),
    ).validate()
    if devices and max_workers > len(devices):
        raise UsageError(
            f"Cannot run job '{job}' on {max_workers} workers: this machine offers {len(devices)} GPUs. Ask for "
            f"{len(devices)} or fewer, or set LEGATO_DEVICE=cpu to train on the CPU."
        )
    directory = JobDirectory.of(job)
    if resume is None and name is not None and is_unfinished(directory, spec):
        typer.echo(f"legato: job '{job}' goes on from its newest checkpoint; --no-resume starts afresh", err=True)
        spec = structs.replace(spec, resume=True)
    if directory.is_locked():
        raise UsageError(
            f"Cannot run job '{job}': a job of this name is running. Watch it with 'legato attach {job}', stop it with "
            f"'legato stop {job}', or choose another name with --name."
        )
    _check_port(port)
    raise typer.Exit(_drive(directory, spec, devices=devices, port=port, start=start, plain=plain))


@contextlib.contextmanager
def _screen(*, plain: bool = False) -> Iterator[Screen]:
    from legato.terminal import make_screen

    screen = make_screen(sys.stdout, sys.stderr, plain=plain)
    try:
        yield screen
    finally:
        screen.close()


# ---------------------------------------------------------------- jobs that run


def _free_name(script: Path) -> str:
    """Return the script's name as a job's name, with a number appended if it is taken."""
    from legato.driver.journal import JobDirectory
    from legato.resuming import is_of_another_program

    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", script.stem).lstrip("._-")[:55] or "job"
    name, number = stem, 1
    while (taken := JobDirectory.of(name)).is_locked() or is_of_another_program(taken, script):
        number += 1
        name = f"{stem}-{number}"
    return name


def _check_port(port: int) -> None:
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


def _drive(
    directory: JobDirectory,
    spec: JobSpec | None,
    *,
    devices: tuple[str, ...] | None = None,
    port: int = 0,
    start: Start = Start.fork,
    plain: bool = False,
) -> int:
    """Be the driver of a job until it ends; returns the exit code."""
    import asyncio

    from legato.driver.driver import Driver
    from legato.engines.imports import imported_packages
    from legato.engines.local import LocalEngine
    from legato.foreground import Foreground
    from legato.present import Ending, render_summary

    journal = directory.read_journal() if spec is None else None
    job = journal.spec if journal is not None else spec
    engine = LocalEngine(
        directory.path,
        devices,
        environment=job.environment if job is not None else None,
        directory=job.directory if job is not None else None,
        start=start.value,
        wished=imported_packages(Path(job.directory, job.program[0])) if job is not None else (),
    )

    async def drive(foreground: Foreground) -> Ending:
        return await foreground.drive(Driver(spec, engine, directory, observer=foreground, port=port), engine)

    try:
        with _screen(plain=plain) as screen:
            if spec is not None:
                screen.show_message(f"legato: job '{spec.name}' starts; its files: {directory.path}")
            foreground = Foreground(directory, screen)
            ending = asyncio.run(drive(foreground))
    except (asyncio.CancelledError, KeyboardInterrupt):
        name = directory.path.name
        what = "nothing is left running"
        if foreground.left_running:
            what = f"the workers of job '{name}' train on; 'legato attach {name}' takes them over"
        typer.echo(f"legato: interrupted; {what}.", err=True)
        return EXIT_INTERRUPTED
    typer.echo(render_summary(ending), err=ending.outcome == "failed")
    return ending.exit_code


@app.command()
def scale(name: JobName, num_workers: NumWorkers) -> None:
    """Give a running job another number of workers."""
    from legato.core.wire import ScaleRequest
    from legato.driver import client

    reply = client.request(name, ScaleRequest(num_workers=num_workers))
    if reply.error is not None:
        raise UsageError(reply.error)
    there = reply.status.get("num_workers", 0)
    if there == num_workers:
        typer.echo(f"Job '{name}' has {num_workers} workers.")
        return
    typer.echo(f"Job '{name}' goes from {there} to {num_workers} workers while it trains.")


@app.command()
def stop(
    name: JobName,
    now: Annotated[bool, typer.Option("--now", help="Kill the workers at once, without a checkpoint.")] = False,
) -> None:
    """Stop a running job after the current step, with a checkpoint."""
    from legato.core.wire import StopRequest
    from legato.driver import client

    reply = client.request(name, StopRequest(now=now))
    if reply.error is not None:
        raise UsageError(reply.error)
    how = "now" if now else "after the current step, with a checkpoint"
    typer.echo(f"Job '{name}' stops {how}.")


@app.command()
def attach(name: JobName, plain: Plain = False) -> None:
    """Watch a running job until it ends; take it over if its driver has died. Ctrl-C detaches from a watched job."""
    from legato.driver import client
    from legato.driver.journal import JobDirectory
    from legato.resuming import way_on
    from legato.watching import watch

    directory = JobDirectory.of(name)
    if not directory.is_locked():
        journal = directory.read_journal()
        if journal is None:
            client.find_job(name)  # raises, and says which jobs there are
        elif journal.outcome is not None:
            raise JobNotFound(
                f"Cannot attach to job '{name}': it is over ({journal.outcome.outcome}: {journal.outcome.reason}). "
                f"Its logs: 'legato logs {name}'."
            )
        told = f"legato: the driver of job '{name}' is gone; this process takes over. Ctrl-C stops the job."
        typer.echo(told, err=True)
        raise typer.Exit(_drive(directory, None, plain=plain))
    try:
        with _screen(plain=plain) as screen:
            outcome = watch(name, screen)
    except KeyboardInterrupt:
        typer.echo(f"legato: detached; job '{name}' goes on.", err=True)
        raise typer.Exit(0) from None
    if outcome is None:
        raise LegatoError(f"Lost job '{name}': its driver is gone. 'legato attach {name}' takes it over.")
    typer.echo(f"legato: job '{name}' {outcome.outcome}: {outcome.reason}")
    if (again := way_on(directory)) is not None:
        typer.echo(f"go on with: {again}")
    raise typer.Exit(outcome.exit_code)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The job; without it, all jobs.")] = None,
    output: OutputOption = Output.table,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """Show where a job is, or list all jobs of this machine."""
    from legato import watching

    def show() -> bool:
        if name is None:
            _write(watching.statuses(), output)
            return watch
        found = watching.status_of(name)
        _write(found, output)
        return watch and found["state"] != "abandoned" and found.get("outcome") is None

    with contextlib.suppress(KeyboardInterrupt):
        watching.repeat(show, _WATCH_EVERY_S)


def _write(found: dict[str, Any] | list[dict[str, Any]], output: Output) -> None:
    import msgspec
    from rich.console import Console

    from legato.present import render_jobs, render_status

    if output is Output.json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    if found == []:
        typer.echo("No jobs on this machine. Start one with 'legato run'.")
        return
    drawn = render_jobs(found) if isinstance(found, list) else render_status(found)
    console = Console(file=sys.stdout)
    if console.is_terminal:
        console.print(drawn)
        return
    # A pipe has no width: lines that another program reads are neither folded nor filled up.
    console = Console(file=sys.stdout, width=400)
    with console.capture() as capture:
        console.print(drawn)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


@app.command()
def logs(
    name: JobName,
    worker: Worker = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while the job runs.")] = False,
) -> None:
    """Show what the workers of a job wrote."""
    from legato.driver import client
    from legato.driver.journal import JobDirectory
    from legato.watching import read_logs

    directory = JobDirectory.of(name)
    if not directory.logs.is_dir():
        client.find_job(name)  # raises, and says which jobs there are
    with contextlib.suppress(KeyboardInterrupt):
        for number, text in read_logs(directory, worker, follow=follow):
            for line in text.splitlines():
                typer.echo(line if worker is not None else f"{number} | {line}")


def main() -> None:
    """Run the command line."""
    app(prog_name="legato")


if __name__ == "__main__":
    main()
