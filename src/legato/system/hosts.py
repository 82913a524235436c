"""This machine: its name as a node, how it differs from others, and the network interfaces of its addresses."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

import msgspec

from legato.core.slots import make_node
from legato.system.processes import boot_id

NAMES: Final = "nodes"
"""The folder of a home with files of each machine whose servers share it, such as its name."""

_ID_FILE: Final = Path("/etc/machine-id")

_GET_ADDRESS: Final = 0x8915  # SIOCGIFADDR
_REQUEST: Final = struct.Struct("16sHH4s232x")


def find_interface(address: str) -> str | None:
    """Return the network interface of this machine that has an address; None if none is known to have it.

    Of several IPv4 addresses of one interface only the first is known. Names are not looked up.

    >>> find_interface("127.0.0.1"), find_interface("machine.example.org")
    ('lo', None)
    """
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    if wanted.version == 6:
        with contextlib.suppress(OSError):
            lines = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
            return next((line[5] for line in lines if line[0] == wanted.packed.hex()), None)
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking, _GET_ADDRESS, _REQUEST.pack(name.encode(), socket.AF_INET, 0, b""))
                if _REQUEST.unpack(answer)[3] == wanted.packed:
                    return name
    return None


def name_this_machine() -> str:
    """Return the name of this machine as a node: its short host name, without invalid characters."""
    return make_node(socket.gethostname())


class Machine(msgspec.Struct, frozen=True):
    """A machine, as servers remember it in a home.

    Args:
        name: its name as a node when this was written.
        id: the content of ``/etc/machine-id``; "": it has none, as many containers.
        boot: the id of its boot; "": the system has none.
    """

    name: str
    id: str
    boot: str

    @property
    def key(self) -> str:
        """A short text that stays the same when the machine boots, and when it is renamed if it has an id."""
        import hashlib  # loads OpenSSL, which most commands do not need

        return hashlib.sha256((self.id or self.name).encode()).hexdigest()[:16]

    def is_same(self, other: Machine) -> bool:
        """Return whether both are one machine, as far as known."""
        if self.boot and self.boot == other.boot:
            return True
        return self.id == other.id if self.id and other.id else self.name == other.name


def find_this_machine() -> Machine:
    """Return this machine."""
    try:
        found = _ID_FILE.read_text().strip()
    except OSError:
        found = ""
    return Machine(name_this_machine(), found, boot_id())


def find_own_file(home: Path, name: str) -> Path:
    """Return the path of a file of this machine's server in a home that servers of several machines share."""
    return home / NAMES / f"{find_this_machine().key}-{name}"
