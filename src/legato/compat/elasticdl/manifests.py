"""Writes the pods of a job as the original does, but with Legato in them: plain dictionaries, ready for YAML. Pure.

Names, labels, variables and their order, volumes and priorities are those that scripts and dashboards look for. The
module sends nothing to a cluster.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from legato.compat.elasticdl.arguments import ParsedCommand
from legato.compat.elasticdl.composites import (
    Volume,
    count_devices,
    read_resources,
    read_switches,
    read_variables,
    read_volumes,
    spread_priorities,
)
from legato.compat.elasticdl.flags import FLAGS
from legato.core.errors import UsageError

MASTER_PORT: Final = 50001
_APP: Final = "elasticdl"
_APP_LABEL: Final = "app"
_JOB_LABEL: Final = "elasticdl-job-name"
_TYPE_LABEL: Final = "elasticdl-replica-type"
INDEX_LABEL: Final = "elasticdl-replica-index"
PLACE: Final = "legato/place"
"""The annotation of a worker's pod with its place; a pod that replaces another one has the same."""
OWN_LABELS: Final = frozenset({_APP_LABEL, _JOB_LABEL, _TYPE_LABEL, INDEX_LABEL, "status"})
"""The labels by which Legato and its users find pods, and that show the state of the job."""
_MASTER: Final = "python -m legato.compat.elasticdl.master_pod"
_WORKER: Final = "python -m legato.compat.elasticdl.worker_pod"
_PIPEFAIL: Final = "set -o pipefail;"
GRACE_S: Final = 30
"""How long a worker may take to leave its job after its pod was deleted; the original gave it a second."""

AGENT_PLACE: Final = "/tmp"  # noqa: S108 -- in the container, in a folder that only its user reads
"""The folder in which agents keep their files, with the secret of the job. No volume may be mounted there."""
AGENT_FOLDER: Final = "legato-agent-"
"""How the name of the folder of a pod's agent begins."""
NO_ORDER: Final = "it got no order from its master in time"
"""What a worker's pod leaves as its termination message if it has ended for that."""
_MAX_LABEL: Final = 63

