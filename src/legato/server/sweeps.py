"""Runs the sweeps: reads the metrics of trials, stops those that are not among the best, and submits the next ones.

Only the leading server does so. It remembers nothing that matters: all choices follow from what the store has recorded,
so the next server goes on with the same trials.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from legato.api.projects import Parameter
from legato.api.sweeps import Report, SweepPlan, TrialState
from legato.control.people import User
from legato.control.records import CheckedJob
from legato.control.roles import Role, Submitter, lower_role
from legato.control.stages import ENDED, Stage
from legato.control.sweep_records import StoredSweep, StoredTrial, SweepStage, TrialChange, describe_start
from legato.core.errors import Conflict, FencedOut, StoreError, UnreadableRow, UsageError
from legato.driver.journal import JobDirectory
from legato.server.services import JOBS, Services
from legato.server.time_series import STEP_LOSS, Value, has_later_epoch, read_metrics, read_values
from legato.sweeps.search import Recorded, check_library, choose_parameters, compare, find_best, next_comparison
from legato.system.decoding import convert

_log = structlog.get_logger(__name__)

ROUND_S: Final = 1.0
_CHOOSING_S: Final = 0.2
"""After so long, a sweep adds its further trials in the next round, so that it does not hold up other sweeps."""
_PATIENCE_S: Final = 10.0
"""So long a sweep waits after too many jobs were queued, because each try makes a choice."""
LABEL: Final = "sweep"
"""Of the job of a trial; its value is the id of the sweep."""
_MAX_NAME: Final = 63
_MAX_REASON: Final = 1_000
_MAX_NAMES: Final = 10
_MAX_ERRORS: Final = 10
"""After so many failed rounds one after the other, a sweep fails."""


class Sweeper:
    """The loop that runs all sweeps of the platform.

    Args:
        services: of the server.
        clock: seconds; never goes back.
    """

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = services
        self._clock = clock
        self._waits: dict[str, float] = {}  # sweep → until when it waits, because too many jobs are queued
        self._seen: dict[str, int] = {}  # running job → step up to which its metric led to no comparison
        self._errors: dict[str, int] = {}  # sweep → number of failed rounds since the last one that did not fail

    async def run(self) -> None:
        """Run sweeps until cancelled."""
        while True:
            try:
                if await asyncio.to_thread(self.round):
                    self._here.loop.wake()
                    self._here.feed.poke()
            except FencedOut:
                _log.info("another server decides now, and runs the sweeps")
            except Exception as error:  # noqa: BLE001 -- the next round begins from the store again
                _log.warning(
                    "a round of the sweeps failed", error=str(error), exc_info=not isinstance(error, StoreError)
                )
            await asyncio.sleep(ROUND_S)

    def round(self) -> bool:
        """Bring all sweeps forward once, if this server leads; return whether anything changed. Blocks."""
        lease = self._here.read_own_lease()
        if lease is None:
            self._seen.clear()  # another server may go on meanwhile
            return False
        changed = False
        running = self._here.store.sweeps.list_running()
        watched: set[str] = set()
        for sweep in running:
            try:
                changed |= self._advance(sweep, lease.fence, watched)
                self._errors.pop(sweep.id, None)
            except (FencedOut, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 -- other sweeps go on
                changed |= self._fail(sweep, error, lease.fence)
        self._seen = {job: step for job, step in self._seen.items() if job in watched}
        self._waits = {sweep: until for sweep, until in self._waits.items() if until > self._clock()}
        self._errors = {sweep.id: self._errors[sweep.id] for sweep in running if sweep.id in self._errors}
        return changed

    def _fail(self, sweep: StoredSweep, error: Exception, fence: int) -> bool:
        """Tell the user why a round of a sweep failed, or end the sweep; return whether it has ended."""
        number = self._errors[sweep.id] = self._errors.get(sweep.id, 0) + 1
        may_pass = isinstance(error, UnreadableRow | OSError)  # it may be repaired, or readable for another release
        if number == 1:
            _log.error("a sweep does not go on", sweep=sweep.id, error=str(error), exc_info=not may_pass)
        told = (
            str(error)
            if isinstance(error, UnreadableRow)
            else f"the server cannot go on with it: {type(error).__name__}: {error}"
        )
        reason = told[:_MAX_REASON]
        if may_pass or number < _MAX_ERRORS:
            self._explain(sweep, reason, fence)
            return False
        end = f"{reason}. This is an error of Legato; its server's log says more. Start the sweep with other parameters"
        self._here.store.sweeps.end(sweep.id, SweepStage.FAILED, end, fence, self._here.now())
        return True

    def _advance(self, sweep: StoredSweep, fence: int, watched: set[str]) -> bool:
        """Bring a sweep forward, and add the jobs of its running trials to ``watched``; return what `round` does."""
        plan = read_plan(sweep)
        try:
            check_library()
        except UsageError as error:
            self._explain(sweep, str(error), fence)
            return False
        trials = list(self._here.store.sweeps.list_trials(sweep.id))
        changed = False
        for number, trial in enumerate(trials):
            if trial.state is not TrialState.RUNNING:
                continue
            watched.add(trial.job)
            for change in self._look(plan, trials, trial):
                now = self._here.now()
                self._here.store.sweeps.record(sweep.id, change, fence, now)
                values = {name: getattr(change, name) for name in TrialChange.__struct_fields__}
                values["ended_at"] = None if change.state is TrialState.RUNNING else now
                trials[number] = msgspec.structs.replace(trials[number], **values)
                changed = True
        return self._go_on(sweep, plan, trials, fence) or changed

    # ------------------------------------------------------------ what became of trials

    def _look(self, plan: SweepPlan, trials: Sequence[StoredTrial], trial: StoredTrial) -> Iterator[TrialChange]:
        """Yield what became of a running trial since it was recorded.

        Args:
            plan: of the sweep.
            trials: all trials; the caller replaces them as it records the changes.
            trial: the running one.
        """
        # The stage was read before the file: the metrics of an ended job are complete.
        directory = JobDirectory(self._here.settings.home_path / JOBS / trial.job)
        is_over = trial.job_stage is None or trial.job_stage in ENDED

        def read(after: int | None) -> Iterator[Value]:
            return read_values(directory.metrics_file, directory.losses_file, plan.metric.name, after)

        recorded = as_recorded(trial)
        if plan.pruning is not None:
            for report in self._find_reports(plan, recorded, trial.job, read, directory.ledger_file):
                now = [as_recorded(one) for one in trials]
                verdict = compare(plan, now, trial.number, report)
                recorded = verdict.trial
                reason = _explain_pruning(plan, report) if verdict.is_pruned else None
                yield _as_change(recorded, reason)
                if verdict.is_pruned:
                    return
        if is_over:
            self._seen.pop(trial.job, None)
            last = next(iter(deque(read(None), maxlen=1)), None)
            yield _end_trial(plan, trial, recorded, last, directory)

    def _find_reports(
        self, plan: SweepPlan, trial: Recorded, job: str, read: Callable[[int | None], Iterator[Value]], ledger: Path
    ) -> Iterator[Report]:
        """Yield the values by which a trial is compared.

        Of steps, it is the first value at or after each comparison; of epochs, the last value of the epoch. An epoch
        is over when a later one has begun. So the last epoch of a job is never compared, whether a server was there or
        not.

        Args:
            plan: of the sweep, with pruning.
            trial: the trial.
            job: its job.
            read: yields the values of its metric after a step.
            ledger: file of the commits of its steps.
        """
        assert plan.pruning is not None, "only then trials are compared"
        of_steps = plan.pruning.unit == "step"
        reports = trial.reports
        last: Value | None = None  # of the newest epoch so far
        for value in read(self._seen.get(job)):
            due = next_comparison(plan.pruning, reports)
            if due == math.inf:
                return
            if of_steps and value.step >= due:
                report = Report(value.step, value.value)
                reports = (*reports, report)
                yield report
            elif not of_steps and last is not None and last.epoch < value.epoch and last.epoch + 1 >= due:
                report = Report(last.epoch + 1, last.value)
                reports = (*reports, report)
                yield report
            last = value
            # Other values of this step may still come, so the step is read again.
            self._seen[job] = value.step - 1
        if of_steps or last is None or last.epoch + 1 < next_comparison(plan.pruning, reports):
            return
        # Losses of an epoch may arrive after the commits of the next one, so only a later loss says that it is over.
        if plan.metric.name != STEP_LOSS and has_later_epoch(ledger, last.epoch):
            # The ledger was read after the values, so others of this epoch may have come.
            of_epoch = (value for value in read(last.step - 1) if value.epoch == last.epoch)
            (last,) = deque(of_epoch, maxlen=1) or (last,)
            yield Report(last.epoch + 1, last.value)

    # ------------------------------------------------------------ what follows

    def _go_on(self, sweep: StoredSweep, plan: SweepPlan, trials: list[StoredTrial], fence: int) -> bool:
        """End the sweep, or submit the next trials; return whether anything changed."""
        store, now = self._here.store, self._here.now()
        ended = _find_end(plan, trials) or _find_timeout(plan, trials, now - sweep.created_at)
        if ended is not None:
            store.sweeps.end(sweep.id, *ended, fence, now)
            return True
        if self._waits.get(sweep.id, -math.inf) > self._clock():
            return False
        changed, until = False, self._clock() + _CHOOSING_S
        try:
            submitter = _find_submitter(sweep, store.accounts.get(sweep.owner))
            while len(trials) < plan.num_trials and _count_running(trials) < plan.parallel:
                parameters = choose_parameters(plan, [as_recorded(trial) for trial in trials])
                if parameters is None:
                    break
                new = _make_job(sweep, len(trials), parameters)
                most = self._here.settings.max_queued_jobs
                if not store.sweeps.add_trial(
                    sweep.id, len(trials), parameters, new, submitter, fence, self._here.now(), max_queued=most
                ):
                    return changed  # it has ended, or another server has added it
                changed = True
                if self._clock() >= until:
                    break
                trials[:] = store.sweeps.list_trials(sweep.id)
        except (UnreadableRow, StoreError, FencedOut):
            raise
        except Conflict as error:  # too many jobs wait, so the sweep waits too
            self._waits[sweep.id] = self._clock() + _PATIENCE_S
            self._explain(sweep, str(error), fence)
        except UsageError as error:
            store.sweeps.end(sweep.id, SweepStage.FAILED, str(error), fence, now)
            return True
        else:
            self._explain(sweep, describe_start(sweep.owner), fence)
        return changed

    def _explain(self, sweep: StoredSweep, reason: str, fence: int) -> None:
        """Give a sweep the reason why it waits, or that it goes on."""
        if sweep.reason != reason:
            self._here.store.sweeps.explain(sweep.id, reason, fence, self._here.now())


def read_plan(sweep: StoredSweep) -> SweepPlan:
    """Return the plan of a stored sweep.

    Raises:
        UnreadableRow: it cannot be read.
    """
    try:
        return convert(sweep.plan, SweepPlan)
    except msgspec.ValidationError as error:
        raise _unreadable("plan", sweep, error) from error


def _unreadable(what: str, sweep: StoredSweep, error: Exception) -> UnreadableRow:
    return UnreadableRow(
        f"Cannot read the {what} of sweep '{sweep.name}' ({sweep.id}): {error}. An administrator must correct it, "
        "restore a backup, or install the release that wrote it."
    )


def as_recorded(trial: StoredTrial) -> Recorded:
    """Return a trial as the search sees it."""
    return Recorded(**{name: getattr(trial, name) for name in Recorded.__struct_fields__})


def name_trial(sweep: str, number: int) -> str:
    """Return the name of the job of a trial.

    >>> name_trial("digits", 7), len(name_trial("a" * 63, 999))
    ('digits-7', 63)
    """
    suffix = f"-{number}"
    return f"{sweep[: _MAX_NAME - len(suffix)]}{suffix}"


def _make_job(sweep: StoredSweep, number: int, parameters: dict[str, Parameter]) -> CheckedJob:
    try:
        template = convert(sweep.template, CheckedJob)
    except msgspec.ValidationError as error:
        raise _unreadable("job", sweep, error) from error
    spec: dict[str, Any] = {
        **template.spec,
        "parameters": {**template.spec.get("parameters", {}), **parameters},
    }
    return msgspec.structs.replace(
        template, name=name_trial(sweep.name, number), spec=spec, labels={**template.labels, LABEL: sweep.id}
    )


def _find_submitter(sweep: StoredSweep, owner: User) -> Submitter:
    """Return the owner of a sweep as who submits its jobs.

    Raises:
        UsageError: the owner may submit none any more.
    """
    role = lower_role(sweep.role, owner.role)
    if owner.disabled_at is not None or role is Role.VIEWER:
        raise UsageError(
            f"'{sweep.owner}' may submit no jobs any more, so the sweep cannot go on. Start it as another user."
        )
    return Submitter(sweep.owner, role)


def _count_running(trials: Sequence[StoredTrial]) -> int:
    """Count the trials whose jobs have not ended: that of a pruned one holds slots until its checkpoint is written."""
    return sum(
        trial.state is TrialState.RUNNING or (trial.job_stage is not None and trial.job_stage not in ENDED)
        for trial in trials
    )


def _find_end(plan: SweepPlan, trials: Sequence[StoredTrial]) -> tuple[SweepStage, str] | None:
    """Return the stage in which a sweep ends now, and why. None: it goes on."""
    over = sorted(
        (trial for trial in trials if trial.ended_at is not None), key=lambda trial: (trial.ended_at, trial.number)
    )
    failed = list(itertools.takewhile(lambda trial: trial.state is TrialState.FAILED, reversed(over)))
    if len(failed) >= plan.max_failures:
        number = (
            "a trial has failed" if len(failed) == 1 else f"{len(failed)} trials in a row have failed; the last one"
        )
        return SweepStage.FAILED, f"{number}: {failed[0].reason}"
    if len(trials) < plan.num_trials or len(over) < len(trials):
        return None
    return _describe_end(plan, trials, f"all {len(trials)} trials have ended")


def _find_timeout(plan: SweepPlan, trials: Sequence[StoredTrial], age_s: float) -> tuple[SweepStage, str] | None:
    """Return the stage in which a sweep that runs too long ends now, and why. None: it goes on."""
    if plan.max_run_s is None or age_s < plan.max_run_s:
        return None
    return _describe_end(plan, trials, f"it has run for {plan.max_run_s:g} s, its max_run_s")


def _describe_end(plan: SweepPlan, trials: Sequence[StoredTrial], why: str) -> tuple[SweepStage, str]:
    best, name = find_best([as_recorded(trial) for trial in trials], plan.metric.direction), plan.metric.name
    if best is None:
        return SweepStage.FAILED, f"{why}, and none of its {len(trials)} trials has a value of '{name}'"
    return SweepStage.SUCCEEDED, f"{why}; the best is trial {best.number} with {name} {best.value:.6g}"


def _explain_pruning(plan: SweepPlan, report: Report) -> str:
    assert plan.pruning is not None, "only then trials are compared"
    after = f"after {plan.pruning.unit} {report.resource}"
    if report.value is None:
        return f"pruned: {plan.metric.name} is not a finite number {after}"
    return f"pruned: {plan.metric.name} {report.value:.6g} {after} is not among the best 1/{plan.pruning.factor}"


def _as_change(trial: Recorded, reason: str | None) -> TrialChange:
    names = ("number", "state", "value", "reports", "marks")
    return TrialChange(**{name: getattr(trial, name) for name in names}, reason=reason)


def _end_trial(
    plan: SweepPlan, trial: StoredTrial, recorded: Recorded, last: Value | None, directory: JobDirectory
) -> TrialChange:
    """Return what became of a trial whose job has ended or was deleted. ``last``: the last value of its metric."""
    name = plan.metric.name
    value = None if last is None else last.value
    state, reason = TrialState.FAILED, trial.job_reason or ""
    if trial.job_stage is None:
        reason = "its job was deleted because of its age before its metric was read"
    elif trial.job_stage == Stage.STOPPED:
        state = TrialState.STOPPED
    elif trial.job_stage == Stage.SUCCEEDED and last is None:
        known = _list_names(directory)
        logged = f"it logged {', '.join(known)}" if known else "it logged no metric"
        reason = f"its program never logged '{name}': {logged}. Log it by run.log, or name one of those as the metric"
    elif trial.job_stage == Stage.SUCCEEDED and last is not None and value is None:
        reason = f"the last value of '{name}' is not a finite number (step {last.step})"
    elif trial.job_stage == Stage.SUCCEEDED:
        state, reason = TrialState.SUCCEEDED, trial.job_reason or "its job has succeeded"
    ended = msgspec.structs.replace(recorded, state=state, value=value)
    return _as_change(ended, reason)


def _list_names(directory: JobDirectory) -> list[str]:
    """Return the names of metrics of a job, a few of many."""
    found = read_metrics(
        directory.metrics_file,
        directory.losses_file,
        directory.ledger_file,
        names=(),
        after_step=None,
        num_points=2,
        has_steps=False,
    )
    names = [STEP_LOSS if series.source == "backward" else series.name for series in found.series]
    return [name[:100] for name in names[:_MAX_NAMES]]
