"""Certificates for QUIC, which speaks nothing but TLS: one that a node makes for itself, and the fingerprint by which clients know it."""

import datetime
import hashlib
import ipaddress
import os
import socket
import ssl
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE_NAME: Final = "quic.pem"
KEY_NAME: Final = "quic.key"
_LIFE: Final = datetime.timedelta(days=3652)
_CLOCKS_APART: Final = datetime.timedelta(hours=1)
_LEFT_MIN: Final = datetime.timedelta(days=30)
"""One that is over sooner is made anew at the next start."""
_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class CertificateFiles(msgspec.Struct, frozen=True):
    certificate: Path
    key: Path


def own_certificate(directory: Path, *names: str) -> CertificateFiles:
    """The one in `directory`, made there if there is none that is good for a while. Both files are their owner's alone."""
    files = CertificateFiles(directory / CERTIFICATE_NAME, directory / KEY_NAME)
    if not _is_good(files):
        _make(files, (*_NAMES, socket.gethostname(), *names))
    return files


def fingerprint_of(certificate: Path) -> str:
    """SHA-256 of the first certificate in the file, as `openssl x509 -fingerprint -sha256` writes it."""
    pem = certificate.read_text()
    end = "-----END CERTIFICATE-----"
    return fingerprint(ssl.PEM_cert_to_DER_cert(pem[: pem.index(end) + len(end)]))


def fingerprint(der: bytes) -> str:
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _is_good(files: CertificateFiles) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    except (OSError, ValueError):
        return False
    is_pair = certificate.public_key() == key.public_key()
    return is_pair and certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + _LEFT_MIN


def _make(files: CertificateFiles, names: tuple[str, ...]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headrace")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_APART)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_named(each) for each in dict.fromkeys(names)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _replace(files.key, secret)
    _replace(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _named(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
