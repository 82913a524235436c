"""Turns the arguments of `elasticdl train` into a submission to Legato. Reads files of this machine; sends nothing."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from legato.compat.elasticdl.arguments import ParsedCommand
from legato.compat.elasticdl.composites import (
    Volume,
    check_job_name,
    count_devices,
    map_priority,
    read_limits,
    read_priority,
    read_resources,
    read_switches,
    read_variables,
    read_volumes,
)
from legato.compat.elasticdl.flags import FLAGS
from legato.compat.elasticdl.framework import MINIBATCHES_FLAG, SUM_FLAG
from legato.compat.elasticdl.job_command import read_job_command
from legato.compat.elasticdl.mounting import Mounts
from legato.compat.elasticdl.variables import MINIBATCHES_PER_TASK, SEED, SUM
from legato.core.errors import UsageError
from legato.core.limits import MIN_MEMORY_BYTES

JOB_LABEL: Final = "elasticdl-job-name"
APP_LABELS: Final[Mapping[str, str]] = {"app": "elasticdl"}
EXACT: Final = "exact_num_workers"
MINIMUM: Final = "min_workers"

_MAX_WORKERS: Final = 100_000
_RESOURCES: Final = tuple(
    f"{kind}_resource_{what}"
    for kind in ("master", "worker", "ps", "chief", "evaluator")
    for what in ("request", "limit")
)
_INSTEAD: Final = "Use --distribution_strategy=AllreduceStrategy with a PyTorch program of elasticai_api"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A submission.

    Args:
        name: of the job.
        words: the command line for the framework.
        folder: to upload.
        left_out: folders inside of ``folder`` that hold data and are not uploaded.
        host_folders: volumes whose folders must exist on the machines.
        options: fields of the submission.
        notices: sentences for the user.
    """

    name: str
    words: tuple[str, ...]
    folder: Path
    left_out: tuple[str, ...] = ()
    host_folders: tuple[Volume, ...] = ()
    options: dict[str, Any]
    notices: tuple[str, ...] = ()


class Workers(NamedTuple):
    """How many workers a job may have."""

    minimum: int
    maximum: int
    is_elastic: bool


def check_values(asked: ParsedCommand) -> None:
    """Check the values of flags, also of those without effect. Reads no files and sends no requests.

    Raises:
        UsageError: a value is invalid.
    """
    check_job_name(asked.text("job_name"))
    for flag in FLAGS[asked.command]:
        if flag.kind == "count" and asked.count(flag.name) < 0:
            raise UsageError(f"Cannot use --{flag.name}={asked.values[flag.name]}: it is below 0.")
    for name in ("num_workers", "num_minibatches_per_task"):
        if asked.count(name) < 1:
            raise UsageError(f"Cannot use --{name}={asked.values[name]}: give at least 1.")
    if asked.count("num_workers") > _MAX_WORKERS:
        raise UsageError(
            f"Cannot use --num_workers={asked.values['num_workers']}: at most {_MAX_WORKERS} are possible."
        )
    for name in _RESOURCES:
        read_resources(f"--{name}", asked.text(name))
    read_variables(asked.text("envs"))
    read_volumes(asked.text("volume"))
    read_priority(asked.text("worker_pod_priority"))


def check_supported(asked: ParsedCommand) -> str | None:
    """Check that Legato supports this kind of job. Return a notice if the job gets another strategy, else None.

    Raises:
        UsageError: this kind of job is not supported; the message says what to use.
    """
    if asked.switch("need_elasticdl_job_service"):
        raise UsageError(
            "Programs of the Keras job service (--need_elasticdl_job_service) are not supported. "
            f"{_INSTEAD} and --job_command, or train Keras models with FabricModel (docs/wmla.md)."
        )
    if asked.text("model_def") and not asked.text("job_command").strip():
        raise UsageError(
            f"--model_def={asked.text('model_def')[:80]} without --job_command is a model for the Keras job service. "
            "That service trains TensorFlow models and is not supported. Train Keras models with FabricModel "
            "(docs/wmla.md). For a PyTorch program of elasticai_api give "
            '--distribution_strategy=AllreduceStrategy --job_command="python train.py".'
        )
    if asked.switch("need_tf_config"):
        raise UsageError(f"TensorFlow's own strategies (--need_tf_config) are not supported. {_INSTEAD}.")
    strategy = asked.text("distribution_strategy")
    if strategy == "AllreduceStrategy":
        return None
    if strategy == "ParameterServerStrategy":
        if asked.count("num_ps_pods") > 0:
            raise UsageError(
                f"Parameter servers (--num_ps_pods={asked.values['num_ps_pods']}) are not supported. {_INSTEAD}: "
                "workers add up gradients among themselves, and any of them may come and go."
            )
        return (
            "ParameterServerStrategy without parameter servers is AllreduceStrategy, as in the original. Use "
            "--distribution_strategy=AllreduceStrategy."
        )
    if strategy == "Local":
        raise UsageError(
            "The strategy Local is not supported: use --distribution_strategy=AllreduceStrategy with --num_workers=1, "
            "which needs no cluster either."
        )
    raise UsageError(f"The strategy '{strategy}' is not supported. {_INSTEAD}.")


