"""``from callbacks import Callback, LoggerCallback``, as programs say it."""

from legato.compat.wmla.fabric.callbacks import Callback, LoggerCallback

__all__ = ["Callback", "LoggerCallback"]
