"""Waits for a notebook's job, shows its progress, and prints how it ended. Stops the job only if it is interrupted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from legato.client.jobs import Job
from legato.client.logs import LogLine
from legato.compat.wmla import names
from legato.compat.wmla.notebook.curves import Curves
from legato.compat.wmla.notebook.screens import Screen
from legato.core.errors import LegatoError, TrainingFailed, Unavailable

WAITING: Final = "Waiting the job to stop..."
_LOOK_EVERY_S: Final = 2.0
_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINS: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_NUM_LINES: Final = 100
_NUM_SHOWN: Final = 20


class Watch:
    """Watches one job.

    Args:
        job: the job.
        screen: shows its progress.
        say: prints a line.
        look_every_s: seconds between two requests.
    """

    def __init__(
        self, job: Job, screen: Screen, say: Callable[[str], None], look_every_s: float = _LOOK_EVERY_S
    ) -> None:
        self._job, self._screen, self._say, self._look_every_s = job, screen, say, look_every_s
        self._curves = Curves()
        self._stage = ""
        self._is_unavailable = self._is_waiting = False

    def run(self) -> None:
        """Watch until the job has ended.

        Raises:
            KeyboardInterrupt: the user interrupted the cell; the job got a request to stop.
            TrainingFailed: the job ended without a trained model.
        """
        job = self._job
        self._say_stage()
        try:
            while not self._look():
                pass
        except KeyboardInterrupt:
            self._stop()
            raise
        except LegatoError as error:
            error.add_note(f"Job {job.name} keeps running without this notebook. To see it: legato ps")
            raise
        self._end()

    def _look(self) -> bool:
        """Request the job's state once, and return whether the job has ended."""
        try:
            with contextlib.suppress(TimeoutError):
                self._job.wait(timeout_s=self._look_every_s)
            self._say_stage()
            self._show()
        except Unavailable as error:
            if not self._is_unavailable:
                self._say(f"{error} The job keeps running, and this cell waits for the server.")
            self._is_unavailable = True
            return False
        self._is_unavailable = False
        return self._job.has_ended

    def _show(self) -> None:
        job, curves = self._job, self._curves
        training = job.series(names.LOSS, names.ITERATION, after_step=curves.after_step, steps=False)
        tests = job.series(names.TEST_LOSS, after_step=curves.after_test, steps=False)
        allocations = job.allocations()
        has_more = curves.add(training, tests, allocations)
        if job.has_ended:
            has_more = curves.finish(allocations) or has_more
        if has_more:
            self._screen.show(curves)

    def _say_stage(self) -> None:
        job = self._job
        if job.stage != self._stage and not job.has_ended:
            self._stage = job.stage
            self._say(f"Job {job.name} ({job.id}) is {job.stage}: {job.reason}.")
        progress = job.progress
        is_done = progress is not None and progress.step is not None and progress.step == progress.num_steps
        if (is_done or job.has_ended) and not self._is_waiting:
            self._is_waiting = True
            self._say(WAITING)

    def _stop(self) -> None:
        job = self._job
        try:
            job.stop()
        except LegatoError as error:
            self._say(f"Interrupted, but job {job.name} did not get the request to stop: {error}")
        else:
            self._say(
                f"Interrupted: job {job.name} stops after its present step, with a checkpoint. To start from scratch, "
                "run the cell again."
            )
        self._say(
            f"To see how it ended, or to stop it at once: legato explain {job.name}, legato stop --now {job.name}"
        )

    def _end(self) -> None:
        job, record = self._job, self._job.record
        state = names.STATES[job.stage].now
        if job.stage == "succeeded":
            took_s = (record.ended_at or 0.0) - (record.started_at or 0.0)
            self._say(
                f"--------END TRAINING: completed {self._curves.iteration} iterations in {took_s} seconds.--------"
            )
        elif job.stage == "failed":
            for line in find_errors(job.logs(tail=_NUM_LINES)):
                self._say(line)
        self._say(f"Job {job.name} finishes with state {state}.")
        # WMLA's driver was a subprocess of the notebook; in Legato, the notebook's own process waits.
        self._say(f"driver service subprocess {os.getpid()} stopped")
        if job.stage != "succeeded":
            raise TrainingFailed(
                f"Job {job.name} has no trained model: it {job.stage}: {job.reason}. To see its output: "
                f"legato logs {job.name}"
            )


def find_errors(lines: Iterator[LogLine]) -> list[str]:
    """Return the lines that explain a failed job: the last traceback of a worker, else the last lines of each log.

    Args:
        lines: of the logs of the job's workers.
    """
    by_log: dict[str, list[str]] = {}
    for line in lines:
        by_log.setdefault(line.log, []).append(line.text)
    for texts in by_log.values():
        begins = [index for index, text in enumerate(texts) if text == _TRACEBACK]
        while len(begins) > 1 and any(text in _CHAINS for text in texts[begins[-2] : begins[-1]]):
            # The error was raised while another one was handled: show that traceback, too.
            begins.pop()
        if begins:
            return texts[begins[-1] :]
    return [text for texts in by_log.values() for text in texts[-_NUM_SHOWN:]]
