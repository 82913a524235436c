"""The command `elasticdl` against a real server: the job of ElasticDL's tutorial, its pods, what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import ROOT, Asker, Server, servers_of, wait_until
from tests.png_folders import write_png_folders

PROGRAMS = ROOT / "tests/integration/programs"
NAME = "test-mnist-allreduce"
HANDED_OUT = """
import os, sys, time
import own, told
from elasticai_api.common.data_shard_service import build_data_shard_service

service = build_data_shard_service(batch_size=4, num_epochs=1, dataset_size=44, dataset_name="records")
print("workers", os.environ["WORKER_NUM"], "for", sys.argv[1:], own.WHERE, told.WHERE, os.environ["SAID"])
while True:
    shard = service.fetch_shard()
    if shard is None:
        break
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    print("shard", shard.start, shard.end)
    service.report_batch_done(shard.end - shard.start)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **settings))
        made[0].start()
        yield made[0]


class Terminal:
    """A user who works in the folder of the tutorial.

    Args:
        server: to which the commands connect.
        folder: the current directory of the commands.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.folder = folder
        own = {"LEGATO_SERVER": server.url, "LEGATO_TOKEN": server.secret or "", "PYTHONPATH": str(ROOT / "src")}
        self._environment = {**os.environ, **own, "XDG_CONFIG_HOME": str(folder / "nothing")}

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "legato.compat.elasticdl.command", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def set_pace(self, step_s: float) -> None:
        reins = self.folder.parent / "reins"
        reins.mkdir(exist_ok=True)
        (reins / "new").write_text(str(step_s))
        (reins / "new").rename(reins / "pace")

    def pods(self, *words: str) -> list[list[str]]:
        return [line.split() for line in self.type("pods", *words).stdout.splitlines()[1:]]


@pytest.fixture
def terminal(server: Server, tmp_path: Path) -> Terminal:
    """A clone of the tutorial's repository: the program in ``model_zoo``, the data in ``data``."""
    clone = tmp_path / "clone"
    zoo = clone / "model_zoo/mnist"
    zoo.mkdir(parents=True)
    (clone / "model_zoo/__init__.py").touch()
    # Variables of a submission must not have this prefix.
    (zoo / "__init__.py").write_text("import os\nos.environ['LEGATO_TEST_REINS'] = os.environ['REINS']\n")
    shutil.copy(PROGRAMS / "elasticdl/mnist.py", zoo / "mnist_pytorch.py")
    write_png_folders(clone / "data/mnist_png", every=20)
    terminal = Terminal(server, clone)
    terminal.set_pace(1.0)
    return terminal


def seed_command(terminal: Terminal, num_workers: int, **other: str) -> list[str]:
    """Return the words of the tutorial's command, with a smaller batch and more epochs."""
    said = {
        "image_name": "elasticdl/elasticdl:v1.0.0",
        "worker_image": "elasticdl:mnist_pytorch",
        "job_command": "python -m model_zoo.mnist.mnist_pytorch --batch_size 8 --num_epochs 3 "
        "--training_data=/data/mnist_png/training --validation_data=/data/mnist_png/testing",
        "num_minibatches_per_task": "2",
        "num_workers": str(num_workers),
        "master_resource_request": "cpu=0.2,memory=1024Mi",
        "master_resource_limit": "cpu=1,memory=2048Mi",
        "worker_resource_request": "cpu=0.3,memory=1024Mi",
        "worker_resource_limit": "cpu=1,memory=2048Mi",
        "envs": "USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60,PYTHONUNBUFFERED=true,"
        f"PYTHONPATH={PROGRAMS}/elasticdl:{PROGRAMS}:{ROOT}/src,REINS={terminal.folder.parent}/reins",
        "job_name": NAME,
        "image_pull_policy": "Never",
        "volume": f"host_path={terminal.folder}/data,mount_path=/data",
        "distribution_strategy": "AllreduceStrategy",
        **other,
    }
    return ["train", *(f"--{flag}={value}" for flag, value in said.items())]


def wait_for_training(asker: Asker, num_workers: int) -> Any:
    def trains(job: Any) -> bool:
        assert job["stage"] not in ("failed", "stopped"), job["reason"]
        # A worker that leaves keeps its slot until its process has ended.
        num_slots, progress = job["num_slots"], job["progress"]
        return progress is not None and (num_slots, progress["num_workers"]) == (num_workers, num_workers)

    return asker.wait(f"jobs/{NAME}", trains)


