"""Logs on their way from a machine to the driver: bounded on its disk, and complete, or with a line that says what not.

The sender of the agent and the receiver of the driver are joined directly.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from legato.agent.logs import LogSender
from legato.core.agent_messages import MAX_LOG_BYTES, LogBytes, TookLog, decode_agent_message, encode_agent_frame
from legato.driver.journal import JobDirectory
from legato.driver.log_caps import LogCaps
from legato.engines.agent_logs import LogWriter

LIMIT_S = 30.0
CAP = 2**20


class Machine:
    """A machine's logs, and those of the driver."""

    def __init__(self, path: Path) -> None:
        self.job, self.driver = JobDirectory(path / "machine"), JobDirectory(path / "driver")
        self.job.logs.mkdir(parents=True)
        self.shifts: dict[int, int] = {1: 0, 2: 0}
        self.receiver = LogWriter(self.driver.log_path, self.shifts, lambda: None)
        self.is_connected, self.num_bytes, self.num_missing = True, 0, 0
        self.sender = self.new_sender()

    def new_sender(self) -> LogSender:
        self.sender = LogSender(self.job.logs, self.say)
        return self.sender

    def say(self, piece: LogBytes) -> bool:
        if self.is_connected:
            asyncio.get_running_loop().call_soon(self.take, piece)
        return self.is_connected

    def take(self, piece: LogBytes) -> None:
        if self.is_connected:
            taken = self.receiver.take(piece)
            self.num_bytes += len(piece.data)
            self.num_missing += taken.num_missing
            self.sender.note_taken(taken.answer)

    def write(self, worker: int, content: bytes) -> None:
        with self.job.log_path(worker).open("ab") as file:
            file.write(content)

    def here(self, worker: int) -> bytes:
        return self.driver.log_path(worker).read_bytes()

    def space(self, worker: int) -> int:
        return self.job.log_path(worker).stat().st_blocks * 512


