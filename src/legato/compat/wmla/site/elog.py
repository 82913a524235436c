"""``from elog import ELog``, for programs that bring none of their own."""

from legato.compat.wmla.fabric.records import ELog

__all__ = ["ELog"]
