"""Runs a job in this terminal, as its driver. Decides nothing about the job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from legato.cli.options import Start
from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.cli.terminal.display import Screen
    from legato.clusters.slurm import Allocation, SlurmStarter
    from legato.clusters.ssh import Hosts, SshStarter
    from legato.core.spec import JobSpec
    from legato.driver.journal import JobDirectory
    from legato.engines.agents import AgentsEngine
    from legato.engines.local import LocalEngine
    from legato.system.door import Door

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


def _make_local_engine(
    directory: JobDirectory, job: JobSpec | None, devices: tuple[str, ...] | None, start: Start
) -> LocalEngine:
    from legato.engines.imports import imported_packages
    from legato.engines.local import LocalEngine

    return LocalEngine(
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


def _make_agents_engine(
    directory: JobDirectory, job: JobSpec, machines: Hosts | Allocation, port: int, start: Start
) -> tuple[AgentsEngine, Door, SlurmStarter | SshStarter]:
    from legato.cli.local.hosts import SLURM_FILE
    from legato.clusters import slurm, ssh
    from legato.core.agent_messages import OpenJob
    from legato.engines.agent_node import NodeSpec
    from legato.engines.agents import PATH, AgentsEngine
    from legato.engines.imports import imported_packages
    from legato.system.door import LOOPBACK, Door

    address = LOOPBACK if isinstance(machines, ssh.Hosts) else slurm.find_own_address(machines)
    door = Door(address, port, paths=("/worker", "/client", PATH), is_encrypted=True)
    starter: SlurmStarter | SshStarter
    if isinstance(machines, ssh.Hosts):
        nodes = [NodeSpec(host.node, host.num_slots) for host in machines.hosts]
        starter = ssh.SshStarter(machines, job.name, door, job.python)
    else:
        nodes = [NodeSpec(node, num_slots) for node, num_slots in machines.slots.items()]
        shown = directory.path / SLURM_FILE
        starter = slurm.SlurmStarter(machines, job.name, door, address, job.python, shown)
    opening = OpenJob(
        environment=job.variables,
        directory=job.directory,
        start=start.value,
        wished=imported_packages(Path(job.directory, job.program[0]), python=job.python),
        limits=job.limits,
        python=job.python,
        cpu_capability=job.cpu_capability,
        has_earlier=job.resume,
    )
    engine = AgentsEngine(
        directory.path,
        door,
        nodes,
        opening,
        log_path=directory.log_path,
        checkpoints=Path(job.checkpoint_dir) if job.checkpoint_dir else directory.checkpoints,
        keep=job.keep,
        results=directory.results,
        starter=starter,
        # Before the workers of the machine count as silent one by one.
        silence_limit_s=min(4.0, 0.8 * job.heartbeat_limit_s),
        # Workers without an agent end after away_limit_s, and then save.
        lease_s=job.away_limit_s + job.stop_limit_s,
    )
    return engine, door, starter


def drive(
    directory: JobDirectory,
    spec: JobSpec | None,
    *,
    devices: tuple[str, ...] | None = None,
    port: int = 0,
    start: Start = Start.fork,
    plain: bool = False,
    machines: Hosts | Allocation | None = None,
) -> int:
    """Run the driver of a job until the job ends, and return the exit code.

    Args:
        directory: of the job.
        spec: of a new job. None: adopt an orphaned job.
        devices: of its slots. None: all devices of this machine.
        port: on which to listen; 0 for any free one.
        start: how worker processes are started.
        plain: write plain lines also on a terminal.
        machines: of a new job; None: it trains on this machine. An orphaned job keeps its machines.
    """
    import asyncio

    from legato.cli.local import slurm
    from legato.cli.local.foreground import Foreground
    from legato.cli.local.hosts import read_machines, write_machines
    from legato.cli.terminal.job_view import Ending, render_summary
    from legato.clusters.slurm import Allocation
    from legato.driver.driver import Driver

    if spec is not None and machines is None:
        _check_limits(spec)
    directory.make()
    journal = directory.read_journal() if spec is None else None
    job = journal.spec if journal is not None else spec
    if spec is None:
        machines = slurm.find_again(directory.path.name, read_machines(directory))
    write_machines(directory, machines)
    engine: LocalEngine | AgentsEngine
    door: Door | None = None
    available: Callable[[], Sequence[str]] | None = None
    starter: SlurmStarter | SshStarter | None = None
    if machines is not None and job is not None:
        agents, door, starter = _make_agents_engine(directory, job, machines, port, start)
        engine, available = agents, lambda: agents.slots
    else:
        engine = _make_local_engine(directory, job, devices, start)

    async def conduct(foreground: Foreground) -> Ending:
        driver = Driver(
            spec,
            engine,
            directory,
            observer=foreground,
            available=available,
            port=port,
            door=door,
            # Slurm ended the last driver before it had stopped the job, and starts the job again.
            drops_stop=isinstance(machines, Allocation) and machines.num_restarts > 0,
        )
        return await foreground.drive(driver, engine)

    try:
        with open_screen(plain=plain) as screen:
            if spec is not None:
                screen.show_message(f"legato: job '{spec.name}' starts; its files: {directory.path}")
            watch = slurm.make_watch(starter, machines, directory, screen)
            foreground = Foreground(directory, screen, watch)
            ending = asyncio.run(conduct(foreground))
    except (asyncio.CancelledError, KeyboardInterrupt):
        name = directory.path.name
        what = "nothing is left running"
        if foreground.left_running:
            what = f"the workers of job '{name}' continue to train; to start a new driver: legato attach {name}"
        typer.echo(f"legato: interrupted; {what}.", err=True)
        return EXIT_INTERRUPTED
    typer.echo(render_summary(ending), err=ending.outcome in ("failed", "unsaved"))
    return ending.exit_code if watch is None else watch.conclude(ending)
