"""Tests of clusters: one machine, a job on it, one sentence about what is wrong, and nothing that is left."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest
from tests.unit.server.platform import NOW, Platform, check_problem
from tests.unit.server.test_agents import find_node
from tests.unit.server.test_pilots import World
from tests.unit.server.test_projects import define, make

from legato.clusters.fake import FakeCluster
from legato.clusters.pilots import ClusterAwayError, PilotOrder, PilotState
from legato.control.records import CheckedJob, JobFilter
from legato.control.roles import Role, Submitter
from legato.control.stages import ENDED, Stage
from legato.policy.snapshot import TEST_LABEL, JobDemand, Snapshot
from legato.server import cluster_tests

NODE = "fake-test"


class TestedWorld(World):
    """A world in which an administrator tests the cluster. Its snapshots have the job of the test."""

    __test__ = False
    job_refusals: ClassVar[dict[str, str]] = {}

    def take_snapshot(self) -> Snapshot:
        tests = self.platform.store.jobs.list(JobFilter(labels={TEST_LABEL: "fake"}), limit=9).items
        jobs = [
            JobDemand(
                id=job.id, name=job.name, owner=job.owner, queue=job.queue, submitted_at=job.submitted_at,
                max_workers=job.max_workers, refusals=self.job_refusals,
                labels=self.platform.store.jobs.read_spec(job.id).get("node_labels", {}),
            )
            for job in tests if job.stage not in ENDED
        ]  # fmt: skip
        seen = super().take_snapshot()
        return msgspec.structs.replace(seen, jobs=(*seen.jobs, *jobs))

    def ask(self, who: str = "admin", cluster: str = "fake") -> Any:
        return self.platform.ask("POST", f"clusters/{cluster}/test", who=who)

    def begin(self) -> str:
        """Begin a test, and let the server ask for its machine; returns the job."""
        self.round()
        answer = self.ask()
        assert answer.status_code == 201, answer.text
        self.round()
        return str(answer.json()["id"])

    def test(self) -> Any:
        (found,) = self.platform.get("clusters", who="admin")["items"]
        return found["test"]

    def let_train(self, job: str) -> None:
        self.let_join(NODE)
        self.round()
        self.start(job, f"{NODE}/0", f"{NODE}/1")

    def start(self, job: str, *slots: str) -> None:
        self.platform.start(job, *slots)
        self.platform.store.loop.end_lease(self.platform.now)

    def end_job(self, job: str, stage: Stage = Stage.SUCCEEDED) -> None:
        self.platform.end(job, stage)
        self.platform.store.loop.end_lease(self.platform.now)

    def give_back(self) -> None:
        """Let the agent of the test leave, as it does when the server asks for it."""
        assert self.beat(NODE)["leave"] is True
        self.beat(NODE, leaving=True)
        self.end(NODE)
        self.round()


@pytest.fixture
def world(platform: Platform) -> TestedWorld:
    return TestedWorld(platform)


def test_a_test_gets_one_machine_trains_on_it_and_gives_it_back(world: TestedWorld) -> None:
    job = world.begin()
    assert set(world.alive()) == {NODE}
    record = world.platform.get(f"jobs/{job}", who="admin")
    assert (record["min_workers"], record["max_workers"]) == (2, 2)
    world.round()
    assert world.test()["told"] == "Machine 1 waits in the queue of Fake: Resources."
    world.let_train(job)
    assert world.nodes()[NODE]["labels"] == {"legato.cluster": "fake", TEST_LABEL: "fake"}
    world.round()
    assert world.test()["told"] == "The machine has joined the pool; the job is running: its workers train."
    world.end_job(job)
    world.round()
    assert (world.test()["state"], world.test()["is_clean"]) == ("passed", False)
    assert "gave a machine, whose agent joined after 5 s, and 2 workers trained 10 steps there." in world.test()["told"]
    world.give_back()
    assert world.test()["is_clean"] is True
    assert (world.nodes(), world.platform.store.pilots.list(), world.alive()) == ({}, (), {})


def test_no_other_job_uses_the_machine_and_it_counts_for_the_maximum(world: TestedWorld) -> None:
    world.rules = msgspec.structs.replace(world.rules, max_pilots=2)
    world.restart()
    world.begin()
    world.want = 8
    world.round()
    assert set(world.alive()) == {NODE, "fake-1"}
    world.let_join(NODE)
    world.round()
    world.round()
    assert set(world.alive()) == {NODE, "fake-1"}


def test_the_machine_of_a_test_does_not_count_once_it_has_ended_although_the_cluster_still_shows_it(
    world: TestedWorld,
) -> None:
    """Kubernetes shows pods that have ended for 10 minutes, and Slurm jobs for 5."""
    world.rules = msgspec.structs.replace(world.rules, max_pilots=2)
    world.restart()
    job = world.begin()
    world.let_train(job)
    world.end_job(job)
    world.round()
    world.give_back()
    assert NODE in {pilot.node for pilot in world.engine.pilots.values()}
    world.want = 8
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2"}


def test_a_test_keeps_its_place_and_no_machine_of_a_user_is_ended_for_it(world: TestedWorld) -> None:
    """The demand grows to the maximum in the round in which the test begins."""
    world.rules = msgspec.structs.replace(world.rules, max_pilots=2)
    world.restart()
    world.round()
    assert world.ask().status_code == 201
    world.want = 8
    for _ in range(3):
        world.round()
    assert set(world.alive()) == {NODE, "fake-1"}
    assert world.engine.ended == []


def test_a_machine_that_another_one_replaces_takes_the_place_of_a_test(world: TestedWorld) -> None:
    """The machine that reaches its time limit and the one that replaces it are as many as the maximum allows."""
    world.rules = msgspec.structs.replace(world.rules, max_pilots=2)
    world.restart()
    world.want = 2
    world.round()
    world.let_join("fake-1", ends_at=world.platform.now + 600)
    world.round(0)
    world.start(world.platform.submit(), "fake-1/0")
    assert world.ask().status_code == 201
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2"}
    world.round()
    assert "as many as max_agents allows" in world.test()["told"]
    assert set(world.alive()) == {"fake-1", "fake-2"}


def test_a_machine_too_many_is_not_asked_for(world: TestedWorld) -> None:
    world.rules = msgspec.structs.replace(world.rules, max_pilots=1)
    world.restart()
    world.want = 2
    world.round()
    world.begin()
    assert set(world.alive()) == {"fake-1"}
    assert (world.test()["state"], world.test()["is_clean"]) == ("failed", True)
    assert world.test()["told"] == (
        "Legato has 1 machine of Fake, as many as max_agents allows, and can give none back: jobs or other users need "
        "them; raise max_agents, or test it later."
    )


def fill(world: TestedWorld, **rules: int) -> None:
    """Let two machines, which no job uses, be all that the cluster or the settings have."""
    world.rules = msgspec.structs.replace(world.rules, idle_s=1000, **rules)
    world.restart()
    world.want = 4
    world.round()
    for node in ("fake-1", "fake-2"):
        world.let_join(node)
        world.round()
    world.want = 0
    for _ in range(3):  # no job has needed them lately
        world.round(30)
        beat(world)


def beat_one(world: TestedWorld, node: str) -> bool:
    return bool(world.beat(node)["leave"])


def beat(world: TestedWorld) -> list[str]:
    """Let both machines report; returns those that leave."""
    return [node for node in ("fake-1", "fake-2") if world.beat(node)["leave"]]


def test_a_test_gets_the_place_of_an_idle_machine_if_max_agents_allows_no_more(world: TestedWorld) -> None:
    fill(world, max_pilots=2)
    world.begin()
    world.round()
    assert world.test()["told"] == "There is no room for the test yet: Legato gives machine fake-1 back to Fake."
    assert (beat(world), set(world.alive())) == (["fake-1"], {"fake-1", "fake-2"})
    assert find_node(world.platform, "fake-1")["agent"]["drain_reason"] == "a test needs its place"
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    assert set(world.alive()) == {"fake-2", NODE}
    assert (world.test()["state"], beat_one(world, "fake-2")) == ("running", False)


def test_no_machine_of_a_job_that_needs_more_makes_room_for_a_test(world: TestedWorld) -> None:
    """One of its two machines has joined, and is idle because the other one waits in the queue of the cluster."""
    world.rules = msgspec.structs.replace(world.rules, max_pilots=2, idle_s=1000)
    world.restart()
    world.want = 4
    world.round()
    world.let_join("fake-1")
    for _ in range(5):
        world.round(30)
        world.beat("fake-1")
    world.begin()
    assert world.test()["told"].startswith("Legato has 2 machines of Fake, as many as max_agents allows")
    world.round()
    assert (beat_one(world, "fake-1"), set(world.alive())) == (False, {"fake-1", "fake-2"})
    assert world.engine.ended == []


@pytest.mark.parametrize("want", [2, 4])
def test_no_machine_that_a_job_needs_makes_room_for_a_test_in_a_full_cluster(world: TestedWorld, want: int) -> None:
    fill(world)
    world.want = want
    world.begin()
    for _ in range(3):
        world.round()
        assert beat(world) == (["fake-1"] if want == 2 else [])
    assert {"fake-1", "fake-2", NODE} == set(world.alive())


def test_one_machine_and_no_waiting_one_makes_room_for_a_test(world: TestedWorld) -> None:
    """The machine that waits is the third of ``min_pilots``."""
    fill(world, max_pilots=3, min_pilots=3)
    assert set(world.alive()) == {"fake-1", "fake-2", "fake-3"}
    world.begin()
    for _ in range(2):
        world.round(1)
        assert beat(world) == ["fake-1"]
    assert (world.engine.ended, set(world.alive())) == ([], {"fake-1", "fake-2", "fake-3"})


def test_a_test_waits_for_a_machine_that_a_job_has_needed_within_the_last_minute(world: TestedWorld) -> None:
    """The job may be between two attempts. Until then, nothing is given back, and no machine that waits is ended."""
    fill(world, max_pilots=3, min_pilots=3)
    world.want = 4
    world.round()
    world.want = 0
    assert world.ask().status_code == 201
    for _ in range(5):
        world.round(10)
        assert beat(world) == []
        assert "when no job has needed it for a minute" in world.test()["told"]
    assert (world.engine.ended, NODE in world.alive()) == ([], False)
    world.round(10)
    assert beat(world) == ["fake-1"]


def test_a_machine_that_has_just_become_idle_makes_room_for_a_test_a_moment_later(world: TestedWorld) -> None:
    fill(world, max_pilots=2)
    job = world.platform.submit()
    world.start(job, "fake-1/0", "fake-2/0")
    world.round()
    assert world.ask().status_code == 201
    world.end_job(job)
    world.round(1)
    assert (world.test()["state"], beat(world)) == ("running", [])
    world.round()
    assert (world.test()["state"], beat(world)) == ("running", ["fake-1"])


def test_a_machine_that_leaves_already_makes_room_for_a_test(world: TestedWorld) -> None:
    fill(world, max_pilots=2)
    for _ in range(10):
        world.round(100)
        left = beat(world)
    assert left == ["fake-1", "fake-2"]
    world.begin()
    assert world.test()["told"] == "There is no room for the test yet: Legato gives machine fake-1 back to Fake."
    assert set(world.alive()) == {"fake-1", "fake-2"}


def test_a_new_leader_gives_no_second_machine_back_for_a_test(world: TestedWorld) -> None:
    fill(world, min_pilots=2)
    world.begin()
    world.round()
    assert beat(world) == ["fake-1"]
    for _ in range(2):
        world.restart()
        for _ in range(3):
            world.round()
            assert beat(world) == ["fake-1"]
        assert "Legato gives machine fake-1 back to Fake" in world.test()["told"]
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.restart()
    for _ in range(3):
        world.round()
        assert (beat_one(world, "fake-2"), world.test()["state"]) == (False, "running")


def test_jobs_get_machines_while_a_test_waits_for_its_own(world: TestedWorld) -> None:
    fill(world)
    world.begin()
    world.round()
    assert beat(world) == ["fake-1"]
    world.want = 4
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2", "fake-3", NODE}


def test_the_wait_for_the_machine_of_a_test_begins_when_there_is_room(world: TestedWorld) -> None:
    fill(world)
    world.begin()
    for _ in range(10):
        world.round(28)
        beat(world)
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    for _ in range(9):
        world.round(30)
        assert (beat_one(world, "fake-2"), world.test()["state"]) == (False, "running")
    for _ in range(3):
        world.round(30)
    assert "has given no machine within 300 s: Resources" in world.test()["told"]


def test_a_test_gets_the_place_of_one_idle_machine_if_the_cluster_is_full(world: TestedWorld) -> None:
    """That of the test counts for the minimum: Kubernetes might start another one first."""
    fill(world, min_pilots=2)
    job = world.begin()
    assert set(world.alive()) == {"fake-1", "fake-2", NODE}
    for _ in range(3):  # its machine waits because of 'Resources'
        world.round()
        world.beat("fake-2")
    assert "Legato gives machine fake-1 back" in world.test()["told"]
    assert (beat(world), set(world.alive())) == (["fake-1"], {"fake-1", "fake-2", NODE})
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    world.beat("fake-2")
    world.round()
    assert world.test()["told"] == "Machine 3 waits in the queue of Fake: Resources."
    assert (beat_one(world, "fake-2"), set(world.alive())) == (False, {"fake-2", NODE})
    world.let_train(job)
    world.round()
    assert set(world.alive()) == {"fake-2", NODE}
    world.end_job(job)
    world.round()
    world.round()
    assert set(world.alive()) == {"fake-1", "fake-2", NODE}


def test_no_idle_machine_is_given_back_for_a_test_that_waits_for_something_else(world: TestedWorld) -> None:
    fill(world)
    world.begin()
    world.engine.set(world.alive()[NODE], PilotState.WAITING, reason="Priority")
    for _ in range(3):
        world.round()
        assert beat(world) == []
    assert world.test()["told"] == "Machine 3 waits in the queue of Fake: Priority."


def test_a_cluster_that_refuses_because_idle_machines_use_a_quota_is_asked_again(world: TestedWorld) -> None:
    fill(world)
    world.engine.refusal = "pods is forbidden: exceeded quota: gpus"
    world.begin()
    world.round()
    assert (world.test()["state"], beat(world)) == ("running", ["fake-1"])
    world.engine.refusal = None
    world.round()
    assert NODE not in world.alive(), "the quota is still used"
    world.beat("fake-1", leaving=True)
    world.end("fake-1")
    world.round()
    assert (world.test()["state"], set(world.alive())) == ("running", {"fake-2", NODE})


def test_an_idle_machine_that_does_not_end_does_not_hold_up_a_test_for_good(world: TestedWorld) -> None:
    fill(world, max_pilots=2)
    world.begin()
    for _ in range(31):
        world.round(10)
        beat(world)
    assert world.test()["told"].startswith("Legato has 2 machines of Fake, as many as max_agents allows")


def test_a_refusal_is_the_verdict_and_says_what_to_do(world: TestedWorld) -> None:
    world.engine.refusal = "Invalid partition name specified"
    job = world.begin()
    world.round()
    assert world.test()["told"] == (
        "Fake refuses a machine: Invalid partition name specified; correct account, partition and qos in [slurm]."
    )
    assert world.platform.store.jobs.get(job).stage in (Stage.STOPPED, Stage.STOPPING)
    world.round()
    assert world.test()["is_clean"] is True
    assert world.cluster()["state"] == "ok", "other machines are not held up by a test"


def test_a_cluster_that_stays_away_is_the_verdict(world: TestedWorld) -> None:
    world.round()
    world.ask()
    world.engine.is_away = True
    world.round()
    assert (world.test()["state"], world.cluster()["state"]) == ("running", "away")
    assert world.test()["told"] == "Fake does not answer, and is asked again: the fake cluster is away."
    world.round(30)
    assert (world.test()["state"], world.cluster()["state"]) == ("failed", "away")
    assert world.test()["told"] == "Fake does not answer: the fake cluster is away."


def test_a_cluster_that_was_away_for_a_moment_gives_the_machine_of_a_test(world: TestedWorld) -> None:
    world.round()
    job = world.ask().json()["id"]
    for is_away in (True, False, True, False):
        world.engine.is_away = is_away
        world.round(20)
    assert (world.test()["state"], set(world.alive())) == ("running", {NODE})
    world.let_train(job)
    world.end_job(job)
    world.round()
    assert world.test()["state"] == "passed"


def test_a_cluster_that_answers_and_takes_no_machine_is_asked_again_and_then_the_verdict(
    world: TestedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> Any:
        raise ClusterAwayError("Slurm takes no jobs: Unable to contact slurm controller (connect failure).")

    world.round()
    monkeypatch.setattr(FakeCluster, "start", refuse)
    world.ask()
    world.round()
    for _ in range(3):
        assert world.test()["state"] == "running"
        world.round(16)
    assert world.test()["told"].endswith(
        "Unable to contact slurm controller (connect failure); check on the server's machine that slurmctld answers "
        "(scontrol ping)."
    )
    assert world.platform.store.pilots.list() == ()


KUBERNETES_AWAY = "Kubernetes gives no news: the API server cannot be reached:"


@pytest.mark.parametrize(
    ("known", "why", "want"),
    [
        ("_AWAY", f"{KUBERNETES_AWAY} Cannot connect to host 10.0.0.1:6443", "reaches the API server"),
        ("_AWAY", f"{KUBERNETES_AWAY} Cannot connect [SSL: CERTIFICATE_VERIFY_FAILED]", "in the kubeconfig"),
        ("_AWAY", "Slurm says nothing: Unable to contact slurm controller: Connection refused", "slurmctld answers"),
        ("_AWAY", "Cannot run squeue: No such file or directory. Is Slurm installed here?", "the commands of Slurm"),
        ("_CLUSTER", "Connection refused", ""),
        ("_CLUSTER", "Invalid feature specification", "--constraint"),
        ("_CLUSTER", "Invalid generic resource (gres) specification", "correct gpus, gres and cpus"),
        ("_CLUSTER", "Memory specification can not be satisfied", "--mem"),
        ("_JOB", "worker 0: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "end what else uses"),
        ("_JOB", "worker 0 was killed: out of memory", "more memory"),
        ("_JOB", "Priority", ""),
        ("_MACHINE", "the agent has not reached the server; certificate of host y ok", "driver_ports"),
        ("_MACHINE", "the agent has not reached the server; slurmstepd: oom_kill event", "more memory"),
        ("_MACHINE", "the agent has not reached the server; its certificate cannot be verified: x", "a proxy with"),
    ],
)  # fmt: skip
def test_the_advice_is_that_of_the_phase_in_which_the_test_fails(known: str, why: str, want: str) -> None:
    told = cluster_tests._blame("It fails", why, getattr(cluster_tests, known))
    advice = told.removeprefix(f"It fails: {why}").removesuffix(".")
    assert (want in advice) if want else not advice


def test_a_machine_that_ends_before_its_agent_joins_is_the_verdict_with_its_last_words(
    world: TestedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "read_last_words", lambda *_: "/usr/bin/python: No module named legato.cli")
    world.begin()
    world.end(NODE, "NonZeroExitCode")
    world.round()
    assert world.test()["told"].startswith(
        "Fake has ended the machine before its agent joined the pool: /usr/bin/python: No module named legato.cli; "
        "install Legato on a disk that the machines see"
    )
    world.round()
    assert world.test()["is_clean"] is True
    assert world.cluster()["trouble"] is None


def test_only_admins_see_what_a_test_has_shown(world: TestedWorld) -> None:
    """It may have a line that the machine has written."""
    world.begin()
    for who, want in (("admin", True), ("ann", False), ("eye", False)):
        (cluster,) = world.platform.get("clusters", who=who)["items"]
        assert cluster["test"]["state"] == "running"
        assert bool(cluster["test"]["told"]) is want


def test_a_machine_that_waits_too_long_is_taken_back(world: TestedWorld) -> None:
    world.begin()
    for _ in range(11):
        world.round(30)
    assert world.test()["told"] == (
        "Fake has given no machine within 300 s: Resources; the cluster is full: try again later, or ask for less."
    )
    world.round()
    assert (world.alive(), world.test()["is_clean"]) == ({}, True)


def test_an_image_that_cannot_be_pulled_is_not_waited_for(world: TestedWorld) -> None:
    world.begin()
    world.engine.set("1", PilotState.WAITING, reason="ImagePullBackOff: Back-off pulling image legato:9")
    world.round()
    assert world.test()["told"].endswith("legato:9; correct image, or give the pods imagePullSecrets by pod_template.")


def test_an_agent_that_does_not_reach_the_server_is_the_verdict(world: TestedWorld) -> None:
    world.begin()
    world.engine.set("1", PilotState.RUNNING)
    for _ in range(6):
        world.round(15)
    told = world.test()["told"]
    assert "machine 1 has not reached the server at http://head:8765 within 60 s; let the machines reach" in told
    world.round()
    assert (world.engine.ended, world.alive()) == ([("1", True)], {})


def test_a_machine_that_refuses_the_job_is_the_verdict(world: TestedWorld) -> None:
    job = world.begin()
    world.let_join(NODE)
    world.job_refusals = {NODE: "No module named 'torch'"}
    world.round()
    assert world.test()["told"] == (
        "The machine has joined, but it refuses the job: No module named 'torch'; install torch in the Python of the "
        "machines."
    )
    assert world.platform.store.jobs.get(job).stage in (Stage.STOPPED, Stage.STOPPING)


def test_a_job_that_fails_or_trains_for_too_long_is_the_verdict(world: TestedWorld) -> None:
    job = world.begin()
    world.let_train(job)
    world.end_job(job, Stage.FAILED)
    world.round()
    assert world.test()["told"] == "The machine has joined, but the job fails: it ended."
    world.give_back()
    job = world.begin()
    world.let_train(job)
    for _ in range(7):
        world.round(30)
        world.beat(NODE)
    assert "has not trained 10 steps within 180 s: its workers train" in world.test()["told"]
    assert world.platform.store.jobs.get(job).stop_now is True


def test_a_test_that_is_stopped_gives_its_machine_back(world: TestedWorld) -> None:
    job = world.begin()
    assert world.platform.ask("POST", f"jobs/{job}/stop", {"now": True}, who="admin").status_code == 200
    world.round()
    assert world.test()["state"] == "failed"
    assert world.test()["told"].startswith("The test was stopped. The last news: ")
    world.round()
    assert (world.alive(), world.test()["is_clean"]) == ({}, True)


def test_an_agent_that_does_not_leave_after_a_test_is_ended_and_then_killed(world: TestedWorld) -> None:
    job = world.begin()
    world.let_train(job)
    world.end_job(job)
    for _ in range(5):
        world.round(16)
        world.beat(NODE)
    assert world.engine.ended == [("1", False), ("1", True)]


def test_another_server_continues_a_test_and_starts_no_second_machine(world: TestedWorld) -> None:
    job = world.begin()
    world.restart()
    world.round()
    assert (len(world.engine.pilots), world.test()["job"]) == (1, job)
    world.let_train(job)
    world.end_job(job)
    world.restart()
    world.round()
    assert world.test()["state"] == "passed"
    world.give_back()
    assert world.test()["is_clean"] is True


def test_a_machine_of_a_test_that_the_server_has_forgotten_is_ended(world: TestedWorld) -> None:
    world.platform.store.pilots.add("fake", NODE, world.platform.now)
    order = PilotOrder(node=NODE, url="u", token="t")
    asyncio.run(FakeCluster(world.engine).start([order]))
    world.round()
    assert world.alive() == {}


def test_only_admins_test_and_one_test_runs_at_a_time(world: TestedWorld) -> None:
    check_problem(world.ask(), 404, "not-found", "takes no machines from a cluster 'fake'")
    world.round()
    check_problem(world.ask(who="ann"), 403, "forbidden", "only admins may")
    job = world.begin()
    check_problem(world.ask(), 409, "conflict", f"job {job} tests it already")
    world.platform.ask("POST", f"jobs/{job}/stop", {"now": True}, who="admin")
    world.let_join(NODE)
    world.round()
    check_problem(world.ask(), 409, "conflict", "the machine of the last test is being given back")


def test_two_requests_at_once_begin_one_test(world: TestedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that no job tests the cluster, before one of them submits its job."""
    world.round()
    monkeypatch.setattr(type(world.platform.store.jobs), "find_test", lambda *_: None)
    job = world.ask().json()["id"]
    check_problem(world.ask(), 409, "conflict", f"Cannot test cluster 'fake': job {job} tests it already")


