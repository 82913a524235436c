"""A program runs from its snapshot as it would from its folder."""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import math
import pkgutil
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.driver.snapshot import take_snapshot
from legato.train.process import program_sources
from legato.train.process.program_sources import Snapshot, describe_program


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave no module and no finder behind."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(program_sources, "_installed", None)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def begin(folder: Path, files: dict[str, str], began: float = math.inf) -> Snapshot:
    """Write a program, and import its modules from a snapshot of it, as a process that began then."""
    write(folder, files)
    program = take_snapshot(folder / "train.py")
    assert program is not None
    snapshot = Snapshot(program)
    snapshot._began = began
    sys.path.insert(0, str(folder))
    program_sources.run_from(snapshot)
    return snapshot


def test_modules_are_what_they_were_and_where_they_were(tmp_path: Path) -> None:
    begin(
        tmp_path,
        {"train.py": "import kept_net.part", "kept_net/__init__.py": "A = 1", "kept_net/part.py": "FACTOR = 1"},
    )
    (tmp_path / "kept_net/part.py").write_text("FACTOR = 2")
    part = importlib.import_module("kept_net.part")
    assert (part.FACTOR, part.__file__) == (1, str(tmp_path / "kept_net/part.py"))


def test_a_module_that_the_program_writes_is_imported_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": "import kept_made, kept_part", "kept_made.py": "RATE = 1", "kept_part.py": "RATE = 1"}
    snapshot = begin(tmp_path, files, began=time.time() - 1)
    write(tmp_path, {"kept_made.py": "RATE = 2"})
    assert importlib.import_module("kept_made").RATE == 2
    assert importlib.import_module("kept_part").RATE == 1
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    found = describe_program()
    assert found["file kept_made.py"] == program_sources.digest(b"RATE = 2")
    assert found["file kept_part.py"] == snapshot.digests["kept_part.py"]


def test_a_package_of_the_program_finds_its_data(tmp_path: Path) -> None:
    begin(tmp_path, {"train.py": "import kept_data", "kept_data/__init__.py": "", "kept_data/rates.txt": "0.1"})
    importlib.import_module("kept_data")
    assert importlib.resources.files("kept_data").joinpath("rates.txt").read_text() == "0.1"
    assert pkgutil.get_data("kept_data", "rates.txt") == b"0.1"


def test_a_folder_that_the_program_puts_first_comes_first(tmp_path: Path) -> None:
    folder, first = tmp_path / "program", tmp_path / "first"
    begin(folder, {"train.py": "import kept_tools", "kept_tools.py": "PLACE = 'beside'"})
    write(first, {"kept_tools.py": "PLACE = 'first'"})
    sys.path.insert(0, str(first))
    assert importlib.import_module("kept_tools").PLACE == "first"


def test_a_folder_without_init_does_not_hide_an_installed_package(tmp_path: Path) -> None:
    folder, installed = tmp_path / "program", tmp_path / "installed"
    begin(folder, {"train.py": "from kept_sets import load", "kept_sets/load.py": "PLACE = 'beside'"})
    write(installed, {"kept_sets/__init__.py": "", "kept_sets/load.py": "PLACE = 'installed'"})
    sys.path.append(str(installed))
    assert importlib.import_module("kept_sets.load").PLACE == "installed"


def test_a_folder_without_init_is_imported_from_the_snapshot_otherwise(tmp_path: Path) -> None:
    begin(tmp_path, {"train.py": "import kept_space.load", "kept_space/load.py": "FACTOR = 1"})
    (tmp_path / "kept_space/load.py").write_text("FACTOR = 2")
    assert importlib.import_module("kept_space.load").FACTOR == 1


def test_modules_that_load_when_they_are_asked_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, {"train.py": "", "kept_lazy.py": "raise RuntimeError('it was loaded')"})
    spec = importlib.util.find_spec("kept_lazy")
    assert spec is not None and spec.loader is not None
    lazy = importlib.util.module_from_spec(spec)
    importlib.util.LazyLoader(spec.loader).exec_module(lazy)

    class Eager(types.ModuleType):
        def __getattr__(self, name: str) -> str:
            raise RuntimeError(f"{name} was asked for")

    monkeypatch.setitem(sys.modules, "kept_lazy", lazy)
    monkeypatch.setitem(sys.modules, "kept_eager", Eager("kept_eager"))
    monkeypatch.setitem(sys.modules, "kept_none", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    assert set(describe_program()) == {"file train.py", "file kept_lazy.py"}


def test_what_a_library_generates_below_the_program_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch 2.8 does when it is imported: each process has a module in a temporary folder of its own."""
    begin(tmp_path, {"train.py": "", "tmp/tmpab12/generated_by_torch.py": "", "tmp/beside_it.py": ""})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    sys.path[:0] = [str(tmp_path / "tmp/tmpab12"), str(tmp_path / "tmp")]
    importlib.import_module("generated_by_torch")
    importlib.import_module("beside_it")
    assert set(describe_program()) == {"file train.py", "file tmp/beside_it.py"}
