"""Nodes are lost and come back, drivers are superseded: no job trains twice, and no slot has two workers."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.tiers import examples
from tests.unit.driver.nodes_world import NodesWorld
from tests.unit.driver.world import Body, make_world_spec

from legato.core import wire
from legato.core.exits import EXIT_REFUSED, EXIT_UNSTARTED
from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.slots import node_of
from legato.driver import events
from legato.driver.ending import EXIT_NOWHERE
from legato.driver.job import JobFacts
from legato.driver.membership import Membership
from legato.engines.base import Exited, NodeBack, NodeLost

SLOTS = ("a/0", "a/1", "b/0", "b/1")


def make_world(*slots: str, **changes: Any) -> NodesWorld:
    world = NodesWorld(slots, **{"min_workers": 1, **changes})
    world.calm(5)
    assert len(world.bodies) == len(slots)
    world.check_at_peace()
    return world


def job_of(world: NodesWorld) -> JobFacts:
    assert world.membership is not None
    return world.membership.job


def members_of(world: NodesWorld) -> list[int]:
    return [worker.number for worker in job_of(world).members()]


def told(world: NodesWorld, kind: str) -> list[str]:
    return [record.reason for record in world.records if record.kind == kind]


def test_the_workers_of_a_lost_node_are_refused_and_the_others_continue_at_once() -> None:
    world = make_world(*SLOTS)
    world.cut("b")
    world.lose("b")
    assert members_of(world) == [0, 1], "the new view needs nothing but the loss"
    rounds = world.most_rounds
    world.calm(3)
    assert world.most_rounds > rounds
    assert {number for number, body in world.bodies.items() if body.number_at == 1} == {2, 3}, "they wait out of reach"
    job = job_of(world)
    assert [job.workers[number].phase for number in (2, 3)] == [WorkerPhase.FENCED] * 2
    assert told(world, "lost") == [
        "node b is lost: its agent is silent. Workers 2, 3 may still run there. Its slots are not used until it is back"
    ]
    assert told(world, "fenced")[0] == "worker 2 is given up, because node b is lost; it is refused if it comes back"
    assert job.deaths == {}, "the loss is not the slots' fault"
    assert len(world.bodies) == 4, "nothing starts on the lost node, and its workers are not taken for dead"
    world.heal("b")
    world.calm(5)
    assert told(world, "returned") == ["node b is back after 3 s; it ends workers 2, 3, given up meanwhile"]
    assert sorted(world.bodies) == [0, 1, 4, 5]
    world.check_at_peace()


def test_a_lost_node_costs_no_deaths_however_often_and_fails_no_job() -> None:
    world = NodesWorld(SLOTS, min_workers=1, max_deaths=1)
    world.calm(5)
    for _ in range(4):
        world.cut("b")
        world.calm(6)
        world.end_lease("b")
        world.calm(2)
        world.heal("b")
        world.calm(5)
    assert job_of(world).deaths == {}
    assert world.ends == []
    world.check_at_peace()


def test_a_node_that_has_all_the_state_is_waited_for_and_loses_nothing() -> None:
    """The link between the driver and the only node is cut for longer than any limit of silence."""
    world = make_world("a/0", "a/1")
    world.cut("a")
    rounds = world.most_rounds
    world.calm(20)
    assert world.most_rounds > rounds, "they train on without their driver"
    assert job_of(world).state is JobState.TRAINING
    assert members_of(world) == [0, 1]
    assert told(world, "fenced") == []
    world.heal("a")
    world.calm(3)
    assert sorted(world.bodies) == [0, 1]
    assert told(world, "returned") == ["node a is back after 16 s; workers 0, 1 can continue"]
    assert world.num_lineages == 1
    world.check_at_peace()


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("pause_s", [0, 3])
def test_a_driver_that_was_cut_off_from_all_nodes_gives_up_no_worker(order: tuple[str, ...], pause_s: int) -> None:
    """The losses are reported one after the other, and the links are back one after the other."""
    world = make_world("a/0", "a/1", "b/0", "b/1", "c/0", "c/1")
    for node in order:
        world.cut(node)
    for _ in range(12):
        world.tick()
        world.compute()
    for node in order:
        world.lose(node)
        world.tick()
        assert told(world, "fenced") == []
    world.calm(10)
    rounds = world.most_rounds
    for node in reversed(order):
        world.heal(node)
        world.calm(pause_s)
    world.calm(20)
    assert told(world, "fenced") == []
    assert sorted(world.bodies) == [0, 1, 2, 3, 4, 5]
    assert {body.number_at for body in world.bodies.values()} == {1}, "in the same view"
    assert world.most_rounds > rounds
    world.check_at_peace()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_that_is_not_back_with_the_others_is_given_up(*, restarts: bool) -> None:
    world = make_world("a/0", "b/0")
    for node in "ab":
        world.cut(node)
    world.calm(10)
    if restarts:
        world.crash_driver()
        world.restart_driver()
    world.heal("a")
    world.calm(8)
    assert told(world, "fenced") == [], "it may be back at any moment"
    world.calm(4)
    assert told(world, "fenced") == ["worker 1 is given up, because node b is lost; it is refused if it comes back"]
    assert members_of(world) == [0]
    rounds = world.most_rounds
    world.calm(3)
    assert world.most_rounds > rounds


def test_a_loss_of_all_nodes_delays_no_later_loss_of_one() -> None:
    world = make_world("a/0", "b/0")
    for node in "ab":
        world.cut(node)
    world.calm(10)
    for node in "ab":
        world.heal(node)
    world.calm(2)
    world.cut("b")
    world.calm(4.5)
    assert told(world, "fenced") == ["worker 1 is given up, because node b is lost; it is refused if it comes back"]


def test_no_second_training_begins_before_the_first_has_certainly_ended() -> None:
    world = make_world("a/0", "a/1", "b/0")
    world.feed(events.SlotsAssigned(("a/0", "a/1", "b/0"), "no change"))
    world.cut("a")
    world.lose("a")
    world.calm(2)
    assert members_of(world) == [2]
    # The last worker that has the state and can be reached ends too: the others wait in an old view, without it.
    world.die(2, -9)
    world.calm(10)
    assert world.num_lineages == 2, "they cannot train without the worker that is gone, so nothing is waited for"
    world = make_world("a/0", "a/1")
    job = job_of(world)
    world.cut("a")
    for worker in job.members():
        # As if they had been given up for another reason just before the node was lost.
        world.feed(events.GivenUp(worker.number, "is given up"))
    world.lose("a")
    world.calm(30)
    assert world.num_lineages == 1
    assert world.most_rounds > 20
    assert told(world, "held")[-1] == (
        "worker 1 on lost node a may still train, and no other worker has the newest state. Legato does not train a "
        "second time beside them: the job waits until the node is back, or its agent has ended what runs there "
        "(within about 120 s)"
    )
    world.end_lease("a")
    assert job.state is JobState.FORMING
    world.heal("a")
    world.calm(40)
    assert world.num_lineages == 2
    world.check_at_peace()


def test_members_that_may_have_switched_out_of_reach_are_waited_for() -> None:
    """A planned change leaves only workers of one node, and that node is cut at the moment of the switch."""
    world = make_world("a/0", "b/0")
    world.feed(events.SlotsAssigned(("a/0",), "one less"))
    job = job_of(world)
    assert job.pending is not None
    assert job.pending.workers == (0,)
    for body in list(world.bodies.values()):
        world.read(body)
    # Worker 0 completes the round in which all have voted, and worker 1 does not: its node is cut in between.
    first, leaver = world.bodies[0], world.bodies[1]
    first.at, first.doing, first.proposed = job.pending, "settling", None
    world.cut("a")
    world.lose("a")
    assert leaver.doing == "training"
    world.calm(10)
    assert world.num_lineages == 1
    assert members_of(world) in ([0, 1], [0]), "no view without worker 0 is put in force"
    world.end_lease("a")
    world.calm(1)
    assert members_of(world) == [1], "now its state is the newest"


def test_a_new_driver_does_not_take_a_node_for_lost_that_the_platform_has_moved_the_job_off() -> None:
    snapshot = events.MembershipSnapshot(
        last_view=1, next_worker=4, slots={3: "c/1"}, wanted=("a/0",), lost_nodes=("a", "b", "c"), is_assigned=True
    )
    for is_assigned, lost in ((True, ["a", "c"]), (False, ["a", "b", "c"])):
        found = msgspec.structs.replace(snapshot, is_assigned=is_assigned)
        adopted = Membership.adopt(make_world_spec(), "store:1", found, {3: 3}, checkpoint_dir="/c", now=0.0)
        # The engine does not report a node that the job does not use, so its slots would never be used again.
        assert sorted(adopted.job.lost_nodes) == lost


def test_a_new_driver_keeps_what_was_given_up_given_up_and_waits_for_a_lost_node() -> None:
    world = make_world(*SLOTS)
    world.cut("b")
    world.lose("b")
    world.calm(2)
    world.crash_driver()
    world.restart_driver()
    world.calm(5)
    job = job_of(world)
    assert [job.workers[number].phase for number in (2, 3)] == [WorkerPhase.FENCED] * 2
    assert members_of(world) == [0, 1]
    world.cut("a")
    world.lose("a")
    world.crash_driver()
    world.restart_driver()
    world.calm(20)
    assert job_of(world).state is JobState.ADOPTING, "only a lost node has the state"
    assert told(world, "held")[-1].startswith("workers 0, 1 on lost node a may still train")
    assert world.num_lineages == 1
    world.heal("a")
    world.heal("b")
    world.calm(10)
    assert {0, 1} <= set(world.bodies), "they have lost nothing"
    assert not {2, 3} & set(world.bodies)
    assert world.num_lineages == 1
    world.check_at_peace()


def test_a_worker_whose_agent_has_died_is_refused_before_its_slot_is_used_again() -> None:
    world = make_world("a/0")
    world.feed(NodeLost("a", "its agent has died"))
    world.calm(2)
    world.feed(Exited(0, -9, "the lease of its agent is over"))
    body = world.bodies[0]
    assert any(isinstance(message, wire.Refused) for message in body.inbox)
    world.feed(NodeBack("a"))
    assert list(world.bodies) == [0], "its slot stays occupied"
    world.calm(5)
    assert list(world.bodies) == [1]
    world.calm(20)
    world.check_at_peace()


def test_a_job_that_ends_says_that_it_waits_for_the_worker_of_a_lost_node() -> None:
    world = make_world("a/0", "b/0")
    world.cut("b")
    world.lose("b")
    world.calm(2)
    world.feed(events.StopAsked(now=False, reason="a user asked"))
    world.calm(5)
    (wait,) = [reason for reason in told(world, "held") if "the job ends when" in reason]
    spec = job_of(world).spec
    assert wait == (
        "worker 1 on lost node b may still run: the job ends when the node is back, or its agent has ended what runs "
        f"there (within about {spec.away_limit_s + spec.stop_limit_s:g} s)"
    )


def test_a_worker_that_was_never_started_on_a_lost_node_is_not_waited_for() -> None:
    from tests.unit.driver.world import make_world_spec

    from legato.driver.membership import Membership

    membership = Membership(
        make_world_spec(num_workers=1), "s:1", checkpoint_dir="/c", now=0.0, available=("a/0", "b/0")
    )
    membership.begin(0.0)
    membership.handle(NodeLost("a", "its agent does not answer"), 0.1)
    assert membership.job.workers[0].phase is WorkerPhase.FENCED
    membership.handle(Exited(0, EXIT_UNSTARTED), 0.2)
    assert membership.job.workers[0].phase is WorkerPhase.GONE


def test_a_job_that_scales_freely_uses_other_slots_and_slots_that_come_later() -> None:
    membership = Membership(
        make_world_spec(num_workers=2, max_workers=4),
        "s:1",
        checkpoint_dir="/c",
        now=0.0,
        available=("a/0", "b/0", "c/0"),
    )
    membership.begin(0.0)
    out = membership.handle(NodeLost("b", "its agent is silent"), 1.0)
    assert [one.slot for one in out if isinstance(one, events.StartWorker)] == ["c/0"]
    assert membership.job.wanted == {"a/0", "c/0"}
    membership.handle(NodeBack("d", ("d/0", "d/1")), 2.0)
    assert membership.job.available == ("a/0", "b/0", "c/0", "d/0", "d/1")
    assert membership.job.wanted == {"a/0", "c/0"}, "as many as were asked for"


def test_slots_that_come_later_are_joined_for_workers_with_several_gpus() -> None:
    spec = make_world_spec(num_workers=2, max_workers=4, gpus_per_worker=2)
    membership = Membership(spec, "s:1", checkpoint_dir="/c", now=0.0, available=("a/0+1",))
    membership.begin(0.0)
    out = membership.handle(NodeBack("b", ("b/0", "b/1", "b/2")), 1.0)
    assert [one.slot for one in out if isinstance(one, events.StartWorker)] == ["b/0+1"]


def test_slots_that_come_later_are_not_used_beyond_the_micro_batches_of_a_step() -> None:
    spec = make_world_spec(num_workers=4, max_workers=4)
    membership = Membership(spec, "s:1", checkpoint_dir="/c", now=0.0, available=("a/0",))
    membership.begin(0.0)
    membership.job.num_micro_batches = 1
    out = membership.handle(NodeBack("b", ("b/0",)), 1.0)
    assert not [one for one in out if isinstance(one, events.StartWorker)]
    assert membership.job.available == ("a/0", "b/0")


def break_connections(world: NodesWorld, *pairs: tuple[int, int]) -> None:
    """Let workers say in each view that they cannot connect to others, until the driver does not try that again."""
    job = job_of(world)
    for _ in range(job.spec.max_breaks + 1):
        assert job.current is not None
        for worker, peer in pairs:
            reason = "10.0.0.2 cannot reach 10.0.0.1."
            said = wire.Unbuilt(view=0, failed=job.current.number, reason=reason, peer=peer)
            world.feed(events.Heard(worker, said))
        while job.broken_since is not None and not job.ending:
            world.now += 0.25
            for number in members_of(world):
                world.feed(events.Heard(number, wire.Heartbeat(view=0)))
            world.feed(events.Tick())


@pytest.mark.parametrize(
    ("slots", "pairs", "left"),
    [
        (("a/0", "b/0"), [(1, 0)], [0]),
        (("a/0", "b/0"), [(0, 1)], [0]),
        (("a/0", "a/1", "b/0", "c/0"), [(0, 2), (3, 2), (2, 1)], [0, 1, 3]),
        (("a/0", "b/0", "c/0"), [(1, 0), (0, 2)], [1, 2]),
        (("a/0", "b/0", "c/0"), [(1, 0), (2, 0), (2, 1)], [0, 1]),
    ],
    ids=["the later", "the later of rank 0", "the one named most", "also that of rank 0", "of equals the last"],
)
def test_the_job_continues_without_a_node_that_cannot_connect_to_the_others(
    slots: tuple[str, ...], pairs: list[tuple[int, int]], left: list[int]
) -> None:
    world = make_world(*slots, max_breaks=3)
    rounds = world.most_rounds
    break_connections(world, *pairs)
    job = job_of(world)
    (node,) = job.refusals
    assert members_of(world) == left and job.state is JobState.TRAINING
    assert node not in {slot[0] for slot in job.wanted}, "no worker is started there again"
    assert f"the job continues without node {node}: worker" in told(world, "refused")[0]
    world.calm(5)
    assert world.most_rounds > rounds and not set(world.bodies) - set(left)


FOUR, SIX = "10.0.0.1", "fd00::1"


def give_addresses(world: NodesWorld, hosts: dict[str, str]) -> None:
    world.hosts = hosts
    for body in world.bodies.values():
        body.host = hosts[node_of(body.slot)]


@pytest.mark.parametrize(
    ("hosts", "store", "left_out"),
    [
        ({"a": FOUR, "b": FOUR, "c": SIX}, "10.0.0.1:1", "c"),
        ({"a": SIX, "b": FOUR, "c": FOUR}, "fd00::1:1", "a"),
        ({"a": FOUR, "b": SIX}, "10.0.0.1:1", "b"),
        ({"a": FOUR, "b": SIX}, "fd00::1:1", "a"),
    ],
    ids=["the last", "the first, with the store", "the one without the store", "the first, without the store"],
)
def test_a_machine_with_an_address_of_another_family_is_left_out_before_the_first_view(
    hosts: dict[str, str], store: str, left_out: str
) -> None:
    world = NodesWorld(tuple(f"{node}/{index}" for node in hosts for index in (0, 1)), min_workers=1)
    give_addresses(world, hosts)
    job_of(world).rendezvous = world.store = store
    world.calm(5)
    job = job_of(world)
    assert list(job.refusals) == [left_out] and not told(world, "broken")
    assert {worker.slot[0] for worker in job.members()} == set(hosts) - {left_out}
    usual = next(host for node, host in hosts.items() if host != hosts[left_out])
    families = ("IPv6", "IPv4") if hosts[left_out] == SIX else ("IPv4", "IPv6")
    assert told(world, "refused")[0] == (
        f"the job continues without node {left_out}: node {left_out} announces the {families[0]} address "
        f"{hosts[left_out]}, and the others {families[1]} addresses such as {usual}. Name their network with "
        "--network of 'legato agent' there or of 'legato run', or on a server's machine with its setting network"
    )
    world.check_at_peace()


def test_a_machine_with_an_address_of_another_family_cannot_join_and_disturbs_no_worker() -> None:
    world = make_world("a/0", "a/1")
    rounds = world.most_rounds
    world.hosts["b"] = SIX
    world.feed(events.SlotsAssigned(("a/0", "a/1", "b/0"), "more", max_workers=3))
    world.calm(5)
    assert list(job_of(world).refusals) == ["b"] and members_of(world) == [0, 1] and world.most_rounds > rounds
    # The address of a machine has changed: its workers that train stay, and only the new one is refused.
    world.hosts["a"] = SIX
    world.feed(events.SlotsAssigned(("a/0", "a/1", "a/2"), "more", max_workers=3))
    world.calm(5)
    assert members_of(world) == [0, 1] and "a" not in job_of(world).refusals and not told(world, "broken")
    assert "a/2" in job_of(world).given_up


def test_a_job_whose_minimum_needs_machines_of_both_families_begins_elsewhere() -> None:
    world = NodesWorld(("a/0", "b/0"), min_workers=2)
    give_addresses(world, {"a": FOUR, "b": SIX})
    world.calm(5)
    job = job_of(world)
    assert job.exit_code == EXIT_NOWHERE and "announces the IPv6 address" in job.refusals["b"]


@pytest.mark.parametrize(
    ("boots", "left_out"),
    [
        ({"a": "1", "b": "2"}, "b"),
        ({"a": "1", "b": "1"}, ""),
        ({"a": "1", "b": ""}, ""),
    ],
    ids=["two machines", "two agents on one machine", "unknown"],
)
def test_a_machine_with_the_address_of_another_one_is_left_out(boots: dict[str, str], left_out: str) -> None:
    world = NodesWorld(("a/0", "a/1", "b/0"), min_workers=1)
    world.boots = boots
    give_addresses(world, {"a": "172.17.0.1", "b": "172.17.0.1"})
    for body in world.bodies.values():
        body.boot = boots[node_of(body.slot)]
    world.calm(5)
    job = job_of(world)
    assert "".join(job.refusals) == left_out and len(members_of(world)) == (2 if left_out else 3)
    assert not left_out or told(world, "refused")[0].startswith(
        "the job continues without node b: node b announces the address 172.17.0.1, and so does node a, which is "
        "another machine. Name a network in which each machine has an address of its own with --network"
    )
    # So is one that joins a job that trains.
    world.boots["c"] = "3"
    world.hosts["c"] = "172.17.0.1"
    world.feed(events.SlotsAssigned(("a/0", "a/1", "c/0"), "more", max_workers=3))
    world.calm(5)
    assert "c" in job.refusals and set(members_of(world)) == {0, 1} and not told(world, "broken")


def test_a_machine_that_has_restarted_is_no_other_machine() -> None:
    world = NodesWorld(("a/0",), min_workers=1)
    give_addresses(world, {"a": "10.0.0.1"})
    world.boots["a"] = world.bodies[0].boot = "1"
    world.calm(5)
    world.boots["a"] = "2"
    world.feed(events.SlotsAssigned(("a/0", "a/1"), "more", max_workers=2))
    world.calm(5)
    assert not job_of(world).refusals and not told(world, "refused") and len(members_of(world)) == 2


@pytest.mark.parametrize("pairs", [[(1, 0)], [(1, 99)]])
def test_workers_that_cannot_connect_are_named_with_their_nodes(pairs: list[tuple[int, int]]) -> None:
    world = make_world("a/0", "b/0", min_workers=2, max_breaks=3)
    job = job_of(world)
    break_connections(world, *pairs)
    if pairs == [(1, 99)]:
        assert not job.refusals and job.state is JobState.FAILING, "there is no such worker"
        return
    want = "worker 1 on node b could not connect view 1 to worker 0 on node a: 10.0.0.2 cannot reach 10.0.0.1."
    assert told(world, "broken")[0] == want
    assert "The last time, worker 1 on node b could not connect" in job.end_reason


def test_a_node_that_refuses_the_job_is_reported_until_it_is_back_or_assigned_again() -> None:
    world = make_world("a/0")
    job = job_of(world)
    world.feed(events.SlotsAssigned(("a/0", "b/0"), "more", max_workers=2))
    (worker,) = [each for each in job.workers.values() if each.slot == "b/0"]
    world.feed(NodeLost("b", "it has no data", is_refusal=True))
    assert told(world, "lost") == [], "the machine is well"
    assert told(world, "refused")[-1].startswith("node b cannot be used: it has no data. No worker runs there.")
    del world.bodies[worker.number]
    world.feed(Exited(worker.number, EXIT_REFUSED, "it has no data"))
    assert (job.given_up, job.refusals) == ({"b/0"}, {"b": "it has no data"})
    world.feed(events.SlotsAssigned(("a/0",), "b refuses"))
    assert job.refusals, "the platform may not have seen it yet"
    world.feed(events.SlotsAssigned(("a/0", "b/0"), "b was repaired"))
    assert not job.refusals and "b" not in job.lost_nodes
    assert any(each.slot == "b/0" for each in job.present()), "the engine tries it again"


def test_silence_before_a_loss_is_not_the_workers_fault() -> None:
    """Messages of the workers are late already when the link is cut, so they are silent before the node is lost."""
    world = make_world("a/0", "b/0")
    for _ in range(6):
        world.tick()
    world.cut("b")
    for _ in range(6):
        world.calm(0.5)
    assert told(world, "fenced") == [], "it is silent for longer than the limit, and its machine does not answer"
    world.calm(2)
    assert told(world, "fenced") == ["worker 1 is given up, because node b is lost; it is refused if it comes back"]
    assert job_of(world).deaths == {}


def test_the_end_of_a_kept_worker_by_its_lease_is_not_the_slots_fault() -> None:
    world = make_world("a/0")
    world.cut("a")
    world.lose("a")
    world.end_lease("a")
    assert told(world, "left")[-1] == "worker 0, whose node was lost, has ended: killed by SIGKILL"
    assert job_of(world).deaths == {}


def test_a_new_driver_starts_nothing_on_a_node_that_was_lost_for_the_last_one() -> None:
    world = make_world("a/0", "b/0")
    world.cut("b")
    world.lose("b")
    world.end_lease("b")
    world.crash_driver()
    world.restart_driver()
    world.calm(5)
    assert sorted(world.bodies) == [0]
    world.heal("b")
    world.calm(5)
    world.check_at_peace()


def test_the_end_of_a_worker_that_a_new_driver_never_heard_is_taken_from_its_agent() -> None:
    world = make_world("a/0", "b/0")
    world.cut("a")
    world.lose("a")
    world.crash_driver()
    world.restart_driver()
    world.end_lease("a")
    assert job_of(world).workers[0].phase is WorkerPhase.GONE
    assert not job_of(world).workers[0].ends_with_connection


@pytest.mark.parametrize("finishes", [False, True])
def test_a_superseded_driver_has_no_effect(*, finishes: bool) -> None:
    world = make_world("a/0", "b/0")
    world.take_over()
    world.calm(3)
    world.check_at_peace()
    (earlier,) = world.earlier
    if finishes:
        world.obey_earlier(earlier, earlier.handle(events.StopAsked(now=True, reason="late"), world.now))
    world.meet_earlier(earlier, world.bodies[0])
    assert earlier.job.superseded is not None
    assert earlier.handle(events.ScaleAsked(1, "late"), world.now) == []
    assert earlier.suspects(world.now) == []
    assert earlier.next_deadline() is None
    world.check_at_peace()


# ---------------------------------------------------------------- in any order

picks = st.integers(min_value=0, max_value=7)
nodes = st.sampled_from(["a", "b", "c"])


class Losses(RuleBasedStateMachine):
    """Random losses and returns of nodes, deaths, changes of slots, delayed messages and superseded drivers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = NodesWorld(("a/0", "a/1", "b/0", "c/0"), min_workers=1)

    def pick(self, index: int) -> Body | None:
        bodies = list(self.world.bodies.values())
        return bodies[index % len(bodies)] if bodies else None

    @rule(seconds=st.sampled_from([0.5, 1, 3, 8]))
    def calm(self, seconds: float) -> None:
        self.world.calm(seconds)

    @rule(num_ticks=st.integers(min_value=1, max_value=20))
    def time_passes_in_silence(self, num_ticks: int) -> None:
        for _ in range(num_ticks):
            self.world.tick()

    @rule(index=picks, limit=st.integers(min_value=1, max_value=5))
    def driver_reads(self, index: int, limit: int) -> None:
        if body := self.pick(index):
            self.world.connect(body)
            self.world.deliver(body, limit)

    @rule()
    def engine_reports(self) -> None:
        self.world.deliver_engine()

    @rule(index=picks)
    def worker_reads(self, index: int) -> None:
        if body := self.pick(index):
            self.world.read(body)

    @rule()
    def workers_compute(self) -> None:
        self.world.compute()

    @rule(index=picks)
    def dies(self, index: int) -> None:
        if body := self.pick(index):
            self.world.die(body.number, -9)

    @rule(node=nodes)
    def node_is_cut(self, node: str) -> None:
        self.world.cut(node)

    @rule(node=nodes)
    def node_is_lost(self, node: str) -> None:
        self.world.cut(node)
        self.world.lose(node)

    @rule(node=nodes)
    def lease_ends(self, node: str) -> None:
        self.world.end_lease(node)

    @rule(node=nodes)
    def node_crashes(self, node: str) -> None:
        self.world.cut(node)
        for body in self.world.bodies_on(node):
            self.world.die(body.number, -9)

    @rule(node=nodes)
    def node_is_back(self, node: str) -> None:
        self.world.heal(node)

    @rule(slots=st.sets(st.sampled_from(["a/0", "a/1", "b/0", "c/0"]), min_size=1))
    def slots_are_assigned(self, slots: set[str]) -> None:
        self.world.feed(events.SlotsAssigned(tuple(sorted(slots)), "test"))

    @precondition(lambda self: self.world.membership is not None)
    @rule()
    def driver_crashes(self) -> None:
        self.world.crash_driver()

    @precondition(lambda self: self.world.membership is None)
    @rule()
    def driver_comes_back(self) -> None:
        self.world.restart_driver()

    @precondition(lambda self: self.world.membership is not None)
    @rule()
    def another_driver_takes_over(self) -> None:
        self.world.take_over()

    @rule(index=picks, earlier=picks)
    def worker_meets_an_earlier_driver(self, index: int, earlier: int) -> None:
        body, world = self.pick(index), self.world
        if body is not None and world.earlier and world.terms.get(body.number, 0) == world.term:
            world.meet_earlier(world.earlier[earlier % len(world.earlier)], body)

    @rule(earlier=picks)
    def earlier_driver_acts(self, earlier: int) -> None:
        world = self.world
        if world.earlier:
            one = world.earlier[earlier % len(world.earlier)]
            world.obey_earlier(one, one.handle(events.StopAsked(now=True, reason="late"), world.now))

    @invariant()
    def slots_have_one_worker_each(self) -> None:
        slots = [body.slot for body in self.world.bodies.values()]
        assert len(set(slots)) == len(slots)

    @invariant()
    def the_job_goes_on(self) -> None:
        assert self.world.ends == []

    def teardown(self) -> None:
        world = self.world
        if world.membership is None:
            world.restart_driver()
        for node in ("a", "b", "c"):
            world.heal(node)
        world.calm(60)
        world.check_at_peace()


TestLosses = Losses.TestCase
TestLosses.settings = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
