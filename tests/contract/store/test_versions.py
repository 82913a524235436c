"""The version of what lists of jobs show: whatever changes one of them for any user changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.store.making import ADMIN, ANN, BEN, NOW, make_job, make_people, make_pool, start, write

from legato.api.jobs import Progress
from legato.control.project_records import NewProject, ProjectPatch
from legato.control.records import JobPatch, Note, Queue, Verdict
from legato.control.stages import Stage
from legato.control.store import Store

PROGRESS = Progress(time=NOW, num_workers=1, step=3)


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


def look(store: Store) -> list[Any]:
    """All that any user may see."""
    return [store.jobs.list(sees_only=who, limit=1000).items for who in (None, "ann", "ben")]


def test_the_version_changes_with_what_is_shown_and_with_nothing_else(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    fence = lease.fence
    store.queues.put(Queue(name="closed", is_open=False), ADMIN, NOW)
    project = store.projects.create(NewProject(name="Digits"), ANN, NOW)
    job = store.jobs.submit(make_job(queue="default", project=project.id), ANN, NOW).job.id

    def write_one(**values: Any) -> Callable[[], object]:
        return lambda: write(store, fence, store.jobs.get(job), NOW + 1, **values)

    steps: dict[str, Callable[[], object]] = {
        "it starts": lambda: start(store, fence, store.jobs.get(job), (slots[0],)),
        "it goes on": write_one(progress=PROGRESS),
        "it goes on again": write_one(progress=Progress(time=NOW + 1, num_workers=1, step=4)),
        "it should have more": write_one(verdict=Verdict(num_slots=2, reason="its share", is_new=True)),
        "other words": write_one(verdict=Verdict(num_slots=2, reason="its fair share", is_new=False)),
        "it has more": write_one(granted=(slots[1],), reason="its share"),
        "it has less": write_one(closed=(slots[1],), reason="it left"),
        "its exit code": write_one(exit_code=3),
        "a retry": write_one(is_retry=True),
        "its driver": write_one(note=Note(reason="its driver is silent", told="is silent")),
        "labels": lambda: store.jobs.change(job, JobPatch(labels={"a": "b"}), ANN, NOW),
        "another one": lambda: store.jobs.submit(make_job(queue="default"), BEN, NOW),
        "ben sees it no more": lambda: store.queues.put(Queue(name="default", is_open=False), ADMIN, NOW),
        "ben sees the project": lambda: store.projects.change(project.id, ProjectPatch(members=("ben",)), ANN, NOW),
        "the project is gone": lambda: store.projects.delete(project.id, ANN, NOW),
        "it ends": write_one(stage=Stage.SUCCEEDED, closed=(slots[0],), reason="done"),
        "it is gone": lambda: store.retention.purge(
            fence, NOW, jobs_before=NOW + 9, uploads_before=None, keys_before=0
        ),
    }
    for name, step in steps.items():
        before, version = look(store), store.events.read_version()
        step()
        assert look(store) != before, f"{name}: nothing to be seen"
        assert store.events.read_version() > version, name
    version = store.events.read_version()
    look(store)
    assert store.events.read_version() == version
