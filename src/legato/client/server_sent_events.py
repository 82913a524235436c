"""Server-sent events: bytes in, messages out. Sends no requests.

Only CR, LF and CRLF end a line here. JSON may contain other characters that Python takes for line breaks.
The library httpx-sse would not do: after a message with an id it yields a message for each comment, and the server
sends comments to keep the connection open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class Message(NamedTuple):
    """One message. ``id``: the position from which to continue after it; None: the position does not change."""

    event: str
    data: str
    id: str | None


def read_messages(chunks: Iterable[bytes]) -> Iterator[Message]:
    r"""Yield the messages of a stream, each as soon as it is complete.

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
