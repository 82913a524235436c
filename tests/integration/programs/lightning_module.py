"""A LightningModule with its DataModule: batch-norm, dropout, augmentation, logs per step and epoch, validation within
epochs, schedulers, clipping, early stopping, checkpoints, a callback with a state of its own; V = 5.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import lightning_imports  # noqa: F401 - before the libraries
import lightning
import torch
from common import Images, mark, pace, tell
from lightning.pytorch import callbacks, plugins
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from legato.integrations.lightning import LegatoStrategy


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, *, plateau: bool) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(16, 4),
        )
        self.seen = MeanMetric()
        self._plateau = plateau
        self.register_buffer("average", torch.zeros(16))

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        pace(self.trainer.strategy.run)
        inputs, targets = batch
        outputs = self.net(inputs)
        loss = torch.nn.functional.cross_entropy(outputs, targets)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.log("largest", outputs.abs().max(), on_epoch=True, reduce_fx="max")
        self.log("place", float(batch_idx), on_step=True)
        return {"loss": loss}

    def on_before_zero_grad(self, optimizer: Any) -> None:
        self.average.lerp_(self.net[1].bias.detach(), 0.1)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        norms = [parameter.grad.norm() for parameter in self.parameters() if parameter.grad is not None]
        self.log("norm", torch.stack(norms).norm(), on_step=True, on_epoch=True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, targets = batch
        outputs = self.net(inputs)
        self.seen.update(outputs.argmax(1) == targets)
        self.log("val_loss", torch.nn.functional.cross_entropy(outputs, targets))
        self.log("val_accuracy", self.seen)

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).argmax(1)  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        if self._plateau:
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=1.0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}
        total = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=total)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Data(lightning.LightningDataModule):  # type: ignore[misc]
    def setup(self, stage: str) -> None:
        self.train, self.val = Images(86, augment=True), Images(20, start=8)

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, batch_size=3, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val, batch_size=8)

    test_dataloader = predict_dataloader = val_dataloader


class Watching(callbacks.Callback):  # type: ignore[misc]
    """Counts the steps and keeps all metrics that it has seen, as a state that travels."""

    def __init__(self) -> None:
        self.num_steps, self.lines = 0, []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.num_steps += 1
        assert self.num_steps == trainer.global_step == trainer.strategy.run.step
        assert float(outputs["loss"]) == torch.tensor(trainer.strategy.run.loss)
        assert batch_idx + 1 == min((self.num_steps - trainer.current_epoch * 6) * 5, 29)
        self.lines.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        mark(f"save-{trainer.global_step}")

    def state_dict(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps, "lines": self.lines}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_steps, self.lines = state["num_steps"], list(state["lines"])


class Told:
    """What the training has come to, and what is found after it."""

    def __init__(self, trainer: Any, tested: Any, predicted: Any) -> None:
        self._trainer, self._tested, self._predicted = trainer, tested, predicted

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "metrics": dict(trainer.callback_metrics),
            "tested": self._tested,
            "predicted": self._predicted,
            "best": trainer.checkpoint_callback.best_model_score,
            "step": trainer.global_step,
            "epoch": trainer.current_epoch,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=None)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--plateau", action="store_true")
    args = parser.parse_args()
    scratch = tempfile.TemporaryDirectory()
    lightning.seed_everything(3)
    module, watching = Module(plateau=args.plateau), Watching()
    mixed = plugins.MixedPrecision(args.precision, "cpu") if args.precision == "16-mixed" else None
    if mixed is not None:
        mixed.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    saving = callbacks.ModelCheckpoint(args.out or scratch.name, monitor="val_loss", save_top_k=2, save_last=True)
    trainer = lightning.Trainer(
        strategy=LegatoStrategy(),
        accelerator="cpu",
        accumulate_grad_batches=5,
        max_epochs=3,
        max_steps=args.max_steps,
        precision=None if mixed is not None else args.precision,
        plugins=mixed,
        gradient_clip_val=0.5,
        val_check_interval=15,
        log_every_n_steps=2,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        callbacks=[watching, saving, callbacks.EarlyStopping("val_loss", patience=20)],
    )
    trainer.fit(module, datamodule=Data())
    run, optimizer, scheduler = trainer.strategy.run, trainer.optimizers[0], trainer.lr_scheduler_configs[0].scheduler
    assert all(Path(path).exists() for path in saving.best_k_models), saving.best_k_models
    states = [thing.state_dict() for thing in (optimizer, scheduler)]
    tested = trainer.test(module, datamodule=Data(), verbose=False)
    predicted = trainer.predict(module, datamodule=Data())
    tell(run, module, *map(Kept, states), Told(trainer, tested, predicted), watching)


class Kept:
    """A state as it was."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        return self._state


if __name__ == "__main__":
    main()
