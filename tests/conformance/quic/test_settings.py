"""What the settings of the QUIC door do to a real node: off, with certificates of an authority, and with connections that come and go."""

import asyncio
from pathlib import Path

import pytest
from tests.support.canary import rss_bytes
from tests.support.certificates import Authority
from tests.support.node import eventually, running_node
from tests.support.quic import Frames

from headrace.clients.connection import CannotConnect
from headrace.clients.quic import QuicClient, Trust
from headrace.quic.certificates import CERTIFICATE_NAME

MIB = 1024 * 1024


def test_a_node_without_the_door_does_not_load_quic(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", {"listen.quic": "off"}) as node:
        assert "quic" not in node.endpoints
        assert not (node.data_dir / CERTIFICATE_NAME).exists()
        assert "qh3" not in Path(f"/proc/{node.pid}/maps").read_text()


def test_certificates_of_an_authority_are_believed_and_read_again(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "someone else")
    certificate, key = ours.issue("node")
    settings = {"listener.quic.tls.certificate": certificate, "listener.quic.tls.key": key}
    with running_node(tmp_path / "data", settings) as node:

        async def shown(authority: Authority) -> str:
            address = node.endpoints["quic"].replace("127.0.0.1", "localhost")
            async with QuicClient(address, trust=Trust(ca_file=str(authority.certificate))) as client:
                return (await client.connect()).show_fingerprint()

        first = asyncio.run(shown(ours))
        with pytest.raises(CannotConnect, match="issuer"):
            asyncio.run(shown(others))
        assert not (node.data_dir / CERTIFICATE_NAME).exists(), "it makes none of its own"
        ours.issue("node")
        eventually(lambda: asyncio.run(shown(ours)) != first, 30, "the new certificate is shown")


@pytest.mark.slow
def test_connections_that_are_over_leave_nothing(tmp_path: Path) -> None:
    """qh3's parts know each other in circles, and the node's collector hardly ever looks for those."""
    settings = {"quic.handshakes.per.second.max": 1000, "quic.connections.per.host.max": 1000}
    with running_node(tmp_path / "data", settings) as node:

        async def come_and_go(count: int) -> None:
            for _ in range(count):
                async with QuicClient(node.endpoints["quic"]) as client:
                    frames = Frames()
                    await client.open_stream(frames)
                    await frames.hello()

        asyncio.run(come_and_go(50))
        before = rss_bytes(node)
        asyncio.run(come_and_go(400))
        grown = rss_bytes(node) - before
        assert grown < 8 * MIB, f"{grown} bytes; forty kilobytes each if they stay"
