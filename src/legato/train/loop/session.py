"""One worker's part in a job: it joins, receives the state, and between rounds saves, stops, or enters another view.

The order of these actions makes the result exact: state is sent and received only between two steps, and planned
changes of the membership happen only between two rounds. A round itself belongs to `stepping` and `evaluation`, which
call the session between two rounds and when a view breaks. The session calls neither.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from legato.core import wire
from legato.core.errors import BrokenView, CheckpointError, LegatoError, MismatchError, ProgramError
from legato.core.view import View
from legato.train.checkpoints.saving import Saver
from legato.train.data.fingerprints import hashing, identity_of
from legato.train.data.order import Layout, Steps, epochs_ended_by
from legato.train.loop.cursor import Cursor
from legato.train.loop.recording import Recorder
from legato.train.loop.reporting import Reporter
from legato.train.loop.step_guards import Turn
from legato.train.membership import state_transfer
from legato.train.membership.connection import Entry, Round, can_read_peers, make_exchange
from legato.train.membership.groups import Group, Pending
from legato.train.membership.membership_client import MembershipClient
from legato.train.membership.peer_memory import UnreadableLoan
from legato.train.process import job
from legato.train.process.allocator import LARGEST_KEPT_BYTES
from legato.train.process.determinism import find_doubts
from legato.train.process.program_sources import describe_program
from legato.train.reduction.buckets import Bucket, layout_of
from legato.train.reduction.exchange import Exchange
from legato.train.reduction.kept_memory import KeptMemory
from legato.train.reduction.reducer import StepReducer
from legato.train.state.agreement import Agreement, OnDifference
from legato.train.state.checksums import checksums
from legato.train.state.differences import describe, describe_changes
from legato.train.state.named_state import Item
from legato.train.state.numeric_environment import describe_environment
from legato.train.state.training_state import TrainingState


class Session:
    """The internal part of a run.

    Args:
        place: where the program runs.
        settings: of the job, from the driver.
        layout: how a step is divided into micro-batches.
        seed: of all random numbers.
        exact: sum along the canonical tree.
        num_backwards: backward passes per micro-batch.
        allow_unprepared_schedulers: as in `legato.train.loop.elastic.elastic`.
        on_difference: what happens when the workers hold different states.
    """

    def __init__(
        self,
        place: job.Place,
        settings: wire.Welcome,
        layout: Layout,
        seed: int,
        *,
        exact: bool,
        num_backwards: int,
        allow_unprepared_schedulers: bool = False,
        on_difference: OnDifference = "stop",
    ) -> None:
        self.place = place
        self.layout = layout
        self.seed = seed
        self.device = torch.device(place.device)
        self.membership = MembershipClient(
            place.link,
            place.key,
            self.device,
            self._connect,
            on_hold=self._save_and_hold,
            on_stopped_waiting=self._save_alone,
        )
        self.cursor = Cursor()
        self.target: Cursor | None = None
        self.shares_freely = False
        self.is_loaded = False
        self.data_fingerprint = ""
        self._known_data: set[str] = set()
        self.outgoing: list[Pending] = []
        self.turn = Turn(lambda: self.membership.num_rounds)
        self.training_state = TrainingState(self.turn, self.device)
        self.agreement = Agreement(self._items, self.device)
        self._on_difference = on_difference
        self._known_differences: set[str] = set()
        self._known_unshared: set[str] = set()
        self._known_obstacles: set[str] = set()
        self._recorder = Recorder.ordered(
            self.membership.worker, self.training_state.items, self.device, self.membership.await_size
        )
        if self._recorder is not None:
            # `legato verify` compares the recorded states: a difference must neither end the run nor be repaired.
            self._on_difference = "warn"
        self.reporter = Reporter(place.link)
        self._settings_alone = settings
        self.is_exact = exact
        self._num_backwards = num_backwards
        self._allow_unprepared_schedulers = allow_unprepared_schedulers
        self._entry: Entry | None = None
        self._identity: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        self._program: dict[str, str] = {}
        self._trainable: list[bool] = []
        self._reducer: StepReducer | None = None
        self._saver: Saver | None = None
        self._entry_with_joiners: Entry | None = None
        # The view whose newcomers take their first step next. All ranks of a view know that before the same step.
        self._first_step_in: View | None = None
        self._may_read_peers = True
        self._kept_memory = KeptMemory()
        self._making: threading.Thread | None = None
        self._has_partial_state = False
        self._resumed: dict[str, Any] | None = None
        self._is_broken_off = False
        place.on_end(self._finish)
        if place.link is None:
            atexit.register(self._finish)

    @property
    def _settings(self) -> wire.Welcome:
        # The driver may send the settings again: after a loss of all workers, so that the job resumes.
        said = self.place.link.settings if self.place.link is not None else None
        return said or self._settings_alone

    @property
    def reducer(self) -> StepReducer:
        """The reducer of the present parameters; it exists once the worker has joined."""
        assert self._reducer is not None, "the worker has not joined yet"
        return self._reducer

    @property
    def has_begun(self) -> bool:
        """Whether training has begun on this worker: no model or optimizer may be added any more."""
        return self._reducer is not None

    def private_fds(self) -> list[int]:
        """Return the descriptors that child processes must not hold open."""
        link = self.place.link
        of_memory = self._kept_memory.file_descriptors()
        return [*self.membership.group.file_descriptors(), *of_memory, *(link.file_descriptors() if link else [])]

    # ------------------------------------------------------------ what the program says

    def use_data(self, fingerprint: str) -> None:
        """Set the data set of the coming pass; a worker with another data set is refused."""
        if fingerprint not in self._known_data:
            # The program may have changed it by what this worker alone has computed.
            self._known_data.add(fingerprint)
            self.agreement.ask()
        self.data_fingerprint = fingerprint

    def share_freely(self) -> None:
        """Declare that each step is divided among all present workers."""
        self.shares_freely = True

    def break_off(self) -> None:
        """Record that the program has left its loop over epochs before its end."""
        self._is_broken_off = True

    # ------------------------------------------------------------ joining

    def join(self) -> None:
        """Become a member of a view and receive the job's position; nothing is loaded yet."""
        if self._entry is not None or self.is_loaded:
            return
        if self._reducer is None:
            self._make_reducer()
            self.training_state.begin()
            self._identity = identity_of(self.training_state.fingerprint(), self.layout, self.seed, exact=self.is_exact)
            self._environment = describe_environment(self.device)
            for doubt in find_doubts(self.device) if self.is_exact else ():
                self.reporter.say(wire.Note(level="warning", text=doubt))
            self._program = describe_program()
            self.training_state.watch(allow_unprepared_schedulers=self._allow_unprepared_schedulers)
            if self._settings.checkpoint_dir is not None:
                directory, every = Path(self._settings.checkpoint_dir), self._settings.checkpoint_every
                self._saver = Saver(
                    directory,
                    every,
                    self._settings.keep,
                    self._identity,
                    self._environment,
                    self._program,
                    self.reporter.say,
                )
        while self._entry is None:
            if self.place.link is None:
                self.membership.start_alone()
                entry = Entry((0,), (), repaired=False)
            else:
                entry = self.membership.meet_first(
                    wire.Warm(
                        fingerprint={**self._identity, **hashing(), **self._environment, **self._program},
                        num_micro_batches=self.layout.num_micro_batches,
                        shares_freely=self.shares_freely,
                    ),
                    self._rehearse,
                )
            try:
                self.target = self._agree_on_target(entry)
            except BrokenView:
                continue
            if self.cursor.is_beyond(self.target):
                # After an earlier view the program ran past the position at which the job continues; only a new process
                # can go back.
                self.membership.leave("superseded")
            # The program may print the loss on its way there: it gets the loss of the job's position instead of None.
            self.cursor.show_result_of(self.target)
            self._entry = entry

    def _rehearse(self) -> None:
        """Load the code and the memory that the first step in a view needs, before other workers wait for it."""
        state_transfer.rehearse()
        checksums([("rehearsal", torch.zeros(1, device=self.device))], self.device)
        # The allocator keeps this memory for the gradients, except that of larger blocks.
        kept = [parameter for parameter in self.reducer.parameters if parameter.nbytes <= LARGEST_KEPT_BYTES]
        gradients = [torch.empty_like(parameter) for parameter in kept]
        for gradient in gradients:
            gradient.zero_()

    def try_to_load(self) -> None:
        """Receive the state, or provide it in the first view. If the view breaks, the worker has to join again."""
        entry, group = self._entry, self.membership.group
        assert entry is not None
        start = time.monotonic()
        try:
            if group.rank in entry.joiners:
                self._receive_state(entry)
            else:
                if self._resumed is not None:
                    job.check_same_data(self._resumed["data"], self.data_fingerprint, "the checkpoint")
                    self._load(self._resumed)
                    self._resumed = None
                self.reducer.buffers.rebase()
                self._send_state(entry)
                # Each can be waited for only once, even if the wait fails.
                outgoing, self.outgoing = self.outgoing, []
                group.finish(outgoing)
        except BrokenView:
            # Ranks that wait for this one in that view need not wait for the driver's message.
            group.break_connections()
            self._entry = None
            return
        self.is_loaded = True
        self._expect_first_step(entry)
        self.agreement.begin_view()
        self.membership.joined(time.monotonic() - start)

    def _agree_on_target(self, entry: Entry) -> Cursor:
        group = self.membership.group
        if group.rank in entry.joiners:
            plain = state_transfer.decode(state_transfer.receive_bytes(group, entry.sources[0]))
            return Cursor.from_plain(plain["cursor"])
        # No worker has the state, and this is rank 0: the job starts here, or resumes from a checkpoint.
        cursor = Cursor()
        found = self._saver.newest() if self._saver is not None and self._settings.resume else None
        if found is None and self._has_partial_state:
            # This process has received only a part of the state, so training cannot begin in it; a new process can
            # begin.
            self.membership.leave("superseded")
        if found is None and self._settings.resume:
            text = (
                f"There is no checkpoint to resume from in {self._settings.checkpoint_dir}: training starts at step 0."
            )
            self.reporter.say(wire.Note(level="warning", text=text))
        if found is not None:
            self._resumed = found.state
            cursor = Cursor.from_plain(found.state["cursor"])
            self.reporter.say(wire.Note(level="info", text=f"Resumed from {found.path} at step {found.step}."))
            self.reporter.report_resumed(cursor)
        group.finish(
            state_transfer.send_bytes(group, entry.joiners, state_transfer.encode({"cursor": cursor.to_plain()}))
        )
        return cursor

    # ------------------------------------------------------------ state

    def _send_state(self, entry: Entry) -> None:
        """Start to send the state to the joiners; it must not change until `outgoing` is finished.

        If the state cannot be sent, the joiners receive the reason and leave; the others continue.
        """
        if not entry.joiners:
            return
        group = self.membership.group
        try:
            try:
                tree = self._state()
            except CheckpointError as error:
                self.outgoing += state_transfer.send_refusal(group, entry.sources, entry.joiners, str(error))
            else:
                self.outgoing += state_transfer.send_tree(group, entry.sources, entry.joiners, tree)
        except BrokenView:
            raise
        except BaseException:
            # This error ends the program. Peers that wait for this rank must not wait forever.
            group.give_up(self.outgoing)
            self.outgoing = []
            raise

    def _receive_state(self, entry: Entry) -> None:
        group = self.membership.group
        header = state_transfer.receive_header(group, entry.sources[0])
        if header.refusal:
            raise MismatchError(f"No worker can join this job now. {header.refusal}")
        job.check_same_data(header.skeleton["data"], self.data_fingerprint, "the others")
        # Tensors of the models arrive where they belong, without a copy.
        own = state_transfer.aligned({"models": header.skeleton["models"]}, {"models": self._state()["models"]})
        self._has_partial_state = True
        try:
            tree = state_transfer.receive_tree(group, entry.sources, header, own)
        except UnreadableLoan:
            # The next view sends the state again.
            self._may_read_peers = False
            raise
        try:
            self._load(tree)
        except Exception as error:
            # Only this worker does not have the state; the others have it and continue.
            told = str(error) if isinstance(error, LegatoError) else f"{type(error).__name__}: {error}"
            raise MismatchError(f"This worker cannot load the state of the job. {told}") from error
        self.reporter.report_received(self.cursor)

    def _state(self) -> dict[str, Any]:
        self.cursor.note_rounds(self.membership.num_rounds)
        self.reporter.forget_known(self.cursor)
        return {
            **self.training_state.state(self.reducer.buffers.base),
            "cursor": self.cursor.to_plain(),
            "moving": list(self.reducer.buffers.known),
            "data": self.data_fingerprint,
        }

    def _load(self, tree: dict[str, Any]) -> None:
        self.training_state.load(tree)
        if self._making is not None:
            self._making.join()
            self._making = None
        # Checkpoints of earlier releases do not have them.
        self.training_state.attributes.compare(tree.get("attributes", {}))
        # A worker that comes after the last pass has used no data set.
        self.data_fingerprint = self.data_fingerprint or tree["data"]
        self._follow_freezing()
        self.reducer.buffers.rebase()
        self.reducer.buffers.know(tree["moving"])
        self.cursor = Cursor.from_plain(tree["cursor"])
        self.membership.go_on_from(self.cursor.num_rounds)

    # ------------------------------------------------------------ between rounds

    def at_boundary(self, steps: Steps, num_steps: int) -> Exchange | None:
        """Do what is due between two steps: stop, save, enter the agreed view, send the state to joiners.

        Args:
            steps: how the present pass is divided into steps.
            num_steps: number of steps of the present pass.

        Returns:
            The exchange that sums the gradients of the next step; None after the last step of the pass.
        """
        if self.agreement.differs or self.agreement.uneven is not None:
            self._act_on_difference()
        if self.membership.stop_agreed:
            self._stop_together()
        self._follow_freezing()
        self._save_if_due(steps)
        if self._recorder is not None:
            told = {f"the note '{name}'": str(values) for name, values in self.cursor.notes.items()}
            results = {"the loss": self.cursor.loss, **told}
            self._recorder.at_boundary(self.cursor.step, results, self.membership.size)
        is_before_step = self.cursor.step_in_pass < num_steps
        while True:
            try:
                # Joiners of a recovery receive the state before a step: after the last step of a pass another rank may
                # be further, in an evaluation without them. Joiners of an agreed view find all ranks at the same place.
                if self._enter_agreed(may_join=True) or is_before_step:
                    self._welcome_joiners()
                # After the last step of a pass no exchange is needed, and a rank that had its result earlier may be
                # further: in the next pass, before which the program has frozen or unfrozen parameters.
                if not is_before_step:
                    return None
                exchange = self.membership.ensure_exchange(self.reducer.layouts)
                self.agreement.at_boundary(self.cursor.step, self.membership.size)
            except BrokenView as error:
                self.recover(error, None)
            else:
                return exchange

    def at_evaluation_boundary(self) -> None:
        """Enter the agreed view between two rounds of an evaluation; joiners wait for the state until the next step."""
        while True:
            try:
                self._enter_agreed(may_join=False)
            except BrokenView as error:
                self.recover(error, None)
            else:
                return

    def _enter_agreed(self, *, may_join: bool) -> bool:
        """Enter the view that all ranks have agreed on, if there is one; return whether there was one."""
        start = time.monotonic()
        entry = self.membership.switch(may_join=may_join)
        if entry is None:
            return False
        self._begin_view(entry, start)
        return True

    def recover(self, error: BrokenView, broken: Round | None) -> bool:
        """Continue in the driver's next view after a break.

        Args:
            error: what happened.
            broken: the round that did not complete on this rank, None between rounds.

        Returns:
            Whether that round is complete after all, because other ranks had its result.
        """
        start = time.monotonic()
        # Sending must have stopped before its memory is used for anything else.
        self.membership.group.give_up(self.outgoing)
        self.outgoing = []
        entry = self.membership.recover(error, broken)
        self._begin_view(entry, start)
        return entry.repaired

    def _begin_view(self, entry: Entry, start: float) -> None:
        self._entry_with_joiners = entry if entry.joiners else None
        self.agreement.begin_view()
        self.membership.joined(time.monotonic() - start)

    def group_with_state(self) -> Group:
        """Return the members that have the state: after a recovery others may wait for it until the next step."""
        group = self.membership.group
        if self._entry_with_joiners is None:
            return group
        return group.among([rank for rank in range(group.size) if rank not in self._entry_with_joiners.joiners])

    def finish_sending(self) -> None:
        """Wait until the state is sent to all joiners that are alive: after this call it may change."""
        if not self.outgoing:
            return
        outgoing, self.outgoing = self.outgoing, []
        with contextlib.suppress(BrokenView):
            # The next collective notices a peer that is gone.
            self.membership.group.finish(outgoing)

    def _welcome_joiners(self) -> None:
        """Start to send the state to the joiners that wait for it."""
        entry, self._entry_with_joiners = self._entry_with_joiners, None
        if entry is None:
            return
        # The joiners receive the changes with the state.
        self.agreement.forget_changes()
        group = self.membership.group
        if group.rank == entry.sources[0]:
            cursor = state_transfer.encode({"cursor": self.cursor.to_plain()})
            self.outgoing += state_transfer.send_bytes(group, entry.joiners, cursor)
        self._send_state(entry)
        self._expect_first_step(entry)

    def _expect_first_step(self, entry: Entry) -> None:
        # When the driver made the view, other workers may have been without the state.
        group = self.membership.group
        self._first_step_in = group.view if group.newcomers and group.newcomers == entry.joiners else None

    @property
    def is_first_step(self) -> bool:
        """Whether the next step is the first one of this view's newcomers."""
        return self._first_step_in is self.membership.group.view

    def end_first_step(self) -> None:
        """Note that a step of this view is complete."""
        self._first_step_in = None

    def _follow_freezing(self) -> None:
        """Adapt to parameters that the program froze or unfroze since the last step."""
        if self.training_state.trainable() == self._trainable:
            return
        moving = self.reducer.buffers.known
        self.reducer.close()
        self._make_reducer().buffers.know(moving)

    # ------------------------------------------------------------ agreement

    def _items(self) -> Iterator[Item]:
        """Yield every piece of what must be equal on all workers between two steps."""
        yield from self.training_state.items()
        yield Item("data set of this pass", self.data_fingerprint, "data", None)

    def _act_on_difference(self) -> None:
        """Do what ``on_difference`` says if the control words of the last step have shown that the states differ."""
        try:
            if self.agreement.uneven is not None:
                self._settle_changes(self.group_with_state())
            if self.agreement.differs:
                self._settle_difference(self.group_with_state())
        except BrokenView as error:
            # The next view begins with a check.
            self.recover(error, None)

    def _compare_now(self) -> None:
        """Compare the states where no step follows, and do what ``on_difference`` says."""
        group = self.group_with_state()
        if self.agreement.uneven is not None:
            # The program has left its loop after that step.
            self._settle_changes(group)
        differed_step = self.agreement.compare(group, self.cursor.step, self.cursor.differed_step)
        self.cursor.note_difference(differed_step)
        if self.agreement.differs:
            self._settle_difference(group)

    def _settle_difference(self, group: Group) -> None:
        agreement = self.agreement
        agreed_step, step = agreement.agreed_step, agreement.step
        found = agreement.find(group)
        self._warn_of_unshared(group)
        if not found:
            return
        told = describe(
            found,
            self._items(),
            self.reducer.buffers,
            step=step,
            agreed_step=agreed_step,
            num_ranks=group.size,
        )
        self._report_difference(told, {piece.name for piece in found}, step)
        if self._on_difference == "repair":
            self._repair(group)

    def _settle_changes(self, group: Group) -> None:
        """React to buffers that the program has not changed alike on all ranks; the step has made them equal again."""
        buffers = self.reducer.buffers
        sums = {buffers.name(index): total for index, total in self.agreement.take_uneven().items()}
        told: list[dict[str, int]] = group.all_gather_object(sums)
        step = self.cursor.step - 1
        names = {f"buffer {name}" for each in told for name in each}
        self._report_difference(describe_changes(told, step), names, step)

    def mark_crossed(self, told: str) -> None:
        """Mark the job: the cross-check of the step that is now complete has found that its result is not exact.

        Training continues, whatever ``on_difference`` says: all workers have the same state.
        """
        self._mark_difference(f"{told}\nTraining continues", {"gradients"}, self.cursor.step + 1)

    def _report_difference(self, told: str, names: set[str], step: int) -> None:
        if self._on_difference == "stop":
            raise ProgramError(
                f"{told}\nTraining stops here, because its result would depend on the workers. With "
                "on_difference='warn' it continues; with 'repair' all workers copy the state of rank 0."
            )
        does = "All workers copy the state of rank 0" if self._on_difference == "repair" else "Training continues"
        self._mark_difference(f"{told}\n{does}", names, step)

    def _mark_difference(self, told: str, names: set[str], step: int) -> None:
        """Mark the job as not exact from a step on, and report each difference once."""
        if self.cursor.differed_step is None or step < self.cursor.differed_step:
            self.cursor.note_difference(step)
        if not names <= self._known_differences:
            self._known_differences |= names
            self.reporter.say(wire.Differed(step=step, text=f"{told}; the run is not exact from here on."))

    def _warn_of_unshared(self, group: Group) -> None:
        """Warn once for each cache that only this rank has, because it is not compared."""
        for name, rank in self.agreement.unshared.items():
            if name in self._known_unshared:
                continue
            self._known_unshared.add(name)
            text = (
                f"Only rank {rank} has set the {name} (persistent=False), so it is compared with no other. "
                "The result depends on the workers unless it is computed from constants alone. If it keeps anything of "
                "the inputs, register it with a tensor (self.register_buffer(name, torch.zeros(...)))."
            )
            if rank == group.rank:
                self.reporter.say(wire.Note(level="warning", text=text))

    def _repair(self, group: Group) -> None:
        """Send the state of rank 0 to all other ranks."""
        if group.rank == 0:
            # Also the buffers that have changed without notice.
            self.reducer.buffers.rebase()
            group.finish(state_transfer.send_tree(group, (0,), tuple(range(1, group.size)), self._state()))
        else:
            try:
                # Not in place: if the view breaks meanwhile, this rank still has a whole state.
                tree = state_transfer.receive_tree(group, (0,), state_transfer.receive_header(group, 0), {})
            except UnreadableLoan:
                self._may_read_peers = False
                raise
            self._load(tree)
        self.agreement.ask()

    # ------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Start to write a checkpoint of the present state in the background."""
        if self._saver is not None and self.is_loaded:
            if self.place.link is not None:
                # A checkpoint must not contain a step that was not reported to the driver: after the checkpoint no
                # worker reports that step again.
                self.place.link.flush()
            self._saver.save(self._state, self.cursor.step)

    def save_together(self, *, may_join: bool) -> None:
        """Write a checkpoint at the end of the loop: rank 0 writes, the others wait, and take over if rank 0 dies.

        Args:
            may_join: the program continues after this, so joiners that still wait for the state take part.
        """
        has_saved = False
        while True:
            try:
                if may_join:
                    self._welcome_joiners()
                self._compare_now()
                if self.membership.rank == 0 and not has_saved:
                    self.save_and_wait()
                    has_saved = True
                self.group_with_state().barrier()
            except BrokenView as error:
                self.recover(error, None)
            else:
                self.finish_sending()
                return

    def _stop_together(self) -> None:
        """Save and leave as all ranks have agreed, unless the view breaks: then not all of the next view know of it."""
        try:
            self._compare_now()
            if self.membership.rank == 0:
                self.save_and_wait()
            self.group_with_state().barrier()
        except BrokenView as error:
            # A rank that still has the request to stop votes for it in the next round.
            self.recover(error, None)
        else:
            self.membership.leave("stopped")

    def save_and_wait(self) -> None:
        """Write a checkpoint and wait until it is on disk."""
        if self._saver is not None:
            self.save()
            self._saver.wait()

    def _save_and_hold(self) -> None:
        """Start to write a checkpoint, and let the writer use the time in which this worker waits for others."""
        self.save()
        if self._saver is not None:
            self._saver.hurry()

    def _save_alone(self) -> None:
        """Save without the others: no view is left in which the workers could agree on one that saves."""
        if self._saver is not None and self.is_loaded:
            self._saver.save_unless_there(self._state, self.cursor.step)

    def _save_if_due(self, steps: Steps) -> None:
        if self._saver is None or self.membership.rank != 0:
            return
        ended = epochs_ended_by(steps, self.cursor.epoch, self.cursor.step_in_pass)
        if self._saver.is_due(self.cursor.step, ended):
            self.save()
            self.agreement.ask()

    def _finish(self) -> None:
        """End with the program. After an error: not called in a job; alone, wait only for checkpoints being written."""
        failed = getattr(sys, "last_value", None) is not None
        if self._is_broken_off and self.is_loaded and not failed and not self.membership.has_left:
            # Its present state is the end of its training nevertheless.
            self.save_together(may_join=False)
        elif self._saver is not None:
            self._saver.wait()

    # ------------------------------------------------------------ parts

    def _make_reducer(self) -> StepReducer:
        parameters, buffers = self.training_state.parameters(), self.training_state.buffers()
        self._trainable = self.training_state.trainable()
        self._reducer = StepReducer(parameters, buffers, self._num_backwards)
        return self._reducer

    def _connect(self, group: Group) -> tuple[Exchange | None, str]:
        # Read once: the training thread may replace it meanwhile, when the program unfreezes a layer.
        reducer = self.reducer
        exchange = make_exchange(
            group,
            reducer.buckets,
            self.layout.num_micro_batches,
            exact=self.is_exact,
            between_nodes=reducer.buckets_between_nodes,
            kept=self._kept_memory,
        )
        if exchange is not None and group.size > 1 and self.device.type == "cpu":
            if self.membership.has_state:
                _make_gradients(exchange.buckets)
            else:
                # Beside the rest: the others wait until this worker has the view, but not yet for its gradients.
                self._making = threading.Thread(target=_make_gradients, args=(exchange.buckets,))
                self._making.start()
        group.set_reads_peers(can_read_peers(group, may_try=self._may_read_peers))
        if group.obstacle and group.obstacle not in self._known_obstacles and group.rank == 0:
            self._known_obstacles.add(group.obstacle)
            text = f"Gradients are summed in the memory of the host, not between the GPUs: {group.obstacle}."
            self.reporter.say(wire.Note(level="warning", text=text))
        if group.refusal and group.refusal not in self._known_obstacles:
            self._known_obstacles.add(group.refusal)
            text = f"Worker {self.membership.worker} shares no memory with the others of its node: {group.refusal}."
            text += " They exchange gradients over the network, with the same result, but more slowly."
            self.reporter.say(wire.Note(level="warning", text=text))
        return exchange, "" if exchange is None else layout_of(exchange.buckets)


def _make_gradients(buckets: Sequence[Bucket]) -> None:
    for bucket in buckets:
        bucket.make_gradient()
