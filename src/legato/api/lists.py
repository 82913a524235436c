"""Lists in answers of the server."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list. ``after``: where the next part begins; None: there is none."""

    items: tuple[T, ...]
    after: str | int | None = None
