"""Pilots as jobs of Slurm: submits them with ``sbatch``, sees them with ``squeue``, and ends them with ``scancel``.

Works with Slurm from 20.11 on: no JSON, no accounting database. One ``squeue`` shows all pilots.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from legato.clusters.pilots import (
    CLUSTER_LABEL,
    Cluster,
    ClusterAwayError,
    Pilot,
    PilotOrder,
    PilotState,
    Submitted,
)
from legato.clusters.slurm import make_environment
from legato.core.errors import UsageError

SIGNAL_S: Final = 120
"""Slurm signals a pilot so many seconds before its time limit, or up to a minute earlier."""

_COMMAND_LIMIT_S: Final = 60.0
_TIME: Final = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_DAY_S: Final = 86_400
_FORMAT: Final = "%i|%T|%r|%L|%j"  # the name is last: names of other jobs may contain the separator
_LINE: Final = re.compile(r"\s*([\w.+\[\]-]+)\|([^|\s]+)\|([^|]*)\|([^|]*)\|(\S+)\s*")
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_AWAY: Final = (
    "Unable to contact slurm controller",
    "Unable to establish",
    "Connection refused",
    "Communication connection failure",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Slurm backup controller in standby mode",
    "try again later",
    "temporarily unable to accept job",
)
_UNCERTAIN: Final = ("Socket timed out", "Zero Bytes were transmitted")
_RUNNING: Final = frozenset(("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"))
_ENDING: Final = "COMPLETING"
_GONE: Final = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
    )
)
_PREFIX: Final = re.compile(r"^\w+: (error: |fatal: )?(Batch job submission failed: )?")
_NO_REASON: Final = ("None", "")
_OF_SLURM: Final = ("srun:", "slurmstepd:")
_LAST_BYTES: Final = 4096
_CLOCKS_S: Final = 30.0
"""By so much may the clocks of the server and of the shared disk differ."""
_MAX_WORDS: Final = 300


class PilotJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of Slurm that each pilot is.

    Args:
        time: limit, as ``sbatch`` takes it.
        num_slots: of each pilot.
        num_gpus: of each pilot, which it must find; 0: none.
        options: of ``sbatch``, such as ``--partition=gpu``.
        setup: lines of the shell to run first.
        python: with Legato, on the nodes.
        folder: of the nodes' own disks.
        output: folder for the output of pilots, which the nodes see too.
        network: in which the nodes reach one another. None: that of the way to the server.
    """

    time: str
    num_slots: int
    num_gpus: int = 0
    options: tuple[str, ...] = ()
    setup: str = ""
    python: str = sys.executable
    folder: str = "/tmp"  # noqa: S108 -- the pilot makes a folder in it, which must belong to its user
    output: Path
    network: str | None = None


