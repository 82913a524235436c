"""As the manual of WMLA 4.0 to 5.0: metrics by name, loggers that inherit from nothing, a collate function."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from pyedt.fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms


class DriverLogger:
    def __init__(self) -> None:
        self.lines: list[Any] = []

    def on_train_begin(self) -> None:
        self.lines.append("begin")

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        assert set(metrics) == {"loss", "top3", "error"}, metrics
        assert {type(value) for value in metrics.values()} == {float}, metrics
        self.lines.append(["train", iteration, epoch, metrics])

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self.lines.append(["test", iteration, epoch, metrics])

    def on_train_end(self) -> None:
        with open(os.path.join(os.environ["RESULT_DIR"], "model", "told.json"), "w") as file:
            json.dump(self.lines, file)


class WorkerLogger:
    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        print(f"mine {iteration} of epoch {epoch}: {metrics['loss']:.5f}, with {workers} workers")

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        print(f"mine {iteration} of the test: {metrics['loss']:.5f}")


def top3(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.topk(3).indices == target[:, None]).any(1).float().mean()


def error(output: torch.Tensor, target: torch.Tensor) -> float:
    return (output.argmax(1) != target).float().mean().item()


def collate(batch: list[Any]) -> Any:
    return torch.stack([image for image, _ in batch]) - 0.5, torch.tensor([digit for _, digit in batch])


def read_data() -> Any:
    root = os.environ["DATA_DIR"]
    parts = [datasets.MNIST(root, train=train, transform=transforms.ToTensor()) for train in (True, False)]
    return parts[0], parts[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    edt_model = FabricModel(
        model=model,
        datasets_function=read_data,
        loss_function=gated(F.cross_entropy),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        metrics=[top3, error],
        driver_logger_callback=DriverLogger(),
        worker_logger_callback=WorkerLogger(),
        fn_batch_collate=collate,
    )
    edt_model.train(
        epoch_number=args.epochs, batch_size=16, effective_batch_size=64, num_dataloader_threads=4, checkpoint_freq=2
    )
    edt_model.download(os.environ["RESULT_DIR"] + "/model")


if __name__ == "__main__":
    main()
