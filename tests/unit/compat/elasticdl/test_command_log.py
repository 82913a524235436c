"""The log of the plugin: lines and states, full disks, files that grow."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from legato.compat.elasticdl import command_log as book_module
from legato.compat.elasticdl.command_log import CommandLog
from legato.compat.elasticdl.commands import Command, Get, Register, Reopen, Report, SetWorkers, StateMachine
from legato.compat.elasticdl.permutation import Permutation
from legato.compat.elasticdl.task_types import DatasetParams, Task

PARAMS = DatasetParams(name="d", batch_size=1, num_epochs=1, dataset_size=100, num_minibatches_per_shard=1)


class Writer:
    """A plugin that logs every command."""

    def __init__(self, path: Path) -> None:
        self.machine = StateMachine(seed=0)
        self.log = CommandLog(path)
        self.log.begin(7, self.machine)
        self.do(SetWorkers((0,)))
        self.do(Register(PARAMS))

    def do(self, command: Command) -> None:
        self.machine.carry_out(command)
        self.log.note(command, self.machine)


def read(path: Path) -> tuple[int, int, int]:
    """Return the port, the number of commands, and the number of tasks that they hand out."""
    head, commands = CommandLog(path).read()
    machine = StateMachine(seed=0, state=head.state)
    for command in commands:
        machine.carry_out(command)
    held = [known for known in machine.tasks.state.datasets if known.params.name == "d"]
    return head.port, len(commands), len(held[0].state.doing) if held else 0


def test_a_command_is_in_the_file_before_the_log_is_closed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "tasks.jsonl")
    for number in range(1, 5):
        writer.do(Get(0, "d"))
        assert read(tmp_path / "tasks.jsonl") == (7, 2 + number, number)
    writer.log.close()


def test_it_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "_MAX_COMMANDS", 10)
    writer = Writer(tmp_path / "tasks.jsonl")
    for number in range(1, 30):
        writer.do(Get(0, "d"))
        assert read(tmp_path / "tasks.jsonl") == (7, (2 + number) % 10, number)
    writer.log.close()


def test_after_an_incomplete_line_the_whole_state_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    writer = Writer(path)
    writer.do(Get(0, "d"))
    assert writer.log._file is not None
    writer.log._file.close()

    class Full(io.FileIO):
        def write(self, content: bytes, /) -> int:  # type: ignore[override]
            return super().write(content[:5])

    writer.log._file = Full(path, "ab")
    writer.do(Get(0, "d"))
    assert read(path) == (7, 0, 2)
    writer.do(Get(0, "d"))
    assert read(path) == (7, 1, 3)
    writer.log.close()


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "guest"
    folder.mkdir()
    writer = Writer(folder / "tasks.jsonl")
    writer.log.close()
    (folder / "tasks.jsonl").unlink()
    folder.rmdir()
    writer.do(Get(0, "d"))
    writer.do(Get(0, "d"))
    folder.mkdir()
    writer.do(Get(0, "d"))
    assert read(folder / "tasks.jsonl") == (7, 0, 3)
    writer.log.close()


def test_a_file_that_lost_its_end_loses_no_record(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    writer = Writer(path)
    for _ in range(4):
        writer.do(Get(0, "d"))
        writer.do(Report(writer.machine.tasks.state.next_number - 1))
    writer.do(Get(0, "d"))
    writer.log.close()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1, 7):
        path.write_bytes(whole[:length])
        head, commands = CommandLog(path).read()
        machine = StateMachine(seed=0, state=head.state)
        for command in [*commands, Reopen(), SetWorkers((1,)), Register(PARAMS)]:
            machine.carry_out(command)
        num_done = sum(isinstance(command, Report) for command in commands)
        records: list[int] = []
        while isinstance(task := machine.carry_out(Get(1, "d")), Task):
            assert task.number > 1000, "a report of an older number, which was lost, means nothing"
            records += task.records
            machine.carry_out(Report(task.number))
        # Records whose report was lost are done again, and so are all records that were not done.
        assert sorted(records) == list(range(num_done, 100))


@pytest.mark.parametrize("content", ["", '{"port":7'], ids=["empty", "torn"])
def test_a_file_that_was_never_whole(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tasks.jsonl"
    assert read(path) == (0, 0, 0)
    path.write_text(content)
    if content:
        with pytest.raises(ValueError, match="Cannot continue with the tasks"):
            read(path)
    else:
        assert read(path) == (0, 0, 0)


def test_repeated_commands_compute_no_order_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    params = DatasetParams(name="d", batch_size=8, num_epochs=2, dataset_size=100, shuffle=True)
    commands: list[Command] = [SetWorkers((0,)), Register(params)]
    first, second = StateMachine(seed=1), StateMachine(seed=1)
    for number in range(1, 8):
        commands += [Get(0, "d", str(number)), Get(0, "d", str(number))] + [Report(number)] * (number % 2)
    for command in commands:
        first.carry_out(command)
    monkeypatch.delattr(Permutation, "take")
    for command in commands:
        second.repeat(command)
    assert msgspec.json.encode(second.state) == msgspec.json.encode(first.state)
