"""The Kafka door as the command line uses it, through confluent-kafka: the client our users have.

Turns that client's futures and error codes into values and our errors, so that commands know neither.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.cli.administration import (
    NODES_DEFAULT,
    NOT_ALLOWED,
    PartitionState,
    TopicState,
    TopicSummary,
    check_removals,
    no_topic,
)
from headrace.cli.doors import LINGER_MS, Outgoing, Receipts
from headrace.cli.presence import require_entry
from headrace.clients.kafka_login import TOKEN_URL, client_properties, read_token
from headrace.clock import SystemClock
from headrace.errors import (
    AlreadyExists,
    Denied,
    HeadraceError,
    OffsetOutOfRange,
    PartitionNotFound,
    Rejected,
    TopicNotFound,
    Unavailable,
)

if TYPE_CHECKING:
    from headrace.cli.exposure import Exposure

TIMEOUT_SECONDS: Final = 15.0
DELIVERY_SECONDS_MAX: Final = 30
_POLL_SECONDS: Final = 0.2
_TOKEN_SECONDS: Final = 60
"""After so long librdkafka is given the token anew; the node knows itself when it is over."""

T = TypeVar("T")

_RAISED: Final[Mapping[int, type[HeadraceError]]] = {
    KafkaError.TOPIC_ALREADY_EXISTS: AlreadyExists,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicNotFound,
    KafkaError._UNKNOWN_TOPIC: TopicNotFound,
    KafkaError._UNKNOWN_PARTITION: TopicNotFound,
    KafkaError.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    KafkaError._AUTO_OFFSET_RESET: OffsetOutOfRange,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Denied,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Denied,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Denied,
    KafkaError._TRANSPORT: Unavailable,
    KafkaError._ALL_BROKERS_DOWN: Unavailable,
    KafkaError._TIMED_OUT: Unavailable,
    KafkaError._MSG_TIMED_OUT: Unavailable,
}


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    brokers: list[BrokerState]
    topics: int
    partitions: int


class KafkaAdmin:
    """What `topic`, `config` and `cluster` ask of a node."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient(client_settings(bootstrap))

    def create_topic(
        self, name: str, *, partitions: int | None, replication_factor: int | None, config: dict[str, str]
    ) -> None:
        counts = (partitions or NODES_DEFAULT, replication_factor or NODES_DEFAULT)
        topic = NewTopic(name, *counts, config=config)
        self._one(self._client.create_topics([topic], request_timeout=TIMEOUT_SECONDS))

    def delete_topic(self, name: str) -> None:
        self._one(self._client.delete_topics([name], request_timeout=TIMEOUT_SECONDS))

    def add_partitions(self, name: str, total: int) -> None:
        self._one(self._client.create_partitions([NewPartitions(name, total)], request_timeout=TIMEOUT_SECONDS))

    def alter_config(self, name: str, *, changes: Mapping[str, str], removals: Sequence[str]) -> None:
        if removals:
            check_removals(removals, self._described(name))
        entries = [
            *(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()),
            *(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removals),
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self._one(self._client.incremental_alter_configs([resource], request_timeout=TIMEOUT_SECONDS))

    def list_topics(self) -> list[TopicSummary]:
        topics = self._metadata().topics.values()
        return [
            TopicSummary(
                name=topic.topic,
                partitions=len(topic.partitions),
                replication_factor=max((len(p.replicas) for p in topic.partitions.values()), default=0),
            )
            for topic in sorted(topics, key=lambda topic: topic.topic)
        ]

    def describe_topic(self, name: str) -> TopicState:
        described = self._one(self._client.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_SECONDS))
        indexes = [partition.id for partition in described.partitions]
        starts = self._offsets(name, indexes, OffsetSpec.earliest())
        ends = self._offsets(name, indexes, OffsetSpec.latest())
        return TopicState(
            name=name,
            topic_id=str(described.topic_id),
            is_internal=described.is_internal,
            partitions=[
                PartitionState(
                    partition=partition.id,
                    leader=partition.leader.id if partition.leader else -1,
                    replicas=[node.id for node in partition.replicas],
                    isr=[node.id for node in partition.isr],
                    log_start=starts[partition.id],
                    end=ends[partition.id],
                )
                for partition in described.partitions
            ],
            config=self._topic_config(name),
        )

    def exposure(self, name: str, *, admin: str) -> "Mapping[tuple[str, int], Exposure] | None":
        from headrace.cli.exposure import read_exposure

        return read_exposure(admin)

    def describe_cluster(self) -> ClusterState:
        cluster = result_of(self._client.describe_cluster(request_timeout=TIMEOUT_SECONDS))
        topics = self._metadata().topics.values()
        controller = cluster.controller.id if cluster.controller else -1
        return ClusterState(
            cluster_id=cluster.cluster_id or "",
            brokers=[
                BrokerState(
                    id=node.id, host=node.host, port=node.port, rack=node.rack, is_controller=node.id == controller
                )
                for node in sorted(cluster.nodes, key=lambda node: node.id)
            ],
            topics=len(topics),
            partitions=sum(len(topic.partitions) for topic in topics),
        )

    def _metadata(self) -> Any:  # Any: confluent-kafka ships no types
        return calling(lambda: self._client.list_topics(timeout=TIMEOUT_SECONDS))

    def _offsets(self, name: str, indexes: Iterable[int], spec: Any) -> dict[int, int]:  # Any: as above
        asked = {TopicPartition(name, index): spec for index in indexes}
        futures = self._client.list_offsets(asked, request_timeout=TIMEOUT_SECONDS)
        return {place.partition: result_of(future).offset for place, future in futures.items()}

    def _topic_config(self, name: str) -> dict[str, str]:
        own = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
        return {key: entry.value for key, entry in sorted(self._described(name).items()) if entry.source == own}

    def _described(self, topic: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return self._one(self._client.describe_configs([resource], request_timeout=TIMEOUT_SECONDS))

    @staticmethod
    def _one(futures: "Mapping[Any, Future[T]]") -> T:  # Any: a topic's name or a ConfigResource
        ((asked, future),) = futures.items()
        try:
            return result_of(future)
        except TopicNotFound as error:
            raise no_topic(getattr(asked, "name", asked)) from error


class KafkaWriter:
    """Sends records and counts what became of them."""

    def __init__(self, bootstrap: str, *, acks: str, codec: str) -> None:
        self._producer = Producer(
            {
                **client_settings(bootstrap),
                "acks": acks,
                "compression.type": codec,
                "linger.ms": LINGER_MS,
                "enable.idempotence": acks == "all",
                "message.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
            }
        )
        self.receipts = Receipts()
        self._failure: HeadraceError | None = None

    def send(self, topic: str, record: Outgoing) -> None:
        place: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        headers = list(record.headers) or None
        while True:
            try:
                self._producer.produce(
                    topic, record.value, key=record.key, headers=headers, on_delivery=self._delivered, **place
                )
            except BufferError:
                self._poll(_POLL_SECONDS)
                continue
            except KafkaException as error:
                raise _not_taken(error.args[0], topic, record.partition) from error
            break
        self._poll(0)
        self._raise_failure()

    def pause(self) -> None:
        """The client lingers by itself."""

    def finish(self) -> None:
        with _interruptible():
            self._producer.flush()
        self._raise_failure()

    def _poll(self, seconds: float) -> None:
        with _interruptible():
            self._producer.poll(seconds)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or _not_taken(error, message.topic(), message.partition())
        else:
            self.receipts.add(message.partition(), message.offset())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


@contextmanager
def _interruptible() -> Iterator[None]:
    """Kafka's client loses an exception that rises in a callback and calls that a system error. Ours raise none but Ctrl-C."""
    try:
        yield
    except SystemError as error:
        raise KeyboardInterrupt from error


def client_settings(bootstrap: str) -> dict[str, Any]:  # Any: the client's own mix of value types
    properties: dict[str, Any] = dict(client_properties())  # Any: as above
    require_entry(bootstrap, properties)
    if TOKEN_URL in properties:
        # librdkafka asks for the token instead, and knows the property for other URLs only.
        told = properties
        properties = {name: value for name, value in told.items() if name != TOKEN_URL}
        properties["oauth_cb"] = lambda _: (read_token(told), SystemClock().now_ms() / 1000 + _TOKEN_SECONDS)
    return {
        **properties,
        "bootstrap.servers": bootstrap,
        "client.id": "headrace-cli",
        "socket.timeout.ms": int(TIMEOUT_SECONDS * 1000),
        # The client would otherwise write its own lines beside ours.
        "log_level": 0,
        "logger": None,
    }


def result_of(future: "Future[T]") -> T:
    return calling(lambda: future.result(TIMEOUT_SECONDS * 2))


def calling(call: Callable[[], T]) -> T:
    try:
        return call()
    except KafkaException as error:
        raise raised(error.args[0]) from error
    except TimeoutError as error:
        raise Unavailable("no answer in time") from error


def raised(error: KafkaError, *, topic: str | None = None) -> HeadraceError:
    kind = _RAISED.get(error.code(), Unavailable if error.retriable() else Rejected)
    if kind is TopicNotFound and topic is not None:
        return no_topic(topic)
    if kind is Denied and topic is None:
        # Administration: in the words that REST's way has. Who reads or writes is told whether the topic or the group refuses them.
        return Denied(NOT_ALLOWED)
    return kind(error.str())


def _not_taken(error: KafkaError, topic: str, partition: int | None) -> HeadraceError:
    """Why a record was not acknowledged, in words that name its place."""
    match error.code():
        case KafkaError._UNKNOWN_PARTITION:
            return PartitionNotFound(f"{topic} has no partition {partition}")
        case KafkaError._MSG_TIMED_OUT:
            return Unavailable(
                f"a record to {topic} was not acknowledged in {DELIVERY_SECONDS_MAX} s; it may have been written or not"
            )
        case _:
            return raised(error, topic=topic)
