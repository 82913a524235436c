"""The command of ElasticDL's tutorial on a real Kubernetes: its pods, one of which is deleted, and equal weights.

It needs ``LEGATO_TESTBED`` and ``KUBEBUILDER_ASSETS``, as `test_kubernetes_on_bed`. Its pods run an image with the name
of the tutorial's, which has nothing but the program: Legato and Python are those of this environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from tests.png_folders import write_png_folders

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ROOT / "tests/integration/programs"
IMAGE: Final = "docker.io/library/elasticdl:mnist_pytorch"
JOB: Final = "test-mnist-allreduce"
MASTER: Final = f"elasticdl-{JOB}-master"
LIMIT_S: Final = 120.0
DIGEST: Final = re.compile(r"sha256 ([0-9a-f]{64}) steps ([0-9]+)")
REINS: Final = """
import contextlib, os, plain_reins
from plain_reins import declare_torchvision_operators, paced

def tell_end(*things):
    with open(f"/data/digests/{os.environ['WORKER_ID']}", "w") as file, contextlib.redirect_stdout(file):
        plain_reins.tell_end(*things)
"""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_image(image: ModuleType, file: Path) -> None:
    """Write the image that the tutorial's Dockerfile makes: the folder ``model_zoo`` in its working directory."""
    folders = ("usr", "root", "tmp", "etc", "proc", "sys", "dev", "var", "run")
    zoo = ("examples", "examples/model_zoo", "examples/model_zoo/mnist")
    entries: list[tuple[str, str, bytes | str]] = [(name, "dir", "") for name in (*folders, *zoo)]
    entries += [(name, "link", f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")]
    entries += [(f"{folder}/__init__.py", "file", b"") for folder in zoo[1:]]
    for name, content in (
        ("mnist_pytorch.py", (PROGRAMS / "elasticdl/mnist.py").read_bytes()),
        ("plain_reins.py", (PROGRAMS / "elasticdl/reins.py").read_bytes()),
        ("reins.py", REINS.encode()),
    ):
        entries.append((f"{zoo[-1]}/{name}", "file", content))
    variables = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    variables |= {"PYTHONPATH": str(PROGRAMS), "LEGATO_TEST_REINS": "/data/reins"}
    config = {"Env": [f"{name}={value}" for name, value in variables.items()], "WorkingDir": "/examples"}
    image.write_image(file, IMAGE, entries, config)


class Tutorial:
    """A user who follows the tutorial, on a cluster with two nodes, with the rights that its manifest gives.

    Args:
        bed: with Kubernetes on two hosts.
        environment: with the kubeconfig of the administrator, and the one of the account ``default``.
        folder: an empty one.
    """

    def __init__(self, bed: Any, environment: dict[str, str], folder: Path) -> None:
        self.bed, self.environment, self.folder = bed, environment, folder
        self.data = folder / "data"
        write_png_folders(self.data / "mnist_png", every=5)
        for name in ("digests", "reins", "state"):
            (self.data / name).mkdir()
        self.set_pace(1.0)

    def set_pace(self, step_s: float) -> None:
        (self.data / "reins/new").write_text(str(step_s))
        (self.data / "reins/new").rename(self.data / "reins/pace")

    def train(self, *more: str, epochs: int = 5) -> subprocess.CompletedProcess[str]:
        """Run the command of the tutorial."""
        program = f"python -m model_zoo.mnist.mnist_pytorch --batch_size 64 --num_epochs {epochs}"
        data = "--training_data=/data/mnist_png/training --validation_data=/data/mnist_png/testing"
        words = [
            "train",
            "--image_name=elasticdl/elasticdl:v1.0.0",
            "--worker_image=elasticdl:mnist_pytorch",
            f"--job_command={program} {data}",
            "--num_minibatches_per_task=2",
            "--num_workers=2",
            "--master_resource_request=cpu=0.2,memory=1024Mi",
            "--master_resource_limit=cpu=1,memory=2048Mi",
            "--worker_resource_request=cpu=0.3,memory=1024Mi",
            "--worker_resource_limit=cpu=1,memory=2048Mi",
            "--envs=USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60,PYTHONUNBUFFERED=true",
            f"--job_name={JOB}",
            "--image_pull_policy=Never",
            f"--volume=host_path={self.data},mount_path=/data",
            "--distribution_strategy=AllreduceStrategy",
        ]
        own = {"KUBECONFIG": self.environment["KUBECONFIG_RESTRICTED"], "HOME": str(self.folder)}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")} | own
        command = [sys.executable, "-m", "legato.compat.elasticdl.command", *words, *more]
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def train_alone(self, epochs: int = 5) -> tuple[str, str]:
        """Return the SHA-256 of the weights, and the steps, of a run that nothing disturbs, in this process's place."""
        folder = self.folder / "alone"
        folder.mkdir()
        command = [sys.executable, "-m", "legato.compat.elasticdl.site.launch", str(PROGRAMS / "elasticdl/mnist.py")]
        command += ["--batch_size", "64", "--num_epochs", str(epochs)]
        command += [
            f"--training_data={self.data}/mnist_png/training",
            f"--validation_data={self.data}/mnist_png/testing",
        ]
        environment = {**os.environ, "WORKER_NUM": "2", "PYTHONPATH": str(PROGRAMS), "LEGATO_DEVICE": "cpu"}
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        return DIGEST.findall(done.stdout)[-1]

    def digests(self) -> set[tuple[str, str]]:
        return {DIGEST.findall(file.read_text())[-1] for file in (self.data / "digests").iterdir()}

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(["kubectl", *arguments], env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def pods(self) -> dict[str, str]:
        """Return status by name, as ``kubectl get pods`` shows them."""
        lines = self.kubectl("get", "pods", "--no-headers", "--ignore-not-found").splitlines()
        return {line.split()[0]: line.split()[2] for line in lines}

    def describe(self, pod: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "pod", pod, "-o", "json"))

    def events(self, home: str = "/tmp/legato") -> list[dict[str, Any]]:
        """Return the events of the job."""
        with contextlib.suppress(AssertionError):  # it does not run yet, or any more
            text = self.kubectl("exec", MASTER, "--", "cat", f"{home}/jobs/{JOB}/events.jsonl")
            return [json.loads(line) for line in text.splitlines()]
        return []

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}\n{self.pods()}\n{self.events()}"
            time.sleep(0.3)

    def wait_for_view(self, num_workers: int, after: int = 0) -> None:
        """Wait until so many workers train together, in a view after a number."""

        def trains() -> bool:
            joined = [event["view"] for event in self.events() if event["kind"] == "joined" and event["view"] > after]
            return any(joined.count(view) == num_workers for view in joined)

        self.wait_until(trains, f"{num_workers} workers train")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, str]]]:
    """Two hosts with kubelets, and the role of the tutorial."""
    folder = os.environ.get("LEGATO_TESTBED")
    if folder is None or "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("LEGATO_TESTBED and KUBEBUILDER_ASSETS do not name a test bed with Kubernetes")
    testbed = load(Path(folder) / "testbed.py")
    if reason := testbed.why_not("kubernetes"):
        pytest.skip(reason)
    file = tmp_path_factory.mktemp("image") / "mnist.tar"
    write_image(load(Path(folder) / "kubernetes/image.py"), file)
    with testbed.Bed(hosts=2) as bed:
        rights = ROOT / "deploy/kubernetes/elasticdl-rbac.yaml"
        options = ("--python", sys.executable, "--mount", ROOT, "--rbac", rights, "--account", "default/default")
        environment = bed.kubernetes(*map(str, options))
        bed.kubernetes_nodes()
        for host in (1, 2):
            bed.run(host, ["ctr", "-a", "/run/containerd.sock", "-n", "k8s.io", "images", "import", file], check=True)
        yield bed, environment


