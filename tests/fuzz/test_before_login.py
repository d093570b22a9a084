"""Strangers' bytes at a listener that asks for a login: nothing of them is written, whatever they are and however they are cut.

The rounds are the same every time; HEADRACE_FUZZ_SECONDS and HEADRACE_FUZZ_SEED are as in `test_kernels`.
"""

import random
from pathlib import Path
from typing import Final

import pytest
from tests.fuzz.test_kernels import SEED, damaged, some_batch, while_there_is_time
from tests.support.kafka_door import Wire, opened_door

from headrace.broker.access.settings import SecuritySettings
from headrace.doors.kafka.handlers import sasl_authenticate
from headrace.doors.kafka.login import STRANGER_FRAME_MAX
from headrace.doors.settings import Mechanism
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

MECHANISMS: Final[tuple[Mechanism, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS = (
    b"n,,n=alice,r=abc",
    b"c=biws,r=abc,p=AAAA",
    b"n,a=alice,n=alice,r=abc",
    b"\0alice\0",
    b"\0\0",
    b"",
    b"\xff" * 40,
)


@pytest.mark.parametrize("is_asked", [False, True], ids=["without rules", "with rules"])
@pytest.mark.parametrize("is_pure", [False, True], ids=["compiled", "pure"])
async def test_strangers_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_asked: bool, is_pure: bool
) -> None:
    monkeypatch.setattr(sasl_authenticate, "REFUSED_DELAY_S", 0)
    security = SecuritySettings(authorization_enable=is_asked)
    async with opened_door(tmp_path, ["orders"], security=security, is_pure=is_pure) as door:
        orders = door.topics.get("orders")
        for chance in while_there_is_time():
            wire = door.connect(sasl=MECHANISMS)
            stream = b"".join(_frame(chance, orders.id) for _ in range(chance.randint(1, 6)))
            if chance.random() < 0.5:
                stream = damaged(stream, chance)
            _feed_in_parts(wire, stream, chance)
            await door.settle()
            buffer = wire._connection._buffer
            assert buffer is None or len(buffer) <= 2 * STRANGER_FRAME_MAX, SEED
            wire.close()
            await door.settle()
            assert orders.partitions[0].end_offset == 0, SEED
            assert [topic.name for topic in door.topics.all()] == ["orders"], SEED


def _feed_in_parts(wire: Wire, stream: bytes, chance: random.Random) -> None:
    while stream and wire.is_read_from and not wire.is_closed:
        size = chance.choice((1, 3, 16, 200, len(stream)))
        wire.feed(stream[:size])
        stream = stream[size:]


def _frame(chance: random.Random, topic_id: bytes) -> bytes:
    match chance.randrange(6):
        case 0:
            mechanism = chance.choice((*MECHANISMS, "GSSAPI", ""))
            return bytes(encode_request(SaslHandshakeRequest(mechanism), chance.randint(0, 1), 7, "client"))
        case 1:
            token = damaged(chance.choice(TOKENS), chance)
            if chance.random() < 0.3:
                return len(token).to_bytes(4, "big") + token  # As after SaslHandshake v0.
            return bytes(encode_request(SaslAuthenticateRequest(token), chance.randint(0, 2), 7, None))
        case 2:
            return bytes(encode_request(ApiVersionsRequest(), chance.randint(0, 4), 7, "client"))
        case 3:
            if chance.random() < 0.5:
                return bytes(encode_request(MetadataRequest(allow_auto_topic_creation=True), 9, 7, "client"))
            return bytes(encode_request(CreateTopicsRequest([CreatableTopic("mine", 1, 1)]), 5, 7, "client"))
        case _:
            rows = [TopicProduceData("orders", topic_id, [PartitionProduceData(0, some_batch(chance))])]
            request = ProduceRequest(None, chance.choice((-1, 0, 1)), 1000, rows)
            return bytes(encode_request(request, chance.randint(3, 13), 7, chance.choice(("client", None))))
