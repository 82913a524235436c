"""ElasticDL's logger: lines with time, level and place on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Final

_FORM: Final = "[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d:%(funcName)s] %(message)s"


def get_logger(name: str, level: str = "INFO", handlers: list[logging.Handler] | None = None) -> logging.Logger:
    """Return a logger of this name, with its own handler.

    Args:
        name: of the logger.
        level: its name.
        handlers: in place of the one to standard error.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.propagate = False
    if not logger.handlers:
        for handler in handlers or [logging.StreamHandler(sys.stderr)]:
            handler.setFormatter(logging.Formatter(_FORM))
            logger.addHandler(handler)
    return logger


default_logger = get_logger("elastic.logger")
