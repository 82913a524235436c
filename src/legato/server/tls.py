"""TLS of the server: its own authority in the home, its certificate, and how the certificate is replaced in time.

All servers of a home use the authority in it, each with a certificate for its machine's names, which is in memory only.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import ssl
import time
from pathlib import Path
from typing import Final

import structlog

from legato.control.settings import Settings
from legato.core.errors import SettingsError
from legato.driver.journal import replace_file
from legato.system.certificates import Certificate, find_lifetime, issue, make_authority
from legato.system.tls import fingerprint, is_loopback, load_certificate, make_server_context

_log = structlog.get_logger(__name__)

FOLDER: Final = "tls"
AUTHORITY_FILE: Final = "authority.pem"
PLAIN: Final = "plain"
"""Stands in a join token for the fingerprint of the authority: machines may connect without TLS."""

_HERE: Final = ("localhost", "127.0.0.1", "::1")
_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 -- compared, not bound
_SOMEWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # of documentation
_DISCARD_PORT: Final = 9
_LOOK_EVERY_S: Final = 60.0
_LEFT: Final = 1 / 3  # of its life: then a certificate is replaced
_WARN_S: Final = 180 * 86_400.0
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)


class ServerTls:
    """The certificates of one server. New connections use the newest ones, and present ones are not interrupted.

    Args:
        settings: of the server, which uses TLS.
        now: seconds since 1970.

    Attributes:
        context: for the connections of the server.
        authority: the certificate (PEM) of the home's own authority. Programs on this machine trust it.

    Raises:
        SettingsError: the authority or the certificate cannot be used.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self._names = list_names(settings)
        self._files = settings.tls_files
        self._authority = open_authority(settings.home_path, now)
        self.authority = self._authority.certificate
        self._own = self.context = make_server_context()
        self._stamps: tuple[float, ...] = ()
        self._since = 0.0
        if self._files is not None:
            self._own = make_server_context()
            self.context.sni_callback = self._choose
        self._renew_at = self._issue(now)
        self._read_files()

    @property
    def is_own(self) -> bool:
        """Whether other machines verify this server by the home's own authority."""
        return self._files is None

    @property
    def pin(self) -> str:
        """What a join token says about the certificate of this server: the fingerprint of its own authority."""
        return fingerprint(self.authority) if self.is_own else ""

    def refresh(self, now: float) -> None:
        """Replace the certificate if it ends soon, or if the files with it have changed.

        Raises:
            SettingsError: the files cannot be used. The server keeps its certificate.
            OSError: the system cannot open a file. The server keeps its certificate.
        """
        if not self._since <= now < self._renew_at:  # or the clock was ahead when it was made
            self._renew_at = self._issue(now)
        self._read_files()

    async def keep_fresh(self) -> None:
        """Refresh the certificates until cancelled."""
        complaint = ""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self.refresh(time.time())
                complaint = ""
            except (SettingsError, OSError) as error:
                if str(error) != complaint:
                    complaint = str(error)
                    _log.warning(
                        "the server keeps its certificate, because the new one cannot be used", error=complaint
                    )

    def _issue(self, now: float) -> float:
        """Make and use a certificate of the own authority; return when it has to be replaced."""
        try:
            made = issue(self._authority, self._names, now)
        except ValueError as error:
            raise SettingsError(f"Cannot use TLS: {error} Correct the setting allowed_hosts.") from error
        load_certificate(self._own, made.certificate, made.key)
        self._since, end = find_lifetime(made.certificate)
        return end - (end - now) * _LEFT

    def _read_files(self) -> None:
        """Use the files of the settings, if they have changed."""
        if self._files is None:
            return
        try:
            stamps = tuple(file.stat().st_mtime for file in self._files)
            if stamps == self._stamps:
                return
            for context in (make_server_context(), self.context):  # a certificate that does not fit changes nothing
                context.load_cert_chain(*self._files, password=_refuse_password)
        except (OSError, ValueError) as error:  # errors of TLS are of this kind too
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            raise SettingsError(
                f"Cannot use tls_certificate='{self._files[0]}' with tls_key='{self._files[1]}': {reason}. The first "
                "must have the server's certificate and then those of its issuers, in the format PEM; the second its "
                "key, without a password."
            ) from error
        self._stamps = stamps

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Show programs of this machine the own certificate, because that of the settings has no name for them."""
        if name == "localhost":
            connection.context = self._own


def open_authority(home: Path, now: float) -> Certificate:
    """Return the authority of a home. The first call makes it.

    Args:
        home: of the platform.
        now: seconds since 1970.

    Raises:
        SettingsError: it cannot be read or written, or has expired.
    """
    file = home / FOLDER / AUTHORITY_FILE
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        if not file.exists():
            made = make_authority(f"Legato CA of {socket.gethostname()}", now)
            scratch = file.with_name(f".{secrets.token_hex(8)}")
            replace_file(scratch, (made.key + made.certificate).encode())
            # If several servers start at the same time, one of them creates the file.
            with contextlib.suppress(FileExistsError):
                file.hardlink_to(scratch)
            scratch.unlink()
        content = file.read_text(encoding="ascii")
        certificate, key = _CERTIFICATE.search(content), _KEY.search(content)
        if certificate is None or key is None:
            raise ValueError("it has no certificate with its key")
        since, until = find_lifetime(certificate[0])
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise SettingsError(
            f"Cannot use the server's own certificate authority '{file}': {reason}. Restore the file from a backup. If "
            "it is lost, remove it: the server makes a new one, and machines and users must be given its fingerprint."
        ) from error
    if until - now < _WARN_S:
        told = (
            f"The server's own certificate authority '{file}' ends within {max(until - now, 0) / 86_400:.0f} days. "
            "Remove the file and restart the server: it makes a new one. Let machines join again, and users log in "
            "again, with the new fingerprint."
        )
        if until <= now:
            raise SettingsError(told)
        _log.warning(told)
    if now < since:
        _log.warning(
            f"The server's own certificate authority '{file}' is valid only in {(since - now) / 86_400:.1f} days: the "
            "clock was ahead when it was made, or is behind now. Correct the clock. If it is right, remove the file "
            "and restart the server, and let machines join again, and users log in again, with the new fingerprint."
        )
    return Certificate(certificate[0], key[0])


def list_names(settings: Settings) -> list[str]:
    """Return the names and addresses by which clients may reach the server: its own and those of this machine."""
    names = [*_HERE, *(name for name in settings.allowed_hosts if name != "*"), socket.gethostname()]
    if settings.host not in _ANY:
        names.append(settings.host)
    for family, address in _SOMEWHERE:
        # No packet is sent: the system only chooses the address from which it would send one.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _DISCARD_PORT))
            names.append(str(probe.getsockname()[0]))
    return list(dict.fromkeys(name.strip("[]").lower() for name in names))


def make_token_suffix(settings: Settings, ca: str) -> str:
    """Return what a join token has behind its secret, by which an agent knows how to trust the server.

    Args:
        settings: of the server.
        ca: certificate (PEM) of the server's own authority; "": it has none.
    """
    if ca:
        return f".{fingerprint(ca)}"
    return f".{PLAIN}" if settings.allow_plain_agents else ""


def choose_public_url(settings: Settings, url: str) -> str:
    """Return the URL for users of other machines.

    Args:
        settings: of the server.
        url: for programs of this machine.
    """
    for name in settings.allowed_hosts:
        if name != "*" and not is_loopback(name.strip("[]")):
            return f"{url.partition(':')[0]}://{name}:{url.rpartition(':')[2]}"
    return url


def _refuse_password() -> str:
    raise ValueError("the key has a password")
