"""The address of the server and its token: from arguments, the environment, or the file of `legato login`.

A token is only returned together with the address of its server. Sends no requests.
"""

from __future__ import annotations

import contextlib
import os
import shlex
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
from legato.system.hosts import find_own_file
from legato.system.processes import listens_here

SERVER_VARIABLE: Final = "LEGATO_SERVER"
TOKEN_VARIABLE: Final = "LEGATO_TOKEN"  # noqa: S105 -- the name of a variable
CURRENT: Final = "current"
"""Stands for the server that was chosen last. No server can have this name."""

LOCAL_FILE: Final = "local-login.json"
"""A file in the home of a platform, with a token for the system user who runs the platform."""

LAST_CONFIG: Final = "last-config"
"""A file in the home of a platform, with the path that its last server had for ``--config``; empty: it had none."""

_MAX_LOCAL_BYTES: Final = 2**16
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the token for it.

    Args:
        url: its address, in the form of `read_url`.
        token: the token. None: not known yet.
        token_id: id of the token, with which it can be revoked. None: the token does not come from `legato login`.
        user: name of the user to whom the token belongs.
        ca: certificate (PEM) of the only authority that is trusted for this server. None: those of the system.
    """

    url: str
    token: str | None = None
    token_id: str | None = None
    user: str | None = None
    ca: str | None = None

    def __repr__(self) -> str:
        return f"Server(url={self.url!r}, user={self.user!r}, token={'lgt_…' if self.token else None!r})"


class LocalServer(Server, frozen=True, kw_only=True):
    """The server that this system user runs on this machine, with the token in a file of its home.

    The server replaces the token at each start and every six hours, so a client that is refused reads the file again.

    Args:
        home: of the platform.
    """

    home: Path


class KnownServers(msgspec.Struct, frozen=True):
    """The servers that the user has logged in to, by name.

    Args:
        current: name of the server to use if none is given.
        servers: all of them.
        devices: ``USER@URL`` → secret by which the server recognizes this device. It does not log a user in, and stays
            after a logout.
    """

    current: str | None = None
    servers: dict[str, Server] = {}
    devices: dict[str, str] = {}

    def find(self, said: str) -> Server | None:
        """Return the server with a name or an address; None if it is not known."""
        if said == CURRENT:
            said = self.current or ""
        if said in self.servers:
            return self.servers[said]
        if not looks_like_url(said):
            return None
        url = read_url(said)
        return next((server for server in self.servers.values() if server.url == url), None)

    def name_of(self, url: str) -> str | None:
        """Return the name of the server with an address; None if it is not known."""
        return next((name for name, server in self.servers.items() if server.url == url), None)

    def with_server(self, name: str, server: Server) -> KnownServers:
        """Return these servers with one added, which replaces one of the same name and becomes the current one."""
        check_name(name, "a server")
        if name == CURRENT:
            raise UsageError(
                f"Cannot name a server '{CURRENT}': this word always means the current server. Choose another name."
            )
        return KnownServers(name, {**self.servers, name: server}, self.devices)

    def with_device(self, user: str, url: str, device: str | None) -> KnownServers:
        """Return these servers with the secret of this device, if a server has sent one."""
        return (
            self
            if device is None
            else KnownServers(self.current, self.servers, {**self.devices, f"{user}@{url}": device})
        )

    def without(self, name: str) -> KnownServers:
        """Return these servers without one; if that was the current one, the last of the others becomes current."""
        left = {other: server for other, server in self.servers.items() if other != name}
        current = self.current if self.current in left else next(reversed(left), None)
        return KnownServers(current, left, self.devices)

    def using(self, name: str) -> KnownServers:
        """Return these servers with another current one.

        Raises:
            NotFound: the server is not known.
        """
        if name not in self.servers:
            raise NotFound(f"There is no server '{name}' here. {_describe_known(self)}")
        return KnownServers(name, self.servers, self.devices)


# ---------------------------------------------------------------- the file


def find_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file in which `legato login` stores servers and tokens."""
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "legato" / "servers.json"


def read_known(file: Path) -> KnownServers:
    """Read the file. If it does not exist, no servers are known.

    Raises:
        UsageError: the file cannot be read.
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
    """Write the file, completely or not at all, so that only its owner can read it.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # No other user can ever read the file: mkstemp makes files of mode 0600.
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


# ---------------------------------------------------------------- the server to use


