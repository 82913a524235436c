"""For ``from fabric_model import FabricModel`` in notebooks of WMLA 4.0."""

from legato.compat.wmla.notebook.model import FabricModel

__all__ = ["FabricModel"]
