"""As the plug-in samples of WMLA 1.2.3: MNIST by torchvision, arguments of which it knows some, loss by position."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, 2)
        self.conv2 = nn.Conv2d(6, 8, 3, 2)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(288, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc1(torch.flatten(self.dropout1(x), 1))


def get_datasets() -> Any:
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    path = os.environ["DATA_DIR"]
    train = datasets.MNIST(path, train=True, download=True, transform=transform)
    return train, datasets.MNIST(path, train=False, download=True, transform=transform)


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    args, unknown = parser.parse_known_args()
    print("args:", args, "unknown:", unknown)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    edt_m = FabricModel(model, get_datasets, gated(F.cross_entropy), optimizer, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, args.batch_size, 16)


if __name__ == "__main__":
    main()
