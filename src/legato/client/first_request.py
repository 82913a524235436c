"""Sends the first request of a command over a plain socket: to load httpx, or even `http.client`, takes longer.

Only for a GET over plain HTTP, for which httpx has no proxy, certificate or redirect to think of. Only a plain answer
counts: status 200 and JSON of a known length, without a warning. After anything else, such as a refusal, the caller
sends the request again with httpx, which alone decides what to do. So errors, repetitions and warnings are the same
with and without this module.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode, urlsplit

from legato.api import WARNING

# A server that is silent for longer gets a second request, by httpx, which waits longer.
_CONNECT_LIMIT_S: Final = 0.5
_ANSWER_LIMIT_S: Final = 2.0
_MAX_BYTES: Final = 2**25
_MAX_LINE: Final = 2**16
_MAX_FIELDS: Final = 100
_OK: Final = b"HTTP/1.1 200 "
_ODD: Final = ("transfer-encoding", "content-encoding", WARNING.lower())


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
    try:
        server = urlsplit(url)
        if server.scheme != "http" or not server.hostname or server.path.strip("/") or "@" in server.netloc:
            return None
        query = urlencode({name: _as_text(value) for name, value in params.items()}, doseq=True)
        target = f"{path}?{query}" if query else path
        fields = {"Host": server.netloc, "Accept-Encoding": "identity", **headers}
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        # A line break would end a header field, and a space the path.
        if " " in target or not all(line.isascii() and line.isprintable() for line in lines):
            return None
        # As bytes, because Python would load the encoding of international names for a string.
        where: tuple[Any, int] = (server.hostname.encode("ascii"), server.port or 80)
        with socket.create_connection(where, _CONNECT_LIMIT_S) as line:
            line.settimeout(_ANSWER_LIMIT_S)
            line.sendall("\r\n".join((*lines, "", "")).encode("ascii"))
            with line.makefile("rb") as answer:
                return _read_plain(answer)
    except (OSError, ValueError):
        return None


def _read_plain(answer: BinaryIO) -> bytes | None:
    """Return the body of an answer. None: the answer is not plain, or not complete."""
    if not answer.readline(_MAX_LINE).startswith(_OK):
        return None
    fields: dict[str, str] = {}
    while (line := answer.readline(_MAX_LINE)) != b"\r\n":
        name, _, value = line[:-2].decode("ascii").partition(": ")
        name = name.lower()
        # A space in the name, a control character or half a line could hide a field from the checks below.
        is_whole = line.endswith(b"\r\n") and name.replace("-", "").isalnum() and value.isprintable()
        if not is_whole or name in fields or len(fields) == _MAX_FIELDS:
            return None
        fields[name] = value.strip()
    length = fields.get("content-length", "")
    if fields.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return None
    if any(name in fields for name in _ODD) or not length.isdecimal() or int(length) > _MAX_BYTES:
        return None
    body = answer.read(int(length))
    return body if len(body) == int(length) else None


def _as_text(value: Any) -> Any:
    """Return a value of a query as httpx writes it.

    >>> _as_text(True), _as_text(3), _as_text(["a", False])
    ('true', '3', ['a', 'false'])
    """
    if isinstance(value, list | tuple):
        return [_as_text(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
