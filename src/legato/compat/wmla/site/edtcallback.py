"""For ``from edtcallback import EDTLoggerCallback`` in programs without a module of this name."""

from legato.compat.wmla.fabric.loggers import EDTLoggerCallback

__all__ = ["EDTLoggerCallback"]
