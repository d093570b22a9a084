"""Topics that are made, filled, deleted and made again under one name while the node is killed at any moment."""

import contextlib
import random
import time
from pathlib import Path

import pytest
from tests.support.node import NodeProcess
from tests.support.raw_kafka import Closed, RawKafka, batch_of
from tests.support.scenarios import SMALL_RING

from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.messages.delete_topics_response import DeleteTopicsResponse

KILLS = 5
NAMES = ["a", "b", "c"]
UNKNOWN_TOPIC = 3


class Ledger:
    """What each name must hold: a list of values, None for no topic, and both when a crash left us in doubt."""

    def __init__(self) -> None:
        self.known: dict[str, list[bytes] | None] = dict.fromkeys(NAMES)
        self.in_doubt: dict[str, list[bytes] | None] = {}
        self.number = 0

    def act(self, client: RawKafka, chance: random.Random) -> None:
        """One change. Until it is answered, both outcomes are possible."""
        name = chance.choice(NAMES)
        values = self.known[name]
        if values is None:
            self.in_doubt = {name: []}
            client.create_topic(name)
        elif chance.random() < 0.25:
            self.in_doubt = {name: None}
            answer = client.call(DeleteTopicsRequest(topic_names=[name]), 3, DeleteTopicsResponse)
            assert answer.responses[0].error_code == 0, answer
        else:
            self.number += 1
            value = b"%s:%d" % (name.encode(), self.number) + bytes(chance.choice((0, 3000, 30_000)))
            self.in_doubt = {name: [*values, value]}
            found = client.produce(name, 0, batch_of([value]))
            assert (found.error_code, found.base_offset) == (0, len(values)), found
        self.known.update(self.in_doubt)
        self.in_doubt = {}

    def settle(self, client: RawKafka, seed: int) -> None:
        """After a crash: what is there is what was promised, or what was being changed."""
        for name in NAMES:
            present = _content(client, name)
            allowed = [self.known[name], self.in_doubt.get(name, self.known[name])]
            assert present in allowed, (
                f"seed {seed}: topic {name} has {_short(present)}, not {_short(self.known[name])}"
            )
            self.known[name] = present
        self.in_doubt = {}


@pytest.mark.slow
@pytest.mark.requirement("R4.64")
def test_topics_come_and_go_through_every_kill(tmp_path: Path, kafka_address: str, seed: int) -> None:
    chance = random.Random(seed)
    settings = {"listen.kafka": kafka_address, "wal.capacity.bytes": SMALL_RING, "auto.create.topics.enable": "false"}
    node = NodeProcess(tmp_path / "data", settings).start()
    ledger = Ledger()
    try:
        for _ in range(KILLS):
            ends_at = time.monotonic() + chance.uniform(0.1, 0.8)
            with contextlib.suppress(Closed), RawKafka(kafka_address) as client:
                while time.monotonic() < ends_at:
                    ledger.act(client, chance)
                _act_once_without_waiting(ledger, client, chance)
            node.kill()
            node.start()
            with RawKafka(kafka_address) as client:
                ledger.settle(client, seed)
    finally:
        node.kill()


def _act_once_without_waiting(ledger: Ledger, client: RawKafka, chance: random.Random) -> None:
    """A change that the kill may find anywhere on its way."""
    client.socket.settimeout(chance.choice((0.0005, 0.002, 0.01)))
    with contextlib.suppress(TimeoutError):
        ledger.act(client, chance)


def _content(client: RawKafka, name: str) -> list[bytes] | None:
    if client.fetch(name, 0, 0).error_code == UNKNOWN_TOPIC:
        return None
    return [record.value or b"" for record in client.read_all(name, 0)]


def _short(values: list[bytes] | None) -> str:
    return "no topic" if values is None else f"{len(values)} records up to {values[-1:][:1]!r:.40}"
