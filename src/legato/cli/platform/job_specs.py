"""Reads a submission from the command line: options, and a script with arguments or a file that describes the job.

The server checks the values of the fields.
"""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from legato.cli.platform.jobs import read_bounds
from legato.cli.platform.options import read_python
from legato.cli.terminal.formatting import read_duration, read_label, read_parameter, read_variable
from legato.core.errors import UsageError
from legato.core.limits import read_size

_FILES: Final = (".yaml", ".yml")
_OWN: Final = ("program", "code", "directory", "workers")
_TEXTS: Final = ("environment", "labels")


class Wanted(NamedTuple):
    """What to submit; arguments of `legato.Client.submit`."""

    program: str
    arguments: tuple[str, ...]
    options: dict[str, Any]
    code: str | Path | None
    directory: str | None


def read_flags(
    *,
    name: str | None = None,
    workers: str | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    static: bool = False,
    gpus_per_worker: int | None = None,
    gpu_type: str | None = None,
    node_label: Sequence[str] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    label: Sequence[str] | None = None,
    env: Sequence[str] | None = None,
    data: str | None = None,
    seed: int | None = None,
    retries: int | None = None,
    max_time: str | None = None,
    threads: int | None = None,
    cpu_capability: str | None = None,
    python: str | None = None,
    micro_batches: int | None = None,
    checkpoint_every: str | None = None,
    keep: int | None = None,
    heartbeat_limit: float | None = None,
    collective_limit: float | None = None,
    memory: str | None = None,
    cpus: float | None = None,
    framework: str | None = None,
    parameter: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the fields of a submission that flags set; flags that were not given are left out.

    Raises:
        UsageError: a value cannot be read.
    """
    low, high = read_bounds(workers, min_workers, max_workers)
    said = {
        "name": name,
        "min_workers": low,
        "max_workers": high,
        "is_elastic": False if static else None,
        "gpus_per_worker": gpus_per_worker,
        "gpu_type": gpu_type,
        "node_labels": {key: value or "" for key, value in map(read_label, node_label or ())} or None,
        "queue": queue,
        "priority": priority,
        "labels": {key: value or "" for key, value in map(read_label, label or ())} or None,
        "environment": dict(map(read_variable, env or ())) or None,
        "data": data,
        "seed": seed,
        "max_retries": retries,
        "max_run_s": None if max_time is None else read_duration(max_time, "the longest time"),
        "num_threads": threads,
        "cpu_capability": cpu_capability,
        "python": None if python is None else read_python(python),
        "num_micro_batches": micro_batches,
        "checkpoint_every": checkpoint_every,
        "keep": keep,
        "heartbeat_limit_s": heartbeat_limit,
        "collective_limit_s": collective_limit,
        "memory_bytes": None if memory is None else read_size(memory, "the memory"),
        "num_cpus": cpus,
        "framework": framework,
        "parameters": dict(map(read_parameter, parameter or ())) or None,
    }
    return {field: value for field, value in said.items() if value is not None}


def is_file(target: str) -> bool:
    """Return whether the target of a submission is a file that describes a job.

    >>> is_file("job.yaml"), is_file("train.py")
    (True, False)
    """
    return Path(target).suffix.lower() in _FILES


def read_wanted(
    target: str, arguments: Sequence[str], said: Mapping[str, Any], *, code: str | None, directory: str | None
) -> Wanted:
    """Return what to submit; flags override the file.

    Args:
        target: a script, or a file that describes a job.
        arguments: of the script; after those of the file.
        said: fields that flags set.
        code: the folder to upload. None: not given.
        directory: of the script on the machines. None: not given.

    Raises:
        UsageError: the file cannot be read, or has a field that jobs do not have.
    """
    if not is_file(target):
        return Wanted(target, tuple(arguments), dict(said), code, directory)
    file = Path(target)
    fields = read_yaml(file, "submit")
    _check_known(file, fields)
    return read_described(file, fields, arguments, said, code=code, directory=directory)


def read_described(
    file: Path,
    fields: dict[str, Any],
    arguments: Sequence[str] = (),
    said: Mapping[str, Any] = MappingProxyType({}),
    *,
    code: str | None = None,
    directory: str | None = None,
) -> Wanted:
    """Return what to submit by the fields of a file that describes a job; other arguments as in `read_wanted`."""
    fields = dict(fields)
    program = _read_program(file, fields.pop("program", None))
    there = {name: fields.pop(name, None) for name in ("code", "directory")}
    if code is None and directory is None:
        code, directory = there["code"], there["directory"]
        if directory is None:
            # Paths in the file are relative to its folder.
            code = str(file.parent / code) if code is not None else str(file.parent)
    merged = _with_bounds(file, fields, said)
    for name in _TEXTS:
        if name in fields or name in said:
            merged[name] = {**_read_texts(file, name, fields.get(name)), **said.get(name, {})}
    if "parameters" in fields:
        merged["parameters"] = {**_read_values(file, "parameters", fields["parameters"]), **said.get("parameters", {})}
    return Wanted(program[0], (*program[1:], *arguments), merged, code, directory)


@contextlib.contextmanager
def naming_file(target: str | None) -> Iterator[None]:
    """Name the file that describes the job in a refusal of the server, because the error may be in the file."""
    try:
        yield
    except UsageError as error:
        if target is None or not is_file(target):
            raise
        raise type(error)(f"'{target}': {error}") from error


def read_yaml(file: Path, doing: str) -> dict[str, Any]:
    """Return the content of a YAML file with fields.

    Args:
        file: its path.
        doing: the command that reads it, for the error.

    Raises:
        UsageError: it cannot be read.
    """
    import msgspec

    try:
        # With bytes the library's error would name a "<byte string>".
        found = msgspec.yaml.decode(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"Cannot {doing} '{file}': there is no such file. Check the spelling.") from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise UsageError(f"Cannot read '{file}': {reason}. See docs/cli.md for its format.") from error
    if not isinstance(found, dict):
        raise UsageError(f"Cannot read '{file}': it must be a list of 'field: value'. See docs/cli.md for its format.")
    return found


def _check_known(file: Path, fields: Mapping[str, Any]) -> None:
    from legato.client.submission import JobOptions

    check_fields(file, "a job", fields, (*_OWN, *JobOptions.__annotations__))


def check_fields(file: Path, what: str, fields: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise UsageError if a file has a field that is not known.

    Args:
        file: its path.
        what: has these fields, such as ``a job``.
        fields: of the file.
        known: names of all fields.
    """
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise UsageError(f"Cannot read '{file}': {what} has no field '{name}'. {hint}")


def _read_program(file: Path, said: Any) -> list[str]:
    if isinstance(said, str):
        try:
            said = shlex.split(said)
        except ValueError as error:
            raise UsageError(f"Cannot read 'program' in '{file}': {error}. Write it as a list.") from None
    if not isinstance(said, list) or not said or not all(isinstance(part, str | int | float) for part in said):
        raise UsageError(
            f"Cannot read 'program' in '{file}': it must be the script and its arguments, such as "
            "[train.py, --epochs, 20]."
        )
    return [str(part) for part in said]


def _with_bounds(file: Path, fields: dict[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the file that no flag overrides; ``workers`` is split into its bounds."""
    workers = fields.pop("workers", None)
    if workers is not None:
        if "min_workers" in fields or "max_workers" in fields:
            raise UsageError(
                f"Cannot read '{file}': it has both workers and min_workers or max_workers. Use one of the two ways."
            )
        low, high = read_bounds(str(workers), None, None)
        fields["max_workers"] = high
        if low is not None:
            fields["min_workers"] = low
    return {**fields, **said}


def _read_texts(file: Path, name: str, said: Any) -> dict[str, str]:
    values = _read_values(file, name, said)
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}


def _read_values(file: Path, name: str, said: Any) -> dict[str, str | int | float | bool]:
    if said is None:
        return {}
    plain = (str, int, float, bool)
    if not isinstance(said, dict) or not all(isinstance(value, plain) for value in said.values()):
        raise UsageError(f"Cannot read '{name}' in '{file}': it must be a list of 'name: value'.")
    return {str(key): value for key, value in said.items()}
