"""Runs a program under a real driver with real worker processes, disturbs it as planned, and collects what is left.

A plan is a list of `Act`s, done one after the other, each when its condition holds. Until a plan is done the program is
held back by its reins (`programs/common.py`), so that there are always steps left in which the next thing can happen:
the slower, the fewer steps remain. Nothing here sleeps to give others time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import pytest
from tests import fork_server

from legato.core.spec import JobSpec
from legato.driver.driver import Driver, Observer
from legato.driver.journal import JobDirectory, Outcome
from legato.driver.record import Event
from legato.engines import parent
from legato.engines.agents import AgentsEngine
from legato.engines.local import LocalEngine

PROGRAMS: Final = Path(__file__).parent / "programs"
NAME: Final = "job"
LIMIT_S: Final = 100.0
_STACKS_LIMIT_S: Final = 5.0
_KEPT_STEPS: Final = 8
_SLOWEST_S: Final = 2.0
_DRIVERLESS_S: Final = 0.5
_SHA: Final = re.compile(r"^sha256 ([0-9a-f]{64}) steps (\d+)$", re.MULTILINE)
_METRICS: Final = re.compile(r"^epoch (\d+)  step (\d+)  (.*)$", re.MULTILINE)


# ---------------------------------------------------------------- what is wanted


class Truth(NamedTuple):
    """What a program comes to when nothing disturbs it."""

    sha256: str
    num_steps: int
    metrics: tuple[tuple[int, int, str], ...]


class Reference:
    """Runs programs alone, each once.

    Args:
        known: a directory for what is known, also to other processes that test beside this one.
    """

    def __init__(self, known: Path) -> None:
        known.mkdir(exist_ok=True)
        self._known = known

    def of(self, program: str, *args: str) -> Truth:
        path = self._known / f"{hashlib.sha256(repr((program, args)).encode()).hexdigest()}.json"
        if not path.exists():
            scratch = path.with_suffix(f".{os.getpid()}")
            scratch.write_bytes(msgspec.json.encode(run_alone(str(PROGRAMS / program), *args)))
            scratch.replace(path)
        return msgspec.json.decode(path.read_bytes(), type=Truth)


def run_alone(program: str, *args: str, directory: Path | None = None) -> Truth:
    """Run a program by itself, in some directory, and return what it says of its result."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["CUDA_VISIBLE_DEVICES"] = ""
    done = fork_server.run([sys.executable, program, *args], cwd=directory, env=environment, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    ((sha256, num_steps),) = _SHA.findall(done.stdout)
    metrics = tuple((int(epoch), int(step), text) for epoch, step, text in _METRICS.findall(done.stdout))
    return Truth(sha256, int(num_steps), metrics)


# ---------------------------------------------------------------- what is done to a job


@dataclass
class World:
    """What a plan sees of a running job."""

    reins: Path
    driver: Driver
    abandon: Callable[[], None]
    status: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    seen_events: int = 0  # events before the latest act
    seen_step: int = 0  # the step at the latest act
    seen_at: float = field(default_factory=time.monotonic)

    @property
    def step(self) -> int:
        return self.status.get("step") or 0

    @property
    def workers(self) -> list[dict[str, Any]]:
        return self.status.get("workers", [])

    def members(self) -> list[dict[str, Any]]:
        """The members of the view in force that have its state, by rank."""
        found = [w for w in self.workers if w["phase"] == "member" and w["rank"] is not None]
        return sorted(found, key=lambda worker: worker["rank"])

    def signal(self, worker: int, number: signal.Signals) -> None:
        (pid,) = [w["pid"] for w in self.workers if w["worker"] == worker]
        os.kill(pid, number)


When = Callable[[World], bool]
Do = Callable[[World], None]


class Act(NamedTuple):
    """One disturbance.

    Args:
        when: it is done at the first moment at which this holds.
        do: what is done.
        name: for the story of a failure.
    """

    when: When
    do: Do
    name: str


def at_step(step: int) -> When:
    """The job has committed a step."""
    return lambda world: world.step >= step


def steps_later(num_steps: int) -> When:
    """So many steps after the latest act."""
    return lambda world: world.step >= world.seen_step + num_steps


def with_members(num_workers: int) -> When:
    """So many workers train, in one view, and no other worker is present."""
    return lambda world: len(world.members()) == len(world.workers) == num_workers


def has_members(world: World) -> bool:
    """A worker trains."""
    return bool(world.members())


def settled(world: World) -> bool:
    """As many train as are wanted, and no other worker is present."""
    return len(world.members()) == len(world.workers) == world.status.get("num_wanted")


def after_event(kind: str, text: str = "") -> When:
    """An event of this kind has come since the latest act."""
    return lambda world: any(e.kind == kind and text in e.reason for e in world.events[world.seen_events :])


def marked(name: str) -> When:
    """A worker has come to a place (see `common.mark`)."""
    return lambda world: any(world.reins.glob(f"mark-{name}-*"))


def both(*conditions: When) -> When:
    return lambda world: all(condition(world) for condition in conditions)


def scale(num_workers: int) -> Do:
    return lambda world: world.driver.scale(num_workers, "the plan")


def stop(world: World) -> None:
    world.driver.stop("the plan")


def abandon(world: World) -> None:
    """End the driver as a crash would; another one adopts the workers."""
    world.abandon()


def nothing(world: World) -> None:
    pass


def send(number: signal.Signals, *ranks: int) -> Do:
    def do(world: World) -> None:
        members = world.members()
        for worker in [members[rank % len(members)]["worker"] for rank in ranks]:
            world.signal(worker, number)

    return do


def kill(*ranks: int) -> Do:
    return send(signal.SIGKILL, *ranks)


def arm(phase: str, action: str, *ranks: int) -> Do:
    """Let workers come to grief the next time that they are in a phase (see `legato.train.process.faults`)."""

    def do(world: World) -> None:
        for rank in ranks:
            members = world.members()
            worker = members[rank % len(members)]["worker"]
            scratch = world.reins / f"arming-{worker}"
            scratch.write_text(f"{phase}={action}")
            scratch.replace(world.reins / f"fault-{worker}")

    return do


def freeze(*ranks: int) -> Do:
    return send(signal.SIGSTOP, *ranks)


def kill_all(world: World) -> None:
    for worker in world.workers:
        world.signal(worker["worker"], signal.SIGKILL)


def kill_warm_parent(world: World) -> None:
    record = json.loads((JobDirectory.of(NAME).path / "engine.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)


def hasten_evaluation(world: World) -> None:
    """Let evaluations run at full speed from now on."""
    (world.reins / "pace-evaluation").unlink(missing_ok=True)


def close_door(world: World) -> None:
    """Let no worker come to its training from now on."""
    (world.reins / "closed").touch()


def open_door(world: World) -> None:
    (world.reins / "closed").unlink(missing_ok=True)


def do_all(*deeds: Do) -> Do:
    def do(world: World) -> None:
        for deed in deeds:
            deed(world)

    return do


# ---------------------------------------------------------------- what comes of it


@dataclass
class Result:
    """What a job left behind."""

    outcome: Outcome
    directory: JobDirectory
    events: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    losses: list[dict[str, Any]]
    logs: dict[int, str]
    left_over: list[int]

    @property
    def digests(self) -> dict[int, tuple[str, int]]:
        """The digest and the number of steps that each worker printed."""
        found = {worker: _SHA.findall(text) for worker, text in self.logs.items()}
        return {worker: (told[-1][0], int(told[-1][1])) for worker, told in found.items() if told}

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def story(self) -> str:
        """Everything there is to read, for the message of a failed assertion."""
        lines = [f"outcome: {self.outcome}"]
        begin = self.events[0]["time"] if self.events else 0.0
        lines += [
            f"{event['time'] - begin:7.3f} {event['kind']:10} {event['level']:7} view {event.get('view')} "
            f"step {event.get('step')}: {event['reason']} {event.get('detail') or ''}"
            for event in self.events
        ]
        for worker, text in sorted(self.logs.items()):
            lines += [f"-- worker {worker}:", text[-12_000:]]
        return "\n".join(lines)

    def check(
        self, want: Truth, *, finishers: int | None = None, errors: Sequence[str] = (), has_all_losses: bool = True
    ) -> None:
        """Assert that the job came to what it comes to undisturbed.

        Args:
            want: what that is.
            finishers: how many workers trained to the end; None for any number but 0.
            errors: texts of the events of level error that belong to this test.
            has_all_losses: False: workers ended without a driver, and with them the losses that they had not sent.
        """
        story = self.story()
        assert self.outcome.outcome == "succeeded" and self.outcome.exit_code == 0, story
        digests = self.digests
        assert digests if finishers is None else len(digests) == finishers, story
        assert set(digests.values()) == {(want.sha256, want.num_steps)}, f"want {want.sha256}\n{story}"
        self.check_records(want.num_steps, errors=errors, has_all_losses=has_all_losses)
        got = tuple(
            (m["epoch"], m["step"], "  ".join(f"{name} {value:.6g}" for name, value in m["values"].items()))
            for m in sorted(self.metrics, key=lambda line: line["index"])
        )
        assert got == want.metrics, story

    def check_records(self, num_steps: int, *, errors: Sequence[str] = (), has_all_losses: bool = True) -> None:
        """Assert that every step was committed once, every metric recorded once, every event has its reason."""
        story = self.story()
        # A line is written when a worker reports, and workers do not report in step with one another.
        steps = sorted(line["step"] for line in self.ledger)
        assert steps == list(range(1, num_steps + 1)), f"ledger {steps}\n{story}"
        losses = sorted(step for line in self.losses for step in line["step"])
        assert len(set(losses)) == len(losses) and set(losses) <= set(steps), f"losses {losses}\n{story}"
        assert not has_all_losses or losses in ([], steps), f"losses {losses}\n{story}"
        indices = sorted(line["index"] for line in self.metrics)
        assert indices == list(range(len(indices))), f"metrics {indices}\n{story}"
        assert [event["seq"] for event in self.events] == list(range(1, len(self.events) + 1)), story
        assert all(event["reason"].strip() and event["kind"] for event in self.events), story
        wrong = [e for e in self.events if e["level"] == "error" and not any(text in e["reason"] for text in errors)]
        assert not wrong, f"{wrong}\n{story}"
        assert not self.of_kind("differed"), story
        assert not self.left_over, f"processes left: {self.left_over}\n{story}"


# ---------------------------------------------------------------- running


class Stage:
    """A home for one job, and the means to run it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = path / "home"
        self.reins = path / "reins"
        self.reins.mkdir()
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("LEGATO_TEST_REINS", str(self.reins))
        monkeypatch.setattr(parent, "subprocess", fork_server.ForkedParents())
        self.directory = JobDirectory.of(NAME, self.home)
        self.wished: tuple[str, ...] = ()  # what the warm parent imports, too

    def slow_evaluation(self, round_s: float) -> None:
        """Let every micro-batch of an evaluation last that long, until a plan hastens them."""
        (self.reins / "pace-evaluation").write_text(str(round_s))

    def run(
        self,
        program: str | Path,
        *args: str,
        workers: tuple[int, int, int] = (1, 4, 1),
        plan: Sequence[Act] = (),
        faults: str = "",
        limit_s: float = LIMIT_S,
        start_method: Literal["fork", "fresh"] = "fork",
        **options: Any,
    ) -> Result:
        """Run a program to its end.

        Args:
            program: in ``programs``, or a path.
            args: of the program.
            workers: minimum, maximum, and how many to start with.
            plan: what happens meanwhile. All of it must have happened at the end.
            faults: for ``LEGATO_FAULTS``.
            limit_s: it must have ended by then.
            start_method: how worker processes come to be.
            options: of the `JobSpec`.
        """
        self._monkeypatch.setenv("LEGATO_FAULTS", faults)
        low, high, start = workers
        spec = JobSpec(
            name=NAME,
            program=(str(PROGRAMS / program), *args),
            directory=str(self.home.parent),
            min_workers=low,
            max_workers=high,
            num_workers=start,
            **{"heartbeat_interval_s": 0.1, "join_patience_s": 1.0, **options},
        )
        outcome = asyncio.run(_Play(self, spec, plan, limit_s, start_method).run())
        return self.collect(outcome)

    def make_driver(
        self, spec: JobSpec | None, asked: JobSpec, start: Literal["fork", "fresh"], observer: Observer
    ) -> tuple[LocalEngine | AgentsEngine, Driver]:
        """Return a driver of the job and its engine.

        Args:
            spec: of a new job. None: the driver adopts the job.
            asked: the job as it began.
            start: how worker processes come to be.
            observer: of the driver.
        """
        engine = LocalEngine(
            self.directory.path,
            start=start,
            environment=asked.variables,
            python=asked.python,
            cpu_capability=asked.cpu_capability,
            wished=self.wished,
        )
        return engine, Driver(spec, engine, self.directory, observer=observer)

    def collect(self, outcome: Outcome, directory: JobDirectory | None = None) -> Result:
        """Read what the job left behind; another job than that of this stage, if its directory is named."""
        directory = directory or self.directory
        logs = {int(path.stem.split("-")[1]): path.read_text() for path in directory.logs.glob("worker-*.log")}
        return Result(
            outcome,
            directory,
            _read_lines(directory.events_file),
            _read_lines(directory.ledger_file),
            _read_lines(directory.metrics_file),
            _read_lines(directory.losses_file),
            logs,
            self.wait_until_alone(),
        )

    def processes(self) -> list[int]:
        """Return the processes that were started for this job: warm parent, store, workers, loaders."""
        token = f"LEGATO_TEST_REINS={self.reins}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z" and token in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def all_exited(self) -> bool:
        """Return whether the warm parent has seen all its workers exit."""
        record = json.loads((self.directory.path / "engine.json").read_text())
        return all(worker["exit_code"] is not None for worker in record["workers"].values())

    def wait_until_alone(self, limit_s: float = 5.0) -> list[int]:
        """Wait until all processes of the job are gone; returns those that stay."""
        deadline = time.monotonic() + limit_s
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def clear(self) -> None:
        """End what a failed test left running."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Play:
    """One job on stage: the driver, its observer, and the plan."""

    def __init__(
        self, stage: Stage, spec: JobSpec, plan: Sequence[Act], limit_s: float, start: Literal["fork", "fresh"]
    ) -> None:
        self._stage = stage
        self._spec = spec
        self._acts = list(plan)
        self._limit_s = limit_s
        self._start: Literal["fork", "fresh"] = start
        self._task: asyncio.Task[Outcome] | None = None
        self._abandoned = False
        self._pace()

    async def run(self) -> Outcome:
        spec: JobSpec | None = self._spec
        while True:
            engine, driver = self._stage.make_driver(spec, self._spec, self._start, self)
            if spec is not None:
                self.world = World(self._stage.reins, driver, self._abandon)
            self.world.driver = driver
            self._abandoned = False
            self._task = asyncio.create_task(driver.run())
            try:
                async with asyncio.timeout(self._limit_s):
                    outcome = await self._task
                assert not self._acts, f"never came to: {[act.name for act in self._acts]}\n{self._story(outcome)}"
                return outcome
            except asyncio.CancelledError:
                if not self._abandoned:
                    raise
                await engine.detach()
                spec = None
            except TimeoutError:
                await self._complain()
            finally:
                if not self._abandoned:
                    await engine.close()

    def _abandon(self) -> None:
        assert self._task is not None
        self._abandoned = True
        self._task.cancel()

    def _story(self, outcome: Outcome) -> str:
        return self._stage.collect(outcome).story()

    async def _complain(self) -> None:
        await asyncio.to_thread(self._print_stacks)
        for pid in self._stage.processes():
            os.kill(pid, signal.SIGKILL)
        told = [act.name for act in self._acts]
        story = self._story(Outcome("none", -1, f"no end within {self._limit_s} s"))
        pytest.fail(f"left to do: {told}\nstatus: {self.world.status}\n{story}")

    def _print_stacks(self) -> None:
        """Have every worker write the stacks of its threads to its log."""
        asked = {}
        for worker in self.world.workers:
            if worker["pid"] and _catches(worker["pid"], signal.SIGUSR1):
                log = self._stage.directory.log_path(worker["worker"])
                asked[log] = log.stat().st_size
                os.kill(worker["pid"], signal.SIGUSR1)
        deadline = time.monotonic() + _STACKS_LIMIT_S
        # The thread that the signal met comes last; a worker that was stopped writes nothing.
        while time.monotonic() < deadline and not all(
            b"Current thread" in log.read_bytes()[size:] for log, size in asked.items()
        ):
            time.sleep(0.02)

    # ------------------------------------------------------------ the driver's observer

    def on_event(self, event: Event) -> None:
        self.world.events.append(event)

    def on_status(self, status: dict[str, Any]) -> None:
        world = self.world
        world.status = status
        while self._acts and not self._abandoned and self._acts[0].when(world):
            act = self._acts.pop(0)
            world.seen_events, world.seen_step = len(world.events), world.step
            act.do(world)
        self._pace()

    def _pace(self) -> None:
        pace = 0.0
        if self._acts:
            status = self.world.status if hasattr(self, "world") else {}
            left = max((status.get("num_steps") or 40) - (status.get("step") or 0), 1)
            # A fresh worker imports torch before it comes.
            patience_s = 0.6 if self._start == "fork" else 6.0
            # The last steps are kept for acts that a busy machine delays.
            pace = _SLOWEST_S if left <= _KEPT_STEPS + len(self._acts) else patience_s * len(self._acts) / left
            # Without a driver nothing changes the pace, and on a busy machine the next one may take long to come.
            pace = min(max(pace, _DRIVERLESS_S if self._abandoned else 0.02), _SLOWEST_S)
        path = self._stage.reins / "pace"
        scratch = path.with_suffix(".new")
        scratch.write_text(str(pace))
        scratch.replace(path)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal: without one it would end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    (caught,) = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
