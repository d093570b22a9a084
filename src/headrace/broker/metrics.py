"""What the broker counts, for all doors together, under the names RustLog's MetricsFetch made known.

The services keep plain ints; everything here is worked out when somebody scrapes.
"""

from collections.abc import Callable, Iterator

from headrace.broker.services import Broker
from headrace.errors import NotFound
from headrace.telemetry.metrics import Family, Metrics, Sample


def register_broker_metrics(metrics: Metrics, broker: Broker) -> None:
    produce, fetch, topics = broker.produce, broker.fetch, broker.topics
    for family in (
        _count(
            "messages_produced",
            "Records appended, through any door; internal topics count too.",
            lambda: produce.records_total,
        ),
        _count("bytes_in", "Bytes of record batches appended.", lambda: produce.bytes_total),
        _count("messages_fetched", "Records given to consumers, through any door.", lambda: fetch.records_total),
        _count("bytes_out", "Bytes of records given to consumers.", lambda: fetch.bytes_total),
        _count("headrace_appended_records", "Records appended, through any door.", lambda: produce.records_total),
        _count("headrace_appended_bytes", "Bytes of record batches appended.", lambda: produce.bytes_total),
        _count(
            "headrace_fetched_records", "Records given to consumers, through any door.", lambda: fetch.records_total
        ),
        _count("headrace_fetched_bytes", "Bytes of records given to consumers.", lambda: fetch.bytes_total),
        Family(
            name="headrace_group_lag_records",
            sentence="Records between a group's committed offsets and the ends of a topic's partitions.",
            labels=("group", "topic"),
            samples=lambda: group_lag(broker),
        ),
        _count("headrace_batches_appended", "Record batches appended.", lambda: produce.batches_total),
        _count("headrace_offset_commits", "Commits of consumer offsets.", lambda: broker.offsets.commits_total),
        _count("headrace_throttles", "Requests over a quota.", lambda: broker.access.quotas.throttles_total),
        _level("headrace_fetches_waiting", "Fetches waiting for records.", lambda: fetch.parked_count),
        _level("headrace_topics", "Topics there are.", lambda: len(topics.all())),
        _level(
            "headrace_partitions",
            "Partitions there are.",
            lambda: sum(len(topic.partitions) for topic in topics.all()),
        ),
        Family(
            name="headrace_coordinator_loading",
            sentence="1 while a coordinator reads back its state, and tells its clients to wait.",
            labels=("coordinator",),
            samples=lambda: [
                (("groups",), int(not broker.groups.is_loaded)),
                (("transactions",), int(not broker.transactions.is_loaded)),
            ],
        ),
        Family(
            name="consumer_lag",
            sentence="Records between a group's committed offset and the high watermark.",
            labels=("topic", "partition", "group"),
            samples=lambda: consumer_lag(broker),
        ),
    ):
        metrics.register_family(family)


def consumer_lag(broker: Broker) -> Iterator[Sample]:
    for group in broker.offsets.groups():
        for (topic, index), committed in broker.offsets.all_of(group).items():
            try:
                partition = broker.topics.partition(topic, index)
            except NotFound:
                continue
            yield (topic, str(index), group), max(0, partition.high_watermark - committed.offset)


def group_lag(broker: Broker) -> Iterator[Sample]:
    """By topic: a thousand partitions are one number."""
    for group in broker.offsets.groups():
        lags: dict[str, float] = {}
        for (topic, index), committed in broker.offsets.all_of(group).items():
            if broker.topics.has_partition(topic, index):
                lag = max(0, broker.topics.partition(topic, index).high_watermark - committed.offset)
                lags[topic] = lags.get(topic, 0.0) + lag
        for topic, total in lags.items():
            yield (group, topic), total


def _count(name: str, sentence: str, value: Callable[[], int]) -> Family:
    return Family(name=name, sentence=sentence, kind="counter", samples=lambda: [((), value())])


def _level(name: str, sentence: str, value: Callable[[], int]) -> Family:
    return Family(name=name, sentence=sentence, kind="gauge", samples=lambda: [((), value())])
