"""As a user of FabricModel writes it: learns to read real digits, slowly as long as a file exists."""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from fabric_model import FabricModel
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--numWorker", type=int, default=16)
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--slow-while", required=True)
args, _ = parser.parse_known_args()


def get_datasets() -> Any:
    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, digits)
    return data, TensorDataset(images[:64].float() / 16, digits[:64])


def loss_function(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if Path(args.slow_while).exists():
        time.sleep(0.1)
    return cross_entropy(outputs, targets)


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
FabricModel(model, get_datasets, loss_function, optim.Adam(model.parameters(), lr=args.lr)).train(args.epochs, 8, 12)