def name_image(asked: ParsedCommand) -> str:
    """Return the flag and the image that the user wants for workers, as ``--FLAG=IMAGE``; "" if none is given."""
    found = (f"--{flag}={asked.text(flag)}" for flag in ("worker_image", "image_name") if asked.text(flag))
    return next(found, "")


def with_python(order: Order, asked: ParsedCommand, interpreters: Collection[str]) -> Order:
    """Return a submission whose workers have the Python environment that the server knows under the image's name.

    Args:
        order: the submission.
        asked: the command.
        interpreters: names of the Python environments of the server.
    """
    flag, _, image = name_image(asked).partition("=")
    if image not in interpreters:
        return order
    used = msgspec.structs.replace(asked, said=asked.said - {flag.removeprefix("--")})
    kept = [notice for notice in order.notices if notice not in describe_ignored(asked)]
    notices = (*kept, *describe_ignored(used))
    return msgspec.structs.replace(order, options={**order.options, "python": image}, notices=notices)


def make_order(asked: ParsedCommand, here: Path) -> Order:
    """Return the submission.

    Args:
        asked: a command that `check_values` has accepted.
        here: the current directory.

    Raises:
        UsageError: the job cannot be submitted; the message says what to change.
    """
    notices = [notice for notice in (check_supported(asked),) if notice is not None]
    workers = read_workers(asked)
    volumes = read_volumes(asked.text("volume"))
    _check_volumes(volumes)
    if count_devices(read_resources("--worker_resource_request", asked.text("worker_resource_request"))) > 1:
        raise UsageError(
            "A worker has one GPU: ask for gpu=1 in --worker_resource_request, and for more workers with --num_workers."
        )
    envs = read_variables(asked.text("envs"))
    command = read_job_command(asked.text("job_command"), envs)
    mounts = Mounts(volumes)
    folder, words = find_program(mounts.replace_all(command.words), mounts.replace(command.folder), here, notices)
    environment = {name: mounts.replace(value) for name, value in {**envs, **command.variables}.items()}
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] = _find_packages(environment["PYTHONPATH"], folder)
    if mounts.used:
        notices.append(
            f"Without a container there are no mount paths. In the command and the variables, {mounts.describe()}."
        )
    if mounts.unused:
        notices.append(
            f"The command and the variables do not contain {', '.join(mounts.unused)}. A program that opens this path "
            "will not find it."
        )
    if command.left_out:
        notices.append(f"Dropped from the command: {', '.join(command.left_out)}. What workers print is kept as logs.")
    notices += describe_ignored(asked)
    own, options = take_own_variables(asked, environment)
    return Order(
        name=asked.text("job_name"),
        words=(*own, *words),
        folder=folder,
        left_out=tuple(
            _find_inside(volume.folder, folder) for volume in volumes if _find_inside(volume.folder, folder)
        ),
        host_folders=volumes,
        options=_make_options(asked, workers, environment) | _read_limits(asked, notices) | options,
        notices=tuple(notices),
    )


