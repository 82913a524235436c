"""Makes the clusters of a server from its settings: what each pilot is, how many there are, and the server's URL."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml  # type: ignore[import-untyped]

from legato.clusters.demand import PilotShape
from legato.clusters.kubernetes import KubernetesCluster
from legato.clusters.kubernetes_api import KubernetesApi, check_library
from legato.clusters.pilots import CLUSTER_LABEL, Cluster, PilotRules
from legato.clusters.pods import PodShape
from legato.clusters.slurm_pool import PilotJob, SlurmCluster
from legato.control.cluster_settings import ClusterSettings, KubernetesSettings, SlurmSettings
from legato.control.home_lock import HOME_FILE
from legato.control.settings import Settings
from legato.control.store import Store
from legato.core.errors import NotFound, UsageError
from legato.core.job_user import JobUser
from legato.policy.snapshot import Snapshot
from legato.server.isolation import OUTPUT_OF_USERS, find_submitter
from legato.server.pilot_owners import REFUSAL, FindUser
from legato.server.pilots import PilotPool
from legato.server.tls import make_token_suffix

OUTPUT: Final = "pilots"
"""The folder of the home with the output of pilots."""

_KEY_LENGTH: Final = 8
_MAX_TEMPLATE_BYTES: Final = 256 * 2**10


def make_pools(
    settings: Settings,
    store: Store,
    url: str,
    ca: str,
    *,
    read_snapshot: Callable[[], Snapshot | None],
    leads: Callable[[], bool],
    now: Callable[[], float],
) -> Mapping[str, PilotPool]:
    """Return the pilot pools of a server, by the name of their section.

    Args:
        settings: of the server.
        store: of the platform.
        url: by which programs on this machine reach the server.
        ca: certificate (PEM) of its own authority; "": it has none.
        read_snapshot: as in `PilotPool`.
        leads: as in `PilotPool`.
        now: returns seconds since 1970.
    """

    def make_pool(
        cluster: Cluster,
        found: ClusterSettings,
        num_slots: int,
        num_gpus: int,
        time_s: float | None,
        find_user: FindUser | None = None,
    ) -> PilotPool:
        return PilotPool(
            cluster,
            make_rules(found, time_s),
            PilotShape(num_slots=num_slots, has_gpus=bool(num_gpus), labels={CLUSTER_LABEL: cluster.kind}),
            store,
            read_snapshot=read_snapshot,
            leads=leads,
            url=find_url(settings, found, url),
            token_suffix=make_token_suffix(settings, ca),
            now=now,
            find_user=find_user,
        )

    pools = {}
    if (slurm := settings.slurm) is not None:
        find_user = partial(find_pilot_user, settings, store) if settings.run_jobs_as == "submitter" else None
        cluster = make_slurm(slurm, settings.home_path, has_users=find_user is not None)
        pools["slurm"] = make_pool(cluster, slurm, slurm.num_slots, slurm.num_gpus, slurm.time_s, find_user)
    if (kubernetes := settings.kubernetes) is not None:
        pods = make_kubernetes(kubernetes, settings.home_path, find_url(settings, kubernetes, url))
        pools["kubernetes"] = make_pool(pods, kubernetes, kubernetes.num_slots, kubernetes.gpus or 0, pods.time_s)
    return pools


def make_kubernetes(found: KubernetesSettings, home: Path, url: str) -> KubernetesCluster:
    """Return Kubernetes as the section ``[kubernetes]`` describes it. Raises UsageError if it cannot be used.

    Args:
        found: the section.
        home: of the server.
        url: at which the pods reach the server.
    """
    shape = PodShape(
        pool=find_pool(home),
        namespace=found.namespace,
        image=found.image,
        slots=found.num_slots,
        gpu_resource=None if found.gpus is None else found.gpu_resource,
        cpu=found.cpu,
        memory=found.memory,
        network=found.network,
        template={} if found.pod_template is None else read_template(found.pod_template),
    )
    check_library()
    api = KubernetesApi(found.namespace, kubeconfig=found.kubeconfig, context=found.context)
    return KubernetesCluster(api, shape, url)


def read_template(file: Path) -> Mapping[str, Any]:
    """Return the user's pod template. Raises UsageError if it is none."""
    try:
        content = file.expanduser().read_bytes()
        if len(content) > _MAX_TEMPLATE_BYTES:
            raise UsageError(f"Cannot use the pod template {file}: it has more than {_MAX_TEMPLATE_BYTES >> 10} KiB.")
        template = msgspec.to_builtins(yaml.safe_load(content))  # only what JSON has
    except OSError as error:
        raise UsageError(f"Cannot read the pod template {file}: {error.strerror}.") from error
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        told = " ".join(str(error).split())[:200]
        raise UsageError(f"Cannot use the pod template {file}: it is no valid YAML: {told}.") from error
    if not isinstance(template, Mapping):
        raise UsageError(f"Cannot use the pod template {file}: it must be a map with metadata and spec, as a pod has.")
    return template


