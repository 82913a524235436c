"""The base class of controllers, as programs import it."""

from legato.compat.elasticdl.controller import AllReduceController

DEFAULT_MAX_ALLREDUCE_RETRY_NUM = 5
DEFAULT_SECS_TO_CHECK_RENDEZVOUS = 30
RETRY_ALLREDUCE_INTERVAL_SECS = 30

__all__ = ["AllReduceController"]
