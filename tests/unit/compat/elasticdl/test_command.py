"""The `elasticdl` command: its requests, its messages and where it writes them, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from tests.unit.client.platform import NOW, TOKEN, Platform

from legato.client.servers import Server
from legato.compat.elasticdl import command

TRAIN = ("train", "--job_name=mnist", "--job_command=python train.py --x /data/y", "--num_workers=3")
ALLREDUCE = "--distribution_strategy=AllreduceStrategy"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "here"
    (folder / "data").mkdir(parents=True)
    (folder / "data/y").touch()
    (folder / "train.py").write_text("print()\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform on this machine, with a clock that does not run."""
    platform = Platform()
    server = Server(url="http://localhost:8765", token=TOKEN)
    monkeypatch.setattr(command, "_open_client", lambda: platform.client(server=server))
    monkeypatch.setattr(time, "time", lambda: NOW)
    return platform


def test_a_job_is_submitted(here: Path, platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*TRAIN, ALLREDUCE, f"--volume=host_path={here}/data,mount_path=/data", "--envs=A=b=c", "--use_go_ps=no")
    assert command.main([*words, "--worker_pod_priority=high"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert lines[0] == "elasticdl: notice: --use_go_ps is a flag of an early release of ElasticDL and is ignored."
    assert "Master launched." in lines
    assert "ElasticDL job mnist was successfully submitted. The master pod is: elasticdl-mnist-master." in lines, (
        "scripts look for it"
    )
    (sent,) = (request for request in platform.requests if request.method == "POST")
    body = json.loads(sent.content)
    (code,) = platform.code.values()
    assert body == {
        "name": "mnist",
        "program": ["train.py", "--x", f"{here}/data/y"],
        "framework": "elasticdl",
        "code": next(iter(platform.code)),
        "max_workers": 3,
        "min_workers": 1,
        "is_elastic": True,
        "priority": 7500,
        "environment": {"A": "b=c"},
        "labels": {"app": "elasticdl", "elasticdl-job-name": "mnist"},
    }
    with tarfile.open(fileobj=BytesIO(code)) as packed:
        assert packed.getnames() == ["train.py"], "data are no code"


def test_a_name_that_is_in_use_is_refused(here: Path, platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    platform.add_job(1, name="mnist", owner="anna", stage="queued")
    assert command.main([*TRAIN, ALLREDUCE]) == 1
    assert "A job mnist exists already (j-0000000001, queued)" in capsys.readouterr().err
    platform.jobs["j-0000000001"] |= {"stage": "failed"}
    platform.add_job(2, name="mnist-2", owner="anna")
    assert command.main([*TRAIN, ALLREDUCE]) == 0


def test_a_folder_that_is_not_there_is_refused(
    here: Path, platform: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*TRAIN, ALLREDUCE, "--volume=host_path=/no/such,mount_path=/data"]) == 1
    assert "There is no folder /no/such on this machine" in capsys.readouterr().err
    assert platform.requests == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--job_name=Bad_Name", "Try 'bad-name'"),
        ("--job_name=" + "a" * 46, "1 to 45"),
        ("--num_workers=-2", "--num_workers=-2: it is below 0"),
        ("--num_workers=0", "give at least 1"),
        ("--num_minibatches_per_task=-1", "--num_minibatches_per_task=-1: it is below 0"),
        ("--num_epochs=-1", "--num_epochs=-1: it is below 0"),
        ("--job_command=python nowhere.py", "nowhere.py"),
        ("--aux_params=min_workers=4", "from 1 to --num_workers=3"),
    ],
    ids=["sign", "length", "workers", "none", "mini-batches", "epochs", "program", "minimum"],
)
def test_invalid_words_are_refused_without_a_request(
    here: Path, platform: Platform, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    assert command.main([*TRAIN, ALLREDUCE, words]) == 1
    assert told in capsys.readouterr().err
    assert platform.requests == []


def test_folders_of_other_machines_are_reported(
    here: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_open_client", platform.client)
    assert command.main([*TRAIN, ALLREDUCE, "--volume=host_path=/no/such,mount_path=/data"]) == 0
    assert "/no/such must exist on the nodes of http://platform.test" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 1, "usage: elasticdl"),
        (("train",), 2, "--job_name"),
        ((*TRAIN, "--image=x"), 2, "ambiguous option"),
        ((*TRAIN, ALLREDUCE, "--num_workers=-1"), 1, "it is below 0"),
        ((*TRAIN, ALLREDUCE), 1, "'legato up'"),
        (("pods",), 1, "'legato up'"),
        (("evaluate", "--job_name=a", "--validation_data=b", "--checkpoint_dir_for_init=c"), 1, "run.evaluate"),
        (("predict", "--job_name=a", "--prediction_data=b", "--checkpoint_dir_for_init=c"), 1, "not supported"),
    ],
)
def test_how_commands_end(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, told: str
) -> None:
    assert command.main(words) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert told in found.err
    assert "Traceback" not in found.err


