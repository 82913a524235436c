"""Files in places where a job may have put anything: links, pipes and large files lead nowhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.system.plain_files import make_folder_for, make_log, open_to, read_plain_file, take_back

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
    take_back(folder)
    assert owner_of(folder / "inner") == (0, ANN.gid, 0o700)


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
