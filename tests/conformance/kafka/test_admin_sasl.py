"""What is asked of us and cannot be given: authentication, while it is off."""

from pathlib import Path

import pytest
from tests.support.node import running_node
from tests.support.raw_kafka import RawKafka

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest


@pytest.mark.trap(50)
def test_nothing_of_sasl_is_promised_while_it_is_off(tmp_path: Path) -> None:
    """A client that tries all the same is told and let go, rather than left waiting for a token exchange."""
    with running_node(tmp_path / "data") as node:
        with RawKafka(node.kafka) as client:
            keys = {row.api_key for row in client.api_versions().api_keys}
        assert keys.isdisjoint({SaslHandshakeRequest.API_KEY, 36})
        with RawKafka(node.kafka) as client:
            correlation_id = client.send_request(SaslHandshakeRequest("PLAIN"), 1)
            answer = client.read_frame()
            assert answer[:4] == correlation_id.to_bytes(4, "big")
            assert answer[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
            assert client.is_closed_by_peer()
