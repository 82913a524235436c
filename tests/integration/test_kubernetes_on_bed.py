"""Agents as pods of a real Kubernetes: demand, a deleted pod, an API server that is away, and equal weights.

It needs ``LEGATO_TESTBED``, the folder of a test bed that can start Kubernetes (``testbed.py``, `Bed.kubernetes`), and
``KUBEBUILDER_ASSETS``, the folder of its programs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.integration.cluster_program import DIGEST, PROGRAM

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "deploy/kubernetes"
LIMIT_S: Final = 600.0
PORT: Final = 18_765


class Platform:
    """A server on the head of a bed, with the rights of the manifests' role, and an administrator with all rights.

    Args:
        bed: with Kubernetes on two hosts.
        environment: with the kubeconfig of the administrator, and the one of the server.
        folder: an empty one.
        fields: of the section ``[kubernetes]``.
    """

    def __init__(self, bed: Any, environment: dict[str, str], folder: Path, **fields: Any) -> None:
        self.bed, self.environment, self.folder = bed, environment, folder
        (folder / "train.py").write_text(PROGRAM)
        env = [{"name": "LEGATO_DEVICE", "value": "cpu"}]
        # The image of the bed runs the environment of this machine, which only root can read.
        root = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}
        container = {"name": "agent", "imagePullPolicy": "Never", "env": env}
        template = {"spec": {"securityContext": root, "containers": [container]}}
        (folder / "template.yaml").write_text(yaml.safe_dump(template))
        section = {
            "namespace": "legato",
            "image": "docker.io/local/python:1",
            "gpus": 2,
            "cpu": "100m",
            "memory": "1Gi",
            "max_agents": 2,
            "idle_s": 10,
            "url": f"https://{bed.head}:{PORT}",
            "kubeconfig": environment["KUBECONFIG_RESTRICTED"],
            "pod_template": str(folder / "template.yaml"),
            **fields,
        }
        settings = {
            "host": "0.0.0.0",
            "port": PORT,
            "tls": "own",
            "allow_jobs_as_server": True,
            "allowed_hosts": ["localhost", "127.0.0.1", bed.head],
            "slots": 0,
            "stability_s": 0.5,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += ["[kubernetes]", *(f"{name} = {json.dumps(value)}" for name, value in section.items())]
        (folder / "legato.toml").write_text("\n".join(lines))
        self._variables = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._variables |= {"LEGATO_HOME": str(folder / "home"), "LEGATO_DEVICE": "cpu"}
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "legato.cli", "server", "--config", str(self.folder / "legato.toml")]
        num_starts = self.log().count("answers at") + 1
        with (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(command, env=self._variables, stdout=log, stderr=log)
        self.wait_until(lambda: self.log().count("answers at") == num_starts, "the server answers")

    def kill_server(self) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def close(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def log(self) -> str:
        file = self.folder / "server.log"
        return file.read_text() if file.exists() else ""

    def legato(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "legato.cli", *arguments]
        done = subprocess.run(
            command, env=self._variables, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}\n{self.log()[-3000:]}"
        return done.stdout

    def nodes(self) -> str:
        """Return what ``legato nodes`` says, in one line."""
        return " ".join(self.legato("nodes").split())

    def submit(self, num_epochs: int, pause_s: float) -> str:
        said = self.legato("submit", "--detach", "--workers", "1..4", "train.py", str(pause_s), str(num_epochs))
        found = re.search(r"\bj-[a-z0-9]+", said)
        assert found is not None, said
        return found[0]

    def job(self, job: str) -> dict[str, Any]:
        return json.loads(self.legato("show", job, "-o", "json"))

    def kubectl(self, *arguments: str) -> str:
        command = ["kubectl", "--namespace", "legato", *arguments]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def pods(self) -> dict[str, str]:
        """Return phase by name of the pods that have not ended."""
        found = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in found}
        return {name: phase for name, phase in phases.items() if phase in ("Pending", "Running")}

    def all_pods(self) -> set[str]:
        return set(self.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split())

    def tokens(self) -> set[str]:
        """Return the names of Secrets with join tokens."""
        chosen = ("secrets", "--selector=legato.cluster", "-o", "jsonpath={.items[*].metadata.name}")
        return set(self.kubectl("get", *chosen).split())

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}\n{self.log()[-5000:]}"
            time.sleep(0.3)

    def wait_for_step(self, job: str, step: int) -> None:
        self.wait_until(lambda: self.step_of(job) >= step, f"job {job} comes to step {step}")

    def step_of(self, job: str) -> int:
        return ((self.job(job)["progress"] or {}).get("step")) or 0

    def end_of(self, job: str) -> tuple[str, str]:
        """Wait for the end of a job; returns its stage and the SHA-256 of its weights."""
        self.wait_until(lambda: self.job(job)["stage"] in ("succeeded", "failed", "stopped"), f"job {job} ends")
        (digest,) = set(DIGEST.findall(self.legato("logs", job)))
        return self.job(job)["stage"], str(digest)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, str]]]:
    """Two hosts with kubelets, and the role of the manifests."""
    folder = os.environ.get("LEGATO_TESTBED")
    if folder is None or "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("LEGATO_TESTBED and KUBEBUILDER_ASSETS do not name a test bed with Kubernetes")
    spec = importlib.util.spec_from_file_location("testbed", Path(folder) / "testbed.py")
    assert spec is not None
    assert spec.loader is not None
    testbed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(testbed)
    if reason := testbed.why_not("kubernetes"):
        pytest.skip(reason)
    rights = tmp_path_factory.mktemp("rights") / "rights.yaml"
    names = ("namespace", "service-account", "role", "role-binding")
    objects = [yaml.safe_load((MANIFESTS / f"base/{name}.yaml").read_text()) for name in names]
    for each in objects:
        each["metadata"].setdefault("namespace", "legato")
    rights.write_text(yaml.safe_dump_all(objects))
    with testbed.Bed(hosts=2) as bed, contextlib.ExitStack() as bed.stack:
        options = ("--python", sys.executable, "--mount", str(ROOT), "--rbac", rights, "--account", "legato/legato")
        environment = bed.kubernetes(*map(str, options))
        bed.kubernetes_nodes()
        yield bed, environment


@pytest.fixture
def platform(cluster: tuple[Any, dict[str, str]], tmp_path: Path) -> Iterator[Platform]:
    made = Platform(*cluster, tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.close()
        made.kubectl("delete", "pods", "--all", "--grace-period=1")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Return the SHA-256 of an undisturbed run on one worker."""

    def run(num_epochs: int) -> str:
        folder = tmp_path_factory.mktemp("alone")
        (folder / "train.py").write_text(PROGRAM)
        environment = {**os.environ, "LEGATO_HOME": str(folder), "LEGATO_DEVICE": "cpu"}
        command = [sys.executable, "-m", "legato.cli", "run", str(folder / "train.py"), "0", str(num_epochs)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        (digest,) = set(DIGEST.findall(done.stdout))
        return str(digest)

    return run


def test_pods_come_with_demand_return_after_a_deletion_and_go_when_idle(
    platform: Platform, alone: Callable[[int], str]
) -> None:
    assert platform.pods() == {}
    job = platform.submit(60, 0.2)
    platform.wait_until(lambda: list(platform.pods().values()) == ["Running"] * 2, "two pods run")
    platform.wait_for_step(job, 5)
    first, _ = before = sorted(platform.pods())
    platform.kubectl("delete", "pod", first)  # returns when the agent has left
    platform.wait_until(lambda: len(platform.pods()) == 2 and first not in platform.pods(), "another pod replaces it")
    assert before[1] in platform.pods()
    platform.wait_until(lambda: platform.job(job)["progress"]["num_workers"] == 4, "the job grows again")
    assert platform.end_of(job) == ("succeeded", alone(60))
    platform.wait_until(lambda: platform.pods() == {}, "idle pods go")
    platform.wait_until(lambda: platform.tokens() <= platform.all_pods(), "the Secrets go with their pods")


def test_an_api_server_and_a_server_that_are_killed_disturb_no_job(
    platform: Platform, alone: Callable[[int], str]
) -> None:
    job = platform.submit(60, 0.2)
    platform.wait_until(lambda: list(platform.pods().values()) == ["Running"] * 2, "two pods run")
    platform.wait_for_step(job, 5)
    before = platform.pods()
    with api_server_killed(platform):
        platform.wait_until(lambda: "gives no news" in platform.log(), "the server sees that it is away")
        platform.wait_for_step(job, platform.step_of(job) + 10)
    platform.kill_server()
    platform.start()
    assert platform.pods() == before
    platform.wait_for_step(job, platform.step_of(job) + 5)
    assert platform.end_of(job) == ("succeeded", alone(60))
    assert set(platform.pods()) <= set(before)


@contextlib.contextmanager
def api_server_killed(platform: Platform) -> Iterator[None]:
    """Kill the API server, and start it again with the same arguments and data at the end."""
    pid_file = platform.bed.directory / "pids/kube-apiserver"
    pid = int(pid_file.read_text().split()[0])
    command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    folder = Path(f"/proc/{pid}/cwd").readlink()
    os.kill(pid, signal.SIGKILL)
    try:
        yield
    finally:
        started = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        platform.bed.stack.callback(started.wait)
        platform.bed.stack.callback(started.kill)
        started_at = Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()[19]
        pid_file.write_text(f"{started.pid} {started_at}\n")
        platform.wait_until(lambda: is_ready(platform), "the API server is back")


def is_ready(platform: Platform) -> bool:
    with contextlib.suppress(subprocess.CalledProcessError):
        return platform.kubectl("get", "--raw", "/readyz") == "ok"
    return False


@pytest.mark.parametrize("folder", ["base", "overlays/cpu", "overlays/isolated", "overlays/postgres"])
def test_the_api_server_accepts_every_object_of_the_manifests(cluster: tuple[Any, dict[str, str]], folder: str) -> None:
    _, environment = cluster
    command = ["kubectl", "apply", "--dry-run=server", "-k", str(MANIFESTS / folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "statefulset.apps/legato created (server dry run)" in done.stdout


def test_what_kubernetes_refuses_and_why_pods_wait_is_shown(platform: Platform) -> None:
    platform.kubectl("cordon", *platform.bed.names)
    platform.kubectl("create", "quota", "team-a", "--hard=pods=1")
    try:
        platform.submit(1, 0.0)
        platform.wait_until(lambda: "exceeded quota: team-a" in platform.nodes(), "the quota is shown")
        shown = "Unschedulable: 0/2 nodes are available: 2"
        platform.wait_until(lambda: shown in platform.nodes(), "the scheduler's reason is shown")
    finally:
        platform.kubectl("uncordon", *platform.bed.names)
        platform.kubectl("delete", "quota", "team-a")
    platform.wait_until(lambda: platform.pods() and "Running" in platform.pods().values(), "the pod runs")


def test_a_lost_node_costs_no_step_and_its_pod_is_replaced(platform: Platform, alone: Callable[[int], str]) -> None:
    job = platform.submit(40, 0.2)
    platform.wait_until(lambda: list(platform.pods().values()) == ["Running"] * 2, "two pods run")
    platform.wait_for_step(job, 5)
    nodes = platform.kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert len(set(nodes)) == 2
    lost = set(platform.all_pods())
    platform.bed.crash(2)
    try:
        platform.wait_until(lambda: len(set(platform.pods()) - lost) == 1, "another pod replaces the lost one")
        assert platform.end_of(job) == ("succeeded", alone(40))
    finally:
        platform.bed.boot(2)
        platform.bed.kubernetes_node(2)
