"""Settings of the C library's memory allocator in a training process. Made once; knows nothing of tensors.

Gradients and the optimizer's temporaries are allocated again in every step. The C library of most Linux systems takes
blocks of this size fresh from the kernel and gives them back each time, which costs a page fault for every 4 KiB: about
a fifth of a step of ten million parameters. Keeping them costs memory that the next step needs anyway.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
LARGEST_KEPT_BYTES: Final = 32 * 2**20
"""What the library allows at most."""


def keep_large_blocks() -> bool:
    """Let the C library keep large blocks for the next step; returns whether it does (only glibc has the setting)."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
