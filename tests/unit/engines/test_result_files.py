"""Files of a working directory that a program can fill with anything: what travels, and where it may be put."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.core.agent_messages import OfferedFile
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.engines import result_files
from legato.engines.result_files import (
    MAX_DEPTH,
    Choice,
    Standing,
    choose,
    find_sha256,
    list_files,
    open_file,
    place,
    select,
    split,
    stamp,
    stamp_all,
)

USER = JobUser(uid=2, gid=2, name="bin", home="/bin")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


A, B, C = sha(b"a"), sha(b"b"), sha(b"c")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("here", "base", "of_rank_0", "of_an_earlier_one", "of_others"),
    [
        ("", "", Choice.TAKE, Choice.TAKE, Choice.TAKE),  # a new file
        (A, A, Choice.TAKE, Choice.TAKE, Choice.TAKE),  # the version with which the machine began
        (C, A, Choice.SAME, Choice.SAME, Choice.SAME),  # it has come already
        (B, A, Choice.DISPLACE, Choice.ASIDE, Choice.REFUSE),  # changed on both sides
        (B, "", Choice.DISPLACE, Choice.ASIDE, Choice.REFUSE),  # made on both sides
        ("?", A, Choice.DISPLACE, Choice.ASIDE, Choice.REFUSE),
        ("", A, Choice.TAKE, Choice.TAKE, Choice.TAKE),  # deleted here meanwhile
    ],
)
def test_a_version_that_is_not_known_to_be_older_is_never_replaced(
    here: str, base: str, of_rank_0: Choice, of_an_earlier_one: Choice, of_others: Choice
) -> None:
    offered = OfferedFile("model.pt", 1, C, base)
    assert [choose(offered, here, standing) for standing in (Standing.FIRST, Standing.EARLIER, Standing.OTHER)] == [
        *(of_rank_0, of_an_earlier_one, of_others)
    ]


ODD = ("", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "a\nb", "\udcff", "a/__pycache__/b", "n" * 256)
DEEP = ("/".join("d" * (MAX_DEPTH + 1)), "/".join(["d" * 200] * 6))


@pytest.mark.parametrize("path", [*ODD, *DEEP])
def test_no_path_leads_out_of_the_working_directory_or_is_odd(path: str) -> None:
    with pytest.raises(LegatoError):
        split(path)


def test_only_plain_files_travel_and_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another user")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("x")
    (root / "out").mkdir()
    (root / "out" / "model.pt").write_bytes(b"weights")
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").write_bytes(b"")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    (root / "two\nlines").write_bytes(b"")
    listing = list_files(root)
    assert set(listing.found) == {"out/model.pt"}
    assert {each.path: each.reason for each in listing.left_out} == {
        "'two\\nlines'": "its name has characters that cannot be shown"
    }
    assert (sorted(listing.odd), listing.num_odd) == (["folder", "link", "pipe"], 3)
    for name in ("link", "folder/x", "pipe"):
        with pytest.raises((LegatoError, OSError)):
            open_file(root, name)


def test_thousands_of_files_and_folders_without_end_are_left_out_and_counted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "MAX_FILES", 3)
    monkeypatch.setattr(result_files, "_MAX_NAMED", 2)
    for number in range(6):
        (root / f"f{number}").write_bytes(b"x" * number)
    deep = root
    for _ in range(MAX_DEPTH + 1):
        deep = deep / "d"
        deep.mkdir()
    (deep / "x").write_bytes(b"")
    listing = list_files(root)
    assert listing.num_left_out == 1, "the first folder that is too deep"
    assert select(listing, listing.found, 100) == ["f0", "f1", "f2"]
    assert (listing.num_left_out, len(listing.left_out)) == (4, 2)
    again = list_files(root)
    assert select(again, again.found, 2) == ["f0", "f1"], "as many bytes as allowed, small files first"
    monkeypatch.setattr(result_files, "_MAX_ENTRIES", 3)
    assert "more than 3 files" in list_files(root).left_out[0].reason


def test_a_file_counts_as_changed_by_a_time_that_its_program_cannot_set(root: Path) -> None:
    file = root / "config.json"
    file.write_bytes(b"old")
    before = stamp_all(root)
    about = file.stat()
    file.write_bytes(b"new")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    found = list_files(root).found["config.json"]
    assert not found.is_same(before["config.json"])
    assert stamp(root, "config.json").sha256 == sha(b"new")


def test_a_file_comes_to_its_place_and_other_versions_stay(root: Path, tmp_path: Path) -> None:
    def come(content: bytes, **words: str) -> str:
        staged = tmp_path / "staged"
        staged.write_bytes(content)
        return place(root, "out/model.pt", staged, **words)

    assert come(b"a") == "out/model.pt"
    assert come(b"b", keep="before-b") == "out/model.pt.before-b"
    assert come(b"c", own="from-c") == "out/model.pt.from-c"
    assert come(b"d", own="from-c") == "out/model.pt.from-c-2"
    contents = {path.name: path.read_bytes() for path in (root / "out").iterdir()}
    assert contents == {
        "model.pt": b"b",
        "model.pt.before-b": b"a",
        "model.pt.from-c": b"c",
        "model.pt.from-c-2": b"d",
    }


PLANTED: list[Callable[[Path, Path], None]] = [
    lambda root, outside: (root / "out").symlink_to(outside),
    lambda root, _outside: (root / "out").write_text("a file"),
    lambda root, _outside: os.mkfifo(root / "out"),
]


@pytest.mark.parametrize("plant", PLANTED, ids=["link", "file", "pipe"])
def test_nothing_is_put_through_what_a_job_has_planted(
    plant: Callable[[Path, Path], None], root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    plant(root, outside)
    staged = tmp_path / "staged"
    staged.write_bytes(b"evil")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels|File exists"):
        place(root, "out/x", staged)
    assert list(outside.iterdir()) == []


def test_what_is_no_plain_file_is_not_replaced(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (root / "model.pt").symlink_to(secret)
    (root / "folder").mkdir()
    for name in ("model.pt", "folder"):
        with pytest.raises((LegatoError, OSError)):
            find_sha256(root, name, OfferedFile(name, 6, C))
    assert find_sha256(root, "missing/x", OfferedFile("missing/x", 6, C)) == ""


@as_root
def test_files_of_other_users_and_second_names_do_not_travel_and_what_comes_is_the_users(
    root: Path, tmp_path: Path
) -> None:
    os.chown(root, USER.uid, USER.gid)
    secret = tmp_path / "secret"
    secret.write_text("of another user")
    (root / "hard").hardlink_to(secret)
    (root / "of-root").write_text("x")
    (root / "twice").write_text("x")
    os.chown(root / "twice", USER.uid, USER.gid)
    (root / "again").hardlink_to(root / "twice")
    reasons = {each.path: each.reason for each in list_files(root, USER).left_out}
    assert reasons == {
        "hard": "it belongs to another system user",
        "of-root": "it belongs to another system user",
        "twice": "it has a second name",
        "again": "it has a second name",
    }
    for name in reasons:
        with pytest.raises(LegatoError):
            open_file(root, name, USER)
    staged = tmp_path / "staged"
    staged.write_bytes(b"weights")
    place(root, "out/model.pt", staged, USER)
    for path in (root / "out", root / "out" / "model.pt"):
        assert (path.stat().st_uid, path.stat().st_gid) == (USER.uid, USER.gid)
