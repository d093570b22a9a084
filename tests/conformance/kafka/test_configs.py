"""DescribeConfigs as Apache Kafka 4.3 answers it: names, types, sources, synonyms. Configs of groups (KIP-848).

The tables below are what a Kafka broker as shipped says; `make same-as-kafka` asks one.
"""

from pathlib import Path

import pytest
from tests.conformance.kafka.test_admin_surface import BROKER, DELETE, SET, TOPIC, configs
from tests.support.node import running_node
from tests.support.raw_kafka import RawKafka
from tests.support.same_as_kafka.known import OWN_CONFIGS

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.alter_configs_request import AlterableConfig as ReplacedConfig
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsRequest
from headrace.wire.kafka.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from headrace.wire.kafka.messages.alter_configs_response import AlterConfigsResponse
from headrace.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.kafka.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.kafka.messages.describe_configs_response import DescribeConfigsResponse
from headrace.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

GROUP = 32
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
LONGEST = str(2**63 - 1)

TOPIC_CONFIGS = {
    "cleanup.policy": ("delete", LIST, "log.cleanup.policy"),
    "compression.gzip.level": ("-1", INT, "compression.gzip.level"),
    "compression.lz4.level": ("9", INT, "compression.lz4.level"),
    "compression.type": ("producer", STRING, "compression.type"),
    "compression.zstd.level": ("3", INT, "compression.zstd.level"),
    "delete.retention.ms": ("86400000", LONG, "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": ("60000", LONG, "log.segment.delete.delay.ms"),
    "flush.messages": (LONGEST, LONG, "log.flush.interval.messages"),
    "flush.ms": (LONGEST, LONG, None),
    "follower.replication.throttled.replicas": ("", LIST, None),
    "index.interval.bytes": ("4096", INT, "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", LIST, None),
    "local.retention.bytes": ("-2", LONG, "log.local.retention.bytes"),
    "local.retention.ms": ("-2", LONG, "log.local.retention.ms"),
    "max.compaction.lag.ms": (LONGEST, LONG, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("1048588", INT, "message.max.bytes"),
    "message.timestamp.after.max.ms": ("3600000", LONG, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (LONGEST, LONG, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", STRING, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", DOUBLE, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", LONG, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("1", INT, "min.insync.replicas"),
    "preallocate": ("false", BOOLEAN, "log.preallocate"),
    "remote.log.copy.disable": ("false", BOOLEAN, None),
    "remote.log.delete.on.disable": ("false", BOOLEAN, None),
    "remote.storage.enable": ("false", BOOLEAN, None),
    "retention.bytes": ("-1", LONG, "log.retention.bytes"),
    "retention.ms": ("604800000", LONG, None),
    "segment.bytes": ("1073741824", INT, "log.segment.bytes"),
    "segment.index.bytes": ("10485760", INT, "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", LONG, None),
    "segment.ms": ("604800000", LONG, None),
    "unclean.leader.election.enable": ("false", BOOLEAN, "unclean.leader.election.enable"),
}

BROKER_CONFIG_TYPES = {
    "auto.create.topics.enable": BOOLEAN,
    "broker.id": INT,
    "connections.max.idle.ms": LONG,
    "default.replication.factor": INT,
    "fetch.max.bytes": INT,
    "group.consumer.max.session.timeout.ms": INT,
    "group.initial.rebalance.delay.ms": INT,
    "group.max.size": INT,
    "log.cleanup.policy": LIST,
    "log.dirs": LIST,
    "log.message.timestamp.type": STRING,
    "log.retention.bytes": LONG,
    "log.retention.ms": LONG,
    "message.max.bytes": INT,
    "node.id": INT,
    "num.partitions": INT,
    "offset.metadata.max.bytes": INT,
    "offsets.retention.minutes": INT,
    "offsets.topic.replication.factor": 4,
    "producer.id.expiration.ms": INT,
    "socket.request.max.bytes": INT,
    "transaction.max.timeout.ms": INT,
    "transactional.id.expiration.ms": INT,
}


def test_a_topic_has_every_config_of_kafka_with_its_type_and_where_it_comes_from(client: RawKafka, topic: str) -> None:
    found = configs(client, topic)
    assert found.keys() - OWN_CONFIGS == TOPIC_CONFIGS.keys()
    for name, (value, kind, synonym) in TOPIC_CONFIGS.items():
        row = found[name]
        assert (row.value, row.config_type, row.config_source) == (value, kind, 5), name
        expected = [] if synonym is None else [(synonym, value, 5)]
        assert [(each.name, each.value, each.source) for each in row.synonyms] == expected, name
        assert row.documentation, name


def test_broker_configs_have_types_sentences_and_sources(client: RawKafka) -> None:
    found = configs(client, "1", kind=BROKER)
    assert {name: found[name].config_type for name in BROKER_CONFIG_TYPES} == BROKER_CONFIG_TYPES
    assert [name for name, row in found.items() if not row.documentation] == []
    untouched = found["group.max.size"]
    assert (untouched.config_source, [each.source for each in untouched.synonyms]) == (5, [5])
    chosen = found["wal.capacity.bytes"]
    assert (chosen.config_source, [each.source for each in chosen.synonyms]) == (4, [4, 5])


def test_no_keys_named_are_all_of_them(client: RawKafka, topic: str) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, [])])
    [result] = client.call(request, 4, DescribeConfigsResponse).results
    assert len(result.configs) > len(TOPIC_CONFIGS)


def test_a_type_that_does_not_exist_spoils_the_whole_request(client: RawKafka, topic: str) -> None:
    rows = [DescribeConfigsResource(TOPIC, topic, None), DescribeConfigsResource(99, "x", None)]
    results = client.call(DescribeConfigsRequest(rows), 4, DescribeConfigsResponse).results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2


# -- groups


def alter_group(client: RawKafka, name: str, *changes: tuple[str, int, str | None], is_dry: bool = False) -> int:
    resource = AlterConfigsResource(GROUP, name, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest([resource], is_dry)
    return client.call(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code


def attend(client: RawKafka, group: str, member: str, topic: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    return client.call(request, 1, ConsumerGroupHeartbeatResponse)


def test_a_group_has_configs_before_it_exists(client: RawKafka, name: str) -> None:
    found = configs(client, name, kind=GROUP)
    assert {key: (row.value, row.config_source, row.config_type) for key, row in found.items()} == {
        HEARTBEAT: ("5000", 5, INT),
        SESSION: ("45000", 5, INT),
    }
    synonyms = [(each.name, each.value, each.source) for each in found[SESSION].synonyms]
    assert synonyms == [("group.consumer.session.timeout.ms", "45000", 5)]
    assert alter_group(client, name, (SESSION, SET, "50000")) == 0
    row = configs(client, name, kind=GROUP)[SESSION]
    assert (row.value, row.config_source) == ("50000", 8)
    assert [(each.name, each.value, each.source) for each in row.synonyms] == [
        (SESSION, "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert alter_group(client, name, (SESSION, DELETE, None)) == 0
    assert configs(client, name, kind=GROUP)[SESSION].config_source == 5


def test_group_configs_are_replaced_as_a_whole(client: RawKafka, name: str) -> None:
    assert alter_group(client, name, (SESSION, SET, "50000")) == 0
    resource = ReplacedResource(GROUP, name, [ReplacedConfig(HEARTBEAT, "6000")])
    [answer] = client.call(AlterConfigsRequest([resource], False), 2, AlterConfigsResponse).responses
    assert answer.error_code == 0
    found = configs(client, name, kind=GROUP)
    assert (found[HEARTBEAT].value, found[SESSION].value) == ("6000", "45000")


@pytest.mark.parametrize(
    "change",
    [
        (SESSION, SET, "44999"),
        (SESSION, SET, "60001"),
        (SESSION, SET, "soon"),
        (HEARTBEAT, SET, "4999"),
        (HEARTBEAT, SET, "15001"),
        ("no.such.config", SET, "1"),
    ],
)
def test_what_a_group_cannot_have_is_refused_and_changes_nothing(
    client: RawKafka, name: str, change: tuple[str, int, str]
) -> None:
    assert alter_group(client, name, (HEARTBEAT, SET, "7000"), change) == (
        ErrorCode.INVALID_REQUEST if change[0] == HEARTBEAT else ErrorCode.INVALID_CONFIG
    )
    assert alter_group(client, name, change) == ErrorCode.INVALID_CONFIG
    assert configs(client, name, kind=GROUP)[HEARTBEAT].config_source == 5
    assert alter_group(client, name, (HEARTBEAT, SET, "7000"), is_dry=True) == 0
    assert configs(client, name, kind=GROUP)[HEARTBEAT].config_source == 5


def test_a_group_without_a_name_has_no_configs(client: RawKafka) -> None:
    assert alter_group(client, "", (HEARTBEAT, SET, "7000")) == ErrorCode.INVALID_REQUEST
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, "", None)])
    [result] = client.call(request, 4, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_members_keep_the_pace_that_their_group_is_given(client: RawKafka, topic: str, name: str) -> None:
    assert attend(client, name, "member-0", topic).heartbeat_interval_ms == 5000
    assert alter_group(client, name, (HEARTBEAT, SET, "7000")) == 0
    assert attend(client, name, "member-1", topic).heartbeat_interval_ms == 7000
    assert attend(client, f"{name}-other", "member-1", topic).heartbeat_interval_ms == 5000


def test_group_configs_survive_kill_9(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with RawKafka(node.kafka) as client:
            client.create_topic("t")
            assert alter_group(client, "g", (HEARTBEAT, SET, "7000")) == 0
            assert alter_group(client, "gone", (HEARTBEAT, SET, "7000")) == 0
            assert alter_group(client, "gone", (HEARTBEAT, DELETE, None)) == 0
        node.kill()
        node.start()
        with RawKafka(node.kafka) as client:
            assert configs(client, "g", kind=GROUP)[HEARTBEAT].value == "7000"
            assert configs(client, "gone", kind=GROUP)[HEARTBEAT].config_source == 5
            assert attend(client, "g", "member-0", "t").heartbeat_interval_ms == 7000
