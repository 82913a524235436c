"""The Python interpreter of a job, if it is not Legato's own: finds it, and checks that workers can run with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from legato.core.errors import UsageError
from legato.core.job_user import JobUser
from legato.core.version import __version__
from legato.engines import interpreter_search
from legato.engines.interpreter_search import search
from legato.engines.parent import run_to_end
from legato.system.decoding import decode

_PROBE: Final = Path(__file__).parents[1] / "train" / "process" / "interpreter_probe.py"
"""Not imported here: it imports torch."""
_SEARCH: Final = Path(interpreter_search.__file__)
_NAMES: Final = ("bin/python3", "bin/python")
_MIN_PYTHON: Final = (3, 11)
_MIN_TORCH: Final = (2, 8)
_LIMIT_S: Final = 120.0
_CAPABILITIES: Final = {"avx2": "AVX2", "avx512": "AVX512"}
_ADVICE: Final = "Give the path of a Python executable, or the folder of a virtual environment (venv, conda)."


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What `interpreter_probe` reports.

    Args:
        python: its version.
        torch, legato: versions. None: not installed, or not reached.
        capability: the instruction set that its torch uses, under the job's variables.
        installed: those of the asked packages that are installed.
        error: of the first import that failed.
        missing: the module that was not found.
    """

    python: tuple[int, ...]
    torch: str | None = None
    legato: str | None = None
    capability: str | None = None
    installed: tuple[str, ...] = ()
    error: str | None = None
    missing: str | None = None


def find_python(given: str, user: JobUser | None = None) -> Path:
    """Return the executable that a user means.

    Args:
        given: path of an executable, or of the folder of an environment.
        user: the system user of the job, with whose rights it is searched for, so that the answer reveals only what
            this user can see. None: the user of this process.

    Raises:
        UsageError: there is no such executable.
    """
    # Not resolved: an environment is known by its link to the executable.
    path = str(Path(given).absolute())
    if user is None:
        kind, found = search(path, _NAMES)
    else:
        command = [sys.executable, "-I", "-S", str(_SEARCH), path, *_NAMES]
        _, output = run_to_end(user, command, {}, _LIMIT_S)
        kind, _, found = output.partition(" ")
    if kind == "found":
        return Path(found)
    whose = "" if user is None else f" that the system user {user.uid}, as whom the job runs, can see"
    why = {
        "folder": f"the folder has no {_NAMES[1]}{whose}",
        "closed": "it is not an executable file" if user is None else f"the system user {user.uid} may not execute it",
    }.get(kind, f"there is no such file or folder on this machine{whose}")
    raise UsageError(f"Cannot use the Python '{given[:500]}': {why}. {_ADVICE}")


def variables_of_python(python: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables for processes of an interpreter: its programs first in ``PATH``, and no other environment's.

    >>> variables_of_python(Path("/e/bin/python"), {"PATH": "/bin", "VIRTUAL_ENV": "/own"})
    {'PATH': '/e/bin:/bin'}
    """
    kept = {
        name: value
        for name, value in variables.items()
        if name not in ("VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
    }
    kept["PATH"] = os.pathsep.join([str(python.parent), variables.get("PATH", os.defpath)])
    folder = python.parent.parent
    if (folder / "pyvenv.cfg").is_file():
        kept["VIRTUAL_ENV"] = str(folder)
    elif (folder / "conda-meta").is_dir():
        kept |= {"CONDA_PREFIX": str(folder), "CONDA_DEFAULT_ENV": folder.name}
    return kept


def check_python(
    python: Path,
    variables: Mapping[str, str],
    *,
    capability: str | None = None,
    packages: Sequence[str] = (),
    user: JobUser | None = None,
) -> tuple[str, ...]:
    """Check that workers can run with an interpreter. Takes seconds, because it imports torch.

    Args:
        python: the executable.
        variables: the environment of the workers.
        capability: the instruction set to which the job is limited; see `legato.core.spec.JobSpec`. None: not limited.
        packages: of which the installed ones are returned.
        user: the system user of the job. None: the user of this process.

    Raises:
        UsageError: workers cannot run with it; the message says what to install or to change.
    """
    found = ask_python(python, variables, packages=packages, user=user)
    _judge(f"Cannot use the Python '{python}'", python, found, capability)
    return found.installed


def ask_python(
    python: Path, variables: Mapping[str, str], *, packages: Sequence[str] = (), user: JobUser | None = None
) -> Found:
    """Return what an interpreter is, and the first error of an import that workers need. Takes seconds.

    The arguments are those of `check_python`.

    Raises:
        UsageError: it is no interpreter that can be run.
    """
    told = f"Cannot use the Python '{python}'"
    whose = "" if user is None else f" as the system user {user.uid}"
    command = [str(python), str(_PROBE), *packages]
    try:
        code, output = run_to_end(user, command, variables, _LIMIT_S)
    except OSError as error:
        raise UsageError(f"{told}: it cannot be run{whose}: {error.strerror or error}. {_ADVICE}") from error
    except subprocess.TimeoutExpired:
        raise UsageError(f"{told}: it did not end its imports within {_LIMIT_S:g} s{whose}.") from None
    last = (output.strip().splitlines() or ["it printed nothing"])[-1]
    try:
        return decode(last.encode(), Found)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise UsageError(f"{told}: it cannot be run{whose} (exit code {code}): {last[:500]}. {_ADVICE}") from None


def _judge(told: str, python: Path, found: Found, capability: str | None) -> None:
    """Raise UsageError unless workers can run with what was found."""
    version = ".".join(map(str, found.python))
    install = f"Install them: {python} -m pip install 'legato[train]=={__version__}'"
    if found.python[:2] < _MIN_PYTHON:
        needed = ".".join(map(str, _MIN_PYTHON))
        raise UsageError(
            f"{told}: it is Python {version}, and Legato needs {needed} or later. Make an environment with a newer "
            f"one: python{needed} -m venv FOLDER."
        )
    if found.torch is None:
        why = (
            f"it has no torch (Python {version})"
            if found.missing == "torch"
            else f"torch cannot be imported: {found.error}"
        )
        raise UsageError(f"{told}: {why}. {install}.")
    if _read_release(found.torch) < _MIN_TORCH:
        needed = ".".join(map(str, _MIN_TORCH))
        raise UsageError(f"{told}: it has torch {found.torch}, and Legato needs {needed} or later. {install}.")
    if found.legato is None:
        why = "it has no Legato" if found.missing == "legato" else f"Legato cannot be imported: {found.error}"
        raise UsageError(f"{told}: {why} (torch {found.torch}, Python {version}). {install}.")
    if found.legato != __version__:
        raise UsageError(f"{told}: it has Legato {found.legato}, and this one is {__version__}. {install}.")
    if found.error is not None:
        raise UsageError(f"{told}: a worker cannot be started with it: {found.error}. {install}.")
    wanted = _CAPABILITIES.get(capability or "")
    if wanted is not None and found.capability != wanted:
        raise UsageError(
            f"{told}: its torch {found.torch} uses the instruction set {found.capability}, and the job asks for "
            f"{capability}. Leave the CPU capability out, or install a build of torch with {wanted}."
        )


def _read_release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version.

    >>> _read_release("2.13.0+cpu")
    (2, 13)
    """
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
