"""A job's copy of its code is whole or not there; a job that is given up leaves no process; last words are found."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from legato.agent.orders import AgentOrder
from legato.agent.process import is_running, start_agent
from legato.control.drivers import local
from legato.control.drivers.drivers import DriverOrder, DriverReport, DriverState
from legato.control.drivers.job_directories import copy_code, end_leftovers, read_last_error
from legato.control.drivers.local import NUM_COPIES, LocalDrivers
from legato.control.drivers.process import DoorOrder, LocalOrder, find_lease_s, write_order
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser
from legato.core.spec import JobSpec
from legato.core.warm import Entry, Record, mark_of
from legato.driver.journal import JobDirectory, JobJournal, Outcome
from legato.engines import parent
from legato.engines.agents import RECORD
from legato.engines.agents_record import AgentsRecord, NodeRecord
from legato.engines.agents_record import write_record as write_agents
from legato.engines.parent import RUN
from legato.system.processes import boot_id, is_alive, start_time_of

JOB = "j-0000000001"


def make_order(tmp_path: Path, attempt: int = 1, slot: str = "here/0") -> DriverOrder:
    spec = JobSpec(name=JOB, program=("p.py",), directory="", num_workers=1, max_workers=1)
    return DriverOrder(job=JOB, attempt=attempt, spec=spec, slots=(slot,), code=str(tmp_path / "code"))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "inner").mkdir(parents=True)
    (code / "p.py").write_text("print(1)\n")
    (code / "inner" / "q.py").write_text("print(2)\n")
    return code


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    caught: list[str] = []
    monkeypatch.setattr(LocalDrivers, "_spawn", lambda _self, job, _directory: caught.append(job))
    return caught


# ---------------------------------------------------------------- code


def test_a_copy_is_made_once_and_is_whole(tmp_path: Path, code: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    work = copy_code(code, job)
    assert work == job / "work"
    assert (work / "inner" / "q.py").read_text() == "print(2)\n"
    (work / "out").touch()
    assert copy_code(code, job) == work
    assert (work / "out").exists(), "what the job wrote stays"
    assert [path.name for path in job.iterdir()] == ["work"]


def test_two_that_copy_at_once_do_not_disturb_one_another(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, real = tmp_path / "job", shutil.copytree
    job.mkdir()

    def copytree(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(shutil, "copytree", real)
        copied = real(*given, **options)
        copy_code(code, job)
        return copied

    monkeypatch.setattr(shutil, "copytree", copytree)
    assert (copy_code(code, job) / "p.py").exists()
    assert [path.name for path in job.iterdir()] == ["work"]


def test_what_a_copy_that_was_killed_has_left_goes_with_the_next(tmp_path: Path, code: Path) -> None:
    job = tmp_path / "job"
    for left in (".work-before", ".work-after"):
        (job / left / "inner").mkdir(parents=True)
        assert (copy_code(code, job) / "p.py").exists()
        assert [path.name for path in job.iterdir()] == ["work"]


def test_many_slow_copies_hold_up_nothing_else(
    tmp_path: Path, code: Path, spawned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads for all else; another job is started and asked meanwhile."""
    go_on, num_begun = threading.Event(), 0

    def slowly(code: Path, directory: Path, folder: str, user: JobUser | None) -> Path:
        nonlocal num_begun
        num_begun += 1
        assert go_on.wait(60)
        return copy_code(code, directory, folder, user)

    async def run() -> None:
        threads = ThreadPoolExecutor(NUM_COPIES - 1)
        asyncio.get_running_loop().set_default_executor(threads)
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        monkeypatch.setattr(local, "copy_code", slowly)
        names = [f"j-{number:010d}" for number in range(3 * NUM_COPIES)]
        orders = [msgspec.structs.replace(make_order(tmp_path), job=name) for name in names]
        starts = [asyncio.create_task(drivers.start(order)) for order in orders]
        try:
            async with asyncio.timeout(30):
                while num_begun < NUM_COPIES:  # noqa: ASYNC110 - counted in threads
                    await asyncio.sleep(0.01)
                quick = msgspec.structs.replace(make_order(tmp_path), job="j-quick", code=None)
                await drivers.start(quick)
                assert spawned == ["j-quick"]
                assert set(await drivers.reports(dict.fromkeys(names, 1))) == set(names)
            assert num_begun == NUM_COPIES
        finally:
            go_on.set()
        await asyncio.gather(*starts)
        assert sorted(spawned) == sorted([*names, "j-quick"])
        await drivers.close()

    asyncio.run(run())


