"""Points that workers reach together, as programs import them."""

from legato.compat.elasticdl.synchronization import (
    delete_all_worker_sync,
    delete_worker_sync,
    wait_worker_sync,
    worker_sync,
)

__all__ = ["delete_all_worker_sync", "delete_worker_sync", "wait_worker_sync", "worker_sync"]
