"""Trains the batches of a program's own loop, step by step, on the runtime: the reverse of `run.batches`.

There the runtime hands out batches; here the program's loop comes with one and wants it trained. Each call of the
wrapped function brings the batch of a ticket (`plan`); it is computed when the runtime asks for its micro-batch, which
is at once but behind a change of membership. A call never goes beyond the end of a step, so that what the loop does
behind it is done after each step, on every worker.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import torch

from legato.compat.elasticdl.batches import Arguments, check_batch, tensors_of
from legato.compat.elasticdl.plan import LoaderPlan
from legato.compat.elasticdl.scheduler_guard import SchedulerGuard
from legato.compat.elasticdl.shards import Start
from legato.compat.elasticdl.stream import Stream, StreamSteps
from legato.core.errors import ProgramError
from legato.train.data.order import Key
from legato.train.data.seeds import seed_micro_batch
from legato.train.loop.elastic import Run, elastic
from legato.train.loop.schedulers import find_schedulers
from legato.train.process import job


class Progress:
    """What travels to who joins, besides the state of models and optimizers.

    Args:
        between: knows what the program does after its steps.
        steps: learn where the training is.
        place: where it begins.
        num_per_step: micro-batches of a step, unless set otherwise.
    """

    def __init__(self, between: SchedulerGuard, steps: StreamSteps, place: int, num_per_step: int) -> None:
        self._scheduler_guard = between
        self._steps = steps
        self._num_per_step = num_per_step
        self.step = 0
        """Steps that are committed."""
        self.place = place
        """Micro-batches of the stream that are trained."""

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"step": self.step, "place": int(self.place), "acts_after_steps": self._scheduler_guard.acts_after_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        self.step, self.place = state["step"], state["place"]
        self._scheduler_guard.acts_after_steps = state["acts_after_steps"]
        self._steps.go_on(self.step, self.place, self._num_per_step)


class Training:
    """The training of one model by a program's own loop.

    Args:
        stream: what is trained.
        seed: of the job.
        num_per_step: micro-batches of a step; if it is not fixed, no more than that.
        epoch_of: returns in which epoch a job is that has trained so many micro-batches.
        start: micro-batches that were trained before, in a job whose checkpoint of shards this one continues from.

    Raises:
        UsageError: that job trained another stream.
    """

    def __init__(
        self, stream: Stream, seed: int, num_per_step: int, epoch_of: Callable[[int], int], start: int = 0
    ) -> None:
        if isinstance(start, Start):
            start.check(stream)
        self.stream = stream
        self.num_before = 0
        """Micro-batches that the program counts as trained before these."""
        self._start = start
        self._seed = seed
        self._num_per_step = num_per_step
        self._epoch_of = epoch_of
        self._steps = StreamSteps(stream, num_per_step)
        self._steps.go_on(0, start, num_per_step)
        self.plan = LoaderPlan(stream, self._steps)
        self._lock = threading.RLock()
        self._run: Run | None = None
        self._is_fixed = True
        self._failure: BaseException | None = None
        self._is_told = False
        self._epochs: Iterator[int] = iter(())
        self._turns: Iterator[tuple[Key, int]] = iter(())
        self._due: tuple[Key, int] | None = None
        self._is_open = self._is_over = self._has_ended = False
        self._result: Any = torch.tensor(float("nan"))
        self._arguments = Arguments()
        self._scheduler_guard = SchedulerGuard((), ())
        self._progress = Progress(self._scheduler_guard, self._steps, start, num_per_step)

    # ------------------------------------------------------------ facts

    @property
    def place(self) -> int:
        """How many micro-batches of the stream are trained."""
        return self._progress.place

    @property
    def has_begun(self) -> bool:
        """Whether this worker has joined."""
        return self._run is not None

    @property
    def has_stepped(self) -> bool:
        """Whether the call that runs, or was the last one, completes a step."""
        return self._run is not None and self._run.stepped

    @property
    def num_micro_batches(self) -> int:
        """How many micro-batches the present step has, or the one that was just committed."""
        step = 0 if self._run is None else self._run.step - self._run.stepped
        return self._steps.num_micro_batches_of(step)

    @property
    def standing(self) -> tuple[int, int]:
        """Rank and number of workers."""
        return (0, 1) if self._run is None else (self._run.rank, self._run.num_workers)

    # ------------------------------------------------------------ begin and end

    def begin(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, is_fixed: bool) -> None:
        """Join the job, on whichever thread comes first; returns once the first micro-batches are known.

        Args:
            model: of the program.
            optimizer: likewise.
            is_fixed: all steps have as many micro-batches; else as many as there are workers.
        """
        with self._lock:
            self._raise_failure()
            if self._run is not None:
                return
            try:
                self._join(model, optimizer, is_fixed)
            except BaseException as error:
                # Another thread than the program's may have come here: the program gets the error when it calls.
                self._failure = error
                self._is_told = threading.current_thread() is threading.main_thread()
                self.plan.close()
                raise

    def _join(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, is_fixed: bool) -> None:
        self._is_fixed = is_fixed
        size = self.stream.batch_size
        passes = 1 if is_fixed else getattr(optimizer, "backward_passes_per_step", 1)
        run = elastic(
            global_batch_size=self._num_per_step * size, micro_batch_size=size, seed=self._seed, num_backwards=passes
        )
        if run.device.type == "cuda":
            # Programs move their batches to "cuda".
            torch.cuda.set_device(run.device)
        schedulers = find_schedulers(optimizer)
        self._scheduler_guard = SchedulerGuard([optimizer], schedulers)
        self._progress = Progress(self._scheduler_guard, self._steps, self._start, self._num_per_step)
        run.prepare(model, optimizer, *schedulers, self._progress)
        self._run = run
        job.at_end(self.end_with_program)
        if not is_fixed:
            run.share_freely()
        self._epochs = run.epochs(1)
        if next(self._epochs, None) is not None:
            self._turns = run.turns(self._steps, self, f"{self.stream.description}, from {self._start}")
            self._advance()
        if run.step:
            self._scheduler_guard.join()
        if self._due is None:
            # The others have trained everything.
            self._close()

    def end(self) -> None:
        """End the training with the program's loop.

        Raises:
            ProgramError: the loop came to the end of its data, and has not given all of them to the training function.
        """
        if self._run is None or self._has_ended:
            return
        self._has_ended = True
        self._raise_failure()
        self._scheduler_guard.enter_step()
        if not self._is_over:
            if self.plan.is_stuck:
                raise ProgramError(
                    "The loop has reached the end of its data, but has not passed all of its batches to the function "
                    "of "
                    "elastic_run. Call it once for every batch that the loader yields, in their order."
                )
            # Broken off by the program: by its own count, or because it is good enough.
            for generator in (self._turns, self._epochs):
                if isinstance(generator, Generator):
                    generator.close()
        else:
            for _ in (*self._turns, *self._epochs):
                pass
        self.plan.close()

    def end_with_program(self) -> None:
        """End the training where the program has not said that its loop is over."""
        if getattr(sys, "last_value", None) is None and not self._is_told:
            self.end()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._is_told = threading.current_thread() is threading.main_thread()
            raise self._failure

    # ------------------------------------------------------------ a call

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Train with the batch that the program's loop brings.

        Returns:
            What the function returned last; if it was not called yet, a number that is none.
        """
        self._raise_failure()
        try:
            self._scheduler_guard.enter_step()
            self._take(args, kwargs)
            if not self._is_open:
                self._advance()
            while self._due is not None and (batch := self.plan.held(self._due[1])) is not None:
                self._result = self._compute(function, *batch)
                if self.has_stepped:
                    self._commit()
                    break
                self._advance()
        except BaseException:
            # Also where this worker leaves: no process may wait for its loaders.
            self.plan.close()
            raise
        finally:
            self.plan.end_call()
        return self._result

    def _take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        place = self.plan.begin_call()
        size = self.stream.batch_size
        num_records = size if place is None else self.stream.num_records_of(place)
        self._arguments.enter((args, kwargs), size, num_records)
        if place is None:
            return
        check_batch(tensors_of((args, kwargs)), size)
        if num_records < size:
            # The loader has filled it with its last record.
            args, kwargs = self._arguments.cut(args, kwargs, size, num_records)
        self.plan.hold(place, (args, kwargs))

    def _compute(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._run is not None and self._due is not None
        # Again: between the turn's begin and here the program may have drawn numbers, or its loader.
        seed_micro_batch(self._seed, self._run.step, self._due[0].index)
        with hearing_losses(self._run.note_loss):
            result = function(*args, **kwargs)
        self._is_open = False
        return result

    def _commit(self) -> None:
        assert self._run is not None
        before, self._progress.step = self._progress.place, self._run.step
        self._progress.place = self._steps.place_before(self._run.step)
        self.plan.drop_before(self._progress.place)
        # Who begins far on finds an epoch that it has not seen, as who joins later; all of them do so here.
        known = 0 if before == self._start else self._epoch(before)
        self._scheduler_guard.leave_step(is_new_epoch=self._epoch(self._progress.place) > known)
        if self._progress.place >= self.stream.num_places:
            self._close()

    def _epoch(self, place: int) -> int:
        return self._epoch_of(place + self.num_before)

    def _close(self) -> None:
        self._is_over = True
        self.plan.close()

    def _advance(self) -> None:
        """End the turn that was, do what is due between two steps, and begin the next turn."""
        self._due = next(self._turns, None)
        self._is_open = self._due is not None

    # ------------------------------------------------------------ what the runtime says

    def follow(self, keys: Iterator[Key]) -> None:
        """Take note of what is this worker's from now on."""
        assert self._run is not None
        if not self._is_fixed:
            count = min(self._run.num_workers, self._num_per_step)
            self._steps.go_on(self._progress.step, self._progress.place, count)
        self.plan.follow(keys)

    def take(self) -> tuple[Key, Any]:
        """Return what is trained next."""
        return self.plan.take()


# ------------------------------------------------------------ losses


@contextlib.contextmanager
def hearing_losses(note: Callable[[float], None]) -> Iterator[None]:
    """Call a function with each loss, shape ``[]`` or of one element, whose backward pass this thread begins inside.

    A loss that a `torch.amp.GradScaler` has scaled is reported unscaled.
    """
    original, original_scale, own = torch.Tensor.backward, torch.amp.GradScaler.scale, threading.get_ident()
    scaled: list[tuple[torch.Tensor, float]] = []

    @functools.wraps(original_scale)
    def scale(self: torch.amp.GradScaler, outputs: Any) -> Any:
        result = original_scale(self, outputs)
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            scaled.append((result, float(outputs.detach())))
        return result

    @functools.wraps(original)
    def backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.numel() == 1 and threading.get_ident() == own:
            told = [loss for known, loss in scaled if known is self]
            note(told[-1] if told else float(self.detach()))
        return original(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = backward  # type: ignore[method-assign]
    torch.amp.GradScaler.scale = scale  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = original  # type: ignore[method-assign]
        torch.amp.GradScaler.scale = original_scale  # type: ignore[method-assign]
