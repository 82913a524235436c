"""As the models of the console of DLI 1.2: their settings come from ``pth_parameter_mgr``, found by ``--train_dir``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--train_dir", type=str, default=None)
parser.add_argument("--weights", type=str, default=None)
args, unknown = parser.parse_known_args()
sys.path.append(os.path.join(args.train_dir, "..", ""))

import pth_parameter_mgr
from fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms


def getDatasets() -> Any:
    change = transforms.Compose([transforms.Resize(14), transforms.ToTensor()])
    train = datasets.MNIST(pth_parameter_mgr.getTrainData(False), train=True, transform=change)
    return train, datasets.MNIST(pth_parameter_mgr.getTestData(False), train=False, transform=change)


def main() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(196, 10))
    optimizer = pth_parameter_mgr.getOptimizer(model)
    pth_parameter_mgr.getLearningRate(optimizer)
    epochs, batch_size = pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize()
    FabricModel(model, getDatasets, gated(F.cross_entropy), optimizer).train(epochs, batch_size, 16)


if __name__ == "__main__":
    main()
