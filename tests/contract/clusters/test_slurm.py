"""The suite over clusters, with Slurm's commands as scripts; and what only Slurm has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.clusters import slurm_programs
from tests.contract.clusters.suite import ClusterBed, ClusterContract, order
from tests.integration.readable import closed_folders

from legato.clusters.commands import Done, find_account
from legato.clusters.pilots import Cluster, ClusterAwayError, Pilot, PilotOrder, PilotState
from legato.clusters.slurm_pool import PilotJob, SlurmCluster
from legato.control.settings import read_settings
from legato.core.errors import SettingsError
from legato.core.job_user import JobUser
from legato.engines.job_users import look_up_user
from legato.server.clusters import make_rules

NOW = 1_800_000_000.0
SECTION = {"max_agents": 4, "time": "8:00:00"}
SERVER = {"host": "0.0.0.0", "tls": "own", "allowed_hosts": "head.lab"}


class SlurmBed(ClusterBed):
    user: JobUser | None = None
    python = sys.executable

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state.json"
        self.file.write_text(json.dumps({"jobs": {}, "calls": [], "away": False, "refusal": None}))
        for name in ("sbatch", "squeue", "scancel"):
            program = folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!{self.python} -SE\n{Path(slurm_programs.__file__).read_text()}")
            program.chmod(0o700)
        self.environment = {
            "PATH": str(folder / "bin"),
            "SLURM_CONF": "/etc/slurm/slurm.conf",
            "SBATCH_PARTITION": "evil",
        }

    def connect(self, pool: str = "pool") -> Cluster:
        return self.make(pool=pool)

    def make(self, pool: str = "pool", **job: Any) -> SlurmCluster:
        values = {"time": "8:00:00", "num_slots": 2, "output": self.folder / "pilots", "python": "/opt/py", **job}
        return SlurmCluster(
            pool,
            PilotJob(**values),
            has_users=self.user is not None,
            environment=self.environment,
            now=lambda: NOW,
        )

    def change(self, **changes: Any) -> None:
        self.file.write_text(json.dumps(self.read() | changes))

    def read(self) -> Any:
        return json.loads(self.file.read_text())

    def set(self, number: str, **changes: Any) -> None:
        jobs = self.read()["jobs"]
        jobs[number] |= changes
        self.change(jobs=jobs)

    async def let_run(self, pilot: Pilot) -> None:
        self.set(pilot.id, state="RUNNING", reason="None")

    async def let_end(self, pilot: Pilot) -> None:
        self.set(pilot.id, state="FAILED", reason="NonZeroExitCode")

    async def set_away(self, is_away: bool) -> None:
        self.change(away=is_away)

    async def set_refusal(self, refusal: str | None) -> None:
        self.change(refusal=refusal)

    def calls(self, program: str) -> list[Any]:
        return [call for call in self.read()["calls"] if call["program"] == program]


class UsersSlurmBed(SlurmBed):
    """Slurm, in which other users have pilots than the server's. They must reach its programs."""

    user = look_up_user("daemon")
    python = "/usr/bin/python3" if closed_folders(Path(sys.executable).resolve()) else sys.executable

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for path, mode in ((folder, 0o777), (folder / "bin", 0o755), (self.file, 0o666)):
            path.chmod(mode)
        for program in (folder / "bin").iterdir():
            program.chmod(0o755)

    def change(self, **changes: Any) -> None:
        super().change(**changes)
        self.file.chmod(0o666)


def why_no_users() -> str | None:
    if os.geteuid() != 0:
        return "PILOTS OF OTHER USERS ARE NOT TESTED: run the tests as root"
    if not Path(UsersSlurmBed.python).exists() or closed_folders(Path(tempfile.gettempdir())):
        return "PILOTS OF OTHER USERS ARE NOT TESTED: other users reach no Python or no temporary folder"
    return None


for_users = pytest.mark.skipif(why_no_users() is not None, reason=str(why_no_users()))


