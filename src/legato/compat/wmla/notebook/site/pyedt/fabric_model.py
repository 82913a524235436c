"""For ``from pyedt.fabric_model import FabricModel`` in notebooks of WMLA 4.8 and later."""

from legato.compat.wmla.notebook.model import FabricModel

__all__ = ["FabricModel"]
