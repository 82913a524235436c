"""Paths of the server that contain names. Sends no requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from legato.core.errors import NotFound

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_PATHS: Final[Mapping[str, str]] = {
    "job": "/jobs",
    "queue": "/queues",
    "user": "/users",
    "token": "/tokens",
    "node": "/nodes",
    "cluster": "/clusters",
    "join token": "/join-tokens",
    "sweep": "/sweeps",
    "webhook": "/webhooks",
}


def title_path(what: str, title: str) -> str:
    """Return the path of the project, definition or experiment with a name or an id.

    Raises:
        NotFound: a path cannot contain this name.

    >>> title_path("project", "Digits & co.")
    '/projects/Digits%20%26%20co.'
    """
    if not title.strip(".") or "/" in title:
        raise NotFound(f"Cannot find {what} '{title}' by this name. Give its id.")
    return f"/{what}s/{quote(title, safe='')}"


def is_name(text: str) -> bool:
    """Whether a job, a user or another thing in `name_path` may have this name."""
    return _NAME.fullmatch(text) is not None


def name_path(what: str, name: str) -> str:
    """Return the path of the job, queue, user, token, node, cluster, join token, sweep or webhook with a name.

    Raises:
        NotFound: the name is invalid, and would lead to another path.

    >>> name_path("job", "mnist")
    '/jobs/mnist'
    """
    if not is_name(name):
        raise NotFound(
            f"There is no {what} '{name}': names have letters, digits, '.', '_' and '-'. Check the spelling."
        )
    return f"{_PATHS[what]}/{name}"
