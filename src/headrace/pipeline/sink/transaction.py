"""One micro-batch, one Kafka transaction, which also commits the batch's number.

The number is an offset of the group `applicationId` on partition 0 of the marker topic, sent with the transaction itself
(TxnOffsetCommit). A repeated batch finds its number committed (OffsetFetch) and sends nothing. Starting the producer first
fences whoever had the same id before: from then on the number cannot change behind our back. Any Kafka broker will do.
"""

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.errors import Unavailable
from headrace.pipeline.failpoints import reach
from headrace.pipeline.sink.options import SinkOptions
from headrace.pipeline.sink.rows import OutgoingRecord

TIMEOUT_S: Final = 60.0
FLUSH_S: Final = 1.0


class BatchTransaction:
    """Produces batches of one application. Close it when the query ends."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def send(self, records: Iterable[OutgoingRecord], *, batch: int) -> bool:
        """False when the batch had been sent before. Raises `Unavailable`; nothing of the batch is then visible."""
        try:
            producer = self._started_producer()
            if self._last_batch() >= batch:
                return False
            producer.begin_transaction()
            try:
                _produce_all(producer, records)
                self._mark(producer, batch)
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
                    "bootstrap.servers": self._options.brokers,
                    "transactional.id": self._options.application_id,
                    "linger.ms": 20,
                    "compression.type": "lz4",
                }
            )
            producer.init_transactions(TIMEOUT_S)
            self._producer = producer
        return self._producer

    def _marker(self, batch: int | None = None) -> TopicPartition:
        return TopicPartition(self._options.marker_topic, 0, *(() if batch is None else (batch + 1,)))

    def _committed_reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self._options.brokers,
                    "group.id": self._options.application_id,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                }
            )
        return self._consumer

    def _last_batch(self) -> int:
        (found,) = self._committed_reader().committed([self._marker()], TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset) - 1 if found.offset >= 0 else -1

    def _mark(self, producer: Producer, batch: int) -> None:
        group = self._committed_reader().consumer_group_metadata()
        producer.send_offsets_to_transaction([self._marker(batch)], group, TIMEOUT_S)

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort_transaction(TIMEOUT_S)
        except KafkaException:
            # A fenced or fatal producer cannot even abort; the brokers do it for us when the next one starts.
            self._producer = None


def send_once(options: SinkOptions, records: Iterable[OutgoingRecord], *, transactional_id: str) -> None:
    """A batch that nobody will repeat: all or nothing, without a marker."""
    producer = Producer({"bootstrap.servers": options.brokers, "transactional.id": transactional_id, "linger.ms": 20})
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
