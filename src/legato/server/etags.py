"""ETags of answers that clients poll. A client that has the answer with the same tag gets 304 without a body."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.responses import Response

import legato


def make_tag(*parts: Any) -> str:
    """Return the weak tag of an answer, which differs from the version of a job.

    Args:
        parts: all values that the answer depends on; their ``repr`` must be the same in every process.

    >>> make_tag(1, "a") == make_tag(1, "a"), make_tag(1, "a") == make_tag(2, "a")
    (True, False)
    """
    digest = hashlib.sha256(repr((legato.__version__, parts)).encode())
    return f'W/"{digest.hexdigest()[:32]}"'


def is_known(if_none_match: str | None, tag: str) -> bool:
    """Return whether the client already has the answer with this tag.

    >>> is_known('W/"a", "b"', '"a"'), is_known('"c"', '"a"'), is_known(None, '"a"')
    (True, False, False)
    """
    known = (one.strip().removeprefix("W/") for one in (if_none_match or "").split(","))
    return tag.removeprefix("W/") in known


def answer_unchanged(tag: str) -> Response:
    """Return the answer 304, for a client that has the content already."""
    return Response(status_code=304, headers={"ETag": tag})
