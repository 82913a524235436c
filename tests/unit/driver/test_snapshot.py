"""Which files of a program are kept when its job begins."""

from __future__ import annotations

from pathlib import Path

from legato.driver import snapshot
from legato.driver.snapshot import take_snapshot


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("INIT", "__init__")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def kept(folder: Path) -> dict[str, str]:
    found = take_snapshot(folder / "train.py")
    assert found is not None and found.folder == str(folder.resolve())
    return {source.path: source.module for source in found.sources}


def test_what_the_script_imports_beside_it_is_kept_and_nothing_else(tmp_path: Path) -> None:
    write(
        tmp_path,
        train_py="import torch, helpers\nfrom models import net\ndef late():\n    import lazy\n",
        helpers_py="import json\n",
        lazy_py="",
        unused_py="",
        models__INIT_py="from .base import Base\n",
        models__base_py="from . import parts\n",
        models__parts_py="from ..helpers import x\nimport models.deep.inner\n",
        models__net_py="this is no Python (",
        models__deep__inner_py="",
        models__unused_py="",
    )
    assert kept(tmp_path) == {
        "train.py": "",
        "helpers.py": "helpers",
        "lazy.py": "lazy",
        "models/__init__.py": "models",
        "models/base.py": "models.base",
        "models/parts.py": "models.parts",
        "models/net.py": "models.net",
        "models/deep/inner.py": "models.deep.inner",
    }


def test_modules_that_import_one_another_end(tmp_path: Path) -> None:
    write(tmp_path, train_py="import a", a_py="import b, train", b_py="import a")
    assert set(kept(tmp_path)) == {"train.py", "a.py", "b.py"}


def test_a_snapshot_has_bounds(tmp_path: Path, monkeypatch: object) -> None:
    write(tmp_path, train_py="import a", a_py="#" * (snapshot.MAX_BYTES + 1))
    assert set(kept(tmp_path)) == {"train.py"}


def test_what_is_no_script_has_none(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("#!/bin/sh\n")
    assert take_snapshot(tmp_path / "train") is None
    assert take_snapshot(tmp_path / "missing.py") is None


def test_a_script_that_python_cannot_parse_is_kept_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, train_py="import a", a_py="(" * 150 + "1" + ")" * 150 + "+" + "-" * 100_000 + "1")
    assert set(kept(tmp_path)) == {"train.py", "a.py"}
