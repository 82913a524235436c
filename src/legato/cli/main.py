"""The command line: reads commands, and refuses invalid ones before anything starts. It decides nothing else."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.core

from legato.cli.entry import load_command
from legato.cli.local import run as driving
from legato.cli.options import (
    CollectiveLimit,
    CpuCapability,
    CpusOption,
    GpusPerWorker,
    GuestOption,
    HeartbeatLimit,
    InitialWorkers,
    Keep,
    MemoryOption,
    Plain,
    Port,
    PythonOption,
    Start,
    StartOption,
    Threads,
)
from legato.cli.plain_values import read_plainly
from legato.cli.platform.connecting import close_lines, describe_jobs_without_server
from legato.core.errors import LegatoError, UsageError
from legato.core.invalid_values import describe_value
from legato.core.spelling import ask_whether
from legato.core.version import __version__

if TYPE_CHECKING:
    from legato.clusters.slurm import Allocation
    from legato.clusters.ssh import Hosts

EXIT_USAGE: Final = 2

# The modules of the commands with their descriptions, in the order of the list: a module is loaded only when one of its
# commands is called.
MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "legato.cli.platform.either": {
        "status": "Show a job's progress, or all jobs of this machine.",
        "attach": "Watch a job until it ends.",
        "logs": "Show the logs of a job's workers.",
        "scale": "Change a job's number of workers.",
        "stop": "Stop a job, with a checkpoint.",
    },
    "legato.cli.platform.submit": {
        "submit": "Submit a job to the platform.",
        "plan": "Show what a submission would do.",
        "clone": "Submit a copy of a job.",
    },
    "legato.cli.platform.jobs": {
        "ps": "List the platform's jobs.",
        "show": "Show all details of a job.",
        "explain": "Explain why a job has its GPUs.",
        "set": "Change priority, queue, bounds, labels, notes.",
        "pause": "Save a job's state and free its GPUs.",
        "resume": "Resume a paused job.",
        "wait": "Wait until a job has ended.",
    },
    "legato.cli.platform.job_outputs": {
        "events": "Show what happened, and why.",
        "attempts": "List the attempts of a job.",
        "metrics": "Show the metrics of a job.",
        "download": "Download files of a job.",
    },
    "legato.cli.platform.top": {
        "top": "Watch the pool live.",
    },
    "legato.cli.platform.projects": {
        "projects": "List and change projects.",
        "definitions": "List and create training definitions.",
        "frameworks": "List frameworks that can run programs.",
    },
    "legato.cli.platform.experiments": {
        "experiments": "List, create and run experiments.",
    },
    "legato.cli.platform.sweeps": {
        "sweep": "Search for the best parameters of a program.",
        "sweeps": "List, show and stop sweeps.",
    },
    "legato.cli.platform.webhooks": {
        "webhooks": "Send news of jobs to other servers.",
    },
    "legato.cli.platform.agent": {
        "agent": "Make this machine a node of a pool.",
    },
    "legato.cli.platform.nodes": {
        "nodes": "List and change nodes.",
    },
    "legato.cli.platform.clusters": {
        "clusters": "List and test Slurm and Kubernetes.",
    },
    "legato.cli.platform.pool": {
        "pool": "Show the pool in numbers.",
        "slots": "List the slots and their jobs.",
        "usage": "Show GPU hours by user and queue.",
        "queues": "List and change queues.",
    },
    "legato.cli.platform.sharing": {
        "shares": "Show the fair shares of queues.",
        "moves": "Show which jobs got and gave up GPUs.",
        "timeline": "Show GPUs held over time.",
    },
    "legato.cli.platform.login": {
        "login": "Log in to a platform.",
        "logout": "Log out of a platform.",
    },
    "legato.cli.platform.console": {
        "console": "Open the web console in a browser.",
    },
    "legato.cli.platform.people": {
        "users": "List and change users.",
        "tokens": "List, add and revoke tokens.",
        "audit": "List the audit log.",
    },
    "legato.cli.platform.server": {
        "up": "Run a platform on this machine.",
        "server": "Run one of several servers; back up, restore or upgrade a platform.",
        "config": "Show settings and known platforms.",
    },
    "legato.cli.platform.simulate": {
        "simulate": "Simulate a workload under the policies.",
    },
    "legato.cli.local.verify": {
        "verify": "Check whether a program's result depends on its workers.",
    },
    "legato.cli.local.doctor": {
        "doctor": "Examine this machine for training.",
    },
}


_OTHER_WAYS = {
    "down": " To stop the platform, press Ctrl-C where 'legato up' runs; its jobs keep running.",
}
"""What to do instead of commands that other programs have."""


class _Commands(typer.core.TyperGroup):
    """Loads a command when it is called; turns errors into one line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Only now: typer adds its options for completion last.
        read_plainly(self)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for names in MODULES.values() for name in names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for module, names in MODULES.items():
            if cmd_name in names:
                return load_command(module, cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without loading them."""
        own = {name: super(_Commands, self).get_command(ctx, name) for name in super().list_commands(ctx)}
        rows = [(name, command.get_short_help_str()) for name, command in own.items() if command is not None]
        rows += [(name, short) for commands in MODULES.values() for name, short in commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in (known := self.list_commands(ctx)):
            raise UsageError(
                f"There is no command '{args[0]}'.{_OTHER_WAYS.get(args[0]) or ask_whether(args[0], known)} "
                "'legato --help' lists all."
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LegatoError as error:
            typer.echo(f"legato: {_rephrase(str(error))}{describe_jobs_without_server(error)}", err=True)
            raise typer.Exit(EXIT_USAGE if isinstance(error, UsageError) else 1) from error
        except OSError as error:
            from legato.driver.journal import explain_home_error

            text = explain_home_error(error)
            if text is None:
                raise
            typer.echo(f"legato: {text}", err=True)
            raise typer.Exit(EXIT_USAGE) from error
        except typer.BadParameter as error:
            # Only for errors of Legato's readers: those of the library, such as a missing argument, have more than a
            # message.
            if type(error) is not typer.BadParameter:
                raise
            typer.echo(f"legato: {_describe_refusal(error)}", err=True)
            raise typer.Exit(EXIT_USAGE) from error
        finally:
            close_lines()


_OPTIONS_OF_FIELDS: Final[Mapping[str, str]] = {
    **{field: f"--{field.replace('_', '-')}" for field in ("min_workers", "max_workers", "priority", "seed", "keep")},
    **{field: f"--{field.replace('_', '-')}" for field in ("checkpoint_every", "weight", "floor", "ceiling")},
    "num_workers": "--initial-workers",
    "num_threads": "--threads",
    "num_cpus": "--cpus",
    "num_micro_batches": "--micro-batches",
    "memory_bytes": "--memory",
    "max_retries": "--retries",
    "max_run_s": "--max-time",
    "heartbeat_limit_s": "--heartbeat-limit",
    "collective_limit_s": "--collective-limit",
    "on": "--on",
    "below_workers": "--below",
    "waiting_s": "--waiting",
}
"""The options that set the fields of a job, a queue or a webhook."""


def _rephrase(text: str) -> str:
    """Replace fields by the options that set them, because commands have no fields; remove numbers of system errors.

    >>> _rephrase("Cannot run job 'a': num_threads=0 is below 1.")
    "Cannot run job 'a': --threads 0 is below 1."
    >>> _rephrase("Cannot change a webhook that is never called. Give on=ended or below_workers=NUMBER.")
    'Cannot change a webhook that is never called. Give --on ended or --below NUMBER.'
    >>> _rephrase("Cannot read 'a': [Errno 13] Permission denied: '/a'.")
    "Cannot read 'a': Permission denied: '/a'."
    """
    fields = "|".join(_OPTIONS_OF_FIELDS)
    text = re.sub(r"\[Errno -?\d+\] ", "", text)
    return re.sub(rf"(?<= )({fields})=", lambda found: f"{_OPTIONS_OF_FIELDS[found[1]]} ", text)


def _describe_refusal(error: typer.BadParameter) -> str:
    """Print which value cannot be read; the library's readers name neither the option nor a valid value."""
    if error.message.startswith("Cannot ") or error.param is None:
        return error.message
    name = error.param.opts[0] if error.param.opts[0].startswith("-") else (error.param.metavar or error.param.name)
    return f"Cannot read {name}: {describe_value('it', error.message.rstrip('.'))}."


app = typer.Typer(
    cls=_Commands,
    name="legato",
    help="Elastic training: workers join and leave while a program trains, and the result stays the same.",
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


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example:  legato run --workers 1..4 --name digits train.py -- --epochs 20",
)
def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The Python script to train with.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Arguments of the script. '--' before them is optional."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            "-w",
            help="Number of workers: a maximum such as 4, or a range 1..4. [default: one per slot: per GPU, or 1]",
        ),
    ] = None,
    initial_workers: InitialWorkers = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Name of the job. [default: the script's name]")
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(help="How often to save: 100steps, 2epochs or 60s. [default: only at the end and on stop]"),
    ] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="Directory for checkpoints. [default: the job's directory]")
    ] = None,
    keep: Keep = 3,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Resume from the newest checkpoint. [default: yes, if the last job with this --name did not succeed]",
        ),
    ] = None,
    threads: Threads = 1,
    gpus_per_worker: GpusPerWorker = None,
    cpu_capability: CpuCapability = None,
    python: PythonOption = None,
    port: Port = 0,
    heartbeat_limit: HeartbeatLimit = 5.0,
    collective_limit: CollectiveLimit = 1800.0,
    memory: MemoryOption = None,
    cpus: CpusOption = None,
    start: StartOption = Start.fork,
    guest: GuestOption = None,
    plain: Plain = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="HOST[:SLOTS],...",
            help="Machines on which to train, as ssh knows them, such as a,b:4. [default: this machine]",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="NETWORK",
            help="Network in which workers of several machines connect, such as 10.0.0.0/24. "
            "[default: as ssh connects; the names of Slurm's nodes]",
        ),
    ] = None,
    slurm: Annotated[
        bool | None,
        typer.Option(
            "--slurm/--no-slurm",
            help="Train on all nodes of the allocation of Slurm. [default: yes, inside an allocation]",
        ),
    ] = None,
) -> None:
    """Train with a program, on this machine or on several."""
    from msgspec import structs

    from legato.cli.local import slurm as slurm_jobs
    from legato.cli.local.resuming import is_unfinished, keep_settings
    from legato.clusters.slurm import Allocation, is_inside
    from legato.core.limits import read_size
    from legato.core.spec import JobSpec, parse_guest, parse_workers
    from legato.driver.journal import JobDirectory
    from legato.engines.gpus import find_devices

    script = Path(program)
    if not script.is_file():
        what = "it is a directory" if script.is_dir() else "there is no such file"
        raise UsageError(f"Cannot run '{program}': {what}. Name the Python script to train with.")
    driving.check_syntax(script)
    handed = list(arguments or ())
    if handed[:1] == ["--"]:
        del handed[0]
    each = gpus_per_worker or 1
    if slurm is None:
        slurm = hosts is None and guest is None and is_inside()
    machines, workers = _find_machines(hosts, network, workers, each, is_in_slurm=slurm)
    allocation = machines if isinstance(machines, Allocation) else None
    devices = find_devices() if machines is None else ()
    asked = workers if workers is not None else str(len(devices) // each or 1)
    min_workers, max_workers, num_workers = parse_workers(asked)
    if initial_workers is not None:
        num_workers = initial_workers
    job = name if name is not None else _free_name(script, allocation)
    _check_limits(heartbeat_limit, collective_limit)
    spec = JobSpec(
        name=job,
        program=(str(script.absolute()), *handed),
        directory=str(Path.cwd()),
        min_workers=min_workers,
        max_workers=max_workers,
        num_workers=num_workers,
        gpus_per_worker=each,
        num_threads=threads,
        cpu_capability=cpu_capability,
        python=None if python is None else _find_python(python, is_remote=machines is not None),
        checkpoint_every=checkpoint_every,
        checkpoint_dir=str(Path(checkpoint_dir).absolute()) if checkpoint_dir else None,
        keep=keep,
        resume=bool(resume),
        heartbeat_limit_s=heartbeat_limit,
        collective_limit_s=collective_limit,
        memory_bytes=None if memory is None else read_size(memory, "the memory"),
        num_cpus=cpus,
        heartbeat_interval_s=min(0.25, heartbeat_limit / 4),
        guest=parse_guest(guest) if guest is not None else None,
    ).validate()
    if machines is None:
        _check_devices(job, devices, each, max_workers)
    elif guest is not None:
        option = "--hosts" if allocation is None else "--slurm"
        raise UsageError(
            f"Cannot run with --guest and {option}: plugins run on one machine only. Leave one of them out."
        )
    directory = JobDirectory.of(job)
    if allocation is not None:
        slurm_jobs.prepare(directory, allocation)
    if directory.is_locked():
        raise UsageError(
            f"Cannot run job '{job}': a job of this name is running. Watch it with 'legato attach {job}', stop it with "
            f"'legato stop {job}', or choose another name with --name."
        )
    # In an allocation, a name that the user did not give has the number of the job of Slurm.
    is_named = name is not None or allocation is not None
    if resume is None and is_named and is_unfinished(directory, spec):
        typer.echo(f"legato: job '{job}' resumes where it ended; --no-resume starts from scratch", err=True)
        spec = structs.replace(spec, resume=True)
    if spec.resume:
        spec = keep_settings(directory, spec)
    driving.check_port(port)
    raise typer.Exit(
        driving.drive(directory, spec, devices=devices, port=port, start=start, plain=plain, machines=machines)
    )


def _check_limits(heartbeat_limit: float, collective_limit: float) -> None:
    """Raise UsageError if a limit is not above 0."""
    if heartbeat_limit <= 0:
        raise UsageError(f"--heartbeat-limit {heartbeat_limit:g} is not above 0. Give the seconds of silence allowed.")
    if collective_limit <= 0:
        raise UsageError(f"--collective-limit {collective_limit:g} is not above 0. Give a number of seconds.")


def _check_devices(job: str, devices: tuple[str, ...], each: int, max_workers: int) -> None:
    """Raise UsageError if this machine has too few GPUs for a job."""
    from legato.engines.gpus import check_several

    check_several((devices or ("cpu",) * each)[:each], f"Cannot run job '{job}'")
    if devices and len(devices) < each:
        raise UsageError(
            f"Cannot run job '{job}' with {each} GPUs per worker: this machine offers {len(devices)}. Ask for fewer."
        )
    if devices and max_workers * each > len(devices):
        told = "" if each == 1 else f" with {each} GPUs each"
        raise UsageError(
            f"Cannot run job '{job}' on {max_workers} workers{told}: this machine offers {len(devices)} GPUs. Ask for "
            f"{len(devices) // each} or fewer, let workers share a GPU by naming it more than once "
            "(LEGATO_DEVICE=cuda:0,cuda:0), or set LEGATO_DEVICE=cpu to train on the CPU."
        )


def _find_python(given: str, *, is_remote: bool) -> str:
    """Return the interpreter of the workers; a path of other machines is not looked for on this one."""
    from legato.engines.interpreter import find_python

    if not is_remote:
        return str(find_python(str(Path(given).expanduser())))
    if not Path(given).is_absolute():
        raise UsageError(
            f"Cannot use --python {given} on several machines: give the whole path of the executable there."
        )
    return given


def _find_machines(
    hosts: str | None, network: str | None, workers: str | None, each: int, *, is_in_slurm: bool
) -> tuple[Hosts | Allocation | None, str | None]:
    """Return the machines of a job, and its number of workers as it is typed: by default one for each slot."""
    from legato.clusters import slurm, ssh
    from legato.clusters.base import check_network

    checked = None if network is None else check_network(network)
    if is_in_slurm:
        if hosts is not None:
            raise UsageError("Cannot use --hosts and --slurm together. Leave one of them out.")
        allocation = slurm.find_allocation(checked)
        slots = list(allocation.slots.values())
        return allocation, _check_places(slots, workers, each, f"job {allocation.job} of Slurm")
    if hosts is None:
        if network is not None:
            raise UsageError("Cannot use --network without --hosts, which names the machines, or --slurm.")
        return None, workers
    ssh.check_ssh()
    found = ssh.Hosts(ssh.parse_hosts(hosts), checked)
    # A machine says how many slots it has when its agent has connected.
    slots = [ssh.MAX_SLOTS if host.num_slots is None else host.num_slots for host in found.hosts]
    remedy = ", or give the hosts more slots, such as a:4"
    return found, _check_places(slots, workers, each, f"--hosts {hosts}", remedy)


def _check_places(slots: Sequence[int], workers: str | None, each: int, where: str, remedy: str = "") -> str:
    """Return the number of workers as it is typed: by default as many as the slots of the machines are enough for.

    Args:
        slots: of each machine.
        workers: as the user typed it.
        each: slots of a worker.
        where: the machines, in an error.
        remedy: what else the user can do if there are too few slots.

    Raises:
        UsageError: the slots are not enough.
    """
    from legato.core.spec import parse_workers

    places = sum(count // each for count in slots)
    if places == 0:
        raise UsageError(f"Cannot give a worker {each} GPUs: no host of {where} has so many slots.")
    if workers is None:
        return str(places)
    most = parse_workers(workers)[1]
    if most > places:
        raise UsageError(
            f"Cannot run {most} workers on {where}: its slots are enough for {places}. Ask for {places} or "
            f"fewer{remedy}."
        )
    return workers


def _free_name(script: Path, allocation: Allocation | None = None) -> str:
    """Return the script's name as a job's name, with a number appended if it is taken.

    In an allocation, the name has its number. If Slurm starts the allocation again, a driver that still has the name is
    the last one, and is about to end.
    """
    from legato.cli.local.resuming import is_of_another_program
    from legato.driver.journal import JobDirectory

    suffix = "" if allocation is None else f"-{allocation.job}"
    is_again = allocation is not None and allocation.num_restarts > 0
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", script.stem).lstrip("._-")[: 55 - len(suffix)] or "job"
    stem += suffix
    name, number = stem, 1
    while ((taken := JobDirectory.of(name)).is_locked() and not is_again) or is_of_another_program(taken, script):
        number += 1
        name = f"{stem}-{number}"
    return name


def main() -> None:
    """Run the command line."""
    app(prog_name="legato")


if __name__ == "__main__":
    main()