@pytest.fixture
def tutorial(cluster: tuple[Any, dict[str, str]], tmp_path: Path) -> Iterator[Tutorial]:
    made = Tutorial(*cluster, tmp_path)
    try:
        yield made
    finally:
        made.kubectl("delete", "pods", "--all", "--grace-period=1")


def test_the_tutorials_command_trains_in_pods_one_of_which_is_deleted(tutorial: Tutorial) -> None:
    done = tutorial.train()
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for line in ("Load the kube config file.", "Master launched.", f"The master pod is: {MASTER}."):
        assert line in done.stderr
    first, second, third = (f"{JOB}-edljob-worker-{number}" for number in range(3))
    running = {MASTER: "Running", first: "Running", second: "Running"}
    tutorial.wait_until(lambda: tutorial.pods() == running, "a master and two workers run")
    tutorial.wait_for_view(2)
    labels = {"app": "elasticdl", "elasticdl-job-name": JOB}
    master = tutorial.describe(MASTER)["metadata"]
    assert master["labels"].items() >= {**labels, "elasticdl-replica-type": "edl-master", "status": "Running"}.items()
    worker = tutorial.describe(second)["metadata"]
    assert worker["labels"] == {**labels, "elasticdl-replica-type": "worker", "elasticdl-replica-index": "1"}
    assert worker["ownerReferences"][0]["uid"] == master["uid"]

    tutorial.kubectl("delete", "pod", first)
    running = {MASTER: "Running", second: "Running", third: "Running"}
    tutorial.wait_until(lambda: tutorial.pods() == running, "another pod comes in its place")
    tutorial.wait_for_view(2, after=1)
    told = {event["reason"] for event in tutorial.events()}
    assert f"2 -> 1 workers: {first} cannot be used any more" in told
    # It leaves between two steps, and none is lost. Its process may end later than the other one joins.
    left = "worker 0 left: exit code 0"
    tutorial.wait_until(lambda: left in {event["reason"] for event in tutorial.events()}, "the first worker leaves")

    tutorial.set_pace(0.0)
    ended = dict.fromkeys(running, "Completed")
    tutorial.wait_until(lambda: tutorial.pods() == ended, "the job ends")
    assert tutorial.describe(MASTER)["metadata"]["labels"]["status"] == "Finished"
    assert tutorial.digests() == {tutorial.train_alone()}
    again = tutorial.train()
    assert again.returncode == 1
    assert f"pod {MASTER} exists already (Succeeded)" in again.stderr


