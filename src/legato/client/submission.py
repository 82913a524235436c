"""Turns a script or a function into the fields of a submission and its code.

Reads files; sends nothing. Checks the names of the fields only: the server checks their values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from legato.core.errors import UsageError

if TYPE_CHECKING:
    from legato.client.packing import Packed

_MAX_CODE_BYTES: Final = 2**30  # what a server unpacks at most by default
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DEFAULT_NAME: Final = "job"
_SCRIPTS: Final = "legato"  # the framework of Python scripts
_PYTHON: Final = (".py", ".pyw")
_MAX_FIRST_BYTES: Final = 200
_SYSTEM: Final = frozenset({"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"})


class JobOptions(TypedDict, total=False):
    """Fields of a submission besides its program; for the defaults see ``docs/rest.md``.

    ``name``: by default that of the script or function. ``num_threads``: per worker. ``data``: a directory on the
    machines. ``max_run_s``, ``heartbeat_limit_s`` and ``collective_limit_s``: seconds. ``is_elastic`` False: exactly
    ``max_workers`` workers, or none. ``gpus_per_worker``: slots of each worker, all on one node. ``gpu_type``: a part
    of the name of the GPU model. ``node_labels``: the job uses nodes with all of these labels.
    ``cpu_capability``: ``default``, ``avx2`` or ``avx512``, for all workers.
    ``python``: of the workers: a name in the server's setting ``interpreters``, or an absolute path on the machines.
    ``checkpoint_every``: ``100steps``, ``2epochs`` or ``60s``. ``parameters``: ``--name value`` after the arguments.
    ``framework``: runs the program, if it is not a Python script. ``memory_bytes``, ``num_cpus``: limits of each
    worker; ``must_limit`` False: the job also runs on machines that cannot enforce them.
    """

    name: str
    max_workers: int
    min_workers: int
    is_elastic: bool
    gpus_per_worker: int
    gpu_type: str | None
    node_labels: Mapping[str, str]
    queue: str
    priority: int
    labels: Mapping[str, str]
    max_retries: int
    max_run_s: float | None
    environment: Mapping[str, str]
    data: str | None
    seed: int | None
    num_threads: int
    cpu_capability: str | None
    python: str | None
    num_micro_batches: int | None
    checkpoint_every: str | None
    keep: int
    heartbeat_limit_s: float
    collective_limit_s: float
    memory_bytes: int | None
    num_cpus: float | None
    must_limit: bool
    parameters: Mapping[str, str | bool | int | float]
    framework: str


class Prepared(NamedTuple):
    """A submission, and the code to upload before it.

    ``packed`` None: there is no code to upload. ``script``: the Python script in that code that the job runs. None:
    there is none, or it is not known.
    """

    fields: dict[str, Any]
    packed: Packed | None
    script: Path | None = None


def prepare(
    program: str | Path | Callable[..., Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    code: str | Path | None = None,
    directory: str | Path | None = None,
) -> Prepared:
    """Make a submission.

    Args:
        program: a script, or a function; with a framework, the first word of its command line.
        arguments: of the script or the function; with a framework, the other words of the command line.
        options: as in `JobOptions`.
        code: the folder to upload, or the SHA-256 of code that was uploaded before. None: for a script the current
            directory if it contains the script, else the script's folder; for a command line the current directory;
            for a function only the function.
        directory: on the machines, which contains the script and in which it runs; then nothing is uploaded.

    Raises:
        UsageError: there is no such script, the code cannot be sent, or an option is unknown.
    """
    from legato.client.packing import explain_absence, pack

    fields = check_options(options)
    if code is not None and directory is not None:
        raise UsageError(
            "Cannot submit with both code and directory: give code to upload the program, or directory to run it "
            "where it is."
        )
    is_script = fields.get("framework") in (None, _SCRIPTS)
    if callable(program):
        if directory is not None:
            raise UsageError("Cannot submit a function with a directory: a function is uploaded. Leave directory out.")
        if not is_script:
            raise UsageError(
                f"Cannot submit a function with framework '{fields['framework']}': it is a Python program. Leave "
                "framework out."
            )
        return _prepare_function(program, arguments, fields, code)
    words = [str(argument) for argument in arguments]
    fields.setdefault("name", make_name(Path(program).stem))
    if directory is not None:
        return Prepared({**fields, "program": [str(program), *words], "directory": str(directory)}, None)
    if isinstance(code, str) and _SHA256.fullmatch(code):
        return Prepared({**fields, "program": [str(program), *words], "code": code}, None)
    if not is_script:
        # Only the framework knows which of the words are files.
        top = _find_current_directory(str(program)) if code is None else Path(code)
        packed = pack(top, max_bytes=_MAX_CODE_BYTES)
        own = top / program if str(program) in packed.names and str(program).endswith(_PYTHON) else None
        return Prepared({**fields, "program": [str(program), *words], "code": packed.sha256}, packed, own)
    folder, script = _find_folder(Path(program), None if code is None else Path(code))
    _check_python(folder / script)
    packed = pack(folder, max_bytes=_MAX_CODE_BYTES)
    if script not in packed.names:
        raise UsageError(f"Cannot submit '{program}': {explain_absence(folder, script)}")
    return Prepared({**fields, "program": [script, *words], "code": packed.sha256}, packed, folder / script)


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as fields of a submission.

    Raises:
        UsageError: an option is unknown.
    """
    known = JobOptions.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise UsageError(f"Cannot submit with '{name}': a job has no such field. {hint}")
    return dict(options)


