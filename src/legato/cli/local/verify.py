"""``legato verify``: checks whether the result of a program depends on its workers, by comparing some of its steps."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from legato.cli.entry import Entry
from legato.cli.local import run
from legato.cli.local.comparing import Moment, compare, describe, read_run
from legato.cli.options import Threads, read_whole
from legato.core.errors import LegatoError, UsageError

if TYPE_CHECKING:
    from legato.core.spec import JobSpec

EXIT_DIFFERS: Final = 1
EXIT_NOT_COMPARED: Final = 3
_MIN_STEPS: Final = 8
_NUM_WORKERS: Final = 3
_LOOK_EVERY_S: Final = 0.05


def verify(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="The Python script to verify.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Arguments of the script. '--' before them is optional."),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            parser=read_whole("the number of steps", 20), metavar="NUMBER", help="How many steps to run, at least 8."
        ),
    ] = 20,
    threads: Threads = 1,
) -> None:
    """Check whether a program's result depends on its workers.

    Runs its first steps twice with one worker, then with up to 3, which join, leave and are killed, and compares the
    state after each step. The exit code is 0 if all are the same, 1 if they differ, 2 for wrong usage, and 3 if the
    program could not be compared.
    """
    from legato.engines.gpus import find_devices

    script = Path(program)
    if not script.is_file():
        what = "it is a directory" if script.is_dir() else "there is no such file"
        raise UsageError(f"Cannot verify '{program}': {what}. Name the Python script that trains.")
    run.check_syntax(script)
    if steps < _MIN_STEPS:
        raise UsageError(f"Cannot verify a program in {steps} steps. Give --steps {_MIN_STEPS} or more.")
    devices = find_devices()
    if 0 < len(devices) < _NUM_WORKERS:
        raise UsageError(
            f"Cannot verify '{program}' on GPUs: {_NUM_WORKERS} are needed, and this machine offers {len(devices)}. "
            f"Set LEGATO_DEVICE={','.join(['cuda:0'] * _NUM_WORKERS)} to let {_NUM_WORKERS} workers share the first "
            "one, or LEGATO_DEVICE=cpu to verify it on the CPU."
        )
    handed = list(arguments or ())
    if handed[:1] == ["--"]:
        del handed[0]
    command = (str(script.absolute()), *handed)
    with _temporary_directory() as directory:
        runs: list[Mapping[int, Moment]] = []
        shown: set[str] = set()
        for name in ("one", "again", "several"):
            plan = _plan(name, steps)
            typer.echo(f"legato: {plan.title} ...", err=True)
            runs.append(_run(directory / name, command, plan, threads, devices, shown))
            reached = max(runs[-1], default=0)
            if reached < min(steps, _MIN_STEPS):
                raise _not_compared(f"The program trained {reached} steps; at least {_MIN_STEPS} are needed.")
            # A program that ends earlier is compared up to its end.
            steps = min(steps, reached)
    finding = compare(*runs)
    if finding is not None:
        typer.echo(describe(finding))
        raise typer.Exit(EXIT_DIFFERS)
    sizes = sorted({moment.num_workers for moment in runs[-1].values()})
    if sizes[-1] < _NUM_WORKERS:
        raise _not_compared(f"The program never ran with {_NUM_WORKERS} workers.")
    typer.echo(
        f"The same after each of {steps} steps, bit for bit: twice with one worker, and with {_NUM_WORKERS} workers of "
        "which some joined later, one left and one was killed. Compared was what the program gave to run.prepare."
    )
    if shown:
        typer.echo("What the warnings above name may depend on the workers nevertheless.")


def _not_compared(why: str) -> typer.Exit:
    typer.echo(f"legato: the runs could not be compared. {why}", err=True)
    return typer.Exit(EXIT_NOT_COMPARED)


class _Run(NamedTuple):
    """One run: its title, its steps, the changes of its number of workers, and the kills."""

    title: str
    num_steps: int
    sizes: Mapping[int, int] = {}
    faults: str = ""


def _plan(name: str, num_steps: int) -> _Run:
    if name != "several":
        title = f"{num_steps} steps with one worker" if name == "one" else "the same again"
        return _Run(title, num_steps)
    joins, leaves, joins_again, dies = (max(1, num_steps * part // 20) for part in (3, 8, 12, 16))
    # A view that the workers agree on in one step is in force after the next step; until then no other view is
    # proposed.
    joins_again = max(joins_again, leaves + 2)
    dies = max(dies, joins_again + 2)
    title = (
        f"3 workers from step {joins}, 2 from step {leaves}, 3 from step {joins_again}; one is killed in step {dies}"
    )
    return _Run(title, num_steps, {joins: 3, leaves: 2, joins_again: 3}, f"0@{dies}:reduce=kill")


@contextlib.contextmanager
def _temporary_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="legato-verify-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(
    directory: Path,
    command: tuple[str, ...],
    plan: _Run,
    num_threads: int,
    devices: tuple[str, ...],
    shown: set[str],
) -> dict[int, Moment]:
    """Run some steps of a program as a job in a directory, and return the records of its workers.

    Args:
        directory: of the job and the records.
        command: the program and its arguments.
        plan: of the run.
        num_threads: of each worker.
        devices: of the workers.
        shown: the warnings that earlier runs have shown; the run adds its own.
    """
    import msgspec

    from legato.core.spec import JobSpec
    from legato.core.verification import VARIABLE, Orders

    records = directory / "records"
    records.mkdir(parents=True)
    orders = Orders(directory=str(records), num_steps=plan.num_steps, sizes=dict(plan.sizes))
    spec = JobSpec(
        name="verify",
        program=command,
        directory=str(Path.cwd()),
        max_workers=_NUM_WORKERS if plan.sizes else 1,
        num_workers=1,
        num_threads=num_threads,
        environment={VARIABLE: msgspec.json.encode(orders).decode(), "LEGATO_FAULTS": plan.faults},
    ).validate()
    watcher = _Watcher(shown)
    try:
        outcome = asyncio.run(_conduct(spec, directory / "job", plan, devices, watcher))
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("legato: interrupted; nothing is left running.", err=True)
        raise typer.Exit(run.EXIT_INTERRUPTED) from None
    except UsageError:
        raise
    except (LegatoError, OSError) as error:
        # Exit code 1 would mean that the results differ.
        raise _not_compared(str(error)) from error
    if outcome == "failed" or watcher.lost_slot:
        typer.echo(watcher.errors.rstrip(), err=True)
        raise _not_compared("The program failed." if outcome == "failed" else "A worker could not take part.")
    return read_run(records)


async def _conduct(spec: JobSpec, directory: Path, plan: _Run, devices: tuple[str, ...], watcher: _Watcher) -> str:
    """Drive a job through its planned changes, end it after its last step, and return its outcome."""
    from legato.driver.driver import Driver
    from legato.driver.journal import JobDirectory
    from legato.engines.imports import imported_packages
    from legato.engines.local import LocalEngine

    engine = LocalEngine(
        directory,
        devices,
        environment=spec.environment,
        directory=spec.directory,
        wished=imported_packages(Path(spec.directory, spec.program[0])),
    )
    driver = Driver(spec, engine, JobDirectory(directory), observer=watcher)
    running = asyncio.ensure_future(driver.run())
    planned = dict(plan.sizes)
    try:
        while not running.done():
            await asyncio.wait([running], timeout=_LOOK_EVERY_S)
            for step in [step for step in planned if step <= watcher.step]:
                driver.scale(planned.pop(step), "as legato verify plans it")
            if watcher.step >= plan.num_steps or watcher.lost_slot:
                driver.stop("legato verify has seen enough", now=True)
                await asyncio.wait([running])
        return running.result().outcome
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if engine.is_open:
            await engine.close()


class _Watcher:
    """The driver's observer: shows changes of the workers and warnings, and records the progress and the errors.

    Args:
        shown: the warnings that earlier runs have shown; the run adds its own.

    Attributes:
        step: the last step that is known to be committed.
        errors: the messages of error events.
        lost_slot: a worker could not take part, and no other worker is started in its slot. So the run would wait
            without end for a step with the planned number of workers.
    """

    def __init__(self, shown: set[str]) -> None:
        self._shown = shown
        self.step = 0
        self.errors = ""
        self.lost_slot = False

    def on_event(self, event: Any) -> None:
        """Show an event that changes the workers that train, or warns of the program."""
        if event.kind in ("scaled", "died", "recovered"):
            # The driver learns of a step some time after it: it cannot say in which step a worker died.
            when = f"after step {self.step}: " if event.kind == "scaled" else ""
            typer.echo(f"legato:   {when}{event.reason}", err=True)
        elif event.kind == "differed":
            typer.echo(f"{event.reason}\n{event.detail}", err=True)
        elif event.kind == "note" and event.level == "warning" and event.reason not in self._shown:
            # The runs may be the same although the program has what can make others differ.
            self._shown.add(event.reason)
            typer.echo(f"legato: warning: {event.reason}", err=True)
        elif event.level == "error":
            self.errors += f"{event.detail or event.reason}\n"

    def on_status(self, status: dict[str, Any]) -> None:
        """Record the job's progress, and whether it lost a slot."""
        self.step = max(self.step, status["step"] or 0)
        self.lost_slot |= bool(status["slots"]["given_up"])


ENTRIES: Final = (Entry("verify", verify, "legato verify train.py -- --epochs 1", takes_all=True),)
