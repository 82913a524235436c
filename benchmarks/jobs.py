"""Jobs run as `legato run` runs them, with a conductor that looks on and asks for changes. Measures nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from legato.core.spec import GuestSpec, JobSpec
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory
from legato.driver.record import Event
from legato.engines.local import LocalEngine

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"
_POLL_S: Final = 0.01


Say = Callable[[str], None]
"""Shows a line of progress."""


class BenchmarkError(Exception):
    """A measurement could not be made; the message says which and why."""


@dataclass
class Look:
    """What a conductor sees of a running job.

    Attributes:
        driver: of the job; asked for changes.
        events: the job's, each with the moment it was shown (``time.monotonic``).
    """

    driver: Driver
    events: list[tuple[float, Event]] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        """Keep an event."""
        self.events.append((time.monotonic(), event))

    def on_status(self, status: dict[str, Any]) -> None:
        """Nothing: the conductor asks when it wants to know."""

    def members(self) -> list[dict[str, Any]]:
        """Return the workers that train, in rank order."""
        members = [w for w in self.driver.status()["workers"] if w["phase"] == "member" and w["rank"] is not None]
        return sorted(members, key=lambda worker: int(worker["rank"]))

    async def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
        """Wait for something to be true of the job.

        Raises:
            BenchmarkError: it was not in time.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                told = "; ".join(event.reason for _, event in self.events[-8:])
                raise BenchmarkError(f"Waited {limit_s:g} s in vain until {what}. Last events: {told}.")
            await asyncio.sleep(_POLL_S)

    async def wait_for_workers(self, num_workers: int) -> None:
        """Wait until that many workers train."""
        await self.wait_until(lambda: len(self.members()) == num_workers, f"{num_workers} workers train")

    async def wait_for_steps(self, num_steps: int) -> None:
        """Wait until that many more steps are committed."""
        # Steps are reported in groups: the present report may be older than the one that was awaited before.
        known = self._step()
        await self.wait_until(lambda: self._step() > known, "a step is committed")
        goal = self._step() + num_steps
        await self.wait_until(lambda: self._step() >= goal, f"step {goal} is committed")

    async def resize(self, num_workers: int, num_steps: int) -> None:
        """Have that many workers train, and wait until they have committed that many steps."""
        self.driver.scale(num_workers, "measured")
        await self.wait_for_workers(num_workers)
        await self.wait_for_steps(num_steps)

    def _step(self) -> int:
        return int(self.driver.status()["step"] or 0)


Conduct = Callable[[Look], Awaitable[None]]


async def _run(spec: JobSpec, directory: Path, conduct: Conduct | None, limit_s: float) -> list[tuple[float, Event]]:
    job_directory = JobDirectory.of(spec.name, directory)
    look = Look(driver=None)  # type: ignore[arg-type]  # the driver wants its observer first
    driver = look.driver = Driver(spec, LocalEngine(job_directory.path), job_directory, observer=look)
    running = asyncio.create_task(driver.run())
    conducting = asyncio.create_task(_conduct(look, conduct, spec.num_workers)) if conduct else None
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.wait([task for task in (running, conducting) if task], return_when=asyncio.FIRST_COMPLETED)
            if conducting is not None and conducting.done():
                failure = conducting.exception()
                driver.stop("the measurement is over", now=True)
                await running
                if failure is not None:
                    raise failure
            elif conducting is not None:
                told = "\n".join(event.reason for _, event in look.events[-8:])
                raise BenchmarkError(f"The job ended before its measurement:\n{told}")
            outcome = await running
    except TimeoutError as error:
        driver.stop("the measurement took too long", now=True)
        await running
        raise BenchmarkError(f"The job {spec.name} did not end within {limit_s:g} s.") from error
    finally:
        for task in (conducting, running):
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
    if outcome.outcome == "failed":
        told = "\n".join(event.detail or event.reason for _, event in look.events[-8:])
        raise BenchmarkError(f"The job {spec.name} failed: {outcome.reason}\n{told}")
    return look.events


async def _conduct(look: Look, conduct: Conduct, num_workers: int) -> None:
    # Before its first event the driver has no status to tell.
    await look.wait_until(lambda: bool(look.events), "the job begins")
    await look.wait_for_workers(num_workers)
    await conduct(look)


def run_job(
    program: str,
    args: tuple[str, ...],
    directory: Path,
    *,
    num_workers: int,
    max_workers: int | None = None,
    conduct: Conduct | None = None,
    heartbeat_limit_s: float = 5.0,
    checkpoint_every: str | None = None,
    limit_s: float = 120.0,
    launcher: tuple[str, ...] = (),
    guest: GuestSpec | None = None,
) -> list[tuple[float, Event]]:
    """Run a program of `benchmarks.programs` to its end, or until its conductor is done.

    Args:
        program: its name.
        args: of it.
        directory: of the job.
        num_workers: with which it begins.
        max_workers: that it may have; None: as many as it begins with.
        conduct: asks for changes.
        heartbeat_limit_s: a worker silent for that long is given up.
        checkpoint_every: as in `JobSpec`.
        limit_s: for the whole job.
        launcher: what runs the program, if it is no job's program by itself.
        guest: what lives in the driver's process beside the job.

    Returns:
        The job's events, each with its moment.

    Raises:
        BenchmarkError: the job failed or took too long.
    """
    return run_job_of(
        (*launcher, str(PROGRAMS / f"{program}.py"), *args),
        directory,
        num_workers=num_workers,
        max_workers=max_workers,
        conduct=conduct,
        heartbeat_limit_s=heartbeat_limit_s,
        checkpoint_every=checkpoint_every,
        limit_s=limit_s,
        guest=guest,
    )


def run_job_of(
    program: tuple[str, ...],
    directory: Path,
    *,
    num_workers: int,
    max_workers: int | None = None,
    conduct: Conduct | None = None,
    heartbeat_limit_s: float = 5.0,
    checkpoint_every: str | None = None,
    limit_s: float = 120.0,
    guest: GuestSpec | None = None,
) -> list[tuple[float, Event]]:
    """Run any program, as `run_job` does.

    Args:
        program: its path and its arguments.
        directory: as in `run_job`, like all other arguments.
        num_workers: as in `run_job`.
        max_workers: as in `run_job`.
        conduct: as in `run_job`.
        heartbeat_limit_s: as in `run_job`.
        checkpoint_every: as in `run_job`.
        limit_s: as in `run_job`.
        guest: as in `run_job`.
    """
    spec = JobSpec(
        name="benchmark",
        program=program,
        directory=str(directory),
        max_workers=max_workers or num_workers,
        num_workers=num_workers,
        heartbeat_limit_s=heartbeat_limit_s,
        checkpoint_every=checkpoint_every,
        # Every kill is wanted here.
        max_deaths=1_000,
        guest=guest,
    )
    return asyncio.run(_run(spec, directory, conduct, limit_s))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory for one job, whose workers can import this package."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), *([before] if before else [])])
    try:
        with tempfile.TemporaryDirectory(prefix="legato-bench-", ignore_cleanup_errors=True) as name:
            yield Path(name)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
