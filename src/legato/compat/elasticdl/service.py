"""The historic protocol over gRPC, all versions of it at once: reads requests, asks the master, writes answers.

Original programs and Legato's own client call it. Legato's client sends more, in the metadata of its calls: a name of
the request, so that it can repeat the request, and whether it waits for the answer. Decides nothing about tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

try:
    import grpc
    from grpc import aio
except ImportError as error:
    raise ImportError("jobs of ElasticDL need gRPC ('pip install legato[elasticdl]')") from error

from legato.compat.elasticdl import messages as m
from legato.compat.elasticdl.commands import (
    Command,
    Enter,
    Forget,
    Get,
    Leave,
    Meet,
    Notify,
    Reach,
    Register,
    Report,
    Reset,
    Restore,
    Stand,
    StateMachine,
)
from legato.compat.elasticdl.peers import Peers, PodPeers, Pods
from legato.compat.elasticdl.protobuf import decode, encode
from legato.compat.elasticdl.task_types import DatasetParams, Standing, Task, TaskKind, default_name
from legato.core.errors import DataError

_LOOP_ENTERED: Final = 1
_LOOP_PENDING: Final = 3
_NAME_OF_HOST: Final = "127.0.0.1"

_FIRST_ADDRESS: Final = ipaddress.IPv4Address("127.64.0.1")

_MAX_NAMES: Final = 10_000  # of data sets, of named points, of locks
_MAX_NAME_LENGTH: Final = 1000
_NAMES: Final = ("dataset_name", "sync_name", "name", "ask")

Handler = Callable[[Any, "aio.ServicerContext[bytes, bytes]"], Awaitable[Any]]


def address_of(worker: int) -> str:
    """Return the address that identifies a worker of a job on one machine: a separate one of the loopback interface.

    >>> address_of(0), address_of(300)
    ('127.64.0.1', '127.64.1.45')
    """
    return str(_FIRST_ADDRESS + worker)


class Master(Protocol):
    """The interface to `legato.compat.elasticdl.master.Master`, which describes each method."""

    machine: StateMachine

    def carry_out(self, command: Command) -> Any:
        """Carry out a command that changes the state."""
        ...

    def note(self, command: Command) -> None:
        """Log a command that was carried out."""
        ...

    async def get(self, command: Get, *, waits: bool, names_records: bool) -> Task | TaskKind:
        """Hand out a task."""
        ...

    def is_there(self, worker: int) -> bool:
        """Return whether a worker belongs to this job and has not ended."""
        ...

    def find_worker(self, address: str) -> int | None:
        """Return the worker with an address; None if there is none."""
        ...

    def address_of(self, worker: int) -> str:
        """Return the address that identifies a worker; empty if it has none."""
        ...


class Service:
    """The endpoint.

    Args:
        master: answers the requests.
        uid: the user of the system as whom the job's workers run; others are refused.
        pods: of a job on Kubernetes; others are refused. None: the workers run on this machine.
    """

    def __init__(self, master: Master, uid: int, pods: Pods | None = None) -> None:
        self._master = master
        self._uid = uid
        self._pods = pods
        self._host = _NAME_OF_HOST if pods is None else pods.address
        self._server: aio.Server | None = None
        self._peers: Peers | PodPeers = Peers(0, uid)
        self._locks: dict[str, asyncio.Lock] = {}

    async def listen(self, port: int) -> int:
        """Listen on a port or, if it is in use, on any free one; return the port."""
        for tried in (port, 0) if port else (0,):
            server = aio.server(
                options=[
                    ("grpc.so_reuseport", 0),
                    ("grpc.max_send_message_length", m.MAX_MESSAGE_BYTES),
                    ("grpc.max_receive_message_length", m.MAX_MESSAGE_BYTES),
                ]
            )
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(m.SERVICE, self._handlers())])
            with contextlib.suppress(RuntimeError):
                host = f"[{self._host}]" if ":" in self._host else self._host
                bound = int(server.add_insecure_port(f"{host}:{tried}"))
                if bound:
                    self._peers = Peers(bound, self._uid) if self._pods is None else PodPeers(self._pods)
                    await server.start()
                    self._server = server
                    return bound
        raise RuntimeError(f"no port of {self._host} is free")

    async def close(self) -> None:
        """Stop; calls that wait are given up."""
        if self._server is not None:
            await self._server.stop(None)

    # ------------------------------------------------------------ tasks

    async def _get_task(self, asked: m.GetTaskRequest, context: Any) -> m.TaskMessage:
        kind = TaskKind(asked.task_type) if asked.task_type in set(TaskKind) else TaskKind.TRAINING
        return await self._hand_out(asked.worker_id, default_name(kind), context)

    async def _get_dataset_task(self, asked: m.GetDatasetTaskRequest, context: Any) -> m.TaskMessage:
        return await self._hand_out(asked.worker_id, asked.dataset_name, context)

    async def _hand_out(self, worker: int, dataset: str, context: Any) -> m.TaskMessage:
        metadata = dict(context.invocation_metadata() or ())
        # In a loop with collectives the others would wait for this worker. So it does not wait, as in the original.
        is_in_loop = worker in self._master.machine.world.state.inside
        waits = metadata.get(m.WAITS, "no" if is_in_loop else "yes") == "yes"
        computes = metadata.get(m.COMPUTES, "") == "yes"
        asked = Get(worker, dataset, metadata.get(m.ASK, ""))
        answer = await self._master.get(asked, waits=waits, names_records=not computes)
        if not isinstance(answer, Task):
            return m.TaskMessage(type=TaskKind.NONE)
        order = self._master.machine.tasks.order_of(answer.dataset) if computes else None
        return _task_message(answer, m.Order() if order is None else m.Order(size=order[0], seed=order[1]))

    async def _report_result(self, asked: m.ReportResultRequest, _context: Any) -> m.Empty:
        self._master.carry_out(Report(asked.task_id, asked.err_message))
        return m.Empty()

    async def _report_params(self, asked: m.ReportParamsRequest, _context: Any) -> m.Empty:
        known = asked.task_type in (TaskKind.TRAINING, TaskKind.EVALUATION, TaskKind.PREDICTION)
        params = DatasetParams(
            name=asked.dataset_name,
            batch_size=asked.batch_size,
            num_epochs=asked.num_epochs,
            dataset_size=asked.dataset_size,
            shuffle=asked.shuffle,
            shuffle_shards=asked.shuffle_shards,
            num_minibatches_per_shard=asked.num_minibatches_per_shard,
            kind=TaskKind(asked.task_type) if known else TaskKind.TRAINING,
        )
        _check_new(params.name, self._master.machine.tasks.names, "data sets")
        self._master.carry_out(Register(params))
        return m.Empty()

    async def _reset_dataset(self, asked: m.ResetRequest, _context: Any) -> m.Empty:
        self._master.carry_out(Reset(asked.dataset_name, asked.worker_id, asked.ask))
        return m.Empty()

    async def _get_epoch(self, asked: m.DatasetRequest, _context: Any) -> m.EpochResponse:
        return m.EpochResponse(epoch=self._master.machine.tasks.epoch(asked.dataset_name))

    async def _get_checkpoint(self, asked: m.DatasetRequest, _context: Any) -> m.ShardCheckpoint:
        return m.ShardCheckpoint(content=self._master.machine.tasks.checkpoint(asked.dataset_name))

    async def _take_checkpoint(self, asked: m.ShardCheckpoint, _context: Any) -> m.YesResponse:
        try:
            return m.YesResponse(yes=self._master.carry_out(Restore(asked.content)))
        except DataError:
            return m.YesResponse()

    # ------------------------------------------------------------ who is there

    async def _get_rank(self, asked: m.HostRequest, _context: Any) -> m.CommRankResponse:
        worker = self._master.find_worker(asked.worker_host)
        if worker is None:
            return m.CommRankResponse(rank_id=-1)
        standing, has_changed = self._master.machine.carry_out(Stand(worker))
        if has_changed:
            self._master.note(Stand(worker))
        return self._rank_message(standing)

    def _rank_message(self, standing: Standing) -> m.CommRankResponse:
        first = self._master.machine.world.first
        return m.CommRankResponse(
            rank_id=standing.rank,
            world_size=standing.world_size,
            rendezvous_id=standing.rendezvous,
            rendezvous_port=standing.port,
            local_size=1,
            cross_rank=standing.rank,
            cross_size=standing.world_size,
            master_port=first[1] if first else 0,
            master_addr=self._master.address_of(first[0]) if first else "",
        )

    async def _report_loop(self, asked: m.LoopStatusRequest, _context: Any) -> m.Empty:
        worker = self._master.find_worker(asked.worker_host)
        if worker is not None:
            entered = asked.status == _LOOP_ENTERED
            self._master.carry_out(Enter(worker, asked.ddp_server_port) if entered else Leave(worker))
        return m.Empty()

    async def _reset_sync(self, asked: m.HostRequest, _context: Any) -> m.YesResponse:
        return self._meet("reset", asked)

    async def _barrier_sync(self, asked: m.HostRequest, _context: Any) -> m.YesResponse:
        return self._meet("barrier", asked)

    def _meet(self, name: str, asked: m.HostRequest) -> m.YesResponse:
        worker = self._master.find_worker(asked.worker_host)
        if worker is None:
            return m.YesResponse()
        return m.YesResponse(yes=self._master.carry_out(Meet(name, worker, asked.rendezvous_id)))

    async def _worker_sync(self, asked: m.WorkerSyncRequest, _context: Any) -> m.YesResponse:
        if not self._master.is_there(asked.worker_id):
            return m.YesResponse()
        _check_new(asked.sync_name, self._master.machine.syncs.points, "named points")
        return m.YesResponse(yes=self._master.carry_out(Reach(asked.sync_name, asked.worker_id)))

    async def _wait_sync(self, asked: m.WaitSyncRequest, _context: Any) -> m.YesResponse:
        if asked.notify:
            _check_new(asked.sync_name, self._master.machine.syncs.points, "named points")
            self._master.carry_out(Notify(asked.sync_name))
        return m.YesResponse(yes=self._master.machine.syncs.is_passed(asked.sync_name))

    async def _delete_sync(self, asked: m.DeleteSyncRequest, _context: Any) -> m.Empty:
        self._master.carry_out(Forget(None if asked.delete_all else asked.sync_name))
        return m.Empty()

    # ------------------------------------------------------------ what other strategies ask

    async def _nothing(self, _asked: m.Empty, _context: Any) -> m.Empty:
        """Answer calls that have no meaning here with an empty message."""
        return m.Empty()

    async def _get_status(self, _asked: m.Empty, _context: Any) -> m.NumberResponse:
        has_begun = self._master.machine.world.state.number > 0
        return m.NumberResponse(number=_LOOP_ENTERED if has_begun else _LOOP_PENDING)

    async def _acquire_lock(self, asked: m.LockRequest, _context: Any) -> m.YesResponse:
        _check_new(asked.name, self._locks, "locks")
        lock = self._locks.setdefault(asked.name, asyncio.Lock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(asked.timeout if asked.timeout > 0 else None):
                await lock.acquire()
                return m.YesResponse(yes=True)
        return m.YesResponse()

    async def _release_lock(self, asked: m.LockRequest, _context: Any) -> m.Empty:
        lock = self._locks.get(asked.name)
        if lock is not None and lock.locked():
            lock.release()
        return m.Empty()

    # ------------------------------------------------------------ the table

    def _handlers(self) -> dict[str, Any]:
        nothing = (m.Empty, self._nothing)
        methods: Mapping[str, tuple[type[Any], Handler]] = {
            "get_task": (m.GetTaskRequest, self._get_task),
            "get_dataset_task": (m.GetDatasetTaskRequest, self._get_dataset_task),
            "report_task_result": (m.ReportResultRequest, self._report_result),
            "report_dataset_task_result": (m.ReportResultRequest, self._report_result),
            "report_training_params": (m.ReportParamsRequest, self._report_params),
            "report_dataset_shard_params": (m.ReportParamsRequest, self._report_params),
            "reset_dataset": (m.ResetRequest, self._reset_dataset),
            "get_dataset_epoch": (m.DatasetRequest, self._get_epoch),
            "get_shard_checkpoint": (m.DatasetRequest, self._get_checkpoint),
            "report_shard_checkpoint": (m.ShardCheckpoint, self._take_checkpoint),
            "get_comm_rank": (m.HostRequest, self._get_rank),
            "report_training_loop_status": (m.LoopStatusRequest, self._report_loop),
            "reset_sync": (m.HostRequest, self._reset_sync),
            "barrier_sync": (m.HostRequest, self._barrier_sync),
            "worker_sync": (m.WorkerSyncRequest, self._worker_sync),
            "wait_worker_sync": (m.WaitSyncRequest, self._wait_sync),
            "delete_worker_sync": (m.DeleteSyncRequest, self._delete_sync),
            "query_training_status": (m.Empty, self._get_status),
            "init_remote_lock": nothing,
            "acquire_remote_lock": (m.LockRequest, self._acquire_lock),
            "release_remote_lock": (m.LockRequest, self._release_lock),
            "report_used_resource": nothing,
            "query_relaunch_ps_pod": nothing,
            "ready_for_ps_relaunch": nothing,
            "update_critical_worker": nothing,
            "report_model_metric": nothing,
            "report_global_step": nothing,
            "get_cluster_version": nothing,
            "update_cluster_version": nothing,
            "query_ps_address": nothing,
        }
        return {
            name: grpc.unary_unary_rpc_method_handler(self._check_user(_on_bytes(kind, handler)))
            for name, (kind, handler) in methods.items()
        }

    def _check_user(self, handle: Callable[[bytes, Any], Awaitable[bytes]]) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Return a handler that answers only the job's user."""

        async def handle_own(request: bytes, context: Any) -> bytes:
            if not await self._peers.is_own(context.peer()):
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED, "This job belongs to another user, or other pods."
                )
            return await handle(request, context)

        return handle_own


