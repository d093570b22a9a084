"""RustLog behind a TLS tunnel, as docs/protocols/rustlog.md describes it: stunnel on both ends."""

import datetime
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.node import eventually, running_node
from tests.support.ports import kept_port
from tests.support.raw_socket import RawSocket

from headrace.clients import BlockingRustLogClient

STUNNEL = shutil.which("stunnel4") or shutil.which("stunnel")

pytestmark = pytest.mark.skipif(STUNNEL is None, reason="stunnel is not installed (Debian: apt install stunnel4)")

SERVER = """\
foreground = yes
pid =
syslog = no

[rustlog]
accept = 127.0.0.1:{tls_port}
connect = {broker}
cert = {folder}/server.pem
sslVersionMin = TLSv1.2
"""

CLIENT = """\
foreground = yes
pid =
syslog = no

[rustlog]
client = yes
accept = 127.0.0.1:{plain_port}
connect = 127.0.0.1:{tls_port}
CAfile = {folder}/server.pem
verifyChain = yes
checkHost = localhost
"""


@contextmanager
def stunnel(configuration: Path, port: int) -> Iterator[None]:
    assert STUNNEL is not None
    process = subprocess.Popen([STUNNEL, str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def is_listening() -> bool:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(is_listening, 60, "stunnel does not listen")
        yield
    finally:
        process.terminate()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def make_certificate(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))


@pytest.mark.requirement("R0.101")
def test_rustlog_through_a_tls_tunnel(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    make_certificate(tmp_path)
    with kept_port() as tls_port, kept_port() as plain_port, running_node(tmp_path / "data") as node:
        for name, text in (("server", SERVER), ("client", CLIENT)):
            (tmp_path / f"{name}.conf").write_text(
                text.format(tls_port=tls_port, plain_port=plain_port, broker=node.endpoints["rustlog"], folder=tmp_path)
            )
        with stunnel(tmp_path / "server.conf", tls_port), stunnel(tmp_path / "client.conf", plain_port):
            with BlockingRustLogClient(f"127.0.0.1:{plain_port}") as client:
                client.create_topic("t")
                client.produce("t", [bytes(500_000)] * 4)
                assert sum(len(record.payload) for record in client.fetch("t", offset=0, max_bytes=1 << 22).records)
            # What travels between the tunnels is TLS; plain text gets nowhere there.
            context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
            with (
                socket.create_connection(("127.0.0.1", tls_port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as wrapped,
            ):
                wrapped.sendall(b'\x00\x00\x00\x0f{"type":"Ping"}')
                assert wrapped.recv(100) == b'\x00\x00\x00\x0f{"type":"Pong"}'
            with RawSocket(f"127.0.0.1:{tls_port}") as naive:
                naive.send(b'\x00\x00\x00\x0f{"type":"Ping"}')
                assert naive.is_closed_by_peer() or b"Pong" not in naive.read(100)


@pytest.mark.requirement("R0.101")
def test_the_door_itself_is_plain_text_without_authentication(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node, RawSocket(node.endpoints["rustlog"]) as connection:
        connection.send(b'\x00\x00\x00\x0f{"type":"Ping"}')
        assert connection.read(19) == b'\x00\x00\x00\x0f{"type":"Pong"}'
