"""Jobs over REST: submit, list, read, change, pause, resume, stop, clone; permissions, stages and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import ADMIN, JOB, NOW, Platform, check_problem

from legato.control.records import DeclaredSlot, Job, Node, Queue
from legato.control.stages import Stage
from legato.engines.cgroups import CONTROLLERS, Place, Support
from legato.server import launches

UNKNOWN = "j-37efnd0000"
ALL_FIELDS = {
    "name": "all",
    "program": ["train.py", "--lr", "0.1"],
    "directory": "/d",
    "min_workers": 2,
    "max_workers": 3,
    "is_elastic": True,
    "gpus_per_worker": 2,
    "gpu_type": "A100",
    "node_labels": {"site": "x"},
    "queue": "default",
    "priority": 7000,
    "labels": {"team": "vision"},
    "max_retries": 2,
    "max_run_s": 60.5,
    "environment": {"COLOUR": "green"},
    "data": "/data",
    "seed": 3,
    "num_threads": 2,
    "cpu_capability": "avx2",
    "python": "/envs/torch28/bin/python",
    "num_micro_batches": 8,
    "checkpoint_every": "10steps",
    "keep": 5,
    "heartbeat_limit_s": 9.0,
    "collective_limit_s": 600.0,
    "memory_bytes": 2**30,
    "num_cpus": 1.5,
    "must_limit": False,
    "parameters": {"rate": 0.1, "epochs": 3, "wide": True, "title": "a b"},
}
SPEC = (
    *("program", "directory", "environment", "data", "seed", "num_threads", "num_micro_batches", "checkpoint_every"),
    *("cpu_capability", "python", "keep", "max_run_s", "heartbeat_limit_s", "parameters", "framework", "launcher"),
    *("collective_limit_s", "memory_bytes", "num_cpus", "must_limit", "gpu_type", "node_labels"),
)


# ---------------------------------------------------------------- submit


def test_a_job_is_submitted(platform: Platform) -> None:
    answer = platform.ask("POST", "jobs", JOB)
    assert answer.status_code == 201
    job = answer.json()
    assert set(job) == set(Job.__struct_fields__), "no field is missing, no other is there"
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert answer.headers["etag"] == '"1"'
    want = {"name": "mnist", "owner": "ann", "stage": "queued", "version": 1, "attempt": 0, "num_slots": 0}
    want |= {"queue": "default", "priority": 5000, "min_workers": 1, "max_workers": 1, "is_elastic": True}
    want |= {"submitted_at": NOW, "progress": None, "labels": {}, "code": None, "reason": "waits for slots"}
    assert {name: job[name] for name in want} == want
    assert platform.get(f"jobs/{job['id']}") == job


def test_all_that_a_submission_may_say_is_kept(platform: Platform) -> None:
    answer = platform.ask("POST", "jobs", ALL_FIELDS)
    assert answer.status_code == 201, answer.text
    job, spec = answer.json(), platform.get("jobs/all/spec")
    assert set(spec) == set(SPEC)
    told = {name: value for name, value in {**job, **spec}.items() if name in ALL_FIELDS}
    assert told == ALL_FIELDS


def test_a_static_job_has_its_maximum_or_nothing(platform: Platform) -> None:
    job = platform.submit(is_elastic=False, max_workers=3)
    assert platform.get(f"jobs/{job}")["min_workers"] == 3
    answer = platform.ask("POST", "jobs", JOB | {"is_elastic": False, "max_workers": 3, "min_workers": 1})
    check_problem(answer, 422, "invalid", "it is static and has workers 1..3")


def test_several_gpus_per_worker_need_a_pool_with_gpus(platform: Platform) -> None:
    wanted = JOB | {"gpus_per_worker": 2}
    assert platform.ask("POST", "jobs", wanted).status_code == 201, "machines may still join"
    lease = platform.lead()
    check_problem(
        platform.ask("POST", "jobs", wanted), 422, "invalid", "gpus_per_worker=2 needs nodes with GPUs, and all slots"
    )
    slots = tuple(DeclaredSlot(f"gpu/{number}", f"GPU-{number}") for number in range(6))
    platform.store.pool.declare([Node(name="gpu", engine="local", slots=slots)], lease.fence, platform.now)
    assert platform.ask("POST", "jobs", wanted).status_code == 201
    plan = platform.ask("POST", "plan", wanted).json()
    assert (plan["slots_now"], plan["starts"]) == (2, "now")


def test_fields_that_are_null_take_their_defaults(platform: Platform) -> None:
    nothing = dict.fromkeys((name for name in ALL_FIELDS if name not in JOB), None)
    job = platform.ask("POST", "jobs", JOB | nothing).json()
    plain = platform.ask("POST", "jobs", JOB).json()
    own = ("id", "submitted_at")
    assert {name: job[name] for name in job if name not in own} == {
        name: plain[name] for name in job if name not in own
    }


def test_a_framework_may_run_the_program(platform: Platform) -> None:
    told = JOB | {"program": ["bash", "train.sh"], "framework": "command", "is_elastic": False, "max_workers": 2}
    job = platform.ask("POST", "jobs", told)
    assert job.status_code == 201, job.text
    spec = platform.get(f"jobs/{job.json()['id']}/spec")
    assert (spec["program"], spec["framework"]) == (["bash", "train.sh"], "command")
    assert spec["launcher"] == {"module": "legato.train.process.command", "script": "train.sh"}
    assert platform.ask("POST", "plan", told).status_code == 200
    plain = platform.ask("POST", "jobs", JOB | {"framework": None}).json()
    assert platform.get(f"jobs/{plain['id']}/spec")["launcher"] is None


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"framework": "comand"}, "framework", "There is no framework 'comand' here. Did you mean 'command'?"),
        ({"framework": "command", "max_workers": 2}, "framework", "runs single or static, not elastic"),
        ({"framework": "legato", "program": ["python", "-m", "x"]}, "program", "names no script"),
        ({"framework": "legato", "program": []}, "program", "The program is empty"),
    ],
)
def test_a_program_that_the_framework_cannot_run_is_refused(
    platform: Platform, changes: dict[str, Any], field: str, told: str
) -> None:
    problem = check_problem(platform.ask("POST", "jobs", JOB | changes), 422, "invalid")
    assert told in problem["detail"]
    assert [error["field"] for error in problem["errors"]] == [f"body.{field}"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"directory": "/nowhere"}, "there is no directory '/nowhere' on the machine that runs it"),
        ({"program": ["no.py"]}, "there is no program 'no.py' in its directory"),
        ({"data": "/nowhere"}, "there is no data directory '/nowhere' on the machine that runs it"),
    ],
)
def test_a_server_that_runs_jobs_refuses_missing_paths(
    platform: Platform, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    (tmp_path / "train.py").touch()
    there = {"directory": str(tmp_path), "data": str(tmp_path)}
    assert platform.ask("POST", "jobs", JOB | there | changes).status_code == 201, "the deciding server may have it"
    platform.loop.starts_drivers = True
    assert platform.ask("POST", "jobs", JOB | there | changes).status_code == 201, "another server decides"
    platform.lead()
    refused = check_problem(platform.ask("POST", "jobs", JOB | there | changes), 422, "invalid")
    assert refused["detail"].startswith(f"Cannot submit job 'mnist': {told}")
    assert platform.ask("POST", "jobs", JOB | there).status_code == 201
    # A plan does not depend on the place of the program, which may not be known yet. It does refuse missing data.
    assert platform.ask("POST", "plan", JOB | there | changes).status_code == (422 if "data" in changes else 200)


@pytest.mark.parametrize(
    ("asked", "field", "missing"),
    [
        ({"memory_bytes": 2**30}, "memory_bytes", "memory and pids"),
        ({"num_cpus": 2.0}, "num_cpus", "cpu and pids"),
        ({"memory_bytes": 2**30, "num_cpus": 2.0}, "memory_bytes", "memory and cpu and pids"),
    ],
)
def test_limits_that_this_machine_cannot_enforce_are_refused(
    new_platform: NewPlatform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    field: str,
    missing: str,
) -> None:
    platform = new_platform(job_processes=1000)
    monkeypatch.setattr(launches, "find_support", lambda: Support({}, "no control groups are mounted"))
    (tmp_path / "train.py").touch()
    job = {"name": "mnist", "program": ["train.py"], "directory": str(tmp_path)} | asked
    platform.loop.starts_drivers = True
    assert platform.ask("POST", "jobs", job).status_code == 201, "another server starts it"
    platform.lead()
    problem = check_problem(platform.ask("POST", "jobs", job), 422, "invalid")
    assert f"this machine cannot limit {missing} of a job: no control groups are mounted" in problem["detail"]
    assert "Or submit it without memory_bytes and num_cpus" in problem["detail"]
    assert [error["field"] for error in problem["errors"]] == [f"body.{field}"]
    answer = platform.ask("POST", "jobs", job | {"must_limit": False})
    assert answer.status_code == 201
    told = f"runs without its limits of memory and CPU cores: this machine cannot limit {missing} of a job"
    assert told in answer.headers["x-legato-warning"]
    places = {name: Place(2, tmp_path) for name in CONTROLLERS}
    monkeypatch.setattr(launches, "find_support", lambda: Support(places, ""))
    for said in (job, job | {"must_limit": False}):
        answer = platform.ask("POST", "jobs", said)
        assert answer.status_code == 201 and "x-legato-warning" not in answer.headers


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"name": "-a"}, None, "Cannot name a job '-a'"),
        ({"name": ""}, None, "the name is empty"),
        ({"name": "a/../b"}, None, "Cannot name a job"),
        ({"name": 5}, "body.name", "must be a text"),
        ({"name": None}, "body.name", "must be a text"),
        ({"program": "train.py"}, "body.program", "must be a list"),
        ({"program": []}, None, "there is no program"),
        ({"program": [1]}, "body.program.0", "must be a text"),
        ({"directory": None}, None, "give either uploaded code or a directory"),
        ({"directory": "d"}, None, "is not absolute"),
        ({"directory": "/d", "code": "0" * 64}, None, "give either uploaded code or a directory"),
        ({"directory": None, "code": "../../etc"}, None, "as a SHA-256"),
        ({"max_workers": 0}, None, "min_workers=1 is above max_workers=0"),
        ({"max_workers": 100_001}, None, "above 100000"),
        ({"max_workers": "3"}, "body.max_workers", "must be a whole number"),
        ({"max_workers": 1.0}, "body.max_workers", "must be a whole number"),
        ({"max_workers": 10**400}, "body.max_workers", ""),
        ({"max_workers": True}, "body.max_workers", "must be a whole number"),
        ({"min_workers": 5, "max_workers": 4}, None, "min_workers=5 is above max_workers=4"),
        ({"is_elastic": 1}, "body.is_elastic", "must be true or false"),
        ({"priority": 0}, None, "priority=0 is outside 1..10000"),
        ({"labels": {"": "x"}}, None, "'' is not a valid name of a label"),
        ({"labels": {"a": None}}, "body.labels.a", "must be a text"),
        ({"labels": {str(number): "" for number in range(65)}}, None, "65 labels are more than 64"),
        ({"max_retries": -1}, None, "max_retries=-1 is outside"),
        ({"max_run_s": 0}, None, "max_run_s=0 is not above 0"),
        ({"environment": {"LEGATO_TOKEN": "x"}}, None, "reserved for the driver"),
        ({"environment": {"A=B": "x"}}, None, "is not a valid name of a variable"),
        ({"seed": -1}, None, "seed=-1 is below 0"),
        ({"data": "../data"}, "body.data", "is not below"),
        ({"checkpoint_every": "often"}, None, "is not understood"),
        ({"keep": 0}, None, "keep=0 is below 1"),
        ({"heartbeat_limit_s": 0.1}, None, "heartbeat"),
        ({"collective_limit_s": 0}, None, "collective_limit_s=0.0 is not above 0"),
        ({"queue": "x" * 300}, "body.queue", "255"),
        ({"colour": "red"}, "body.colour", "is not known"),
    ],
)
def test_a_submission_that_cannot_be_used(
    shared: Platform, changes: dict[str, Any], field: str | None, told: str
) -> None:
    for path in ("jobs", "plan"):
        if path == "plan" and changes == {"directory": None}:
            continue
        answer = shared.ask("POST", path, JOB | changes)
        problem = check_problem(answer, 422, "invalid", told)
        assert [error["field"] for error in problem.get("errors", [])] == ([] if field is None else [field])
    assert shared.get("jobs")["items"] == [], "nothing was submitted"


def test_users_submit_only_to_queues_that_are_open_to_them(platform: Platform) -> None:
    check_problem(platform.ask("POST", "jobs", JOB, who="eye"), 403, "forbidden", "the role is 'viewer'")
    check_problem(platform.ask("POST", "jobs", JOB | {"queue": "no"}), 404, "not-found", "there is no queue 'no'")
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    check_problem(platform.ask("POST", "jobs", JOB | {"queue": "closed"}), 403, "forbidden", "closed to 'ann'")
    for who in ("ben", "admin"):
        platform.submit(who, queue="closed")
    code = "0" * 64
    answer = platform.ask("POST", "jobs", {"name": "a", "program": ["a"], "code": code})
    check_problem(answer, 404, "not-found", f"not uploaded the code {code}. Upload it first")


# ---------------------------------------------------------------- repeating


def test_the_same_request_makes_one_job(platform: Platform) -> None:
    first = platform.ask("POST", "jobs", JOB, Idempotency_Key="k")
    platform.now += 3600
    platform.ask("POST", f"jobs/{first.json()['id']}/pause")
    again = platform.ask("POST", "jobs", JOB, Idempotency_Key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["stage"] == "paused", "as it is by then"
    assert again.headers["etag"] == '"2"'
    # Of another user, it is another key.
    assert platform.ask("POST", "jobs", JOB, who="ben", Idempotency_Key="k").status_code == 201
    answer = platform.ask("POST", "jobs", JOB | {"max_workers": 2}, Idempotency_Key="k")
    check_problem(answer, 422, "key-reused")
    assert len(platform.get("jobs", who="admin")["items"]) == 2


def test_keys_that_cannot_be_used(platform: Platform) -> None:
    for key in ("", "k" * 256):
        check_problem(platform.ask("POST", "jobs", JOB, Idempotency_Key=key), 422, "invalid", "idempotency key")


def test_a_key_stays_valid_when_the_operator_changes_a_default(platform: Platform) -> None:
    platform.ask("POST", "jobs", JOB, Idempotency_Key="k")
    changed = platform.settings.model_copy(update={"default_priority": 9})
    object.__setattr__(platform.services, "settings", changed)
    assert platform.ask("POST", "jobs", JOB, Idempotency_Key="k").status_code == 200


def test_a_repeated_clone_is_one_job_when_the_name_has_come_to_mean_another(platform: Platform) -> None:
    platform.submit(priority=100)
    first = platform.ask("POST", "jobs/mnist/clone", {"priority": 200}, Idempotency_Key="k")
    platform.ask("PATCH", "jobs/mnist", {"max_workers": 3})
    again = platform.ask("POST", "jobs/mnist/clone", {"priority": 200}, Idempotency_Key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    check_problem(platform.ask("POST", "jobs/mnist/clone", Idempotency_Key="k"), 422, "key-reused")
    check_problem(platform.ask("POST", "jobs", JOB, Idempotency_Key="k"), 422, "key-reused")


# ---------------------------------------------------------------- look


def test_lists_are_filtered_and_come_in_pages(platform: Platform) -> None:
    platform.lead()
    made = []
    for number in range(5):
        platform.now += 1
        made.append(platform.submit(name=f"run-{number}", labels={"even": str(number % 2 == 0), "n": str(number)}))
    platform.start(made[2], "node/0")
    platform.submit("ben", name="Run")

    def ids(query: str, who: str = "ann") -> list[str]:
        return [job["id"] for job in platform.get(f"jobs?{query}", who=who)["items"]]

    assert ids("owner=ann") == made[::-1]
    assert ids("owner=ann&order=oldest") == made
    assert ids("stage=running") == [made[2]]
    assert len(ids("stage=running&stage=queued", "eye")) == 6
    assert ids("label=even=True&label=n=4") == [made[4]]
    assert ids("label=even=True&label=n=3") == []
    assert ids("name=run-") == made[::-1], "case counts"
    assert ids(f"search={made[1].upper()}") == ids("search=N-1") == [made[1]]
    assert ids("search=%25") == ids("search=run_") == []
    assert ids("queue=default&owner=nobody") == []
    seen, after = [], ""
    while True:
        page = platform.get(f"jobs?owner=ann&limit=2{after}")
        seen += [job["id"] for job in page["items"]]
        if page["after"] is None:
            break
        platform.submit(name="new")  # shifts no page
        after = f"&after={page['after']}"
    assert seen == made[::-1]


def test_lists_that_cannot_be_made(platform: Platform) -> None:
    long = "x" * 300
    wrong = ("stage=flying", "limit=0", "limit=1001", "limit=x", "order=up", "label=team")
    for query in (*wrong, f"name={long}", f"search={long}"):
        check_problem(platform.ask("GET", f"jobs?{query}"), 422, "invalid")


def test_a_name_is_the_newest_job_of_it_that_one_may_see(platform: Platform) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    own = platform.submit()
    platform.now += 1
    foreign = platform.submit("ben", queue="closed")
    assert platform.get("jobs/mnist")["id"] == own
    assert platform.get("jobs/mnist", who="eye")["id"] == foreign
    for who, seen in (("ann", 404), ("ben", 200), ("eye", 200), ("admin", 200)):
        assert platform.ask("GET", f"jobs/{foreign}", who=who).status_code == seen
    assert [job["id"] for job in platform.get("jobs")["items"]] == [own]


def test_only_owners_and_admins_see_the_environment(platform: Platform) -> None:
    job = platform.submit(environment={"KEY": "secret"})
    shown = {who: platform.get(f"jobs/{job}/spec", who=who)["environment"] for who in ("ann", "ben", "eye", "admin")}
    assert shown == {"ann": {"KEY": "secret"}, "ben": {"KEY": None}, "eye": {"KEY": None}, "admin": {"KEY": "secret"}}


# ---------------------------------------------------------------- change


def test_a_merge_patch(platform: Platform) -> None:
    job = platform.submit(labels={"a": "1", "b": "2"})
    body = {"priority": 6000, "max_workers": 5, "labels": {"b": None, "c": "3"}}
    answer = platform.ask("PATCH", f"jobs/{job}", body, Content_Type="application/merge-patch+json")
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert (changed["priority"], changed["max_workers"], changed["labels"]) == (6000, 5, {"a": "1", "c": "3"})
    assert (changed["version"], answer.headers["etag"]) == (2, '"2"')
    assert platform.ask("PATCH", f"jobs/{job}", {"labels": None}).json()["labels"] == {}
    assert platform.ask("PATCH", f"jobs/{job}", {}).json()["version"] == 3, "nothing is no change"


def test_notes_are_for_those_who_see_the_job_also_after_its_end(platform: Platform) -> None:
    job = platform.submit()
    assert platform.get(f"jobs/{job}")["notes"] == ""
    platform.start(job)
    platform.end(job)
    changed = platform.ask("PATCH", f"jobs/{job}", {"notes": "lr too high\n→ try 0.1"})
    assert changed.json()["notes"] == "lr too high\n→ try 0.1", changed.text
    assert platform.get("jobs", who="eye")["items"][0]["notes"] == "lr too high\n→ try 0.1"
    event = platform.get(f"jobs/{job}/events")["items"][-1]
    assert (event["kind"], event["reason"]) == ("changed", "'ann' changed notes")
    assert platform.ask("PATCH", f"jobs/{job}", {"notes": "x" * 1000}).status_code == 200
    check_problem(platform.ask("PATCH", f"jobs/{job}", {"notes": "x" * 1001}), 422, "invalid", "at most 1000")
    assert platform.ask("PATCH", f"jobs/{job}", {"notes": "mine"}, who="eye").status_code == 403
    assert platform.ask("PATCH", f"jobs/{job}", {"notes": ""}).json()["notes"] == ""


def test_patches_that_cannot_be_used(shared: Platform) -> None:
    job = shared.submit("admin", queue="admins")
    for body, told in [
        ({"priority": None}, "must be a whole number"),
        ({"queue": None}, "must be a text"),
        ({"priority": 0}, "outside 1..10000"),
        ({"max_workers": 0}, "max_workers=0"),
        ({"name": "b"}, "is not known"),
        ({"labels": {"a": 1}}, "must be a text"),
    ]:
        check_problem(shared.ask("PATCH", f"jobs/{job}", body, who="admin"), 422, "invalid", told)
    check_problem(shared.ask("PATCH", f"jobs/{job}", {"queue": "no"}, who="admin"), 404, "not-found", "no queue 'no'")
    check_problem(
        shared.ask("POST", f"jobs/{job}/resize", {}, who="admin"),
        422,
        "invalid",
        "min_workers or max_workers is required",
    )


def test_versions(platform: Platform) -> None:
    job = platform.submit()
    assert platform.ask("PATCH", f"jobs/{job}", {"priority": 1}, If_Match='"1"').status_code == 200
    for method, path, body in [
        ("PATCH", "", {"priority": 2}),
        ("PATCH", "", {"labels": {"a": "b"}}),
        ("POST", "/pause", None),
        ("POST", "/stop", None),
        ("POST", "/resize", {"max_workers": 3}),
    ]:
        answer = platform.ask(method, f"jobs/{job}{path}", body, If_Match='"1"')
        check_problem(answer, 412, "stale-version", "it has version 2, and you gave 1")
    for odd in ("1", '"1', 'W/"2"', '"2", "3"', '"x"', '""'):
        answer = platform.ask("PATCH", f"jobs/{job}", {"priority": 3}, If_Match=odd)
        assert answer.status_code in (400, 412), odd
    assert platform.ask("PATCH", f"jobs/{job}", {"priority": 3}, If_Match="*").status_code == 200
    assert platform.get(f"jobs/{job}")["priority"] == 3


def test_the_life_of_a_job_as_users_steer_it(platform: Platform) -> None:
    platform.lead()
    job = platform.submit()
    paused = platform.ask("POST", f"jobs/{job}/pause")
    assert (paused.status_code, paused.json()["stage"], paused.json()["reason"]) == (
        200,
        "paused",
        "'ann' asked to pause it",
    )
    check_problem(platform.ask("POST", f"jobs/{job}/pause"), 409, "conflict", "it is paused. Resume it first")
    assert platform.ask("POST", f"jobs/{job}/resume").json()["stage"] == "queued"
    check_problem(platform.ask("POST", f"jobs/{job}/resume"), 409, "conflict", "Only a paused job can be resumed")
    platform.start(job, "node/0")
    assert platform.ask("POST", f"jobs/{job}/resize", {"max_workers": 2}).json()["max_workers"] == 2
    stopping = platform.ask("POST", f"jobs/{job}/stop", {"now": True}).json()
    assert (stopping["stage"], stopping["stop_now"]) == ("stopping", True)
    for again in (None, {"now": True}):
        told = platform.ask("POST", f"jobs/{job}/stop", again)
        assert (told.status_code, told.json()) == (200, stopping), "asked again, it changes nothing"
    check_problem(
        platform.ask("POST", f"jobs/{job}/pause"), 409, "conflict", "it is being stopped. Wait until it has ended"
    )
    ended = platform.end(job, Stage.STOPPED)
    for path in ("pause", "resume", "stop"):
        check_problem(platform.ask("POST", f"jobs/{job}/{path}"), 409, "conflict", "it was stopped")
    check_problem(platform.ask("PATCH", f"jobs/{job}", {"priority": 3}), 409, "conflict")
    assert platform.ask("PATCH", f"jobs/{job}", {"labels": {"a": "b"}}).status_code == 200, "labels always"
    assert platform.get(f"jobs/{job}")["exit_code"] == ended.exit_code


def test_only_owners_and_admins_change_a_job(platform: Platform) -> None:
    job = platform.submit()
    asked = [
        ("PATCH", "", {"priority": 3}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/stop", None),
    ]
    asked.append(("POST", "/resize", {"max_workers": 3}))
    for who, told in (
        ("ben", "it belongs to 'ann', not to 'ben'"),
        ("eye", "is 'viewer', which cannot change anything"),
    ):
        for method, path, body in asked:
            check_problem(platform.ask(method, f"jobs/{job}{path}", body, who=who), 403, "forbidden", told)
    assert platform.get(f"jobs/{job}")["version"] == 1
    assert platform.ask("POST", f"jobs/{job}/pause", who="admin").status_code == 200


def test_unknown_jobs_are_not_found(shared: Platform) -> None:
    for job in (UNKNOWN, "nothing", "%2e%2e", "a" * 5000):
        for path in ("", "/spec", "/explain", "/attempts", "/allocations", "/events", "/training-events", "/logs"):
            check_problem(shared.ask("GET", f"jobs/{job}{path}"), 404, "not-found", "There is no job")
        for path in ("/logs/worker-0", "/metrics", "/files", "/files/work/a", "/checkpoints"):
            check_problem(shared.ask("GET", f"jobs/{job}{path}"), 404, "not-found", "There is no job")
        for path in ("/pause", "/resume", "/stop", "/clone"):
            check_problem(shared.ask("POST", f"jobs/{job}{path}"), 404, "not-found", "There is no job")
        check_problem(shared.ask("PATCH", f"jobs/{job}", {"priority": 1}), 404, "not-found", "There is no job")
        check_problem(shared.ask("POST", f"jobs/{job}/resize", {"max_workers": 2}), 404, "not-found", "There is no job")


def test_two_admins_race_for_one_job(platform: Platform) -> None:
    """Of all that rest on the same version one wins; the others get an error, and nothing is lost."""
    job = platform.submit()
    answers: list[Any] = []
    begin = threading.Barrier(8)

    def change(number: int) -> None:
        begin.wait()
        answers.append(platform.ask("PATCH", f"jobs/{job}", {"priority": number}, who="admin", If_Match='"1"'))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(100, 108)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [answer for answer in answers if answer.status_code == 200]
    assert len(won) == 1
    for answer in answers:
        if answer not in won:
            check_problem(answer, 412, "stale-version")
    assert platform.get(f"jobs/{job}")["priority"] == won[0].json()["priority"]
    assert platform.get(f"jobs/{job}")["version"] == 2


def test_labels_that_are_merged_at_once_are_all_there(platform: Platform) -> None:
    job = platform.submit()
    begin = threading.Barrier(4)

    def add(name: str) -> None:
        begin.wait()
        answer = platform.ask("PATCH", f"jobs/{job}", {"labels": {name: "x"}})
        assert answer.status_code == 200, answer.text

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(platform.get(f"jobs/{job}")["labels"]) == set("abcd")


# ---------------------------------------------------------------- clone


def test_a_clone_is_a_new_job_of_the_asker(platform: Platform) -> None:
    answer = platform.ask("POST", "jobs", ALL_FIELDS)
    cloned = platform.ask("POST", "jobs/all/clone", {"name": "again", "max_workers": 4, "seed": None})
    assert cloned.status_code == 201, cloned.text
    want = answer.json() | {"name": "again", "max_workers": 4, "id": cloned.json()["id"]}
    want |= {"parent": answer.json()["id"]}
    assert cloned.json() == want
    assert platform.get("jobs/again/spec") == platform.get("jobs/all/spec") | {"seed": None}
    # For another user's job, without the variables, which may hold secrets.
    foreign = platform.ask("POST", "jobs/all/clone", who="ben").json()
    assert foreign["owner"] == "ben"
    assert platform.get(f"jobs/{foreign['id']}/spec", who="ben")["environment"] == {}
    check_problem(platform.ask("POST", "jobs/all/clone", who="eye"), 403, "forbidden", "viewer")
    moved = platform.ask("POST", "jobs/all/clone", {"directory": "/elsewhere"}).json()
    assert platform.get(f"jobs/{moved['id']}/spec")["directory"] == "/elsewhere"
    check_problem(platform.ask("POST", "jobs/all/clone", {"max_workers": 1}), 422, "invalid", "min_workers=2 is above")


def test_changes_are_audited(platform: Platform) -> None:
    job = platform.submit()
    platform.ask("PATCH", f"jobs/{job}", {"priority": 3})
    platform.ask("POST", f"jobs/{job}/stop", who="admin")
    told = [(line["who"], line["action"], line["target"]) for line in platform.get("audit", who="admin")["items"][:3]]
    assert told == [("admin", "job.stop", job), ("ann", "job.change", job), ("ann", "job.submit", job)]


# ---------------------------------------------------------------- how many


def test_the_number_of_queued_jobs_of_one_user_is_limited(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_queued_jobs=2)
    platform.lead()
    first, second = platform.submit(name="one"), platform.submit(name="two")
    check_problem(
        platform.ask("POST", "jobs", JOB), 409, "conflict", "2 jobs of 'ann' are already queued, and a user may have 2"
    )
    check_problem(platform.ask("POST", f"jobs/{first}/clone"), 409, "conflict", "max_queued_jobs")
    platform.submit("ben", name="his")
    for number in range(3):
        platform.submit("admin", name=f"a-{number}")
    platform.start(first, "node/0")
    made = platform.ask("POST", "jobs", JOB, Idempotency_Key="k")
    assert made.status_code == 201, "a job that runs does not wait"
    assert platform.ask("POST", "jobs", JOB, Idempotency_Key="k").status_code == 200, "a repeat is no other job"
    check_problem(platform.ask("POST", "jobs", JOB, Idempotency_Key="l"), 409, "conflict", "max_queued_jobs")
    platform.ask("POST", f"jobs/{second}/stop")
    assert platform.ask("POST", "jobs", JOB, Idempotency_Key="l").status_code == 201, "the key is free again"


# ---------------------------------------------------------------- names


def test_a_name_that_others_use_too_means_ones_own_job(platform: Platform) -> None:
    mine = platform.submit(name="same")
    theirs = platform.submit("ben", name="same")
    assert platform.get("jobs/same")["id"] == mine
    assert platform.get("jobs/same", who="eye")["id"] == platform.get("jobs/same", who="admin")["id"] == theirs
    for verb in ("pause", "resume", "stop"):
        assert platform.ask("POST", f"jobs/same/{verb}").json()["id"] == mine
    assert platform.get(f"jobs/{theirs}", who="ben")["version"] == 1
    assert platform.ask("PATCH", "jobs/same", {"priority": 1}, who="ben").json()["id"] == theirs
    only = platform.submit("ben", name="only")
    for verb in ("pause", "stop"):
        check_problem(platform.ask("POST", f"jobs/only/{verb}"), 403, "forbidden", "it belongs to 'ben'")
    assert platform.ask("POST", "jobs/only/stop", who="admin").json()["id"] == only


def test_who_may_not_change_notes_learns_that_they_are_notes(platform: Platform) -> None:
    refused = platform.ask("PATCH", f"jobs/{platform.submit()}", {"notes": "mine"}, who="eye")
    check_problem(refused, 403, "forbidden", "Cannot change the notes of job")
