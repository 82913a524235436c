"""Runs a job's driver in the foreground: shows progress and a summary, handles Ctrl-C, survives a closed terminal.

Decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from legato.cli.local.resuming import find_resume_command
from legato.cli.local.slurm import SlurmWatch
from legato.cli.terminal.display import WAITS_AT_START, LogFollower, Screen, main_worker
from legato.cli.terminal.job_view import Ending
from legato.core.errors import LegatoError, MachinesRefused, Superseded
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory, Outcome
from legato.driver.record import Event
from legato.engines.agents import AgentsEngine
from legato.engines.local import LocalEngine

_READ_LOGS_EVERY_S: Final = 0.15
_END_LIMIT_S: Final = 10.0
_NUM_PATIENT_INTERRUPTS: Final = 2
# The summary repeats the driver's last event.
_LAST_WORDS: Final = ("the job succeeded", "the job ended without", "the job failed", "the job was stopped")


class Foreground:
    """The driver's observer; it also handles Ctrl-C.

    Args:
        directory: of the job.
        screen: shows events and progress.
        slurm: what Slurm does to the job; None: the job does not train in an allocation of Slurm.

    Attributes:
        left_running: workers still run, because the driver ended before the job.
    """

    def __init__(self, directory: JobDirectory, screen: Screen, slurm: SlurmWatch | None = None) -> None:
        self._directory = directory
        self._screen = screen
        self._slurm = slurm
        self._logs = LogFollower(directory.logs)
        self._main: int | None = None
        self._status: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._saved: str | None = None
        self._taken_over: Event | None = None
        self._begun = False
        self.left_running = False
        self._num_interrupts = 0
        self._begun_at = time.monotonic()

    # ------------------------------------------------------------ the driver's observer

    def on_event(self, event: Event) -> None:
        """Show an event; a long explanation only once."""
        self._begun = True
        self._counts[event.kind] += 1
        if event.kind == "saved":
            self._saved = event.reason
        if event.kind == "adopted":
            self._taken_over = event
        is_new = bool(event.detail) and self._logs.show_once(event.detail or "")
        # If the text is one sentence, the reason contains it.
        is_new = is_new and (event.detail or "").strip() not in event.reason
        self._show_output()
        if not event.reason.startswith(_LAST_WORDS):
            self._screen.show_event(msgspec.to_builtins(event))
        if event.detail and is_new:
            self._screen.show_message(event.detail, problem=True)

    def on_status(self, status: dict[str, Any]) -> None:
        """Show the job's progress."""
        self._begun = True
        self._status = status
        speaker = main_worker(status)
        if speaker is not None and speaker != self._main:
            self._show_output(whole=True)
            if self._main is not None:
                self._logs.switch(speaker)
            self._main = speaker
        self._logs.note_sizes(status)
        self._screen.show_status(status)

    # ------------------------------------------------------------ the whole run

    async def drive(self, driver: Driver, engine: LocalEngine | AgentsEngine) -> Ending:
        """Run the driver until the job ends.

        Raises:
            LegatoError: the job cannot be run here.
            asyncio.CancelledError: interrupted before there was a job to stop, or more often than the stop of the job
                needs.
        """
        running = asyncio.ensure_future(driver.run())
        with self._interrupts(driver, running):
            reading = asyncio.create_task(self._read_logs())
            try:
                outcome = await running
            except Superseded:
                # Another driver uses the engine's processes.
                self.left_running = True
                await engine.detach()
                raise
            except BaseException as error:
                await self._end_processes(engine)
                if not isinstance(error, MachinesRefused):  # whose text has the reasons
                    self._show_remarks(engine)
                raise
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                self._show_output(whole=True)
        return await asyncio.to_thread(self._sum_up, outcome)

    def _show_remarks(self, engine: LocalEngine | AgentsEngine) -> None:
        """Show what the engine knows and the driver has not heard, such as why a machine cannot be used."""
        with contextlib.suppress(OSError):
            for told in engine.remarks:
                self._screen.show_message(f"legato: {told}.", problem=True)

    def _sum_up(self, outcome: Outcome) -> Ending:
        journal = self._directory.read_journal()
        # The status has the step from which the whole run continued, but this process saw only what followed.
        first = self._status.get("from_step") if self._taken_over is None else self._taken_over.step
        return Ending(
            name=self._directory.path.name,
            outcome=outcome.outcome,
            reason=outcome.reason,
            exit_code=outcome.exit_code,
            step=self._status.get("step"),
            num_steps=self._status.get("num_steps"),
            from_step=first,
            has_taken_over=self._taken_over is not None,
            elapsed_s=time.monotonic() - self._begun_at,
            counts=self._counts,
            saved=self._saved,
            directory=self._directory.path,
            go_on_with=find_resume_command(self._directory),
            checkpoint_every=journal.spec.checkpoint_every if journal is not None else None,
        )

    async def _end_processes(self, engine: LocalEngine | AgentsEngine) -> None:
        """End the engine's processes, unless workers run: these continue to train and can be adopted."""
        if not engine.is_open:
            return
        try:
            left = await asyncio.wait_for(engine.running(), _END_LIMIT_S)
        except (LegatoError, TimeoutError):
            left = engine.last_running
        self.left_running = bool(left)
        await (engine.detach() if left else engine.close())

    # ------------------------------------------------------------ Ctrl-C

    @contextlib.contextmanager
    def _interrupts(self, driver: Driver, running: asyncio.Future[Outcome]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        for number in numbers:
            loop.add_signal_handler(number, self._interrupt, driver, running, number)
        if self._slurm is not None:
            self._slurm.on_signal = lambda name: self._end_for_slurm(driver, running, name)
            numbers.append(signal.SIGUSR1)
            for number in numbers[1:]:
                loop.add_signal_handler(number, self._slurm.note_signal, number.name)
        # `nohup` makes the process ignore the signal, and this stays so: the output goes to a file then.
        hears_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        if hears_hangup:
            loop.add_signal_handler(signal.SIGHUP, _leave_terminal, [fd for fd in (0, 1, 2) if os.isatty(fd)])
        try:
            yield
        finally:
            for number in (*numbers, *([signal.SIGHUP] if hears_hangup else [])):
                loop.remove_signal_handler(number)

    def _interrupt(self, driver: Driver, running: asyncio.Future[Outcome], number: signal.Signals) -> None:
        what = "Ctrl-C" if number == signal.SIGINT else number.name
        self._num_interrupts += 1
        if not self._begun or self._num_interrupts > _NUM_PATIENT_INTERRUPTS:
            running.cancel()
            return
        is_first = self._num_interrupts == 1
        message = "stopping after this step, with a checkpoint. Ctrl-C again stops now, without one."
        # The reader of the output, such as `head`, may be gone; the job stops nevertheless.
        with contextlib.suppress(OSError):
            self._screen.show_message(f"legato: {message if is_first else 'stopping now.'}", problem=True)
        driver.stop(what if is_first else f"{what} again", now=not is_first)

    def _end_for_slurm(self, driver: Driver, running: asyncio.Future[Outcome], name: str) -> None:
        if not self._begun:
            running.cancel()
            return
        with contextlib.suppress(OSError):
            told = f"legato: Slurm is about to end the job ({name}): stopping after this step, with a checkpoint."
            self._screen.show_message(told, problem=True)
        driver.stop(f"{name} from Slurm")

    # ------------------------------------------------------------ the program's output

    async def _read_logs(self) -> None:
        while True:
            await asyncio.sleep(_READ_LOGS_EVERY_S)
            if not self._begun:
                self._screen.show_waiting(WAITS_AT_START)
            self._show_output()

    def _show_output(self, *, whole: bool = False) -> None:
        if self._main is None:
            return
        # Before the end much output is shown piece by piece, so that the driver does not wait; at the end all of it.
        while text := self._logs.read(self._main, whole=whole):
            self._screen.show_output(text)
            if not whole:
                return


def _leave_terminal(descriptors: Sequence[int]) -> None:
    """Write no more to a terminal that was closed; the job continues, and `legato attach` shows it.

    Args:
        descriptors: those that led to a terminal at the start.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        if not os.isatty(descriptor):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)
