"""Finds the allocation of Slurm in which this process runs, and starts the agents of a job on its nodes by ``srun``.

There is one step per node, which ends with its agent. Slurm sends its signals to the command of a step, which passes
them on to the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from legato.agent.starting import SIGNAL, Facts, find_address, hash_file
from legato.clusters.base import AgentConnection, CommandStarter
from legato.core.errors import LegatoError, UsageError
from legato.engines.agents import PATH
from legato.system.door import LOOPBACK, Door
from legato.system.tls import is_loopback

EXIT_AGAIN: Final = 75
"""Of a command that Slurm ended: the job has a checkpoint and is not finished (EX_TEMPFAIL of sysexits.h)."""

_COMMAND_LIMIT_S: Final = 60.0
_END_LIMIT_S: Final = 5.0
_MAX_NAMED: Final = 8
_FIELD: Final = re.compile(r"(?:^|\s)(\w+)=(\S*)")
_RESOURCES: Final = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")
_TASKS: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_CONSEQUENCES: Final = re.compile(r"task \d+: Exited|Terminating job step|Job step aborted|Force Terminated")
# Other variables would be options of the inner srun: those of this job, such as its number of tasks.
_KEPT: Final = ("CONF", "JWT", "WORKING_CLUSTER", "CLUSTER_NAME", "ARRAY_", "SUBMIT_", "RESTART_COUNT")


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A job of Slurm, and its nodes.

    Args:
        job: as Slurm's commands name it: ``42``, or ``42_7`` for a task of an array.
        number: its own number, also of a task of an array.
        node_list: its nodes as Slurm writes them, such as ``gpu-[1-4]``.
        slots: node → number of its slots: its GPUs, or its tasks if the job has no GPU.
        has_gpus: the slots are GPUs.
        is_batch: a script of ``sbatch`` began it.
        may_requeue: Slurm may start it again.
        num_restarts: how often Slurm has done so.
        network: in which workers of different nodes connect; None: by the names of the nodes.
    """

    job: str
    number: str
    node_list: str
    slots: dict[str, int]
    has_gpus: bool = False
    is_batch: bool = False
    may_requeue: bool = False
    num_restarts: int = 0
    network: str | None = None

    def describe(self) -> str:
        """Return the job, its nodes and their slots in words.

        >>> Allocation(job="42", number="42", node_list="a,b", slots={"a": 4, "b": 4}, has_gpus=True).describe()
        'job 42 of Slurm: nodes a, b, 4 GPUs each'
        """
        kind = "GPU" if self.has_gpus else "CPU slot"
        same = len(set(self.slots.values())) == 1
        named = [node if same else f"{node} ({_count(n, kind)})" for node, n in self.slots.items()]
        if len(named) > _MAX_NAMED:
            named = [self.node_list, f"{_count(sum(self.slots.values()), kind)} in total"]
        elif same:
            named.append(_count(next(iter(self.slots.values())), kind) + (" each" if len(named) > 1 else ""))
        return f"job {self.job} of Slurm: node{'' if len(self.slots) == 1 else 's'} {', '.join(named)}"


