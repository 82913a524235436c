"""Memory shared by the workers of one machine: each writes only its own segment and reads those of its peers.

A segment is one file in ``/dev/shm``, reserved in full before it is mapped (a later shortage would end the process with
SIGBUS) and unlinked as soon as all peers have mapped it, so that none is left behind whoever dies. Knows nothing of
what is written there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
from pathlib import Path
from typing import Final

import torch

_DIRECTORY: Final = Path("/dev/shm")  # noqa: S108 - memory, not a directory of temporary files


class Segment:
    """One worker's shared memory, mapped into this process.

    Args:
        path: the file; it may be unlinked once mapped.
        num_bytes: its size.
        create: make the file, instead of mapping a peer's.

    Raises:
        OSError: no such directory, not enough shared memory, or no such file.
    """

    def __init__(self, path: Path, num_bytes: int, *, create: bool) -> None:
        self.path = path
        self.num_bytes = num_bytes
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                os.posix_fallocate(descriptor, 0, num_bytes)
            self._map = mmap.mmap(descriptor, num_bytes)
        except OSError:
            if create:
                self.unlink()
            raise
        finally:
            os.close(descriptor)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def tensor(self, offset_bytes: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a view of ``numel`` elements of the segment, shape ``[numel]``."""
        num_bytes = numel * dtype.itemsize
        return self._bytes[offset_bytes : offset_bytes + num_bytes].view(dtype)

    def unlink(self) -> None:
        """Remove the name; the memory lives on while somebody maps it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


def new_path() -> Path:
    """Return an unused path for a segment; nobody can guess it."""
    return _DIRECTORY / f"legato-{os.getuid()}-{secrets.token_hex(16)}"
