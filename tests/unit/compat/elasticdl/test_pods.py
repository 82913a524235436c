"""What `elasticdl pods` lists: a master and its workers, in whatever state the job and they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.client.platform import NOW, make_job

from legato.api.jobs import JobRecord, TrainingEvent
from legato.compat.elasticdl.pods import Pod, list_pods, render_pods


def job(**changes: Any) -> JobRecord:
    return msgspec.convert(make_job(**{"name": "mnist", "submitted_at": NOW - 7, "labels": {}, **changes}), JobRecord)


def event(kind: str, worker: int | None, age_s: float) -> TrainingEvent:
    return TrainingEvent(seq=1, time=NOW - age_s, kind=kind, level="info", reason="", worker=worker)


def states(found: list[Pod]) -> list[tuple[str, str]]:
    return [(pod.name, pod.status) for pod in found]


def test_the_listing_of_the_tutorial() -> None:
    events = [event("started", number, 5) for number in (0, 1)] + [event("joined", number, 3) for number in (0, 1)]
    listing = render_pods(list_pods(job(name="test-mnist-allreduce"), [*events, event("saved", None, 1)], NOW))
    assert listing.splitlines() == [
        "NAME                                    READY   STATUS    RESTARTS   AGE",
        "elasticdl-test-mnist-allreduce-master   1/1     Running   0          7s",
        "test-mnist-allreduce-edljob-worker-0    1/1     Running   0          5s",
        "test-mnist-allreduce-edljob-worker-1    1/1     Running   0          5s",
    ]


@pytest.mark.parametrize(
    ("stage", "want"),
    [
        ("queued", "Pending"),
        ("starting", "ContainerCreating"),
        ("running", "Running"),
        ("pausing", "Terminating"),
        ("paused", "Paused"),
        ("stopping", "Terminating"),
        ("succeeded", "Completed"),
        ("failed", "Error"),
        ("stopped", "Stopped"),
        ("dreaming", "Unknown"),
    ],
)
def test_stages_of_a_job(stage: str, want: str) -> None:
    assert states(list_pods(job(stage=stage, attempt=2), [], NOW)) == [("elasticdl-mnist-master", want)]


def test_the_master_runs_while_its_workers_start_and_is_over_with_them() -> None:
    started = [event("started", 0, 5)]
    assert states(list_pods(job(stage="starting"), started, NOW))[0][1] == "Running"
    ended = [*started, event("joined", 0, 4), event("finished", 0, 3), event("left", 0, 2)]
    for stage, finished in (("running", event("finished", None, 1)), ("starting", event("finished", None, 1))):
        assert {status for _, status in states(list_pods(job(stage=stage), [*ended, finished], NOW))} == {"Completed"}
    again = [*ended, event("finished", None, 1), event("started", 1, 0)]
    assert states(list_pods(job(stage="running"), again, NOW))[0][1] == "Running", "it was resumed"


def test_workers_that_left_are_gone_and_workers_that_died_stay() -> None:
    kinds = {0: ("started", "joined", "left"), 1: ("started", "joined", "died"), 2: ("started", "fenced", "left")}
    kinds |= {3: ("started", "joined", "finished", "left"), 4: ("started",), 5: ("started", "joining")}
    events = [event(kind, number, 9) for number, told in kinds.items() for kind in told]
    assert [status for _, status in states(list_pods(job(), events, NOW))] == [
        *("Running", "Error", "Error", "Completed", "ContainerCreating", "Running")
    ]
    assert [name for name, _ in states(list_pods(job(stage="succeeded"), events, NOW))] == [
        "elasticdl-mnist-master",
        *(f"mnist-edljob-worker-{number}" for number in (1, 2, 3)),
    ]


def test_a_number_that_comes_again_after_a_pause_is_the_new_worker() -> None:
    events = [event("started", 0, 90), event("died", 0, 80), event("started", 0, 5), event("joined", 0, 4)]
    master, worker = list_pods(job(attempt=2), events, NOW)
    assert (worker.status, worker.age_s, master.num_restarts) == ("Running", pytest.approx(5), 1)


def test_workers_of_a_failed_job_stay_if_their_program_failed() -> None:
    kinds = {0: ("started", "joined", "failed"), 1: ("started", "joined", "left"), 2: ("started", "joining", "failed")}
    kinds |= {3: ("started", "joining", "refused")}
    events = [event(kind, number, 9) for number, told in kinds.items() for kind in told]
    want = [("mnist-edljob-worker-0", "Error"), ("mnist-edljob-worker-2", "Error"), ("mnist-edljob-worker-3", "Error")]
    for stage in ("running", "failed"):
        assert states(list_pods(job(stage=stage), [*events, event("failed", None, 1)], NOW))[1:] == want
