"""``from edtcallback import EDTLoggerCallback``, for programs that bring none of their own."""

from legato.compat.wmla.fabric.loggers import EDTLoggerCallback

__all__ = ["EDTLoggerCallback"]
