"""Jobs of system users on machines with agents: as whom they run there, what they reach, and that all still works."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.readable import open_the_way
from tests.integration.serving import ROOT, pids_of, wait_until
from tests.integration.test_isolation import SUBMITTER, Platform, platforms, train_alone
from tests.integration.test_pool_agents import Machine, join

EPOCHS = 40
DAEMON = pwd.getpwnam("daemon")
FAR = {"node_labels": {"site": "far"}}
LOOKS = """
import json as _json, os as _os, pathlib as _pathlib
_here = _pathlib.Path(_os.environ["LEGATO_DRIVER_FILE"]).parent
_reached = []
for _path in (
    *(_here / _name for _name in ("agent.json", "agent-state.json", "agent.log", "agent.lock", "lock")),
    *(_here.parent / _name for _name in (".pool.json", ".pool.lock")),
    _here, _here.parent, _pathlib.Path("/etc/shadow"),
):
    try:
        _os.listdir(_path) if _path.is_dir() else _path.open("rb").close()
        _reached.append(str(_path))
    except PermissionError:
        pass
    except FileNotFoundError:
        pass
for _path in (_here / "evil", _here / "logs" / "evil", _here / "address.json"):
    try:
        _path.open("ab").close()
        _reached.append(f"writes {_path}")
    except PermissionError:
        pass
