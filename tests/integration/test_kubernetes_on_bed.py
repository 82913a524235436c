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
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from tests.integration.cluster_program import DIGEST, PROGRAM, train_alone
from tests.integration.two_users import EPOCHS, SharedCluster, share
from tests.ports import find_port

from legato.client.servers import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "deploy/kubernetes"
LIMIT_S: Final = 600.0


class Platform:
    """A server on the head of a bed, with the rights of the manifests' role, and an administrator with all rights.

    Args:
        bed: with Kubernetes on two hosts.
        environment: with the kubeconfig of the administrator, and the one of the server.
        folder: an empty one.
        gate: a file that programs in pods see; when it exists, they do not wait any more.
        fields: of the section ``[kubernetes]``.
    """

    namespace = "legato"

    def __init__(self, bed: Any, environment: dict[str, str], folder: Path, gate: Path, **fields: Any) -> None:
        self.gate = gate
        self.bed, self.environment, self.folder = bed, environment, folder
        (folder / "train.py").write_text(PROGRAM)
        self._port = find_port()
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
            "url": f"https://{bed.head}:{self._port}",
            "kubeconfig": environment["KUBECONFIG_RESTRICTED"],
            "pod_template": str(folder / "template.yaml"),
            **fields,
        }
        settings = {
            "host": "0.0.0.0",
            "port": self._port,
            "tls": "own",
            "allow_jobs_as_server": True,
            "allowed_hosts": ["localhost", "127.0.0.1", bed.head],
            "slots": 0,
            "stability_s": 0.5,
            "measured_speed_s": "none",
        }
        self._settings, self._section = settings, section
        self.change()
        self._variables = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._variables |= {"LEGATO_HOME": str(folder / "home"), "LEGATO_DEVICE": "cpu"}
        self._server: subprocess.Popen[bytes] | None = None

    def change(self, **fields: Any) -> None:
        """Write the settings, with these changes of the section, for the next start."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._settings.items()]
        section = {**self._section, **fields}
        lines += ["[kubernetes]", *(f"{name} = {json.dumps(value)}" for name, value in section.items())]
        (self.folder / "legato.toml").write_text("\n".join(lines))

    @property
    def home(self) -> Path:
        """The home of the server."""
        return self.folder / "home"

    def server(self) -> Server:
        """Return the address of the server, with the token of its administrator."""
        login = (self.home / "first-login.txt").read_text()
        token = next(line.strip() for line in login.splitlines() if "lgt_" in line)
        begin = "-----BEGIN CERTIFICATE-----"
        authority = begin + (self.home / "tls/authority.pem").read_text().partition(begin)[2]
        return Server(url=f"https://{self.bed.head}:{self._port}", token=token, ca=authority)

    def start(self) -> None:
        command = [sys.executable, "-m", "legato.cli", "server", "--config", str(self.folder / "legato.toml")]
        num_starts = self.log().count("answers at") + 1
        with (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(command, env=self._variables, stdout=log, stderr=log)
        self.wait_until(lambda: self.log().count("answers at") == num_starts or self._has_ended(), "the server answers")
        assert not self._has_ended(), self.log()[-3000:]

    def _has_ended(self) -> bool:
        return self._server is None or self._server.poll() is not None

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

    def legato(self, *arguments: str, may_fail: bool = False) -> str:
        command = [sys.executable, "-m", "legato.cli", *arguments]
        done = subprocess.run(
            command, env=self._variables, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert may_fail or done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}\n{self.log()[-3000:]}"
        return done.stdout

    def nodes(self) -> str:
        """Return what ``legato nodes`` says, in one line."""
        return " ".join(self.legato("nodes").split())

    def submit(self, num_epochs: int, pause_s: float) -> str:
        said = self.legato(
            "submit", "--detach", "--workers", "1..4", "train.py", str(pause_s), str(num_epochs), str(self.gate)
        )
        found = re.search(r"\bj-[a-z0-9]+", said)
        assert found is not None, said
        return found[0]

    def job(self, job: str) -> dict[str, Any]:
        return json.loads(self.legato("show", job, "-o", "json"))

    def kubectl(self, *arguments: str) -> str:
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def pods(self) -> dict[str, str]:
        """Return phase by name of the pods that have not ended."""
        found = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in found}
        return {name: phase for name, phase in phases.items() if phase in ("Pending", "Running")}

    def describe_pods(self) -> dict[str, Any]:
        """Return the pods of agents that run, by name."""
        found = json.loads(self.kubectl("get", "pods", "--selector=legato.cluster", "-o", "json"))["items"]
        running = [each for each in found if each["status"]["phase"] == "Running"]
        return {each["metadata"]["name"]: each for each in running if "deletionTimestamp" not in each["metadata"]}

    def phase_of(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}")

    def apply(self, objects: str) -> None:
        command = ["kubectl", "apply", "-f", "-"]
        subprocess.run(command, env=self.environment, check=True, input=objects, text=True, stdout=subprocess.DEVNULL)

    def all_pods(self) -> set[str]:
        return set(self.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split())

    def tokens(self) -> set[str]:
        """Return the names of Secrets with join tokens."""
        chosen = ("secrets", "--selector=legato.cluster", "-o", "jsonpath={.items[*].metadata.name}")
        return set(self.kubectl("get", *chosen).split())

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{self.describe()}\nnot within {LIMIT_S:g} s: {what}")
            time.sleep(0.3)

    def describe(self) -> str:
        """Return what is known of the pool when something does not happen, errors of commands included."""
        kubectl, legato = ["kubectl", "--namespace", self.namespace], [sys.executable, "-m", "legato.cli"]
        commands = [
            ([*kubectl, "get", "nodes"], self.environment),
            ([*kubectl, "get", "pods", "-o", "wide"], self.environment),
            ([*kubectl, "get", "events", "--sort-by=.lastTimestamp"], self.environment),
            *(([*kubectl, "logs", "--tail=20", name], self.environment) for name in self.pods()),
            ([*legato, "nodes"], self._variables),
            ([*legato, "ps", "--all"], self._variables),
            ([*legato, "moves"], self._variables),
        ]
        told = [self.log()[-5000:]]
        told += [file.read_text()[-3000:] for file in sorted(self.home.glob("jobs/*/events.jsonl"))]
        for command, variables in commands:
            done = subprocess.run(
                command, env=variables, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S
            )
            told.append(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        return "\n".join(told)

    def wait_for_step(self, job: str, step: int) -> None:
        self.wait_until(lambda: self.step_of(job) >= step, f"job {job} comes to step {step}")

    def step_of(self, job: str) -> int:
        return ((self.job(job)["progress"] or {}).get("step")) or 0

    def end_of(self, job: str) -> tuple[str, str]:
        """Wait for the end of a job, which does not wait in its steps any more; returns its stage and SHA-256."""
        self.gate.touch()
        self.wait_until(lambda: self.job(job)["stage"] in ("succeeded", "failed", "stopped"), f"job {job} ends")
        (digest,) = set(DIGEST.findall(self.legato("logs", job)))
        return self.job(job)["stage"], str(digest)


class Cluster(NamedTuple):
    """A bed with Kubernetes. ``gates``: a folder that all pods see; what is in it opens gates of programs."""

    bed: Any
    environment: dict[str, str]
    gates: Path

    def is_up(self, host: str) -> bool:
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        command = ["kubectl", "get", "node", host, "-o", ready]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout == "True"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
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
    for each in objects:  # as Kustomize does it
        for found in (each["metadata"], *each.get("subjects", ())):
            found.setdefault("namespace", "legato")
    rights.write_text(yaml.safe_dump_all(objects))
    with testbed.Bed(hosts=2) as bed, contextlib.ExitStack() as bed.stack:
        gates = tmp_path_factory.mktemp("gates")
        options = ("--python", sys.executable, "--mount", ROOT, "--mount", gates)
        options += ("--rbac", rights, "--account", "legato/legato")
        environment = bed.kubernetes(*map(str, options))
        bed.kubernetes_nodes()
        yield Cluster(bed, environment, gates)


@pytest.fixture
def platform(cluster: Cluster, tmp_path: Path) -> Iterator[Platform]:
    gate = cluster.gates / tmp_path.name
    made = Platform(cluster.bed, cluster.environment, tmp_path, gate)
    made.start()
    try:
        yield made
    finally:
        made.close()
        made.kubectl("delete", "pods", "--all", "--grace-period=1")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Return the SHA-256 of an undisturbed run of so many epochs on one worker."""
    return lambda num_epochs: train_alone(tmp_path_factory.mktemp("alone"), num_epochs)


