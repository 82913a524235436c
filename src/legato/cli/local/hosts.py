"""The machines of a job of ``legato run``, for its next driver: ``hosts.json`` or ``slurm.json`` in its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from legato.clusters.slurm import Allocation
from legato.clusters.ssh import Hosts
from legato.core.errors import LegatoError
from legato.driver.journal import JobDirectory, replace_file
from legato.system.decoding import decode

HOSTS_FILE: Final = "hosts.json"
SLURM_FILE: Final = "slurm.json"

_FILES: Final[dict[type[Hosts | Allocation], str]] = {Hosts: HOSTS_FILE, Allocation: SLURM_FILE}


def write_machines(directory: JobDirectory, machines: Hosts | Allocation | None) -> None:
    """Keep the machines of a job for its next driver; None: it trains on this machine."""
    for kind, name in _FILES.items():
        path = Path(directory.path, name)
        if isinstance(machines, kind):
            replace_file(path, msgspec.json.encode(machines))
        else:
            path.unlink(missing_ok=True)


def read_machines(directory: JobDirectory) -> Hosts | Allocation | None:
    """Return the machines of a job; None: it trains on this machine.

    Raises:
        LegatoError: the file cannot be read.
    """
    for kind, name in _FILES.items():
        path = Path(directory.path, name)
        try:
            return decode(path.read_bytes(), kind)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.DecodeError) as error:
            raise LegatoError(f"Cannot read the machines of the job in {path}: {error}.") from error
    return None
