"""The server's loop over a cluster: what it asks for, lets go and forgets; the store is real, the cluster is not."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contract.clusters.test_slurm import SlurmBed
from tests.unit.control.loop.test_rounds import make_running
from tests.unit.server.platform import Platform
from tests.unit.server.test_agents import REPORT, find_node, join, report

from legato.clusters.demand import PilotShape
from legato.clusters.fake import FakeCluster, FakeEngine
from legato.clusters.pilots import CLUSTER_LABEL, Cluster, PilotRules, PilotState, Submitted
from legato.control.records import AGENT_SILENT_S
from legato.control.stages import Stage
from legato.core.errors import StoreError
from legato.policy.snapshot import TEST_LABEL, JobDemand, Node, Slot, Snapshot
from legato.server.explaining import could_use_more
from legato.server.machine import Declaration
from legato.server.pilots import PilotPool

URL = "http://head:8765"


class World:
    """A platform, its cluster, and the server's loop over it. A round takes no time unless a test says so."""

    def __init__(self, platform: Platform, **rules: Any) -> None:
        self.platform = platform
        self.engine = FakeEngine()
        self.rules = PilotRules(**{"max_pilots": 4, "idle_s": 100, **rules})
        self.want = 0
        self.shape = PilotShape(num_slots=2, has_gpus=False, labels={CLUSTER_LABEL: "fake"})
        self.kind: str | None = None
        self.refusals: dict[str, str] = {}
        self.gpu_type: str | None = None
        self.has_type = "NVIDIA A100"
        self.leads = True
        self.secrets: dict[str, str] = {}
        self.declared = Declaration(platform.store, "node", ())
        self.restart()

    def restart(self, cluster: Cluster | None = None) -> None:
        """Let another process of the server lead. ``cluster``: None: the fake one."""
        self.loop = PilotPool(
            FakeCluster(self.engine) if cluster is None else cluster,
            self.rules,
            self.shape,
            self.platform.store,
            read_snapshot=self.take_snapshot,
            leads=lambda: self.leads,
            url=URL,
            token_suffix=".plain",
            now=lambda: self.platform.now,
        )

    def take_snapshot(self) -> Snapshot:
        job = JobDemand(
            id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=self.want, machine_kind=self.kind,
            refusals=self.refusals, gpu_type=self.gpu_type,
        )  # fmt: skip
        nodes = self.platform.store.pool.list_nodes()
        slots = self.platform.store.pool.list_slots()
        gpu = {} if self.gpu_type is None else {"gpu_type": self.has_type}
        return Snapshot(
            now=self.platform.now,
            slots=tuple(
                Slot(id=s.id, node=s.node, device="cpu", usable=s.unusable_since is None, **gpu) for s in slots
            ),
            jobs=(job,) if self.want else (),
            nodes=tuple(Node(name=n.name, kind=n.kind or "", labels=n.labels or {}) for n in nodes),
        )

    def round(self, after_s: float = 5.0) -> None:
        self.platform.now += after_s
        asyncio.run(self.loop.round())
        lease = self.platform.store.loop.take_lease("declaring", self.platform.now, 10.0)
        assert lease is not None
        self.declared.refresh(lease, self.platform.now)
        self.platform.store.loop.end_lease(self.platform.now)

    def alive(self) -> dict[str, str]:
        """Node → id of each pilot that has not ended."""
        return {p.node: p.id for p in self.engine.pilots.values() if p.state is not PilotState.GONE}

    def let_join(self, node: str, ends_at: float | None = None) -> Any:
        """Give a pilot a machine, whose agent joins and reports."""
        number = self.alive()[node]
        self.engine.set(number, PilotState.RUNNING, ends_at=ends_at)
        token = self.engine.orders[number].token.partition(".")[0]
        joined = join(self.platform, token, node=node, identity=f"agent {number}")
        assert joined.status_code == 200, joined.text
        self.secrets[node] = joined.json()["secret"]
        return self.beat(node)

    def beat(self, node: str, **more: Any) -> Any:
        answer = report(self.platform, self.secrets[node], labels={}, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, node: str, reason: str | None = None) -> None:
        self.engine.set(self.alive()[node], PilotState.GONE, reason=reason)

    def nodes(self) -> dict[str, Any]:
        return {one["name"]: one for one in self.platform.get("nodes")["items"] if one["name"] != "node"}

    def cluster(self) -> Any:
        (found,) = self.platform.get("clusters")["items"]
        return found


