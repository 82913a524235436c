"""Which worker pods are created and when, and the order that each gets: over an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_asyncio")

import msgspec
from tests.kubernetes_server import KubernetesServer, wait_until

from legato.agent.orders import AgentOrder
from legato.clusters.kubernetes_api import KubernetesApi
from legato.clusters.pilots import PilotState
from legato.compat.elasticdl import worker_pods
from legato.compat.elasticdl.manifests import NO_ORDER, Owner, PodShape, PodsJob, label
from legato.compat.elasticdl.worker_pods import Places, PodEnd, WorkerPod, WorkerPods, delay_next, plan_pods
from legato.system.door import Door

JOB = PodsJob(name="mnist", num_workers=2, master=PodShape(), worker=PodShape(image="i:1"))
FIRST, SECOND, THIRD = (f"mnist-edljob-worker-{number}" for number in range(3))
RUNNING, WAITING, ENDING, GONE = PilotState.RUNNING, PilotState.WAITING, PilotState.ENDING, PilotState.GONE


def pod_of(number: int, state: PilotState, place: int | None = None, **more: Any) -> WorkerPod:
    return WorkerPod(name=f"w-{number}", number=number, place=number if place is None else place, state=state, **more)


def plan(places: Places, *pods: WorkerPod, now: float = 0.0, **more: Any) -> list[int]:
    found = plan_pods(places, {pod.name: pod for pod in pods}, 2, now, **more)
    for place in found:
        places.occupants[place] = f"w-{places.next_number}"
        places.next_number += 1
    return found


# ---------------------------------------------------------------- which pods


def test_each_place_gets_a_pod_and_another_number_when_that_is_deleted() -> None:
    places = Places()
    assert plan(places) == [0, 1]
    assert plan(places, pod_of(0, WAITING), pod_of(1, RUNNING)) == []
    assert plan(places, pod_of(0, ENDING), pod_of(1, RUNNING)) == [0], "before the deleted one has left"
    assert plan(places, pod_of(1, RUNNING), pod_of(2, RUNNING, 0)) == []
    assert plan(places, pod_of(1, RUNNING)) == [0], "it is gone without a trace"


def test_a_pod_that_fails_is_replaced_after_pauses_that_double() -> None:
    places, now, pauses = Places(), 0.0, []
    plan(places)
    for number in (0, 2, 3, 4):
        failed = pod_of(number, GONE, 0, reason="exit code 1")
        begun = now
        while plan(places, failed, pod_of(1, RUNNING), now=now) == []:
            now += 1.0
        pauses.append(now - begun)
    assert pauses == [5.0, 10.0, 20.0, 40.0]


def test_the_pause_stays_the_longest_however_often_pods_fail() -> None:
    places = Places(failures={0: 2000})
    delay_next(places, 0, 1.0)
    assert places.retry_at == {0: 301.0}


@pytest.mark.parametrize("left", [[], [ENDING]], ids=["gone", "ending"])
def test_pods_that_are_deleted_when_they_are_young_come_less_and_less_often(left: list[PilotState]) -> None:
    places, made = Places(), []
    for now in range(200):
        name = places.occupants.get(0, "")
        pods = [WorkerPod(name=name, number=0, place=0, state=state) for state in left if name]
        if plan_pods(places, {pod.name: pod for pod in pods}, 1, float(now)):
            places.occupants[0] = f"w-{now}"
            places.known_since[f"w-{now}"] = now
            made.append(now)
    assert made == [0, 1, 12, 33, 74, 155]


def test_a_number_that_others_have_changed_is_not_read() -> None:
    labels = {"elasticdl-replica-index": "x"}
    about = {"name": "w-1", "labels": labels, "annotations": {"legato/place": "9" * 5000}}
    pod = worker_pods.read_worker_pod({"metadata": about})
    assert (pod.number, pod.place) == (0, 0)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"has_succeeded": True}, "it has left the job"),
        ({"is_out_of_memory": True, "reason": "OOMKilled: it needed more"}, "raise --worker_resource_limit"),
    ],
    ids=["left", "memory"],
)
def test_a_pod_is_not_replaced_where_the_next_one_would_end_too(how: dict[str, Any], why: str) -> None:
    places = Places()
    plan(places)
    assert plan(places, pod_of(0, GONE, **how), pod_of(1, RUNNING), now=1e6) == []
    assert why in places.closed[0]


def test_nothing_is_replaced_if_the_user_does_not_want_it() -> None:
    places = Places()
    assert plan(places, relaunches=False) == [0, 1]
    assert plan(places, pod_of(1, RUNNING), now=1e6, relaunches=False) == []
    assert places.closed == {0: "--aux_params has disable_relaunch=True"}


# ---------------------------------------------------------------- on a cluster


class Bed:
    """A cluster, and the pods of a job on it; this test is the kubelet."""

    def __init__(self, server: KubernetesServer, kubeconfig: Path) -> None:
        self.server = server
        self.api = KubernetesApi("default", kubeconfig=kubeconfig)
        self.door = Door(is_encrypted=True)
        self.now = 0.0
        self.said: list[str] = []
        self.pods = self.connect()

    def connect(self, uid: str = "u-1") -> WorkerPods:
        owner = Owner(uid, "10.0.0.1")
        return WorkerPods(self.api, JOB, owner, self.door, say=self.said.append, clock=lambda: self.now)

    async def look(self) -> list[str]:
        """Let the master look at what the API server has; returns the names of the pods after that."""
        wanted = {name: each["metadata"]["resourceVersion"] for name, each in self.server.objects["pods"].items()}

        async def has_seen() -> bool:
            seen = await self.pods._follower.read()
            return {name: each["metadata"]["resourceVersion"] for name, each in seen.items()} == wanted

        await wait_until(has_seen)
        await self.pods.look()
        return sorted(self.server.objects["pods"])

    async def change(self, name: str, phase: str, state: dict[str, Any], **more: Any) -> None:
        pod = self.server.objects["pods"][name]
        container = {"name": name, "state": state, "containerID": more.pop("container", f"c-{name}"), **more}
        # Some clusters put a container beside each; the kubelet sorts them by name.
        sidecar = {"name": "istio-proxy", "state": {"running": {}}, "containerID": "s"}
        status = {"phase": phase, "podIP": f"10.0.1.{pod['metadata']['labels']['elasticdl-replica-index']}"}
        pod["spec"]["nodeName"] = "node-1"
        await self.server.put("pods", {**pod, "status": {**status, "containerStatuses": [sidecar, container]}})

    async def let_run(self, *names: str, **more: Any) -> None:
        for name in names:
            await self.change(name, "Running", {"running": {}}, **more)


def read_has(bed: Bed, name: str, state: PilotState, **more: Any) -> bool:
    """Return whether the master would answer a pod with the address of this one if it were in another state."""
    pods = dict(bed.pods._pods)
    bed.pods._pods[name] = msgspec.structs.replace(pods[name], state=state, **more)
    try:
        return bed.pods.has(pods[name].address)
    finally:
        bed.pods._pods = pods


def run(folder: Path, play: Callable[[Bed], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def open_bed() -> AsyncIterator[Bed]:
        async with KubernetesServer() as server:
            bed = Bed(server, server.write_kubeconfig(folder / "kubeconfig"))
            await bed.door.open()
            try:
                yield bed
            finally:
                await bed.pods.close()
                await bed.api.close()
                await bed.door.close()

    async def act() -> None:
        async with asyncio.timeout(30), open_bed() as bed:
            await play(bed)

    asyncio.run(act())


def test_pods_are_created_used_when_they_run_and_replaced(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        assert await bed.look() == [FIRST, SECOND]
        assert bed.pods.usable == () and bed.pods.are_coming
        await bed.let_run(FIRST, SECOND)
        await bed.look()
        assert bed.pods.usable == (FIRST, SECOND)
        assert (bed.pods.address_of(f"{SECOND}/0"), bed.pods.address_of("other/0")) == ("10.0.1.1", None)
        assert [bed.pods.has(f"10.0.{last}") for last in ("0.1", "1.0", "1.1", "1.2")] == [True, True, True, False]
        # The network may give the address of a pod that has ended to another tenant's pod.
        assert not read_has(bed, FIRST, PilotState.GONE) and not read_has(bed, FIRST, ENDING, container="")
        assert read_has(bed, FIRST, ENDING)
        pod = bed.server.objects["pods"][FIRST]
        pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        await bed.server.put("pods", pod)
        assert await bed.look() == [FIRST, SECOND, THIRD], "at once, so that it can take the state over"
        assert bed.pods.usable == (SECOND,)
        assert bed.server.objects["pods"][THIRD]["metadata"]["annotations"] == {"legato/place": "0"}
        variables = bed.server.objects["pods"][THIRD]["spec"]["containers"][0]["env"]
        assert {"name": "RELAUNCHED_POD", "value": "true"} in variables
        await bed.server.remove("pods", FIRST)
        assert await bed.look() == [SECOND, THIRD]
        assert f"{FIRST} is gone" in bed.said

    run(tmp_path, play)


def test_the_name_of_another_masters_pod_costs_a_number_and_no_pause(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        about = {
            "name": FIRST,
            "labels": label(JOB, "worker", 0),
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"uid": "u-0"}],
        }
        await bed.server.put("pods", {"metadata": about})
        await bed.look()
        await bed.look()
        await bed.look()
        assert sorted(bed.server.objects["pods"]) == [FIRST, SECOND, THIRD]
        assert "does not create" not in str(bed.said)

    run(tmp_path, play)


def test_pods_whose_labels_are_changed_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(bed: Bed) -> None:
        create = bed.api.create

        async def change(kind: str, created: Mapping[str, Any]) -> dict[str, Any]:
            about = created["metadata"]
            return await create(kind, {**created, "metadata": {**about, "labels": about["labels"] | {"app": "mine"}}})

        monkeypatch.setattr(bed.api, "create", change)
        for bed.now in range(100):
            await bed.pods.look()
        assert sum(method == "POST" for method, _, _ in bed.server.bodies) == 10, "with pauses"
        assert bed.server.objects["pods"] == {}
        assert f"{FIRST} is deleted: something in the cluster, such as a webhook, has changed its labels" in str(
            bed.said
        )

    run(tmp_path, play)


def test_a_pod_that_got_no_order_is_replaced_and_deleted(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        await bed.look()
        await bed.let_run(FIRST, SECOND)
        await bed.look()
        ended = {"exitCode": 0, "containerID": "c", "message": NO_ORDER}
        await bed.change(FIRST, "Succeeded", {"terminated": ended})
        await bed.look()
        assert sorted(bed.server.objects["pods"]) == [FIRST, SECOND], "after a pause"
        assert "deletionTimestamp" in bed.server.objects["pods"][FIRST]["metadata"]
        bed.now = 5.0
        await bed.look()
        assert sorted(bed.server.objects["pods"]) == [FIRST, SECOND, THIRD]

    run(tmp_path, play)


def test_a_refused_pod_is_said_once_and_tried_again(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        bed.server.refusals["POST", "pods"] = (403, 'pods "x" is forbidden: exceeded quota: team')
        await bed.look()
        for bed.now in range(1, 100):
            await bed.look()
        assert sum(method == "POST" for method, _, _ in bed.server.bodies) == 10, "less and less often"
        assert bed.said == [f"Kubernetes does not create {FIRST}: exceeded quota: team"]
        bed.server.refusals.clear()
        bed.now = 1000.0
        await bed.look()
        assert sorted(bed.server.objects["pods"]) == [FIRST, SECOND], "no number was used up"

    run(tmp_path, play)


def test_an_error_of_legato_ends_neither_the_watch_nor_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pods, "_LOOK_EVERY_S", 0.001)

    async def play(bed: Bed) -> None:
        looks = iter([ValueError("a"), ValueError("a"), None])
        seen = asyncio.Event()

        async def look() -> None:
            error = next(looks, None)
            if error is not None:
                raise error
            seen.set()

        bed.pods.look = look  # type: ignore[method-assign]
        watching = asyncio.create_task(bed.pods.watch_forever())
        await seen.wait()
        watching.cancel()
        assert bed.said == ["Legato has an error and looks at the pods again: ValueError('a')"]

    run(tmp_path, play)


def test_the_end_of_a_container_is_certain_once(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        await bed.look()
        await bed.let_run(FIRST, SECOND)
        await bed.look()
        await bed.change(FIRST, "Failed", {"terminated": {"exitCode": 137, "containerID": "c-1", "reason": "Error"}})
        last = {"terminated": {"exitCode": 1, "containerID": "c-old"}}
        await bed.change(SECOND, "Running", {"running": {}}, container="c-new", lastState=last)
        bed.now = 7.0
        await bed.look()
        ended = bed.pods.take_ended()
        assert ended == {FIRST: PodEnd("exit code 137", 7.0), SECOND: PodEnd("its container has ended", 7.0)}
        bed.now = 8.0
        await bed.look()
        assert bed.pods.take_ended() == {}
        assert bed.pods.usable == (SECOND,), "the container was started again"

    run(tmp_path, play)


def test_a_job_without_pods_that_gets_none_any_more_is_over(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        await bed.look()
        ended = {"exitCode": 137, "reason": "OOMKilled", "containerID": "c"}
        await bed.change(FIRST, "Failed", {"terminated": ended})
        await bed.look()
        assert bed.pods.why_over is None
        await bed.change(SECOND, "Failed", {"terminated": ended})
        await bed.look()
        assert bed.pods.why_over is not None
        assert f"{FIRST}: OOMKilled" in bed.pods.why_over

    run(tmp_path, play)


def test_each_container_gets_the_order_by_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pods, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(worker_pods, "_ORDER_AGAIN_S", 0.01)
    taken: list[tuple[str, AgentOrder]] = []
    refused: list[str] = []
    bed_said: list[list[str]] = []

    async def take(pod: str, command: list[str], line: bytes) -> tuple[bytes, bool]:
        assert command == [*worker_pods.TAKE_ORDER, "--pod", pod]
        taken.append((pod, msgspec.json.decode(line, type=AgentOrder)))
        return b"No module named legato\n", len(taken) > 1

    async def play(bed: Bed) -> None:
        bed.server.run = take
        bed_said.append(bed.said)
        await bed.look()
        keeping = asyncio.create_task(bed.pods.keep(FIRST, "s3cret", refused.append))
        await bed.let_run(FIRST)
        await bed.look()
        await wait_until(lambda: has_taken(2))
        pod, order = taken[1]
        assert (pod, order.node, order.job, order.token, order.num_slots) == (FIRST, FIRST, "mnist", "s3cret", 1)
        assert (order.address, order.certificate) == ("10.0.1.0", bed.door.certificate)
        assert order.urls == (bed.door.url("/agent"),)
        await bed.let_run(FIRST, container="c-2")
        await bed.look()
        await wait_until(lambda: has_taken(3))
        keeping.cancel()
        bed.server.refusals["GET", "pods/exec"] = (403, "no")
        await bed.let_run(SECOND)
        await bed.look()
        keeping = asyncio.create_task(bed.pods.keep(SECOND, "s3cret", refused.append))
        await wait_until(has_said)
        assert refused == [], "it may pass"
        bed.now = 60.0
        await wait_until(has_refused)
        bed.now = 600.0
        del bed.server.refusals["GET", "pods/exec"]
        await wait_until(lambda: has_taken(4))
        keeping.cancel()
        assert sum("pods/exec" in told for told in bed.said) == 1
        assert "cannot be given the job: the command failed: No module named legato" in str(bed.said)
        assert "s3cret" not in str(bed.server.objects) + str(bed.said)

    async def has_said() -> bool:
        return "pods/exec" in str(bed_said)

    async def has_refused() -> bool:
        return bool(refused)

    async def has_taken(number: int) -> bool:
        return len(taken) == number

    run(tmp_path, play)
    (told,) = refused
    assert 'this account cannot create and get resource "pods/exec"' in told


def test_a_master_that_starts_again_finds_its_pods_and_uses_no_number_twice(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        await bed.look()
        await bed.let_run(FIRST, SECOND)
        await bed.server.remove("pods", FIRST)
        await bed.pods.close()
        bed.pods = bed.connect()
        assert [pod.name for pod in await bed.pods.find([FIRST, "mnist-edljob-worker-7", "another"])] == [SECOND]
        await bed.look()
        assert sorted(bed.server.objects["pods"]) == [SECOND, "mnist-edljob-worker-8"]
        await bed.pods.close()
        bed.pods = bed.connect(uid="u-2")
        assert await bed.pods.find([]) == [], "pods of a deleted master are not this one's"

    run(tmp_path, play)


def test_pods_without_a_part_in_the_job_go_at_its_end(tmp_path: Path) -> None:
    async def play(bed: Bed) -> None:
        await bed.look()
        await bed.change(FIRST, "Succeeded", {"terminated": {"exitCode": 0, "containerID": "c"}})
        await bed.look()
        await bed.pods.finish()
        assert sorted(bed.server.objects["pods"]) == [FIRST]
        assert "deletionTimestamp" not in bed.server.objects["pods"][FIRST]["metadata"], "it shows how it ended"

    run(tmp_path, play)
