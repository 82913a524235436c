"""Pods as the original makes them, with Legato in them: compared with the output of its client 1.0.0."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from legato.compat.elasticdl.composites import Volume, spread_priorities
from legato.compat.elasticdl.manifests import (
    Owner,
    PodShape,
    PodsJob,
    render_master,
    render_worker,
)

CLUSTER: Final = {
    "pod_spec": {
        "labels": {"x": "y"},
        "env": [{"name": "E", "value": "e"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
    "edl-master_pod_spec": {"annotations": {"n": "1"}},
    "worker_pod_spec": {"affinity": {"nodeAffinity": {}}, "tolerations": [{"key": "w"}]},
}
JOB: Final = PodsJob(
    name="mnist",
    num_workers=2,
    variables={"A": "1", "B": "2"},
    volumes=(
        Volume(host_path="/data", mount_path="/data"),
        Volume(claim_name="c1", mount_path="/c", sub_path="s"),
        Volume(host_path="/data", mount_path="/again"),
    ),
    master=PodShape(image="img:1", requests={"cpu": "0.2", "memory": "1024Mi"}),
    worker=PodShape(image="img:1", requests={"cpu": "0.3", "memory": "1Gi"}, limits={"cpu": "1"}),
    master_priority="high",
    worker_priorities=("high", "low"),
    cluster_spec=CLUSTER,
)
OWNER: Final = Owner("u-1", "10.0.0.7")
ARGUMENTS: Final = [("image_name", "img:1"), ("volume", ""), ("job_command", "python -m mnist.train --x 1")]

# Output of `elasticdl train --job_name=mnist ... --yaml=F` of elasticdl_client 1.0.0, without the flags of the master,
# and with Legato's module in the place of elasticdl.python.master.main.
WRITTEN: Final = """
apiVersion: v1
kind: Pod
metadata:
  annotations:
    n: '1'
  labels:
    app: elasticdl
    elasticdl-job-name: mnist
    elasticdl-replica-index: '0'
    elasticdl-replica-type: edl-master
    x: y
  name: elasticdl-mnist-master
  namespace: default
spec:
  containers:
  - args:
    - -c
    - set -o pipefail; exec python -m legato.compat.elasticdl.master_pod --image_name 'img:1' --volume
      '' --job_command 'python -m mnist.train --x 1'
    command:
    - /bin/bash
    env:
    - name: A
      value: '1'
    - name: B
      value: '2'
    - name: MY_POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    - name: E
      value: e
    image: img:1
    imagePullPolicy: Always
    name: elasticdl-mnist-master
    resources:
      limits:
        cpu: '0.2'
        memory: 1024Mi
      requests:
        cpu: '0.2'
        memory: 1024Mi
    volumeMounts:
    - mountPath: /data
      name: elasticdl-mnist-master-volume-0
    - mountPath: /c
      name: elasticdl-mnist-master-volume-1
      subPath: s
    - mountPath: /again
      name: elasticdl-mnist-master-volume-0
  priorityClassName: high
  restartPolicy: Never
  tolerations:
  - key: k
    operator: Exists
  volumes:
  - name: elasticdl-mnist-master-volume-1
    persistentVolumeClaim:
      claimName: c1
      readOnly: false
  - hostPath:
      path: /data
    name: elasticdl-mnist-master-volume-0
