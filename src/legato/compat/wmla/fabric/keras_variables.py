"""Converts values between TensorFlow and torch.

This module imports TensorFlow only when it is used: Keras programs have imported it before.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch


def tensorflow() -> Any:
    """Return the module ``tensorflow``."""
    return importlib.import_module("tensorflow")


def keras_of(model: Any) -> Any:
    """Return the module that a Keras model is made with, ``keras`` or ``tf_keras``; None if it is not a Keras model.

    The program has imported this module before.
    """
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "Model" and package in ("keras", "tf_keras"):
            return importlib.import_module(package)
    return None


def is_keras_2(keras: Any) -> bool:
    """Return whether a Keras module has the interfaces of release 2."""
    return str(keras.__version__).startswith("2.") or keras.__name__ == "tf_keras"


def view(value: Any) -> torch.Tensor:
    """Return the present value of a TensorFlow tensor or variable, without a copy if possible. Do not write to it."""
    tf = tensorflow()
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype == tf.bool:
        return torch.from_numpy(np.array(tensor))
    return torch.utils.dlpack.from_dlpack(tensor)


def copy(value: torch.Tensor) -> Any:
    """Return a TensorFlow tensor with a copy of a torch tensor's values."""
    tf = tensorflow()
    own = value.detach().clone()
    if own.device.type == "cpu" and own.dtype is not torch.bfloat16:
        # TensorFlow may use the memory of the array itself, so the array must not be shared.
        return tf.convert_to_tensor(own.numpy())
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(own))  # type: ignore[attr-defined]


def name_of(variable: Any) -> str:
    """Return the name of a variable: its path in Keras 3, its name in Keras 2."""
    return str(getattr(variable, "path", None) or variable.name)
