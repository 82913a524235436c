"""The warm parent: a process that has imported torch and forks one worker per request, in milliseconds.

It also starts the store process, by which workers find one another, and reaps its children and reports their ends. It
outlives the driver and waits for the next one. It never initialises CUDA, never starts a thread, and decides nothing:
the driver decides which workers run. `legato.engines.local` runs it as ``python -m legato.train.process.warm_parent
RECORD LISTEN_FD``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from legato.core.errors import LegatoError
from legato.core.exits import EXIT_UNSTARTED
from legato.core.warm import (
    UNKNOWN_EXIT_CODE,
    AcknowledgeExited,
    AcknowledgeStarted,
    EndAll,
    EndWorker,
    EngineMessage,
    Entry,
    Envelope,
    Ready,
    Record,
    Replaced,
    StartWorker,
    State,
    WorkerExited,
    WorkerStarted,
    decode_engine_message,
    encode_frame,
    mark_of,
    take_frames,
)
from legato.system.decoding import decode
from legato.system.processes import is_alive, kill_group, send_signal, start_time_of
from legato.train.process.birth import become_worker, serve_store
from legato.train.process.output import OutputGuard
from legato.train.process.preloading import preload

_POLL_ORPHANS_S: Final = 0.2


class WarmParent:
    """The state of the process: its connection, its workers and its store.

    Args:
        record_path: the file with the settings and, from now on, the workers.
        listener: the socket to which engines connect; open before this process began, so that no connection is refused.
    """

    def __init__(self, record_path: Path, listener: socket.socket) -> None:
        self._record_path = record_path
        self._record = decode(record_path.read_bytes(), Record)
        self._record.pid = os.getpid()
        self._record.start_time = start_time_of(os.getpid()) or 0
        self._mark = mark_of(str(record_path))
        self._fork_safe = self._record.start == "fork"
        self._listener = listener
        self._engine: socket.socket | None = None
        self._received = bytearray()
        self._unsent = bytearray()
        self._children: set[int] = set()
        self._store_pid = 0
        self._store_lifeline = -1
        self._store_report = -1
        self._rendezvous: str | None = None
        self._idle_since = time.monotonic()
        self._ending = False
        self._is_unwritten = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()

    # ------------------------------------------------------------ life

    def run(self) -> None:
        """Serve until the job is over, or until neither a driver nor a worker was there for the idle limit."""
        for end in (self._listener, self._wake, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _signal, _frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain_wake)
        self._write_record()
        # The engine that started this process is connected already: report adopted workers to it before the imports.
        self._reap()
        self._accept()
        if self._fork_safe:
            entry_module = self._record.entry.partition(":")[0]
            self._fork_safe = preload((*self._record.preload, entry_module), self._record.wished)
        self._start_store()
        while not self._ending and not self._idle_for_too_long():
            self._turn()
        self._end()

    def _turn(self) -> None:
        orphaned = any(e.exit_code is None and e.pid not in self._children for e in self._record.workers.values())
        wait_s = _POLL_ORPHANS_S if orphaned or self._is_unwritten else None
        if wait_s is None and self._engine is None:
            wait_s = max(0.0, self._idle_since + self._record.idle_limit_s - time.monotonic())
        for key, _ in self._selector.select(wait_s):
            if key.fd in self._selector.get_map():
                key.data()
        self._reap()
        if self._is_unwritten:
            self._write_record_soon()

    def _idle_for_too_long(self) -> bool:
        if self._engine is not None or any(e.exit_code is None for e in self._record.workers.values()):
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since >= self._record.idle_limit_s

    def _end(self) -> None:
        for worker, entry in self._record.workers.items():
            if entry.exit_code is None:
                self._end_worker(worker, force=True)
        deadline = time.monotonic() + 5.0
        while any(e.exit_code is None for e in self._record.workers.values()) and time.monotonic() < deadline:
            self._selector.select(0.02)
            self._drain_wake()
            self._reap()
        if self._store_pid:
            os.close(self._store_lifeline)
            os.kill(self._store_pid, signal.SIGKILL)
            os.waitpid(self._store_pid, 0)
        # Exits that no driver has acknowledged are kept for the next one.
        if self._ending or not self._record.workers:
            self._record_path.unlink(missing_ok=True)
        shutil.rmtree(Path(self._record.socket).parent, ignore_errors=True)
        if self._engine is not None:
            self._engine.setblocking(True)
            with contextlib.suppress(OSError):
                self._engine.sendall(bytes(self._unsent))
            self._engine.close()

    def _write_record(self) -> None:
        scratch = self._record_path.with_name(self._record_path.name + ".new")
        scratch.touch(mode=0o600)
        scratch.write_bytes(msgspec.json.encode(self._record))
        scratch.replace(self._record_path)
        self._is_unwritten = False

    def _write_record_soon(self) -> None:
        """Write the record; on a full disk, keep what is new in memory and try again."""
        try:
            self._write_record()
        except OSError as error:
            if not self._is_unwritten:
                sys.stderr.write(f"legato: cannot write {self._record_path}: {error}. It is tried again.\n")
            self._is_unwritten = True

    # ------------------------------------------------------------ the engine

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        if self._engine is not None:
            # Requests of a dying driver are carried out before the next driver gets the state.
            self._hear()
        if self._engine is not None:
            self._send(Replaced())
            self._drop_engine()
        connection.setblocking(False)
        self._engine = connection
        self._selector.register(connection, selectors.EVENT_READ, self._exchange)
        workers = self._record.workers
        self._send(State(running={worker: e.pid for worker, e in workers.items() if e.exit_code is None}))
        if self._rendezvous is not None:
            self._send(Ready(rendezvous=self._rendezvous))
        for worker, entry in workers.items():
            if not entry.told:
                self._send(WorkerStarted(worker=worker, pid=entry.pid))
            if entry.exit_code is not None:
                self._send(WorkerExited(worker=worker, exit_code=entry.exit_code))

    def _exchange(self) -> None:
        self._flush()
        self._hear()

    def _hear(self) -> None:
        while self._engine is not None:
            try:
                data = self._engine.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop_engine()
                return
            self._received += data
            for body in take_frames(self._received):
                self._carry_out(decode_engine_message(body))

    def _carry_out(self, message: EngineMessage) -> None:
        workers = self._record.workers
        match message:
            case StartWorker():
                if message.worker not in workers:
                    self._start_worker(message)
            case EndWorker(worker=worker, force=force):
                self._end_worker(worker, force=force)
            case AcknowledgeStarted(worker=worker):
                if worker in workers:
                    workers[worker].told = True
                    self._write_record_soon()
            case AcknowledgeExited(worker=worker):
                if workers.pop(worker, None) is not None:
                    self._write_record_soon()
            case EndAll():
                self._ending = True

    def _send(self, message: Envelope) -> None:
        if self._engine is not None:
            self._unsent += encode_frame(message)
            self._flush()

    def _flush(self) -> None:
        # A stopped driver must not block this process: messages that do not fit into the socket wait here.
        if self._engine is None:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                del self._unsent[: self._engine.send(self._unsent)]
        if self._engine in self._selector.get_map():
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            self._selector.modify(self._engine, wanted, self._exchange)

    def _drop_engine(self) -> None:
        assert self._engine is not None
        self._selector.unregister(self._engine)
        self._engine.close()
        self._engine = None
        self._received.clear()
        self._unsent.clear()
        self._idle_since = time.monotonic()

    # ------------------------------------------------------------ workers

    def _start_worker(self, message: StartWorker) -> None:
        # The child runs only after it is in the record: so no unknown worker runs, whichever process dies.
        gate, opener = os.pipe()
        try:
            pid = self._fork()
        except OSError:
            os.close(gate)
            os.close(opener)
            self._note_unstarted(message.worker)
            return
        if pid == 0:
            os.close(opener)
            become_worker(message, gate, entry=self._record.entry, fresh=not self._fork_safe)
        os.close(gate)
        self._children.add(pid)
        self._record.workers[message.worker] = Entry(pid, start_time_of(pid) or 0)
        try:
            self._write_record()
        except OSError:
            os.close(opener)  # the child ends
            os.waitpid(pid, 0)
            self._children.discard(pid)
            self._note_unstarted(message.worker)
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(opener, b"1")
        os.close(opener)
        self._send(WorkerStarted(worker=message.worker, pid=pid))

    def _note_unstarted(self, worker: int) -> None:
        """Report that a worker could not be started, with the present exception in this process's log."""
        traceback.print_exc()
        self._record.workers[worker] = Entry(0, 0, exit_code=EXIT_UNSTARTED, told=True)
        self._send(WorkerExited(worker=worker, exit_code=EXIT_UNSTARTED))

    def _fork(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            own = [self._listener, self._wake, self._waker, *([self._engine] if self._engine else [])]
            for end in own:
                end.close()
            # Not selector.close(): the descriptors are shared, and unregistering in the child would unregister in the
            # parent.
            if hasattr(self._selector, "fileno"):
                os.close(self._selector.fileno())
            for descriptor in (self._store_lifeline, self._store_report):
                if descriptor >= 0:
                    os.close(descriptor)
        return pid

    def _end_worker(self, worker: int, *, force: bool) -> None:
        entry = self._record.workers.get(worker)
        if entry is None or entry.exit_code is not None:
            return
        if entry.pid not in self._children:
            # Adopted: its pid may belong to another process by now.
            with _logging_refusals():
                if force:
                    kill_group(entry.pid, entry.start_time, self._mark)
                else:
                    send_signal(entry.pid, entry.start_time, signal.SIGTERM)
            return
        # A child that was not reaped keeps its pid and its group's id; it may not lead a group yet.
        with contextlib.suppress(ProcessLookupError):
            if force:
                _kill_group_of_child(entry.pid)
                os.kill(entry.pid, signal.SIGKILL)
            else:
                os.kill(entry.pid, signal.SIGTERM)

    def _reap(self) -> None:
        gone = []
        for worker, entry in self._record.workers.items():
            if entry.exit_code is not None:
                continue
            if entry.pid in self._children:
                entry.exit_code = self._exit_code_of(entry.pid)
            elif not is_alive(entry.pid, entry.start_time):
                with _logging_refusals():
                    kill_group(entry.pid, entry.start_time, self._mark)
                entry.exit_code = UNKNOWN_EXIT_CODE
            if entry.exit_code is not None:
                gone.append((worker, entry.exit_code))
        if gone:
            self._write_record_soon()
        for worker, exit_code in gone:
            self._send(WorkerExited(worker=worker, exit_code=exit_code))
        if self._store_pid and os.waitpid(self._store_pid, os.WNOHANG)[0]:
            self._store_pid = 0
            os.close(self._store_lifeline)
            self._store_lifeline = -1
            self._rendezvous = None
            if self._store_report >= 0:
                raise RuntimeError("The store process ended before it listened; its error is above.")
            if not self._ending:
                self._start_store()

    def _exit_code_of(self, pid: int) -> int | None:
        if hasattr(os, "waitid"):
            # Before the child is reaped: end the remaining processes of the worker's group, because its slot becomes
            # free.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            _kill_group_of_child(pid)
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if not reaped:
            return None
        self._children.discard(pid)
        return os.waitstatus_to_exitcode(status)

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass

    # ------------------------------------------------------------ the store

    def _start_store(self) -> None:
        lifeline, self._store_lifeline = os.pipe()
        self._store_report, report = os.pipe()
        pid = self._fork()
        if pid == 0:
            serve_store(self._record.address, lifeline, report)
        os.close(lifeline)
        os.close(report)
        self._store_pid = pid
        self._selector.register(self._store_report, selectors.EVENT_READ, self._hear_store)

    def _hear_store(self) -> None:
        answer = os.read(self._store_report, 64)
        self._selector.unregister(self._store_report)
        os.close(self._store_report)
        self._store_report = -1
        if not answer:
            raise RuntimeError("The store process ended before it listened; its error is above.")
        self._rendezvous = answer.decode()
        self._send(Ready(rendezvous=self._rendezvous))


@contextlib.contextmanager
def _logging_refusals() -> Iterator[None]:
    """Log that a process could not be ended, and continue with the others; the process stays in the record."""
    try:
        yield
    except LegatoError as error:
        sys.stderr.write(f"legato: {error}\n")


def _kill_group_of_child(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        # Other systems refuse the signal if all members have ended and were not reaped yet.
        if sys.platform == "linux":
            sys.stderr.write(f"legato: the system refuses to end what is left of the process group {pid}\n")


def main(argv: list[str]) -> None:
    """Run the warm parent: ``argv`` is the record's path and the number of the listening descriptor."""
    record_path, descriptor = argv
    # `-m` puts the working directory first in `sys.path`; Legato must not import modules from it.
    if sys.path and sys.path[0] == str(Path.cwd()):
        del sys.path[0]
    OutputGuard(lambda _level, _text: None).install()
    WarmParent(Path(record_path), socket.socket(fileno=int(descriptor))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
