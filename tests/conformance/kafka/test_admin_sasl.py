"""Authentication where nobody asks for it."""

from pathlib import Path

import pytest
from tests.support.node import running_node
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse


@pytest.mark.trap(50)
def test_a_login_at_a_listener_without_one_is_refused_at_once(tmp_path: Path) -> None:
    """As Kafka answers at a plaintext listener: the client is told, rather than left waiting for an exchange of tokens."""
    with running_node(tmp_path / "data") as node, RawKafka(node.kafka) as client:
        answer = client.call(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
