"""Trains the batches of a program's own loop, step by step, on the runtime: the reverse of `run.batches`.

With `run.batches` the runtime hands out batches; here the program's loop brings a batch to train. Each call of the
wrapped function brings the batch of a ticket (`plan`). It is computed when the runtime asks for its micro-batch: at
once, except after a change of membership. A call never goes beyond the end of a step, so that whatever the loop does
after the call is done after each step, on every worker.
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
    """The state that a joining worker receives, besides that of models and optimizers.

    Args:
        scheduler_guard: knows what the program changes between steps.
        steps: the steps of the stream; continued from the received state.
        place: number of micro-batches of the stream before this training.
        num_per_step: number of micro-batches of a step after the state is received.
    """

    def __init__(self, scheduler_guard: SchedulerGuard, steps: StreamSteps, place: int, num_per_step: int) -> None:
        self._scheduler_guard = scheduler_guard
        self._steps = steps
        self._num_per_step = num_per_step
        self.step = 0
        """Number of committed steps."""
        self.place = place
        """Number of trained micro-batches of the stream."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"step": self.step, "place": int(self.place), "acts_after_steps": self._scheduler_guard.acts_after_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.step, self.place = state["step"], state["place"]
        self._scheduler_guard.acts_after_steps = state["acts_after_steps"]
        self._steps.go_on(self.step, self.place, self._num_per_step)


class Training:
    """The training of one model by a program's own loop.

    Args:
        stream: the records to train.
        seed: of the job.
        num_per_step: number of micro-batches of a step; the maximum, if it is not fixed.
        epoch_of: returns the epoch of a job that has trained a number of micro-batches.
        start: number of micro-batches that an earlier job trained, from whose checkpoint of shards this one continues.

    Raises:
        UsageError: the earlier job trained another stream.
    """

    def __init__(
        self, stream: Stream, seed: int, num_per_step: int, epoch_of: Callable[[int], int], start: int = 0
    ) -> None:
        if isinstance(start, Start):
            start.check(stream)
        self.stream = stream
        self.num_before = 0
        """Number of micro-batches that the program counts as trained before this training."""
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
        self._is_failure_raised = False
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
        """The number of trained micro-batches of the stream."""
        return self._progress.place

    @property
    def has_begun(self) -> bool:
        """Whether this worker has joined."""
        return self._run is not None

    @property
    def has_stepped(self) -> bool:
        """Whether the present call, or the last one, has completed a step."""
        return self._run is not None and self._run.stepped

    @property
    def num_micro_batches(self) -> int:
        """The number of micro-batches of the present step, or of the step that was just committed."""
        step = 0 if self._run is None else self._run.step - self._run.stepped
        return self._steps.num_micro_batches_of(step)

    @property
    def standing(self) -> tuple[int, int]:
        """Rank and number of workers."""
        return (0, 1) if self._run is None else (self._run.rank, self._run.num_workers)

    # ------------------------------------------------------------ begin and end

    def begin(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, is_fixed: bool) -> None:
        """Join the job, on the first thread that calls this; return once the first micro-batches are known.

        Args:
            model: of the program.
            optimizer: of the program.
            is_fixed: all steps have the same number of micro-batches; False: as many as there are workers.
        """
        with self._lock:
            self._raise_failure()
            if self._run is not None:
                return
            try:
                self._join(model, optimizer, is_fixed)
            except BaseException as error:
                # This may be another thread than the program's: then the program gets the error at its next call.
                self._failure = error
                self._is_failure_raised = threading.current_thread() is threading.main_thread()
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
            # Programs move their batches to "cuda", which means the current device.
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
            # The other workers have trained everything.
            self._close()

    def end(self) -> None:
        """End the training with the program's loop.

        Raises:
            ProgramError: the loop has reached the end of its data without passing all batches to the training function.
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
                    "of elastic_run. Call it once for every batch that the loader yields, in their order."
                )
            # The program has left its loop early: by its own count, or because the model is good enough.
            for generator in (self._turns, self._epochs):
                if isinstance(generator, Generator):
                    generator.close()
        else:
            for _ in (*self._turns, *self._epochs):
                pass
        self.plan.close()

    def end_with_program(self) -> None:
        """End the training at the end of a program that has not ended it, unless an error ends the program."""
        if getattr(sys, "last_value", None) is None and not self._is_failure_raised:
            self.end()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._is_failure_raised = threading.current_thread() is threading.main_thread()
            raise self._failure

    # ------------------------------------------------------------ a call

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Train with the batch that the program's loop brings.

        Returns:
            The last result of the function; NaN, shape ``[]``, if the function was not called yet.
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
            # Also if this worker leaves the job: its loader processes must not wait for answers.
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
            # The loader has filled the batch up with its last record.
            args, kwargs = self._arguments.cut(args, kwargs, size, num_records)
        self.plan.hold(place, (args, kwargs))

    def _compute(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._run is not None and self._due is not None
        # The runtime has seeded at the begin of the turn. Since then the program or its loader may have drawn numbers.
        seed_micro_batch(self._seed, self._run.step, self._due[0].index)
        with observe_losses(self._run.note_loss):
            result = function(*args, **kwargs)
        self._is_open = False
        return result

    def _commit(self) -> None:
        assert self._run is not None
        before, self._progress.step = self._progress.place, self._run.step
        self._progress.place = self._steps.place_before(self._run.step)
        self.plan.drop_before(self._progress.place)
        # After the first step the epoch is new to all workers' programs, also if the job continues from a checkpoint.
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
        """End the last turn, let the runtime do its work between steps, and begin the next turn."""
        self._due = next(self._turns, None)
        self._is_open = self._due is not None

    # ------------------------------------------------------------ called by the runtime

    @property
    def loads(self) -> bool:
        """False: the program's own loader loads the batches."""
        return False

    @property
    def num_processes(self) -> int | None:
        """None: the program's own loader has its processes."""
        return None

    def follow(self, keys: Iterator[Key]) -> None:
        """Set the keys of the micro-batches that this worker trains from now on."""
        assert self._run is not None
        if not self._is_fixed:
            count = min(self._run.num_workers, self._num_per_step)
            self._steps.go_on(self._progress.step, self._progress.place, count)
        self.plan.follow(keys)

    def take(self) -> tuple[Key, Any]:
        """Return the next key to train, and in place of its batch the key with its place in the stream."""
        return self.plan.take()


# ------------------------------------------------------------ losses


@contextlib.contextmanager
def observe_losses(note: Callable[[float], None]) -> Iterator[None]:
    """Call ``note`` with each loss whose backward pass this thread begins inside of the context.

    A loss is a tensor of one element. A loss that a `torch.amp.GradScaler` has scaled is reported unscaled.
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
            unscaled = [loss for known, loss in scaled if known is self]
            note(unscaled[-1] if unscaled else float(self.detach()))
        return original(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    torch.Tensor.backward = backward  # type: ignore[method-assign]
    torch.amp.GradScaler.scale = scale  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = original  # type: ignore[method-assign]
        torch.amp.GradScaler.scale = original_scale  # type: ignore[method-assign]