print("REPORT " + _json.dumps({
    "reached": _reached, "uids": _os.getresuid(), "home": _os.environ["HOME"], "groups": _os.getgroups(),
    "secrets": [name for name in _os.environ if "ODD" in name], "address": (_here / "address.json").read_text() != "",
}), flush=True)
"""


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="JOBS WITH USERS OF THEIR OWN ARE NOT TESTED: run the tests as root"),
    pytest.mark.timeout(300),
]


def program() -> str:
    return LOOKS + (ROOT / "tests/integration/programs/slow.py").read_text().replace('"""Trains', '_ = """Trains')


@contextlib.contextmanager
def machine_of(platform: Platform, name: str, *words: str, prefix: tuple[str, ...] = ()) -> Iterator[Machine]:
    machine = Machine(platform.folder / name, name, 1, [*open_the_way(), *prefix], ["--label", "site=far", *words])
    try:
        yield machine
    finally:
        machine.crash()


def reports(platform: Platform, job: str) -> list[Any]:
    lines = platform.logs(job).splitlines()
    return [json.loads(line.removeprefix("REPORT ")) for line in lines if line.startswith("REPORT ")]


def users_of(machine: Machine) -> dict[str, int]:
    """Return the user of each process of a machine, by its name."""
    found = {}
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            found[(process / "comm").read_text().strip()] = process.stat().st_uid
    return found


def test_jobs_run_as_their_users_on_machines_with_agents(tmp_path: Path) -> None:
    with platforms(**SUBMITTER, slots=1) as platform, machine_of(platform, "b") as machine:
        platform.folder.joinpath("b").mkdir()
        join(platform.admin, platform.server, machine)
        slow = platform.folder / "slow"
        slow.touch()
        result = _made(platform.folder / "results") / "result"  # the first worker may be on either machine
        os.chown(result.parent, DAEMON.pw_uid, DAEMON.pw_gid)
        words = (str(EPOCHS), str(result), "0.1", str(slow))
        body = {"max_workers": 2, "min_workers": 2, "seed": 3, "checkpoint_every": "5steps"}
        job = platform.submit("ann", program(), *words, **body)
        platform.admin.wait(f"jobs/{job}", lambda found: (found["progress"] or {}).get("num_workers") == 2)
        wait_until(lambda: len(reports(platform, job)) == 2, "the logs of both machines have not come")
        for report in reports(platform, job):
            assert (report["reached"], report["secrets"]) == ([], [])
            assert report["uids"] == [DAEMON.pw_uid] * 3
            assert (report["home"], report["address"]) == (DAEMON.pw_dir, True)
            assert 0 not in report["groups"]
        of_users = {name: uid for name, uid in users_of(machine).items() if uid != 0}
        assert of_users and set(of_users.values()) == {DAEMON.pw_uid}, users_of(machine)
        slow.unlink()
        platform.end(job)
        assert (result.read_text(), result.stat().st_uid) == (train_alone(tmp_path), DAEMON.pw_uid)
        wait_until(lambda: pids_of(platform.home) == set(), "processes are left over")
        wait_until(lambda: not machine.pids(), "processes are left over on the machine")


@pytest.mark.soak
def test_checkpoints_of_a_user_come_from_a_machine_and_go_there_again(tmp_path: Path) -> None:
    with platforms(**SUBMITTER) as platform, machine_of(platform, "b") as machine:
        platform.folder.joinpath("b").mkdir()
        join(platform.admin, platform.server, machine)
        slow = platform.folder / "slow"
        slow.touch()
        words = (str(EPOCHS), "result", "0.1", str(slow))
        body = {"max_workers": 1, "seed": 3, "checkpoint_every": "5steps", **FAR}
        job = platform.submit("ann", program(), *words, **body)
        saved = platform.home / "jobs" / job / "checkpoints"
        wait_until(lambda: bool(list(saved.glob("step-*.legato"))), "no checkpoint has come")
        assert {path.stat().st_uid for path in saved.glob("step-*.legato")} == {DAEMON.pw_uid}
        assert {path.stat().st_mode & 0o777 for path in saved.glob("step-*.legato")} == {0o600}
        (worker,) = [pid for pid in machine.pids() if Path(f"/proc/{pid}/comm").read_text().startswith("legato-w")]
        (agent,) = machine.home.glob(f"agents/b/{job}-*")
        # What the worker's user may put in the way, to have the agent write into a file of root or read one.
        for path in agent.glob("checkpoints/step-*.legato"):
            path.unlink()
        (agent / "checkpoints" / ".shadow").symlink_to("/etc/shadow")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(reports(platform, job)) == 2, "no worker has come in its place")
        # Until the new worker has loaded the checkpoint, no worker says a step.
        back = platform.admin.wait(f"jobs/{job}", lambda found: _step(found) > 0)
        platform.admin.wait(f"jobs/{job}", lambda found: _step(found) > _step(back) + 5)
        slow.unlink()
        platform.end(job)
        events = platform.admin.get(f"jobs/{job}/events")["items"]
        assert not [event for event in events if "does not count as saved" in event["reason"]]


PLANTS = """
import os
os.symlink("/etc/shadow", "shadow")
os.symlink("/etc", "etc")
os.mkfifo("pipe")
os.makedirs("out/deep")
Path("out/deep/mine").write_text("mine")
"""


@pytest.mark.soak
def test_files_of_a_users_program_come_from_a_machine_and_go_there_again(tmp_path: Path) -> None:
    source = (ROOT / "tests/integration/programs/writes.py").read_text()
    with platforms(**SUBMITTER) as platform, machine_of(platform, "b") as machine:
        platform.folder.joinpath("b").mkdir()
        join(platform.admin, platform.server, machine)
        slow = platform.folder / "slow"
        slow.touch()
        job = platform.submit("ann", source, "40", str(slow), PLANTS, **FAR)
        work = platform.home / "jobs" / job / "work"
        written = f"agents/b/{job}-*/work/metrics.csv"
        wait_until(lambda: bool(list(machine.home.glob(written))), "nothing is written")
        platform.admin.post(f"jobs/{job}/pause", {}, 200)
        platform.admin.wait(f"jobs/{job}", lambda found: found["stage"] == "paused")
        before = (work / "metrics.csv").read_text()
        platform.admin.post(f"jobs/{job}/resume", {}, 200)
        wait_until(
            lambda: any(path.read_text() > before for path in machine.home.glob(written)), "the program does not go on"
        )
        assert {path.stat().st_uid for path in machine.home.glob(written)} == {DAEMON.pw_uid}
        slow.unlink()
        platform.end(job)
        assert (work / "metrics.csv").read_text().startswith(before)
        found = {str(path.relative_to(work)): path.lstat() for path in work.rglob("*")}
        assert set(found) == {
            *("train.py", "metrics.csv", "same.txt", "config.json", "out", "out/model.pt", "out/deep", "out/deep/mine"),
            *(name for name in found if name.startswith("of-")),
        }
        assert {about.st_uid for about in found.values()} == {DAEMON.pw_uid}
        assert {about.st_mode & 0o077 for path, about in found.items() if path.startswith(("out", "m"))} == {0}
        told = (work.parent / "events.jsonl").read_text()
        assert "made 3 links or other special files on b, such as etc, pipe, shadow" in told, told
        wait_until(lambda: not list(machine.home.glob(f"agents/b/{job}-*")), "files of the job are left")


def test_a_machine_whose_agent_cannot_switch_users_says_what_to_do() -> None:
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with (
        platforms(**SUBMITTER) as platform,
        machine_of(platform, "c", prefix=as_nobody) as other,
    ):
        os.chown(_made(platform.folder / "c"), 65534, 65534)
        join(platform.admin, platform.server, other)
        job = platform.submit("ann", "print('begun')", **FAR)
        told = "c: its agent cannot run jobs as the system user 'daemon': run this release of 'legato agent' there"
        wait_until(lambda: told in platform.driver_log(job) + _events(platform, job), "the refusal is not said")
        assert "begun" not in platform.logs(job)


def _step(found: Any) -> int:
    return (found["progress"] or {}).get("step") or 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _events(platform: Platform, job: str) -> str:
    return json.dumps(platform.admin.get(f"jobs/{job}")) + json.dumps(platform.admin.get(f"jobs/{job}/events"))
