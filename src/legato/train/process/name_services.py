"""Loads the libraries by which the system resolves host names, while the process has one thread.

The C library loads them in the first look-up, which torch makes in a thread that connects the workers of a view. A
process that is forked at that moment, such as a loader process, finds the dynamic linker in the middle of its work: its
own first import of a compiled module then ends it with status 127 ("Inconsistency detected by ld.so").
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path
from typing import Final

_CONFIGURATION: Final = Path("/etc/nsswitch.conf")
_HOSTS: Final = re.compile(r"^\s*hosts\s*:([^#\n]*)", re.MULTILINE)
_ACTION: Final = re.compile(r"\[[^\]]*\]")


def load_name_services(configuration: Path = _CONFIGURATION) -> None:
    """Load the libraries of all services for host names; those that are built into the C library have none.

    Args:
        configuration: as ``nsswitch.conf(5)`` describes it. If it cannot be read, nothing is loaded.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for service in list_services(configuration.read_text()):
            with contextlib.suppress(OSError):
                ctypes.CDLL(f"libnss_{service}.so.2")


def list_services(configuration: str) -> list[str]:
    r"""Return the services for host names, in order.

    >>> list_services("passwd: files\nhosts: files mdns4_minimal [NOTFOUND=return] dns  # comment")
    ['files', 'mdns4_minimal', 'dns']
    """
    found = _HOSTS.search(configuration)
    names = [] if found is None else _ACTION.sub(" ", found[1]).split()
    return [name for name in names if name.isidentifier()]
