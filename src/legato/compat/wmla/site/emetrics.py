"""``from emetrics import EMetrics``, for programs that bring none of their own."""

from legato.compat.wmla.fabric.records import EMetrics

__all__ = ["EMetrics"]
