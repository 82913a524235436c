"""A small network learns to read handwritten digits, by Lightning's Trainer; nothing is downloaded.

Alone:  python examples/lightning_digits.py    With workers:  legato run --workers 1..4 examples/lightning_digits.py
Without `strategy=LegatoStrategy()` it is a program without Legato. It needs pip install 'legato[lightning]'.
"""

import argparse
import hashlib

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from legato.integrations.lightning import LegatoStrategy


class Digits(lightning.LightningDataModule):
    def setup(self, stage: str) -> None:
        images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
        images = images.float() / 16
        self.training = TensorDataset(images[:1500], digits[:1500])
        self.validation = TensorDataset(images[1500:], digits[1500:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, batch_size=16, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.validation, batch_size=128)


class Reader(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, digits = batch
        loss = cross_entropy(self.net(images), digits)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        images, digits = batch
        found = self.net(images)
        self.log("val_loss", cross_entropy(found, digits))
        self.log("val_accuracy", (found.argmax(1) == digits).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", default="digits-lightning")
    arguments = parser.parse_args()

    lightning.seed_everything(0)
    model = Reader()
    trainer = lightning.Trainer(
        strategy=LegatoStrategy(),
        # A step has 4 micro-batches of 16 samples, which up to 4 workers share.
        accumulate_grad_batches=4,
        max_epochs=arguments.epochs,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=False,
        callbacks=[
            ModelCheckpoint(arguments.out, monitor="val_accuracy", mode="max"),
            EarlyStopping("val_loss", patience=5),
        ],
    )
    trainer.fit(model, datamodule=Digits())
    print(f"accuracy {float(trainer.callback_metrics['val_accuracy']):.4f}")
    weights = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
    print("weights sha256", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
