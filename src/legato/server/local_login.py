"""Logs in the system user of the server on its machine, by a token in a file that only this user can read.

A process that can read the file can read the store as well. The token is valid for a day and is replaced long before
its end. The server revokes it when it stops; after a crash, the next start revokes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec
import structlog

from legato.control.people import NewToken, TokenKind
from legato.control.roles import Asker, Role
from legato.control.store import Store
from legato.core.errors import LegatoError
from legato.driver.journal import replace_file
from legato.system.decoding import decode

_log = structlog.get_logger(__name__)

FILE: Final = "local-login.json"
_LIFE_S: Final = 86_400.0
_EVERY_S: Final = 6 * 3600.0
_LOOK_EVERY_S: Final = 5.0
_ADMIN: Final = Asker("admin", Role.ADMIN)
_NAME: Final = "this-machine"


class LocalToken(msgspec.Struct, frozen=True):
    """The content of the file.

    Args:
        url: of the server.
        pid: of the server.
        token: logs in.
        id: of the token, by which the next server revokes it.
        ca: certificate (PEM) of the authority of the server. "": it uses no TLS.
    """

    url: str
    pid: int
    token: str
    id: str
    ca: str = ""


class LocalLogin:
    """Writes and deletes the file of one server.

    Args:
        store: the store of the platform.
        file: its path.
        url: URL of the server.
        ca: certificate (PEM) of the authority of the server. "": it uses no TLS.
    """

    def __init__(self, store: Store, file: Path, url: str, ca: str = "") -> None:
        self._store = store
        self._file = file
        self._url = url
        self._ca = ca
        self._made: NewToken | None = None

    def renew(self, now: float) -> None:
        """Write a new token into the file, and revoke the one that was in it, also if a crashed server wrote that.

        The token of another server of this machine that runs stays valid, because that server would renew it at once.

        Raises:
            LegatoError: the store cannot be used, or the user 'admin' cannot get a token.
            OSError: the file cannot be written.
        """
        before = self._read()
        made = self._store.tokens.create(
            _ADMIN.name, _NAME, _ADMIN, now, expires_at=now + _LIFE_S, kind=TokenKind.LOCAL
        )
        content = LocalToken(self._url, os.getpid(), made.secret, made.token.id, self._ca)
        replace_file(self._file, msgspec.json.encode(content))
        self._made = made
        if before is not None and (before.pid == os.getpid() or not _runs(before.pid)):
            with contextlib.suppress(LegatoError):
                self._store.tokens.revoke(before.id, _ADMIN, now)

    def was_revoked(self) -> bool:
        """Return whether the token was revoked, as all tokens of 'admin' are when it gets a new password.

        Raises:
            StoreError: the store cannot be used.
        """
        return self._made is not None and self._store.tokens.find(self._made.secret).revoked_at is not None

    def end(self, now: float) -> None:
        """Revoke the token, and delete the file unless another server of this machine has written its own."""
        if self._made is None:
            return
        found = self._read()
        if found is not None and found.id == self._made.token.id:
            with contextlib.suppress(OSError):
                self._file.unlink()
        with contextlib.suppress(LegatoError):
            self._store.tokens.revoke(self._made.token.id, _ADMIN, now)

    def _read(self) -> LocalToken | None:
        try:
            return decode(self._file.read_bytes(), LocalToken)
        except (OSError, msgspec.MsgspecError):
            return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


async def keep_local_login(
    login: LocalLogin, now: float, every_s: float = _EVERY_S, look_every_s: float = _LOOK_EVERY_S
) -> None:
    """Renew the token regularly until cancelled. Errors are only logged, because other log-ins do not need the file.

    Args:
        login: its first token was just written.
        now: the present time, in seconds since 1970.
        every_s: seconds between two renewals.
        look_every_s: seconds between two checks whether the token was revoked. Then it is renewed at once.
    """
    clock = asyncio.get_running_loop().time
    began = renewed = clock()
    while True:
        await asyncio.sleep(min(every_s, look_every_s))
        try:
            if clock() - renewed >= every_s or await asyncio.to_thread(login.was_revoked):
                renewed = clock()
                await asyncio.to_thread(login.renew, now + renewed - began)
        except (LegatoError, OSError) as error:
            _log.warning("the server could not log its own system user in on this machine", error=str(error))


def write_private(path: Path, text: str) -> None:
    """Write a file that only the system user of the server can read.

    Raises:
        OSError: the file cannot be written.
        LegatoError: other users could read the file there. It was deleted again.
    """
    replace_file(path, text.encode())
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        path.unlink()
        raise LegatoError(
            f"Cannot keep {path} private: its file system gives it the mode {mode:o}, and other users could read it. "
            "Put the server's home on a file system that keeps modes, such as ext4 or XFS."
        )
