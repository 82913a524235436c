"""The worker's connection to the driver: one thread receives and reconnects, another thread sends.

The requests of the driver are kept as plain facts, which the training thread reads between its steps. Only two requests
take effect at once: a recovery breaks the groups of older views, and a refusal ends the process. Without a driver, or
with a stopped one, the worker continues to train; its messages are kept (`outbox`). Decides nothing about membership.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection

from legato.core import wire
from legato.core.errors import LegatoError
from legato.core.exits import EXIT_LOST_LINK, EXIT_REFUSED
from legato.core.view import View
from legato.system.clocks import read_boot_clock
from legato.system.door_client import connect_to_door
from legato.system.processes import boot_id
from legato.system.tls import explain_tls_error
from legato.train.membership.outbox import Outbox

_RETRY_S: Final = 0.2
_STALE_RETRY_S: Final = 1.0  # before the next try, after a driver that this worker refuses
_FLUSH_S: Final = 0.1
_STUCK_S: Final = 10.0
_OPEN_LIMIT_S: Final = 5.0
_HELLO_LIMIT_S: Final = 30.0
_LAST_WORDS_S: Final = 1.0
_SILENCE_LIMIT_S: Final = 10.0
_SILENT_BEATS: Final = 8
"""A driver that sends none of so many heartbeats, and nothing for `_SILENCE_LIMIT_S`, is given up: TCP alone may find
out only a minute after the network is back."""
_SUSPENDED_S: Final = 1.0  # no two clocks of a machine that runs differ by so much between two checks
_SILENT_S: Final = 1.0
"""A driver that is silent for this long may have a successor at another address: a machine that lost its power, or that
was cut off, ends no connections."""
_HELD_UP_S: Final = 10.0
"""Longer than any wait of the link's thread: if it did not run for that long, it could not hear the driver."""


class StaleDriver(Exception):
    """A driver answers that does not lead the job any more, or whose release is too far from this one."""


