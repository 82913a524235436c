"""The program and limits of a job's submission, and the order for its driver. Starts nothing."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from legato.api.jobs import Spec
from legato.control.arguments import check_parameters, write_parameters
from legato.control.drivers import places as places_module
from legato.control.drivers.drivers import DriverOrder
from legato.control.drivers.places import MISSING, find_missing
from legato.control.records import Job
from legato.control.stages import HOLDING
from legato.core.errors import BadField, LayoutError, UsageError
from legato.core.frameworks import Launcher
from legato.core.job_user import JobUser
from legato.core.spec import JobSpec
from legato.core.terms import first_term
from legato.engines.parent import try_as
from legato.system.decoding import convert

_DRIVERS_OWN: Final = "LEGATO_"
DATA_VARIABLE: Final = "LEGATO_DATA"
_SEED: Final = "LEGATO_SEED"
_NUM_NODES: Final = "LEGATO_NODES"
_NODES_OF_WMLA: Final = "WMLA_NWORKER"  # set in jobs that Legato's WMLA interface submits
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Work(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of a submission that is for the job's driver; stored as submitted.

    Args:
        program: the script, relative to the code or the directory, and its arguments.
        directory: directory on the machines that contains the program and in which it runs. None: the uploaded code.
        environment: variables of the workers.
        data: a directory on the machines; the variable ``LEGATO_DATA`` passes it to the program. None: none.
        seed: replaces the seed that the program gives to the runtime; passed in ``LEGATO_SEED``. None: the program's
            seed.
        num_threads: threads per worker within an operation; results depend on it.
        cpu_capability: the instruction set to which all workers are limited; see `legato.core.spec.JobSpec`.
        python: the path of the workers' Python executable. None: the server's own.
        gpu_type: GPU model that the slots must have, as a part of its name. None: any slot.
        node_labels: labels that the nodes must have.
        num_micro_batches: micro-batches of one step, if known; the policy then assigns no slots that would not make a
            step faster.
        checkpoint_every: ``100steps``, ``2epochs`` or ``60s``. None: only when the job is paused, is stopped or ends.
        keep: number of checkpoints that are kept.
        max_run_s: seconds for which the job may hold slots, over all its attempts and including starts; after that it
            is stopped with a checkpoint. None: no limit.
        heartbeat_limit_s: a worker that is silent for this long is given up, unless its process computes or waits.
        collective_limit_s: a worker that has neither computed nor made progress for this long is given up.
        memory_bytes, num_cpus, must_limit: as in `legato.core.spec.JobSpec`. None: the platform's default.
        parameters: parameters of the program, by name; added after its arguments.
        framework: the name of what runs it.
        launcher: module that each worker runs first. None: the program itself, a Python script.
    """

    environment: dict[str, str] = {}  # type: ignore[assignment]  # noqa: RUF012 -- msgspec copies it for each instance
    launcher: Launcher | None = None  # type: ignore[assignment]  # read whole

    @property
    def script(self) -> str | None:
        """The file of the program, relative to the working directory or absolute. None: unknown."""
        return self.program[0] if self.launcher is None else self.launcher.script


def read_work(spec: dict[str, Any]) -> Work:
    """Read a submission's work from the store's JSON.

    Raises:
        UsageError: a field is missing, unknown or of the wrong type.
    """
    try:
        return convert(spec, Work)
    except msgspec.ValidationError as error:
        raise UsageError(f"Cannot read the job's spec: {error}.") from error


def check_work(work: Work, *, name: str, min_workers: int, max_workers: int, has_code: bool) -> None:
    """Check the values of a submission as far as possible before it runs.

    Raises:
        UsageError: the job could never run; the message says what to change.
    """
    told = f"Cannot submit job '{name}'"
    if not work.program or not work.program[0]:
        raise UsageError(f"{told}: there is no program. Name a Python script.")
    if has_code == (work.directory is not None):
        raise UsageError(f"{told}: give either uploaded code or a directory on the nodes.")
    is_script = work.launcher is None
    if has_code and is_script and (Path(work.program[0]).is_absolute() or ".." in Path(work.program[0]).parts):
        raise UsageError(
            f"{told}: the program '{work.program[0]}' is outside of the uploaded code. Name it by a relative path."
        )
    if work.directory is not None and not Path(work.directory).is_absolute():
        raise UsageError(f"{told}: the directory '{work.directory}' is not absolute. Give it from the root.")
    check_data(work.data, f"{told}: the")
    if work.seed is not None and work.seed < 0:
        raise UsageError(f"{told}: seed={work.seed} is below 0. Give a whole number of at least 0.")
    if work.max_run_s is not None and not work.max_run_s > 0:
        raise UsageError(f"{told}: max_run_s={work.max_run_s:g} is not above 0. Give it in seconds, or leave it out.")
    if work.num_micro_batches is not None and work.num_micro_batches < 1:
        raise UsageError(f"{told}: num_micro_batches={work.num_micro_batches} is below 1. Leave it out if unknown.")
    for variable in work.environment:
        if not _VARIABLE.fullmatch(variable):
            raise UsageError(
                f"{told}: '{variable[:100]}' is not a valid name of a variable. Use letters, digits and '_'."
            )
    odd = sorted(variable for variable in work.environment if variable.startswith(_DRIVERS_OWN))
    if odd:
        raise UsageError(f"{told}: the variable {odd[0]} is reserved for the driver. Choose another name.")
    if work.gpu_type is not None and not work.gpu_type.strip():
        raise UsageError(
            f"{told}: gpu_type is empty. Give a part of the model's name, such as 'A100', or leave it out."
        )
    check_parameters(work.parameters)
    check_most_workers(work, told, max_workers)
    _spec(work, name, "/", min_workers, max_workers, max_workers).validate()


