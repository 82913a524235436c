"""A training step as the user's loop sees it: this worker's micro-batches, then the round of all workers.

The round runs inside the backward pass of the last micro-batch, so the calls that follow it in the loop, such as
gradient clipping, see the complete gradient.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any, Final, Protocol

import msgspec
import torch

from legato.core import wire
from legato.core.errors import BrokenView, ProgramError
from legato.core.span import Span
from legato.train.data.order import Key, Steps, epochs_before
from legato.train.data.seeds import seed_micro_batch
from legato.train.loop.cross_check import CrossCheck, describe, find_owner, is_due
from legato.train.loop.data_wait import DataWait
from legato.train.loop.fixed_cost import FixedCost
from legato.train.loop.session import Session
from legato.train.loop.turn_counting import TurnCounting
from legato.train.loop.unprepared import Prepared, Unprepared
from legato.train.membership.connection import Leave
from legato.train.membership.groups import Group
from legato.train.process import faults
from legato.train.reduction.exchange import Division, Exchange
from legato.train.state.checksums import checksums

_ENDLESS: Final = 10**9
_AFTER_STEP: Final = 2**31
_BEFORE_EPOCH: Final = 2**31 + 1
_AFTER_PASS: Final = 2**31 + 2


class Source(Protocol):
    """The source of a pass's micro-batches."""

    @property
    def loads(self) -> bool:
        """Whether `take` waits for data. False: the program loads its batches itself."""
        ...

    @property
    def num_processes(self) -> int | None:
        """The number of loader processes for which the program has asked; None: it cannot ask, or leaves it open."""
        ...

    def follow(self, keys: Iterator[Key]) -> None:
        """Set the keys that `take` will return from now on, in this order."""
        ...

    def take(self) -> tuple[Key, Any]:
        """Return the next key and its batch."""
        ...


