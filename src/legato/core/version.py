"""The version of Legato, where every package may read it."""

__version__ = "0.1.0"
