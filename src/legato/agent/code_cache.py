"""Fetches the code of jobs from the server: verified, once for all jobs with the same code, and removed when unused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import httpx

from legato.api.problems import PREFIX
from legato.core.errors import Unauthenticated, UsageError

DIGEST_HEADER: Final = "Content-Digest"
"""Of the answer with a job's code; see `digest_of`."""

_LIMIT_S: Final = 300.0
_MAX_BYTES: Final = 2**31
_KEEP_S: Final = 3600.0
_PREFIX: Final = ".code-"


def digest_of(digest: hashlib._Hash) -> str:
    """Return a SHA-256 as the header `DIGEST_HEADER` has it (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"


class CodeCache:
    """The zip files with code of one machine.

    Args:
        folder: of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def fetch(self, http: httpx.AsyncClient, sha256: str, headers: dict[str, str], told: str) -> Path:
        """Return the path of a zip file with code; download it if it is not there.

        Args:
            http: the server.
            sha256: the name of the code.
            headers: with which this machine authenticates.
            told: the beginning of the sentence of an error.

        Raises:
            UsageError: the server refuses, or the code is too large.
            httpx.HTTPError: the download has failed, or is damaged; it may be tried again.
            OSError: the file cannot be written.
        """
        path = self._path_of(sha256)
        async with self._locks.setdefault(sha256, asyncio.Lock()):
            if path.exists():
                path.touch()
                return path
            scratch = self._folder / f"{_PREFIX}{secrets.token_hex(8)}.part"
            try:
                await _download(http, sha256, headers, told, scratch)
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
        return path

    def drop(self, sha256: str) -> None:
        """Delete code that cannot be unpacked: its file is damaged, and the next `fetch` downloads it again."""
        self._path_of(sha256).unlink(missing_ok=True)

    def remove_old(self, used: Collection[str]) -> None:
        """Remove code that no job of ``used`` has, an hour after its last use, and what was left of downloads.

        What cannot be removed now stays until a later call.
        """
        try:
            paths = list(self._folder.glob(f"{_PREFIX}*"))
        except OSError:
            return
        for path in paths:
            with contextlib.suppress(OSError):
                is_used = path.name.removeprefix(_PREFIX).removesuffix(".zip") in used
                if not is_used and time.time() - path.stat().st_mtime > _KEEP_S:
                    path.unlink()

    def _path_of(self, sha256: str) -> Path:
        return self._folder / f"{_PREFIX}{sha256}.zip"


async def _download(http: httpx.AsyncClient, sha256: str, headers: dict[str, str], told: str, into: Path) -> None:
    digest, num_bytes = hashlib.sha256(), 0
    async with http.stream("GET", f"/agents/code/{sha256}", headers=headers, timeout=_LIMIT_S) as answer:
        if answer.status_code != httpx.codes.OK:
            await answer.aread()
            check_answer(answer, told)
        descriptor = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            async for part in answer.aiter_bytes():
                num_bytes += len(part)
                if num_bytes > _MAX_BYTES:
                    raise UsageError(f"{told}: it is larger than 2 GiB, packed.")
                digest.update(part)
                await asyncio.to_thread(file.write, part)
            file.flush()
            # A crash of the machine could leave the name without the bytes.
            await asyncio.to_thread(os.fsync, file.fileno())
    if answer.headers.get(DIGEST_HEADER) != digest_of(digest):
        raise httpx.RemoteProtocolError(f"{told}: what has come is not what the server has sent")


def check_answer(answer: httpx.Response, told: str) -> None:
    """Raise an error if a request was refused for good; httpx.HTTPStatusError if it may be repeated.

    Only the server itself says that a secret is not valid: a proxy may ask for a login while the server is away.
    """
    if answer.is_success:
        return
    is_unknown, kind = answer.status_code == httpx.codes.UNAUTHORIZED, ""
    why = f"what answers there is no server of this release (HTTP {answer.status_code})"
    with contextlib.suppress(ValueError, AttributeError, LookupError, TypeError):
        body = answer.json()
        kind = str(body.get("type"))
        why = str(body["detail"])[:1000]
    is_temporary = answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error
    if is_temporary or (is_unknown and kind != f"{PREFIX}unauthenticated"):
        raise httpx.HTTPStatusError(f"it answers {answer.status_code}", request=answer.request, response=answer)
    raise (Unauthenticated if is_unknown else UsageError)(f"{told}: {why.rstrip('.')}.")
