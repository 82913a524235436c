"""Drivers as processes of this machine, each in a separate session, so that they outlive the platform.

The job's directory holds what the platform knows of a driver: the order, the identity of its process, its address, its
journal. So a restarted platform finds every driver, including those that another server started. Decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from legato.agent.process import kill_agent
from legato.control.drivers.drivers import Assignment, DriverOrder, DriverReport, DriverState, always
from legato.control.drivers.job_directories import copy_code, end_leftovers, read_last_error
from legato.control.drivers.process import DoorOrder, LocalOrder, find_lease_s, read_order, write_order
from legato.core import wire
from legato.core.errors import LegatoError, UsageError
from legato.core.job_user import JobUser
from legato.core.limits import Limits
from legato.core.slots import check_slot, index_of, list_slots, name_slot, slot_key, split_slot
from legato.core.spec import JobSpec
from legato.driver.journal import LOCK, DriverFile, JobDirectory, Outcome, replace_file
from legato.engines.agents import LEASE_MARGIN, RECORD
from legato.engines.agents_record import read_record
from legato.engines.environment import PASSED_ON, pass_on
from legato.engines.parent import RUN
from legato.engines.term_watch import TERM_LIMIT_S
from legato.system.decoding import decode
from legato.system.door import LOOPBACK
from legato.system.processes import is_alive, send_signal, start_time_of
from legato.system.tls import choose_tls

_log = structlog.get_logger(__name__)

_NEEDED: Final = ("num_workers", "step", "epoch", "loss", "samples_per_s", "min_workers", "max_workers")
"""What the platform reads of a driver's status."""

_PROCESS_FILE: Final = "driver-process.json"
_LOG_FILE: Final = "driver.log"
NUM_COPIES: Final = 4
"""Jobs whose code is copied at once; the next ones wait for those."""

NO_LIMITS: Final = Limits()
_EXIT_GIVEN_UP: Final = 1
_ANSWER_LIMIT_S: Final = 2.0
_NUM_AT_ONCE: Final = 64
_NUM_POLLS: Final = 500
_POLL_S: Final = 0.01


class _Identity(msgspec.Struct, frozen=True):
    """Identifies a process of a machine, even if its id was used again. ``node`` "": an earlier release wrote it."""

    pid: int
    start_time: int
    node: str = ""

    def is_alive(self) -> bool:
        return is_alive(self.pid, self.start_time)


def _as_this_user(_owner: str) -> None:
    """Let all jobs run as the user of this process."""


def _without_agents() -> None:
    """Let all jobs use slots of this machine only."""


