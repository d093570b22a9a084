"""One micro-batch, one Kafka transaction, which also commits the batch's number.

The number is an offset of the group `applicationId` on partition 0 of the marker topic, sent with the transaction itself
(TxnOffsetCommit), and the offset's metadata is the id of the query, which its checkpoint keeps. A repeated batch finds its
number committed (OffsetFetch) and sends nothing. Numbers of another query say nothing about ours, so its marker is an error.
Starting the producer first fences whoever had the same id before: from then on the number cannot change behind our back. Any
Kafka broker will do.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.errors import Conflict, Unavailable
from headrace.pipeline.failpoints import reach
from headrace.pipeline.sink.options import SinkOptions
from headrace.pipeline.sink.rows import OutgoingRecord

TIMEOUT_S: Final = 60.0
FLUSH_S: Final = 1.0


class ForeignMarker(Conflict):
    """The application's marker was written by another query."""


class Marker(NamedTuple):
    """The last batch that was sent, and whose it was."""

    batch: int
    query: str
    """Empty in markers of earlier versions, which did not say."""


class BatchTransaction:
    """Produces batches of one application. Close it when the query ends."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def send(self, records: Iterable[OutgoingRecord], *, batch: int, query: str) -> bool:
        """False when the query had sent the batch before.

        Raises `ForeignMarker`, or `Unavailable`; nothing of the batch is then visible.
        """
        try:
            producer = self._started_producer()
            if self._was_sent(batch, query):
                return False
            producer.begin_transaction()
            try:
                _produce_all(producer, records)
                self._mark(producer, Marker(batch, query))
                reach("in sink transaction")
                producer.commit_transaction(TIMEOUT_S)
            except BaseException:
                self._abort(producer)
                raise
        except KafkaException as error:
            self.close()
            raise Unavailable(f"batch {batch} was not sent: {error.args[0]}") from error
        return True

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._producer = self._consumer = None

    def _started_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                {
                    **_brokers(self._options),
                    "transactional.id": self._options.application_id,
                    "linger.ms": 20,
                    "compression.type": "lz4",
                }
            )
            producer.init_transactions(TIMEOUT_S)
            self._producer = producer
        return self._producer

    def _was_sent(self, batch: int, query: str) -> bool:
        marker = self._last_marker()
        if marker is None:
            return False
        if not marker.query:
            # A query that goes on repeats its last batch or sends the next; one that is new begins with batch 0.
            is_ours = marker.batch + 1 >= batch >= marker.batch and batch > 0
        else:
            is_ours = marker.query == query
        if not is_ours:
            raise ForeignMarker(
                f"batch {batch} was not sent: applicationId {self._options.application_id} belongs to another query "
                f"({marker.query or 'one of an earlier version'}, which sent batch {marker.batch}), and this is {query}. "
                "A new checkpoint is a new query: give it an applicationId of its own, or, if it is to take over, end the "
                f"other one and delete its marker: headrace group delete {self._options.application_id}"
            )
        return marker.batch >= batch

    def _committed_reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    **_brokers(self._options),
                    "group.id": self._options.application_id,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                }
            )
        return self._consumer

    def _last_marker(self) -> Marker | None:
        (found,) = self._committed_reader().committed([TopicPartition(self._options.marker_topic, 0)], TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return Marker(int(found.offset) - 1, found.metadata or "") if found.offset >= 0 else None

    def _mark(self, producer: Producer, marker: Marker) -> None:
        group = self._committed_reader().consumer_group_metadata()
        place = TopicPartition(self._options.marker_topic, 0, marker.batch + 1, marker.query)
        producer.send_offsets_to_transaction([place], group, TIMEOUT_S)

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(TIMEOUT_S)
        except KafkaException:
            # A fenced or fatal producer cannot even abort; the brokers do it for us when the next one starts.
            self._producer = None


def _brokers(options: SinkOptions) -> dict[str, str]:
    """Where they are, and how to be let in."""
    return {"bootstrap.servers": options.brokers, **options.security.read().librdkafka()}


def send_once(options: SinkOptions, records: Iterable[OutgoingRecord], *, transactional_id: str) -> None:
    """A batch that nobody will repeat: all or nothing, without a marker."""
    producer = Producer({**_brokers(options), "transactional.id": transactional_id, "linger.ms": 20})
    try:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        _produce_all(producer, records)
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        raise Unavailable(f"the rows were not sent: {error.args[0]}") from error


def _produce_all(producer: Producer, records: Iterable[OutgoingRecord]) -> None:
    failures: list[KafkaError] = []

    # librdkafka calls back with its own classes, which have no types.
    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        while True:
            try:
                producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers or None,
                    on_delivery=on_delivery,
                    **({} if record.partition is None else {"partition": record.partition}),
                )
                break
            except BufferError:
                producer.poll(FLUSH_S)
        producer.poll(0)
        if failures:
            raise KafkaException(failures[0])
    while producer.flush(FLUSH_S):
        if failures:
            break
    if failures:
        raise KafkaException(failures[0])
