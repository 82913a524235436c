"""Answers requests with an open file, or with one range of its bytes (RFC 9110, section 14).

This is not Starlette's FileResponse, because that opens the file by its path, where a program may have put a link. It
also sends a growing log with a wrong length, cannot leave out the dropped beginning of a log, and refuses ranges that
the standard ignores.
"""

from __future__ import annotations

import email.utils
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse

from legato.server.problems import Problem

_CHUNK_BYTES: Final = 2**18
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
BYTES: Final = "application/octet-stream"


class Range(NamedTuple):
    """The bytes from ``first`` to ``end``, without the byte at ``end``."""

    first: int
    end: int


def read_range(header: str | None, num_bytes: int) -> Range | None:
    """Return which bytes of a file a request asks for. None: all of them.

    As the standard says, a header that is not a single range of bytes is ignored.

    Args:
        header: the header ``Range``. None: the request has none.
        num_bytes: size of the file.

    Raises:
        Problem: no byte of the file is in the range.

    >>> read_range("bytes=2-", 10), read_range("bytes=-3", 10), read_range("lines=1-2", 10)
    (Range(first=2, end=10), Range(first=7, end=10), None)
    """
    match = _RANGE.fullmatch((header or "").strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        wanted = Range(max(num_bytes - int(last), 0), num_bytes)
    else:
        wanted = Range(int(first), min(int(last) + 1, num_bytes) if last else num_bytes)
        if last and int(last) < int(first):
            return None
    if wanted.first >= wanted.end:
        raise Problem(
            "range-not-satisfiable",
            f"The range is outside of the file, which has {num_bytes} bytes.",
            headers={"Content-Range": f"bytes */{num_bytes}"},
        )
    return wanted


def answer_file(file: BinaryIO, name: str, headers: Headers, *, is_head: bool, begin: int = 0) -> Response:
    """Return the answer with a file, or with the range of it that the request asks for. The answer closes the file.

    Args:
        file: the open file. Bytes that are appended from now on are not sent.
        name: name under which clients save the file.
        headers: of the request.
        is_head: send only the headers of the answer.
        begin: send the file as if it began with this byte.

    Raises:
        Problem: no byte of the file is in the range.
    """
    try:
        about = os.fstat(file.fileno())
        num_bytes = about.st_size - begin
        etag = f'"{about.st_ino:x}-{about.st_mtime_ns:x}-{num_bytes:x}"'
        # With If-Range, a client that has a part of another version of the file gets the whole file.
        is_same = headers.get("if-range", etag) == etag
        wanted = read_range(headers.get("range"), num_bytes) if is_same and not is_head else None
        part = wanted or Range(0, num_bytes)
        sent_headers = {
            "Content-Length": str(part.end - part.first),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Accept-Ranges": "bytes",
            "ETag": etag,
            "Last-Modified": email.utils.formatdate(about.st_mtime, usegmt=True),
        }
        if wanted is not None:
            sent_headers["Content-Range"] = f"bytes {part.first}-{part.end - 1}/{num_bytes}"
    except BaseException:
        file.close()
        raise
    if is_head:
        file.close()
        return Response(None, 200, sent_headers, media_type=BYTES)
    sent = Range(part.first + begin, part.end + begin)
    return StreamingResponse(_read(file, sent), 200 if wanted is None else 206, sent_headers, media_type=BYTES)


def _read(file: BinaryIO, part: Range) -> Iterator[bytes]:
    with file:
        file.seek(part.first)
        left = part.end - part.first
        while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
