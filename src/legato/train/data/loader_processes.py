"""Loader processes: fetch the batches of given keys and return them. Never decides which keys.

Each process has a pipe for requests and a `batch_pipe` for results; large tensors travel in shared memory. No thread
takes part: results are received when the training asks for a batch. Requests that a process has not begun can be taken
back.

Why not torch's DataLoader: it returns batches in the order of the requests. So after a change of membership it would
first have to load and return all batches that are no longer needed. It also draws from this process's random state.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import traceback
import weakref
from collections.abc import Callable, Collection, Iterable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Final, NamedTuple

import torch
from torch.utils.data import default_collate

from legato.core.errors import DataError
from legato.train import torch_private
from legato.train.data import batch_pipe
from legato.train.data.dataset_state import DatasetState, Signer
from legato.train.data.fetch import Collate, Fetcher, FetchError, told
from legato.train.data.order import Key

CLOSE_LIMIT_S: Final = 1.0
_SHARED: Final = "/dev/shm"  # noqa: S108 -- where torch puts the tensors that it sends
_NO_ROOM: Final = ("shared memory(shm)", "unable to write to file </torch_")
"""Parts of torch's messages about this folder."""
_MORE_SHARED_MEMORY: Final = (
    "Enlarge it (mount -o remount,size=8G /dev/shm; for a container --shm-size=8g), or take fewer loader processes or "
    "a lower prefetch_factor."
)
_PR_SET_PDEATHSIG: Final = 1


class Failure(NamedTuple):
    """A key that could not be fetched.

    Args:
        what: the error in one line.
        pickled: the original error, None if it cannot be pickled.
        story: the traceback of the error in the loader process.
        advice: what to do, a sentence. "": the data set or its samples are to blame.
    """

    what: str
    pickled: bytes | None
    story: str
    advice: str = ""

    def cause(self) -> BaseException:
        """Return the original error, or an error with its traceback as text."""
        error = RuntimeError(self.what) if self.pickled is None else pickle.loads(self.pickled)  # noqa: S301 - our child's
        assert isinstance(error, BaseException)
        error.add_note(f"In a loader process:\n{self.story}")
        return error


