"""The system users of jobs on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.readable import open_the_way

from legato.core.errors import UsageError
from legato.core.job_user import JobUser
from legato.engines.job_users import check_reach, find_closed_folder, is_other, is_powerful, look_up_user, name_own_user

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


def user_of(uid: int, gid: int = 60001, groups: tuple[int, ...] = ()) -> JobUser:
    return JobUser(uid=uid, gid=gid, groups=groups, name="ann", home="/")


def test_a_user_is_looked_up_by_name_and_root_is_never_one_of_jobs() -> None:
    assert look_up_user("no-such-user-here") is None
    root = look_up_user("root")
    assert root is not None
    assert is_powerful(root)
    assert is_powerful(user_of(os.geteuid()))
    assert not is_powerful(user_of(60001))


@needs_root
def test_the_first_folder_through_which_a_user_cannot_pass_is_named(tmp_path: Path) -> None:
    closed = next((folder for folder in reversed(tmp_path.parents) if not folder.stat().st_mode & 0o001), tmp_path)
    outer, path = tmp_path / "outer", tmp_path / "outer" / "inner"
    outer.mkdir()
    # pytest's own folders are closed to all others.
    assert find_closed_folder(user_of(60001), path) == closed
    own = tmp_path.stat().st_uid
    assert find_closed_folder(user_of(own), path) is None
    outer.chmod(0o011)
    assert find_closed_folder(user_of(own), path) == outer, "the bit of the owner counts, not that of all"
    os.chown(outer, 60002, 60001)
    outer.chmod(0o701)
    assert find_closed_folder(JobUser(uid=own, gid=0, groups=(60001,), name="x", home="/"), path) == outer
    outer.chmod(0o710)
    assert find_closed_folder(JobUser(uid=own, gid=0, groups=(60001,), name="x", home="/"), path) is None


@needs_root
def test_a_folder_that_the_user_may_not_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the system user 60001, as whom it runs, may not"):
        check_reach(user_of(60001), [str(tmp_path)])


@needs_root
def test_a_job_runs_as_the_user_of_an_agent_only_if_this_agent_has_no_rights_of_root() -> None:
    assert not is_other("")
    assert (name_own_user(), is_other("root")) == ("", True)
    script = (
        "from legato.engines.job_users import is_other, name_own_user; "
        "print(name_own_user(), is_other('daemon'), is_other('games'))"
    )
    told = {}
    for name, rights in (("without", ()), ("with", ("--inh-caps=+chown", "--ambient-caps=+chown"))):
        command = [
            "setpriv",
            "--reuid=daemon",
            "--regid=daemon",
            "--clear-groups",
            *rights,
            sys.executable,
            "-c",
            script,
        ]
        told[name] = subprocess.run([*open_the_way(), *command], capture_output=True, text=True, check=False).stdout
    assert told == {"without": "daemon False True\n", "with": " True True\n"}
