"""The plugin of a job of ElasticDL: hands out tasks in the driver's process, and stores them for the next driver.

`StateMachine` has its state, and `Service` its protocol; this module stores the commands and wakes waiting workers.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from legato.compat.elasticdl.command_log import CommandLog
from legato.compat.elasticdl.commands import (
    Command,
    Forget,
    Get,
    Notify,
    Reach,
    Reopen,
    Report,
    SetWorkers,
    StateMachine,
)
from legato.compat.elasticdl.peers import Pods
from legato.compat.elasticdl.service import Service, address_of
from legato.compat.elasticdl.stragglers import Stragglers
from legato.compat.elasticdl.task_types import DEFAULT_NUM_MINIBATCHES, Task, TaskKind
from legato.compat.elasticdl.tasks import Reported
from legato.core.errors import UsageError
from legato.driver.plugin import Host

_NOTED_FAILURES: Final = (1, 3, 10, 100, 1000)


pods_here: Final[list[Pods]] = []
"""The pods of the job of this process, if that is a master on Kubernetes; else empty."""


def make_guest(host: Host) -> Master:
    """Return the plugin of a job; `Master` describes its options."""
    return Master(host, pods_here[0] if pods_here else None)


class Master:
    """The plugin that hands out the tasks of a job.

    Options: ``num_minibatches_per_task`` for data sets that do not say, 8 if it is missing; ``num_workers`` that
    programs see as `WORKER_NUM`, the job's maximum if it is missing; ``seed`` of all orders, 0 if it is missing.

    Args:
        host: the driver.
        pods: of a job on Kubernetes. None: the workers run on this machine.

    Raises:
        UsageError: an option is not a number.
    """

    def __init__(self, host: Host, pods: Pods | None = None) -> None:
        self._host = host
        self._pods = pods
        self._num_minibatches = self._read_option("num_minibatches_per_task", DEFAULT_NUM_MINIBATCHES, at_least=1)
        self._num_workers = self._read_option("num_workers", host.spec.max_workers, at_least=1)
        self._seed = self._read_option("seed", 0, at_least=0)
        self._command_log = CommandLog(host.directory / "tasks.jsonl")
        self._service = Service(self, host.uid, pods)
        self._stragglers = Stragglers(host.give_up)
        self._changed = asyncio.Event()
        self._address = ""
        self._is_left = False
        self._unknown_workers: set[int] = set()
        self.machine: StateMachine

    # ------------------------------------------------------------ for the driver

    async def open(self) -> None:
        """Read the log of an earlier driver's plugin, and listen on the same port."""
        head, commands = self._command_log.read()
        self.machine = StateMachine(seed=self._seed, num_minibatches=self._num_minibatches, state=head.state)
        for command in commands:
            self.machine.repeat(command)
        if head.port:
            self.machine.carry_out(Reopen())
        port = await self._service.listen(head.port or (0 if self._pods is None else self._pods.port))
        if head.port not in (0, port):
            problem = f"port {head.port} is in use: the plugin hands tasks out on port {port} now"
            self._host.tell(f"{problem}, and only workers that start from now on find it", "warning")
        self._address = f"{'127.0.0.1' if self._pods is None else self._pods.address}:{port}"
        self._command_log.begin(port, self.machine)
        self._stragglers.follow(self.machine.syncs)
        self._report_work(None)

    def variables_of(self, worker: int) -> dict[str, str]:
        """Return the environment variables that programs of ElasticDL read; pods have some of them already."""
        variables = {
            "MASTER_ADDR": self._address,
            "WORKER_NUM": str(self._num_workers),
            "WORKER_ID": str(worker),
        }
        if self._pods is None:
            variables |= {
                "RELAUNCHED_POD": "true" if worker >= self._host.spec.num_workers else "false",
                "MY_POD_IP": address_of(worker),
            }
        return variables

    def note_workers(self, workers: frozenset[int]) -> None:
        """Take back the tasks of workers that are gone."""
        self.carry_out(SetWorkers(tuple(sorted(workers))))

    def describe_left(self) -> str | None:
        """Return a text about the data sets with unfinished tasks."""
        left = self.machine.tasks.describe_left()
        if left is None:
            return None
        return (
            f"not all tasks were reported as done: data set {left}. Their records may not have been trained: the job "
            "ended before it, the program left a loop early, its loader threw an incomplete batch away, or "
            "report_batch_done was not called for each batch"
        )

    async def close(self) -> None:
        """Stop listening."""
        self._stragglers.close()
        await self._service.close()
        self._command_log.close()

    # ------------------------------------------------------------ for the service

    def carry_out(self, command: Command) -> Any:
        """Carry out a command that changes the state, log it, and wake waiting requests.

        Raises:
            DataError: the command is invalid.
        """
        result = self.machine.carry_out(command)
        self.note(command)
        if isinstance(command, Report):
            self._note_report(command, result)
        if isinstance(command, Reach | Notify | Forget | SetWorkers):
            self._stragglers.follow(self.machine.syncs)
        return result

    def note(self, command: Command) -> None:
        """Log a command that was carried out, and wake waiting requests."""
        self._command_log.note(command, self.machine)
        self._changed.set()
        self._changed = asyncio.Event()
        self._report_work(None)

    async def get(self, command: Get, *, waits: bool, names_records: bool) -> Task | TaskKind:
        """Hand out a task.

        Args:
            command: the request of a worker.
            waits: wait while other workers have the last tasks.
            names_records: False: the worker computes itself which records of a shuffled data set are in the task.
        """
        while True:
            answer = self.machine.get(command, names_records=names_records)
            if isinstance(answer, Task):
                self.note(command)
                self._host.note_taken_up(command.worker)
                return answer
            self._warn_of_unknown_worker(command.worker)
            if not waits or answer is not TaskKind.WAIT:
                return answer
            await self._changed.wait()

    def is_there(self, worker: int) -> bool:
        """Return whether a worker belongs to this job and has not ended."""
        return worker in self.machine.tasks.workers

    def find_worker(self, address: str) -> int | None:
        """Return the worker that received this address; None if there is none."""
        return next((worker for worker in self.machine.tasks.workers if self.address_of(worker) == address), None)

    def address_of(self, worker: int) -> str:
        """Return the address that identifies a worker; empty if it has none."""
        if self._pods is None:
            return address_of(worker)
        slot = self._host.slot_of(worker)
        return (self._pods.address_of(slot) or "") if slot is not None else ""

    # ------------------------------------------------------------ messages

    def _note_report(self, command: Report, reported: Reported) -> None:
        if reported.worker is None:
            return
        if command.error and reported.num_failures in _NOTED_FAILURES:
            failure = f"task {command.number} of data set '{reported.dataset}' failed in worker {reported.worker}"
            again = f" for the {reported.num_failures}. time" if reported.num_failures > 1 else ""
            self._host.tell(f"{failure}{again} and is handed out again: {command.error[:500]}", "warning")
        elif not command.error:
            self._report_work(reported.worker)

    def _report_work(self, by: int | None) -> None:
        self._host.note_work(is_left=self.machine.tasks.is_work_left, by=by)

    def _warn_of_unknown_worker(self, worker: int) -> None:
        if not self.is_there(worker) and worker not in self._unknown_workers:
            self._unknown_workers.add(worker)
            self._host.tell(
                f"a client asks for tasks as worker {worker}, which does not run: it gets no tasks", "warning"
            )

    def _read_option(self, name: str, default: int, *, at_least: int) -> int:
        guest = self._host.spec.guest
        said = guest.options.get(name, str(default)) if guest is not None else str(default)
        if not said.isascii() or not said.isdigit() or int(said) < at_least:
            raise UsageError(
                f"Cannot run job '{self._host.spec.name}': {name}={said} is not a whole number of at least {at_least}."
            )
        return int(said)