@pytest.mark.timeout(400)
def test_the_tutorials_job_grows_and_shrinks_to_its_end(server: Server, terminal: Terminal) -> None:
    admin = Asker(server)
    done = terminal.type(*seed_command(terminal, 4))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    admin.post(f"jobs/{NAME}/resize", {"max_workers": 2})
    told = f"ElasticDL job {NAME} was successfully submitted. The master pod is: elasticdl-{NAME}-master.\n"
    assert told in done.stderr
    assert f"/data is {terminal.folder}/data" in done.stderr
    twice = terminal.type(*seed_command(terminal, 4))
    assert (twice.returncode, f"A job {NAME} exists already" in twice.stderr) == (1, True)

    wait_for_training(admin, 2)
    found = admin.get(f"jobs/{NAME}")
    assert found["labels"] == {"app": "elasticdl", "elasticdl-job-name": NAME}
    master, *workers = terminal.pods("--job_name", NAME)
    assert master[:4] == [f"elasticdl-{NAME}-master", "1/1", "Running", "0"]
    assert [worker[1:3] for worker in workers if worker[2] != "Completed"] == [["1/1", "Running"]] * 2
    assert all(worker[0].startswith(f"{NAME}-edljob-worker-") for worker in workers)
    files = {file["path"] for file in admin.get(f"jobs/{NAME}/files", recursive="true")["items"]}
    assert "work/model_zoo/mnist/mnist_pytorch.py" in files
    assert not any("mnist_png" in file for file in files), "data are mounted, not uploaded"

    admin.post(f"jobs/{NAME}/resize", {"max_workers": 4})
    wait_for_training(admin, 4)
    admin.post(f"jobs/{NAME}/resize", {"max_workers": 1})
    wait_for_training(admin, 1)
    wait_until(lambda: len(terminal.pods()) == 2, "workers that left are still listed")
    terminal.set_pace(0.0)
    end = admin.wait(f"jobs/{NAME}", lambda job: job["stage"] in ("succeeded", "failed", "stopped"), 200)
    logs = [admin.http.get(f"jobs/{NAME}/logs/{log['log']}").text for log in admin.get(f"jobs/{NAME}/logs")["items"]]
    assert end["stage"] == "succeeded", (end["reason"], logs)
    assert any("Test set: Accuracy" in log for log in logs)
    assert terminal.pods() == []
    assert terminal.pods("--all", "yes")[0][:3] == [f"elasticdl-{NAME}-master", "0/1", "Completed"]


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_tasks_are_handed_out_by_the_job_s_driver(server: Server, terminal: Terminal) -> None:
    admin = Asker(server)
    work = terminal.folder / "work"
    for name, text in (("tools/run.py", HANDED_OUT), ("own.py", "WHERE = 1"), ("parts/told.py", "WHERE = 2")):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    command = "cd work && export SAID='a b' && PYTHONPATH=.:/parts python -u tools/run.py --x=1 2>&1 | tee /log"
    words = {"job_command": command, "aux_params": "exact_num_workers=True", "worker_pod_priority": "high"}
    words["envs"] = f"GO={terminal.folder}/go"
    done = terminal.type(*seed_command(terminal, 2, **words), "--use_go_ps=true")
    assert done.returncode == 0, done.stderr
    assert "exactly 2 workers" in done.stderr
    wait_for_training(admin, 2)
    assert admin.get(f"jobs/{NAME}")["stage"] == "running", "who takes no step works too"
    assert terminal.pods()[0][1:3] == ["1/1", "Running"]
    (terminal.folder / "go").touch()
    job = admin.wait(f"jobs/{NAME}", lambda found: found["stage"] in ("succeeded", "failed", "stopped"), 120)
    logs = [admin.http.get(f"jobs/{NAME}/logs/worker-{number}").text for number in (0, 1)]
    assert job["stage"] == "succeeded", (job["reason"], logs)
    assert (job["is_elastic"], job["max_workers"], job["priority"]) == (False, 2, 7500)
    assert all("workers 2 for ['--x=1'] 1 2 a b" in log for log in logs), logs
    shards = [line.split()[1:] for log in logs for line in log.splitlines() if line.startswith("shard")]
    assert sorted(int(start) for start, _ in shards) == [0, 8, 16, 24, 32, 40], "two mini-batches a task"
    assert max(int(end) for _, end in shards) == 44
