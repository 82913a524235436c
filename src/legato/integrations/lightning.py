"""Lightning on the elastic loop: `LegatoStrategy` for `lightning.Trainer`, and `LegatoFabricStrategy` for Fabric.

Modules, callbacks, loggers, schedulers, precision and evaluation are Lightning's. Replaced are the loop over the
training data, and what depends on which process it is: Legato divides each step among the workers, and the result does
not depend on how many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from legato.core.errors import ProgramError, UsageError
from legato.train.loop.elastic import Run, elastic
from legato.train.process import job

try:
    import lightning
    from lightning.pytorch import accelerators, callbacks, loggers, plugins
    from lightning.pytorch.strategies import Strategy
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities.rank_zero import rank_zero_only
    from lightning_utilities.core.apply_func import apply_to_collection
except ImportError as error:
    raise UsageError(
        f"legato.integrations.lightning cannot be imported: {error}. Install the libraries that it needs: "
        "pip install 'legato[lightning]'"
    ) from error

# The loops use private parts of Lightning's.
_VERSION: Final = "2.6"
if not lightning.__version__.startswith(f"{_VERSION}."):
    raise UsageError(
        f"legato.integrations.lightning works with lightning {_VERSION}, but {lightning.__version__} is installed. "
        f"Install it: pip install 'lightning=={_VERSION}.*'"
    )

from legato.integrations.lightning_attributes import Attributes  # noqa: E402 - after the check of the version
from legato.integrations.lightning_checks import (  # noqa: E402
    choose_seed,
    refuse_loader,
    refuse_options,
    refuse_torchrun,
)
from legato.integrations.lightning_fabric import LegatoFabricStrategy  # noqa: E402
from legato.integrations.lightning_loops import (  # noqa: E402
    Progress,
    become_elastic,
    values_of,
)

__all__ = ["LegatoFabricStrategy", "LegatoStrategy"]

_PRECISION: Final = (plugins.Precision, plugins.MixedPrecision, plugins.HalfPrecision, plugins.DoublePrecision)
_LEAVE_OUT: Final = "Leave it out."
_CALLBACKS: Final = {
    "BackboneFinetuning": "It adds parameters to the optimizer while it trains. Pass all of them to the optimizer, and "
    "set requires_grad in on_train_epoch_start.",
    "BaseFinetuning": "It adds parameters to the optimizer while it trains. Pass all of them to the optimizer, and "
    "set requires_grad in on_train_epoch_start.",
    "BatchSizeFinder": "The micro-batch is part of the result. Set the batch_size of the DataLoader to one that fits.",
    "GradientAccumulationScheduler": "A step has the same number of micro-batches throughout. Set "
    "accumulate_grad_batches.",
    "LearningRateFinder": "It trains repeatedly in one process. Use `legato sweep` instead.",
    "ModelPruning": "It replaces parameters while it trains. " + _LEAVE_OUT,
    "OnExceptionCheckpoint": "Legato writes a checkpoint by itself when a job is stopped. " + _LEAVE_OUT,
    "SpikeDetection": "It looks at the loss of a micro-batch, which one worker has. " + _LEAVE_OUT,
    "StochasticWeightAveraging": "Its average would not reach workers that join. Average in the LightningModule, with "
    "torch.optim.swa_utils.AveragedModel as an attribute of it.",
    "Timer": "The clocks of workers differ. Set max_epochs or max_steps.",
    "WeightAveraging": "Its average would not reach workers that join. Average in the LightningModule, with "
    "torch.optim.swa_utils.AveragedModel as an attribute of it.",
}


class LegatoStrategy(Strategy):  # type: ignore[misc]
    """Lets `lightning.Trainer` train on any, also changing, number of workers.

    A step has ``accumulate_grad_batches`` micro-batches of the ``batch_size`` of the training data's `DataLoader`,
    however many workers share it. So at most ``accumulate_grad_batches`` workers make the training faster. Make one
    such object per program, on every worker, and call `Trainer.fit` once.

    Args:
        seed: seed of the order of the data, dropout and augmentation, and of what is made after this object. None: that
            of ``lightning.seed_everything``, else 0. The seed of a submission (``LEGATO_SEED``) replaces it.
        options: ``reduction``, ``num_threads``, ``checkpoint_dir``, ``checkpoint_every``, ``keep``, ``resume``,
            ``stop_on_nan`` and ``on_difference``, as for `legato.elastic`.

    Attributes:
        run: the elastic run, from the beginning of `Trainer.fit` on; ``run.is_main`` is true on exactly one worker.

    Raises:
        UsageError: an option is not known. `Trainer.fit` raises it, before training begins, for each argument, callback
            and loader that has no elastic counterpart; the message names it, and says what to do.
    """

    strategy_name = "legato"
    world_size = 1
    local_rank = 0

    def __init__(self, *, seed: int | None = None, **options: Any) -> None:
        super().__init__()
        refuse_options(type(self).__name__, options)
        self._seed = choose_seed(seed)
        lightning.seed_everything(self._seed, verbose=False)
        self._options = options
        self._run: Run | None = None
        self._attributes: Attributes | None = None
        self._sketch: dict[str, Any] = {}
        self._is_computing = False
        self._unwritten: dict[str, tuple[dict[str, Any], Any]] = {}
        self._is_worker = "LEGATO_WORKER" in os.environ
        # Until workers join, one of them prints and writes.
        self.global_rank = int(os.environ.get("LEGATO_WORKER", "0"))
        rank_zero_only.rank = self.global_rank

    @property
    def run(self) -> Run:
        """The elastic run.

        Raises:
            ProgramError: `Trainer.fit` has not begun.
        """
        if self._run is None:
            raise ProgramError("LegatoStrategy.run was used before Trainer.fit, which begins the run.")
        return self._run

    # ------------------------------------------------------------ what Lightning asks about the process

    @property
    def root_device(self) -> torch.device:
        """The device of this worker."""
        if self._run is not None:
            return self._run.device
        name = os.environ.get("LEGATO_DEVICE", "").partition(",")[0]
        return torch.device(name or ("cuda:0" if torch.cuda.is_available() and not self._is_worker else "cpu"))

    @property
    def is_global_zero(self) -> bool:
        """Whether this worker prints and writes for all."""
        return self.global_rank == 0

    def follow_rank(self) -> None:
        """Let Lightning's code act once for all workers: it looks at the rank of its process."""
        self.global_rank = rank_zero_only.rank = self.run.rank
        if self.is_global_zero:
            # The worker that had to write them may have died before. If not, this writes the same.
            for path, (checkpoint, storage_options) in self._unwritten.items():
                super().save_checkpoint(checkpoint, path, storage_options)
            self._unwritten.clear()

    def model_to_device(self) -> None:
        """Move the module to this worker's device."""
        assert self.lightning_module is not None
        self.lightning_module.to(self.root_device)

    def barrier(self, *_: Any, **__: Any) -> None:
        """Return at once: between steps Legato knows of every worker how far it is."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:  # noqa: ARG002 - all workers have what that one has
        """Return the object: outside of a micro-batch all workers have the same."""
        self._refuse_while_computing("broadcast")
        return obj

    def reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Return the value: outside of a micro-batch all workers have the same."""
        self._refuse_while_computing("reduce")
        return tensor

    def all_gather(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Return the value: outside of a micro-batch all workers have the same."""
        self._refuse_while_computing("all_gather")
        return tensor

    def _refuse_while_computing(self, name: str) -> None:
        if self._is_computing:
            raise ProgramError(
                f"{name} was called in training_step, where each worker computes another micro-batch. Log the number "
                "with self.log: Lightning then has its mean over all micro-batches."
            )

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Watch what the program does in a micro-batch, which this worker computes and the others do not."""
        assert self._attributes is not None
        self._sketch, self._is_computing = self._attributes.take(), True
        try:
            yield
        finally:
            self._is_computing = False
        self._attributes.check(self._sketch)

    def note_started(self) -> None:
        """Allow what on_train_batch_start has changed in the module, such as a weight that depends on the step."""
        assert self._attributes is not None
        self._sketch = self._attributes.started(self._sketch)

    # ------------------------------------------------------------ beginning

    def connect(self, model: Any) -> None:
        """Check how the module optimizes, before Lightning refuses it with another advice."""
        if model.trainer.state.fn == TrainerFn.FITTING and not model.automatic_optimization:
            raise UsageError(
                f"Cannot train {type(model).__name__} with automatic_optimization=False: its training_step decides "
                "when optimizers act, which Legato must do once per step. Let Lightning optimize, or write the loop "
                "with legato.elastic, which has several optimizers and backward passes (num_backwards)."
            )
        super().connect(model)

    def setup_environment(self) -> None:
        """Check what can be checked before anything is set up."""
        assert self.lightning_module is not None
        trainer = self.lightning_module.trainer
        if isinstance(self.accelerator, accelerators.CPUAccelerator):
            job.stay_on_cpu()
        if trainer.state.fn == TrainerFn.FITTING:
            if self._run is not None:
                raise UsageError("Trainer.fit was called twice. A job has one training: call it once per program.")
            _refuse_arguments(trainer, self.lightning_module)
        if self._is_worker:
            # Legato's worker process has its own way to end.
            trainer._signal_connector.register_signal_handlers = lambda: None
            if trainer.progress_bar_callback is not None:
                trainer.progress_bar_callback.disable()
        for logger in trainer.loggers if self._is_worker else ():
            # Theirs count the folders that they find, and find other ones on each worker.
            if isinstance(logger, loggers.TensorBoardLogger | loggers.CSVLogger) and logger._version is None:
                logger._version = "legato"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, callbacks.ModelCheckpoint):
                # Whether a file exists depends on the moment at which a worker looks.
                callback._enable_version_counter = False
        super().setup_environment()

    def setup_optimizers(self, trainer: Any) -> None:
        """Make the optimizers, and check that Legato can let them act once per step."""
        advice = "Legato lets one optimizer act on the complete gradient of a step."
        try:
            super().setup_optimizers(trainer)
        except RuntimeError as error:
            if "multiple optimizers" not in str(error):
                raise
            raise UsageError(
                f"Cannot train elastically with several optimizers of configure_optimizers. {advice} Pass all "
                "parameters to one, in groups, or write the loop with legato.elastic."
            ) from error
        if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in self.optimizers):
            raise UsageError(
                f"Cannot train elastically with the optimizer LBFGS: it computes the loss repeatedly. {advice} Take "
                "another one."
            )

    def setup(self, trainer: Any) -> None:
        """Begin the run and prepare the module, its optimizers and all that Lightning counts."""
        if trainer.state.fn != TrainerFn.FITTING:
            super().setup(trainer)
            return
        if trainer._checkpoint_connector._loaded_checkpoint:
            raise UsageError(
                "Cannot train with Trainer.fit(ckpt_path=...): Legato resumes from its own checkpoints. Leave it out, "
                "and resume the job: legato run --resume. To begin with the weights of a file, load them with "
                "load_from_checkpoint."
            )
        loader = refuse_loader(trainer.fit_loop._data_source.dataloader())
        size, number = loader.batch_size, trainer.accumulate_grad_batches
        assert size is not None
        self._run = run = elastic(
            global_batch_size=size * number, micro_batch_size=size, seed=self._seed, **self._options
        )
        become_elastic(trainer, self, loader)
        trainer.fit_loop.setup_data()
        super().setup(trainer)
        scaler = getattr(self.precision_plugin, "scaler", None)
        module = self.lightning_module
        assert module is not None
        run.prepare(module, *self.optimizers)
        run.prepare(*(config.scheduler for config in self.lr_scheduler_configs), *([scaler] if scaler else []))
        self._attributes = Attributes(module, trainer.callbacks)
        run.prepare(Progress(trainer), self._attributes)
        self._log_as_metrics(trainer)

    def _log_as_metrics(self, trainer: Any) -> None:
        """Record what Lightning logs as metrics of the job, too."""
        log_metrics = trainer._logger_connector.log_metrics

        def log(metrics: dict[str, Any], step: int | None = None) -> None:
            log_metrics(metrics, step)
            values = dict(values_of(metrics))
            # With a step it is a batch of an evaluation.
            if self._is_worker and values and step is None:
                self.run.log(**values)

        trainer._logger_connector.log_metrics = log

    # ------------------------------------------------------------ steps

    def backward(self, closure_loss: torch.Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run the backward pass of a micro-batch; note its loss, and what it has logged."""
        assert self.lightning_module is not None
        self.run.note_loss(float(closure_loss.detach()))
        self.run.note(**self.lightning_module.trainer.fit_loop.epoch_loop._results.take())
        found: torch.Tensor = super().backward(closure_loss, optimizer, *args, **kwargs)
        return found

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Let the optimizer act on the gradient of the step, which is complete."""
        if getattr(self.precision_plugin, "scaler", None) is not None:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        # Without a scaler Lightning passes the closure to the optimizer, which must not compute the loss again.
        found = self.precision_plugin._wrap_closure(model or self.lightning_module, optimizer, closure)
        optimizer.step(**kwargs)
        return found

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a file of Lightning's; it needs nothing of Legato to be read."""
        if self._run is None or self.is_global_zero:
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        # The worker that writes may die first: then `follow_rank` writes.
        kept = apply_to_collection(checkpoint, torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=True))
        self._unwritten[str(filepath)] = (kept, storage_options)

    def remove_checkpoint(self, filepath: Any) -> None:
        """Delete a file of Lightning's, on one worker."""
        self._unwritten.pop(str(filepath), None)
        super().remove_checkpoint(filepath)

    def forget_files(self) -> None:
        """Drop what another worker has written: it has taken part in a later step."""
        self._unwritten.clear()


