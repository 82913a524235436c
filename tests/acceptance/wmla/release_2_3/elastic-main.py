"""As the samples of WMLA 2.2 and 2.3: all arguments must be known; a callback exports to ONNX, on a GPU."""

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


class EDTTrainCallback(Callback):
    def __init__(self, model_path: str) -> None:
        super().__init__()
        self.model_path = model_path

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        if epoch == self.params["epochs"] - 1 and save_model:
            dummy = torch.randn(1, 1, 28, 28, device="cuda")
            torch.onnx.export(self.model, dummy, os.path.join(self.model_path, "trained_model.onnx"))


def get_datasets() -> Any:
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    path = os.environ["DATA_DIR"]
    return datasets.MNIST(path, True, change, download=True), datasets.MNIST(path, False, change, download=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--no-cuda", action="store_true", default=False)
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    print("Title:", args.title)
    model_path = os.path.join(os.environ["RESULT_DIR"], "model")
    if not os.path.exists(model_path):
        os.makedirs(model_path)
    model = nn.Sequential(nn.Conv2d(1, 4, 5, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    edt_m = FabricModel(
        model,
        get_datasets,
        gated(F.cross_entropy),
        torch.optim.Adadelta(model.parameters(), lr=1.0),
        driver_logger=EDTLoggerCallback(),
        user_callback=[EDTTrainCallback(model_path)],
    )
    edt_m.train(args.epochs, 16, 16)


if __name__ == "__main__":
    main()
