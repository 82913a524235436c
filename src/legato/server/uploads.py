"""Receives, checks, unpacks and stores uploaded code: completely or not at all. Does not run it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool

from legato.control.settings import Settings
from legato.control.store import Purged
from legato.core.errors import UsageError
from legato.server.code_names import CodeNames
from legato.server.problems import Problem
from legato.uploads.receiving import read_promptly
from legato.uploads.unpacking import Caps, unpack

_LOCK: Final = ".lock"
_SCRATCH: Final = ".incoming-"


def make_caps(settings: Settings) -> Caps:
    """Return the limits of an unpacked upload."""
    return Caps(
        num_entries=settings.upload_max_files,
        file_bytes=settings.upload_max_file_bytes,
        total_bytes=settings.upload_max_unpacked_bytes,
        depth=settings.upload_max_depth,
        ratio=settings.upload_max_ratio,
    )


class CodeFolder:
    """The folder of uploaded code, with one folder per SHA-256. Several servers may share it.

    Args:
        path: of the folder; created if it does not exist.
        max_bytes: maximum size of an upload, packed.
        caps: limits of an upload, unpacked.
    """

    def __init__(self, path: Path, max_bytes: int, caps: Caps) -> None:
        self.path = path
        self.names = CodeNames(path)
        self._max_bytes = max_bytes
        self._caps = caps
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def has(self, sha256: str) -> bool:
        """Return whether the code is stored."""
        return (self.path / sha256).is_dir()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder during the block, so that no other thread or process adds or deletes code."""
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.asynccontextmanager
    async def receive(self, chunks: AsyncIterator[bytes], sha256: str) -> AsyncIterator[Path]:
        """Receive an upload into a file, which is deleted after the block.

        Raises:
            Problem: the upload is too large.
            HTTPException: the client sends no bytes for too long.
            UsageError: the bytes have another SHA-256.
        """
        scratch = Path(await run_in_threadpool(tempfile.mkdtemp, prefix=_SCRATCH, dir=self.path))
        try:
            archive = scratch / "archive"
            digest, num_bytes = hashlib.sha256(), 0
            with archive.open("wb") as file:
                async for chunk in read_promptly(chunks):
                    num_bytes += len(chunk)
                    self.check_length(num_bytes)
                    digest.update(chunk)
                    await run_in_threadpool(file.write, chunk)
            found = digest.hexdigest()
            if found != sha256:
                raise UsageError(
                    f"Cannot take the upload: its {num_bytes} bytes have the SHA-256 {found}, not {sha256}. "
                    "The upload was cut off, or the name is wrong. Upload it again."
                )
            yield archive
        finally:
            # Not in a thread, because a cancelled task must not wait for one, and there is usually little to delete.
            shutil.rmtree(scratch, ignore_errors=True)

    def check_length(self, num_bytes: int) -> None:
        """Raise Problem if an upload has more bytes than it may."""
        if num_bytes > self._max_bytes:
            raise Problem(
                "too-large",
                f"The upload has more than {self._max_bytes} bytes. List files that the program does not need in "
                ".legatoignore, and keep data elsewhere; or ask the operator to raise upload_max_bytes.",
            )

    def unpack(self, archive: Path) -> Path:
        """Unpack an upload beside its file, and sync the files to the disk, so that they survive a power failure.

        Raises:
            UsageError: the upload contains something that Legato refuses.
        """
        target = archive.with_name("code")
        unpack(archive, target, self._caps)
        for folder, _, names in os.walk(target):
            for name in (*names, "."):
                descriptor = os.open(Path(folder, name), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        return target

    def put(self, unpacked: Path, sha256: str) -> None:
        """Move unpacked code to its place, unless the code is already stored. The caller must hold the `lock`."""
        if self.has(sha256):
            return
        unpacked.rename(self.path / sha256)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def delete_purged(self, purged: Purged) -> None:
        """Delete code that was deleted from the store. The caller must hold the `lock`."""
        for sha256 in purged.uploads:
            # Rename it first, so that no reader finds only a part of it.
            gone = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=self.path))
            with contextlib.suppress(FileNotFoundError):
                (self.path / sha256).rename(gone / "code")
            shutil.rmtree(gone, ignore_errors=True)

    def delete_leftovers(self, older_than: float) -> None:
        """Delete temporary files, older than this time, of uploads that were interrupted by a crash."""
        for found in self.path.glob(f"{_SCRATCH}*"):
            with contextlib.suppress(FileNotFoundError):
                if found.stat().st_mtime < older_than:
                    shutil.rmtree(found, ignore_errors=True)