def _refuse_arguments(trainer: Any, module: Any) -> None:
    """Raise UsageError for arguments of a Trainer that have no elastic counterpart."""
    connector = trainer._accelerator_connector
    clock = "The clocks of workers differ. Count batches or epochs instead."
    refused = {
        "accelerator": (
            not isinstance(trainer.accelerator, accelerators.CPUAccelerator | accelerators.CUDAAccelerator),
            "Take 'cpu' or 'gpu'.",
        ),
        "devices": (
            isinstance(trainer.accelerator, accelerators.CPUAccelerator) and connector._devices_flag != 1,
            "Leave it out, and say the number of workers: legato run --workers 1..4.",
        ),
        "num_nodes": (
            connector._num_nodes_flag != 1,
            "Leave it out, and say the machines: legato run --hosts.",
        ),
        "sync_batchnorm": (
            connector._layer_sync is not None,
            f"Batch-norm normalises over a micro-batch, on any number of workers. {_LEAVE_OUT}",
        ),
        "precision": (type(trainer.precision_plugin) not in _PRECISION, "Take '32-true', 'bf16-mixed' or '16-mixed'."),
        "overfit_batches": (trainer.overfit_batches > 0, "Take a data set with few samples (torch.utils.data.Subset)."),
        "reload_dataloaders_every_n_epochs": (trainer.reload_dataloaders_every_n_epochs > 0, _LEAVE_OUT),
        "check_val_every_n_epoch": (
            trainer.check_val_every_n_epoch is None,
            "Take a whole number: validation is counted within an epoch.",
        ),
        "val_check_interval": (trainer._val_check_time_interval is not None, clock),
        "max_epochs": (
            trainer.max_steps == -1 and trainer.fit_loop.max_epochs == -1,
            "Training without end cannot be divided into epochs. Set max_epochs or max_steps.",
        ),
        "fast_dev_run": (bool(trainer.fast_dev_run), "Set max_steps=1 and limit_val_batches=1 instead."),
        "barebones": (trainer.barebones, _LEAVE_OUT),
    }
    for name, (is_used, advice) in refused.items():
        if is_used:
            raise UsageError(f"Cannot train elastically with this {name} of the Trainer. {advice}")
    for callback in trainer.callbacks:
        for kind in type(callback).__mro__:
            if kind.__name__ in _CALLBACKS and kind.__module__.startswith("lightning."):
                raise UsageError(
                    f"Cannot train elastically with the callback {type(callback).__name__}. {_CALLBACKS[kind.__name__]}"
                )
        if isinstance(callback, callbacks.ModelCheckpoint) and callback._train_time_interval is not None:
            raise UsageError(f"Cannot train elastically with train_time_interval of ModelCheckpoint. {clock}")
    arguments = module.training_step.__code__.co_varnames if hasattr(module.training_step, "__code__") else ()
    if "dataloader_iter" in arguments:
        raise UsageError(
            f"Cannot train {type(module).__name__}: its training_step takes a dataloader_iter. Legato loads the "
            "batches. Take batch and batch_idx."
        )
    refuse_torchrun()