def test_code_that_is_gone_or_does_not_fit_is_said_and_leaves_nothing(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    with pytest.raises(
        LegatoError, match=r"Its code was deleted: .*nothing does not exist any more\. Submit the job again\."
    ):
        copy_code(tmp_path / "nothing", job)

    def copy2(source: str, target: str, **_options: Any) -> None:
        Path(target).touch()
        raise OSError(28, "No space left on device")

    (code / "inner" / "q.py").unlink()
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, copy2, False, False))
    with pytest.raises(LegatoError, match=r"Its code cannot be copied to .*work: .*No space left on device"):
        copy_code(code, job)
    assert list(job.iterdir()) == []


def test_a_driver_of_which_nothing_was_written_down_is_seen_by_its_lock(
    tmp_path: Path, code: Path, spawned: list[str]
) -> None:
    """The server was killed right after it had started it, or another one that ended at once is there."""

    async def run() -> None:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        await drivers.start(make_order(tmp_path))
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.GONE
        driver = JobDirectory(tmp_path / "jobs" / JOB)
        driver.lock()
        for known in (None, b"{", b'{"pid": 4194305, "start_time": 1}'):
            if known is not None:
                (driver.path / "driver-process.json").write_bytes(known)
            assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.STARTING
            await drivers.start(make_order(tmp_path))
            assert spawned == [JOB], "it is not started twice"
        driver.unlock()
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.GONE

    asyncio.run(run())


def test_a_start_that_is_not_wanted_any_more_leaves_no_order(tmp_path: Path, code: Path, spawned: list[str]) -> None:
    async def run() -> None:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        await drivers.start(make_order(tmp_path), lambda: False)
        assert spawned == []
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.UNKNOWN
        await drivers.start(make_order(tmp_path))
        assert spawned == [JOB]

    asyncio.run(run())


def test_a_slot_that_is_gone_is_said_before_anything_is_copied(tmp_path: Path, code: Path, spawned: list[str]) -> None:
    drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
    with pytest.raises(LegatoError, match="Slot here/1 is not one of this machine's"):
        asyncio.run(drivers.start(make_order(tmp_path, slot="here/1")))
    assert not (tmp_path / "jobs" / JOB / "work").exists() and spawned == []


# ---------------------------------------------------------------- what is left


def make_sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)


def write_record(directory: Path, worker: subprocess.Popen[bytes], parent: subprocess.Popen[bytes]) -> None:
    def started(child: subprocess.Popen[bytes]) -> int:
        return start_time_of(child.pid) or 0

    directory.mkdir(parents=True, exist_ok=True)
    record = Record(
        socket="/nowhere",
        start="fork",
        entry="",
        preload=(),
        wished=(),
        idle_limit_s=60,
        pid=parent.pid,
        start_time=started(parent),
        boot=boot_id(),
        workers={0: Entry(pid=worker.pid, start_time=started(worker)), 1: Entry(pid=1, start_time=1, exit_code=0)},
    )
    (directory / "engine.json").write_bytes(msgspec.json.encode(record))


def test_a_job_that_is_given_up_has_no_process_and_has_failed(tmp_path: Path, code: Path, spawned: list[str]) -> None:
    worker, parent = make_sleeper(), make_sleeper()
    began = start_time_of(worker.pid) or 0

    async def run() -> DriverReport:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        await drivers.start(make_order(tmp_path))
        write_record(tmp_path / "jobs" / JOB, worker, parent)
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.GONE
        # Reaped, but their input stays open until then: at its end they would exit by themselves.
        reaping = [asyncio.create_task(asyncio.to_thread(child.wait)) for child in (worker, parent)]
        await drivers.give_up(JOB, 1, "its driver cannot run: no space")
        await asyncio.gather(*reaping)
        for child in (worker, parent):
            child.communicate()
        return (await drivers.reports({JOB: 1}))[JOB]

    report = asyncio.run(run())
    assert not is_alive(worker.pid, began)
    assert (worker.returncode, parent.returncode) == (-9, -9)
    assert report.state is DriverState.ENDED and report.in_use == set()
    assert report.outcome is not None
    assert (report.outcome.outcome, report.outcome.reason) == ("failed", "its driver cannot run: no space")


