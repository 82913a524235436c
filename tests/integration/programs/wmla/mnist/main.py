"""As a sample of WMLA 2.x: MNIST through torchvision, strict arguments, a logger of its own, positional ``train``."""

# ruff: noqa: E402, N812, PTH118 - as programs of users are written

from __future__ import annotations

import argparse
import os
import sys

sys.path.insert(1, os.environ["WMLA_TEST_PROGRAMS"])

import torch
import torch.nn.functional as F
from wmla_reins import declare_torchvision_operators, paced, tell_end

declare_torchvision_operators()

from callbacks import Callback
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from torchvision import datasets, transforms

BATCH_SIZE, ENGINES = 4, 8


class TrainCallback(Callback):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        if epoch == self.params["epochs"] - 1 and save_model:
            x = torch.randn(1, 1, 28, 28, device="cuda")
            torch.save(self.model(x), os.path.join(self.path, "trained.pt"))


def get_datasets() -> tuple[datasets.MNIST, datasets.MNIST]:
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    root = os.environ["DATA_DIR"]
    return datasets.MNIST(root, train=True, transform=change), datasets.MNIST(root, train=False, transform=change)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 5, 4),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(144, 10),
        torch.nn.LogSoftmax(1),
    )
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    edt = FabricModel(
        model,
        get_datasets,
        paced(F.nll_loss),
        optimizer,
        driver_logger=EDTLoggerCallback(),
        user_callback=[TrainCallback(os.environ["RESULT_DIR"] + "/model")],
    )
    edt.train(args.epochs, BATCH_SIZE, ENGINES)
    num_samples = len(get_datasets()[0])
    tell_end(args.epochs * -(-num_samples // (BATCH_SIZE * ENGINES)), model, optimizer)


if __name__ == "__main__":
    main()
