"""Submissions that wait share a transaction: each is on disk when answered, and one that is refused costs no other."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import argon2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.control.credentials import Passwords
from legato.control.records import CheckedJob, JobFilter, NewJob, RequestKey, Submitted
from legato.control.roles import Asker, Role, Submitter
from legato.control.store import Store, check_new_job, migrate, submission_groups
from legato.control.store.database import Database
from legato.control.store.schema import idempotency_keys, job_labels
from legato.control.store.schema import jobs as job_rows
from legato.control.store.submission_groups import Submission
from legato.control.store.transactions import Transaction
from legato.core.errors import Conflict, KeyReused, NotFound, StoreError

NOW = 1_800_000_000.0
ADMIN = Submitter("admin", Role.ADMIN)
ANN = Submitter("ann", Role.USER)
LIMIT_S = 30.0


class Platform:
    """A store whose submissions can be held up before their transaction, or while they wait for the disk."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = Database(f"sqlite:///{file}")
        migrate.upgrade(self.database)
        self.store = Store(self.database, passwords=Passwords(argon2.PasswordHasher(1, 8, 1)))
        self.store.tokens.create_first(NOW)
        self.store.accounts.create(ANN.name, Role.USER, ADMIN, NOW)
        self.threads = ThreadPoolExecutor(16)
        self.num_syncs = 0
        self.at_disk, self.disk_goes_on = threading.Event(), threading.Event()
        self.disk_goes_on.set()
        self.disk_error: OSError | None = None
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, _descriptor: int) -> None:
        self.num_syncs += 1
        self.at_disk.set()
        assert self.disk_goes_on.wait(LIMIT_S)
        if self.disk_error is not None:
            raise self.disk_error

    def close(self) -> None:
        self.threads.shutdown()
        self.store.close()

    def submit(self, job: CheckedJob, key: RequestKey | None = None, max_queued: int | None = None) -> Submitted:
        return self.store.jobs.submit(job, ANN, NOW, key, max_queued=max_queued)

    def submit_together(self, calls: Sequence[Callable[[], Submitted]]) -> list[Future[Submitted]]:
        """Start calls one after the other while another writer has the store, so that all of them wait for it."""
        groups, futures = self.store.jobs._groups, list[Future[Submitted]]()
        assert groups is not None
        with contextlib.suppress(StoreError), self.database.writing():  # the disk may refuse this one too
            for num_before, call in enumerate(calls):
                futures.append(self.threads.submit(call))
                wait_until(lambda num=num_before: groups._is_led and len(groups._waiting) == num)  # type: ignore[misc]
            self.num_syncs = 0
        for future in futures:
            future.exception(LIMIT_S)
        return futures

    def names(self) -> list[str]:
        page = self.store.jobs.list(JobFilter(), sees_only=None, limit=100, oldest_first=True)
        return [job.name for job in page.items]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline


def make_job(name: str, queue: str = "default") -> CheckedJob:
    spec = {"program": ["train.py"], "directory": "/"}
    return check_new_job(NewJob(name=name, spec=spec, min_workers=1, max_workers=1, queue=queue, labels={"of": name}))


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    made = Platform(tmp_path / "a.db", monkeypatch)
    yield made
    made.close()


def test_submissions_that_wait_share_one_transaction_and_one_sync(platform: Platform) -> None:
    jobs = [make_job(f"job-{number}") for number in range(8)]
    made = [
        future.result().job
        for future in platform.submit_together([functools.partial(platform.submit, job) for job in jobs])
    ]
    # One sync of the writer that held them up, and one of the group.
    assert platform.num_syncs <= 2
    assert [job.name for job in made] == platform.names() == [job.name for job in jobs]
    assert sorted({job.id for job in made}) == [job.id for job in made]
    store = platform.store
    assert [store.jobs.get(job.id).labels for job in made] == [{"of": job.name} for job in made]
    moves = [event for event in store.events.read_after(0, limit=100) if event.kind == "stage"]
    assert [event.job for event in moves] == [job.id for job in made]
    assert [entry.target for entry in store.audit.read_before(limit=8)] == [job.id for job in reversed(made)]


def test_one_that_is_refused_costs_no_other_of_its_group(platform: Platform) -> None:
    jobs = [make_job("good"), make_job("bad", queue="none"), make_job("fine")]
    good, bad, fine = platform.submit_together([functools.partial(platform.submit, job) for job in jobs])
    assert isinstance(bad.exception(), NotFound)
    assert platform.names() == [good.result().job.name, fine.result().job.name] == ["good", "fine"]