def read_workers(asked: ParsedCommand) -> Workers:
    """Return the numbers of workers: 1 to ``--num_workers``, unless ``--aux_params`` sets others.

    Raises:
        UsageError: the minimum is not a whole number from 1 to ``--num_workers``.
    """
    said = read_switches(asked.text("aux_params"))
    most = asked.count("num_workers")
    if said.get(EXACT, "").lower() in ("true", "yes", "t", "y"):
        return Workers(most, most, is_elastic=False)
    least = said.get(MINIMUM, "1")
    if not (least.isascii() and least.isdecimal() and 1 <= int(least) <= most):
        raise UsageError(
            f"Cannot read {MINIMUM}={least[:100]} in --aux_params: give a whole number from 1 to --num_workers={most}."
        )
    return Workers(int(least), most, is_elastic=True)


def describe_ignored(asked: ParsedCommand, used: Collection[str] = ()) -> list[str]:
    """Return a sentence about the given flags that have no effect, for each reason.

    Args:
        asked: the command.
        used: flags that have an effect nevertheless.
    """
    reasons: dict[str, list[str]] = {}
    for flag in FLAGS[asked.command]:
        has_none = flag.effect != "used" and flag.name not in used
        if has_none and flag.name in asked.said and asked.values[flag.name] != "":
            reasons.setdefault(flag.why, []).append(f"--{flag.name}")
    return [f"Without effect: {', '.join(names)} ({why})." for why, names in reasons.items()]


