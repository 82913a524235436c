"""What is said of parts of ElasticDL that are not supported."""

from __future__ import annotations

from typing import NoReturn


def refuse_tensorflow(name: str) -> NoReturn:
    """Say that a name for TensorFlow is not supported.

    Raises:
        AttributeError: Python asks for a name of its own.
        ImportError: a program asks.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"{name} for TensorFlow is not supported. Programs in PyTorch run with elasticai_api.pytorch; Keras models are "
        "trained by FabricModel (docs/wmla.md)."
    )
