"""Commands that submit or clone a job, or show what a submission would do. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from legato.cli.entry import Entry
from legato.cli.options import CpuCapability, CpusOption, GpusPerWorker, MemoryOption
from legato.cli.platform.connecting import find_job, open_client
from legato.cli.platform.job_specs import is_file, naming_file, read_flags, read_wanted
from legato.cli.platform.options import (
    ChangedPriorityOption,
    ChangedQueueOption,
    ChangedWorkersOption,
    CheckpointEveryOption,
    CollectiveOption,
    DataOption,
    EnvironmentOption,
    FrameworkOption,
    GpuTypeOption,
    HeartbeatOption,
    KeepOption,
    LabelOption,
    MaxTimeOption,
    MaxWorkersOption,
    MicroBatchesOption,
    MinWorkersOption,
    NameOption,
    NodeLabelOption,
    NodePythonOption,
    OutputOption,
    ParameterOption,
    PlatformJob,
    PriorityOption,
    QueueOption,
    RetriesOption,
    SeedOption,
    ServerOption,
    StaticOption,
    ThreadsOption,
    WorkersOption,
    label_option,
    name_option,
    retries_option,
    threads_option,
)
from legato.cli.terminal.formatting import count_slots, render_bytes
from legato.cli.terminal.output import Output, write
from legato.core.errors import LegatoError

if TYPE_CHECKING:
    from legato.client.client import Client
    from legato.client.packing import Packed
    from legato.client.submission import JobOptions

_MANY_BYTES: Final = 10 * 2**20
_MANY_FILES: Final = 1000


def submit(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="PROGRAM|FILE.yaml", help="The Python script, or a YAML file that describes the job."),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Arguments of the script. '--' before them is optional."),
    ] = None,
    name: NameOption = None,
    framework: FrameworkOption = None,
    parameter: ParameterOption = None,
    workers: WorkersOption = None,
    min_workers: MinWorkersOption = None,
    max_workers: MaxWorkersOption = None,
    static: StaticOption = False,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuTypeOption = None,
    node_label: NodeLabelOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    label: LabelOption = None,
    env: EnvironmentOption = None,
    code: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder to upload. [default: the current directory if the script is in it, else the script's folder]",
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Upload nothing; run the script from this directory on the nodes."),
    ] = None,
    data: DataOption = None,
    seed: SeedOption = None,
    retries: RetriesOption = None,
    max_time: MaxTimeOption = None,
    threads: ThreadsOption = None,
    cpu_capability: CpuCapability = None,
    python: NodePythonOption = None,
    micro_batches: MicroBatchesOption = None,
    checkpoint_every: CheckpointEveryOption = None,
    keep: KeepOption = None,
    heartbeat_limit: HeartbeatOption = None,
    collective_limit: CollectiveOption = None,
    memory: MemoryOption = None,
    cpus: CpusOption = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Idempotency key: repeating the same submission with it creates no second job."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return at once instead of watching the job.")] = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Submit a job and watch it until it ends. Ctrl-C stops watching; the job keeps running."""
    said = read_flags(
        name=name,
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        static=static,
        gpus_per_worker=gpus_per_worker,
        gpu_type=gpu_type,
        node_label=node_label,
        queue=queue,
        priority=priority,
        label=label,
        env=env,
        data=data,
        seed=seed,
        retries=retries,
        max_time=max_time,
        threads=threads,
        cpu_capability=cpu_capability,
        python=python,
        micro_batches=micro_batches,
        checkpoint_every=checkpoint_every,
        keep=keep,
        heartbeat_limit=heartbeat_limit,
        collective_limit=collective_limit,
        memory=memory,
        cpus=cpus,
        framework=framework,
        parameter=parameter,
    )
    handed = list(arguments or ())
    if handed[:1] == ["--"]:
        del handed[0]
    else:
        _warn_of_own_options(context, target, handed)
    wanted = read_wanted(target, handed, said, code=code, directory=directory)
    client = open_client(server)
    options = cast("JobOptions", wanted.options)
    shortage = _find_shortage(client, wanted.options)
    with naming_file(target):
        job = client.submit(
            wanted.program,
            *wanted.arguments,
            code=wanted.code,
            directory=wanted.directory,
            key=key,
            before_upload=_announce_upload,
            **options,
        )
    if shortage is not None:
        typer.echo(f"legato: job '{job.name}' {shortage}", err=True)
    if not output.is_for_people:
        write(job.record, output, str)
        return
    follows = f"To watch it: legato attach {job.id}." if detach else "Ctrl-C stops watching; the job keeps running."
    typer.echo(f"legato: job '{job.name}' is submitted as {job.id}. {follows}")
    if not detach:
        from legato.cli.platform.attach import attach

        raise typer.Exit(attach(job, tail=None, is_new=True))


def _warn_of_own_options(context: typer.Context, target: str, handed: Sequence[str]) -> None:
    """Warn of an option of Legato that goes to the program, because it comes after the program's name."""
    own = {name for option in context.command.params for name in option.opts if name.startswith("-")}
    # A script may have its own short options; a file that describes a job usually has the arguments itself.
    meant = own if is_file(target) else {name for name in own if name.startswith("--")}
    found = next((word for word in handed if word.partition("=")[0] in meant), None)
    if found is not None:
        typer.echo(
            f"legato: '{found}' is passed to the program, because it comes after '{target}'. Put options of 'legato "
            f"submit' before '{target}'. If the option is for the program, write '{target} -- …'.",
            err=True,
        )


