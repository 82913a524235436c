"""For ``from fabric_model import FabricModel`` in programs of both generations."""

from legato.compat.wmla.fabric.model import FabricModel

__all__ = ["FabricModel"]