class Place(NamedTuple):
    """The position of a loader process among the others, and what it must not keep of its parent."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    num_processes: int
    parent_pid: int | None
    parents_ends: tuple[Connection | socket.socket, ...]
    private_fds: tuple[int, ...]


class _Process:
    """One loader process as its parent sees it."""

    def __init__(self, process: BaseProcess, requests: Connection, results: socket.socket) -> None:
        self.process = process
        self.requests = requests
        self.results = results
        # Ends a wait for room for a request, or for a result.
        self.either = select.poll()
        self.either.register(requests, select.POLLOUT)
        self.either.register(results, select.POLLIN)
        self.loading: dict[int, Key] = {}

    def __del__(self) -> None:
        # A program may end without `close`. Python would warn of an open socket, and does not of the other pipe.
        self.results.close()


class LoaderProcesses:
    """A fixed number of processes, started at the first request.

    Args:
        fetcher: what each process runs.
        num_processes: at least 1.
        context: a start method, a context, or None for the default of the operating system.
        private_fds: called at the start; returns the descriptors that forked processes replace by ``/dev/null``.
        signer: what `state` compares; see `DatasetState`.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        num_processes: int,
        context: str | BaseContext | None,
        private_fds: Callable[[], Iterable[int]],
        signer: type[Signer] = Signer,
    ) -> None:
        self._fetcher = fetcher
        self._num_processes = num_processes
        self._context = context if isinstance(context, BaseContext) else multiprocessing.get_context(context)
        self._private_fds = private_fds
        self._signer = signer
        self._processes: list[_Process] = []
        self._poll = select.poll()
        self._arrived: dict[Key, Any] = {}
        self.state: DatasetState | None = None
        """Of the data set and the collation when the processes copied them; None without processes."""
        self._next_token = 0
        self._closed = False

    def is_loading(self, key: Key) -> bool:
        """Return whether a key was requested and `receive` has not returned its batch yet."""
        return key in self._arrived or any(key in process.loading.values() for process in self._processes)

    def request(self, key: Key) -> None:
        """Request the batch of a key from the least busy process.

        Raises:
            DataError: that process is dead, or the processes cannot be started.
        """
        if not self._processes:
            try:
                self._start()
            except (OSError, AssertionError) as error:
                self._end()
                raise DataError(
                    f"Cannot load data: a loader process cannot be started: {error}. Take fewer of them, or "
                    "num_workers=0."
                ) from error
        process = min(self._processes, key=lambda each: len(each.loading))
        token = self._next_token
        self._next_token += 1
        process.loading[token] = key
        self._request(process, (token, key))

    def forget_all_but(self, wanted: Collection[Key]) -> None:
        """Take back every request for another key; a batch that is being fetched now is dropped when it arrives."""
        for process in self._processes:
            for token in [token for token, key in process.loading.items() if key not in wanted]:
                # An earlier turn of this loop may have received it.
                if process.loading.pop(token, None) is not None:
                    self._request(process, (token, None))
        self._arrived = {key: batch for key, batch in self._arrived.items() if key in wanted}

    def receive(self, *, wait: bool) -> dict[Key, Any]:
        """Return what has arrived, by key: batches and failures.

        Args:
            wait: wait until something has arrived; at least one request must be open.

        Raises:
            DataError: a loader process has died.
        """
        arrived, self._arrived = self._arrived, {}
        while True:
            for process in self._ready(block=wait and not arrived):
                arrived.update(self._receive_from(process))
            if arrived or not wait:
                return arrived

    def renew_if_changed(self) -> bool:
        """End the processes if the data set or the collation has changed since they copied it; new ones copy it again.

        Returns:
            Whether the data set may have changed: the processes were ended, or none was started yet. Then no batch is
            being loaded.
        """
        if self.state is not None and not self.state.has_changed():
            return False
        self._end()
        return True

    def close(self) -> None:
        """End the processes. A process in the middle of a batch is killed after a short time. Idempotent."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        self.state = None
        processes, self._processes = self._processes, []
        self._poll = select.poll()
        self._arrived = {}
        for each in processes:
            # Processes that wait for a request, or for room for a result, wake up and end.
            each.requests.close()
            each.results.close()
        deadline = monotonic() + CLOSE_LIMIT_S
        for each in processes:
            each.process.join(max(0.0, deadline - monotonic()))
            if each.process.exitcode is None:
                each.process.kill()
                each.process.join()
            # If the program ignores SIGCHLD, the system keeps no exit codes.
            if each.process.exitcode is not None:
                each.process.close()

    def _start(self) -> None:
        if self._closed:
            raise DataError("Cannot load data: the loader is closed.")
        self.state = DatasetState(self._fetcher.dataset, self._fetcher.collate_fn, signer=self._signer)
        forked = self._context.get_start_method() == "fork"
        elders = [end for each in _living for process in each._processes for end in (process.requests, process.results)]
        ends: list[Connection | socket.socket] = []
        for index in range(self._num_processes):
            their_requests, requests = self._context.Pipe(duplex=False)
            results, their_results = socket.socketpair()
            ends += [requests, results]
            place = Place(
                index=index,
                num_processes=self._num_processes,
                # A process of a fork server has that server for a parent, not this process.
                parent_pid=None if self._context.get_start_method() == "forkserver" else os.getpid(),
                # Forked processes inherit this end of their own pipe and of earlier pipes; so none would see that its
                # pipe is closed.
                parents_ends=(*elders, *ends) if forked else (),
                # After the pipes are made: another thread may close a descriptor, whose number a pipe could get.
                private_fds=tuple(self._private_fds()) if forked else (),
            )
            process = self._context.Process(  # type: ignore[attr-defined]
                target=_serve,
                args=(self._fetcher, their_requests, their_results, place),
                name=f"legato-loader-{index}",
                daemon=True,
            )
            with their_requests, their_results:
                try:
                    process.start()
                except BaseException:
                    results.close()
                    raise
            self._processes.append(_Process(process, requests, results))
            self._poll.register(results, select.POLLIN)
        _living.add(self)

    def _ready(self, *, block: bool) -> list[_Process]:
        # A dead process closes its end of the pipe, so the pipe for results shows its death too.
        ready = {fd for fd, _ in self._poll.poll(None if block else 0)}
        return [process for process in self._processes if process.results.fileno() in ready]

    def _receive_from(self, process: _Process) -> dict[Key, Any]:
        try:
            message = batch_pipe.receive(process.results)
        except (EOFError, OSError) as error:
            raise self._death(process) from error
        key = process.loading.pop(message.token, None)
        try:
            batch = message.open()
        except (RuntimeError, OSError, EOFError) as error:
            # Each large tensor of a batch that the program keeps holds a file descriptor open.
            raise DataError(
                f"Cannot load data: a batch cannot be received from {process.process.name}: {error}. If the program "
                "keeps batches, keep copies (tensor.clone()), or raise the limit of open files (ulimit -n)."
            ) from error
        return {} if key is None else {key: batch}

    def _request(self, process: _Process, message: tuple[int, Key | None]) -> None:
        # A process that waits for room for a result reads no requests.
        while process.requests.fileno() not in {fd for fd, _ in process.either.poll()}:
            self._arrived.update(self._receive_from(process))
        try:
            process.requests.send(message)
        except OSError as error:
            raise self._death(process) from error

    def _death(self, process: _Process) -> DataError:
        process.process.join(CLOSE_LIMIT_S)
        code = process.process.exitcode
        how = "broke its pipe" if code is None else _render_exit(code)
        what = next(iter(process.loading.values()), None)
        busy = (
            "" if what is None else f" with micro-batch {what.index} of step {what.step} in epoch {what.epoch} to load"
        )
        who = f"{process.process.name} (pid {process.process.pid} on machine {socket.gethostname()})"
        # A process that writes to a mapped file for which the folder has no room is ended by this signal.
        if code == -signal.SIGBUS:
            advice = f"{_SHARED} may have no room. {_MORE_SHARED_MEMORY}"
        else:
            advice = (
                "If it was killed for memory, take fewer loader processes or a lower prefetch_factor; "
                "with num_workers=0 errors of the data set show themselves here."
            )
        return DataError(f"Cannot load data: {who} {how}{busy}. {advice}")


_living: Final[weakref.WeakSet[LoaderProcesses]] = weakref.WeakSet()
"""Those that have started processes."""


def _render_exit(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def _serve(fetcher: Fetcher, requests: Connection, results: socket.socket, place: Place) -> None:
    """Fetch the requested batches in the order of the requests, until the parent closes the pipe."""
    _leave_parent(place)
    torch.set_num_threads(1)
    torch_private.describe_loader_process(place.index, place.num_processes, fetcher.seed, fetcher.dataset)
    fetcher.collate_fn = partial(_collate, fetcher.collate_fn or default_collate)
    waiting: dict[int, Key] = {}
    while True:
        try:
            while not waiting or requests.poll():
                token, key = requests.recv()
                if key is None:
                    waiting.pop(token, None)
                else:
                    waiting[token] = key
            token = next(iter(waiting))
            _send(results, token, _fetch(fetcher, waiting.pop(token)))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _collate(collate: Collate, items: list[Any]) -> Any:
    with torch_private.as_in_training_process():
        return collate(items)


def _fetch(fetcher: Fetcher, key: Key) -> Any:
    try:
        return fetcher(key)
    except FetchError as failed:
        return _failure(str(failed), failed.__cause__ or failed)._replace(advice=failed.advice)
    finally:
        # The parent may kill this process, which would lose the output that is still in the buffers.
        sys.stdout.flush()
        sys.stderr.flush()


def _send(results: socket.socket, token: int, batch: Any) -> None:
    try:
        batch_pipe.send(results, token, batch)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - pickling runs code of the user's; all of it is sent to the parent
        failure = _failure(f"the batch cannot be sent to the trainer: {told(error)}", error)
        if any(text in str(error) for text in _NO_ROOM):
            failure = failure._replace(what=_describe_shared_memory(), advice=_MORE_SHARED_MEMORY)
        batch_pipe.send(results, token, failure)


def _describe_shared_memory() -> str:
    """Say how much room the folder has through which torch sends batches, and on which machine."""
    found = os.statvfs(_SHARED)
    total, free = (number * found.f_frsize // 2**20 for number in (found.f_blocks, found.f_bavail))
    told = f"{_SHARED} of machine {socket.gethostname()}, through which loader processes send batches,"
    return f"{told} has no room for it ({free} of {total} MiB are free)"


def _failure(what: str, error: BaseException) -> Failure:
    story = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - just made
    except Exception:  # noqa: BLE001 - an error of any kind here means only that the text must do
        return Failure(what, None, story)
    return Failure(what, pickled, story)


def _leave_parent(place: Place) -> None:
    """Drop what could block the parent's peers, and arrange that this process ends when the parent ends."""
    for end in place.parents_ends:
        end.close()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in place.private_fds:
        # Not closed: inherited objects still own these numbers, and would close the next file that gets such a number.
        os.dup2(nowhere, fd, inheritable=False)
    os.close(nowhere)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
    # The terminal sends Ctrl-C to the whole process group; the training process decides how to react.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if place.parent_pid is not None and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != place.parent_pid:
            os._exit(1)
