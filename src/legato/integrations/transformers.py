"""Hugging Face's `Trainer` on the elastic loop: `Trainer` of this module replaces `transformers.Trainer`.

Arguments, optimizers, schedulers, callbacks, evaluation, logging and saving are Hugging Face's. Replaced are the loop
over the training data, and what depends on which process it is: Legato divides each step among the workers, and the
result does not depend on how many there are.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from legato.core.errors import DataError, ProgramError, UsageError
from legato.integrations.kept_attributes import KeptAttributes, Root, sum_of
from legato.train.loop.elastic import Run, elastic
from legato.train.process import job

try:
    import transformers
    from accelerate import PartialState
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise UsageError(
        f"legato.integrations.transformers cannot be imported: {error}. Install the libraries that it needs: "
        "pip install 'legato[transformers]'"
    ) from error

# The loop below calls private methods of Hugging Face's Trainer.
_VERSION: Final = "5.24"
if not transformers.__version__.startswith(f"{_VERSION}."):
    raise UsageError(
        f"legato.integrations.transformers works with transformers {_VERSION}, but {transformers.__version__} is "
        f"installed. Install it: pip install 'transformers=={_VERSION}.*'"
    )

_NO_RUN: Final = "Start the program with `legato run` instead of torchrun or `accelerate launch`."
_PLACE_OF_WORKER: Final = ("is_local_process_zero", "is_world_process_zero", "stateful_callbacks")
_TIMES: Final = ("_runtime", "_per_second", "_time")


class Trainer(transformers.Trainer):  # type: ignore[misc]
    """Trains like `transformers.Trainer`, on any, also changing, number of workers.

    A step has ``gradient_accumulation_steps`` micro-batches of ``per_device_train_batch_size`` samples, however many
    workers share it. So at most ``gradient_accumulation_steps`` workers make the training faster. Make one such object
    per program, on every worker. All arguments are those of `transformers.Trainer`.

    Attributes:
        run: the elastic run; ``run.is_main`` is true on exactly one worker.

    Raises:
        UsageError: an argument has no elastic counterpart. The message names it, and says what to do.
        LayoutError: a batch size is not positive.
    """

    control: Any

    def __init__(
        self, model: Any = None, args: transformers.TrainingArguments | None = None, *more: Any, **named: Any
    ) -> None:
        own = set(vars(self))
        args = transformers.TrainingArguments(output_dir="tmp_trainer") if args is None else args
        _refuse_arguments(args)
        self._refuse_model_and_methods(model)
        if args.use_cpu:
            job.stay_on_cpu()
        args.seed = job.choose_seed(args.seed)
        micro_batch_size, num_micro_batches = args.per_device_train_batch_size, args.gradient_accumulation_steps
        self.run: Run = elastic(
            global_batch_size=micro_batch_size * num_micro_batches, micro_batch_size=micro_batch_size, seed=args.seed
        )
        _set_device(args, self.run.device)
        # Legato's checkpoints hold the optimizer and the scheduler, and a job resumes from them.
        args.save_only_model = True
        self._is_worker = "LEGATO_WORKER" in os.environ
        self._is_log_common = True
        # Theirs lets process 0 alone read a streamed data set, and the others would get nothing.
        args.accelerator_config.dispatch_batches = False
        args.disable_tqdm = args.disable_tqdm or self._is_worker
        super().__init__(model, args, *more, **named)
        self.accelerator.backward = self._backward
        # Legato's sum over the micro-batches is a mean already.
        self.current_gradient_accumulation_steps = 1
        self._weight = 1.0
        self._notes: dict[str, float] = {}
        self._own_names: set[str] = set()
        self._not_own_names = vars(self).keys() - own

    # ------------------------------------------------------------ what a program calls

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """Train, and return Hugging Face's `TrainOutput`. Call it once, on every worker.

        Raises:
            UsageError: training would begin from a checkpoint of Hugging Face's Trainer, or for a search.
            DataError: the training data set cannot be read by number.
        """
        if resume_from_checkpoint:
            raise UsageError(
                f"Cannot train with resume_from_checkpoint={resume_from_checkpoint!r}: Legato resumes from its own "
                "checkpoints. Leave the argument out, and resume the job: legato run --resume."
            )
        if trial is not None:
            raise UsageError("Cannot train with trial=...: search for parameters with `legato sweep` instead.")
        if getattr(self.data_collator, "seed", None) is not None:
            raise DataError(
                f"Cannot train with seed={self.data_collator.seed} in {type(self.data_collator).__name__}: its own "
                "generator depends on how many batches a worker has made. Leave its seed out; that of "
                "TrainingArguments sets it, too."
            )
        dataset = self.train_dataset
        if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise DataError(
                f"Cannot train with train_dataset of type {type(dataset).__name__}: samples must be reachable by "
                "number, so that any worker can load any of them. Use a map-style data set (__getitem__ and __len__); "
                "with Hugging Face datasets, load it with streaming=False."
            )
        self._own_names = vars(self).keys() - self._not_own_names
        return super().train(ignore_keys_for_eval=ignore_keys_for_eval)

    def hyperparameter_search(self, *_: Any, **__: Any) -> Any:
        """Raise UsageError: Legato searches with `legato sweep`."""
        raise UsageError("Trainer.hyperparameter_search trains repeatedly in one process. Use `legato sweep` instead.")

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Log values as Hugging Face's Trainer does, and record them as metrics of the job.

        Times are not recorded, nor what is logged while a micro-batch is computed: workers compute different ones.
        """
        super().log(logs, start_time)
        values = {
            name: float(value)
            for name, value in logs.items()
            if isinstance(value, int | float) and name != "epoch" and not name.endswith(_TIMES)
        }
        if self._is_worker and values and self._is_log_common:
            self.run.log(**values)

    # ------------------------------------------------------------ the loop

    def _inner_training_loop(self, *_: Any, ignore_keys_for_eval: list[str] | None = None, **__: Any) -> Any:
        run, args = self.run, self.args
        self.accelerator.free_memory()
        # Legato loads the batches; of the loader it takes the data set, the collation and the numbers.
        loader = self.get_train_dataloader()
        num_epochs, num_steps, _, num_train_samples, _, num_micro_batches, max_steps = self.set_initial_training_values(
            args, loader
        )
        self._init_training_state(max_steps, num_steps, num_epochs, None, None)
        model, _ = self._prepare_for_training(max_steps, loader, None)
        self._start_time, self._ignored_keys = time.time(), ignore_keys_for_eval
        self._initial_num_input_tokens_seen = self._initial_global_step = self._globalstep_last_logged = 0
        self._tr_loss, self._total_loss_scalar = torch.zeros((), dtype=torch.float64), 0.0
        self._attributes = _Attributes(self, self._own_names)
        self._progress = _Progress(self, self._attributes)
        own = [each for each in self.callback_handler.callbacks if hasattr(each, "load_state_dict")]
        run.prepare(self.model, getattr(self.optimizer, "optimizer", self.optimizer))
        run.prepare(self.lr_scheduler, self._progress, *own)
        is_begun = False
        collate = _CountingCollate(loader.collate_fn)
        for epoch in run.epochs(num_epochs):
            self._follow_rank()
            if not is_begun:
                is_begun = True
                self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
            # After an early stop the remaining epochs do no work, so that `Run.epochs` writes a last checkpoint.
            if not self.control.should_training_stop:
                self._run_elastic_epoch(model, epoch, loader.dataset, collate, num_micro_batches)
        self._follow_rank()
        return self._finalize_training(None, num_train_samples, self._start_time)

    def _run_elastic_epoch(
        self, model: Any, epoch: int, dataset: Any, collate: _CountingCollate, num_micro_batches: int
    ) -> None:
        run, args, progress = self.run, self.args, self._progress
        self.control = self.callback_handler.on_epoch_begin(args, self.state, self.control)
        progress.steps_of_epoch = 0
        self.control = self.callback_handler.on_step_begin(args, self.state, self.control)
        begun_step = -1
        batches = run.batches(
            dataset,
            shuffle=args.train_sampling_strategy != "sequential",
            collate_fn=collate,
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor or 2,
            pin_memory=args.dataloader_pin_memory and run.device.type == "cuda",
        )
        for num_samples, inputs in batches:
            if run.step != begun_step:
                begun_step = run.step
                self._follow_rank()
            self._train_on(model, inputs, num_samples)
            if not run.stepped:
                self.control = self.callback_handler.on_substep_end(args, self.state, self.control)
                continue
            self._end_step(model, epoch, num_micro_batches)
            if self.control.should_epoch_stop or self.control.should_training_stop:
                break
            if progress.steps_of_epoch * args.gradient_accumulation_steps < num_micro_batches:
                # Between two steps, where all workers draw the same random numbers and may freeze parameters.
                self.control = self.callback_handler.on_step_begin(args, self.state, self.control)
        # A change of workers that was agreed on in the last step is in force now.
        self._follow_rank()
        self.control = self.callback_handler.on_epoch_end(args, self.state, self.control)
        self._log_save_evaluate(model, epoch)

    def _train_on(self, model: Any, inputs: Any, num_samples: int) -> None:
        """Run the forward and backward pass of one micro-batch.

        The mean loss of a model that counts labels is over the labels of the whole step. So each micro-batch counts by
        its labels: its gradient is multiplied by their number, and `_end_step` divides the sum by that of the step.
        """
        state, full = self.state, self.args.per_device_train_batch_size
        num_items = self._get_num_items_in_batch([inputs], self.args.device)
        self._counts_items = num_items is not None
        num_labels = num_samples if num_items is None else int(num_items)
        # Legato weights a smaller last micro-batch by its number of samples.
        self._weight = num_labels * full / num_samples if self._counts_items else 1.0
        num_tokens_before = state.num_input_tokens_seen
        self._track_num_input_tokens(inputs)
        num_tokens, state.num_input_tokens_seen = state.num_input_tokens_seen - num_tokens_before, num_tokens_before
        self._notes = {
            "labels": num_labels,
            "samples": num_samples,
            "tokens": num_tokens,
            "flos": self.floating_point_ops(inputs),
        }
        # A micro-batch without labels has the loss 0 / 1, and the weight 0.
        self._is_log_common = False
        try:
            with self._attributes.watched(self.run):
                self.training_step(model, inputs, None if num_items is None else num_items.clamp(min=1))
        finally:
            self._is_log_common = True

    def _backward(self, loss: torch.Tensor, **_: Any) -> None:
        """Take the place of `Accelerator.backward`, which `training_step` calls."""
        self.run.note(loss=float(loss.detach()), **self._notes)
        self.run.backward(loss, _Weighting(self._weight))

    def _end_step(self, model: Any, epoch: int, num_micro_batches: int) -> None:
        args, state, handler, progress = self.args, self.state, self.callback_handler, self._progress
        self._follow_rank()
        notes = self.run.notes
        num_labels = sum(notes["labels"])
        if self._counts_items:
            factor = sum(notes["samples"]) / args.per_device_train_batch_size / max(num_labels, 1)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)
        loss = sum(value * number for value, number in zip(notes["loss"], notes["labels"], strict=True))
        self._add_loss(loss / max(num_labels, 1))
        self.current_flos += sum(notes["flos"])
        state.num_input_tokens_seen += int(sum(notes["tokens"]))
        norm = self._clip_grad_norm(model) if args.max_grad_norm > 0 else None
        progress.grad_norm = float(self._get_grad_norm(model, grad_norm=norm))
        self.control = handler.on_pre_optimizer_step(args, state, self.control)
        self.optimizer.step()
        self.control = handler.on_optimizer_step(args, state, self.control)
        progress.learning_rate = self._get_learning_rate()
        if not hasattr(self.lr_scheduler, "num_bad_epochs"):
            # Those that look at a metric make their step after the evaluation.
            self.lr_scheduler.step()
        model.zero_grad()
        state.global_step = self.run.step
        progress.steps_of_epoch += 1
        done = min(progress.steps_of_epoch * args.gradient_accumulation_steps, num_micro_batches)
        state.epoch = epoch + done / num_micro_batches
        self.control = handler.on_step_end(args, state, self.control)
        self._log_save_evaluate(model, epoch)

    def _add_loss(self, loss: float) -> None:
        if self.args.logging_nan_inf_filter and not math.isfinite(loss):
            # As Hugging Face's Trainer: the mean of the losses since the last line of the log.
            self._tr_loss += self._tr_loss / (1 + self.state.global_step - self._globalstep_last_logged)
        else:
            self._tr_loss += loss

    def _log_save_evaluate(self, model: Any, epoch: int) -> None:
        self._maybe_log_save_evaluate(
            self._tr_loss,
            self._progress.grad_norm,
            model,
            None,
            epoch,
            self._ignored_keys,
            self._start_time,
            learning_rate=self._progress.learning_rate,
        )

    # ------------------------------------------------------------ one of several workers

    def _follow_rank(self) -> None:
        """Let Hugging Face's code act once for all workers: it looks at the index of its process."""
        place = PartialState()
        place.process_index = place.local_process_index = self.run.rank
        self.state.is_world_process_zero = self.state.is_local_process_zero = self.run.is_main

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        state = self.state
        best = state.best_model_checkpoint
        if state.best_global_step == state.global_step:
            best = os.path.join(self.args.output_dir, f"checkpoint-{state.global_step}")  # noqa: PTH118 - as theirs
            if self.args.load_best_model_at_end:
                self._progress.keep_best()
        if self.run.is_main:
            state.best_model_checkpoint = best
            super()._save_checkpoint(model, trial)
        else:
            self.store_flos()
        # Theirs is what this worker's disk has.
        state.best_model_checkpoint = best

    def _load_best_model(self) -> None:
        self._progress.load_best()
        # Their code looks at the file next, which may be on the disk of a machine that has left.
        best = self.state.best_model_checkpoint
        if best is not None and not os.path.isdir(best):  # noqa: PTH112 - a text of theirs
            self.state.best_model_checkpoint = None

    def _refuse_model_and_methods(self, model: Any) -> None:
        for name in ("get_train_dataloader", "_get_train_sampler", "_inner_training_loop"):
            if getattr(type(self), name) is not getattr(Trainer, name):
                raise UsageError(
                    f"{type(self).__name__}.{name} cannot be overridden: Legato divides the training data among the "
                    "workers. Change the data by train_dataset and data_collator."
                )
        devices = set((getattr(model, "hf_device_map", None) or {}).values())
        if len(devices) > 1 or getattr(model, "is_distributed_loading_by_transformers", False):
            raise UsageError(
                "Cannot train a model that is divided over several devices (device_map, distributed_config, tp_plan): "
                "each worker needs the whole model. Load it without these arguments."
            )


