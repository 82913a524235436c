"""Paths of the server in which names stand. Asks nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from legato.core.errors import NotFound

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_PATHS: Final[Mapping[str, str]] = {"job": "/jobs", "queue": "/queues", "user": "/users", "token": "/tokens"}


def name_path(what: str, name: str) -> str:
    """Return where the job, queue, user or token of a name is.

    Raises:
        NotFound: nothing can have this name, which would lead elsewhere.

    >>> name_path("job", "mnist")
    '/jobs/mnist'
    """
    if not _NAME.fullmatch(name):
        raise NotFound(
            f"There is no {what} '{name}': names have letters, digits, '.', '_' and '-'. Look at its spelling."
        )
    return f"{_PATHS[what]}/{name}"
