"""Workers as processes of this machine, forked by a warm parent. Loads no torch, decides nothing.

The engine is the driver's end of a unix socket. The warm parent (`legato.train.process.warm_parent`) owns the processes
and outlives the driver. `open` connects to a warm parent that the job's directory names, or starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from legato.core.cpu import check_supported
from legato.core.errors import LegatoError, UsageError
from legato.core.job_user import JobUser
from legato.core.limits import Limits
from legato.core.system_metrics import SystemSample
from legato.core.warm import (
    NODE_VARIABLE,
    AcknowledgeExited,
    AcknowledgeStarted,
    EndAll,
    EndWorker,
    Envelope,
    ParentMessage,
    Ready,
    Record,
    Replaced,
    StartWorker,
    State,
    WorkerExited,
    WorkerStarted,
    decode_parent_message,
    encode_frame,
    mark_of,
    take_frames,
)
from legato.engines.base import EngineEvent, Exited, Launch, Noted, Started, StoreMoved, ignore
from legato.engines.cgroups import (
    JobGroup,
    LimitHits,
    count_limit_hits,
    count_machine_oom_kills,
    explain_oom,
    explain_oom_nearby,
    explain_outer_oom,
    find_support,
    is_named_victim,
    prefer_as_victim,
)
from legato.engines.gpus import find_devices, show_only, torch_name
from legato.engines.interpreter import check_python, variables_of_python
from legato.engines.parent import (
    end_group,
    end_process,
    find_record,
    kill_as,
    make_socket_directory,
    read_record,
    short_path,
    start_parent,
)
from legato.engines.slots import Slots
from legato.engines.system_meter import SystemMeter
from legato.engines.variables import digest, search_path, variables_of_parent
from legato.system.cpus import read_processor
from legato.system.plain_files import make_folder_for, make_log
from legato.system.processes import Vital, belongs_to, boot_id, examine

_log = logging.getLogger(__name__)

DEFAULT_ENTRY: Final = "legato.train.process.worker:main"
DEFAULT_PRELOAD: Final = (
    "torch",
    "torch.distributed",
    "torch.optim",
    "torch._dynamo",
    "numpy",
    "legato.train.loop.elastic",
)

_MAX_FAILED_STARTS: Final = 3
_TAIL_BYTES: Final = 4096
_CLOSE_LIMIT_S: Final = 10.0
_CLOSE_EARLY_LIMIT_S: Final = 1.0


_detached: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Warm parents that this process started and whose engine was detached: they must be reaped if they end before us."""


class _StartSample(NamedTuple):
    """Measurements at the start of a worker.

    Args:
        pid: process id.
        at_s: on the clock ``time.monotonic``.
        num_oom_kills: number of processes of the machine that the kernel had killed for memory; None: unknown.
        limit_hits: of the groups around this process.
    """

    pid: int
    at_s: float
    num_oom_kills: int | None
    limit_hits: LimitHits = LimitHits({}, is_certain=False)