def _on_bytes(kind: type[Any], handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """Return a handler of bytes from one of messages. An invalid message is answered with an error."""

    async def handle(request: bytes, context: Any) -> bytes:
        try:
            if len(request) > m.MAX_REQUEST_BYTES and kind is not m.ShardCheckpoint:
                # Reading it would keep the driver from everything else.
                raise DataError(
                    f"A request has {len(request)} bytes; at most {m.MAX_REQUEST_BYTES} are allowed. Shorten it."
                )
            asked = decode(kind, request)
            for name in _NAMES:
                if len(getattr(asked, name, "")) > _MAX_NAME_LENGTH:
                    raise DataError(f"A name is longer than {_MAX_NAME_LENGTH} characters. Shorten it.")
            return encode(await handler(asked, context))
        except (DataError, ValueError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise  # not reached: abort raises

    return handle


def _check_new(name: str, known: Collection[str], what: str) -> None:
    """Raise DataError if a new name would exceed the maximum number of names."""
    if len(known) >= _MAX_NAMES and name not in known:
        raise DataError(f"There are {_MAX_NAMES} {what} already, which is the maximum. Reuse names.")


def _task_message(task: Task, order: m.Order) -> m.TaskMessage:
    return m.TaskMessage(
        task_id=task.number,
        shard=m.Shard(start=task.start, end=task.end, indices=task.indices),
        type=task.kind,
        epoch=task.epoch,
        order=order,
    )
