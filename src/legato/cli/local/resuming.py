"""Finds whether an ended job can resume, and by which command. Reads the job's files; starts nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec import structs

from legato.cli.local.hosts import read_machines
from legato.clusters.slurm import Allocation
from legato.clusters.ssh import Hosts
from legato.core.spec import JobSpec
from legato.driver.journal import JobDirectory


def is_of_another_program(directory: JobDirectory, script: Path) -> bool:
    """Return whether a job's directory has files of another script of the same name, such as checkpoints."""
    last = directory.read_journal()
    return last is not None and last.spec.program[0] != str(script.absolute())


def is_unfinished(directory: JobDirectory, spec: JobSpec) -> bool:
    """Whether the last run under this name had the same program, did not succeed, and can be resumed.

    It can be resumed from a checkpoint, or from the state of the job's plugin.
    """
    last = directory.read_journal()
    if last is None or last.spec.program != spec.program or (last.outcome and last.outcome.outcome == "succeeded"):
        return False
    return _has_checkpoints(directory, spec) or (last.spec.guest is not None and directory.guest.is_dir())


def keep_settings(directory: JobDirectory, spec: JobSpec) -> JobSpec:
    """Return the spec of a job with the settings of its last run that this run does not have.

    These settings are its plugin, its variables, its CPU capability and its Python.

    Without its plugin a job of ElasticDL would have no process that hands out its tasks.
    """
    last = directory.read_journal()
    if last is None:
        return spec
    environment = {**last.spec.environment, **spec.environment}
    return structs.replace(
        spec,
        guest=spec.guest or last.spec.guest,
        environment=environment,
        cpu_capability=spec.cpu_capability or last.spec.cpu_capability,
        python=spec.python or last.spec.python,
    )


def find_resume_command(directory: JobDirectory) -> str | None:
    """Return the command that resumes an ended job; None if it succeeded or left nothing to resume from."""
    last = directory.read_journal()
    if last is None or last.outcome is None or not is_unfinished(directory, last.spec):
        return None
    typed = shlex.join(make_resume_command(last.spec, read_machines(directory)))
    return typed if _is_here(last.spec.directory) else f"cd {shlex.quote(last.spec.directory)} && {typed}"


def make_resume_command(spec: JobSpec, machines: Hosts | Allocation | None = None) -> tuple[str, ...]:
    """Return the command that continues a job on its machines, as the user types it in the job's directory."""
    options = ["--workers", f"{spec.min_workers}..{spec.max_workers}"]
    if isinstance(machines, Hosts):
        options += ["--hosts", ",".join(map(str, machines.hosts))]
    elif machines is not None:
        options += ["--slurm"]
    options += [] if machines is None or machines.network is None else ["--network", machines.network]
    defaults = structs.asdict(JobSpec(name=spec.name, program=(), directory="", max_workers=1, num_workers=1))
    for option, field in (
        ("--checkpoint-every", "checkpoint_every"),
        ("--checkpoint-dir", "checkpoint_dir"),
        ("--keep", "keep"),
        ("--gpus-per-worker", "gpus_per_worker"),
        ("--threads", "num_threads"),
        ("--cpu-capability", "cpu_capability"),
        ("--python", "python"),
        ("--heartbeat-limit", "heartbeat_limit_s"),
        ("--collective-limit", "collective_limit_s"),
        ("--memory", "memory_bytes"),
        ("--cpus", "num_cpus"),
    ):
        value = getattr(spec, field)
        options += [option, str(value)] if value != defaults[field] else []
    program, *handed = spec.program
    # Relative to the job's directory, which is usually the user's present directory.
    path = Path(program)
    typed = path.relative_to(spec.directory) if path.is_relative_to(spec.directory) else path
    return ("legato", "run", "--name", spec.name, "--resume", *options, str(typed), *handed)


def _has_checkpoints(directory: JobDirectory, spec: JobSpec) -> bool:
    checkpoints = Path(spec.checkpoint_dir) if spec.checkpoint_dir else directory.checkpoints
    return any(checkpoints.glob("step-*.legato"))


def _is_here(directory: str) -> bool:
    try:
        return Path.cwd() == Path(directory)
    except FileNotFoundError:
        # The directory in which this command was started is gone.
        return False