def test_a_limit_of_waiting_jobs_counts_those_of_the_same_group(platform: Platform) -> None:
    platform.submit(make_job("first"))
    calls = [lambda number=number: platform.submit(make_job(f"job-{number}"), max_queued=3) for number in range(4)]
    futures = platform.submit_together(calls)
    assert [type(future.exception()) for future in futures] == [type(None)] * 2 + [Conflict] * 2
    assert platform.names() == ["first", "job-0", "job-1"]


def test_a_repeated_request_makes_one_job_also_beside_the_first_one(platform: Platform) -> None:
    key, other = RequestKey("key", "0" * 64), RequestKey("key", "1" * 64)
    job = make_job("once")
    calls = [lambda one=one: platform.submit(job, one) for one in (key, key, other, RequestKey("new", "0" * 64))]
    first, again, reused, new = platform.submit_together(calls)
    assert (first.result().is_new, again.result().is_new, new.result().is_new) == (True, False, True)
    assert first.result().job.id == again.result().job.id != new.result().job.id
    assert isinstance(reused.exception(), KeyReused)
    assert platform.names() == ["once", "once"]
    assert platform.submit(job, key).job.id == first.result().job.id


def test_equal_keys_of_two_users_are_two_keys(platform: Platform) -> None:
    key, job = RequestKey("key", "0" * 64), make_job("both")

    def submit_as(asker: Asker) -> Submitted:
        return platform.store.jobs.submit(job, Submitter(asker.name, asker.role), NOW, key)

    futures = platform.submit_together([lambda: submit_as(ANN), lambda: submit_as(ADMIN)])
    assert [future.result().job.owner for future in futures] == ["ann", "admin"]


def test_none_is_answered_before_its_group_is_on_disk_and_the_next_group_need_not_wait(platform: Platform) -> None:
    platform.disk_goes_on.clear()
    platform.at_disk.clear()
    first = platform.threads.submit(platform.submit, make_job("first"))
    assert platform.at_disk.wait(LIMIT_S)
    second = platform.threads.submit(platform.submit, make_job("second"))
    wait_until(lambda: platform.names() == ["first", "second"])
    assert not first.done() and not second.done()
    platform.disk_goes_on.set()
    assert [first.result(LIMIT_S).job.name, second.result(LIMIT_S).job.name] == ["first", "second"]
    assert platform.num_syncs >= 2


def test_a_disk_that_refuses_fails_the_whole_group_and_nothing_afterwards(platform: Platform) -> None:
    platform.disk_error = OSError(28, "No space left on device")
    calls = [lambda number=number: platform.submit(make_job(f"job-{number}")) for number in range(3)]
    futures = platform.submit_together(calls)
    errors = [future.exception(LIMIT_S) for future in futures]
    assert [type(error) for error in errors] == [StoreError] * 3
    assert len({id(error) for error in errors}) == 3  # threads must not raise one error object at once
    platform.disk_error = None
    assert platform.submit(make_job("after")).is_new


class Call(NamedTuple):
    """A submission; ``key`` is that of the request, and ``content`` stands for the rest of it."""

    asker: Submitter
    queue: str
    key: str | None
    content: str
    max_queued: int | None


CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from([ANN, ANN, ADMIN]),
        st.sampled_from([*["default"] * 9, "none"]),
        st.sampled_from([None, None, None, None, "a", "b"]),
        st.sampled_from("01"),
        st.sampled_from([None, 1, 2]),
    ),
    min_size=1,
    max_size=8,
)


