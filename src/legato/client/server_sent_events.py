"""Server-sent events: bytes in, messages out. Sends no requests.

Only CR, LF and CRLF end a line here. Other line breaks that Python knows may stand inside of JSON, and must stay.
Not httpx-sse: after a message with an id it makes a message of each comment, such as the server's signs of life.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class Message(NamedTuple):
    """One message. ``id``: where to continue after it; None: as before."""

    event: str
    data: str
    id: str | None


def read_messages(chunks: Iterable[bytes]) -> Iterator[Message]:
    r"""Yield the messages of a stream as soon as each is whole.

    >>> list(read_messages([b": hello\n\nid: 7\nevent: stage\nda", b"ta: {}\r\n\r", b"\ndata: cut off"]))
    [Message(event='stage', data='{}', id='7')]
    """
    event, data, last_id = "message", list[str](), None
    for line in _read_lines(chunks):
        if not line:
            if data:
                yield Message(event, "\n".join(data), last_id)
            event, data, last_id = "message", [], None
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                event = value
            case "data":
                data.append(value)
            case "id" if "\0" not in value:
                last_id = value


def _read_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        rest += chunk
        *lines, last = _LINE_END.split(rest)
        if rest.endswith(b"\r"):
            # Its LF may still come, so the line ends with the next chunk.
            lines, last = lines[:-1], lines[-1] + b"\r"
        for line in lines:
            yield line.decode(errors="replace")
        rest = last
