"""Makes the clusters of a server from its settings: what each pilot is, how many there are, and the server's URL."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from legato.clusters.demand import PilotShape
from legato.clusters.pilots import CLUSTER_LABEL, Cluster, PilotRules
from legato.clusters.slurm_pool import PilotJob, SlurmCluster
from legato.control.cluster_settings import ClusterSettings, SlurmSettings
from legato.control.home_lock import HOME_FILE
from legato.control.settings import Settings
from legato.control.store import Store
from legato.policy.snapshot import Snapshot
from legato.server.pilots import PilotPool
from legato.server.tls import make_token_suffix

OUTPUT: Final = "pilots"
"""The folder of the home with the output of pilots."""

_KEY_LENGTH: Final = 8


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
    pools = {}
    if settings.slurm is not None:
        found = settings.slurm
        shape = PilotShape(
            num_slots=found.num_slots, has_gpus=bool(found.num_gpus), labels={CLUSTER_LABEL: SlurmCluster.kind}
        )
        pools["slurm"] = PilotPool(
            make_slurm(found, settings.home_path),
            make_rules(found, found.time_s),
            shape,
            store,
            read_snapshot=read_snapshot,
            leads=leads,
            url=find_url(settings, found, url),
            token_suffix=make_token_suffix(settings, ca),
            now=now,
        )
    return pools


def make_slurm(found: SlurmSettings, home: Path) -> Cluster:
    """Return Slurm as the section ``[slurm]`` describes it."""
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
        output=home / OUTPUT,
        network=found.network,
    )
    return SlurmCluster(find_pool(home), job)


def find_pool(home: Path) -> str:
    """Return what identifies the pool of a home towards clusters: letters and digits."""
    return (home / HOME_FILE).read_text().strip()[:_KEY_LENGTH]


def make_rules(found: ClusterSettings, time_s: float | None) -> PilotRules:
    """Return how many pilots there are. ``time_s``: their time limit; None: they have none."""
    rules = PilotRules(
        min_pilots=found.min_agents, max_pilots=found.max_agents, max_waiting=found.max_waiting, idle_s=found.idle_s
    )
    if time_s is None:
        return rules
    # Earlier would be a waste: each pilot would be replaced after a part of its time only.
    replace_s = min(rules.replace_s, max(time_s / 4, rules.leave_s + 60))
    return PilotRules(
        min_pilots=found.min_agents,
        max_pilots=found.max_agents,
        max_waiting=found.max_waiting,
        idle_s=found.idle_s,
        replace_s=replace_s,
    )


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