class Stepper:
    """Runs the steps of a session's passes.

    Args:
        session: of this worker.
        stop_on_nan: end with an error when the loss of a step is not finite.
    """

    def __init__(self, session: Session, *, stop_on_nan: bool) -> None:
        self._session = session
        self._stop_on_nan = stop_on_nan
        self._has_warned_of_nan = False
        self._num_samples = 0
        self._num_epochs: int | None = None
        self._steps: Steps | None = None
        self._num_steps = 0
        self._is_broken = False
        self._is_examined = False
        self._is_state_checked = False
        self._leaving: BaseException | None = None
        self._fixed_cost = FixedCost()
        self._data_wait = DataWait()
        self._turn_counting = TurnCounting()
        self._cross_check = CrossCheck(session.device)
        # The present view, and its first step.
        self._view = (0, 0)
        self._unprepared = Unprepared(session.device)
        self._num_passes = 0
        self._source: Source | None = None

    def begin_epochs(self, num_epochs: int) -> None:
        """Set how many epochs the program's loop has."""
        self._num_epochs = num_epochs

    def turns_of_pass(self, order: Steps, loader: Source, *, may_repeat: bool) -> Iterator[Any]:
        """Yield this worker's micro-batches of the rest of the present pass.

        Args:
            order: of the pass.
            loader: of its batches.
            may_repeat: it can also return those of another rank, for the cross-check.
        """
        session = self._session
        pass_index = session.cursor.pass_index
        self._note_changes(session.reducer.buffers.accept())
        session.reducer.buffers.rebase()
        if pass_index & (pass_index - 1) == 0:
            # What the program does between two passes may make the states differ, such as a scheduler that got a
            # value of this worker alone. In passes 1, 2, 4, 8 and so on, because a check costs time.
            session.agreement.ask()
        self._source = loader
        self._data_wait.begin_pass()
        followed: tuple[int, Division, int, bool] | None = None
        is_checked = self._find_checked(order) if may_repeat else _is_never
        try:
            while True:
                self._steps, self._num_steps = order, order.num_steps
                self._end_step()
                if is_checked(session.cursor.step_in_pass):
                    # Different states would give different gradients.
                    session.agreement.ask()
                exchange = session.at_boundary(order, self._num_steps)
                step = session.cursor.step_in_pass
                if step >= order.num_steps:
                    break
                group, is_first = session.membership.group, session.is_first_step
                assert exchange is not None
                number, division = group.view.number, exchange.division
                if number != self._view[0]:
                    self._view = number, session.cursor.step
                if followed != (number, division, step, is_first):
                    is_checked = self._find_checked(order) if may_repeat else _is_never
                    loader.follow(keys(order, pass_index, step, division, group.rank, is_checked, is_first=is_first))
                if group.size > 1:
                    self._cross_check.begin_step(is_checked=is_checked(step))
                yield from self._turns(order, step, loader, exchange, group, is_first=is_first)
                # If the step broke, the loader receives the coming keys again.
                followed = (number, division, step + 1, False)
        finally:
            # Also if the program leaves the loop: it may change the state now.
            session.finish_sending()
            session.turn.end()
            session.reducer.abandon()

    def _find_checked(self, order: Steps) -> Callable[[int], bool]:
        """Return a function that returns whether a step of this pass has a cross-check; all ranks answer the same.

        Only a full step: in a smaller one `torch.compile` may make other code for the last micro-batch.
        """
        session = self._session
        if session.membership.size == 1 or not session.is_exact:
            return _is_never
        before, first_step = session.cursor.step - session.cursor.step_in_pass, self._view[1]
        full = session.layout.global_batch_size

        def is_checked(step: int) -> bool:
            return is_due(before + step, first_step) and step < order.num_steps and order.num_samples_of(step) == full

        return is_checked

    def _end_step(self) -> None:
        """End the last step, if there was one, before any other action between two steps.

        Raises:
            ProgramError: the program changed its models or optimizers, or its first step made a state that cannot be
                sent to joining workers or saved.
            BaseException: the pending error of the last round.
        """
        session = self._session
        buffers, stepped = session.reducer.buffers, session.turn.stepped
        if self._is_broken:
            buffers.restore()
        else:
            self._note_changes(buffers.accept())
        self._is_broken = False
        session.turn.end()
        session.training_state.check_structure()
        if stepped and not self._is_state_checked:
            self._is_state_checked = True
            session.training_state.check_state()
        self.leave_if_due()

    def _note_changes(self, buffers: Mapping[int, torch.Tensor | None]) -> None:
        """Note the buffers that the program itself has changed: it must do so on all workers, to the same values."""
        session = self._session
        if buffers and session.is_loaded and session.membership.size > 1:
            session.agreement.note_changes(buffers)

    def leave_if_due(self) -> None:
        """Raise the pending error of the last round: not from inside autograd, but where the program calls Legato."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            raise leaving

    def _turns(
        self, order: Steps, step: int, loader: Source, exchange: Exchange, group: Group, *, is_first: bool
    ) -> Iterator[Any]:
        session, reducer = self._session, self._session.reducer
        turn, training_state, seed = session.turn, session.training_state, session.seed
        num_micro_batches = order.num_micro_batches_of(step)
        full = session.layout.micro_batch_size
        self._num_samples = order.num_samples_of(step)
        last = self._num_samples - (num_micro_batches - 1) * full
        job_step = session.cursor.step
        faults.at_step(job_step + 1)
        began, cost_s = perf_counter(), 0.0
        span = reducer.begin_step(exchange, group, num_micro_batches, full, last, self._run_round, is_first=is_first)
        is_ghost = not span.num_items
        is_checked = group.size > 1 and self._cross_check.is_checked
        other = _find_other(reducer.spans, group.rank) if is_checked else None
        micro_batches = [*(() if other is None else (other,)), *_run_for(span)]
        is_sampled = job_step & (job_step + 1) == 0  # steps 1, 2, 4, 8 and so on
        self._is_examined = is_first or is_sampled
        self._turn_counting.begin_step(self._sum_up if is_sampled else None)
        if is_sampled and session.membership.rank == 0:
            self._find_unprepared(begins_step=True)
        for place, micro_batch in enumerate(micro_batches):
            if group.size > 1 and group.is_broken:
                self._give_step_up(group)
                return
            asked = perf_counter()
            key, batch = loader.take()
            loaded = perf_counter()
            self._data_wait.add_load(loaded - asked)
            assert key.step == step and key.index == micro_batch, (key, step, micro_batch)
            turn.begin()
            record = None if other is None else self._cross_check.begin_turn(batch)
            repeats = place == 0 and other is not None
            reducer.begin_micro_batch(micro_batch, ghost=is_ghost, repeats=repeats, record=record)
            seed_micro_batch(seed, job_step, micro_batch)
            faults.strike("forward")
            cost_s += perf_counter() - loaded
            try:
                yield batch
            except GeneratorExit:
                # At the beginning of a step nothing is lost.
                if not turn.stepped and (place or not reducer.is_turn_open):
                    self._turn_counting.leave_step(job_step + 1)
                raise
            reducer.check_complete()
            is_lost = training_state.end_turn(stepped=turn.stepped)
            if turn.stepped:
                self._warn(self._turn_counting.end_step(session.cursor.step, session.cursor.loss, is_lost=is_lost))
            if not turn.stepped and place == 0:
                self._turn_counting.end_first_turn(training_state.learning_rates())
                if is_sampled:
                    training_state.attributes.end_first_turn()
            cost_s += reducer.last_cost_s
        if self._fixed_cost.is_measuring and turn.stepped and other is None:
            self._note_cost(perf_counter() - began, cost_s, len(micro_batches))

    def _give_step_up(self, group: Group) -> None:
        """Enter the next view at once: no rank can complete the step, because this one has not reached its round."""
        self._session.reducer.abandon()
        self._session.recover(BrokenView(f"view {group.view.number}: its connections were broken"), None)
        self._is_broken = True

    def continue_program(self) -> None:
        """Note that the program goes on after its loop over batches: it has not left the loop by an error."""
        self._warn(self._turn_counting.continue_program())
        self._num_passes += 1
        session = self._session
        if session.is_loaded and session.membership.rank == 0 and self._num_passes & (self._num_passes - 1) == 0:
            self._find_unprepared()

    def _find_unprepared(self, *, begins_step: bool = False) -> None:
        state, step = self._session.training_state, self._session.cursor.step

        def held() -> Iterator[torch.Tensor]:
            return (item.value for item in state.items() if isinstance(item.value, torch.Tensor))

        prepared = Prepared(state.things(), state.tensors(), held)
        for text in self._unprepared.find_changes(sys._getframe(), prepared, step, begins_step=begins_step):
            self._warn(text)

    def _examine_turns(self) -> None:
        """Warn of what the program has changed in the turns of a step, before the step is complete."""
        session = self._session
        attributes = session.training_state.attributes
        if (stale := attributes.find_stale()) is not None:
            # Only this worker knows.
            session.reporter.say(wire.Note(level="warning", text=stale))
        self._warn(attributes.find_counters())
        self._warn(self._turn_counting.find_changes(session.cursor.step + 1, self._sum_up))
        for text in self._unprepared.end_turns():
            self._warn(text)

    def _sum_up(self) -> dict[str, int]:
        """Return checksums of what the turns of a step do not change; Legato itself takes care of buffers."""
        items = self._session.training_state.items()
        kept = ((item.name, item.value) for item in items if item.kind in ("parameter", "object"))
        return checksums(kept, self._session.device)

    def _warn(self, text: str | None) -> None:
        if text is not None and self._session.membership.rank == 0:
            self._session.reporter.say(wire.Note(level="warning", text=text))

    def _note_cost(self, step_s: float, cost_s: float, num_turns: int) -> None:
        session = self._session
        if self._fixed_cost.add_step(step_s, cost_s, num_turns) and session.membership.rank == 0:
            layout = session.layout
            text = self._fixed_cost.advise(layout.micro_batch_size, layout.num_micro_batches, session.membership.size)
            if text is not None and not session.shares_freely:
                session.reporter.say(wire.Note(level="info", text=text))

    def _run_round(self) -> None:
        session = self._session
        reducer, membership = session.reducer, session.membership
        if self._is_examined:
            self._examine_turns()
        self._warn(self._turn_counting.complete_step(session.cursor.step + 1, session.training_state.learning_rates))
        # A rank that is alone has no costs and no state to compare.
        has_peers = membership.size > 1
        try:
            ours = membership.word(may_join=True)
            costs = reducer.word() if has_peers else []
            agreement = session.agreement.word(session.cursor.differed_step) if has_peers else []
            crossed = self._cross_check.word() if has_peers else []
            words = reducer.run_round([*ours, *costs, *agreement, *crossed])
        except BrokenView as error:
            try:
                completed = session.recover(error, reducer)
            except Leave as leave:
                self._leaving = leave
                return
            self._is_broken = not completed
            if completed:
                session.agreement.forget_changes()
        else:
            completed = True
            membership.hear(words)
            if has_peers:
                parts = [_split(word, len(ours), len(costs), len(agreement)) for word in words]
                reducer.hear([part[1] for part in parts])
                session.cursor.note_difference(session.agreement.hear([part[2] for part in parts]))
                found = self._cross_check.hear([part[3] for part in parts], reducer.spans)
                if found is not None and not session.agreement.differs and session.agreement.uneven is None:
                    session.mark_crossed(describe(found, session.cursor.step + 1))
            # Joiners that received state have taken part in this round, so the whole state has arrived.
            session.finish_sending()
            session.end_first_step()
        if completed:
            self._commit()

    def _commit(self) -> None:
        session, cursor, reducer = self._session, self._session.cursor, self._session.reducer
        session.membership.completed(reducer)
        session.agreement.end_step()
        assert self._steps is not None
        epoch, loss = epochs_before(self._steps, cursor.epoch, cursor.step_in_pass), reducer.loss
        cursor.commit_step(epoch, loss, self._num_samples, reducer.notes.last)
        session.turn.complete_step()
        # Random numbers that the program draws from here on are the same on all ranks, whichever micro-batch was the
        # last.
        seed_micro_batch(session.seed, cursor.step, _AFTER_STEP)
        faults.strike("commit")
        measured_s, waited_s = self._note_wait()
        if session.place.link is not None:
            progress = msgspec.structs.replace(
                self._progress(), sent_bytes=reducer.take_sent_bytes(), measured_s=measured_s, waited_s=waited_s
            )
            session.reporter.report_commit(progress)
        if loss is not None and not math.isfinite(loss):
            self._on_not_finite(loss)

    def _note_wait(self) -> tuple[float, float]:
        """Return the seconds of the committed step, and how many of them this worker waited for data."""
        session, source = self._session, self._source
        assert source is not None
        measured = self._data_wait.end_step(session.membership.connection.view.number)
        if not source.loads:
            return 0.0, 0.0
        if self._data_wait.is_due and session.membership.rank == 0 and source.num_processes is not None:
            num_here = session.membership.connection.view.num_on_node(0)
            num_spare = len(os.sched_getaffinity(0)) - num_here * torch.get_num_threads()
            text = self._data_wait.advise(source.num_processes, num_here, num_spare)
            if text is not None:
                session.reporter.say(wire.Note(level="info", text=text))
        return measured

    def report_phase(self, phase: str) -> None:
        """Report to the driver whether the job trains or evaluates; the first commit reports that it trains.

        Args:
            phase: as in `Progress`.
        """
        session = self._session
        link = session.place.link
        if link is not None and session.membership.rank == 0 and session.cursor.step:
            link.report(msgspec.structs.replace(self._progress(), num_samples=0, phase=phase))
            # At once: merged with the next step, it would report this one again.
            link.flush()

    def _progress(self) -> wire.Progress:
        session, cursor = self._session, self._session.cursor
        # A program that trains without end passes a huge number.
        num_epochs = self._num_epochs if self._num_epochs is not None and self._num_epochs < _ENDLESS else None
        num_steps = None if num_epochs is None else num_epochs * self._num_steps
        if num_epochs is not None and self._steps is not None:
            num_epochs *= self._steps.num_epochs
        return wire.Progress(
            view=session.membership.connection.view.number,
            first_step=cursor.step,
            last_step=cursor.step,
            epoch=cursor.last_epoch,
            loss=cursor.loss,
            num_samples=self._num_samples,
            num_steps=num_steps,
            num_epochs=num_epochs,
            differed_step=cursor.differed_step,
        )

    def _on_not_finite(self, loss: float) -> None:
        session = self._session
        text = f"The loss of step {session.cursor.step} is {loss}."
        if self._stop_on_nan:
            self._leaving = ProgramError(f"{text} Training ends because stop_on_nan is set.")
        elif not self._has_warned_of_nan and session.membership.rank == 0:
            self._has_warned_of_nan = True
            session.reporter.say(
                wire.Note(level="warning", text=f"{text} Training continues; stop_on_nan=True would end it.")
            )


def seed_between_passes(session: Session, *, epoch_begins: bool) -> None:
    """Seed the generators, so that all ranks draw the same numbers between passes, also if one rank skips a pass."""
    seed_micro_batch(session.seed, session.cursor.pass_index, _BEFORE_EPOCH if epoch_begins else _AFTER_PASS)


def _split(word: Sequence[int], *lengths: int) -> list[Sequence[int]]:
    """Cut the control words of a rank into parts of the given lengths and the rest."""
    bounds = [*accumulate(lengths, initial=0), len(word)]
    return [word[start:stop] for start, stop in pairwise(bounds)]


def _find_other(spans: Sequence[Span], rank: int) -> int | None:
    """Return the micro-batch of another rank that a rank repeats for the cross-check; None: there is none."""
    owner = find_owner(spans, rank)
    return None if owner is None else spans[owner].start


def micro_batches_of(
    order: Steps, step: int, division: Division, rank: int, *, is_first: bool = False
) -> Sequence[int]:
    """Return the micro-batches that a rank runs in a step."""
    return _run_for(division.assign(order.num_micro_batches_of(step), is_first=is_first).spans[rank])


def _run_for(span: Span) -> Sequence[int]:
    """Return the micro-batches that are run for a span: for an empty one the first, whose result is not used."""
    return range(*span) if span.num_items else (0,)


def _is_never(_step: int) -> bool:
    return False


def keys(
    order: Steps,
    pass_index: int,
    first_step: int,
    division: Division,
    rank: int,
    is_checked: Callable[[int], bool] = _is_never,
    *,
    is_first: bool = False,
) -> Iterator[Key]:
    """Yield the micro-batches that a rank runs in a pass, from a step on.

    Args:
        order: of the pass.
        pass_index: its number.
        first_step: in the pass.
        division: of the steps among the ranks.
        rank: which one.
        is_checked: whether a step has a cross-check, so a micro-batch of another rank comes first.
        is_first: the first of these steps is the first one of the view's newcomers.
    """
    for step in range(first_step, order.num_steps):
        if is_checked(step):
            other = _find_other(division.assign(order.num_micro_batches_of(step)).spans, rank)
            if other is not None:
                yield Key(pass_index, step, other)
        for micro_batch in micro_batches_of(order, step, division, rank, is_first=is_first and step == first_step):
            yield Key(pass_index, step, micro_batch)