@pytest.mark.parametrize("field", ["labels", "node_labels"])
def test_no_user_can_make_a_job_a_test(platform: Platform, field: str) -> None:
    job = {"name": "mine", "program": ["train.py"], "directory": "/d", field: {TEST_LABEL: "fake"}}
    check_problem(platform.ask("POST", "jobs", job), 422, "invalid", f"have the label {TEST_LABEL}")


@pytest.mark.parametrize("labels", [{TEST_LABEL: "fake"}, {TEST_LABEL: None}, None])
def test_no_patch_gives_a_job_the_label_of_tests_or_takes_it_away(
    world: TestedWorld, labels: dict[str, str | None] | None
) -> None:
    test = world.begin()
    changed = world.platform.submit() if labels and labels[TEST_LABEL] else test
    answer = world.platform.ask("PATCH", f"jobs/{changed}", {"labels": labels}, who="admin")
    check_problem(answer, 422, "invalid", f"have the label {TEST_LABEL}, and they keep it")
    assert world.platform.ask("PATCH", f"jobs/{test}", {"labels": {"a": "b"}}, who="admin").status_code == 200
    check_problem(world.ask(), 409, "conflict", f"job {test} tests it already")


def test_no_run_of_a_definition_has_the_label_of_tests(platform: Platform) -> None:
    project = make(platform, "projects", name="Digits")
    one = define(platform, project, directory="/d")
    experiment = make(platform, f"projects/{project['id']}/experiments", name="First", definitions=[one["id"]])
    answer = platform.ask("POST", f"experiments/{experiment['id']}/runs", {"labels": {TEST_LABEL: "fake"}})
    check_problem(answer, 422, "invalid", f"have the label {TEST_LABEL}")


