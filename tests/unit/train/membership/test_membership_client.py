"""A worker in its views: what it tells of a view that it cannot connect, or that breaks; what it does as it waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from tests.unit.train.jobs import LIMIT_S, Job, Worker, left_as
from torch import nn
from torch.utils.data import TensorDataset

from legato.core import wire
from legato.core.errors import BrokenView
from legato.core.view import View
from legato.train.data.order import Layout
from legato.train.membership import groups, membership_client
from legato.train.membership.connection import Connection, Entry, Leave
from legato.train.membership.groups import Group
from legato.train.reduction import kept_memory

LAYOUT = Layout(4, 2)
ENDLESS = TensorDataset(torch.ones(80_000, 2))


def train_for_ever(worker: Worker) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    worker.run.prepare(model, optimizer)
    for (inputs,) in worker.run.batches(ENDLESS):
        worker.run.backward(model(inputs).mean())
        optimizer.step()
        optimizer.zero_grad()


def fail_builds_of(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
    def build(view: View, *others: Any) -> Group:
        if view.number == number:
            raise error
        return groups.build(view, *others)

    monkeypatch.setattr(membership_client, "build", build)


def test_workers_that_cannot_share_memory_say_why(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_named: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(kept_memory, "Segment", fail)
    for worker in job.begin(2, train_for_ever):
        worker.await_message(wire.Progress)
        note = worker.await_message(wire.Note, level="warning")
        assert note.text.startswith(f"Worker {worker.worker} shares no memory with the others of its node: no room.")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [BrokenView("no worker came"), ValueError("odd")])
def test_a_recovery_that_cannot_be_connected_is_reported_and_the_next_one_is_entered(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    first, second = job.begin(2, train_for_ever)
    first.await_message(wire.Progress)
    second.lose_peers()
    first.await_message(wire.Broken, view=1)
    fail_builds_of(monkeypatch, 2, error)
    job.order_recovery(first)
    unbuilt = first.await_message(wire.Unbuilt, failed=2)
    assert unbuilt.view == 1, "it is in the old view still"
    assert str(error) in unbuilt.reason
    job.recover(first)
    first.await_message(wire.Joined, view=3)
    for thread in threading.enumerate():
        # What it dies of must not come to light in the next test.
        if thread.name == "legato-build-2":
            thread.join(LIMIT_S)


def test_what_was_connected_is_taken_down_when_the_rest_fails(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Group] = []

    def make_exchange(group: Group) -> Any:
        made.append(group)
        raise BrokenView("a peer is gone")

    worker = job.start(train_for_ever)
    worker.await_message(wire.Warm)
    monkeypatch.setattr(worker.session.membership, "_make_exchange", make_exchange)
    job.order_recovery(worker)
    worker.await_message(wire.Unbuilt, failed=1)
    assert made[0].is_broken


def test_a_view_that_breaks_before_the_state_has_come_is_reported(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = [job.start(train_for_ever) for _ in range(2)]
    meet = workers[0].session.membership._settle

    def break_and_meet(connection: Connection, broken: Any) -> Entry:
        if connection.view.number == 1:
            connection.group.break_connections()
        return meet(connection, broken)

    monkeypatch.setattr(workers[0].session.membership, "_settle", break_and_meet)
    job.propose(*workers)
    for worker in workers:
        worker.await_message(wire.Broken, view=1)
        assert worker.broken is not None, "the next driver must hear it too"
    job.recover(*workers)
    for worker in workers:
        worker.await_message(wire.Joined, view=2)
        assert worker.broken is None


def test_a_joiner_leaves_a_view_that_is_replaced_in_the_moment_in_which_it_enters(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (job.start(train_for_ever) for _ in range(2))
    for worker in (first, second):
        worker.await_message(wire.Warm)
    meet = second.session.membership._settle
    entering, may_enter = threading.Event(), threading.Event()

    def meet_late(connection: Connection, broken: Any) -> Entry:
        entering.set()
        assert may_enter.wait(LIMIT_S)
        return meet(connection, broken)

    def stay_away(*_: Any) -> Entry:
        job.over.wait(LIMIT_S)
        raise Leave(0)

    monkeypatch.setattr(first.session.membership, "_settle", stay_away)
    monkeypatch.setattr(second.session.membership, "_settle", meet_late)
    job.propose(first, second)
    assert entering.wait(LIMIT_S)
    job.propose(second)
    may_enter.set()
    second.await_message(wire.Joined, view=2)


def test_a_state_that_breaks_off_is_reported(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (job.start(train_for_ever) for _ in range(2))
    sending = threading.Event()
    monkeypatch.setattr(first.session, "_send_state", lambda _: sending.set() or job.over.wait(LIMIT_S))
    job.propose(first, second)
    assert sending.wait(LIMIT_S)
    second.lose_peers()
    second.await_message(wire.Broken, view=1)


def test_the_link_goes_on_while_the_state_is_saved_on_hold(saving_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = saving_job.begin(2, train_for_ever)
    first.await_message(wire.Progress)
    saving, saved = threading.Event(), threading.Event()

    def save() -> None:
        saving.set()
        saved.wait(LIMIT_S)

    monkeypatch.setattr(first.session.membership, "_on_hold", save)
    second.lose_peers()
    first.await_message(wire.Broken)
    first.hear(wire.Hold(save=True, reason="the test"))
    assert saving.wait(LIMIT_S)
    hearing = threading.Thread(target=first.hear, args=(wire.Heartbeat(),), daemon=True)
    hearing.start()
    hearing.join(LIMIT_S / 2)
    assert not hearing.is_alive(), "the link waits until the state is saved"
    first.hear(wire.Stop(reason="the test"))
    saved.set()
    assert left_as(first) == "stopped"
