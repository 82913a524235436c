"""The system users of jobs: refusals at the start of a server and at submission, and the modes of the home."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import signal
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from legato.control.settings import Settings, read_settings
from legato.core.errors import SettingsError, UsageError
from legato.engines import job_users
from legato.server import isolation, retention
from legato.server.isolation import JobUsers, check_isolation, check_submitter, close_home, find_submitter

from tests.unit.server.platform import NOW, Platform  # isort: skip


def make_settings(home: Path, **flags: Any) -> Settings:
    return read_settings(flags={"home": str(home), **flags})


def test_a_server_that_others_reach_does_not_run_jobs_as_itself(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, host="0.0.0.0")
    with pytest.raises(
        UsageError, match=r"other machines can reach 0\.0\.0\.0, .* Set run_jobs_as to pool or submitter"
    ):
        check_isolation(settings, is_open=True)
    check_isolation(settings, is_open=False)
    check_isolation(make_settings(tmp_path, allow_jobs_as_server=True), is_open=True)


def test_missing_capabilities_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(tmp_path, run_jobs_as="pool")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    had = {"CapEff": 0b11100011, "CapAmb": 0b11100010}
    monkeypatch.setattr(job_users, "_read_capabilities", had.__getitem__)
    with pytest.raises(
        UsageError, match=r"user 1000 does not have the capabilities CHOWN\. Run the server as root, or give it"
    ):
        check_isolation(settings, is_open=True)
    monkeypatch.setattr(job_users, "_read_capabilities", lambda _: 0)
    with pytest.raises(UsageError, match="CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID"):
        check_isolation(settings, is_open=False)


def test_a_home_that_users_of_jobs_cannot_reach_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    (closed / "home").mkdir(parents=True)
    closed.chmod(0o700)
    monkeypatch.setattr(isolation, "_check_capabilities", lambda _: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    with pytest.raises(
        UsageError, match=r"because '.*' is closed to them\. Name another directory with the setting home"
    ):
        check_isolation(make_settings(closed / "home", run_jobs_as="submitter"), is_open=True)


def test_a_server_does_not_start_with_a_system_user_that_can_do_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_check_capabilities", lambda _: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    own = pwd.getpwuid(os.geteuid()).pw_name
    for name in {"root", own}:
        settings = make_settings(tmp_path, run_jobs_as="submitter", job_users=f"ann=nobody,ben={name}")
        with pytest.raises(UsageError, match=f"Cannot start .* gives 'ben' the system user '{name}', which can do all"):
            check_isolation(settings, is_open=True)


def test_a_server_warns_of_users_who_have_one_system_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may have two accounts of Legato: that is no error. Two people with one system user may be one."""
    monkeypatch.setattr(isolation, "_check_capabilities", lambda _: None)
    monkeypatch.setattr(isolation, "close_home", lambda _: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    users = "ann=nobody,ben=daemon,cleo=daemon,dan=no-such-user,eva=no-such-user"
    with capture_logs() as logs, contextlib.suppress(UsageError):  # other users cannot reach the folder of a test
        check_isolation(make_settings(tmp_path, run_jobs_as="submitter", job_users=users), is_open=True)
    assert [(one["log_level"], one["job_users"]) for one in logs] == [("warning", "ben=daemon, cleo=daemon")]


def test_a_home_shows_jobs_the_way_to_their_own_alone(tmp_path: Path) -> None:
    for name in ("jobs/j-old", "code/abc", "data"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(0o755)
    for name in ("legato.db", "legato.toml", "jobs/j-old/driver.log"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    close_home(tmp_path)
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("legato.db", "legato.toml", "code", "data")
    }
    assert modes == {"legato.db": 0o600, "legato.toml": 0o600, "code": 0o700, "data": 0o755}
    for name in (".", "jobs", "homes"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o711
    assert stat.S_IMODE((tmp_path / "jobs/j-old").stat().st_mode) == 0o700


def test_submitters_are_users_of_the_system_and_not_its_masters(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    settings = make_settings(tmp_path, run_jobs_as="submitter", job_users="ann=nobody,ben=root")
    found = find_submitter(settings, "ann", "Cannot")
    assert (found.uid, found.gid, found.name, found.home) == (nobody.pw_uid, nobody.pw_gid, "nobody", nobody.pw_dir)
    assert nobody.pw_gid in found.groups
    with pytest.raises(UsageError, match="would run as the system user 'root', which can do all that the server can"):
        check_submitter(settings, "ben", "Cannot submit")
    with pytest.raises(UsageError, match="Cannot submit: the server's machine has no system user 'carl-of-nowhere'"):
        check_submitter(settings, "carl-of-nowhere", "Cannot submit")
    check_submitter(make_settings(tmp_path), "carl-of-nowhere", "Cannot submit")


def test_jobs_run_as_the_server_by_default(platform: Platform, tmp_path: Path) -> None:
    assert JobUsers(make_settings(tmp_path), platform.store, lambda: 1.0)("ann") is None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"pool_uids": "5"}, "write FIRST-LAST"),
        ({"pool_uids": "0-5"}, "write FIRST-LAST"),
        ({"pool_uids": "9-5"}, "write FIRST-LAST"),
        ({"pool_uids": "1-4294967295"}, "write FIRST-LAST"),
        ({"job_users": "ann"}, "'ann' is not USER=SYSTEMUSER"),
        ({"job_users": "ann="}, "'ann=' is not USER=SYSTEMUSER"),
        ({"job_users": "ann=x,ben=y,ann=z"}, "it names 'ann' twice"),
        ({"run_jobs_as": "root"}, "must be 'server', 'submitter' or 'pool'"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, flags: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        make_settings(tmp_path, **flags)


def test_leftover_processes_of_a_pool_user_without_a_job_are_ended(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[int, str]] = []

    def kill(users: dict[int, str], _min_age_s: float, _is_spared: object) -> dict[int, int]:
        asked.append(dict(users))
        return dict.fromkeys(users, 1)

    monkeypatch.setattr(retention, "kill_all_of", kill)
    platform.lead()
    assign, numbers = platform.store.accounts.assign_uid, range(2_000_000_100, 2_000_000_110)
    uids = {user: assign(user, numbers, NOW, is_taken=lambda _: False) for user in ("ann", "ben")}
    job = platform.submit("ann")

    def look(**changes: object) -> dict[int, str]:
        said = {"run_jobs_as": "pool", "pool_uids": "2000000100-2000000109", **changes}
        settings = platform.settings.model_copy(update=said)
        loop = SimpleNamespace(owner=platform.services.loop.owner, starts_drivers=True)
        asked.clear()
        retention.kill_leftover_processes(dataclasses.replace(platform.services, settings=settings, loop=loop))  # type: ignore[arg-type]
        return asked[0] if asked else {}

    everybody = {uids["ann"]: "ann", uids["ben"]: "ben"}
    assert look() == everybody, "a job that waits has no processes"
    platform.start(job, "node/0")
    assert look() == {uids["ben"]: "ben"}
    platform.end(job)
    assert look() == everybody
    assert look(run_jobs_as="submitter") == {}, "a system user may run other things"
    assert look(pool_uids="2000000500-2000000509") == {}, "numbers that are not of the pool any more"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_processes_of_another_platform_with_the_same_number_are_spared(tmp_path: Path) -> None:
    uid = 2_000_000_773
    own, other = tmp_path / "own", tmp_path / "other"
    for home in (own, other):
        home.mkdir()
        (home / "home-id").touch()
    made_up = tmp_path / "made-up"
    made_up.mkdir()
    (made_up / "home-id").touch()
    os.chown(made_up / "home-id", uid, uid)

    def is_spared(home: Path | None) -> bool:
        env = {} if home is None else {"LEGATO_ENGINE": str(home / "jobs" / "j-1" / "engine.json")}
        # The shell stays the parent of a process without the variable.
        command = ["/bin/sh", "-c", "env -i /bin/sleep 600 & echo $!; wait"]
        with subprocess.Popen(
            command, user=uid, group=uid, extra_groups=[], env=env, cwd="/", stdout=subprocess.PIPE, text=True
        ) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            try:
                answers = {retention._is_of_another_platform(each, uid, own.resolve()) for each in (parent.pid, pid)}
            finally:
                os.kill(pid, signal.SIGKILL)
                parent.kill()
        assert len(answers) == 1
        return answers.pop()

    assert is_spared(other)
    assert not is_spared(own)
    assert not is_spared(made_up), "a job cannot spare itself"
    assert not is_spared(None)