class _Progress:
    """What the training has come to, besides model, optimizer and scheduler: a part of the job's state.

    Args:
        trainer: whose attributes it reads and sets.
        attributes: of the program.

    Attributes:
        steps_of_epoch: steps of the present epoch.
        grad_norm: norm of the last step's gradient, before clipping.
        learning_rate: of the last step.
        best: the trained parameters and the buffers of the best model, for ``load_best_model_at_end``.
    """

    def __init__(self, trainer: Trainer, attributes: _Attributes) -> None:
        self._trainer, self._attributes = trainer, attributes
        self.steps_of_epoch = 0
        self.grad_norm: float | None = None
        self.learning_rate: float | None = None
        self.best: dict[str, torch.Tensor] = {}

    def keep_best(self) -> None:
        """Copy the present model to the memory of the host."""
        self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._changing()}

    def load_best(self) -> None:
        """Load the best model.

        Raises:
            ProgramError: parameters were frozen then, and have been trained since.
        """
        present = dict(self._changing())
        if present.keys() - self.best.keys():
            raise ProgramError(
                "Cannot load the best model (load_best_model_at_end=True): parameters were unfrozen after it was "
                f"saved, such as {min(present.keys() - self.best.keys())}. Unfreeze them before training begins."
            )
        for name, tensor in present.items():
            tensor.data.copy_(self.best[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the progress as plain values and tensors."""
        trainer = self._trainer
        state = dataclasses.asdict(trainer.state)
        return {
            "state": {name: value for name, value in state.items() if name not in _PLACE_OF_WORKER},
            "control": dataclasses.asdict(trainer.control),
            "callbacks": [each.state().get("attributes", {}) for each in self._callbacks()],
            "loss": float(trainer._tr_loss),
            "total_loss": trainer._total_loss_scalar,
            "last_logged_step": trainer._globalstep_last_logged,
            "flos": trainer.current_flos,
            "attributes": self._attributes.state_dict(),
            **{name: value for name, value in vars(self).items() if not name.startswith("_")},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        state, trainer = dict(state), self._trainer
        _set(trainer.state, state.pop("state"))
        _set(trainer.control, state.pop("control"))
        for callback, attributes in zip(self._callbacks(), state.pop("callbacks"), strict=True):
            _set(callback, attributes)
        trainer._tr_loss.fill_(state.pop("loss"))
        trainer._total_loss_scalar = state.pop("total_loss")
        trainer._globalstep_last_logged = state.pop("last_logged_step")
        trainer.current_flos = state.pop("flos")
        # Checkpoints of earlier snapshots do not have them.
        self._attributes.load_state_dict(state.pop("attributes", {"values": {}}))
        _set(self, state)

    def _callbacks(self) -> list[Any]:
        return [each for each in self._trainer.callback_handler.callbacks if isinstance(each, ExportableState)]

    def _changing(self) -> Iterator[tuple[str, torch.Tensor]]:
        model = self._trainer.model
        yield from ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
        yield from model.named_buffers()


class _Attributes(KeptAttributes):
    """What callbacks without a state of their own, and a subclass of the Trainer, keep in attributes.

    Args:
        trainer: whose callbacks and attributes these are.
        names: of the attributes of the trainer that the program has set.
    """

    def __init__(self, trainer: Trainer, names: set[str]) -> None:
        classes = type(trainer).__mro__[: type(trainer).__mro__.index(Trainer)]
        # Also what begins as an attribute of the class.
        self._trainer, self._names = trainer, names.union(*map(vars, classes))
        self._of_micro_batches: set[str] = set()
        callbacks = [
            Root(f"callback {index} {type(callback).__name__}", callback)
            for index, callback in enumerate(trainer.callback_handler.callbacks)
            if not type(callback).__module__.startswith("transformers.")
            and not isinstance(callback, ExportableState)
            and not hasattr(callback, "load_state_dict")
        ]
        others = (transformers.Trainer, transformers.TrainerCallback)
        super().__init__(trainer.model, lambda: (*self._of_trainer(), *callbacks), others)

    def _of_trainer(self) -> tuple[Root, ...]:
        trainer = self._trainer
        # What Hugging Face's code sets while it trains is not the program's.
        return (Root("self", trainer, frozenset(vars(trainer).keys() - self._names)),)

    @contextmanager
    def watched(self, run: Run) -> Iterator[None]:
        """Warn of attributes of the trainer that change while this worker, and no other, computes a micro-batch."""
        before, known = self._sums(), vars(self._trainer).keys() | set()
        yield
        self._names |= vars(self._trainer).keys() - known
        changed = [name for name, value in self._sums().items() if before.get(name) != value]
        if changed and not self._of_micro_batches and run.is_main:
            shown = changed[0].replace("|", ".")
            run.warn(
                f"The Trainer changes {shown} while it computes a micro-batch. Each worker computes other "
                "micro-batches, so what depends on it depends on the number of workers. Change it in a callback, from "
                "values that are equal on all workers, such as state, logs and metrics; or keep it in a buffer of the "
                "model, which is averaged over the micro-batches."
            )
        self._of_micro_batches |= set(changed)

    def _sums(self) -> dict[str, Any]:
        if not self._names:
            return {}
        return {name: sum_of(owner[key]) for name, (owner, key) in self.found(self._of_trainer()).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what has changed since training began, without what micro-batches change: that differs."""
        values = super().state_dict()["values"]
        return {"values": {name: value for name, value in values.items() if name not in self._of_micro_batches}}


class _CountingCollate:
    """Makes a batch together with the number of its samples.

    Args:
        collate: makes a batch from a list of samples.
    """

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> tuple[int, Any]:
        return len(samples), self._collate(samples)


class _Weighting:
    """Multiplies a loss as a GradScaler does, for `Run.backward`.

    Args:
        weight: the factor.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the multiplied loss."""
        return loss * self._weight


def _set(thing: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(thing, name, value)


def _set_device(args: Any, device: torch.device) -> None:
    """Let Hugging Face's code use this worker's device, and only that."""
    args.__dict__["_setup_devices"] = device
    args._n_gpu = int(device.type == "cuda")
    PartialState().device = device
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _refuse_arguments(args: Any) -> None:
    """Raise UsageError for arguments that have no elastic counterpart."""
    optimizer = str(getattr(args.optim, "value", args.optim))
    usual = "Take another optimizer, such as adamw_torch."
    own_order = "Legato gives each micro-batch its samples by the seed. Leave it out"
    refused = {
        "fp16": (args.fp16, "Take bf16=True, which needs no scaling of gradients."),
        "deepspeed": (args.deepspeed, "Each worker holds the whole model. Leave it out; LoRA (peft) saves memory."),
        "fsdp": (args.fsdp, "Each worker holds the whole model. Leave it out; LoRA (peft) saves memory."),
        "parallelism_config": (args.parallelism_config, "Each worker holds the whole model. Leave it out."),
        "torch_compile": (args.torch_compile, "It is not supported yet. Leave it out."),
        "auto_find_batch_size": (
            args.auto_find_batch_size,
            "The micro-batch is part of the result. Set per_device_train_batch_size to a size that fits.",
        ),
        "train_sampling_strategy": (
            args.train_sampling_strategy not in ("random", "sequential"),
            f"{own_order}, or take 'sequential'.",
        ),
        "data_seed": (args.data_seed is not None, f"{own_order}; seed sets the order, too."),
        "dataloader_drop_last": (
            args.dataloader_drop_last,
            "Legato trains the last samples of an epoch in a smaller step. Leave it out.",
        ),
        "eval_on_start": (args.eval_on_start, "Call trainer.evaluate() before trainer.train() instead."),
        "push_to_hub": (args.push_to_hub, "Call trainer.push_to_hub() after trainer.train() instead."),
        "enable_jit_checkpoint": (
            args.enable_jit_checkpoint,
            "Legato writes a checkpoint by itself when a job is stopped. Leave it out.",
        ),
        "optim": (
            optimizer in ("lomo", "adalomo") or optimizer.endswith("layerwise"),
            f"It changes parameters before the gradients of all workers are summed. {usual}",
        ),
        "accelerator_config": (
            args.accelerator_config.gradient_accumulation_kwargs,
            "Set the number of micro-batches with gradient_accumulation_steps.",
        ),
    }
    for name, (is_used, advice) in refused.items():
        if is_used:
            value = getattr(args, name)
            raise UsageError(f"Cannot train elastically with {name}={getattr(value, 'value', value)!r}. {advice}")
    # On a CPU, Accelerate does not see what torchrun has started.
    said = os.environ.get("WORLD_SIZE", "1") if "LEGATO_WORKER" not in os.environ else "1"
    num_processes = max(PartialState().num_processes, int(said) if said.isdecimal() else 1)
    if num_processes > 1:
        raise UsageError(f"This process is one of {num_processes} of torch.distributed. {_NO_RUN}")
