"""TLS of servers, doors and their clients: contexts, fingerprints, and how to get a server's own authority.

A client trusts the system's authorities, or exactly one given certificate. The only connection that is not verified is
the one of `fetch_authority`, whose caller compares the result with a fingerprint that it has from elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from legato.core.errors import UsageError

DOOR_NAME: Final = "legato-driver"
"""The name in the certificate of each driver, at whatever address or tunnel the driver is reached."""

AUTHORITY_PATH: Final = "/ca.pem"
"""Where a server with its own authority shows the authority's certificate."""

HANDSHAKE_LIMIT_S: Final = 10.0

_FETCH_LIMIT_S: Final = 10.0
_MAX_PEM_BYTES: Final = 2**16
_WRONG_NAME: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_TIME: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_WAITS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)  # a limit of time that ends a wait has them as context
_NO_TLS: Final = "WRONG_VERSION_NUMBER"  # what OpenSSL makes of an answer of another protocol
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


def make_server_context() -> ssl.SSLContext:
    """Return a context for servers, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Let a server's context use a certificate from its next connection on. The key is not written to a disk.

    Args:
        context: of the server.
        certificate: PEM; the certificates of its issuers may follow.
        key: PEM.

    Raises:
        ssl.SSLError: they cannot be read, or do not belong together.
    """
    descriptor = os.memfd_create("legato-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{key}\n{certificate}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def make_client_context(authority: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies servers.

    Args:
        authority: the only certificates (PEM) that are trusted, each of them. None: the system's trust store, or the
            one that the variables SSL_CERT_FILE and SSL_CERT_DIR name.

    Raises:
        ssl.SSLError: the certificate cannot be read.
    """
    context = ssl.create_default_context(cadata=authority or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not authority and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        import certifi

        context.load_verify_locations(certifi.where())  # some Pythons do not find the system's store
    return context


def choose_tls(certificate: str) -> dict[str, Any]:
    """Return the arguments of asyncio's ``connect`` for a driver's door.

    Args:
        certificate: of the driver (PEM). "": the door uses no TLS.
    """
    if not certificate:
        return {}
    return {"ssl": make_client_context(certificate), "server_hostname": DOOR_NAME}


def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of the first certificate in a PEM text, as 64 hexadecimal digits.

    Raises:
        UsageError: there is no certificate.
    """
    return hashlib.sha256(_read_first(certificate)).hexdigest()


def keep_first(certificates: str) -> str:
    """Return the first certificate of a PEM text, which is the one that `fingerprint` describes, and nothing else.

    A context of a client trusts every certificate in its text. So a text of a stranger must be reduced to the
    certificate whose fingerprint was compared.

    Raises:
        UsageError: there is no certificate.
    """
    return ssl.DER_cert_to_PEM_cert(_read_first(certificates))


def _read_first(certificates: str) -> bytes:
    begin, end = certificates.find(ssl.PEM_HEADER), certificates.find(ssl.PEM_FOOTER)
    with contextlib.suppress(ValueError):
        if 0 <= begin < end:
            return ssl.PEM_cert_to_DER_cert(certificates[begin : end + len(ssl.PEM_FOOTER)])
    raise UsageError("It has no certificate in the format PEM, which begins with '-----BEGIN CERTIFICATE-----'.")


def read_fingerprint(text: str) -> str | None:
    """Return a fingerprint in its normal form; None if a text is none.

    >>> read_fingerprint("AB:" * 31 + "cd") == "ab" * 31 + "cd", read_fingerprint("ca.pem")
    (True, None)
    """
    found = text.strip().replace(":", "").lower()
    return found if _FINGERPRINT.fullmatch(found) else None


def read_certificate(path: Path) -> str:
    """Return the content of a file with a certificate.

    Raises:
        UsageError: it cannot be read, or has no certificate.
    """
    try:
        with path.open(encoding="ascii") as file:
            content = file.read(_MAX_PEM_BYTES)
        fingerprint(content)
    except (OSError, UnicodeDecodeError, UsageError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"Cannot read a certificate from '{path}': {why}") from error
    return content


def fetch_authority(url: str) -> str | None:
    """Return the certificate (PEM) that a server shows as that of its own authority; None: it shows none.

    The connection is not verified, and nothing secret is sent over it. Compare the `fingerprint` of the result, and
    connect again with `make_client_context`.

    Args:
        url: of the server, with the scheme https.

    Raises:
        OSError: the server cannot be reached by TLS, or answers too slowly.
        UsageError: it refuses the request, or what it shows is no certificate.
    """
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert parts.hostname is not None
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_FETCH_LIMIT_S, context=context)
    timer = threading.Timer(_FETCH_LIMIT_S, _cut, [connection])
    timer.daemon = True
    try:
        connection.connect()
        timer.start()
        connection.request("GET", parts.path.rstrip("/") + AUTHORITY_PATH)
        answer = connection.getresponse()
        content = answer.read(_MAX_PEM_BYTES).decode("ascii", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"it does not answer as a server does ({type(error).__name__})") from error
    finally:
        timer.cancel()
        connection.close()
    if answer.status == http.client.OK:
        return keep_first(content) if ssl.PEM_HEADER in content else None
    if answer.status == http.client.NOT_FOUND:
        return None
    with contextlib.suppress(ValueError, AttributeError):
        content = str(json.loads(content).get("detail"))
    told = f"it answers {answer.status}: {''.join(char for char in content if char.isprintable())[:300]}"
    if answer.status >= http.client.INTERNAL_SERVER_ERROR:
        raise OSError(told)
    raise UsageError(f"Cannot get the certificate of the authority of {url}: {told}")


def _cut(connection: http.client.HTTPSConnection) -> None:
    """End a request that takes too long; each part of it has arrived in time."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def find_tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that has caused an error; None if that was something else, such as a limit of time."""
    while error is not None and (not isinstance(error, ssl.SSLError) or isinstance(error, _WAITS)):
        error = error.__cause__ or error.__context__
    return error


def is_about_name(error: ssl.SSLError | None) -> bool:
    """Return whether a certificate is trusted, but belongs to another name than that by which the server was called."""
    return getattr(error, "verify_code", 0) in _WRONG_NAME


def is_without_tls(error: ssl.SSLError) -> bool:
    """Return whether the other side does not use TLS."""
    return error.reason == _NO_TLS


def explain_tls_error(error: ssl.SSLError) -> str:
    """Return the reason of an error of TLS, without its period."""
    if isinstance(error, ssl.SSLCertVerificationError):
        clocks = "; compare the clocks of both machines" if error.verify_code in _WRONG_TIME else ""
        return f"its certificate cannot be verified: {error.verify_message.rstrip('.')}{clocks}"
    if is_without_tls(error):
        return "it does not use TLS"
    return f"the handshake of TLS with it fails ({(error.reason or str(error)).replace('_', ' ').lower()})"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("gpu.example.org")
    (True, True, True, False)
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