@for_users
class TestSlurmAsAnotherUser(ClusterContract):
    @contextlib.asynccontextmanager
    async def open_bed(self) -> AsyncIterator[ClusterBed]:
        with tempfile.TemporaryDirectory() as folder:
            yield UsersSlurmBed(Path(folder))


class TestSlurm(ClusterContract):
    @contextlib.asynccontextmanager
    async def open_bed(self) -> AsyncIterator[ClusterBed]:
        with tempfile.TemporaryDirectory() as folder:
            yield SlurmBed(Path(folder))


@pytest.fixture
def bed(tmp_path: Path) -> SlurmBed:
    return SlurmBed(tmp_path)


def observe(bed: SlurmBed) -> dict[str, Pilot]:
    return {pilot.node: pilot for pilot in asyncio.run(bed.connect().observe())}


def test_the_token_is_in_the_script_and_nowhere_else(bed: SlurmBed) -> None:
    cluster = bed.make(options=("--partition=gpu", "--mem=4G"), num_gpus=2, setup="module load cuda")
    asyncio.run(cluster.start([order("slurm-1")]))
    (call,) = bed.calls("sbatch")
    assert call["arguments"] == [
        "--parsable", "--job-name=legato-pool.slurm-1", "--nodes=1", "--ntasks=1", "--time=8:00:00",
        "--signal=B:USR1@120", "--no-requeue", "--export=NIL", f"--output={bed.folder}/pilots/slurm-1.log",
        "--open-mode=truncate", "--chdir=/", "--partition=gpu", "--mem=4G",
    ]  # fmt: skip
    token = order("slurm-1").token
    lines = call["script"].splitlines()
    assert [index for index, line in enumerate(lines) if token in line] == [lines.index(token)]
    assert lines[-3:] == [lines[-3], token, "LEGATO_TOKEN"]
    assert lines[-3].startswith("exec srun ")
    assert "--token-file - " in lines[-3]
    assert "--gpus 2" in lines[-3]
    assert lines.index("module load cuda") < len(lines) - 3
    assert (bed.folder / "pilots").stat().st_mode & 0o777 == 0o700
    # Variables of the server's shell would be options.
    assert "SBATCH_PARTITION" not in call["environment"]


