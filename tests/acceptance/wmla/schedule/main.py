"""As the notebook of WMLA 1.2 that trains ResNet-50: the rate of learning decays in a callback; no logger."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from callbacks import Callback
from fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms


class LRScheduleCallback(Callback):
    def __init__(self) -> None:
        self.decay = 0.5

    def on_epoch_begin(self, epoch: int) -> None:
        if epoch > 0 and epoch % 2 == 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= self.decay
            print("epoch", epoch, "lr", self.params["optimizer"].param_groups[0]["lr"])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn(self.conv(x)))


def getDatasets() -> Any:
    root = os.environ["DATA_DIR"]
    change = transforms.Compose([transforms.RandomCrop(24, padding=2), transforms.ToTensor()])
    plain = transforms.Compose([transforms.Resize(24), transforms.ToTensor()])
    return datasets.MNIST(root, transform=change), datasets.MNIST(root, train=False, transform=plain)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numWorker", type=int, default=2)
    parser.add_argument("--gpuPerWorker", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    args, _ = parser.parse_known_args()
    stem = nn.Sequential(nn.Conv2d(1, 6, 3, 3), nn.ReLU())
    model = nn.Sequential(stem, Block(6), Block(6), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    edt_m = FabricModel(model, getDatasets, gated(F.cross_entropy), optimizer, user_callback=[LRScheduleCallback()])
    edt_m.train(
        args.epochs,
        16,
        args.numWorker * args.gpuPerWorker,
        num_dataloader_threads=4,
        validation_freq=10,
        checkpoint_freq=0,
    )


if __name__ == "__main__":
    main()
