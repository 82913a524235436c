"""The contract suite over Kubernetes, with an API server in memory; and what is special to pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("kubernetes_asyncio")

from tests.contract.clusters.suite import URL, ClusterBed, ClusterContract, alive, order
from tests.kubernetes_server import KubernetesServer, wait_until

from legato.clusters import kubernetes_api
from legato.clusters.kubernetes import KubernetesCluster
from legato.clusters.kubernetes_api import KubernetesApi
from legato.clusters.pilots import ClusterAwayError, Pilot, PilotState
from legato.clusters.pods import PodShape

SHAPE = PodShape(pool="pool", namespace="lab", image="legato:1", slots=1)
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}


def node_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["annotations"]["legato/node"])


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


class KubernetesBed(ClusterBed):
    def __init__(self, server: KubernetesServer, folder: Path) -> None:
        self.server = server
        self.now = 0.0
        self._kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        self._clusters: list[KubernetesCluster] = []

    def connect(self, pool: str = "pool", shape: PodShape = SHAPE) -> KubernetesCluster:
        api = KubernetesApi("lab", kubeconfig=self._kubeconfig)
        shape = msgspec.structs.replace(shape, pool=pool)
        cluster = KubernetesCluster(api, shape, URL, lambda: time.monotonic() + self.now)
        self._clusters.append(cluster)
        return cluster

    async def change(self, node: str, status: dict[str, Any]) -> None:
        found = self.pod(node)
        found["spec"]["nodeName"] = "gpu-1"
        found["status"] = status
        await self.server.put("pods", found)
        await self._settle()

    def pod(self, node: str) -> dict[str, Any]:
        """Return the only pod of a machine."""
        (found,) = [each for each in self.server.objects["pods"].values() if node_of(each) == node]
        return found

    def nodes(self) -> set[str]:
        """Return the machines that have pods."""
        return {node_of(each) for each in self.server.objects["pods"].values()}

    async def let_run(self, pilot: Pilot) -> None:
        await self.change(pilot.node, RUNNING)

    async def let_end(self, pilot: Pilot) -> None:
        await self.server.remove("pods", pilot.id)
        await self._settle()

    async def set_away(self, is_away: bool) -> None:
        await self.server.set_away(is_away)
        if is_away:
            for cluster in self._clusters:
                await wait_until(lambda found=cluster: self._is_away(found))

    async def _is_away(self, cluster: KubernetesCluster) -> bool:
        try:
            await cluster.observe()
        except ClusterAwayError:
            return True
        return False

    async def set_refusal(self, refusal: str | None) -> None:
        self.server.refusals.pop(("POST", "pods"), None)
        if refusal is not None:
            self.server.refusals["POST", "pods"] = (403, f'pods "x" is forbidden: {refusal}')

    async def _settle(self) -> None:
        """Wait until all clusters have seen what the API server has."""
        wanted = {name: each["metadata"]["resourceVersion"] for name, each in self.server.objects["pods"].items()}
        for cluster in self._clusters:
            await wait_until(lambda found=cluster: self._has_seen(found, wanted))

    async def _has_seen(self, cluster: KubernetesCluster, wanted: dict[str, str]) -> bool:
        seen = await cluster._pods.read()
        return all(wanted.get(name) == each["metadata"]["resourceVersion"] for name, each in seen.items())

    async def close(self) -> None:
        for cluster in self._clusters:
            await cluster.close()


@asynccontextmanager
async def open_bed(folder: Path) -> AsyncIterator[KubernetesBed]:
    async with KubernetesServer() as server:
        bed = KubernetesBed(server, folder)
        try:
            yield bed
        finally:
            await bed.close()


class TestKubernetes(ClusterContract):
    @pytest.fixture(autouse=True)
    def _prepare(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kubernetes_api, "_MIN_RETRY_S", 0.01)
        self.folder = tmp_path

    def open_bed(self) -> Any:
        return open_bed(self.folder)


def test_a_secret_is_created_for_each_pod_and_goes_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a"), order("b")])
            assert set(bed.server.objects["secrets"]) == set(bed.server.objects["pods"])
            assert bed.server.objects["secrets"][name_of(bed.pod("a"))]["stringData"]["token"] == order("a").token
            assert set(bed.server.objects["configmaps"]) == {"legato-pool"}
            await cluster.end(await alive(cluster), force=True)
            assert bed.server.objects["secrets"] == {}
            await cluster.start([order("c")])
            await bed.server.remove("configmaps", "legato-pool")
            assert bed.server.objects["pods"] == bed.server.objects["secrets"] == {}

    asyncio.run(main())


def test_a_pod_whose_secret_is_refused_is_deleted_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            bed.server.refusals["POST", "secrets"] = (403, 'secrets is forbidden: User "u" cannot create resource')
            (done,) = await cluster.start([order("a")])
            assert done.refusal is not None
            assert 'a right is missing: User "u" cannot create resource' in done.refusal
            assert bed.server.objects["pods"] == {}

    asyncio.run(main())


def test_a_pod_whose_secret_gets_no_answer_is_no_sign_that_nothing_was_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            bed.server.refusals["POST", "secrets"] = (503, "etcd leader changed")
            (done,) = await cluster.start([order("a")])
            assert (done.node, done.refusal) == ("a", None)
            assert done.pilot is not None
            assert done.pilot.id == name_of(bed.pod("a"))
            bed.server.refusals["POST", "secrets"] = (403, "secrets is forbidden: no")
            bed.server.refusals["DELETE", "pods"] = (503, "etcd leader changed")
            (done,) = await cluster.start([order("b")])
            assert done.refusal == "no"
            bed.server.refusals["POST", "pods"] = (503, "etcd leader changed")
            with pytest.raises(ClusterAwayError):
                await cluster.start([order("c")])

    asyncio.run(main())


def test_an_owner_that_another_server_creates_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            create = cluster._api.create

            async def be_late(kind: str, created: Any) -> Any:
                if kind == "configmaps":
                    await bed.server.put(kind, created)
                return await create(kind, created)

            monkeypatch.setattr(cluster._api, "create", be_late)
            (done,) = await cluster.start([order("a")])
            assert done.pilot is not None
            (owner,) = bed.pod("a")["metadata"]["ownerReferences"]
            assert owner["uid"] == bed.server.objects["configmaps"]["legato-pool"]["metadata"]["uid"]

    asyncio.run(main())


def test_an_agent_may_leave_before_its_pod_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a")])
            await bed.let_run((await alive(cluster))[0])
            await cluster.end(await alive(cluster), force=False)
            (seen,) = await alive(cluster)
            assert seen.state is PilotState.ENDING
            assert bed.pod("a")["metadata"]["deletionGracePeriodSeconds"] == 120
            await cluster.end([seen], force=True)
            assert bed.pod("a")["metadata"]["deletionGracePeriodSeconds"] == 1

    asyncio.run(main())


def test_pods_that_have_ended_stay_for_a_while_and_pods_of_lost_nodes_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a"), order("b"), order("c")])
            ended = {"exitCode": 0, "finishedAt": bed.pod("a")["metadata"]["creationTimestamp"]}
            status = {"phase": "Succeeded", "containerStatuses": [{"name": "agent", "state": {"terminated": ended}}]}
            await bed.change("a", status)
            await bed.change("b", RUNNING)
            await bed.change("c", RUNNING)
            await cluster.end([pilot for pilot in await alive(cluster) if pilot.node == "b"], force=False)
            await cluster.observe()
            assert bed.nodes() == {"a", "b", "c"}
            bed.now = 140.0
            await cluster.observe()
            assert bed.nodes() == {"a", "b", "c"}
            bed.now = 160.0  # b had 120 s, and its node has not confirmed its end
            await cluster.observe()
            assert bed.nodes() == {"a", "c"}
            bed.now = 700.0
            await cluster.observe()
            assert bed.nodes() == {"c"}

    asyncio.run(main())


def test_a_pod_that_leaves_has_its_whole_time_when_the_clocks_differ(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a")])
            await bed.change("a", RUNNING)
            await cluster.end(await alive(cluster), force=False)
            pod = bed.pod("a")
            pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"  # the clock of the API server is late
            await bed.server.put("pods", pod)
            await bed._settle()
            for bed.now in (0.0, 140.0):
                (seen,) = await alive(cluster)
                assert (seen.state, seen.reason) == (PilotState.ENDING, "it was deleted")
            bed.now = 160.0
            (seen,) = await cluster.observe()
            assert seen.reason == "it was deleted; node gpu-1 does not answer"
            assert bed.nodes() == set()

    asyncio.run(main())


def test_a_missing_right_is_logged_once_until_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    right = {"events": "read the events of pods", "pods": "delete pods"}

    def count() -> list[int]:
        return [sum(f"Cannot {what} on Kubernetes" in line for line in caplog.messages) for what in right.values()]

    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a")])
            await bed.change("a", {"phase": "Pending"})
            forbidden = 'x "y" is forbidden: User "u" cannot'
            bed.server.refusals = {("GET", "events"): (403, forbidden), ("DELETE", "pods"): (403, forbidden)}
            for bed.now in (0.0, 20.0, 40.0):
                await cluster.end(await alive(cluster), force=True)
            assert count() == [1, 1]
            bed.server.refusals["DELETE", "pods"] = (403, f"{forbidden} delete")
            await cluster.end(await alive(cluster), force=True)
            assert count() == [1, 2]
            bed.server.refusals.clear()
            bed.now = 60.0
            await cluster.end(await alive(cluster), force=False)
            bed.server.refusals = {
                ("GET", "events"): (403, forbidden),
                ("DELETE", "pods"): (403, f"{forbidden} delete"),
            }
            bed.now = 80.0
            await cluster.end(await alive(cluster), force=True)
            assert count() == [2, 3]

    asyncio.run(main())


def test_waiting_pods_of_earlier_settings_are_replaced_and_running_ones_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            before = bed.connect()
            await before.start([order("a"), order("b")])
            await bed.change("b", RUNNING)
            after = bed.connect(shape=msgspec.structs.replace(SHAPE, image="legato:2"))
            await after.observe()
            assert bed.nodes() == {"b"}
            await after.start([order("c")])
            await after.observe()
            assert bed.nodes() == {"b", "c"}

    asyncio.run(main())


def test_a_pod_that_lost_its_secret_to_a_crash_of_the_server_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a")])
            name = name_of(bed.pod("a"))
            await bed.server.remove("secrets", name)
            creating = {"name": "agent", "state": {"waiting": {"reason": "ContainerCreating"}}}
            await bed.change("a", {"phase": "Pending", "containerStatuses": [creating]})
            event = {"type": "Warning", "reason": "FailedMount", "message": f'MountVolume: secret "{name}" not found'}
            event |= {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": name}}
            await bed.server.put("events", event)
            (seen,) = await alive(cluster)
            assert seen.reason == f'FailedMount: MountVolume: secret "{name}" not found'
            assert bed.nodes() == {"a"}
            bed.now = 70.0
            await cluster.observe()
            assert bed.pod("a")["metadata"]["deletionGracePeriodSeconds"] == 1

    asyncio.run(main())


def test_a_name_of_a_machine_is_used_again_while_its_last_pod_can_be_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bed(tmp_path) as bed:
            cluster = bed.connect()
            await cluster.start([order("a")])
            first = name_of(bed.pod("a"))
            state = {"terminated": {"exitCode": 2}}
            await bed.change("a", {"phase": "Failed", "containerStatuses": [{"name": "agent", "state": state}]})
            (ended,) = await cluster.observe()
            assert (ended.id, ended.state, ended.reason) == (first, PilotState.GONE, "exit code 2")
            assert cluster.explain_failure("a", None) == f"See its log: kubectl logs --namespace lab {first}"
            (done,) = await cluster.start([order("a")])
            assert done.pilot is not None
            assert done.pilot.id != first
            assert [seen.id for seen in await cluster.observe()] == [done.pilot.id]
            assert len(bed.server.objects["pods"]) == 2

    asyncio.run(main())
