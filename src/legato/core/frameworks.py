"""Frameworks: how the platform offers and calls them, and the launcher of each worker. Pure.

A framework turns the command line of a training definition into the program of a job. The platform has its own
frameworks and those of plugins, and uses all of them by this interface alone.
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
    """The launcher of a job whose program is not simply a Python script.

    Args:
        module: a module of Legato, which runs as a script in each worker, with the program and its arguments.
        script: path of the program's file, relative to the working directory or absolute. None: unknown.
        folder: below the working directory, into which uploaded code is copied; "": the working directory itself.
        preloads: the imports of the script may be loaded before the workers are forked.
        environment: variables that it needs; variables of the job override them.
        guest: the plugin that runs in the driver's process. None: no plugin.
        most_workers: the program divides its work by this number, so more workers do not help. None: no such number.
    """

    module: str
    script: str | None = None
    folder: str = ""
    preloads: bool = False
    environment: dict[str, str] = {}
    guest: GuestSpec | None = None
    most_workers: int | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a framework gets to prepare a program.

    Args:
        words: of the command line.
        files: names of the files of the uploaded code. None: the program is in a directory on the machines.
        distributed: how many workers there are.
        max_nodes: maximum number of workers.
        user: name of the user who runs it.
        name: of the run.
        data: directory of its data on the machines. None: the program needs no data.
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
        program: with its arguments.
        launcher: runs the program. None: the program is a Python script.
        labels: of the job.
    """

    program: tuple[str, ...]
    launcher: Launcher | None = None
    labels: dict[str, str] = {}


class Framework(Protocol):
    """Turns the command lines of training definitions into programs.

    Attributes:
        name: by which definitions name it.
        title: shown to people.
        description: the programs that it runs, in one or two sentences.
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
            BadField: the framework cannot run the command; the message says what to write.
        """
        ...

    def recognises(self, imports: Collection[str]) -> bool:
        """Return whether a program is written for this framework.

        Args:
            imports: names of the modules that the program imports, without what follows a dot.
        """
        ...


def drop_python(words: Sequence[str], instead: str) -> Sequence[str]:
    """Return the words from the script on, without a leading Python, because the worker is a Python already.

    Args:
        words: of a command, at least one.
        instead: what to write if there is no script, for the message.

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
    """Raise BadField unless a file is in uploaded code; the message names the files there, and a similar one.

    >>> check_in_code("a.py", ["b/a.py"])
    Traceback (most recent call last):
    legato.core.errors.BadField: The script 'a.py' is not in the code. Did you mean 'b/a.py'? Give its path in the code.
    """
    if name in files:
        return
    told = f"The {what} '{name[:200]}' is not in the code"
    base = name.rpartition("/")[2]
    near = sorted(file for file in files if file.rpartition("/")[2] == base)
    near = near or difflib.get_close_matches(name, sorted(files), 1)
    if near:
        raise BadField("command", f"{told}. Did you mean '{near[0]}'? Give its path in the code.")
    shown = ", ".join(sorted(files)[:_NUM_SHOWN])
    more = f" and {len(files) - _NUM_SHOWN} more" if len(files) > _NUM_SHOWN else ""
    raise BadField("command", f"{told}, which has: {shown}{more}. Give its path in the code.")
