"""The control loop: observe, record, decide, apply, repeatedly, while it holds the lease. Decides nothing itself.

What it reads and writes is behind `LoopStore`, the drivers behind `Drivers`, and time comes from clocks. What things
mean is in `rounds` and `deciding`, who gets what in `legato.policy`. A failure in a round is seen again in the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from legato.control.drivers.drivers import DriverReport, Drivers
from legato.control.loop import deciding, rounds
from legato.control.loop.driver_caller import Caller
from legato.control.loop.driver_calls import list_calls
from legato.control.loop.left_out import LeftOut, describe
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.loop.loop_stats import Pulse
from legato.control.loop.run_times import RunTimes
from legato.control.records import Facts, Job, JobChange, Lease, Written
from legato.control.work import Work, read_work
from legato.core.errors import FencedOut, StoreError, UnreadableRow, UsageError
from legato.policy.rules import Rules
from legato.policy.snapshot import Decisions

_SPARE: Final = 0.5  # of the lease must be left when drivers get messages, so that these arrive before it expires
_REST: Final = 3.0  # times what a round took; or until the next one would come anyway

_log = structlog.get_logger(__name__)


class LoopStore(Protocol):
    """What the loop reads and writes; the store, or a stand-in of the simulation. Calls may block."""

    def take_lease(self, owner: str, now: float, length_s: float) -> Lease | None:
        """Take or renew the right to be the loop; None while another server has it."""
        ...

    def read_facts(self) -> Facts:
        """Return all that a round starts from."""
        ...

    def read_spec(self, job: str) -> dict[str, Any]:
        """Return what a job runs, as it was submitted."""
        ...

    def read_held_s(self, job: str, now: float) -> float:
        """Return for how many seconds the attempts of a job have held slots, over all."""
        ...

    def write(self, changes: Sequence[JobChange], fence: int, now: float) -> Written:
        """Write changes, each whole or not at all. Raises FencedOut if the lease is another's by now."""
        ...


