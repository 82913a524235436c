"""The client of the master, where programs of autumn 2020 import it from."""

from legato.compat.elasticdl.client import MasterClient, build_master_client

__all__ = ["MasterClient", "build_master_client"]