class LocalDrivers:
    """See `legato.control.drivers.drivers.Drivers`.

    Args:
        root: where jobs' directories are, one per job id.
        node: the name of this machine in the pool: its slots are ``NODE/0``, ``NODE/1``, …
        devices: the torch device of each slot.
        passed_on: patterns of the variables of this process's environment that jobs get.
        log_max_bytes: of each log of a job.
        limits: limits of jobs that set none.
        find_user: returns the system user as whom jobs of a platform user run; None: the user of this process.
        find_door: called at the start of an attempt; returns where its driver listens for agents. None: the attempt
            uses slots of this machine only.
    """

    def __init__(
        self,
        root: Path,
        *,
        node: str,
        devices: Sequence[str],
        passed_on: Collection[str] = PASSED_ON,
        log_max_bytes: int = 2**30,
        limits: Limits = NO_LIMITS,
        find_user: Callable[[str], JobUser | None] = _as_this_user,
        find_door: Callable[[], DoorOrder | None] = _without_agents,
    ) -> None:
        self._root = root
        self._node = node
        self._devices = tuple(devices)
        self._passed_on = tuple(passed_on)
        self._log_max_bytes = log_max_bytes
        self._limits = limits
        self._find_user = find_user
        self._find_door = find_door
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._exits: dict[str, int] = {}
        self._given_up: dict[tuple[str, int], str] = {}
        self._leases: dict[tuple[str, int], float] = {}
        self._lines: dict[str, _DriverConnection] = {}
        self._answered: set[tuple[str, int]] = set()
        self._odd: dict[str, str] = {}
        self._gate = asyncio.Semaphore(_NUM_AT_ONCE)
        # Copies have a separate pool of threads, so that many large copies do not delay short calls.
        self._copying = ThreadPoolExecutor(NUM_COPIES, thread_name_prefix="copy")

    # ------------------------------------------------------------ the contract

    async def start(self, order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
        """Start a driver process unless the last one still runs."""
        directory = self._root / order.job
        found = await asyncio.to_thread(read_order, directory)
        if found is not None and found.order.attempt > order.attempt:
            raise LegatoError(f"Attempt {order.attempt} of job {order.job} is over: {found.order.attempt} has begun.")
        is_new = found is None or found.order.attempt < order.attempt
        if not is_new and found is not None and self._is_out_of_reach(found):
            raise LegatoError(f"Its driver {self._explain_reach(found)}.")
        if await self._still_driven(directory, ending=is_new):
            return
        # Needed for every attempt: this creates the user's home directory if it is missing.
        user = await asyncio.to_thread(self._find_user, order.owner)
        if is_new:
            door = None if order.is_local else self._find_door()
            if door is None:
                self._check_slots(order.slots)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if order.code is not None:
                work = await self._copy(Path(order.code), directory, order.code_folder, user)
                order = msgspec.structs.replace(order, spec=msgspec.structs.replace(order.spec, directory=str(work)))
            if not is_wanted():
                return
            order = msgspec.structs.replace(order, spec=self._apply_defaults(order.spec))
            slots = sorted(order.slots, key=slot_key)
            found = LocalOrder(
                order=order, slots=tuple(slots), devices=self._devices, user=user, own_node=self._node, door=door
            )
            await asyncio.to_thread(write_order, directory, found)
        elif found is not None and found.order.term < order.term and is_wanted():
            # Another server has taken over since this attempt began: its drivers take terms above the earlier ones.
            found = msgspec.structs.replace(found, order=msgspec.structs.replace(found.order, term=order.term))
            if found.node != self._node:
                found = self._move_here(found)
                # From now on the driver on the other machine, if it lives, writes its journal no more. The new driver
                # reads the journal later, when its process has started.
                await asyncio.to_thread(JobDirectory(directory).reserve_term, order.term)
            await asyncio.to_thread(write_order, directory, found)
        if is_wanted():
            await asyncio.to_thread(self._spawn, order.job, directory)

    async def kill(self, job: str, attempt: int) -> None:
        """Kill a driver's process. Workers are in sessions of their own."""
        directory = self._root / job
        found = await asyncio.to_thread(read_order, directory)
        if found is not None and found.order.attempt == attempt and found.node == self._node:
            await asyncio.to_thread(self._kill_driver, job, directory, found.lock_name)

    async def give_up(self, job: str, attempt: int, reason: str, term: int = 0) -> None:
        """Kill the remaining processes of an attempt. Keeps its end in memory: the directory may be unusable."""
        directory = self._root / job
        if await asyncio.to_thread(self._is_driven, directory):
            return
        found = await asyncio.to_thread(read_order, directory)
        if found is not None and self._is_out_of_reach(found):
            raise LegatoError(f"Its driver {self._explain_reach(found)}.")
        if found is not None and found.door is not None:
            await self._end_agents(directory, found, term)
        await end_leftovers(directory, await asyncio.to_thread(_user_of, directory))
        self._given_up[job, attempt] = reason

    async def _end_agents(self, directory: Path, found: LocalOrder, term: int) -> None:
        """Kill the processes of an attempt on this machine; wait until agents of other machines have killed theirs.

        Raises:
            LegatoError: a worker of another machine may still run.
        """
        renewed_s = 0.0
        if found.is_shared:
            # The order may still be that of a server whose driver lives, and it took a term above that of its order.
            await asyncio.to_thread(JobDirectory(directory).reserve_term, max(term, found.order.term))
            renewed_s = TERM_LIMIT_S
        record = await asyncio.to_thread(read_record, directory / RECORD)
        nodes = {} if record is None else record.nodes
        remote = sorted(name for name, node in nodes.items() if node.workers and name != self._node)
        if remote:
            # The driver is dead, or reads soon that it does not lead any more, so no agent's lease is renewed.
            since = self._leases.setdefault((found.order.job, found.order.attempt), time.monotonic())
            lease_s = renewed_s + find_lease_s(found.order.spec) * (1 + LEASE_MARGIN)
            left_s = lease_s - (time.monotonic() - since)
            if left_s > 0:
                raise LegatoError(
                    f"Its workers on {', '.join(remote)} may still run: the agents there end them within "
                    f"{left_s:.0f} s."
                )
        agent = directory / found.agent_folder(self._node)
        if agent.is_dir():
            await asyncio.to_thread(kill_agent, agent)
            await end_leftovers(agent, found.user)
        (directory / RECORD).unlink(missing_ok=True)

    async def assign(self, job: str, attempt: int, said: Assignment) -> bool:
        """Send a driver its slots."""
        found = await asyncio.to_thread(read_order, self._root / job)
        if found is None or found.door is None:
            self._check_slots(said.slots)
        is_numbered = found is not None and found.is_numbered
        slots = sorted(said.slots, key=slot_key)
        request = wire.AssignRequest(
            slots=tuple(index_of(slot) if is_numbered else slot for slot in slots),
            reason=said.reason,
            min_workers=said.min_workers,
            max_workers=said.max_workers,
        )
        reply = await self._ask(job, attempt, request)
        if reply is not None and reply.error is not None:
            raise UsageError(reply.error)
        return reply is not None

    async def stop(self, job: str, attempt: int, *, now: bool, reason: str) -> bool:
        """Ask a job to end."""
        return await self._ask(job, attempt, wire.StopRequest(now=now, reason=reason)) is not None

    async def reports(self, attempts: Mapping[str, int]) -> dict[str, DriverReport]:
        """Ask all drivers at the same time; a driver that hangs delays the others only briefly."""
        for job, child in list(self._children.items()):
            if (code := child.poll()) is not None:
                del self._children[job]
                self._exits[job] = code
        found = await asyncio.gather(*(self._report_safely(job, attempt) for job, attempt in attempts.items()))
        for job in set(self._lines) - set(attempts):
            await self._lines.pop(job).close()
        self._answered &= set(attempts.items())
        self._odd = {job: told for job, told in self._odd.items() if job in attempts}
        self._exits = {job: code for job, code in self._exits.items() if job in attempts}
        self._given_up = {key: reason for key, reason in self._given_up.items() if attempts.get(key[0]) == key[1]}
        self._leases = {key: since for key, since in self._leases.items() if attempts.get(key[0]) == key[1]}
        return dict(zip(attempts, found, strict=True))

    async def close(self) -> None:
        """Close the connections; the drivers continue."""
        self._copying.shutdown(wait=False, cancel_futures=True)
        lines, self._lines = self._lines, {}
        await asyncio.gather(*(line.close() for line in lines.values()))
        for child in self._children.values():
            # The driver outlives this process. Without this line, Python would warn that it still runs.
            child.returncode = child.poll() or 0
        self._children.clear()

    # ------------------------------------------------------------ inside

    async def _report_safely(self, job: str, attempt: int) -> DriverReport:
        """Report on one job; only whether its driver runs, if its files or the driver's answer cannot be read."""
        if (job, attempt) in self._given_up:
            outcome = Outcome("failed", _EXIT_GIVEN_UP, self._given_up[job, attempt])
            return DriverReport(attempt=attempt, state=DriverState.ENDED, in_use=frozenset(), outcome=outcome)
        try:
            report = await self._report(job, attempt)
            missing = [] if report.status is None else [key for key in _NEEDED if key not in report.status]
            if missing:
                raise LegatoError(f"its driver does not report {', '.join(missing)}; it is of another version")
        except Exception as error:  # noqa: BLE001 -- a failure of one job must not stop the others
            if self._odd.get(job) != str(error):
                self._odd[job] = str(error)
                _log.exception("the files of a driver cannot be read", job=job)
            try:
                lives = await asyncio.to_thread(self._is_driven, self._root / job)
            except Exception:  # noqa: BLE001 -- as above; without knowing it, no second driver is started
                lives = True
            state = DriverState.SILENT if lives else DriverState.GONE
            return DriverReport(attempt=attempt, state=state, trouble=str(error))
        self._odd.pop(job, None)
        return report

    async def _report(self, job: str, attempt: int) -> DriverReport:
        directory = JobDirectory(self._root / job)
        found = await asyncio.to_thread(read_order, directory.path)
        if found is None or found.order.attempt != attempt:
            return DriverReport(attempt=attempt, state=DriverState.UNKNOWN)
        is_here = found.node == self._node
        reply = await self._ask(job, attempt, wire.StatusRequest()) if is_here else None
        if reply is not None and reply.status.get("outcome") is None:
            self._answered.add((job, attempt))
            slots = reply.status["slots"]
            return DriverReport(
                attempt=attempt,
                state=DriverState.RUNNING,
                assigned=self._names([*slots["wanted"], *slots["given_up"], *slots.get("surplus", ())]),
                in_use=self._names(slots["in_use"]),
                given_up=self._names(slots["given_up"]),
                surplus=self._names(slots.get("surplus", ())),
                refusals=_read_refusals(reply.status.get("refusals")),
                lost_nodes=_read_names(reply.status.get("lost_nodes")),
                status=reply.status,
                is_local=found.door is None,
            )
        journal = await asyncio.to_thread(directory.read_journal)
        if journal is not None and journal.attempt == attempt and journal.outcome is not None:
            last = await asyncio.to_thread(directory.read_last_committed)
            return DriverReport(
                attempt=attempt,
                state=DriverState.ENDED,
                in_use=frozenset(),
                outcome=journal.outcome,
                refusals=journal.outcome.refusals,
                step=last.step if last is not None else None,
                epoch=last.epoch if last is not None else None,
                loss=await asyncio.to_thread(directory.read_last_loss),
                num_steps=journal.num_steps,
                num_micro_batches=journal.snapshot.num_micro_batches if journal.snapshot is not None else None,
                shares_freely=journal.snapshot is not None and journal.snapshot.shares_freely,
            )
        if not is_here:
            return self._report_elsewhere(found)
        if not await asyncio.to_thread(self._is_driven, directory.path):
            why = await asyncio.to_thread(self._why_gone, job)
            return DriverReport(attempt=attempt, state=DriverState.GONE, trouble=why)
        answered = (job, attempt) in self._answered
        state = DriverState.SILENT if answered else DriverState.STARTING
        return DriverReport(attempt=attempt, state=state, is_local=found.door is None)

    def _report_elsewhere(self, found: LocalOrder) -> DriverReport:
        """Report on an attempt whose driver another server has started on its machine."""
        attempt = found.order.attempt
        if self._is_out_of_reach(found):
            return DriverReport(attempt=attempt, state=DriverState.UNKNOWN, trouble=self._explain_reach(found))
        told = f"it was on the machine {found.node}, whose server does not lead any more"
        return DriverReport(attempt=attempt, state=DriverState.GONE, trouble=told)

    async def _ask(self, job: str, attempt: int, what: wire.ClientRequest) -> wire.Reply | None:
        """Send a driver one request. Returns None if it does not answer, or if it belongs to another attempt."""
        directory = JobDirectory(self._root / job)
        found = await asyncio.to_thread(read_order, directory.path)
        if found is None or found.order.attempt != attempt or found.node != self._node:
            return None
        line = self._lines.setdefault(job, _DriverConnection(directory))
        async with self._gate:
            return await line.ask(what)

    def _apply_defaults(self, spec: JobSpec) -> JobSpec:
        """Return a job's spec with the operator's defaults for the limits that the job does not set."""
        asks = spec.memory_bytes is not None or spec.num_cpus is not None
        return msgspec.structs.replace(
            spec,
            log_max_bytes=self._log_max_bytes,
            memory_bytes=self._limits.memory_bytes if spec.memory_bytes is None else spec.memory_bytes,
            num_cpus=self._limits.num_cpus if spec.num_cpus is None else spec.num_cpus,
            max_processes=self._limits.num_processes,
            # A default limit that cannot be enforced does not stop the job. The server reported this at its start.
            must_limit=spec.must_limit and asks,
        )

    async def _copy(self, code: Path, directory: Path, folder: str, user: JobUser | None) -> Path:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._copying, copy_code, code, directory, folder, user)

    async def _still_driven(self, directory: Path, *, ending: bool) -> bool:
        """Return whether a driver process runs. After its attempt has ended, wait a moment for the process to end."""
        for _ in range(_NUM_POLLS if ending else 1):
            if not await asyncio.to_thread(self._is_driven, directory):
                return False
            if ending:
                await asyncio.sleep(_POLL_S)
        if ending:
            raise LegatoError("The driver of its last attempt has not ended yet.")
        return True

    def _why_gone(self, job: str) -> str:
        """Return what ended a driver's process, as far as known."""
        code = self._exits.get(job)
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return read_last_error(self._root / job / _LOG_FILE) or ("" if code is None else f"it exited with code {code}")

    def _spawn(self, job: str, directory: Path) -> None:
        self._exits.pop(job, None)
        with (directory / _LOG_FILE).open("ab") as log:
            child = subprocess.Popen(
                # -P: no module is taken from the job's directory.
                [sys.executable, "-P", "-m", "legato.control.drivers.process", str(directory), self._node],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env=pass_on(os.environ, self._passed_on),
                start_new_session=True,
            )
        last = self._children.pop(job, None)
        if last is not None:
            last.poll()  # it has ended already; this reaps it
        self._children[job] = child
        started = start_time_of(child.pid)
        if started is not None:
            replace_file(directory / _PROCESS_FILE, msgspec.json.encode(_Identity(child.pid, started, self._node)))

    def _is_driven(self, directory: Path) -> bool:
        """Return whether a job's driver process runs on this machine."""
        identity = self._read_identity(directory)
        if identity is not None and identity.is_alive():
            return True
        # The server that started it may have died before it wrote the identity down, or the file names another driver
        # that ended at once.
        return any(JobDirectory(directory, lock_name=name).is_locked() for name in (LOCK, f"{LOCK}-{self._node}"))

    def _kill_driver(self, job: str, directory: Path, lock_name: str) -> None:
        identity = self._read_identity(directory)
        if identity is not None and identity.is_alive():
            _log.warning("a driver that does not answer is killed", job=job, pid=identity.pid)
            send_signal(identity.pid, identity.start_time, signal.SIGKILL)
        elif JobDirectory(directory, lock_name=lock_name).is_locked():
            raise LegatoError(f"Its driver does not answer, and the process that has {directory} locked is unknown.")

    def _read_identity(self, directory: Path) -> _Identity | None:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            identity = decode((directory / _PROCESS_FILE).read_bytes(), _Identity)
            return identity if identity.node in ("", self._node) else None
        return None

    def _is_out_of_reach(self, found: LocalOrder) -> bool:
        """Return whether only a server of another machine can run the driver of an attempt."""
        return found.node != self._node and not found.is_shared

    def _explain_reach(self, found: LocalOrder) -> str:
        return (
            f"runs on the machine {found.node}, and no other machine can take it over. Its workers train on there; "
            f"a server on {found.node} finds it when it leads again. Stop the job if that machine is lost: Legato then "
            "no longer waits for its driver and its workers"
        )

    def _move_here(self, found: LocalOrder) -> LocalOrder:
        """Return the order of an attempt for this machine, whose driver was on another one."""
        # Without other machines, the driver needs no door for them.
        door = self._find_door() or DoorOrder(host=LOOPBACK, address=LOOPBACK, is_shared=True)
        return msgspec.structs.replace(found, own_node=self._node, devices=self._devices, door=door)

    def _check_slots(self, slots: Collection[str]) -> None:
        there = frozenset(list_slots(self._node, len(self._devices)))
        for slot in sorted(slots):
            # A name that no slot can have is not split.
            if slot not in there and not ("+" in slot and there.issuperset(split_slot(check_slot(slot)))):
                raise LegatoError(
                    f"Slot {slot} is not one of this machine's: {self._node}/0 to {self._node}/{len(there) - 1}."
                )

    def _names(self, slots: Collection[int | str]) -> frozenset[str]:
        """Return the names of slots that a driver reports; a driver of an earlier release reports numbers."""
        return frozenset(single for slot in slots for single in split_slot(name_slot(slot, self._node)))


