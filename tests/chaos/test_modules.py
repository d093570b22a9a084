"""kill -9 while topics have modules and are given others: nothing is lost or doubled, and nothing gets around the module."""

import random
import threading
import time
from http.client import HTTPException
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from tests.support import wasm
from tests.support.node import NodeProcess, eventually
from tests.support.ports import kept_port
from tests.support.wasm_api import Api

KILLS = 4
TOPIC = "orders"


@pytest.mark.slow
@pytest.mark.requirement("R3.77", "R3.79")
def test_kill_nine_while_modules_are_assigned_and_swapped(tmp_path: Path, seed: int) -> None:
    """Two modules mark each value with a letter. Whatever is read has one of them, once and in order."""
    chance = random.Random(seed)
    with kept_port() as port:
        node = NodeProcess(tmp_path / "data", {"listen.kafka": f"127.0.0.1:{port}"}).start()
        try:
            api = Api(node)
            api.ask("POST", "/topics", {"name": TOPIC})
            modules = [api.upload("upper", wasm.UPPER), api.upload("cut", wasm.per_message(_MARKED_B))]
            api.assign(TOPIC, modules[0])
            sender = Sender(node.kafka)
            sender.start()
            for _ in range(KILLS):
                swapping = threading.Event()
                swapper = threading.Thread(target=_swap, args=(node, modules, swapping))
                swapper.start()
                known = len(sender.kept)
                eventually(lambda known=known: len(sender.kept) > known + 100, 60, "nothing was taken")  # type: ignore[misc]
                time.sleep(chance.uniform(0.1, 0.8))
                node.kill()
                swapping.set()
                swapper.join()
                node.start()
            sender.stop()
            assert [each["id"] for each in Api(node).ask("GET", "/wasm/modules")["modules"]] == sorted(modules)
            found = read_all(node.kafka, len(sender.kept))
        finally:
            node.kill()
    numbers = [int(value[1:]) for value in found]
    assert all(value[:1] in (b"V", b"B") for value in found), "every record went through a module"
    assert sender.kept == sorted(sender.kept)
    assert set(sender.kept) <= set(numbers)
    assert numbers == sorted(set(numbers)), "in order, and each once"


_MARKED_B = f"(i32.store8 (local.get $at) (i32.const 66)) {wasm.SAME}"
"""The first byte becomes B; in upper case it is V."""


def _swap(node: NodeProcess, modules: list[str], stopping: threading.Event) -> None:
    api = Api(node)
    while not stopping.is_set():
        for module in modules:
            try:
                api.assign(TOPIC, module)
            except (AssertionError, OSError, HTTPException):
                return  # Killed.


class Sender(threading.Thread):
    """One idempotent producer that never gives up."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.kept: list[int] = []
        self.errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 120_000,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(TOPIC, b"v%d" % number, on_delivery=self._told(number))
            number += 1
            self._producer.poll(0.001)

    def _told(self, number: int):  # type: ignore[no-untyped-def]
        def note(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.kept.append(number)
            else:
                self.errors.append(error)

        return note

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert self._producer.flush(120) == 0
        assert self.errors == []


def read_all(address: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "judge", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(found) < count:
        found += [message.value() for message in consumer.consume(1000, 1.0) if message.error() is None]
    consumer.close()
    return found
