"""A small blocking Kafka client that hands out record batches as they lie, for the decoder.

Only what a reader needs: topics, offsets by end or time, and fetching one partition. Works with any Kafka broker that
speaks topic ids (Fetch v13, Kafka 3.1). One object belongs to one thread.
"""

import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from headrace.errors import (
    Denied,
    Fault,
    Invalid,
    MalformedRequest,
    NotFound,
    NotLeader,
    OffsetOutOfRange,
    TimedOut,
    TopicNotFound,
    Unavailable,
)
from headrace.limits import FRAME_BYTES_MAX
from headrace.pipeline.decoder import AbortedTransaction
from headrace.pipeline.source.errors import TopicRecreated
from headrace.pipeline.source.offsets import EARLIEST, LATEST, TopicPartition
from headrace.pipeline.source.security import BrokerSecurity
from headrace.records.batch import Buffer
from headrace.wire.kafka.client_properties import ClientSecurity
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_request, read_response_header
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.kafka.sasl import exchange

METADATA_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 7
FETCH_VERSION: Final = 13
CLIENT_ID: Final = "headrace-spark"
REQUEST_TIMEOUT_S: Final = 30.0
RETRY_DEADLINE_S: Final = 60.0
"""How long a moved leader or a starting broker is waited for before the task fails and Spark tries again."""
FIRST_ANSWER_S: Final = 8.0
"""How long a plan waits for brokers of which none has answered yet: most likely the address is wrong."""
RETRY_PAUSE_S: Final = 0.2
FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
FETCH_WAIT_MS: Final = 500
PLAIN: Final = BrokerSecurity()

_size = struct.Struct(">i")
_Response = TypeVar("_Response", bound=Message)
_Result = TypeVar("_Result")

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class ListedTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: str
    partitions: tuple[int, ...]
    is_internal: bool


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    records: Buffer
    aborted: tuple[AbortedTransaction, ...]
    high_watermark: int


