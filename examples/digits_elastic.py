"""A small network learns to read handwritten digits.

This program exists twice: without Legato (`digits_plain.py`) and with it (`digits_elastic.py`). All differences:

    diff examples/digits_plain.py examples/digits_elastic.py
"""

import argparse
import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import legato

parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=5)
arguments = parser.parse_args()

images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = images.float().reshape(-1, 1, 8, 8) / 16
train_set = TensorDataset(images[:1500], digits[:1500])
test_set = TensorDataset(images[1500:], digits[1500:])

run = legato.elastic(global_batch_size=64, micro_batch_size=16, seed=0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(16 * 4 * 4, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer = run.prepare(model, optimizer)

for epoch in run.epochs(arguments.epochs):
    model.train()
    for inputs, targets in run.batches(train_set):
        loss = cross_entropy(model(inputs), targets)
        run.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    model.eval()
    device = next(model.parameters()).device
    num_right = 0
    with torch.no_grad():
        for inputs, targets in DataLoader(test_set, batch_size=64):
            num_right += (model(inputs.to(device)).argmax(1) == targets.to(device)).sum().item()
    print(f"epoch {epoch}  accuracy {num_right / len(test_set):.4f}")

digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values()))
print(f"weights sha256 {digest.hexdigest()}")
