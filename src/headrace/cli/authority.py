"""The cluster's own certificate authority: it signs one certificate per node, and nodes let in nobody else.

Keys are of the curve P-256. Certificates are good for ten years: what one proves is that its holder was given a place in this
cluster, and a place is taken away by making a new authority.
"""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.errors import Invalid

_LIFE: Final = datetime.timedelta(days=3652)
_CLOCKS_APART: Final = datetime.timedelta(hours=1)
"""A machine whose clock is behind takes a certificate that was made just now."""


class Authority:
    """`ca.pem` and `ca.key` in a directory. Whoever has the key can add nodes: it stays where it was made."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def found(cls, directory: Path) -> "Authority":
        """A new one. Raises `FileExistsError` where there is one."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headrace cluster")])
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_secret(directory / "ca.key", _key_bytes(key))
        (directory / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(certificate, key)

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        try:
            certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
        except ValueError as error:
            raise Invalid(f"{directory}: ca.pem or ca.key cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Invalid(f"{directory / 'ca.key'} is not a key that `headrace cluster init` has made")
        return cls(certificate, key)

    def issue(self, node: str, directory: Path) -> None:
        """`node.pem` and `node.key` for a node of this name, which is also where others reach it, and `ca.pem`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        certificate = (
            _builder(subject, self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName(
                    [_alternative(each) for each in dict.fromkeys((node, "localhost", "127.0.0.1"))]
                ),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        write_secret(directory / "node.key", _key_bytes(key))
        (directory / "node.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (directory / "ca.pem").write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))


def write_secret(path: Path, content: bytes) -> None:
    """For its owner alone, and never over another."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_APART)
        .not_valid_after(now + _LIFE)
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
