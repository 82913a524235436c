"""The frameworks that can run programs on this server: Legato's own, and those that plugins add."""

from __future__ import annotations

import importlib.metadata
import platform
import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from legato.core.errors import BadField, Conflict
from legato.core.frameworks import DistributedName, Framework, Launcher, Prepared, Wanted, check_in_code, drop_python
from legato.core.spelling import ask_whether

_INTERPRETER: Final = re.compile(r"(?:.*/)?(?:bash|sh|dash|zsh|ksh|perl|ruby|Rscript|julia|python(?:3(?:\.[0-9]+)?)?)")
_RUNTIME: Final = re.compile(r"(?:pytorch|tensorflow|keras)(?:-onnx)?[ _](?:rt)?[0-9.]+-py ?3(?:\.[0-9]+)?(?:-edt)?")
COMMAND_LAUNCHER: Final = "legato.train.process.command"


@dataclass(frozen=True)
class OwnScripts:
    """Python scripts, as `legato submit` runs them."""

    name: str = "legato"
    title: str = "Legato"
    description: str = (
        "A Python script. With legato.elastic or the Trainer it can grow and shrink. Each worker runs "
        "any other script from start to end."
    )
    distributed: Sequence[DistributedName] = ("single", "static", "elastic")

    def prepare(self, wanted: Wanted) -> Prepared:
        """See `Framework`."""
        words = drop_python(
            wanted.words,
            "Write the script and its arguments, such as 'train.py --epochs 3'; options of Python itself and modules "
            "('-m') are for the framework 'command'.",
        )
        script = posixpath.normpath(words[0])
        if wanted.files is not None:
            check_in_code(script, wanted.files)
        return Prepared(program=(script, *words[1:]))

    def recognises(self, imports: Collection[str]) -> bool:  # noqa: ARG002 -- of the interface
        """See `Framework`. Programs for no other framework are run by this one, so nothing is to be recognised."""
        return False


@dataclass(frozen=True)
class PlainCommands:
    """Any command line."""

    name: str = "command"
    title: str = "Command"
    description: str = (
        "Any command, run without a shell in the directory of its code, once per node. Several nodes find one another "
        "by "
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun. It does not grow or shrink, and must save "
        "its own state."
    )
    distributed: Sequence[DistributedName] = ("single", "static")

    def prepare(self, wanted: Wanted) -> Prepared:
        """See `Framework`."""
        script = _find_script(wanted.words)
        if script is not None and wanted.files is not None and not script.startswith("/"):
            check_in_code(posixpath.normpath(script), wanted.files, "file")
        return Prepared(program=wanted.words, launcher=Launcher(module=COMMAND_LAUNCHER, script=script))

    def recognises(self, imports: Collection[str]) -> bool:  # noqa: ARG002 -- of the interface
        """See `Framework`. Any program can be a command, so nothing is to be recognised."""
        return False


@dataclass(frozen=True)
class Runtime:
    """A runtime as other platforms name it: ``pytorch-onnx 1.1-py 3.6``. Its programs run with what is installed here.

    Args:
        name: as the user writes it.
    """

    name: str

    @classmethod
    def read(cls, name: str) -> Runtime | None:
        """Return the runtime of a name, None if it is no name of a runtime.

        >>> Runtime.read("pytorch-onnx_1.1-py3.6-edt").package, Runtime.read("edtPyTorch")
        ('torch', None)
        """
        return cls(name) if _RUNTIME.fullmatch(name) else None

    @property
    def package(self) -> str:
        """The package that its programs use."""
        family = re.match("[a-z]+", self.name)
        return "torch" if family is None or family[0] == "pytorch" else family[0]

    @property
    def real(self) -> str | None:
        """What its programs run with here: ``torch 2.8.0, Python 3.11``. None: the package is not installed."""
        try:
            version = importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None
        return f"{self.package} {version}, Python {platform.python_version()}"

    def explain(self, framework: Framework) -> str:
        """Return the notice about a definition that names the runtime.

        Raises:
            BadField: the package of the runtime is not installed.
        """
        if self.real is None:
            raise BadField(
                "framework",
                f"The runtime '{self.name}' needs the package {self.package}, which is not installed here. Ask the "
                "operator to install it.",
            )
        return f"'{self.name}' runs here with {self.real}, as the framework '{framework.name}'."


