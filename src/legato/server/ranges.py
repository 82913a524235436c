"""A file as the answer to a request, or one range of its bytes (RFC 9110, section 14). Opens nothing.

Not Starlette's FileResponse: it opens by path, where a program may have put a link. It sends a log that grows with a
wrong length, cannot leave out the deleted beginning of a log, and refuses ranges that the standard ignores.
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
    """Bytes ``first`` up to, and without, ``end``."""

    first: int
    end: int


def read_range(said: str | None, num_bytes: int) -> Range | None:
    """Return which bytes of a file are wanted; None: all of them.

    What is no single range of bytes is skipped, as the standard has it.

    Raises:
        Problem: no byte of the file is in the range.

    >>> read_range("bytes=2-", 10), read_range("bytes=-3", 10), read_range("lines=1-2", 10)
    (Range(first=2, end=10), Range(first=7, end=10), None)
    """
    match = _RANGE.fullmatch((said or "").strip())
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
    """Return the answer that is a file, or the range of it that the request asks for. Closes the file.

    Args:
        file: open; what is written to it from now on is not sent.
        name: under which to save it.
        headers: of the request.
        is_head: only the headers of the answer are wanted.
        begin: the file is sent as if it began with this byte.

    Raises:
        Problem: no byte of the file is in the range.
    """
    try:
        about = os.fstat(file.fileno())
        num_bytes = about.st_size - begin
        etag = f'"{about.st_ino:x}-{about.st_mtime_ns:x}-{num_bytes:x}"'
        # A range of another version of the file would not fit what the asker has.
        is_same = headers.get("if-range", etag) == etag
        wanted = read_range(headers.get("range"), num_bytes) if is_same and not is_head else None
        part = wanted or Range(0, num_bytes)
        told = {
            "Content-Length": str(part.end - part.first),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Accept-Ranges": "bytes",
            "ETag": etag,
            "Last-Modified": email.utils.formatdate(about.st_mtime, usegmt=True),
        }
        if wanted is not None:
            told["Content-Range"] = f"bytes {part.first}-{part.end - 1}/{num_bytes}"
    except BaseException:
        file.close()
        raise
    if is_head:
        file.close()
        return Response(None, 200, told, media_type=BYTES)
    sent = Range(part.first + begin, part.end + begin)
    return StreamingResponse(_read(file, sent), 200 if wanted is None else 206, told, media_type=BYTES)


def _read(file: BinaryIO, part: Range) -> Iterator[bytes]:
    with file:
        file.seek(part.first)
        left = part.end - part.first
        while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