class Connection:
    """One TCP connection, one request at a time."""

    def __init__(self, host: str, port: int, *, security: BrokerSecurity, timeout_s: float) -> None:
        said = security.read()
        try:
            plain = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise Unavailable(f"no connection to {host}:{port}: {error.strerror or error}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = _wrapped(plain, said, host)
            if said.is_sasl:
                self._log_in(said)
        except BaseException:
            plain.close()
            raise

    def _log_in(self, said: ClientSecurity) -> None:
        mechanism = said.mechanism or ""
        shaken = self.ask(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse)
        if shaken.error_code:
            raise Denied(f"{self._peer} does not take {mechanism}; possible are {', '.join(shaken.mechanisms)}")
        steps = exchange(mechanism, said.user, said.password, nonce=secrets.token_urlsafe(24))
        message = next(steps)
        while True:
            answer = self.ask(SaslAuthenticateRequest(message), 2, SaslAuthenticateResponse)
            if answer.error_code:
                raise Denied(f"{self._peer} refused the login of {said.user!r}")
            try:
                message = steps.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def ask(self, request: Message, version: int, response: type[_Response]) -> _Response:
        """Send and wait. The response's records are slices of its frame."""
        self._correlation_id += 1
        try:
            self._socket.sendall(encode_request(request, version, self._correlation_id, CLIENT_ID))
            (size,) = _size.unpack(self._read(4))
            if not 4 <= size <= FRAME_BYTES_MAX:
                raise Unavailable(f"{self._peer} announced a frame of {size} bytes")
            frame = self._read(size)
        except TimeoutError as error:
            raise TimedOut(f"{self._peer} did not answer within {self._socket.gettimeout():g} s") from error
        except OSError as error:
            raise Unavailable(f"connection to {self._peer} broke: {error}") from error
        try:
            correlation_id, at = read_response_header(frame, request.API_KEY, version)
        except MalformedRequest as error:
            raise Unavailable(f"{self._peer} answered what cannot be read: {error}") from error
        if correlation_id != self._correlation_id:
            raise Unavailable(
                f"{self._peer} answered with correlation id {correlation_id}; expected {self._correlation_id}"
            )
        return response.decode(frame, version, at)

    def allow(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        done = 0
        while done < size:
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ConnectionError("closed by the peer")
            done += count
        return view


def _wrapped(plain: socket.socket, security: ClientSecurity, host: str) -> socket.socket:
    """Speaking TLS, if that is wanted."""
    if not security.is_tls:
        return plain
    try:
        context = ssl.create_default_context(cafile=security.ca)
        context.check_hostname = security.checks_host
        if security.certificate is not None:
            context.load_cert_chain(security.certificate, security.key, security.key_password)
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLError as error:
        raise Invalid(f"no TLS with {host}: {error.reason or error}") from error
    except OSError as error:
        raise Unavailable(f"no TLS with {host}: {error.strerror or error}") from error


class BrokerClient:
    """The brokers of one cluster: knows leaders, keeps connections, follows moves.

    Once one has answered, a cluster that falls silent is given `RETRY_DEADLINE_S` to come back.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        security: BrokerSecurity = PLAIN,
        first_answer_s: float = RETRY_DEADLINE_S,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._first_answer_s = first_answer_s
        self._has_answered = False
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}

    def topics(self, names: Sequence[str] | None) -> list[ListedTopic]:
        """The named topics, or all of them. Never creates one. Raises `TopicNotFound`."""
        return self._retry(lambda: self._list_topics(names))

    def earliest_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(places, EARLIEST), is_committed=False)

    def latest_offsets(self, places: Iterable[TopicPartition], *, is_committed: bool) -> dict[TopicPartition, int]:
        """High watermarks, or last stable offsets."""
        return self._offsets(dict.fromkeys(places, LATEST), is_committed=is_committed)

    def offset_at(self, place: TopicPartition, timestamp_ms: int) -> int | None:
        offset = self._offsets({place: timestamp_ms}, is_committed=False)[place]
        return None if offset < 0 else offset

    def fetch(self, place: TopicPartition, topic_id: str, offset: int, *, is_committed: bool) -> Fetched:
        """Whole batches from the one that holds `offset`. Raises `OffsetOutOfRange` and `TopicRecreated`."""
        return self._retry(lambda: self._fetch_once(place, topic_id, offset, is_committed))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _list_topics(self, names: Sequence[str] | None) -> list[ListedTopic]:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self._any_broker().ask(request, METADATA_VERSION, MetadataResponse)
        self._note_answer()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        listed = []
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicNotFound(f"no such topic: {topic.name}")
            _raise_for(topic.error_code, f"topic {topic.name}")
            assert topic.name is not None
            for partition in topic.partitions:
                if partition.leader_id in addresses:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self._leaders[place] = addresses[partition.leader_id]
            listed.append(
                ListedTopic(
                    name=topic.name,
                    topic_id=str(UUID(bytes=bytes(topic.topic_id))),
                    partitions=tuple(sorted(p.partition_index for p in topic.partitions)),
                    is_internal=topic.is_internal,
                )
            )
        return listed

    def _offsets(self, times: Mapping[TopicPartition, int], *, is_committed: bool) -> dict[TopicPartition, int]:
        return self._retry(lambda: self._list_offsets(times, is_committed)) if times else {}

    def _list_offsets(self, times: Mapping[TopicPartition, int], is_committed: bool) -> dict[TopicPartition, int]:
        by_leader: dict[tuple[str, int], dict[str, list[ListOffsetsPartition]]] = {}
        for place, timestamp in times.items():
            topics = by_leader.setdefault(self._leader(place), {})
            asked = ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
            topics.setdefault(place.topic, []).append(asked)
        found: dict[TopicPartition, int] = {}
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(is_committed),
                topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            )
            response = self._connect(leader).ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    _raise_for(partition.error_code, str(place))
                    found[place] = partition.offset
        return found

    def _fetch_once(self, place: TopicPartition, topic_id: str, offset: int, is_committed: bool) -> Fetched:
        wanted = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=int(is_committed),
            topics=[FetchTopic(topic_id=UUID(topic_id).bytes, partitions=[wanted])],
        )
        response = self._connect(self._leader(place)).ask(request, FETCH_VERSION, FetchResponse)
        _raise_for(response.error_code, str(place))
        partition = response.responses[0].partitions[0]
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(f"{place}: offset {offset} is not in the log")
        if partition.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
            raise TopicRecreated(f"topic {place.topic} with id {topic_id} does not exist any more")
        _raise_for(partition.error_code, str(place))
        aborted = tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in partition.aborted_transactions or ())
        return Fetched(records=partition.records or b"", aborted=aborted, high_watermark=partition.high_watermark)

    def _leader(self, place: TopicPartition) -> tuple[str, int]:
        leader = self._leaders.get(place)
        if leader is None:
            self._list_topics([place.topic])
            leader = self._leaders.get(place)
        if leader is None:
            raise NotLeader(f"{place} has no leader now")
        return leader

    def _any_broker(self) -> Connection:
        failures = []
        for address in (*self._connections, *self._bootstrap):
            try:
                return self._connect(address)
            except Unavailable as error:
                failures.append(str(error))
        raise Unavailable("; ".join(failures))

    def _connect(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            timeout_s = REQUEST_TIMEOUT_S if self._has_answered else min(REQUEST_TIMEOUT_S, self._first_answer_s)
            connection = self._connections[address] = Connection(*address, security=self._security, timeout_s=timeout_s)
        return connection

    def _note_answer(self) -> None:
        if not self._has_answered:
            self._has_answered = True
            for connection in self._connections.values():
                connection.allow(REQUEST_TIMEOUT_S)

    def _retry(self, attempt: Callable[[], _Result]) -> _Result:
        """Whatever is only out of place or early is asked again, with fresh connections and leaders."""
        start_s = time.monotonic()
        while True:
            try:
                return attempt()
            except Unavailable as error:
                self.close()
                self._leaders.clear()
                waited_s = time.monotonic() - start_s
                if not self._has_answered and waited_s >= self._first_answer_s:
                    raise self._unheard(error) from error
                if waited_s >= RETRY_DEADLINE_S:
                    raise
                time.sleep(RETRY_PAUSE_S)

    def _unheard(self, error: Unavailable) -> Unavailable:
        addresses = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
        return Unavailable(
            f"no Kafka broker answers at {addresses} ({error}): "
            "check kafka.bootstrap.servers, that a node runs there, and that it is the port of its Kafka door"
        )


def _raise_for(code: int, subject: str) -> None:
    if code == ErrorCode.NONE:
        return
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    if code in _MOVED:
        raise NotLeader(f"{subject}: {name}")
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotFound(f"{subject} does not exist")
    if code == ErrorCode.UNKNOWN_TOPIC_ID:
        raise TopicRecreated(f"{subject}: its topic id does not exist any more")
    raise Fault(f"{subject}: the broker answered {name}")
