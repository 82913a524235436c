"""Lists in answers of the server."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. ``after``: send it as ``after`` to get the next page; None: this is the last page."""

    items: tuple[T, ...]
    after: str | int | None = None
