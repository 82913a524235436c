"""Errors of Horovod that programs name. Legato never raises them."""


class HorovodInternalError(RuntimeError):
    """A collective failed."""


class HostsUpdatedInterrupt(RuntimeError):
    """Workers came or went."""