@pytest.fixture
def world(platform: Platform) -> World:
    return World(platform)


def test_demand_starts_pilots_which_join_with_their_own_token_and_have_a_label(world: World) -> None:
    world.round()
    assert world.alive() == {}
    world.want = 3
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2"}
    assert {order.url for order in world.engine.orders.values()} == {URL}
    assert world.let_join("fake-1")["leave"] is False
    world.round()
    assert world.nodes()["fake-1"]["labels"] == {CLUSTER_LABEL: "fake"}
    world.round()
    assert len(world.engine.pilots) == 2


def test_a_token_of_a_pilot_is_of_one_machine_and_one_agent(world: World) -> None:
    world.want = 1
    world.round()
    token = world.engine.orders["1"].token.partition(".")[0]
    assert join(world.platform, token, node="other", identity="thief").status_code == 401
    world.let_join("fake-1")
    # Its own agent may repeat the request, whose answer was lost; another one may not.
    assert join(world.platform, token, node="fake-1", identity="agent 1").status_code == 200
    assert join(world.platform, token, node="fake-1", identity="thief").status_code == 401
    assert world.platform.get("join-tokens", who="admin")["items"] == []


def test_an_idle_pilot_is_drained_its_agent_leaves_and_its_machine_is_forgotten(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.want = 0
    for _ in range(6):
        world.round(30)
        told = world.beat("fake-1")
    assert told["leave"] is True
    assert find_node(world.platform, "fake-1")["agent"]["drain_reason"] == "it is idle"
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    assert world.nodes() == {}
    assert world.platform.store.pilots.list() == ()
    world.round()
    assert world.nodes() == {}
    # Its name is free again.
    world.want = 2
    world.round()
    assert set(world.alive()) == {"fake-1"}


def test_pilots_survive_the_restart_of_the_server(world: World) -> None:
    world.want = 4
    world.round()
    world.let_join("fake-1")
    world.restart()
    world.round()
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2"}
    assert len(world.engine.pilots) == 2


def test_the_kind_of_machines_is_known_when_none_is_left(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.round()
    world.want = 0
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    assert world.nodes() == {}
    world.restart()
    world.want, world.kind = 2, "another kind/cpu"
    world.round()
    assert world.alive() == {}
    world.kind = f"{REPORT['kind']}/cpu"
    world.round()
    assert set(world.alive()) == {"fake-1"}


def test_a_job_whose_type_of_gpu_the_machines_do_not_have_brings_none_and_the_server_says_why(world: World) -> None:
    world.shape = msgspec.structs.replace(world.shape, has_gpus=True)
    world.restart()
    world.want, world.gpu_type = 2, "a100"
    world.round()
    world.let_join("fake-1")
    world.round()
    world.round()
    world.gpu_type = "h100"
    world.round()
    told = (
        "Job j asks for GPU type h100, and the machines of Fake have NVIDIA A100: none is asked for it. A section of "
        "the settings gives one kind of machines; if it gives another one by now, 'legato clusters test fake' finds out"
    )
    assert world.cluster()["trouble"] == told
    assert set(world.alive()) == {"fake-1"}
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    world.round(100)
    assert world.alive() == {} and world.cluster()["trouble"] == told
    # The settings give other machines by now, and the machine of a test shows that.
    slots = (Slot(id="fake-test/0", node="fake-test", device="GPU-1", gpu_type="NVIDIA H100"),)
    labels = {CLUSTER_LABEL: "fake", TEST_LABEL: "fake"}
    snapshot = msgspec.structs.replace(
        world.take_snapshot(), slots=slots, nodes=(Node(name="fake-test", kind="k", labels=labels),)
    )
    world.loop._read_snapshot = lambda: snapshot
    world.round()
    assert len(world.alive()) == 1 and world.cluster()["trouble"] is None


def test_a_pilot_runs_when_its_agent_has_joined_also_if_the_cluster_shows_that_later(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.engine.set(world.alive()["fake-1"], PilotState.WAITING, reason="Priority")
    world.round()
    (pilot,) = world.cluster()["pilots"]
    assert (pilot["state"], pilot["reason"]) == ("running", None)


def test_a_server_that_does_not_lead_does_nothing(world: World) -> None:
    world.want, world.leads = 4, False
    world.round()
    assert (world.engine.num_observed, world.engine.pilots) == (0, {})


def test_a_cluster_that_does_not_answer_changes_nothing_and_is_reported(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.engine.is_away = True
    world.want = 0
    for _ in range(8):
        world.round(25)
        assert world.beat("fake-1")["leave"] is False
    assert set(world.nodes()) == {"fake-1"}
    assert "the fake cluster is away" in world.cluster()["trouble"]
    world.engine.is_away = False
    world.round()
    assert world.cluster()["trouble"] is None
    assert world.beat("fake-1")["leave"] is True


def test_refused_pilots_are_asked_for_less_and_less_often_and_the_words_are_shown(world: World) -> None:
    tries: list[float] = []
    world.engine.refusal = "Invalid account"
    begun = FakeCluster.start

    async def start(cluster: FakeCluster, orders: Any) -> Any:
        tries.append(world.platform.now)
        return await begun(cluster, orders)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCluster, "start", start)
        world.want = 2
        for _ in range(30):
            world.round(10)
        pauses = [round(later - earlier) for earlier, later in zip(tries, tries[1:], strict=False)]
        assert pauses == [30, 60, 120]
        assert world.cluster()["trouble"] == "Fake refuses new machines: Invalid account"
        assert world.platform.store.pilots.list() == ()
        world.engine.refusal = None
        for _ in range(10):
            world.round(30)
    assert set(world.alive()) == {"fake-1"}
    assert world.cluster()["trouble"] is None


def test_pilots_that_end_before_their_agents_join_are_not_started_again_at_once(world: World) -> None:
    world.want = 2
    world.round()
    for _ in range(30):
        for node in world.alive():
            world.end(node, "FAILED")
        world.round(10)
    assert 3 <= len(world.engine.pilots) <= 5
    assert "before its agent joined the pool: FAILED" in world.cluster()["trouble"]


def test_a_pilot_that_works_does_not_hide_those_that_do_not(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.want = 4
    for _ in range(20):
        world.round(10)
        world.beat("fake-1")
        if "fake-2" in world.alive():
            world.end("fake-2", "FAILED")
    assert len(world.engine.pilots) <= 6
    assert "before its agent joined the pool: FAILED" in world.cluster()["trouble"]


def test_a_waiting_pilot_that_is_not_needed_is_cancelled_after_a_while_and_counts_as_no_failure(world: World) -> None:
    world.want = 2
    world.round()
    world.want = 0
    world.round(30)
    assert world.engine.ended == []
    world.round(40)
    assert world.engine.ended == [("1", True)]
    world.round()
    assert world.platform.store.pilots.list() == ()
    assert world.cluster()["trouble"] is None


def test_a_pilot_counts_before_the_cluster_shows_it_also_if_its_answer_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "observe_every_s", 60.0)
    world.round()
    begun = FakeCluster.start

    async def start(cluster: FakeCluster, orders: Any) -> Any:
        done = await begun(cluster, orders)
        return [msgspec.structs.replace(one, pilot=None) for one in done]

    monkeypatch.setattr(FakeCluster, "start", start)
    world.want = 4
    for _ in range(20):
        world.round()
    assert set(world.alive()) == {"fake-1", "fake-2"}
    assert [one.node for one in world.platform.store.pilots.list()] == ["fake-1", "fake-2"]


def test_orders_that_the_cluster_has_not_tried_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = FakeCluster.start
    monkeypatch.setattr(FakeCluster, "start", lambda cluster, orders: begun(cluster, orders[:1]))
    world.want = 4
    world.round()
    assert set(world.alive()) == {one.node for one in world.platform.store.pilots.list()} == {"fake-1"}
    assert world.cluster()["trouble"] is None


def test_a_store_that_fails_after_a_start_leads_to_no_further_pilots(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "observe_every_s", 1000.0)
    begun = FakeCluster.start

    async def start(cluster: FakeCluster, orders: Any) -> Any:
        done = await begun(cluster, orders[:1])
        return [*done, *(Submitted(node=order.node, refusal="no") for order in orders[1:])]

    def fail(*_: Any) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(FakeCluster, "start", start)
    world.want = 4
    with monkeypatch.context() as patch:
        patch.setattr(world.platform.store.pilots, "forget", fail)
        world.round()
    monkeypatch.setattr(FakeCluster, "start", begun)
    for _ in range(10):
        world.round(30)
    assert len(world.engine.pilots) == 2


@pytest.mark.parametrize("want", [0, 4])
def test_a_server_that_no_longer_leads_neither_starts_nor_ends_pilots(
    world: World, monkeypatch: pytest.MonkeyPatch, want: int
) -> None:
    """An observation may take a minute, in which another server takes the lease."""
    asyncio.run(FakeCluster(world.engine).start([_order("fake-9")]))  # would be ended as a stray
    begun = FakeCluster.observe

    async def observe(cluster: FakeCluster) -> Any:
        world.leads = False
        return await begun(cluster)

    monkeypatch.setattr(FakeCluster, "observe", observe)
    world.want = want
    world.round()
    assert (len(world.engine.pilots), world.engine.ended) == (1, [])
    assert world.platform.store.pilots.list() == ()


def test_a_pilot_that_was_refused_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "observe_every_s", 1000.0)
    world.engine.refusal, world.want = "Invalid account", 2
    world.round()
    world.engine.refusal = None
    world.round(40)
    assert set(world.alive()) == {"fake-1"}


def test_a_refusal_is_shown_only_while_something_is_missing(world: World) -> None:
    world.engine.refusal, world.want = "Invalid account", 2
    world.round()
    assert world.cluster()["trouble"] is not None
    world.want = 0
    for _ in range(8):
        world.round(10)
    assert world.cluster()["trouble"] is None


def test_a_failure_is_shown_only_while_something_is_missing(world: World) -> None:
    world.want = 2
    world.round()
    world.end("fake-1", "FAILED")
    world.round()
    assert "FAILED" in world.cluster()["trouble"]
    world.want = 0
    for _ in range(8):
        world.round(10)
    assert world.cluster()["trouble"] is None


def test_a_pilot_that_the_cluster_never_had_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to its submission was lost, and the submission too."""

    async def start(_: FakeCluster, orders: Any) -> Any:
        return [Submitted(node=order.node) for order in orders]

    world.want = 2
    with monkeypatch.context() as patch:
        patch.setattr(FakeCluster, "start", start)
        world.round()
        assert [one.node for one in world.platform.store.pilots.list()] == ["fake-1"]
    world.round()
    assert world.cluster()["trouble"] is None
    assert len(world.alive()) == 1


def test_a_job_that_pilots_have_refused_brings_no_further_pilots_for_an_hour(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.refusals = {"fake-1": "its directory is missing"}
    world.round()
    told = "Machines of Fake have refused job j: 'legato explain j' says why."
    assert told in world.cluster()["trouble"]
    # The pilot is given back, and the control loop forgets what a machine that is gone has refused.
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    assert world.nodes() == {}
    world.refusals = {}
    for _ in range(14):
        world.round(250)
        assert world.alive() == {}
        assert told in world.cluster()["trouble"]
    for _ in range(2):
        world.round(100)
    assert len(world.alive()) == 1
    assert world.cluster()["trouble"] is None


def test_a_clock_that_jumps_ends_no_pilots(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.want = 0
    for _ in range(2):
        world.round(600)
        assert world.beat("fake-1")["leave"] is False
        world.round()
        assert world.beat("fake-1")["leave"] is False
    assert world.engine.ended == []
    for _ in range(5):
        world.round(40)
        told = world.beat("fake-1")
    assert told["leave"] is True


def test_a_pilot_whose_agent_never_joins_is_ended(world: World) -> None:
    world.want = 2
    world.round()
    world.engine.set(world.alive()["fake-1"], PilotState.RUNNING)
    for _ in range(22):
        world.round(30)
    assert world.engine.ended == [("1", True)]
    assert "before its agent joined" in world.cluster()["trouble"]


def test_a_machine_whose_pilot_has_ended_is_not_used_and_forgotten_when_its_agent_is_silent(world: World) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.round()
    world.end("fake-1", "NODE_FAIL")
    world.round()
    node = world.nodes()["fake-1"]
    assert node["num_usable"] == 0
    assert node["agent"]["drain_reason"] == "its machine was taken back: NODE_FAIL"
    assert set(world.alive()) == {"fake-2"}
    for _ in range(int(AGENT_SILENT_S / 5) + 2):
        world.round()
    assert world.nodes() == {}


def test_pilots_that_the_store_does_not_know_are_ended(world: World) -> None:
    stray = asyncio.run(FakeCluster(world.engine).start([_order("fake-9")]))
    assert stray[0].pilot is not None
    world.round()
    assert world.engine.ended == [(stray[0].pilot.id, True)]


def test_the_words_of_the_cluster_are_in_the_explanation_of_a_waiting_job(world: World) -> None:
    job = world.platform.submit()
    world.want = 4
    world.round()
    world.round()
    told = world.platform.get(f"jobs/{job}/explain")["sentences"]
    assert "2 machines wait in the queue of Fake: Resources." in told
    world.engine.is_away = True
    world.round()
    told = world.platform.get(f"jobs/{job}/explain")["sentences"]
    assert any("the fake cluster is away" in sentence for sentence in told)


def test_the_report_of_an_agent_cannot_claim_the_label(world: World) -> None:
    assert REPORT["labels"] == {"site": "x"}
    world.want = 1
    world.round()
    world.let_join("fake-1")
    answer = report(world.platform, world.secrets["fake-1"], labels={CLUSTER_LABEL: "slurm"})
    assert answer.status_code in (400, 422)


def _order(node: str) -> Any:
    from legato.clusters.pilots import PilotOrder

    return PilotOrder(node=node, url=URL, token="lgj_x")


def test_slurm_is_asked_by_one_squeue_in_30_s_at_most_whatever_happens(world: World, tmp_path: Path) -> None:
    bed = SlurmBed(tmp_path)
    world.restart(bed.make())
    asked: list[float] = []

    def pass_rounds(number: int) -> None:
        for _ in range(number):
            before = len(bed.calls("squeue"))
            world.round(5.0)
            calls = bed.calls("squeue")[before:]
            asked.extend(world.platform.now for _ in calls)

    pass_rounds(8)
    world.want = 5
    pass_rounds(8)  # pilots are submitted, and wait
    assert len(bed.read()["jobs"]) == 3
    for number in bed.read()["jobs"]:
        bed.set(number, state="FAILED")
    bed.change(refusal="Invalid account")
    pass_rounds(8)
    bed.change(refusal=None, away=True)
    pass_rounds(8)
    bed.change(away=False)
    world.want = 0
    pass_rounds(8)
    assert {round(after - before) for before, after in itertools.pairwise(asked)} == {30}


def test_a_job_that_runs_with_fewer_slots_than_it_could_have_shows_what_the_cluster_says() -> None:
    job = msgspec.structs.replace(make_running(2, "said"), max_workers=4, num_slots=2)
    assert could_use_more(job) and not could_use_more(msgspec.structs.replace(job, num_slots=4))
    assert not could_use_more(msgspec.structs.replace(job, stage=Stage.PAUSED))
    assert could_use_more(msgspec.structs.replace(job, stage=Stage.QUEUED, num_slots=0))
