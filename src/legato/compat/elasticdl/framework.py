"""Programs of ElasticDL as a framework of the platform: their launcher and their plugin. Pure.

The command line of such a program is ``[--num_minibatches_per_task N] [--add_gradients] [python] -m MODULE …``, or has
a script in place of ``-m MODULE``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from legato.compat.elasticdl.variables import MINIBATCHES_PER_TASK, SUM
from legato.core.errors import BadField
from legato.core.frameworks import DistributedName, Launcher, Prepared, Wanted, check_in_code
from legato.core.spec import GuestSpec

NAME: Final = "elasticdl"
MINIBATCHES_FLAG: Final = "--num_minibatches_per_task"
SUM_FLAG: Final = "--add_gradients"
_LAUNCHER: Final = "legato.compat.elasticdl.site.launch"
_GUEST: Final = "legato.compat.elasticdl.master:make_guest"
_PYTHON: Final = re.compile(r"python(?:3(?:\.[0-9]+)?)?")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_PACKAGES: Final = frozenset({"elasticai_api", "elasticdl"})


@dataclass(frozen=True)
class ElasticPrograms:
    """Programs of ElasticDL, as `legato.core.frameworks.Framework`."""

    name: str = NAME
    title: str = "ElasticDL"
    description: str = (
        "A PyTorch program written for elasticai_api, as 'elasticdl train --job_command' runs it: a script, or '-m' "
        "and a module. It may grow and shrink."
    )
    distributed: Sequence[DistributedName] = ("single", "static", "elastic")

    def prepare(self, wanted: Wanted) -> Prepared:
        """Return the program of a job.

        Raises:
            BadField: the command cannot be read, or names a program that does not exist.
        """
        words, num_minibatches = _take_count(wanted.words)
        environment = {} if num_minibatches is None else {MINIBATCHES_PER_TASK: num_minibatches}
        if words[:1] == (SUM_FLAG,):
            words = words[1:]
            environment[SUM] = "1"
        if words and _PYTHON.fullmatch(words[0]):
            words = words[1:]
        script = _find_script(words, wanted.files)
        options = {} if num_minibatches is None else {"num_minibatches_per_task": num_minibatches}
        return Prepared(
            program=words,
            launcher=Launcher(
                module=_LAUNCHER,
                script=script,
                preloads=True,
                environment=environment,
                guest=GuestSpec(entry=_GUEST, options={"num_workers": str(wanted.max_nodes), **options}),
                # A step has this number of mini-batches: more workers would have none.
                most_workers=wanted.max_nodes,
            ),
        )

    def recognises(self, imports: Collection[str]) -> bool:
        """Return whether a program imports ElasticDL."""
        return not _PACKAGES.isdisjoint(imports)


def find_in_files(module: str, files: Collection[str]) -> str | None:
    """Return the file of a module among files; None if they do not contain it.

    >>> find_in_files("zoo.mnist", ["zoo/mnist.py"]), find_in_files("zoo.mnist", ["zoo/mnist/__main__.py"])
    ('zoo/mnist.py', 'zoo/mnist/__main__.py')
    """
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__main__.py") if name in files), None)


def _take_count(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    said, equals, value = words[0].partition("=") if words else ("", "", "")
    if said != MINIBATCHES_FLAG:
        return tuple(words), None
    rest = words[1:]
    if not equals:
        value, rest = (rest[0] if rest else ""), rest[1:]
    if not _COUNT.fullmatch(value):
        raise BadField("command", f"Cannot read {MINIBATCHES_FLAG} '{value[:100]}'. Give a whole number of at least 1.")
    return tuple(rest), value


def _find_script(words: Sequence[str], files: Collection[str] | None) -> str | None:
    """Return the file of the program, as the working directory sees it; None if the program may be installed."""
    if not words or (words[0].startswith("-") and words[0] != "-m") or words[:1] == words == ("-m",):
        raise BadField("command", "The command names no program. Write 'python SCRIPT ...' or 'python -m MODULE ...'.")
    if words[0] != "-m":
        script = str(PurePosixPath(words[0]))
        if files is not None and not script.startswith("/"):
            check_in_code(script, files)
        return script
    module = words[1]
    if not _MODULE.fullmatch(module):
        raise BadField("command", f"'{module[:100]}' is not a name of a module. Write it as in 'python -m zoo.mnist'.")
    if files is None:
        return None
    found = find_in_files(module, files)
    top = module.partition(".")[0]
    if found is None and any(name == f"{top}.py" or name.startswith(f"{top}/") for name in files):
        check_in_code(f"{module.replace('.', '/')}.py", files, "module")
    return found