def run_script(bed: SlurmBed) -> tuple[int, str, str]:
    """Run the script of a pilot; returns its exit code, the folder of its agent, and what it has written to stderr."""
    setup = 'srun() { echo "${@: -1}"; }'
    script = bed.make(folder=str(bed.folder / "shared disk"), setup=setup).make_script(order("a"))
    done = subprocess.run(
        ["bash"], input=script.replace("exec srun", "srun"), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("kind", ["link", "file", "folder of another user", "link to the folder of the user"])
def test_a_pilot_takes_another_folder_if_another_user_has_the_name(bed: SlurmBed, kind: str) -> None:
    (bed.folder / "shared disk").mkdir()
    home = bed.folder / "shared disk" / f"legato-{os.getuid()}-pool"
    assert run_script(bed) == (0, str(home), "")
    assert home.stat().st_mode & 0o777 == 0o700
    home.rmdir()
    if kind == "file":
        home.write_text("")
    elif kind == "folder of another user":
        if os.getuid() != 0:
            pytest.skip("only root makes folders of others")
        home.mkdir()
        os.chown(home, 4242, 4242)
    else:
        target = bed.folder / "target"
        if kind != "link":
            target.mkdir()
        home.symlink_to(target)
    code, found, told = run_script(bed)
    assert (code, told) == (0, "")
    assert found.startswith(f"{home}.")
    assert (Path(found).stat().st_uid, Path(found).stat().st_mode & 0o777) == (os.getuid(), 0o700)
    # Later pilots take the same one, and delete what earlier ones have left.
    assert run_script(bed) == (0, found, "")


def test_a_pilot_that_can_have_no_folder_says_so(bed: SlurmBed) -> None:
    code, _, told = run_script(bed)
    assert code == 1
    assert "Set folder in [slurm] to another" in told


def test_two_pools_of_a_user_share_no_folder_on_a_machine(bed: SlurmBed) -> None:
    first, second = (bed.make(pool=pool).make_script(order("slurm-1")) for pool in ("one", "two"))
    homes = {line for script in (first, second) for line in script.splitlines() if line.startswith("legato_home=")}
    assert len(homes) == 2


@pytest.mark.parametrize(
    ("state", "reason", "left", "want"),
    [
        ("PENDING", "QOSMaxGRESPerUser", "8:00:00", (PilotState.WAITING, "QOSMaxGRESPerUser", None)),
        ("PENDING", "(ReqNodeNotAvail, UnavailableNodes:h[1-3])", "8:00:00",
         (PilotState.WAITING, "ReqNodeNotAvail, UnavailableNodes:h[1-3]", None)),
        ("CONFIGURING", "None", "8:00:00", (PilotState.WAITING, "CONFIGURING", None)),
        ("RUNNING", "None", "1-02:03:04", (PilotState.RUNNING, None, NOW + 93784)),
        ("RUNNING", "None", "UNLIMITED", (PilotState.RUNNING, None, None)),
        ("COMPLETING", "None", "0:00", (PilotState.ENDING, "COMPLETING", None)),
        ("REQUEUE_HOLD", "None", "8:00:00", (PilotState.WAITING, "REQUEUE_HOLD", None)),
        ("STATE_OF_A_LATER_RELEASE", "None", "8:00:00", (PilotState.WAITING, "STATE_OF_A_LATER_RELEASE", None)),
        ("REVOKED", "None", "0:00", (PilotState.GONE, "REVOKED", None)),
        ("PREEMPTED", "None", "0:00", (PilotState.GONE, "PREEMPTED", None)),
        ("NODE_FAIL", "NodeFail", "0:00", (PilotState.GONE, "NODE_FAIL, NodeFail", None)),
    ],
)  # fmt: skip
def test_what_slurm_says_is_read(
    bed: SlurmBed, state: str, reason: str, left: str, want: tuple[PilotState, str | None, float | None]
) -> None:
    asyncio.run(bed.connect().start([order("a")]))
    bed.set("1", state=state, reason=reason, left=left)
    seen = observe(bed)["a"]
    assert (seen.state, seen.reason, seen.ends_at) == want


@pytest.mark.parametrize("changes", [{"state": ""}, {"left": "8:00|00"}, {"reason": "a|b"}, {"state": "slurm: error"}])
def test_a_line_of_a_pilot_that_cannot_be_read_is_no_news(bed: SlurmBed, changes: dict[str, str]) -> None:
    asyncio.run(bed.connect().start([order("a"), order("b")]))
    bed.set("1", **changes)
    with pytest.raises(ClusterAwayError, match="a line that Legato cannot read"):
        observe(bed)


def test_pilots_in_hidden_partitions_are_seen(bed: SlurmBed) -> None:
    asyncio.run(bed.connect().start([order("a")]))
    bed.set("1", hidden=True)
    assert set(observe(bed)) == {"a"}


def test_one_call_shows_all_pilots_and_a_new_one_hides_an_ended_one_of_its_name(bed: SlurmBed) -> None:
    asyncio.run(bed.connect().start([order("a"), order("b")]))
    bed.set("1", state="COMPLETED", reason="None")
    asyncio.run(bed.connect().start([order("a")]))
    assert {node: pilot.id for node, pilot in observe(bed).items()} == {"a": "3", "b": "2"}
    assert len(bed.calls("squeue")) == 1
    # The order in which Slurm shows them does not matter.
    bed.set("1", state="RUNNING", reason="None")
    bed.set("3", state="COMPLETED", reason="None")
    assert observe(bed)["a"].id == "1"


def test_after_a_refusal_no_other_pilot_is_submitted(bed: SlurmBed) -> None:
    bed.change(refusal="Invalid qos specification")
    done = asyncio.run(bed.connect().start([order("a"), order("b"), order("c")]))
    assert [one.refusal for one in done] == ["Invalid qos specification"] * 3
    assert len(bed.calls("sbatch")) == 1


def test_a_submission_whose_answer_is_lost_may_have_been_taken(bed: SlurmBed) -> None:
    bed.change(refusal="Socket timed out on send/recv operation")
    (done,) = asyncio.run(bed.connect().start([order("a")]))
    assert (done.pilot, done.refusal) == (None, None)


def test_after_a_silent_submission_no_other_is_tried(bed: SlurmBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.clusters.slurm_pool._COMMAND_LIMIT_S", 0.5)
    bed.change(silent="b")
    done = asyncio.run(bed.connect().start([order("a"), order("b"), order("c")]))
    assert [(one.node, one.pilot is None, one.refusal) for one in done] == [("a", False, None), ("b", True, None)]
    assert len(bed.calls("sbatch")) == 1  # the silent one was killed before it could record its call


def test_pilots_that_were_started_are_reported_although_another_could_not_be(
    bed: SlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, begun, numbers = bed.connect(), asyncio.create_subprocess_exec, itertools.count()

    async def run(*command: str, **given: Any) -> Any:
        if next(numbers) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await begun(*command, **given)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", run)
    done = asyncio.run(cluster.start([order("a"), order("b"), order("c")]))
    assert [(one.node, one.refusal) for one in done] == [("a", None)]


def test_pilots_are_refused_if_there_can_be_no_folder_for_their_output(bed: SlurmBed) -> None:
    (bed.folder / "pilots").write_text("")
    done = asyncio.run(bed.connect().start([order("a"), order("b")]))
    assert [one.node for one in done] == ["a", "b"]
    assert all(f"the server cannot make {bed.folder}/pilots" in (one.refusal or "") for one in done)
    assert bed.calls("sbatch") == []


def test_a_waiting_pilot_that_has_begun_to_run_is_not_cancelled(bed: SlurmBed) -> None:
    cluster = bed.connect()
    asyncio.run(cluster.start([order("a"), order("b"), order("c")]))
    waiting = list(observe(bed).values())
    bed.set("2", state="RUNNING", reason="None")
    bed.set("3", state="RUNNING", reason="None")
    running = observe(bed)["c"]
    asyncio.run(cluster.end([*waiting[:2], running], force=True))
    assert {node: pilot.state for node, pilot in observe(bed).items()} == {
        "a": PilotState.GONE, "b": PilotState.RUNNING, "c": PilotState.GONE,
    }  # fmt: skip


def test_running_pilots_are_signalled_and_then_cancelled(bed: SlurmBed) -> None:
    asyncio.run(bed.connect().start([order("a")]))
    bed.set("1", state="RUNNING", reason="None")
    pilots = list(observe(bed).values())
    asyncio.run(bed.connect().end(pilots, force=False))
    asyncio.run(bed.connect().end(pilots, force=True))
    assert [call["arguments"] for call in bed.calls("scancel")] == [["--signal=USR1", "--batch", "1"], ["1"]]


def test_a_machine_without_slurm_says_so(tmp_path: Path) -> None:
    bed = SlurmBed(tmp_path)
    bed.environment["PATH"] = "/nowhere"
    with pytest.raises(ClusterAwayError, match=r"Cannot run squeue: .* Is Slurm installed here\?"):
        observe(bed)


# ---------------------------------------------------------------- pilots of other users


@pytest.fixture
def shared() -> Iterator[UsersSlurmBed]:
    """Return a bed that other users reach, unlike the folders of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        yield UsersSlurmBed(Path(folder))


def made_by(bed: UsersSlurmBed, *nodes: str) -> list[PilotOrder]:
    return [order(node, bed.user) for node in nodes]


@for_users
def test_commands_run_as_the_user_with_no_variable_and_no_group_of_the_server(shared: UsersSlurmBed) -> None:
    shared.environment |= {"SECRET": "x", "SLURM_JOB_ID": "1"}
    user, cluster = shared.user, shared.make()
    assert user is not None
    (done,) = asyncio.run(cluster.start(made_by(shared, "slurm-ann-1")))
    assert done.pilot is not None and done.pilot.uid == user.uid
    (call,) = shared.calls("sbatch")
    assert (call["uid"], call["home"], sorted(call["groups"])) == (user.uid, user.home, sorted(user.groups))
    assert set(call["environment"]) <= {"PATH", "SLURM_CONF", "HOME", "USER", "LOGNAME", "LC_CTYPE"}
    (told,) = [word for word in call["arguments"] if word.startswith("--output=")]
    output = Path(told.removeprefix("--output="))
    assert output == shared.folder / "pilots" / str(user.uid) / "slurm-ann-1.log"
    assert (output.parent.stat().st_uid, output.parent.stat().st_mode & 0o777) == (user.uid, 0o700)
    assert f"legato-{user.uid}-pool" in call["script"]
    assert f"export HOME={user.home}" in call["script"]
    asyncio.run(cluster.end([done.pilot], force=True))
    assert [each["uid"] for each in shared.calls("scancel")] == [user.uid]
    asyncio.run(cluster.observe())
    (seen,) = shared.calls("squeue")
    assert seen["uid"] == os.getuid()
    assert not [word for word in seen["arguments"] if word.startswith("--user")]


@for_users
def test_each_user_ends_the_own_pilots_and_an_account_that_is_gone_does_no_harm(shared: UsersSlurmBed) -> None:
    cluster = shared.make()
    asyncio.run(cluster.start(made_by(shared, "a", "b")))
    shared.set("2", uid=54321)
    pilots = list(asyncio.run(cluster.observe()))
    assert {pilot.node: pilot.uid for pilot in pilots} == {"a": getattr(shared.user, "uid", None), "b": 54321}
    asyncio.run(cluster.end(pilots, force=True))
    assert {pilot.state for pilot in asyncio.run(cluster.observe())} == {PilotState.GONE}
    assert {call["uid"] for call in shared.calls("scancel")} == {pilot.uid for pilot in pilots}


@for_users
def test_one_squeue_shows_the_pilots_of_all_users_and_no_user_can_forge_one(shared: UsersSlurmBed) -> None:
    cluster = shared.make()
    asyncio.run(cluster.start(made_by(shared, "slurm-ann-1")))
    jobs = shared.read()["jobs"]
    real = jobs["1"] | {"state": "RUNNING", "reason": "None"}
    fake = {**real, "uid": 4242, "state": "COMPLETED"}
    jobs |= {
        "1": real,
        "2": fake,
        # Lines of their own in a name, as of another user, with and without a mark.
        "3": fake | {"name": f"x\n{real['uid']}|77|RUNNING|None|0:10|legato-pool.slurm-ann-2"},
        "4": fake | {"name": f"x\n{'0' * 32}|{real['uid']}|78|RUNNING|None|0:10|legato-pool.slurm-ann-3"},
        "5": fake | {"name": "a|legato-pool.slurm-ann-4"},
        "6": fake | {"name": "legato-pool.slurm-ann-5 b"},
    }
    shared.change(jobs=jobs)
    found = {(pilot.id, pilot.uid): pilot.node for pilot in asyncio.run(cluster.observe())}
    assert found == {("1", real["uid"]): "slurm-ann-1", ("2", 4242): "slurm-ann-1"}
    assert len(shared.calls("squeue")) == 1
    shared.set("1", state="")  # Slurm writes something new: no news
    with pytest.raises(ClusterAwayError, match="a line that Legato cannot read"):
        asyncio.run(cluster.observe())


@for_users
def test_a_user_who_stops_the_commands_of_this_user_holds_up_no_other(
    shared: UsersSlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legato.clusters.slurm_pool._USERS_LIMIT_S", 0.5)
    shared.change(silent="a")
    cluster = shared.make()
    (done,) = asyncio.run(cluster.start(made_by(shared, "a")))
    assert (done.pilot, done.refusal) == (None, None)
    shared.change(silent=None)
    assert asyncio.run(cluster.start(made_by(shared, "b")))[0].pilot is not None


@for_users
@pytest.mark.parametrize("number", ["77_[1,3]", "77_[1-9%2]", "77_[1,3,5...]", "77_4", "77+1"])
def test_an_array_with_the_name_of_a_pilot_is_none_and_hides_none(shared: UsersSlurmBed, number: str) -> None:
    cluster = shared.make()
    asyncio.run(cluster.start(made_by(shared, "a")))
    jobs = shared.read()["jobs"]
    held = jobs["1"] | {"uid": 4242, "reason": "JobHeldUser"}
    shared.change(jobs=jobs | {number: held, f"{number}9": held | {"uid": jobs["1"]["uid"], "state": "RUNNING"}})
    assert [pilot.id for pilot in asyncio.run(cluster.observe())] == ["1"]
    # The same holds without pilots for each user.
    alone = SlurmCluster("pool", cluster._job, environment=shared.environment, now=lambda: NOW)
    assert [pilot.id for pilot in asyncio.run(alone.observe())] == ["1"]


@for_users
def test_text_of_a_user_in_the_reason_of_a_job_is_read(shared: UsersSlurmBed) -> None:
    cluster = shared.make()
    asyncio.run(cluster.start(made_by(shared, "a", "b", "c")))
    shared.set("1", reason="stage-in of /tmp/x|y failed")
    shared.set("2", reason="x|legato-pool.a", name="another job")
    shared.set("3", reason="x|legato-pool.a|", name="legato-other.c")
    (pilot,) = asyncio.run(cluster.observe())
    assert (pilot.node, pilot.state, pilot.reason) == ("a", PilotState.WAITING, "stage-in of /tmp/x|y failed")


AWAY_TEXTS = [
    "Unable to contact slurm controller (connect failure)",
    "Connection refused",
    "Socket timed out on send/recv operation",
    "Zero Bytes were transmitted or received",
]


@for_users
@pytest.mark.parametrize("told", AWAY_TEXTS)
def test_what_the_commands_of_a_user_say_is_no_news_of_slurm(shared: UsersSlurmBed, told: str) -> None:
    cluster = shared.make()
    shared.change(refusal=told)
    done = asyncio.run(cluster.start(made_by(shared, "a", "b")))
    assert [one.pilot for one in done] == [None] * len(done)
    assert len(shared.calls("sbatch")) == 1
    shared.change(refusal=None)
    asyncio.run(cluster.start(made_by(shared, "c")))
    pilots = asyncio.run(cluster.observe())
    shared.change(unkillable=told)
    asyncio.run(cluster.end(pilots, force=True))
    assert len(shared.calls("scancel")) == 1


@for_users
def test_no_command_runs_as_root_for_a_job_with_the_name_of_a_pilot(
    shared: UsersSlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(shared.make().start(made_by(shared, "a")))
    shared.set("1", uid=0)
    server = look_up_user("bin")
    assert server is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: server.uid)  # the server has capabilities, and is not root
        pilots = asyncio.run(shared.make().observe())
    assert [pilot.uid for pilot in pilots] == [0]
    asyncio.run(shared.make().end(pilots, force=True))
    assert shared.calls("scancel") == []


@for_users
def test_a_user_without_the_commands_of_slurm_is_refused_alone(shared: UsersSlurmBed) -> None:
    (shared.folder / "bin" / "sbatch").unlink()
    (done,) = asyncio.run(shared.make().start(made_by(shared, "a")))
    assert done.refusal == "Cannot run sbatch: No such file or directory. Is Slurm installed here?"


@for_users
@pytest.mark.parametrize("told", ["9" * 19, "\u00b2", "-1", "--all", "1 2"])
def test_what_is_no_number_of_a_job_is_no_pilot(shared: UsersSlurmBed, told: str) -> None:
    (shared.folder / "bin" / "sbatch").write_text(f"#!/bin/sh\necho '{told}'\n")
    (done,) = asyncio.run(shared.make().start(made_by(shared, "a")))
    assert (done.pilot, done.refusal) == (None, "sbatch ended with code 0")


@for_users
def test_all_orders_of_a_user_have_one_time_limit(shared: UsersSlurmBed, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    clock = itertools.count(step=4)

    async def run(*_: Any, limit_s: float, **__: Any) -> Done:
        limits.append(limit_s)
        return Done(0, str(len(limits)), "")

    monkeypatch.setattr("legato.clusters.slurm_pool.run_command", run)
    monkeypatch.setattr("legato.clusters.slurm_pool.time.monotonic", lambda: next(clock))
    cluster = shared.make()

    async def start() -> Any:
        return await cluster._submit(made_by(shared, *"abcdefgh"), shared.user)

    coroutine = start()
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert limits == [16.0, 12.0]
    assert [one.node for one in ended.value.value] == ["a", "b"]  # the next round goes on


@for_users
def test_what_fails_for_one_user_ends_no_fewer_pilots_of_others(
    shared: UsersSlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = shared.make()
    asyncio.run(cluster.start(made_by(shared, "a", "b")))
    shared.set("1", uid=54321)

    def find(uid: int) -> JobUser:
        if uid == 54321:
            raise OSError(5, "Input/output error")
        return find_account(uid)

    monkeypatch.setattr("legato.clusters.slurm_pool.find_account", find)
    asyncio.run(cluster.end(asyncio.run(cluster.observe()), force=True))
    assert {pilot.node: pilot.state for pilot in asyncio.run(cluster.observe())} == {
        "a": PilotState.WAITING, "b": PilotState.GONE,
    }  # fmt: skip


@for_users
def test_the_last_words_of_a_users_pilot_are_no_file_of_the_server(shared: UsersSlurmBed) -> None:
    cluster, user = shared.make(), shared.user
    assert user is not None
    asyncio.run(cluster.start(made_by(shared, "a")))
    file = shared.folder / "pilots" / str(user.uid) / "a.log"
    file.write_text("No module named legato\n")
    os.utime(file, (NOW, NOW))
    assert cluster.read_last_words("a", NOW, user.uid) == ""  # it belongs to the server
    os.chown(file, user.uid, user.gid)
    assert cluster.read_last_words("a", NOW, user.uid) == "No module named legato"
    file.unlink()
    file.symlink_to("/etc/shadow")
    assert cluster.read_last_words("a", NOW, user.uid) == ""
    file.unlink()
    os.mkfifo(file)
    os.chown(file, user.uid, user.gid)
    assert cluster.read_last_words("a", NOW, user.uid) == ""


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"partiton": "x"}, "slurm.partiton. Did you mean slurm.partition"),
        ({"time": "5:00"}, "at least 10 minutes"),
        ({"time": "UNLIMITED"}, "write minutes"),
        ({"gpus": 2, "gres": "gpu:2"}, "gpus and gres exclude each other"),
        ({"gpus": 2, "slots": 4}, "slots is for pilots without GPUs"),
        ({"gres": "shard:2"}, "name the number of GPUs"),
        ({"partition": "a b"}, "write a name of Slurm"),
        ({"options": ["--out=/tmp/x"]}, "Legato itself decides on --output"),
        ({"options": ["--job-n=x"]}, "Legato itself decides on --job-name"),
        ({"options": ["--part=gpu"]}, "use the setting partition"),
        ({"options": ["-N2"]}, "'-N2' is no option"),
        ({"options": ["--mem=4G\n--wrap=x"]}, "is no option"),
        ({"min_agents": 5}, "min_agents is above max_agents"),
        ({"url": "head:8765"}, "write it as https://HOST:PORT"),
        ({"folder": "tmp"}, "write an absolute path"),
        ({"max_agents_per_user": 2}, "cannot have max_agents_per_user with run_jobs_as=server"),
        ({"max_agents_per_user": 5}, "max_agents_per_user (5) is above max_agents (4), the maximum of all users"),
        ({"partition": ""}, "write a name of Slurm"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(flags={**SERVER, "slurm": {**SECTION, **changes}})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"host": "127.0.0.1"}, "needs a server that its machines reach"),
        ({"tls": "off"}, "needs TLS"),
        ({"allowed_hosts": "localhost"}, "needs a name of this server"),
        ({"run_jobs_as": "pool"}, "[slurm] needs run_jobs_as=server or run_jobs_as=submitter"),
    ],
)
def test_a_server_that_pilots_cannot_use_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(flags={**SERVER, "slurm": SECTION, **changes})
    assert told in str(refused.value)


def test_each_user_may_have_a_pool_and_takes_the_own_account() -> None:
    section = {**SECTION, "account": "", "max_agents_per_user": 2}
    found = read_settings(flags={**SERVER, "slurm": section, "run_jobs_as": "submitter"}).slurm
    assert found is not None
    assert found.account is None
    assert (make_rules(found, None).max_pilots, make_rules(found, None).max_of_owner) == (4, 2)
    with pytest.raises(SettingsError, match="cannot have min_agents with run_jobs_as=submitter"):
        read_settings(flags={**SERVER, "slurm": {**section, "min_agents": 1}, "run_jobs_as": "submitter"})


def test_options_that_do_not_collide_are_passed_on() -> None:
    options = ["--mem=64G", "--exclusive", "--constraint=icelake", "--exclude=h1", "--comment=a b", "--nodelist=h2"]
    found = read_settings(flags={**SERVER, "slurm": {**SECTION, "options": options}}).slurm
    assert found is not None
    assert found.options == tuple(options)


@pytest.mark.parametrize(("time", "want"), [("10", 240), ("2:00:00", 900), ("1-0", 900)])
def test_pilots_are_replaced_in_time_but_not_all_the_time(time: str, want: float) -> None:
    found = read_settings(flags={**SERVER, "slurm": {**SECTION, "time": time}}).slurm
    assert found is not None
    assert make_rules(found, found.time_s).replace_s == want


def test_the_last_words_of_a_pilot_are_its_own_and_no_older_than_the_pilot(bed: SlurmBed) -> None:
    cluster = bed.make()
    assert cluster.read_last_words("slurm-1", NOW, None) == ""
    file = bed.folder / "pilots/slurm-1.log"
    file.parent.mkdir()
    file.write_text("x" * 9000 + "\nNo module named legato\n\nsrun: error: h1: task 0: Exited with exit code 1\n")
    os.utime(file, (NOW, NOW))
    assert cluster.read_last_words("slurm-1", NOW, None) == "No module named legato"
    assert cluster.read_last_words("slurm-1", NOW + 60, None) == "", "it is of an earlier pilot"
    file.write_text("srun: error: Unable to create step\n")
    os.utime(file, (NOW, NOW))
    assert cluster.read_last_words("slurm-1", NOW, None) == "srun: error: Unable to create step"
    file.write_text("\x1b]0;x\x07\u202eno\n")
    os.utime(file, (NOW, NOW))
    assert cluster.read_last_words("slurm-1", NOW, None) == "?]0;x??no"


def test_words_of_a_command_cannot_control_a_terminal(bed: SlurmBed) -> None:
    bed.change(refusal="\x1b[2J\x1b[Hno account\x9b1m")
    (done,) = asyncio.run(bed.connect().start([order("a")]))
    assert done.refusal == "?[2J?[Hno account?1m"
    bed.change(refusal=None)
    asyncio.run(bed.connect().start([order("a")]))
    bed.set("1", reason="held by \x1b[2J")
    assert observe(bed)["a"].reason == "held by ?[2J"
