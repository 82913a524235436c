"""Makes certificates: an authority of an installation, the certificates that it signs, and those of drivers.

Loads the package ``cryptography`` only when something is made, so that nothing else waits for it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from legato.core.errors import UsageError
from legato.system.tls import DOOR_NAME

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_AUTHORITY_DAYS: Final = 3650
_SERVER_DAYS: Final = 90
_EARLIER: Final = timedelta(days=1)  # clocks of machines may be hours apart
_ALWAYS: Final = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


class Certificate(msgspec.Struct, frozen=True):
    """A certificate with its key.

    Args:
        certificate: PEM; that of its issuer follows, if it has one.
        key: PEM. It never leaves the process or the file that it is in.
    """

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Certificate(…)"


def make_authority(name: str, now: float) -> Certificate:
    """Make an authority that signs certificates of servers, but not of further authorities.

    Args:
        name: what people read in the certificate.
        now: seconds since 1970.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    since = datetime.fromtimestamp(now, UTC)
    lasts = (since - _EARLIER, since + timedelta(days=_AUTHORITY_DAYS))
    builder = _begin(subject, subject, key, key, lasts)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _sign(builder, key, key)


def issue(authority: Certificate, names: Sequence[str], now: float) -> Certificate:
    """Make a certificate of a server, signed by an authority.

    Args:
        authority: which signs it.
        names: host names and addresses of the server.
        now: seconds since 1970.

    Raises:
        UsageError: a name cannot be in a certificate.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    signer = load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    since = datetime.fromtimestamp(now, UTC)
    until = min(since + timedelta(days=_SERVER_DAYS), issuer.not_valid_after_utc)
    builder = _begin(_name("Legato server"), issuer.subject, key, signer, (since - _EARLIER, until))
    made = _sign(_for_server(builder, names), key, signer)
    return Certificate(made.certificate + authority.certificate, made.key)


def make_door_certificate() -> Certificate:
    """Make the certificate of one driver, signed by itself: it is trusted by those alone who are given it.

    It is valid at any time, so a wrong clock of a machine does not stop a job; it ends with the driver.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("Legato driver")
    return _sign(_for_server(_begin(subject, subject, key, key, _ALWAYS), [DOOR_NAME]), key, key)


def find_lifetime(certificate: str) -> tuple[float, float]:
    """Return from when until when a certificate (PEM) is valid, in seconds since 1970.

    Raises:
        ValueError: it cannot be read.
    """
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate.encode())
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    signer: EllipticCurvePrivateKey,
    lasts: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(lasts[0])
        .not_valid_after(lasts[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _for_server(builder: x509.CertificateBuilder, names: Sequence[str]) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_read_name(name) for name in names]), critical=False)
    )


def _read_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    plain = name.strip("[]")
    try:
        return x509.IPAddress(ipaddress.ip_address(plain.partition("%")[0]))
    except ValueError:
        pass
    try:
        return x509.DNSName(plain.encode("idna").decode("ascii"))
    except (UnicodeError, ValueError) as error:
        raise UsageError(
            f"Cannot make a certificate for the name '{name[:100]}': it is neither a host name nor an address."
        ) from error


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(
    builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, signer: EllipticCurvePrivateKey
) -> Certificate:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    return Certificate(made, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
