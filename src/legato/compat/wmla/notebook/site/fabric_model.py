"""``from fabric_model import FabricModel``, as notebooks of WMLA 4.0 say it."""

from legato.compat.wmla.notebook.model import FabricModel

__all__ = ["FabricModel"]