def test_help_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["train", "--help"]) == 0
    assert "--num_minibatches_per_task" in capsys.readouterr().out


def test_the_manifest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = '--cluster_spec_json={"pod_spec": {"labels": {"team": "vision"}}}'
    images = ("--image_name=elasticdl/elasticdl:v1.0.0", "--worker_image=i:1")
    assert command.main((*TRAIN, ALLREDUCE, *images, "--yaml=job.yaml", "--envs=A=b=c", spec)) == 0
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[0]) == ("", "ElasticDL job mnist YAML has been dumped into file job.yaml.")
    pod = yaml.safe_load((here / "job.yaml").read_text())
    assert (pod["metadata"]["name"], pod["metadata"]["labels"]["team"]) == ("elasticdl-mnist-master", "vision")
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "i:1", "the master needs Legato, which only the image of the workers has"
    assert container["env"][0] == {"name": "A", "value": "b=c"}
    assert "--job_command 'python train.py --x /data/y'" in container["args"][1]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--yaml=no/such/job.yaml", "Cannot write no/such/job.yaml"),
        ("--cluster_spec_json=[]", "neither a JSON object"),
        ("--cluster_spec_json={", "neither a JSON object"),
        ("--cluster_spec_json=????", "neither a JSON object"),
        ("--cluster_spec_json=" + '{"a":' * 100_000, "neither a JSON object"),
        ('--cluster_spec_json={"pod_spec": {"affinity": ' + '{"a":' * 60 + "1" + "}" * 62, "more than 50 values"),
        ('--cluster_spec_json={"pod_spec": ["x"]}', "Expected `object`, got `array` - at `$.pod_spec`"),
        ('--cluster_spec_json={"worker_pod_spec": {"labels": "a"}}', "got `str` - at `$.worker_pod_spec.labels`"),
        ('--cluster_spec_json={"pod_spec": {"tolerations": null}}', "got `null` - at `$.pod_spec.tolerations`"),
        ('--cluster_spec_json={"pod_spec": {"labels": {"app": "mine"}}}', "app is set by Legato"),
        ('--cluster_spec_json={"master_pod_spec": {"labels": {"status": "a"}}}', "status is set by Legato"),
        ('--cluster_spec_json={"worker_pod_spec": {"annotations": {"legato/place": "1"}}}', "legato/place is set"),
        ("--aux_params=pod_names=0.3", "give 1.0, or 0.2"),
        ("--worker_image=", "--worker_image is missing"),
        ("--restart_policy=Always", "would start the job again after its end"),
        ("--cluster_spec=spec.py", "as --cluster_spec_json"),
        ("--checkpoint_dir=here", "write the path from the root"),
        ("--volume=host_path=here,mount_path=/data", "write the path from the root"),
        ("--volume=host_path=/data,mount_path=//tmp/", "Cannot mount a volume at /tmp"),
        ("--volume=host_path=/data,mount_path=/", "Cannot mount a volume at /:"),
        (
            "--volume=host_path=/data,mount_path=/x/../tmp/legato-agent-w-1",
            "Cannot mount a volume at /tmp/legato-agent",
        ),
        ("--worker_resource_limit=gpu=2", "A worker has one GPU"),
        ("--num_ps_pods=2", "Parameter servers"),
        ("--job_command=train", "which is not Python"),
        ("--aux_params=min_workers=4", "from 1 to --num_workers=3"),
    ],
    ids=lambda text: text[:60],
)
def test_manifests_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str], word: str, told: str) -> None:
    assert command.main([*TRAIN, "--worker_image=i", "--yaml=a.yaml", word]) == 1
    assert told in capsys.readouterr().err
    assert not (here / "a.yaml").exists()


