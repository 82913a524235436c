"""Frameworks: how the platform offers and calls them, and the launcher of each worker. Pure.

A framework turns the command line of a training definition into the program of a job. The platform knows those of its
own and those that plugins bring, all of them by this page alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from typing import Final, Literal, Protocol

import msgspec

from legato.core.errors import BadField
from legato.core.spec import GuestSpec

DistributedName = Literal["single", "static", "elastic"]

_NUM_SHOWN: Final = 10
_PYTHON: Final = re.compile(r"python(?:3(?:\.[0-9]+)?)?")


class Launcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What runs the program of a job that is not simply a Python script.

    Args:
        module: of Legato; run as a script in each worker, with the program and its arguments.
        script: the file of the program, from the working directory on, or absolute. None: it is not known which.
        folder: of the working directory, into which uploaded code is copied; "": it is the working directory itself.
        preloads: what the script imports may be loaded before the workers are forked.
        environment: variables that it needs; those of the job go before them.
        guest: what lives beside it in the driver's process. None: nothing.
        most_workers: more are of no use to the program: it divides its work by this number. None: it does not matter.
    """

    module: str
    script: str | None = None
    folder: str = ""
    preloads: bool = False
    environment: dict[str, str] = {}
    guest: GuestSpec | None = None
    most_workers: int | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a framework is asked for.

    Args:
        words: of the command line.
        files: names of the files of the uploaded code. None: the program is in a directory on the machines.
        distributed: how many workers there are.
        max_nodes: workers at most.
        user: who runs it.
        name: of the run.
        data: directory of its data on the machines. None: it needs none.
    """

    words: tuple[str, ...]
    files: Collection[str] | None
    distributed: DistributedName
    max_nodes: int
    user: str
    name: str
    data: str | None = None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The program of a job.

    Args:
        program: and its own arguments.
        launcher: what runs it. None: it is a Python script.
        labels: of the job.
    """

    program: tuple[str, ...]
    launcher: Launcher | None = None
    labels: dict[str, str] = {}


class Framework(Protocol):
    """What runs the programs of training definitions.

    Attributes:
        name: by which definitions name it.
        title: for people.
        description: what it runs, in one or two sentences.
        distributed: how many workers it can have.
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def distributed(self) -> Sequence[DistributedName]: ...

    def prepare(self, wanted: Wanted) -> Prepared:
        """Return the program of a job.

        Raises:
            BadField: the command cannot be run so; the message says what to write.
        """
        ...


def drop_python(words: Sequence[str], instead: str) -> Sequence[str]:
    """Return the words from the script on: a leading Python is left out, since one runs already.

    Args:
        words: of a command, one at least.
        instead: what to write where there is no script.

    Raises:
        BadField: there is no script.

    >>> drop_python(["python3.11", "train.py"], ""), drop_python(["train.py", "python"], "")
    (['train.py'], ['train.py', 'python'])
    """
    left = words[1:] if _PYTHON.fullmatch(words[0]) else words
    if not left or left[0].startswith("-"):
        raise BadField("command", f"The command names no script. {instead}")
    return left


def check_in_code(name: str, files: Collection[str], what: str = "script") -> None:
    """Raise BadField unless a file is in uploaded code; the message says what is there, and what may be meant.

    >>> check_in_code("a.py", ["b/a.py"])
    Traceback (most recent call last):
    legato.core.errors.BadField: The script 'a.py' is not in the code. Did you mean 'b/a.py'? Name it by its path there.
    """
    if name in files:
        return
    told = f"The {what} '{name[:200]}' is not in the code"
    base = name.rpartition("/")[2]
    near = sorted(file for file in files if file.rpartition("/")[2] == base)
    near = near or difflib.get_close_matches(name, sorted(files), 1)
    if near:
        raise BadField("command", f"{told}. Did you mean '{near[0]}'? Name it by its path there.")
    shown = ", ".join(sorted(files)[:_NUM_SHOWN])
    more = f" and {len(files) - _NUM_SHOWN} more" if len(files) > _NUM_SHOWN else ""
    raise BadField("command", f"{told}, which has: {shown}{more}. Name it by its path there.")
