"""As the samples for notebooks of WMLA 4.8, submitted as a program: all by position, and a download at the end."""

from __future__ import annotations

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from pyedt.fabric_model import FabricModel
from ready import paced
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 24)
        self.fc2 = nn.Linear(24, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)


def get_dataset():
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    root = os.environ.get("DATA_DIR", ".")
    return datasets.MNIST(root, train=True, transform=change), datasets.MNIST(root, train=False, transform=change)


model = Net()
edt_model = FabricModel(model, get_dataset, paced(F.nll_loss), torch.optim.SGD(model.parameters(), lr=0.1))
edt_model.train(2, 32, 2)
edt_model.download(os.environ["RESULT_DIR"] + "/model")