"""


def change(**changes: Any) -> PodsJob:
    return msgspec.structs.replace(JOB, **changes)


def environment_of(pod: dict[str, Any]) -> list[str]:
    return [one["name"] for one in pod["spec"]["containers"][0]["env"]]


def value_of(pod: dict[str, Any], name: str) -> str:
    (found,) = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == name]
    return found


def test_the_master_is_what_the_original_writes() -> None:
    assert render_master(JOB, ARGUMENTS) == yaml.safe_load(WRITTEN)


def test_values_with_quotes_reach_the_master() -> None:
    said = """python -c 'print("it")'"""
    _, line = render_master(JOB, [("job_command", said)])["spec"]["containers"][0]["args"]
    assert shlex.split(line.partition(";")[2])[-2:] == ["--job_command", said]


def test_long_names_of_jobs_make_no_invalid_names_of_volumes() -> None:
    pod = render_worker(change(name="a" * 45), 1, 1, OWNER)
    assert all(len(volume["name"]) <= 63 for volume in pod["spec"]["volumes"])


def test_a_log_file_is_written_beside_the_log() -> None:
    _, line = render_worker(change(log_file="/logs/a b"), 0, 0, OWNER)["spec"]["containers"][0]["args"]
    assert line.startswith("set -o pipefail; exec python -m legato.compat.elasticdl.worker_pod")
    assert line.endswith(" > >(tee '/logs/a b') 2>&1"), "signals reach Python, not the shell or tee"


@pytest.mark.parametrize(
    ("release", "name", "relaunched", "master"),
    [("1.0", "mnist-edljob-worker-5", ["RELAUNCHED_POD"], "edl-master"), ("0.2", "mnist-worker-5", [], "master")],
)
def test_a_worker_of_each_release(release: Any, name: str, relaunched: list[str], master: str) -> None:
    job = change(release=release, populated={"P": "p"})
    pod = render_worker(job, 5, 1, OWNER, is_relaunched=True)
    assert pod["metadata"]["name"] == pod["spec"]["containers"][0]["name"] == name
    assert pod["metadata"]["labels"] == {
        "app": "elasticdl",
        "elasticdl-job-name": "mnist",
        "elasticdl-replica-type": "worker",
        "elasticdl-replica-index": "5",
        "x": "y",
    }
    assert environment_of(pod) == [
        *("A", "B", "MASTER_ADDR", "WORKER_NUM", "P", "WORKER_ID"),
        *relaunched,
        *("MY_POD_IP", "E"),
    ]
    assert value_of(pod, "MASTER_ADDR") == "10.0.0.7:50001"
    assert (value_of(pod, "WORKER_NUM"), value_of(pod, "WORKER_ID")) == ("2", "5")
    assert [value_of(pod, variable) for variable in relaunched] == ["true"] * len(relaunched)
    assert render_master(job, [])["metadata"]["labels"]["elasticdl-replica-type"] == master


def test_a_worker_goes_with_its_master_and_may_leave_its_job_first() -> None:
    pod = render_worker(JOB, 0, 0, OWNER)
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "blockOwnerDeletion": True,
            "kind": "Pod",
            "name": "elasticdl-mnist-master",
            "uid": "u-1",
        }
    ]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["automountServiceAccountToken"] is False, "programs do not get the rights of the master"
    assert pod["metadata"]["annotations"] == {"legato/place": "0"}
    assert pod["spec"]["restartPolicy"] == "Never"
    container = pod["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (
        ["/bin/bash"],
        ["-c", "set -o pipefail; exec python -m legato.compat.elasticdl.worker_pod --pod mnist-edljob-worker-0"],
    )
    assert container["resources"] == {"requests": {"cpu": "0.3", "memory": "1Gi"}, "limits": {"cpu": "1"}}
    assert pod["spec"]["affinity"] == {"nodeAffinity": {}}
    assert pod["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}, {"key": "w"}]
    assert [one["name"] for one in pod["spec"]["volumes"]] == [
        "mnist-edljob-worker-0-volume-1",
        "mnist-edljob-worker-0-volume-0",
    ]


def test_a_job_with_defaults_has_a_short_manifest() -> None:
    job = PodsJob(name="a", num_workers=1, master=PodShape(), worker=PodShape())
    pod = render_worker(job, 0, 0, OWNER)
    assert "volumes" not in pod["spec"]
    assert "volumeMounts" not in pod["spec"]["containers"][0]
    assert pod["spec"]["priorityClassName"] == ""
    assert environment_of(render_master(job, [])) == ["MY_POD_IP"]


def test_a_pod_that_replaces_another_keeps_its_priority() -> None:
    job = change(num_workers=4, worker_priorities=spread_priorities(4, "0.5"))
    assert [render_worker(job, place, place, OWNER)["spec"]["priorityClassName"] for place in range(4)] == [
        *("high", "low", "low", "high")
    ]
    assert render_worker(job, 9, 3, OWNER, is_relaunched=True)["spec"]["priorityClassName"] == "high"


def expand(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a text (third_party/forked/golang/expansion)."""
    return re.sub(r"\$(\$|\((\w+)\))", lambda m: "$" if m[1] == "$" else variables.get(m[2], m[0]), text)


@pytest.mark.parametrize("value", ["a$$b$(A)", "$$(A)", "$$$", "$A ${A} $(date)", "$"])
def test_kubernetes_changes_no_dollars_of_the_user(value: str) -> None:
    job = change(variables={"A": "1", "P": value})
    worker = render_worker(job, 0, 0, OWNER)["spec"]["containers"][0]
    assert [expand(each["value"], {"A": "1"}) for each in worker["env"] if each["name"] == "P"] == [value]
    master = render_master(job, [("envs", f"A=1,P={value}")])["spec"]["containers"][0]
    line = expand(master["args"][1], {"A": "1"})
    assert shlex.split(line)[-2:] == ["--envs", f"A=1,P={value}"], "which the master renders again"


def test_a_worker_with_a_gpu_must_find_it() -> None:
    job = change(worker=PodShape(requests={"nvidia.com/gpu": "1"}))
    (container,) = render_worker(job, 0, 0, OWNER)["spec"]["containers"]
    assert container["args"][1].endswith("worker_pod --pod mnist-edljob-worker-0 --gpus 1")


def test_the_role_is_that_of_the_tutorial() -> None:
    file = Path(__file__).parents[4] / "deploy/kubernetes/elasticdl-rbac.yaml"
    role, binding = yaml.safe_load_all(file.read_text())
    verbs = ["create", "get", "list", "watch", "update", "patch", "delete"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods", "pods/exec", "services"], "verbs": verbs}]
    assert (role["metadata"], binding["metadata"]) == ({"name": "default-role"}, {"name": "default-role-binding"})
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "default"}]
    assert binding["roleRef"] == {"kind": "Role", "name": "default-role", "apiGroup": "rbac.authorization.k8s.io"}


def test_the_network_policy_lets_the_pods_of_jobs_in_and_no_others() -> None:
    file = Path(__file__).parents[4] / "deploy/kubernetes/elasticdl-network-policy.yaml"
    spec = yaml.safe_load(file.read_text())["spec"]
    common = (
        render_master(JOB, [])["metadata"]["labels"].items()
        & render_worker(JOB, 0, 0, OWNER)["metadata"]["labels"].items()
    )
    jobs = spec["podSelector"]
    assert jobs["matchLabels"].items() <= common
    assert spec == {"podSelector": jobs, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": jobs}]}]}


def test_nothing_is_shared_between_what_is_rendered() -> None:
    first, second = render_worker(JOB, 0, 0, OWNER), render_worker(JOB, 1, 1, OWNER)
    first["metadata"]["labels"]["x"] = "changed"
    first["spec"]["affinity"]["nodeAffinity"]["a"] = 1
    first["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9"
    assert second["metadata"]["labels"]["x"] == "y"
    assert JOB.worker.requests["cpu"] == "0.3"
    assert render_worker(JOB, 1, 1, OWNER) == second
