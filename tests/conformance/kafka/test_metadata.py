"""Metadata on the wire: which topics, which brokers, and what comes into being by asking."""

import base64
import concurrent.futures

import pytest
from tests.support.kafka_client import call_to_the_last_byte, delete_topic, metadata, topic_id
from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka

from headrace.doors.kafka.routes import ROUTES
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

VERSIONS = range(ROUTES[3].versions[0], ROUTES[3].versions[1] + 1)
NOBODYS_ID = bytes.fromhex("00112233445566778899aabbccddeeff")


@pytest.mark.requirement("R3.1", "R3.48")
@pytest.mark.trap(15, 38, 45)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_describes_a_topic_whose_leader_is_a_listed_broker(
    node: NodeProcess, client: RawKafka, name: str, version: int
) -> None:
    client.create_topic(name, 3)
    request = MetadataRequest([MetadataRequestTopic(name=name)], False)
    answer = call_to_the_last_byte(client, request, version, MetadataResponse)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == node.kafka
    assert answer.throttle_time_ms == 0
    if version >= 1:
        assert answer.controller_id == broker.node_id
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, name, False)
    assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert partition.error_code == 0
        assert partition.leader_id == broker.node_id
        assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]
        assert partition.offline_replicas == []
        assert partition.leader_epoch >= 0 if version >= 7 else partition.leader_epoch == -1
    assert (topic.topic_id != bytes(16)) == (version >= 10)


@pytest.mark.trap(40)
@pytest.mark.parametrize("version", [2, 8, 12])
def test_cluster_id_is_a_uuid_of_twenty_two_characters(client: RawKafka, version: int) -> None:
    found = metadata(client, [], version=version).cluster_id
    assert found is not None
    assert len(found) == 22
    assert len(base64.urlsafe_b64decode(found + "==")) == 16
    assert metadata(client, None, version=version).cluster_id == found


@pytest.mark.trap(41)
def test_null_means_all_topics_and_empty_means_none(client: RawKafka, topic: str) -> None:
    for version in (1, 5, 9, 12):
        assert topic in {each.name for each in metadata(client, None, version=version).topics}
        assert metadata(client, [], version=version).topics == []
    assert topic in {each.name for each in metadata(client, [], version=0).topics}


@pytest.mark.requirement("R4.55")
@pytest.mark.trap(41)
@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_asking_creates_the_topic_where_the_client_allows_it(client: RawKafka, name: str, version: int) -> None:
    found = metadata(client, [name], version=version, auto_create=True).topics[0]
    assert (found.error_code, found.name, len(found.partitions)) == (0, name, 1)
    assert topic_id(client, name) != bytes(16)


@pytest.mark.requirement("R4.55")
@pytest.mark.trap(41)
def test_asking_creates_nothing_where_the_client_forbids_it(client: RawKafka, name: str) -> None:
    for version in (4, 9, 12):
        found = metadata(client, [name], version=version, auto_create=False).topics[0]
        assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        assert (found.partitions, found.topic_id) == ([], bytes(16))
    assert name not in {each.name for each in metadata(client, None).topics}


@pytest.mark.trap(41)
@pytest.mark.parametrize("bad", ["with space", "a/b", ".", "..", "", "x" * 250, "é"])
@pytest.mark.parametrize("auto_create", [True, False])
def test_name_that_cannot_be_is_an_invalid_topic(client: RawKafka, bad: str, auto_create: bool) -> None:
    for version in (1, 8, 9, 12):
        found = metadata(client, [bad], version=version, auto_create=auto_create).topics[0]
        assert (found.error_code, found.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, bad)


def test_each_name_is_answered_by_itself(client: RawKafka, topic: str, name: str) -> None:
    answer = metadata(client, [topic, f"{name}-missing", "b d", topic])
    assert [(each.name, each.error_code) for each in answer.topics] == [
        (topic, 0),
        (f"{name}-missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic, 0),
    ]


@pytest.mark.trap(14)
@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(client: RawKafka, topic: str, version: int) -> None:
    known = topic_id(client, topic)
    answer = metadata(client, [], ids=[known, NOBODYS_ID], version=version, auto_create=True)
    found, missing = answer.topics
    assert (found.name, found.topic_id, found.error_code) == (topic, known, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, NOBODYS_ID, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.trap(14)
def test_topic_that_comes_again_has_another_id(client: RawKafka, topic: str) -> None:
    before = topic_id(client, topic)
    assert before != bytes(16)
    assert delete_topic(client, topic) == 0
    client.create_topic(topic)
    after = topic_id(client, topic)
    assert after not in (before, bytes(16))
    assert metadata(client, [], ids=[before]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.requirement("R4.55")
def test_many_clients_asking_for_one_new_topic_get_the_same_one(node: NodeProcess, name: str) -> None:
    def ask(_: int) -> tuple[int, bytes]:
        with RawKafka(node.kafka) as client:
            found = metadata(client, [name], auto_create=True).topics[0]
            return found.error_code, found.topic_id

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(ask, range(16)))
    assert len(answers) == 1
    assert answers.pop()[0] == 0


def test_authorized_operations_are_the_unknown_value_unless_asked(client: RawKafka, topic: str) -> None:
    answer = metadata(client, [topic], version=8)
    assert answer.cluster_authorized_operations == -(2**31)
    assert answer.topics[0].topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("sent_name", ["", None])
def test_topics_are_found_by_id_whatever_stands_in_place_of_the_name(
    client: RawKafka, topic: str, version: int, sent_name: str | None
) -> None:
    """Java sends an empty name. Where ids are given names are passed over, and nothing comes into being."""
    wanted = topic_id(client, topic)
    asked = [
        MetadataRequestTopic(topic_id=wanted, name=sent_name),
        MetadataRequestTopic(topic_id=NOBODYS_ID, name=sent_name),
        MetadataRequestTopic(topic_id=bytes(16), name=f"{topic}-beside-ids"),
    ]
    answer = client.call(MetadataRequest(asked, True), version, MetadataResponse)
    found = [(each.error_code, each.name, each.topic_id) for each in answer.topics]
    assert found == [(0, topic, wanted), (ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODYS_ID)]
    assert f"{topic}-beside-ids" not in {each.name for each in metadata(client, None).topics}


def test_names_that_differ_only_in_dots_and_underscores_are_refused(client: RawKafka, topic: str) -> None:
    client.create_topic(f"{topic}.x_y")
    request = CreateTopicsRequest([CreatableTopic(f"{topic}_x.y", 1, 1), CreatableTopic(f"{topic}.x_y", 1, 1)])
    alike, again = client.call(request, 5, CreateTopicsResponse).topics
    assert alike.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alike.error_message == f"Topic '{topic}_x.y' collides with existing topic: {topic}.x_y"
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    (missing,) = metadata(client, [f"{topic}.x.y"], auto_create=True).topics
    assert missing.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
