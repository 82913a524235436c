"""What the platform may rely on, whatever starts its drivers: real processes here, made-up ones beside them later."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import fork_server

from legato.control.drivers import local
from legato.control.drivers.drivers import Assignment, DriverOrder, DriverReport, DriverState
from legato.control.drivers.local import LocalDrivers
from legato.control.drivers.process import LocalOrder, write_order
from legato.core.errors import LegatoError, UsageError
from legato.core.slots import index_of
from legato.core.spec import JobSpec

PROGRAM = Path(__file__).with_name("drivers_program.py")
JOB = "j-0000000001"
FOR_EVER = 10**9
MANY_EPOCHS = 40


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers take warm parents from fork servers."""
    fork_server.prepare_parents()
    monkeypatch.setattr(local, "subprocess", fork_server.ForkingDrivers())


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


def make_drivers(root: Path) -> LocalDrivers:
    return LocalDrivers(root / "jobs", node="here", devices=("cpu",) * 4)


def make_order(root: Path, *slots: str, attempt: int = 1, epochs: int = FOR_EVER, **changes: Any) -> DriverOrder:
    spec = JobSpec(
        name=JOB,
        program=(str(PROGRAM), str(epochs), str(root / "result"), str(root / "fast")),
        directory=str(root),
        environment={"COLOUR": "green"},
        max_workers=3,
        num_workers=len(slots),
        join_patience_s=0.2,
    )
    return DriverOrder(job=JOB, attempt=attempt, spec=msgspec.structs.replace(spec, **changes), slots=slots)


def slots(names: set[str], reason: str) -> Assignment:
    return Assignment(slots=frozenset(names), min_workers=1, max_workers=3, reason=reason)


async def wait_for(
    drivers: LocalDrivers, condition: Callable[[DriverReport], bool], attempt: int = 1, limit_s: float = 60
) -> DriverReport:
    async with asyncio.timeout(limit_s):
        while True:
            report = (await drivers.reports({JOB: attempt}))[JOB]
            if condition(report):
                return report
            await asyncio.sleep(0.05)


async def wait_for_book(root: Path, condition: Callable[[dict[str, Any]], bool], limit_s: float = 60) -> None:
    """Wait for the membership in the journal: the driver answers requests before it has written a change."""
    book: dict[str, Any] = {}
    try:
        async with asyncio.timeout(limit_s):
            while not book or not condition(book):
                await asyncio.sleep(0.05)
                book = msgspec.json.decode((root / "jobs" / JOB / "journal.json").read_bytes())["book"]
    except TimeoutError:
        pytest.fail(f"the journal still has {book}")


def trains(num_workers: int, after: int = 0) -> Callable[[DriverReport], bool]:
    def test(report: DriverReport) -> bool:
        status: Any = report.status
        return status is not None and status["num_workers"] == num_workers and (status["step"] or 0) > after

    return test


def is_in(state: DriverState) -> Callable[[DriverReport], bool]:
    return lambda report: report.state is state


def step_of(report: DriverReport) -> int:
    status: Any = report.status
    return int(status["step"])


def undisturbed(tmp_path: Path) -> str:
    result = tmp_path / "alone"
    done = fork_server.run([sys.executable, str(PROGRAM), str(MANY_EPOCHS), str(result)], env=os.environ)
    assert done.returncode == 0, done.stderr
    return result.read_text().split()[0]


