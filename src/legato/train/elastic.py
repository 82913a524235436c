"""The elastic loop: a plain PyTorch loop whose result does not depend on how many workers run it.

`elastic` gives a `Run`, through which a program's own loop takes part in a job. Alone (``python train.py``), under
``legato run`` and on the platform the same program gives the same weights, bit for bit. Owns the order of events in a
step; what happens in each is done by its neighbours (`reducer`, `cohort`, `belongings`, `loader`, `saving`).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from legato.core import wire
from legato.core.errors import BrokenView, LayoutError, ProgramError, UsageError
from legato.train import faults, job, state
from legato.train.belongings import Belongings
from legato.train.cohort import Cohort, Entry, Leave, Round
from legato.train.cursor import Cursor
from legato.train.evaluation import EvaluationRound, Metric, measure
from legato.train.exchange import Exchange, deal, make_exchange
from legato.train.fetch import Collate
from legato.train.groups import Group, Work
from legato.train.loader import Loader
from legato.train.order import Key, Layout, Order
from legato.train.reducer import StepReducer
from legato.train.saving import Saver
from legato.train.seeds import seed_job, seed_micro_batch, seed_sample, untouched
from legato.train.vectors import VectorSum, sum_vectors

Reduction = Literal["exact", "fast"]


def elastic(
    *,
    global_batch_size: int,
    micro_batch_size: int,
    seed: int = 0,
    reduction: Reduction = "exact",
    num_backwards: int = 1,
    num_threads: int | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: str | None = None,
    keep: int = 3,
    resume: bool = False,
    stop_on_nan: bool = False,
) -> Run:
    """Begin an elastic run; build the model after this call, so that it starts from the seed.

    Args:
        global_batch_size: samples per optimizer step, whoever computes them.
        micro_batch_size: samples per turn of the loop; divides ``global_batch_size``. More workers than
            ``global_batch_size / micro_batch_size`` cannot help.
        seed: of everything random: the model's start, the order of the data, dropout, augmentation.
        reduction: ``exact``, or ``fast`` for a plain all-reduce whose result depends on the number of workers.
        num_backwards: backward passes per turn of the loop.
        num_threads: torch's threads per worker; the result depends on it. None for what ``legato run --threads`` says,
            else 1.
        checkpoint_dir: where checkpoints go when the program runs alone; under ``legato run`` the job has its own.
        checkpoint_every: how often when alone: ``100steps``, ``2epochs``, ``60s``; None for the last one only.
        keep: how many checkpoints to keep when alone.
        resume: start from the newest checkpoint in ``checkpoint_dir`` when alone.
        stop_on_nan: end with an error when the loss of a step is not finite, instead of a warning.

    Raises:
        LayoutError: the batch sizes do not fit together.
        UsageError: an argument is not understood, or there is a run in this process already.
    """
    if reduction not in ("exact", "fast"):
        raise UsageError(f"reduction={reduction!r} is not known. Take 'exact' or 'fast'.")
    if num_backwards < 1:
        raise UsageError(f"num_backwards={num_backwards} is below 1. Count the backward passes of one loop turn.")
    layout = Layout(global_batch_size, micro_batch_size)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed={seed!r} is not a whole number of at least 0.")
    place = job.take_place()
    torch.set_num_threads(num_threads or place.num_threads)
    if place.settings is not None:
        settings = place.settings
    else:
        directory = None if checkpoint_dir is None else str(checkpoint_dir)
        settings = job.settings_alone(directory, checkpoint_every, keep, resume)
    if settings.checkpoint_every is not None and settings.checkpoint_dir is None:
        raise UsageError("checkpoint_every needs a checkpoint_dir to save to.")
    seed_job(seed)
    return Run(place, settings, layout, seed, reduction, num_backwards, stop_on_nan)


class Run:
    """One program's part in an elastic job; made by `elastic`.

    Everything a data scientist needs is here: `prepare`, `epochs`, `batches`, `backward`, `evaluate`, `log`, and the
    facts `step`, `epoch`, `stepped`, `is_main`, `rank`, `num_workers`, `device`.
    """

    def __init__(
        self,
        place: job.Place,
        settings: wire.Welcome,
        layout: Layout,
        seed: int,
        reduction: Reduction,
        num_backwards: int,
        stop_on_nan: bool,
    ) -> None:
        self._place = place
        self._settings = settings
        self._layout = layout
        self._seed = seed
        self._exact = reduction == "exact"
        self._num_backwards = num_backwards
        self._stop_on_nan = stop_on_nan
        self.device = torch.device(place.device)
        self._belongings = Belongings(self, self.device)
        self._cohort = Cohort(place.link, place.key, self._connect)
        self._cohort.on_hold = self._save
        self._cohort.on_stopped_waiting = self._save_and_wait
        self._cursor = Cursor()
        self._target: Cursor | None = None
        self._entry: Entry | None = None
        self._is_loaded = False
        self._reducer: StepReducer | None = None
        self._saver: Saver | None = None
        self._resumed: dict[str, Any] | None = None
        self._outgoing: list[Work] = []
        self._leaving: BaseException | None = None
        self._stepped = False
        self._num_epochs: int | None = None
        self._num_steps_of_pass = 0
        self._data_fingerprint = ""
        self._nan_told = False
        self.loss: float | None = None
        place.on_end(self._finish)

    # ------------------------------------------------------------ facts

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self._cursor.epoch

    @property
    def step(self) -> int:
        """How many optimizer steps of the job are committed."""
        return self._cursor.step

    @property
    def stepped(self) -> bool:
        """Whether this turn of the loop completes a step: true once, on every worker, for each step of the job."""
        return self._stepped

    @property
    def num_rounds(self) -> int:
        """How many rounds (steps and evaluation rounds) of the job are committed."""
        return self._cohort.num_rounds

    @property
    def rank(self) -> int:
        """This worker's rank in the present view; it changes as others come and go."""
        return self._cohort.rank

    @property
    def num_workers(self) -> int:
        """How many workers train at present."""
        return self._cohort.size

    @property
    def is_main(self) -> bool:
        """Whether this worker speaks for the job: true on exactly one worker at a time."""
        return self._cohort.rank == 0

    # ------------------------------------------------------------ what a program calls

    def prepare(self, *things: Any) -> Any:
        """Take models, optimizers, schedulers, GradScalers, and other objects with state, into care.

        They stay the objects they are; models are moved to `device`. Everything whose state belongs to the training
        must come here, or it will not travel to workers that join.

        Returns:
            The same objects: one as it is, several as a tuple.

        Raises:
            ProgramError: an object has no state that could travel, or training has begun already.
        """
        if self._reducer is not None:
            raise ProgramError("run.prepare must be called before training begins.")
        for thing in things:
            self._belongings.add(thing)
        return things[0] if len(things) == 1 else things

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Yield the epochs ``0 .. num_epochs - 1``; a worker that joins later starts at the present one.

        At the end a last checkpoint is written.
        """
        self._num_epochs = num_epochs
        self._join()
        if not self._is_loaded:
            assert self._target is not None
            self._cursor.epoch = self._target.epoch
            self._cursor.pass_index = self._cursor.first_pass = self._target.first_pass
            self._cursor.num_logs = max(self._cursor.num_logs, 0)
        while self._cursor.epoch < num_epochs:
            yield self._cursor.epoch
            self._cursor.epoch += 1
            self._cursor.first_pass = self._cursor.pass_index
        self._ensure_loaded()
        self._save_and_wait()

    def batches(
        self,
        dataset: Dataset[Any],
        *,
        shuffle: bool = True,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
    ) -> Iterator[Any]:
        """Yield this worker's micro-batches of one pass over a data set.

        Args:
            dataset: map-style, the same in every worker.
            shuffle: a new random order in each pass.
            collate_fn: makes a batch of a list of samples; None for torch's default.
            num_workers: processes that load ahead; 0 loads when a batch is asked for.
            prefetch_factor: micro-batches that each of them is ahead.
            pin_memory: as in ``torch.utils.data.DataLoader``.

        Raises:
            DataError: the data set is empty or smaller than a global batch, or a sample or the collation failed.
            ProgramError: a turn of the loop had no backward pass.
        """
        order = Order(_length(dataset), self._layout, self._seed, shuffle)
        self._data_fingerprint = self._fingerprint_of(dataset)
        pass_index = self._cursor.pass_index
        if not self._is_loaded and self._is_past(pass_index):
            self._cursor.pass_index += 1
            return
        self._num_steps_of_pass = order.num_steps
        loader = Loader(
            dataset,
            order,
            seed=self._seed,
            collate_fn=collate_fn,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            private_fds=self._private_fds,
        )
        try:
            followed: tuple[int, int] | None = None
            while True:
                self._at_boundary()
                step = self._cursor.step_in_pass
                if step >= order.num_steps:
                    break
                place = (self._cohort.connection.view.number, step)
                if followed != place:
                    loader.follow(self._keys(order, pass_index, step))
                yield from self._turns(order, step, loader)
                # Otherwise the step broke, or another view begins: then the loader must be told what comes now.
                followed = (place[0], step + 1) if self._cursor.step_in_pass == step + 1 else None
        finally:
            loader.close()
            self._stepped = False
            if self._reducer is not None:
                self._reducer.abandon()
        self._cursor.pass_index += 1
        self._cursor.step_in_pass = 0

    def backward(self, loss: torch.Tensor, scaler: Any = None) -> None:
        """Run the backward pass of a micro-batch, and note its loss for the progress line.

        ``loss.backward()`` does the same without the note.

        Args:
            loss: mean over the samples of the micro-batch, shape ``[]``.
            scaler: a prepared ``torch.amp.GradScaler``, if gradients are scaled.
        """
        if self._reducer is not None:
            self._reducer.note_loss(float(loss.detach()))
        (loss if scaler is None else scaler.scale(loss)).backward()
        if self._reducer is not None:
            # For a loss that reaches no parameter: then no hook has run.
            self._reducer.end_backward_without_gradient()

    def evaluate(
        self,
        model: torch.nn.Module,
        dataset: Dataset[Any],
        metric: Metric | Mapping[str, Metric],
        *,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
    ) -> Any:
        """Evaluate a model, split over the workers; every worker gets the same, exact result.

        Args:
            model: called with the inputs of each micro-batch, in evaluation mode, without gradients.
            dataset: map-style; its samples are pairs (inputs, targets).
            metric: a function of (outputs, targets), or several by name; see `legato.train.evaluation.measure`.
            collate_fn: as in `batches`.
            num_workers: likewise.

        Returns:
            The mean over all samples; a dict of them if there are several metrics.
        """
        index = len(self._cursor.evaluations)
        self._join()
        if not self._is_loaded:
            assert self._target is not None
            if index < len(self._target.evaluations):
                self._cursor.evaluations.append(self._target.evaluations[index])
                return _unwrap(self._target.evaluations[index])
            self._ensure_loaded()
        order = Order(_length(dataset), self._layout, self._seed, shuffle=False)
        loader = Loader(
            dataset, order, seed=self._seed, collate_fn=collate_fn, num_workers=num_workers, private_fds=self._private_fds
        )
        was_training = model.training
        model.eval()
        try:
            with torch.no_grad(), untouched():
                result = self._evaluate(model, order, loader, metric)
        finally:
            loader.close()
            model.train(was_training)
        self._cursor.evaluations.append(result)
        return _unwrap(result)

    def log(self, **values: float) -> None:
        """Record metrics of the job at the present step; call it on every worker, it is recorded once."""
        plain = {name: float(value) for name, value in values.items()}
        metrics = wire.Metrics(index=self._cursor.num_logs, step=self.step, epoch=self.epoch, values=plain)
        self._cursor.num_logs += 1
        if self._place.link is None:
            shown = "  ".join(f"{name} {value:.6g}" for name, value in plain.items())
            print(f"epoch {self.epoch}  step {self.step}  {shown}", flush=True)
        self._say(metrics)

    # ------------------------------------------------------------ joining

    def _join(self) -> None:
        """Become a member of a view and learn where the job stands; nothing is loaded yet."""
        if self._entry is not None or self._is_loaded:
            return
        if self._reducer is None:
            parameters, buffers = self._belongings.parameters(), self._belongings.buffers()
            self._reducer = StepReducer(parameters, buffers, self._num_backwards, self._on_result_due)
            self._open_saver()
        while True:
            if self._place.link is None:
                self._cohort.start_alone()
                entry = Entry((0,), (), repaired=False)
            else:
                entry = self._cohort.meet_first(self._identity())
            try:
                self._target = self._agree_on_target(entry)
                self._entry = entry
                return
            except BrokenView:
                continue

    def _agree_on_target(self, entry: Entry) -> Cursor:
        group = self._cohort.group
        if group.rank not in entry.joiners:
            # Nobody has state: this is the first rank of the first view.
            found = None
            if self._settings.resume and self._saver is not None:
                found = self._saver.newest()
            self._resumed = found.state if found is not None else None
            cursor = Cursor.from_plain(found.state["cursor"]) if found is not None else Cursor()
            if found is not None:
                self._say(wire.Note(level="info", text=f"Resumed from {found.path} at step {found.step}."))
            payload = state.encode({"cursor": cursor.to_plain()})
            group.finish(state.send_bytes(group, entry.joiners, payload))
            return cursor
        plain = state.decode(state.receive_bytes(group, entry.sources[0]))
        return Cursor.from_plain(plain["cursor"])

    def _is_past(self, pass_index: int) -> bool:
        """Whether the job has completed a pass that this worker is about to begin; if not, load its state."""
        while True:
            self._join()
            assert self._target is not None
            if self._target.pass_index > pass_index:
                return True
            if self._try_to_load():
                return False

    def _ensure_loaded(self) -> None:
        while not self._is_loaded:
            self._join()
            self._try_to_load()

    def _try_to_load(self) -> bool:
        """Receive the state, or be its source in the first view. False if the view broke: join again."""
        entry, group = self._entry, self._cohort.group
        assert entry is not None and self._reducer is not None
        start = time.monotonic()
        try:
            if group.rank in entry.joiners:
                self._receive_state(entry)
            else:
                if self._resumed is not None:
                    self._load(self._resumed)
                    self._resumed = None
                self._reducer.buffers.rebase()
                self._send_state(entry)
                group.finish(self._outgoing)
                self._outgoing = []
        except BrokenView:
            self._entry = None
            return False
        self._is_loaded = True
        self._cohort.joined(time.monotonic() - start)
        return True

    def _send_state(self, entry: Entry) -> None:
        """Start sending the state to those who join; it must not change until `_outgoing` is finished."""
        group = self._cohort.group
        if not entry.joiners:
            return
        skeleton, tensors = state.take_apart(self._state())
        if group.rank == entry.sources[0]:
            self._outgoing += state.send_bytes(group, entry.joiners, state.encode(skeleton))
        faults.strike("transfer")
        self._outgoing += state.send_share(group, entry.sources, entry.joiners, tensors)

    def _receive_state(self, entry: Entry) -> None:
        group = self._cohort.group
        skeleton = state.decode(state.receive_bytes(group, entry.sources[0]))
        theirs = skeleton["data"]
        if theirs and self._data_fingerprint and theirs != self._data_fingerprint:
            raise job.data_mismatch(theirs, self._data_fingerprint)
        _, own = state.take_apart({"models": self._state()["models"]})
        targets = []
        for index, spec in enumerate(state.specs(skeleton)):
            fits = index < len(own) and own[index].shape == spec.shape and own[index].dtype == spec.dtype
            targets.append(own[index] if fits else torch.empty(spec.shape, dtype=spec.dtype))
        state.receive_shares(group, entry.sources, targets, lambda: faults.strike("transfer"))
        self._load(state.put_together(skeleton, targets))

    def _state(self) -> dict[str, Any]:
        assert self._reducer is not None
        self._cursor.num_rounds = self._cohort.num_rounds
        return {
            **self._belongings.state(self._reducer.buffers.base),
            "cursor": self._cursor.to_plain(),
            "moving": list(self._reducer.buffers.known),
            "data": self._data_fingerprint,
        }

    def _load(self, tree: dict[str, Any]) -> None:
        assert self._reducer is not None
        self._belongings.load(tree)
        self._rebuild_if_unfrozen()
        self._reducer.buffers.rebase()
        self._reducer.buffers.known = tuple(tree["moving"])
        self._cursor = Cursor.from_plain(tree["cursor"])
        self._cohort.num_rounds = self._cursor.num_rounds

    # ------------------------------------------------------------ a step

    def _keys(self, order: Order, pass_index: int, first_step: int) -> Iterator[Key]:
        group = self._cohort.group
        for step in range(first_step, order.num_steps):
            for leaf in _leaves(order, step, group):
                yield Key(pass_index, step, leaf)

    def _turns(self, order: Order, step: int, loader: Loader) -> Iterator[Any]:
        connection, reducer = self._cohort.connection, self._reducer
        assert reducer is not None
        num_micro_batches = order.num_micro_batches_of(step)
        full = self._layout.micro_batch_size
        last = order.num_samples_of(step) - (num_micro_batches - 1) * full
        self._num_samples = order.num_samples_of(step)
        faults.at_step(self.step + 1)
        span = reducer.begin_step(connection.exchange, connection.group, num_micro_batches, full, last)
        job_step = self.step
        for leaf in _leaves(order, step, connection.group):
            key, batch = loader.take()
            assert key.step == step and key.index == leaf, (key, step, leaf)
            self._stepped = False
            reducer.begin_micro_batch(leaf, ghost=not span.num_items)
            seed_micro_batch(self._seed, job_step, leaf)
            faults.strike("forward")
            yield batch
            reducer.check_complete()
        self._stepped = False

    def _on_result_due(self) -> None:
        """Run the round of this step; called inside the backward pass, so that clipping sees the result."""
        reducer = self._reducer
        assert reducer is not None
        try:
            words = reducer.run_round(self._cohort.word(may_join=True))
        except BrokenView as error:
            try:
                completed = self._recover(error, reducer).repaired
            except Leave as leave:
                # Not from inside autograd: the loop raises it at the end of this turn.
                self._leaving = leave
                return
        else:
            completed = True
            self._cohort.hear(words)
            with contextlib.suppress(BrokenView):
                # Whoever received state has taken part in this round, so everything has arrived.
                self._cohort.group.finish(self._outgoing)
            self._outgoing = []
        if completed:
            self._commit(reducer)

    def _commit(self, reducer: StepReducer) -> None:
        self._cohort.completed(reducer)
        self._cursor.step += 1
        self._cursor.step_in_pass += 1
        self._stepped = True
        self.loss = reducer.loss
        faults.strike("commit")
        if self._place.link is not None:
            num_epochs = self._num_epochs
            progress = wire.Progress(
                view=self._cohort.connection.view.number,
                first_step=self.step,
                last_step=self.step,
                epoch=self.epoch,
                loss=self.loss,
                num_samples=self._num_samples,
                num_steps=None if num_epochs is None else num_epochs * self._num_steps_of_pass,
                num_epochs=num_epochs,
            )
            self._place.link.report(progress)
        if self.loss is not None and not math.isfinite(self.loss):
            self._on_not_finite(self.loss)

    def _on_not_finite(self, loss: float) -> None:
        text = f"The loss of step {self.step} is {loss}."
        if self._stop_on_nan:
            self._leaving = ProgramError(f"{text} Training ends because stop_on_nan is set.")
        elif not self._nan_told and self.is_main:
            self._nan_told = True
            self._say(wire.Note(level="warning", text=f"{text} Training goes on; stop_on_nan=True would end it."))

    # ------------------------------------------------------------ between rounds

    def _at_boundary(self, *, in_evaluation: bool = False) -> None:
        """Do what is due between two rounds: leave, stop, save, enter the agreed view, hand state to joiners."""
        self._stepped = False
        if self._leaving is not None:
            leaving, self._leaving = self._leaving, None
            raise leaving
        if not in_evaluation:
            if self._cohort.stop_agreed:
                self._stop()
            self._rebuild_if_unfrozen()
            self._save_if_due()
        start = time.monotonic()
        try:
            entry = self._cohort.switch(may_join=not in_evaluation)
            if entry is not None:
                if entry.joiners:
                    group = self._cohort.group
                    cursor = state.encode({"cursor": self._cursor.to_plain()})
                    if group.rank == entry.sources[0]:
                        self._outgoing += state.send_bytes(group, entry.joiners, cursor)
                    self._send_state(entry)
                self._cohort.joined(time.monotonic() - start)
        except BrokenView as error:
            self._recover(error, None)

    def _recover(self, error: BrokenView, broken: Round | None) -> Entry:
        start = time.monotonic()
        # What is being sent must have stopped before its memory is used for anything else.
        self._cohort.group.give_up(self._outgoing)
        self._outgoing = []
        entry = self._cohort.recover(error, broken)
        self._cohort.joined(time.monotonic() - start)
        return entry

    def _rebuild_if_unfrozen(self) -> None:
        """Follow a program that froze or unfroze parameters since the last step."""
        reducer = self._reducer
        assert reducer is not None
        parameters = self._belongings.parameters()
        if [id(p) for p in parameters] == [id(p) for p in reducer.parameters]:
            return
        known = reducer.buffers.known
        reducer.close()
        self._reducer = StepReducer(parameters, self._belongings.buffers(), self._num_backwards, self._on_result_due)
        self._reducer.buffers.known = known
        if self._is_loaded:
            self._cohort.reconnect_exchange()

    def _stop(self) -> None:
        """End together: rank 0 saves, the others wait for it, and take over if it dies meanwhile."""
        while True:
            if self.is_main:
                self._save_and_wait()
            try:
                self._cohort.group.announce()
                break
            except BrokenView as error:
                self._recover(error, None)
        self._cohort.leave("stopped")

    # ------------------------------------------------------------ checkpoints

    def _open_saver(self) -> None:
        settings = self._settings
        if settings.checkpoint_dir is not None:
            self._saver = Saver(
                Path(settings.checkpoint_dir), settings.checkpoint_every, settings.keep, self._identity(), self._say
            )

    def _save_if_due(self) -> None:
        asked = self._cohort.take_save_agreed()
        if self._saver is None or not self.is_main:
            return
        at_end = self._cursor.step_in_pass == self._num_steps_of_pass
        if asked or self._saver.is_due(self.step, self.epoch + 1 if at_end else None):
            self._save()

    def _save(self) -> None:
        if self._saver is not None and self._is_loaded:
            self._saver.save(self._state(), self.step)

    def _save_and_wait(self) -> None:
        if self._saver is not None and self.is_main:
            self._save()
            self._saver.wait()

    # ------------------------------------------------------------ evaluation

    def _evaluate(
        self, model: torch.nn.Module, order: Order, loader: Loader, metric: Metric | Mapping[str, Metric]
    ) -> dict[str, float]:
        names: list[str] = []
        total: torch.Tensor | None = None
        step = 0
        followed = -1
        while step < order.num_steps:
            self._at_boundary(in_evaluation=True)
            connection = self._cohort.connection
            if followed != connection.view.number:
                loader.follow(self._keys(order, 0, step))
                followed = connection.view.number
            dealt = deal(order.num_micro_batches_of(step), connection.group.size)
            span = dealt.spans[connection.group.rank]
            local = VectorSum()
            numel = 0
            for leaf in _leaves(order, step, connection.group):
                _, batch = loader.take()
                seed_micro_batch(self._seed, step, leaf)
                names, vector = measure(model, batch, metric, self.device)
                numel = vector.numel()
                if span.num_items:
                    local.add(span.start, leaf, vector)
            found = EvaluationRound(numel)
            try:
                word = self._cohort.word(may_join=False)
                found.total, words = sum_vectors(connection.group, dealt, local.blocks, numel, word)
                self._cohort.hear(words)
            except BrokenView as error:
                followed = -1
                if not self._recover(error, found).repaired:
                    continue
            self._cohort.completed(found)
            total = found.total if total is None else total + found.total
            step += 1
        assert total is not None
        sums, counts = total.chunk(2)
        return {name: float(s / c) for name, s, c in zip(names, sums, counts, strict=True)}

    # ------------------------------------------------------------ small things

    def _connect(self, group: Group) -> Exchange:
        assert self._reducer is not None
        return make_exchange(group, self._reducer.buckets, self._layout.num_micro_batches, exact=self._exact)

    def _identity(self) -> dict[str, str]:
        return {
            "model": self._belongings.fingerprint(),
            "layout": f"{self._layout.global_batch_size}/{self._layout.micro_batch_size}",
            "seed": str(self._seed),
            "threads": str(torch.get_num_threads()),
            "reduction": "exact" if self._exact else "fast",
        }

    def _fingerprint_of(self, dataset: Dataset[Any]) -> str:
        num_samples = _length(dataset)
        with untouched():
            seed_sample(self._seed, 0, 0)
            try:
                first = _digest(dataset[0])
            except Exception:  # noqa: BLE001 - told, with its sample, when the sample is used
                first = "unreadable"
        return f"{type(dataset).__name__} of {num_samples} samples, first {first}"

    def _private_fds(self) -> list[int]:
        link = self._place.link
        return [*self._cohort.group.file_descriptors(), *(link.file_descriptors() if link else [])]

    def _say(self, message: wire.Message) -> None:
        if self._place.link is not None:
            self._place.link.send(message)
        elif isinstance(message, wire.Note):
            print(f"legato: {message.level}: {message.text}", file=sys.stderr, flush=True)

    def _finish(self) -> None:
        """The program has come to its end."""
        if self._saver is not None:
            self._saver.wait()


def _leaves(order: Order, step: int, group: Group) -> list[int]:
    """Return the micro-batches that a rank runs; without any of its own it runs the first one for show."""
    span = deal(order.num_micro_batches_of(step), group.size).spans[group.rank]
    return list(range(span.start, span.stop)) or [0]


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError as error:
        raise LayoutError(
            f"Cannot cut a {type(dataset).__name__} into batches: it has no length. Use a map-style data set."
        ) from error


def _unwrap(result: dict[str, float]) -> Any:
    return result["value"] if list(result) == ["value"] else dict(result)


def _digest(sample: Any) -> str:
    digest = hashlib.sha256()

    def walk(node: Any) -> None:
        if isinstance(node, torch.Tensor):
            digest.update(f"{tuple(node.shape)}{node.dtype}".encode())
            digest.update(node.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(node, list | tuple):
            for value in node:
                walk(value)
        elif isinstance(node, dict):
            for key in node:
                digest.update(str(key).encode())
                walk(node[key])
        elif isinstance(node, int | float | str | bytes):
            digest.update(repr(node).encode())
        else:
            digest.update(type(node).__qualname__.encode())

    walk(sample)
    return digest.hexdigest()[:16]
