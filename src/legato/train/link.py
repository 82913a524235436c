"""The worker's end of its connection to the driver: one thread that listens, reports and keeps the connection up.

What the driver wants is kept as plain facts that the training thread reads when it is ready for them; only two things
happen at once: a recovery breaks the groups of older views, and a refusal ends the process. Without a driver the worker
trains on; what it has to say is kept and said to the next one. Decides nothing about membership.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from legato.core import wire
from legato.core.errors import LegatoError
from legato.core.view import View

EXIT_REFUSED: Final = 75
EXIT_LOST_LINK: Final = 70
_RETRY_S: Final = 0.2
_FLUSH_S: Final = 0.1
_STUCK_S: Final = 10.0
_HELLO_LIMIT_S: Final = 30.0
_MAX_UNSENT: Final = 10_000


class Link:
    """The connection of one worker to its driver.

    Args:
        driver_file: says where the driver listens and with which token; read again for every connection.
        worker: this worker's number.
        host: the address at which peers reach it.
    """

    def __init__(self, driver_file: Path, worker: int, host: str) -> None:
        self._driver_file = driver_file
        self.worker = worker
        self.host = host
        self.changed = threading.Condition()
        self.settings: wire.Welcome | None = None
        self.proposed: View | None = None
        self.recovery: wire.Recover | None = None
        self.hold: wire.Hold | None = None
        self.stop_reason: str | None = None
        self.num_metrics = 0
        # What Hello says; the training thread keeps them true.
        self.phase = "joining"
        self.view: View | None = None
        self.num_rounds = 0
        # What the training thread is waiting for an answer to; the next driver must hear it too.
        self.broken: wire.Broken | None = None
        self.on_proposed: Callable[[View], None] = _ignore
        self.on_stuck: Callable[[], None] = _do_nothing
        self.on_recover: Callable[[View], None] = _ignore
        self._connection: ClientConnection | None = None
        self._sending = threading.Lock()
        self._unsent: deque[wire.Message] = deque(maxlen=_MAX_UNSENT)
        self._unrecorded: deque[wire.Metrics] = deque(maxlen=_MAX_UNSENT)
        self._progress: wire.Progress | None = None
        self._reported: wire.Progress | None = None
        self._last_heard = time.monotonic()
        self._rounds_when_orphaned: int | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run_or_die, name="legato-link", daemon=True)

    def open(self) -> wire.Welcome:
        """Connect, say Hello, and wait for the settings of the job.

        Raises:
            LegatoError: no driver answers.
        """
        self._thread.start()
        with self.changed:
            if not self.changed.wait_for(lambda: self.settings is not None, _HELLO_LIMIT_S):
                raise LegatoError(f"No driver answers at the address in {self._driver_file}. Is the job still wanted?")
            assert self.settings is not None
            return self.settings

    def send(self, message: wire.Message) -> None:
        """Say something to the driver now, or to the next driver if there is none."""
        with self._sending:
            if isinstance(message, wire.Metrics):
                self._unrecorded.append(message)
            self._unsent.append(message)
            self._send_unsent()

    def report(self, progress: wire.Progress) -> None:
        """Report committed steps; reports that come quickly are merged into one."""
        with self._sending:
            self._progress = _merge(self._progress, progress)
            self._reported = _merge(self._reported, progress)

    def flush(self) -> None:
        """Send now what was reported and waits to be merged with more."""
        with self._sending:
            self._take_progress()
            self._send_unsent()

    def close(self) -> None:
        """Say what is still to be said, then close the connection."""
        self._closing = True
        with self._sending:
            self._take_progress()
            self._send_unsent()
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def file_descriptors(self) -> list[int]:
        """Return the descriptor of the connection, for child processes to close."""
        connection = self._connection
        return [] if connection is None else [connection.socket.fileno()]

    # ------------------------------------------------------------ the thread

    def _run_or_die(self) -> None:
        try:
            self._run()
        except BaseException:  # noqa: BLE001 - printed whole, and the process ends
            # Without this thread the worker would train on unheard, and hear nothing: better that it dies and says why.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(EXIT_LOST_LINK)

    def _run(self) -> None:
        while not self._closing:
            try:
                where = json.loads(self._driver_file.read_text())
                connection = connect(
                    where["url"],
                    additional_headers={"Authorization": f"Bearer {where['token']}"},
                    open_timeout=5,
                    close_timeout=1,
                    compression=None,
                    ping_interval=None,
                    proxy=None,
                )
            except (OSError, ValueError, KeyError, WebSocketException):
                self._check_away()
                time.sleep(_RETRY_S)
                continue
            try:
                self._serve(connection)
            except (ConnectionClosed, OSError):
                pass
            finally:
                with self._sending:
                    self._connection = None
                connection.close()
            self._check_away()

    def _serve(self, connection: ClientConnection) -> None:
        hello = wire.Hello(
            view=self.view.number if self.view else 0,
            worker=self.worker,
            pid=os.getpid(),
            host=self.host,
            current=self.view,
            phase=self.phase,
            num_rounds=self.num_rounds,
        )
        connection.send(wire.encode(hello))
        interval = _FLUSH_S
        next_heartbeat = time.monotonic()
        while not self._closing:
            try:
                frame = connection.recv(timeout=interval, decode=False)
                self._hear(wire.decode_driver_message(frame), connection)
            except TimeoutError:
                pass
            with self._sending:
                self._take_progress()
                self._send_unsent()
            now = time.monotonic()
            if self.settings is not None and now >= next_heartbeat:
                number = self.view.number if self.view else 0
                connection.send(wire.encode(wire.Heartbeat(view=number, num_rounds=self.num_rounds)))
                next_heartbeat = now + self.settings.heartbeat_interval_s
            self._check_away()

    def _hear(self, message: wire.DriverMessage, connection: ClientConnection) -> None:
        self._last_heard = time.monotonic()
        with self.changed:
            match message:
                case wire.Welcome():
                    self.settings = message
                    with self._sending:
                        self._connection = connection
                        self._say_again()
                case wire.Prepare():
                    if self._is_news(message.proposed):
                        self.proposed = message.proposed
                        self.on_proposed(message.proposed)
                case wire.Recover():
                    if self._is_news(message.proposed):
                        self.recovery = message
                        self.hold = None
                        self.on_recover(message.proposed)
                case wire.Hold():
                    self.hold = message
                case wire.Stop():
                    self.stop_reason = message.reason
                case wire.Refused():
                    sys.stderr.write(f"legato: worker {self.worker} may not take part: {message.reason}\n")
                    sys.stderr.flush()
                    os._exit(EXIT_REFUSED)
                case wire.Heartbeat():
                    self._forget_metrics(message.num_metrics)
            self.changed.notify_all()

    def _is_news(self, view: View) -> bool:
        known = [seen.number for seen in (self.proposed, self.view) if seen is not None]
        if self.recovery is not None:
            known.append(self.recovery.proposed.number)
        return view.number > max(known, default=0)

    def _say_again(self) -> None:
        if self.broken is not None:
            self._unsent.append(self.broken)
        # A driver that died may have lost what was under way, so the next one hears all steps again, and all metrics
        # that are not known to stand in the records.
        unsent = [message for message in self._unsent if not isinstance(message, wire.Progress | wire.Metrics)]
        self._unsent = deque([*self._unrecorded, *unsent], self._unsent.maxlen)
        self._progress = self._reported

    def _forget_metrics(self, num_recorded: int) -> None:
        self.num_metrics = num_recorded
        with self._sending:
            while self._unrecorded and self._unrecorded[0].index < num_recorded:
                self._unrecorded.popleft()

    def _take_progress(self) -> None:
        if self._progress is not None and self._connection is not None:
            self._unsent.append(self._progress)
            self._progress = None

    def _send_unsent(self) -> None:
        while self._unsent and self._connection is not None:
            try:
                self._connection.send(wire.encode(self._unsent[0]))
            except (ConnectionClosed, OSError):
                self._connection = None
                return
            self._unsent.popleft()

    def _check_away(self) -> None:
        limit = self.settings.away_limit_s if self.settings is not None else None
        if limit is None:
            return
        away_s = time.monotonic() - self._last_heard
        if self.stop_reason is None and away_s > limit:
            with self.changed:
                self.stop_reason, self._rounds_when_orphaned = "orphaned", self.num_rounds
                self.changed.notify_all()
        elif self._rounds_when_orphaned == self.num_rounds and away_s > limit + _STUCK_S:
            # The others cannot agree to stop either: one of them hangs, and there is no driver to say so.
            self._rounds_when_orphaned = None
            self.on_stuck()


def _ignore(view: View) -> None:
    """Do nothing about a view: nobody waits for one yet."""
    del view


def _merge(known: wire.Progress | None, later: wire.Progress) -> wire.Progress:
    if known is None:
        return later
    return msgspec.structs.replace(
        later, first_step=known.first_step, num_samples=known.num_samples + later.num_samples
    )


def _do_nothing() -> None:
    """Break nothing: the worker is in no view yet."""
