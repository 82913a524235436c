"""Jobs with users of the system of their own: what they cannot do, and that all that worked without still works."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.integration.readable import open_the_way
from tests.integration.serving import ROOT, Asker, Server, pids_of, servers_of, wait_until
from tests.integration.test_wmla_rest import DLI, GANG, Notebook, printed

from legato.client.packing import pack
from legato.server.retention import delete_directory

PROGRAMS = ROOT / "tests/integration/programs"
SETTINGS = {"slots": 3, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
POOL = {"run_jobs_as": "pool", "pool_uids": "2000000100-2000000199"}
SUBMITTER = {"run_jobs_as": "submitter", "job_users": ["ann=daemon", "ben=nobody", "admin=games"]}
EPOCHS = 40
QUICK = """
import legato.train.reduction.exchange as exchange
import legato.train.loop.session as session
can_read, connect = session.can_read_peers, exchange.SharedExchange.connect

def note_reading(group, **more):
    found = can_read(group, **more)
    print(f"reads memory of peers: {found}", flush=True)
    return found

def note_segments(shared, paths):
    connect(shared, paths)
    print("maps segments of peers", flush=True)

session.can_read_peers, exchange.SharedExchange.connect = note_reading, note_segments
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="JOBS WITH USERS OF THEIR OWN ARE NOT TESTED: run the tests as root"),
    pytest.mark.timeout(300),
]


class Platform:
    """A server whose jobs have users of their own, and those who ask it."""

    def __init__(self, server: Server, folder: Path, restored_from: Platform | None = None) -> None:
        self.server, self.home, self.folder = server, server.home, folder
        self.admin = restored_from.admin.at(server) if restored_from else Asker(server)
        self.users = {name: ask.at(server) for name, ask in restored_from.users.items()} if restored_from else {}
        if restored_from is None:
            for name in ("ann", "ben"):
                self.add_user(name)

    def add_user(self, name: str) -> Asker:
        self.admin.post("users", {"name": name, "role": "user"}, 201)
        secret = self.admin.post("tokens", {"name": "test", "user": name}, 201)["secret"]
        self.users[name] = Asker(self.server, secret)
        return self.users[name]

    def submit(self, user: str, program: str, *arguments: str, **body: Any) -> str:
        code = Path(tempfile.mkdtemp(dir=self.folder))
        (code / "train.py").write_text(program)
        packed = pack(code)
        ask = self.users[user]
        uploaded = ask.http.put(f"code/{packed.sha256}", content=packed.content)
        assert uploaded.status_code in (200, 201), uploaded.text
        whole = {"name": "job", "program": ["train.py", *arguments], "code": packed.sha256, "max_workers": 1, **body}
        made: str = ask.post("jobs", whole, 201)["id"]
        return made

    def end(self, job: str, want: str = "succeeded") -> Any:
        ended = self.admin.wait(f"jobs/{job}", lambda found: found["ended_at"] is not None, limit_s=150)
        assert ended["stage"] == want, (ended["reason"], self.logs(job), self.driver_log(job))
        return ended

    def logs(self, job: str) -> str:
        found = self.admin.get(f"jobs/{job}/logs")["items"]
        return "".join(self.admin.http.get(f"jobs/{job}/logs/{log['log']}").text for log in found)

    def driver_log(self, job: str) -> str:
        return "".join(path.read_text() for path in (self.home / "jobs" / job).glob("*.log"))

    def pids(self, job: str) -> dict[str, int]:
        """Return the processes of a job: its driver, and its workers by number."""
        status = json.loads((self.home / "jobs" / job / "run" / "engine.json").read_text())
        workers = {f"worker {number}": entry["pid"] for number, entry in status["workers"].items()}
        return {"driver": json.loads((self.home / "jobs" / job / "driver.json").read_text())["pid"], **workers}


