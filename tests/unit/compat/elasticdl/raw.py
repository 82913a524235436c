"""A client of the historic protocol that shares no code with Legato: fields by number, as in the specification."""

from __future__ import annotations

from typing import Any

from grpc import aio


def varint(value: int) -> bytes:
    value %= 2**64
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)


def pack(fields: dict[int, Any]) -> bytes:
    """Return a message: number → int, bool, str or bytes."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += varint(number * 8) + varint(int(value))
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(number * 8 + 2) + varint(len(content)) + content
    return out


def take_varint(content: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for at, byte in enumerate(content):
        value += (byte % 128) << shift
        shift += 7
        if byte < 128:
            return value, content[at + 1 :]
    raise AssertionError(content)


def unpack(content: bytes) -> dict[int, Any]:
    """Return number → int or bytes of a message."""
    fields: dict[int, Any] = {}
    while content:
        key, content = take_varint(content)
        value, content = take_varint(content)
        if key % 8 == 2:
            fields[key // 8], content = content[:value], content[value:]
        else:
            assert key % 8 == 0
            fields[key // 8] = value - 2**64 if value >= 2**63 else value
    return fields


def unpack_numbers(content: bytes) -> list[int]:
    numbers = []
    while content:
        number, content = take_varint(content)
        numbers.append(number)
    return numbers


class RawClient:
    """Sends requests with the name of a method and the numbers of fields."""

    def __init__(self, address: str) -> None:
        self._channel = aio.insecure_channel(address, options=[("grpc.max_receive_message_length", 2**28)])

    async def ask(self, method: str, fields: dict[int, Any] | None = None, **metadata: str) -> dict[int, Any]:
        call = self._channel.unary_unary(f"/proto.Master/{method}")
        return unpack(await call(pack(fields or {}), metadata=tuple(metadata.items())))

    async def ask_bytes(self, method: str, request: bytes) -> None:
        await self._channel.unary_unary(f"/proto.Master/{method}")(request)

    async def ask_records(self, method: str, fields: dict[int, Any], **metadata: str) -> tuple[int, int, list[int]]:
        """Ask for a task; return its number, its type and its records."""
        task = await self.ask(method, fields, **metadata)
        shard = unpack(task.get(2, b""))
        records = unpack_numbers(shard.get(4, b"")) or list(range(shard.get(2, 0), shard.get(3, 0)))
        return task.get(1, 0), task.get(4, 0), records

    async def close(self) -> None:
        await self._channel.close()
