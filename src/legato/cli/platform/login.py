"""Commands that choose the platform: log in, log out, choose. Tokens are stored in one file, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from legato.cli.entry import Entry
from legato.cli.platform.completion import complete_servers
from legato.cli.platform.connecting import open_line
from legato.cli.platform.options import OutputOption
from legato.cli.platform.people import ask_secret, read_secret
from legato.cli.terminal.output import Output, make_table, write
from legato.cli.terminal.table import Column
from legato.core.errors import LegatoError, Unauthenticated, Unavailable, UsageError

if TYPE_CHECKING:
    from legato.client.servers import KnownServers, Server

_MAX_NAME: Final = 63


def login(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]", help="Address of the platform. [default: the one on this machine, or the current one]"
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the server in commands. [default: its host]")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", "-u", metavar="USER", help="Log in with a password instead of a token.")
    ] = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from standard input instead of asking for it.")
    ] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input; with --user.")
    ] = False,
    ca: Annotated[
        str | None,
        typer.Option(
            "--ca",
            metavar="FINGERPRINT|FILE",
            help="SHA-256 of the platform's certificate authority, or a file with its certificate. [default: show it "
            "and ask, if the system does not know it]",
        ),
    ] = None,
) -> None:
    """Log in to a platform and make it the current one. Stores its token in a file that only you can read.

    A platform that you run on this machine yourself needs neither token nor password.
    """
    from legato.client.client import Client
    from legato.client.servers import (
        Server,
        check_token,
        find_file,
        find_local,
        is_in_the_clear,
        read_known,
        write_known,
    )

    if token_stdin and (user is not None or password_stdin):
        raise UsageError("Give either a token or a password, not both.")
    if password_stdin and user is None:
        raise UsageError("--password-stdin needs --user USER.")
    file = find_file()
    known = read_known(file)
    where = _find_url(url, known)
    if is_in_the_clear(where):
        typer.echo(f"legato: {where} is not encrypted; others on the network can read the token.", err=True)
    token: str | None
    token_id = None
    local = find_local()
    trusted = _find_authority(where, ca, known, local)
    if user is None and not token_stdin and local is not None and local.url == where:
        # The server's file has a new one after each start, so it is not stored.
        token = None
        me = Client.on(open_line(local)).me()
    elif user is not None:
        if password_stdin:
            password = read_secret("password")
        else:
            _check_reachable(where, trusted)
            password = ask_secret("Password", "--password-stdin")
        device = known.devices.get(f"{user}@{where}")
        made = Client.on(open_line(Server(url=where, ca=trusted))).log_in(user, password, _name_token(), device=device)
        token, token_id = made.secret, made.token.id
        known = known.with_device(user, where, made.device)
    else:
        if token_stdin:
            given = read_secret("token")
        else:
            _check_reachable(where, trusted)
            given = ask_secret(f"Token for {where}", "--token-stdin, or --user USER")
        token = check_token(given)
    if token is not None:
        me = Client.on(open_line(Server(url=where, token=token, ca=trusted))).me()
    called = name or known.name_of(where) or _free_name(where, known)
    made_known = Server(url=where, token=token, token_id=token_id, user=me.name, ca=trusted)
    write_known(known.with_server(called, made_known), file)
    typer.echo(
        f"You are logged in to {where} as '{me.name}' ({me.role}). It is now the current platform (--server {called})."
    )


def logout(
    server: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Name of the server. [default: the current one]", autocompletion=complete_servers
        ),
    ] = None,
) -> None:
    """Log out of a platform. A token that 'legato login' made from a password is revoked."""
    from legato.client.client import Client
    from legato.client.servers import CURRENT, find_file, read_known, write_known

    file = find_file()
    known = read_known(file)
    found = known.find(server or CURRENT)
    if found is None:
        names = f"Known: {', '.join(known.servers)}." if known.servers else "You have not used 'legato login URL'."
        raise UsageError(f"Cannot log out of '{server or CURRENT}': there is no such server here. {names}")
    name = known.name_of(found.url) or ""
    ended = ""
    if found.token_id is not None:
        try:
            Client.on(open_line(found)).revoke_token(found.token_id)
            ended = ", and its token is revoked"
        except Unauthenticated:
            ended = ", and its token was not valid any more"
        except LegatoError as error:
            # Log out nevertheless; the token expires later.
            typer.echo(f"legato: the token could not be revoked: {error}", err=True)
    left = known.without(name)
    write_known(left, file)
    now = f" The current platform is now '{left.current}'." if left.current else ""
    typer.echo(f"'{name}' ({found.url}) is forgotten{ended}.{now}")


def servers(output: OutputOption = Output.table) -> None:
    """List the platforms that you are logged in to; * marks the current one."""
    from legato.client.servers import find_file, read_known

    known = read_known(find_file())
    found: list[dict[str, object]] = [
        {"name": name, "url": server.url, "user": server.user, "is_current": name == known.current}
        for name, server in known.servers.items()
    ]
    columns = (
        Column[dict[str, object]]("", lambda row: "*" if row["is_current"] else ""),
        Column[dict[str, object]]("NAME", lambda row: row["name"]),
        Column[dict[str, object]]("USER", lambda row: row["user"]),
        Column[dict[str, object]]("ADDRESS", lambda row: row["url"]),
    )
    nowhere = "You have not used 'legato login URL'. Commands look for a platform that you run on this machine."
    write(found, output, lambda: make_table(columns, found, is_wide=False) if found else nowhere)


def use(
    server: Annotated[str, typer.Argument(metavar="NAME", help="Name of the server.", autocompletion=complete_servers)],
) -> None:
    """Choose the current platform. Commands without --server go to it."""
    from legato.client.servers import find_file, read_known, write_known

    file = find_file()
    known = read_known(file).using(server)
    write_known(known, file)
    typer.echo(f"The current platform is now '{server}' ({known.servers[server].url}).")


ENTRIES: Final = (
    Entry("login", login, "legato login https://gpu.example.org --user anna"),
    Entry("logout", logout, "legato logout"),
)
CONFIG_ENTRIES: Final = (
    Entry("servers", servers, "legato config servers", short="List the platforms you are logged in to."),
    Entry("use", use, "legato config use prod", short="Choose the current platform."),
)


def _check_reachable(url: str, ca: str | None) -> None:
    """Raise LegatoError if no server answers, before the user types a secret in vain."""
    from legato.client.client import Client
    from legato.client.servers import Server

    Client.on(open_line(Server(url=url, ca=ca))).version()


def _find_authority(url: str, said: str | None, known: KnownServers, local: Server | None) -> str | None:
    """Return the certificate of the authority that verifies a server; None: one that the system knows does.

    Args:
        url: of the server.
        said: the option ``--ca``.
        known: earlier logins: an authority stays trusted until the user names another.
        local: the server of this machine.

    Raises:
        LegatoError: the server cannot be reached, or the user does not trust its authority.
    """
    from legato.client.retries import NotTrusted
    from legato.system.tls import fingerprint

    if urlsplit(url).scheme == "http":
        if said is not None:
            raise UsageError(f"--ca needs TLS, and {url} has none. Write https:// in the address.")
        return None
    if said is not None:
        return _read_authority(url, said)
    before = local if local is not None and local.url == url else known.find(url)
    if before is not None and before.ca is not None:
        return before.ca
    try:
        _check_reachable(url, None)
    except NotTrusted:
        shown = _fetch_authority(url)
        if shown is None:
            raise
        _ask_trust(url, fingerprint(shown))
        return shown
    return None


def _read_authority(url: str, said: str) -> str:
    """Return the certificate that the option ``--ca`` names. Errors as in `_find_authority`."""
    from legato.system.tls import fingerprint, read_certificate, read_fingerprint

    wanted = read_fingerprint(said)
    if wanted is None:
        return read_certificate(Path(said))
    shown = _fetch_authority(url)
    if shown is None or fingerprint(shown) != wanted:
        other = "it shows none of its own" if shown is None else f"it shows {fingerprint(shown)}"
        raise UsageError(
            f"Cannot log in to {url}: its certificate authority does not have the fingerprint {wanted}: {other}. "
            "Another program may answer at this address: nothing was sent to it. Ask the operator."
        )
    return shown


def _fetch_authority(url: str) -> str | None:
    from legato.system.tls import fetch_authority

    try:
        return fetch_authority(url)
    except OSError as error:
        raise Unavailable(f"Cannot reach the server at {url} by TLS: {error}. Is the address right?") from error


def _ask_trust(url: str, shown: str) -> None:
    """Let the user compare the fingerprint of a platform's authority. Raise UsageError if it is not the right one."""
    told = f"The platform at {url} has a certificate authority of its own, with the SHA-256 fingerprint {shown}."
    if not sys.stdin.isatty():
        raise UsageError(
            f"Cannot log in: this machine does not trust the certificate of the platform. {told} The platform shows "
            f"it when it starts. If it is the same there: legato login {url} --ca {shown}"
        )
    typer.echo(f"legato: {told} The platform shows it when it starts: compare, or ask the operator.", err=True)
    if not typer.confirm("Is it the same?", err=True):
        raise UsageError(f"You are not logged in to {url}. Nothing was sent to it.")