@on_a_loop
async def test_a_job_in_slots_of_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole story: started, moved to other slots, driver killed, paused, continued with elsewhere, finished."""
    monkeypatch.setenv("LEGATO_SECRET", "not for jobs")
    drivers = make_drivers(tmp_path)
    order = make_order(tmp_path, "here/3", epochs=MANY_EPOCHS)
    try:
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.UNKNOWN
        await drivers.start(order)
        await drivers.start(order)
        report = await wait_for(drivers, trains(1))
        assert report.in_use == report.assigned == {"here/3"}

        # Two more slots, one of which was not its own.
        assert await drivers.assign(JOB, 1, slots({"here/0", "here/2"}, "elsewhere"))
        report = await wait_for(drivers, lambda found: trains(2)(found) and found.in_use == {"here/0", "here/2"})
        with pytest.raises(UsageError, match=r"is outside 1\.\.3"):
            await drivers.assign(JOB, 1, slots({"here/0", "here/1", "here/2", "here/3"}, "too many"))
        with pytest.raises(LegatoError, match="not one of this machine's"):
            await drivers.assign(JOB, 1, slots({"there/0"}, "a slot of another machine"))

        # The driver dies, and with it everything that this process knows.
        before = step_of(report)
        workers: Any = report.status
        pids = {worker["pid"] for worker in workers["workers"]}
        await drivers.close()
        driver = msgspec.json.decode((tmp_path / "jobs" / JOB / "driver.json").read_bytes())
        os.kill(driver["pid"], signal.SIGKILL)
        drivers = make_drivers(tmp_path)
        report = await wait_for(drivers, is_in(DriverState.GONE))
        assert report.in_use is None, "the policy does not know which slots are free"
        await drivers.start(order)
        report = await wait_for(drivers, trains(2, after=before))
        workers = report.status
        assert {worker["pid"] for worker in workers["workers"]} == pids, "the workers were adopted"
        assert report.assigned == {"here/0", "here/2"}

        # Pause, and continue elsewhere.
        assert await drivers.stop(JOB, 1, now=False, reason="a pause")
        report = await wait_for(drivers, is_in(DriverState.ENDED))
        assert report.outcome is not None and report.outcome.outcome == "stopped"
        assert report.in_use == set()
        assert not await drivers.assign(JOB, 1, slots({"here/0"}, "no worker hears it"))
        again = make_order(tmp_path, "here/1", attempt=2, epochs=MANY_EPOCHS, resume=True)
        (tmp_path / "fast").touch()
        await drivers.start(again)
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.UNKNOWN, "attempt 1 is over"
        with pytest.raises(LegatoError, match="is over"):
            await drivers.start(order)
        report = await wait_for(drivers, is_in(DriverState.ENDED), attempt=2)
        assert report.outcome is not None and report.outcome.outcome == "succeeded"
        division = workers["num_micro_batches"], workers["shares_freely"]
        assert (report.num_micro_batches, report.shares_freely) == division
        # What is over stays over.
        await drivers.start(again)
        assert (await wait_for(drivers, is_in(DriverState.ENDED), attempt=2)).outcome == report.outcome
    finally:
        await drivers.stop(JOB, 1, now=True, reason="the test ends")
        await drivers.close()
    digest, colour, secret = (tmp_path / "result").read_text().split()
    assert digest == undisturbed(tmp_path)
    assert (colour, secret) == ("green", "None")


@on_a_loop
async def test_a_job_that_an_earlier_release_began_trains_on_through_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That release writes numbers of slots into orders and journals, and sends numbers to drivers."""

    def write_numbers(directory: Path, order: LocalOrder) -> None:
        numbers = tuple(index_of(str(slot)) for slot in order.slots)
        write_order(directory, msgspec.structs.replace(order, slots=numbers))

    with monkeypatch.context() as earlier:
        earlier.setattr(local, "write_order", write_numbers)
        drivers = make_drivers(tmp_path)
        await drivers.start(make_order(tmp_path, "here/3"))
    try:
        report = await wait_for(drivers, trains(1))
        assert report.in_use == report.assigned == {"here/3"}
        assert await drivers.assign(JOB, 1, slots({"here/0", "here/2"}, "elsewhere"))
        report = await wait_for(drivers, lambda found: trains(2)(found) and found.in_use == {"here/0", "here/2"})
        status: Any = report.status
        assert sorted(worker["slot"] for worker in status["workers"]) == [0, 2], "as that release reads it"
        await wait_for_book(tmp_path, lambda book: book["wanted"] == sorted(book["slots"].values()) == [0, 2])

        # The driver dies; a driver of this release adopts the workers by that journal.
        pids = {worker["pid"] for worker in status["workers"]}
        os.kill(msgspec.json.decode((tmp_path / "jobs" / JOB / "driver.json").read_bytes())["pid"], signal.SIGKILL)
        await wait_for(drivers, is_in(DriverState.GONE))
        await drivers.start(make_order(tmp_path, "here/3"))
        report = await wait_for(drivers, trains(2, after=step_of(report)))
        status = report.status
        assert {worker["pid"] for worker in status["workers"]} == pids, "the workers were adopted"
        assert report.assigned == report.in_use == {"here/0", "here/2"}
    finally:
        await drivers.stop(JOB, 1, now=True, reason="the test is over")
        await wait_for(drivers, is_in(DriverState.ENDED))
        await drivers.close()


@on_a_loop
async def test_a_job_that_cannot_be_run_has_an_outcome(tmp_path: Path) -> None:
    drivers = make_drivers(tmp_path)
    try:
        await drivers.start(make_order(tmp_path, "here/0", keep=0))
        report = await wait_for(drivers, is_in(DriverState.ENDED))
        assert report.outcome is not None and report.outcome.outcome == "failed"
        assert "keep=0 is below 1" in report.outcome.reason
    finally:
        await drivers.close()


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"directory": "/nowhere"}, "there is no directory '/nowhere' on this machine. Name an existing one."),
        ({"program": ("nothing.py",)}, "there is no program 'nothing.py' in its directory. Name the script"),
        ({"environment": {"LEGATO_DATA": "/nowhere"}}, "there is no data directory '/nowhere' on this machine."),
    ],
)
def test_what_is_not_on_the_machine_is_said(tmp_path: Path, changes: dict[str, Any], want: str) -> None:
    @on_a_loop
    async def run() -> None:
        drivers = make_drivers(tmp_path)
        try:
            await drivers.start(make_order(tmp_path, "here/0", **changes))
            report = await wait_for(drivers, is_in(DriverState.ENDED))
            assert report.outcome is not None
            assert (report.outcome.outcome, report.outcome.exit_code) == ("failed", 2)
            assert report.outcome.reason.startswith(f"it cannot run: {want}")
        finally:
            await drivers.close()

    run()