class LocalEngine:
    """Start, stop and watch workers on this machine; see `legato.engines.base.Engine`.

    Args:
        job_directory: directory of ``engine.json`` and ``warm-parent.log``, in which a later engine finds this one's
            workers.
        devices: the device of each slot, as in `legato.engines.gpus`; empty: any number of slots on the CPU. None: the
            devices of this machine. Adopted workers keep their devices.
        node: the name of this machine; slots of other nodes are refused. None: slots of any node are slots of this
            machine, because a host name may change between two drivers of a job.
        environment: the job's variables, set before Python starts. A launch adds the worker's variables.
        directory: base of relative paths in the job's ``PYTHONPATH``; None: the current directory.
        start: ``fork`` workers from a process that has imported torch (milliseconds), or start each ``fresh`` (slow).
        entry: ``module:function`` that a worker runs with the program and its arguments as one list.
        preload: what the warm parent imports before it forks.
        wished: further imports, such as the program's packages, unless forking would not be safe after them.
        idle_limit_s: seconds without a driver and workers after which the warm parent ends.
        limits: limits of the job on this machine.
        python: the interpreter of the warm parent and the workers. None: that of this process.
        cpu_capability: the instruction set that the job asks for, which another interpreter's torch must have.
        address: of this machine, at which its store listens and workers of other machines reach it.
        user: the system user of the warm parent and the workers. They write into a separate folder, whose content is
            not trusted. None: the user of this process.
    """

    remarks: tuple[str, ...] = ()

    def __init__(
        self,
        job_directory: str | os.PathLike[str],
        devices: Sequence[str] | None = None,
        *,
        node: str | None = None,
        environment: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        start: Literal["fork", "fresh"] = "fork",
        entry: str = DEFAULT_ENTRY,
        preload: Sequence[str] = DEFAULT_PRELOAD,
        wished: Sequence[str] = (),
        idle_limit_s: float = 60.0,
        limits: Limits | None = None,
        python: str | None = None,
        cpu_capability: str | None = None,
        address: str = "127.0.0.1",
        user: JobUser | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._groups: JobGroup | None = None
        self._start_samples: dict[int, _StartSample] = {}
        self._directory = Path(job_directory).absolute()
        self._user = user
        self._uid = None if user is None else user.uid
        self._slots = Slots(devices if devices is not None else find_devices(), node)
        self._here = str(Path.cwd())
        own = {**os.environ, **({} if user is None else user.variables())}
        self._variables = variables_of_parent(own, environment or {}, self._here, str(directory or self._here))
        self._python = None if python is None else Path(python)
        self._capability = cpu_capability
        self._address = address
        if self._python is not None:
            self._variables = variables_of_python(self._python, self._variables)
        # Only Linux can fork safely after frameworks are loaded; on other systems, libraries fail after a fork.
        self._start: str = start if sys.platform == "linux" else "fresh"
        self._entry = entry
        self._preload = tuple(preload) if self._start == "fork" else ()
        self._wished = tuple(wished)
        self._idle_limit_s = idle_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        self._ready = asyncio.Event()
        self._rendezvous = ""
        self._node_nonce = ""
        self._running: dict[int, int] = {}
        self._launches: dict[int, StartWorker] = {}
        self._forced: dict[int, bool] = {}
        self._reported: set[tuple[type[EngineEvent], int]] = set()
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._error: LegatoError | None = None
        self._num_failed_starts = 0
        self._meter = SystemMeter()
        self._opened = False
        self._replaced = False
        self._closing = False

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._opened and not self._closing

    @property
    def last_running(self) -> dict[int, int]:
        """Worker → pid of the workers that ran by the last message or the record; also valid after an error."""
        return dict(self._running)

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of each slot; after `open` those of the workers that it has adopted."""
        return self._slots.devices

    @property
    def known_workers(self) -> tuple[int, ...]:
        """The workers that run, or whose end was not acknowledged."""
        record = self._read_record()
        return () if record is None else tuple(record.workers)

    # ------------------------------------------------------------ the contract

    async def open(self, term: int = 0) -> None:
        """Connect to the job's warm parent, or start one. Does not wait for its imports: see `rendezvous`.

        Args:
            term: of the driver; the lock of the job's directory keeps two drivers of one machine apart.

        Raises:
            UsageError: the job needs CPU instructions that this machine does not have, or workers cannot run with its
                interpreter.
        """
        del term
        check_supported(self._variables, read_processor().flags)
        self._opened = True
        self._directory.mkdir(parents=True, exist_ok=True)
        record = self._read_record()
        if self._python is not None and (record is None or not record.workers):
            self._wished = await asyncio.to_thread(
                check_python,
                self._python,
                self._variables,
                capability=self._capability,
                packages=self._wished,
                user=self._user,
            )
        self._open_groups(has_workers=record is not None and bool(record.workers))
        if record is not None:
            self._process = _detached.pop(record.pid, None)
            self._running = {worker: e.pid for worker, e in record.workers.items() if e.exit_code is None}
            if self._running and self._user is None:
                self._slots = Slots(record.devices, self._slots.node)
            if not self._running and record.pid and not self._is_like(record):
                # An attempt with other settings has left it. It has no workers, so it can be ended.
                await end_process(record.pid, record.start_time, self._uid)
            elif await self._connect(record):
                return
        await self._end_parent(record)
        await self._start_parent(record)

    async def rendezvous(self) -> str:
        """Return ``host:port`` of the store, after the warm parent's imports. Changes when the warm parent dies."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._rendezvous

    async def device_of(self, slot: str) -> str:
        """Return torch's name of a slot's device in its worker, which sees no other: ``cpu`` or ``cuda:0``.

        Raises:
            UsageError: there is no such slot.
        """
        return torch_name(self._slots.devices_in(slot)[0])

    async def start(self, launch: Launch) -> None:
        """Ask the warm parent to start a worker. The request waits until the imports are done.

        Raises:
            UsageError: there is no such slot.
        """
        environment = launch.environment | show_only(self._slots.devices_in(launch.slot), os.environ)
        environment[NODE_VARIABLE] = self._node_nonce
        if "PYTHONPATH" in environment:
            environment |= search_path(os.environ, environment, self._here, launch.directory)
        message = StartWorker(
            worker=launch.worker,
            program=launch.program,
            environment=environment,
            directory=launch.directory,
            log_path=launch.log_path,
        )
        if self._user is not None:
            # This process owns the folder of logs, so that the job cannot replace a log.
            await asyncio.to_thread(make_log, Path(launch.log_path), self._user)
        self._launches[launch.worker] = message
        self._send(message)

    async def stop(self, worker: int, *, force: bool) -> None:
        """Send SIGTERM to a worker, or SIGKILL to it and its children."""
        if (Exited, worker) in self._reported:
            return
        self._forced[worker] = force or self._forced.get(worker, False)
        self._send(EndWorker(worker=worker, force=force))

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all running workers."""
        await self._known.wait()
        if self._error is not None:
            raise self._error
        return dict(self._running)

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Return samples of the processes of workers.

        Reads the samples from the system and asks no other process, so it also works while the warm parent is stopped
        or being replaced.
        """
        return await asyncio.to_thread(self._examine, workers)

    def _examine(self, workers: Collection[int]) -> dict[int, Vital]:
        try:
            record = self._read_record()
            known = record.workers if record is not None else {}
            return examine({w: (known[w].pid, known[w].start_time) for w in workers if w in known and known[w].pid})
        except (LegatoError, OSError) as error:
            # Then no worker can be judged; the driver has a rule for that.
            _log.warning("Cannot examine the workers of %s: %s", self._directory, error)
            return {}

    async def measure(self) -> dict[str, SystemSample]:
        """Return a sample of this machine and of its workers, under the name ""."""
        return {"": await asyncio.to_thread(self._measure)}

    def _measure(self) -> SystemSample:
        try:
            record = self._read_record()
        except LegatoError:
            record = None
        known = record.workers if record is not None else {}
        leaders = {number: (worker.pid, worker.start_time) for number, worker in known.items() if worker.pid}
        return self._meter.measure(leaders, self._slots.devices)

    def is_away(self, _worker: int) -> bool:
        """Return False: the workers are on this machine."""
        return False

    async def bring(self, _worker: int, path: str) -> str:
        """Return the path itself: the workers are on this machine."""
        return path

    async def recover(self) -> None:
        """Return at once: all checkpoints are on this machine."""

    def hasten(self, _worker: int) -> None:
        """Do nothing: no checkpoint is on its way."""

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Yield events until `close`. An event counts as received when the driver asks for the next one.

        Raises:
            LegatoError: the warm parent cannot be started, or another driver has opened the engine.
        """
        while (event := await self._events.get()) is not None:
            yield event
            if isinstance(event, Started | Exited):
                known = AcknowledgeStarted if isinstance(event, Started) else AcknowledgeExited
                self._send(known(worker=event.worker))
        # Kept for the next request.
        self._events.put_nowait(None)
        if self._error is not None:
            raise self._error

    def note_rank_0(self, _slot: str) -> None:
        """Do nothing: all files of the program are on this machine."""

    def note_slots(self, _slots: Collection[str]) -> None:
        """Do nothing: the job leaves this machine at its end only."""

    def abandon_results(self) -> None:
        """Do nothing: no files come from other machines."""

    async def close(self, _note: Callable[[str], None] = ignore) -> None:
        """Kill the remaining workers, end the store and the warm parent, and remove their files."""
        # If this engine was not opened, or another engine was opened since, another driver owns the processes.
        if self._closing or not self._opened:
            return
        if self._replaced:
            await self.detach()
            return
        self._closing = True
        record = self._read_record()
        if self._reading is not None:
            # A warm parent that still imports cannot read messages, and has forked no worker yet.
            self._send(EndAll())
            limit_s = _CLOSE_LIMIT_S if self._ready.is_set() else _CLOSE_EARLY_LIMIT_S
            await asyncio.wait([self._reading], timeout=limit_s)
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._disconnect()
        await self._end_parent(record)
        left = self._read_record()
        for entry in left.workers.values() if left is not None else ():
            if entry.exit_code is None:
                await end_group(entry.pid, entry.start_time, self._mark, self._uid)
        if self._user is not None:
            try:
                await asyncio.to_thread(kill_as, self._user, self._mark)
            except LegatoError:
                _log.exception("The job of %s has ended, and may have left processes behind", self._directory)
        if record is not None:
            shutil.rmtree(Path(record.socket).parent, ignore_errors=True)
        self._record_path.unlink(missing_ok=True)
        if self._groups is not None:
            try:
                await asyncio.to_thread(self._groups.kill)
            except LegatoError:
                _log.exception("The job of %s has ended, and has left processes behind", self._directory)
            self._groups.close()
        self._events.put_nowait(None)

    async def detach(self) -> None:
        """Disconnect from the workers without ending them: the next engine on this directory adopts them."""
        self._closing = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._disconnect()
        if self._process is not None:
            if self._process.poll() is None:
                _detached[self._process.pid] = self._process
            self._process = None
        self._events.put_nowait(None)

    # ------------------------------------------------------------ the warm parent

    @property
    def _record_path(self) -> Path:
        return find_record(self._directory, self._user)

    @property
    def _mark(self) -> str:
        return mark_of(str(self._record_path))

    def _read_record(self) -> Record | None:
        """Return the record without entries that the job may have forged."""
        if self._user is None:
            return read_record(self._record_path)
        try:
            record = read_record(self._record_path)
        except LegatoError as error:
            # The job has written it. Its processes are found by their mark at the end.
            _log.warning("%s", error)
            return None
        if record is not None:
            record.socket, record.devices = str(self._own_socket), self._slots.devices
        return record

    @property
    def _own_socket(self) -> Path:
        return self._directory / "engine" / "s"

    def _make_socket_path(self) -> Path:
        if self._user is None:
            return make_socket_directory() / "s"
        # The socket is in a folder that the job cannot enter: the warm parent inherits the socket and needs no path.
        self._own_socket.parent.mkdir(mode=0o700, exist_ok=True)
        self._own_socket.unlink(missing_ok=True)
        return self._own_socket

    @property
    def _log_path(self) -> Path:
        return self._directory / "warm-parent.log"

    def _is_like(self, record: Record) -> bool:
        """Return whether a warm parent was started for this job with this engine's settings."""
        theirs = (record.start, record.entry, record.preload, record.variables, record.python, record.address)
        return theirs == (
            self._start,
            self._entry,
            self._preload,
            digest(self._variables),
            str(self._python or ""),
            self._address,
        )

    async def _start_parent(self, previous: Record | None) -> None:
        """Start a warm parent that adopts the previous one's workers."""
        if previous is not None:
            shutil.rmtree(Path(previous.socket).parent, ignore_errors=True)
        path = self._make_socket_path()
        if self._user is not None:
            await asyncio.to_thread(make_folder_for, self._record_path.parent, self._user)
        workers = previous.workers if previous is not None else {}
        has_running = any(entry.exit_code is None for entry in workers.values())
        # Workers keep theirs. If none runs, the directory may have been another machine's.
        node_nonce = previous.node_nonce if previous is not None and has_running else secrets.token_hex(16)
        record = Record(
            socket=str(path),
            start=self._start,
            entry=self._entry,
            preload=self._preload,
            wished=self._wished,
            idle_limit_s=self._idle_limit_s,
            devices=self._slots.devices,
            variables=digest(self._variables),
            boot=boot_id(),
            python=str(self._python or ""),
            address=self._address,
            workers=workers,
            node_nonce=node_nonce,
        )
        self._process = await asyncio.to_thread(
            start_parent, record, self._variables, self._record_path, self._log_path, self._user
        )
        # Done before it forks: its children are in its groups, and inherit that the kernel kills them first.
        prefer_as_victim(self._process.pid)
        if self._groups is not None:
            self._groups.add_parent(self._process.pid)
        connected = await self._connect(record)
        assert connected, f"{path} does not listen although it was just opened"
        if not has_running:
            self._known.set()

    async def _connect(self, record: Record) -> bool:
        try:
            with short_path(Path(record.socket)) as short:
                reader, self._writer = await asyncio.open_unix_connection(short)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        self._node_nonce = record.node_nonce
        self._reading = asyncio.create_task(self._read(reader), name="legato-local-engine")
        # Requests from before the warm parent's death are repeated to the next one; both sides ignore duplicates.
        for launch in self._launches.values():
            self._send(launch)
        for worker, force in self._forced.items():
            self._send(EndWorker(worker=worker, force=force))
        return True

    def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _send(self, message: Envelope) -> None:
        # The request is not lost without a connection: `_connect` repeats what is still needed.
        if self._writer is not None and not self._replaced:
            self._writer.write(encode_frame(message))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read the warm parent's messages to its end, then replace it. Errors are raised in `events`."""
        try:
            await self._hear_all(reader)
            if not self._closing and self._error is None:
                await self._replace_parent()
        except LegatoError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 -- no other code awaits this task
            _log.exception("The engine of %s failed", self._directory)
            told = f"Cannot watch the workers of {self._directory}: {error!r}. They keep training; start a new driver."
            self._fail(LegatoError(told))

    async def _hear_all(self, reader: asyncio.StreamReader) -> None:
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received += data
                for body in take_frames(received):
                    self._hear(decode_parent_message(body))

    def _hear(self, message: ParentMessage) -> None:
        match message:
            case State(running=running):
                self._running = dict(running)
                self._known.set()
            case Ready(rendezvous=rendezvous):
                if self._rendezvous not in ("", rendezvous):
                    self._events.put_nowait(StoreMoved(rendezvous))
                self._rendezvous = rendezvous
                self._num_failed_starts = 0
                self._ready.set()
            case WorkerStarted(worker=worker, pid=pid):
                self._launches.pop(worker, None)
                self._limit(worker, pid)
                self._report(Started(worker=worker, pid=pid))
            case WorkerExited(worker=worker, exit_code=exit_code):
                self._launches.pop(worker, None)
                reason = self._explain_exit(worker, exit_code, was_forced=self._forced.pop(worker, False))
                self._report(Exited(worker=worker, exit_code=exit_code, reason=reason))
            case Replaced():
                self._replaced = True
                self._fail(LegatoError(f"Another driver has taken over the workers of {self._directory}."))

    def _open_groups(self, *, has_workers: bool) -> None:
        """Make the groups that limit the job, or report why it is not limited.

        Raises:
            UsageError: a required limit cannot be enforced.
        """
        # A job with a separate user gets groups if possible: they find its hidden processes at its end.
        if self._limits.is_empty and self._user is None:
            return
        support = find_support()
        if self._limits.is_empty and not support.places:
            return
        why_not = support.check(self._limits)
        try:
            if why_not is not None:
                raise UsageError(f"Cannot limit what the job uses: {why_not}. Or leave --memory and --cpus out.")
            groups = JobGroup(self._directory, self._limits, support)
            groups.open()
            self._groups = groups
        except UsageError as error:
            if self._limits.is_empty:
                return
            # Running workers are not ended because of it.
            if self._limits.must_hold and not has_workers:
                raise
            self._events.put_nowait(Noted(f"its limits of memory and CPU are not enforced: {error}"))

    def _limit(self, worker: int, pid: int) -> None:
        self._start_samples[worker] = _StartSample(pid, time.monotonic(), count_machine_oom_kills(), count_limit_hits())
        if self._groups is None:
            return
        if not belongs_to(pid, self._uid):
            self._events.put_nowait(Noted(f"process {pid} is not limited: it is no process of the job's user"))
            return
        try:
            self._groups.add_worker(worker, pid)
        except UsageError as error:
            self._events.put_nowait(Noted(str(error)))

    def _explain_exit(self, worker: int, exit_code: int, *, was_forced: bool) -> str:
        """Return the reason of a worker's end if it ran out of memory; else ""."""
        begun = self._start_samples.pop(worker, None)
        explained = ""
        if not was_forced and exit_code != 0:
            explained = self._explain_oom(worker, exit_code, begun)
        if self._groups is not None:
            self._groups.remove_worker(worker)
        return explained

    def _explain_oom(self, worker: int, exit_code: int, begun: _StartSample | None) -> str:
        if self._groups is not None and self._groups.counts_oom_kills:
            # The kernel counts for each worker, so the reason is certain.
            if not self._groups.count_oom_kills(worker):
                return ""
            if self._limits.memory_bytes is not None and self._groups.has_reached_limit(worker):
                return explain_oom(self._limits.memory_bytes)
            return _explain_outer(begun)
        if exit_code not in (-signal.SIGKILL, 128 + signal.SIGKILL) or begun is None:
            return ""
        is_named = is_named_victim(begun.pid, begun.at_s)
        if is_named is not None:
            return _explain_outer(begun) if is_named else ""
        now = count_machine_oom_kills()
        num_killed = 0 if now is None or begun.num_oom_kills is None else now - begun.num_oom_kills
        return explain_oom_nearby(num_killed) if num_killed > 0 else ""

    def _report(self, event: Started | Exited) -> None:
        if (type(event), event.worker) in self._reported:
            return
        self._reported.add((type(event), event.worker))
        if isinstance(event, Started):
            self._running[event.worker] = event.pid
        else:
            self._running.pop(event.worker, None)
        self._events.put_nowait(event)

    def _fail(self, error: LegatoError) -> None:
        self._error = error
        self._known.set()
        self._ready.set()
        self._events.put_nowait(None)

    async def _replace_parent(self) -> None:
        """Start another warm parent after this one has died. It adopts the workers, which continue."""
        if not self._ready.is_set():
            self._num_failed_starts += 1
        self._ready.clear()
        self._disconnect()
        record = self._read_record()
        await self._end_parent(record)
        if self._num_failed_starts >= _MAX_FAILED_STARTS:
            tail = _read_tail(self._log_path).strip().splitlines()[-1:]
            self._fail(
                LegatoError(
                    f"Cannot start the process that starts the workers: it ended {self._num_failed_starts} times "
                    f"during its imports ({' '.join(tail) or 'it printed nothing'}). See {self._log_path}."
                )
            )
            return
        try:
            await self._start_parent(record)
        except OSError as error:
            self._fail(LegatoError(f"Cannot start the process that starts the workers: {error}."))

    async def _end_parent(self, record: Record | None) -> None:
        """Make sure that the warm parent has ended, and reap it if it is this process's child."""
        if self._process is None and record is not None:
            # Its previous engine may have disconnected only after this one was opened.
            self._process = _detached.pop(record.pid, None)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, 2.0 if self._ready.is_set() or not self._closing else 0.0)
            if self._process.poll() is None:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
            self._process = None
        elif record is not None and record.pid:
            await end_process(record.pid, record.start_time, self._uid)


def _explain_outer(begun: _StartSample | None) -> str:
    before = LimitHits({}, is_certain=False) if begun is None else begun.limit_hits
    return explain_outer_oom(before, count_limit_hits())


def _read_tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        return file.read().decode(errors="replace")