def check_most_workers(work: Work, told: str, max_workers: int) -> None:
    """Raise LayoutError if a job's maximum of workers is higher than useful. ``told`` begins the message."""
    most = None if work.launcher is None else work.launcher.most_workers
    if most is not None and max_workers > most:
        raise LayoutError(
            f"{told}: max_workers={max_workers} is above {most}, the number with which it was submitted. Its program "
            f"divides each step by that number, so more workers would have no work. Give {most} or fewer, or submit it "
            "again with more."
        )


def check_resize(job: Job, work: Work) -> None:
    """Raise UsageError if a job's number of workers cannot change while it holds slots, because all began together.

    The number never changes for WMLA jobs of several nodes: their workers wait for the submitted number.
    """
    if not job.is_elastic and _NODES_OF_WMLA in work.environment:
        raise UsageError(
            f"Cannot resize job '{job.name}': its workers start together, and each waits for the number of workers "
            f"with which the job was submitted, {work.environment[_NODES_OF_WMLA]}. Submit it again with the number "
            "that you want."
        )
    if work.launcher is None or job.is_elastic or job.stage not in HOLDING:
        return
    raise UsageError(
        f"Cannot resize job '{job.name}': its workers started together, and a program of the framework "
        f"'{work.framework}' cannot change their number. Pause it, resize it, and resume it."
    )


def find_data(data: str | None, root: Path) -> str | None:
    """Return the absolute path of a data directory.

    Args:
        data: as a user names it, absolute or relative to ``root``. None: no data.
        root: the directory of all data on the machines.

    Raises:
        BadField: a relative path leads out of ``root``.

    >>> find_data("pytorch-mnist", Path("/data")), find_data("/mnt/mnist", Path("/data"))
    ('/data/pytorch-mnist', '/mnt/mnist')
    """
    if data is None or Path(data).is_absolute():
        return data
    if not data.strip() or ".." in Path(data).parts:
        raise BadField(
            "data",
            f"The data directory '{data[:200]}' is not below {root}. Give a path below that directory, such as "
            "'mnist', or one from the root.",
        )
    return str(root / data)


def choose_python(given: str | None, named: Mapping[str, str]) -> str | None:
    """Return the path of the Python that a user means.

    Args:
        given: a name, or an absolute path. None: the server's own.
        named: the setting ``interpreters``: name → path.

    Raises:
        BadField: it is neither.

    >>> choose_python("torch28", {"torch28": "/envs/a"}), choose_python("/envs/b", {}), choose_python(None, {})
    ('/envs/a', '/envs/b', None)
    """
    if given is None or given in named:
        return None if given is None else named[given]
    if not Path(given).is_absolute():
        known = f"Those are {', '.join(named)}. " if named else "This server has none. "
        raise BadField(
            "python",
            f"There is no Python environment '{given[:200]}'. The operator names them in the setting interpreters. "
            f"{known}Or give the absolute path of a Python executable, or of the folder of a venv or conda "
            "environment.",
        )
    return given


def check_data(data: str | None, told: str = "The") -> None:
    """Raise BadField unless the path can be a directory of data on the machines. ``told`` begins the message."""
    if data is not None and not Path(data).is_absolute():
        raise BadField("data", f"{told} data directory '{data[:200]}' is not absolute. Give it from the root.")