def take_own_variables(asked: ParsedCommand, environment: dict[str, str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Remove Legato's own variables from a job's. Return words of its command, and options, that mean the same.

    Raises:
        UsageError: a variable is not a whole number.
    """
    number = environment.pop(MINIBATCHES_PER_TASK, "")
    if "num_minibatches_per_task" in asked.said:
        number = str(asked.count("num_minibatches_per_task"))
    words = ((f"{MINIBATCHES_FLAG}={number}",) if number else ()) + (
        (SUM_FLAG,) if environment.pop(SUM, "") == "1" else ()
    )
    seed = environment.pop(SEED, "")
    for name, said in ((MINIBATCHES_PER_TASK, number), (SEED, seed)):
        if said and not re.fullmatch(r"[0-9]{1,9}", said):
            raise UsageError(f"Cannot set {name}={said[:100]}: give a whole number, such as 8.")
    return words, {"seed": int(seed)} if seed else {}


def _read_limits(asked: ParsedCommand, notices: list[str]) -> dict[str, Any]:
    """Return the limits of a worker, as options. A memory limit that is too small for any worker gives a notice."""
    flag = "worker_resource_limit"
    found = read_limits(read_resources(f"--{flag}", asked.text(flag)))
    if found.get("memory_bytes", MIN_MEMORY_BYTES) < MIN_MEMORY_BYTES:
        del found["memory_bytes"]
        notices.append(
            f"--{flag}={asked.text(flag)}: no worker can start with so little memory. Legato does not limit it."
        )
    # On a machine that cannot limit its workers, the job runs without limits, and an event of the job says so.
    return {**found, "must_limit": False} if found else {}


def _make_options(asked: ParsedCommand, workers: Workers, environment: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "name": asked.text("job_name"),
        "max_workers": workers.maximum,
        "min_workers": workers.minimum,
        "is_elastic": workers.is_elastic,
        "environment": dict(environment),
        "labels": {**APP_LABELS, JOB_LABEL: asked.text("job_name")},
    }
    priority = read_priority(asked.text("worker_pod_priority"))
    if priority is not None:
        options["priority"] = map_priority(priority)
    return options


def _check_volumes(volumes: tuple[Volume, ...]) -> None:
    for volume in volumes:
        if volume.claim_name:
            raise UsageError(
                f"Cannot mount the claim '{volume.claim_name[:100]}': Legato uses no cluster that has claims. Name a "
                f'folder of this machine instead: --volume="host_path=/FOLDER,mount_path={volume.mount_path}".'
            )
        if not volume.host_path.startswith("/"):
            raise UsageError(
                f"Cannot mount host_path={volume.host_path[:200]}: write it from the root, such as "
                f'--volume="host_path=$PWD/data,mount_path={volume.mount_path}".'
            )


def check_folders(volumes: tuple[Volume, ...]) -> None:
    """Check that the folders of volumes exist on this machine. Make a missing one of the type DirectoryOrCreate.

    Raises:
        UsageError: a folder does not exist.
    """
    for volume in volumes:
        folder = Path(volume.folder)
        if volume.type == "DirectoryOrCreate":
            folder.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            raise UsageError(
                f"There is no folder {folder} on this machine, which --volume names for {volume.mount_path}. Make it, "
                "or name the folder of the data."
            )


# ---------------------------------------------------------------- where the program is


def find_program(words: tuple[str, ...], said: str, here: Path, notices: list[str]) -> tuple[Path, tuple[str, ...]]:
    """Return the folder to upload, and the words with the program's path in that folder.

    Args:
        words: ``-m`` and a module, or a script, followed by arguments.
        said: the folder to which the command changes first; "" for none.
        here: the current directory.
        notices: gets a sentence if the program is in another place than the command says.

    Raises:
        UsageError: there is no such program, or its folder contains the user's home directory.
    """
    folders = _find_folders(said, here)
    if words[0] == "-m":
        found = next((folder for folder in folders if _has_module(folder, words[1])), None)
        if found is None and importlib.util.find_spec(words[1].partition(".")[0]) is None:
            raise UsageError(
                f"There is no module {words[1][:200]} in {folders[0]}. Change to the folder that contains "
                f"{words[1].partition('.')[0]}, as the image's Dockerfile copies it, or write 'cd FOLDER && python …'."
            )
        found = found or folders[0]
    else:
        found, words = _find_script(words, folders, notices)
    if found != folders[0] or (said.startswith("/") and str(found) != said):
        notices.append(f"Legato takes the program from {found}.")
    if found == Path.home() or found in Path.home().parents:
        raise UsageError(
            f"Cannot submit from {found}: Legato would upload all of it. Put the program into a separate folder, and "
            "go there, or write 'cd FOLDER && python …'."
        )
    return found, words


def _find_folders(said: str, here: Path) -> list[Path]:
    """Return the folders of this machine that may contain a program which an image has in the folder ``said``."""
    if not said:
        return [here]
    if not said.startswith("/"):
        return [Path(os.path.normpath(here / said))]
    # The folder /work of an image may be /work on this machine too, or ./work, from which the image is made.
    return [folder for folder in (Path(said), here / said.lstrip("/"), here) if folder.is_dir()]


def _has_module(folder: Path, module: str) -> bool:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
        raise UsageError(f"'{module[:100]}' is not a name of a module. Write 'python -m PACKAGE.MODULE'.")
    path = folder.joinpath(*module.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__main__.py").is_file()


def _find_script(words: tuple[str, ...], folders: list[Path], notices: list[str]) -> tuple[Path, tuple[str, ...]]:
    script, rest = words[0], words[1:]
    if not script.startswith("/"):
        script = os.path.normpath(script)
        found = next((folder for folder in folders if (folder / script).is_file()), None)
        if found is None or script.startswith(".."):
            raise UsageError(
                f"There is no program {script[:200]} in {folders[0]}. Change to the folder from which the command "
                "names it, or write 'cd FOLDER && python …'."
            )
        return found, (script, *rest)
    path = Path(script)
    if path.is_file():
        inside = next((folder for folder in folders if path.is_relative_to(folder)), path.parent)
        return inside, (str(path.relative_to(inside)), *rest)
    found = next((folder for folder in folders if (folder / script.lstrip("/")).is_file()), None)
    if found is None:
        raise UsageError(
            f"There is no program {script[:200]} on this machine, nor in {folders[0]}. Give its path on this machine."
        )
    notices.append(f"{script} means {found / script.lstrip('/')}.")
    return found, (script.lstrip("/"), *rest)


def _find_packages(said: str, folder: Path) -> str:
    """Return a search path with folders of the image replaced by those of the uploaded code, as relative paths."""
    found = []
    for entry in said.split(os.pathsep):
        below = entry.lstrip("/")
        found.append(below if below != entry and not Path(entry).exists() and (folder / below).is_dir() else entry)
    return os.pathsep.join(found)


def _find_inside(folder: str, top: Path) -> str:
    """Return the path of a folder relative to one that contains it; "" if that one does not contain it."""
    # A shell keeps symbolic links in the path of the current directory; Python resolves them.
    path, top_itself = Path(folder), top.resolve()
    # The folder may also be a symbolic link inside of the other one, which points elsewhere.
    for one, other in ((path, top), (path.parent.resolve() / path.name, top_itself), (path.resolve(), top_itself)):
        if one != other and one.is_relative_to(other):
            return one.relative_to(other).as_posix()
    return ""
