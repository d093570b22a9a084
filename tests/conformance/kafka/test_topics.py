"""A door with settings of its own: no topics on demand, another address, more partitions, small frames."""

from collections.abc import Iterator

import pytest
from tests.support.kafka_client import Wanted, delete_topic, described, fetch, metadata, produce_one
from tests.support.node import NodeProcess, running_node
from tests.support.ports import kept_port
from tests.support.raw_groups import commit, committed
from tests.support.raw_kafka import Closed, RawKafka, batch_of

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.kafka.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from headrace.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse

SETTINGS = {
    "auto.create.topics.enable": "false",
    "advertised.kafka": "broker.example:19092",
    "num.partitions": 3,
    "socket.request.max.bytes": 100_000,
    "fetch.max.bytes": 2000,
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the door really listens; what it tells clients leads elsewhere."""
    with kept_port() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("settings") / "data"
    with running_node(directory, {**SETTINGS, "listen.kafka": address}) as started:
        yield started


@pytest.fixture
def client(node: NodeProcess, address: str) -> Iterator[RawKafka]:
    with RawKafka(address) as connected:
        yield connected


@pytest.mark.requirement("R4.55", "C57")
@pytest.mark.trap(41)
def test_no_topic_comes_by_asking_where_the_door_forbids_it(client: RawKafka, name: str) -> None:
    found = metadata(client, [name], auto_create=True).topics[0]
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce_one(client, name, batch_of([b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in [topic.name for topic in metadata(client, None).topics]


@pytest.mark.trap(38, 39)
def test_advertised_address_is_what_every_answer_names(client: RawKafka) -> None:
    (broker,) = metadata(client, []).brokers
    assert (broker.host, broker.port) == ("broker.example", 19092)
    cluster = client.call(DescribeClusterRequest(), 0, DescribeClusterResponse)
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [
        (broker.node_id, "broker.example", 19092)
    ]
    coordinator = client.call(FindCoordinatorRequest("group"), 2, FindCoordinatorResponse)
    assert (coordinator.node_id, coordinator.host, coordinator.port) == (broker.node_id, "broker.example", 19092)


def test_partitions_by_default_are_those_of_the_setting(client: RawKafka, name: str) -> None:
    answer = client.call(CreateTopicsRequest([CreatableTopic(name, -1, -1)]), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    assert len(described(client, name).partitions) == 3


@pytest.mark.trap(51)
def test_request_above_the_limit_ends_the_connection(address: str, client: RawKafka, topic: str) -> None:
    assert produce_one(client, topic, batch_of([b"x" * 90_000])).error_code == 0
    with RawKafka(address) as other, pytest.raises(Closed):
        produce_one(other, topic, batch_of([b"x" * 100_000]))


@pytest.mark.requirement("R4.42")
@pytest.mark.trap(9, 10)
def test_door_caps_what_a_client_asks_for(client: RawKafka, topic: str) -> None:
    batch = batch_of([b"x" * 500])
    for _ in range(10):
        produce_one(client, topic, batch)
    answer = fetch(client, Wanted(topic), max_bytes=1 << 30, min_bytes=1 << 30, wait_ms=600_000)
    assert len(answer.responses[0].partitions[0].records or b"") == 2000 // len(batch) * len(batch)


def test_topics_of_coordinators_are_made_by_hand_only_as_they_need_them(client: RawKafka, topic: str) -> None:
    """As in Apache Kafka they may be made before their time; but they are somebody's memory, and stay."""
    name = "__consumer_offsets"

    def create(name: str, *configs: CreatableTopicConfig) -> CreatableTopicResult:
        request = CreateTopicsRequest([CreatableTopic(name, 5, 1, configs=list(configs))])
        return client.call(request, 5, CreateTopicsResponse).topics[0]

    forbidden = create("__cluster_metadata")
    assert forbidden.error_code == ErrorCode.INVALID_REQUEST
    assert forbidden.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    assert create(name, CreatableTopicConfig("cleanup.policy", "delete")).error_code == ErrorCode.INVALID_CONFIG
    assert create(name).error_code == 0
    assert described(client, name).is_internal
    assert commit(client, "group", topic, {0: 7}) == {0: 0}
    assert len(described(client, name).partitions) == 5
    assert delete_topic(client, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert committed(client, "group", topic) == (7, 0)
