"""A program for ElasticDL as its tutorial writes them: digits, two loader processes, a fixed global batch.

Each mini-batch takes a configured time, which stands for an accelerator's time. What it writes down is all that
users' programs do not. The first argument is a JSON object: directory, num_records, num_epochs, batch_size, wait_s.
"""

# ruff: noqa: E402, I001 -- the first thing to do is to look at the clock
from __future__ import annotations

import time

_BEGUN = time.monotonic()

import json
import os
import sys
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from benchmarks.diary import DiaryWriter
from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from elasticai_api.pytorch.optimizer import DistributedOptimizer

CASE = json.loads(sys.argv[1])


class Digits(Dataset):
    """Images of shape ``[784]``, made from their number."""

    def __init__(self, data_shard_service):
        self.data_shard_service = data_shard_service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        index = self.data_shard_service.fetch_record_index()
        generator = torch.Generator().manual_seed(index)
        return torch.randn(784, generator=generator), index % 10


def train_one_batch(model, optimizer, data, target):
    optimizer.zero_grad()
    loss = cross_entropy(model(data), target)
    loss.backward()
    time.sleep(CASE["wait_s"])
    optimizer.step()
    return loss


def main():
    diary = DiaryWriter(Path(CASE["directory"]))
    diary.note("begun", _BEGUN)
    num_workers = int(os.environ["WORKER_NUM"])
    service = RecordIndexService(
        batch_size=CASE["batch_size"],
        dataset_size=CASE["num_records"],
        num_epochs=CASE["num_epochs"],
        shuffle=True,
        dataset_name="digits",
    )
    loader = DataLoader(dataset=Digits(service), batch_size=CASE["batch_size"], num_workers=2)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), fixed_global_batch_size=True)
    controller = PyTorchAllReduceController(service)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    train_one = controller.elastic_run(train_one_batch)
    step = 0
    with controller.scope():
        for data, target in loader:
            train_one(model, optimizer, data, target)
            now = -(-controller.global_completed_batch_num // num_workers)
            if now > step:
                step = now
                diary.note("step", time.monotonic(), step=step, num_workers=hvd.size())
    diary.note("ended", time.monotonic())


if __name__ == "__main__":
    main()
