"""Whatever goes wrong between an engine and its warm parent reaches the one who waits for events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from legato.core.errors import LegatoError
from legato.core.warm import Entry, Record, Replaced, encode_frame
from legato.engines import local
from legato.engines.local import LocalEngine

DEADLINE_S = 30.0


def what_is_told(directory: Path, say: Callable[[], bytes]) -> str:
    """Return what an engine's user hears, wherever it asks, when the warm parent says that and hangs up."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(say())
        writer.close()
        await writer.wait_closed()

    async def run() -> str:
        path = directory / "s"
        record = Record(socket=str(path), start="fork", entry="", preload=(), wished=(), idle_limit_s=1.0)
        record.workers = {1: Entry(4711, 17), 2: Entry(4712, 17, exit_code=0)}
        (directory / "engine.json").write_bytes(msgspec.json.encode(record))
        async with asyncio.timeout(DEADLINE_S), await asyncio.start_unix_server(speak, path):
            engine = LocalEngine(directory)
            await engine.open()
            with pytest.raises(LegatoError) as told:
                await anext(engine.events())
            for asked in (engine.running, engine.rendezvous):
                with pytest.raises(LegatoError):
                    await asked()
            assert engine.last_running == {1: 4711}, "a process that releases it must know that a worker trains"
            await engine.detach()
            return str(told.value)

    return asyncio.run(run())


def test_another_engine(tmp_path: Path) -> None:
    assert "taken over" in what_is_told(tmp_path, lambda: encode_frame(Replaced()))


def test_a_message_that_cannot_be_understood(tmp_path: Path) -> None:
    assert "DecodeError" in what_is_told(tmp_path, lambda: b"\0\0\0\1\xc1")


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    def spoil() -> bytes:
        (tmp_path / "engine.json").write_text("{ torn")
        return b""

    assert what_is_told(tmp_path, spoil).startswith(f"Cannot read {tmp_path / 'engine.json'}")


def test_a_warm_parent_that_cannot_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("as asked")

    monkeypatch.setattr(local, "start_parent", refuse)
    told = what_is_told(tmp_path, lambda: b"")
    assert "RuntimeError('as asked')" in told
    assert "start a new driver" in told
