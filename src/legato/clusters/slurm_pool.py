"""Pilots as jobs of Slurm: submits them with ``sbatch``, sees them with ``squeue``, and ends them with ``scancel``.

Works with Slurm from 20.11 on: no JSON, no accounting database. One ``squeue`` shows all pilots. They run as the system
user of the server; or, if each user has pilots of their own, ``sbatch`` and ``scancel`` run as that user, so that Slurm
queues, limits and accounts them as any job of this user.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import shlex
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from legato.clusters.commands import Done, SilentError, find_account, run_command
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
from legato.core.errors import LegatoError, UsageError
from legato.core.job_user import JobUser
from legato.engines.job_users import look_up_user
from legato.system.plain_files import make_folder_for

_log = logging.getLogger(__name__)

SIGNAL_S: Final = 120
"""Slurm signals a pilot so many seconds before its time limit, or up to a minute earlier."""

_COMMAND_LIMIT_S: Final = 60.0
_USERS_LIMIT_S: Final = 20.0
"""Of all commands at one time that run as one other user, whose other processes may stop them."""
_LAST_TRY_S: Final = 10.0
"""With less time left, no further pilot is submitted for a user now."""
_MAX_USERS: Final = 16
"""The commands of so many users run at once."""
_MAX_BYTES: Final = 2**27
"""Of what Slurm says: half a million jobs."""
_USERS_MAX_BYTES: Final = 2**16
"""Of what a command says that runs as another user, whose other processes may write for it."""
_PASSED: Final = ("PATH", "SLURM_CONF")
_PASS_THROUGH: Final = 0o711
_TIME: Final = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_DAY_S: Final = 86_400
_FORMAT: Final = "%U|%i|%T|%r|%L|%j"  # the name is last: names of other jobs may contain anything
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_ID: Final = r"[^|\s]+"  # of an array: 77_[1,3%2]
_LINE: Final = re.compile(rf"(\d+)\|({_ID})\|([^|\s]+)\|([^|]*)\|([^|]*)\|(\S+)\s*")
_OTHER_LINE: Final = re.compile(rf"\d+\|{_ID}\|[A-Z_]+\|[^|]*\|(?:[\d:-]+|N/A|[A-Z_]+)\|.*")
_ODD_LINE: Final = re.compile(rf"(\d+)\|({_ID})\|([^|\s]+)\|(.*)\|([^|]*)\|(.*)")
"""With any reason: text of a user may be in it."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_FIND_HOME: Final = (
    # Looks once: another user could put something else in its place between two looks.
    """is_own() { [ "$(LC_ALL=C stat -c '%u %F' -- "$1" 2>/dev/null)" = "$EUID directory" ]; }""",
    'mkdir -m 700 -- "$legato_home" 2>/dev/null',
    'if ! is_own "$legato_home"; then  # another user may have taken the name',
    '    for other in "$legato_home".*; do is_own "$other" && break; done',
    '    is_own "$other" || other=$(mktemp -d -- "$legato_home.XXXXXXXX") || {',
    '        echo "Cannot use $legato_home: this user can make no folder there. Set folder in [slurm] to another." >&2',
    "        exit 1",
    "    }",
    "    legato_home=$other",
    "fi",
)
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
        output: folder for the output of pilots, which the nodes see too. Each user has a folder in it, if pilots run as
            users of their own.
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
    """Slurm, whose jobs are pilots.

    Args:
        pool: identifies the pool: letters and digits.
        job: what each pilot is.
        has_users: orders name the system users as whom pilots run, and pilots of all users are shown. False: they run
            as the system user of this process.
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
        has_users: bool = False,
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
        self._has_users = has_users
        self._turns = asyncio.Semaphore(_MAX_USERS)
        own = look_up_user(os.getuid())
        if own is None:
            raise UsageError(
                f"Cannot use [slurm]: the system user {os.getuid()} has no name here, so Slurm does not know it. Start "
                "the server as a user of Slurm."
            )
        self._own = own

    # ------------------------------------------------------------ what there is

    async def observe(self) -> Sequence[Pilot]:
        """Return the pilots that wait or run, and those that have ended a few minutes ago."""
        whose = [] if self._has_users else [f"--user={self._own.name}"]
        # The name of a job may have lines of its own. Only Slurm's lines begin with this mark: it is in a variable,
        # which other users cannot read.
        mark = f"{secrets.token_hex(16)}|"
        code, told, errors = await run_command(
            ["squeue", "--all", "--noheader", "--states=all", *whose],
            {**self._environment, "SQUEUE_FORMAT": f"{mark}{_FORMAT}"},
            limit_s=_COMMAND_LIMIT_S,
            max_bytes=_MAX_BYTES,
        )
        if code:
            raise ClusterAwayError(f"Slurm does not say which machines it gives: {_shorten(errors)}.")
        now = self._now()
        found: dict[tuple[str, int | None], Pilot] = {}
        for line in told.split("\n"):
            pilot = self._read(line.removeprefix(mark), now) if line.startswith(mark) else None
            if pilot is None:
                continue
            # Slurm shows an ended job for some minutes, and its name may be that of a new one.
            key = pilot.node, pilot.uid
            before = found.get(key)
            if before is None or before.state is PilotState.GONE or pilot.state is not PilotState.GONE:
                found[key] = pilot
        return list(found.values())

    def _read(self, line: str, now: float) -> Pilot | None:
        """Return the pilot on a line of ``squeue``; None: it is another job.

        Raises:
            ClusterAwayError: it is a pilot, and the line cannot be read. If each user has pilots, nothing that a user
                can write leads to this.
        """
        prefix = f"legato-{self.pool}."
        if f"|{prefix}" not in line:
            return None
        found = _LINE.fullmatch(line)
        if found is None or not found[6].startswith(prefix):
            if self._has_users and _OTHER_LINE.fullmatch(line):
                return None  # any user may have given it such a name
            found = _ODD_LINE.fullmatch(line) if self._has_users else None
            if found is None:
                told = line.strip()[:300]
                raise ClusterAwayError(f"Slurm shows a machine in a line that Legato cannot read: {told!r}.")
        uid, number, state, reason, left, name = (part.strip() for part in found.groups())
        if not _NUMBER.fullmatch(number) or not name.startswith(prefix) or name.split() != [name]:
            return None
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
            reason=None if reason in _NO_REASON else _clean(reason),
            ends_at=None if left_s is None else now + left_s,
            uid=None if int(uid) == os.getuid() else int(uid),
        )

    # ------------------------------------------------------------ start and end

    async def start(self, orders: Sequence[PilotOrder]) -> Sequence[Submitted]:
        """Submit a job for each order. After a refusal, or a command that does not answer, no other is tried.

        What a command says that runs as another user may come from this user, and counts for this user only.
        """
        if not orders:
            return []
        user = orders[0].user
        try:
            await asyncio.to_thread(self._make_folder, user)
        except (OSError, LegatoError) as error:
            told = getattr(error, "strerror", None) or error
            why = f"the server cannot make {self._job.output}, the folder for their output: {told}"
            return [Submitted(node=order.node, refusal=why) for order in orders]
        if user is None:
            return await self._submit(orders, None)
        async with self._turns:
            return await self._submit(orders, user)

    async def _submit(self, orders: Sequence[PilotOrder], user: JobUser | None) -> Sequence[Submitted]:
        """Submit the jobs of one user. Raises ClusterAwayError if Slurm does not answer the server itself."""
        done: list[Submitted] = []
        ends_at = time.monotonic() + _USERS_LIMIT_S
        for order in orders:
            left_s = ends_at - time.monotonic()
            if user is not None and done and left_s < _LAST_TRY_S:
                return done
            try:
                one = await self._submit_one(order, user, left_s)
            except ClusterAwayError:
                if not done:
                    raise
                return done
            done.append(one)
            if one.refusal is not None:
                return [*done, *(Submitted(node=each.node, refusal=one.refusal) for each in orders[len(done) :])]
            if one.pilot is None:
                return done
        return done

    async def _submit_one(self, order: PilotOrder, user: JobUser | None, left_s: float) -> Submitted:
        """Submit a job; see `_submit`."""
        command, script = self._make_command(order), self.make_script(order)
        try:
            code, told, errors = await self._call(*command, given=script, user=user, limit_s=left_s)
        except SilentError:
            return Submitted(node=order.node)
        except ClusterAwayError as error:
            if user is None:
                raise
            return Submitted(node=order.node, refusal=str(error).rstrip("."))
        number = told.strip().partition(";")[0]
        if code == 0 and _NUMBER.fullmatch(number):
            uid = None if user is None else user.uid
            return Submitted(
                node=order.node, pilot=Pilot(id=number, node=order.node, state=PilotState.WAITING, uid=uid)
            )
        if any(text in errors for text in _UNCERTAIN):
            return Submitted(node=order.node)
        refusal = _shorten(errors) or f"sbatch ended with code {code}"
        if user is None and any(text in errors for text in _AWAY):
            raise ClusterAwayError(f"Slurm takes no jobs: {refusal}.")
        return Submitted(node=order.node, refusal=refusal)

    def _make_folder(self, user: JobUser | None) -> None:
        """Make the folder for the output of a user's pilots. Raises OSError or LegatoError if it cannot be made."""
        folder = self._job.output
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user is not None:
            folder.chmod(_PASS_THROUGH)
            make_folder_for(folder / str(user.uid), user)

    def _make_command(self, order: PilotOrder) -> list[str]:
        command = ["sbatch", "--parsable", f"--job-name=legato-{self.pool}.{order.node}", "--nodes=1", "--ntasks=1"]
        command += [f"--time={self._job.time}", f"--signal=B:USR1@{SIGNAL_S}", "--no-requeue", "--export=NIL"]
        return [
            *command,
            f"--output={self._find_output(order.node, None if order.user is None else order.user.uid)}",
            "--open-mode=truncate",
            "--chdir=/",
            *self._job.options,
        ]

    def _find_output(self, node: str, uid: int | None) -> Path:
        return (self._job.output if uid is None else self._job.output / str(uid)) / f"{node}.log"

    def make_script(self, order: PilotOrder) -> str:
        """Return the script of a pilot. It has the join token, and goes through standard input.

        The agent runs in a step, because Slurm signals only steps when it preempts a job.
        """
        user = order.user or self._own
        job, home = self._job, f"{self._job.folder}/legato-{user.uid}-{self.pool}"
        agent = [job.python, "-P", "-m", "legato.cli", "agent", "--pilot", "--connect", order.url, "--name", order.node]
        agent += ["--token-file", "-", "--slots", str(job.num_slots), "--label", "none"]
        agent += ["--gpus", str(job.num_gpus)] if job.num_gpus else []
        agent += [] if job.network is None else ["--network", job.network]
        step = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none"]
        step += ["--export=ALL", "--unbuffered"]
        variables = {"PATH": _PATH, "HOME": user.home, "USER": user.name}
        variables |= {name: self._environment[name] for name in ("SLURM_CONF",) if name in self._environment}
        lines = [
            "#!/bin/bash",
            f"# A machine of Legato: {CLUSTER_LABEL}={self.kind}, node {order.node}",
            "umask 077",
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            f"legato_home={shlex.quote(home)}",
            *_FIND_HOME,
            *([job.setup] if job.setup else []),
            f"exec {shlex.join([*step, *agent])} --home \"$legato_home\" <<'LEGATO_TOKEN'",
            order.token,
            "LEGATO_TOKEN",
        ]
        return "\n".join((*lines, ""))

    async def end(self, pilots: Sequence[Pilot], *, force: bool) -> None:
        """Cancel jobs, or signal their agents as before the time limit.

        A pilot that waited when it was seen is only cancelled if it still does: meanwhile it may run and train. What
        seems to be a pilot of root is none, and is not ended: no command runs as root for a user.
        """
        by_user: dict[int | None, list[Pilot]] = {}
        for pilot in pilots:
            if pilot.uid != 0:
                by_user.setdefault(pilot.uid, []).append(pilot)
        # At once: a user may stop the commands that run as this user.
        await asyncio.gather(*(self._end_of(uid, mine, force=force) for uid, mine in by_user.items()))

    async def _end_of(self, uid: int | None, pilots: Sequence[Pilot], *, force: bool) -> None:
        """End pilots of a system user with the rights of this user: Slurm lets it end its own jobs only.

        Raises:
            ClusterAwayError: Slurm does not answer the server itself. What fails for another user is tried again later.
        """
        if uid is None:
            await self._cancel(None, pilots, force=force)
            return
        try:
            async with self._turns:
                await self._cancel(await asyncio.to_thread(find_account, uid), pilots, force=force)
        except Exception as error:  # noqa: BLE001 -- the pilots of other users are not held up
            _log.warning("Cannot end machines of system user %d now: %s", uid, error)

    async def _cancel(self, user: JobUser | None, pilots: Sequence[Pilot], *, force: bool) -> None:
        """Run ``scancel``. Raises ClusterAwayError if Slurm does not answer."""
        waiting = [pilot.id for pilot in pilots if pilot.state is PilotState.WAITING]
        others = [pilot.id for pilot in pilots if pilot.state is not PilotState.WAITING]
        how = [] if force else ["--signal=USR1", "--batch"]
        ends_at = time.monotonic() + _USERS_LIMIT_S
        for numbers, options in ((waiting, ["--state=PENDING"]), (others, how)):
            if not numbers:
                continue
            left_s = ends_at - time.monotonic()
            code, _, errors = await self._call("scancel", *options, *numbers, user=user, limit_s=left_s)
            if code and any(text in errors for text in _AWAY):
                raise ClusterAwayError(f"Slurm ends no jobs: {_shorten(errors)}.")

    def explain_failure(self, node: str, uid: int | None) -> str:
        """Return where the output of a pilot is."""
        return f"Its output is in {self._find_output(node, uid)}"

    def read_last_words(self, node: str, since: float, uid: int | None) -> str:
        """Return the last line of the output of a pilot; lines of Slurm only if there are no others."""
        try:
            # Its user may have put a link or a pipe in its place.
            descriptor = os.open(self._find_output(node, uid), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                about = os.fstat(descriptor)
                if not stat.S_ISREG(about.st_mode) or about.st_uid != (os.getuid() if uid is None else uid):
                    return ""
                if about.st_mtime < since - _CLOCKS_S:
                    return ""
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
                lines = [line.strip() for line in file.read(_LAST_BYTES).decode(errors="replace").splitlines()]
        except OSError:
            return ""
        lines = [line for line in lines if line]
        own = [line for line in lines if not line.startswith(_OF_SLURM)]
        return _clean(next(reversed(own or lines), ""))

    # ------------------------------------------------------------ inside

    async def _call(self, *command: str, given: str = "", user: JobUser | None, limit_s: float) -> Done:
        """Run a command. Raises ClusterAwayError if it cannot, or does not end. ``limit_s``: if it has a user."""
        if user is None:
            return await run_command(command, self._environment, given, limit_s=_COMMAND_LIMIT_S, max_bytes=_MAX_BYTES)
        # No other variable of the server is for its users.
        passed = {name: value for name, value in self._environment.items() if name in _PASSED}
        return await run_command(command, passed, given, user=user, limit_s=limit_s, max_bytes=_USERS_MAX_BYTES)


def _shorten(errors: str) -> str:
    r"""Return what a command of Slurm said last, without the name of the command.

    >>> _shorten("sbatch: error: Batch job submission failed: Invalid qos specification")
    'Invalid qos specification'
    >>> _shorten("\x1b[2Jno\n")
    '?[2Jno'
    """
    told = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    return _clean(_PREFIX.sub("", told).strip().rstrip("."))


def _clean(text: str) -> str:
    """Return a user's text for one line of a terminal or log, without signs that could move the cursor."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:_MAX_WORDS])


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
