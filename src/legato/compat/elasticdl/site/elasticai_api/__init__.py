"""ElasticDL's library, as programs import it. All workers begin with the same random numbers from here on."""

from legato.compat.elasticdl.job_environment import seed_alike
from legato.compat.elasticdl.synchronization import (
    delete_all_worker_sync,
    delete_worker_sync,
    wait_worker_sync,
    worker_sync,
)

__all__ = ["delete_all_worker_sync", "delete_worker_sync", "wait_worker_sync", "worker_sync"]

seed_alike()
