"""Errors of Horovod that programs name; none of them is ever raised."""


class HorovodInternalError(RuntimeError):
    """A collective failed."""


class HostsUpdatedInterrupt(RuntimeError):
    """Workers came or went."""
