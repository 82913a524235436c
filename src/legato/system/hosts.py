"""The name of this machine."""

from __future__ import annotations

import socket

from legato.core.slots import make_node


def name_this_machine() -> str:
    """Return the name of this machine as a node: its short host name, without invalid characters."""
    return make_node(socket.gethostname())
