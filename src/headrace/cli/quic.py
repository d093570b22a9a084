"""The QUIC door as the command line uses it: the Kafka client that our users have, through a proxy in this process."""

from headrace.cli.doors import Acks, Codec, Start
from headrace.cli.kafka import KafkaWriter
from headrace.cli.kafka_reader import KafkaReader
from headrace.clients.blocking import BlockingLoop
from headrace.clients.kafka_login import client_properties
from headrace.clients.quic import Trust
from headrace.clients.quic_proxy import QuicProxy
from headrace.errors import Invalid
from headrace.telemetry import configure_logging


def quic_writer(address: str, *, acks: Acks, codec: Codec) -> KafkaWriter:
    return KafkaWriter(_proxied(address), acks=acks, codec=codec)


def quic_reader(address: str, *, group: str | None, start: Start, is_committed_only: bool) -> KafkaReader:
    return KafkaReader(_proxied(address), group=group, start=start, is_committed_only=is_committed_only)


def _proxied(address: str) -> str:
    """An address on this machine, for as long as this process lives."""
    configure_logging("warning")
    properties = client_properties()
    if "SSL" in properties.get("security.protocol", "").upper():
        raise Invalid(
            "security.protocol: QUIC is encrypted already, and the client speaks to a proxy in this process; say "
            "SASL_PLAINTEXT or PLAINTEXT for --door quic (ssl.ca.location is used for QUIC)"
        )
    known = properties.get("ssl.ca.location")
    trust = Trust.of_environment() if known is None else Trust(ca_file=known)
    loop = BlockingLoop()
    proxy = QuicProxy(address.split(","), trust=trust)
    loop.run(proxy.start())
    host, port = proxy.address
    return f"{host}:{port}"
