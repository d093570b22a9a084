"""Random requests of every kind and version, made from the schema tables.

The tables say which fields there are; `_FIELDS` says where values of each name come from, and `_STRUCTS` makes the few
structs whose fields depend on each other.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.support.kafka_messages import SCHEMAS, fields_of, module_of, struct_named
from tests.support.same_as_kafka.batches import draw_batch, is_absurd
from tests.support.same_as_kafka.configs import draw_config, draw_resource
from tests.support.same_as_kafka.pairing import NO_ID, Each
from tests.support.same_as_kafka.world import World

from headrace.wire.coordination.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.coordination.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.coordination.versioned import encode_versioned
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.schema.parse import Field, MessageSchema, StructSchema

Draw = Callable[[World], Any]
_ASSIGNMENT: Final = encode_versioned(ConsumerProtocolAssignment([]), 1)


def draw_request(name: str, version: int, world: World) -> Message:
    """A request of this kind; what it names is mostly there."""
    world.refocus()
    world.sent.clear()
    schema = SCHEMAS[name]
    request: Message = _Drawing(schema, version, world).struct(schema.root)
    adjust = _ADJUST.get(name)
    if adjust is not None:
        adjust(request, version, world)
    return request


class _Drawing:
    def __init__(self, schema: MessageSchema, version: int, world: World) -> None:
        self._schema = schema
        self._version = version
        self._world = world

    def struct(self, shape: StructSchema) -> Any:
        kind = getattr(module_of(self._schema.name), shape.name)
        if shape.name in _STRUCTS:
            return _STRUCTS[shape.name](kind, self._version, self._world)
        return kind(**{field.name: self._field(field) for field in fields_of(shape, self._version)})

    def _field(self, field: Field) -> Any:
        world = self._world
        can_be_null = field.nullable_from is not None and self._version >= field.nullable_from
        if can_be_null and field.name not in _FIELDS and world.is_odd(0.3):
            return None
        if not field.is_array:
            return self._item(field)
        # Rows of rows are never empty, and nothing is named twice: Kafka's sets and maps make something of that which
        # depends on the request, and which no client asks for.
        counts = [1, 1, 2] if self._is_inside(field) else [0, 1, 1, 1, 2, 2]
        items = [self._item(field) for _ in range(world.random.choice(counts))]
        return list({_row_name(item): item for item in items}.values())

    def _is_inside(self, field: Field) -> bool:
        return field.name in ("partitions", "partition_data", "partition_indexes")

    def _item(self, field: Field) -> Any:
        world = self._world
        if field.is_struct:
            return self.struct(struct_named(self._schema, field.type))
        draw = _FIELDS.get(f"{self._schema.name}.{field.name}") or _FIELDS.get(field.name)
        if draw is not None:
            return draw(world)
        if field.type == "bool":
            return world.random.random() < 0.5
        if field.type == "string":
            return world.random.choice(["", "word"])
        if field.type == "uuid":
            return NO_ID
        if field.type == "bytes":
            return b""
        return int(field.default) if field.default is not None else 0


def _row_name(item: Any) -> str:
    names = ("name", "topic", "topic_id", "group_id", "resource_type", "resource_name", "member_id", "transactional_id")
    numbers = ("partition_index", "partition", "index")
    if not isinstance(item, msgspec.Struct):
        return repr(item)
    return repr([getattr(item, name) for name in (*names, *numbers) if name in item.__struct_fields__])


def _one_of(*values: Any) -> Draw:
    return lambda world: world.random.choice(values)


def _mostly(usual: Any, *others: Any) -> Draw:
    return lambda world: world.random.choice(others) if world.is_odd(0.15) else usual


def _offset(world: World) -> int:
    return world.random.choice([-2, -1, 10**6]) if world.is_odd() else world.random.randrange(12)


_FIELDS: Final[dict[str, Draw]] = {
    "acks": _one_of(-1, 1, -1, 1, 0, 7),
    "timeout_ms": _one_of(5_000, 10_000),
    "topic": World.topic_name,
    "name": World.topic_name,
    "topic_name": World.topic_name,
    "topic_names": World.topic_name,
    "topic_id": World.topic_id,
    "index": World.partition,
    "partition": World.partition,
    "partition_index": World.partition,
    "partitions": World.partition,
    "partition_indexes": World.partition,
    "subscribed_topic_names": World.topic_name,
    "cluster_id": _one_of(None),
    "replica_id": _one_of(-1),
    "current_leader_epoch": _one_of(-1),
    "last_fetched_epoch": _one_of(-1),
    "leader_epoch": _mostly(-1, 99, 0),
    "committed_leader_epoch": _one_of(-1),
    "fetch_offset": _offset,
    "log_start_offset": _one_of(-1),
    "partition_max_bytes": _mostly(1 << 20, 0, 100),
    "max_wait_ms": _one_of(0, 1, 5),
    "min_bytes": _one_of(0, 1, 1000),
    "max_bytes": _mostly(1 << 20, 0, 300),
    "isolation_level": _one_of(0, 1),
    "session_id": _mostly(0, 1_000_000),  # Nobody's: ours count from one, and Kafka's are drawn from all there are.
    "session_epoch": _mostly(-1, 0, 3),
    "offset": _offset,
    "timestamp": _one_of(-1, -2, -3, -4, -5, -6, -7, 0, 1, 2**61),
    "endpoint_type": _mostly(1, 2, 3),
    "response_partition_limit": _mostly(2000, 0, 1, 2),
    "election_type": _mostly(0, 1, 5),
    "count": _one_of(1, 2, 3, 4, 0, -1),
    "assignments": _one_of(b""),
    "broker_ids": _mostly(1, 9),
    "committed_offset": _offset,
    "committed_metadata": _one_of(None, "", "note"),
    "retention_time_ms": _one_of(-1, 1000),
    "group_id": World.group_name,
    "groups": World.group_name,
    "groups_names": World.group_name,
    "group_ids": World.group_name,
    "member_id": World.member_id,
    "generation_id": World.generation,
    "generation_id_or_member_epoch": World.generation,
    "member_epoch": World.generation,
    "group_instance_id": World.instance_id,
    "instance_id": World.instance_id,
    "key": World.group_name,
    "coordinator_keys": World.group_name,
    "key_type": _mostly(0, 1, 2, 9),
    # No member falls silent within a run: how long that takes is nothing to compare.
    "session_timeout_ms": _mostly(300_000, 1, 10**9),
    "rebalance_timeout_ms": _one_of(300_000),
    "protocol_type": _mostly("consumer", "connect", ""),
    "protocol_name": _mostly("range", "other"),
    "reason": _one_of(None),
    "states_filter": _one_of("Empty", "stable", "Nonsense", "Dead"),
    "types_filter": _one_of("classic", "Consumer", "nonsense"),
    "subscribed_topic_regex": _mostly(None, "s[0-9]+-.*", "("),
    "server_assignor": _mostly(None, "uniform", "range", "nope"),
    "rack_id": _one_of(""),
    "transactional_id": World.transactional_id,
    "transactional_ids": World.transactional_id,
    "transactional_id_pattern": _mostly(None, "s[0-9]+-.*", "("),
    "transaction_timeout_ms": _mostly(60_000, 0, -1, 900_001),
    "producer_id": World.producer_id,
    "producer_epoch": World.producer_epoch,
    "producer_id_filters": _one_of(999_999),
    "duration_filter": _one_of(-1),
    "state_filters": _one_of("Ongoing", "Empty", "CompleteCommit", "Nonsense"),
    "client_software_name": _mostly("name", "", "b@d"),
    "client_software_version": _mostly("1.0", "", "b@d"),
}


# -- structs whose fields belong together


def _topic_to_produce(kind: Any, version: int, world: World) -> Any:
    row = module_of("ProduceRequest").PartitionProduceData
    name, partition = world.topic_name(), world.partition()
    is_transactional = world.focus.producer is not None and world.focus.producer.transactional_id is not None
    records = draw_batch(world, name, partition, is_transactional=is_transactional)
    known = world.topics.get(name)
    # Never that of a topic with another name: sequences are counted by name.
    topic_id = b"nobody has it..." if known is None else known.ids
    return kind(name, topic_id, [row(partition, records)])


def _topic_to_create(kind: Any, version: int, world: World) -> Any:
    config = module_of("CreateTopicsRequest").CreatableTopicConfig
    name = f"{world.prefix}-made-{world.random.randrange(6)}" if world.random.random() < 0.7 else world.topic_name()
    configs = {key: config(key, value) for key, value in (draw_config(world) for _ in range(world.random.randrange(3)))}
    assignment = module_of("CreateTopicsRequest").CreatableReplicaAssignment
    if world.is_odd(0.1):
        return kind(name, -1, -1, [assignment(world.random.choice([0, 0, 1]), [world.random.choice([1, 1, 9])])], [])
    if world.is_odd(0.2):
        return kind(name, world.random.choice([0, -2]), 1, [], [])
    if world.is_odd(0.1):
        return kind(name, 1, world.random.choice([3, 0]), [], [])
    return kind(name, world.random.choice([1, 2, 3, -1]), world.random.choice([1, 1, -1]), [], list(configs.values()))


def _topic_by_id_or_name(kind: Any, version: int, world: World) -> Any:
    """As an admin client asks: by one of the two."""
    by_id_from = {"MetadataRequestTopic": 12, "DeleteTopicState": 6}[kind.__name__]
    if version >= by_id_from and world.random.random() < 0.5:
        return kind(name=None, topic_id=world.topic_id())
    return kind(name=world.topic_name(), topic_id=NO_ID)


def _cursor(kind: Any, version: int, world: World) -> Any:
    return kind(topic_name=world.focus.topic.name, partition_index=world.random.randrange(3))


def _altered(kind: Any, version: int, world: World) -> Any:
    resource_type, name = draw_resource(world)
    rows = module_of(kind.__module__.rpartition(".")[2].title().replace("_", "")).AlterableConfig
    pairs = dict(draw_config(world, resource_type) for _ in range(world.random.randrange(3)))
    if "config_operation" in rows.__struct_fields__:
        configs = [rows(key, world.random.choice([0, 0, 0, 1, 2, 3]), value) for key, value in pairs.items()]
    else:
        configs = [rows(key, value) for key, value in pairs.items()]
    return kind(resource_type, name, configs)


def _described(kind: Any, version: int, world: World) -> Any:
    resource_type, name = draw_resource(world)
    keys = sorted({draw_config(world, resource_type)[0] for _ in range(3)})
    return kind(resource_type, name, world.random.choice([None, None, [], keys]))


_STRUCTS: Final[dict[str, Callable[[Any, int, World], Any]]] = {
    "TopicProduceData": _topic_to_produce,
    "CreatableTopic": _topic_to_create,
    "MetadataRequestTopic": _topic_by_id_or_name,
    "DeleteTopicState": _topic_by_id_or_name,
    "AlterConfigsResource": _altered,
    "Cursor": _cursor,
    "DescribeConfigsResource": _described,
}


# -- requests that make sense only as a whole


def _join(request: Any, version: int, world: World) -> None:
    protocol = module_of("JoinGroupRequest").JoinGroupRequestProtocol
    subscription = encode_versioned(ConsumerProtocolSubscription([world.focus.topic.name]), 1)
    request.protocols = [] if world.is_odd(0.04) else [protocol("range", subscription)]
    if world.focus.group.is_consumer:
        request.group_id = world.groups[0].name
    group = next((each for each in world.groups if each.name == request.group_id), None)
    if group is not None and group.members and request.member_id == "":
        # A second member would wait for the first, which nobody plays.
        request.member_id, request.group_instance_id = group.members[0].ids, group.members[0].instance_id


def _sync(request: Any, version: int, world: World) -> None:
    row = module_of("SyncGroupRequest").SyncGroupRequestAssignment
    request.assignments = [row(request.member_id, _ASSIGNMENT)]


def _attend(request: Any, version: int, world: World) -> None:
    if not world.focus.group.is_consumer:
        request.group_id = world.groups[-1].name
    elif request.group_id:
        # Nobody's group stays nobody's: its epochs would be asked for with those of another.
        request.group_id = world.focus.group.name
    is_first = world.focus.member is None or not world.focus.group.is_consumer
    if is_first or world.is_odd(0.15):
        request.member_id = "" if version == 0 and world.is_odd(0.5) else f"{world.prefix}-member-0123456789"
        request.member_epoch = 0
        request.subscribed_topic_names = [world.focus.topic.name]
        request.topic_partitions = []
    elif world.is_odd(0.8):
        request.subscribed_topic_names = request.topic_partitions = request.subscribed_topic_regex = None
        request.rebalance_timeout_ms = -1
        if world.is_odd(0.1):
            request.member_epoch = world.random.choice([-1, -2])
    request.rack_id = request.instance_id = None


def _leave(request: Any, version: int, world: World) -> None:
    if world.focus.group.is_consumer:
        request.group_id = world.groups[0].name


def _elect(request: Any, version: int, world: World) -> None:
    # All topics of the cluster would be those of other runs as well.
    request.topic_partitions = request.topic_partitions or []


def _delete_topics(request: Any, version: int, world: World) -> None:
    request.topics, request.topic_names = request.topics[:1], request.topic_names[:1]


def _init(request: Any, version: int, world: World) -> None:
    kind = world.random.random()
    if kind < 0.3:
        request.transactional_id = None
    if kind < 0.6:
        request.producer_id = request.producer_epoch = -1


def _produce(request: Any, version: int, world: World) -> None:
    producer = world.focus.producer
    request.transactional_id = None
    if producer is not None and producer.transactional_id is not None:
        request.transactional_id = producer.transactional_id
    topics = {repr(each.topic_id) if version >= 13 else each.name: each for each in request.topic_data}
    request.topic_data = list(topics.values())
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    for row in rows:
        # Kafka refuses what is beside an absurd batch. Logs that differ from there on could not be compared.
        if len(rows) > 1 and is_absurd(row.records.ours if isinstance(row.records, Each) else row.records):
            row.records = b""
    if request.acks == 7 and request.transactional_id is not None:
        request.acks = -1  # Wrong in two ways at once is for the brokers to sort.
    if request.acks == 0 and world.sent:
        request.acks = 1  # Nobody would tell whether a sequence counts.


def _fetch(request: Any, version: int, world: World) -> None:
    """A session is begun, gone on with, added to, taken from, and ended."""
    kind = world.random.random()
    if version < 7 or kind < 0.35:
        request.forgotten_topics_data = []
    elif not world.sessions or kind < 0.5:
        request.session_id = request.session_epoch = 0
        request.forgotten_topics_data = []
    else:
        session = world.random.choice(world.sessions)
        request.session_id = session.ids
        request.session_epoch = session.epoch if not world.is_odd(0.1) else world.random.choice([-1, 0, 99])
        if world.random.random() < 0.5:
            request.topics = []


def _add_partitions(request: Any, version: int, world: World) -> None:
    if version >= 4 and not request.transactions:
        # Kafka never answers when it is asked for nothing.
        row, topic = (module_of("AddPartitionsToTxnRequest").__dict__[name] for name in _ADDED)
        topics = [topic(world.topic_name(), [world.partition()])]
        request.transactions = [
            row(world.transactional_id(), world.producer_id(), world.producer_epoch(), True, topics)
        ]


_ADDED: Final = ("AddPartitionsToTxnTransaction", "AddPartitionsToTxnTopic")


def _metadata(request: Any, version: int, world: World) -> None:
    request.allow_auto_topic_creation = False
    # All topics of the cluster would be those of other runs as well.
    if request.topics is None or (version == 0 and not request.topics):
        request.topics = [module_of("MetadataRequest").MetadataRequestTopic(name=world.topic_name())]


_ADJUST: Final[dict[str, Callable[[Any, int, World], None]]] = {
    "JoinGroupRequest": _join,
    "SyncGroupRequest": _sync,
    "LeaveGroupRequest": _leave,
    "DeleteTopicsRequest": _delete_topics,
    "ElectLeadersRequest": _elect,
    "ConsumerGroupHeartbeatRequest": _attend,
    "InitProducerIdRequest": _init,
    "ProduceRequest": _produce,
    "FetchRequest": _fetch,
    "AddPartitionsToTxnRequest": _add_partitions,
    "MetadataRequest": _metadata,
}
