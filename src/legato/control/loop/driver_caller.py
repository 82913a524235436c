"""Calls drivers after a round. Starts run beside the rounds, because copies of code take long; other calls run inside.

Each job has at most one call under way. Failures are reported to the caller; this module does not retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog

from legato.control.drivers.drivers import DriverReport, Drivers, DriverState
from legato.control.loop.driver_calls import Call, End, GiveUp, Kill, SendSlots, Start
from legato.control.loop.loop_stats import LoopStats
from legato.control.records import Job
from legato.control.stages import HOLDING, Stage
from legato.control.work import Work, make_order
from legato.core.errors import LegatoError
from legato.core.terms import first_term

_AT_ONCE_S: Final = 0.1  # most starts end within this time, so that the round knows the failures

_log = structlog.get_logger(__name__)


class Caller:
    """Of one control loop.

    Args:
        drivers: of all jobs.
        code: where uploaded code is unpacked.
        stats: where calls that failed are counted.
        is_leading: whether this loop may start something at this moment.
        note_failure: called with the job, its attempt and the reason when a driver could not be started; reason None:
            the start was dropped.
    """

    def __init__(
        self,
        drivers: Drivers,
        code: Path,
        *,
        stats: LoopStats,
        is_leading: Callable[[], bool],
        note_failure: Callable[[str, int, str | None], None],
    ) -> None:
        self._drivers = drivers
        self._code = code
        self._stats = stats
        self._is_leading = is_leading
        self._note_failure = note_failure
        self._fence = 0
        self._under_way: dict[str, tuple[int, asyncio.Task[None]]] = {}

    async def report(self, jobs: Iterable[Job], attempts: Mapping[str, int]) -> dict[str, DriverReport]:
        """Return the drivers' reports. A start that is under way is reported as such.

        A start that its job no longer needs is cancelled; the next round learns the result.
        """
        self._reap()
        # Taken before the drivers are asked: if a start ends in between, its report may show the state before.
        under_way = {job: attempt for job, (attempt, _) in self._under_way.items()}
        reports = await self._drivers.reports(attempts)
        now = {job.id: job for job in jobs}
        for name, attempt in under_way.items():
            job, report = now.get(name), reports.get(name)
            if job is None or job.attempt != attempt or job.stage not in HOLDING:
                self._cancel(name)
            elif report is not None and report.state in (DriverState.UNKNOWN, DriverState.GONE):
                if report.state is DriverState.UNKNOWN and job.stage is not Stage.STARTING:
                    self._cancel(name)
                reports[name] = DriverReport(
                    attempt=attempt,
                    state=DriverState.STARTING,
                    trouble="its start is still under way",
                    is_under_way=True,
                )
        return reports

    async def make(
        self, calls: Iterable[Call], works: Mapping[str, Work], unreadable: Mapping[str, str], fence: int
    ) -> None:
        """Make the calls of a round. Starts that take long continue after it.

        Args:
            calls: of all jobs.
            works: of the jobs, by id.
            unreadable: why the works of other jobs cannot be read.
            fence: the fencing number of the loop's lease.
        """
        self._fence = fence
        now, begun = [], []
        for call in calls:
            if isinstance(call, SendSlots | End):
                now.append(self._send(call))
            elif call.job.id not in self._under_way:
                task = asyncio.create_task(self._begin(call, works, unreadable))
                self._under_way[call.job.id] = (call.job.attempt, task)
                begun.append(task)
        await asyncio.gather(*now)
        if begun:
            await asyncio.wait(begun, timeout=_AT_ONCE_S)
        self._reap()

    def cancel_all(self) -> None:
        """Cancel all starts that are under way, because another loop is about to decide."""
        for name in self._under_way:
            self._cancel(name)

    async def close(self) -> None:
        """Cancel all starts, and wait until they have ended."""
        self.cancel_all()
        await asyncio.gather(*(task for _, task in self._under_way.values()), return_exceptions=True)
        self._under_way.clear()

    # ------------------------------------------------------------ inside

    def _cancel(self, name: str) -> None:
        self._under_way[name][1].cancel()

    def _reap(self) -> None:
        for name, (_, task) in list(self._under_way.items()):
            if task.done():
                del self._under_way[name]
                if not task.cancelled():
                    task.result()

    async def _begin(
        self, call: Start | GiveUp | Kill, works: Mapping[str, Work], unreadable: Mapping[str, str]
    ) -> None:
        job = call.job
        try:
            match call:
                case Start():
                    await self._start(call, works, unreadable)
                case Kill():
                    await self._drivers.kill(job.id, job.attempt)
                case GiveUp(reason=reason):
                    await self._drivers.give_up(job.id, job.attempt, reason, first_term(self._fence))
        except Exception as error:  # noqa: BLE001 -- one job's trouble is not the others'
            self._warn(call, error)
            why = str(error) or repr(error)
            if not isinstance(call, Kill):
                told = why if isinstance(call, Start) else f"its remaining processes cannot be ended: {why}"
                self._note_failure(job.id, job.attempt, told)

    async def _start(self, call: Start, works: Mapping[str, Work], unreadable: Mapping[str, str]) -> None:
        job, was_late = call.job, False
        if job.id not in works:
            if job.id in unreadable:
                raise LegatoError(unreadable[job.id])
            # Its row cannot be read now, but may be put right: no try of it counts until then.
            self._note_failure(job.id, job.attempt, None)
            return

        def is_wanted() -> bool:
            nonlocal was_late
            was_late = not self._is_leading()
            return not was_late

        order = make_order(job, works[job.id], call.slots, code=self._code, goes_on=job.attempt > 1, fence=self._fence)
        await self._drivers.start(order, is_wanted)
        if was_late:
            self._note_failure(job.id, job.attempt, None)

    async def _send(self, call: SendSlots | End) -> None:
        job = call.job
        try:
            match call:
                case SendSlots(said=said):
                    await self._drivers.assign(job.id, job.attempt, said)
                case End(now=now, reason=reason):
                    await self._drivers.stop(job.id, job.attempt, now=now, reason=reason)
        except Exception as error:  # noqa: BLE001 -- as above; the next report shows it, and the loop tries again
            self._warn(call, error)

    def _warn(self, call: Call, error: Exception) -> None:
        self._stats.num_failed_calls += 1
        expected = isinstance(error, LegatoError | OSError)
        _log.warning(
            "a message to a driver could not be sent",
            job=call.job.id,
            call=type(call).__name__,
            error=str(error) or repr(error),
            exc_info=not expected,
        )
