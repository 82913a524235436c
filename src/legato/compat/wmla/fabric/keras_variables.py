"""Values between TensorFlow and torch. Never keeps memory that both could change.

TensorFlow is imported by the program; nothing here does so before.
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
    """Return the Keras that a model is made with: ``keras``, or ``tf_keras`` where both are installed.

    None if it is no Keras model. Nothing is imported that the program has not imported itself.
    """
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "Model" and package in ("keras", "tf_keras"):
            return importlib.import_module(package)
    return None


def is_keras_2(keras: Any) -> bool:
    """Tell whether this Keras has the interfaces of release 2."""
    return str(keras.__version__).startswith("2.") or keras.__name__ == "tf_keras"


def view(value: Any) -> torch.Tensor:
    """Return what a TensorFlow tensor or variable holds now, without a copy where that can be; not to be written to."""
    tf = tensorflow()
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype == tf.bool:
        return torch.from_numpy(np.array(tensor))
    return torch.utils.dlpack.from_dlpack(tensor)


def copy(value: torch.Tensor) -> Any:
    """Return a TensorFlow tensor with a copy of some values."""
    tf = tensorflow()
    own = value.detach().clone()
    if own.device.type == "cpu" and own.dtype is not torch.bfloat16:
        # TensorFlow may keep the memory of an array: it is this one's last owner.
        return tf.convert_to_tensor(own.numpy())
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(own))  # type: ignore[attr-defined]


def name_of(variable: Any) -> str:
    """Return the name of a variable, as far as it has one."""
    return str(getattr(variable, "path", None) or variable.name)
