"""The client of the master, as programs make it."""

from legato.compat.elasticdl.client import MasterClient, build_master_client

LocalMasterClient = MasterClient

__all__ = ["GlobalMasterClient", "LocalMasterClient", "MasterClient", "build_master_client"]


class GlobalMasterClient:
    """The one client of this process."""

    MASTER_CLIENT = build_master_client()
