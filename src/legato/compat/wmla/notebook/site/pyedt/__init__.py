"""The engine's package of WMLA 4.8 and later: ``from pyedt.fabric_model import FabricModel``."""
