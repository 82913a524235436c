"""Checks that a store and a home belong together: servers need the home with the jobs' directories.

The file ``home-id`` in a home holds its id, which does not change when the home is moved or mounted elsewhere. The
first server writes the id into the store. A server with another home would treat every running job as one that was
never started, and find no logs and no code.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Final

from legato.control.store import Store
from legato.core.errors import UsageError
from legato.driver.journal import replace_file

HOME_FILE: Final = "home-id"


def claim_home(store: Store, home: Path, now: float) -> None:
    """Check that a store's jobs are in this home. A store without a home gets this one.

    Raises:
        UsageError: the store's jobs are in another home.
    """
    own = _read_id(home)
    known = store.loop.claim_home(own, now)
    if known == own:
        return
    raise UsageError(
        f"Cannot use this store: the directories of its jobs are in another home, with the id {known}, and "
        f"'{home}' has the id {own}. All servers of a store share one home; servers on several machines need it on "
        f"a shared disk. Set home to that directory, or database_url to another store. If that home is lost for good, "
        f"write {known} into {home / HOME_FILE}: the platform then does not touch jobs that ran there until a user "
        "stops them."
    )


def _read_id(home: Path) -> str:
    file = home / HOME_FILE
    if not file.exists():
        own = secrets.token_hex(8)
        scratch = home / f"{HOME_FILE}.{own}"
        replace_file(scratch, f"{own}\n".encode())
        # If several servers start at the same time, one of them creates the file.
        with contextlib.suppress(FileExistsError):
            file.hardlink_to(scratch)
        scratch.unlink()
    return file.read_text().strip()
