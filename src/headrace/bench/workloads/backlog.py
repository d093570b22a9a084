"""A backlog in the bucket, and consumers to catch up on it: what W3 measures, and W4 measures beside."""

from typing import Final

from headrace.bench.bill import await_uploaded
from headrace.bench.errors import LoadFailed
from headrace.bench.load.jobs import ProduceJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker, HeadraceOnBucket
from headrace.bench.scale import MIB, Scale
from headrace.bench.topics import count_records, create_topics, delete_topics, has_topic

TOPIC: Final = "backlog"
CONSUMERS: Final = 4
READ_CACHE_BYTES: Final = 256 * MIB
RIVALS: Final = (HeadraceOnBucket(settings=(f"cache.read.size.bytes={READ_CACHE_BYTES}",)),)

_PARTITIONS: Final = 16
_RECORD_BYTES: Final = 1024
_BATCH_BYTES: Final = 128 * 1024

SHARES: Final = [list(range(first, _PARTITIONS, CONSUMERS)) for first in range(CONSUMERS)]
"""The partitions of each consumer."""


def ensure_backlog(broker: Broker, scale: Scale) -> None:
    """Fill the topic once per broker. Afterwards the bucket has all of it and the broker's memory none."""
    if has_topic(broker.bootstrap, TOPIC):
        return
    create_topics(broker.bootstrap, [TOPIC], partitions=_PARTITIONS)
    try:
        _fill(broker, scale)
        await_uploaded(broker)
    except LoadFailed:
        delete_topics(broker.bootstrap, [TOPIC])
        raise
    broker.restart()


def _fill(broker: Broker, scale: Scale) -> None:
    job = ProduceJob(
        bootstrap=broker.bootstrap,
        topic=TOPIC,
        partitions=_PARTITIONS,
        record_bytes=_RECORD_BYTES,
        batch_bytes=_BATCH_BYTES,
        warm_up_count=0,
        count=scale.backlog_bytes // scale.producers // _RECORD_BYTES,
    )
    outcomes = run_load([job] * scale.producers)
    total, found = sum(one.total for one in outcomes), sum(backlog_counts(broker))
    if total != found:
        raise LoadFailed(f"{total} records were acknowledged, the broker has {found}")


def backlog_counts(broker: Broker) -> list[int]:
    """Records for each consumer."""
    return [count_records(broker.bootstrap, TOPIC, share) for share in SHARES]
