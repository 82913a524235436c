"""What the flags of `elasticdl train` say about pods, for the manifests. Pure."""

from __future__ import annotations

from typing import Any

from legato.compat.elasticdl.arguments import Asked
from legato.compat.elasticdl.composites import (
    read_resources,
    read_switches,
    read_variables,
    read_volumes,
    spread_priorities,
)
from legato.compat.elasticdl.flags import FLAGS
from legato.compat.elasticdl.manifests import PodShape, PodsJob
from legato.core.errors import UsageError

POD_NAMES = "pod_names"
"""In ``--aux_params``: ``0.2`` for names of pods as before 1.0."""


def make_pods_job(asked: Asked, cluster_spec: dict[str, Any] | None = None) -> PodsJob:
    """Return the job as its pods see it.

    Args:
        asked: what the command says.
        cluster_spec: what the cluster wants of pods.

    Raises:
        UsageError: a value makes no sense.
    """
    release = read_switches(asked.text("aux_params")).get(POD_NAMES, "1.0")
    if release not in ("1.0", "0.2"):
        raise UsageError(
            f"Cannot read {POD_NAMES}={release[:100]} in --aux_params: say 1.0, or 0.2 for the names before."
        )
    return PodsJob(
        name=asked.text("job_name"),
        namespace=asked.text("namespace"),
        release="1.0" if release == "1.0" else "0.2",
        command=asked.text("job_command"),
        num_workers=asked.count("num_workers"),
        variables=read_variables(asked.text("envs")),
        volumes=read_volumes(asked.text("volume")),
        master=_shape(asked, "master", asked.text("image_name")),
        worker=_shape(asked, "worker", asked.text("worker_image") or asked.text("image_name")),
        master_priority=asked.text("master_pod_priority"),
        worker_priorities=spread_priorities(asked.count("num_workers"), asked.text("worker_pod_priority")),
        pull_policy=asked.text("image_pull_policy"),
        restart_policy=asked.text("restart_policy"),
        log_file=asked.text("log_file_path"),
        needs_tf_config=asked.switch("need_tf_config"),
        cluster_spec=cluster_spec or {},
    )


def write_arguments(asked: Asked) -> list[tuple[str, str]]:
    """Return the flags that the master is started with: all of them."""
    return [(flag.name, str(asked.values[flag.name])) for flag in FLAGS[asked.command]]


def _shape(asked: Asked, kind: str, image: str) -> PodShape:
    found = {what: f"{kind}_resource_{what}" for what in ("request", "limit")}
    read = {what: read_resources(f"--{name}", asked.text(name)) for what, name in found.items()}
    return PodShape(image=image, requests=read["request"], limits=read["limit"])
