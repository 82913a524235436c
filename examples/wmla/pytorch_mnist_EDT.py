"""Handwritten digits with PyTorch and FabricModel, as programs for IBM WMLA are written.

Submit:  legato submit --framework edtPyTorch --workers 1..4 --data pytorch-mnist pytorch_mnist_EDT.py
Or by WMLA's own command, dlicmd.py --exec-start edtPyTorch, or in the console as a training definition.
The data are MNIST's files as they are downloaded and unzipped, in DATA_DIR/MNIST/raw.
"""

import argparse
import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from fabric_model import FabricModel
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset


def read_idx(name: str) -> torch.Tensor:
    """Return the array in a file of MNIST."""
    content = Path(os.environ["DATA_DIR"], "MNIST", "raw", name).read_bytes()
    num_axes = content[3]
    shape = np.frombuffer(content, ">i4", num_axes, 4).tolist()
    return torch.tensor(np.frombuffer(content, np.uint8, -1, 4 + 4 * num_axes).reshape(shape))


def get_datasets() -> tuple[TensorDataset, TensorDataset]:
    """Return the digits for training and for testing. FabricModel calls this function in each worker."""

    def read(part: str) -> TensorDataset:
        images, digits = read_idx(f"{part}-images-idx3-ubyte"), read_idx(f"{part}-labels-idx1-ubyte")
        return TensorDataset(images[:, None].float() / 255, digits.long())

    return read("train"), read("t10k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batchsize", type=int, default=16, help="of each worker")
    parser.add_argument("--numWorker", type=int, default=4, help="maximum number of GPUs")
    arguments = parser.parse_args()

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 7 * 7, 10),
    )
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    fabric = FabricModel(model, get_datasets, cross_entropy, optimizer)
    fabric.train(arguments.epochs, arguments.batchsize, arguments.numWorker)

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    print(f"weights sha256 {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
