"""As the notebooks of CPD 3.5: a step and a test of the program's own, schedules in a callback, ONNX."""

# ruff: noqa: N812 - as programs of users are written

from __future__ import annotations

import os
import sys

sys.path.insert(1, os.environ["WMLA_TEST_PROGRAMS"])

import torch
import torch.nn.functional as F
from callbacks import Callback
from common import Images
from fabric_model import FabricModel
from wmla_reins import paced, tell_end

EPOCHS, BATCH_SIZE, ENGINES = 8, 2, 6


class LRScheduleCallback(Callback):
    def __init__(self) -> None:
        self.num_epochs = 0

    def on_epoch_begin(self, epoch: int) -> None:
        self.num_epochs += 1
        if self.num_epochs % 3 == 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        scheduler.step()


def get_datasets() -> tuple[Images, Images]:
    return Images(53, augment=True), Images(21, start=8)


def custom_train(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    optimizer = model.get_optimizer()
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    return eva(outputs, labels), loss


def custom_test(model, test_iter, fn_args):
    losses = [model.get_loss_function()(model(inputs), labels).item() for inputs, labels in test_iter]
    return sum(losses) / len(losses)


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.8)
edt = FabricModel(
    model,
    get_datasets,
    paced(F.cross_entropy),
    optimizer,
    enable_onnx=True,
    fn_step_train=custom_train,
    fn_test=custom_test,
    user_callback=[LRScheduleCallback()],
)
edt.train(EPOCHS, BATCH_SIZE, ENGINES, num_dataloader_threads=4, validation_freq=2, checkpoint_freq=0)
tell_end(EPOCHS * 5, model, optimizer)
