"""Checks what `elasticdl train` asks for if the job runs as pods of Kubernetes. Sends nothing."""

from __future__ import annotations

import contextlib
import json
import os
from base64 import b64decode
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from legato.compat.elasticdl.arguments import ParsedCommand, read_switch
from legato.compat.elasticdl.composites import (
    count_devices,
    read_resources,
    read_switches,
    read_variables,
    read_volumes,
)
from legato.compat.elasticdl.job_command import read_job_command
from legato.compat.elasticdl.manifests import AGENT_FOLDER, AGENT_PLACE, OWN_LABELS, PLACE, PodsJob, make_pods_job
from legato.compat.elasticdl.ordering import check_supported, check_values, describe_ignored, read_workers
from legato.core.errors import UsageError
from legato.system.decoding import convert

USED: Final = frozenset(
    {
        *("image_name", "worker_image", "namespace", "populate_env_names", "image_pull_policy", "restart_policy"),
        *("cluster_spec_json", "log_file_path", "worker_resource_request"),
        *("master_resource_request", "master_resource_limit", "master_pod_priority"),
        *("checkpoint_steps", "checkpoint_dir", "keep_checkpoint_max", "log_level"),
    }
)
"""Flags that have an effect on Kubernetes only. ``log_level`` has none, and needs no notice: the log is short."""
_MAX_DEPTH: Final = 50


def check_for_pods(asked: ParsedCommand) -> list[str]:
    """Check that a job can run as pods. Returns sentences for the user.

    Raises:
        UsageError: it cannot; the message says what to change.
    """
    check_values(asked)
    strategy = check_supported(asked)
    read_workers(asked)
    read_job_command(asked.text("job_command"), read_variables(asked.text("envs")))
    if not (asked.text("worker_image") or asked.text("image_name")):
        raise UsageError("The option --worker_image is missing. Name the image with Legato and the program.")
    for flag in ("worker_resource_request", "worker_resource_limit"):
        if count_devices(read_resources(f"--{flag}", asked.text(flag))) > 1:
            raise UsageError(
                f"A worker has one GPU: ask for gpu=1 in --{flag}, and for more workers with --num_workers."
            )
    if asked.text("restart_policy") == "Always":
        raise UsageError(
            "Cannot use --restart_policy=Always: Kubernetes would start the job again after its end. Use OnFailure."
        )
    if asked.text("cluster_spec"):
        raise UsageError(
            "Legato does not run --cluster_spec, a program that changes objects of the package kubernetes. Write what "
            'pods need as --cluster_spec_json=\'{"pod_spec": {"labels": {…}, "tolerations": […]}}\'.'
        )
    for flag, path in (
        ("checkpoint_dir", asked.text("checkpoint_dir")),
        *(("volume", volume.host_path) for volume in read_volumes(asked.text("volume"))),
    ):
        if path and not path.startswith("/"):
            raise UsageError(f"Cannot use {path[:200]} in --{flag}: write the path from the root.")
    for volume in read_volumes(asked.text("volume")):
        path = os.path.normpath(f"/{volume.mount_path.lstrip('/')}")
        if PurePosixPath(AGENT_PLACE).is_relative_to(path) or path.startswith(f"{AGENT_PLACE}/{AGENT_FOLDER}"):
            raise UsageError(
                f"Cannot mount a volume at {path}: Legato keeps the secret of the job in {AGENT_PLACE} of each pod, "
                "and pods must not share it. Mount it elsewhere, and name that folder in TMPDIR if you need its space."
            )
    read_cluster_spec(asked.text("cluster_spec_json"))
    return [*([] if strategy is None else [strategy]), *describe_ignored(asked, USED)]


def make_checked_job(asked: ParsedCommand) -> PodsJob:
    """Return a job that `check_for_pods` has accepted, as its pods see it."""
    return make_pods_job(asked, read_cluster_spec(asked.text("cluster_spec_json")))


def has_switch(asked: ParsedCommand, name: str) -> bool:
    """Return whether ``--aux_params`` turns something on."""
    return read_switch(read_switches(asked.text("aux_params")).get(name, ""))


class _PodSpec(msgspec.Struct, frozen=True):
    """The settings for pods in ``--cluster_spec_json`` that Legato uses. Others are ignored, as in the original."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    affinity: dict[str, Any] = {}
    tolerations: list[dict[str, Any]] = []
    env: list[dict[str, Any]] = []


class _ClusterSpec(msgspec.Struct):
    pod_spec: _PodSpec = _PodSpec()
    master_pod_spec: _PodSpec = _PodSpec()
    edl_master_pod_spec: _PodSpec = msgspec.field(name="edl-master_pod_spec", default_factory=_PodSpec)
    worker_pod_spec: _PodSpec = _PodSpec()


def read_cluster_spec(text: str) -> dict[str, Any]:
    """Read JSON, which may be in base64, as the last release wrote it.

    Raises:
        UsageError: it is neither, or a value in it cannot be a part of a pod, or would change what Legato needs.
    """
    if not text:
        return {}
    if not text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            text = b64decode(text, validate=True).decode()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("Cannot read --cluster_spec_json: it is neither a JSON object nor one in base64.")
    if _is_deep(found):
        raise UsageError(f"Cannot use --cluster_spec_json: more than {_MAX_DEPTH} values lie inside one another.")
    try:
        spec = convert(found, _ClusterSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"Cannot use --cluster_spec_json: {error}.") from None
    for part in (spec.pod_spec, spec.master_pod_spec, spec.edl_master_pod_spec, spec.worker_pod_spec):
        own = [*sorted(OWN_LABELS & part.labels.keys()), *(name for name in part.annotations if name == PLACE)]
        if own:
            raise UsageError(
                f"Cannot use --cluster_spec_json: {own[0]} is set by Legato, which finds the job's pods by it. Choose "
                "another name."
            )
    return found


def _is_deep(value: Any, depth: int = 0) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > _MAX_DEPTH or any(_is_deep(each, depth + 1) for each in inside)
