"""Trains for two epochs, and logs a metric that depends on its rate: for sweeps."""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import TensorDataset

import legato

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--kind", required=True)
options = parser.parse_args()

run = legato.elastic(global_batch_size=8, micro_batch_size=4, seed=0)
model = nn.Linear(4, 1)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=options.rate / 100))
for _ in run.epochs(2):
    for (inputs,) in run.batches(TensorDataset(torch.ones(16, 4))):
        run.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    run.log(accuracy=1 - abs(math.log10(options.rate) + 1) / 2 + 0.1 * (options.kind == "fine"))
