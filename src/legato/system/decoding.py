"""Decodes JSON and plain values into msgspec records.

What msgspec works out about a type it keeps with the type, and other threads see it before it is whole: two that read
the first of a kind at once can end the process with SIGSEGV (msgspec 0.22; met in the first requests after a start, on
a busy machine). Here one thread at a time prepares types. Never knows what the records mean.
"""

from __future__ import annotations

import os
import threading
from types import UnionType
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_turn: Final = threading.Lock()
# No child may be born while another thread has the turn: it would never be given back there.
os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return what reads JSON as values of a type, the same one each time."""
    found = _decoders.get(kind)
    if found is None:
        with _turn:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


@overload
def decode(content: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(content: bytes | str, kind: UnionType) -> Any: ...
def decode(content: bytes | str, kind: Any) -> Any:
    """Read JSON as a value of a type.

    Args:
        content: the text.
        kind: a type of the module that it is in, not one that is made as it is needed: it is remembered for good.

    Raises:
        msgspec.MsgspecError: it is no such value, or no JSON.
    """
    return decoder_of(kind).decode(content)


def convert(plain: object, kind: type[T]) -> T:
    """Read a mapping of plain values as a record.

    Raises:
        msgspec.ValidationError: it is no such record.
    """
    decoder_of(kind)
    return msgspec.convert(plain, kind)
