"""What the reason of a job says of machines that clusters are about to give to it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.control.loop.test_bound_jobs import make_pool
from tests.unit.control.loop.test_several_gpus import RULES
from tests.unit.control.loop.test_several_gpus import make_job as make_stored
from tests.unit.policy.test_kinds import make_pool as make_small
from tests.unit.policy.world import make_job
from tests.unit.policy.worlds import for_any

from legato.api.pool import Cluster, Pilot, PilotOwner
from legato.clusters.demand import PilotShape
from legato.control.loop.coming import ComingMachines
from legato.control.loop.deciding import make_snapshot
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import RoundFacts
from legato.control.records import NewJob
from legato.control.roles import Asker, Role
from legato.control.stages import Stage
from legato.control.work import Work
from legato.policy.policies import decide
from legato.policy.snapshot import OWN_MACHINE, TEST_LABEL, JobDemand, Queue, Snapshot
from legato.server.pilot_owners import PilotOwner as PilotOwnerState
from legato.server.planning import PoolView, plan_submission

NOW = 1000.0
SHAPE = PilotShape(num_slots=2, has_gpus=False, labels={})


def pilot(node: str, state: str = "waiting", owner: str | None = None) -> Pilot:
    return Pilot(id=node, node=node, state=state, reason=None, ends_at=None, owner=owner)


def cluster(*pilots: Pilot, **more: Any) -> Cluster:
    fields: dict[str, Any] = {"kind": "slurm", "name": "Slurm", "min_pilots": 0, "max_pilots": 4, "target": 1}
    fields |= {"trouble": None, "observed_at": NOW - 30, "num_slots": 2}
    return Cluster(**{**fields, "pilots": pilots, **more})


def expect(found: Cluster, job: JobDemand | None = None, joined: tuple[str, ...] = ()) -> tuple[str, int]:
    told = ComingMachines([found], joined, NOW).add_to(make_job("ann/a") if job is None else job)
    return told.coming, told.num_coming


def test_machines_are_on_their_way_until_they_have_joined() -> None:
    both = cluster(pilot("slurm-1", "running"), pilot("slurm-2"), pilot("slurm-3", "ending"))
    assert expect(both) == ("2 machines of Slurm are on their way", 8)
    assert expect(both, joined=("slurm-1",)) == ("1 machine of Slurm is on its way", 6)
    assert expect(both, joined=("slurm-1", "slurm-2")) == ("Slurm may give more machines", 4)


def test_the_reason_of_a_job_says_what_is_on_its_way_instead_of_what_to_do() -> None:
    job = make_stored(Stage.QUEUED, 0, max_workers=4, min_workers=4, gpus_per_worker=1)
    work = Work(program=("train.py",), directory="/d")
    pool = make_pool(job, engines={})
    for found, want in (
        (None, "needs 4 slots at once, but the pool has none; lower its minimum or add nodes"),
        (cluster(), "needs 4 slots at once, but the pool has none; Slurm may give more machines"),
        (cluster(pilot("slurm-1")), "needs 4 slots at once, but the pool has none; 1 machine of Slurm is on its way"),
        (cluster(pilot("slurm-1"), max_pilots=1), "the pool has none; lower its minimum or add nodes"),
    ):
        facts = msgspec.structs.replace(pool.facts, clusters=() if found is None else (found,))
        snapshot = make_snapshot(RoundFacts(facts), {}, {}, {"j-1": work}, NOW, LeftOut(), expects_agents=True)
        assert decide(snapshot, RULES).of("j-1").reason.endswith(want)


@pytest.mark.parametrize(
    "found",
    [
        cluster(pilot("slurm-1"), observed_at=NOW - 181),
        cluster(pilot("slurm-1"), observed_at=None),
        cluster(pilot("slurm-test"), max_pilots=0),
        cluster(state="paused"),
        cluster(state="away"),
        cluster(max_pilots=0),
    ],
)
def test_nothing_is_on_its_way_that_no_cluster_gives(found: Cluster) -> None:
    assert expect(found)[0] == ""


@pytest.mark.parametrize(
    "job",
    [
        make_job("ann/a", labels={"legato.cluster": "kubernetes"}),
        make_job("ann/a", labels=dict([OWN_MACHINE])),
        make_job("ann/a", labels={TEST_LABEL: "slurm"}),
        make_job("ann/a", gpu_type="NVIDIA A100"),
        make_job("ann/a", gpus_per_worker=4),
        make_job("ann/a", machine_kind="another/cpu"),
        make_job("ann/a", refusals={"slurm-1": "it has no such directory"}),
    ],
)
def test_nothing_is_on_its_way_for_a_job_that_cannot_use_it(job: JobDemand) -> None:
    found = cluster(pilot("slurm-1"), machine_kinds=("a kind",))
    assert expect(found, job) == ("", 0)
    assert expect(found)[0] == "1 machine of Slurm is on its way"


def test_machines_of_other_users_are_on_their_way_for_others_and_count_for_the_maximum() -> None:
    owners = tuple(PilotOwner(name=name, system_user=name, target=1) for name in ("ann", "ben"))
    pilots = (pilot("slurm-ann-1", owner="ann"), pilot("slurm-ben-1", owner="ben"), pilot("slurm-ben-2", owner="ben"))
    found = cluster(*pilots, owners=owners, max_pilots_per_user=2)
    assert expect(found) == ("1 machine of Slurm is on its way", 4)
    assert expect(found, make_job("ben/b")) == ("2 machines of Slurm are on their way", 4)
    assert expect(found, make_job("cleo/c")) == ("Slurm may give more machines", 2)
    paused = (PilotOwner(name="cleo", system_user=None, target=0, state="paused"), *owners)
    assert expect(cluster(*pilots, owners=paused), make_job("cleo/c"))[0] == ""


def test_a_user_to_whom_others_give_machines_up_can_expect_them() -> None:
    """All machines are those of ben, and ann is given one by now."""
    owners = [PilotOwner(name="ben", system_user="ben", target=3), PilotOwner(name="ann", system_user="ann", target=1)]
    nodes = [f"slurm-ben-{number}" for number in range(4)]
    found = cluster(*(pilot(node, "running", "ben") for node in nodes), owners=tuple(owners))
    assert expect(found, joined=tuple(nodes)) == ("Slurm may give more machines", 2)
    assert expect(found, make_job("ben/b"), joined=tuple(nodes)) == ("", 0)
    limited = msgspec.structs.replace(found, max_pilots_per_user=0)
    assert expect(limited, joined=tuple(nodes)) == ("", 0)


def test_nothing_is_on_its_way_for_a_job_that_machines_have_refused_within_an_hour() -> None:
    """The machines that have refused it are gone, and no further one is asked for."""
    owner = PilotOwnerState("ann", SHAPE)
    owner.refused_jobs = ("ann/a", "ann/b.1")
    told = owner.find_trouble("Slurm", "slurm")
    own = PilotOwner(name="ann", system_user="ann", target=0, trouble=told)
    for found in (cluster(trouble=told), cluster(owners=(own,)), cluster(pilot("slurm-1"), trouble=told)):
        assert expect(found) == expect(found, make_job("ann/b.1")) == ("", 0)
        assert expect(found, make_job("ann/b"))[0] != ""


def test_a_machine_that_never_comes_is_not_on_its_way() -> None:
    hopeless = msgspec.structs.replace(pilot("slurm-1"), reason="PartitionTimeLimit")
    assert expect(cluster(hopeless, max_pilots=1)) == ("", 0)
    assert expect(cluster(msgspec.structs.replace(hopeless, reason="Resources"), max_pilots=1))[1] == 2


def test_only_slots_of_whole_workers_are_expected_and_none_of_a_paused_cluster() -> None:
    job = make_job("ann/a", gpus_per_worker=3)
    assert expect(cluster(num_slots=4, has_gpus=True, max_pilots=3), job)[1] == 9
    assert expect(cluster(pilot("slurm-1"), state="paused"))[1] == 2


def test_a_plan_says_that_a_cluster_may_start_machines() -> None:
    new = NewJob(name="a", spec={"program": ["a.py"]}, min_workers=4, max_workers=4)
    asker, empty = Asker("ann", Role.USER), Snapshot(now=NOW, slots=(), jobs=())
    for found, want in (
        ([], "could not start: it needs 4 slots at once, but the pool has 0"),
        ([cluster()], "but the pool has none; Slurm may give more machines"),
        ([cluster(pilot("slurm-1"))], "but the pool has none; 1 machine of Slurm is on its way"),
        ([cluster(max_pilots=1)], "at once, but the pool has 0, and clusters may give 2 more"),
    ):
        view = PoolView(empty, ComingMachines(found, (), NOW))
        assert plan_submission(view, new, asker, RULES, NOW).reason.endswith(want)


STATES = ("waiting", "running", "ending", "gone")
SENTENCE = re.compile(
    r"(?:(1) machine of (\w+) is|(\d+) machines of (\w+) are) on (?:its|their) way|(\w+) may give more machines"
)


@st.composite
def any_clusters(draw: st.DrawFn) -> list[Cluster]:
    """Draw clusters with machines of all users, or of two users."""
    found = []
    for kind in draw(st.lists(st.sampled_from(("slurm", "kubernetes")), unique=True)):
        is_owned = draw(st.booleans())
        names = ("ann", "ben") if is_owned else (None,)
        pilots = [
            pilot(f"{kind}-{number}", draw(st.sampled_from(STATES)), draw(st.sampled_from(names)))
            for number in range(draw(st.integers(0, 5)))
        ]
        owners = tuple(PilotOwner(name=name, system_user=name, target=0) for name in names if name is not None)
        more = {"kind": kind, "name": kind.title(), "max_pilots": draw(st.integers(0, 6)), "owners": owners}
        more |= {"state": draw(st.sampled_from(("ok", "ok", "paused", "away")))}
        found.append(cluster(*pilots, **more, observed_at=draw(st.sampled_from((NOW, NOW - 500)))))
    return found


@for_any(any_clusters(), st.sets(st.integers(0, 5)))
def test_every_sentence_about_machines_on_their_way_is_true(clusters: list[Cluster], joined: set[int]) -> None:
    nodes = {one.node for each in clusters for one in each.pilots if int(one.node.split("-")[1]) in joined}
    job = ComingMachines(clusters, nodes, NOW).add_to(make_job("ann/a"))
    told = {}
    for sentence in job.coming.split("; ") if job.coming else ():
        parts = SENTENCE.fullmatch(sentence)
        assert parts is not None, sentence
        told[parts[2] or parts[4] or parts[5]] = int(parts[1] or parts[3] or 0)
    num_slots = 0
    for one in clusters:
        there = [each for each in one.pilots if each.state in ("waiting", "running")]
        new = [each for each in there if each.owner in (None, "ann") and each.node not in nodes]
        more = max(one.max_pilots - len(there), 0) if one.state == "ok" else 0
        is_old = one.observed_at != NOW
        assert (one.name in told) == (not is_old and bool(new or more))
        assert told.get(one.name, 0) == (0 if is_old else len(new))
        num_slots += 0 if is_old else (len(new) + more) * one.num_slots
    assert job.num_coming == num_slots


def test_the_reason_of_a_job_that_its_queue_may_not_have_so_many_names_no_machine() -> None:
    job = ComingMachines([cluster(max_pilots=8)], (), NOW).add_to(make_job("ann/a", 8, min_workers=8))
    assert job.num_coming == 16
    for ceiling, want in ((4, "lower its minimum or add nodes"), (8, "Slurm may give more machines")):
        found = make_small(job, a=4)
        found = msgspec.structs.replace(found, queues=(Queue(name=job.queue, ceiling=ceiling),))
        assert decide(found, RULES).of(job.id).reason.endswith(want)
