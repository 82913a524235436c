"""Files in places where a job may have put anything: links, pipes and large files lead nowhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.system.plain_files import delete_tree, make_folder_for, make_log, open_to, read_plain_file

ANN = JobUser(uid=2000000001, gid=2000000001, name="ann", home="/")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: GIVING FILES AWAY IS NOT TESTED")


def owner_of(path: Path) -> tuple[int, int, int]:
    about = path.lstat()
    return about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)


def test_only_a_plain_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"12345")
    assert read_plain_file(plain, 5) == b"12345"
    (tmp_path / "link").symlink_to(plain)
    os.mkfifo(tmp_path / "pipe")
    for name, max_bytes in (("link", 5), ("pipe", 5), ("plain", 4)):
        with pytest.raises(OSError):  # noqa: PT011 -- whichever the system says
            read_plain_file(tmp_path / name, max_bytes)


@as_root
def test_a_folder_is_given_away_with_all_that_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").touch()
    outside = tmp_path / "outside"
    outside.touch()
    (folder / "link").symlink_to(outside)
    make_folder_for(folder, ANN)
    assert owner_of(folder) == (ANN.uid, ANN.gid, 0o700)
    assert owner_of(folder / "inner" / "file")[:2] == (ANN.uid, ANN.gid)
    assert owner_of(folder / "link")[0] == ANN.uid
    assert outside.stat().st_uid == 0, "a link is given away, and not what it leads to"


@as_root
def test_a_file_with_two_names_is_not_given_away(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    secret = tmp_path / "secret"
    secret.touch()
    (tmp_path / "work" / "mine").hardlink_to(secret)
    with pytest.raises(LegatoError, match=r"it is a hard link\. Remove it, or copy it"):
        make_folder_for(tmp_path / "work", ANN)
    assert secret.stat().st_uid == 0


@as_root
def test_a_log_is_the_job_s_in_a_folder_of_ours(tmp_path: Path) -> None:
    open_to(tmp_path, ANN, 0o710)
    make_log(tmp_path / "worker-0.log", ANN)
    assert owner_of(tmp_path) == (0, ANN.gid, 0o710)
    assert owner_of(tmp_path / "worker-0.log") == (ANN.uid, ANN.gid, 0o600)
    (tmp_path / "worker-1.log").symlink_to(tmp_path / "worker-0.log")
    with pytest.raises(OSError):  # noqa: PT011
        make_log(tmp_path / "worker-1.log", ANN)


def test_a_refused_change_of_owner_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(
        LegatoError, match=r"Operation not permitted\. Run the server as root, or with the capability CHOWN"
    ):
        make_log(tmp_path / "worker-0.log", ANN)


def test_a_folder_is_deleted_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    folder, outside = tmp_path / "work", tmp_path / "outside"
    (folder / "inner" / "empty").mkdir(parents=True)
    (folder / "inner" / "file").touch()
    outside.mkdir()
    (outside / "kept").touch()
    for place in (folder, folder / "inner"):
        (place / "link").symlink_to(outside)
        os.mkfifo(place / "pipe")
    assert delete_tree(folder) is None
    assert [path.name for path in tmp_path.iterdir()] == ["outside"] and (outside / "kept").exists()
    assert delete_tree(folder) is None, "it is gone"
    (tmp_path / "link").symlink_to(outside)
    told = delete_tree(tmp_path / "link")
    assert told is not None and told.startswith("link: ")
    assert (outside / "kept").exists()


def test_what_cannot_be_deleted_is_said_and_the_rest_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / f"of-{name}").touch()
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int) -> None:
        if name == "of-b":
            raise PermissionError(1, "Operation not permitted")
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    assert delete_tree(tmp_path / "work") == "of-b: Operation not permitted"
    assert sorted(path.name for path in (tmp_path / "work").rglob("*")) == ["b", "of-b"]


@as_root
def test_a_folder_of_another_user_is_deleted_without_rights_over_all_files(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "inner" / "more").mkdir(parents=True)
    for each in (folder / "inner" / "more", folder / "inner", folder):
        os.chown(each, ANN.uid, ANN.gid)
        each.chmod(0o555)
    assert delete_tree(folder) is None
    assert not folder.exists()
