"""The elastic loop: a plain PyTorch loop whose result does not depend on how many workers run it.

`elastic` returns a `Run`, by which a program's own loop takes part in a job. Alone (``python train.py``), under
``legato run`` and on the platform the same program gives the same weights, bit for bit. This module is only the public
interface; `session`, `stepping` and `evaluation` do the work.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch.utils.data import Dataset

from legato.core import wire
from legato.core.errors import ProgramError, UsageError
from legato.train.data.fetch import Collate
from legato.train.data.fingerprints import describe_dataset, num_samples_of
from legato.train.data.loader import Loader
from legato.train.data.order import Layout, Order, Steps
from legato.train.data.overlap import Overlap
from legato.train.data.seeds import seed_job, untouched
from legato.train.loop.evaluation import Metric, evaluate
from legato.train.loop.fast_forward import FastForward
from legato.train.loop.session import Session
from legato.train.loop.stepping import Source, Stepper, seed_between_passes
from legato.train.process import job
from legato.train.process.determinism import make_deterministic
from legato.train.state.agreement import OnDifference

Reduction = Literal["exact", "fast"]
_MAX_LOADERS: Final = 4
_MAX_NOTES_ON_LOADING: Final = 3


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
    allow_unprepared_schedulers: bool = False,
    on_difference: OnDifference | None = None,
) -> Run:
    """Begin an elastic run; build the model after this call, so that it starts from the seed.

    Args:
        global_batch_size: samples per optimizer step, on all workers together.
        micro_batch_size: samples per turn of the loop; divides ``global_batch_size``. A job gets at most
            ``global_batch_size / micro_batch_size`` workers, because more cannot make it faster.
        seed: seed of all random numbers: the initial model, the order of the data, dropout, augmentation. The seed of
            a submission (``LEGATO_SEED``) replaces it.
        reduction: ``exact``, or ``fast``: between machines a plain all-reduce, whose result may depend on the workers.
            On a GPU, ``exact`` also has torch use deterministic operations only.
        num_backwards: backward passes per turn of the loop.
        num_threads: torch's threads per worker; the result depends on it. None: ``legato run --threads``, else 1.
        checkpoint_dir: directory for checkpoints when the program runs alone; under ``legato run`` the job has its own.
        checkpoint_every: interval between checkpoints when the program runs alone: ``100steps``, ``2epochs`` or
            ``60s``; None for the last checkpoint only.
        keep: how many checkpoints to keep when the program runs alone.
        resume: start from the newest checkpoint in ``checkpoint_dir`` when the program runs alone.
        stop_on_nan: end with an error when the loss of a step is not finite; False: warn.
        allow_unprepared_schedulers: train also if a learning-rate scheduler was not given to `Run.prepare`. Workers
            that join, and a job that resumes, start such a scheduler from the beginning.
        on_difference: what happens when the workers are found to hold different states: ``stop`` ends the run with an
            error that names what differs, ``warn`` continues, ``repair`` gives all workers the state of rank 0. None
            for ``stop`` with ``reduction="exact"`` and ``warn`` with ``fast``.

    Raises:
        LayoutError: the batch sizes do not fit together.
        UsageError: an argument is invalid, or this process has a run already.
    """
    if reduction not in ("exact", "fast"):
        raise UsageError(f"reduction={reduction!r} is not known. Take 'exact' or 'fast'.")
    if on_difference is None:
        on_difference = "stop" if reduction == "exact" else "warn"
    if on_difference not in ("stop", "warn", "repair"):
        raise UsageError(f"on_difference={on_difference!r} is not known. Take 'stop', 'warn' or 'repair'.")
    if num_backwards < 1:
        raise UsageError(f"num_backwards={num_backwards} is below 1. Count the backward passes of one loop turn.")
    layout = Layout(global_batch_size, micro_batch_size)
    seed = job.choose_seed(seed)
    place = job.take_place()
    torch.set_num_threads(num_threads or place.num_threads)
    if place.settings is not None:
        settings = place.settings
    else:
        directory = None if checkpoint_dir is None else str(checkpoint_dir)
        settings = job.settings_alone(directory, checkpoint_every, keep, resume)
    if settings.checkpoint_every is not None and settings.checkpoint_dir is None:
        raise UsageError("checkpoint_every needs a checkpoint_dir to save to.")
    if reduction == "exact":
        make_deterministic(torch.device(place.device))
    seed_job(seed)
    session = Session(
        place,
        settings,
        layout,
        seed,
        exact=reduction == "exact",
        num_backwards=num_backwards,
        allow_unprepared_schedulers=allow_unprepared_schedulers,
        on_difference=on_difference,
    )
    return Run(session, stop_on_nan=stop_on_nan)


class Run:
    """One program's part in an elastic job; made by `elastic`.

    Its methods are `prepare`, `epochs`, `batches`, `backward`, `note`, `evaluate` and `log`. Its attributes are `step`,
    `epoch`, `loss`, `epoch_loss`, `notes`, `stepped`, `micro_batch`, `is_main`, `has_state`, `rank`,
    `num_workers`, `device`.
    """

    def __init__(self, session: Session, *, stop_on_nan: bool) -> None:
        self._session = session
        self._stepper = Stepper(session, stop_on_nan=stop_on_nan)
        self._fast_forward = FastForward(session)
        self._has_looped = False
        session.place.on_end(self._close_loaders)
        session.place.on_end(self._stepper.continue_program)
        self._num_notes_on_loading = 0
        self._loaders: list[tuple[tuple[Any, ...], tuple[Order, Loader]]] = []
        self._described: weakref.WeakKeyDictionary[Loader, str] = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------ facts

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self._session.cursor.epoch

    @property
    def step(self) -> int:
        """The number of committed optimizer steps of the job."""
        return self._session.cursor.step

    @property
    def loss(self) -> float | None:
        """Mean loss of the last committed step, over all its samples; None if the program notes no losses."""
        return self._session.cursor.loss

    @property
    def epoch_loss(self) -> float | None:
        """Mean loss over all samples of the present epoch so far; None if the program notes no losses."""
        cursor = self._session.cursor
        return cursor.loss_sum / cursor.loss_samples if cursor.loss_samples else None

    @property
    def notes(self) -> dict[str, tuple[float, ...]]:
        """Numbers noted in the turns of the last committed step: by name, one for each micro-batch, in order."""
        return dict(self._session.cursor.notes)

    @property
    def stepped(self) -> bool:
        """Whether this turn of the loop completes a step: true once, on every worker, for each step of the job."""
        return self._session.turn.stepped

    @property
    def micro_batch(self) -> int:
        """The micro-batch of this turn: its index in the step, from 0."""
        return self._session.reducer.micro_batch

    @property
    def rank(self) -> int:
        """This worker's rank in the present view; it changes as workers join and leave."""
        return self._session.membership.rank

    @property
    def num_workers(self) -> int:
        """The number of workers that train now."""
        return self._session.membership.size

    @property
    def is_main(self) -> bool:
        """Whether this worker acts for the job: true on exactly one worker at a time."""
        return self._session.membership.rank == 0

    @property
    def has_state(self) -> bool:
        """Whether this worker has the job's state: false until its loop begins, and after it has left the job."""
        return self._session.is_loaded and not self._session.membership.has_left

    @property
    def device(self) -> torch.device:
        """The device of the models, to which `batches` moves each batch."""
        return self._session.device

    # ------------------------------------------------------------ what a program calls

    def prepare(self, *things: Any) -> Any:
        """Register models, optimizers, schedulers, GradScalers, and other objects with state.

        The objects stay the same; models are moved to `device`. Pass everything whose state belongs to the training:
        joining workers and checkpoints get only this state.

        Returns:
            The same objects: one as it is, several as a tuple.

        Raises:
            ProgramError: an object has no state that can be transferred, or training has already begun.
        """
        if self._session.has_begun:
            raise ProgramError("run.prepare must be called before training begins.")
        for thing in things:
            self._session.training_state.add(thing)
        return things[0] if len(things) == 1 else things

    def epochs(self, num_epochs: int) -> Iterator[int]:
        """Yield the epochs ``0 .. num_epochs - 1``; a worker that joins later starts at the present one.

        At the end a last checkpoint is written.

        Raises:
            ProgramError: the program has called `epochs` before.
        """
        session = self._session
        if self._has_looped:
            raise ProgramError(
                "run.epochs was called a second time. A job has one loop over epochs, by which a worker that joins "
                "finds its place. Loop over all epochs at once and let the phases differ inside, such as `for epoch in "
                "run.epochs(8):` with `if epoch < 3:`, or call run.batches several times in each epoch."
            )
        self._has_looped = True
        self._stepper.begin_epochs(num_epochs)
        self._fast_forward.begin_epochs()
        try:
            while session.cursor.epoch < num_epochs:
                seed_between_passes(session, epoch_begins=True)
                yield session.cursor.epoch
                self._stepper.continue_program()
                session.cursor.next_epoch()
        except GeneratorExit:
            # The loop ends early: by the program, by an error, or because this worker leaves. The end of the program
            # shows which.
            session.break_off()
            raise
        finally:
            # A notebook that trains repeatedly would keep more and more processes; a later evaluation starts new ones.
            self._close_loaders()
        self._fast_forward.end_epochs()

    def batches(
        self,
        dataset: Dataset[Any],
        *,
        shuffle: bool = True,
        collate_fn: Collate | None = None,
        num_workers: int | Literal["auto"] = 0,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
    ) -> Iterator[Any]:
        """Yield this worker's micro-batches of one pass over a data set, on `device`.

        Args:
            dataset: map-style, the same in every worker.
            shuffle: a new random order in each pass.
            collate_fn: makes a batch of a list of samples; None for torch's default.
            num_workers: number of processes that load batches ahead; 0: load a batch when the loop asks for it.
                ``"auto"``: Legato starts one process if loading takes a notable part of the step, a core is free, and
                the data set can be compared with the copy that the process has; otherwise as 0.
            prefetch_factor: number of micro-batches that each process loads ahead.
            pin_memory: as in ``torch.utils.data.DataLoader``.

        Raises:
            DataError: the data set is empty or too small for all micro-batches of a step, a sample or the collation
                failed, or the first sample is different when it is read again.
            ProgramError: a turn of the loop had no backward pass.
        """
        session = self._session
        order, loader = self._loader_of("train", dataset, shuffle, collate_fn, num_workers, prefetch_factor, pin_memory)
        # Reading a sample for the description may change a data set that remembers which samples were read.
        if loader.begin_pass() or loader not in self._described:
            self._described[loader] = describe_dataset(dataset, session.seed, exact=session.is_exact)
        yield from self._turns(order, loader, self._described[loader], may_repeat=True)

    def turns(self, steps: Steps, source: Source, data: str) -> Iterator[Any]:
        """Yield a source's batches for this worker's micro-batches of one pass: for data that `batches` cannot load.

        Args:
            steps: how the pass is divided into steps.
            source: receives the numbers of this worker's micro-batches, and returns their batches.
            data: identifies the data set; a worker with another data set is refused.
        """
        yield from self._turns(steps, source, data, may_repeat=False)

    def _turns(self, steps: Steps, source: Source, data: str, *, may_repeat: bool) -> Iterator[Any]:
        session = self._session
        self._stepper.continue_program()
        session.use_data(data)
        if self._fast_forward.skips_pass():
            seed_between_passes(session, epoch_begins=False)
            return
        try:
            yield from self._stepper.turns_of_pass(steps, source, may_repeat=may_repeat)
        finally:
            # Also if the program leaves the loop early: its next loop is the next pass.
            session.cursor.end_pass()
            seed_between_passes(session, epoch_begins=False)

    def share_freely(self) -> None:
        """Declare that `turns` divides each step among all present workers, so that each of them makes it faster.

        Without this call a platform gives the job only slots that make its steps faster. Call it before training
        begins.
        """
        self._session.share_freely()

    def backward(self, loss: torch.Tensor, scaler: Any = None) -> None:
        """Run the backward pass of a micro-batch, and note its loss for progress, charts and metrics.

        ``loss.backward()`` does the same without the note. With reentrant activation checkpointing, where one
        backward pass runs others inside itself, call this method.

        Args:
            loss: mean over the samples of the micro-batch, shape ``[]``.
            scaler: a prepared ``torch.amp.GradScaler``, if gradients are scaled.

        Raises:
            ProgramError: it was called outside of the loop over `batches`.
        """
        if not self._session.turn.is_open:
            raise ProgramError(
                "run.backward was called where no micro-batch is being computed. Take the batches from "
                "run.batches(train_set), instead of a DataLoader of your own, and call it in that loop."
            )
        reducer = self._session.reducer
        reducer.note_loss(loss)
        reducer.backward(loss if scaler is None else scaler.scale(loss))

    def note_loss(self, loss: float) -> None:
        """Note the loss of a micro-batch for progress, charts and metrics, if the program does not call `backward`.

        Args:
            loss: mean over the samples of the micro-batch; the losses of one turn are added up. Call it before the
                turn's last backward pass.
        """
        self._session.reducer.note_loss(loss)

    def note(self, **values: float) -> None:
        """Note numbers of this turn's micro-batch; after the step every worker has those of all turns in `notes`.

        Call it in every turn with the same names, before the turn's last backward pass.

        Raises:
            ProgramError: the program called it outside of a turn, or after the turn's last backward pass.
        """
        session = self._session
        if not session.turn.is_open or not session.reducer.is_turn_open:
            raise ProgramError(
                "run.note was called where no micro-batch is being computed. Call it in the loop over run.batches, "
                "before the backward pass."
            )
        session.reducer.notes.add({name: float(value) for name, value in values.items()})

    def evaluate(
        self,
        model: torch.nn.Module,
        dataset: Dataset[Any],
        metric: Metric | Mapping[str, Metric],
        *,
        collate_fn: Collate | None = None,
        num_workers: int | Literal["auto"] = 0,
    ) -> Any:
        """Evaluate a model, split over the workers; every worker gets the same, exact result.

        Args:
            model: called with the inputs of each micro-batch, in evaluation mode, without gradients.
            dataset: map-style; its samples are pairs (inputs, targets).
            metric: a function of (outputs, targets), or several by name; see `legato.train.loop.evaluation.measure`.
            collate_fn: as in `batches`.
            num_workers: as in `batches`.

        Returns:
            The mean of the metric over all samples; a dict of means by name if there are several metrics.
        """
        session = self._session
        if session.turn.is_open and not session.turn.stepped:
            raise ProgramError(
                "run.evaluate was called in a turn of the loop that completes no step. These turns differ between "
                "workers, but all must evaluate together. Call it under `if run.stepped:`, or outside of the "
                "loop over batches."
            )
        known = self._fast_forward.recall_evaluation()
        if known is not None:
            return _unwrap(known)
        order, loader = self._loader_of("evaluate", dataset, False, collate_fn, num_workers)
        loader.begin_pass()
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        self._stepper.report_phase("evaluate")
        try:
            with torch.no_grad(), untouched():
                self._stepper.leave_if_due()
                result = evaluate(session, model, order, loader, metric)
        finally:
            for module, was_training in modes:
                module.training = was_training
        self._stepper.report_phase("train")
        session.cursor.note_evaluation(result)
        return _unwrap(result)

    def warn(self, text: str) -> None:
        """Warn the job's user: by an event of the job, or by a line on stderr if the program runs alone.

        Every call is an event: call it on one worker, such as the one whose `is_main` is true.
        """
        self._session.reporter.say(wire.Note(level="warning", text=text))

    def log(self, **values: float) -> None:
        """Record metrics of the job at the present step. Call it on every worker; Legato records the metrics once."""
        self._fast_forward.log({name: float(value) for name, value in values.items()})

    def _loader_of(
        self,
        purpose: str,
        dataset: Dataset[Any],
        shuffle: bool,
        collate_fn: Collate | None,
        num_workers: int | Literal["auto"],
        prefetch_factor: int = 2,
        pin_memory: bool = False,
    ) -> tuple[Order, Loader]:
        """Return the loader of a data set; the run keeps it, so that its processes are started once."""
        session = self._session
        order = Order(num_samples_of(dataset), session.layout, session.seed, shuffle)
        kind = (dataset, purpose, order.num_samples, shuffle, collate_fn, num_workers, prefetch_factor, pin_memory)
        for entry in self._loaders:
            if entry[0][0] is dataset and entry[0][1:] == kind[1:]:
                self._loaders.remove(entry)
                self._loaders.append(entry)
                return entry[1]
        loader = Loader(
            dataset,
            order,
            seed=session.seed,
            collate_fn=collate_fn,
            num_workers=0 if num_workers == "auto" else num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            device=session.device,
            private_fds=session.private_fds,
            overlap=self._make_overlap(dataset, collate_fn) if num_workers == "auto" else None,
        )
        self._loaders.append((kind, (order, loader)))
        # A program that makes a new data set for each pass would keep more and more processes.
        idle = [entry for entry in self._loaders if entry[0][1] == purpose][:-_MAX_LOADERS]
        for entry in idle:
            self._loaders.remove(entry)
            entry[1][1].close()
        return order, loader

    def _make_overlap(self, dataset: Dataset[Any], collate_fn: Collate | None) -> Overlap:
        session = self._session

        def say(text: str) -> None:
            # A program may make a new data set for each pass.
            self._num_notes_on_loading += 1
            if session.membership.rank == 0 and self._num_notes_on_loading <= _MAX_NOTES_ON_LOADING:
                session.reporter.say(wire.Note(level="info", text=text))

        return Overlap(dataset, collate_fn, num_workers=lambda: session.membership.group.size, say=say)

    def _close_loaders(self) -> None:
        loaders, self._loaders = self._loaders, []
        for _, (_, loader) in loaders:
            loader.close()


def _unwrap(result: dict[str, float]) -> Any:
    return result["value"] if list(result) == ["value"] else dict(result)