def check_places(
    told: str,
    machine: str,
    *,
    directory: str | None,
    program: str | None,
    data: str | None,
    user: JobUser | None = None,
) -> None:
    """Check that a job's directory, program and data exist on this machine, before its workers start.

    Args:
        told: the beginning of the sentence that refuses it.
        machine: name of this machine in the sentence.
        directory: of the program. None: uploaded code.
        program: its file, in that directory. None: unknown.
        data: as in `Work`.
        user: the system user of the job. The check runs as this user, so it reveals only what this user can see. None:
            the user of this process.

    Raises:
        UsageError: one of them does not exist, or ``user`` cannot see it.
    """
    names = (directory or "", program or "", data or "")
    missing = find_missing(*names) if user is None else _check_as(user, names)
    seen = "" if user is None else f" that the system user {user.uid}, as whom the job runs, can see"
    match missing:
        case "directory":
            raise UsageError(f"{told}: there is no directory '{directory}' on {machine}{seen}. Name an existing one.")
        case "program":
            raise UsageError(
                f"{told}: there is no program '{program}' in its directory{seen}. Name the script by its path in that "
                "directory."
            )
        case "data":
            raise BadField(
                "data", f"{told}: there is no data directory '{data}' on {machine}{seen}. Name an existing one."
            )


def _check_as(user: JobUser, names: tuple[str, str, str]) -> str | None:
    """Run `find_missing` as a user and return its result; None also if that failed."""
    answer = try_as(user, [sys.executable, "-I", "-S", places_module.__file__, *names], {})
    return answer if answer in MISSING else None


def find_bounds(job: Job, num_workers: int) -> tuple[int, int]:
    """Return the minimum and maximum of workers for a driver that has slots for so many workers.

    This number may be outside the job's bounds: a user may have changed the bounds since the decision, or a
    step has fewer micro-batches than the minimum. The driver gets the job's own bounds after the slots have been
    adapted.
    """
    return min(job.min_workers, num_workers), max(job.max_workers, num_workers)


def make_order(
    job: Job, work: Work, slots: tuple[str, ...], *, code: Path, goes_on: bool, fence: int = 0
) -> DriverOrder:
    """Return the order for the present attempt of a job.

    Args:
        job: the job; its id becomes its name for the driver.
        work: the job's work.
        slots: the job's slots, one for each worker.
        code: where uploaded code is unpacked, one directory per SHA-256.
        goes_on: whether to continue from the newest checkpoint, if there is one.
        fence: the fencing number of the lease of the server that gives the order.
    """
    min_workers, max_workers = find_bounds(job, len(slots))
    spec = _spec(work, job.id, work.directory or "", min_workers, max_workers, len(slots))
    return DriverOrder(
        job=job.id,
        attempt=job.attempt,
        spec=msgspec.structs.replace(spec, resume=goes_on, gpus_per_worker=job.gpus_per_worker),
        slots=slots,
        code=None if job.code is None else str(code / job.code),
        code_folder="" if work.launcher is None else work.launcher.folder,
        script=work.script,
        preloads=work.launcher is None or work.launcher.preloads,
        owner=job.owner,
        is_local=needs_server(work),
        term=first_term(fence),
    )


def needs_server(work: Work) -> bool:
    """Return whether a job can run on the server's machine only.

    Its workers find one another, or their launcher, by files and addresses of that machine.
    """
    return work.launcher is not None


def find_module(module: str) -> str:
    """Return the file of a module, to run it as a script.

    Raises:
        UsageError: there is no such module.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise UsageError(f"Cannot run the job: this version of Legato has no '{module}'. Submit it again.")
    return spec.origin


def _settings_variables(work: Work) -> dict[str, str]:
    """Return the variables that pass settings to workers for which the job's spec has no field."""
    told = {DATA_VARIABLE: work.data, _SEED: None if work.seed is None else str(work.seed)}
    return {variable: value for variable, value in told.items() if value is not None}


def _launcher_variables(launcher: Launcher | None, num_workers: int) -> dict[str, str]:
    """Return the variables of a launcher, with the number of workers that begin: workers of a gang wait for so many.

    This is the number of slots, not the maximum, because a user may have changed the maximum since the decision.
    """
    return {} if launcher is None else {**launcher.environment, _NUM_NODES: str(num_workers)}


def _spec(work: Work, name: str, directory: str, min_workers: int, max_workers: int, num_workers: int) -> JobSpec:
    launcher = work.launcher
    return JobSpec(
        name=name,
        program=(
            *(() if launcher is None else (find_module(launcher.module),)),
            *work.program,
            *write_parameters(work.parameters),
        ),
        directory=directory,
        environment=_launcher_variables(launcher, num_workers) | work.environment | _settings_variables(work),
        min_workers=min_workers,
        max_workers=max_workers,
        num_workers=num_workers,
        num_threads=work.num_threads,
        cpu_capability=work.cpu_capability,
        python=work.python,
        checkpoint_every=work.checkpoint_every,
        keep=work.keep,
        heartbeat_limit_s=work.heartbeat_limit_s,
        collective_limit_s=work.collective_limit_s,
        memory_bytes=work.memory_bytes,
        num_cpus=work.num_cpus,
        must_limit=work.must_limit,
        guest=None if launcher is None else launcher.guest,
    )
