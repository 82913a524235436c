"""What is on its way: bounds for one and for all, and an end to waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
from starlette.exceptions import HTTPException

from legato.uploads import receiving
from legato.uploads.receiving import Arrivals, read_promptly


def refusal(counts: Arrivals, user: str) -> tuple[int, str]:
    with pytest.raises(HTTPException) as caught, counts.counted(user):
        pass
    assert int((caught.value.headers or {})["Retry-After"]) > 0
    return caught.value.status_code, caught.value.detail


def test_one_and_all_have_a_bound_and_room_comes_back() -> None:
    counts = Arrivals("uploads", most=3, most_of_one=2)
    with ExitStack() as ann:
        for _ in range(2):
            ann.enter_context(counts.counted("ann"))
        status, told = refusal(counts, "ann")
        assert status == 429 and told.startswith("'ann' is already sending 2 uploads at once.")
        with counts.counted("ben"):
            status, told = refusal(counts, "cat")
            assert status == 503 and told.startswith("The server already receives 3 uploads at once.")
        with counts.counted("cat"):
            pass
    with counts.counted("ann"), counts.counted("ann"), counts.counted("ben"):
        pass


def test_an_error_gives_its_room_back() -> None:
    counts = Arrivals("uploads", most_of_one=1)
    with pytest.raises(KeyError), counts.counted("ann"):
        raise KeyError
    with counts.counted("ann"):
        pass


def test_what_comes_is_read_and_what_does_not_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "IDLE_LIMIT_S", 0.05)
    read = []

    async def send(*, ends: bool) -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"
        if not ends:
            await asyncio.Event().wait()

    async def receive(*, ends: bool) -> None:
        read.extend([chunk async for chunk in read_promptly(send(ends=ends))])

    asyncio.run(receive(ends=True))
    assert read == [b"a", b"b"]
    with pytest.raises(HTTPException, match=r"The client sent no byte for 0\.05 s") as caught:
        asyncio.run(receive(ends=False))
    assert caught.value.status_code == 408 and caught.value.headers == {"Connection": "close"}
