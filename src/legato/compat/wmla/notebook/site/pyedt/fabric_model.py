"""``from pyedt.fabric_model import FabricModel``, as notebooks of WMLA 4.8 and later say it."""

from legato.compat.wmla.notebook.model import FabricModel

__all__ = ["FabricModel"]
