"""A request that makes jobs checks each thing once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.platform import JOB, Platform
from tests.unit.server.test_projects import define, make, upload

from legato.control.roles import check_may_act, check_may_submit
from legato.control.store import check_labels, check_new_job, check_sha256
from legato.control.store.idempotency import Requests, claim_key
from legato.control.store.submit import check_may_use_queue, check_priority, check_queued, check_workers
from legato.control.work import check_places, check_work

CHECKS = (
    check_labels,
    check_may_act,
    check_may_submit,
    check_may_use_queue,
    check_new_job,
    check_places,
    check_priority,
    check_queued,
    check_sha256,
    check_work,
    check_workers,
)
ONCE = (
    *("check_labels", "check_may_submit", "check_may_use_queue", "check_new_job", "check_priority", "check_queued"),
    *("check_work", "check_workers"),
)
KEY = ("claim_key", "find_answer")
"""Once before the rest, because what the request names may be gone, and once in the transaction, against a race."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each check is called, wherever it was imported."""
    numbers: Counter[str] = Counter()

    def count(check: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            numbers[check.__name__] += 1
            return check(*args, **named)

        return counting

    counting = {check: count(check) for check in (*CHECKS, claim_key)}
    for name, module in list(sys.modules.items()):
        if name.startswith("legato."):
            for check, its_counter in counting.items():
                if getattr(module, check.__name__, None) is check:
                    monkeypatch.setattr(module, check.__name__, its_counter)
    monkeypatch.setattr(Requests, "find_answer", count(Requests.find_answer))
    return numbers


def test_a_submission(platform: Platform, counted: Counter[str]) -> None:
    platform.loop.starts_drivers = True
    platform.submit()
    assert counted == Counter((*ONCE, "check_places"))
    platform.loop.starts_drivers = False
    counted.clear()
    platform.submit()
    assert counted == Counter(ONCE)
    counted.clear()
    assert platform.ask("POST", "jobs", JOB, Idempotency_Key="k").status_code == 201
    assert counted == Counter((*ONCE, *KEY))
    counted.clear()
    assert platform.ask("POST", "jobs", JOB, Idempotency_Key="k").status_code == 200
    assert counted == Counter(["check_may_submit", "find_answer"])


@pytest.mark.parametrize("framework", [{}, {"framework": "command", "program": ["python3", "train.py"]}])
def test_a_submission_with_code(platform: Platform, counted: Counter[str], framework: dict[str, Any]) -> None:
    code = upload(platform)
    # When the code comes: before it is received; and its name again where it becomes part of a path.
    assert counted["check_may_submit"] == 1
    counted.clear()
    body = {"name": "mnist", "program": ["train.py"], "code": code, **framework}
    assert platform.ask("POST", "jobs", body).status_code == 201
    # Without a framework, that too: when the imports are read, which may name one.
    assert counted == Counter((*ONCE, *["check_sha256"] * (1 if framework else 2)))


def test_a_clone(platform: Platform, counted: Counter[str]) -> None:
    parent = platform.submit()
    counted.clear()
    assert platform.ask("POST", f"jobs/{parent}/clone", Idempotency_Key="k").status_code == 201
    assert counted == Counter((*ONCE, *KEY))


def test_runs_of_an_experiment(platform: Platform, counted: Counter[str]) -> None:
    project = make(platform, "projects", name="Digits")
    one = define(platform, project, directory="/d")
    experiment = make(platform, f"projects/{project['id']}/experiments", name="First", definitions=[one["id"]])
    counted.clear()
    path = f"experiments/{experiment['id']}/runs"
    assert platform.ask("POST", path, {}, Idempotency_Key="k").status_code == 201
    # The role before all else, and the membership as soon as the project is known.
    assert counted == Counter((*ONCE, *KEY, "check_may_act", "check_may_act")) - Counter(["check_may_submit"])


def test_a_plan(platform: Platform, counted: Counter[str]) -> None:
    platform.ask("POST", "plan", JOB)
    in_the_store = {"check_may_use_queue", "check_queued"}
    assert counted == Counter(set(ONCE) - in_the_store)
