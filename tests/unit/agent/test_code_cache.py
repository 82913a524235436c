"""The code of jobs on a machine: verified, fetched once, and removed when no job uses it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
from pathlib import Path

import httpx
import pytest

from legato.agent.code_cache import DIGEST_HEADER, CodeCache, digest_of
from legato.core.errors import UsageError

CODE = "ab" * 32
CONTENT = os.urandom(300_000)


class Server(httpx.AsyncClient):
    """A server whose answers can be wrong at first."""

    def __init__(self, *first: httpx.Response) -> None:
        self.answers = list(first)
        self.num_asked = 0
        super().__init__(transport=httpx.MockTransport(self._answer), base_url="http://server")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/agents/code/{CODE}"
        self.num_asked += 1
        return self.answers.pop(0) if self.answers else answer(CONTENT)


def answer(content: bytes, of: bytes = CONTENT) -> httpx.Response:
    return httpx.Response(200, content=content, headers={DIGEST_HEADER: digest_of(hashlib.sha256(of))})


def test_code_is_fetched_once_for_all_jobs_that_have_it(tmp_path: Path) -> None:
    cache, server = CodeCache(tmp_path), Server()

    async def fetch() -> list[Path]:
        return list(await asyncio.gather(*(cache.fetch(server, CODE, {}, "Cannot") for _ in range(3))))

    paths = asyncio.run(fetch())
    assert len(set(paths)) == 1 and paths[0].read_bytes() == CONTENT
    assert server.num_asked == 1


def test_code_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    path, sync = tmp_path / f".code-{CODE}.zip", os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    assert asyncio.run(CodeCache(tmp_path).fetch(Server(), CODE, {}, "Cannot")) == path
    assert synced == [(len(CONTENT), False)]


@pytest.mark.parametrize("bad", [answer(CONTENT[:-1]), answer(CONTENT[::-1]), httpx.Response(200, content=CONTENT)])
def test_a_damaged_download_is_not_used_and_may_be_tried_again(tmp_path: Path, bad: httpx.Response) -> None:
    cache, server = CodeCache(tmp_path), Server(bad)

    async def fetch() -> Path:
        with pytest.raises(httpx.HTTPError, match="Cannot: what has come is not what the server has sent"):
            await cache.fetch(server, CODE, {}, "Cannot")
        assert os.listdir(tmp_path) == []
        return await cache.fetch(server, CODE, {}, "Cannot")

    assert asyncio.run(fetch()).read_bytes() == CONTENT


def test_a_refusal_is_an_error_with_its_reason(tmp_path: Path) -> None:
    server = Server(httpx.Response(404, json={"detail": "This code was deleted."}))
    with pytest.raises(UsageError, match="Cannot fetch: This code was deleted"):
        asyncio.run(CodeCache(tmp_path).fetch(server, CODE, {}, "Cannot fetch"))


def test_code_that_no_job_uses_is_removed_after_an_hour(tmp_path: Path) -> None:
    cache, other, part = CodeCache(tmp_path), "cd" * 32, tmp_path / ".code-0011.part"
    for name in (CODE, other):
        (tmp_path / f".code-{name}.zip").touch()
    part.touch()
    cache.remove_old(set())
    assert len(os.listdir(tmp_path)) == 3, "a job that is continued may need it again"
    for path in tmp_path.iterdir():
        os.utime(path, (0, time.time() - 4000))
    cache.remove_old({CODE})
    assert [path.name for path in tmp_path.iterdir()] == [f".code-{CODE}.zip"]


def test_a_disk_that_does_not_let_code_be_removed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f".code-{letter}.zip" for letter in "ab"]
    for path in paths:
        path.touch()
        os.utime(path, (0, 0))
    tried: list[Path] = []

    def refuse(self: Path, **_: object) -> None:
        tried.append(self)
        raise OSError(errno.EROFS, "Read-only file system")

    def fail(_self: Path, _pattern: str) -> list[Path]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "unlink", refuse)
    CodeCache(tmp_path).remove_old(())
    assert sorted(tried) == paths, "each is tried"
    monkeypatch.setattr(Path, "glob", fail)
    CodeCache(tmp_path).remove_old(())