def test_a_cluster_spec_may_be_in_base64(here: Path) -> None:
    spec = b64encode(json.dumps({"pod_spec": {"labels": {"a": "b"}}}).encode()).decode()
    assert command.main([*TRAIN, "--worker_image=i", "--yaml=a.yaml", f"--cluster_spec_json={spec}"]) == 0
    assert yaml.safe_load((here / "a.yaml").read_text())["metadata"]["labels"]["a"] == "b"


def test_pods_are_listed(platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"app": "elasticdl"}
    platform.add_job(1, name="old", stage="succeeded", labels=own)
    platform.add_job(2, name="mnist", labels=own)
    platform.add_job(3, name="mine", labels={})
    for number in (1, 2):
        platform.canned[f"/jobs/j-000000000{number}/training-events"] = {"items": []}
    for words, names in (((), ["mnist"]), (("--all", "yes"), ["old", "mnist"]), (("--job_name=old",), ["old"])):
        assert command.main(["pods", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["NAME", *(f"elasticdl-{name}-master" for name in names)]
    assert command.main(["pods", "--job_name=mine"]) == 1
    assert "There is no job mine of 'elasticdl train'" in capsys.readouterr().err
    platform.jobs.clear()
    assert command.main(["pods"]) == 0
    assert "No resources found" in capsys.readouterr().err


# ---------------------------------------------------------------- zoo


def test_the_dockerfile(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("zoo", "init", "--model_zoo=zoo", "--extra_pypi_index=https://i.example", "--local_pkg_dir=wheels")
    assert command.main(words) == 0
    lines = (here / "Dockerfile").read_text().splitlines()
    assert lines[1] == "FROM python:3.11"
    assert "COPY zoo /model_zoo" in lines
    assert "RUN pip install --no-cache-dir --extra-index-url=https://i.example /packages/*" in lines
    assert command.main(["zoo", "init", "--base_image=python:3.6"]) == 0, "its own one is written again"
    assert "Python 3.11 or later" in capsys.readouterr().err
    (here / "Dockerfile").write_text("FROM scratch\n")
    assert command.main(["zoo", "init"]) == 1
    assert "already contains a Dockerfile" in capsys.readouterr().err
    assert command.main(["zoo", "init", "--model_zoo=../zoo"]) == 1
    assert (here / "Dockerfile").read_text() == "FROM scratch\n"


def test_what_is_written_into_the_dockerfile_is_one_word_of_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["zoo", "init", "--model_zoo=zoo", "--extra_pypi_index=https://i/?a=1&b=$(id);touch"]) == 0
    assert "--extra-index-url='https://i/?a=1&b=$(id);touch' 'legato" in (here / "Dockerfile").read_text()
    (here / "Dockerfile").unlink()
    for word in ("--extra_pypi_index=https://i\nRUN id", "--base_image=a\nRUN id", "--base_image=a AS b"):
        assert command.main(["zoo", "init", "--model_zoo=zoo", word]) == 1
        assert "it must be one word" in capsys.readouterr().err
    assert not (here / "Dockerfile").exists()


@pytest.mark.parametrize(
    ("words", "want"), [(("build", "--image=i:1", "."), "build -t i:1 ."), (("push", "i:1"), "push i:1")]
)
def test_docker_is_asked_if_it_is_there(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    want: str,
) -> None:
    monkeypatch.setenv("PATH", str(here))
    assert command.main(["zoo", *words]) == 1
    assert "which builds and pushes images, is not installed" in capsys.readouterr().err
    (here / "docker").write_text(f'#!/bin/sh\necho "$*" > {here}/asked\nexit 3\n')
    (here / "docker").chmod(0o755)
    if "build" in words:
        assert command.main(["zoo", *words]) == 1
        assert "There is no Dockerfile in folder .. Write one with 'elasticdl zoo init'" in capsys.readouterr().err
        assert not (here / "asked").exists()
        (here / "Dockerfile").touch()
    assert command.main(["zoo", *words]) == 3
    assert (here / "asked").read_text().strip() == want


def test_the_command_loads_no_torch() -> None:
    code = "import legato.compat.elasticdl.command as c, sys; c.main(['train']); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert not {"torch", "numpy", "httpx", "grpc"} & set(done.stdout.split())
