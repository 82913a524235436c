"""Workers on several machines, each with an agent. Loads no torch, decides nothing about membership.

Agents connect to the driver's door; this engine is the driver's end of these connections. A machine whose agent is
silent for too long is lost: its workers count as running until the agent confirms their end, or until the agent's lease
is over, because an agent kills its workers by then (docs/membership.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from legato.core import agent_messages as messages
from legato.core import exits
from legato.core.clock import Clock
from legato.core.errors import LegatoError, MachinesRefused, Superseded, UsageError
from legato.core.job_user import JobUser
from legato.core.program import PROGRAM_VARIABLE
from legato.core.slots import index_of, node_of
from legato.core.system_metrics import SystemSample
from legato.core.warm import UNKNOWN_EXIT_CODE
from legato.engines.agent_events import EventQueue, Receipt
from legato.engines.agent_logs import LogIntake, LogWriter
from legato.engines.agent_node import (
    AgentNode,
    NodeSpec,
    Starter,
    explain_absence,
    find_late_limit,
    find_obstacle,
    list_for_store,
    read_attempt,
    refuse_stranger,
    send_forever,
)
from legato.engines.agent_questions import AgentQuestions
from legato.engines.agents_record import AgentsRecord, NodeRecord, RecordFile
from legato.engines.base import EngineEvent, Exited, Launch, NodeBack, NodeLost, Noted, Started, StoreMoved
from legato.engines.departures import CLOSE_LIMIT_S, Departures
from legato.engines.file_pieces import PieceReceiver, check_file_name, mark_directory
from legato.engines.gpus import torch_name
from legato.engines.incoming import Incoming
from legato.engines.recovery import Recovery
from legato.engines.result_intake import ResultFolder, ResultIntake
from legato.engines.side_work import TaskSet
from legato.engines.term_watch import TermWatch
from legato.system.door import Door
from legato.system.processes import Vital

_log = logging.getLogger(__name__)

PATH: Final = "/agent"
RECORD: Final = "agents.json"
LEASE_MARGIN: Final = 0.1
"""The share of a lease by which the clocks of two machines may run apart, and then some."""

_MARK: Final = ".legato-"
_HELLO_LIMIT_S: Final = 10.0
_MIN_LOOKS: Final = 3  # fewer than an engine that runs makes within the shortest limit
_AGAIN_S: Final = 5.0
_TAKEN_OVER: Final = "Another driver has taken over the job: its agents have seen a higher term."
_DRIVER_FILE: Final = "LEGATO_DRIVER_FILE"


class AgentsEngine:
    """Start, stop and watch workers on several machines; see `legato.engines.base.Engine`.

    Args:
        directory: of the job, for ``agents.json``.
        door: where agents connect.
        nodes: the machines, in the order in which their slots are used.
        job: what each agent needs to open the job.
        log_path: the path of a worker's log on this machine.
        checkpoints: the job's directory of checkpoints on this machine; None: it has none.
        user: the system user of the job's processes on this machine, who can write the checkpoints; the agents find
            the user of the same name on theirs. None: processes run as the user of their agent.
        keep: how many checkpoints from machines that do not share the directory are kept in it.
        results: the folder for files that the program writes on machines that do not share its working directory.
            None: ``results`` in the job's directory.
        starter: makes the agents exist; None: they are started by other means.
        grows: further machines may be used: a machine joins when the driver names a slot of it, and the engine then
            waits for its agent.
        beat_every_s: interval of heartbeats.
        silence_limit_s: a machine that is silent for this long is lost; below the job's ``heartbeat_limit_s``.
        lease_s: an agent without a driver for this long kills its workers.
        start_limit_s: until the first machine must be ready.
        gather_limit_s: once one machine is ready, wait this long for the others.
        adopt_limit_s: until the first machine must be ready if workers run already; well below the job's
            ``away_limit_s``, after which these workers end without a driver.
        read_term: returns the highest term of the job's drivers; may block. Given if servers of several machines may
            start drivers: the engine then stops when it sees a higher term than its own, and renews no lease of an
            agent while it cannot read the term. None: a lock prevents a second driver.
        clock: monotonic seconds; None: the clocks of this machine.
    """

    def __init__(
        self,
        directory: Path,
        door: Door,
        nodes: Sequence[NodeSpec],
        job: messages.OpenJob,
        *,
        log_path: Callable[[int], Path],
        checkpoints: Path | None = None,
        user: JobUser | None = None,
        keep: int = 3,
        results: Path | None = None,
        starter: Starter | None = None,
        grows: bool = False,
        beat_every_s: float = 0.25,
        silence_limit_s: float = 4.0,
        lease_s: float = 120.0,
        start_limit_s: float = 120.0,
        gather_limit_s: float = 10.0,
        adopt_limit_s: float = 20.0,
        read_term: Callable[[], int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._file = RecordFile(directory / RECORD, self._may_write)
        self._door = door
        self._specs = tuple(nodes)
        self._job = job if user is None else msgspec.structs.replace(job, user=user.name)
        self._user = user
        self._log_path = log_path
        self._checkpoints = checkpoints
        self._keep_files = keep
        self._starter = starter
        self._grows = grows
        self._beat_every_s = beat_every_s
        self._silence_limit_s = silence_limit_s
        self._lease_s = lease_s
        self._start_limit_s = start_limit_s
        self._gather_limit_s = gather_limit_s
        self._adopt_limit_s = adopt_limit_s
        self._terms = TermWatch(read_term, self._fail, lambda: isinstance(self._error, Superseded), clock)
        self._clock = clock or time.monotonic
        self._nodes: dict[str, AgentNode] = {}
        self._store: AgentNode | None = None
        self._said_store: str | None = None
        self._program: messages.Program | None = None
        self._events = EventQueue()
        self._changed = asyncio.Event()
        self._folder = ResultFolder(results or directory / "results", directory / "incoming", user)
        self._departures = Departures(self._changed, self._forget_node, self._events.put)
        self._receiver = PieceReceiver(checkpoints if checkpoints is not None else directory, user)
        self._recovery = Recovery(checkpoints, lambda told: self._events.put(Noted(told)))
        self._questions = AgentQuestions()
        self._tasks = TaskSet(self._fail)
        self._error: LegatoError | None = None
        self._opened = self._closing = False
        self._opened_at = 0.0
        self.remarks: tuple[str, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def _record(self) -> AgentsRecord:
        return self._file.record

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._opened and not self._closing

    @property
    def last_running(self) -> dict[int, int]:
        """Worker → pid of the workers that may run; also valid after an error."""
        return {
            worker: pid
            for node in self._nodes.values()
            for worker, pid in node.record.workers.items()
            if not self._events.has(Exited, worker)
        }

    @property
    def secret(self) -> str:
        """The token with which agents connect."""
        return self._record.secret

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots of all machines that are ready or lost, in the order in which they are used; after `open`."""
        return tuple(slot for node in self._nodes.values() for slot in node.slots)

    # ------------------------------------------------------------ the contract

    async def open(self, term: int = 0) -> None:
        """Wait for the agents: for one, and then a little for the others. Later ones are used when they come.

        Args:
            term: of the driver; an agent refuses a lower one than it has seen.

        Raises:
            MachinesRefused: no machine can be used; the message names each with its reason.
        """
        self._terms.term = term
        self._loop = asyncio.get_running_loop()
        self._file.read()
        self._record.port, self._record.certificate = self._door.port, self._door.certificate
        specs = {spec.name: spec for spec in self._specs}
        for name in dict.fromkeys([*specs, *self._record.nodes]):
            record = self._record.nodes.setdefault(name, NodeRecord())
            if name in specs or record.workers or record.work or not self._grows:
                self._nodes[name] = self._new_node(specs.get(name, NodeSpec(name, len(record.devices) or None)), record)
        self._file.write()
        await asyncio.to_thread(self._mark_checkpoints)
        now = self._clock()
        for node in self._nodes.values():
            node.note_heard(now)
        self._opened, self._opened_at = True, now
        self._door.mount((PATH,), partial(refuse_stranger, self._record.secret), self._serve)
        self._tasks.begin(self._look_forever(), "legato-agents")
        self._tasks.begin(self._tend_forever(), "legato-agents-disk")
        self._tasks.begin(self._terms.watch(), "legato-term")
        for node in self._nodes.values():
            self._begin_to_keep(node)
        await self._gather()

    def _new_node(self, spec: NodeSpec, record: NodeRecord) -> AgentNode:
        writer = LogWriter(self._log_path, record.shifts, self._file.write)
        logs = LogIntake(spec.name, writer, lambda told: self._events.put(Noted(told)))
        node = AgentNode(spec, record, logs)
        files = self._receiver.of(spec.name)
        node.incoming = Incoming(spec.name, files, self._keep_files, node.send_if_open, self._list_coming, self._clock)
        node.results = ResultIntake(spec.name, self._folder, node.say, self._clock)
        return node

    def _begin_to_keep(self, node: AgentNode) -> None:
        node.begin(self._tasks)
        if self._starter is not None:
            keeping = node.keep_agent(self._starter, self._record.secret, partial(self._refuse, node))
            node.tasks.append(self._tasks.begin(keeping, f"legato-agent-{node.spec.name}"))

    async def _find_node(self, slot: str) -> AgentNode:
        """Return the machine of a slot, after its agent has connected or failed to. It may be a further machine.

        Raises:
            UsageError: there is no such slot.
        """
        name = node_of(slot)
        if (node := self._nodes.get(name)) is not None and node.is_leaving:
            await node.left.wait()
            node = self._nodes.get(name)
        if node is None and self._grows:
            node = self._nodes[name] = self._new_node(NodeSpec(name), self._record.nodes.setdefault(name, NodeRecord()))
            node.note_heard(self._clock())
            self._begin_to_keep(node)
        if node is not None and self._grows:
            await self._await_agent(node)
        if node is None or not (node.is_lost or node.slots_include(slot)):
            raise UsageError(f"Cannot use slot {slot}: the job's machines have {', '.join(self.slots) or 'no slots'}.")
        return node

    async def _await_agent(self, node: AgentNode) -> None:
        """Wait until a machine is open or lost; it is lost if its agent refuses the job or does not connect in time."""
        began = self._clock()
        if node.is_lost and node.trouble is not None and not node.record.workers and began > node.lost_at + _AGAIN_S:
            # The driver names a slot of it again: it may have been repaired since it refused the job.
            node.is_lost, node.trouble, node.lease_ends = False, None, None
            node.send(self._job)
        while not node.is_open and not node.is_lost and self._error is None and not self._closing:
            waited_s = self._clock() - max(began, node.results.asked_at)
            if node.trouble is None and waited_s >= self._start_limit_s:
                # A firewall, most likely. The job must give the slot back.
                node.trouble = explain_absence(self._start_limit_s, self._door.port)
            if node.trouble is not None:
                self._lose(node, node.trouble)
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._start_limit_s - waited_s):
                    await self._changed.wait()

    def _mark_checkpoints(self) -> None:
        """Put a file into the directory of checkpoints: an agent that sees it shares the directory."""
        if self._checkpoints is None:
            return
        name = f"{_MARK}{self._record.mark}"
        mark_directory(self._checkpoints, name, self._user)
        self._job = msgspec.structs.replace(self._job, checkpoints=str(self._checkpoints), mark=name)

    async def _gather(self) -> None:
        limits_s = (self._start_limit_s, self._adopt_limit_s) if self.last_running else (self._start_limit_s,)
        deadline = self._clock() + min(limits_s)
        is_gathering = False
        while not all(node.is_known for node in self._nodes.values()):
            if not is_gathering and any(node.is_open for node in self._nodes.values()):
                is_gathering, deadline = True, min(deadline, self._clock() + self._gather_limit_s)
            until = max(deadline, find_late_limit(self._nodes.values(), self._opened_at, self._gather_limit_s))
            if self._clock() >= until or self._error is not None:
                break
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - self._clock()):
                    await self._changed.wait()
        if self._error is not None:
            raise self._error
        waited_s = self._clock() - self._opened_at
        if not any(node.is_open for node in self._nodes.values()) and not self.last_running:
            refusals = {name: node.explain(waited_s).rstrip(".") for name, node in self._nodes.items()}
            await self.close()
            told = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
            raise MachinesRefused(f"Cannot run the job: no machine can be used. {told}.", refusals)
        for node in self._nodes.values():
            # A machine of a pool may come later: a start in its slot waits for it.
            is_late = self._grows and node.trouble is None and not node.record.workers
            if not node.is_open and not is_late:
                self._lose(node, node.explain(waited_s))

    async def rendezvous(self) -> str:
        """Return ``host:port`` of the store, which is on one of the machines. It moves when that machine is lost.

        It is empty if workers run, but none of the machines can be reached; `StoreMoved` follows when one can.
        """
        while self._store is None and self._error is None and not self.last_running:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        self._said_store = self._store.rendezvous if self._store is not None else ""
        return self._said_store

    async def device_of(self, slot: str) -> str:
        """Return torch's name of a slot's device in its worker, which sees no other: ``cpu`` or ``cuda:0``.

        Raises:
            UsageError: there is no such slot.
        """
        node = await self._find_node(slot)
        return torch_name(node.record.devices[index_of(slot)]) if node.slots_include(slot) else "cpu"

    async def start(self, launch: Launch) -> None:
        """Ask an agent to start a worker. Without a connection to it, the request waits.

        Raises:
            UsageError: there is no such slot.
        """
        node = await self._find_node(launch.slot)
        if node.is_lost:
            # No error: the driver may not have seen that yet. Where no worker can ever train, it gives the slot back.
            is_refused = node.trouble is not None and self._grows
            code = exits.EXIT_REFUSED if is_refused else exits.EXIT_UNSTARTED
            told = node.trouble if is_refused and node.trouble else f"the machine {node.spec.name} is lost"
            self._events.put(Exited(launch.worker, code, told))
            return
        if self._events.has(Started, launch.worker) or launch.worker in node.record.workers:
            return
        environment = dict(launch.environment)
        attempt = read_attempt(environment.get(_DRIVER_FILE))
        if self._events.is_fresh and not any(each.launches for each in self._nodes.values()):
            # The driver may have set aside the directory of an earlier run, with the mark in it.
            await asyncio.to_thread(self._mark_checkpoints)
        if self._program is None and PROGRAM_VARIABLE in environment:
            content = await asyncio.to_thread(Path(environment[PROGRAM_VARIABLE]).read_bytes)
            self._program = messages.Program(content=content)
            for each in self._nodes.values():
                each.send(self._program)
        # In the record before the request is sent: so no unknown worker runs, whichever process dies.
        node.record.workers[launch.worker] = 0
        node.record.shifts[launch.worker] = 0
        try:
            self._file.write()
        except OSError:
            del node.record.workers[launch.worker]
            raise
        request = messages.StartOne(
            worker=launch.worker,
            slot=launch.slot,
            program=launch.program,
            environment=environment,
            directory=launch.directory,
            attempt=attempt,
        )
        node.launches[launch.worker] = request
        if node.is_open:
            node.send(request)

    async def stop(self, worker: int, *, force: bool) -> None:
        """Send SIGTERM to a worker, or SIGKILL to it and its children, once its agent is connected."""
        node = self._node_with(worker)
        if node is None or self._events.has(Exited, worker):
            return
        node.forced[worker] = force or node.forced.get(worker, False)
        if node.is_open:
            node.send(messages.StopOne(worker=worker, force=node.forced[worker]))

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all workers that may run, including those of lost machines."""
        return self.last_running

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Return samples of the processes of workers; ``unreachable`` if a machine does not answer at once."""
        return await self._questions.examine(workers, self._node_with)

    async def measure(self) -> dict[str, SystemSample]:
        """Return the newest samples that the agents have sent, without old ones."""
        return {name: found for name, node in self._nodes.items() if (found := node.read_sample(self._clock()))}

    def is_away(self, worker: int) -> bool:
        """Return whether the checkpoints of a worker must be brought: its machine does not share the directory."""
        node = self._home_of(worker)
        return node is not None and not node.shares_checkpoints

    async def bring(self, worker: int, path: str) -> str:
        """Return where a checkpoint of a worker is on this machine; wait until all of it has come from its machine.

        Raises:
            LegatoError: it cannot come, because its machine is lost or has deleted it.
        """
        node = self._home_of(worker)
        if node is None or node.shares_checkpoints:
            return path
        name = check_file_name(Path(path).name)
        if node.is_lost:
            raise LegatoError(node.missing)
        return await asyncio.shield(node.incoming.add(name))

    async def recover(self) -> None:
        """Wait for checkpoints that machines have and that are newer than those here."""
        await self._recovery.wait(is_urgent=not self.last_running)

    def hasten(self, worker: int) -> None:
        """Bring the checkpoints of a worker as fast as the network allows: the worker has ended."""
        if (node := self._home_of(worker)) is not None:
            node.incoming.hasten()

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Yield events until `close`. An event counts as received when the driver asks for the next one.

        Raises:
            Superseded: another driver has taken over the agents.
        """
        async for event in self._events.receive():
            yield event
            if isinstance(event, Exited):
                self._forget(event.worker)
        if self._error is not None:
            raise self._error

    def note_rank_0(self, slot: str) -> None:
        """Note the machine of rank 0."""
        if self._record.note_rank_0(node_of(slot)):
            self._file.write_soon()
            self._choose_store()

    def note_slots(self, slots: Collection[str]) -> None:
        """Note all slots that the job is to use."""
        self._departures.wanted = frozenset(node_of(slot) for slot in slots)
        self._choose_store()

    def confirm_end(self, name: str, reason: str, seen_at: float) -> None:
        """Note that the agent of a machine and its workers have certainly ended: their lease is not awaited.

        Args:
            name: of the machine.
            reason: a clause without its period.
            seen_at: when it was seen, in monotonic seconds. An agent that has come since then still runs.
        """
        node = self._nodes.get(name)
        if node is None or self._closing or node.came_at > seen_at:
            return
        if node.record.workers:
            self._lose(node, reason)
            self._end_lease(node, reason)
            return
        node.incoming.fail_all(node.missing)
        self._departures.note_end(node, reason)
        self._forget_node(node)
        if self._store is node:
            self._choose_store(f"the machine {name} has ended")

    def abandon_results(self) -> None:
        """Bring no more files; the agents keep them."""
        self._departures.abandon()

    async def close(self, note: Callable[[str], None] = lambda _told: None) -> None:
        """Have all agents kill the remaining workers, send the program's files, and end; lost ones do after a lease."""
        if self._closing or not self._opened:
            return
        self._closing = True
        told: list[str] = []
        if self._error is None:
            await self._departures.stop()
            for node in self._nodes.values():
                node.send(node.results.close_request(node.record))
            told = await self._departures.bring_all(list(self._nodes.values()), self._record.rank_0, note)
            there = [node for node in self._nodes.values() if node.connection is not None]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await asyncio.gather(*(node.closed.wait() for node in there))
        await self._disconnect()
        self.remarks = (*self._events.take_remarks(), *told)
        if self._error is None:
            self._file.remove()
            await asyncio.to_thread(self._folder.clear)
            if self._checkpoints is not None:
                (self._checkpoints / f"{_MARK}{self._record.mark}").unlink(missing_ok=True)
                self._receiver.clear()

    async def detach(self) -> None:
        """Disconnect from the agents without ending them: the next driver of the job uses them."""
        self._closing = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        self._door.unmount((PATH,))
        for node in self._nodes.values():
            node.cut()
        await self._departures.stop()
        await self._tasks.cancel()
        self._events.end()

    # ------------------------------------------------------------ machines

    def _node_with(self, worker: int) -> AgentNode | None:
        return next((node for node in self._nodes.values() if worker in node.record.workers), None)

    def _home_of(self, worker: int) -> AgentNode | None:
        """Return the machine on which a worker runs or has run: what it says may be read after its end."""
        return next((node for node in self._nodes.values() if node.has_had(worker)), None)

    async def _look_forever(self) -> None:
        """Notice silent machines, and leases that are over. Waits for no disk and no thread."""
        while True:
            await asyncio.sleep(self._beat_every_s)
            self._look()
            if self._grows and not self._closing:
                self._departures.leave_idle(self._nodes, self._store, self._record.rank_0, self._clock())
            if self._store is not None and self._store.is_leaving:
                self._choose_store("the job leaves its machine")

    async def _tend_forever(self) -> None:
        while True:
            await asyncio.sleep(self._beat_every_s)
            for node in tuple(self._nodes.values()):
                await node.tend(self._clock())
            if not self._file.is_written and self._opened:
                self._file.write_soon()

    def _look(self) -> None:
        now = self._clock()
        silent = []
        for node in tuple(self._nodes.values()):
            # After a pause of this process, what agents have sent meanwhile still waits to be read.
            node.num_looks += 1
            if node.is_open and now - node.last_heard > self._silence_limit_s and node.num_looks >= _MIN_LOOKS:
                silent.append(node)
                node.is_open = False  # all of them before the first loss, which may choose another store
        for node in silent:
            told = f"its agent is silent for {self._silence_limit_s:g} s"
            self._lose(node, told, silent_s=now - node.last_heard)
        for node in self._nodes.values():
            if node.lease_ends is not None and now > node.lease_ends:
                self._end_lease(node, f"the machine {node.spec.name} was lost, and the lease of its agent is over")

    def _forget_node(self, node: AgentNode) -> None:
        """Forget a machine that the job has left, until the driver names a slot of it again."""
        if self._nodes.get(node.spec.name) is not node:
            return  # its end was confirmed before the job had left it
        node.cut()
        node.end()
        self._job = msgspec.structs.replace(self._job, has_earlier=self._job.has_earlier or node.had_files)
        del self._nodes[node.spec.name], self._record.nodes[node.spec.name]
        self._file.write_soon()

    def _lose(self, node: AgentNode, reason: str, *, silent_s: float = 0.0) -> None:
        """Use a machine no more until its agent is back; its workers count as running until its lease is over."""
        if node.is_lost:
            return
        node.lost_at = self._clock()
        node.cut()
        node.is_open, node.is_lost = False, True
        self._count_lease(node)
        node.incoming.fail_all(node.missing)
        if self._store is node:
            # Before the driver makes a view without the machine: the view needs a store that answers.
            self._choose_store()
        refuses = node.trouble is not None and not node.record.workers
        self._events.put(NodeLost(node.spec.name, reason, silent_s, refuses))
        self._changed.set()

    def _refuse(self, node: AgentNode, reason: str) -> None:
        node.trouble = reason
        if not node.is_lost and self._opened and not self._closing:
            if node.is_open:
                node.delay_return(self._clock())
                self._lose(node, reason)
            else:
                self._events.put(Noted(f"the machine {node.spec.name} cannot be used: {reason.rstrip('.')}"))
        self._changed.set()

    def _count_lease(self, node: AgentNode) -> None:
        # An earlier driver that was cut off may have renewed the lease until it could not read its term any more.
        node.lease_ends = self._clock() + self._terms.renewed_s + self._lease_s * (1 + LEASE_MARGIN)

    def _end_lease(self, node: AgentNode, reason: str) -> None:
        node.lease_ends = None
        for worker in tuple(node.record.workers):
            self._report(Exited(worker, UNKNOWN_EXIT_CODE, reason), node, 0)

    def _choose_store(self, *reason: str) -> None:
        able = list_for_store(self._nodes.values(), self._store, self._departures.wanted, self._record.rank_0)
        if self._store in able[1:]:
            reason = ("machines of the job have addresses of this family",)
        self._store = able[0] if able else None
        self._say_store(*reason)

    def _say_store(self, *reason: str) -> None:
        """Report another address of the store than the last one that the driver knows."""
        if self._store is not None and self._said_store not in (None, self._store.rendezvous):
            self._said_store = self._store.rendezvous
            self._events.put(StoreMoved(self._said_store, *reason))

    # ------------------------------------------------------------ one connection

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(_HELLO_LIMIT_S):
                hello = messages.decode_agent_message(messages.as_bytes(await connection.recv()))
            if not isinstance(hello, messages.AgentHello):
                await connection.close(1002, "the first message must be AgentHello")
                return
            node = self._nodes.get(hello.node)
            reason = self._check(node, hello)
            if reason is not None or node is None:
                await connection.send(messages.encode_agent_frame(messages.AgentRefused(reason=reason or "")))
                return
            if self._clock() < node.used_from:
                await connection.close(1013, "this machine has just failed: try again later")
                return
            if node.is_taken(hello, lambda worker: self._events.has(Exited, worker)):
                self._changed.set()
                await connection.close(1013, "another agent of this machine may still run workers: try again later")
                return
            if hello.term > self._terms.term:
                raise Superseded(_TAKEN_OVER)
            await self._serve_node(node, hello, connection)
        except (ConnectionClosed, TimeoutError):
            pass  # the agent connects again, or the machine is lost
        except Superseded as error:
            self._fail(error)
        except (msgspec.DecodeError, UnicodeError) as error:
            _log.warning("Cannot read a message of an agent: %s. The connection is closed", error)
            await connection.close(1002, "cannot read the message")

    def _check(self, node: AgentNode | None, hello: messages.AgentHello) -> str | None:
        """Return why an agent cannot be used; None if it can. Raises as `find_obstacle`."""
        if node is None:
            return f"this job does not use a machine of the name '{hello.node}'"
        reason = find_obstacle(hello, self._job.user)
        if reason is not None:
            self._refuse(node, reason)
            return reason
        if node.connection is not None and node.record.identity not in ("", hello.identity):
            return f"another agent with the name '{hello.node}' is connected; give each machine its own name"
        return None

    async def _serve_node(self, node: AgentNode, hello: messages.AgentHello, connection: ServerConnection) -> None:
        node.cut()
        node.connection, node.waiting, node.trouble = connection, asyncio.Queue(), None
        self._note_heard(node)
        if node.note_hello(hello, self._clock()):
            self._file.write_soon()
        welcome = messages.AgentWelcome(term=self._terms.term, beat_every_s=self._beat_every_s, lease_s=self._lease_s)
        node.send(welcome)
        if self._closing or node.is_leaving:
            node.results.continue_closing(node.record)
        else:
            node.send(self._job)
            if self._program is not None:
                node.send(self._program)
        self._changed.set()
        sender = asyncio.create_task(send_forever(connection, node.waiting))
        try:
            async for frame in connection:
                if node.connection is not connection:
                    return
                self._note_heard(node)
                await self._hear(node, messages.decode_agent_message(messages.as_bytes(frame)))
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sender
            if node.connection is connection:
                node.connection = None
                self._changed.set()

    def _note_heard(self, node: AgentNode) -> None:
        """Count the agent's silence and its lease from now: the answer to what it has just sent renews its lease.

        The agent counts from when it sent that, which is earlier. So the driver's count ends later than the agent's,
        also on a connection on which the agent never says that it is open.
        """
        node.note_heard(self._clock())
        if node.lease_ends is not None and node.trouble is None:
            self._count_lease(node)

    async def _hear(self, node: AgentNode, message: messages.AgentMessage) -> None:  # noqa: C901, PLR0912 -- one case each
        match message:
            case messages.Beat():
                node.hear_beat(message, may_renew=self._terms.may_renew(), now=self._clock())
            case messages.Opened():
                if message.newest and not message.shares_checkpoints:
                    await self._recovery.look(node, message.newest)
                self._note_opened(node, message)
            case messages.OpenRefused(reason=reason):
                self._refuse(node, reason)
            case messages.Outranked(term=term) if term > self._terms.term:
                self._fail(Superseded(_TAKEN_OVER))
            case messages.WorkerEvent(worker=worker, number=number) if worker not in node.record.workers:
                # Its end is known, or it is on another machine, of which this agent knows nothing.
                node.send(messages.Acknowledge(number=number))
            case messages.WorkerEvent(worker=worker, exit_code=None):
                node.record.workers[worker] = message.pid
                self._file.write_soon()
                self._report(Started(worker, message.pid), node, message.number)
            case messages.WorkerEvent(worker=worker, exit_code=int(code)):
                self._report(Exited(worker, code, message.reason), node, message.number)
            case messages.Remark(text=text, number=number):
                receipt = Receipt(node, node.connection, number)
                self._events.put(Noted(f"{node.spec.name}: {text}"), receipt)
            case messages.Vitals():
                self._questions.note_answer(node, message)
            case messages.LogBytes():
                await node.put_log(message, self._clock())
            case messages.FilePiece():
                await node.put_piece(message)
            case messages.FileTaken():
                node.sender.note_taken(message)
                node.results.offer.note_taken(message)
            case messages.WantFiles() | messages.OfferFiles() | messages.FetchFile() | messages.FileGone():
                node.results.hear(message)
            case messages.WantCheckpoint():
                node.begin_to_send(message, self._checkpoints, self._user, lambda told: self._events.put(Noted(told)))
            case messages.CheckpointGone(name=name):
                node.incoming.note_gone(name)
            case messages.Closed():
                await node.put_end()

    def _list_coming(self) -> set[str]:
        return {name for node in self._nodes.values() for name in node.incoming.names}

    def _note_opened(self, node: AgentNode, opened: messages.Opened) -> None:
        moved = node.rendezvous not in ("", opened.rendezvous)
        was_open, node.is_open, node.trouble = node.is_open, True, None
        if opened.devices and opened.devices[: node.spec.num_slots] != node.record.devices:
            node.record.devices = opened.devices[: node.spec.num_slots]
            self._file.write()
        if not was_open:
            node.opened_at = self._clock()
        node.rendezvous, node.shares_checkpoints = opened.rendezvous, opened.shares_checkpoints
        if node.record.work != opened.work:
            node.record.work = opened.work
            self._file.write_soon()
        node.is_lost, node.lease_ends = False, None
        if not was_open:
            # Also the first time: for the last driver, the machine may have been lost.
            self._events.put(NodeBack(node.spec.name, node.slots))
        if not was_open or moved:
            self._choose_store()
        # A worker that the agent does not have, and that it is not asked to start, ended with the agent's directory.
        for worker in set(node.record.workers) - set(opened.workers) - set(node.launches):
            self._report(Exited(worker, UNKNOWN_EXIT_CODE, "its end was not seen"), node, 0)
        node.send_open_requests()
        node.incoming.ask()
        self._changed.set()

    def _report(self, event: Started | Exited, node: AgentNode, number: int) -> None:
        if not self._events.report(event, node, number):
            return
        node.launches.pop(event.worker, None)
        if isinstance(event, Exited):
            node.forced.pop(event.worker, None)

    def _forget(self, worker: int) -> None:
        if (node := self._node_with(worker)) is not None:
            self._events.forget(node.forget(worker))
            self._file.write_soon()

    def _fail(self, error: LegatoError) -> None:
        """Report an error to the driver; callable from any thread, because the record is written in some."""
        if not isinstance(self._error, Superseded):
            self._error = error
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._changed.set)
        self._loop.call_soon_threadsafe(self._events.end)

    def _may_write(self) -> bool:
        if self._error is None:
            self._terms.look()
        return not isinstance(self._error, Superseded)
