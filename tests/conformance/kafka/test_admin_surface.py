"""Admin requests byte by byte: configs, partitions, records and the small ones tools insist on."""

from collections.abc import Mapping

import pytest
from tests.support.node import running_node
from tests.support.raw_kafka import EARLIEST, RawKafka, batch_of

from headrace.broker.topic_config import TOPIC_CONFIG_KEYS
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.alter_configs_request import AlterableConfig as ReplacedConfig
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from headrace.wire.kafka.messages.alter_configs_response import AlterConfigsResponse
from headrace.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.messages.create_partitions_response import CreatePartitionsResponse
from headrace.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.kafka.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headrace.wire.kafka.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from headrace.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.kafka.messages.elect_leaders_response import ElectLeadersResponse
from headrace.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from headrace.wire.kafka.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.kafka.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def configs(
    client: RawKafka, name: str, *, kind: int = TOPIC, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], True, True)
    [result] = client.call(request, version, DescribeConfigsResponse).results
    assert result.error_code == 0, result
    return {row.name: row for row in result.configs}


def alter(client: RawKafka, name: str, *changes: tuple[str, int, str | None], is_dry: bool = False) -> int:
    resource = AlterConfigsResource(TOPIC, name, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest([resource], is_dry)
    return client.call(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code


@pytest.mark.trap(42)
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_topic_config_is_described_with_its_source(client: RawKafka, topic: str, version: int) -> None:
    found = configs(client, topic, version=version)
    assert found.keys() >= TOPIC_CONFIG_KEYS.keys()
    policy = found["cleanup.policy"]
    assert (policy.value, policy.read_only, policy.is_sensitive) == ("delete", False, False)
    assert policy.config_source in (4, 5)
    assert policy.synonyms[-1].source == 5
    if version >= 3:
        assert found["retention.ms"].config_type == 5
        assert found["retention.ms"].documentation


@pytest.mark.trap(42)
def test_broker_configs_name_what_tools_ask_for(client: RawKafka) -> None:
    found = configs(client, "1", kind=BROKER)
    assert found["default.replication.factor"].value == "1"
    assert found["auto.create.topics.enable"].value == "true"
    assert found["num.partitions"].value == "1"
    assert all(row.read_only for row in found.values())


def test_only_asked_for_keys_are_described(client: RawKafka, topic: str) -> None:
    resource = DescribeConfigsResource(TOPIC, topic, ["retention.ms", "nonsense"])
    [result] = client.call(DescribeConfigsRequest([resource]), 1, DescribeConfigsResponse).results
    assert [row.name for row in result.configs] == ["retention.ms"]
    assert result.configs[0].synonyms == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (99, "x", 42),
    ],
)
def test_unknown_resources_are_refused_one_by_one(client: RawKafka, kind: int, name: str, code: int) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])
    [result] = client.call(request, 4, DescribeConfigsResponse).results
    assert result.error_code == code


