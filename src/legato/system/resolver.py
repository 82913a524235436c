"""How this process looks up the names of hosts."""

from __future__ import annotations

import contextlib
import ctypes


def use_no_dns() -> None:
    """Have this process look for the names of hosts only in ``/etc/hosts``, for good. Does nothing without glibc."""
    with contextlib.suppress(AttributeError):
        configure = ctypes.CDLL(None)["__nss_configure_lookup"]
        configure.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        configure(b"hosts", b"files")
