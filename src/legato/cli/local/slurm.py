"""What a job does when Slurm ends it or starts it again: one stop with a checkpoint, an exit code, a requeue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer

from legato.cli.terminal.display import Screen
from legato.cli.terminal.job_view import Ending
from legato.clusters import slurm
from legato.clusters.slurm import EXIT_AGAIN, Allocation, SlurmStarter
from legato.clusters.ssh import Hosts
from legato.core.errors import UsageError
from legato.driver.journal import JobDirectory

if TYPE_CHECKING:
    from legato.engines.agent_node import Starter

_LOCK_LIMIT_S: Final = 180.0  # a file server keeps the locks of a crashed node for about 90 s
_LOOK_EVERY_S: Final = 0.5
_ASK_EVERY_S: Final = 30.0
_TIME_LIMIT: Final = "SIGUSR1"
"""The signal that a user asks for some time before the time limit; Slurm sends SIGTERM by itself."""


def find_again(name: str, machines: Hosts | Allocation | None) -> Hosts | Allocation | None:
    """Return the machines of an orphaned job as they are now.

    Raises:
        UsageError: they are those of another allocation than this process is in.
    """
    if not isinstance(machines, Allocation):
        return machines
    if slurm.is_inside():
        found = slurm.find_allocation(machines.network)
        if found.job == machines.job:
            return found
    raise UsageError(
        f"Cannot take over job '{name}' here: it trains in job {machines.job} of Slurm. Run this command there: srun "
        f"--jobid={machines.number} --overlap --pty legato attach {name}"
    )


def prepare(directory: JobDirectory, allocation: Allocation) -> None:
    """Say where a job trains, and wait until the driver that Slurm has ended has released the job's directory."""
    _say(allocation.describe())
    hint = slurm.find_hint(allocation)
    if hint is not None:
        _say(f"{hint}.")
    if not allocation.num_restarts:
        return
    deadline = time.monotonic() + _LOCK_LIMIT_S
    if directory.is_locked():
        _say(f"waiting until the last driver of job '{directory.path.name}' has ended")
    while directory.is_locked() and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    if _has_lost_files(directory, allocation):
        _say(
            f"Slurm has started job {allocation.job} again, but {directory.path} has nothing of its last run. "
            "If it is on the disk of another node, set LEGATO_HOME to a folder that all nodes share. The job starts "
            "from scratch."
        )


def _has_lost_files(directory: JobDirectory, allocation: Allocation) -> bool:
    return allocation.num_restarts > 0 and directory.read_journal() is None


class SlurmWatch:
    """What Slurm does to a job that trains in an allocation.

    Args:
        allocation: of the job.
        directory: of the job.
        screen: shows messages.

    Attributes:
        on_signal: called with the name of the first signal by which Slurm announces the end.
    """

    def __init__(self, allocation: Allocation, directory: JobDirectory, screen: Screen) -> None:
        self._allocation = allocation
        self._directory = directory
        self._screen = screen
        self._signal: str | None = None
        self._has_lost_files = _has_lost_files(directory, allocation)
        self._private: str | None = None
        self.on_signal: Callable[[str], None] | None = None

    def note_signal(self, name: str) -> None:
        """Note a signal of Slurm, which sends several: to this process, to each step, and again later."""
        if self._signal is None and self.on_signal is not None:
            self._signal = name
            self.on_signal(name)

    def note_private_disk(self, node: str) -> None:
        """Note that a node does not see the job's directory."""
        self._private = node
        self._screen.show_message(
            f"legato: node {node} does not see {self._directory.path}. The job trains, but another node cannot go on "
            "with it later. Set LEGATO_HOME to a folder that all nodes share.",
            problem=True,
        )

    def conclude(self, ending: Ending) -> int:
        """Have Slurm start a job again that its time limit ended. Returns the exit code of this command."""
        if self._signal is None or ending.outcome != "stopped" or ending.exit_code != 0:
            return ending.exit_code
        job, obstacle = self._allocation.job, None
        if self._signal == _TIME_LIMIT:
            obstacle = self._find_obstacle(ending) or slurm.requeue(self._allocation)
            if obstacle is None:
                _say(f"Slurm starts job {job} again, which then goes on with the next step.")
                return EXIT_AGAIN
        elif slurm.is_preempted(self._allocation):
            _say(f"waiting until Slurm ends job {job}: it does not start a preempted job again that has ended before.")
            while slurm.is_preempted(self._allocation):
                time.sleep(_ASK_EVERY_S)
        told = "" if obstacle is None else f"Slurm does not start job {job} again: {obstacle.rstrip('.')}. "
        again = f"legato run --name {self._directory.path.name} …"
        _say(f"{told}To go on in another job of Slurm, submit the script with '{again}'.")
        return EXIT_AGAIN

    def _find_obstacle(self, ending: Ending) -> str | None:
        """Return why Slurm must not start the job again; None if it can."""
        if not self._allocation.is_batch:
            return "no script of sbatch began it"
        if not self._allocation.may_requeue:
            return "it was submitted with --no-requeue, or the cluster does not requeue jobs"
        if self._private is not None:
            return f"node {self._private} does not see the job's directory"
        if self._has_lost_files:
            return "this run did not find the files of its last run, and the next one would not either"
        if (ending.step or 0) <= (ending.from_step or 0):
            return "it has trained no step in this run, and would end in the same way"
        return None


def _say(text: str) -> None:
    typer.echo(f"legato: {text}", err=True)


def make_watch(
    starter: Starter | None, machines: Hosts | Allocation | None, directory: JobDirectory, screen: Screen
) -> SlurmWatch | None:
    """Return what watches Slurm for a job; None: the job does not train in an allocation."""
    if not isinstance(machines, Allocation) or not isinstance(starter, SlurmStarter):
        return None
    watch = SlurmWatch(machines, directory, screen)
    starter.on_signal, starter.on_private_disk = watch.note_signal, watch.note_private_disk
    return watch
