"""Removes what killed pilots have left on a machine, and keeps what a pilot leaves in one folder.

A pilot that its cluster kills cannot remove its files. Other pilots of the pool on this machine do, an hour later:
until then, people can fetch results that have not come to the server. A folder is moved away first, which takes no
time, and then deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from legato.agent.process import is_running
from legato.driver.journal import is_held
from legato.system.plain_files import delete_tree, read_plain_file

_log = logging.getLogger(__name__)

POOL_LOCK: Final = ".pool.lock"
"""The file that the agent of a machine in a pool holds; it has the host name of a pilot."""
SCRATCH: Final = "scratch"
_TURN: Final = ".turn.lock"
_ENDED: Final = ".ended-"
_GONE: Final = ".gone-"
_KEEP_S: Final = 3600.0
_MAX_FOLDERS: Final = 10_000
_MAX_NAME: Final = 1024


@contextlib.contextmanager
def take_turn(agents: Path) -> Iterator[None]:
    """Let no other pilot of this pool on this machine take a lock or move a folder away.

    Args:
        agents: the folder with the folder of each agent.

    Raises:
        OSError: it cannot be written.
    """
    agents.mkdir(mode=0o700, parents=True, exist_ok=True)
    turn = os.open(agents / _TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)


def move_own(folder: Path) -> None:
    """Move the folder of a dead pilot away that had the name of this one, which takes nothing over. In a turn."""
    with contextlib.suppress(OSError):
        if _is_dead(folder):
            folder.rename(folder.with_name(f"{_ENDED}{secrets.token_hex(8)}"))


def sign(lock: int) -> None:
    """Write this host's name into the lock of a pilot: pilots of other hosts, which may share the folder, leave it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, os.uname().nodename.encode(), 0)


def remove_dead(own: Path) -> None:
    """Delete the folders of pilots that have been dead for an hour, also if another pilot was killed meanwhile.

    Args:
        own: the folder of the pilot that does so; the time of the lock in it shows until when the pilot was alive.
    """
    agents = own.parent
    os.utime(own / POOL_LOCK)
    with take_turn(agents):
        for folder in _list(agents):
            with contextlib.suppress(OSError):
                is_gone = folder.name.startswith(_GONE)
                if not is_gone and time.time() - _find_last_sign(folder) > _KEEP_S and _is_dead(folder):
                    folder.rename(agents / f"{_GONE}{secrets.token_hex(8)}")
    for folder in _list(agents):
        if folder.name.startswith(_GONE) and (failure := delete_tree(folder)) is not None:
            _log.warning("What an earlier agent has left in %s cannot be removed: %s", folder, failure)


def _find_last_sign(folder: Path) -> float:
    """Return when a pilot, or the agent of one of its jobs, last wrote something here: seconds since the epoch."""
    jobs = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    times = [path.lstat().st_mtime for job in jobs for path in (job, *job.iterdir())]
    return max([(folder / POOL_LOCK).lstat().st_mtime, *times])


def _is_dead(folder: Path) -> bool:
    """Return whether a pilot of this host has had this folder, and neither it nor the agent of a job runs there."""
    lock = folder / POOL_LOCK
    if read_plain_file(lock, _MAX_NAME) != os.uname().nodename.encode() or is_held(lock):
        return False
    return not any(is_running(path) for path in folder.iterdir() if path.is_dir())


def _list(folder: Path) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if len(found) == _MAX_FOLDERS:  # the next round sees others
                break
            if entry.is_dir(follow_symlinks=False):
                found.append(folder / entry.name)
    return found