OWN: Final[tuple[Framework, ...]] = (OwnScripts(), PlainCommands())


class OfferedFrameworks:
    """The frameworks of a server, by name.

    Args:
        added: the frameworks that plugins add.
        runtimes: names of runtimes in documents of other systems. Definitions may give these, and names like them.
    """

    def __init__(self, added: Iterable[Framework] = (), runtimes: Iterable[str] = ()) -> None:
        self._runtimes = tuple(Runtime(name) for name in runtimes)
        self._frameworks = {framework.name: framework for framework in (*OWN, *added)}

    def list(self) -> tuple[Framework, ...]:
        """Return all frameworks."""
        return tuple(self._frameworks.values())

    def list_runtimes(self) -> tuple[Runtime, ...]:
        """Return the runtimes whose package is installed here."""
        return tuple(runtime for runtime in self._runtimes if runtime.real is not None)

    def choose(self, name: str | None, imports: Collection[str]) -> tuple[Framework, str | None]:
        """Return the framework of a new training definition, and a notice for its user; None: no notice.

        Args:
            name: of a framework, or of a runtime. None: the framework that recognises the program.
            imports: names of the modules that the program imports.

        Raises:
            BadField: there is no such framework, or a runtime has no package here.
        """
        runtime = Runtime.read(name) if name is not None and self._runtimes else None
        if name is not None and runtime is None:
            return self.find(name), None
        found = self.recognise(imports) or OWN[0]
        return found, None if runtime is None else runtime.explain(found)

    def recognise(self, imports: Collection[str]) -> Framework | None:
        """Return the framework whose modules a program imports. None: there is none, or it imports Legato itself."""
        if "legato" in imports:
            return None
        return next((one for one in self._frameworks.values() if one.recognises(imports)), None)

    def find(self, name: str) -> Framework:
        """Return a framework by its name.

        Raises:
            BadField: there is no framework of this name.
        """
        found = self._frameworks.get(name)
        if found is None:
            hint = ask_whether(name, self._frameworks)
            raise BadField(
                "framework",
                f"There is no framework '{name[:100]}' here.{hint} There are {', '.join(self._frameworks)}.",
            )
        return found

    def find_again(self, name: str, definition: str) -> Framework:
        """Return the framework of a stored training definition.

        Args:
            name: of the framework.
            definition: name of the training definition, for the error.

        Raises:
            Conflict: the server no longer offers the framework.
        """
        try:
            return self.find(name)
        except BadField as error:
            raise Conflict(
                f"Cannot run training definition '{definition}': this server no longer offers its framework '{name}'. "
                "See the setting compat."
            ) from error


def _find_script(words: Sequence[str]) -> str | None:
    """Return the file that a command runs. None: the command does not show one.

    That is the command itself if it is a relative path, or the first argument of an interpreter.

    >>> _find_script(["bash", "train.sh", "--x"]), _find_script(["./train"]), _find_script(["nvidia-smi", "-L"])
    ('train.sh', './train', None)
    >>> _find_script(["python", "-m", "train"])
    """
    if "/" in words[0] and not words[0].startswith("/"):
        return words[0]
    has_script = len(words) > 1 and not words[1].startswith("-") and _INTERPRETER.fullmatch(words[0]) is not None
    return words[1] if has_script else None


async def _read_offered(request: Request) -> OfferedFrameworks:
    found: OfferedFrameworks = request.app.state.frameworks
    return found


Frameworks = Annotated[OfferedFrameworks, Depends(_read_offered)]
"""The type of a route's parameter through which it gets the frameworks of the server."""
