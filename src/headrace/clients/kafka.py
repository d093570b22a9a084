"""Single Kafka requests over one blocking connection, for what client libraries do not offer.

It asks one node; there is no discovery, no retry and no batching.
"""

import itertools
import os
import secrets
import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self, TypeVar

from headrace.clients.connection import split_address, words_of
from headrace.clients.kafka_login import TOKEN_URL, VARIABLE, client_properties, read_token
from headrace.errors import Denied, MalformedRequest, Unavailable
from headrace.limits import FRAME_BYTES_MAX
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.kafka.sasl import exchange

R = TypeVar("R", bound=Message)

_SIZE = struct.Struct(">i")


KNOWN_PROPERTIES: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.endpoint.identification.algorithm",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        TOKEN_URL,
    }
)
"""Of those that say who asks, what is heeded here."""
OWNER: Final = "unix:"
"""Begins the address of a node on this machine by its data directory: whoever may look into it is not asked who they are."""


def _connected(address: str, timeout_s: float) -> socket.socket:
    if not address.startswith(OWNER):
        return socket.create_connection(split_address(address), timeout_s)
    directory = os.open(address.removeprefix(OWNER), os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(timeout_s)
        # By its descriptor: the address of a socket has no more than 107 bytes, and directories have longer names.
        found.connect(f"/proc/self/fd/{directory}/control.sock")
    finally:
        os.close(directory)
    return found


class KafkaRequests:
    def __init__(self, address: str, *, timeout_s: float = 15.0, client_id: str = "headrace-cli") -> None:
        self._client_id = client_id
        self._numbers = itertools.count(1)
        self._is_answered = False
        try:
            self._socket = _connected(address, timeout_s)
        except OSError as error:
            raise Unavailable(f"no node at {address}: {error.strerror or error}") from error
        if not address.startswith(OWNER):
            properties = client_properties()
            self._wrap(address, properties)
            self._log_in(properties)

    def _wrap(self, address: str, properties: Mapping[str, str]) -> None:
        """Speak TLS if the properties say so: the names are librdkafka's."""
        if "SSL" not in properties.get("security.protocol", "").upper():
            return
        try:
            context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
            if properties.get("ssl.endpoint.identification.algorithm") == "none":
                context.check_hostname = False
            if (certificate := properties.get("ssl.certificate.location")) is not None:
                context.load_cert_chain(certificate, properties.get("ssl.key.location"))
            self._socket = context.wrap_socket(self._socket, server_hostname=split_address(address)[0])
        except OSError as error:
            raise Unavailable(f"no connection with {address}: {words_of(error)}") from error

    def _log_in(self, properties: Mapping[str, str]) -> None:
        mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
        if not properties.get("security.protocol", "").upper().startswith("SASL") or mechanism is None:
            return
        shaken = self.call(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse)
        if shaken.error_code:
            raise Denied(f"the node does not take {mechanism}; possible are {', '.join(shaken.mechanisms) or 'none'}")
        user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
        if mechanism == "OAUTHBEARER":
            password = read_token(properties)
        steps = exchange(mechanism, user, password, nonce=secrets.token_urlsafe(24))
        message = next(steps)
        while True:
            answer = self.call(SaslAuthenticateRequest(message), 2, SaslAuthenticateResponse)
            if answer.error_code:
                raise Denied(answer.error_message or "the login was refused")
            try:
                message = steps.send(answer.auth_bytes)
            except StopIteration:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, version: int, response: type[R]) -> R:
        number = next(self._numbers)
        try:
            self._socket.sendall(encode_request(request, version, number, self._client_id))
            frame = memoryview(self._read(_SIZE.unpack(self._read(_SIZE.size))[0]))
        except OSError as error:
            raise Unavailable(f"the connection failed: {error}") from error
        self._is_answered = True
        found, at = read_response_header(frame, response.API_KEY, version)
        if found != number:
            raise MalformedRequest(f"answer to request {found}, expected {number}")
        return response.decode(frame, version, at)

    def _read(self, size: int) -> bytes:
        if not 0 < size <= FRAME_BYTES_MAX:
            raise MalformedRequest(f"an answer of {size} bytes")
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                # As a listener does with a login or TLS, when somebody comes without.
                hint = (
                    ""
                    if self._is_answered
                    else f": does it ask for a login? {VARIABLE} names the file that says who asks"
                )
                raise Unavailable(f"the node closed the connection{hint}")
            data += chunk
        return bytes(data)
