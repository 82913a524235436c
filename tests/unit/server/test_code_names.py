"""The cache of the names of uploaded files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.platform import Platform
from tests.unit.server.test_projects import define, make, upload

from legato.control.store.retention import Purged
from legato.server import code_names
from legato.server.code_names import CodeNames
from legato.server.uploads import CodeFolder
from legato.uploads.unpacking import Caps

CAPS = Caps(num_entries=1, file_bytes=1, total_bytes=1, depth=1, ratio=1)


def put(path: Path, sha256: str, *names: str) -> None:
    for name in names:
        file = path / sha256 / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SHA-256s of code that was walked."""
    walked: list[str] = []
    walk = code_names._walk

    def note(top: Path) -> tuple[str, ...]:
        walked.append(top.name)
        return walk(top)

    monkeypatch.setattr(code_names, "_walk", note)
    return walked


def test_code_is_walked_once(tmp_path: Path, walks: list[str]) -> None:
    names = CodeNames(tmp_path)
    put(tmp_path, "a", "train.py", "lib/net.py")
    put(tmp_path, "b", "other.py")
    for _ in range(3):
        assert sorted(names.list("a")) == ["lib/net.py", "train.py"]
        assert names.list("b") == ("other.py",)
    assert walks == ["a", "b"]


def test_code_that_is_uploaded_again_is_walked_again(tmp_path: Path, walks: list[str]) -> None:
    room = CodeFolder(tmp_path, 1, CAPS)
    put(tmp_path, "a", "train.py")
    assert room.names.list("a") == ("train.py",)
    room.delete_purged(Purged((), ("a", "never there")))
    assert room.names.list("a") == ()
    assert [found.name for found in tmp_path.iterdir()] == []
    put(tmp_path, "a", "train.py", "b.py")
    assert sorted(room.names.list("a")) == ["b.py", "train.py"]


def test_names_of_code_that_is_deleted_during_the_walk_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = CodeFolder(tmp_path, 1, CAPS)
    put(tmp_path, "a", "train.py", "lib/net.py")
    walk = os.walk

    def cut_off(top: Path) -> Any:
        yield next(iter(walk(top)))
        room.delete_purged(Purged((), ("a",)))

    monkeypatch.setattr(os, "walk", cut_off)
    assert room.names.list("a") == ("train.py",)
    monkeypatch.undo()
    put(tmp_path, "a", "train.py", "lib/net.py")
    assert len(room.names.list("a")) == 2


def test_the_number_of_cached_names_is_limited(tmp_path: Path, walks: list[str]) -> None:
    names = CodeNames(tmp_path, max_kept=4)
    for sha256 in "abc":
        put(tmp_path, sha256, "1", "2")
    for sha256 in "ababc":
        names.list(sha256)
    assert walks == ["a", "b", "c"]
    names.list("b")
    assert walks == ["a", "b", "c"], "asked for of late"
    names.list("a")
    assert walks == ["a", "b", "c", "a"]
    put(tmp_path, "large", *map(str, range(5)))
    assert len(names.list("large")) == len(names.list("large")) == 5
    assert walks[4:] == ["large"] * 2


def test_runs_and_plans_walk_no_code_again(platform: Platform, walks: list[str]) -> None:
    project = make(platform, "projects", name="Digits")
    code = upload(platform)
    one = define(platform, project, code=code)
    experiment = make(platform, f"projects/{project['id']}/experiments", name="First", definitions=[one["id"]])
    for _ in range(3):
        assert platform.ask("POST", f"experiments/{experiment['id']}/runs").status_code == 201
        assert platform.ask("POST", f"definitions/{one['id']}/plan").status_code == 200
    assert walks == [code]
