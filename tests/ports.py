"""A port that stays free while the server that uses it starts again."""

from __future__ import annotations

import contextlib
import secrets
import socket


def find_port() -> int:
    """Return a port for a server that uses it again after a restart.

    Linux gives ports from 32768 on to connections and to servers that ask for any port: one of these could take it.
    """
    while True:
        port = secrets.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