def make_name(text: str) -> str:
    """Return a valid job name that resembles a text.

    >>> make_name("my train!"), make_name("_run"), make_name("...")
    ('my-train', 'run', 'job')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-").rstrip("-")[:63] or _DEFAULT_NAME


def _prepare_function(
    function: Callable[..., Any], arguments: tuple[Any, ...], fields: dict[str, Any], code: str | Path | None
) -> Prepared:
    from legato.client.functions import PROGRAM, make_files, name_of
    from legato.client.packing import pack, pack_files

    files = make_files(function, arguments, has_folder=code is not None)
    packed = pack_files(files) if code is None else pack(Path(code), max_bytes=_MAX_CODE_BYTES, extra=files)
    fields.setdefault("name", make_name(name_of(function)))
    return Prepared({**fields, "program": [PROGRAM], "code": packed.sha256}, packed)


def _is_no_project(folder: Path, here: Path) -> bool:
    """Return whether a default folder contains more than a program: the root, the system, the user's home."""
    if folder == Path.home() or folder in Path.home().parents:
        return True
    if folder == here:
        return len(folder.parts) == 1
    top = folder.parts[1] if len(folder.parts) > 1 else ""
    # Folders of other users, parents of the current directory, and world-writable folders such as /tmp.
    return top in _SYSTEM or len(folder.parts) <= 2 or here.is_relative_to(folder)


def _check_project(program: str, folder: Path, here: Path) -> None:
    if _is_no_project(folder, here):
        raise UsageError(
            f"Cannot submit '{program}' from '{folder}': Legato would upload all of it. Put the program into a "
            "separate folder and submit from there, or name the folder to upload with --code (in Python: code=...)."
        )


def _find_current_directory(program: str) -> Path:
    """Return the current directory, which is uploaded for a command line."""
    here = Path.cwd()
    _check_project(program, here, here)
    return here


def _check_python(script: Path) -> None:
    """Raise UsageError if a file is not a Python script, by its suffix and its first line."""
    if script.suffix.lower() in _PYTHON:
        return
    with script.open("rb") as file:
        first = file.readline(_MAX_FIRST_BYTES)
    if not (first.startswith(b"#!") and b"python" in first):
        raise UsageError(
            f"Cannot submit '{script}': it is not a Python script: its name does not end in '.py', and it does not "
            "begin with '#!/usr/bin/env python3'. Name the script to train with."
        )


def _find_folder(script: Path, folder: Path | None) -> tuple[Path, str]:
    """Return the folder to upload and the script's name in it."""
    here = Path.cwd()
    if folder is not None:
        inside = folder / script
        path = inside if inside.is_file() or not script.is_file() else script
    else:
        path = script
    if not path.is_file():
        what = "it is a directory" if path.is_dir() else "there is no such file"
        raise UsageError(f"Cannot submit '{script}': {what}. Name the Python script to train with.")
    # A link is not resolved, so that packing refuses it: its target would not be uploaded.
    whole = path.parent.resolve() / path.name
    if folder is None:
        folder = here if whole.is_relative_to(here) else whole.parent
        _check_project(str(script), folder, here)
    top = folder.resolve()
    if not whole.is_relative_to(top):
        raise UsageError(f"Cannot submit '{script}': it is not in '{folder}', the folder to upload.")
    return folder, whole.relative_to(top).as_posix()