def _find_shortage(client: Client, options: Mapping[str, Any]) -> str | None:
    """Return a message if a job needs more slots at once than it can get at present; None if it does not."""
    most = options.get("max_workers", 1)
    needed = options.get("min_workers", 1) if options.get("is_elastic", True) else most
    each = options.get("gpus_per_worker", 1)
    if not isinstance(needed, int) or not isinstance(each, int) or needed * each <= 1:
        return None
    needed *= each
    try:
        num_usable = client.pool().num_usable
        ceiling = next((one.ceiling for one in client.queues() if one.name == options.get("queue", "default")), None)
    except LegatoError:
        # The hint is optional. Whether the job can be submitted is checked elsewhere.
        return None
    if needed > num_usable:
        return (
            f"needs {count_slots(needed)} at once, but the pool has {num_usable}: it waits until the pool grows, or "
            "until you lower its minimum with 'legato scale'."
        )
    if ceiling is not None and needed > ceiling:
        return (
            f"needs {count_slots(needed)} at once, but its queue may have {ceiling}: it waits until an admin raises "
            "that ceiling, or until you lower its minimum with 'legato scale'."
        )
    return None


def _announce_upload(packed: Packed) -> None:
    """Announce an upload that is larger than the user may expect."""
    num_bytes, num_files = len(packed.content), len(packed.names)
    if num_bytes >= _MANY_BYTES or num_files >= _MANY_FILES:
        typer.echo(
            f"legato: uploading {num_files} file{'' if num_files == 1 else 's'}, {render_bytes(num_bytes)} packed. To "
            "leave out files that the program does not need, list them in .legatoignore.",
            err=True,
        )


def plan(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[FILE.yaml]", help="A YAML file that describes the job, or a script."),
    ] = None,
    name: NameOption = None,
    workers: WorkersOption = None,
    min_workers: MinWorkersOption = None,
    max_workers: MaxWorkersOption = None,
    static: StaticOption = False,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuTypeOption = None,
    node_label: NodeLabelOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    micro_batches: MicroBatchesOption = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Show how many GPUs a job with these options would get now, and which jobs would give some up. Submits nothing."""
    said: dict[str, Any] = read_flags(
        name=name,
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        static=static,
        gpus_per_worker=gpus_per_worker,
        gpu_type=gpu_type,
        node_label=node_label,
        queue=queue,
        priority=priority,
        micro_batches=micro_batches,
    )
    program = None
    if target is not None:
        wanted = read_wanted(target, (), said, code=None, directory=None)
        program, said = wanted.program, wanted.options
    with naming_file(target):
        found = open_client(server).plan(program, **cast("JobOptions", said))

    def draw() -> Any:
        from legato.cli.terminal.cards import draw_plan

        return draw_plan(found)

    write(found, output, draw)


def clone(
    job: PlatformJob,
    name: Annotated[str | None, name_option("Name of the copy. [default: the name of JOB]")] = None,
    parameter: ParameterOption = None,
    workers: ChangedWorkersOption = None,
    min_workers: MinWorkersOption = None,
    max_workers: MaxWorkersOption = None,
    queue: ChangedQueueOption = None,
    priority: ChangedPriorityOption = None,
    label: Annotated[list[str] | None, label_option("Label to add or replace. Repeatable.")] = None,
    data: DataOption = None,
    seed: SeedOption = None,
    retries: Annotated[int | None, retries_option("Number of retries after a failure.")] = None,
    max_time: MaxTimeOption = None,
    threads: Annotated[int | None, threads_option("Threads of each worker. Results depend on it.")] = None,
    python: NodePythonOption = None,
    checkpoint_every: CheckpointEveryOption = None,
    keep: KeepOption = None,
    server: ServerOption = None,
) -> None:
    """Submit a copy of a job. The copy starts from scratch; options replace its fields."""
    said = read_flags(
        name=name,
        parameter=parameter,
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        queue=queue,
        priority=priority,
        label=label,
        data=data,
        seed=seed,
        retries=retries,
        max_time=max_time,
        threads=threads,
        python=python,
        checkpoint_every=checkpoint_every,
        keep=keep,
    )
    found = find_job(job, server)
    # Given fields are added to the fields of the job, or replace them.
    if label:
        said["labels"] = {**found.record.labels, **said["labels"]}
    if parameter:
        said["parameters"] = {**found.spec().parameters, **said["parameters"]}
    made = found.clone(**cast("JobOptions", said))
    typer.echo(
        f"Job '{made.name}' ({made.id}) is submitted as a clone of {found.id}. To watch it: legato attach {made.id}."
    )


ENTRIES: Final = (
    Entry(
        "submit",
        submit,
        "legato submit --workers 1..4 --name mnist train.py -- --epochs 20",
        takes_all=True,
    ),
    Entry(
        "clone",
        clone,
        "legato clone mnist --name mnist-2 --parameter rate=0.05",
    ),
    Entry("plan", plan, "legato plan --workers 2..8 --priority 8000"),
)
