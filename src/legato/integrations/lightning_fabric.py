"""Lightning's Fabric on the elastic loop: `LegatoFabricStrategy` is a strategy for `lightning.Fabric`.

`legato.integrations.lightning` exports it. The program keeps its own loop; each pass through a loader that Fabric has
set up is one of `Run.batches`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NoReturn

import lightning
import torch
from lightning.fabric.plugins import precision as precisions
from lightning.fabric.strategies import Strategy
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch.utils.data import DataLoader

from legato.core.errors import DataError, ProgramError, UsageError
from legato.integrations.lightning_checks import batches_of, choose_seed, refuse_loader, refuse_options, refuse_torchrun
from legato.train.loop.elastic import Run, elastic

_PRECISION = (precisions.Precision, precisions.MixedPrecision, precisions.HalfPrecision, precisions.DoublePrecision)


class LegatoFabricStrategy(Strategy):  # type: ignore[misc]
    """Lets a program with `lightning.Fabric` train on any, also changing, number of workers.

    Make it before the model, once per program, on every worker. A loop over a loader of `Fabric.setup_dataloaders` then
    runs once for each micro-batch of this worker, and optimizers act once per step, as in a loop over `Run.batches`.
    Under ``torch.no_grad()`` such a loop reads all batches of the loader, on every worker, for an evaluation.

    Args:
        global_batch_size: samples per step; the ``batch_size`` of the training data's loader.
        micro_batch_size: samples per turn of the loop; divides ``global_batch_size``.
        seed: as for `LegatoStrategy`.
        options: as for `LegatoStrategy`; and ``num_backwards``, as for `legato.elastic`.

    Attributes:
        run: the elastic run; ``run.is_main`` is true on exactly one worker.

    Raises:
        UsageError: an option is not known, or torchrun has started this process.
        LayoutError: the batch sizes do not fit together.
    """

    world_size = 1

    def __init__(
        self, *, global_batch_size: int, micro_batch_size: int, seed: int | None = None, **options: Any
    ) -> None:
        super().__init__()
        refuse_options(type(self).__name__, options, "num_backwards")
        refuse_torchrun()
        seed = choose_seed(seed)
        lightning.seed_everything(seed, verbose=False)
        self.run: Run = elastic(
            global_batch_size=global_batch_size, micro_batch_size=micro_batch_size, seed=seed, **options
        )
        self._batch_size = global_batch_size
        self._is_in_turn = self._has_scaler = self._has_optimizer = self._has_acted = False
        self._backward_sync_control = _NoAccumulation()

    # ------------------------------------------------------------ what Fabric asks about the process

    @property
    def root_device(self) -> torch.device:
        """The device of this worker."""
        return self.run.device

    @property
    def global_rank(self) -> int:
        """0 on the worker that prints and writes for all; before training on every worker."""
        rank_zero_only.rank = rank = self.run.rank if self.run.has_state else 0
        return rank

    @property
    def local_rank(self) -> int:
        """The same as `global_rank`."""
        return self.global_rank

    @property
    def is_global_zero(self) -> bool:
        """Whether this worker prints and writes for all."""
        return self.global_rank == 0

    def setup_environment(self) -> None:
        """Check the device and the precision, which Fabric has chosen.

        Raises:
            UsageError: Legato has another device, or does not know the precision.
        """
        assert self.accelerator is not None
        device = self.run.device
        if device.type != {"CPUAccelerator": "cpu", "CUDAAccelerator": "cuda"}.get(type(self.accelerator).__name__):
            raise UsageError(
                f"Fabric computes with {type(self.accelerator).__name__}, but this worker has the device {device}. Set "
                f"Fabric(accelerator={device.type!r}), or legato run --device."
            )
        if type(self.precision) not in _PRECISION:
            raise UsageError("Cannot train elastically with this precision of Fabric. Take '32-true' or 'bf16-mixed'.")
        super().setup_environment()

    # ------------------------------------------------------------ objects

    def module_to_device(self, module: torch.nn.Module) -> None:
        """Move a module to this worker's device."""
        module.to(self.root_device)

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Make a module a part of the job's state."""
        scaler = getattr(self.precision, "scaler", None)
        if scaler is not None and not self._has_scaler:
            self._has_scaler = True
            self.run.prepare(scaler)
        self.run.prepare(module)
        return module

    def setup_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Make an optimizer a part of the job's state, which acts once per step.

        Raises:
            UsageError: it is no optimizer, such as a scheduler that was not passed by its name.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"Fabric.setup got a {type(optimizer).__name__} as an optimizer: pass a scheduler by its name, "
                "fabric.setup(model, optimizer, scheduler=scheduler)."
            )
        self.run.prepare(optimizer)
        self._has_optimizer = True
        optimizer.register_step_post_hook(lambda *_: self._note_act())
        return optimizer

    def setup_module_and_optimizers(
        self, module: torch.nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[torch.nn.Module, list[torch.optim.Optimizer], Any]:
        """Make all of them parts of the job's state."""
        found = super().setup_module_and_optimizers(module, optimizers, scheduler)
        if scheduler is not None:
            self.run.prepare(scheduler)
        return found  # type: ignore[no-any-return]

    def process_dataloader(self, dataloader: Any) -> Any:
        """Return a loader that yields the micro-batches of this worker."""
        # Fabric has set a function that Legato does not need.
        if getattr(dataloader, "worker_init_fn", None) is not None and "PL_SEED_WORKERS" in os.environ:
            dataloader.worker_init_fn = None
        return _Loader(dataloader, self)

    # ------------------------------------------------------------ steps

    def backward(self, tensor: torch.Tensor, module: Any, *args: Any, **kwargs: Any) -> None:
        """Run the backward pass of a micro-batch, and note its loss.

        Raises:
            ProgramError: it was called outside of a loop over a training loader.
        """
        if not self._is_in_turn:
            raise ProgramError(
                "Fabric.backward was called outside of a loop over the training data. Set the loader up with "
                "Fabric.setup_dataloaders, and loop over it."
            )
        self.run.note_loss(float(tensor.detach()))
        super().backward(tensor, module, *args, **kwargs)

    def barrier(self, *_: Any, **__: Any) -> None:
        """Return at once: between steps Legato knows of every worker how far it is."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:  # noqa: ARG002 - all workers have what that one has
        """Return the object: outside of a micro-batch all workers have the same."""
        self._refuse_in_turn("broadcast")
        return obj

    def all_reduce(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Return the value: outside of a micro-batch all workers have the same."""
        self._refuse_in_turn("all_reduce")
        return tensor

    def all_gather(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Return the value: outside of a micro-batch all workers have the same."""
        self._refuse_in_turn("all_gather")
        return tensor

    def _refuse_in_turn(self, name: str) -> None:
        if self._is_in_turn:
            raise ProgramError(
                f"Fabric.{name} was called in the loop over the training data, where each worker computes other "
                "micro-batches. After a step, fabric.strategy.run.loss is the mean loss of the step on every worker; "
                "run.note and run.notes do this for other numbers."
            )

    def _note_act(self) -> None:
        self._has_acted = True

    def end_turn(self) -> None:
        """End a turn of the loop over the training data.

        Raises:
            ProgramError: the turn completed a step, and no optimizer acted.
        """
        self._is_in_turn = False
        # A scaler may leave a step out.
        if self.run.stepped and self._has_optimizer and not self._has_acted and not self._has_scaler:
            raise ProgramError(
                "No optimizer acted in the turn that completed a step, so its gradient would be lost. Call "
                "optimizer.step() in every turn of the loop: Legato accumulates the micro-batches of a step, and lets "
                "it act once. Leave out gradient accumulation of your own."
            )

    # ------------------------------------------------------------ files

    def save_checkpoint(self, path: Any, state: dict[str, Any], storage_options: Any = None, **filters: Any) -> None:
        """Write a file, on one worker."""
        converted = self._convert_stateful_objects_in_state(state, filter=filters.get("filter") or {})
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint=converted, path=path, storage_options=storage_options)

    def load_checkpoint(self, path: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load weights from a file.

        Raises:
            UsageError: more than weights would be loaded.
        """
        parts = state.values() if isinstance(state, dict) else [] if state is None else [state]
        if not all(isinstance(part, torch.nn.Module) for part in parts):
            raise UsageError(
                "Cannot continue a training with Fabric.load: Legato resumes from its own checkpoints. Resume the job: "
                "legato run --resume. Fabric.load may load modules, before training begins."
            )
        return super().load_checkpoint(path, state, *args, **kwargs)


class _Loader:
    """A loader of Fabric: for training this worker's micro-batches, without gradients all batches.

    Args:
        loader: the program's.
        strategy: of the Fabric.
    """

    def __init__(self, loader: Any, strategy: LegatoFabricStrategy) -> None:
        self._loader, self._strategy = loader, strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        strategy = self._strategy
        if not torch.is_grad_enabled():
            yield from self._loader
            return
        loader: DataLoader[Any] = refuse_loader(self._loader)
        if loader.batch_size != strategy._batch_size:
            raise DataError(
                f"Cannot train with batch_size={loader.batch_size} of the DataLoader: LegatoFabricStrategy was made "
                f"with global_batch_size={strategy._batch_size}. Take the same number. Loop over the data of an "
                "evaluation under torch.no_grad()."
            )
        try:
            for batch in batches_of(strategy.run, loader):
                rank_zero_only.rank = strategy.run.rank
                strategy._is_in_turn, strategy._has_acted = True, False
                yield batch
                strategy.end_turn()
        finally:
            strategy._is_in_turn = False


class _NoAccumulation:
    """Refuses `Fabric.no_backward_sync`."""

    def no_backward_sync(self, *_: Any) -> NoReturn:
        """Raise UsageError: Legato accumulates the micro-batches of a step."""
        raise UsageError(
            "Fabric.no_backward_sync is not needed with Legato, which accumulates the micro-batches of a step. Leave "
            "it out, call optimizer.step() in every turn of the loop, and set global_batch_size and micro_batch_size."
        )
