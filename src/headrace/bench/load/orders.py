"""Orders as JSON of 1 KiB: ten columns of the types people have, half of the bytes compressible. What W10 and backfills read."""

import json
import random
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from headrace.bench.errors import LoadFailed

ORDER_BYTES: Final = 1024
ORDER_DDL: Final = (
    "id BIGINT, customer STRING, created_at TIMESTAMP, price DOUBLE, quantity INT, is_paid BOOLEAN, country STRING, "
    "discount DOUBLE, url STRING, note STRING"
)
ORDER_EVENT_TIME: Final = "created_at"
COMPRESSION: Final = "lz4"

_DISTINCT: Final = 16_384
_RECORDS_PER_BATCH: Final = 128
_DELIVERY_SECONDS_MAX: Final = 120
_WORDS: Final = 2_000


def make_orders(count: int, seed: int = 1) -> list[bytes]:
    """`count` orders, always the same ones."""
    source = random.Random(seed)
    words = [f"{source.randrange(1 << 32):x}" for _ in range(_WORDS)]
    return [_make_order(index, source, words) for index in range(count)]


def _make_order(index: int, source: random.Random, words: list[str]) -> bytes:
    order: dict[str, Any] = {
        "id": index,
        "customer": f"customer-{source.randrange(100_000)}",
        "created_at": f"2026-01-{1 + index % 2:02d}T{source.randrange(24):02d}:{source.randrange(60):02d}:07.250Z",
        "price": round(source.random() * 1000, 2),
        "quantity": source.randrange(1, 100),
        "is_paid": source.random() < 0.5,
        "country": source.choice(("DE", "FR", "JP", "US")),
        "discount": source.random(),
        "url": f"https://shop.example/{source.choice(words)}/{source.randrange(1_000_000)}",
        "note": "",
    }
    room = ORDER_BYTES - len(json.dumps(order))
    order["note"] = " ".join(source.choices(words, k=room // 8 + 1))[:room].ljust(room, ".")
    return json.dumps(order).encode()


def produce_orders(bootstrap: str, topic: str, *, partitions: int, count: int) -> None:
    """`count` orders over all partitions, in lz4 batches of some 128 KiB before compression, acks=all."""
    problems: list[str] = []

    def on_delivery(error: KafkaError | None, _: Any) -> None:  # confluent-kafka is untyped
        if error is not None:
            problems.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": COMPRESSION,
            "batch.size": (ORDER_BYTES + 16) * _RECORDS_PER_BATCH,
            "linger.ms": 50,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    orders = make_orders(min(count, _DISTINCT))
    chunks = [
        [{"value": order} for order in orders[first : first + _RECORDS_PER_BATCH]]
        for first in range(0, len(orders), _RECORDS_PER_BATCH)
    ]
    for index in range(count // _RECORDS_PER_BATCH):
        producer.produce_batch(topic, chunks[index % len(chunks)], partition=index % partitions)
        while len(producer) > 100_000:
            producer.poll(0.01)
    left = producer.flush(_DELIVERY_SECONDS_MAX)
    if left or problems:
        raise LoadFailed(problems[0] if problems else f"{left} records were not acknowledged")