def tell_one_after_the_other(calls: Sequence[Call]) -> list[int | type[Exception]]:
    """Return for each call the place of the call that makes its job, or the error, if none waits for another."""
    told: list[int | type[Exception]] = []
    keys: dict[tuple[str, str], tuple[str, int]] = {}
    num_queued = Counter[str]()
    for place, call in enumerate(calls):
        name, key = call.asker.name, (call.asker.name, call.key or "")
        if call.key is not None and key in keys:
            content, first = keys[key]
            told.append(first if content == call.content else KeyReused)
        elif call.max_queued is not None and call.asker is ANN and num_queued[name] >= call.max_queued:
            told.append(Conflict)
        elif call.queue == "none":
            told.append(NotFound)
        else:
            told.append(place)
            num_queued[name] += 1
            if call.key is not None:
                keys[key] = (call.content, place)
    return told


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=CALLS)
def test_a_group_does_what_its_submissions_would_do_one_after_the_other(platform: Platform, calls: list[Call]) -> None:
    with platform.database.writing() as connection:
        for table in (job_labels, job_rows, idempotency_keys):
            connection.execute(table.delete())

    def submit(place: int, call: Call) -> Submitted:
        key = None if call.key is None else RequestKey(call.key, call.content * 64)
        job = make_job(f"job-{place}", call.queue)
        return platform.store.jobs.submit(job, call.asker, NOW, key, max_queued=call.max_queued)

    futures = platform.submit_together([functools.partial(submit, *each) for each in enumerate(calls)])
    told = [type(error) if (error := each.exception()) else each.result().job.name for each in futures]
    want = tell_one_after_the_other(calls)
    assert told == [f"job-{one}" if isinstance(one, int) else one for one in want]
    made = [place for place, one in enumerate(want) if one == place]
    assert [each.result().is_new for each in futures if not each.exception()] == [
        one == place for place, one in enumerate(want) if isinstance(one, int)
    ]
    assert platform.names() == [f"job-{place}" for place in made]


def test_few_transactions_find_the_one_that_is_refused(platform: Platform) -> None:
    groups = platform.store.jobs._groups
    assert groups is not None
    sizes: list[int] = []
    submit = groups._submit

    def count(transaction: Transaction, submissions: Sequence[Submission]) -> Sequence[Submitted]:
        sizes.append(len(submissions))
        return submit(transaction, submissions)

    groups._submit = count
    jobs = [make_job(f"job-{number}", "none" if number == 5 else "default") for number in range(16)]
    futures = platform.submit_together([functools.partial(platform.submit, job) for job in jobs])
    assert [place for place, future in enumerate(futures) if future.exception()] == [5]
    assert sorted(sizes) == [1, 1, 2, 2, 4, 4, 8, 8, 16]


def test_a_leader_that_is_interrupted_holds_up_no_other(platform: Platform) -> None:
    groups = platform.store.jobs._groups
    assert groups is not None
    submit = groups._submit

    def interrupt(_transaction: Transaction, _submissions: Sequence[Submission]) -> Sequence[Submitted]:
        groups._submit = submit
        raise KeyboardInterrupt

    groups._submit = interrupt
    jobs = [make_job("first"), make_job("second")]
    first, second = platform.submit_together([functools.partial(platform.submit, job) for job in jobs])
    assert isinstance(first.exception(), KeyboardInterrupt)
    with pytest.raises(StoreError, match=r"whether the job was submitted.*legato ps"):
        second.result()
    assert platform.submit(make_job("after")).is_new
    assert platform.names() == ["after"]


@pytest.mark.parametrize("leads", [False, True])
def test_a_thread_that_is_interrupted_while_it_waits_holds_up_no_other(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    made, is_interrupted = submission_groups._Waiting, threading.Event()

    def make(submission: Submission) -> submission_groups._Waiting:
        one = made(submission)
        wait = one.woken.wait

        def interrupt(_limit_s: float | None = None) -> bool:
            if leads:
                assert wait(LIMIT_S)
            is_interrupted.wait(LIMIT_S)
            raise KeyboardInterrupt

        if submission.new.name == "interrupted":
            one.woken.wait = interrupt  # type: ignore[method-assign, assignment]
        return one

    monkeypatch.setattr(submission_groups, "_Waiting", make)
    if leads:
        monkeypatch.setattr(submission_groups, "_MAX_GROUP", 1)
    groups = platform.store.jobs._groups
    assert groups is not None
    with platform.database.writing():
        futures = []
        for num_before, name in enumerate(["first", "interrupted", "last"]):
            futures.append(platform.threads.submit(platform.submit, make_job(name)))
            wait_until(lambda num=num_before: groups._is_led and len(groups._waiting) == num)  # type: ignore[misc]
        is_interrupted.set()
        if not leads:
            assert isinstance(futures[1].exception(LIMIT_S), KeyboardInterrupt)
    first, interrupted, last = futures
    assert [first.result(LIMIT_S).job.name, last.result(LIMIT_S).job.name] == ["first", "last"]
    assert isinstance(interrupted.exception(LIMIT_S), KeyboardInterrupt)
    assert platform.submit(make_job("after")).is_new
    assert platform.names() == ["first", "last", "after"]
