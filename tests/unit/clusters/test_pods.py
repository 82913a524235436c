"""The pod of an agent, and what a user's template may change of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from legato.clusters.pilots import PilotOrder
from legato.clusters.pods import (
    Owner,
    PodShape,
    build_anchor,
    build_pod,
    build_secret,
    check_shape,
    hash_specification,
)
from legato.core.errors import UsageError

NAME = "legato-kubernetes-1-a1b2c3"
OWNER = Owner("ConfigMap", "legato-lab", "uid-1")
ORDER = PilotOrder(node="kubernetes-1", url="https://legato.lab:8765", token="lgj_secret.pin")
SHAPE = PodShape(
    pool="lab", namespace="ml", image="legato:1", slots=2, gpu_resource="nvidia.com/gpu", cpu="4", memory="16Gi"
)


def build(**template: Any) -> dict[str, Any]:
    return build_pod(ORDER, with_template(template), OWNER, NAME)


def with_template(template: dict[str, Any]) -> PodShape:
    return msgspec.structs.replace(SHAPE, template=template)


def agent_of(pod: dict[str, Any]) -> dict[str, Any]:
    return next(container for container in pod["spec"]["containers"] if container["name"] == "agent")


def test_a_pod_runs_one_agent_once_with_its_gpus_and_memory() -> None:
    pod = build()
    spec, agent = pod["spec"], agent_of(pod)
    assert pod["metadata"]["name"] == NAME
    assert pod["metadata"]["annotations"]["legato/node"] == "kubernetes-1"
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "legato",
        "app.kubernetes.io/name": "legato-agent",
        "legato.cluster": "lab",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "legato-lab", "uid": "uid-1"}
    ]
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 120
    assert agent["resources"] == {
        "requests": {"cpu": "4", "memory": "16Gi"},
        "limits": {"nvidia.com/gpu": "2", "memory": "16Gi"},
    }
    assert {"name": "legato-shm", "emptyDir": {"medium": "Memory"}} in spec["volumes"]
    assert {"name": "legato-shm", "mountPath": "/dev/shm"} in agent["volumeMounts"]
    assert spec["tolerations"][0]["tolerationSeconds"] == 30


def test_a_pod_has_no_right_and_no_secret_beyond_its_own_token() -> None:
    pod = build()
    spec, container = pod["spec"], agent_of(pod)["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert ORDER.token not in str(pod)
    token = next(volume for volume in spec["volumes"] if volume["name"] == "legato-token")
    assert token["secret"] == {"secretName": NAME, "defaultMode": 0o440}


def test_the_secret_goes_with_its_pod() -> None:
    secret = build_secret(ORDER, SHAPE, Owner("Pod", NAME, "uid-2"))
    assert secret["stringData"] == {"token": ORDER.token}
    assert secret["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "uid-2"}]
    assert build_anchor("lab")["metadata"]["name"] == "legato-lab"


def test_an_agent_with_gpus_checks_that_it_finds_them_and_leaves_when_its_pod_is_ended() -> None:
    agent = [
        "agent",
        "--connect=https://legato.lab:8765",
        "--token-file=/run/legato/token",
        "--name=$(MACHINE)",
    ]
    assert agent_of(build())["args"] == [*agent, "--slots=2", "--label=none", "--pilot", "--gpus=2"]
    on_cpus = build_pod(ORDER, msgspec.structs.replace(SHAPE, gpu_resource=None, network="10.0.0.0/8"), OWNER, NAME)
    assert agent_of(on_cpus)["args"] == [*agent, "--slots=2", "--label=none", "--pilot", "--network=10.0.0.0/8"]
    assert "nvidia.com/gpu" not in str(on_cpus)


def test_a_template_passes_through_what_schedulers_and_sites_need() -> None:
    pod = build(
        apiVersion="v1",
        kind="PodTemplate",
        metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}, "annotations": {"site/cost": "7"}},
        spec={
            "schedulerName": "volcano",
            "priorityClassName": "low",
            "nodeSelector": {"gpu": "a100"},
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"},
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "securityContext": {"runAsUser": 2000, "supplementalGroups": [44]},
            "containers": [
                {"name": "proxy", "image": "proxy:1"},
                {
                    "name": "agent",
                    "env": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "LEGATO_DEVICE", "value": "cpu"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    "resources": {"limits": {"example.com/nic": 1}},
                },
            ],
        },
    )
    spec, agent = pod["spec"], agent_of(pod)
    assert spec["containers"][0] is agent
    assert [container["name"] for container in spec["containers"]] == ["agent", "proxy"]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert pod["metadata"]["labels"]["legato.cluster"] == "lab"
    assert pod["metadata"]["annotations"]["site/cost"] == "7"
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("volcano", "low")
    assert len(spec["tolerations"]) == 3
    assert [volume["name"] for volume in spec["volumes"]] == ["legato-token", "legato-home", "legato-shm", "data"]
    assert spec["securityContext"]["runAsUser"] == 2000
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert agent["resources"]["limits"] == {"nvidia.com/gpu": "2", "memory": "16Gi", "example.com/nic": 1}
    assert {"name": "LEGATO_DEVICE", "value": "cpu"} in agent["env"]
    assert {"name": "NCCL_DEBUG", "value": "WARN"} in agent["env"]
    assert {"name": "LEGATO_HOME", "value": "/var/lib/legato"} in agent["env"]
    assert {"name": "data", "mountPath": "/data"} in agent["volumeMounts"]


def test_a_template_may_wait_longer_for_an_unreachable_node_and_for_the_end() -> None:
    key = "node.kubernetes.io/unreachable"
    spec = {"tolerations": [{"key": key, "operator": "Exists", "tolerationSeconds": 5}]}
    pod = build(spec=spec | {"terminationGracePeriodSeconds": 300})
    assert pod["spec"]["tolerations"] == spec["tolerations"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == 300


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"spec": {"restartPolicy": "Always"}}, 'spec.restartPolicy: Legato sets it to "Never"'),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "jobs need 120 s to leave a pod"),
        ({"spec": {"terminationGracePeriodSeconds": "5"}}, "jobs need 120 s to leave a pod"),
        (
            {"spec": {"activeDeadlineSeconds": 599}},
            "spec.activeDeadlineSeconds: write 600 (10 minutes) to 2147483647 seconds",
        ),
        (
            {"spec": {"activeDeadlineSeconds": "3600"}},
            "spec.activeDeadlineSeconds: write 600 (10 minutes) to 2147483647 seconds",
        ),
        ({"spec": {"activeDeadlineSeconds": 10**400}}, "spec.activeDeadlineSeconds: write 600 (10 minutes)"),
        (
            {"spec": {"activeDeadlineSeconds": True}},
            "spec.activeDeadlineSeconds: write 600 (10 minutes) to 2147483647 seconds",
        ),
        ({"spec": {"nodeName": "gpu-1"}}, "spec.nodeName: the scheduler chooses the node"),
        ({"spec": {"containers": [{"name": "agent", "command": ["sh"]}]}}, "spec.containers[agent].command"),
        ({"spec": {"containers": [{"name": "agent", "args": []}]}}, "spec.containers[agent].args"),
        ({"spec": {"containers": [{"name": "agent", "image": "other:1"}]}}, "spec.containers[agent].image"),
        (
            {"spec": {"containers": [{"name": "agent", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}},
            "spec.containers[agent].resources.limits.nvidia.com/gpu",
        ),
        (
            {"spec": {"containers": [{"name": "agent", "env": [{"name": "LEGATO_HOME", "value": "/x"}]}]}},
            "spec.containers[agent].env[LEGATO_HOME].value",
        ),
        (
            {"spec": {"containers": [{"name": "agent", "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}]}]}},
            "spec.containers[agent].volumeMounts[/dev/shm].name",
        ),
        ({"spec": {"volumes": [{"name": "legato-home", "emptyDir": {"medium": "Memory"}}]}}, None),
        ({"spec": {"volumes": [{"name": "legato-shm", "emptyDir": {"medium": ""}}]}}, "spec.volumes[legato-shm]"),
        ({"metadata": {"name": "x"}}, "metadata.name: a template may have annotations, labels here"),
        ({"metadata": {"labels": {"legato.cluster": "x"}}}, "metadata.labels.legato.cluster"),
        ({"status": {}}, "status: a template may have"),
        ({"spec": {"containers": ["agent"]}}, "each entry must be a map with the field name"),
        ({"spec": {"containers": {}}}, "spec.containers: Legato sets it"),
        ({"spec": []}, "metadata and spec: they must be maps"),
    ],
)
def test_a_template_that_contradicts_legato_is_refused_with_the_field(template: Any, told: str | None) -> None:
    if told is None:
        check_shape(with_template(template), ORDER.url)
        return
    with pytest.raises(UsageError) as caught:
        check_shape(with_template(template), ORDER.url)
    assert str(caught.value).startswith("Cannot use the pod template: ")
    assert told in str(caught.value)


def test_a_template_with_endless_levels_is_refused() -> None:
    spec: dict[str, Any] = {}
    spec["securityContext"] = spec
    own: dict[str, Any] = {}
    own["securityContext"] = own
    from legato.clusters.pods import _merge_maps

    with pytest.raises(UsageError, match="more than 32 levels"):
        _merge_maps(own, spec, "")


@pytest.mark.parametrize("name", ["Upper", "a_b", "a.b", "-a", "a-", "a" * 64, ""])
def test_a_name_that_kubernetes_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(UsageError, match="lower-case letters"):
        build_pod(ORDER, SHAPE, OWNER, name)
    with pytest.raises(UsageError, match="lower-case letters"):
        check_shape(msgspec.structs.replace(SHAPE, pool=name), ORDER.url)


def test_an_image_is_needed_from_the_settings_or_the_template() -> None:
    bare = msgspec.structs.replace(SHAPE, image=None)
    with pytest.raises(UsageError, match="no image is named"):
        check_shape(bare, ORDER.url)
    named = {"spec": {"containers": [{"name": "agent", "image": "mine:2"}]}}
    check_shape(msgspec.structs.replace(bare, template=named), ORDER.url)


def test_pods_of_other_settings_are_recognized() -> None:
    now = hash_specification(SHAPE, ORDER.url)
    assert build()["metadata"]["annotations"]["legato/specification"] == now
    assert hash_specification(msgspec.structs.replace(SHAPE, image="legato:2"), ORDER.url) != now
    assert hash_specification(with_template({"spec": {"priorityClassName": "low"}}), ORDER.url) != now
    assert hash_specification(SHAPE, ORDER.url) == now
