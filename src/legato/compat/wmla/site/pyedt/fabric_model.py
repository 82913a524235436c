"""For ``from pyedt.fabric_model import FabricModel`` in programs of WMLA 4.8 and later."""

from legato.compat.wmla.fabric.model import FabricModel

__all__ = ["FabricModel"]