def test_a_job_whose_driver_lives_is_not_given_up(
    tmp_path: Path, code: Path, spawned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        await drivers.start(make_order(tmp_path))
        identity = {"pid": os.getpid(), "start_time": start_time_of(os.getpid())}
        (tmp_path / "jobs" / JOB / "driver-process.json").write_bytes(msgspec.json.encode(identity))
        await drivers.give_up(JOB, 1, "a mistake")
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.STARTING

    asyncio.run(run())


def test_what_cannot_be_killed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, parent = make_sleeper(), make_sleeper()
    write_record(tmp_path, worker, parent)

    async def nothing(*_given: Any) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr("legato.control.drivers.job_directories.end_group", nothing)
        patched.setattr("legato.control.drivers.job_directories.end_process", nothing)
        with pytest.raises(LegatoError, match=f"Its processes {worker.pid}, {parent.pid} cannot be killed"):
            asyncio.run(end_leftovers(tmp_path))
    for child in (worker, parent):
        child.kill()
        child.communicate()


def test_a_false_record_of_a_job_does_not_prevent_giving_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = JobUser(uid=4711, gid=4711, name="ann", home="/")
    made_up = {number: Entry(pid=2**40 + number, start_time=1) for number in range(1000)}
    record = Record("s", "fork", "e", (), (), 1.0, pid=2**40, start_time=1, boot=boot_id(), workers=made_up)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/engine.json").write_bytes(msgspec.json.encode(record))
    searched: list[str] = []
    monkeypatch.setattr("legato.control.drivers.job_directories.kill_as", lambda _user, mark: searched.append(mark))
    monkeypatch.setattr("legato.system.processes._members", lambda *_: pytest.fail("it looks through all processes"))
    asyncio.run(end_leftovers(tmp_path, user))
    assert len(searched) == 1


def test_a_search_that_a_job_stops_ends_and_shows_it_no_file_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, started = [], make_sleeper()

    def start(_order: object, output: object) -> subprocess.Popen[bytes]:
        outputs.append(output)
        return started

    monkeypatch.setattr(parent, "_start_as", start)
    monkeypatch.setattr(parent, "_LIMIT_S", 0.01)
    with pytest.raises(LegatoError, match="End the processes of user 4711 by hand"):
        parent.kill_as(JobUser(uid=4711, gid=4711, name="ann", home="/"), "LEGATO_ENGINE=x")
    assert outputs == [subprocess.DEVNULL]
    started.communicate()
    assert started.returncode == -signal.SIGKILL


def test_a_trial_that_a_user_stops_ends_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    user, started = JobUser(uid=4711, gid=4711, name="ann", home="/"), make_sleeper()
    monkeypatch.setattr(parent, "_start_as", lambda *_: started)
    monkeypatch.setattr(parent, "_LIMIT_S", 0.01)
    assert parent.try_as(user, ["python"], {}) == "it did not end within 0.01 s"
    started.communicate()


# ---------------------------------------------------------------- last words


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Traceback\nIsADirectoryError: [Errno 21] Is a directory\n\n", "IsADirectoryError: [Errno 21] Is a directory"),
        ("2026-01-02 03:04:05,678 ERROR Cannot run job x: no\n", "Cannot run job x: no"),
        ("2026-01-02 03:04:05,678 INFO all is well\n", ""),
        ("", ""),
    ],
)
def test_the_last_line_of_a_log_tells_of_an_error(tmp_path: Path, text: str, want: str) -> None:
    log = tmp_path / "driver.log"
    log.write_text("x" * 10_000 + "\n" + text)
    assert read_last_error(log) == (want if text else "x" * 4095)
    assert read_last_error(tmp_path / "none") == ""


