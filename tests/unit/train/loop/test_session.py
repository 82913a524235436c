"""A worker among others: what it takes over, what it does when they die, when it must start again, how it ends."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit.train.jobs import LIMIT_S, Job, Worker, job_of, left_as
from torch import nn
from torch.utils.data import TensorDataset

from legato.core import wire
from legato.core.errors import BrokenView, MismatchError, ProgramError
from legato.core.view import Member, View
from legato.train.checkpoints import checkpoint
from legato.train.data import fingerprints
from legato.train.data.order import Layout
from legato.train.loop import session as sessions
from legato.train.loop.session import Session
from legato.train.membership import peer_memory, state_transfer
from legato.train.membership.connection import Leave
from legato.train.membership.groups import Group
from legato.train.membership.peer_memory import borrow
from legato.train.reduction.buckets import Bucket

LAYOUT = Layout(4, 2)
SHORT = TensorDataset(torch.ones(8, 2))  # two steps
ENDLESS = TensorDataset(torch.ones(80_000, 2))


class Counting(nn.Module):
    """After n steps its bias is -n."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.bias = nn.Parameter(torch.zeros(2))
        self.part = nn.Sequential(nn.Identity(), nn.Identity())
        self.register_buffer("tally", torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = (inputs * self.weight).sum(1) + self.bias.sum()
        return output


def prepared(worker: Worker) -> tuple[Counting, torch.optim.Optimizer]:
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    worker.run.prepare(model, optimizer)
    return model, optimizer


def turn(worker: Worker, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    worker.run.backward(model(inputs).mean())
    optimizer.step()
    optimizer.zero_grad()


def train_for_ever(worker: Worker) -> None:
    model, optimizer = prepared(worker)
    for (inputs,) in worker.run.batches(ENDLESS):
        turn(worker, model, optimizer, inputs)


def mean_output(outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return outputs


def pairs(dataset: TensorDataset) -> TensorDataset:
    return TensorDataset(*dataset.tensors, torch.zeros(len(dataset)))


def saved_steps(directory: Path) -> list[int]:
    return checkpoint.Store(directory, 3, pytest.fail).steps()


# ---------------------------------------------------------------- what a joiner takes over


def test_another_order_of_sets_is_detected_but_its_checkpoints_can_be_used(
    saving_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = saving_job.begin(1, train_to_the_end)
    first.end()
    monkeypatch.setattr(fingerprints, "hash", lambda _: 7, raising=False)
    second = saving_job.start(train_to_the_end)
    mine, other = (worker.await_message(wire.Warm).fingerprint for worker in (first, second))
    differing = [part for part in mine if mine[part] != other[part]]
    assert differing == ["hash of texts (PYTHONHASHSEED)"]
    (step,) = saved_steps(tmp_path)
    second.hear(saving_job.settings(resume=True))
    saving_job.propose(second)
    assert second.end() == first.end()
    assert [said.last_step for said in second.said if isinstance(said, wire.Progress) and said.resumed] == [step]


def test_a_joiner_has_loaded_code_and_memory_before_others_wait_for_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed: list[bool] = []
    has_memory: list[bool] = []
    set_gradient = Bucket.set_gradient
    monkeypatch.setattr(state_transfer, "rehearse", lambda: rehearsed.append(True))

    def note(bucket: Bucket, *rest: Any) -> None:
        has_memory.append(bool(bucket.gradient_views))
        set_gradient(bucket, *rest)

    monkeypatch.setattr(Bucket, "set_gradient", note)
    (first,) = job.begin(1, train_for_ever)
    first.await_message(wire.Progress)
    joiner = job.start(train_for_ever)
    joiner.await_message(wire.Warm)
    job.propose(first, joiner)
    joiner.await_message(wire.Progress, view=2)
    assert rehearsed == [True, True]
    assert has_memory
    assert all(has_memory)


def test_a_joiner_has_the_modes_of_the_incumbents(job: Job) -> None:
    def modes(model: nn.Module) -> list[bool]:
        return [module.training for module in model.modules()]

    def incumbent(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        model.part[1].eval()
        for (inputs,) in worker.run.batches(ENDLESS):
            turn(worker, model, optimizer, inputs)

    def joiner(worker: Worker) -> Any:
        model, _ = prepared(worker)
        model.part[0].eval()
        for _ in worker.run.batches(ENDLESS):
            break
        return modes(model)

    (first,) = job.begin(1, incumbent)
    second = job.start(joiner)
    job.propose(first, second)
    assert second.end() == [True, True, True, False]


class Keeping:
    """An object with some state, which it may be unable to take back."""

    def __init__(self, state_transfer: Any, error: Exception | None = None) -> None:
        self.kept = state_transfer
        self.error = error

    def state_dict(self) -> Any:
        return {"kept": self.kept}

    def load_state_dict(self, state_transfer: Any) -> None:
        if self.error is not None:
            raise self.error
        self.kept = state_transfer["kept"]


def keeping(change: Callable[[Worker, Keeping], None], error: Exception | None = None) -> Callable[[Worker], Any]:
    """Make a program that keeps an object, and changes it in every turn that completes a step."""

    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        kept = Keeping(deque([0], maxlen=3), error)
        worker.run.prepare(kept)
        for (inputs,) in worker.run.batches(ENDLESS):
            turn(worker, model, optimizer, inputs)
            if worker.run.stepped:
                change(worker, kept)
                if kept.kept == "the end":
                    break
        return worker.run.step

    return program


def test_state_that_cannot_be_carried_is_found_after_the_first_step(job: Job) -> None:
    def change(_: Worker, kept: Keeping) -> None:
        kept.kept = threading.Lock()

    (first,) = job.begin(1, keeping(change))
    error = first.end()
    assert isinstance(error, ProgramError) and "['kept'] of the Keeping: it is a _thread.lock" in str(error)
    assert first.session.cursor.step == 1


def test_a_joiner_of_a_state_that_cannot_be_carried_is_refused_and_the_others_go_on(job: Job) -> None:
    refused = threading.Event()

    def change(worker: Worker, kept: Keeping) -> None:
        if worker.run.step > 1:
            kept.kept = "the end" if refused.is_set() else threading.Lock()

    first, second = job.begin(2, keeping(change))
    first.await_message(wire.Progress, first_step=3)
    third = job.start(keeping(change))
    job.propose(first, second, third)
    error = third.end()
    assert isinstance(error, MismatchError), error
    assert "No worker can join" in str(error) and "['kept'] of the Keeping: it is a _thread.lock" in str(error)
    refused.set()
    job.recover(first, second)
    assert first.end() == second.end()


def test_a_joiner_that_cannot_take_the_state_is_refused_and_the_others_go_on(job: Job) -> None:
    refused = threading.Event()

    def change(worker: Worker, kept: Keeping) -> None:
        kept.kept = "the end" if refused.is_set() else deque([worker.run.step], maxlen=3)

    (first,) = job.begin(1, keeping(change))
    first.await_message(wire.Progress)
    second = job.start(keeping(change, KeyError("best")))
    job.propose(first, second)
    error = second.end()
    assert isinstance(error, MismatchError) and "cannot load the state of the job. KeyError: 'best'" in str(error)
    refused.set()
    job.recover(first)
    assert first.end() > 0


def test_no_worker_waits_after_an_error_in_sending_the_state(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("of the test")

    (first,) = job.begin(1, train_for_ever)
    first.await_message(wire.Progress)
    monkeypatch.setattr(state_transfer, "send_tree", fail)
    second = job.start(train_for_ever)
    job.propose(first, second)
    assert isinstance(first.end(), MemoryError)
    second.await_message(wire.Broken)


def test_evaluations_in_a_pass_that_a_joiner_missed_are_not_taken_for_later_ones(job: Job) -> None:
    there = threading.Event()
    data = pairs(SHORT)

    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        found = []
        for _ in run.epochs(1):
            for (inputs,) in run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
                if run.stepped:
                    run.evaluate(model, data, lambda outputs, _: outputs + 1)
                    run.log(step=run.step)
                    break
            found.append(run.evaluate(model, data, mean_output))
            run.log(found=found[0])
            for (inputs,) in run.batches(ENDLESS):
                # Until the joiner can be voted for: however long it takes to come, this pass does not end before.
                assert there.wait(LIMIT_S)
                turn(worker, model, optimizer, inputs)
                if run.num_workers == 2 and run.stepped:
                    break
            found += [log for _, _, log in run._session.cursor.logs]
        return found

    (first,) = job.begin(1, program)
    second = job.start(program)
    job.propose(first, second)
    there.set()
    want = first.end()
    assert want == [-4.0, {"step": 1.0}, {"found": -4.0}]
    assert second.end() == want


def test_what_stands_in_the_records_is_not_carried_to_joiners(job: Job) -> None:
    logged = threading.Event()

    def incumbent(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        for (inputs,) in worker.run.batches(ENDLESS):
            turn(worker, model, optimizer, inputs)
            if worker.run.stepped and not logged.is_set():
                worker.run.log(step=worker.run.step)
                if worker.run.step == 100:
                    worker.hear(wire.Heartbeat(num_metrics=98))
                    logged.set()

    def joiner(worker: Worker) -> Any:
        prepared(worker)
        for _ in worker.run.batches(ENDLESS):
            worker.run.log(now=1.0)
            return worker.session.cursor.to_plain()
        return None

    (first,) = job.begin(1, incumbent)
    assert logged.wait(LIMIT_S)
    second = job.start(joiner)
    job.propose(first, second)
    assert [values for _, _, values in second.end()["logs"]] == [{"step": 99.0}, {"step": 100.0}, {"now": 1.0}]
    told = [(said.index, said.step) for said in second.said if isinstance(said, wire.Metrics)]
    assert told[:2] == [(98, 99), (99, 100)]
    assert told[2][0] == 100 and told[2][1] >= 100 and len(told) == 3


def test_a_joiner_of_the_first_epoch_comes_by_what_was_before_the_loop(job: Job) -> None:
    there = threading.Event()
    data = pairs(SHORT)

    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        run.log(before=1.0)
        found = [run.evaluate(model, data, lambda outputs, _: outputs + 7)]
        for (inputs,) in run.batches(SHORT):
            turn(worker, model, optimizer, inputs)
        for epoch in run.epochs(2):
            for (inputs,) in run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
            found.append(run.evaluate(model, data, mean_output))
            run.log(epoch=epoch)
            for (inputs,) in run.batches(ENDLESS):
                assert there.wait(LIMIT_S)
                turn(worker, model, optimizer, inputs)
                if run.num_workers == 2 and run.stepped:
                    break
        return found, run.step

    (first,) = job.begin(1, program)
    first.await_message(wire.Metrics, index=1)
    second = job.start(program)
    job.propose(first, second)
    there.set()
    found, step = first.end()
    assert found[:2] == [7.0, -16.0] and len(found) == 3
    assert second.end() == (found, step)
    for worker in (first, second):
        told = {(said.index, said.step, *said.values) for said in worker.said if isinstance(said, wire.Metrics)}
        assert told == {(0, 0, "before"), (1, 4, "epoch"), (2, step - 1, "epoch")}


def test_who_leaves_the_loop_where_a_joiner_came_waits_until_it_has_the_state(job: Job) -> None:
    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        for (inputs,) in worker.run.batches(ENDLESS):
            if worker.run.num_workers == 2:
                break
            turn(worker, model, optimizer, inputs)
        # What is under way still reads the state, which the program may change now.
        return len(worker.session.outgoing), worker.run.step, model.bias.tolist()

    (first,) = job.begin(1, program)
    first.await_message(wire.Progress)
    second = job.start(program)
    job.propose(first, second)
    num_under_way, step, bias = first.end()
    assert num_under_way == 0
    assert second.end() == (0, step, bias)


def test_a_joiner_knows_what_was_noted_before_it_came(job: Job) -> None:
    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        for (inputs,) in run.batches(ENDLESS):
            if run.num_workers == 2:
                break
            run.note(step=run.step)
            turn(worker, model, optimizer, inputs)
        return run.step, run.notes

    (first,) = job.begin(1, program)
    first.await_message(wire.Progress)
    second = job.start(program)
    job.propose(first, second)
    step, notes = first.end()
    assert notes == {"step": (step - 1.0, step - 1.0)}
    assert second.end() == (step, notes)


def test_a_joiner_that_dies_where_the_loop_is_left_is_missed_by_the_next_round(job: Job) -> None:
    there = threading.Event()

    def incumbent(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        for (inputs,) in run.batches(ENDLESS):
            if run.num_workers == 2:
                there.wait(LIMIT_S)
                break
            turn(worker, model, optimizer, inputs)
        return run.step, run.evaluate(model, pairs(SHORT), mean_output)

    def joiner(worker: Worker) -> None:
        prepared(worker)
        for _ in worker.run.batches(ENDLESS):
            break
        worker.lose_peers()
        there.set()

    (first,) = job.begin(1, incumbent)
    first.await_message(wire.Progress)
    second = job.start(joiner)
    job.propose(first, second)
    first.await_message(wire.Broken)
    job.recover(first)
    step, measured = first.end()
    assert measured == -4.0 * step


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_the_program_does_to_a_buffer_behind_its_back_lasts(job: Job, num_workers: int) -> None:
    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        seen = []
        for _ in run.epochs(3):
            for (inputs,) in run.batches(SHORT):
                seen.append(model.tally.item())
                turn(worker, model, optimizer, inputs)
                if run.stepped:
                    model.tally.data.add_(1)
            model.tally.data.mul_(-1)
        return sorted(set(seen)), model.tally.item()

    # 0 1 | -2 -1 | 0 1
    for worker in job.begin(num_workers, program):
        assert worker.end() == ([-2.0, -1.0, 0.0, 1.0], -2.0)


def test_the_driver_hears_what_the_job_is_at(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = wire.Note(level="info", text="flushed")
    monkeypatch.setattr(Worker, "flush", lambda worker: worker.send(flushed))

    def program(worker: Worker) -> list[str]:
        run = worker.run
        model, optimizer = prepared(worker)
        run.evaluate(model, pairs(SHORT), mean_output)
        told = []
        for (inputs,) in run.batches(SHORT):
            turn(worker, model, optimizer, inputs)
            if run.step == 1 and run.stepped:
                told = [said.phase for said in worker.said if isinstance(said, wire.Progress)]
                run.evaluate(model, pairs(SHORT), mean_output)
        return told

    first, second = job.begin(2, program)
    assert first.end() == second.end() == ["train"]
    told = [
        [
            (said.phase, said.first_step, said.last_step, said.num_samples)
            for said in worker.said
            if isinstance(said, wire.Progress)
        ]
        for worker in (first, second)
    ]
    steps = [("train", 1, 1, 4), ("train", 2, 2, 4)]
    # For all of them rank 0 says it, and nothing is merged with it.
    assert [first.said[at + 1] for at, said in enumerate(first.said) if getattr(said, "num_samples", 1) == 0] == [
        flushed,
        flushed,
    ]
    assert told == [[steps[0], ("evaluate", 1, 1, 0), ("train", 1, 1, 0), steps[1]], steps]


# ---------------------------------------------------------------- deaths


def test_what_the_program_did_to_a_buffer_outlasts_a_death_in_an_evaluation(job: Job) -> None:
    measuring = threading.Event()

    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)

        def metric(outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            if run.rank == 1:
                measuring.set()
                job.over.wait(LIMIT_S)
            return outputs

        measured = []
        for (inputs,) in run.batches(SHORT):
            turn(worker, model, optimizer, inputs)
            if run.stepped and run.step == 1:
                model.tally += 3
                measured.append(run.evaluate(model, pairs(SHORT), metric))
        return measured, model.tally.tolist(), model.bias.tolist(), run.step

    first, second = job.begin(2, program)
    assert measuring.wait(LIMIT_S)
    second.lose_peers()
    first.await_message(wire.Broken)
    job.recover(first)
    assert first.end() == ([-4.0], [3.0], [-2.0, -2.0], 2)


def test_a_program_that_is_ahead_of_where_the_job_goes_on_is_superseded(job: Job) -> None:
    on_its_way, go = threading.Event(), threading.Event()

    def incumbent(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        for _ in worker.run.epochs(10**6):
            for (inputs,) in worker.run.batches(SHORT):
                turn(worker, model, optimizer, inputs)

    def joiner(worker: Worker) -> int:
        prepared(worker)
        for _ in worker.run.epochs(10**6):
            on_its_way.set()
            go.wait(LIMIT_S)
            for _ in worker.run.batches(SHORT):
                return worker.run.step
        return -1

    (first,) = job.begin(1, incumbent)
    first.await_message(wire.Progress, epoch=1)
    second = job.start(joiner)
    job.propose(first, second)
    assert on_its_way.wait(LIMIT_S)
    first.lose_peers()
    job.recover(second)
    go.set()
    assert left_as(second) == "superseded"


@pytest.fixture(params=["sent", "lent"])
def half_arrived(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let every state break off after its first tensor; returns what is set when that has come."""
    arrived = threading.Event()
    if request.param == "lent":

        def read_half(group: Group, source: int, loan: dict[str, Any], targets: list[torch.Tensor], _: object) -> None:
            borrow(loan | {"parts": loan["parts"][:1]}, targets[:1], arrived.set)
            group.finish([group.receive(torch.empty(1), source, 0)])  # until the view breaks

        monkeypatch.setattr(state_transfer, "receive_loan", read_half)
        return arrived
    monkeypatch.setattr(sessions, "can_read_peers", lambda group, **_: False)
    send, receive = state_transfer.send_share, state_transfer.receive_shares
    monkeypatch.setattr(state_transfer, "_CHUNK_BYTES", 8)
    monkeypatch.setattr(state_transfer, "send_share", lambda group, *peers: send(group, *peers[:2], peers[2][:1]))
    monkeypatch.setattr(
        state_transfer,
        "receive_shares",
        lambda group, sources, targets, _: receive(group, sources, targets, arrived.set),
    )
    return arrived


def joiner(worker: Worker) -> Any:
    model, _ = prepared(worker)
    for _ in worker.run.batches(ENDLESS):
        return worker.run.step, model.bias.tolist(), model.weight.tolist()
    return None


@pytest.mark.parametrize("way", ["sent", "lent"])
def test_a_worker_lost_in_the_very_first_transfer_leaves_nothing_behind(
    job: Job, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "sent":
        monkeypatch.setattr(sessions, "can_read_peers", lambda group, **_: False)

    def die(group: Group, *_: object) -> None:
        group.break_connections()
        raise Leave(0)

    monkeypatch.setattr(state_transfer, "receive_tree", die)
    first, second = job.begin(2, train_to_the_end)
    first.await_message(wire.Broken, view=1)
    assert isinstance(second.end(), Leave)
    assert not first.session.outgoing
    job.propose(first)
    assert first.end() == (4, [-4.0, -4.0])


def test_who_cannot_read_what_is_lent_is_sent_it_in_the_next_view(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = PermissionError(errno.EPERM, "not allowed")
    tried: list[None] = []

    def refuse(*_: object) -> None:
        tried.append(None)
        raise forbidden

    monkeypatch.setattr(peer_memory, "_has_mark", lambda *_: True)
    monkeypatch.setattr(peer_memory, "_read", refuse)
    (first,) = job.begin(1, train_for_ever)
    first.await_message(wire.Progress)
    second = job.start(joiner)
    job.propose(first, second)
    first.await_message(wire.Broken, view=2)
    second.await_message(wire.Broken, view=2)
    job.recover(first, second)
    step, bias, weight = second.end()
    assert bias == weight == [-step, -step]
    assert len(tried) == 1


def test_half_a_state_is_not_begun_from(job: Job, half_arrived: threading.Event) -> None:
    (first,) = job.begin(1, train_for_ever)
    first.await_message(wire.Progress)
    second = job.start(joiner)
    job.propose(first, second)
    assert half_arrived.wait(LIMIT_S)
    first.lose_peers()
    job.recover(second)
    assert left_as(second) == "superseded"


def test_a_program_that_is_epochs_behind_is_superseded(job: Job, half_arrived: threading.Event) -> None:
    def program(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        for _ in worker.run.epochs(10**6):
            for (inputs,) in worker.run.batches(SHORT):
                turn(worker, model, optimizer, inputs)

    (first,) = job.begin(1, program)
    first.await_message(wire.Progress)
    second = job.start(program)
    job.propose(first, second)
    assert half_arrived.wait(LIMIT_S)
    first.lose_peers()
    first.await_message(wire.Broken)
    job.recover(first)
    now = max(said.epoch for said in first.said if isinstance(said, wire.Progress))
    first.await_message(wire.Progress, epoch=now + 2)
    job.propose(first, second)
    assert left_as(second) == "superseded"


def test_half_a_state_is_overwritten_by_a_checkpoint(saving_job: Job, half_arrived: threading.Event) -> None:
    job = saving_job

    def incumbent(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        for (inputs,) in worker.run.batches(ENDLESS):
            turn(worker, model, optimizer, inputs)
            if worker.run.stepped and worker.run.step == 3:
                worker.session.save()

    (first,) = job.begin(1, incumbent)
    step = first.await_message(wire.Saved).step
    second = job.start(joiner)
    job.propose(first, second)
    assert half_arrived.wait(LIMIT_S)
    first.lose_peers()
    second.hear(job.settings(resume=True))
    job.recover(second)
    assert second.end() == (step, [-step] * 2, [-step] * 2)
    assert [said.last_step for said in second.said if isinstance(said, wire.Progress) and said.resumed] == [step]


# ---------------------------------------------------------------- the layout of gradients


def loses_result_of(worker: Worker, step: int, ahead: Callable[[], Worker]) -> None:
    """Let a worker miss the result of a step of the first view, which another one has."""
    stepper = worker.run._stepper
    run_round = stepper._run_round

    def lose() -> None:
        if worker.session.cursor.step + 1 != step or worker.session.membership.connection.view.number > 1:
            return run_round()
        reducer = worker.session.reducer
        whole = reducer.run_round

        def run_and_lose(word: Any) -> Any:
            whole(word)
            ahead().await_message(wire.Progress, last_step=step)
            raise BrokenView("the result came too late")

        reducer.run_round = run_and_lose
        try:
            return run_round()
        finally:
            reducer.run_round = whole

    stepper._run_round = lose  # type: ignore[method-assign]


@pytest.mark.parametrize("way", ["sent", "lent"])
def test_who_comes_as_a_rank_misses_the_last_step_of_a_pass_is_served_before_the_next_step(
    job: Job, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "sent":
        monkeypatch.setattr(sessions, "can_read_peers", lambda group, **_: False)

    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        if worker.worker == 1:
            loses_result_of(worker, 2, lambda: first)
        found = []
        for _ in worker.run.epochs(2):
            for (inputs,) in worker.run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
                if worker.worker == 2 and worker.run.step == 2:
                    worker.session.membership.leave("dead")
            found.append(worker.run.evaluate(model, pairs(SHORT), mean_output))
        return found, model.weight.tolist(), model.bias.tolist()

    first, second, _ = job.begin(3, program)
    fourth = job.start(program)
    second.await_message(wire.Broken)
    first.await_message(wire.Broken)
    fourth.await_message(wire.Warm)
    job.recover(first, second, fourth)
    want = ([-8.0, -16.0], [-4.0, -4.0], [-4.0, -4.0])
    assert first.end() == second.end() == want
    assert fourth.end() == ([want[0][1]], *want[1:])


def test_a_rank_leaves_a_step_that_broke_before_its_next_micro_batch() -> None:
    is_in_step, is_broken = threading.Event(), threading.Event()
    turns: list[int] = []

    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        for (inputs,) in worker.run.batches(TensorDataset(torch.ones(16, 2))):
            if worker.run.step == 1 and worker is other:
                worker.session.membership.leave("dead")
            if worker is first:
                turns.append(worker.run.step)
            if worker is first and turns == [0, 0, 1]:
                is_in_step.set()
                assert is_broken.wait(LIMIT_S)
            turn(worker, model, optimizer, inputs)
        return model.weight.tolist(), model.bias.tolist()

    with job_of(Layout(8, 2)) as job:
        first, other = job.start(program), job.start(program)
        job.propose(first, other)
        assert is_in_step.wait(LIMIT_S)
        job.recover(first)
        is_broken.set()
        assert first.end() == ([-2.0, -2.0], [-2.0, -2.0])
    # Two of four micro-batches of the first step; one of the second step, and then all four of it.
    assert turns == [0, 0, 1, 1, 1, 1, 1]


def test_a_rank_that_missed_the_last_step_of_a_pass_follows_one_that_has_thawed_a_part(job: Job) -> None:
    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        model.weight.requires_grad_(False)
        if worker.worker == 1:
            loses_result_of(worker, 2, lambda: first)
        for epoch in worker.run.epochs(2):
            model.weight.requires_grad_(epoch > 0)
            for (inputs,) in worker.run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
        return model.weight.tolist(), model.bias.tolist()

    first, second = job.begin(2, program)
    second.await_message(wire.Broken)
    first.await_message(wire.Broken)
    job.recover(first, second)
    assert first.end() == second.end() == ([-2.0, -2.0], [-4.0, -4.0])


@pytest.mark.parametrize(("missed", "changes"), [(2, "always"), (3, "always"), (2, "before"), (3, "before")])
def test_a_rank_that_missed_a_step_and_one_that_is_further_change_buffers_alike(
    job: Job, missed: int, changes: str
) -> None:
    def program(worker: Worker) -> Any:
        norm = nn.BatchNorm1d(2)
        worker.run.prepare(norm)
        model, optimizer = prepared(worker)
        if worker.worker == 1:
            loses_result_of(worker, missed, lambda: first)
        for _ in worker.run.epochs(3):
            for (inputs,) in worker.run.batches(SHORT):
                turn(worker, model, optimizer, norm(inputs))
                if worker.run.stepped and (changes == "always" or worker.run.step == missed - 1):
                    norm(torch.arange(4.0).view(2, 2))
            if changes == "always":
                norm(torch.ones(2, 2))
        return [buffer.tolist() for buffer in norm.buffers()]

    first, second = job.begin(2, program)
    second.await_message(wire.Broken)
    first.await_message(wire.Broken)
    job.recover_missed(first, second)
    ends = [first.end(), second.end()]
    assert ends[0] == ends[1] and isinstance(ends[0], list), ends


def test_ranks_with_used_and_with_new_memory_keep_a_missed_result_once(job: Job) -> None:
    """The joiner's memory is used, too, when the view that the others have broken is built again."""

    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        if worker.worker == 1:
            loses_result_of(worker, 1, lambda: first)
        for (inputs,) in worker.run.batches(TensorDataset(torch.ones(16, 2))):
            turn(worker, model, optimizer, inputs)
        return model.weight.tolist(), model.bias.tolist()

    first, second = job.begin(2, program)
    third = job.start(program)
    second.await_message(wire.Broken)
    first.await_message(wire.Broken)
    third.await_message(wire.Warm)
    job.recover_missed(first, second, third)
    assert first.end() == second.end() == third.end() == ([-4.0, -4.0], [-4.0, -4.0])


# ---------------------------------------------------------------- the end


def test_a_stop_after_the_death_of_rank_0_saves(saving_job: Job, tmp_path: Path) -> None:
    first, second = saving_job.begin(2, train_for_ever)
    second.await_message(wire.Progress)
    first.lose_peers()
    second.await_message(wire.Broken)
    second.hear(wire.Stop(reason="the test"))
    assert left_as(second) == "stopped"
    (step,) = saved_steps(tmp_path)
    found = checkpoint.load(tmp_path / f"step-{step:08}.legato")
    assert found.state["models"][0]["parameters"]["bias"].tolist() == [-step, -step]
    assert step == second.run.step > 0


def test_a_stop_in_which_rank_0_dies_saves(saving_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = saving_job.begin(2, train_for_ever)
    saving = dies_as_it_saves(first, monkeypatch)
    for worker in (first, second):
        worker.hear(wire.Stop(reason="the test"))
    assert saving.wait(LIMIT_S)
    second.await_message(wire.Broken)
    saving_job.recover(second)
    assert left_as(second) == "stopped"
    assert saved_steps(tmp_path) == [second.run.step]


def test_a_stop_that_not_all_survivors_know_of_is_voted_again(job: Job) -> None:
    def program(worker: Worker) -> Any:
        model, optimizer = prepared(worker)
        if worker.worker == 1:
            loses_result_of(worker, 1, lambda: first)
        for _ in worker.run.epochs(2):
            for (inputs,) in worker.run.batches(SHORT):
                if worker.worker == 2:
                    worker.hear(wire.Stop(reason="heard by one only, which dies"))
                turn(worker, model, optimizer, inputs)
                if worker.worker == 2 and worker.run.step == 1:
                    worker.session.membership.leave("dead")
        return worker.run.step, model.bias.tolist()

    first, second, _ = job.begin(3, program)
    second.await_message(wire.Broken)
    first.await_message(wire.Broken)
    job.recover(first, second)
    assert first.end() == second.end() == (4, [-4.0, -4.0])


def train_to_the_end(worker: Worker) -> Any:
    model, optimizer = prepared(worker)
    for _ in worker.run.epochs(2):
        for (inputs,) in worker.run.batches(SHORT):
            turn(worker, model, optimizer, inputs)
    return worker.run.step, model.bias.tolist()


def leave_and_end(worker: Worker) -> Any:
    model, optimizer = prepared(worker)
    for _ in worker.run.epochs(9):
        for (inputs,) in worker.run.batches(SHORT):
            turn(worker, model, optimizer, inputs)
        if worker.run.step == 4:
            break
    worker.session._finish()
    return worker.run.step, model.bias.tolist()


def dies_as_it_saves(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    saving = threading.Event()

    def die() -> None:
        saving.set()
        worker.lose_peers()
        worker.session.membership.leave("dead")

    monkeypatch.setattr(worker.session, "save_and_wait", die)
    return saving


@pytest.mark.parametrize("program", [train_to_the_end, leave_and_end])
def test_who_is_left_writes_the_last_checkpoint(
    saving_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[Worker], Any]
) -> None:
    first, second, third = (saving_job.start(program) for _ in range(3))
    saving = [dies_as_it_saves(worker, monkeypatch) for worker in (first, second)]
    saving_job.propose(first, second, third)
    assert saving[0].wait(LIMIT_S)
    third.await_message(wire.Broken)
    saving_job.recover(second, third)
    assert saving[1].wait(LIMIT_S)
    third.await_message(wire.Broken, view=2)
    assert saved_steps(tmp_path) == []
    saving_job.recover(third)
    assert third.end() == (4, [-4.0, -4.0])
    assert saved_steps(tmp_path) == [4]


def test_the_death_of_another_is_no_reason_to_save_twice(saving_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = saving_job.start(train_to_the_end), saving_job.start(train_to_the_end)
    dead = threading.Event()
    save = first.session.save_and_wait
    num_saves = []

    def save_and_wait() -> None:
        num_saves.append(first.run.step)
        assert dead.wait(LIMIT_S)
        save()

    def die(**_: object) -> None:
        second.lose_peers()
        dead.set()
        second.session.membership.leave("dead")

    monkeypatch.setattr(first.session, "save_and_wait", save_and_wait)
    monkeypatch.setattr(second.session, "save_together", die)
    saving_job.propose(first, second)
    first.await_message(wire.Broken)
    saving_job.recover(first)
    assert first.end() == (4, [-4.0, -4.0])
    assert num_saves == [4]


def test_who_comes_as_the_last_checkpoint_is_written_ends_with_the_others(
    saving_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = saving_job.start(train_to_the_end), saving_job.start(train_to_the_end)
    saving = dies_as_it_saves(first, monkeypatch)
    saving_job.propose(first, second)
    assert saving.wait(LIMIT_S)
    second.await_message(wire.Broken)
    third = saving_job.start(train_to_the_end)
    third.await_message(wire.Warm)
    saving_job.recover(second, third)
    assert second.end() == third.end() == (4, [-4.0, -4.0])
    assert saved_steps(tmp_path) == [4]


def test_a_joiner_finds_the_passes_after_the_loop(saving_job: Job) -> None:
    def program(worker: Worker) -> Any:
        run = worker.run
        model, optimizer = prepared(worker)
        for _ in run.epochs(1):
            for (inputs,) in run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
        found = [run.evaluate(model, pairs(SHORT), mean_output)]
        for (inputs,) in run.batches(ENDLESS):
            turn(worker, model, optimizer, inputs)
            if run.num_workers == 2 and run.stepped:
                break
        return found, run.step, model.bias.tolist()

    (first,) = saving_job.begin(1, program)
    first.await_message(wire.Progress, last_step=3)
    second = saving_job.start(program)
    saving_job.propose(first, second)
    found, step, bias = first.end()
    assert (found, bias) == ([-8.0], [-step, -step])
    assert second.end() == (found, step, bias)


def test_an_orphan_whose_peer_hangs_saves_and_leaves(saving_job: Job, tmp_path: Path) -> None:
    hanging = threading.Event()

    def program(worker: Worker) -> None:
        model, optimizer = prepared(worker)
        for (inputs,) in worker.run.batches(ENDLESS):
            if worker.run.rank == 1 and worker.run.step == 3:
                hanging.set()
                saving_job.over.wait(LIMIT_S)
            turn(worker, model, optimizer, inputs)

    first, _ = saving_job.begin(2, program)
    assert hanging.wait(LIMIT_S)
    first.await_message(wire.Progress, last_step=3)
    first._check_away()
    assert first.stop_reason is None, "the driver has just spoken"
    first._last_heard = time.monotonic() - 65.0  # beyond away_limit_s, but not as far as to give the others up
    first._check_away()
    first._check_away()
    assert first.stop_reason == "orphaned"
    assert not first.session.membership.group.is_broken
    first._last_heard = time.monotonic() - 80.0
    first._check_away()
    assert left_as(first) == "orphaned"
    assert saved_steps(tmp_path) == [3]


# ---------------------------------------------------------------- workers that do not do the same


@pytest.mark.parametrize("num_metrics", [1, 2])
def test_an_evaluation_on_one_worker_only_is_refused_on_all(job: Job, num_metrics: int) -> None:
    # With two metrics its messages are as long as those of a step of this model.
    metrics: dict[str, Callable[..., Any]] = {str(number): mean_output for number in range(num_metrics)}
    measured = []

    def program(worker: Worker) -> None:
        run = worker.run
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        run.prepare(model, optimizer)
        for _ in run.epochs(3):
            for (inputs,) in run.batches(SHORT):
                turn(worker, model, optimizer, inputs)
            if run.is_main:
                measured.append(run.evaluate(model, pairs(SHORT), metrics))

    for worker in job.begin(2, program):
        outcome = worker.end()
        assert isinstance(outcome, ProgramError), outcome
        assert "made different calls" in str(outcome) and "run.is_main" in str(outcome)
    assert not measured


def test_gradients_that_go_through_the_host_are_reported_once_by_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[wire.Note] = []
    monkeypatch.setattr(sessions, "make_exchange", lambda *_args, **_named: None)
    monkeypatch.setattr(sessions, "can_read_peers", lambda *_args, **_named: False)
    session: Any = SimpleNamespace(
        reducer=SimpleNamespace(buckets=[], buckets_between_nodes=[]),
        layout=SimpleNamespace(num_micro_batches=4),
        is_exact=True,
        _may_read_peers=True,
        _kept_memory=None,
        _known_obstacles=set(),
        reporter=SimpleNamespace(say=said.append),
    )
    for rank, obstacle in ((0, ""), (1, "two share one"), (0, "two share one"), (0, "two share one")):
        group = Group(View(1, (Member(0, "here"), Member(1, "here")), ""), rank)
        group.use_devices(None, obstacle)
        Session._connect(session, group)
    (note,) = said
    assert note.level == "warning"
    assert note.text == "Gradients are summed in the memory of the host, not between the GPUs: two share one."
