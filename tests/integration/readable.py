"""Lets every user of the system run this Python, also where it is installed in the home directory of root."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.serving import ROOT


def closed_folders(*paths: Path) -> set[Path]:
    """Return the folders above some paths through which other users may not pass."""
    above = {folder for path in paths for folder in (path, *path.parents)}
    return {folder for folder in above if not folder.stat().st_mode & stat.S_IXOTH}


def open_the_way() -> list[str]:
    """Return a prefix of commands under which every user reaches this Python and the sources.

    A Python in the home directory of root cannot be reached by others. There, its folders get another place for the
    processes of the command alone: in a mount namespace of their own.
    """
    needed = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT.resolve()})
    closed = closed_folders(*needed)
    if not closed:
        return []
    tops = [folder for folder in closed if not any(above in closed for above in folder.parents)]
    assert not set(needed) & closed, "a folder itself is closed"
    lines = ["set -e", "held=$(mktemp -d)"]
    for number, path in enumerate(needed):
        lines += [f"mkdir $held/{number}", f"mount --bind {path} $held/{number}"]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {top}" for top in tops]
    for number, path in enumerate(needed):
        if any(top in path.parents for top in tops):
            lines += [f"mkdir -p {path}", f"mount --bind $held/{number} {path}"]
    prefix = ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join([*lines, 'exec "$@"']), "-"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(
            f"JOBS WITH USERS OF THEIR OWN ARE NOT TESTED: other users cannot pass through {', '.join(map(str, tops))} "
            f"to {', '.join(map(str, needed))}, and no mount namespace can be made in which they can "
            f"({tried.stderr.strip()}). Install Python and check out the sources where every user may read them, in "
            "/opt for example, or allow this container to mount (CAP_SYS_ADMIN)."
        )
    return prefix