@on_a_loop
async def test_what_cannot_be_read_of_one_job_hides_no_other(tmp_path: Path) -> None:
    drivers = make_drivers(tmp_path)
    damaged = tmp_path / "jobs" / "j-0000000002"
    damaged.mkdir(parents=True)
    (damaged / "order.json").write_text("{")
    try:
        found = await drivers.reports({damaged.name: 1, JOB: 1})
        assert found[damaged.name].state is DriverState.GONE
        assert found[damaged.name].trouble.startswith(f"Cannot read the order {damaged / 'order.json'}: ")
        assert found[JOB].state is DriverState.UNKNOWN
    finally:
        await drivers.close()


@on_a_loop
@pytest.mark.soak
async def test_no_other_job_waits_for_a_driver_that_hangs(tmp_path: Path) -> None:
    drivers = make_drivers(tmp_path)
    try:
        await drivers.start(make_order(tmp_path, "here/0"))
        await wait_for(drivers, trains(1))
        driver = msgspec.json.decode((tmp_path / "jobs" / JOB / "driver.json").read_bytes())
        os.kill(driver["pid"], signal.SIGSTOP)
        report = (await drivers.reports({JOB: 1}))[JOB]
        assert report.state is DriverState.SILENT
        assert report.in_use is None
        os.kill(driver["pid"], signal.SIGCONT)
        report = await wait_for(drivers, trains(1))
        workers: Any = report.status
        pids = [worker["pid"] for worker in workers["workers"]]
        # It never continues: another one takes its place, and the worker does not notice.
        os.kill(driver["pid"], signal.SIGSTOP)
        await drivers.kill(JOB, 2)
        assert (await drivers.reports({JOB: 1}))[JOB].state is DriverState.SILENT, "that is another attempt"
        await drivers.kill(JOB, 1)
        await wait_for(drivers, is_in(DriverState.GONE))
        await drivers.kill(JOB, 1)
        await drivers.start(make_order(tmp_path, "here/0"))
        report = await wait_for(drivers, trains(1))
        workers = report.status
        assert [worker["pid"] for worker in workers["workers"]] == pids
        await drivers.stop(JOB, 1, now=True, reason="the test ends")
        await wait_for(drivers, is_in(DriverState.ENDED))
    finally:
        await drivers.close()


@on_a_loop
async def test_a_job_runs_in_a_copy_of_its_code(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("from pathlib import Path\nPath('result').write_text('written')\n")
    order = make_order(tmp_path, "here/0", program=("train.py",), directory="")
    drivers = make_drivers(tmp_path)
    try:
        await drivers.start(msgspec.structs.replace(order, code=str(code)))
        report = await wait_for(drivers, is_in(DriverState.ENDED))
        assert report.outcome is not None and report.outcome.outcome == "succeeded"
    finally:
        await drivers.close()
    assert (tmp_path / "jobs" / JOB / "work" / "result").read_text() == "written"
    assert [path.name for path in code.iterdir()] == ["train.py"]


@on_a_loop
@pytest.mark.soak
async def test_a_slot_s_device_is_all_that_its_worker_sees(tmp_path: Path) -> None:
    """A GPU that torch does not find here is refused by the worker, and one on the CPU is shown none."""
    code = tmp_path / "code"
    code.mkdir()
    seen = "os.environ['LEGATO_DEVICE'], os.environ['CUDA_VISIBLE_DEVICES']"
    (code / "train.py").write_text(f"import os, pathlib\npathlib.Path('seen').write_text(repr(({seen})))\n")
    drivers = LocalDrivers(tmp_path / "jobs", node="here", devices=("cpu", "GPU-6e"))
    outcomes = []
    try:
        for attempt, slot in ((1, "here/1"), (2, "here/0")):
            order = make_order(tmp_path, slot, attempt=attempt, program=("train.py",), directory="", max_workers=1)
            await drivers.start(msgspec.structs.replace(order, code=str(code)))
            report = await wait_for(drivers, is_in(DriverState.ENDED), attempt)
            assert report.outcome is not None
            outcomes.append(report.outcome)
    finally:
        await drivers.close()
    assert [outcome.outcome for outcome in outcomes] == ["failed", "succeeded"]
    assert "Cannot train on device 'cuda:0'" in outcomes[0].reason
    assert (tmp_path / "jobs" / JOB / "work" / "seen").read_text() == "('cpu', '')"
