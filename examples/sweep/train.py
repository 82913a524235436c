"""A small network learns to read handwritten digits, with a learning rate and a width that a sweep chooses.

Run it alone: legato run train.py --lr 0.003 --width 32. Search for the best parameters: legato sweep sweep.yaml
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
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--width", type=int, required=True)
arguments = parser.parse_args()

images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = images.float() / 16
train_set = TensorDataset(images[:1500], digits[:1500])
test_set = TensorDataset(images[1500:], digits[1500:])

run = legato.elastic(global_batch_size=64, micro_batch_size=16, seed=0)
model = nn.Sequential(nn.Linear(64, arguments.width), nn.ReLU(), nn.Linear(arguments.width, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
model, optimizer = run.prepare(model, optimizer)

for _ in run.epochs(arguments.epochs):
    model.train()
    for inputs, targets in run.batches(train_set):
        run.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()

    model.eval()
    with torch.no_grad():
        num_right = sum(
            (model(inputs.to(run.device)).argmax(1).cpu() == targets).sum().item()
            for inputs, targets in DataLoader(test_set, 64)
        )
    run.log(accuracy=num_right / len(test_set))

digest = hashlib.sha256(b"".join(tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values()))
print(f"weights sha256 {digest.hexdigest()}")
