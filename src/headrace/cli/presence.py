"""Whether anybody listens at an address, and speaks what we speak.

The clients would go on trying for half a minute and more, then say that they timed out.
"""

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from headrace.clients.connection import ConnectionLost, split_address
from headrace.clients.errors import UnexpectedResponse
from headrace.clients.retry import RetryPolicy
from headrace.errors import MalformedRequest, Unavailable

CONNECT_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 15.0
ONCE: Final = RetryPolicy(attempts_max=1, timeout_ms=int(ANSWER_SECONDS_MAX * 1000))
"""For the first question: whoever cannot answer it is not asked again."""

_METADATA_VERSION: Final = 4
"""The oldest that can ask for no topic and create none."""
_CORRELATION_ID: Final = 0x68726163
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""Version 0, without a client's name: every Kafka broker there is answers it, without asking who we are."""


def require_node(addresses: str) -> str:
    """The first of the addresses, separated by commas, that takes a connection. `Unavailable` where none does."""
    return _require_one(addresses, lambda _connection, _address: None)


def require_kafka(bootstrap: str) -> str:
    """The first of the addresses, separated by commas, that speaks Kafka's protocol. `Unavailable` where none does."""
    return _require_one(bootstrap, _ask_api_versions)


@contextmanager
def first_words(door: str, address: str) -> Iterator[None]:
    """Around the first question to a door, put `ONCE`: silence and babble become `Unavailable`, in words."""
    try:
        yield
    except TimeoutError as error:
        raise Unavailable(_silent(address, door)) from error
    except (ConnectionLost, MalformedRequest, UnexpectedResponse) as error:
        raise Unavailable(_stranger(address, door)) from error


def require_entry(bootstrap: str, properties: Mapping[str, str]) -> None:
    """The same, and `Denied` or `Unavailable` with the node's own words where it does not let us in.

    librdkafka goes on trying whatever was refused, and then says that it could not reach the broker.
    """
    from headrace.clients.kafka import KNOWN_PROPERTIES, KafkaRequests
    from headrace.wire.kafka.messages.metadata_request import MetadataRequest
    from headrace.wire.kafka.messages.metadata_response import MetadataResponse

    # Whoever wants TLS first would take a plain question for a broken client.
    is_tls = "SSL" in properties.get("security.protocol", "").upper()
    address = (require_node if is_tls else require_kafka)(bootstrap)
    told = {name for name in properties if name.startswith(("security.", "ssl.", "sasl.", "enable.ssl."))}
    if told <= KNOWN_PROPERTIES:
        with KafkaRequests(address, timeout_s=ANSWER_SECONDS_MAX) as node:
            node.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), _METADATA_VERSION, MetadataResponse)


def _require_one(addresses: str, ask: Callable[[socket.socket, str], None]) -> str:
    reasons: list[str] = []
    for address in map(str.strip, addresses.split(",")):
        place = split_address(address)
        try:
            connection = socket.create_connection(place, CONNECT_SECONDS_MAX)
        except OSError as error:
            reasons.append(f"no node at {address}: {error.strerror or error}")
            continue
        with connection:
            try:
                ask(connection, address)
            except Unavailable as error:
                reasons.append(str(error))
            else:
                return address
    raise Unavailable("; ".join(reasons))


def _ask_api_versions(connection: socket.socket, address: str) -> None:
    connection.settimeout(ANSWER_SECONDS_MAX)
    answer = b""
    try:
        connection.sendall(_API_VERSIONS)
        while len(answer) < 8 and (more := connection.recv(8 - len(answer))):
            answer += more
    except TimeoutError as error:
        raise Unavailable(_silent(address, "Kafka")) from error
    except OSError as error:
        raise Unavailable(_stranger(address, "Kafka")) from error
    if len(answer) < 8 or struct.unpack(">ii", answer)[1] != _CORRELATION_ID:
        raise Unavailable(_stranger(address, "Kafka"))


def _silent(address: str, door: str) -> str:
    return f"no answer from {address} in {ANSWER_SECONDS_MAX:.0f} s: is that {door}'s port?"


def _stranger(address: str, door: str) -> str:
    return f"who listens at {address} does not speak {door}'s protocol: is that another door's port, or one with TLS?"