class Link:
    """The connection of one worker to its driver.

    Args:
        driver_file: has the address of the driver; read again for every connection.
        worker: number of this worker.
        host: the address at which peers reach it.
        token: of this worker. None: the token is in the file, written by a driver of an earlier release.
        node: the nonce of its node, see `legato.core.view.Member`.
    """

    def __init__(self, driver_file: Path, worker: int, host: str, token: str | None = None, node: str = "") -> None:
        self._driver_file = driver_file
        self._token = token
        self.worker = worker
        self.host = host
        self.node = node
        self.changed = threading.Condition()
        self.settings: wire.Welcome | None = None
        self.checkpoint_dir: str | None = None
        """This machine's own directory for checkpoints. None: the workers share the job's."""
        self.proposed: View | None = None
        self.recovery: wire.Recover | None = None
        self.hold: wire.Hold | None = None
        self.stop_reason: str | None = None
        self._num_metrics = 0
        # The content of Hello; the training thread updates it.
        self.phase = "joining"
        self.view: View | None = None
        self.num_rounds = 0
        self.term = 0  # the highest of a driver that has answered
        # The message for whose answer the training thread waits; the next driver must receive it too.
        self.broken: wire.Broken | None = None
        self.on_proposed: Callable[[View], None] = _ignore
        self.on_stuck: Callable[[], None] = _do_nothing
        self.is_waiting: Callable[[], bool] = _is_not_waiting
        self.is_independent = False
        self.on_recover: Callable[[View], None] = _ignore
        self._outbox = Outbox()
        self._last_heard = self._last_check = read_boot_clock()
        self._last_run = time.monotonic()  # differs from the other clock after the machine was suspended
        self._rounds_when_orphaned: int | None = None
        self._closing = False
        self._term_here = 0  # of the driver of the present connection; 0: it has not said Welcome
        self._complaint = ""
        self._threads = [
            threading.Thread(target=self._run_or_die, args=(body,), name=f"legato-{name}", daemon=True)
            for name, body in (("link", self._run), ("outbox", self._outbox.send_forever))
        ]

    @property
    def num_metrics(self) -> int:
        """How many calls of ``run.log``, from the first on, are not kept: a driver has them, or they were dropped."""
        return max(self._num_metrics, self._outbox.num_dropped_metrics)

    def open(self) -> wire.Welcome:
        """Connect, say Hello, and wait for the settings of the job.

        Raises:
            LegatoError: no driver answers.
        """
        for thread in self._threads:
            thread.start()
        with self.changed:
            if not self.changed.wait_for(lambda: self.settings is not None, _HELLO_LIMIT_S):
                raise LegatoError(f"No driver answers at the address in {self._driver_file}. Does the job still run?")
            assert self.settings is not None
            return self.settings

    def send(self, message: wire.Message) -> None:
        """Put a message into the outbox, for the driver or, if there is none now, for the next one. Never waits."""
        self._outbox.put(message)

    def report(self, progress: wire.Progress) -> None:
        """Report committed steps; reports that come quickly are merged into one. Never waits."""
        self._outbox.report(progress)

    def flush(self) -> None:
        """Send the merged report now. Never waits."""
        self._outbox.flush()

    def close(self) -> None:
        """Send the remaining messages, then close the connection.

        Without a driver this waits for one, for as long as workers train without one: if the driver does not learn how
        a worker ended, another worker repeats the end of the program.
        """
        self._outbox.flush()
        limit_s = self.settings.away_limit_s if self.settings is not None else 0.0
        is_said = self._outbox.wait_until_sent(max(self._last_heard + limit_s - read_boot_clock(), _LAST_WORDS_S))
        self._closing = True
        connection = self._outbox.disconnect()
        if connection is None:
            return
        if is_said:
            connection.close()
        else:
            # A closing handshake would wait behind messages that the driver does not read.
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)

    def file_descriptors(self) -> list[int]:
        """Return the descriptor of the connection, which child processes must close."""
        connection = self._outbox.connection
        return [] if connection is None else [connection.socket.fileno()]

    # ------------------------------------------------------------ the threads

    def _run_or_die(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException:  # noqa: BLE001 - printed whole, and the process ends
            # Without this thread the worker could not send or could not receive: so it ends and says why.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(EXIT_LOST_LINK)

    def _run(self) -> None:
        while not self._closing:
            refused = False
            with contextlib.ExitStack() as stack:
                connection = self._connect(stack)
                if connection is not None:
                    try:
                        self._serve(connection)
                    except (ConnectionClosed, OSError):
                        pass
                    except StaleDriver as why:
                        refused = True
                        self._complain(str(why))
                    finally:
                        self._outbox.disconnect()
            self._check_away()
            if refused:
                time.sleep(_STALE_RETRY_S)
            elif connection is None:
                time.sleep(_RETRY_S)

    def _connect(self, stack: contextlib.ExitStack) -> ClientConnection | None:
        try:
            where = json.loads(self._driver_file.read_text())
            token = where["token"] if self._token is None else self._token
            return stack.enter_context(
                connect_to_door(
                    where["url"],
                    where.get("certificate", ""),
                    _OPEN_LIMIT_S,
                    additional_headers={"Authorization": f"Bearer {token}"},
                    close_timeout=1,
                    compression=None,
                    ping_interval=None,
                )
            )
        except ssl.SSLError as error:
            self._complain(f"the process that answers at {where['url']} is not the driver: {explain_tls_error(error)}")
            return None
        except (OSError, ValueError, KeyError, WebSocketException):
            return None

    def _serve(self, connection: ClientConnection) -> None:
        hello = wire.Hello(
            view=self.view.number if self.view else 0,
            worker=self.worker,
            pid=os.getpid(),
            host=self.host,
            current=self.view,
            phase=self.phase,
            num_rounds=self.num_rounds,
            node=self.node,
            term=self.term,
            protocol=wire.PROTOCOL,
            proves=True,
            eases_in=True,
            boot=boot_id(),
        )
        self._term_here = 0
        address = self._read_address()
        connection.send(wire.encode(hello))
        interval = _FLUSH_S
        next_heartbeat = time.monotonic()
        silent_s = 0.0
        while not self._closing:
            try:
                frame = connection.recv(timeout=interval, decode=False)
                silent_s = 0.0
                self._hear(wire.decode_driver_message(frame), connection)
            except TimeoutError:
                # Only waits count, so the driver is not silent because this process could not run.
                silent_s += interval
            if silent_s > self._silence_limit_s:
                # A closing handshake would wait for the driver, and behind the thread that sends.
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)
                return
            self._outbox.flush()
            now = time.monotonic()
            if self.settings is not None and now >= next_heartbeat:
                number = self.view.number if self.view else 0
                beat = wire.Heartbeat(
                    view=number,
                    num_rounds=self.num_rounds,
                    is_waiting=self.is_waiting(),
                    is_independent=self.is_independent,
                )
                self._outbox.put_heartbeat(beat)
                next_heartbeat = now + self.settings.heartbeat_interval_s
                if read_boot_clock() - self._last_heard > _SILENT_S and self._read_address() not in ("", address):
                    return
            self._check_away()

    @property
    def _silence_limit_s(self) -> float:
        beat_s = self.settings.heartbeat_interval_s if self.settings is not None else 0.0
        return max(_SILENCE_LIMIT_S, _SILENT_BEATS * beat_s)

    def _read_address(self) -> str:
        """Return the content of the file with the driver's address; "": it cannot be read now."""
        try:
            return self._driver_file.read_text()
        except OSError:
            return ""

    def _hear(self, message: wire.DriverMessage, connection: ClientConnection) -> None:
        if isinstance(message, wire.Welcome | wire.Refused):
            self._check_term(message)
        if self._term_here < self.term:
            return  # no message counts before the driver has shown its term; it repeats them after its Welcome
        self._last_heard = read_boot_clock()
        with self.changed:
            match message:
                case wire.Welcome():
                    self.settings = self._place_checkpoints(message)
                    self._outbox.connect(connection, self.broken)
                case wire.Prepare():
                    if self._is_newest(message.proposed):
                        self.proposed = message.proposed
                        self.on_proposed(message.proposed)
                case wire.Recover():
                    if self._is_newest(message.proposed):
                        self.recovery = message
                        self.hold = None
                        self.on_recover(message.proposed)
                case wire.Hold():
                    self.hold = message
                case wire.Stop():
                    self.stop_reason = message.reason
                case wire.Refused():
                    sys.stderr.write(f"legato: worker {self.worker} was refused by the driver: {message.reason}\n")
                    sys.stderr.flush()
                    os._exit(EXIT_REFUSED)
                case wire.Heartbeat():
                    self._num_metrics = message.num_metrics
                    self._outbox.forget_metrics(message.num_metrics)
                    self._outbox.forget_losses(message.losses_to_step)
            self.changed.notify_all()

    def _check_term(self, message: wire.Welcome | wire.Refused) -> None:
        """Note the term of a driver, unless this worker has seen a higher one.

        A driver that does not lead any more may not stop, refuse or move this worker, and this worker does not count it
        as a driver that listens.

        Raises:
            StaleDriver: the driver is refused.
        """
        if message.term < self.term:
            raise StaleDriver(
                f"a driver of term {message.term} is refused, because this worker has seen one of term {self.term}"
            )
        if isinstance(message, wire.Welcome):
            misfit = wire.describe_misfit("the driver", message.protocol)
            if misfit is not None and self.settings is None:
                sys.stderr.write(f"legato: worker {self.worker} cannot take part: {misfit}.\n")
                sys.stderr.flush()
                os._exit(EXIT_REFUSED)
            if misfit is not None:
                raise StaleDriver(f"{misfit}. Without another driver the job ends with a checkpoint")
        self.term = self._term_here = message.term

    def _complain(self, told: str) -> None:
        """Say once in the worker's log why it does not listen to a driver."""
        if told != self._complaint:
            self._complaint = told
            sys.stderr.write(f"legato: worker {self.worker}: {told}.\n")
            sys.stderr.flush()

    def _place_checkpoints(self, settings: wire.Welcome) -> wire.Welcome:
        if self.checkpoint_dir is None or settings.checkpoint_dir is None:
            return settings
        return msgspec.structs.replace(settings, checkpoint_dir=self.checkpoint_dir)

    def _is_newest(self, view: View) -> bool:
        known = [seen.number for seen in (self.proposed, self.view) if seen is not None]
        if self.recovery is not None:
            known.append(self.recovery.proposed.number)
        return view.number > max(known, default=0)

    def _check_away(self) -> None:
        limit = self.settings.away_limit_s if self.settings is not None else None
        if limit is None:
            return
        now, ran_to = read_boot_clock(), time.monotonic()
        passed_s, held_up_s = now - self._last_check, ran_to - self._last_run
        self._last_check, self._last_run = now, ran_to
        if held_up_s > _HELD_UP_S:
            # Messages that the driver sent meanwhile are still unread. So the time of the pause does not count.
            self._last_heard = min(self._last_heard + held_up_s, now)
        if passed_s - held_up_s > _SUSPENDED_S:
            # The machine was suspended. That time counts, because a driver elsewhere ran on; but one on this machine
            # was suspended too, and needs a moment to be heard.
            self._last_heard = max(self._last_heard, now - max(limit - _HELD_UP_S, 0.0))
        away_s = now - self._last_heard
        if self.stop_reason is None and away_s > limit:
            with self.changed:
                self.stop_reason, self._rounds_when_orphaned = "orphaned", self.num_rounds
                self.changed.notify_all()
        elif self._rounds_when_orphaned == self.num_rounds and away_s > limit + _STUCK_S:
            # The other workers cannot agree to stop either: one of them hangs, and without a driver they do not learn
            # that.
            self._rounds_when_orphaned = None
            self.on_stuck()


def _ignore(view: View) -> None:
    """Do nothing about a view: the program does not wait for one yet."""
    del view


def _is_not_waiting() -> bool:
    """Report that the program waits for no other worker: this worker is in no view yet."""
    return False


def _do_nothing() -> None:
    """Break nothing: the worker is in no view yet."""