def test_what_has_ended_tells_its_last_step(tmp_path: Path, code: Path, spawned: list[str]) -> None:
    async def run() -> DriverReport:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        order = make_order(tmp_path)
        await drivers.start(order)
        directory = JobDirectory(tmp_path / "jobs" / JOB)
        outcome = Outcome("succeeded", 0, "the program ran to its end")
        directory.write_journal(JobJournal(spec=order.spec, token="", attempt=1, outcome=outcome))
        lines = [{"step": step, "epoch": step // 50, "view": 1, "time": 0.0} for step in (119, 120, 118)]
        directory.ledger_file.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
        return (await drivers.reports({JOB: 1}))[JOB]

    report = asyncio.run(run())
    assert (report.state, report.step, report.epoch) == (DriverState.ENDED, 120, 2)


def test_a_journal_that_cannot_be_read_is_not_silence(tmp_path: Path, code: Path, spawned: list[str]) -> None:
    async def run() -> DriverReport:
        drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu",))
        await drivers.start(make_order(tmp_path))
        (tmp_path / "jobs" / JOB / "journal.json").write_text("{")
        return (await drivers.reports({JOB: 1}))[JOB]

    report = asyncio.run(run())
    assert report.state is DriverState.GONE
    assert "Cannot read the journal" in report.trouble


def test_code_is_copied_into_a_folder_of_the_working_directory(tmp_path: Path) -> None:
    code, job = tmp_path / "code", tmp_path / "job"
    for folder in (code, job):
        folder.mkdir()
    (code / "p.py").write_text("")
    work = copy_code(code, job, "_submitted/mnist")
    assert [str(path.relative_to(work)) for path in work.rglob("*.py")] == ["_submitted/mnist/p.py"]


def test_an_attempt_on_several_machines_is_given_up_when_the_leases_of_their_agents_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / JOB
    spec = JobSpec(name=JOB, program=("train.py",), directory="/", min_workers=1, max_workers=2, num_workers=2)
    order = DriverOrder(job=JOB, attempt=1, spec=spec, slots=("here/0", "b/0"))
    door = DoorOrder(host="127.0.0.1", address="127.0.0.1")
    directory.mkdir()
    write_order(
        directory, LocalOrder(order=order, slots=("here/0", "b/0"), devices=("cpu",), own_node="here", door=door)
    )
    write_agents(directory / RECORD, AgentsRecord("secret", {"b": NodeRecord(("cpu",), {1: 4711})}, port=1))
    own = AgentOrder(job=JOB, node="here", urls=("ws://127.0.0.1:1/agent",), token="secret", address="127.0.0.1")
    start_agent(directory / "agent", own)
    deadline = time.monotonic() + 30
    while not is_running(directory / "agent"):
        assert time.monotonic() < deadline
    now = 100.0
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: now))
    drivers = LocalDrivers(tmp_path, node="here", devices=("cpu",))
    with pytest.raises(LegatoError, match=r"Its workers on b may still run: the agents there end them within \d+ s"):
        asyncio.run(drivers.give_up(JOB, 1, "it is given up"))
    assert is_running(directory / "agent"), "nothing is ended before all can be"
    now += find_lease_s(spec) * 1.1 + 0.1
    asyncio.run(drivers.give_up(JOB, 1, "it is given up"))
    assert not is_running(directory / "agent")
    assert not (directory / RECORD).exists(), "no machine is asked for an agent any more"


def test_an_attempt_of_another_system_user_that_is_given_up_leaves_no_process_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = JobUser(uid=os.getuid(), gid=os.getgid(), name="ann", home="/")
    worker, parent = make_sleeper(), make_sleeper()
    spec = JobSpec(name=JOB, program=("p.py",), directory="/", num_workers=1, max_workers=1)
    found = LocalOrder(
        order=DriverOrder(job=JOB, attempt=1, spec=spec, slots=("here/0",)),
        slots=("here/0",),
        devices=("cpu",),
        user=user,
        own_node="here",
        door=DoorOrder(host="127.0.0.1", address="127.0.0.1"),
    )
    (tmp_path / JOB).mkdir()
    write_order(tmp_path / JOB, found)
    agent = tmp_path / JOB / found.agent_folder("here")
    write_record(agent / RUN, worker, parent)
    searched: list[str] = []
    monkeypatch.setattr("legato.control.drivers.job_directories.kill_as", lambda _user, mark: searched.append(mark))

    async def run() -> list[int]:
        reaping = [asyncio.create_task(asyncio.to_thread(child.wait)) for child in (worker, parent)]
        await LocalDrivers(tmp_path, node="here", devices=("cpu",)).give_up(JOB, 1, "it is given up")
        for child in (worker, parent):
            child.terminate()  # of those that live
        return await asyncio.gather(*reaping)

    assert asyncio.run(run()) == [-signal.SIGKILL, -signal.SIGKILL]
    assert mark_of(str(agent / RUN / "engine.json")) in searched
    for child in (worker, parent):
        child.communicate()
