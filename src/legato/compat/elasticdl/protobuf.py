"""Encodes and decodes Protocol Buffers, for the few kinds of fields that the historic protocol has. Pure.

It does not use the library protobuf, because programs of ElasticDL need their own old version in the same environment.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Hashable, Iterator
from typing import Any, Final, TypeVar

_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5
_FIXED_SIZES: Final = {_FIXED_64: 8, _FIXED_32: 4}
_MAX_VARINT_BYTES: Final = 10
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_SIGN: Final = 0x8000_0000_0000_0000

_M = TypeVar("_M")


def encode(message: Any) -> bytes:
    r"""Return a message as bytes: a dataclass whose fields are ``Annotated`` with their numbers.

    >>> encode(Example(number=300, texts=("a",)))
    b'\x08\xac\x02\x12\x01a'
    """
    out = bytearray()
    for number, name, kind in _fields(message.__class__):
        value = getattr(message, name)
        if kind is str:
            _put_bytes(out, number, value.encode()) if value else None
        elif kind in (int, bool):
            if value:
                out += _varint(number << 3 | _VARINT) + _varint(int(value))
        elif kind == tuple[int, ...]:
            _put_bytes(out, number, b"".join(map(_varint, value))) if value else None
        elif kind == tuple[str, ...]:
            for text in value:
                _put_bytes(out, number, text.encode())
        elif value != kind():
            _put_bytes(out, number, encode(value))
    return bytes(out)


def decode(kind: type[_M], content: bytes) -> _M:
    r"""Read a message. Unknown fields are skipped, as are fields of another wire type.

    Raises:
        ValueError: the bytes are no message.

    >>> decode(Example, bytes.fromhex("08ac02120161")), decode(Example, b"\x7a\x01x")
    (Example(number=300, texts=('a',)), Example(number=0, texts=()))
    """
    known = {number: (name, field) for number, name, field in _fields(typing.cast("Any", kind))}
    values: dict[str, Any] = {}
    for number, wire, value in _split(content):
        name, field = known.get(number, ("", None))
        if field is str and wire == _BYTES:
            values[name] = value.decode()
        elif field in (int, bool) and wire == _VARINT:
            values[name] = field(_signed(value))
        elif field == tuple[int, ...] and wire in (_VARINT, _BYTES):
            numbers = (value,) if wire == _VARINT else tuple(_all_varints(value))
            values[name] = values.get(name, ()) + tuple(map(_signed, numbers))
        elif field == tuple[str, ...] and wire == _BYTES:
            values[name] = (*values.get(name, ()), value.decode())
        elif dataclasses.is_dataclass(field) and wire == _BYTES:
            values[name] = decode(typing.cast("type[Any]", field), value)
    return kind(**values)


@functools.cache
def _fields(kind: Hashable) -> tuple[tuple[int, str, Any], ...]:
    """Return number, name and kind of each field of a message."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((*hint.__metadata__, name, hint.__origin__) for name, hint in hints.items())


def _put_bytes(out: bytearray, number: int, content: bytes) -> None:
    out += _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> int:
    return (value & _MASK ^ _SIGN) - _SIGN


def _take_varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it."""
    value = 0
    for shift, byte in enumerate(content[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError(f"the message breaks off in the number at byte {at}")


def _all_varints(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        value, at = _take_varint(content, at)
        yield value


def _split(content: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field."""
    at = 0
    while at < len(content):
        key, at = _take_varint(content, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, at = _take_varint(content, at)
        else:
            if wire == _BYTES:
                size, at = _take_varint(content, at)
            elif wire in _FIXED_SIZES:
                size = _FIXED_SIZES[wire]
            else:
                raise ValueError(f"the message has a field of unknown wire type {wire}")
            value, at = content[at : at + size], at + size
            if at > len(content):
                raise ValueError("the message breaks off")
        if number == 0:
            raise ValueError("the message has a field without a number")
        yield number, wire, value


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A message for the examples above."""

    number: typing.Annotated[int, 1] = 0
    texts: typing.Annotated[tuple[str, ...], 2] = ()