def test_a_master_that_is_killed_goes_on_with_the_workers_that_train(tutorial: Tutorial) -> None:
    assert tutorial.train("--restart_policy=OnFailure", "--checkpoint_dir=/data/state").returncode == 0
    events = tutorial.data / f"state/jobs/{JOB}/events.jsonl"

    def list_events(kind: str) -> list[dict[str, Any]]:
        lines = events.read_text().splitlines() if events.exists() else []
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    tutorial.wait_until(lambda: len(list_events("joined")) == 2, "two workers train")
    before = tutorial.pods()
    pod = tutorial.describe(MASTER)
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    kill = ["ctr", "-a", "/run/containerd.sock", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container]
    tutorial.bed.run(tutorial.bed.names.index(pod["spec"]["nodeName"]) + 1, kill, check=True)
    tutorial.wait_until(lambda: list_events("adopted"), "the next container adopts the workers")
    assert tutorial.pods().keys() == before.keys()
    tutorial.set_pace(0.0)
    tutorial.wait_until(lambda: set(tutorial.pods().values()) == {"Completed"}, "the job ends")
    assert tutorial.pods().keys() == before.keys()
    assert tutorial.digests() == {tutorial.train_alone()}


def test_what_kubernetes_refuses_is_shown_and_tried_again(tutorial: Tutorial) -> None:
    tutorial.kubectl("create", "quota", "team-a", "--hard=pods=2")
    try:
        assert tutorial.train("--worker_pod_priority=no-such-class").returncode == 1
        assert tutorial.train(epochs=2).returncode == 0
        tutorial.wait_until(lambda: list(tutorial.pods().values()) == ["Running"] * 2, "one worker has room")
        tutorial.wait_for_view(1)
    finally:
        tutorial.kubectl("delete", "quota", "team-a")
    tutorial.wait_for_view(2)
    tutorial.set_pace(0.0)
    tutorial.wait_until(lambda: set(tutorial.pods().values()) == {"Completed"}, "the job ends")
    assert tutorial.digests() == {tutorial.train_alone(epochs=2)}
