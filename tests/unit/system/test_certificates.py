"""Certificates that Legato makes: what is in them, who trusts them, and who does not."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from legato.core.errors import UsageError
from legato.system import certificates
from legato.system.certificates import Certificate
from legato.system.tls import (
    DOOR_NAME,
    explain_tls_error,
    find_tls_error,
    fingerprint,
    load_certificate,
    make_client_context,
    make_server_context,
    read_certificate,
)

NOW = 1_800_000_000.0
ONE_DAY_S = 86_400.0


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """Return the version of TLS on which both agree. Raises what the client raises."""
    there, here = socket.socketpair()

    def accept() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as connection:
            return str(connection.version())
    finally:
        here.close()
        thread.join()


def serve(made: Certificate) -> ssl.SSLContext:
    context = make_server_context()
    load_certificate(context, made.certificate, made.key)
    return context


def read(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


@pytest.fixture(scope="module")
def now() -> float:
    import time

    return time.time()


def test_an_authority_may_sign_certificates_of_servers_only() -> None:
    made = read(certificates.make_authority("Legato CA", NOW).certificate)
    assert isinstance(made.public_key(), ec.EllipticCurvePublicKey)
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and not usage.value.digital_signature
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(days=3651)


def test_a_certificate_of_a_server_has_its_names_and_ends_after_90_days_or_with_its_authority() -> None:
    authority = certificates.make_authority("Legato CA", NOW)
    made = certificates.issue(authority, ["gpu.example.org", "[::1]", "10.0.0.5", "münchen.example"], NOW)
    assert made.certificate.endswith(authority.certificate), "the authority follows"
    found = read(made.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gpu.example.org", "xn--mnchen-3ya.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["::1", "10.0.0.5"]
    uses = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificates.find_lifetime(made.certificate) == (NOW - ONE_DAY_S, NOW + 90 * ONE_DAY_S)
    late = NOW + 3600 * ONE_DAY_S
    ends = certificates.find_lifetime(certificates.issue(authority, ["a"], late).certificate)[1]
    assert ends == NOW + 3650 * ONE_DAY_S
    with pytest.raises(UsageError, match=r"the name 'a\.\.b'"):
        certificates.issue(authority, ["a..b"], NOW)


def test_a_client_that_trusts_the_authority_accepts_its_servers_under_their_names_alone(now: float) -> None:
    authority = certificates.make_authority("Legato CA", now)
    server = serve(certificates.issue(authority, ["gpu.example.org", "127.0.0.1"], now))
    client = make_client_context(authority.certificate)
    assert shake_hands(server, client, "gpu.example.org") == "TLSv1.3"
    assert shake_hands(server, client, "127.0.0.1") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "other.example.org")
    other = make_client_context(certificates.make_authority("Legato CA", now).certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, other, "gpu.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, make_client_context(), "gpu.example.org")
    assert server.minimum_version == client.minimum_version == ssl.TLSVersion.TLSv1_2


def test_an_expired_certificate_is_refused(now: float) -> None:
    authority = certificates.make_authority("Legato CA", now - 100 * ONE_DAY_S)
    server = serve(certificates.issue(authority, ["a"], now - 91 * ONE_DAY_S))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired") as caught:
        shake_hands(server, make_client_context(authority.certificate), "a")
    assert explain_tls_error(caught.value).endswith("certificate has expired; compare the clocks of both machines")


@pytest.mark.parametrize("flags", [ssl.VerifyFlags(0), ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN])
def test_a_driver_is_trusted_by_those_who_have_its_certificate_also_with_the_strict_rules_of_newer_pythons(
    flags: ssl.VerifyFlags, now: float
) -> None:
    made = certificates.make_door_certificate()
    client = make_client_context(made.certificate)
    client.verify_flags |= flags
    assert shake_hands(serve(made), client, DOOR_NAME) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serve(certificates.make_door_certificate()), client, DOOR_NAME)
    authority = certificates.make_authority("Legato CA", now)
    strict = make_client_context(authority.certificate)
    strict.verify_flags |= flags
    assert shake_hands(serve(certificates.issue(authority, ["a"], now)), strict, "a") == "TLSv1.3"


def test_a_fingerprint_is_that_of_openssl(tmp_path: Path) -> None:
    made = certificates.make_authority("Legato CA", NOW)
    file = tmp_path / "ca.pem"
    file.write_text(f"a comment\n{made.key}{made.certificate}")
    assert fingerprint(read_certificate(file)) == read(made.certificate).fingerprint(_sha256()).hex()
    for content, why in (("nothing", "has no certificate"), ("-----BEGIN CERTIFICATE-----", "has no certificate")):
        file.write_text(content)
        with pytest.raises(UsageError, match=why):
            read_certificate(file)
    with pytest.raises(UsageError, match="No such file"):
        read_certificate(tmp_path / "missing")


def _sha256() -> x509.base.hashes.HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def test_a_key_is_in_no_text_that_may_be_logged() -> None:
    made = certificates.make_door_certificate()
    assert "PRIVATE" not in f"{made!r} {made} {[made]}"


def test_the_error_of_tls_is_found_behind_others() -> None:
    def fail(kind: Callable[[], Exception]) -> Exception:
        try:
            try:
                raise kind()
            except Exception as error:
                raise RuntimeError("outer") from error
        except RuntimeError as error:
            return error

    assert isinstance(find_tls_error(fail(lambda: ssl.SSLError("x"))), ssl.SSLError)
    assert find_tls_error(fail(lambda: OSError("x"))) is None
    # The wait that a limit of time ends.
    assert find_tls_error(fail(lambda: ssl.SSLWantReadError(2, "the operation did not complete"))) is None


def test_the_package_that_makes_certificates_is_loaded_only_to_make_one() -> None:
    modules = "legato, legato.system.door, legato.agent.pool_agent, legato.driver.driver, legato.server.serving"
    code = f"import sys, {modules}; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