@contextlib.contextmanager
def platforms(as_user: Sequence[str] = (), uid: int = 0, **settings: Any) -> Iterator[Platform]:
    """Run a server as root; or as the user ``uid``, by the command ``as_user``."""
    prefix = [*open_the_way(), *as_user]
    # Not in pytest's own folder, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="legato-isolation-"))
    folder.chmod(0o755)
    os.chown(folder, uid, uid)
    with pytest.MonkeyPatch.context() as patch, servers_of(folder / "home", patch) as made:
        try:
            patch.setenv("LEGATO_ODD", "a secret of the server")
            made.append(Server(folder / "home", prefix=prefix, forks=False, **{**SETTINGS, **settings}))
            made[0].start()
            yield Platform(made[0], folder)
        finally:
            for job in (folder / "home" / "jobs").glob("j-*"):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(json.loads((job / "driver-process.json").read_text())["pid"], signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pool() -> Iterator[Platform]:
    with platforms(**POOL) as platform:
        yield platform


def check_attack(platform: Platform) -> tuple[int, int]:
    """Attack a job of ben, and all else, with a job of ann; returns as whom hers and his ran."""
    slow = platform.folder / "slow"
    slow.touch()
    victim = platform.submit(
        "ben", (PROGRAMS / "slow.py").read_text(), "400", "result", "0.1", str(slow), environment={"WORD": "of ben"}
    )
    platform.admin.wait(f"jobs/{victim}", lambda job: job["stage"] == "running" and job["progress"])
    pids = platform.pids(victim)
    server = platform.server.pid
    attack = platform.submit(
        "ann", (PROGRAMS / "attack.py").read_text(), str(platform.home), str(server), victim, str(pids["worker 0"])
    )
    platform.end(attack)
    line = next(line for line in platform.logs(attack).splitlines() if line.startswith("REPORT "))
    report = json.loads(line.removeprefix("REPORT "))
    assert {what: how for what, how in report["done"].items() if how.startswith("DONE")} == {}
    assert report["done"]["commands its driver"] == "InvalidStatus"
    about = report["about"]
    [uid] = {int(uid) for uid in about["uids"]}
    assert "0" not in {*about["gids"], *about["groups"]}
    assert set(about["capabilities"]) == {"0" * 16}
    assert (about["no_new_privs"], about["mode"], about["token"]) == ("1", "0o600", None)
    uid_of_ben = (platform.home / "jobs" / victim / "work").stat().st_uid
    # Links lead nowhere, and what it wrote about its processes ended no processes of others.
    for path in ("checkpoints/step-00000009.legato", "work/shadow"):
        assert platform.admin.http.get(f"jobs/{attack}/files/{path}").status_code == 404
    assert platform.server.pid == server
    assert platform.server.is_running
    assert (platform.home / "legato.db").exists()
    assert platform.admin.get(f"jobs/{victim}")["stage"] == "running"
    roles = {user["name"]: user["role"] for user in platform.admin.get("users")["items"]}
    assert roles == {"admin": "admin", "ann": "user", "ben": "user"}
    platform.admin.post(f"jobs/{victim}/stop")
    platform.end(victim, "stopped")
    assert platform.admin.get(f"jobs/{victim}/checkpoints")["items"], "the server reads what the job's user wrote"
    wait_until(lambda: pids_of(platform.home) == set(), "processes are left over")
    return uid, uid_of_ben


def test_a_job_of_the_pool_reaches_nothing_but_its_own(pool: Platform) -> None:
    uids = check_attack(pool)
    assert len(set(uids)) == 2
    assert all(2000000100 <= uid <= 2000000199 for uid in uids)


@pytest.mark.soak
def test_a_server_with_five_capabilities_keeps_jobs_apart_too() -> None:
    capabilities = "-all,+setuid,+setgid,+kill,+chown,+dac_override"
    given = [f"--{kind}={capabilities}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    with platforms(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *given], 12345, **POOL) as platform:
        assert "CapEff:\t00000000000000e3" in Path(f"/proc/{platform.server.pid}/status").read_text()
        assert len(set(check_attack(platform))) == 2


@pytest.mark.soak
def test_a_job_of_a_submitter_reaches_nothing_but_its_own() -> None:
    with platforms(**SUBMITTER) as platform:
        assert check_attack(platform) == (pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("nobody").pw_uid)
        platform.add_user("carl")
        body = {"name": "job", "program": ["train.py"], "directory": str(platform.folder), "max_workers": 1}
        refused = platform.users["carl"].http.post("jobs", json=body)
        assert refused.status_code == 422, refused.text
        assert "no system user 'carl'" in refused.text


def train_alone(folder: Path) -> str:
    """Return what `slow.py` computes without anything of a platform."""
    alone = folder / "alone"
    environment = {**os.environ, "LEGATO_SEED": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
    done = fork_server.run([sys.executable, str(PROGRAMS / "slow.py"), str(EPOCHS), str(alone)], env=environment)
    assert done.returncode == 0, done.stderr
    return alone.read_text()


def test_workers_share_memory_and_outlive_driver_and_server(pool: Platform, tmp_path: Path) -> None:
    result = train_alone(tmp_path)
    slow = pool.folder / "slow"
    slow.touch()
    program = QUICK + (PROGRAMS / "slow.py").read_text().replace('"""Trains', '_ = """Trains')
    job = pool.submit("ann", program, str(EPOCHS), "result", "0.1", str(slow), min_workers=2, max_workers=2, seed=3)
    trains = lambda found: found["stage"] == "running" and (found["progress"] or {}).get("step")  # noqa: E731
    pool.admin.wait(f"jobs/{job}", trains)
    before = pool.pids(job)
    os.kill(before["driver"], signal.SIGKILL)
    pool.server.kill()
    pool.server.start()
    pool.admin = pool.admin.at(pool.server)
    pool.users = {name: ask.at(pool.server) for name, ask in pool.users.items()}
    pool.admin.wait(f"jobs/{job}", lambda _: pool.pids(job)["driver"] != before["driver"])
    after = pool.pids(job)
    assert {name: pid for name, pid in after.items() if name != "driver"} == {
        name: pid for name, pid in before.items() if name != "driver"
    }, "the workers were adopted"
    # A worker joins the others: its state comes by the quick way too.
    os.kill(before["worker 1"], signal.SIGKILL)
    wait_until(lambda: "worker 2" in pool.pids(job), "no worker comes in its place")
    wait_until(lambda: pool.logs(job).count("maps segments of peers") >= 4, "the new view does not share memory")
    slow.unlink()
    pool.end(job)
    assert pool.admin.http.get(f"jobs/{job}/files/work/result").text == result
    told = pool.logs(job)
    assert "reads memory of peers: True" in told
    assert "reads memory of peers: False" not in told


@pytest.mark.soak
def test_programs_of_wmla_run_in_the_pool(pool: Platform) -> None:
    notebook = Notebook(pool.server)
    (pool.home / "data").mkdir(mode=0o755, exist_ok=True)
    args = "--exec-start distPyTorch --cs-datastore-meta type=fs,data_path= --model-main main.py --numWorker 2"
    job = notebook.submit(f"{args} --epochs 2", GANG)["id"]
    assert notebook.wait_for_end(job) == "FINISHED", notebook.get(f"{DLI}/execs/{job}/log", logType="errlog")
    assert printed(notebook, job) == ["begun", "rank 0 of 2: 11 for ['--epochs', '2']"]
    made = pool.admin.get(f"jobs/{job}/files", recursive="true")["items"]
    assert "work/model/last.txt" in {file["path"] for file in made}, "what it wrote can be downloaded"


def test_data_that_the_job_s_user_may_not_read_is_named(pool: Platform) -> None:
    closed = pool.folder / "closed"
    closed.mkdir(mode=0o700)
    job = pool.submit("ann", "print('begun')", data=str(closed))
    assert f"may not read the directory '{closed}'" in pool.end(job, "failed")["reason"]


def test_a_job_runs_with_its_own_python_if_its_user_may_run_it(pool: Platform) -> None:
    bare, whole = pool.folder / "bare", pool.folder / "whole"
    for folder in (bare, whole):
        venv.create(folder, symlinks=True)
    (site,) = whole.glob("lib/python*/site-packages")
    (site / "all.pth").write_text("".join(f"{path}\n" for path in sys.path if path))
    job = pool.submit("ann", "import sys\nprint('runs in', sys.prefix)", python=str(whole))
    pool.end(job)
    assert f"runs in {whole}\n" in pool.logs(job)

    job = pool.submit("ann", "print('begun')", python=str(bare))
    reason = pool.end(job, "failed")["reason"]
    assert "it has no torch" in reason and f"{bare}/bin/python3 -m pip install 'legato[train]==" in reason
    assert "begun" not in pool.logs(job), "no worker was started"

    bare.chmod(0o700)
    with pytest.raises(AssertionError, match=r"the folder has no bin.python that the system user"):
        pool.submit("ann", "print('begun')", python=str(bare))


def test_programs_of_elasticdl_run_in_the_pool_and_their_files_are_deleted(pool: Platform) -> None:
    handed = """
import os
print("data", os.listdir(os.environ["LEGATO_DATA"]), flush=True)
from elasticai_api.common.data_shard_service import build_data_shard_service
service = build_data_shard_service(batch_size=4, num_epochs=1, dataset_size=44, dataset_name="records")
while (shard := service.fetch_shard()) is not None:
    print("shard", shard.start, shard.end, flush=True)
    service.report_batch_done(shard.end - shard.start)
"""
    opened = pool.folder / "opened"
    opened.mkdir(mode=0o700)
    (opened / "records").touch()
    opened.chmod(0o755)
    job = pool.submit("ann", handed, framework="elasticdl", data=str(opened))
    pool.end(job)
    assert "data ['records']" in pool.logs(job)
    shards = [line.split()[1:] for line in pool.logs(job).splitlines() if line.startswith("shard")]
    assert max(int(end) for _, end in shards) == 44
    gone = pool.home / "jobs" / job
    assert (gone / "guest").stat().st_uid == 0, "what the driver keeps is not the job's"
    assert 2000000100 <= (gone / "work").stat().st_uid <= 2000000199
    (gone / "work" / "kept").mkdir(mode=0o500)
    delete_directory(gone)
    assert not gone.exists()


READING = """
import sys
try:
    print("read:", open(sys.argv[1]).read())
except PermissionError:
    print("refused")
"""


@pytest.mark.soak
def test_a_pool_comes_back_from_a_backup_with_its_owners_and_gives_no_number_again(tmp_path: Path) -> None:
    result = train_alone(tmp_path)
    settings = {**POOL, "pool_uids": "2000000100-2000003999"}
    with platforms(**settings) as platform:
        slow, shared = platform.folder / "slow", platform.folder / "shared"
        slow.touch()
        shared.mkdir()
        shared.chmod(0o1777)
        body = {"max_workers": 2, "seed": 3, "checkpoint_every": "5steps"}
        training = (PROGRAMS / "slow.py").read_text()
        job = platform.submit("ann", training, str(EPOCHS), "result", "0.1", str(slow), **body)
        platform.admin.wait(f"jobs/{job}", lambda found: found["progress"] and (found["progress"]["step"] or 0) > 10)
        uid = (platform.home / "jobs" / job / "work").stat().st_uid
        call_legato("server", "backup", platform.folder / "backup", "--home", platform.home)
        # Ben gets his number after the backup, and his file is not lost.
        own = shared / "of-ben"
        platform.end(platform.submit("ben", "import sys; open(sys.argv[1], 'w').write('a secret')", str(own)))
        number_of_ben = own.stat().st_uid
        assert number_of_ben == uid + 1
        platform.server.kill()
        for pid in pids_of(platform.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not pids_of(platform.home), "processes are left")
        shutil.rmtree(platform.home)

        new = platform.folder / "other" / "home"
        new.parent.mkdir(mode=0o755)
        call_legato("server", "restore", platform.folder / "backup", "--home", new)
        assert {path.stat().st_uid for path in (new, new / "legato.db", new / "home-id", new / "jobs")} == {0}
        of_ann = [new / "jobs" / job / "work", *(new / "jobs" / job / "checkpoints").iterdir(), new / "homes" / "ann"]
        assert {path.stat().st_uid for path in of_ann} == {uid}
        with pytest.MonkeyPatch.context() as patch, servers_of(new, patch) as made:
            made.append(Server(new, prefix=open_the_way(), forks=False, **SETTINGS, **settings))
            made[0].secret = platform.server.secret
            made[0].start()
            restored = Platform(made[0], platform.folder, restored_from=platform)
            restored.add_user("carl")
            for name in ("carl", "ann", "ben"):
                reads = restored.submit(name, READING, str(own))
                restored.end(reads)
                assert "refused" in restored.logs(reads).splitlines()
                found = (new / "jobs" / reads / "work").stat().st_uid
                assert found == uid if name == "ann" else found not in (uid, number_of_ben)
            slow.unlink()
            ended = restored.end(job)
            assert ended["num_retries"] == 0
            assert restored.admin.http.get(f"jobs/{job}/files/work/result").text == result
            assert (new / "jobs" / job / "work" / "result").stat().st_uid == uid
            assert "checkpoint" in (new / "jobs" / job / "events.jsonl").read_text()


def call_legato(*words: object) -> None:
    done = subprocess.run([sys.executable, "-m", "legato.cli", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
