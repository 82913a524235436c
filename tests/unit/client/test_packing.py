"""The same folder gives the same bytes, and ignored files are left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from legato.client.packing import pack
from legato.core.errors import UsageError


def make_folder(root: Path) -> Path:
    folder = root / "code"
    (folder / "inner").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "inner" / "model.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    return folder


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    first = pack(make_folder(tmp_path / "a"))
    other = make_folder(tmp_path / "b")
    os.utime(other / "train.py", (1, 1))
    (other / "train.py").chmod(0o600)
    assert pack(other) == first
    (other / "train.py").write_text("print('hellO')\n")
    assert pack(other).sha256 != first.sha256


def test_what_is_ignored_stays_out(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "data").mkdir()
    (folder / "data" / "big.bin").write_bytes(b"0" * 100)
    (folder / "data" / "keep.txt").write_text("")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_bytes(b"0")
    (folder / "elsewhere").symlink_to("/etc")
    (folder / ".legatoignore").write_text("# data\ndata/*\n!data/keep.txt\nelsewhere\n")
    assert pack(folder).names == ("data/keep.txt", "inner/model.py", "run.sh", "train.py")


def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "elsewhere").symlink_to("/etc")
    with pytest.raises(UsageError, match=r"elsewhere.*is a link.*\.legatoignore"):
        pack(folder)


def test_what_is_too_large_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "weights.bin").write_bytes(b"0" * 1000)
    with pytest.raises(UsageError, match=r"more than 500\. The largest is 'weights\.bin'"):
        pack(folder, max_bytes=500)


def test_what_is_no_folder_of_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a folder"):
        pack(tmp_path / "nothing")
    with pytest.raises(UsageError, match="it contains no files"):
        pack(tmp_path)


def test_folders_that_are_data_stay_out(tmp_path: Path) -> None:
    for name in ("train.py", "data/mnist/1.png", "zoo/data/a.py", "data2/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert pack(tmp_path, leave_out=["data"]).names == ("data2/a.txt", "train.py", "zoo/data/a.py")
