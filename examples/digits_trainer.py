"""A small network learns to read handwritten digits, without a training loop in the program.

Alone:  python examples/digits_trainer.py    With workers:  legato run --workers 1..4 examples/digits_trainer.py
"""

import argparse
import hashlib

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import legato
from legato.train.loop.trainer import EpochRecord


class StopWhenGood(legato.Callback):
    """Ends the training once the network reads well enough."""

    def __init__(self, accuracy: float) -> None:
        self.accuracy = accuracy

    def on_epoch_end(self, trainer: legato.Trainer, record: EpochRecord) -> None:
        if record.metrics["accuracy"] >= self.accuracy:
            trainer.stop(f"accuracy {record.metrics['accuracy']:.4f} is good enough")


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * 4 * 4, 10),
    )


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()

    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float().reshape(-1, 1, 8, 8) / 16
    trainer = legato.Trainer(
        make_model,
        TensorDataset(images[:1500], digits[:1500]),
        cross_entropy,
        lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
        val_set=TensorDataset(images[1500:], digits[1500:]),
        metrics={"accuracy": accuracy},
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        global_batch_size=64,
        micro_batch_size=16,
        callbacks=[StopWhenGood(0.93)],
    )
    history = trainer.fit(arguments.epochs)

    if trainer.run.is_main:
        print(f"{len(history)} epochs, ended because: {history.stopped or 'that is what was asked for'}")
        weights = trainer.model.state_dict().values()
        digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in weights))
        print(f"weights sha256 {digest.hexdigest()}")


if __name__ == "__main__":
    main()