def run(machine: Machine, test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


async def send(machine: Machine) -> None:
    """Send until the driver has everything."""
    sending = asyncio.create_task(machine.sender.send_forever())
    try:
        machine.sender._progress.clear()
        await machine.sender._progress.wait()
        await machine.sender.flush(None, LIMIT_S)
        assert machine.sender.num_unsent() == 0
    finally:
        sending.cancel()


def numbered(first: int, num: int) -> bytes:
    return b"".join(b"line %044d\n" % number for number in range(first, first + num))


def test_what_the_driver_has_uses_no_disk_and_a_finished_log_is_deleted(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    async def test() -> None:
        written = b""
        for part in range(4):
            machine.write(1, numbered(part * 60_000, 60_000))
            written += numbered(part * 60_000, 60_000)
            await send(machine)
            await asyncio.to_thread(machine.sender._read_new)
            assert machine.here(1) == written
            assert machine.space(1) < 1.5 * 2**20, "of 3 MB each"
        machine.sender.note_ended([1])
        await asyncio.to_thread(machine.sender._read_new)
        assert not machine.job.log_path(1).exists()

    run(machine, test)


def test_an_agent_that_starts_again_sends_only_what_the_driver_does_not_have(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    async def test() -> None:
        machine.write(1, numbered(0, 100_000))
        await send(machine)
        await asyncio.to_thread(machine.sender._read_new)
        before = machine.num_bytes
        machine.write(1, numbered(100_000, 10))
        machine.new_sender()
        await send(machine)
        assert machine.here(1) == numbered(0, 100_010)
        assert machine.num_bytes - before < 2**20 + 4096
        assert machine.num_missing == 0

    run(machine, test)


def test_without_a_driver_the_oldest_bytes_go_and_the_log_says_how_many(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    caps = LogCaps(machine.job, CAP, pytest.fail, says=False)

    async def test() -> None:
        machine.write(1, numbered(0, 1000))
        await send(machine)
        machine.is_connected = False
        for part in range(10):
            machine.write(1, numbered(1000 + part * 10_000, 10_000))
            caps.drop()
            assert machine.space(1) <= CAP + 10_000 * 50
        machine.is_connected = True
        machine.sender.begin_again()
        await send(machine)
        before, told, after = machine.here(1).partition(b"\n[legato] ")
        assert told and before == numbered(0, 1000), "what the driver had stays"
        line, _, rest = after.partition(b"\n")
        missing = int(line.split()[0])
        assert line == b"%d bytes of this log are missing here: the worker's machine dropped them." % missing
        assert rest == numbered(0, 101_000)[1000 * 50 + missing :]
        assert machine.num_missing == missing > 100_000 * 50 - CAP
        # Later bytes follow, also for a driver and an agent that start again.
        machine.write(1, b"the end\n")
        machine.receiver = LogWriter(machine.driver.log_path, dict(machine.shifts), lambda: None)
        machine.new_sender()
        await send(machine)
        assert machine.here(1) == before + told + after + b"the end\n"

    run(machine, test)


def test_the_logs_of_ended_workers_are_bounded_together_and_the_first_ones_go_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    async def test() -> None:
        for worker in (1, 2):
            machine.write(worker, numbered(0, 16_000))
        machine.sender.note_ended([1, 2])
        machine.sender.drop_ended(CAP)
        assert machine.space(1) <= 4096 and machine.space(2) > 16_000 * 50 - 4096
        await send(machine)
        assert machine.here(2) == numbered(0, 16_000)
        assert machine.here(1).startswith(b"\n[legato] "), "and the driver says so"
        assert machine.num_missing > 16_000 * 50 - 4096
        await asyncio.to_thread(machine.sender._read_new)
        assert machine.sender.list_logs() == {}

    run(machine, test)


def test_a_full_disk_of_the_driver_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    is_full = True
    real = os.pwrite

    def write_half(descriptor: int, data: bytes, at: int) -> int:
        if is_full and at + len(data) > 100_000:
            if at < 100_000:
                return real(descriptor, data[: 100_000 - at], at)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", write_half)
    failed = asyncio.Event()

    def take(piece: LogBytes) -> None:
        try:
            Machine.take(machine, piece)
        except OSError:
            failed.set()

    monkeypatch.setattr(machine, "take", take)

    async def test() -> None:
        nonlocal is_full
        machine.write(1, numbered(0, 20_000))
        sending = asyncio.create_task(machine.sender.send_forever())
        await failed.wait()
        await asyncio.sleep(0)
        is_full = False
        machine.sender.note_taken(machine.receiver.find_end(1))
        sending.cancel()
        await send(machine)
        assert machine.here(1) == numbered(0, 20_000)
        assert machine.num_missing == 0

    run(machine, test)


def test_at_the_end_of_a_job_the_log_says_what_was_not_sent(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    async def test() -> None:
        machine.write(1, numbered(0, 100))
        await send(machine)
        machine.write(1, numbered(100, 20))
        machine.sender.give_up()
        await machine.sender.send_forever()
        await asyncio.sleep(0)
        assert machine.here(1) == numbered(0, 100) + (
            b"\n[legato] 1000 bytes of this log are missing here: the worker's machine dropped them.\n"
        )
        assert machine.num_missing == 1000

    run(machine, test)


def test_an_agent_writes_no_log_of_another_machine_and_no_endless_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    answer = machine.receiver.take(LogBytes(worker=7, offset=0, data=b"x")).answer
    assert answer == TookLog(worker=7, num_bytes=1), "it need not send that again"
    assert not machine.driver.log_path(7).exists()
    machine.receiver.take(LogBytes(worker=1, offset=2**62, data=b"x", num_lost=2**62))
    assert machine.driver.log_path(1).stat().st_size < 200
    for piece in (
        LogBytes(worker=1, offset=-1, data=b""),
        LogBytes(worker=1, offset=2**63 - 1, data=b""),
        LogBytes(worker=1, offset=0, data=bytes(MAX_LOG_BYTES + 1)),
        LogBytes(worker=1, offset=0, data=b"", num_lost=-1),
    ):
        with pytest.raises(msgspec.ValidationError):
            decode_agent_message(encode_agent_frame(piece))
    target = tmp_path / "other"
    target.write_text("mine")
    machine.driver.log_path(2).symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        machine.receiver.take(LogBytes(worker=2, offset=0, data=b"theirs"))
    assert target.read_text() == "mine"


def test_what_is_sent_again_is_echoed_once(tmp_path: Path) -> None:
    machine, echoed = Machine(tmp_path), []
    machine.sender = LogSender(machine.job.logs, machine.say, echoed.append)

    async def test() -> None:
        machine.write(1, b"one\n")
        machine.is_connected = False
        sending = asyncio.create_task(machine.sender.send_forever())
        await asyncio.sleep(0)
        machine.is_connected = True
        machine.write(1, b"two\n")
        machine.sender.begin_again()
        await machine.sender.flush(1, LIMIT_S)
        machine.sender._sent[1] = machine.sender._taken[1] = 0  # a new driver has nothing of it
        machine.write(1, b"three\n")
        await machine.sender.flush(1, LIMIT_S)
        sending.cancel()

    run(machine, test)
    assert b"".join(echoed) == machine.here(1) == b"one\ntwo\nthree\n"
