"""For ``from callbacks import Callback, LoggerCallback`` in programs."""

from legato.compat.wmla.fabric.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
