"""As the program of the learning journey: ``fabric.zip`` first on the path, variables without which it stops."""

from __future__ import annotations

import argparse
import os
import sys
from os import environ
from typing import Any

path = os.path.join(environ["FABRIC_HOME"], "libs", "fabric.zip")
print(path)
sys.path.insert(0, path)
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms

data_dir = environ.get("DATA_DIR")
if data_dir is not None:
    print(f"data_dir is: {data_dir}")
else:
    print("Warning: not found DATA_DIR from os env!")
model_path = os.environ["RESULT_DIR"] + "/model/saved_model"
tb_directory = os.environ["LOG_DIR"] + "/tb"
print("model_path:", model_path)
print("tb_directory:", tb_directory)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, kernel_size=5, stride=2)
        self.conv2 = nn.Conv2d(5, 8, kernel_size=5, stride=2)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2_drop(self.conv2(x))).view(-1, 128)
        return F.log_softmax(self.fc1(x), dim=1)


def getDatasets() -> Any:
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    return (
        datasets.MNIST(data_dir, train=True, download=False, transform=change),
        datasets.MNIST(data_dir, train=False, download=False, transform=change),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numWorker", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batchsize", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.01)
    args, unknown = parser.parse_known_args()
    print("not known:", unknown)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.5)
    edt_m = FabricModel(model, getDatasets, gated(F.nll_loss), optimizer, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, args.batchsize, args.numWorker)
    print("edt_m done")


if __name__ == "__main__":
    main()