def is_inside(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process runs inside an allocation."""
    return bool(environment.get("SLURM_JOB_ID"))


def find_allocation(network: str | None = None, environment: Mapping[str, str] = os.environ) -> Allocation:
    """Return the allocation in which this process runs.

    Args:
        network: in which workers of different nodes connect; None: by the names of the nodes.
        environment: of this process.

    Raises:
        UsageError: there is none, or Legato cannot use it.
        LegatoError: Slurm does not answer.
    """
    number = environment.get("SLURM_JOB_ID")
    if not number:
        raise UsageError(
            "Cannot use --slurm: this is no allocation of Slurm (SLURM_JOB_ID is not set). Submit a script with "
            "sbatch, or run salloc first."
        )
    _check_step(number, environment)
    array = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    job = "_".join(part for part in array if part) if all(array) else number
    line, fields = _show(job, number)
    nodes = _expand(fields.get("NodeList", ""))
    gpus = {
        node: sum(map(int, _GPUS.findall(granted)))
        for group, granted in _RESOURCES.findall(line)
        for node in _expand(group)
    }
    gpus = {node: gpus[node] for node in nodes if gpus.get(node)}
    slots = gpus or _find_tasks(nodes, environment)
    if not slots:
        raise UsageError(f"Cannot use job {job} of Slurm: it has no nodes. scontrol says: {line[:500]}")
    return Allocation(
        job=job,
        number=number,
        node_list=fields["NodeList"],
        slots=slots,
        has_gpus=bool(gpus),
        is_batch=fields.get("BatchFlag") == "1",
        may_requeue=fields.get("Requeue") == "1",
        num_restarts=int(environment.get("SLURM_RESTART_COUNT") or 0),
        network=network,
    )


def _show(job: str, number: str) -> tuple[str, dict[str, str]]:
    """Return what Slurm says of a job: the whole line, and its fields. Raises LegatoError if it says nothing."""
    told = _ask("--details", "--oneliner", "show", "job", job)
    line = next((line for line in told.splitlines() if f"{line} ".startswith(f"JobId={number} ")), None)
    if line is None:
        raise LegatoError(f"Cannot use job {job} of Slurm: scontrol does not show it: {told.strip()[:500]}")
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        fields.setdefault(name, value)  # a comment of the user, which comes later, replaces none
    return line, fields


def is_preempted(allocation: Allocation) -> bool:
    """Return whether Slurm is about to take the nodes of a running job for another one; False if it does not say so."""
    try:
        _, fields = _show(allocation.job, allocation.number)
    except LegatoError:
        return False
    return fields.get("JobState") == "RUNNING" and fields.get("PreemptTime", "None") not in ("None", "Unknown")


def _check_step(number: str, environment: Mapping[str, str]) -> None:
    """Raise UsageError if Legato cannot use this kind of job or step."""
    if "SLURM_HET_SIZE" in environment:
        raise UsageError(
            f"Cannot use job {number} of Slurm: it is heterogeneous. Submit it without 'hetjob', or use --no-slurm."
        )
    if int(environment.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        raise UsageError(
            f"Cannot run in a step of {environment['SLURM_STEP_NUM_TASKS']} tasks: each would train on its own. Call "
            "'legato run' once in the script, without srun or mpirun; it starts the workers on all nodes itself."
        )


def _find_tasks(nodes: Sequence[str], environment: Mapping[str, str]) -> dict[str, int]:
    """Return node → number of its tasks, which `sbatch --ntasks-per-node` sets. Without the number it is 1."""
    tasks = read_tasks(environment.get("SLURM_TASKS_PER_NODE", ""))
    # The variable counts the nodes with which the job began; some may have failed since.
    first = _expand(environment.get("SLURM_JOB_NODELIST", "")) if len(set(tasks)) > 1 else nodes
    known = dict(zip(first, tasks, strict=False))
    return {node: known.get(node, 1) for node in nodes}


def read_tasks(text: str) -> list[int]:
    """Return the number of tasks of each node, as Slurm writes them in SLURM_TASKS_PER_NODE.

    >>> read_tasks("2(x3),1")
    [2, 2, 2, 1]
    """
    return [int(number) for number, times in _TASKS.findall(text) for _ in range(int(times or 1))]


def find_hint(allocation: Allocation, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what keeps Slurm's signals from this process, and what to do; None: they come.

    Slurm sends them to the batch script. A shell that waits for this process would be killed by them, and the job with
    it.
    """
    if not allocation.is_batch or "SLURM_STEP_ID" in environment:
        return None
    try:
        parent = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    except OSError:
        return None
    if parent != "slurm_script":
        return None
    return (
        "the batch script waits for this command, so Slurm's signals end the script, and the job without a checkpoint. "
        "Write 'exec legato run …' as its last line, unless it passes SIGUSR1 and SIGTERM on"
    )


def find_own_address(allocation: Allocation, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of this machine at which the nodes of an allocation reach it.

    Raises:
        UsageError: there is none.
    """
    if allocation.network is not None:
        return find_address(allocation.network, None)
    own = environment.get("SLURMD_NODENAME", "")
    others = [node for node in allocation.slots if node != own]
    unknown = []
    for node in [*others, own] if own else others:
        try:
            found = find_address(str(socket.getaddrinfo(node, None)[0][4][0]), None, is_inside=False)
        except (OSError, UsageError):
            unknown.append(node)
            continue
        if not is_loopback(found):
            return found
    if not others:
        return LOOPBACK
    told = f"this machine does not know the name {unknown[0]}" if unknown else "their names are loopback addresses here"
    raise UsageError(
        f"Cannot find the network of the nodes of job {allocation.job}: {told}. Name it, such as --network 10.0.0.0/24."
    )


def requeue(allocation: Allocation) -> str | None:
    """Have Slurm start a job again. Returns why it does not, None if it does."""
    try:
        _ask("requeue", allocation.job)
    except LegatoError as error:
        return str(error)
    return None


def _expand(node_list: str) -> list[str]:
    """Return the names in a list of nodes."""
    if not re.search(r"[\[,]", node_list):
        return [] if node_list in ("", "(null)") else [node_list]
    return _ask("show", "hostnames", node_list).split()


def _ask(*words: str) -> str:
    """Return the output of ``scontrol``. Raises LegatoError if it fails."""
    told = f"Cannot ask Slurm: 'scontrol {' '.join(words)}'"
    try:
        done = subprocess.run(
            ["scontrol", *words],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_LIMIT_S,
        )
    except FileNotFoundError:
        raise LegatoError(f"{told} cannot be run: there is no program 'scontrol' in PATH.") from None
    except subprocess.TimeoutExpired:
        raise LegatoError(f"{told} did not answer within {_COMMAND_LIMIT_S:g} s.") from None
    if done.returncode:
        raise LegatoError(f"{told} failed: {done.stderr.strip()[:500]}")
    return done.stdout


def _count(number: int, kind: str) -> str:
    return f"{number} {kind}{'' if number == 1 else 's'}"


def _ignore(_: str) -> None:
    """Take a report that nothing waits for."""


class SlurmStarter(CommandStarter):
    """Makes the agents of a job exist on the nodes of an allocation.

    Args:
        allocation: the nodes.
        job: name of the job.
        door: of the driver.
        address: of the door, which the nodes reach.
        python: the interpreter of the workers, at the same path on all nodes; None: that of this process.
        shown: a file in the job's directory. A node that does not see it does not share the directory.

    Attributes:
        on_signal: called with the name of a signal that Slurm has sent to a step.
        on_private_disk: called with the first node that does not see ``shown``.
    """

    permanent: ClassVar = ("Requested node configuration is not available",)  # the node is not in the allocation
    max_retry_s: ClassVar = 60.0  # each try asks Slurm's controller

    def __init__(
        self, allocation: Allocation, job: str, door: Door, address: str, python: str | None, shown: Path
    ) -> None:
        super().__init__(allocation.slots, job, door)
        self._allocation = allocation
        self._address = address
        self._python = python
        self._sees = ["--sees", str(shown), hash_file(shown)]
        self._has_private_disk = False
        self.on_signal: Callable[[str], None] = _ignore
        self.on_private_disk: Callable[[str], None] = _ignore

    def connect(self, node: str) -> AgentConnection:
        """Return a new step of a node, not started yet."""
        allocation = self._allocation
        command = ["srun", f"--jobid={allocation.number}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
        # The step shares the CPUs, the memory and the GPUs of the node with other steps.
        command += ["--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--export=ALL", "--unbuffered"]
        command += [sys.executable, "-m", "legato.agent.starting", "--step", "--toward", self._address]
        command += self.list_again(node)
        command += [] if self._python is None else ["--python", self._python]
        command += [] if allocation.network is None else ["--network", allocation.network]
        # The variable chooses the devices, for example the CPU.
        gpus = allocation.slots[node] if allocation.has_gpus and "LEGATO_DEVICE" not in os.environ else 0
        command += ["--gpus", str(gpus), *self._sees]
        return _Step(command, self._door.url(PATH), self.on_signal)

    async def check(self, node: str, facts: Facts) -> None:
        """Raise UnfitError if a node cannot train with the others; report one that does not share the directory."""
        await super().check(node, facts)
        if not facts.sees_file and not self._has_private_disk:
            self._has_private_disk = True
            self.on_private_disk(node)


def make_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``srun`` inside an allocation: without those that are its options.

    >>> make_environment({"HOME": "/root", "SLURM_NTASKS": "8", "SLURM_ARRAY_TASK_ID": "3"})
    {'HOME': '/root', 'SLURM_ARRAY_TASK_ID': '3'}
    """
    kept = tuple(f"SLURM_{name}" for name in _KEPT)
    return {
        name: value for name, value in environment.items() if not name.startswith("SLURM_") or name.startswith(kept)
    }


class _Step(AgentConnection):
    """One step of Slurm, on one node."""

    def __init__(self, command: Sequence[str], url: str, on_signal: Callable[[str], None]) -> None:
        super().__init__(command, make_environment(os.environ))
        self._url = url
        self._on_signal = on_signal

    async def find_urls(self) -> tuple[str, ...]:
        """Return the URL at which the node reaches the driver."""
        return (self._url,)

    async def close(self) -> None:
        """Let the step end by itself for a moment, because its agent deletes its files at the end; then kill srun."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_LIMIT_S):
                    await self._read_rest()
        await super().close()

    def take_line(self, line: str) -> None:
        """Take a line of the step; one of them reports a signal."""
        if line.startswith(SIGNAL):
            self._on_signal(line.removeprefix(SIGNAL)[:20])
        elif not (self._lines and _CONSEQUENCES.search(line)):
            super().take_line(line)

    def explain(self, code: int, last: str) -> str:
        """Return why the step ended, in Slurm's words, and what to do."""
        self.is_over = code == 0
        last = last.removeprefix("srun: ").removeprefix("error: ").rstrip(".")
        told = f"Slurm runs no step there: {last or f'srun ended with code {code}'}"
        if "No such file" in last or "No module named" in last:
            told += f". It has no Legato at {sys.executable}: install Legato at the same path on all nodes"
        return told
