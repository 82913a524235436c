"""As the tutorial's program: ``fabric.zip`` first on the path, a folder of images, a frozen network with a new head, a
schedule that the program never steps, a loss below zero, arguments of which it knows some.
"""

# ruff: noqa: N812, PTH118 - as programs of users are written

from __future__ import annotations

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
from fabric_model import FabricModel

sys.path.insert(1, os.environ["WMLA_TEST_PROGRAMS"])

import torch
import torch.nn.functional as F
from edtcallback import EDTLoggerCallback
from wmla_reins import paced, tell_end

BATCH_SIZE = 8


class Folder(torch.utils.data.Dataset):
    """Images of two classes, in a folder each, read with every access."""

    def __init__(self, root: str) -> None:
        self.samples = [
            (os.path.join(root, name, file), label)
            for label, name in enumerate(sorted(os.listdir(root)))
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        image = torch.load(path)
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), label


def get_datasets() -> tuple[Folder, Folder]:
    root = os.environ["DATA_DIR"]
    return Folder(os.path.join(root, "train")), Folder(os.path.join(root, "val"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--numWorker", type=int, default=100)
    args, unknown = parser.parse_known_args()
    print("not known:", *unknown)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 8)
    )
    for parameter in model.parameters():
        parameter.requires_grad = False
    model[4] = torch.nn.Linear(144, 2)
    optimizer = torch.optim.SGD(model[4].parameters(), lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    edt = FabricModel(model, get_datasets, paced(F.nll_loss), optimizer, driver_logger=EDTLoggerCallback())
    edt.train(args.epochs, BATCH_SIZE, args.numWorker, validation_freq=3)
    tell_end(args.epochs, model, optimizer)


if __name__ == "__main__":
    main()
