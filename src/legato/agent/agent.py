"""The agent of one machine for one job: holds the machine's engine, and connects to the job's driver.

It dials out, so that only the driver's door must be reachable. It decides nothing: it starts and ends the workers that
the driver names, reports their ends, sends their logs, and kills its workers when its lease is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from legato.agent.checkpoints import CheckpointRelay, shares_checkpoints
from legato.agent.logs import Echo, LogSender
from legato.agent.orders import AgentOrder, read_agent_order, read_state, write_state
from legato.agent.results import ResultFiles
from legato.agent.samples import Samples, measure_for
from legato.core import agent_messages as messages
from legato.core import exits
from legato.core.checkpoint_requests import DIRECTORY_VARIABLE
from legato.core.clock import Clock
from legato.core.errors import LegatoError, UsageError
from legato.core.job_user import JobUser
from legato.core.program import PROGRAM_VARIABLE, ProgramSnapshot
from legato.core.spec import DEFAULT_LOG_BYTES
from legato.driver.journal import Address, JobDirectory, replace_file
from legato.driver.log_caps import LogCaps
from legato.engines import job_users
from legato.engines.base import Exited, Launch, Noted, Started, StoreMoved
from legato.engines.file_pieces import CONTENT, find_newest
from legato.engines.gpus import find_slots
from legato.engines.interpreter import find_python
from legato.engines.local import DEFAULT_ENTRY, DEFAULT_PRELOAD, LocalEngine
from legato.engines.side_work import WorkQueue, persist
from legato.system.clocks import read_boot_clock
from legato.system.decoding import decode
from legato.system.tls import choose_tls, explain_tls_error

_log = logging.getLogger(__name__)

JOB_ENDED: Final = "The job has ended."
"""The reason for which an agent ends after its job."""

RESULTS_KEPT: Final = "The job has ended. Files of its program that the driver does not have are kept."
"""The reason for which an agent ends without deleting its directory."""

_RETRY_S: Final = 0.3
_AFTER_FAULT_S: Final = 1.0
_OPEN_LIMIT_S: Final = 5.0
_SILENCE_LIMIT_S: Final = 4.0
_SILENT_BEATS: Final = 8
"""A driver that answers none of so many beats, and nothing for `_SILENCE_LIMIT_S`, is given up: TCP alone may find out
only a minute after the network is back."""
_MAX_FRAME_BYTES: Final = 64 * 2**20
_FLUSH_LIMIT_S: Final = 5.0
_LAST_FLUSH_LIMIT_S: Final = 15.0
_CAP_EVERY_S: Final = 1.0
_CODE: Final = "code"
_PACKAGE: Final = Path(__file__).resolve().parents[1]  # the folder of Legato's package


class AgentFailedError(LegatoError):
    """A task of the agent failed. Another agent of the same directory may serve the job."""


class Agent:
    """Serves one job on this machine until the job has ended, or no driver has come back.

    Args:
        directory: of the agent: its order, state, logs and the processes of the job.
        clock: seconds of a clock that also runs while the machine is suspended, because the driver's does.
        echo: gets what workers print, once it is sent to the driver; None: nothing does.
    """

    def __init__(self, directory: Path, *, clock: Clock = read_boot_clock, echo: Echo | None = None) -> None:
        self._directory = directory
        self._files = JobDirectory(directory)
        self._clock = clock
        self._state = read_state(directory)
        self._engine: LocalEngine | None = None
        self._job: messages.OpenJob | None = None
        self._code: Path | None = None
        self._work: Path | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._outgoing: asyncio.Queue[messages.AgentMessage] | None = None
        self._rendezvous = ""
        self._num_events = 0
        self._unacknowledged: messages.WorkerEvent | messages.Remark | None = None
        self._acknowledged = asyncio.Event()
        self._unstarted: set[int] = set()
        self._logs = LogSender(self._files.logs, self._say, echo)
        # The driver says in a log what is missing.
        self._caps = LogCaps(self._files, DEFAULT_LOG_BYTES, self._warn, says=False)
        self._delivering = asyncio.Lock()
        self._checkpoints = CheckpointRelay(self._files.checkpoints, self._say)
        self._shares_checkpoints = True
        self._file_work = WorkQueue()
        self._results = ResultFiles(directory, self._files.program_file, self._say)
        self._closing: asyncio.Task[None] | None = None
        self._ends_workers = False
        self._opens_next: tuple[messages.OpenJob, AgentOrder, tuple[str, ...]] | None = None
        self._lease_s: float | None = None
        self._answered_at = clock()
        self._samples = Samples()
        self._url = self._outage = ""
        self._order: AgentOrder | None = None
        self._newest_order = read_agent_order(directory)
        self._stranger: tuple[AgentOrder | None, str] | None = None
        self._previous: ClientConnection | None = None
        self._written: Address | None = None
        self._written_term = -1
        self._writing = threading.Lock()
        self._disk_trouble = ""
        self._program: bytes | None = None  # that came, and is not on the disk
        self._attempt = _read_attempt(self._files)  # of workers that an earlier process of this agent started
        self._reporting: asyncio.Task[None] | None = None
        self._is_closing = False
        self._fault: BaseException | None = None
        self._keeps_workers = False
        self._over: str | None = None

    @property
    def has_workers(self) -> bool:
        """Whether workers run here."""
        return self._engine is not None and bool(self._engine.last_running)

    async def run(self) -> str:
        """Serve until the end; returns the reason of the end, as a sentence.

        Raises:
            AgentFailedError: a task of the agent failed. If the engine did, the workers were killed; otherwise they
                train on, and the next agent finds them.
        """
        write_state(self._directory, self._state)
        self._written_term = self._state.term
        self._begin(self._keep_lease())
        self._begin(self._write_forever())
        self._begin(self._watch_order())
        self._begin(persist(self._logs.send_forever))
        self._begin(persist(self._checkpoints.watch_forever))
        self._begin(persist(self._file_work.run))
        # Also while no driver takes the logs.
        self._begin(persist(self._caps.watch_forever))
        self._begin(persist(self._drop_ended))
        self._begin(self._samples.measure_forever(lambda: measure_for(self._engine)))
        try:
            while (reason := self._over) is None:
                order = self._order = self._newest_order
                connection = await self._connect(order)
                if connection is not None:
                    await self._serve_safely(connection, order)
                    if self._previous is not connection:
                        await connection.close()
                if connection is None or self._previous is None:
                    await asyncio.sleep(_RETRY_S)
            if self._fault is not None:
                raise AgentFailedError(reason) from self._fault
            return reason
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._checkpoints.begin_again()
            self._results.stop()
            if self._engine is not None and self._keeps_workers:
                await self._engine.detach()
            elif self._engine is not None:
                await self._engine.close()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do something while the agent serves; if it fails, the agent reports that and ends."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(error, ConnectionClosed) or self._over is not None or self._is_closing:
            return
        _log.error("The agent fails", exc_info=error)
        if task is self._reporting:
            # Without its engine the agent cannot know what its workers do.
            self._say(messages.OpenRefused(reason=f"its agent failed: {error}".rstrip(".")))
        else:
            self._keeps_workers = True
            self._say(messages.Remark(number=self._next_number(), text=f"its agent failed and starts again: {error!r}"))
        self._fault = error
        self._over = f"The agent in {self._directory} failed: {error!r}."

    # ------------------------------------------------------------ the connection

    async def _watch_order(self) -> None:
        """Keep the newest order in memory. Nothing else waits for the file system, which may not answer.

        The last order stays in force while the file cannot be read.
        """
        trouble = ""
        while True:
            await asyncio.sleep(_RETRY_S)
            try:
                self._newest_order = await asyncio.to_thread(read_agent_order, self._directory)
                trouble = ""
            except UsageError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("%s The agent uses the last one, and tries again", trouble)

    @property
    def _has_moved(self) -> bool:
        """Whether there is another order than that of the present connection."""
        return self._newest_order != self._order

    async def _connect(self, order: AgentOrder) -> ClientConnection | None:
        for url in order.urls:
            try:
                connection = await connect(
                    url,
                    additional_headers={"Authorization": f"Bearer {order.token}"},
                    open_timeout=_OPEN_LIMIT_S,
                    close_timeout=1,
                    compression=None,
                    ping_interval=None,
                    max_size=_MAX_FRAME_BYTES,
                    proxy=None,
                    **choose_tls(order.certificate),
                )
                self._url, self._outage = urlunsplit(urlsplit(url)._replace(path="/worker")), ""
                return connection
            except ssl.SSLError as error:
                if self._stranger != (self._order, url):
                    self._stranger = (self._order, url)
                    _log.warning("%s is not the driver of this job: %s", url, explain_tls_error(error))
            except (OSError, WebSocketException, TimeoutError) as error:
                told = f"{url}: {str(error) or type(error).__name__}"
                if told != self._outage:
                    self._outage = told
                    _log.warning("The driver cannot be reached at %s. The agent tries again", told)
        return None

    async def _serve_safely(self, connection: ClientConnection, order: AgentOrder) -> None:
        try:
            await self._serve(connection, order)
        except (ConnectionClosed, ConnectionError, TimeoutError):
            pass  # the agent connects again
        except OSError as error:
            _log.warning("Cannot serve the driver: %s. The agent connects again", error)  # such as a full disk
        except (msgspec.DecodeError, UnicodeError) as error:
            _log.warning("Cannot read a message of the driver: %s. The connection is closed", error)

    async def _serve(self, connection: ClientConnection, order: AgentOrder) -> None:
        if self._engine is not None:
            devices = self._engine.devices  # also if the machine has others by now
        else:
            devices = await asyncio.to_thread(find_slots, order.num_slots)
        hello = messages.AgentHello(
            node=order.node,
            identity=self._state.identity,
            devices=devices,
            address=order.address,
            term=self._state.term,
            switches_users=not job_users.list_missing_capabilities(),
            runs_as=job_users.name_own_user(),
            sends_results=True,
            workers=() if self._engine is None else tuple(self._engine.last_running),
        )
        await connection.send(messages.encode_agent_frame(hello))
        async with asyncio.timeout(_OPEN_LIMIT_S):
            first = messages.decode_agent_request(messages.as_bytes(await connection.recv()))
        if isinstance(first, messages.AgentRefused):
            await self._give_up(f"The driver does not use this agent: {first.reason}.")
            return
        if not isinstance(first, messages.AgentWelcome):
            return
        if first.term < self._state.term:
            await connection.send(messages.encode_agent_frame(messages.Outranked(term=self._state.term)))
            return
        await self._leave_previous(first.term)
        self._state = msgspec.structs.replace(self._state, term=first.term)
        # A welcome renews no lease: a driver that cannot read its term says it too.
        self._lease_s = first.lease_s
        await self._write_changed()
        self._outgoing = asyncio.Queue()
        self._logs.begin_again()
        self._file_work.drop()
        self._checkpoints.begin_again()
        self._results.connect_again()
        parts = [
            asyncio.create_task(self._send_forever(connection, self._outgoing)),
            asyncio.create_task(self._beat_forever(first.beat_every_s)),
        ]
        for part in parts:
            part.add_done_callback(self._note_end)
        try:
            await self._listen(connection, order, devices, max(_SILENCE_LIMIT_S, _SILENT_BEATS * first.beat_every_s))
            if self._fault is not None:
                await self._send_rest()
            elif self._has_moved:
                self._previous = connection
        finally:
            self._outgoing = None
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _listen(
        self, connection: ClientConnection, order: AgentOrder, devices: tuple[str, ...], silence_limit_s: float
    ) -> None:
        """Carry out what the driver asks for, until the agent ends, has another order, or the driver is silent."""
        silent_s = 0.0
        while self._over is None and not self._has_moved:
            if silent_s > silence_limit_s:
                _log.warning("The driver is silent for %g s. The agent connects again", silence_limit_s)
                connection.transport.abort()
                return
            try:
                frame = await asyncio.wait_for(connection.recv(), _RETRY_S)
            except TimeoutError:
                # Only waits count, so the driver is not silent because this process could not run.
                silent_s += _RETRY_S
            else:
                silent_s = 0.0
                await self._hear(messages.decode_agent_request(messages.as_bytes(frame)), order, devices)

    async def _leave_previous(self, term: int) -> None:
        """Close the connection to the driver that had the previous address, and say so if it leads no more."""
        previous, self._previous = self._previous, None
        if previous is None:
            return
        with contextlib.suppress(ConnectionClosed):
            if term > self._state.term:
                await previous.send(messages.encode_agent_frame(messages.Outranked(term=term)))
            await previous.close()

    async def _send_forever(self, connection: ClientConnection, outgoing: asyncio.Queue[messages.AgentMessage]) -> None:
        while True:
            message = await outgoing.get()
            await connection.send(messages.encode_agent_frame(message))
            outgoing.task_done()

    async def _beat_forever(self, every_s: float) -> None:
        while True:
            self._say(messages.Beat(sent_s=self._clock(), sample=self._samples.take()))
            await asyncio.sleep(every_s)

    async def _send_rest(self) -> None:
        """Wait until the messages are sent, but no longer than `_FLUSH_LIMIT_S`."""
        if self._outgoing is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_LIMIT_S):
                    await self._outgoing.join()

    def _say(self, message: messages.AgentMessage) -> bool:
        """Send a message; returns False without a connection."""
        if self._outgoing is None:
            return False
        self._outgoing.put_nowait(message)
        return True

    # ------------------------------------------------------------ the driver's requests

    async def _hear(  # noqa: C901, PLR0912 -- one case per message
        self, message: messages.AgentRequest, order: AgentOrder, devices: tuple[str, ...]
    ) -> None:
        match message:
            case messages.Beat(sent_s=sent_s):
                self._answered_at = max(self._answered_at, min(sent_s, self._clock()))
            case messages.OpenJob():
                await self._open(message, order, devices)
            case messages.Program(content=content):
                self._program = content
            case messages.StartOne():
                await self._start(message, order)
            case messages.StopOne(worker=worker, force=force):
                if self._engine is not None:
                    await self._engine.stop(worker, force=force)
            case messages.Examine(question=question, workers=workers):
                found = {} if self._engine is None else await self._engine.examine(workers)
                self._say(
                    messages.Vitals(question=question, found={each: (it.state, it.cpu_s) for each, it in found.items()})
                )
            case messages.Acknowledge(number=number):
                if self._unacknowledged is not None and number >= self._unacknowledged.number:
                    self._unacknowledged = None
                    self._acknowledged.set()
            case messages.TookLog():
                self._logs.note_taken(message)
            case messages.SendCheckpoint():
                self._checkpoints.send(message)
            case messages.HastenCheckpoint(name=name):
                self._checkpoints.hasten(name)
            case messages.FileTaken():
                self._checkpoints.note_taken(message)
                self._results.note_taken(message)
            case messages.FilePiece(name=name):
                receiver = self._results.fetcher if CONTENT.fullmatch(name) else self._checkpoints
                await self._file_work.put(partial(receiver.take, message), message.data)
            case messages.OfferFiles():
                self._results.fetcher.note_offer(message)
            case messages.FetchFile():
                self._results.send(message)
            case messages.FileGone():
                self._results.fetcher.note_gone(message)
            case messages.FilesTaken():
                self._results.note_end(message)
            case messages.NoCheckpoint(error=error):
                await self._file_work.put(partial(self._checkpoints.answer, error or None))
            case messages.CloseJob(takes_results=takes_results):
                self._begin_to_close(takes_results=takes_results)
            case messages.AgentRefused(reason=reason):
                await self._give_up(f"The driver does not use this agent: {reason}.")

    async def _open(self, job: messages.OpenJob, order: AgentOrder, devices: tuple[str, ...]) -> None:
        if self._ends_workers:
            self._opens_next = job, order, devices
            return
        if self._closing is not None:
            # The driver that closed the job has died, and another one leads it: it opens the job, and closes it.
            self._closing.cancel()
            self._closing, self._is_closing = None, False
            self._results.stop()
        if self._opening is not None and (not self._opening.done() or self._engine is not None):
            # Open already. A driver that is new asks again, and is answered when the store is known.
            if self._rendezvous:
                await self._say_opened()
            if self._unacknowledged is not None:
                self._say(self._unacknowledged)
            return
        self._job = job
        self._opening = self._begin(self._open_engine(job, order, devices))

    async def _open_engine(self, job: messages.OpenJob, order: AgentOrder, devices: tuple[str, ...]) -> None:
        try:
            user = await asyncio.to_thread(self._share_with, job.user) if job_users.is_other(job.user) else None
            directory = await asyncio.to_thread(self._find_directory, job, order)
            if user is not None:
                places = [str(directory), *([job.data] if job.data else [])]
                await asyncio.to_thread(job_users.check_reach, user, places)
            python = None if job.python is None else str(await asyncio.to_thread(find_python, job.python, user))
            earlier = await asyncio.to_thread(self._logs.list_logs)
            told = None
            if (root := self._work or self._code) is not None:
                told = await self._results.prepare(root, user, has_earlier=job.has_earlier)
        except (LegatoError, OSError) as error:
            self._say(messages.OpenRefused(reason=str(error).rstrip(".")))
            return
        self._shares_checkpoints = await asyncio.to_thread(shares_checkpoints, job, user)
        engine = LocalEngine(
            self._directory,
            devices,
            environment=job.environment,
            directory=directory,
            start=job.start,
            entry=job.entry or DEFAULT_ENTRY,
            preload=DEFAULT_PRELOAD if job.preload is None else job.preload,
            wished=job.wished,
            idle_limit_s=job.idle_limit_s,
            limits=job.limits,
            python=python,
            cpu_capability=job.cpu_capability,
            user=user,
            address=order.address,
        )
        opening = asyncio.ensure_future(engine.open())
        try:
            await asyncio.shield(opening)
            self._engine = engine
            self._logs.note_ended(set(earlier) - set(engine.known_workers))
            self._reporting = self._begin(self._report_forever(engine))
            self._caps.max_bytes = job.log_max_bytes
            self._rendezvous = await engine.rendezvous()
            if told is not None:
                self._warn(told)
        except (LegatoError, OSError) as error:
            self._engine = None
            await engine.close()
            self._say(messages.OpenRefused(reason=str(error).rstrip(".")))
            return
        except BaseException:
            # The job has ended meanwhile, or this agent ends: no other code knows the engine.
            if self._engine is None:
                # A thread may be starting the warm parent, and cannot be stopped.
                await asyncio.wait([opening], timeout=_OPEN_LIMIT_S)
                opening.cancel()
                await engine.close()
            raise
        await self._say_opened()

    def _share_with(self, name: str) -> JobUser:
        """Return the system user of the workers on this machine, and give it the folders that they write.

        Raises:
            LegatoError: there is no such user here, or its processes cannot reach the folders.
        """
        user = job_users.find_user_of_agent(name, self._directory)
        self._files.user = user
        self._files.make()
        self._files.share_with_job()
        self._checkpoints.serve(user)
        self._write_address()  # which this user may read
        job_users.drop_variables()  # the rest is not for jobs
        return user

    def _find_directory(self, job: messages.OpenJob, order: AgentOrder) -> Path:
        """Return the working directory; another folder if this machine does not have the driver's.

        Raises:
            UsageError: this machine does not have the directory of the program, or of the data.
        """
        if job.data and not Path(job.data).is_dir():
            raise UsageError(f"it has no data directory '{job.data}'")
        meant = Path(job.directory)
        if meant.is_dir():
            return meant
        if order.work:
            self._work = Path(order.work)
            return self._work
        if not job.copies_program:
            raise UsageError(f"it has no directory '{meant}'")
        self._code = self._directory / _CODE
        self._code.mkdir(parents=True, exist_ok=True)
        return self._code

    async def _say_opened(self) -> None:
        assert self._engine is not None
        newest = None if self._shares_checkpoints else await asyncio.to_thread(find_newest, self._files.checkpoints)
        opened = messages.Opened(
            rendezvous=self._rendezvous,
            workers=self._engine.known_workers,
            shares_checkpoints=self._shares_checkpoints,
            devices=self._engine.devices,
            newest="" if newest is None else newest.name,
            work=self._results.work,
        )
        self._say(opened)

    def _keep_program(self, content: bytes) -> None:
        """Keep the sources of the program; on a machine without the program's folder, write them into a copy of it."""
        program = decode(content, ProgramSnapshot)
        if self._code is not None:
            for source in program.sources:
                path = self._code / source.path
                if not path.resolve().is_relative_to(self._code.resolve()):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.content)
            content = msgspec.json.encode(msgspec.structs.replace(program, folder=str(self._code.resolve())))
        replace_file(self._files.program_file, content)

    async def _start(self, request: messages.StartOne, order: AgentOrder) -> None:
        if self._engine is None:
            return
        self._attempt = request.attempt
        environment = {
            **request.environment,
            "LEGATO_DRIVER_FILE": str(self._files.address_file),
            "LEGATO_HOST": order.address,
        }
        if not self._shares_checkpoints:
            environment[DIRECTORY_VARIABLE] = str(self._files.checkpoints)
        if PROGRAM_VARIABLE in environment:
            environment[PROGRAM_VARIABLE] = str(self._files.program_file)
        directory, program = request.directory, request.program
        if self._code is not None:
            directory = str(self._code)
            program = (str(self._code / Path(program[0]).name), *program[1:]) if program else program
        else:
            program = self._move(program, request.directory)
            directory = directory if self._work is None else str(self._work)
        try:
            await asyncio.to_thread(self._write_address)
            if self._program is not None:
                await asyncio.to_thread(self._keep_program, self._program)
                self._program = None
            await self._engine.start(
                Launch(
                    worker=request.worker,
                    slot=request.slot,
                    program=program,
                    environment=environment,
                    directory=directory,
                    log_path=str(self._files.log_path(request.worker)),
                )
            )
        except UsageError as error:
            # The machine has no such slot, so no worker can ever train there.
            self._report_unstarted(request.worker, exits.EXIT_REFUSED, error)
        except (LegatoError, OSError) as error:
            self._report_unstarted(request.worker, exits.EXIT_UNSTARTED, error)

    def _report_unstarted(self, worker: int, exit_code: int, error: Exception) -> None:
        if worker not in self._unstarted:  # the driver repeats the request until it knows the end
            self._unstarted.add(worker)
            end = messages.WorkerEvent(
                number=self._next_number(), worker=worker, exit_code=exit_code, reason=str(error).rstrip(".")
            )
            self._begin(self._deliver(end))

    async def _write_forever(self) -> None:
        while True:
            await asyncio.sleep(_AFTER_FAULT_S)
            await self._write_changed()

    async def _write_changed(self) -> None:
        """Write the term and the address of a new driver. After an error of the disk they are written later.

        The driver is served meanwhile, because without a driver the lease of the workers would end.
        """
        try:
            await asyncio.to_thread(self._write_term)
            await asyncio.to_thread(self._write_address)
            self._disk_trouble = ""
        except OSError as error:
            if str(error) != self._disk_trouble:
                self._disk_trouble = str(error)
                _log.warning("Cannot write the address or the term of the driver, which is tried again: %s", error)

    def _write_term(self) -> None:
        with self._writing:
            state = self._state
            if state.term != self._written_term:
                write_state(self._directory, state)
                self._written_term = state.term

    def _write_address(self) -> None:
        with self._writing:
            certificate = "" if self._order is None else self._order.certificate
            address = Address(self._url, self._attempt, certificate)
            if self._attempt and address != self._written:
                self._files.write_address(address)
                self._written = address

    async def _drop_ended(self) -> None:
        """Keep the unsent logs of all ended workers together below the limit of one log."""
        while True:
            await asyncio.sleep(_CAP_EVERY_S)
            # Without holes, `LogCaps` warns; these logs are deleted when the driver has them.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._logs.drop_ended, self._caps.max_bytes)

    def _warn(self, text: str) -> None:
        self._begin(self._remark(text))

    async def _remark(self, text: str) -> None:
        """Tell the job's user something; waits until the driver knows it."""
        _log.warning("%s", text)
        await self._deliver(messages.Remark(number=self._next_number(), text=text))

    # ------------------------------------------------------------ reports

    async def _report_forever(self, engine: LocalEngine) -> None:
        """Report each event of the engine until the driver has acknowledged it; only then take the next one.

        Raises:
            LegatoError: the engine failed after it was open. `_open_engine` reports earlier errors.
        """
        try:
            await self._report_events(engine)
        except LegatoError:
            if self._engine is engine and self._opening is not None and self._opening.done():
                raise

    async def _report_events(self, engine: LocalEngine) -> None:
        async for event in engine.events():
            match event:
                case StoreMoved(rendezvous=rendezvous):
                    self._rendezvous = rendezvous
                    await self._say_opened()
                case Noted(told=text):
                    await self._remark(text)
                case Started(worker=worker, pid=pid):
                    await self._deliver(messages.WorkerEvent(number=self._next_number(), worker=worker, pid=pid))
                case Exited(worker=worker, exit_code=code, reason=reason):
                    # The driver shows the last lines of a log when it reports the end.
                    with contextlib.suppress(OSError):
                        await self._logs.flush(worker, _FLUSH_LIMIT_S)
                    number = self._next_number()
                    end = messages.WorkerEvent(number=number, worker=worker, exit_code=code, reason=reason)
                    await self._deliver(end)
                    self._logs.note_ended([worker])

    def _move(self, program: tuple[str, ...], directory: str) -> tuple[str, ...]:
        """Return a program with the path at which this machine has it."""
        script = Path(program[0]) if program else None
        assert self._job is not None
        if script is None or not script.is_absolute():
            return program
        if self._job.package and script.is_relative_to(self._job.package):
            return (str(_PACKAGE / script.relative_to(self._job.package)), *program[1:])
        if self._work is not None and script.is_relative_to(directory):
            return (str(self._work / script.relative_to(directory)), *program[1:])
        return program

    def _next_number(self) -> int:
        self._num_events += 1
        return self._num_events

    async def _deliver(self, message: messages.WorkerEvent | messages.Remark) -> None:
        async with self._delivering:
            self._unacknowledged = message
            self._say(message)
            if self._is_closing:
                return
            self._acknowledged.clear()
            await self._acknowledged.wait()

    # ------------------------------------------------------------ the end

    async def _keep_lease(self) -> None:
        """Kill the workers when the lease is over, and end when no driver has come for long after that.

        Waits for no file and no thread: a file system that does not answer must not delay the kill.
        """
        while True:
            await asyncio.sleep(_RETRY_S)
            if self._lease_s is None:
                lease_s, idle_s = _OPEN_LIMIT_S, 60.0
            else:
                lease_s, idle_s = self._lease_s, self._job.idle_limit_s if self._job is not None else 60.0
            away_s = self._clock() - self._answered_at
            if away_s <= lease_s:
                continue
            running = {} if self._engine is None else self._engine.last_running
            for worker in running:
                _log.warning("The lease is over: no driver for %.1f s. Worker %d is killed", away_s, worker)
                assert self._engine is not None
                await self._engine.stop(worker, force=True)
            if not running and away_s > lease_s + idle_s and self._outgoing is None:
                self._over = f"No driver has come back for {away_s:.0f} s."
                return

    def _begin_to_close(self, *, takes_results: bool) -> None:
        """End the workers, send what the driver does not have, and end; the driver is heard meanwhile."""
        if self._closing is not None:
            self._results.offer_again()  # to a driver that had lost the connection
            return
        self._is_closing = self._ends_workers = True
        self._acknowledged.set()
        self._closing = asyncio.create_task(self._close(takes_results=takes_results))
        self._tasks.append(self._closing)

    async def _close(self, *, takes_results: bool) -> None:
        try:
            await self._end_workers()
        except (LegatoError, OSError):
            _log.exception("The agent cannot end its workers in order")
        self._ends_workers = False
        if self._opens_next is not None:
            self._closing, self._is_closing, then, self._opens_next = None, False, self._opens_next, None
            await self._open(*then)
            return
        is_complete = not takes_results or self._results.root is None or await self._results.hand_over()
        self._logs.give_up()
        self._say(messages.Closed())
        await self._send_rest()
        self._over = JOB_ENDED if is_complete else RESULTS_KEPT

    async def _end_workers(self) -> None:
        await self._end_opening()
        if self._engine is not None:
            await self._engine.close()
            if self._reporting is not None:
                await asyncio.wait([self._reporting])
            self._engine = None
        with contextlib.suppress(OSError):
            await self._logs.flush(None, _LAST_FLUSH_LIMIT_S)

    async def _end_opening(self) -> None:
        """End an opening of the engine that is not done; an engine that is not open yet ends with it."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])

    async def _give_up(self, reason: str) -> None:
        await self._end_opening()
        if self._engine is not None:
            await self._engine.close()
            self._engine = None
        self._over = reason


def _read_attempt(files: JobDirectory) -> str:
    try:
        return decode(files.address_file.read_bytes(), Address).attempt
    except (OSError, msgspec.DecodeError):
        return ""
