"""Sends the first request of a command by `http.client`, because to load httpx takes longer than most commands.

Only for a GET over plain HTTP, for which httpx has no proxy, certificate or redirect to think of. Only a plain answer
counts: status 200 and JSON of a known length, without a warning. After anything else, such as a refusal, the caller
sends the request again with httpx, which alone decides what to do. So errors, repetitions and warnings are the same
with and without this module.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from legato.api import WARNING

if TYPE_CHECKING:
    from http.client import HTTPResponse

# A server that is silent for longer gets a second request, by httpx, which waits longer.
_CONNECT_LIMIT_S: Final = 0.5
_ANSWER_LIMIT_S: Final = 2.0
_MAX_BYTES: Final = 2**25
_OK: Final = 200


def ask_first(url: str, path: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> bytes | None:
    """Send a GET request and return the body of its answer. None: send it with httpx, which is loaded or needed.

    Args:
        url: of the server.
        path: of the request.
        params: of the query; a list gives a parameter several times.
        headers: header fields.
    """
    if "httpx" in sys.modules:
        return None
    import http.client

    try:
        server = urlsplit(url)
        if server.scheme != "http" or not server.hostname or server.path.strip("/") or "@" in server.netloc:
            return None
        # The library would accept a line break before a space.
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            return None
        query = urlencode({name: _as_text(value) for name, value in params.items()}, doseq=True)
        with contextlib.closing(http.client.HTTPConnection(server.netloc, timeout=_CONNECT_LIMIT_S)) as line:
            line.connect()
            line.sock.settimeout(_ANSWER_LIMIT_S)
            line.request("GET", f"{path}?{query}" if query else path, headers=dict(headers))
            answer = line.getresponse()
            return answer.read() if _is_plain(answer) else None
    except (OSError, ValueError, http.client.HTTPException):
        return None


def _is_plain(answer: HTTPResponse) -> bool:
    return (
        answer.status == _OK
        and answer.headers.get_content_type() == "application/json"
        and answer.length is not None
        and answer.length <= _MAX_BYTES
        and not any(name in answer.headers for name in ("Content-Encoding", WARNING))
    )


def _as_text(value: Any) -> Any:
    """Return a value of a query as httpx writes it.

    >>> _as_text(True), _as_text(3), _as_text(["a", False])
    ('true', '3', ['a', 'false'])
    """
    if isinstance(value, list | tuple):
        return [_as_text(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