def test_a_label_alone_makes_no_job_a_test(world: TestedWorld) -> None:
    """A job with the label that asks for no machine of a test holds up no test."""
    labels = {TEST_LABEL: "fake"}
    labelled = CheckedJob(name="mine", spec={"program": ["a"]}, min_workers=1, max_workers=1, labels=labels)
    world.platform.store.jobs.submit(labelled, Submitter("ann", Role.USER), NOW)
    world.round()
    assert world.ask().status_code == 201


def test_idle_machines_are_counted_and_the_numbers_survive_the_server(world: TestedWorld) -> None:
    world.want = 4
    world.round()
    for node in ("fake-1", "fake-2"):
        world.let_join(node)
    world.round()
    job = world.platform.submit()
    world.start(job, "fake-1/0")
    world.round()
    for _ in range(6):
        world.round(10)
        for node in ("fake-1", "fake-2"):
            world.beat(node)
    idle = world.cluster()["idle"]
    assert (idle["num_machines"], idle["num_slots"], idle["since"]) == (1, 2, NOW + 5)
    # The first 5 s both were idle. What was counted in the last seconds is not written yet.
    assert idle["total_slot_s"] == pytest.approx(idle["given_slot_s"] / 2, abs=25)
    assert idle["given_slot_s"] >= 100
    assert idle["slot_s"] == pytest.approx(idle["total_slot_s"], abs=25)
    world.restart()
    world.round()
    assert world.cluster()["idle"]["given_slot_s"] >= idle["given_slot_s"]


@pytest.mark.parametrize("pauses", ["another server leads", "the server pauses"])
def test_idle_time_that_no_server_sees_is_not_counted(world: TestedWorld, pauses: str) -> None:
    world.want = 2
    world.round()
    world.let_join("fake-1")
    world.want = 0
    for _ in range(2):
        world.round(31)
        world.beat("fake-1")
    before = world.cluster()["idle"]["total_slot_s"]
    world.leads = pauses == "the server pauses"
    world.round(301 if world.leads else 10)
    world.leads = True
    for _ in range(3):
        world.beat("fake-1")
        world.round(31)
    idle = world.cluster()["idle"]
    # The server begins in the first of these rounds, or has begun in the one after its pause.
    seen_s = 31 * (3 if pauses == "the server pauses" else 2)
    assert (idle["total_slot_s"], idle["slot_s"]) == (before + 2 * seen_s, 2 * seen_s)
    assert before > 0


def test_the_program_trains_ten_steps() -> None:
    """The file compiles, and the numbers of samples and of steps fit together."""
    compile(cluster_tests._PROGRAM, "program", "exec")
    assert cluster_tests.NUM_STEPS * 64 == 640
    assert "return 640" in cluster_tests._PROGRAM
