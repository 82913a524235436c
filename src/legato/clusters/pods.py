"""Builds the pod of an agent and the Secret with its join token, from settings and the user's pod template. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from legato.clusters.pilots import PilotOrder
from legato.clusters.pod_states import AGENT, NODE
from legato.core.errors import UsageError

KubeObject = dict[str, Any]

POOL_LABEL: Final = "legato.cluster"
"""The label of pods with the name of their pool."""
SPECIFICATION: Final = "legato/specification"
"""The annotation of a pod with a hash of what it was built from."""
HOME: Final = "/var/lib/legato"
_USER: Final = 10001
"""The user of the image; any number above 0 may run an agent."""
_TOKEN_FOLDER: Final = "/run/legato"  # noqa: S105
_TOKEN_KEY: Final = "token"  # noqa: S105
_MANAGED: Final = {"app.kubernetes.io/managed-by": "legato", "app.kubernetes.io/name": "legato-agent"}
_UNREACHABLE_S: Final = 30
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
_MAX_DEPTH: Final = 32
_KEYS: Final = {
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are merged by this field of their entries, as Kubernetes merges them; others replace nothing of ours."""
_CONTAINER: Final = f"spec.containers[{AGENT}]"
_REPLACEABLE: Final = (
    f"{_CONTAINER}.securityContext.",
    "spec.enableServiceLinks",
    "spec.securityContext.",
)
"""Paths of defaults that a template may replace."""
_GRACE: Final = "spec.terminationGracePeriodSeconds"
_DEADLINE: Final = "activeDeadlineSeconds"
_MIN_DEADLINE_S: Final = 600
"""A shorter time would go to starts and ends: jobs leave a pod some minutes before its end."""
_MAX_DEADLINE_S: Final = 2**31 - 1
_TEMPLATE_KEYS: Final = {"apiVersion", "kind", "metadata", "spec"}
_METADATA_KEYS: Final = {"annotations", "labels"}
_SPEC_REFUSED: Final = {
    "ephemeralContainers": "Kubernetes adds them to running pods only",
    "nodeName": "the scheduler chooses the node; use nodeSelector or affinity",
}


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """What all pods of a pool have in common.

    Args:
        pool: name of the pool, a DNS label.
        namespace: of the pods.
        image: of the container with the agent; None: the template names it.
        slots: of each agent: GPUs, or CPU slots.
        gpu_resource: name of the resource of which each agent gets one per slot, such as ``nvidia.com/gpu``. None: the
            agents have CPU slots.
        cpu: cores that each pod requests, such as ``4`` or ``500m``. None: the default of the namespace.
        memory: that each pod requests and may use at most, such as ``32Gi``. None: the default of the namespace.
        grace_s: seconds between SIGTERM and SIGKILL, in which jobs leave the pod.
        template: of the user, merged into each pod.
        network: in which the pods reach one another; None: that of the way to the server.
    """

    pool: str
    namespace: str
    image: str | None
    slots: int
    gpu_resource: str | None = None
    cpu: str | None = None
    memory: str | None = None
    grace_s: int = 120
    template: Mapping[str, Any] = {}
    network: str | None = None


class Owner(msgspec.Struct, frozen=True):
    """The object with which Kubernetes deletes another one."""

    kind: str
    name: str
    uid: str


def name_anchor(pool: str) -> str:
    """Return the name of the ConfigMap that owns the pods of a pool."""
    return f"legato-{pool}"


def build_anchor(pool: str) -> KubeObject:
    """Return the ConfigMap that owns the pods of a pool: with it, Kubernetes deletes them all."""
    explained = "Owns the pods of Legato's agents. Kubernetes deletes them with this object."
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_anchor(pool), "labels": {**_MANAGED, POOL_LABEL: pool}},
        "data": {"README": explained},
    }


