"""The master's pod from its start to its end: over an API server in memory, with processes in place of pods."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_asyncio")

from tests.kubernetes_server import KubernetesServer

from legato.clusters.kubernetes_api import KubernetesApi
from legato.compat.elasticdl import master_pod, worker_pods
from legato.compat.elasticdl.arguments import read_arguments
from legato.compat.elasticdl.manifests import PodShape, PodsJob
from legato.compat.elasticdl.master_pod import MasterPod, find_directory, populate
from legato.compat.elasticdl.worker_pods import WorkerPods
from legato.core.errors import UsageError
from legato.driver.journal import Outcome

PROGRAM = """
import os
from elasticai_api.common.data_shard_service import build_data_shard_service

service = build_data_shard_service(batch_size=4, num_epochs=1, dataset_size=16, dataset_name="records")
while (shard := service.fetch_shard()) is not None:
    with open(f"trained-{shard.start}", "x") as file:
        file.write(" ".join(os.environ[name] for name in ("MASTER_ADDR", "MY_POD_IP", "WORKER_NUM", "SAID")))
    service.report_batch_done(shard.end - shard.start)
"""
IN_POD = """
import pathlib, sys
from legato.compat.elasticdl import worker_pod
worker_pod._PLACE = pathlib.Path(sys.argv[1])
sys.exit(worker_pod.main(sys.argv[2:]))
"""
JOB = PodsJob(name="mnist", num_workers=2, master=PodShape(), worker=PodShape(), variables={"A": "1"})


def ask(*words: str, name: str = "mnist") -> Any:
    command = "--job_command=SAID=hello python train.py"
    strategy = "--distribution_strategy=AllreduceStrategy"
    return read_arguments(["train", f"--job_name={name}", command, strategy, "--worker_image=i", *words])


class Kubelet:
    """Runs the pods of workers as processes of this machine, each with a folder of its own."""

    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        server.run = self.execute

    def environment(self, pod: str) -> dict[str, str]:
        place = self.folder / pod
        place.mkdir(exist_ok=True)
        return {**os.environ, "LEGATO_DEVICE": "cpu", "MY_POD_IP": "127.0.0.1"}

    async def start(self, command: tuple[str, ...], pod: str, **how: Any) -> asyncio.subprocess.Process:
        assert command[:3] == worker_pods.TAKE_ORDER[:3]
        arguments = (sys.executable, "-c", IN_POD, str(self.folder / pod), *command[3:])
        return await asyncio.create_subprocess_exec(
            *arguments, env=self.environment(pod), cwd=self.folder / "work", start_new_session=True, **how
        )

    async def execute(self, pod: str, command: list[str], line: bytes) -> tuple[bytes, bool]:
        process = await self.start(tuple(command), pod, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        _, told = await process.communicate(line)
        return told, process.returncode == 0

    async def run_forever(self) -> None:
        while True:
            for name, pod in list(self.server.objects["pods"].items()):
                if pod["metadata"]["labels"].get("elasticdl-replica-type") != "worker":
                    continue
                if name not in self.processes:
                    self.processes[name] = await self.start((*worker_pods.TAKE_ORDER[:3], "--pod", name), name)
                    await self.show(name, "Running", {"running": {}})
                elif self.processes[name].returncode is not None and pod["status"]["phase"] == "Running":
                    code = self.processes[name].returncode
                    ended = {"terminated": {"exitCode": code, "containerID": name}}
                    await self.show(name, "Failed" if code else "Succeeded", ended)
            await asyncio.sleep(0.02)

    async def show(self, name: str, phase: str, state: dict[str, Any]) -> None:
        container = {"name": name, "containerID": name, "state": state}
        status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [container]}
        await self.server.put("pods", {**self.server.objects["pods"][name], "status": status})

    async def close(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


def test_a_job_runs_in_pods_and_shows_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(worker_pods, "_LOOK_EVERY_S", 0.05)
    labels: list[str] = []

    async def main() -> int:
        async with KubernetesServer() as server:
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
            monkeypatch.setattr(master_pod, "KubernetesApi", lambda name: KubernetesApi(name, kubeconfig=kubeconfig))
            own = {"name": "elasticdl-mnist-master", "labels": {"app": "elasticdl"}}
            await server.put("pods", {"metadata": own, "spec": {}})
            kubelet = Kubelet(server, tmp_path)
            running = asyncio.create_task(kubelet.run_forever())
            asked = ask(f"--checkpoint_dir={tmp_path}/state", "--num_minibatches_per_task=1")
            try:
                code = await MasterPod(asked, {"MY_POD_IP": "127.0.0.1"}).run()
            finally:
                running.cancel()
                await kubelet.close()
            labels.extend(body["metadata"]["labels"]["status"] for how, _, body in server.bodies if how == "PATCH")
            assert server.objects["pods"]["elasticdl-mnist-master"]["metadata"]["labels"]["app"] == "elasticdl"
            assert len(server.objects["pods"]) == 3
            return code

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 0
    assert labels == ["Pending", "Running", "Finished"]
    trained = {file.name: file.read_text().split() for file in folder.glob("trained-*")}
    assert sorted(trained) == ["trained-0", "trained-12", "trained-4", "trained-8"], "each task once"
    address, *others = trained["trained-0"]
    assert address.startswith("127.0.0.1:")
    assert others == ["127.0.0.1", "2", "hello"]
    assert (tmp_path / "state/jobs/mnist/journal.json").is_file()


@pytest.mark.parametrize(
    ("policy", "outcome", "reason", "code"),
    [
        ("OnFailure", "stopped", "asked by legato stop", 0),
        ("OnFailure", "stopped", "stopped: Kubernetes ends the pod of the master", 1),
        ("OnFailure", "failed", "its program failed", 3),
        ("Never", "stopped", "asked by legato stop", 1),
    ],
)
def test_kubernetes_does_not_start_a_job_again_that_a_user_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, outcome: str, reason: str, code: int
) -> None:
    """It starts a container with the policy OnFailure again if its exit code is not 0."""

    async def drive(*_: Any) -> Outcome:
        return Outcome(outcome, 3 if outcome == "failed" else 0, reason)

    async def main() -> int:
        async with KubernetesServer() as server:
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
            monkeypatch.setattr(master_pod, "KubernetesApi", lambda name: KubernetesApi(name, kubeconfig=kubeconfig))
            monkeypatch.setattr(MasterPod, "_drive", drive)
            own = {"name": "elasticdl-mnist-master", "labels": {"app": "elasticdl"}, "uid": "u-1"}
            await server.put("pods", {"metadata": own, "spec": {}})
            asked = ask(f"--checkpoint_dir={tmp_path}/state", f"--restart_policy={policy}")
            return await MasterPod(asked, {"MY_POD_IP": "127.0.0.1"}).run()

    assert asyncio.run(asyncio.wait_for(main(), 30)) == code


def test_an_unexpected_error_leaves_no_pods_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise ValueError("an error of Legato")

    async def main() -> list[str]:
        async with KubernetesServer() as server:
            kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
            monkeypatch.setattr(master_pod, "KubernetesApi", lambda name: KubernetesApi(name, kubeconfig=kubeconfig))
            monkeypatch.setattr(MasterPod, "_drive", fail)
            own = {"name": "elasticdl-mnist-master", "labels": {"app": "elasticdl"}, "uid": "u-1"}
            await server.put("pods", {"metadata": own, "spec": {}})
            master = MasterPod(ask(f"--checkpoint_dir={tmp_path}/state"), {"MY_POD_IP": "127.0.0.1"})
            finished: list[str] = []

            async def finish(_: WorkerPods) -> None:
                finished.append("finished")

            monkeypatch.setattr(WorkerPods, "finish", finish)
            with pytest.raises(ValueError, match="an error of Legato"):
                await master.run()
            return finished

    assert asyncio.run(asyncio.wait_for(main(), 30)) == ["finished"]


def test_variables_of_the_master_reach_workers() -> None:
    environment = {"AWS_REGION": "x", "A": "2", "AB": "3"}
    assert populate(JOB, "A.*", environment).populated == {"AB": "3", "AWS_REGION": "x"}
    assert populate(JOB, "", environment).populated == {}
    with pytest.raises(UsageError, match="Give a regular expression"):
        populate(JOB, "(", environment)


def test_a_master_starts_in_its_pod_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_POD_IP", raising=False)
    words = ["--job_name=mnist", "--job_command=python a.py", "--worker_image=i", "--restart_policy=Never"]
    assert master_pod.main(words) == 1
    assert "MY_POD_IP is not set" in capsys.readouterr().out
    assert master_pod.main([*words, "--num_workers=0"]) == 1
    assert "give at least 1" in capsys.readouterr().out


def test_a_job_keeps_its_files_where_the_user_says() -> None:
    assert find_directory(ask("--checkpoint_dir=/data/state")).path == Path("/data/state/jobs/mnist")
    assert find_directory(ask()).path.parts[-3:] == ("legato", "jobs", "mnist")
