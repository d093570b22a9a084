"""Hostile Wasm modules on a live node: each is stopped, and a client beside them notices nothing."""

from collections.abc import Iterator

import pytest
from tests.support import wasm
from tests.support.canary import Canary, rss_bytes
from tests.support.node import NodeProcess, running_node
from tests.support.raw_kafka import RawKafka, batch_of
from tests.support.wasm_api import Api

from headrace.wire.kafka.error_codes import ErrorCode

THREE = [b"one", b"xtwo", b"three"]


@pytest.fixture(scope="module")
def hostile_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("hostile") / "data"
    with running_node(directory, {"wasm.timeout.ms": 200, "wasm.memory.bytes.max": 8 << 20}) as node:
        yield node


@pytest.mark.slow
@pytest.mark.requirement("R3.80")
def test_every_hostile_module_is_stopped_and_the_canary_notices_nothing(hostile_node: NodeProcess) -> None:
    api = Api(hostile_node)
    with RawKafka(hostile_node.kafka) as client, Canary(hostile_node.kafka) as canary:
        for number, (code, _) in enumerate(wasm.HOSTILE.values()):
            client.create_topic(f"hostile{number}")
            api.assign(f"hostile{number}", api.upload(f"hostile{number}", code))
        before = rss_bytes(hostile_node)

        def attack() -> None:
            for number, (_, words) in enumerate(wasm.HOSTILE.values()):
                answer = client.produce(f"hostile{number}", 0, batch_of(THREE))
                if words:
                    assert answer.error_code == ErrorCode.INVALID_RECORD, answer
                    assert words in (answer.error_message or ""), answer
                else:
                    assert answer.error_code == 0, answer

        canary.check_undisturbed_by(attack)
        for number, (_, words) in enumerate(wasm.HOSTILE.values()):
            if words:
                assert client.offset_at(f"hostile{number}", 0, -1) == 0, "nothing of it was written"
        assert rss_bytes(hostile_node) < before + (128 << 20)