def find_server(
    said: str | None = None,
    token: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Server:
    """Find the server to use, with the token for it.

    If no server is given and none is current, it is the one that the same system user runs on this machine; see
    `find_local`.

    Args:
        said: an address, a name of `legato login`, or ``current``; if there is no current one, ``current`` means the
            one on this machine. None: ``LEGATO_SERVER``, else the current one.
        token: None: ``LEGATO_TOKEN``, unless ``LEGATO_SERVER`` names another server; else the one of `legato login`.
        environment: variables.
        file: None: `find_file`.

    Raises:
        NotFound: there is no server of that name.
        Unauthenticated: no server is known.
        UsageError: an address or the file cannot be read.
    """
    known = read_known(file or find_file(environment))
    named = environment.get(SERVER_VARIABLE) or None
    current = CURRENT if known.current else None
    if named == CURRENT:
        named = current
    wanted = current if said == CURRENT else said or named or current
    server: Server
    if wanted is not None:
        server = _find(wanted, known)
    elif (own := find_local(environment)) is not None:
        server = own
    else:
        start = find_start(find_local_home(environment))
        raise Unauthenticated(f"No server is known. Log in with 'legato login URL', or start one here with '{start}'.")
    # If LEGATO_SERVER is set, LEGATO_TOKEN is for that server only.
    if token is None and (named is None or _find(named, known).url == server.url):
        token = environment.get(TOKEN_VARIABLE) or None
    # Looked for only if needed, because that takes a while: for its token, or for the authority of its certificate.
    if server.token is None and (token is None or server.url.startswith("https:")):
        local = find_local(environment)
        if local is not None and local.url == server.url:
            server = local
    if token is not None:
        return Server(url=server.url, token=check_token(token), ca=server.ca)
    return server


def find_local_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home in which `find_local` looks for a platform of this machine."""
    return Path(environment.get("LEGATO_HOME") or "~/.local/share/legato").expanduser().absolute()


def find_start(home: Path) -> str:
    """Return the command that starts the server of a home with the settings file of its last start."""
    try:
        with (home / LAST_CONFIG).open(encoding="utf-8") as stream:
            config = stream.read(_MAX_LOCAL_BYTES)
    except (OSError, UnicodeDecodeError):
        config = ""
    return f"legato up --config {shlex.quote(config)}" if config and config.isprintable() else "legato up"


def find_local(environment: Mapping[str, str] = os.environ) -> LocalServer | None:
    """Return the server that this system user runs on this machine, with a token for it; None if there is none.

    Args:
        environment: names the home of the platform in ``LEGATO_HOME``, if it is not the default one.
    """
    return read_local(find_local_home(environment))


def read_local(home: Path) -> LocalServer | None:
    """Return the server of a home, as `find_local` does.

    If servers of several machines share the home, each machine has a file of its own.

    The server has written the token into a file that only this user can read. The file of a server that has crashed is
    ignored, because another program may listen at its address now.
    """
    return _read_local(home, find_own_file(home, LOCAL_FILE)) or _read_local(home, home / LOCAL_FILE)


def _read_local(home: Path, file: Path) -> LocalServer | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None
            content = msgspec.json.decode(stream.read(_MAX_LOCAL_BYTES))
        url, token, ca = read_url(content["url"]), check_token(content["token"]), str(content.get("ca") or "") or None
        os.kill(int(content["pid"]), 0)  # fails if there is no such process, or if it is another user's
    except (OSError, RuntimeError, ValueError, msgspec.MsgspecError, UsageError, KeyError, TypeError, AttributeError):
        return None
    port = urlsplit(url).port
    if port is None or not is_loopback(url) or not listens_here(port):
        return None
    return LocalServer(url=url, token=token, user="admin", ca=ca, home=home)


def looks_like_url(said: str) -> bool:
    """Return whether a text that is not a known name is an address.

    >>> [looks_like_url(said) for said in ("https://a", "localhost", "gpu.example.org", "prod")]
    [True, True, True, False]
    """
    return ":" in said or "." in said or said in _LOOPBACK


def read_url(said: str) -> str:
    """Return the address of a server in its normal form.

    An address without a scheme gets https, or http if it is on this machine.

    Raises:
        UsageError: it cannot be the address of a server.

    >>> read_url("LOCALHOST:8765/"), read_url("gpu.example.org/legato/api/v1/")
    ('http://localhost:8765', 'https://gpu.example.org/legato')
    """
    failure = f"Cannot use '{_without_secrets(said)}' as the address of a server"
    example = "Write it as in 'https://gpu.example.org' or 'localhost:8765'."
    try:
        parts = urlsplit(said if "://" in said else f"//{said}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{failure}: {error}. {example}") from None
    scheme = parts.scheme or ("http" if parts.hostname in _LOOPBACK else "https")
    if scheme not in ("http", "https") or not parts.hostname or not said.isprintable() or " " in said:
        raise UsageError(f"{failure}. {example}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{failure}: it contains a user or password. Omit it, and log in with 'legato login'.")
    if parts.query or parts.fragment:
        raise UsageError(f"{failure}: it has a query or a fragment. {example}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[scheme]
    where = host if port in (None, default) else f"{host}:{port}"
    return f"{scheme}://{where}{parts.path.rstrip('/').removesuffix(API).rstrip('/')}"


def is_in_the_clear(url: str) -> bool:
    """Return whether requests to an address could be read in the network: it is http, and not on this machine.

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
        UsageError: the text cannot be a token.
    """
    cleaned = token.strip()
    if not cleaned or not cleaned.isascii() or not cleaned.isprintable() or " " in cleaned:
        raise UsageError("Cannot use this token: it is empty or has invalid characters. Copy the whole token.")
    return cleaned


def _find(said: str, known: KnownServers) -> Server:
    found = known.find(said)
    if found is not None:
        return found
    if looks_like_url(said):
        return Server(url=read_url(said))
    raise NotFound(f"There is no server '{said}' here. {_describe_known(known)}")


def _describe_known(known: KnownServers) -> str:
    if not known.servers:
        return "Log in with 'legato login URL'."
    return f"Known: {', '.join(known.servers)}. Log in to another with 'legato login URL --name NAME'."


def _without_secrets(said: str) -> str:
    head, at, tail = said.rpartition("@")
    return f"…@{tail}" if at and head else said