class _DriverConnection:
    """The connection to one driver, for one request at a time. It is replaced when the driver's address changes."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._turn = asyncio.Lock()
        self._connection: ClientConnection | None = None
        self._connected_to: DriverFile | None = None

    async def ask(self, what: wire.ClientRequest) -> wire.Reply | None:
        async with self._turn:
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    connection = await self._connect()
                    if connection is None:
                        return None
                    await connection.send(wire.encode(what))
                    frame: Any = await connection.recv()
                    return wire.decode_reply(frame)
            except (OSError, TimeoutError, WebSocketException, msgspec.MsgspecError):
                # A late answer must not be read as the answer to the next request.
                await self._drop()
                return None

    async def close(self) -> None:
        async with self._turn:
            await self._drop()

    async def _connect(self) -> ClientConnection | None:
        where = await asyncio.to_thread(self._directory.read_driver_file)
        if where != self._connected_to:
            await self._drop()
        if where is None:
            return None
        if self._connection is None:
            url = where.url.removesuffix("/worker") + "/client"
            shown = {"Authorization": f"Bearer {where.token}"}
            self._connection = await connect(
                url,
                additional_headers=shown,
                compression=None,
                max_size=None,
                proxy=None,
                **choose_tls(where.certificate),
            )
            self._connected_to = where
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection, self._connected_to = self._connection, None, None
        if connection is not None:
            connection.transport.abort()
            with contextlib.suppress(OSError, WebSocketException):
                await connection.wait_closed()


def _user_of(directory: Path) -> JobUser | None:
    """Return the system user of a job's processes, which is needed to end them; None: the user of this process."""
    try:
        found = read_order(directory)
    except LegatoError:
        if (directory / RUN).exists():
            raise  # the job has another user, and only the order names that user
        return None
    return None if found is None else found.user


def _read_refusals(found: object) -> dict[str, str]:
    """Return the refusals in a driver's status; an earlier release reports none."""
    return {str(node): str(reason) for node, reason in found.items()} if isinstance(found, dict) else {}


def _read_names(found: object) -> tuple[str, ...]:
    """Return a list of names in a driver's status; an earlier release reports none."""
    return tuple(str(name) for name in found) if isinstance(found, list) else ()