class ControlLoop:
    """The one loop of a platform, or one that waits to become it.

    Args:
        store: what it reads and writes.
        drivers: of all jobs.
        rules: of the policy.
        code: where uploaded code is unpacked.
        owner: names this loop in the lease.
        wall_clock: seconds since 1970.
        lease_s: how long the lease is held after the last round.
        on_lead: called with the lease when this loop becomes the one that decides, before its first round. May block.
        in_thread: runs what blocks; the simulation calls it at once.
    """

    def __init__(
        self,
        store: LoopStore,
        drivers: Drivers,
        rules: Rules,
        *,
        code: Path,
        owner: str,
        wall_clock: Callable[[], float],
        lease_s: float = 10.0,
        on_lead: Callable[[Lease], None] = lambda _lease: None,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._rules = rules
        self._owner = owner
        self._now = wall_clock
        self._lease_s = lease_s
        self._on_lead = on_lead
        self._in_thread = in_thread
        self._fence: int | None = None
        self._leads_until = 0.0
        self._memories: dict[str, Memory] = {}
        self._works: dict[str, Work] = {}
        self._unreadable: dict[str, str] = {}
        self._run_times = RunTimes()
        self._last_left_out = LeftOut()
        self.decisions: Decisions | None = None
        self.pulse = Pulse()
        self._caller = Caller(
            drivers, code, pulse=self.pulse, is_leading=self._is_leading, note_failure=self._note_failure
        )

    async def run(self, interval_s: float, woken: asyncio.Event) -> None:
        """Do rounds until cancelled: every ``interval_s``, and when woken; most of the time is left to others."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                woken.clear()
                begun = clock()
                await self._try_round(clock)
                # Where rounds are long, because there are many jobs, those who submit must not wait for each of them.
                await asyncio.sleep(min((clock() - begun) * _REST, interval_s))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await woken.wait()
        finally:
            await self._caller.close()

    async def _try_round(self, clock: Callable[[], float]) -> None:
        begun = clock()
        try:
            if await self.round():
                self.pulse.end_round(self._now(), clock() - begun)
        except FencedOut as lost:
            self.pulse.num_failed += 1
            _log.warning("the lease of the control loop was lost", error=str(lost))
        except Exception:  # noqa: BLE001 -- whatever it is, the next round begins from the facts
            self.pulse.num_failed += 1
            _log.exception("a round of the control loop failed")

    async def round(self) -> bool:
        """Do one round. Returns False if another loop has the lease, or may have it by now.

        Raises:
            FencedOut: the lease was lost in the middle; nothing was written since.
        """
        lease = await self._in_thread(self._store.take_lease, self._owner, self._now(), self._lease_s)
        if lease is None:
            self._lose_lease()
            self._memories.clear()
            self.decisions = None
            self.pulse.follow()
            return False
        self._lead_by(lease)
        try:
            return await self._do_round(lease)
        except FencedOut:
            self._lose_lease()
            raise

    async def _do_round(self, lease: Lease) -> bool:
        if lease.fence != self._fence:
            self.pulse.lead(self._now())
            await self._in_thread(self._on_lead, lease)
            self._fence = lease.fence
        # 1. Observe.
        pool = RoundFacts(await self._in_thread(self._store.read_facts))
        reports = await self._caller.report(pool.facts.jobs, rounds.attempts_to_ask(pool))
        self.pulse.look(reports.values())
        # 2. Learn.
        learned = rounds.learn(pool, reports, self._memories, self._now())
        if learned:
            pool = await self._write(learned, lease)
        left_out = LeftOut()
        await self._read_works(pool.facts.jobs, left_out)
        asides = await self._list_overdue(pool.facts.jobs, left_out)
        asides += rounds.fail_unreadable(pool, self._unreadable)
        if asides:
            pool = await self._write(asides, lease)
        # 3. Decide.
        failure = self._decide(pool, reports, left_out)
        # 4. Apply.
        changes = [] if self.decisions is None else deciding.carry_out(pool, self.decisions, self._memories, left_out)
        if changes:
            pool = await self._write(changes, lease)
        if not self._is_leading() and not await self._renew_lease(lease):
            # It was held up: another loop decides differently, and drivers do not know loops apart.
            return False
        calls = list_calls(pool, reports, self._memories, self._now(), left_out)
        await self._caller.make(calls, self._works, self._unreadable)
        self._tell_left_out(left_out)
        if failure is not None:
            raise failure
        return True

    def _decide(self, pool: RoundFacts, reports: Mapping[str, DriverReport], left_out: LeftOut) -> Exception | None:
        """Decide. If that fails on all jobs, return why: drivers must get stops and pauses all the same."""
        self.decisions = None
        try:
            snapshot = deciding.make_snapshot(pool, reports, self._memories, self._works, self._now(), left_out)
            self.decisions = deciding.decide_apart(snapshot, self._rules, left_out)
        except Exception as error:  # noqa: BLE001 -- raised when the rest of the round is done
            return error
        return None

    def _tell_left_out(self, left_out: LeftOut) -> None:
        """Log what is left out, once as long as it stays the same, and count it for the metrics."""
        for kind, name, why in sorted(left_out.list_all() - self._last_left_out.list_all()):
            _log.error("a round leaves objects out", kind=kind, name=name, error=why)
        self._last_left_out = left_out
        self.pulse.left_out = left_out.count()

    def _lead_by(self, lease: Lease) -> None:
        # Half of it must be left when something is started, so that it is known before another loop may decide.
        self._leads_until = lease.expires_at - self._lease_s * _SPARE

    async def _renew_lease(self, lease: Lease) -> bool:
        """Continue with a round that took long, if no other server has decided anything in between."""
        renewed = await self._in_thread(self._store.take_lease, self._owner, self._now(), self._lease_s)
        if renewed is None or renewed.fence != lease.fence:
            return False
        self._lead_by(renewed)
        return self._is_leading()

    def _is_leading(self) -> bool:
        return self._now() < self._leads_until

    def _lose_lease(self) -> None:
        self._fence, self._leads_until = None, 0.0
        self._caller.let_go_of_all()

    def _note_failure(self, job: str, attempt: int, why: str | None) -> None:
        memory = self._memories.get(job)
        if memory is not None and memory.attempt == attempt:
            trouble = memory.trouble
            memory.trouble = trouble.postponed() if why is None else trouble.failed(why)

    async def _write(self, changes: list[JobChange], lease: Lease) -> RoundFacts:
        try:
            written = await self._in_thread(self._store.write, changes, lease.fence, self._now())
        except (FencedOut, StoreError):
            raise
        except Exception:  # noqa: BLE001 -- one job's trouble is not the others': each is written by itself
            _log.exception("a round could not be stored in one transaction")
            for change in changes:
                await self._write_one(change, lease)
        else:
            if written.stale:
                _log.info("jobs moved on meanwhile", jobs=written.stale)
        return RoundFacts(await self._in_thread(self._store.read_facts))

    async def _write_one(self, change: JobChange, lease: Lease) -> None:
        try:
            await self._in_thread(self._store.write, [change], lease.fence, self._now())
        except (FencedOut, StoreError):
            raise
        except Exception:  # noqa: BLE001 -- as above; it is seen again in the next round
            _log.exception("a change of a job could not be written", job=change.job)

    async def _list_overdue(self, jobs: Sequence[Job], left_out: LeftOut) -> list[JobChange]:
        clock = asyncio.get_running_loop().time
        for job in self._run_times.list_unknown(jobs, self._works):
            with left_out.unless_fails(job.id, "how long it has held slots"):
                held_s = await self._in_thread(self._store.read_held_s, job.id, self._now())
                self._run_times.note(job, held_s, clock())
        return self._run_times.list_overdue(jobs, self._works, clock())

    async def _read_works(self, jobs: Sequence[Job], left_out: LeftOut) -> None:
        going_on = {job.id for job in jobs}
        for known in (self._works, self._unreadable):
            for gone in set(known) - going_on:
                del known[gone]
        new = going_on - set(self._works) - set(self._unreadable)
        if new:
            await self._in_thread(self._read_new, sorted(new), left_out)

    def _read_new(self, jobs: Sequence[str], left_out: LeftOut) -> None:
        for job in jobs:
            try:
                self._works[job] = read_work(self._store.read_spec(job))
            except StoreError:
                raise
            except UnreadableRow as error:
                # The row may be put right: it is read again in the next round.
                left_out.jobs[job] = str(error).removesuffix(".")
            except Exception as error:  # noqa: BLE001 -- of another version, or damaged: this job fails, no other
                why = str(error) if isinstance(error, UsageError) else describe(error)
                _log.error("a job's spec cannot be read", job=job, error=why)
                self._unreadable[job] = why
