"""For ``from elog import ELog`` in programs without a module of this name."""

from legato.compat.wmla.fabric.records import ELog

__all__ = ["ELog"]
