"""Requests that are repeated with their idempotency key after the objects that they name were deleted."""

from __future__ import annotations

import shutil

from tests.unit.server.platform import ADMIN, JOB, NOW, Platform, check_problem
from tests.unit.server.test_projects import define, make, upload

from legato.control.records import Queue
from legato.control.stages import Stage


def test_a_repeated_run_is_made_once_after_its_experiment_is_deleted(platform: Platform) -> None:
    project = make(platform, "projects", name="Digits")
    one = define(platform, project, directory="/d")
    experiment = make(platform, f"projects/{project['id']}/experiments", name="First", definitions=[one["id"]])
    path = f"experiments/{experiment['id']}/runs"
    first = platform.ask("POST", path, {"seed": 1}, Idempotency_Key="k")
    assert first.status_code == 201, first.text
    (job,) = first.json()["items"]
    for gone in (f"experiments/{experiment['id']}", f"definitions/{one['id']}", f"projects/{project['id']}"):
        assert platform.ask("DELETE", gone).status_code == 204
    again = platform.ask("POST", path, {"seed": 1}, Idempotency_Key="k")
    assert again.status_code == 200, again.text
    origins = dict.fromkeys(("project", "experiment", "definition"))
    assert again.json()["items"] == [job | origins]
    check_problem(platform.ask("POST", path, {"seed": 2}, Idempotency_Key="k"), 422, "key-reused")
    check_problem(platform.ask("POST", path, {"seed": 1}, Idempotency_Key="other"), 404, "not-found")
    check_problem(platform.ask("POST", path, {"seed": 1}, who="ben", Idempotency_Key="k"), 404, "not-found")
    assert platform.store.jobs.count() == 1


def test_a_repeated_job_is_submitted_once_after_its_code_is_deleted(platform: Platform) -> None:
    code = upload(platform)
    body = {"name": "mnist", "program": ["python3", "train.py"], "framework": "command", "code": code}
    made = platform.ask("POST", "jobs", body, Idempotency_Key="k")
    assert made.status_code == 201, made.text
    shutil.rmtree(platform.home / "code" / code)
    again = platform.ask("POST", "jobs", body, Idempotency_Key="k")
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"]), again.text
    check_problem(platform.ask("POST", "jobs", body | {"seed": 1}, Idempotency_Key="k"), 422, "key-reused")
    new = platform.ask("POST", "jobs", body, Idempotency_Key="other")
    check_problem(new, 404, "not-found", "not uploaded the code")


def test_a_repeated_job_is_submitted_once_after_its_queue_is_deleted(platform: Platform) -> None:
    platform.store.queues.put(Queue(name="lab"), ADMIN, NOW)
    made = platform.ask("POST", "jobs", JOB | {"queue": "lab"}, Idempotency_Key="k").json()["id"]
    platform.ask("PATCH", f"jobs/{made}", {"queue": "default"})
    assert platform.ask("DELETE", "queues/lab", who="admin").status_code == 204
    again = platform.ask("POST", "jobs", JOB | {"queue": "lab"}, Idempotency_Key="k")
    assert (again.status_code, again.json()["id"]) == (200, made)


def test_a_repeated_clone_is_made_once_after_its_parent_is_deleted(platform: Platform) -> None:
    platform.lead()
    parent = platform.submit(name="parent")
    made = platform.ask("POST", f"jobs/{parent}/clone", {"priority": 7}, Idempotency_Key="k")
    assert made.status_code == 201
    platform.start(parent, "node/0")
    platform.end(parent, Stage.SUCCEEDED)
    fence = platform.lead().fence
    gone = platform.store.retention.purge(fence, NOW, jobs_before=NOW + 1, uploads_before=None, keys_before=0)
    assert gone.jobs == (parent,)
    again = platform.ask("POST", f"jobs/{parent}/clone", {"priority": 7}, Idempotency_Key="k")
    assert (again.status_code, again.json()) == (200, made.json() | {"parent": None}), again.text
    check_problem(platform.ask("POST", f"jobs/{parent}/clone", {}, Idempotency_Key="k"), 422, "key-reused")
    check_problem(platform.ask("POST", f"jobs/{parent}/clone", {"priority": 7}), 404, "not-found")


def test_a_reader_gets_no_repeat(platform: Platform) -> None:
    platform.ask("POST", "jobs", JOB, Idempotency_Key="k")
    platform.secrets["lesser"] = platform.ask("POST", "tokens", {"name": "l", "role": "viewer"}).json()["secret"]
    check_problem(platform.ask("POST", "jobs", JOB, who="lesser", Idempotency_Key="k"), 403, "forbidden")
