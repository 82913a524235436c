"""``DDPController``: not supported."""  # noqa: N999 - its name

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DDPController":
        raise ImportError(
            "DDPController is not supported. Use PyTorchAllReduceController of elasticai_api.pytorch.controller, or a "
            "plain loop with legato.elastic."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
