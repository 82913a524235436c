"""Legato: elastic distributed training whose result does not depend on the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from legato.core.version import __version__

__all__ = ["Callback", "Client", "Trainer", "__version__", "elastic", "load_weights"]

if TYPE_CHECKING:
    from legato.client.client import Client
    from legato.train.checkpoints.weights import load_weights
    from legato.train.loop.elastic import elastic
    from legato.train.loop.trainer import Callback, Trainer


def __getattr__(name: str) -> Any:
    # torch is loaded on first use only: the command line and the client must start fast and work without it. What the
    # client needs is loaded so too: programs that train need none of it.
    if name == "elastic":
        from legato.train.loop.elastic import elastic

        return elastic
    if name == "Client":
        from legato.client.client import Client

        return Client
    if name == "Callback":
        from legato.train.loop.trainer import Callback

        return Callback
    if name == "Trainer":
        from legato.train.loop.trainer import Trainer

        return Trainer
    if name == "load_weights":
        from legato.train.checkpoints.weights import load_weights

        return load_weights
    raise AttributeError(f"module 'legato' has no attribute {name!r}")