def test_pods_come_with_demand_return_after_a_deletion_and_a_drain_and_go_when_idle(
    platform: Platform, alone: Callable[[int], str]
) -> None:
    assert platform.pods() == {}
    job = platform.submit(120, 0.2)
    platform.wait_until(lambda: list(platform.pods().values()) == ["Running"] * 2, "two pods run")
    platform.wait_for_step(job, 5)
    first, _ = before = sorted(platform.pods())
    platform.kubectl("delete", "pod", first)  # returns when the agent has left
    platform.wait_until(lambda: len(platform.pods()) == 2 and first not in platform.pods(), "another pod replaces it")
    assert before[1] in platform.pods()
    platform.wait_until(lambda: platform.job(job)["progress"]["num_workers"] == 4, "the job grows again")
    node = platform.describe_pods()[before[1]]["spec"]["nodeName"]
    platform.kubectl("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data")
    try:
        assert before[1] not in platform.pods()
        platform.wait_until(
            lambda: len(platform.describe_pods()) == 2, "pods on the other node replace those of the node"
        )
        platform.wait_until(lambda: platform.job(job)["progress"]["num_workers"] == 4, "the job grows onto them")
        assert node not in {pod["spec"]["nodeName"] for pod in platform.describe_pods().values()}
    finally:
        platform.kubectl("uncordon", node)
    assert platform.end_of(job) == ("succeeded", alone(120))
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


