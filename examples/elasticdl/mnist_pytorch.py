"""Handwritten digits with PyTorch, as programs for ElasticDL's elasticai_api are written.

Submit:  elasticdl train --job_name=digits --num_workers=4 --distribution_strategy=AllreduceStrategy \
           --job_command="python mnist_pytorch.py --training_data=/data/training --validation_data=/data/testing"
Or:      legato submit --framework elasticdl --workers 1..4 mnist_pytorch.py -- --training_data=… --validation_data=…
The data are PNG files in a folder for each class.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from elasticai_api.pytorch.optimizer import DistributedOptimizer
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, int]


class Digits(Dataset[Sample]):
    """Images in folders. With a shard service, the service says which image comes next."""

    def __init__(self, root: str, shards: RecordIndexService | None = None) -> None:
        folders = sorted(Path(root).iterdir())
        self.files = [(path, label) for label, folder in enumerate(folders) for path in sorted(folder.iterdir())]
        self.shards = shards

    def __len__(self) -> int:
        return len(self.files) if self.shards is None else sys.maxsize

    def __getitem__(self, index: int) -> Sample:
        path, label = self.files[index if self.shards is None else self.shards.fetch_record_index()]
        pixels = np.asarray(Image.open(path).convert("L"), dtype=np.float32) / 255
        return torch.from_numpy(pixels)[None], label


def train_one_batch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


def test(model: nn.Module, digits: Digits) -> None:
    model.eval()
    with torch.no_grad():
        right = [model(images).argmax(1) == labels for images, labels in DataLoader(digits, batch_size=64)]
    print(f"accuracy {torch.cat(right).float().mean():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--training_data", required=True)
    parser.add_argument("--validation_data", required=True)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--num_epochs", type=int, default=2)
    arguments = parser.parse_args()

    shards = RecordIndexService(
        batch_size=arguments.batch_size,
        dataset_size=len(Digits(arguments.training_data)),
        num_epochs=arguments.num_epochs,
        shuffle=True,
        dataset_name="digits",
    )
    loader = DataLoader(Digits(arguments.training_data, shards), batch_size=arguments.batch_size)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 10)
    )
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), fixed_global_batch_size=True
    )
    controller = PyTorchAllReduceController(shards)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    elastic_train_one_batch = controller.elastic_run(train_one_batch)
    with controller.scope():
        for images, labels in loader:
            model.train()
            elastic_train_one_batch(model, optimizer, images, labels)
    test(model, Digits(arguments.validation_data))

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    print(f"weights sha256 {digest.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