def find_pilot_user(settings: Settings, store: Store, name: str) -> JobUser:
    """Return the system user as whom the pilots of a user of the platform run.

    Raises:
        UsageError: there is none, or the user is disabled.
    """
    refusal = f"{REFUSAL} '{name}'"
    try:
        user = store.accounts.get(name)
    except NotFound:
        raise UsageError(f"{refusal}: there is no such user.") from None
    if user.disabled_at is not None:
        raise UsageError(f"{refusal}: an admin has disabled this user.")
    return find_submitter(settings, name, refusal)


def make_slurm(found: SlurmSettings, home: Path, *, has_users: bool = False) -> Cluster:
    """Return Slurm as the section ``[slurm]`` describes it. ``has_users``: as in `SlurmCluster`."""
    named: dict[str, str | int | None]
    named = {"partition": found.partition, "account": found.account, "qos": found.qos, "gres": found.gres}
    named |= {"gpus-per-node": found.gpus, "cpus-per-task": found.cpus}
    job = PilotJob(
        time=found.time,
        num_slots=found.num_slots,
        num_gpus=found.num_gpus,
        options=(*(f"--{name}={value}" for name, value in named.items() if value is not None), *found.options),
        setup=found.setup,
        python=str(found.python or sys.executable),
        folder=str(found.folder),
        output=home / (OUTPUT_OF_USERS if has_users else OUTPUT),
        network=found.network,
    )
    return SlurmCluster(find_pool(home), job, has_users=has_users)


def find_pool(home: Path) -> str:
    """Return what identifies the pool of a home towards clusters: letters and digits."""
    return (home / HOME_FILE).read_text().strip()[:_KEY_LENGTH]


def make_rules(found: ClusterSettings, time_s: float | None) -> PilotRules:
    """Return how many pilots there are. ``time_s``: their time limit; None: they have none."""
    per_user = found.max_agents_per_user if isinstance(found, SlurmSettings) else None
    rules = PilotRules(
        min_pilots=found.min_agents,
        max_pilots=found.max_agents,
        max_of_owner=found.max_agents if per_user is None else per_user,
        max_waiting=found.max_waiting,
        idle_s=found.idle_s,
    )
    if time_s is None:
        return rules
    # Earlier would be a waste: each pilot would be replaced after a part of its time only.
    replace_s = min(rules.replace_s, max(time_s / 4, rules.leave_s + 60))
    return msgspec.structs.replace(rules, replace_s=replace_s)


def find_url(settings: Settings, found: ClusterSettings, url: str) -> str:
    """Return the URL at which the machines of a cluster reach the server.

    Args:
        settings: of the server, which has the name `Settings.public_host` or this URL.
        found: of the cluster.
        url: by which programs on this machine reach the server.
    """
    if found.url is not None:
        return found.url
    here = urlsplit(url)
    return f"{here.scheme}://{settings.public_host}:{here.port}"
