"""Pilots of several users: who gets machines, whose failures pause whom, and what happens to who may have none."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.unit.server.platform import ADMIN, JOB, Platform
from tests.unit.server.test_cluster_tests import NODE, TestedWorld
from tests.unit.server.test_pilots import URL, World

from legato.clusters.demand import PilotShape
from legato.clusters.fake import FakeCluster
from legato.clusters.pilots import CLUSTER_LABEL, ClusterAwayError, PilotOrder, PilotState
from legato.control.settings import Settings
from legato.core.errors import NoSystemUser, StoreError, UsageError
from legato.core.job_user import JobUser
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Snapshot
from legato.server import pilot_owners
from legato.server.clusters import find_pilot_user
from legato.server.pilots import PilotPool


class OwnersWorld(TestedWorld):
    """A world whose users have jobs and pilots of their own."""

    def __init__(self, platform: Platform, **rules: Any) -> None:
        self.jobs: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.least: dict[str, int] = {}
        self.uids = {"ann": 1001, "ben": 1002, "admin": 1003}
        super().__init__(platform, **{"max_of_owner": 4, **rules})

    def restart(self, cluster: Any = None) -> None:
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
            find_user=self.find_user,
        )

    def find_user(self, name: str) -> JobUser:
        if name in self.reasons:
            raise UsageError(f"Cannot ask for machines for '{name}': {self.reasons[name]}.")
        if name not in self.uids:
            raise NoSystemUser(f"Cannot ask for machines for '{name}': no account.")
        uid = self.uids[name]
        return JobUser(uid=uid, gid=uid, name=f"system-{name}", home=f"/home/{name}")

    def take_snapshot(self) -> Snapshot:
        jobs = [
            JobDemand(
                id=f"j-{owner}",
                name="n",
                owner=owner,
                queue="q",
                submitted_at=number,
                max_workers=most,
                min_workers=self.least.get(owner, 1),
            )
            for number, (owner, most) in enumerate(self.jobs.items())
        ]
        seen = super().take_snapshot()
        return msgspec.structs.replace(seen, jobs=(*seen.jobs, *jobs))

    def uids_of(self) -> dict[str, int | None]:
        return {p.node: p.uid for p in self.engine.pilots.values() if p.state is not PilotState.GONE}

    def owners(self, who: str = "admin") -> dict[str, Any]:
        (found,) = self.platform.get("clusters", who=who)["items"]
        return {one["name"]: one for one in found["owners"]}


@pytest.fixture
def world(platform: Platform) -> OwnersWorld:
    return OwnersWorld(platform)


def test_each_user_gets_pilots_as_the_own_system_user_and_their_machines_name_the_user(world: OwnersWorld) -> None:
    world.jobs = {"ann": 4, "ben": 2}
    world.round()
    assert world.uids_of() == {"fake-ann-1": 1001, "fake-ann-2": 1001, "fake-ben-1": 1002}
    assert {order.user.name for order in world.engine.orders.values() if order.user} == {"system-ann", "system-ben"}
    world.let_join("fake-ann-1")
    world.round()
    assert world.nodes()["fake-ann-1"]["labels"] == {CLUSTER_LABEL: "fake", OWNER_LABEL: "ann"}
    (seen,) = world.platform.get("clusters", who="admin")["items"]
    assert {one["node"]: one["owner"] for one in seen["pilots"]} == {
        "fake-ann-1": "ann",
        "fake-ann-2": "ann",
        "fake-ben-1": "ben",
    }
    assert {name: (one["system_user"], one["target"]) for name, one in world.owners().items()} == {
        "ann": ("system-ann", 2),
        "ben": ("system-ben", 1),
    }
    # Users see their own troubles only.
    assert set(world.owners("ann")) == {"ann"}


def test_a_new_server_finds_the_pilots_of_each_user(world: OwnersWorld) -> None:
    world.jobs = {"ann": 2, "ben": 2}
    world.round()
    before = world.alive()
    world.restart()
    world.round()
    world.round()
    assert world.alive() == before
    assert world.engine.ended == []


def test_a_refusal_or_failure_pauses_the_pool_of_one_user_only(world: OwnersWorld) -> None:
    world.engine.refusals[1001] = "Invalid account"
    world.jobs = {"ann": 4, "ben": 2}
    world.round()
    assert world.uids_of() == {"fake-ben-1": 1002}
    assert (world.owners()["ann"]["state"], world.owners()["ben"]["state"]) == ("paused", "ok")
    assert world.owners()["ann"]["trouble"] == "Fake refuses new machines: Invalid account"
    assert world.cluster()["trouble"] is None
    world.end("fake-ben-1", "FAILED")
    del world.engine.refusals[1001]
    world.round()
    assert world.owners()["ben"]["trouble"].startswith("Fake has ended a machine before its agent joined the pool")
    world.round(pilot_owners.FIRST_PAUSE_S)
    assert {"fake-ann-1", "fake-ann-2"} <= world.uids_of().keys()
    assert world.owners()["ann"]["trouble"] is None


def test_the_log_names_the_users_of_pilots(world: OwnersWorld) -> None:
    world.engine.refusals[1002] = "Invalid account"
    world.jobs = {"ann": 2, "ben": 2}
    stranger = JobUser(uid=4242, gid=1, name="x", home="/")
    world.engine.submit("pool", PilotOrder(node="fake-ann-1", url=URL, token="t", user=stranger))
    with capture_logs() as logs:
        world.round()
        world.engine.set(world.alive()["fake-ann-1"], PilotState.WAITING, reason="Resources")
        world.jobs = {}
        world.round(pilot_owners.SETTLE_S + 5)
        world.round(pilot_owners.SETTLE_S + 5)
    told = [(one["event"], one.get("user"), one.get("node"), one.get("pilot")) for one in logs]
    assert told == [
        ("a pilot is ended", None, "fake-ann-1", "1"),  # a job of another user with the name of a pilot
        ("a pilot was asked for", "ann", "fake-ann-1", "2"),
        ("no new pilots for a while", "ben", None, None),
        ("a pilot is ended", "ann", "fake-ann-1", "2"),
    ]


def test_users_are_named_to_people_and_not_in_metrics(world: OwnersWorld, platform: Platform) -> None:
    world.engine.refusals[1002] = "Invalid account"
    world.jobs = {"ann": 4, "ben": 2, "admin": 2}
    world.round()
    (found,) = platform.store.pilots.read_states(platform.now)
    assert found.describe() == (
        "3 machines wait in the queue of Fake: Resources.",
        "By user: admin 1, ann 2.",
        "User ben: Fake refuses new machines: Invalid account.",
    )
    assert found.only_of("ann").describe() == (
        "2 machines wait in the queue of Fake: Resources.",
        "1 machine of Fake belongs to other users.",
    )
    told = platform.ask("GET", "/metrics", who=None).text
    assert 'legato_cluster_machines{cluster="fake",state="waiting"} 3.0' in told
    assert 'legato_cluster_users{cluster="fake",state="paused"} 1.0' in told
    assert "ben" not in told
    # 'legato explain' names the troubles of the job's owner only.
    for who, is_told in (("ann", False), ("ben", True)):
        job = platform.ask("POST", "jobs", JOB, who=who).json()["id"]
        sentences = " ".join(platform.get(f"jobs/{job}/explain", who=who)["sentences"])
        assert ("User ben: Fake refuses new machines: Invalid account." in sentences) is is_told


def test_others_have_what_a_user_does_not_get_after_a_refusal(platform: Platform) -> None:
    world = OwnersWorld(platform, max_pilots=2, max_of_owner=2)
    world.engine.refusals[1001] = "QOSMaxGRESPerUser"
    world.jobs = {"ann": 4, "ben": 4}
    world.round()
    world.round()
    assert world.uids_of() == {"fake-ben-1": 1002, "fake-ben-2": 1002}


def test_pilots_of_users_that_are_left_from_other_settings_do_not_stop_the_loop(
    world: OwnersWorld, platform: Platform
) -> None:
    world.jobs = {"ann": 2}
    world.round()
    world.let_join("fake-ann-1")
    plain = World(platform)
    plain.want = 2
    plain.round()
    plain.round()
    assert len(plain.alive()) == 1
    assert platform.store.agents.list()[0].drained_at is not None


def test_a_command_that_a_user_stops_is_not_tried_in_each_round(world: OwnersWorld, platform: Platform) -> None:
    class Silent(FakeCluster):
        tries: list[str]

        async def start(self, orders: Any) -> Any:
            self.tries += [order.node for order in orders]
            done = await super().start(orders)
            return [msgspec.structs.replace(one, pilot=None) for one in done if "ann" in one.node] or done

    cluster = Silent(world.engine)
    cluster.tries = []
    world.restart(cluster)
    world.jobs = {"ann": 2, "ben": 2}
    world.round()
    for pilot in list(world.engine.pilots.values()):
        if pilot.uid == 1001:
            world.engine.set(pilot.id, PilotState.GONE)
    for _ in range(4):
        world.round()
    assert cluster.tries.count("fake-ann-1") == 1
    assert "fake-ben-1" in world.alive()


@pytest.mark.parametrize("error", [ClusterAwayError("Slurm takes no jobs."), RuntimeError("a fault")])
def test_what_fails_for_one_user_starts_no_fewer_pilots_of_others(world: OwnersWorld, error: Exception) -> None:
    class Failing(FakeCluster):
        async def start(self, orders: Any) -> Any:
            if orders[0].user.uid == 1001:
                raise error
            return await super().start(orders)

    world.restart(Failing(world.engine))
    world.jobs = {"ann": 2, "ben": 2}
    world.round()
    assert set(world.alive()) == {"fake-ben-1"}
    (seen,) = world.platform.get("clusters", who="admin")["items"]
    assert {one["node"] for one in seen["pilots"]} == {"fake-ben-1"}


def test_the_orders_of_all_users_run_at_once(world: OwnersWorld) -> None:
    barrier = asyncio.Barrier(3)

    class Slow(FakeCluster):
        async def start(self, orders: Any) -> Any:
            async with asyncio.timeout(30):
                await barrier.wait()
            return await super().start(orders)

    world.restart(Slow(world.engine))
    world.jobs = {"ann": 2, "ben": 2, "admin": 2}
    world.round()
    assert len(world.alive()) == 3


@pytest.mark.parametrize("change", ["disabled", "another account"])
def test_pilots_of_a_user_who_is_gone_are_emptied_and_ended_and_others_stay(world: OwnersWorld, change: str) -> None:
    world.jobs = {"ann": 4, "ben": 2}
    world.round()
    world.let_join("fake-ann-1")
    world.let_join("fake-ben-1")
    world.round()
    if change == "disabled":
        world.reasons["ann"] = "disabled"
    else:
        world.uids["ann"] = 1009
    world.round(60.0)
    assert world.beat("fake-ann-1")["leave"] is True
    assert world.beat("fake-ben-1")["leave"] is False
    assert [world.engine.pilots[number].node for number, _ in world.engine.ended] == ["fake-ann-2"]
    world.beat("fake-ann-1", leaving=True)
    world.end("fake-ann-1")
    world.round()
    world.round()
    assert sorted(filter(None, world.uids_of().values())) == ([1002] if change == "disabled" else [1002, 1009, 1009])
    trouble = world.owners()["ann"]["trouble"]
    assert trouble == ("Cannot ask for machines for 'ann': disabled." if change == "disabled" else None)


@pytest.mark.parametrize("restarts", [False, True])
def test_users_whose_directory_does_not_answer_for_a_while_keep_their_pilots_and_get_no_new_ones(
    world: OwnersWorld, restarts: bool
) -> None:
    world.jobs = {"ann": 4, "ben": 2}
    world.round()
    world.let_join("fake-ann-1")
    world.round()
    del world.uids["ann"]
    world.jobs["ann"] = 8
    if restarts:
        world.restart()
    for _ in range(4):
        world.round(100.0)
        assert world.beat("fake-ann-1")["leave"] is False
    assert world.engine.ended == []
    assert set(world.alive()) == {"fake-ann-1", "fake-ann-2", "fake-ben-1"}
    assert world.owners()["ann"]["state"] == "paused"
    assert world.owners()["ann"]["trouble"] == "Cannot ask for machines for 'ann': no account."
    world.uids["ann"] = 1001
    world.round(100.0)
    assert "fake-ann-3" in world.alive()
    assert world.owners()["ann"]["state"] == "ok"


def test_pilots_of_a_user_whose_system_user_is_not_found_for_long_are_given_up(world: OwnersWorld) -> None:
    world.jobs = {"ann": 4}
    world.round()
    world.let_join("fake-ann-1")
    world.round()
    del world.uids["ann"]
    for _ in range(8):
        world.round(100.0)
        told = world.beat("fake-ann-1")["leave"]
    assert told is True
    assert [world.engine.pilots[number].node for number, _ in world.engine.ended] == ["fake-ann-2"]


def test_a_store_that_fails_while_users_are_looked_up_changes_nothing(world: OwnersWorld) -> None:
    world.jobs = {"ann": 4}
    world.round()
    before, find_user = world.alive(), world.find_user

    def fail(name: str) -> JobUser:
        raise StoreError("the disk is full")

    world.loop._owners._find_user = fail
    with pytest.raises(StoreError):
        world.round(100.0)
    world.loop._owners._find_user = find_user
    world.round()
    assert (world.alive(), world.engine.ended) == (before, [])


def test_a_job_with_the_name_of_a_pilot_of_another_user_is_no_pilot_and_is_ended(world: OwnersWorld) -> None:
    world.jobs = {"ann": 2}
    world.round()
    real = world.alive()["fake-ann-1"]
    world.engine.set(real, PilotState.RUNNING)
    for node, uid in (("fake-ann-1", 1002), ("fake-ann-7", 4242)):
        user = JobUser(uid=uid, gid=uid, name="x", home="/")
        world.engine.submit("pool", PilotOrder(node=node, url=URL, token="t", user=user))
    world.engine.set("2", PilotState.GONE, reason="FAILED")  # hides nothing
    world.round()
    world.round()
    assert [one.node for one in world.platform.store.pilots.list()] == ["fake-ann-1"]
    assert world.owners()["ann"]["trouble"] is None
    assert world.engine.ended == [("3", True)]
    assert world.engine.pilots[real].state is PilotState.RUNNING
    assert [one["id"] for one in world.cluster()["pilots"]] == [real]


def test_a_job_with_the_name_of_a_pilot_hides_no_failure_of_it(world: OwnersWorld) -> None:
    world.jobs = {"ann": 2}
    world.round()
    user = JobUser(uid=4242, gid=4242, name="x", home="/")
    world.engine.submit("pool", PilotOrder(node="fake-ann-1", url=URL, token="t", user=user))
    world.round()
    assert world.engine.ended == [("2", True)]
    world.engine.set("1", PilotState.GONE, reason="FAILED")
    world.round()
    assert world.owners()["ann"]["trouble"].startswith("Fake has ended a machine before its agent joined the pool")


def test_a_user_who_gives_the_number_of_another_pilot_hinders_no_end_of_that(world: OwnersWorld) -> None:
    world.jobs = {"ann": 2, "ben": 2}
    world.round()
    numbers = {node: number for number, node in ((p.id, p.node) for p in world.engine.pilots.values())}
    ben = world.engine.pilots[numbers["fake-ben-1"]]
    mine = world.engine.pilots.pop(numbers["fake-ann-1"])
    world.engine.pilots["forged"] = msgspec.structs.replace(mine, id=ben.id)
    world.engine.pools["forged"] = "pool"
    world.reasons = {"ann": "no account", "ben": "no account"}
    world.round(60.0)
    world.round()
    assert world.engine.ended.count((ben.id, True)) == 2  # that of each user


def test_jobs_of_the_servers_own_user_are_not_ended_for_their_names(world: OwnersWorld) -> None:
    world.jobs = {"ann": 2}
    world.round()
    world.engine.submit("pool", PilotOrder(node="fake-ann-1", url=URL, token="t"))
    world.round()
    world.round()
    assert world.engine.ended == []
    assert [one["id"] for one in world.cluster()["pilots"]] == ["1"]


def test_a_scarce_maximum_is_shared_and_busy_machines_are_emptied_after_a_while(platform: Platform) -> None:
    world = OwnersWorld(platform, max_pilots=2, max_of_owner=2)
    world.jobs = {"ann": 4}
    world.round()
    for node in ("fake-ann-1", "fake-ann-2"):
        world.let_join(node)
    world.round()
    world.jobs = {"ann": 4, "ben": 4}
    world.round()
    assert world.uids_of() == {"fake-ann-1": 1001, "fake-ann-2": 1001}
    assert not any(world.beat(node)["leave"] for node in ("fake-ann-1", "fake-ann-2"))
    for _ in range(3):
        world.round(30)
        told = [world.beat(node)["leave"] for node in ("fake-ann-1", "fake-ann-2")]
    assert sum(told) == 1
    world.round()
    assert world.uids_of()["fake-ben-1"] == 1002
    world.round(30)
    assert sum(world.beat(node)["leave"] for node in ("fake-ann-1", "fake-ann-2")) == 1


def test_a_user_whose_machines_never_start_does_not_hold_the_maximum(platform: Platform) -> None:
    world = OwnersWorld(platform, max_pilots=4)
    world.jobs, world.least = {"ann": 8, "ben": 2}, {"ann": 8}
    world.round()
    world.round(300.0)
    world.round(300.0)
    assert set(world.uids_of().values()) == {1001}
    for after_s in (300.0, 60.0, 5.0):
        world.round(after_s)
    assert sorted(filter(None, world.uids_of().values())) == [1001, 1001, 1001, 1002]
    assert "15 minutes" in world.owners()["ann"]["trouble"]
    assert world.owners()["ben"]["trouble"] is None
    # The others of ann go on to wait, and end nothing of ben.
    world.let_join("fake-ben-1")
    for _ in range(20):
        world.round(60.0)
        assert world.beat("fake-ben-1")["leave"] is False
    assert sorted(filter(None, world.uids_of().values())) == [1001, 1001, 1001, 1002]


def test_after_a_pause_a_user_whose_machines_start_goes_first_again() -> None:
    owner = pilot_owners.PilotOwner("ann", PilotShape(num_slots=1, has_gpus=False, labels={}))
    now = 1e9
    owner.note_wait(4, 0, now - pilot_owners.SLOW_S + 1, now)
    assert not owner.slow.holds(now)
    owner.note_wait(4, 3, now - pilot_owners.SLOW_S, now)
    assert owner.slow.holds(now)
    owner.note_wait(4, 3, None, now + pilot_owners.SLOW_S)
    assert not owner.slow.holds(now + pilot_owners.SLOW_S)
    again = now + 2 * pilot_owners.SLOW_S
    owner.note_wait(4, 3, again - pilot_owners.SLOW_S, again)
    assert owner.slow.holds(again + 1.5 * pilot_owners.SLOW_S)
    owner.note_wait(4, 4, None, again)
    assert owner.slow.why is None


def test_only_users_who_are_here_are_looked_up_and_not_in_each_round(world: OwnersWorld) -> None:
    asked: list[str] = []
    find_user = world.find_user
    world.find_user = lambda name: (asked.append(name), find_user(name))[1]  # type: ignore[method-assign]
    world.restart()
    world.jobs = {"ann": 2, "ben": 2}
    for _ in range(5):
        world.round()
    assert sorted(asked) == ["ann", "ben"]
    world.round(60.0)
    assert sorted(asked) == ["ann", "ann", "ben", "ben"]
    world.jobs = {"ann": 2}
    for _ in range(4):
        world.round(60.0)
    assert "fake-ben-1" not in world.alive()
    del asked[:]
    world.round(60.0)
    assert asked == ["ann"]
    assert [owner.name for owner in world.loop._owners.list()] == ["ann"]


def test_a_pause_of_a_user_who_is_away_for_a_moment_holds(world: OwnersWorld) -> None:
    world.engine.refusals[1001] = "Invalid account"
    world.jobs = {"ann": 2}
    world.round()
    del world.engine.refusals[1001]
    world.jobs = {}
    world.round()
    world.jobs = {"ann": 2}
    world.round()
    assert world.alive() == {}
    world.round(pilot_owners.FIRST_PAUSE_S)
    assert set(world.alive()) == {"fake-ann-1"}


def test_two_users_of_one_system_user_have_pilots_of_their_own(world: OwnersWorld) -> None:
    world.uids["ben"] = 1001
    world.jobs = {"ann": 2, "ben": 2}
    world.round()
    assert world.uids_of() == {"fake-ann-1": 1001, "fake-ben-1": 1001}
    world.let_join("fake-ann-1")
    world.let_join("fake-ben-1")
    world.reasons["ben"] = "disabled"
    world.round(60.0)
    assert (world.beat("fake-ann-1")["leave"], world.beat("fake-ben-1")["leave"]) == (False, True)
    assert world.engine.ended == []


def test_names_of_users_that_no_machine_can_have_are_changed(world: OwnersWorld) -> None:
    world.uids["Jürgen/../$(x) @lab"] = 1004
    world.jobs = {"Jürgen/../$(x) @lab": 2}
    world.round()
    assert world.uids_of() == {"fake-J_rgen_.._x_lab-1": 1004}


def test_the_machine_of_a_test_belongs_to_who_asks_for_it(world: OwnersWorld) -> None:
    job = world.begin()
    assert world.uids_of() == {"fake-test": 1003}
    world.let_train(job)
    assert world.nodes()["fake-test"]["labels"][OWNER_LABEL] == "admin"
    world.end_job(job)
    world.round(1)
    assert world.test()["state"] == "passed", world.test()


def test_a_test_takes_the_only_machine_of_a_cluster_and_gives_it_back(platform: Platform) -> None:
    world = OwnersWorld(platform, max_pilots=1)
    job = world.begin()
    world.jobs = {"ann": 2}
    world.round()
    world.let_train(job)
    assert world.uids_of() == {"fake-test": 1003}
    world.end_job(job)
    world.round(1)
    assert world.test()["state"] == "passed", world.test()
    world.beat("fake-test", leaving=True)
    world.end("fake-test")
    world.round()
    world.round()
    assert world.uids_of() == {"fake-ann-1": 1001}


def test_a_test_of_a_user_without_an_account_says_so(world: OwnersWorld) -> None:
    world.reasons["admin"] = "no account"
    world.begin()
    world.round()
    world.round()
    assert world.test()["state"] == "failed"
    assert world.test()["told"] == "Legato cannot ask Fake for a machine: no account."


def test_a_test_of_an_admin_without_a_system_user_says_what_to_do_and_does_not_blame_the_cluster(
    world: OwnersWorld, platform: Platform
) -> None:
    settings = Settings(home=platform.home, run_jobs_as="submitter", job_users=("admin=no-such-user",))
    world.find_user = partial(find_pilot_user, settings, platform.store)  # type: ignore[method-assign]
    world.restart()
    world.begin()
    world.round()
    assert world.test()["told"] == (
        "Legato cannot ask Fake for a machine: the server's machine has no system user 'no-such-user' for jobs of "
        "'admin'; make it on the server's machine and on the nodes, name another one in job_users and restart the "
        "server, or check that the directory of users answers."
    )
    assert world.engine.orders == {}


def let_idle(world: OwnersWorld, *nodes: str) -> None:
    """Let machines join, and their users have no jobs for a while."""
    world.round()
    for node in nodes:
        world.let_join(node)
    world.jobs = {name: number for name, number in world.jobs.items() if f"fake-{name}-1" not in nodes}
    for _ in range(4):
        world.round(30)
        assert not any(world.beat(node)["leave"] for node in nodes)


@pytest.fixture
def full(platform: Platform) -> OwnersWorld:
    """A world that may have two machines, which stay for long without a job."""
    return OwnersWorld(platform, max_pilots=2, idle_s=1000)


def test_an_admin_who_can_have_no_machine_makes_no_room_for_a_test(full: OwnersWorld) -> None:
    full.jobs = {"admin": 4}
    let_idle(full, "fake-admin-1", "fake-admin-2")
    del full.uids["admin"]
    full.begin()
    full.round(1)
    assert full.test()["told"] == "Legato cannot ask Fake for a machine: no account."
    assert full.beat("fake-admin-1")["leave"] is full.beat("fake-admin-2")["leave"] is False


def test_only_an_idle_machine_of_the_admin_makes_room_for_a_test(full: OwnersWorld) -> None:
    full.jobs = {"ann": 2, "admin": 2}
    let_idle(full, "fake-ann-1", "fake-admin-1")
    full.begin()
    assert [full.beat(f"fake-{name}-1")["leave"] for name in ("ann", "admin")] == [False, True]
    full.beat("fake-admin-1", leaving=True)
    full.end("fake-admin-1")
    full.round()
    assert full.uids_of() == {"fake-ann-1": 1001, NODE: 1003}


def test_no_machine_of_another_user_makes_room_for_a_test(full: OwnersWorld) -> None:
    full.jobs = {"ann": 2, "ben": 2}
    let_idle(full, "fake-ann-1")
    full.let_join("fake-ben-1")
    full.begin()
    assert full.test()["told"].startswith("Legato has 2 machines of Fake, as many as max_agents allows, and can give")
    full.round(1)
    assert [full.beat(f"fake-{name}-1")["leave"] for name in ("ann", "ben")] == [False, False]
    assert full.engine.ended == []


@pytest.mark.parametrize("reason", ["QOSMaxGRESPerUser", "Resources"])
def test_a_test_that_waits_keeps_no_machine_from_others_and_takes_none_of_theirs(
    platform: Platform, reason: str
) -> None:
    world = OwnersWorld(platform, max_pilots=6, idle_s=1000)
    world.jobs = {"ann": 2}
    let_idle(world, "fake-ann-1")
    world.begin()
    world.engine.set(world.alive()[NODE], PilotState.WAITING, reason=reason)
    world.round()
    assert world.beat("fake-ann-1")["leave"] is False
    world.jobs = {"ben": 8, "ann": 4}
    world.round()
    assert {"fake-ann-2", "fake-ben-1", "fake-ben-2", "fake-ben-3"} <= world.uids_of().keys()


def test_a_machine_of_another_user_that_leaves_makes_room_only_if_max_agents_is_the_limit(full: OwnersWorld) -> None:
    full.jobs = {"ann": 4}
    let_idle(full, "fake-ann-1", "fake-ann-2")
    full.platform.store.pilots.drain("fake-ann-2", "Fake", "it is idle", full.platform.now)
    full.begin()
    assert full.test()["told"] == "There is no room for the test yet: Legato gives machine fake-ann-2 back to Fake."
    assert full.beat("fake-ann-1")["leave"] is False


def test_pilots_from_a_time_without_users_are_emptied(world: OwnersWorld, platform: Platform) -> None:
    platform.store.pilots.add("fake", "fake-1", platform.now)
    world.engine.submit("pool", PilotOrder(node="fake-1", url=URL, token="t"))
    world.jobs = {"ann": 2}
    world.round()
    assert world.engine.ended == [("1", True)]
    assert set(world.uids_of()) == {"fake-ann-1"}


@pytest.mark.parametrize("forged", [0, 2])
def test_busy_pilots_from_a_time_when_the_server_ran_as_another_system_user_are_emptied_and_not_killed(
    world: OwnersWorld, platform: Platform, forged: int
) -> None:
    platform.store.pilots.add("fake", "fake-1", platform.now)
    before = JobUser(uid=990, gid=990, name="legato", home="/")
    world.engine.submit("pool", PilotOrder(node="fake-1", url=URL, token="t", user=before))
    for number in range(forged):  # jobs of other users with the name of the pilot
        user = JobUser(uid=4242 + number, gid=1, name="x", home="/")
        world.engine.submit("pool", PilotOrder(node="fake-1", url=URL, token="t", user=user))
    world.engine.set("1", PilotState.RUNNING)
    secret = platform.store.pilots.add("fake", "fake-2", platform.now)
    world.engine.submit("pool", PilotOrder(node="fake-2", url=URL, token=secret, user=before))
    world.let_join("fake-2")
    world.jobs = {"ann": 2}
    for _ in range(4):
        world.round()
    assert world.beat("fake-2")["leave"] is True
    assert world.engine.ended == []
    assert {one.node for one in platform.store.pilots.list()} == {"fake-1", "fake-2", "fake-ann-1"}
    world.beat("fake-2", leaving=True)
    world.end("fake-2")
    world.round()
    assert "fake-2" not in {one.node for one in platform.store.pilots.list()}


def test_the_system_user_is_that_of_jobs_and_a_disabled_user_has_none(platform: Platform) -> None:
    settings = Settings(
        home=platform.home, run_jobs_as="submitter", job_users=("ann=daemon", "ben=root", "admin=no-such-user")
    )
    assert find_pilot_user(settings, platform.store, "ann").name == "daemon"
    with pytest.raises(UsageError, match="can do all that the server"):
        find_pilot_user(settings, platform.store, "ben")
    with pytest.raises(NoSystemUser, match="no system user 'no-such-user'"):
        find_pilot_user(settings, platform.store, "admin")
    with pytest.raises(UsageError, match="there is no such user"):
        find_pilot_user(settings, platform.store, "someone-else")
    platform.store.accounts.change("ann", ADMIN, platform.now, is_disabled=True)
    with pytest.raises(UsageError, match="an admin has disabled this user"):
        find_pilot_user(settings, platform.store, "ann")


def test_a_plan_promises_no_slots_of_machines_of_other_users(world: OwnersWorld, platform: Platform) -> None:
    world.jobs = {"ann": 2}
    world.round()
    world.let_join("fake-ann-1")
    world.round()
    wanted = {**JOB, "min_workers": 1, "max_workers": 4}
    plans = {who: platform.ask("POST", "plan", wanted, who=who).json() for who in ("ann", "ben")}
    assert (plans["ann"]["starts"], plans["ann"]["slots_now"]) == ("now", 2)
    assert (plans["ben"]["starts"], plans["ben"]["slots_now"], plans["ben"]["slots"]) == ("later", 0, 0)
    assert "machines that belong to no other user than ben have no slots" in plans["ben"]["reason"]


def test_a_user_without_machines_needs_none_and_the_limits_of_each_are_shown(platform: Platform) -> None:
    world = OwnersWorld(platform, max_of_owner=2)
    world.jobs = {"ann": 4}
    world.round()
    (found,) = platform.get("clusters", who="ben")["items"]
    assert (found["target"], found["max_pilots"], found["max_pilots_per_user"]) == (0, 4, 2)
    world.rules = msgspec.structs.replace(world.rules, max_of_owner=4)
    world.restart()
    world.round()
    assert world.cluster()["max_pilots_per_user"] is None


def test_users_see_their_own_machines_of_a_cluster_and_how_many_others_have(
    world: OwnersWorld, platform: Platform
) -> None:
    world.jobs = {"ann": 4, "ben": 2}
    world.round()
    seen = {}
    for who in ("admin", "ann", "ben"):
        (found,) = platform.get("clusters", who=who)["items"]
        owners = {one["owner"] for one in found["pilots"]}
        seen[who] = owners, len(found["pilots"]), found["num_of_others"], found["target"]
    assert seen == {"admin": ({"ann", "ben"}, 3, 0, 3), "ann": ({"ann"}, 2, 1, 2), "ben": ({"ben"}, 1, 2, 1)}
    (found,) = platform.store.pilots.read_states(platform.now)
    assert found.only_of("ben").describe() == (
        "1 machine waits in the queue of Fake: Resources.",
        "2 machines of Fake belong to other users.",
    )