def build_secret(order: PilotOrder, shape: PodShape, pod: Owner) -> KubeObject:
    """Return the Secret with the join token of a pod, which owns it: Kubernetes deletes both together."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": pod.name,
            "labels": {**_MANAGED, POOL_LABEL: shape.pool},
            "ownerReferences": [_refer(pod)],
        },
        "stringData": {_TOKEN_KEY: order.token},
    }


def build_pod(order: PilotOrder, shape: PodShape, owner: Owner, name: str) -> KubeObject:
    """Return the pod of an agent. ``name``: of the pod; that of its machine is used again by later pods.

    Raises:
        UsageError: a name cannot be used, or the template contradicts what Legato needs.
    """
    check_dns_label("pod", name)
    pod = merge_template(_build_own(shape, order.url), shape.template)
    pod["metadata"] |= {"name": name, "ownerReferences": [_refer(owner)]}
    annotations = dict(pod["metadata"].get("annotations", {}))
    pod["metadata"]["annotations"] = annotations | {
        NODE: order.node,
        SPECIFICATION: hash_specification(shape, order.url),
    }
    for volume in pod["spec"]["volumes"]:
        if volume["name"] == "legato-token":
            volume["secret"]["secretName"] = name
    return pod


def check_shape(shape: PodShape, url: str) -> None:
    """Raise UsageError if no pod can be built from the settings and the template."""
    check_dns_label("pool", shape.pool)
    check_dns_label("namespace", shape.namespace)
    if shape.gpu_resource is not None and not _RESOURCE.fullmatch(shape.gpu_resource):
        raise UsageError(f"Cannot use the resource '{shape.gpu_resource[:100]}': write it as nvidia.com/gpu.")
    pod = merge_template(_build_own(shape, url), shape.template)
    if not pod["spec"]["containers"][0].get("image"):
        raise UsageError(
            "Cannot start agents on Kubernetes: no image is named. Set image in the section kubernetes, or in the "
            f"container '{AGENT}' of the pod template."
        )


def find_time_limit(shape: PodShape) -> float | None:
    """Return after how many seconds Kubernetes ends each pod, as the template says; None: no limit."""
    limit_s = shape.template.get("spec", {}).get(_DEADLINE)
    return None if limit_s is None else float(limit_s)


def hash_specification(shape: PodShape, url: str) -> str:
    """Return a hash of what pods are built from: pods with another one were built before a setting changed."""
    encoded = msgspec.json.encode(_build_own(shape, url) | {"template": shape.template}, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]


def check_dns_label(what: str, name: str) -> None:
    """Raise UsageError if Kubernetes does not accept a name."""
    if not _DNS_LABEL.fullmatch(name):
        raise UsageError(
            f"Cannot use '{name[:100]}' as the name of a {what} on Kubernetes: it must have 1 to 63 lower-case "
            "letters, digits and hyphens, and begin and end with a letter or a digit."
        )


def _refer(owner: Owner) -> KubeObject:
    return {"apiVersion": "v1", "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def _build_own(shape: PodShape, url: str) -> KubeObject:
    """Return what Legato needs of each pod, without what only one pod has."""
    agent = ["agent", f"--connect={url}", f"--token-file={_TOKEN_FOLDER}/{_TOKEN_KEY}", "--name=$(MACHINE)"]
    agent += [f"--slots={shape.slots}", "--label=none", "--pilot"]
    if shape.network is not None:
        agent.append(f"--network={shape.network}")
    variables: list[KubeObject] = [
        {"name": "MACHINE", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{NODE}']"}}},
        {"name": "LEGATO_HOME", "value": HOME},
    ]
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if shape.gpu_resource is not None:
        limits[shape.gpu_resource] = str(shape.slots)
        agent.append(f"--gpus={shape.slots}")  # an agent that finds fewer says so
    if shape.cpu is not None:
        requests["cpu"] = shape.cpu
    if shape.memory is not None:
        requests["memory"] = limits["memory"] = shape.memory
    container: KubeObject = {
        "name": AGENT,
        "command": ["python", "-P", "-m", "legato.cli"],
        "args": agent,
        # If the agent fails, the status of the pod has its last lines. So Legato needs no right to read logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": variables,
        "resources": {name: value for name, value in (("requests", requests), ("limits", limits)) if value},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "legato-token", "mountPath": _TOKEN_FOLDER, "readOnly": True},
            {"name": "legato-home", "mountPath": HOME},
            {"name": "legato-shm", "mountPath": "/dev/shm"},  # noqa: S108 -- loader processes of torch use it
        ],
    }
    if shape.image is not None:
        container["image"] = shape.image
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {**_MANAGED, POOL_LABEL: shape.pool}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": shape.grace_s,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": [
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _UNREACHABLE_S,
                }
            ],
            "containers": [container],
            "volumes": [
                # 0440: the agent's group may read it, as fsGroup gives it the file.
                {"name": "legato-token", "secret": {"defaultMode": 0o440}},
                {"name": "legato-home", "emptyDir": {}},
                {"name": "legato-shm", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }


# ---------------------------------------------------------------- the template


def merge_template(own: KubeObject, template: Mapping[str, Any]) -> KubeObject:
    """Return Legato's pod with what the user's template adds.

    Maps are merged, and lists such as containers and volumes by the names of their entries, as Kubernetes merges them.
    A template may replace defaults, such as the security context.

    Raises:
        UsageError: the template contradicts a field that Legato needs, and which one.
    """
    _check_keys("", template, _TEMPLATE_KEYS)
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise _refuse("metadata and spec", "they must be maps")
    _check_keys("metadata.", metadata, _METADATA_KEYS)
    for name, why in _SPEC_REFUSED.items():
        if name in spec:
            raise _refuse(f"spec.{name}", why)
    grace_s = own["spec"]["terminationGracePeriodSeconds"]
    given_s = spec.get("terminationGracePeriodSeconds", grace_s)
    if not isinstance(given_s, int) or given_s < grace_s:
        raise _refuse(_GRACE, f"jobs need {grace_s} s to leave a pod: write {grace_s} or more, or leave it out")
    limit_s = spec.get(_DEADLINE)
    if limit_s is not None and (type(limit_s) is not int or not _MIN_DEADLINE_S <= limit_s <= _MAX_DEADLINE_S):
        why = f"write {_MIN_DEADLINE_S} (10 minutes) to {_MAX_DEADLINE_S} seconds, or leave it out"
        raise _refuse(f"spec.{_DEADLINE}", why)
    merged = _merge_maps(own, {"metadata": metadata, "spec": spec}, "")
    # The first container is the one of which `kubectl logs` shows the log.
    merged["spec"]["containers"].sort(key=lambda container: container["name"] != AGENT)
    return merged


def _merge_maps(own: KubeObject, given: Mapping[str, Any], path: str, depth: int = 0) -> KubeObject:
    if depth > _MAX_DEPTH:
        raise _refuse(path, f"it has more than {_MAX_DEPTH} levels")
    merged = dict(own)
    for name, value in given.items():
        here = f"{path}.{name}" if path else str(name)
        if name not in own:
            merged[name] = value
            continue
        mine = own[name]
        if isinstance(mine, dict) and isinstance(value, Mapping):
            merged[name] = _merge_maps(mine, value, here, depth + 1)
        elif here == "spec.tolerations" and isinstance(value, Sequence):
            keys = {entry.get("key") for entry in value if isinstance(entry, Mapping)}
            merged[name] = [entry for entry in mine if entry["key"] not in keys] + list(value)
        elif isinstance(mine, list) and isinstance(value, Sequence) and name in _KEYS:
            merged[name] = _merge_lists(mine, value, here, _KEYS[name], depth + 1)
        elif mine == value or here == _GRACE or any(f"{here}.".startswith(free) for free in _REPLACEABLE):
            merged[name] = value
        else:
            raise _refuse(here, f"Legato sets it to {msgspec.json.encode(mine).decode()}; remove it from the template")
    return merged


def _merge_lists(own: list[KubeObject], given: Sequence[Any], path: str, key: str, depth: int) -> list[KubeObject]:
    merged = {entry[key]: entry for entry in own}
    for entry in given:
        name = entry.get(key) if isinstance(entry, Mapping) else None
        if not isinstance(name, str):
            raise _refuse(path, f"each entry must be a map with the field {key}")
        merged[name] = _merge_maps(merged[name], entry, f"{path}[{name}]", depth) if name in merged else dict(entry)
    return list(merged.values())


def _check_keys(path: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise _refuse(f"{path}{name}", f"a template may have {', '.join(sorted(known))} here")


def _refuse(path: str, why: str) -> UsageError:
    return UsageError(f"Cannot use the pod template: {path[:200]}: {why}.")
