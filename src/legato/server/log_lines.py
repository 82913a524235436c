"""The server's own log. All loggers write lines of one format to stderr."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

from legato.control.settings import Settings

# Control characters, other line breaks, and characters that change the direction of the text.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROLS_BUT_BREAKS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
# These loggers write a line for every connection, or repeat what other lines say.
_QUIET: Final = (
    *("uvicorn", "uvicorn.error", "uvicorn.access", "websockets", "asyncio", "alembic", "sqlalchemy"),
    *("httpx", "httpcore"),  # requests of plugins
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
    if is_text:
        ends += [
            _escape_values,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_traceback),
        ]
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


def escape(text: str, *, keeps_lines: bool = False) -> str:
    r"""Return a text in which characters that control a terminal are escaped. Any client can choose paths and names.

    Args:
        text: from any source.
        keeps_lines: do not escape tabs and line breaks.

    >>> escape("\x1b]0;a\x07b\n")
    '\\x1b]0;a\\x07b\\x0a'
    """
    return (_CONTROLS_BUT_BREAKS if keeps_lines else _CONTROLS).sub(_write_out, text)


def _write_out(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_values(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # Only strings, because lines show the 'repr' of other values, which escapes these characters itself.
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = escape(value, keeps_lines=name in ("exception", "stack"))
    return line


def _write_traceback(stream: TextIO, error: Any) -> None:
    # Without the values of variables, which may be passwords and tokens.
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, error)
    stream.write(escape(plain.getvalue(), keeps_lines=True))
