"""`elasticdl train` with a cluster: which one is used, and the pod that it creates, over an API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kubernetes_asyncio")

from tests.kubernetes_server import KubernetesServer

from legato.compat.elasticdl import cluster_command, command
from legato.compat.elasticdl.arguments import read_arguments
from legato.compat.elasticdl.cluster_command import Cluster, find_cluster
from legato.core.errors import UsageError

TRAIN = (
    "train",
    "--job_name=mnist",
    "--job_command=python train.py",
    "--worker_image=i:1",
    "--distribution_strategy=AllreduceStrategy",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN", "LEGATO_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def account(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in a pod."""
    file = home / "token"
    file.touch()
    monkeypatch.setattr(cluster_command, "_ACCOUNT", file)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    return


def log_in(home: Path) -> None:
    file = home / "config/legato/servers.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"current": "prod", "servers": {"prod": {"url": "https://legato.example.org"}}}))


def put_default(home: Path) -> Path:
    file = home / ".kube/config"
    file.parent.mkdir()
    file.touch()
    return file


def test_without_a_cluster_a_server_of_legato_runs_the_job(home: Path) -> None:
    assert find_cluster(read_arguments(TRAIN)) is None


def test_the_first_of_several_ways_is_taken(home: Path, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, forced = read_arguments(TRAIN), read_arguments([*TRAIN, "--force_use_kube_config_file=true"])
    assert find_cluster(asked) == Cluster(None)
    with pytest.raises(UsageError, match="which --force_use_kube_config_file asks for"):
        find_cluster(forced)
    default = put_default(home)
    assert find_cluster(asked) == Cluster(default)
    log_in(home)
    assert find_cluster(asked) is None, "a user of a server of Legato may have a kubeconfig for other work"
    assert find_cluster(forced) == Cluster(default)
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert find_cluster(asked) == find_cluster(forced) == Cluster(Path("/a:/b"))
    monkeypatch.setenv("LEGATO_SERVER", "https://legato.example.org")
    assert find_cluster(asked) is None
    assert find_cluster(forced) == Cluster(Path("/a:/b"))


def submit(home: Path, monkeypatch: pytest.MonkeyPatch, server: KubernetesServer, *words: str) -> int:
    monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(home / "kubeconfig")))
    return command.main([*TRAIN, *words])


def test_the_pod_of_the_master_is_created(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with KubernetesServer() as server:
            words = ("--namespace=ml", "--master_pod_priority=high", "--log_level=INFO", "--minibatch_size=3")
            assert await asyncio.to_thread(submit, home, monkeypatch, server, *words) == 0
            (pod,) = server.objects["pods"].values()
            assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("elasticdl-mnist-master", "ml")
            assert pod["spec"]["priorityClassName"] == "high"
            assert "--job_command 'python train.py'" in pod["spec"]["containers"][0]["args"][1]
            found = capsys.readouterr()
            assert found.out == ""
            for line in (
                "Load the kube config file.",
                "Master launched.",
                "ElasticDL job mnist was successfully submitted. The master pod is: elasticdl-mnist-master.",
                "  kubectl logs --namespace ml -f elasticdl-mnist-master   what happens to the job",
            ):
                assert line in found.err.splitlines()
            assert "Without effect: --minibatch_size" in found.err
            assert f"The job runs on the cluster of {home}/kubeconfig. To use a server of Legato" in found.err
            assert "name it in LEGATO_SERVER" in found.err
            assert "--master_pod_priority" not in found.err
            assert await asyncio.to_thread(submit, home, monkeypatch, server, *words) == 1
            assert "pod elasticdl-mnist-master exists already (Pending)" in capsys.readouterr().err

    asyncio.run(main())


def test_what_the_cluster_says_is_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with KubernetesServer() as server:
            server.refusals["POST", "pods"] = (403, 'pods "x" is forbidden: no PriorityClass with name high was found')
            assert await asyncio.to_thread(submit, home, monkeypatch, server) == 1
            told = "Cannot submit job mnist to Kubernetes: no PriorityClass with name high was found."
            assert told in capsys.readouterr().err
            await server.set_away(True)
            assert await asyncio.to_thread(submit, home, monkeypatch, server) == 1
            assert "the API server cannot be reached" in capsys.readouterr().err

    asyncio.run(main())


def test_pods_of_a_cluster_are_listed_by_kubectl(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(put_default(home)))
    assert command.main(["pods"]) == 1
    assert "kubectl get pods --selector app=elasticdl" in capsys.readouterr().err
