"""The machines of a job of ``legato run --hosts``: the file ``hosts.json`` in the job's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from legato.clusters.ssh import Hosts
from legato.core.errors import LegatoError
from legato.driver.journal import JobDirectory, replace_file
from legato.system.decoding import decode

HOSTS_FILE: Final = "hosts.json"


def write_hosts(directory: JobDirectory, hosts: Hosts | None) -> None:
    """Keep the machines of a job for its next driver; None: it trains on this machine."""
    path = Path(directory.path, HOSTS_FILE)
    if hosts is None:
        path.unlink(missing_ok=True)
    else:
        replace_file(path, msgspec.json.encode(hosts))


def read_hosts(directory: JobDirectory) -> Hosts | None:
    """Return the machines of a job; None: it trains on this machine.

    Raises:
        LegatoError: the file cannot be read.
    """
    path = Path(directory.path, HOSTS_FILE)
    try:
        return decode(path.read_bytes(), Hosts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise LegatoError(f"Cannot read the hosts of the job in {path}: {error}.") from error
