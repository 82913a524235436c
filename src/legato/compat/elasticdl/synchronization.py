"""Points that workers reach together, by name: programs of ElasticDL call them between two phases."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from legato.compat.elasticdl.client import take_client

_ASK_EVERY_S: Final = 1.0


def worker_sync(sync_name: str, timeout: float | None = None) -> bool:
    """Wait until all workers have reached this point that ran when the first worker reached it.

    Args:
        sync_name: names the point.
        timeout: seconds; None: without end.

    Returns:
        False if it took longer.
    """
    return _wait(lambda: take_client().worker_sync(sync_name), timeout)


def wait_worker_sync(sync_name: str, notify: bool = False, timeout: float | None = None) -> bool:
    """Wait until a named point was passed.

    Args:
        sync_name: names the point.
        notify: say that it is.
        timeout: seconds; None: without end.

    Returns:
        False if it took longer.
    """
    return _wait(lambda: take_client().wait_worker_sync(sync_name, notify=notify), timeout)


def delete_worker_sync(sync_name: str) -> None:
    """Forget a named point."""
    take_client().delete_worker_sync(sync_name)


def delete_all_worker_sync() -> None:
    """Forget all named points."""
    take_client().delete_all_worker_syncs()


def _wait(ask: Callable[[], bool], timeout: float | None) -> bool:
    end = None if timeout is None else time.monotonic() + timeout
    while not ask():
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(_ASK_EVERY_S)
    return True
