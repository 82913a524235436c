"""As the program that a search of hyperparameters runs: a folder of images, a frozen network with a new last layer, a
schedule that the program never steps, a loss below zero, and its parameters in ``config.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.getenv("FABRIC_HOME"), "libs", "fabric.zip"))
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from ready import gated
from torch.optim import lr_scheduler
from torchvision import datasets, transforms

dataDir = os.environ.get("DATA_DIR")
config = os.path.join(os.environ["RESULT_DIR"], "_submitted_code", "insects", "config.json")
with open(config) as file:
    hyperparameters = json.load(file)
print("hyperparameters:", hyperparameters)


def getDatasets() -> Any:
    change = {
        "train": transforms.Compose(
            [transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        ),
        "val": transforms.Compose([transforms.Resize(28), transforms.CenterCrop(24), transforms.ToTensor()]),
    }
    return tuple(datasets.ImageFolder(os.path.join(dataDir, part), change[part]) for part in ("train", "val"))


def make_model() -> nn.Module:
    torch.manual_seed(18)  # in the place of weights from a file
    model = nn.Sequential()
    model.add_module("conv1", nn.Conv2d(3, 8, 5, 2))
    model.add_module("bn1", nn.BatchNorm2d(8))
    model.add_module("relu", nn.ReLU())
    model.add_module("flatten", nn.Flatten())
    model.add_module("fc", nn.Linear(800, 16))
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numWorker", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batchsize", type=int, default=8)
    args, _ = parser.parse_known_args()
    model_conv = make_model()
    for param in model_conv.parameters():
        param.requires_grad = False
    model_conv.fc = nn.Linear(model_conv.fc.in_features, 2)
    optimizer_conv = optim.SGD(
        model_conv.fc.parameters(), lr=float(hyperparameters["lr"]), momentum=float(hyperparameters["momentum"])
    )
    exp_lr_scheduler = lr_scheduler.StepLR(optimizer_conv, step_size=7, gamma=0.1)  # noqa: F841 - as it is written
    edt_m = FabricModel(model_conv, getDatasets, gated(F.nll_loss), optimizer_conv, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, args.batchsize, args.numWorker)


if __name__ == "__main__":
    main()