def write_overlay(folder: Path, **changes: Any) -> Path:
    """Copy the manifests, and return the folder of an overlay with these changes of its ``kustomization.yaml``."""
    shutil.copytree(MANIFESTS, folder, dirs_exist_ok=True)
    mine = folder / "overlays/mine"
    shutil.copytree(folder / "overlays/cpu", mine)
    made = yaml.safe_load((mine / "kustomization.yaml").read_text())
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(made | changes))
    return mine


def test_the_api_server_accepts_every_object_of_the_manifests(cluster: Cluster, tmp_path: Path) -> None:
    mine = write_overlay(tmp_path, components=["../../components/postgres", "../../components/isolated"])
    for folder in (MANIFESTS / "base", mine):
        command = ["kubectl", "apply", "--dry-run=server", "-k", str(folder)]
        done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "statefulset.apps/legato created (server dry run)" in done.stdout
    assert "networkpolicy.networking.k8s.io/legato-agent-egress created (server dry run)" in done.stdout


class Inside(Platform):
    """A server that runs as the pod of the manifests, in a namespace of its own, as docs/kubernetes.md says it.

    Its overlay differs from one that an administrator writes where the bed differs from a cluster. The bed has no names
    of services, so the server's pod has the address of its node. Its image runs as root. An administrator makes the
    volume that a storage class would make.
    """

    namespace = "team-a"

    def __init__(self, bed: Any, environment: dict[str, str], folder: Path, gate: Path) -> None:
        super().__init__(bed, environment, folder, gate)
        self._variables["XDG_CONFIG_HOME"] = str(folder / "config")
        root = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}
        server = {"name": "server", "imagePullPolicy": "Never", "resources": {"requests": {"cpu": "100m"}}}
        spec = {"hostNetwork": True, "nodeName": bed.names[0], "securityContext": root, "containers": [server]}
        pod = {"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "legato"}}
        mine = write_overlay(folder / "kubernetes")
        made = yaml.safe_load((mine / "kustomization.yaml").read_text())
        made["namespace"] = self.namespace
        made["images"][0] |= {"newName": "docker.io/local/python", "newTag": "1"}
        made["configMapGenerator"][0]["files"] += ["pod-template.yaml"]
        made["patches"] += [{"patch": yaml.safe_dump({**pod, "spec": {"template": {"spec": spec}}})}]
        (mine / "kustomization.yaml").write_text(yaml.safe_dump(made))
        settings = (mine / "legato.toml").read_text()
        for before, after in (
            ("registry.example.org/legato:0.1.0", "docker.io/local/python:1"),
            ('namespace = "legato"', f'namespace = "{self.namespace}"'),
            ("legato-server.legato.svc", bed.address(1)),
            ('cpu = "2"', 'cpu = "100m"'),
            ('memory = "4Gi"', 'memory = "1Gi"'),
        ):
            assert before in settings
            settings = settings.replace(before, after)
        (mine / "legato.toml").write_text(settings)
        shutil.copy(folder / "template.yaml", mine / "pod-template.yaml")
        claim = {"namespace": self.namespace, "name": "legato-home"}
        disk = {"path": str(folder / "disk"), "type": "DirectoryOrCreate"}
        self._volume: dict[str, Any] = {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "home"}}
        self._volume["spec"] = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"]}
        self._volume["spec"] |= {"hostPath": disk, "claimRef": claim}
        self._overlay = mine
        self._forwarding: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Apply the manifests, and log in through a forwarded port."""
        self.apply(yaml.safe_dump(self._volume))
        subprocess.run(["kubectl", "apply", "-k", str(self._overlay)], env=self.environment, check=True)
        self.await_server()
        token = self.kubectl("exec", "legato-0", "--", "sh", "-c", "cat $LEGATO_HOME/first-login.txt")
        (authority,) = set(re.findall(r"--ca ([0-9a-f]{64})", self.kubectl("logs", "legato-0")))
        self.forward()
        command = [sys.executable, "-m", "legato.cli", "login", f"https://localhost:{self._port}"]
        command += ["--token-stdin", "--ca", authority]
        token = re.findall("lgt_[0-9a-f]+", token)[0]
        subprocess.run(command, env=self._variables, check=True, input=token, text=True, timeout=LIMIT_S)

    def await_server(self) -> None:
        self.kubectl("rollout", "status", "statefulset/legato", f"--timeout={LIMIT_S:g}s")

    def forward(self) -> None:
        """Forward a port to the server's pod; ends when the pod does."""
        self.end_forwarding()
        command = ["kubectl", "--namespace", self.namespace, "port-forward", "service/legato", f"{self._port}:8765"]
        self._forwarding = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE)
        assert self._forwarding.stdout is not None
        assert b"Forwarding from" in self._forwarding.stdout.readline()

    def end_forwarding(self) -> None:
        if self._forwarding is not None:
            self._forwarding.kill()
            self._forwarding.communicate()

    def log(self) -> str:
        command = ["kubectl", "--namespace", self.namespace, "logs", "legato-0"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout

    def close(self) -> None:
        self.end_forwarding()
        self.kubectl("delete", "pods", "--selector=legato.cluster", "--grace-period=1")
        subprocess.run(["kubectl", "delete", "-k", str(self._overlay)], env=self.environment, check=True)
        subprocess.run(["kubectl", "delete", "pv", "home"], env=self.environment, check=True)


def test_the_manifests_run_a_server_whose_pod_may_be_deleted_while_a_job_trains(
    cluster: Cluster, tmp_path: Path, alone: Callable[[int], str]
) -> None:
    gate = cluster.gates / tmp_path.name
    inside = Inside(cluster.bed, cluster.environment, tmp_path, gate)
    try:
        inside.start()
        assert inside.kubectl("get", "pvc", "legato-home", "-o", "jsonpath={.status.phase}") == "Bound"
        assert run_test(inside)["state"] == "passed"
        job = inside.submit(60, 0.2)
        inside.wait_for_step(job, 5)
        inside.wait_until(lambda: inside.job(job)["progress"]["num_workers"] == 4, "the job has two pods")
        agents = set(inside.describe_pods())
        inside.kubectl("delete", "pod", "legato-0")
        inside.await_server()
        inside.forward()
        inside.wait_for_step(job, inside.step_of(job) + 5)
        assert set(inside.describe_pods()) == agents
        assert inside.end_of(job) == ("succeeded", alone(60))
    finally:
        inside.close()


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


class Shared(SharedCluster):
    """The platform, for two users."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.home, self.gate = platform.home, platform.gate

    def server(self) -> Server:
        return self._platform.server()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        self._platform.wait_until(condition, what)

    def kill(self, node: str, pid: int) -> None:
        self._platform.kubectl("exec", self._pod_of(node), "--", "python", "-c", f"import os; os.kill({pid}, 9)")

    def preempt(self) -> None:
        about = self._platform.describe_pods()
        place = next(iter(about.values()))["spec"]["nodeName"]
        lost = {name for name, pod in about.items() if pod["spec"]["nodeName"] == place}
        self._platform.apply(HIGH.format(host=place))
        self.wait(lambda: self._platform.phase_of("high") == "Running", "the pod of more priority runs")
        assert not lost & self._platform.pods().keys()
        self._platform.kubectl("delete", "pod", "high", "--grace-period=1")

    def crash(self, node: str) -> None:
        place = self._platform.describe_pods()[self._pod_of(node)]["spec"]["nodeName"]
        self._platform.bed.crash(self._platform.bed.names.index(place) + 1)

    def _pod_of(self, node: str) -> str:
        found = self._platform.describe_pods()
        return next(name for name, pod in found.items() if pod["metadata"]["annotations"]["legato/node"] == node)


# It takes all GPUs of a host.
HIGH: Final = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: high}}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {{name: high, namespace: legato}}
spec:
  restartPolicy: Never
  priorityClassName: high
  nodeSelector: {{kubernetes.io/hostname: {host}}}
  containers:
  - name: high
    image: docker.io/local/python:1
    imagePullPolicy: Never
    command: [python, -c, "import time; time.sleep(600)"]
    resources: {{limits: {{nvidia.com/gpu: 4}}}}
"""


@pytest.mark.every_share
def test_two_users_share_four_slots_and_lose_no_step_whatever_happens_to_machines(
    platform: Platform, cluster: Cluster, alone: Callable[[int], str]
) -> None:
    try:
        share(Shared(platform), alone(EPOCHS))
    finally:
        for host, name in enumerate(platform.bed.names, 1):
            if not cluster.is_up(name):
                platform.bed.boot(host)
                platform.bed.kubernetes_node(host)


def test_a_test_of_the_cluster_trains_on_one_pod_and_says_what_is_wrong(platform: Platform, tmp_path: Path) -> None:
    found = run_test(platform)
    assert (found["state"], found["is_clean"]) == ("passed", True), found["told"]
    assert "and 2 workers trained 10 steps there." in found["told"]
    platform.wait_until(lambda: platform.pods() == {}, "the pod is gone")
    platform.kubectl("create", "quota", "none", "--hard=pods=0")
    try:
        told = run_test(platform)["told"]
    finally:
        platform.kubectl("delete", "quota", "none")
    assert "exceeded quota: none" in told
    assert told.endswith("raise the quota of the namespace, or lower cpu, memory and gpus.")
    # Idle pods of the pool are all that uses the quota: one makes room.
    platform.close()
    platform.change(min_agents=2, max_agents=4)
    platform.start()
    platform.wait_until(lambda: platform.nodes().count(" ready ") == 2, "two idle pods have joined")
    platform.kubectl("create", "quota", "two", "--hard=pods=2")
    try:
        found = run_test(platform)
    finally:
        platform.kubectl("delete", "quota", "two")
    assert (found["state"], found["is_clean"]) == ("passed", True), found["told"]
    platform.close()
    platform.change()
    platform.start()
    platform.wait_until(lambda: platform.pods() == {}, "the idle pods are gone")
    for changes, words in (
        ({"image": "docker.io/local/none:1"}, "correct image, or give the pods imagePullSecrets by pod_template."),
        ({"url": "https://127.0.0.1:9"}, "let the machines reach the server's port and driver_ports"),
    ):
        platform.close()
        platform.change(**changes)
        platform.start()
        found = run_test(platform)
        assert found["state"] == "failed"
        assert words in found["told"], found["told"]
        platform.wait_until(lambda: platform.pods() == {}, "the pod is gone")


def run_test(platform: Platform) -> Any:
    platform.wait_until(lambda: "kubernetes" in platform.legato("clusters", "-o", "json"), "the cluster is seen")
    return json.loads(platform.legato("clusters", "test", "-o", "json", may_fail=True))
