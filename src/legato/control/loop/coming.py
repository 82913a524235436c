"""Finds the machines that clusters are about to give to a job, so that its reason does not ask for others. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from legato.api.pool import Cluster, PilotOwner
from legato.clusters.demand import PilotShape, can_use
from legato.clusters.pilots import CLUSTER_LABEL, is_hopeless, name_test_node
from legato.policy.snapshot import JobDemand

_NEWS_S: Final = 180.0
"""What a cluster has said before is no news."""
_WORD: Final = re.compile(r"\w[\w.-]*\w|\w")


class ComingMachines:
    """The machines of clusters that have not joined the pool.

    Args:
        clusters: as they were observed last.
        joined: names of the machines of the pool.
        now: seconds since 1970.
    """

    def __init__(self, clusters: Sequence[Cluster], joined: Collection[str], now: float) -> None:
        self._clusters = [
            _Coming(cluster, joined)
            for cluster in clusters
            if cluster.observed_at is not None and abs(now - cluster.observed_at) <= _NEWS_S
        ]

    def add_to(self, job: JobDemand) -> JobDemand:
        """Return a job with what it can expect of the clusters."""
        told: list[str] = []
        num_slots = 0
        for cluster in self._clusters:
            if not cluster.suits(job):
                continue
            number, more = cluster.coming[None] + cluster.coming[job.owner], cluster.count_more(job.owner)
            if number:
                are = "1 machine of {} is on its way" if number == 1 else f"{number} machines of {{}} are on their way"
                told.append(are.format(cluster.cluster.name))
            elif more:
                told.append(f"{cluster.cluster.name} may give more machines")
            per_machine = cluster.cluster.num_slots // job.gpus_per_worker * job.gpus_per_worker
            num_slots += (number + more) * per_machine
        return msgspec.structs.replace(job, coming="; ".join(told), num_coming=num_slots) if told else job


class _Expected(NamedTuple):
    """What jobs of one user can expect: the shape of machines, whose they are, and words of why there are no more."""

    shape: PilotShape
    owner: str | None
    target: int
    is_paused: bool
    trouble: frozenset[str]


class _Coming:
    """Machines of one cluster by owner, without that of a test: all, and those that have not joined."""

    def __init__(self, cluster: Cluster, joined: Collection[str]) -> None:
        of_test = name_test_node(cluster.kind)
        pilots = [one for one in cluster.pilots if one.node != of_test and one.state in ("waiting", "running")]
        self.cluster = cluster
        self._nodes = frozenset(one.node for one in pilots)
        self._there = Counter(one.owner for one in pilots)
        self.coming = Counter(
            one.owner
            for one in pilots
            if one.node not in joined and not (one.state == "waiting" and is_hopeless(one.reason or ""))
        )
        self._of_all = self._expect(None)
        self._of_owner = {owner.name: self._expect(owner) for owner in cluster.owners}

    def _expect(self, owner: PilotOwner | None) -> _Expected:
        cluster = self.cluster
        known = cluster if owner is None else owner
        shape = PilotShape(
            num_slots=cluster.num_slots,
            has_gpus=cluster.has_gpus,
            labels={CLUSTER_LABEL: cluster.kind},
            machine_kinds=known.machine_kinds,
            gpu_types=known.gpu_types,
        )
        return _Expected(
            shape=shape,
            owner=None if owner is None else owner.name,
            target=0 if owner is None else owner.target,
            is_paused=cluster.state != "ok" or known.state != "ok",
            trouble=frozenset(_WORD.findall(known.trouble or "")),
        )

    def suits(self, job: JobDemand) -> bool:
        """Whether a job could use the machines of this cluster, and none of them has refused it lately."""
        expected = self._of_owner.get(job.owner, self._of_all)
        is_refused = job.id in expected.trouble or not self._nodes.isdisjoint(job.refusals)
        return not is_refused and can_use(job, expected.shape, expected.owner)

    def count_more(self, owner: str) -> int:
        """Return how many more machines may be asked for now."""
        expected = self._of_owner.get(owner, self._of_all)
        if expected.is_paused:
            return 0
        there, each = self._there[owner], self.cluster.max_pilots_per_user
        # A user who is given more than there is room for gets machines that others have too many.
        more = max(self.cluster.max_pilots - self._there.total(), expected.target - there if expected.owner else 0)
        return max(0, more if each is None else min(more, each - there))
