"""This worker's membership: its view, how it enters the next one, and what the members exchange then.

The rules and their reasons are in ``docs/membership.md``. In short: workers prepare a planned view in the background,
and all enter it after the same round, which the control words of that round name. After a break all workers wait for
the driver's next view; in it, the workers that completed the broken round send its result to those that did not. Knows
nothing of gradients or data: a round is an object with `send` and `receive` for its result.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

import msgspec
import torch

from legato.core import wire
from legato.core.errors import BrokenView, LegatoError, ProgramError
from legato.core.view import Member, View, agreed_view
from legato.train.membership.connection import Connection, Entry, Leave, Round
from legato.train.membership.control_sockets import LOST_STEP
from legato.train.membership.groups import Group, UnreachablePeer, build
from legato.train.membership.link import Link
from legato.train.reduction.exchange import Exchange

STOP, EVALUATING = 1, 2


class MembershipClient:
    """The membership of one worker in its job.

    Args:
        link: to the driver; None when the program runs alone.
        key: names the job.
        device: of this worker's gradients.
        make_exchange: connects the ranks of a new view for the exchange of gradients; also returns the layout of these.
        on_hold: called to save the state, because too few workers are left.
        on_stopped_waiting: called to save the state, because the job ends while this worker waits for a view.
    """

    def __init__(
        self,
        link: Link | None,
        key: str,
        device: torch.device,
        make_exchange: Callable[[Group], tuple[Exchange | None, str]],
        *,
        on_hold: Callable[[], None],
        on_stopped_waiting: Callable[[], None],
    ) -> None:
        self._link = link
        self._key = key
        self._device = device
        self._make_exchange = make_exchange
        self._on_hold = on_hold
        self._on_stopped_waiting = on_stopped_waiting
        self._built: dict[int, Connection] = {}
        self._connection: Connection | None = None
        self._agreed: int | None = None
        self._voted: int | None = None
        self._stop_agreed = False
        self._waits_for_driver = False
        self.has_state = False
        self.has_left = False
        self.num_rounds = 0
        self.last_round: Round | None = None
        self.worker = link.worker if link else 0
        self._wake = link.changed if link else threading.Condition()
        if link is not None:
            link.on_proposed = self._start_build
            link.on_recover = self._on_recover
            link.on_stuck = self._on_stuck
            link.is_waiting = self._is_waiting

    # ------------------------------------------------------------ what holds now

    @property
    def connection(self) -> Connection:
        assert self._connection is not None, "the worker is in no view yet"
        return self._connection

    @property
    def group(self) -> Group:
        return self.connection.group

    @property
    def rank(self) -> int:
        return self._connection.group.rank if self._connection else 0

    @property
    def size(self) -> int:
        return self._connection.group.size if self._connection else 1

    # ------------------------------------------------------------ votes

    def word(self, *, may_join: bool) -> list[int]:
        """Return the control word that this rank sends to the others in the coming round.

        Args:
            may_join: a joiner could enter after this round, because it is a step. False: it is a round of an
                evaluation, and this rank votes only for views without joiners.
        """
        flags = 0 if may_join else EVALUATING
        if self._link is not None and self._link.stop_reason is not None:
            flags |= STOP
        current = self.connection.view
        return [self.num_rounds, current.number, self._vote(current, may_join), flags]

    def hear(self, words: Sequence[Sequence[int]]) -> None:
        """Evaluate the control words of a complete round; every rank comes to the same result.

        Raises:
            ProgramError: the ranks are not in the same round.
        """
        first, all_flags = words[0], 0
        for word in words:
            if word[:2] != first[:2] or (word[3] ^ first[3]) & EVALUATING:
                told = ", ".join(
                    f"rank {rank}: {'evaluating' if flags & EVALUATING else 'training'} in round {n} of view {v}"
                    for rank, (n, v, _, flags) in enumerate(word[:4] for word in words)
                )
                raise ProgramError(f"The workers have made different calls ({told}). {LOST_STEP}")
            all_flags |= word[3]
        # An agreement stays until the ranks carry it out: an evaluation may come in between.
        self._agreed = self._agreed or agreed_view([word[2] for word in words], self.connection.view.number)
        self._stop_agreed = bool(all_flags & STOP)

    @property
    def stop_agreed(self) -> bool:
        """All ranks end after this round."""
        return self._stop_agreed

    def _vote(self, current: View, may_join: bool) -> int:
        if not self._built:
            return current.number
        with self._wake:
            newest = max(self._built, default=0)
            if newest <= current.number:
                return current.number
            view = self._built[newest].view
            self._voted = newest
        present = set(current.workers)
        return newest if may_join or present.issuperset(view.workers) else current.number

    def await_size(self, num_workers: int) -> None:
        """Wait until a view of that many workers is in force, or is built on this rank, which then votes for it.

        It also ends if this view cannot last: the driver has ordered a recovery, or the job is to stop.
        """

        def is_over() -> bool:
            current, newest = self.connection.view, max(self._built, default=0)
            if self._link is None or self._link.stop_reason is not None or self._is_superseded(current):
                return True
            view = self._built[newest].view if newest > current.number else current
            return len(view.workers) == num_workers

        with self._wake:
            self._wake.wait_for(is_over)

    # ------------------------------------------------------------ entering views

    def start_alone(self) -> None:
        """Form the view of a program that runs without a driver."""
        view = View(0, (Member(0, ""),), "")
        group = Group(view, 0)
        self._connection = Connection(view, group, *self._make_exchange(group))

    def meet_first(self, warm: wire.Warm, meanwhile: Callable[[], None]) -> Entry:
        """Report that this worker is warm, and wait until it is a member of a view.

        Called again if that view broke before this worker had received the job's state.

        Args:
            warm: the report.
            meanwhile: called while the driver and the other workers prepare the view.
        """
        assert self._link is not None
        self.has_state = False
        self._set_phase("warm")
        self._link.send(warm)
        meanwhile()
        reason = "the state did not come"
        while True:
            if self._connection is not None:
                self._report_broken(reason)
            connection = self._wait_for(self._newest_with_me)
            self._link.broken = None
            try:
                return self._settle(connection, None)
            except BrokenView as error:
                reason = str(error)
                self._drop_connection(connection)

    def switch(self, *, may_join: bool) -> Entry | None:
        """Enter the view that was agreed on, if any.

        Args:
            may_join: a joiner can enter here. False: a view with joiners waits for the next place where one can enter.

        Raises:
            BrokenView: a worker died at this moment; `recover` follows.
            Leave: this worker is not a member of it.
        """
        number = self._agreed
        if number is None:
            return None
        with self._wake:
            joins = not set(self.connection.view.workers).issuperset(self._built[number].view.workers)
            if joins and not may_join:
                return None
            connection = self._built.pop(number)
        self._agreed = None
        if connection.view.rank_of(self.worker) is None:
            # Sent with the number of the new view, without this worker: so the driver knows that the others are in that
            # view.
            self.leave("shrunk", number)
        return self._settle(connection, None)

    def recover(self, error: BrokenView, broken: Round | None) -> Entry:
        """Wait for the driver's next view after a break, and enter it.

        Args:
            error: what happened.
            broken: the round that did not complete on this rank, or None between rounds.

        Raises:
            Leave: this worker is not a member of it, or is asked to stop.
        """
        if self._link is None:
            raise LegatoError(f"A program that runs alone cannot lose a peer: {error}")
        self._agreed, self._stop_agreed = None, False
        while True:
            failed = self.connection.view.number
            self.connection.group.break_connections()
            self._report_broken(str(error))
            connection = self._wait_for(self._recovery_after(failed))
            self._link.broken = None
            try:
                return self._settle(connection, broken)
            except BrokenView as again:
                error = again

    def ensure_exchange(self, layouts: Collection[str]) -> Exchange:
        """Return the exchange of this view; rebuild it if it was built for none of the gradients' present layouts.

        All ranks call this at the same boundary, where their layouts are equal, so they make the same decision.

        Raises:
            BrokenView: a peer died or closed its connection.
        """
        connection = self.connection
        exchange = connection.exchange
        if exchange is None or connection.layout not in layouts:
            if exchange is not None:
                exchange.close()
            exchange, layout = self._make_exchange(connection.group)
            assert exchange is not None, "the ranks' layouts differ within a step"
            self._connection = connection._replace(exchange=exchange, layout=layout)
        return exchange

    def leave(self, reason: str, view: int = 0) -> NoReturn:
        """End this worker's part, in the present view or in another one."""
        self.has_left = True
        self._say(wire.Leaving(view=view, num_rounds=self.num_rounds, reason=reason))
        raise Leave(0)

    def joined(self, pause_s: float) -> None:
        """Tell the driver that this worker has the state in the present view."""
        self.has_state = True
        self._set_phase("member")
        self._say(wire.Joined(num_rounds=self.num_rounds, pause_s=pause_s))

    def go_on_from(self, num_rounds: int) -> None:
        """Set the number of committed rounds to that of the loaded state."""
        self.num_rounds = num_rounds

    def completed(self, finished: Round) -> None:
        """Record that this rank has the result of a round."""
        self.last_round = finished
        self.num_rounds += 1
        if self._link is not None:
            self._link.num_rounds = self.num_rounds

    # ------------------------------------------------------------ inside

    def _settle(self, connection: Connection, broken: Round | None) -> Entry:
        """Find out which ranks have which round and state, and send a missed round's result to ranks that missed it."""
        with self._wake:
            old, self._connection = self._connection, connection
            if self._link is not None:
                self._link.view = connection.view
            if self._is_superseded(connection.view) or self._is_replaced(connection.view):
                # The driver announced another view while no object held this one, so it could not be broken then.
                connection.group.break_connections()
        if old is not None and old.exchange is not None:
            old.exchange.close()
        group = connection.group
        records = [torch.empty(2, dtype=torch.int64) for _ in range(group.size)]
        # Twice the newcomers' code beside the state, because workers of earlier releases, which know no newcomers, read
        # two numbers.
        code = _code_of(group.newcomers)
        records[group.rank] = torch.tensor([2 * code + self.has_state, self.num_rounds], dtype=torch.int64)
        try:
            group.all_gather(records[group.rank], records)
        finally:
            if old is not None:
                # Not earlier: the GPUs of peers may still read memory that the old group holds.
                old.group.drop()
        known = [(bool(record[0] % 2), int(record[1])) for record in records]
        if len({int(record[0]) // 2 for record in records}) > 1:
            # A driver of an earlier release has sent the view again, without its newcomers.
            group.break_connections()
            raise BrokenView(f"view {connection.view.number}: the workers know different newcomers")
        holders = [rank for rank, (has_state, _) in enumerate(known) if has_state]
        if not holders:
            return Entry((0,), tuple(range(1, group.size)), repaired=False)
        newest = max(known[rank][1] for rank in holders)
        sources = tuple(rank for rank in holders if known[rank][1] == newest)
        behind = tuple(rank for rank in holders if known[rank][1] == newest - 1)
        assert len(sources) + len(behind) == len(holders), f"ranks are more than one round apart: {known}"
        if behind and connection.exchange is not None and not connection.exchange.spares_results():
            # Until all ranks have shown that they have the missed result, a rank may have to send all of its parts.
            group.break_connections()
            raise BrokenView(f"view {connection.view.number}: a rank needs a result that this rank would overwrite")
        if group.rank in behind:
            assert broken is not None, "a round is missing, but none broke here"
            broken.receive(group, sources[0])
        elif group.rank == sources[0]:
            for peer in behind:
                assert self.last_round is not None
                self.last_round.send(group, peer)
        joiners = tuple(rank for rank in range(group.size) if rank not in holders)
        return Entry(sources, joiners, repaired=group.rank in behind)

    def _start_build(self, view: View) -> None:
        # Called with `changed` held, on the link's thread.
        if not self.has_state and self._connection is not None:
            self._connection.group.break_connections()
        threading.Thread(target=self._build, args=(view,), name=f"legato-build-{view.number}", daemon=True).start()

    def _build(self, view: View) -> None:
        assert self._link is not None and self._link.settings is not None
        rank = view.rank_of(self.worker)
        if rank is None:
            # A worker that leaves does not build the group, but it votes.
            group = Group(view, 0)
            connection = Connection(view, group, None, "")
        else:
            try:
                connection = self._connect(view)
            except Exception as error:
                # An error in this thread must be reported, or it would silently delay the change.
                peer = error.worker if isinstance(error, UnreachablePeer) else None
                self._say(wire.Unbuilt(failed=view.number, reason=str(error) or repr(error), peer=peer))
                if isinstance(error, BrokenView):
                    return
                raise
            group = connection.group
        with self._wake:
            if self._is_superseded(view):
                group.break_connections()
                group.drop()
                return
            for number in [number for number in self._built if number < view.number]:
                if number in (self._voted, self._agreed):
                    continue  # the round that is under way may agree on it
                self._drop_connection(self._built.pop(number))
            self._built[view.number] = connection
            self._wake.notify_all()
        self._say(wire.Prepared(prepared=view.number))

    def _connect(self, view: View) -> Connection:
        assert self._link is not None and self._link.settings is not None
        group = build(view, self.worker, self._key, self._device, self._link.settings.peer_secret)
        try:
            return Connection(view, group, *self._make_exchange(group))
        except BaseException:
            group.break_connections()
            group.drop()
            raise

    def _is_superseded(self, view: View) -> bool:
        recovery = self._link.recovery if self._link is not None else None
        return recovery is not None and recovery.proposed.number > view.number

    def _is_replaced(self, view: View) -> bool:
        # A worker with the state enters only views that all have agreed on; a worker without it enters the newest view.
        proposed = self._link.proposed if self._link is not None and not self.has_state else None
        return proposed is not None and proposed.number > view.number

    def _on_stuck(self) -> None:
        # Wakes the training thread, which then finds that it is to stop, saves its state, and leaves.
        if self._connection is not None:
            self._connection.group.break_connections()

    def _on_recover(self, view: View) -> None:
        # Called with `changed` held, on the link's thread: ends whatever wait the training thread is in.
        if self._connection is not None and self._connection.view.number < view.number:
            self._connection.group.break_connections()
        for number in [number for number in self._built if number < view.number]:
            self._built[number].group.break_connections()
        if view.rank_of(self.worker) is not None:
            threading.Thread(target=self._build, args=(view,), name=f"legato-build-{view.number}", daemon=True).start()

    def _newest_with_me(self) -> Connection | None:
        number = max(self._built, default=0)
        if number and self._built[number].view.rank_of(self.worker) is not None:
            return self._built.pop(number)
        return None

    def _recovery_after(self, failed: int) -> Callable[[], Connection | None]:
        def find() -> Connection | None:
            assert self._link is not None
            recovery = self._link.recovery
            if recovery is None or recovery.proposed.number <= failed:
                return None
            if recovery.proposed.rank_of(self.worker) is None:
                self.leave("superseded")
            return self._built.pop(recovery.proposed.number, None)

        return find

    def _wait_for(self, find: Callable[[], Connection | None]) -> Connection:
        assert self._link is not None
        while True:
            with self._wake:
                self._waits_for_driver = True
                while (found := find()) is None and self._link.stop_reason is None and not self._is_to_hold():
                    self._wake.wait(0.5)
                self._waits_for_driver = False
                if found is not None:
                    return found
                if self._link.stop_reason is not None:
                    break
                hold, self._link.hold = self._link.hold, None
            # Not under the lock: a state may take long to copy, and the link's thread must continue meanwhile.
            if hold is not None and hold.save:
                self._on_hold()
        self._on_stopped_waiting()
        return self.leave("orphaned" if self._link.stop_reason == "orphaned" else "stopped")

    def _is_waiting(self) -> bool:
        return self._waits_for_driver or (self._connection is not None and self._connection.group.is_waiting)

    def _is_to_hold(self) -> bool:
        return self._link is not None and self._link.hold is not None and self.has_state

    def _report_broken(self, reason: str) -> None:
        """Report to the driver, or to the next one if there is none, that the present view broke."""
        assert self._link is not None
        number = self.connection.view.number
        self._link.broken = wire.Broken(view=number, num_rounds=self.num_rounds, reason=reason)
        self._say(self._link.broken)

    def _drop_connection(self, connection: Connection) -> None:
        connection.group.break_connections()
        connection.group.drop()

    def _set_phase(self, phase: str) -> None:
        if self._link is not None:
            self._link.phase = phase

    def _say(self, message: wire.Message) -> None:
        if self._link is not None:
            number = self._connection.view.number if self._connection else 0
            self._link.send(msgspec.structs.replace(message, view=message.view or number))


def _code_of(newcomers: tuple[int, ...]) -> int:
    """Return a number that tells newcomers from others; 0: there are none."""
    return 1 + zlib.crc32(repr(newcomers).encode()) if newcomers else 0
