"""Decodes JSON and plain values into msgspec records.

msgspec 0.22 prepares a type when it is first used, and stores the result in the type before it is complete. If two
threads use a type for the first time at once, the process can end with SIGSEGV; this happened in the first requests
after a start on a busy machine. Here one thread at a time prepares types.
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
# No process may fork while another thread has the lock, because the child could never release it.
os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of JSON for a type, the same object each time."""
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
        kind: a type defined at module level, not a temporary one, because its decoder is kept forever.

    Raises:
        msgspec.MsgspecError: the text is no JSON, or no value of this type.
    """
    return decoder_of(kind).decode(content)


def convert(plain: object, kind: type[T]) -> T:
    """Read a mapping of plain values as a record.

    Raises:
        msgspec.ValidationError: the mapping is no such record.
    """
    decoder_of(kind)
    return msgspec.convert(plain, kind)
