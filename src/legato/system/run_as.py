"""Runs a command as another user, and gives up this process's privileges before that.

``python -I -S run_as.py`` reads an order from stdin: a JSON object with ``uid``, ``gid``, ``groups``, ``directory``,
``environment``, ``command``, ``file``: a path and the text that is written there first, or null; and, if the command
reads its stdin, ``input``: the text that it reads. It gives up the privileges before it reads the user's directory,
files or variables. Imports nothing of Legato, so it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, Final, NoReturn

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_UMASK: Final = 0o077


def main() -> NoReturn:
    """Carry out the order on stdin; never returns."""
    order: dict[str, Any] = json.load(sys.stdin)
    become(order["uid"], order["gid"], order["groups"])
    os.umask(_UMASK)
    if order["file"] is not None:
        path, text = order["file"]
        _replace_file(path, text)
    os.chdir(order["directory"])
    given = order.get("input")
    source = os.open(os.devnull, os.O_RDONLY) if given is None else _keep_in_memory(given)
    os.dup2(source, 0)
    os.close(source)
    command: list[str] = order["command"]
    os.execve(command[0], command, order["environment"])  # noqa: S606 -- a shell would read the user's variables


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become a user permanently: without capabilities, which later programs cannot regain either.

    Allows other processes of the same user to inspect this one, which workers need to share memory. The kernel forbids
    it after a change of user.

    Raises:
        PermissionError: this process may not change its user.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.prctl, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    # Capabilities are cleared automatically only by a change from root to another user.
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call(libc.capset, header, (ctypes.c_uint32 * 6)())
    _call(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call(libc.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise PermissionError(f"the process did not become user {uid}, group {gid}")


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise PermissionError(number, os.strerror(number))


def _keep_in_memory(text: str) -> int:
    """Return a file without a name, at its beginning: a secret in it is never on a disk, nor in a pipe that fills."""
    file = os.memfd_create("input")
    content = text.encode()
    while content:
        content = content[os.write(file, content) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _replace_file(path: str, text: str) -> None:
    scratch = f"{path}.new"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(scratch, path)  # noqa: PTH105 -- this program starts without pathlib


if __name__ == "__main__":
    main()