class SlurmCluster(Cluster):
    """Slurm, whose jobs are pilots. They run as the system user of this process.

    Args:
        pool: identifies the pool: letters and digits.
        job: what each pilot is.
        environment: of Slurm's commands.
        now: returns seconds since 1970.

    Raises:
        UsageError: the system user has no name.
    """

    kind: ClassVar = "slurm"
    observe_every_s: ClassVar = 30.0

    def __init__(
        self,
        pool: str,
        job: PilotJob,
        *,
        environment: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("Slurm", pool)
        self._job = job
        self._environment = {
            name: value
            for name, value in make_environment(environment).items()
            if not name.startswith(("SBATCH_", "SQUEUE_", "SCANCEL_"))  # they would be options
        }
        self._now = now
        try:
            self._user = pwd.getpwuid(os.getuid())
        except KeyError:
            raise UsageError(
                f"Cannot use [slurm]: the system user {os.getuid()} has no name here, so Slurm does not know it. Start "
                "the server as a user of Slurm."
            ) from None

    # ------------------------------------------------------------ what there is

    async def observe(self) -> Sequence[Pilot]:
        """Return the pilots that wait or run, and those that have ended a few minutes ago."""
        code, told, errors = await self._call(
            "squeue", "--all", "--noheader", "--states=all", f"--user={self._user.pw_name}", f"--format={_FORMAT}"
        )
        if code:
            raise ClusterAwayError(f"Slurm does not say which machines it gives: {_shorten(errors)}.")
        now = self._now()
        found: dict[str, Pilot] = {}
        for line in told.splitlines():
            pilot = self._read(line, now)
            if pilot is None:
                continue
            # Slurm shows an ended job for some minutes, and its name may be that of a new one.
            before = found.get(pilot.node)
            if before is None or before.state is PilotState.GONE or pilot.state is not PilotState.GONE:
                found[pilot.node] = pilot
        return list(found.values())

    def _read(self, line: str, now: float) -> Pilot | None:
        """Return the pilot on a line of ``squeue``; None: it is another job of the user.

        Raises:
            ClusterAwayError: it is a pilot, and the line cannot be read.
        """
        prefix = f"legato-{self.pool}."
        if f"|{prefix}" not in line:
            return None
        found = _LINE.fullmatch(line)
        if found is None or not found[5].startswith(prefix):
            raise ClusterAwayError(f"Slurm shows a machine in a line that Legato cannot read: {line.strip()[:300]!r}.")
        number, state, reason, left, name = found.groups()
        reason = reason.strip("()")
        if state in _RUNNING:
            where = PilotState.RUNNING
            reason = "" if state == "RUNNING" else state
        elif state == _ENDING or state in _GONE:
            where = PilotState.ENDING if state == _ENDING else PilotState.GONE
            reason = state if reason in _NO_REASON or reason == state else f"{state}, {reason}"
        else:  # also a state of a later release: only a state that is known to be an end is one
            where = PilotState.WAITING
            reason = reason if state == "PENDING" else state
        left_s = read_time(left) if where is PilotState.RUNNING else None
        return Pilot(
            id=number,
            node=name.removeprefix(prefix),
            state=where,
            reason=None if reason in _NO_REASON else reason,
            ends_at=None if left_s is None else now + left_s,
        )

    # ------------------------------------------------------------ start and end

    async def start(self, orders: Sequence[PilotOrder]) -> Sequence[Submitted]:
        """Submit a job for each order. After a refusal, or a command that does not answer, no other is tried."""
        try:
            self._job.output.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            why = f"the server cannot make {self._job.output}, the folder for their output: {error.strerror}"
            return [Submitted(node=order.node, refusal=why) for order in orders]
        done: list[Submitted] = []
        refusal: str | None = None
        for order in orders:
            if refusal is not None:
                done.append(Submitted(node=order.node, refusal=refusal))
                continue
            try:
                code, told, errors = await self._call(*self._make_command(order.node), given=self.make_script(order))
            except _SilentError:
                return [*done, Submitted(node=order.node)]
            except ClusterAwayError:
                if not done:
                    raise
                return done
            number = told.strip().partition(";")[0]
            if code == 0 and number.isdigit():
                pilot = Pilot(id=number, node=order.node, state=PilotState.WAITING)
                done.append(Submitted(node=order.node, pilot=pilot))
            elif any(text in errors for text in _UNCERTAIN):
                return [*done, Submitted(node=order.node)]
            else:
                refusal = _shorten(errors) or f"sbatch ended with code {code}"
                if not done and any(text in errors for text in _AWAY):
                    raise ClusterAwayError(f"Slurm takes no jobs: {refusal}.")
                done.append(Submitted(node=order.node, refusal=refusal))
        return done

    def _make_command(self, node: str) -> list[str]:
        command = ["sbatch", "--parsable", f"--job-name=legato-{self.pool}.{node}", "--nodes=1", "--ntasks=1"]
        command += [f"--time={self._job.time}", f"--signal=B:USR1@{SIGNAL_S}", "--no-requeue", "--export=NIL"]
        return [
            *command,
            f"--output={self._find_output(node)}",
            "--open-mode=truncate",
            "--chdir=/",
            *self._job.options,
        ]

    def _find_output(self, node: str) -> Path:
        return self._job.output / f"{node}.log"

    def make_script(self, order: PilotOrder) -> str:
        """Return the script of a pilot. It has the join token, and goes through standard input.

        The agent runs in a step, because Slurm signals only steps when it preempts a job.
        """
        job, home = self._job, f"{self._job.folder}/legato-{self._user.pw_uid}-{self.pool}"
        agent = [job.python, "-P", "-m", "legato.cli", "agent", "--pilot", "--connect", order.url, "--name", order.node]
        agent += ["--token-file", "-", "--slots", str(job.num_slots), "--label", "none", "--home", home]
        agent += ["--gpus", str(job.num_gpus)] if job.num_gpus else []
        agent += [] if job.network is None else ["--network", job.network]
        step = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none"]
        step += ["--export=ALL", "--unbuffered"]
        variables = {"PATH": _PATH, "HOME": self._user.pw_dir, "USER": self._user.pw_name}
        variables |= {name: self._environment[name] for name in ("SLURM_CONF",) if name in self._environment}
        lines = [
            "#!/bin/bash",
            f"# A machine of Legato: {CLUSTER_LABEL}={self.kind}, node {order.node}",
            "umask 077",
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            f"folder={shlex.quote(home)}",
            'mkdir -m 700 -- "$folder" 2>/dev/null',
            'if [ -L "$folder" ] || ! [ -d "$folder" ] || ! [ -O "$folder" ]; then',
            '    echo "Cannot use $folder: it is no folder of this user. Set folder in [slurm] to another one." >&2',
            "    exit 1",
            "fi",
            *([job.setup] if job.setup else []),
            f"exec {shlex.join([*step, *agent])} <<'LEGATO_TOKEN'",
            order.token,
            "LEGATO_TOKEN",
        ]
        return "\n".join((*lines, ""))

    async def end(self, pilots: Sequence[Pilot], *, force: bool) -> None:
        """Cancel jobs, or signal their agents as before the time limit.

        A pilot that waited when it was seen is only cancelled if it still does: meanwhile it may run and train.
        """
        waiting = [pilot.id for pilot in pilots if pilot.state is PilotState.WAITING]
        others = [pilot.id for pilot in pilots if pilot.state is not PilotState.WAITING]
        how = [] if force else ["--signal=USR1", "--batch"]
        for numbers, options in ((waiting, ["--state=PENDING"]), (others, how)):
            if not numbers:
                continue
            code, _, errors = await self._call("scancel", *options, *numbers)
            if code and any(text in errors for text in _AWAY):
                raise ClusterAwayError(f"Slurm ends no jobs: {_shorten(errors)}.")

    def explain_failure(self, node: str) -> str:
        """Return where the output of a pilot is."""
        return f"Its output is in {self._find_output(node)}"

    def read_last_words(self, node: str, since: float) -> str:
        """Return the last line of the output of a pilot; lines of Slurm only if there are no others."""
        try:
            with self._find_output(node).open("rb") as file:
                if os.fstat(file.fileno()).st_mtime < since - _CLOCKS_S:
                    return ""
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
                lines = [line.strip() for line in file.read(_LAST_BYTES).decode(errors="replace").splitlines()]
        except OSError:
            return ""
        lines = [line for line in lines if line]
        own = [line for line in lines if not line.startswith(_OF_SLURM)]
        return next(reversed(own or lines), "")[:_MAX_WORDS]

    # ------------------------------------------------------------ inside

    async def _call(self, *command: str, given: str = "") -> tuple[int, str, str]:
        """Run a command; returns its exit code, its output and its errors. Raises ClusterAwayError if it cannot."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ClusterAwayError(f"Cannot run {command[0]}: {error.strerror}. Is Slurm installed here?") from None
        try:
            async with asyncio.timeout(_COMMAND_LIMIT_S):
                told, errors = await process.communicate(given.encode())
        except TimeoutError:
            raise _SilentError(f"{command[0]} did not answer within {_COMMAND_LIMIT_S:g} s.") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, told.decode(errors="replace"), errors.decode(errors="replace")


class _SilentError(ClusterAwayError):
    """A command of Slurm did not end, so what it did is unknown."""


def _shorten(errors: str) -> str:
    """Return what a command of Slurm said last, without the name of the command.

    >>> _shorten("sbatch: error: Batch job submission failed: Invalid qos specification")
    'Invalid qos specification'
    """
    told = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    return _PREFIX.sub("", told).strip().rstrip(".")[:300]


def read_time(text: str) -> float | None:
    """Return a time of Slurm in seconds; None: it is none, or no limit.

    >>> read_time("90"), read_time("1:30"), read_time("8:00:00"), read_time("1-12"), read_time("UNLIMITED")
    (5400.0, 90.0, 28800.0, 129600.0, None)
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    first, *rest = (int(part or 0) for part in found.groups())
    if found[1] is not None:
        hours, minutes, seconds = rest
    elif found[3] is None:
        hours, minutes, seconds = 0, rest[0], 0
    elif found[4] is None:
        hours, minutes, seconds = 0, rest[0], rest[1]
    else:
        hours, minutes, seconds = rest
    return float(first * _DAY_S + hours * 3600 + minutes * 60 + seconds)
