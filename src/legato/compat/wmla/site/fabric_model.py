"""``from fabric_model import FabricModel``, as programs of all generations say it."""

from legato.compat.wmla.fabric.model import FabricModel

__all__ = ["FabricModel"]
