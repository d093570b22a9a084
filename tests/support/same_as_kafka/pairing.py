"""One request to two brokers, and their answers in a form that can be compared field by field.

A request may hold an `Each` wherever the brokers use different words for the same thing: ids of topics, members and
producers. Answers are turned back: such ids become `topic a`, `member 1`, `producer 2`, numbered in the order in which a
broker named them. Rows that come in any order are sorted by what names them.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from tests.support.access_probes import log_in
from tests.support.kafka_messages import SCHEMAS, class_of
from tests.support.raw_kafka import Closed, RawKafka

from headrace.records.batch import iterate_batches
from headrace.wire.kafka.message import Message

Plain = Any  # Any: plain values of any depth
ANSWER_SECONDS_MAX: Final = 20.0
ADMIN: Final = "admin"
"""Who may do everything: who prepares, and who asks where nobody else is named."""
NO_ID: Final = bytes(16)
CLOSED: Final = "the connection is closed"
SILENT: Final = "no answer"

UNCOMPARED: Final = {
    "throttle_time_ms",
    "error_message",
    "batch_index_error_message",
    "status_message",
    "host",
    "port",
    "client_host",
    "cluster_id",
    "documentation",
    "leader_epoch",
    "committed_leader_epoch",
    "coordinator_epoch",
    "log_append_time_ms",
    "last_timestamp",
    "timestamp",
    "transaction_start_time_ms",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "size",
    "partition_size",
    "member_epoch",
    "group_epoch",
    "assignment_epoch",
    "api_keys",
    "supported_features",
    "finalized_features",
    "finalized_features_epoch",
}
"""What each broker makes up by itself: texts for people, addresses, its own clock, epochs that count its own restarts."""

ROW_NAMES: Final = (
    "api_key",
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_type",
    "resource_name",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "node_id",
    "broker_id",
    "member_id",
    "producer_id",
    "base_offset",
    "source",
)
LESSER_ROW_NAMES: Final = (
    "user", "entity", "entity_type", "resource_pattern_type", "pattern_type", "principal", "host", "operation",
    "permission_type", "mechanism", "key",
)  # fmt: skip
"""What names rows about rights, quotas and passwords."""
PRODUCER_FIELDS: Final = {"producer_id"}
MEMBER_FIELDS: Final = {"member_id", "leader"}
MADE_UP_ID_LENGTH_MIN: Final = 20


@dataclass(frozen=True, slots=True)
class Each:
    """A value that is another one for each broker."""

    ours: Any
    theirs: Any


@dataclass(slots=True)
class Broker:
    """One side: its connection, and the names given to the ids it made up."""

    address: str
    is_ours: bool
    password: str | None = None
    """Of every user, where the broker asks for a login."""
    clients: dict[str, RawKafka] = field(default_factory=dict, repr=False)
    """One connection for each user who asks."""
    names: dict[object, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    prefix: str = ""
    """What the names of this run begin with: lists have those of other runs as well."""

    def client(self, asker: str) -> RawKafka:
        if asker not in self.clients:
            made = self.clients[asker] = RawKafka(self.address, timeout=ANSWER_SECONDS_MAX)
            if self.password is not None:
                log_in(made, asker, self.password)
        return self.clients[asker]

    def name(self, kind: str, value: object) -> str:
        """The name of an id, a new one where it is seen for the first time."""
        if value not in self.names:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.names[value] = f"{kind} {self.counts[kind]}"
        return self.names[value]

    def ask(self, request: Message, version: int, asker: str = ADMIN) -> Message | str:
        kind = class_of(type(request).__name__.replace("Request", "Response"))
        try:
            client = self.client(asker)
            if getattr(request, "acks", None) == 0:
                client.send_request(self.spoken(request), version)
                # Whoever is asked for no answer closes the connection, or answers what comes next.
                client.api_versions()
                return SILENT
            return client.call(self.spoken(request), version, kind)
        except Closed:
            self.clients.pop(asker).close()
            return CLOSED
        except TimeoutError:
            self.clients.pop(asker).close()
            return SILENT

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def spoken(self, value: Any) -> Any:
        """The request in this broker's words."""
        if isinstance(value, Each):
            return value.ours if self.is_ours else value.theirs
        if isinstance(value, msgspec.Struct):
            fields = {name: self.spoken(getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(**fields)
        if isinstance(value, list):
            return [self.spoken(each) for each in value]
        return value

    def plain(self, answer: Message | str, version: int) -> Plain:
        """The answer without what only this broker can know."""
        if isinstance(answer, str):
            return answer
        for rows, name in (("transaction_states", "transactional_id"), ("groups", "group_id")):
            if type(answer).__name__.startswith("List") and rows in answer.__struct_fields__:
                own = [each for each in getattr(answer, rows) if getattr(each, name).startswith(self.prefix)]
                setattr(answer, rows, own)
        schema = SCHEMAS[type(answer).__name__]
        shapes = {shape.name: shape for shape in schema.structs}
        found = self._plain_struct(answer, shapes, version)
        if type(answer).__name__ == "FetchResponse":
            found["responses"] = merged(found["responses"])
        return found

    def _plain_struct(self, value: Any, shapes: dict[str, Any], version: int) -> Plain:
        known = {each.name: each for each in shapes[type(value).__name__].fields}
        return {
            name: self._plain(getattr(value, name), name, shapes, version)
            for name in value.__struct_fields__
            if name not in UNCOMPARED and known[name].versions.first <= version <= known[name].versions.last
        }

    def _plain(self, value: Any, name: str, shapes: dict[str, Any], version: int) -> Plain:
        if isinstance(value, msgspec.Struct):
            return self._plain_struct(value, shapes, version)
        if isinstance(value, list):
            return sorted((self._plain(each, name, shapes, version) for each in value), key=row_order)
        if name == "records":
            return list(self._plain_batches(value or b""))
        if isinstance(value, bytes | memoryview):
            found = bytes(value)
            if name == "topic_id" and found != NO_ID:
                return self.names.get(found, "a topic")
            return found.hex()
        if name in PRODUCER_FIELDS and value >= 0:
            return self.name("producer", ("producer", value))
        if name in MEMBER_FIELDS and isinstance(value, str) and len(value) >= MADE_UP_ID_LENGTH_MIN:
            return self.name("member", value)
        if name == "session_id" and value:
            return "a session"
        return value

    def _plain_batches(self, records: bytes | memoryview) -> Iterator[Plain]:
        for header, batch in iterate_batches(bytes(records)):
            is_made_here = header.is_control or header.attributes & 8
            yield {
                "base_offset": header.base_offset,
                "end_offset": header.end_offset,
                "attributes": header.attributes,
                "producer_id": self._plain(header.producer_id, "producer_id", {}, 0),
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "count": header.record_count,
                "size": len(batch),
                "timestamps": None if is_made_here else (header.base_timestamp_ms, header.max_timestamp_ms),
                "records": None if is_made_here else bytes(batch[61:]).hex(),
            }


def merged(topics: list[Plain]) -> list[Plain]:
    """One row for each topic: Kafka begins another one where a session has other topics in between."""
    found: dict[str, Plain] = {}
    for topic in topics:
        name = row_order(topic)
        rows = found[name]["partitions"] if name in found else []
        found[name] = topic | {"partitions": sorted(rows + topic["partitions"], key=row_order)}
    return list(found.values())


def row_order(row: Plain) -> str:
    """By what names a row, where something does: results must not decide what is compared with what."""
    if isinstance(row, dict):
        return repr([(name, row[name]) for name in (*ROW_NAMES, *LESSER_ROW_NAMES) if name in row])
    return repr(row)


@dataclass(slots=True)
class Pair:
    """The two brokers, asked the same."""

    ours: Broker
    theirs: Broker

    def ask(self, request: Message, version: int, asker: str = ADMIN) -> tuple[Message | str, Message | str]:
        return self.ours.ask(request, version, asker), self.theirs.ask(request, version, asker)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@contextlib.contextmanager
def paired(ours: str, theirs: str, password: str | None = None) -> Iterator[Pair]:
    pair = Pair(Broker(ours, is_ours=True, password=password), Broker(theirs, is_ours=False, password=password))
    try:
        yield pair
    finally:
        pair.close()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that the brokers do not agree on."""

    request: str
    version: int
    path: str
    """Names of fields, without the places of rows."""
    ours: Plain
    theirs: Plain
    place: dict[str, Plain] = field(default_factory=dict)
    """What names the rows it is in: topic, partition, group."""
    row: dict[str, Plain] = field(default_factory=dict)
    """Our whole row: the fields beside this one."""

    def __str__(self) -> str:
        return f"{self.request} v{self.version}{self.path}: ours {self.ours!r}, Kafka's {self.theirs!r}"


def different(request: str, version: int, ours: Plain, theirs: Plain) -> Iterator[Difference]:
    yield from _different(Difference(request, version, "", ours, theirs))


def _different(whole: Difference) -> Iterator[Difference]:
    ours, theirs = whole.ours, whole.theirs
    if isinstance(ours, dict) and isinstance(theirs, dict):
        place = whole.place | {name: ours[name] for name in ROW_NAMES if name in ours}
        for key in sorted(ours.keys() | theirs.keys()):
            yield from _different(
                replace(
                    whole, path=f"{whole.path}.{key}", ours=ours.get(key), theirs=theirs.get(key), place=place, row=ours
                )
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _different(replace(whole, path=f"{whole.path}[]", ours=one, theirs=other))
    elif ours != theirs:
        yield whole


def pause(seconds: float) -> None:
    """Kafka's controller tells its broker of changes a moment later."""
    time.sleep(seconds)
