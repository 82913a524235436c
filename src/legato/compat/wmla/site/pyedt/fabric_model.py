"""``from pyedt.fabric_model import FabricModel``, as programs of WMLA 4.8 and later say it."""

from legato.compat.wmla.fabric.model import FabricModel

__all__ = ["FabricModel"]
