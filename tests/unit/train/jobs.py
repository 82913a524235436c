"""A job in one process: real sessions, links and groups, a thread per worker. The test is the driver.

All threads draw from the same global generators, so nothing here may depend on what is drawn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch._dynamo  # noqa: F401 -- the first optimizer imports it: seconds that no limit of a test may count
from torch.distributed import TCPStore

from legato.core import wire
from legato.core.view import Member, View
from legato.train.data.order import Layout
from legato.train.loop.elastic import Run
from legato.train.loop.session import Session
from legato.train.membership.connection import Leave
from legato.train.membership.link import Link
from legato.train.process.job import Place
from legato.train.state.agreement import OnDifference

LIMIT_S = 60.0
HOST = "127.0.0.1"
M = TypeVar("M", bound=wire.Message)
Program = Callable[["Worker"], Any]
# A real process keeps its session, with the sockets of its groups, for its whole life.
_SESSIONS: list[Session] = []


class Worker(Link):
    """A worker, and its end of a connection that leads nowhere: the test reads what it says, and says what it hears."""

    def __init__(
        self, number: int, settings: wire.Welcome, layout: Layout, on_difference: OnDifference = "stop"
    ) -> None:
        super().__init__(Path("/nowhere"), number, HOST)
        self.said: list[wire.Message] = []
        self.outcome: Any = None
        self._news = threading.Condition()
        self.hear(settings)
        place = Place(self, settings, "cpu", 1)
        self.session = Session(place, settings, layout, 0, exact=True, num_backwards=1, on_difference=on_difference)
        _SESSIONS.append(self.session)
        self.run = Run(self.session, stop_on_nan=False)
        self.thread: threading.Thread | None = None

    def send(self, message: wire.Message) -> None:
        with self._news:
            self.said.append(message)
            self._news.notify_all()

    def report(self, progress: wire.Progress) -> None:
        self.send(progress)

    def hear(self, message: wire.DriverMessage) -> None:
        self._hear(message, None)  # type: ignore[arg-type]

    def await_message(self, kind: type[M], **fields: Any) -> M:
        """Wait until the worker has said something."""
        found: list[M] = []

        def has_come() -> bool:
            found[:] = [
                said
                for said in self.said
                if isinstance(said, kind) and all(getattr(said, name) == value for name, value in fields.items())
            ]
            return bool(found)

        with self._news:
            assert self._news.wait_for(has_come, LIMIT_S), f"worker {self.worker} never said {kind.__name__} {fields}"
        return found[0]

    def start(self, program: Program) -> None:
        def play() -> None:
            try:
                self.outcome = program(self)
            except BaseException as error:
                self.outcome = error
            with contextlib.suppress(AssertionError):
                self.lose_peers()

        self.thread = threading.Thread(target=play, name=f"worker-{self.worker}", daemon=True)
        self.thread.start()

    def end(self) -> Any:
        """Wait until the program has come to its end; returns what it returned or raised."""
        assert self.thread is not None
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive(), f"worker {self.worker} does not come to its end"
        return self.outcome

    def lose_peers(self) -> None:
        """Let it be as dead: it waits for a driver that does not speak to it any more."""
        self.session.membership.group.break_connections()


class Job:
    """The driver of such a job, and the store over which its workers meet.

    Attributes:
        over: what a worker that hangs forever waits for.
        on_difference: what workers that start from now on do when their states differ.
    """

    def __init__(self, layout: Layout, checkpoint_dir: Path | None = None) -> None:
        self._layout = layout
        self._checkpoint_dir = None if checkpoint_dir is None else str(checkpoint_dir)
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._num_views = 0
        self.workers: list[Worker] = []
        self.over = threading.Event()
        self.on_difference: OnDifference = "stop"

    def settings(self, *, resume: bool = False) -> wire.Welcome:
        return wire.Welcome(
            heartbeat_interval_s=1.0,
            away_limit_s=60.0,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_every=None,
            keep=3,
            resume=resume,
        )

    def start(self, program: Program) -> Worker:
        worker = Worker(len(self.workers), self.settings(), self._layout, self.on_difference)
        self.workers.append(worker)
        worker.start(program)
        return worker

    def begin(self, num_workers: int, program: Program) -> list[Worker]:
        """Start the first workers and let them begin together."""
        workers = [self.start(program) for _ in range(num_workers)]
        self.propose(*workers)
        return workers

    def propose(self, *members: Worker, leaving: tuple[Worker, ...] = ()) -> int:
        """Propose a view, once all members are there, and wait until all have built it; returns its number."""
        for worker in members:
            worker.await_message(wire.Warm)
        return self._tell(wire.Prepare(proposed=self._next_view(members)), *members, *leaving)

    def recover(self, *members: Worker) -> int:
        """Have the workers that are left continue in another view, and wait until all have built it."""
        return self._tell(wire.Recover(proposed=self._next_view(members), reason="the test"), *members)

    def recover_missed(self, *members: Worker) -> int:
        """As `recover`, with all workers, one of which missed a result: the first view breaks, to keep it."""
        number = self.recover(*members)
        for worker in members:
            worker.await_message(wire.Broken, view=number)
        return self.recover(*members)

    def order_recovery(self, *members: Worker) -> None:
        """Have them continue in another view, whatever becomes of it."""
        message = wire.Recover(proposed=self._next_view(members), reason="the test")
        for worker in members:
            worker.hear(message)

    def close(self) -> None:
        """Have all come to an end that have not."""
        self.over.set()
        for worker in self.workers:
            worker.hear(wire.Stop(reason="the test is over"))
            with contextlib.suppress(AssertionError):
                worker.lose_peers()
        for worker in self.workers:
            worker.end()

    def _next_view(self, members: tuple[Worker, ...]) -> View:
        self._num_views += 1
        there = tuple(Member(worker.worker, HOST) for worker in members)
        return View(self._num_views, there, f"{HOST}:{self._store.port}")

    def _tell(self, message: wire.Prepare | wire.Recover, *workers: Worker) -> int:
        for worker in workers:
            worker.hear(message)
        for worker in workers:
            worker.await_message(wire.Prepared, prepared=message.proposed.number)
        return message.proposed.number


@contextlib.contextmanager
def job_of(layout: Layout, checkpoint_dir: Path | None = None) -> Iterator[Job]:
    job = Job(layout, checkpoint_dir)
    try:
        yield job
    finally:
        job.close()


def left_as(worker: Worker) -> str:
    """Return the reason for which a worker has left; its program has ended by that."""
    outcome = worker.end()
    assert isinstance(outcome, Leave), outcome
    (leaving,) = [said for said in worker.said if isinstance(said, wire.Leaving)]
    return leaving.reason