Manifest = dict[str, Any]
Release = Literal["1.0", "0.2"]
"""The release that decides the names of pods: 1.0 (``mnist-edljob-worker-0``), or one before (``mnist-worker-0``)."""


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """The image and the resources of pods of one kind.

    Args:
        image: of the container.
        requests: resources that the container certainly gets.
        limits: resources that the container may use at most; empty for those that it requests.
    """

    image: str = ""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class PodsJob(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a job that its pods depend on.

    Args:
        name: of the job.
        namespace: of all its pods and services.
        release: of ElasticDL, which decides the names of pods.
        num_workers: as programs see it in ``WORKER_NUM``.
        variables: of master and workers, in their order.
        populated: variables of the master that workers get too.
        volumes: of master and workers.
        master: shape of the master's pod; ``worker`` is that of the workers' pods.
        master_priority: the priority class of the master; "": none.
        worker_priorities: the priority class of each worker's place; a pod that replaces another one keeps it.
        pull_policy: when images are fetched.
        restart_policy: of containers.
        log_file: to which output is written too; "": none.
        cluster_spec: settings of the cluster for pods, as in ``--cluster_spec_json``.
    """

    name: str
    namespace: str = "default"
    release: Release = "1.0"
    num_workers: int
    variables: dict[str, str] = {}
    populated: dict[str, str] = {}
    volumes: tuple[Volume, ...] = ()
    master: PodShape
    worker: PodShape
    master_priority: str = ""
    worker_priorities: tuple[str, ...] = ()
    pull_policy: str = "Always"
    restart_policy: str = "Never"
    log_file: str = ""
    cluster_spec: dict[str, Any] = {}


class Owner(msgspec.Struct, frozen=True):
    """The master's pod, which owns all others of the job: the cluster deletes them with it.

    Args:
        uid: that the cluster gave it.
        address: of the pod.
    """

    uid: str
    address: str


# ---------------------------------------------------------------- names


def name_master(job: PodsJob) -> str:
    """Return the name of the master's pod.

    >>> name_master(PodsJob(name="mnist", num_workers=1, master=PodShape(), worker=PodShape()))
    'elasticdl-mnist-master'
    """
    return f"elasticdl-{job.name}-master"


def name_worker(job: PodsJob, number: int) -> str:
    """Return the name of a worker's pod.

    >>> job = PodsJob(name="mnist", num_workers=1, master=PodShape(), worker=PodShape())
    >>> name_worker(job, 3), name_worker(msgspec.structs.replace(job, release="0.2"), 3)
    ('mnist-edljob-worker-3', 'mnist-worker-3')
    """
    return f"{job.name}-{'edljob-' if job.release == '1.0' else ''}worker-{number}"


def label(job: PodsJob, kind: str, index: int) -> dict[str, str]:
    """Return the labels of a pod.

    Args:
        job: whose pod.
        kind: ``master`` or ``worker``.
        index: number of the pod among those of its kind.
    """
    replica_type = "edl-master" if kind == "master" and job.release == "1.0" else kind
    return {**_common_labels(job), _TYPE_LABEL: replica_type, INDEX_LABEL: str(index)}


def select_workers(job: PodsJob) -> str:
    """Return the selector of the workers' pods."""
    return ",".join(f"{name}={value}" for name, value in (*_common_labels(job).items(), (_TYPE_LABEL, "worker")))


def _common_labels(job: PodsJob) -> dict[str, str]:
    return {_APP_LABEL: _APP, _JOB_LABEL: job.name}


# ---------------------------------------------------------------- pods


def render_master(job: PodsJob, arguments: Sequence[tuple[str, str]]) -> Manifest:
    """Return the master's pod.

    Args:
        job: whose.
        arguments: flags and values with which the master is started; values may hold any text.
    """
    words = " ".join(f"--{flag} {_quote(value)}" for flag, value in arguments)
    pod = _pod(job, name_master(job), "master", 0, job.master, job.master_priority)
    _fill(job, pod, f"{_MASTER} {words}".rstrip(), [*_pairs(job.variables), _own_address()])
    return _adapt(job, pod, ("master", "edl-master"))


def render_worker(job: PodsJob, number: int, place: int, owner: Owner, *, is_relaunched: bool = False) -> Manifest:
    """Return a worker's pod.

    Args:
        job: whose.
        number: of the worker; never used twice.
        place: which of ``num_workers`` places it takes.
        owner: the master's pod.
        is_relaunched: the pod replaces another one.
    """
    priority = job.worker_priorities[place] if place < len(job.worker_priorities) else ""
    pod = _pod(job, name_worker(job, number), "worker", number, job.worker, priority)
    pod["metadata"] |= {"annotations": {PLACE: str(place)}, "ownerReferences": [_reference(job, owner)]}
    # Programs of users do not need the rights of the master.
    pod["spec"] |= {"terminationGracePeriodSeconds": GRACE_S, "automountServiceAccountToken": False}
    environment = [
        *_pairs(job.variables),
        *_pairs({"MASTER_ADDR": f"{owner.address}:{MASTER_PORT}", "WORKER_NUM": str(job.num_workers)}),
        *_pairs(job.populated),
        *_pairs({"WORKER_ID": str(number)}),
        *(_pairs({"RELAUNCHED_POD": str(is_relaunched).lower()}) if job.release == "1.0" else ()),
        _own_address(),
    ]
    gpus = count_devices(job.worker.limits or job.worker.requests)
    name = pod["metadata"]["name"]
    _fill(job, pod, f"{_WORKER} --pod {name}" + (f" --gpus {gpus}" if gpus else ""), environment)
    (container,) = pod["spec"]["containers"]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"  # so the master can say why it has ended
    return _adapt(job, pod, ("worker",))


def _pod(job: PodsJob, name: str, kind: str, index: int, shape: PodShape, priority: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": job.namespace, "labels": label(job, kind, index)},
        "spec": {
            "containers": [
                {
                    "name": name,
                    "image": shape.image,
                    "imagePullPolicy": job.pull_policy,
                    "resources": {"requests": dict(shape.requests), "limits": dict(shape.limits or shape.requests)},
                }
            ],
            "priorityClassName": priority,
            "restartPolicy": job.restart_policy,
        },
    }


def _fill(job: PodsJob, pod: Manifest, command: str, environment: list[Manifest]) -> None:
    """Give the one container of a pod its command, variables and volumes."""
    (container,) = pod["spec"]["containers"]
    # Without the shell between, signals of Kubernetes reach the program.
    kept = f"exec {command}" + (f" > >(tee {shlex.quote(job.log_file)}) 2>&1" if job.log_file else "")
    container |= {"command": ["/bin/bash"], "args": ["-c", _escape(f"{_PIPEFAIL} {kept}")], "env": environment}
    volumes, mounts = render_volumes(job.volumes, container["name"])
    if volumes:
        pod["spec"]["volumes"] = volumes
        container["volumeMounts"] = mounts


def render_volumes(volumes: Sequence[Volume], pod: str) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes of a pod, and the mounts of its container. A source with two mounts becomes one volume.

    Args:
        volumes: to mount.
        pod: name of the pod, with which the names of its volumes begin.
    """
    names: dict[tuple[bool, str], str] = {}
    claims, folders, mounts = [], [], []
    for volume in volumes:
        source = (bool(volume.claim_name), volume.claim_name or volume.host_path)
        if source not in names:
            name = f"{pod}-volume-{len(names)}"
            names[source] = name = name if len(name) <= _MAX_LABEL else f"volume-{len(names)}"
            if volume.claim_name:
                claim = {"claimName": volume.claim_name, "readOnly": False}
                claims.append({"name": name, "persistentVolumeClaim": claim})
            else:
                kind = {"type": volume.type} if volume.type else {}
                folders.append({"name": name, "hostPath": {"path": volume.host_path, **kind}})
        part = {"subPath": volume.sub_path} if volume.sub_path else {}
        mounts.append({"name": names[source], "mountPath": volume.mount_path, **part})
    return claims + folders, mounts


def _reference(job: PodsJob, owner: Owner) -> Manifest:
    return {
        "apiVersion": "v1",
        "blockOwnerDeletion": True,
        "kind": "Pod",
        "name": name_master(job),
        "uid": owner.uid,
    }


def _pairs(variables: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": _escape(value)} for name, value in variables.items()]


def _escape(text: str) -> str:
    """Write a text so that Kubernetes gives it to the container as it is; of ``$(A)`` it would make the value of A.

    >>> print(_escape("$HOME $(A) a$$b"))
    $HOME $$(A) a$$$b
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def _own_address() -> Manifest:
    return {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _quote(value: str) -> str:
    """Quote a value for the shell, even if that is not necessary, as the original does.

    >>> print(_quote("python a.py"), _quote("it's"))
    'python a.py' 'it'"'"'s'
    """
    return "'" + value.replace("'", "'\"'\"'") + "'"


# ---------------------------------------------------------------- settings of a cluster


def _adapt(job: PodsJob, pod: Manifest, kinds: Sequence[str]) -> Manifest:
    """Add the cluster's settings for all pods, then those for pods of these kinds."""
    for key in ("pod_spec", *(f"{kind}_pod_spec" for kind in kinds)):
        wanted = copy.deepcopy(job.cluster_spec.get(key, {}))
        for field in ("labels", "annotations"):
            if field in wanted:
                pod["metadata"][field] = wanted[field] | pod["metadata"].get(field, {})
        if "affinity" in wanted:
            pod["spec"]["affinity"] = wanted["affinity"]
        if "tolerations" in wanted:
            pod["spec"]["tolerations"] = [*pod["spec"].get("tolerations", ()), *wanted["tolerations"]]
        for container in pod["spec"]["containers"]:
            container["env"] = [*container["env"], *wanted.get("env", ())]
    return pod


# ------------------------------------------------------------ from the flags of the command


POD_NAMES = "pod_names"
"""The key in ``--aux_params`` for the names of pods: ``0.2`` gives pods the names that they had before 1.0."""
_OF_COMMAND: Final = ("yaml", "force_use_kube_config_file")


def make_pods_job(asked: ParsedCommand, cluster_spec: dict[str, Any] | None = None) -> PodsJob:
    """Return the job as its pods see it.

    Args:
        asked: the parsed command.
        cluster_spec: settings of the cluster for pods.

    Raises:
        UsageError: a value is invalid.
    """
    release = read_switches(asked.text("aux_params")).get(POD_NAMES, "1.0")
    if release not in ("1.0", "0.2"):
        raise UsageError(
            f"Cannot read {POD_NAMES}={release[:100]} in --aux_params: give 1.0, or 0.2 for the earlier names."
        )
    return PodsJob(
        name=asked.text("job_name"),
        namespace=asked.text("namespace"),
        release="1.0" if release == "1.0" else "0.2",
        num_workers=asked.count("num_workers"),
        variables=read_variables(asked.text("envs")),
        volumes=read_volumes(asked.text("volume")),
        # The image of the workers has Legato and the program. That of the original's master has neither.
        master=_shape(asked, "master", asked.text("worker_image") or asked.text("image_name")),
        worker=_shape(asked, "worker", asked.text("worker_image") or asked.text("image_name")),
        master_priority=asked.text("master_pod_priority"),
        worker_priorities=spread_priorities(asked.count("num_workers"), asked.text("worker_pod_priority")),
        pull_policy=asked.text("image_pull_policy"),
        restart_policy=asked.text("restart_policy"),
        log_file=asked.text("log_file_path"),
        cluster_spec=cluster_spec or {},
    )


def write_arguments(asked: ParsedCommand) -> list[tuple[str, str]]:
    """Return the flags that the master is started with: all that do not only concern the command itself."""
    return [(flag.name, str(asked.values[flag.name])) for flag in FLAGS[asked.command] if flag.name not in _OF_COMMAND]


def _shape(asked: ParsedCommand, kind: str, image: str) -> PodShape:
    found = {what: f"{kind}_resource_{what}" for what in ("request", "limit")}
    read = {what: read_resources(f"--{name}", asked.text(name)) for what, name in found.items()}
    return PodShape(image=image, requests=read["request"], limits=read["limit"])
