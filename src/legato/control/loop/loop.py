"""The control loop: observe, record, decide, apply, repeatedly, while it holds the lease. Decides nothing itself.

The loop reads and writes through `LoopStore`, calls drivers through `Drivers`, and gets the time from its arguments.
`rounds` and `deciding` interpret the facts; `legato.policy` divides the slots. The next round retries what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import structlog

from legato.control.drivers.drivers import DriverReport, Drivers
from legato.control.loop import deciding, rounds
from legato.control.loop.driver_caller import Caller
from legato.control.loop.driver_calls import list_calls
from legato.control.loop.earlier_runs import EarlierRuns
from legato.control.loop.left_out import LeftOut, describe
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.loop.loop_stats import LoopStats
from legato.control.loop.run_times import RunTimes
from legato.control.records import Facts, Job, JobChange, Lease, Written
from legato.control.work import Work, read_work
from legato.core.errors import FencedOut, StoreError, UnreadableRow, UsageError
from legato.policy.earlier_runs import EarlierRun
from legato.policy.rules import Rules
from legato.policy.snapshot import Decisions, RecentUse, Snapshot

_SPARE: Final = 0.5  # share of the lease that must be left, so that messages to drivers arrive before it expires
_COUNT_EVERY_S: Final = 60.0  # between two counts of what users have used
_READS: Final = 1000  # of recent use within a half-life: it changes by less than 0.1 % of all slots meanwhile
_REST: Final = 3.0  # pause after a short round, as a multiple of its duration

_log = structlog.get_logger(__name__)


class LoopStore(Protocol):
    """The loop's interface to the store, or to the simulation's replacement of it. Calls may block."""

    def take_lease(self, owner: str, now: float, length_s: float) -> Lease | None:
        """Take or renew the right to be the loop; None while another server has it."""
        ...

    def read_facts(self) -> Facts:
        """Return the facts that a round needs."""
        ...

    def read_specs(self, these: Sequence[str]) -> Mapping[str, dict[str, Any] | UnreadableRow]:
        """Return the specs of jobs as submitted, by id, or why one cannot be read."""
        ...

    def read_held_s(self, job: str, now: float) -> float:
        """Return for how many seconds all attempts of a job together have held slots."""
        ...

    def count_usage(self, fence: int, now: float) -> None:
        """Count what users have used since the last count. Raises FencedOut if another loop has the lease by now."""
        ...

    def read_recent_use(self, now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        """Return the decayed use of all users, as an average number of slots."""
        ...

    def read_earlier_runs(self, jobs: Sequence[str]) -> Mapping[str, Sequence[EarlierRun]]:
        """Return the newest earlier runs of each job's code that have measured speeds, the newest first.

        The jobs are of one user and have the same code.
        """
        ...

    def read_used_slot_s(self, now: float) -> Mapping[str, float]:
        """Return the seconds of slots that each job which has not ended has had in all attempts."""
        ...

    def write(self, changes: Sequence[JobChange], fence: int, now: float) -> Written:
        """Write changes, each completely or not at all. Raises FencedOut if another loop has the lease by now."""
        ...


class ControlLoop:
    """The deciding loop of a platform, or a loop that waits for the lease.

    Args:
        store: the store.
        drivers: of all jobs.
        rules: of the policy.
        code: where uploaded code is unpacked.
        owner: name of this loop in the lease.
        wall_clock: seconds since 1970.
        lease_s: how long the lease is held after the last round.
        on_lead: called with the lease when this loop gets it, before the first round. May block.
        on_round: called with the lease before each round. May block.
        in_thread: runs blocking functions; the simulation calls them directly.
        expects_agents: a cluster may start machines with agents at any time.

    Attributes:
        decisions: the last ones. None: this loop does not decide, or could not.
        snapshot: of the pool, on which they are based.
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
        on_round: Callable[[Lease], None] | None = None,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
        expects_agents: bool = False,
    ) -> None:
        self._store = store
        self._rules = rules
        self._owner = owner
        self._now = wall_clock
        self._lease_s = lease_s
        self._on_lead = on_lead
        self._on_round = on_round
        self._in_thread = in_thread
        self._expects_agents = expects_agents
        self._fence: int | None = None
        self._leads_until = 0.0
        self._memories: dict[str, Memory] = {}
        self._works: dict[str, Work] = {}
        self._unreadable: dict[str, str] = {}
        self._earlier_runs = EarlierRuns(store.read_earlier_runs, wall_clock)
        self._earlier_speeds: dict[str, deciding.EarlierSpeeds] = {}
        self._run_times = RunTimes()
        self._last_left_out = LeftOut()
        self._counted_at = -math.inf
        self._use_read_at = -math.inf
        self._recent_use: tuple[RecentUse, ...] = ()
        self._used_slot_s: Mapping[str, float] = {}
        self.decisions: Decisions | None = None
        self.snapshot: Snapshot | None = None
        self.stats = LoopStats()
        self._caller = Caller(
            drivers, code, stats=self.stats, is_leading=self._is_leading, note_failure=self._note_failure
        )

    async def run(self, interval_s: float, woken: asyncio.Event) -> None:
        """Do rounds until cancelled: every ``interval_s`` and when woken. Pauses leave most of the time to requests."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                woken.clear()
                begun = clock()
                await self._try_round(clock)
                # With many jobs rounds are long, and submissions must not have to wait for every round.
                await self._rest(clock() - begun, interval_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await woken.wait()
        finally:
            await self._caller.close()

    async def _rest(self, took_s: float, interval_s: float) -> None:
        """Rest after a round, at least as long as it took if that is longer than ``interval_s``; keep the lease."""
        self.stats.rest_s = rest_s = min(took_s * _REST, max(took_s, interval_s))
        while rest_s > interval_s and self._fence is not None:
            await asyncio.sleep(interval_s)
            rest_s -= interval_s
            await self._keep_lease(self._fence)
        await asyncio.sleep(min(rest_s, interval_s))  # without the lease, rounds are short

    async def _keep_lease(self, fence: int) -> None:
        """Renew the lease between two rounds. If another server has decided meanwhile, cancel all starts."""
        try:
            lease = await self._in_thread(self._store.take_lease, self._owner, self._now(), self._lease_s)
        except Exception:  # noqa: BLE001 -- the next round meets it again, and reports it
            return
        if lease is not None and lease.fence == fence:
            self._lead_by(lease)
        else:
            self._lose_lease()

    async def _try_round(self, clock: Callable[[], float]) -> None:
        begun = clock()
        try:
            if await self.round():
                self.stats.end_round(self._now(), clock() - begun)
        except FencedOut as lost:
            self.stats.num_failed += 1
            _log.warning("the lease of the control loop was lost", error=str(lost))
        except Exception:  # noqa: BLE001 -- after any error, the next round reads the facts again
            self.stats.num_failed += 1
            _log.exception("a round of the control loop failed")

    async def round(self) -> bool:
        """Do one round. Returns False if another loop has, or may have, the lease.

        Raises:
            FencedOut: the lease was lost during the round; nothing was written after that.
        """
        lease = await self._in_thread(self._store.take_lease, self._owner, self._now(), self._lease_s)
        if lease is None:
            self._lose_lease()
            self._memories.clear()
            self.decisions = self.snapshot = None
            self.stats.follow()
            return False
        self._lead_by(lease)
        try:
            return await self._do_round(lease)
        except FencedOut:
            self._lose_lease()
            raise

    async def _do_round(self, lease: Lease) -> bool:
        if lease.fence != self._fence:
            self.stats.lead(self._now())
            await self._in_thread(self._on_lead, lease)
            self._fence = lease.fence
        if self._on_round is not None:
            await self._in_thread(self._on_round, lease)
        # 1. Observe.
        pool = RoundFacts(await self._in_thread(self._store.read_facts))
        reports = await self._caller.report(pool.facts.jobs, rounds.attempts_to_ask(pool))
        self.stats.look(reports.values())
        # 2. Learn.
        learned = rounds.learn(pool, reports, self._memories, self._now())
        if learned:
            pool = await self._write(learned, lease)
        left_out = LeftOut()
        await self._read_works(pool.facts.jobs, left_out)
        await self._read_earlier_runs(pool.facts.jobs)
        asides = await self._list_overdue(pool.facts.jobs, left_out)
        asides += rounds.fail_unreadable(pool, self._unreadable)
        if asides:
            pool = await self._write(asides, lease)
        await self._count_usage(lease)
        # 3. Decide.
        failure = self._decide(pool, reports, left_out)
        # 4. Apply.
        changes = [] if self.decisions is None else deciding.carry_out(pool, self.decisions, self._memories, left_out)
        if changes:
            pool = await self._write(changes, lease)
        if not self._is_leading() and not await self._renew_lease(lease):
            # The round was too slow. Another loop may decide differently, and drivers cannot tell loops apart.
            return False
        calls = list_calls(pool, reports, self._memories, self._now(), left_out)
        await self._caller.make(calls, self._works, self._unreadable, lease.fence)
        self._report_left_out(left_out)
        if failure is not None:
            raise failure
        return True

    async def _count_usage(self, lease: Lease) -> None:
        """Count what users have used, once a minute, and read the use of jobs and the recent use if they count."""
        now = self._now()
        if 0 <= now - self._counted_at < _COUNT_EVERY_S:
            return
        self._counted_at = now
        for who, count in (("users", self._count_use_of_users), ("jobs", self._count_use_of_jobs)):
            try:
                await count(lease, now)
            except (FencedOut, StoreError):
                self._counted_at = -math.inf
                raise
            except Exception:  # noqa: BLE001 -- a damaged row must not stop scheduling; the last known use counts on
                _log.exception(f"what {who} have used could not be counted; the next try is in a minute")

    async def _count_use_of_users(self, lease: Lease, now: float) -> None:
        await self._in_thread(self._store.count_usage, lease.fence, now)
        half_life_s = self._rules.usage_half_life_s
        if half_life_s is not None and not 0 <= now - self._use_read_at < half_life_s / _READS:
            found = await self._in_thread(self._store.read_recent_use, now, half_life_s)
            self._recent_use = deciding.keep_levels(found, self._recent_use)
            self._use_read_at = now

    async def _count_use_of_jobs(self, _: Lease, now: float) -> None:
        if self._rules.long_job_slot_s is not None:
            self._used_slot_s = await self._in_thread(self._store.read_used_slot_s, now)

    def _decide(self, pool: RoundFacts, reports: Mapping[str, DriverReport], left_out: LeftOut) -> Exception | None:
        """Decide. Returns the error if that fails on all jobs, because drivers must get stops and pauses anyway."""
        self.decisions = self.snapshot = None
        try:
            snapshot = deciding.make_snapshot(
                pool,
                reports,
                self._memories,
                self._works,
                self._now(),
                left_out,
                expects_agents=self._expects_agents,
                measured_speed_s=self._rules.measured_speed_s,
                earlier_runs=self._earlier_runs.list_known(),
                earlier_speeds=self._earlier_speeds,
                used_slot_s=self._used_slot_s,
            )
            snapshot = msgspec.structs.replace(snapshot, recent_use=self._recent_use)
            self.decisions = deciding.decide_apart(snapshot, self._rules, left_out)
            self._recent_use = deciding.note_levels(self._recent_use, self.decisions)
            self.snapshot = snapshot
        except Exception as error:  # noqa: BLE001 -- raised after the rest of the round
            return error
        return None

    def _report_left_out(self, left_out: LeftOut) -> None:
        """Log the objects that are left out, once until they change, and count them for the metrics."""
        for kind, name, why in sorted(left_out.list_all() - self._last_left_out.list_all()):
            _log.error("the scheduler ignores an object that it cannot use", kind=kind, name=name, error=why)
        self._last_left_out = left_out
        self.stats.left_out = left_out.count()

    def _lead_by(self, lease: Lease) -> None:
        # Half of the lease must be left when a driver is started, so that the start is known before another loop may
        # decide.
        self._leads_until = lease.expires_at - self._lease_s * _SPARE

    async def _renew_lease(self, lease: Lease) -> bool:
        """Renew the lease in a long round, which may continue if no other server has decided meanwhile."""
        renewed = await self._in_thread(self._store.take_lease, self._owner, self._now(), self._lease_s)
        if renewed is None or renewed.fence != lease.fence:
            return False
        self._lead_by(renewed)
        return self._is_leading()

    def _is_leading(self) -> bool:
        return self._now() < self._leads_until

    def _lose_lease(self) -> None:
        self._fence, self._leads_until = None, 0.0
        self._counted_at = self._use_read_at = -math.inf
        self._caller.cancel_all()

    def _note_failure(self, job: str, attempt: int, why: str | None) -> None:
        memory = self._memories.get(job)
        if memory is not None and memory.attempt == attempt:
            failures = memory.failures
            memory.failures = failures.postponed() if why is None else failures.failed(why)

    async def _write(self, changes: list[JobChange], lease: Lease) -> RoundFacts:
        try:
            written = await self._in_thread(self._store.write, changes, lease.fence, self._now())
        except (FencedOut, StoreError):
            raise
        except Exception:  # noqa: BLE001 -- a failure of one job must not stop the others: each is written separately
            _log.exception("a round could not be stored in one transaction; each change is now stored separately")
            for change in changes:
                await self._write_one(change, lease)
        else:
            if written.stale:
                _log.info(
                    "decisions about some jobs were dropped, because the jobs changed during the round",
                    jobs=written.stale,
                )
        return RoundFacts(await self._in_thread(self._store.read_facts))

    async def _write_one(self, change: JobChange, lease: Lease) -> None:
        try:
            await self._in_thread(self._store.write, [change], lease.fence, self._now())
        except (FencedOut, StoreError):
            raise
        except Exception:  # noqa: BLE001 -- as above; the next round tries again
            _log.exception("a change of a job could not be stored; the next round tries again", job=change.job)

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

    async def _read_earlier_runs(self, jobs: Sequence[Job]) -> None:
        if self._rules.measured_speed_s is None:
            return
        due = self._earlier_runs.list_due(jobs)
        if due:
            await self._in_thread(self._earlier_runs.read, due, self._rules.measured_speed_s)

    def _read_new(self, jobs: Sequence[str], left_out: LeftOut) -> None:
        for job, spec in self._store.read_specs(jobs).items():
            if isinstance(spec, UnreadableRow):
                # The row may be repaired: the next round reads it again.
                left_out.jobs[job] = str(spec).removesuffix(".")
                continue
            try:
                self._works[job] = read_work(spec)
            except Exception as error:  # noqa: BLE001 -- written by another version, or damaged: only this job fails
                why = str(error) if isinstance(error, UsageError) else describe(error)
                _log.error("a job's spec cannot be read", job=job, error=why)
                self._unreadable[job] = why
