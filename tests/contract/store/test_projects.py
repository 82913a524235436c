"""Projects, training definitions and experiments in the store: what is kept, what goes with what, who comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from tests.contract.store.making import ANN, BEN, EYE, NOW, make_job, make_people, make_pool, start, write

from legato.api.projects import Experiment, Project
from legato.control.project_records import (
    Definition,
    Distributed,
    ExperimentPatch,
    Naming,
    NewDefinition,
    NewExperiment,
    NewProject,
    ProjectPatch,
)
from legato.control.records import CheckedJob, JobFilter, RequestKey
from legato.control.roles import Asker
from legato.control.stages import Stage
from legato.control.store import Store, experiments, submit
from legato.control.store.transactions import Transaction
from legato.core.errors import BadField, Conflict, Forbidden, NotFound, StaleVersion

CODE = "c" * 64


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


@pytest.fixture
def project(store: Store) -> Project:
    return store.projects.create(NewProject(name="Digits", members=("ben", "ann")), ANN, NOW)


def define(store: Store, project: Project, **fields: Any) -> Definition:
    values: dict[str, Any] = {"name": "CNN", "command": "train.py", "directory": "/d", **fields}
    return store.definitions.create(project.id, NewDefinition(**values), ANN, NOW)


def plan(store: Store, project: Project, *definitions: Definition, name: str = "First") -> Experiment:
    new = NewExperiment(name=name, definitions=tuple(one.id for one in definitions))
    return store.experiments.create(project.id, new, ANN, NOW)


def make_run(experiment: Experiment, definition: Definition, **fields: Any) -> CheckedJob:
    return make_job(project=definition.project, experiment=experiment.id, definition=definition.id, **fields)


def count_asked(store: Store, doing: Callable[[], object]) -> int:
    """Return how often the database is asked something."""
    asked: list[str] = []

    def note(*about: Any) -> None:
        asked.append(about[2])

    engine = store.experiments._database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        doing()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return len(asked)


def test_what_is_made_is_found(store: Store, project: Project) -> None:
    assert (project.owner, project.members, project.version) == ("ann", ("ben",), 1)
    whole = define(
        store,
        project,
        description="of one layer",
        framework="command",
        distributed=Distributed.STATIC,
        min_nodes=3,
        max_nodes=3,
        num_threads=2,
        cpu_capability="avx2",
        parameters={"text": "a", "whole": 1, "part": 0.5, "yes": True},
        environment={"A": "b"},
        seed=0,
        checkpoint_every="1epochs",
        max_retries=1,
        max_run_s=60.0,
    )
    assert store.definitions.find(whole.id, BEN) == whole
    assert store.definitions.list(project.id, EYE) == (whole,)
    assert type(whole.parameters["yes"]) is bool and type(whole.parameters["whole"]) is int
    other = define(store, project, name="Other")
    experiment = plan(store, project, other, whole)
    assert store.experiments.find("First", BEN) == experiment
    assert experiment.definitions == (other.id, whole.id), "in their order"
    changed = store.experiments.change(experiment.id, ExperimentPatch(definitions=(whole.id, other.id)), ANN, NOW)
    assert (changed.definitions, changed.version) == ((whole.id, other.id), 2)
    ids = [project.id, whole.id, other.id, experiment.id]
    assert [one[0] for one in ids] == ["p", "d", "d", "x"]
    assert whole.id < other.id


def test_pages_of_projects(store: Store) -> None:
    made = [store.projects.create(NewProject(name=str(number)), ANN, NOW).id for number in range(5)]
    first = store.projects.list(sees_only="ann", limit=3)
    rest = store.projects.list(sees_only="ann", after=first.after, limit=3)
    assert [one.id for one in (*first.items, *rest.items)] == made[::-1]
    assert rest.after is None
    assert store.projects.list(sees_only="ben").items == ()
    assert store.projects.which_visible(made[:2], "ben") == frozenset()
    assert store.projects.which_visible(made[:2], "ann") == set(made[:2])


def test_versions_are_minded(store: Store, project: Project) -> None:
    one = define(store, project)
    experiment = plan(store, project, one)
    acts: list[Callable[[int], object]] = [
        lambda version: store.projects.change(project.id, ProjectPatch(description="d"), ANN, NOW, version=version),
        lambda version: store.definitions.change(one.id, Naming(description="d"), ANN, NOW, version=version),
        lambda version: store.experiments.change(
            experiment.id, ExperimentPatch(description="d"), ANN, NOW, version=version
        ),
    ]
    for act in acts:
        with pytest.raises(StaleVersion):
            act(2)
        act(1)
        with pytest.raises(StaleVersion):
            act(1)


def test_a_job_outlives_what_it_came_from(store: Store, project: Project) -> None:
    lease, slots = make_pool(store, 1)
    one = define(store, project)
    experiment = plan(store, project, one)
    (job,), _ = store.jobs.submit_runs([make_run(experiment, one)], BEN, NOW)
    clone = store.jobs.submit(make_job(parent=job.id), BEN, NOW).job
    assert store.jobs.list(JobFilter(experiment=experiment.id)).items == (job,)
    assert store.experiments.find(experiment.id, ANN).runs == (job.id,)
    store.experiments.delete(experiment.id, ANN, NOW)
    store.definitions.delete(one.id, ANN, NOW)
    assert store.jobs.get(job.id).project == project.id
    store.projects.delete(project.id, ANN, NOW)
    left = store.jobs.get(job.id)
    assert (left.project, left.experiment, left.definition) == (None, None, None)
    assert store.jobs.get(clone.id).parent == job.id
    running = start(store, lease.fence, left, (slots[0],))
    write(store, lease.fence, running, NOW + 1, stage=Stage.SUCCEEDED, closed=(slots[0],))
    assert store.retention.purge(lease.fence, NOW + 9, jobs_before=NOW + 5, uploads_before=None, keys_before=0).jobs
    assert store.jobs.get(clone.id).parent is None


def test_code_stays_as_long_as_a_definition_names_it(store: Store, project: Project) -> None:
    lease, _ = make_pool(store, 1)
    store.uploads.note(CODE, 10, ANN, NOW)
    with pytest.raises(NotFound, match="not uploaded the code"):
        store.uploads.get(CODE, BEN)
    one = define(store, project, code=CODE, directory=None)
    assert store.uploads.get(CODE, BEN).sha256 == CODE, "ben is in the project"

    def purge() -> tuple[str, ...]:
        return store.retention.purge(lease.fence, NOW, jobs_before=None, uploads_before=1e12, keys_before=0).uploads

    assert purge() == ()
    store.definitions.delete(one.id, ANN, NOW)
    assert purge() == (CODE,)


def test_several_jobs_come_all_or_none(store: Store, project: Project) -> None:
    one = define(store, project)
    experiment = plan(store, project, one)
    new = [make_run(experiment, one), make_run(experiment, one, queue="nowhere")]
    with pytest.raises(NotFound):
        store.jobs.submit_runs(new, ANN, NOW)
    new = [make_run(experiment, one), make_run(experiment, one)]
    with pytest.raises(Conflict, match="0 jobs of 'ann' are already queued, and a user may have 1"):
        store.jobs.submit_runs(new, ANN, NOW, max_queued=1)
    assert store.jobs.count() == 0
    made, is_new = store.jobs.submit_runs(new, ANN, NOW, RequestKey("k", "a"))
    assert (is_new, made[0].id < made[1].id) == (True, True)
    assert store.jobs.submit_runs(new, ANN, NOW, RequestKey("k", "a")) == (made, False)
    gone = experiment.id
    store.experiments.delete(gone, ANN, NOW)
    with pytest.raises(NotFound, match=r"its experiment '.*' was deleted a moment ago"):
        store.jobs.submit_runs(new, ANN, NOW)


def test_however_many_experiments_are_listed_the_store_asks_as_often(store: Store, project: Project) -> None:
    ones = [define(store, project, name=str(number)) for number in range(3)]
    lister = store.experiments.list
    first = plan(store, project, ones[2], ones[0], name="first")
    num_asked_of_one = count_asked(store, lambda: lister(project.id, ANN))
    others = [plan(store, project, ones[1], name=str(number)) for number in range(5)]
    new = [make_run(experiment, ones[1]) for experiment in (first, others[0], first)]
    made, _ = store.jobs.submit_runs(new, ANN, NOW)
    assert count_asked(store, lambda: lister(project.id, ANN)) == num_asked_of_one
    found = {experiment.name: experiment for experiment in lister(project.id, ANN)}
    assert list(found) == ["4", "3", "2", "1", "0", "first"]
    assert found["first"].definitions == (ones[2].id, ones[0].id)
    assert found["first"].runs == (made[2].id, made[0].id), "the newest first"
    assert (found["0"].runs, found["4"].runs) == ((made[1].id,), ())


def test_the_newest_runs_of_each_experiment_are_listed(
    store: Store, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "_NUM_RUNS", 2)
    one = define(store, project)
    both = [plan(store, project, one, name=name) for name in "ab"]
    made, _ = store.jobs.submit_runs([make_run(both[number % 2], one) for number in range(6)], ANN, NOW)
    ids = [job.id for job in made]
    assert [experiment.runs for experiment in store.experiments.list(project.id, ANN)] == [
        (ids[5], ids[3]),
        (ids[4], ids[2]),
    ]


def test_code_is_held_in_one_order_whichever_runs_are_named_first(
    store: Store, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = ("a" * 64, "b" * 64)
    for code in codes:
        store.uploads.note(code, 10, ANN, NOW)
    ones = [define(store, project, name=code[0], code=code, directory=None) for code in codes]
    experiment = plan(store, project, *ones)
    held: list[str | None] = []
    hold = submit._lock_needed_rows

    def spy(transaction: Transaction, new: CheckedJob, asker: Asker) -> None:
        held.append(new.code)
        hold(transaction, new, asker)

    monkeypatch.setattr(submit, "_lock_needed_rows", spy)
    made, _ = store.jobs.submit_runs([make_run(experiment, one, code=one.code) for one in reversed(ones)], ANN, NOW)
    assert held == list(codes), "or two who name them the other way round wait for each other"
    assert [job.definition for job in made] == [ones[1].id, ones[0].id]


def test_events_are_for_those_who_see_the_project(store: Store, project: Project) -> None:
    own = store.projects.create(NewProject(name="Own"), BEN, NOW)

    def told(sees_only: str | None) -> list[str]:
        found = store.events.read_after(0, sees_only=sees_only)
        return [(event.detail or {})["project"] for event in found if event.kind == "project"]

    assert (told("ann"), told("ben"), told(None)) == ([project.id], [project.id, own.id], [project.id, own.id])


def test_who_leaves_a_project_hears_of_it_and_of_nothing_after_it(store: Store) -> None:
    project = store.projects.create(NewProject(name="Digits", members=("ben", "eye")), ANN, NOW)

    def told(sees_only: str) -> list[tuple[str, str | None]]:
        found = (event.detail or {} for event in store.events.read_after(first, sees_only=sees_only))
        return [(detail["action"], detail.get("user")) for detail in found if detail.get("project") == project.id]

    first = store.events.read_last_seq()
    store.projects.change(project.id, ProjectPatch(members=("eye",)), ANN, NOW)
    assert told("ben") == [("project.leave", "ben")]
    assert told("eye") == told("ann") == [("project.leave", "ben"), ("project.change", None)]
    store.projects.change(project.id, ProjectPatch(description="of ours"), ANN, NOW)
    assert told("ben") == [("project.leave", "ben")]
    first = store.events.read_last_seq()
    store.projects.delete(project.id, ANN, NOW)
    assert (told("ann"), told("eye"), told("ben")) == ([("project.leave", "ann")], [("project.leave", "eye")], [])


def test_who_may_not(store: Store, project: Project) -> None:
    one = define(store, project)
    with pytest.raises(Forbidden, match="which cannot change anything"):
        store.projects.create(NewProject(name="x"), EYE, NOW)
    with pytest.raises(Forbidden, match="only 'ann' and admins may"):
        store.definitions.change(one.id, Naming(name="x"), BEN, NOW)
    with pytest.raises(BadField, match="there is no user 'zoe'"):
        store.projects.change(project.id, ProjectPatch(members=("zoe",)), ANN, NOW)
    store.projects.change(project.id, ProjectPatch(members=()), ANN, NOW)
    with pytest.raises(NotFound):
        store.definitions.find(one.id, BEN)
    with pytest.raises(NotFound):
        store.definitions.delete(one.id, BEN, NOW)


def test_of_two_simultaneous_users_one_gets_the_name(store: Store, project: Project) -> None:
    one = define(store, project)
    outcomes: list[str] = []

    def make() -> None:
        try:
            plan(store, project, one, name="Same")
            outcomes.append("made")
        except Conflict:
            outcomes.append("taken")

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "taken", "taken", "taken"]


def test_those_who_run_and_those_who_change_do_not_wait_for_each_other_forever(store: Store, project: Project) -> None:
    one = define(store, project)
    experiment = plan(store, project, one)
    errors: list[Exception] = []

    def repeat(act: Callable[[int], object]) -> None:
        try:
            for number in range(15):
                act(number)
        except Exception as error:
            errors.append(error)

    acts: list[Callable[[int], object]] = [
        lambda _: store.jobs.submit_runs([make_run(experiment, one)], ANN, NOW),
        lambda _: store.jobs.submit_runs([make_run(experiment, one)], BEN, NOW),
        lambda number: store.projects.change(project.id, ProjectPatch(description=str(number)), ANN, NOW),
        lambda number: store.experiments.change(experiment.id, ExperimentPatch(arguments=str(number)), ANN, NOW),
    ]
    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.jobs.count(JobFilter(project=project.id)) == 30
