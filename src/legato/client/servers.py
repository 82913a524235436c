"""The address of the server and its token: from arguments, the environment, or the file of `legato login`.

A token is only ever handed out together with the one address that it is for. Asks no server.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from legato.api import API
from legato.core.errors import NotFound, Unauthenticated, UsageError
from legato.core.spec import check_name
from legato.system.decoding import decode
from legato.system.processes import listens_here

SERVER_VARIABLE: Final = "LEGATO_SERVER"
TOKEN_VARIABLE: Final = "LEGATO_TOKEN"  # noqa: S105 -- the name of a variable
CURRENT: Final = "current"
"""What may be said for the server that was chosen last; no server can have this name."""

LOCAL_FILE: Final = "local-login.json"
"""In the home of a platform: how the system user who runs it is known to it."""

_MAX_LOCAL_BYTES: Final = 2**16
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and how to be known there.

    Args:
        url: its address, as `read_url` writes it.
        token: None: it is not known yet.
        token_id: of the token, so that it can be revoked. None: it came from elsewhere than `legato login`.
        user: who the token says that one is.
    """

    url: str
    token: str | None = None
    token_id: str | None = None
    user: str | None = None

    def __repr__(self) -> str:
        return f"Server(url={self.url!r}, user={self.user!r}, token={'lgt_…' if self.token else None!r})"


class KnownServers(msgspec.Struct, frozen=True):
    """The servers that the user has logged in to, by name.

    Args:
        current: the one that is meant where nothing is said.
        servers: all of them.
        devices: by which servers know this device again, by ``USER@URL``; they are no log-in, and outlive a logout.
    """

    current: str | None = None
    servers: dict[str, Server] = {}
    devices: dict[str, str] = {}

    def find(self, said: str) -> Server | None:
        """Return the server of a name or an address; None: it is not known."""
        if said == CURRENT:
            said = self.current or ""
        if said in self.servers:
            return self.servers[said]
        if not looks_like_url(said):
            return None
        url = read_url(said)
        return next((server for server in self.servers.values() if server.url == url), None)

    def name_of(self, url: str) -> str | None:
        """Return under which name an address is known."""
        return next((name for name, server in self.servers.items() if server.url == url), None)

    def with_server(self, name: str, server: Server) -> KnownServers:
        """Return these and one more, or one in the place of another of its name; it is the current one then."""
        check_name(name, "a server")
        if name == CURRENT:
            raise UsageError(f"Cannot name a server '{CURRENT}': that means the one chosen last. Choose another name.")
        return KnownServers(name, {**self.servers, name: server}, self.devices)

    def with_device(self, user: str, url: str, device: str | None) -> KnownServers:
        """Return these with what a server knows this device by; None: it said nothing."""
        return (
            self
            if device is None
            else KnownServers(self.current, self.servers, {**self.devices, f"{user}@{url}": device})
        )

    def without(self, name: str) -> KnownServers:
        """Return these but one; if it was the current one, the last of the others is."""
        left = {other: server for other, server in self.servers.items() if other != name}
        current = self.current if self.current in left else next(reversed(left), None)
        return KnownServers(current, left, self.devices)

    def using(self, name: str) -> KnownServers:
        """Return these with another one the current one.

        Raises:
            NotFound: it is not known.
        """
        if name not in self.servers:
            raise NotFound(f"There is no server '{name}' here. {_told(self)}")
        return KnownServers(name, self.servers, self.devices)


# ---------------------------------------------------------------- the file


def find_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where `legato login` writes down servers and tokens."""
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "legato" / "servers.json"


def read_known(file: Path) -> KnownServers:
    """Read the file; nothing is known where there is none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return decode(file.read_bytes(), KnownServers)
    except FileNotFoundError:
        return KnownServers()
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"Cannot read '{file}': {why}. Make it readable for you, or move it away.") from error
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"Cannot read '{file}', where 'legato login' keeps servers and tokens: {error}. Correct it, or delete it "
            "and log in again with 'legato login URL'."
        ) from error


