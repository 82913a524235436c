"""Runs a program written for ElasticDL as the program of a job: ``launch.py [-m MODULE | SCRIPT] [ARGUMENTS…]``.

It puts the packages beside it (``elasticai_api``, ``elasticdl``, ``horovod``) on ``sys.path``, behind the program's own
directory and before everything else, seeds the random numbers alike in all workers, and runs the program as
``__main__``. Where the program's own directory holds packages of these names, as ElasticDL's own clone does, those
beside this file come first. Trains nothing.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from legato.core.errors import UsageError

_SITE: Final = Path(__file__).parent
_PACKAGES: Final = ("elasticai_api", "elasticdl", "horovod")
_EXIT_USAGE: Final = 2


def main(arguments: Sequence[str]) -> None:
    """Run a program.

    Args:
        arguments: ``-m`` and the name of a module, or the path of a script, and its own arguments.

    Raises:
        UsageError: there is no such program.
    """
    _step_aside()
    check(arguments)
    if arguments[0] == "-m":
        _set_path(Path.cwd())
        module = arguments[1]
        _seed()
        sys.argv[:] = [module, *arguments[2:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    _set_path(script.resolve().parent)
    _seed()
    sys.argv[:] = [str(script), *arguments[1:]]
    runpy.run_path(str(script), run_name="__main__")


def check(arguments: Sequence[str]) -> None:
    """Check that there is such a program, without loading it. Arguments and errors are those of `main`."""
    if not arguments or (arguments[0] == "-m" and len(arguments) == 1):
        raise UsageError("There is no program to run. Name it: launch.py SCRIPT [ARGUMENTS...] or launch.py -m MODULE.")
    if arguments[0] == "-m":
        first = arguments[1].partition(".")[0]
        if not first or not (PathFinder.find_spec(first, [str(Path.cwd())]) or find_spec(first)):
            raise UsageError(f"There is no module {arguments[1]} in {Path.cwd()}, nor installed. Name an existing one.")
    elif not Path(arguments[0]).is_file():
        raise UsageError(f"There is no program {arguments[0]} in {Path.cwd()}. Name an existing one.")


def _set_path(first: Path) -> None:
    own = {str(_SITE), str(_SITE.resolve())}
    rest = [entry for entry in sys.path if entry not in own]
    hidden = [name for name in _PACKAGES if (first / name).is_dir() or (first / f"{name}.py").is_file()]
    if hidden:
        sys.stderr.write(
            f"legato: {first} has packages named {', '.join(hidden)}. This program gets Legato's instead of them: "
            "ElasticDL's own need its master, and are incomplete in its repository.\n"
        )
    sys.path[:] = [str(_SITE), str(first), *rest] if hidden else [str(first), str(_SITE), *rest]
    # Loader processes that are spawned read this variable.
    known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if str(_SITE) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_SITE), *known])


def _seed() -> None:
    from legato.compat.elasticdl.job_environment import seed_alike

    seed_alike()


def _step_aside() -> None:
    """Make tracebacks begin at the program, not at the launcher: they begin at the first frame of ``__main__``."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "__main__" and Path(frame.f_code.co_filename) == Path(__file__):
            frame.f_globals["__name__"] = "legato launcher"


if __name__ == "__main__":
    try:
        check(sys.argv[1:])
    except UsageError as error:
        sys.stderr.write(f"legato: {error}\n")
        sys.exit(_EXIT_USAGE)
    main(sys.argv[1:])
