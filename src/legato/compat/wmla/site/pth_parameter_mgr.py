"""For ``import pth_parameter_mgr``: gives programs that were made for the console of DLI 1.2 their settings.

DLI's console had a form for these settings. In Legato they are environment variables of the job, set with
``--msd-env``: ``DLI_EPOCHS`` (default 1), ``DLI_TRAIN_BATCH_SIZE`` (64), ``DLI_TEST_BATCH_SIZE`` (64),
``DLI_LEARNING_RATE`` (0.01), ``DLI_MOMENTUM`` (0.9) and ``DLI_WEIGHT_DECAY`` (0). The data set is ``DATA_DIR``.
"""

# ruff: noqa: N802 - the names that programs use

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any, TypeVar

from legato.core.errors import UsageError

_Number = TypeVar("_Number", int, float)


def getTrainData(_: bool = False) -> str:
    """Return the directory of the training data."""
    return _data()


def getTestData(_: bool = False) -> str:
    """Return the directory of the test data."""
    return _data()


def getTrainBatchSize() -> int:
    """Return the batch size of the training."""
    return _read("DLI_TRAIN_BATCH_SIZE", int, 64)


def getTestBatchSize() -> int:
    """Return the batch size of the test."""
    return _read("DLI_TEST_BATCH_SIZE", int, 64)


def getEpoch() -> int:
    """Return the number of epochs."""
    return _read("DLI_EPOCHS", int, 1)


def getOptimizer(model: Any) -> Any:
    """Return an SGD optimizer of the model's trainable parameters."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, momentum = _read("DLI_LEARNING_RATE", float, 0.01), _read("DLI_MOMENTUM", float, 0.9)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=_read("DLI_WEIGHT_DECAY", float, 0.0))


def getLearningRate(optimizer: Any) -> Any:
    """Return a learning-rate scheduler that does not change the rate."""
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)


def _data() -> str:
    found = os.environ.get("DATA_DIR")
    if found is None:
        raise UsageError("DATA_DIR is not set. Submit with --cs-datastore-meta type=fs,data_path=PATH.")
    return found


def _read(name: str, kind: Callable[[str], _Number], default: _Number) -> _Number:
    value = os.environ.get(name)
    try:
        return default if value is None else kind(value)
    except ValueError as error:
        raise UsageError(f"{name}={value} is not a number. Set it with --msd-env {name}=NUMBER.") from error


def _prefer_own_module() -> None:
    """Replace this module by a module of the same name that the program provides."""
    own = Path(__file__).parent
    found = PathFinder.find_spec(__name__, [entry for entry in sys.path if Path(entry).absolute() != own])
    if found is not None and found.loader is not None:
        sys.modules[__name__] = module_from_spec(found)
        found.loader.exec_module(sys.modules[__name__])


if __name__ == "pth_parameter_mgr":
    _prefer_own_module()
