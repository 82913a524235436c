"""Every record once in each epoch, in any order of requests, reports, deaths, and restarts of the driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.tiers import examples

from legato.compat.elasticdl.commands import (
    Command,
    Get,
    Register,
    Reopen,
    Report,
    Reset,
    Restore,
    SetWorkers,
    State,
    StateMachine,
)
from legato.compat.elasticdl.task_types import DatasetParams, Task, TaskKind

_NAMES = ("a", "b")
_SEED = 7

_params = st.builds(
    DatasetParams,
    name=st.sampled_from(_NAMES),
    batch_size=st.integers(1, 5),
    num_epochs=st.integers(1, 3),
    dataset_size=st.integers(1, 40),
    shuffle=st.booleans(),
    shuffle_shards=st.booleans(),
    num_minibatches_per_shard=st.integers(0, 3),
)


class _Tasks(RuleBasedStateMachine):
    """A model that only knows which records are handed out and which are done."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = StateMachine(seed=_SEED, num_minibatches=2)
        self.head = msgspec.json.encode(self.machine.state)
        self.commands: list[bytes] = []
        self.workers: set[int] = set()
        self.next_worker = 0
        self.params: dict[str, DatasetParams] = {}
        self.held: dict[int, tuple[int, Task]] = {}
        self.done: Counter[tuple[str, int, int]] = Counter()
        self.kept: tuple[str, str, Counter[tuple[str, int, int]]] | None = None
        self.restored: set[str] = set()
        self.num_asks = 0

    # ------------------------------------------------------------ what workers do

    @rule(params=_params)
    def register(self, params: DatasetParams) -> None:
        is_first = self.do(Register(params))
        assert is_first == (params.name not in self.params)
        self.params.setdefault(params.name, params)

    @rule()
    def join(self) -> None:
        self.workers.add(self.next_worker)
        self.next_worker += 1
        assert self.do(SetWorkers(tuple(self.workers))) == 0

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.workers)))
        self.workers.remove(worker)
        lost = [number for number, (holder, _) in self.held.items() if holder == worker]
        assert self.do(SetWorkers(tuple(self.workers))) == len(lost)
        for number in lost:
            del self.held[number]
            assert not self.do(Report(number)).is_known

    @precondition(lambda self: self.workers and self.params)
    @rule(data=st.data(), is_lost=st.booleans())
    def get(self, data: st.DataObject, is_lost: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(self.workers)))
        name = data.draw(st.sampled_from(sorted(self.params)))
        self.num_asks += 1
        answer = self.do(Get(worker, name, f"{self.num_asks}"))
        if is_lost:
            assert self.do(Get(worker, name, f"{self.num_asks}")) == answer
        if isinstance(answer, Task):
            assert answer.number not in self.held
            self.held[answer.number] = (worker, answer)
            return
        holders = {holder for holder, task in self.held.values() if task.dataset == name}
        assert self.is_all_handed_out(name)
        assert (answer is TaskKind.WAIT) == (bool(holders) and worker not in holders)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report_done(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        _, task = self.held.pop(number)
        assert self.do(Report(number)).is_known
        self.note_done(task)
        assert not self.do(Report(number)).is_known

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report_failed(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[number]
        assert self.do(Report(number, "out of luck")).num_failures >= 1

    # ------------------------------------------------------------ drivers, checkpoints

    @rule()
    def replace_driver(self) -> None:
        """A new driver repeats the commands that the last one logged."""
        machine = StateMachine(seed=_SEED, num_minibatches=2, state=msgspec.json.decode(self.head, type=State))
        for command in self.commands:
            machine.carry_out(msgspec.json.decode(command, type=Command))
        assert msgspec.json.encode(machine.state) == msgspec.json.encode(self.machine.state)
        machine.carry_out(Reopen())
        self.machine, self.head, self.commands = machine, msgspec.json.encode(machine.state), []
        assert machine.tasks.workers == self.workers

    @precondition(lambda self: self.params)
    @rule(data=st.data())
    def keep_checkpoint(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.params)))
        self.kept = (name, self.machine.tasks.checkpoint(name), self.done.copy())

    @precondition(lambda self: self.kept is not None)
    @rule()
    def restore_checkpoint(self) -> None:
        assert self.kept is not None
        name, content, done = self.kept
        assert self.do(Restore(content))
        if content not in self.restored:
            self.restored.add(content)
            self.go_back(name, done)

    @precondition(lambda self: self.params)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.params)))
        assert self.do(Reset(name))
        self.go_back(name, Counter())

    # ------------------------------------------------------------ the model

    def do(self, command: Command) -> Any:
        self.commands.append(msgspec.json.encode(command))
        return self.machine.carry_out(command)

    def note_done(self, task: Task) -> None:
        assert task.num_records == len(task.records) > 0
        self.done.update((task.dataset, task.epoch, index) for index in task.records)

    def go_back(self, name: str, done: Counter[tuple[str, int, int]]) -> None:
        self.held = {number: held for number, held in self.held.items() if held[1].dataset != name}
        others = {key: count for key, count in self.done.items() if key[0] != name}
        self.done = Counter(others | {key: count for key, count in done.items() if key[0] == name})

    def is_all_handed_out(self, name: str) -> bool:
        params = self.params[name]
        held = sum(task.num_records for _, task in self.held.values() if task.dataset == name)
        done = sum(count for key, count in self.done.items() if key[0] == name)
        return held + done == params.num_epochs * params.dataset_size

    @invariant()
    def nothing_twice(self) -> None:
        assert not self.done or max(self.done.values()) == 1
        held = [(task.dataset, task.epoch, index) for _, task in self.held.values() for index in task.records]
        assert len(set(held)) == len(held)
        assert not set(held) & set(self.done)

    def teardown(self) -> None:
        """The remaining workers finish the work: every record of every epoch is done."""
        manager = self.machine.tasks
        manager.set_workers({self.next_worker})
        self.held = {}
        for name, params in self.params.items():
            while isinstance(task := manager.get(self.next_worker, name), Task):
                self.note_done(task)
                assert manager.report(task.number).is_known
            assert task is TaskKind.NONE
            expected = {(name, epoch + 1, i) for epoch in range(params.num_epochs) for i in range(params.dataset_size)}
            assert {key for key in self.done if key[0] == name} == expected
        assert manager.describe_left() is None
        self.nothing_twice()


TestTasks = _Tasks.TestCase
TestTasks.settings = settings(max_examples=examples(20), stateful_step_count=50, deadline=None)
