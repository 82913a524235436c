"""Clients of the store in which the members of a view find one another. Later views use those of earlier ones again.

torch looks up the name of the address each time that it connects, and a DNS server that does not answer would delay the
view by 5 s.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import time
from typing import Any, Final, NamedTuple

from legato.train import torch_private

_REACH_LIMIT_S: Final = 2.0
_IDLE_LIMIT_S: Final = 600.0
"""An older connection may be dead: firewalls forget connections that are not used."""


class _Idle(NamedTuple):
    """A client that no view uses now.

    Args:
        rendezvous: ``host:port`` of the store.
        client: of torch.
        since: when it was used last, in monotonic seconds.
    """

    rendezvous: str
    client: Any
    since: float


_idle: Final[list[_Idle]] = []


def open_client(rendezvous: str, *, connect_s: float, wait_s: float) -> Any:
    """Return a client that no other thread uses; it may have been used before.

    Args:
        rendezvous: ``host:port`` of the store.
        connect_s: limit for connecting.
        wait_s: limit for one wait of the client.

    Raises:
        RuntimeError: the store cannot be reached.
    """
    address, port = rendezvous.rsplit(":", 1)
    oldest = time.monotonic() - _IDLE_LIMIT_S
    with contextlib.suppress(IndexError):
        while True:
            idle = _idle.pop()
            if idle.rendezvous == rendezvous and idle.since > oldest and _is_connected(idle.client, address, port):
                return idle.client
    client = torch_private.make_store(address, int(port), datetime.timedelta(seconds=connect_s))
    client.set_timeout(datetime.timedelta(seconds=wait_s))
    return client


def give_back(rendezvous: str, client: Any) -> None:
    """Let later views use a client that nothing uses any more."""
    _idle.append(_Idle(rendezvous, client, time.monotonic()))


def _is_connected(client: Any, address: str, port: str) -> bool:
    """Whether a client still reaches its store. torch itself waits for an answer without a limit."""
    try:
        socket.create_connection((address, int(port)), _REACH_LIMIT_S).close()
        client.check(["any key"])
    except (OSError, RuntimeError):
        return False
    return True
