"""As the notebook of Cloud Pak for Data 3.5: a step and a test of the program's own, and ONNX."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from callbacks import Callback
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from ready import gated
from torchvision import datasets, transforms


class LRScheduleCallback(Callback):
    def on_epoch_begin(self, epoch: int) -> None:
        for group in self.params["optimizer"].param_groups:
            group["lr"] = 0.1 * 0.8**epoch


def fn_step_train(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> Any:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs, labels = data
    inputs, labels = inputs.to(device), labels.to(device)
    cri = model.get_loss_function()
    opt = model.get_optimizer()
    opt.zero_grad()
    outputs = model(inputs)
    loss = cri(outputs, labels)
    loss.backward()
    acc = eva(outputs, labels)
    return acc, loss


def fn_test(model: Any, test_iter: Any, fn_args: Any) -> Any:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cri = model.get_loss_function()
    validate_loss = 0.0
    num_batches = 0
    with torch.no_grad():
        for inputs, labels in test_iter:
            outputs = model(inputs.to(device))
            validate_loss += cri(outputs, labels.to(device)).item()
            num_batches += 1
    return validate_loss / num_batches


def getDatasets() -> Any:
    root = os.environ["DATA_DIR"]
    change = transforms.Compose([transforms.RandomRotation(10), transforms.ToTensor()])
    return datasets.MNIST(root, transform=change), datasets.MNIST(root, train=False, transform=transforms.ToTensor())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--numWorker", type=int, default=16)
    parser.add_argument("--gpuPerWorker", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args, _ = parser.parse_known_args()
    model = nn.Sequential(nn.Conv2d(1, 4, 5, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    edt_m = FabricModel(
        model,
        getDatasets,
        gated(F.cross_entropy),
        optimizer,
        enable_onnx=True,
        fn_step_train=fn_step_train,
        fn_test=fn_test,
        user_callback=[LRScheduleCallback()],
        driver_logger=EDTLoggerCallback(),
    )
    edt_m.train(
        args.epochs,
        16,
        args.numWorker * args.gpuPerWorker,
        num_dataloader_threads=4,
        validation_freq=1,
        checkpoint_freq=0,
    )


if __name__ == "__main__":
    main()
