"""The server's own log: one form for all lines, whoever writes them. Keeps no file: lines go to standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

from legato.control.settings import Settings

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
# They tell of every connection, or of what is said elsewhere.
_QUIET: Final = (
    *("uvicorn", "uvicorn.error", "uvicorn.access", "websockets", "asyncio", "alembic", "sqlalchemy"),
    *("httpx", "httpcore"),  # what guests ask
)


def begin_log(settings: Settings) -> None:
    """Set up the log of this process."""
    is_text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ends: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    # Plain ones: variables, which others would show, may hold passwords and tokens.
    if is_text:
        plain = structlog.dev.plain_traceback
        ends.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain))
    else:
        ends += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=ends))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[settings.log_level])
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
