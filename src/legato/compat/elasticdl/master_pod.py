"""What the master's pod runs: the driver of the job, ``python -m legato.compat.elasticdl.master_pod FLAGS of train``.

It creates the workers' pods (`worker_pods`), gives the job the slots of those that run, and shows its state in the
label ``status`` of its own pod: Pending, Running, Finished. The job's events are the pod's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from legato.clusters.kubernetes_api import KubernetesApi, KubernetesAway, KubernetesRefusal
from legato.compat.elasticdl.arguments import ParsedCommand, read_arguments
from legato.compat.elasticdl.framework import ElasticPrograms, find_in_files
from legato.compat.elasticdl.job_command import read_job_command
from legato.compat.elasticdl.manifests import Owner, PodsJob, name_master
from legato.compat.elasticdl.master import pods_here
from legato.compat.elasticdl.ordering import read_workers, take_own_variables
from legato.compat.elasticdl.pods_job import check_for_pods, has_switch, make_checked_job
from legato.compat.elasticdl.site import launch
from legato.compat.elasticdl.worker_pods import WorkerPods
from legato.core.agent_messages import OpenJob
from legato.core.errors import LegatoError, UsageError
from legato.core.frameworks import Wanted
from legato.core.slots import make_slot
from legato.core.spec import JobSpec
from legato.driver.driver import Driver
from legato.driver.events import SlotsAssigned
from legato.driver.journal import JobDirectory, JobJournal, Outcome
from legato.driver.record import Event
from legato.engines.agent_node import NodeSpec
from legato.engines.agents import PATH, RECORD, AgentsEngine
from legato.engines.agents_record import read_record
from legato.engines.imports import imported_packages
from legato.system.door import Door

_PACKAGE: Final = Path(__file__).resolve().parents[2]
T = TypeVar("T")

_ADDRESS: Final = "MY_POD_IP"
_HOME: Final = "legato"
_SUCCEEDED: Final = "succeeded"
_STOPPED: Final = "stopped"
_POD_ENDS: Final = "Kubernetes ends the pod of the master"
_GATHER_S: Final = 5.0
_RETRY_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_PROGRESS_EVERY_S: Final = 30.0
_EXIT_ENDED: Final = 143
_ROLE: Final = "deploy/kubernetes/elasticdl-rbac.yaml"


def main(words: Sequence[str] | None = None) -> int:
    """Run the job to its end; returns the exit code of the pod."""
    try:
        asked = read_arguments(["train", *(sys.argv[1:] if words is None else words)])
        # All flags are given here, those with their defaults too.
        said = {name for name in asked.said if asked.values[name] != _default(name)}
        asked = msgspec.structs.replace(asked, said=frozenset(said))
        check_for_pods(asked)
        return asyncio.run(MasterPod(asked, os.environ).run())
    except (LegatoError, KubernetesRefusal, KubernetesAway) as error:
        hint = f". Apply {_ROLE} in its namespace" if isinstance(error, KubernetesRefusal) else ""
        say(f"{str(error).rstrip('.')}{hint}")
        return 1
    except asyncio.CancelledError:
        return _EXIT_ENDED


def say(told: str) -> None:
    """Write a sentence to the log of the pod; it comes without its period."""
    sys.stdout.write(f"legato: {told.rstrip('.')}.\n")
    sys.stdout.flush()


def _default(name: str) -> Any:
    from legato.compat.elasticdl.flags import FLAGS

    return next(flag.default for flag in FLAGS["train"] if flag.name == name)


class MasterPod:
    """Runs one job; also the observer of its driver.

    Args:
        asked: the flags of the job.
        environment: variables of this container.
    """

    def __init__(self, asked: ParsedCommand, environment: Mapping[str, str]) -> None:
        self._asked = asked
        self._job = populate(make_checked_job(asked), asked.text("populate_env_names"), environment)
        self._address = environment.get(_ADDRESS, "")
        if not self._address:
            raise UsageError(f"Cannot run a master here: {_ADDRESS} is not set. 'elasticdl train' creates its pod.")
        self._api = KubernetesApi(self._job.namespace)
        self._directory = find_directory(asked)
        self._workers = read_workers(asked)
        self._begun = asyncio.Event()
        self._labels: set[asyncio.Task[None]] = set()
        self._label = ""
        self._next_progress = time.monotonic() + _PROGRESS_EVERY_S

    # ------------------------------------------------------------ the driver's observer

    def on_event(self, event: Event) -> None:
        """Write an event to the log."""
        self._begun.set()
        if event.kind == "started":
            self._show("Running")
        mark = "" if event.level == "info" else f"{event.level}: "
        say(f"{mark}{event.reason}" + (f"\n{event.detail}" if event.detail else ""))

    def on_status(self, status: dict[str, Any]) -> None:
        """Write a line about the progress, now and then."""
        self._begun.set()
        now, step = time.monotonic(), status.get("step")
        if step and now >= self._next_progress:
            self._next_progress = now + _PROGRESS_EVERY_S
            of = f" of {status['num_steps']}" if status.get("num_steps") else ""
            say(f"step {step}{of}")

    # ------------------------------------------------------------ the whole run

    async def run(self) -> int:
        """Run the job to its end; returns the exit code of the pod."""
        door = Door(self._address, paths=("/worker", "/client", PATH), is_encrypted=True)
        owner = Owner(await self._find_uid(), self._address)
        self._show("Pending")
        relaunches = not has_switch(self._asked, "disable_relaunch")
        pods = WorkerPods(self._api, self._job, owner, door, say=say, relaunches=relaunches)
        pods_here.append(pods)
        try:
            journal = await asyncio.to_thread(self._directory.read_journal)
            left = await _persist(lambda: self._find_left(pods, journal))
            outcome = await self._drive(door, pods, journal, left)
            if outcome.outcome == _SUCCEEDED:
                self._show("Finished")
            await pods.finish()
        except Exception:
            if self._job.restart_policy == "Never":  # otherwise the next container of this pod uses them
                await pods.finish()
            raise
        finally:
            pods_here.remove(pods)
            await asyncio.gather(*self._labels, return_exceptions=True)
            await pods.close()
            await self._api.close()
        is_asked = outcome.outcome == _STOPPED and _POD_ENDS not in outcome.reason and pods.why_over is None
        if is_asked and self._job.restart_policy == "OnFailure":
            return 0  # with another code, Kubernetes would start the job again that a user has stopped
        return 0 if outcome.outcome == _SUCCEEDED else outcome.exit_code or 1

    async def _find_left(self, pods: WorkerPods, journal: JobJournal | None) -> tuple[str, ...]:
        """Return the machines whose agents wait for a driver, because this pod's container has started again.

        Other pods of an earlier start are deleted: nothing is known of what runs there.
        """
        path = self._directory.path / RECORD
        record = await asyncio.to_thread(read_record, path)
        goes_on = journal is not None and journal.outcome is None and journal.snapshot is not None
        known = record.nodes if record is not None and goes_on else {}
        found = await pods.find(known)
        left = tuple(pod.name for pod in found if pod.name in known and pod.container)
        await pods.remove(pod.name for pod in found if pod.name not in left)
        if not left:
            path.unlink(missing_ok=True)
        return left

    async def _drive(self, door: Door, pods: WorkerPods, journal: JobJournal | None, left: tuple[str, ...]) -> Outcome:
        async with _Beside() as beside:
            beside.add(pods.watch_forever())
            with _stop_on_sigterm(asyncio.current_task()):
                first = left or await beside.wait_for(self._wait_for_pods(pods))
            adopted = journal.spec if journal is not None and left else None
            spec = adopted or self._make_spec(len(first), journal)
            engine = self._make_engine(spec, door, pods, first)
            driver = Driver(
                spec if adopted is None else None,
                engine,
                self._directory,
                observer=self,
                slots=[make_slot(name, 0) for name in first],
                node=name_master(self._job),
                door=door,
            )
            beside.add(self._follow(pods, driver, engine, set() if adopted else set(first)))
            running = asyncio.ensure_future(driver.run())
            with _stop_on_sigterm(running, driver, self._begun):
                return await beside.wait_for(running)

    async def _wait_for_pods(self, pods: WorkerPods) -> tuple[str, ...]:
        """Wait until pods run in which the job can begin, and then a little for the others."""
        deadline = None
        loop = asyncio.get_running_loop()
        while True:
            pods.changed.clear()
            usable = pods.usable
            if len(usable) >= self._workers.minimum:
                deadline = loop.time() + _GATHER_S if deadline is None else deadline
                if len(usable) == self._workers.maximum or not pods.are_coming or loop.time() >= deadline:
                    return usable
            if pods.why_over is not None:
                raise UsageError(f"Cannot run the job: it has no pods. {pods.why_over}")
            await pods.changed.wait()

    async def _follow(self, pods: WorkerPods, driver: Driver, engine: AgentsEngine, assigned: set[str]) -> None:
        """Give the job the slots of the pods that run now, whenever they change."""
        await self._begun.wait()
        while True:
            pods.changed.clear()
            for name, end in pods.take_ended().items():
                engine.confirm_end(name, f"its pod has ended: {end.reason}".rstrip("."), end.seen_at)
            usable = pods.usable
            if set(usable) != assigned and len(usable) >= self._workers.minimum:
                try:
                    driver.assign(
                        SlotsAssigned(tuple(make_slot(name, 0) for name in usable), _describe(assigned, usable))
                    )
                except UsageError as error:
                    say(str(error))
                assigned = set(usable)
            if pods.why_over is not None:
                driver.stop(f"the job has no pods any more: {pods.why_over}", now=True)
                return
            await pods.changed.wait()

    # ------------------------------------------------------------ the job

    def _make_spec(self, num_workers: int, journal: JobJournal | None) -> JobSpec:
        command = read_job_command(self._asked.text("job_command"), self._job.variables)
        environment = {**self._job.variables, **command.variables}
        own, options = take_own_variables(self._asked, environment)
        wanted = Wanted(
            words=(*own, *command.words),
            files=None,
            distributed="elastic",
            max_nodes=self._workers.maximum,
            user="",
            name=self._job.name,
        )
        prepared = ElasticPrograms().prepare(wanted)
        assert prepared.launcher is not None
        if "seed" in options:
            environment["LEGATO_SEED"] = str(options["seed"])
        steps = self._asked.count("checkpoint_steps")
        succeeded = journal is not None and journal.outcome is not None and journal.outcome.outcome == _SUCCEEDED
        return JobSpec(
            name=self._job.name,
            program=(str(launch.__file__), *prepared.program),
            directory=os.path.normpath(Path.cwd() / command.folder),
            environment=prepared.launcher.environment | environment,
            min_workers=min(self._workers.minimum, num_workers),
            max_workers=self._workers.maximum,
            num_workers=num_workers,
            checkpoint_every=f"{steps}steps" if steps else None,
            keep=self._asked.count("keep_checkpoint_max") or 3,
            resume=journal is not None and not succeeded,
            guest=prepared.launcher.guest,
        )

    def _make_engine(self, spec: JobSpec, door: Door, pods: WorkerPods, first: tuple[str, ...]) -> AgentsEngine:
        opening = OpenJob(
            environment=spec.variables,
            directory=spec.directory,
            wished=_find_packages(spec),
            log_max_bytes=spec.log_max_bytes,
            copies_program=False,
            package=str(_PACKAGE),
            has_earlier=spec.resume,
        )
        return AgentsEngine(
            self._directory.path,
            door,
            [NodeSpec(name, 1) for name in first],
            opening,
            log_path=self._directory.log_path,
            checkpoints=self._directory.checkpoints,
            keep=spec.keep,
            results=self._directory.results,
            starter=pods,
            grows=True,
            # Before the workers of the machine count as silent one by one.
            silence_limit_s=min(4.0, 0.8 * spec.heartbeat_limit_s),
            # Workers without an agent end after away_limit_s, and then save.
            lease_s=spec.away_limit_s + spec.stop_limit_s,
        )

    # ------------------------------------------------------------ the master's own pod

    async def _find_uid(self) -> str:
        """Return the uid of the pod of this process."""
        name = name_master(self._job)
        found = await _persist(lambda: self._api.get("pods", name))
        if found is None:
            raise UsageError(f"Cannot run a master here: there is no pod {name} in namespace {self._job.namespace}.")
        return str(found["metadata"]["uid"])

    def _show(self, label: str) -> None:
        """Show the state of the job in the label of this pod, in the background."""
        if label == self._label:
            return
        self._label = label
        task = asyncio.create_task(self._patch_label(label))
        self._labels.add(task)
        task.add_done_callback(self._labels.discard)

    async def _patch_label(self, label: str) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while self._label == label:
            try:
                await self._api.patch("pods", name_master(self._job), {"metadata": {"labels": {"status": label}}})
                return
            except KubernetesRefusal as error:
                say(f"the label status of this pod cannot be set to {label}: {error}")
                return
            except KubernetesAway:
                if asyncio.get_running_loop().time() >= deadline:
                    say(f"the label status of this pod could not be set to {label}: Kubernetes gives no news")
                    return
                await asyncio.sleep(_RETRY_S)


def find_directory(asked: ParsedCommand) -> JobDirectory:
    """Return the directory of a job: below ``--checkpoint_dir``, else in this container, with which it is lost."""
    home = asked.text("checkpoint_dir") or str(Path(tempfile.gettempdir()) / _HOME)
    return JobDirectory.of(asked.text("job_name"), Path(home))


def populate(job: PodsJob, pattern: str, environment: Mapping[str, str]) -> PodsJob:
    """Return a job whose workers get the variables of the master that match a pattern.

    Raises:
        UsageError: the pattern is no regular expression.
    """
    if not pattern:
        return job
    try:
        found = {name: value for name, value in environment.items() if re.fullmatch(pattern, name)}
    except re.error as error:
        raise UsageError(
            f"Cannot read --populate_env_names '{pattern[:200]}': {error}. Give a regular expression."
        ) from None
    return msgspec.structs.replace(
        job, populated={name: found[name] for name in sorted(found) if name not in job.variables}
    )


def _find_packages(spec: JobSpec) -> tuple[str, ...]:
    """Return the packages that the program imports, which are loaded before workers are forked."""
    script, *rest = spec.program[1:]
    files = {f"{rest[0].replace('.', '/')}.py"} if script == "-m" and rest else set()
    name = find_in_files(rest[0], files) if files else script
    return () if name is None else imported_packages(Path(spec.directory, name))


def _describe(before: set[str], usable: Sequence[str]) -> str:
    new = [name for name in usable if name not in before]
    gone = sorted(before.difference(usable))
    told = [f"{', '.join(new)} can be used"] if new else []
    told += [f"{', '.join(gone)} cannot be used any more"] if gone else []
    return " and ".join(told)


async def _persist(ask: Callable[[], Awaitable[T]]) -> T:
    """Return an answer of Kubernetes; while there is none, ask again for a minute. Raises KubernetesAway."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        try:
            return await ask()
        except KubernetesAway as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            say(f"Kubernetes gives no news: {error}. The master tries again")
            await asyncio.sleep(_RETRY_S)


class _Beside:
    """Tasks beside the work of this process, which end with it; and whose errors end it, and so the pod."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Future[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, work: Awaitable[Any]) -> None:
        """Begin something."""
        self._tasks.append(asyncio.ensure_future(work))

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Return the result of some work; raise the error of a task that fails meanwhile."""
        mine = asyncio.ensure_future(work)
        others = list(self._tasks)
        self._tasks.append(mine)
        while not mine.done():
            await asyncio.wait((mine, *others), return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in others if each.done()]:
                task.result()
                others.remove(task)
        return mine.result()


@contextlib.contextmanager
def _stop_on_sigterm(
    running: asyncio.Future[Any] | None, driver: Driver | None = None, begun: asyncio.Event | None = None
) -> Iterator[None]:
    """End a job when Kubernetes ends the pod of its master: with a checkpoint, if it has begun."""

    def end() -> None:
        if driver is not None and begun is not None and begun.is_set():
            driver.stop(_POD_ENDS)
        elif running is not None:
            running.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
