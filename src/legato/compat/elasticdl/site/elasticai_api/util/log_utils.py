"""Loggers, as programs import them."""

from legato.compat.elasticdl.logs import default_logger, get_logger

__all__ = ["default_logger", "get_logger"]
