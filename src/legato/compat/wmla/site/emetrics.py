"""For ``from emetrics import EMetrics`` in programs without a module of this name."""

from legato.compat.wmla.fabric.records import EMetrics

__all__ = ["EMetrics"]