def write_known(known: KnownServers, file: Path) -> None:
    """Write the file, whole or not at all, readable by its owner alone.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # From its first byte on no other user can read it: mkstemp makes files of mode 0600.
        descriptor, scratch = tempfile.mkstemp(dir=file.parent, prefix=".servers-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(known)) + b"\n")
            Path(scratch).replace(file)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(scratch).unlink()
            raise
    except OSError as error:
        raise UsageError(
            f"Cannot write '{file}': {error}. Make room or correct its permissions, and log in again."
        ) from error


# ---------------------------------------------------------------- which one is meant


def find_server(
    said: str | None = None,
    token: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Server:
    """Find the server that is meant, with the token for it.

    Where none is known, one that the same system user runs on this machine is meant; see `find_local`.

    Args:
        said: an address, a name of `legato login`, or ``current``. None: ``LEGATO_SERVER``, else the current one.
        token: None: ``LEGATO_TOKEN``, if that is not for another server, else the one of `legato login`.
        environment: variables.
        file: None: `find_file`.

    Raises:
        NotFound: there is no server of that name.
        Unauthenticated: no server is known.
        UsageError: an address or the file cannot be read.
    """
    known = read_known(file or find_file(environment))
    named = environment.get(SERVER_VARIABLE) or None
    wanted = said or named or (CURRENT if known.current else None)
    local = find_local(environment)
    if wanted is None and local is not None:
        server = local
    elif wanted is None:
        raise Unauthenticated("No server is known. Log in with 'legato login URL', or start one here with 'legato up'.")
    else:
        server = _find(wanted, known)
        if server.token is None and local is not None and server.url == local.url:
            server = local
    # Beside an address of its own it is for that one alone.
    if token is None and (named is None or _find(named, known).url == server.url):
        token = environment.get(TOKEN_VARIABLE) or None
    if token is not None:
        return Server(url=server.url, token=check_token(token))
    return server


def find_local_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home in which `find_local` looks for a platform of this machine."""
    return Path(environment.get("LEGATO_HOME") or "~/.local/share/legato").expanduser().absolute()


def find_local(environment: Mapping[str, str] = os.environ) -> Server | None:
    """Return the server that this system user runs on this machine, with a token for it; None: there is none.

    It has written the token into a file that this user alone can read. The file of a server that has crashed is not
    believed: another program may listen at its address by now.

    Args:
        environment: names the home of the platform in ``LEGATO_HOME``, if that is not the usual one.
    """
    try:
        descriptor = os.open(find_local_home(environment) / LOCAL_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None
            told = msgspec.json.decode(stream.read(_MAX_LOCAL_BYTES))
        url, token = read_url(told["url"]), check_token(told["token"])
        os.kill(int(told["pid"]), 0)  # of another user it may not be asked; there it fails
    except (OSError, RuntimeError, ValueError, msgspec.MsgspecError, UsageError, KeyError, TypeError, AttributeError):
        return None
    port = urlsplit(url).port
    if port is None or not is_loopback(url) or not listens_here(port):
        return None
    return Server(url=url, token=token, user="admin")


def looks_like_url(said: str) -> bool:
    """Return whether something that is no known name is an address.

    >>> [looks_like_url(said) for said in ("https://a", "localhost", "gpu.example.org", "prod")]
    [True, True, True, False]
    """
    return ":" in said or "." in said or said in _LOOPBACK


def read_url(said: str) -> str:
    """Return the address of a server in the one way in which it is written down.

    What is not said is safe: https, except on this machine.

    Raises:
        UsageError: it cannot be the address of a server.

    >>> read_url("LOCALHOST:8765/"), read_url("gpu.example.org/legato/api/v1/")
    ('http://localhost:8765', 'https://gpu.example.org/legato')
    """
    told = f"Cannot use '{_without_secrets(said)}' as the address of a server"
    example = "Write it as in 'https://gpu.example.org' or 'localhost:8765'."
    try:
        parts = urlsplit(said if "://" in said else f"//{said}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{told}: {error}. {example}") from None
    scheme = parts.scheme or ("http" if parts.hostname in _LOOPBACK else "https")
    if scheme not in ("http", "https") or not parts.hostname or not said.isprintable() or " " in said:
        raise UsageError(f"{told}. {example}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{told}: it has a password in it. Leave that out, and log in with 'legato login'.")
    if parts.query or parts.fragment:
        raise UsageError(f"{told}: it has a query or a fragment. {example}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[scheme]
    where = host if port in (None, default) else f"{host}:{port}"
    return f"{scheme}://{where}{parts.path.rstrip('/').removesuffix(API).rstrip('/')}"


def is_in_the_clear(url: str) -> bool:
    """Return whether others on the way could read what is sent there.

    >>> is_in_the_clear("http://gpu.example.org"), is_in_the_clear("http://localhost:8765")
    (True, False)
    """
    return urlsplit(url).scheme == "http" and not is_loopback(url)


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    return urlsplit(url).hostname in _LOOPBACK


def check_token(token: str) -> str:
    """Return a token without the white space around it.

    Raises:
        UsageError: it cannot be one.
    """
    cleaned = token.strip()
    if not cleaned or not cleaned.isascii() or not cleaned.isprintable() or " " in cleaned:
        raise UsageError("Cannot use what was given as a token: it is empty or has odd characters. Copy it whole.")
    return cleaned


def _find(said: str, known: KnownServers) -> Server:
    found = known.find(said)
    if found is not None:
        return found
    if looks_like_url(said):
        return Server(url=read_url(said))
    if said == CURRENT:
        raise Unauthenticated("There is no current server. Log in with 'legato login URL'.")
    raise NotFound(f"There is no server '{said}' here. {_told(known)}")


def _told(known: KnownServers) -> str:
    if not known.servers:
        return "Log in with 'legato login URL'."
    return f"Known: {', '.join(known.servers)}. Log in to another with 'legato login URL --name NAME'."


def _without_secrets(said: str) -> str:
    head, at, tail = said.rpartition("@")
    return f"…@{tail}" if at and head else said
