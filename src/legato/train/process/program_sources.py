"""Runs a program as it was when its job began, and lists which of its files a worker has run.

Modules keep their paths; only their text comes from the snapshot, so that a program finds its data in the same place as
always. A module that was written after this process began is read from the disk: the program generates it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import sys
import sysconfig
import tempfile
import time
import types
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, Final

from legato.core.program import OF_FILE, PROGRAM_VARIABLE, ProgramSnapshot, Source
from legato.system.decoding import decode

_MAX_FILES: Final = 5000
_COARSE_CLOCK: Final = 5  # CLOCK_REALTIME_COARSE, which Python does not name
_PACKAGE: Final = Path(__file__).resolve().parents[2]  # where Legato itself lies


class _Loader(SourceFileLoader):
    """Loads one module from a snapshot; its data files are read from the disk, as always."""

    def __init__(self, fullname: str, path: str, source: Source) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_source(self, fullname: str) -> str:  # noqa: ARG002 -- it knows one module
        return importlib.util.decode_source(self._source.content)

    def get_code(self, fullname: str) -> types.CodeType:  # noqa: ARG002
        return compile_source(self._source, self.path)


class Snapshot(MetaPathFinder):
    """A program's snapshot, from which its modules are imported.

    Args:
        program: the sources that the driver kept.
    """

    def __init__(self, program: ProgramSnapshot) -> None:
        self.folder = Path(program.folder)
        self._modules = {source.module: source for source in program.sources if source.module}
        self._script = program.sources[0]
        self.digests = {source.path: digest(source.content) for source in program.sources}
        self._began = _read_clock_of_files()

    def install(self) -> None:
        """Import modules from this snapshot when Python looks for them in the program's folder."""
        finders: list[Any] = sys.meta_path
        finders.insert(finders.index(PathFinder) if PathFinder in finders else len(finders), self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        source = self._modules.get(fullname)
        if source is None or not self._is_next(fullname, source, sys.path if path is None else path):
            return None
        if self._is_written_since(source):
            # The text is compared when the worker joins, as all texts that are not in the snapshot.
            self.digests.pop(source.path, None)
            return None
        file = str(self.folder / source.path)
        return importlib.util.spec_from_file_location(fullname, file, loader=_Loader(fullname, file, source))

    def _is_next(self, fullname: str, source: Source, path: Sequence[str]) -> bool:
        """Return whether Python would import this file: its folder is searched, and no earlier one has the module."""
        file = self.folder / source.path
        place = os.path.realpath(file.parent.parent if source.is_package else file.parent)
        before: list[Any] = list(path)
        folders = [os.path.realpath(entry) if isinstance(entry, str) else "" for entry in before]
        if place not in folders:
            return False
        del before[folders.index(place) :]
        found = PathFinder.find_spec(fullname, before) if before else None
        # Without a loader it is a folder without __init__.py; every module has precedence over it.
        return found is None or found.loader is None

    def _is_written_since(self, source: Source) -> bool:
        file = self.folder / source.path
        try:
            return file.stat().st_ctime > self._began and file.read_bytes() != source.content
        except OSError:
            return False

    def run_script(self, path: str) -> None:
        """Run the script as ``__main__``, as ``python PATH`` does."""
        module = types.ModuleType("__main__")
        module.__file__ = path
        before = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(compile_source(self._script, path), module.__dict__)  # noqa: S102 -- it is the user's program
        finally:
            sys.modules["__main__"] = before


def _read_clock_of_files() -> float:
    """Return the time by the clock of file times: on Linux it advances in ticks, behind the exact clock."""
    return time.clock_gettime(_COARSE_CLOCK if sys.platform == "linux" else time.CLOCK_REALTIME)


def read_snapshot(environment: MutableMapping[str, str]) -> Snapshot | None:
    """Return the snapshot that the driver has kept for this worker; None if there is none, or it may not be read.

    Without a snapshot the program's files are read as they are now, and compared when the worker joins.
    """
    path = environment.pop(PROGRAM_VARIABLE, None)
    if path is None:
        return None
    try:
        return Snapshot(decode(Path(path).read_bytes(), ProgramSnapshot))
    except OSError:
        return None


def compile_source(source: Source, path: str) -> types.CodeType:
    """Compile a file, and make tracebacks show these lines even if the file changes."""
    text = importlib.util.decode_source(source.content)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    code: types.CodeType = compile(source.content, path, "exec", dont_inherit=True)
    return code


def digest(content: bytes) -> str:
    """Return a short digest of a file."""
    return hashlib.sha256(content).hexdigest()[:12]


_installed: Snapshot | None = None


def run_from(snapshot: Snapshot) -> None:
    """Import modules of the program from a snapshot from now on."""
    global _installed  # noqa: PLW0603 - a process runs one program
    _installed = snapshot
    snapshot.install()


def describe_program() -> dict[str, str]:
    """Return the digests of the script and of the modules from its folder that this process has run.

    Files in an environment of Python, such as ``.venv``, are no part of the program. Neither are files that a library
    generates: each process has its own ones, in its own folder below the directory for temporary files.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None:
        return {}
    folder = _installed.folder if _installed is not None else Path(script).resolve().parent
    if folder.is_relative_to(_PACKAGE):
        # A program for another framework: the script that starts it is Legato's.
        return {}
    files = {os.path.realpath(script)}
    for module in list(sys.modules.values()):
        file = _file_of(module)
        if isinstance(file, str) and file.endswith(".py") and not _is_installed(file):
            files.add(os.path.realpath(file))
    known = {} if _installed is None else _installed.digests
    scratch = Path(tempfile.gettempdir()).resolve()
    may_generate = scratch.is_relative_to(folder)  # some people keep their programs in /tmp
    found = {}
    for path in map(Path, sorted(files)[:_MAX_FILES]):
        if path.is_relative_to(folder):
            name = str(path.relative_to(folder))
            if may_generate and name not in known and scratch in path.parents[1:]:
                continue
            found[f"{OF_FILE}{name}"] = known.get(name) or _digest_of(path)
    return found


def _file_of(module: Any) -> Any:
    # Not getattr: a module may then import something, which may fail.
    try:
        return object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None


def _digest_of(path: Path) -> str:
    try:
        return digest(path.read_bytes())
    except OSError:
        return "unreadable"


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or "/site-packages/" in file or "/dist-packages/" in file


_INSTALLED: Final = tuple(
    f"{place}/" for place in (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), _PACKAGE)
)
