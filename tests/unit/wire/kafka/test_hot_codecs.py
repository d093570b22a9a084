"""The hand-written codecs say, byte for byte, what the generated ones say, in every version."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kafka_messages import SCHEMAS, SlowEncoder, encoded, project, sample, values

from headrace.errors import MalformedRequest
from headrace.limits import PARTITIONS_PER_REQUEST_MAX
from headrace.records.batch import bytes_of
from headrace.wire.kafka import fetch, metadata, produce
from headrace.wire.kafka.endpoints import LeaderHint, NodeEndpoint
from headrace.wire.kafka.headers import encode_response, read_response_header
from headrace.wire.kafka.messages import fetch_request as generated_fetch
from headrace.wire.kafka.messages import fetch_response as generated_fetched
from headrace.wire.kafka.messages import metadata_response as generated_metadata
from headrace.wire.kafka.messages import produce_request as generated_produce
from headrace.wire.kafka.messages import produce_response as generated_produced

PRODUCE_VERSIONS = range(produce.FIRST_VERSION, produce.LAST_VERSION + 1)
FETCH_VERSIONS = range(fetch.FIRST_VERSION, fetch.LAST_VERSION + 1)
METADATA_VERSIONS = range(14)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=10) | st.just("long" * 50)
OPTIONAL_TEXT = st.none() | TEXT
TOPIC_ID = st.binary(min_size=16, max_size=16)
LEADER = st.none() | st.builds(LeaderHint, INT32, INT32)
ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, node_id=INT32, host=TEXT, port=INT32, rack=OPTIONAL_TEXT),
    max_size=2,
)


def topic_name(topic: Any, version: int) -> str | bytes:
    """What the generated struct calls a topic, in the version at hand."""
    field = "topic_id" if version >= 13 else "name" if hasattr(topic, "name") else "topic"
    name: str | bytes = getattr(topic, field)
    return name


# Produce


def as_produce_call(request: Any, version: int) -> produce.ProduceCall:
    return produce.ProduceCall(
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            produce.TopicRecords(
                topic_name(topic, version),
                [produce.PartitionRecords(one.index, memoryview(one.records or b"")) for one in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )


@pytest.mark.requirement("R4.49", "R4.50")
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=40)
@given(value=values("ProduceRequest"), unknown_tags=st.booleans())
def test_produce_is_read_as_the_generated_codec_writes_it(version: int, value: Any, unknown_tags: bool) -> None:
    sent = project(SCHEMAS["ProduceRequest"], value, version)
    frame = b"head" + SlowEncoder("ProduceRequest", version, unknown_tags=unknown_tags).encode(sent)
    assert produce.read_produce(memoryview(frame), 4, version) == as_produce_call(sent, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("records_size", [0, 1, 125, 126, 127, 128, 16382, 16383, 16384, 2_097_151, 2_097_152])
def test_produce_takes_records_of_any_size(version: int, records_size: int) -> None:
    records = bytes(records_size)
    partition = generated_produce.PartitionProduceData(5, records)
    topic = generated_produce.TopicProduceData("t" * 130, bytes(range(16)), [partition])
    request = generated_produce.ProduceRequest(None, 1, 2, [topic])
    call = produce.read_produce(memoryview(encoded(request, version)), 0, version)
    assert call.topics[0].partitions[0].records == records


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_takes_more_topics_and_partitions_than_one_byte_counts(version: int) -> None:
    partitions = [generated_produce.PartitionProduceData(index, b"r") for index in range(200)]
    topics = [
        generated_produce.TopicProduceData(f"t{number}", bytes(15) + bytes([number]), partitions)
        for number in range(150)
    ]
    request = generated_produce.ProduceRequest("tx", -1, 30_000, topics)
    call = produce.read_produce(memoryview(encoded(request, version)), 0, version)
    assert call == as_produce_call(request, version)


@pytest.mark.trap(51)
@pytest.mark.parametrize("version", [8, 9, 13])
def test_produce_with_more_partitions_than_the_bound_is_malformed(version: int) -> None:
    partitions = [generated_produce.PartitionProduceData(0, b"")] * (PARTITIONS_PER_REQUEST_MAX // 4)
    topics = [generated_produce.TopicProduceData("t", bytes(16), partitions)] * 5
    frame = memoryview(encoded(generated_produce.ProduceRequest(None, 1, 2, topics), version))
    with pytest.raises(MalformedRequest, match="partitions"):
        produce.read_produce(frame, 0, version)


def test_produce_records_are_slices_of_the_frame() -> None:
    frame = bytearray(encoded(sample("ProduceRequest", 9, "full"), 9))
    call = produce.read_produce(memoryview(frame), 0, 9)
    assert call.topics[0].partitions[0].records.obj is frame


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("kind", ["full", "bare"])
def test_produce_cut_short_anywhere_is_malformed(version: int, kind: str) -> None:
    whole = encoded(sample("ProduceRequest", version, kind), version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            produce.read_produce(memoryview(whole)[:size], 0, version)


@pytest.mark.parametrize("version", [2, 14])
def test_produce_of_an_unknown_version_is_malformed(version: int) -> None:
    with pytest.raises(MalformedRequest):
        produce.read_produce(memoryview(bytes(100)), 0, version)


PRODUCED = st.lists(
    st.tuples(
        TEXT,
        TOPIC_ID,
        st.lists(
            st.builds(
                produce.ProducedPartition,
                index=INT32,
                error_code=st.just(0) | INT16,
                base_offset=INT64,
                append_time_ms=INT64,
                log_start=INT64,
                error_message=OPTIONAL_TEXT,
                record_errors=st.just(()) | st.lists(st.tuples(INT32, OPTIONAL_TEXT), max_size=2),
                leader=LEADER,
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)


def as_produce_response(topics: Any, throttle_ms: int, endpoints: Any) -> generated_produced.ProduceResponse:
    return generated_produced.ProduceResponse(
        [
            generated_produced.TopicProduceResponse(
                name,
                topic_id,
                [
                    generated_produced.PartitionProduceResponse(
                        row.index,
                        row.error_code,
                        row.base_offset,
                        row.append_time_ms,
                        row.log_start,
                        [generated_produced.BatchIndexAndErrorMessage(*error) for error in row.record_errors],
                        row.error_message,
                        row.leader
                        and generated_produced.LeaderIdAndEpoch(row.leader.leader_id, row.leader.leader_epoch),
                    )
                    for row in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        throttle_ms,
        [generated_produced.NodeEndpoint(one.node_id, one.host, one.port, one.rack) for one in endpoints],
    )


@pytest.mark.requirement("R4.59", "R4.60", "R4.61")
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=40)
@given(correlation_id=INT32, topics=PRODUCED, throttle_ms=INT32, endpoints=ENDPOINTS)
def test_produced_is_written_as_the_generated_codec_writes_it(
    version: int, correlation_id: int, topics: Any, throttle_ms: int, endpoints: list[NodeEndpoint]
) -> None:
    rows = [
        produce.ProducedTopic(topic_id if version >= 13 else name, partitions) for name, topic_id, partitions in topics
    ]
    frame = produce.encode_produced(version, correlation_id, rows, throttle_ms=throttle_ms, endpoints=endpoints)
    assert frame == encode_response(as_produce_response(topics, throttle_ms, endpoints), version, correlation_id)


# Fetch


def as_fetch_call(request: Any, version: int) -> fetch.FetchCall:
    replica_id = request.replica_id
    if version >= 15:
        replica_id = request.replica_state.replica_id if request.replica_state else -1
    return fetch.FetchCall(
        replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            fetch.FetchTopic(
                topic_name(topic, version),
                [
                    fetch.FetchPartition(
                        one.partition,
                        one.current_leader_epoch,
                        one.fetch_offset,
                        one.last_fetched_epoch,
                        one.log_start_offset,
                        one.partition_max_bytes,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        [fetch.ForgottenTopic(topic_name(topic, version), topic.partitions) for topic in request.forgotten_topics_data],
        request.rack_id,
    )


@pytest.mark.requirement("R4.35", "R4.36", "R4.37")
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=40)
@given(value=values("FetchRequest"), unknown_tags=st.booleans())
def test_fetch_is_read_as_the_generated_codec_writes_it(version: int, value: Any, unknown_tags: bool) -> None:
    sent = project(SCHEMAS["FetchRequest"], value, version)
    frame = b"head" + SlowEncoder("FetchRequest", version, unknown_tags=unknown_tags).encode(sent)
    assert fetch.read_fetch(memoryview(frame), 4, version) == as_fetch_call(sent, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("kind", ["full", "bare"])
def test_fetch_cut_short_anywhere_is_malformed(version: int, kind: str) -> None:
    whole = encoded(sample("FetchRequest", version, kind), version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            fetch.read_fetch(memoryview(whole)[:size], 0, version)


@pytest.mark.trap(51)
@pytest.mark.parametrize("version", [11, 12, 17])
def test_fetch_of_more_partitions_than_the_bound_is_malformed(version: int) -> None:
    partitions = [generated_fetch.FetchPartition()] * (PARTITIONS_PER_REQUEST_MAX // 4)
    topics = [generated_fetch.FetchTopic("t", bytes(16), partitions)] * 5
    frame = memoryview(encoded(generated_fetch.FetchRequest(topics=topics), version))
    with pytest.raises(MalformedRequest, match="partitions"):
        fetch.read_fetch(frame, 0, version)


@pytest.mark.parametrize("version", [3, 18])
def test_fetch_of_an_unknown_version_is_malformed(version: int) -> None:
    with pytest.raises(MalformedRequest):
        fetch.read_fetch(memoryview(bytes(100)), 0, version)


def fetched_partition(records: list[bytes], **rest: Any) -> fetch.FetchedPartition:
    return fetch.FetchedPartition(records=records, records_size=sum(map(len, records)), **rest)


FETCHED = st.lists(
    st.tuples(
        TEXT,
        TOPIC_ID,
        st.lists(
            st.builds(
                fetched_partition,
                st.just([]) | st.lists(st.binary(min_size=1, max_size=200), max_size=3),
                index=INT32,
                error_code=INT16,
                high_watermark=INT64,
                last_stable_offset=INT64,
                log_start=INT64,
                aborted=st.none() | st.lists(st.builds(fetch.AbortedTransaction, INT64, INT64), max_size=2),
                preferred_replica=INT32,
                diverging=st.none() | st.builds(fetch.EpochEnd, INT32, INT64),
                leader=LEADER,
            ),
            max_size=3,
        ),
    ),
    max_size=3,
)


def as_partition_data(row: fetch.FetchedPartition) -> generated_fetched.PartitionData:
    made = generated_fetched.PartitionData(
        partition_index=row.index,
        error_code=row.error_code,
        high_watermark=row.high_watermark,
        last_stable_offset=row.last_stable_offset,
        log_start_offset=row.log_start,
        preferred_read_replica=row.preferred_replica,
        records=b"".join(map(bytes_of, row.records)),
    )
    if row.aborted is not None:
        made.aborted_transactions = [
            generated_fetched.AbortedTransaction(one.producer_id, one.first_offset) for one in row.aborted
        ]
    if row.diverging:
        made.diverging_epoch = generated_fetched.EpochEndOffset(row.diverging.epoch, row.diverging.end_offset)
    if row.leader:
        made.current_leader = generated_fetched.LeaderIdAndEpoch(row.leader.leader_id, row.leader.leader_epoch)
    return made


@pytest.mark.requirement("R4.44", "R4.45", "R4.46")
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=40)
@given(correlation_id=INT32, topics=FETCHED, throttle_ms=INT32, error_code=INT16, session_id=INT32, endpoints=ENDPOINTS)
def test_fetched_is_written_as_the_generated_codec_writes_it(
    version: int,
    correlation_id: int,
    topics: Any,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    endpoints: list[NodeEndpoint],
) -> None:
    rows = [
        fetch.FetchedTopic(topic_id if version >= 13 else name, partitions) for name, topic_id, partitions in topics
    ]
    parts = fetch.encode_fetched(
        version,
        correlation_id,
        rows,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        endpoints=endpoints,
    )
    response = generated_fetched.FetchResponse(
        throttle_ms,
        error_code,
        session_id,
        [
            generated_fetched.FetchableTopicResponse(name, topic_id, [as_partition_data(row) for row in partitions])
            for name, topic_id, partitions in topics
        ],
        [generated_fetched.NodeEndpoint(one.node_id, one.host, one.port, one.rack) for one in endpoints],
    )
    assert b"".join(map(bytes_of, parts)) == encode_response(response, version, correlation_id)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetched_records_are_passed_on_without_a_copy(version: int) -> None:
    stored = bytearray(b"batch" * 1000)
    slices = [memoryview(stored)[:2000], memoryview(stored)[2000:]]
    topic: str | bytes = bytes(16) if version >= 13 else "events"
    partition = fetch.FetchedPartition(0, records=slices, records_size=len(stored))
    parts = fetch.encode_fetched(version, 1, [fetch.FetchedTopic(topic, [partition])])
    assert [part for part in parts if isinstance(part, memoryview)] == slices
    assert all(part.obj is stored for part in parts if isinstance(part, memoryview))
    assert int.from_bytes(bytes_of(parts[0])[:4], "big") == sum(map(len, parts)) - 4


@pytest.mark.trap(6)
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetched_records_are_never_null(version: int) -> None:
    topic: str | bytes = bytes(16) if version >= 13 else "events"
    failed = fetch.FetchedPartition(0, error_code=3)
    frame = memoryview(b"".join(map(bytes_of, fetch.encode_fetched(version, 1, [fetch.FetchedTopic(topic, [failed])]))))
    _, body_at = read_response_header(frame, 1, version, 4)
    response = generated_fetched.FetchResponse.decode(frame, version, body_at)
    assert response.responses[0].partitions[0].records == b""


@pytest.mark.trap(7)
@pytest.mark.parametrize("version", range(11, 18))
def test_fetched_names_no_preferred_replica_unless_told(version: int) -> None:
    topic: str | bytes = bytes(16) if version >= 13 else "events"
    row = fetch.FetchedPartition(0, records=[b"batch"], records_size=5)
    frame = memoryview(b"".join(map(bytes_of, fetch.encode_fetched(version, 1, [fetch.FetchedTopic(topic, [row])]))))
    _, body_at = read_response_header(frame, 1, version, 4)
    response = generated_fetched.FetchResponse.decode(frame, version, body_at)
    assert response.responses[0].partitions[0].preferred_read_replica == -1


# Metadata


@pytest.mark.parametrize("version", METADATA_VERSIONS)
@settings(max_examples=25)
@given(value=values("MetadataResponse"), correlation_id=INT32)
def test_metadata_from_rows_is_what_the_generated_codec_writes(version: int, value: Any, correlation_id: int) -> None:
    response: generated_metadata.MetadataResponse = project(SCHEMAS["MetadataResponse"], value, version)
    cluster = metadata.ClusterView(
        brokers=response.brokers,
        cluster_id=response.cluster_id or "c",
        controller_id=response.controller_id,
        authorized_operations=response.cluster_authorized_operations,
    )
    if version >= 2:
        response.cluster_id = cluster.cluster_id
    rows = metadata.TopicRows()
    frame = metadata.encode_metadata(
        version,
        correlation_id,
        cluster,
        [rows.add(bytes([index]), 1, version, topic) for index, topic in enumerate(response.topics)],
        throttle_ms=response.throttle_time_ms,
        error_code=response.error_code,
    )
    assert frame == encode_response(response, version, correlation_id)


def test_topic_rows_are_kept_until_the_revision_moves() -> None:
    rows = metadata.TopicRows()
    topic = generated_metadata.MetadataResponseTopic(name="events")
    assert rows.find(b"id", 1, 12) is None
    row = rows.add(b"id", 1, 12, topic)
    assert rows.find(b"id", 1, 12) is row
    assert rows.find(b"id", 2, 12) is None
    rows.add(b"id", 2, 9, topic)
    assert rows.find(b"id", 2, 12) is None
    rows.forget(b"id")
    assert rows.find(b"id", 2, 9) is None


def test_versions_that_share_a_row_have_equal_rows() -> None:
    for older in METADATA_VERSIONS:
        for newer in METADATA_VERSIONS:
            topic = generated_metadata.MetadataResponseTopic(
                name="events", partitions=[generated_metadata.MetadataResponsePartition()]
            )
            rows = metadata.TopicRows()
            row = rows.add(b"id", 1, older, topic)
            if rows.find(b"id", 1, newer) is not None:
                assert metadata.encode_topic_row(newer, topic) == row


def test_generated_fetch_has_the_range_of_the_hand_written_one() -> None:
    assert generated_fetch.FetchRequest.VERSIONS == (fetch.FIRST_VERSION, fetch.LAST_VERSION)
    assert generated_produce.ProduceRequest.VERSIONS == (produce.FIRST_VERSION, produce.LAST_VERSION)