def _find_url(said: str | None, known: KnownServers) -> str:
    from legato.client.servers import CURRENT, SERVER_VARIABLE, read_url

    said = said or os.environ.get(SERVER_VARIABLE) or None
    if said is not None:
        found = known.find(said)
        return found.url if found is not None else read_url(said)
    current: Server | None = known.find(CURRENT)
    here = _find_here()
    url = here or (current.url if current is not None else None)
    if url is None:
        raise UsageError("Cannot log in: no platform runs on this machine. Name one: 'legato login URL'.")
    return url


def _find_here() -> str | None:
    """Return the address of this machine's platform, None if none runs."""
    import msgspec

    from legato.driver.journal import find_jobs_directory
    from legato.system.hosts import find_own_file

    home, name = find_jobs_directory().parent, "server.json"
    for file in (find_own_file(home, name), home / name):
        with contextlib.suppress(OSError, msgspec.MsgspecError, KeyError, TypeError):
            return str(msgspec.json.decode(file.read_bytes())["url"])
    return None


def _free_name(url: str, known: KnownServers) -> str:
    """Return the host as a name, ``here`` for this machine, with a number if that name is taken."""
    from legato.client.servers import is_loopback

    host = "here" if is_loopback(url) else (urlsplit(url).hostname or "").replace(":", "-").strip("-.")
    host = host[: _MAX_NAME - 4] or "server"
    name, number = host, 1
    while name in known.servers:
        number += 1
        name = f"{host}-{number}"
    return name


def _name_token() -> str:
    """Return the name of a login in the list of tokens: the host where it was made."""
    host = "".join(char for char in socket.gethostname() if char.isascii() and (char.isalnum() or char in "-."))
    return f"login-{host}"[:_MAX_NAME].rstrip("-.")