def test_single_configs_are_set_deleted_and_edited(client: RawKafka, topic: str) -> None:
    assert alter(client, topic, ("retention.ms", SET, "1000"), ("max.message.bytes", SET, "2000")) == 0
    assert configs(client, topic)["retention.ms"].value == "1000"
    assert configs(client, topic)["retention.ms"].config_source == 1
    assert alter(client, topic, ("retention.ms", DELETE, None)) == 0
    assert configs(client, topic)["retention.ms"].value == "604800000"
    assert configs(client, topic)["max.message.bytes"].value == "2000"
    assert alter(client, topic, ("cleanup.policy", APPEND, "compact")) == 0
    assert configs(client, topic)["cleanup.policy"].value == "delete,compact"
    assert alter(client, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert configs(client, topic)["cleanup.policy"].value == "compact"
    assert client.produce(topic, 0, batch_of([b"x" * 3000])).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_deleting_a_config_that_nobody_has_changes_nothing(client: RawKafka, topic: str) -> None:
    """Kafka checks the configs a topic has afterwards, not the names that were to go (ConfigurationControlManager)."""
    assert alter(client, topic, ("no.such.key", DELETE, None), ("retention.ms", SET, "1000")) == 0
    assert configs(client, topic)["retention.ms"].value == "1000"


def test_wrong_configs_are_refused_and_change_nothing(client: RawKafka, topic: str) -> None:
    invalid = ErrorCode.INVALID_CONFIG
    assert alter(client, topic, ("retention.ms", SET, "1"), ("no.such.key", SET, "1")) == invalid
    assert alter(client, topic, ("retention.ms", SET, "soon")) == invalid
    assert alter(client, topic, ("retention.ms", APPEND, "1")) == invalid
    assert alter(client, topic, ("min.insync.replicas", SET, "3")) == invalid
    assert alter(client, topic, ("compression.type", SET, "gzip")) == invalid
    assert alter(client, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == ErrorCode.INVALID_REQUEST
    assert alter(client, topic, ("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(client, "nowhere", ("retention.ms", SET, "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, topic, ("retention.ms", SET, "1"), is_dry=True) == 0
    assert configs(client, topic)["retention.ms"].value == "604800000"
    broker = AlterConfigsResource(BROKER, "1", [AlterableConfig("num.partitions", SET, "9")])
    answer = client.call(IncrementalAlterConfigsRequest([broker]), 0, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == invalid


@pytest.mark.trap(43)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_everything(client: RawKafka, topic: str, version: int) -> None:
    def replace(values: Mapping[str, str]) -> int:
        rows = [ReplacedConfig(name, value) for name, value in values.items()]
        request = AlterConfigsRequest([ReplacedResource(TOPIC, topic, rows)])
        return client.call(request, version, AlterConfigsResponse).responses[0].error_code

    assert replace({"retention.ms": "1000", "segment.bytes": "1048576"}) == 0
    assert configs(client, topic)["segment.bytes"].value == "1048576"
    assert replace({"max.message.bytes": "5000"}) == 0
    found = configs(client, topic)
    assert (found["retention.ms"].value, found["max.message.bytes"].value) == ("604800000", "5000")
    assert found["segment.bytes"].config_source == 5


@pytest.mark.trap(22, 42)
def test_configs_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_node(tmp_path_factory.mktemp("again") / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            assert alter(client, "t", ("max.message.bytes", SET, "300")) == 0
        node.kill()
        node.start()
        with RawKafka(node.kafka) as client:
            assert configs(client, "t")["max.message.bytes"].value == "300"
            assert client.produce("t", 0, batch_of([b"x" * 500])).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_grow_and_never_shrink(client: RawKafka, topic: str, version: int) -> None:
    def grow(name: str, count: int, *, is_dry: bool = False) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], 1000, is_dry)
        return client.call(request, version, CreatePartitionsResponse).results[0].error_code

    assert grow(topic, 4, is_dry=True) == 0
    assert client.produce(topic, 2, batch_of([b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(topic, 3) == 0
    assert client.produce(topic, 2, batch_of([b"x"])).error_code == 0
    assert grow(topic, 2) == ErrorCode.INVALID_PARTITIONS
    assert grow(topic, 20_000) == ErrorCode.INVALID_PARTITIONS
    assert grow("nowhere", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(client: RawKafka, topic: str, version: int) -> None:
    def delete(offset: int, index: int = 0) -> tuple[int, int]:
        wanted = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])]
        answer = client.call(DeleteRecordsRequest(wanted, 1000), version, DeleteRecordsResponse)
        [row] = answer.topics[0].partitions
        return row.error_code, row.low_watermark

    client.produce(topic, 0, batch_of([b"a", b"b", b"c"]))
    assert delete(2) == (0, 2)
    assert client.offset_at(topic, 0, EARLIEST) == 2
    assert client.fetch(topic, 0, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in client.read_all(topic, 0)] == [b"c"]
    assert delete(99) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(0, 7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(-1) == (0, 3)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_log_dirs_are_described(client: RawKafka, topic: str, version: int) -> None:
    client.produce(topic, 0, batch_of([b"x" * 100]))
    request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])])
    here, bucket = client.call(request, version, DescribeLogDirsResponse).results
    assert here.log_dir != bucket.log_dir
    assert [each.name for each in here.topics] == [each.name for each in bucket.topics] == [topic]
    assert here.topics[0].partitions[0].partition_size > 100
    assert bucket.topics[0].partitions[0].partition_size >= 0
    for directory in client.call(DescribeLogDirsRequest(None), version, DescribeLogDirsResponse).results:
        assert topic in [each.name for each in directory.topics]
    for rows in ([], [99]):
        nowhere = DescribeLogDirsRequest([DescribableLogDirTopic(topic, rows)])
        assert [each.topics for each in client.call(nowhere, version, DescribeLogDirsResponse).results] == [[], []]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_are_never_needed(client: RawKafka, topic: str, version: int) -> None:
    request = ElectLeadersRequest(0, [TopicPartitions(topic, [0, 5])])
    [found] = client.call(request, version, ElectLeadersResponse).replica_election_results
    codes = [each.error_code for each in found.partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_nothing_is_being_reassigned(client: RawKafka) -> None:
    answer = client.call(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
    assert (answer.error_code, answer.topics) == (0, [])
