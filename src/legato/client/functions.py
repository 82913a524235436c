"""Turns a function into a small program that calls it on workers. Calls nothing itself.

The function is pickled by value (cloudpickle): its code, its closure, and the module that defines it, unless that is
installed. Its other imports must be installed on the machines, or be in the folder that is uploaded with it.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cloudpickle

from legato.core.errors import UsageError

PROGRAM: Final = "legato_function.py"
_PICKLE: Final = "legato_function.pickle"
_PROTOCOL: Final = 5
_SOURCE: Final = f'''"""Calls a function that was submitted from Python. Written by Legato."""

import pickle
import sys
from pathlib import Path

MADE_WITH = {sys.version_info[:2]}

if sys.version_info[:2] != MADE_WITH:
    here, there = (".".join(map(str, version)) for version in (sys.version_info[:2], MADE_WITH))
    sys.exit(f"Cannot call the function: it was made by Python {{there}}, and here is {{here}}. Submit a script.")
with Path(__file__).with_name("{_PICKLE}").open("rb") as file:
    function, arguments = pickle.load(file)
function(*arguments)
'''


def make_files(function: Callable[..., Any], arguments: tuple[Any, ...], *, has_folder: bool) -> dict[str, bytes]:
    """Return the files of a program that calls a function, by name; `PROGRAM` is the one to run.

    Args:
        function: the function to call on every worker.
        arguments: its arguments.
        has_folder: whether a folder is uploaded with the function, from which it can import modules.

    Raises:
        UsageError: the function cannot be pickled.
    """
    module = None if has_folder else _find_own_module(function)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps((function, arguments), protocol=_PROTOCOL)
    except Exception as error:
        # Pickling an object may raise any error, whose message explains it best.
        raise UsageError(
            f"Cannot send function '{name_of(function)}': {error}. Open files, and create locks and connections, "
            "inside of the function, or submit a script."
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
    return {PROGRAM: _SOURCE.encode(), _PICKLE: pickled}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function.

    >>> name_of(functools.partial(len, "a"))
    'len'
    """
    bare = _unwrap(function)
    return str(getattr(bare, "__name__", type(bare).__name__))


def _unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _find_own_module(function: Callable[..., Any]) -> ModuleType | None:
    """Return the module or package that defines a function, None if it is installed."""
    name = getattr(_unwrap(function), "__module__", None) or ""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or file is None or name == "__main__":
        return None
    installed = [sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib", "platstdlib")]
    if any(Path(file).is_relative_to(folder) for folder in installed if folder):
        return None
    # The whole package, because its modules import one another.
    package = name.partition(".")[0]
    return None if package == "legato" else sys.modules.get(package, module)
