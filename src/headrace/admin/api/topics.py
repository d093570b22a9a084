"""Topics: list, create, describe, delete, grow, delete records; partitions and producers."""

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.elsewhere import LedElsewhere, led_elsewhere
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.rights import Operation, Resource
from headrace.broker.identity import NOBODY, Identity
from headrace.broker.ownership import check_client_may, is_internal
from headrace.broker.slices import CHUNK
from headrace.broker.topic_names import check_new_name
from headrace.broker.topics import (
    PartitionLog,
    Topic,
    check_growth,
    check_partition_count,
    check_replication_factor,
)
from headrace.errors import AlreadyExists, OffsetOutOfRange
from headrace.ids import show_topic_id

TopicName = Annotated[str, Meta(min_length=1, max_length=255)]
PartitionIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]
OffsetNumber = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_PRODUCERS_MAX: Final = 1000
_NODES_DEFAULT: Final = -1


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes are. Records on their way are in several places, so these do not add up."""

    local_bytes: int
    """In this node's WAL, and not trimmed yet; the newest of it in memory too."""
    bucket_bytes: int
    exposed_bytes: int
    """On this disk only: lost if the disk is."""


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    is_internal: bool
    partitions: int
    records: int
    """Between the start and the end of every partition; compaction and transactions make it fewer."""
    sizes: Sizes
    created_ms: int
    led_elsewhere: int = 0
    """Partitions that other brokers lead: records and sizes are those of the others."""
    replication_factor: int = 1


class TopicDetail(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    is_internal: bool
    partitions: int
    replication_factor: int
    records: int
    sizes: Sizes
    created_ms: int
    config: dict[str, str]
    """What is set on the topic itself; the rest is inherited."""
    groups: tuple[str, ...] = ()
    """Groups that have committed offsets here."""
    elsewhere: tuple[LedElsewhere, ...] = ()
    """Partitions that other brokers lead: records and sizes are those of the others."""


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    leader: int
    leader_epoch: int
    log_start: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    uploaded_end: int
    segments: int
    producers: int
    sizes: Sizes
    is_led_here: bool = True
    """Offsets and sizes of a partition are known where it is led; elsewhere they are zero."""
    leader_name: str = ""
    """Empty: nobody leads it."""
    leader_admin: str = ""
    """`host:port` of the API and console of the leader."""
    replicas: list[int] = []
    """Kafka's node ids. The bucket has the records, so the leader is the only one."""
    isr: list[int] = []


class ListTopics(PageRequest, frozen=True):
    internal: bool = False
    """Also the coordinators' own topics."""


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    topics: list[TopicRow]
    next_page_token: str = ""
    total: int


class NamedTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partitions: Annotated[int, Meta(ge=-1, le=10_000)] = 1
    """-1: as many as the node's `num.partitions`."""
    replication_factor: Annotated[int, Meta(ge=-1, le=32_767)] = -1
    """-1 or 1: one WAL copy is what there is on one node."""
    config: dict[str, str] = {}
    dry_run: bool = False
    """Check everything, change nothing."""


class DeleteTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    dry_run: bool = False


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would have been."""

    message: str
    is_dry_run: bool = False


class ListPartitions(PageRequest, frozen=True):
    name: TopicName


class PartitionList(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[PartitionRow]
    next_page_token: str = ""
    total: int


class GrowTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    count: Annotated[int, Meta(ge=1, le=10_000)]
    """Partitions in all, more than there are. Keys hash to other partitions from then on."""
    dry_run: bool = False


class DeleteRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partition: PartitionIndex
    before: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    """Records below this offset go, for good; -1: all there are."""
    dry_run: bool = False


class RecordsDeleted(msgspec.Struct, frozen=True, kw_only=True):
    log_start: int
    is_dry_run: bool = False


class ListProducers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partition: PartitionIndex


class ProducerRow(msgspec.Struct, frozen=True, kw_only=True):
    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int | None
    """First offset of its open transaction."""


class ProducerList(msgspec.Struct, frozen=True, kw_only=True):
    producers: list[ProducerRow]
    total: int
    """There may be more than are shown."""


async def list_topics(request: ListTopics, call: Call) -> TopicList:
    topics = [
        topic
        async for chunk in call.turns.chunks(list(call.broker.topics.by_name.values()))
        for topic in chunk
        if (request.internal or not topic.is_internal) and call.sees(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    ]
    sums: dict[str, int] = {}
    number = _PARTITION_NUMBERS.get(request.order_by.partition(" ")[0])
    if number is not None:
        sums = {
            topic.name: await _total(topic, number, call)
            async for chunk in call.turns.chunks(topics)
            for topic in chunk
        }
    page = await page_of(
        topics,
        request,
        turns=call.turns,
        name=lambda topic: topic.name,
        orders={
            "partitions": lambda topic: len(topic.partitions),
            "created_ms": lambda topic: topic.created_ms,
            **dict.fromkeys(_PARTITION_NUMBERS, lambda topic: sums[topic.name]),
        },
    )
    rows = [await _row(topic, call) async for topic in call.turns.over(page.items)]
    return TopicList(topics=rows, next_page_token=page.next_token, total=page.total)


async def create_topic(request: CreateTopic, call: Call) -> TopicDetail:
    topics = call.broker.topics
    check_new_name(request.name, topics)
    if topics.find(request.name) is not None:
        raise AlreadyExists(f"Topic '{request.name}' already exists.")
    check_replication_factor(request.replication_factor)
    partitions = call.parts.partitions_default if request.partitions == _NODES_DEFAULT else request.partitions
    check_partition_count(partitions)
    config = topics.check_config(request.name, request.config)
    if request.dry_run:
        return _planned(request, partitions, dict(config))
    create = topics.create_internal if is_internal(request.name) else topics.create
    return await _detail(await create(request.name, partitions=partitions, config=config), call)


async def describe_topic(request: NamedTopic, call: Call) -> TopicDetail:
    return await _detail(call.broker.topics.get(request.name), call)


async def delete_topic(request: DeleteTopic, call: Call) -> Done:
    topic = call.broker.topics.get(request.name)
    check_client_may("delete", request.name)
    call.changed(
        before={"id": show_topic_id(topic.id), "partitions": len(topic.partitions), "config": dict(topic.overrides)}
    )
    if not request.dry_run:
        await call.broker.topics.delete(request.name)
    return Done(message=f"topic {request.name} deleted, with its records and offsets", is_dry_run=request.dry_run)


async def list_partitions(request: ListPartitions, call: Call) -> PartitionList:
    topic = call.broker.topics.get(request.name)
    page = await page_of(
        list(topic.partitions),
        request,
        turns=call.turns,
        name=lambda each: f"{each.index:05}",
        orders=_PARTITION_NUMBERS,
    )
    rows = [_partition_row(each, topic, call.broker.identity) async for each in call.turns.over(page.items)]
    return PartitionList(partitions=rows, next_page_token=page.next_token, total=page.total)


async def grow_topic(request: GrowTopic, call: Call) -> TopicDetail:
    topic = call.broker.topics.get(request.name)
    check_client_may("grow", request.name)
    check_growth(topic, request.count)
    call.changed(before=len(topic.partitions), after=request.count)
    if not request.dry_run:
        await call.broker.topics.add_partitions(request.name, request.count)
    detail = await _detail(topic, call)
    return msgspec.structs.replace(detail, partitions=request.count) if request.dry_run else detail


async def delete_records(request: DeleteRecords, call: Call) -> RecordsDeleted:
    partition = call.broker.topics.led_partition(request.name, request.partition)
    check_client_may("delete records of", request.name)
    call.changed(before=partition.log_start)
    if not request.dry_run:
        start = await call.broker.topics.delete_records(request.name, request.partition, request.before)
        call.changed(before=call.change["before"], after=start)
        return RecordsDeleted(log_start=start)
    target = partition.high_watermark if request.before == -1 else request.before
    if target > partition.high_watermark:
        raise OffsetOutOfRange(f"offset {target} is above the high watermark {partition.high_watermark}")
    return RecordsDeleted(log_start=max(target, partition.log_start), is_dry_run=True)


async def list_producers(request: ListProducers, call: Call) -> ProducerList:
    partition = call.broker.topics.led_partition(request.name, request.partition)
    known = list(partition.producers.items()) if partition.producers is not None else []
    rows = []
    for producer_id, producer in known[:_PRODUCERS_MAX]:
        start = partition.transactions.first_offset(producer_id) if partition.transactions is not None else None
        rows.append(
            ProducerRow(
                producer_id=producer_id,
                epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp_ms=producer.last_timestamp_ms,
                transaction_start=start,
            )
        )
    return ProducerList(producers=rows, total=len(known))


async def _row(topic: Topic, call: Call) -> TopicRow:
    records = local_bytes = bucket_bytes = exposed_bytes = elsewhere_count = 0
    async for chunk in call.turns.chunks(list(topic.partitions)):
        for partition in chunk:
            records += _records(partition)
            local_bytes += partition.tail_bytes
            bucket_bytes += partition.uploaded_bytes
            exposed_bytes += partition.unuploaded_bytes
            elsewhere_count += partition.removed
    return TopicRow(
        name=topic.name,
        id=show_topic_id(topic.id),
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        records=records,
        sizes=Sizes(local_bytes=local_bytes, bucket_bytes=bucket_bytes, exposed_bytes=exposed_bytes),
        created_ms=topic.created_ms,
        led_elsewhere=elsewhere_count,
    )


async def _detail(topic: Topic, call: Call) -> TopicDetail:
    row = await _row(topic, call)
    groups = [
        group
        async for group, standing in call.turns.over((await call.parts.standings.all(call.turns)).items())
        if topic.name in standing.topics and call.sees(Operation.DESCRIBE, Resource.GROUP, group)
    ]
    return TopicDetail(
        name=row.name,
        id=row.id,
        is_internal=row.is_internal,
        partitions=row.partitions,
        replication_factor=1,
        records=row.records,
        sizes=row.sizes,
        created_ms=row.created_ms,
        config=dict(topic.overrides),
        groups=tuple(sorted(groups)),
        elsewhere=tuple(await led_elsewhere(topic, call)) if row.led_elsewhere else (),
    )


def _planned(request: CreateTopic, partitions: int, config: dict[str, str]) -> TopicDetail:
    return TopicDetail(
        name=request.name,
        id="",
        is_internal=is_internal(request.name),
        partitions=partitions,
        replication_factor=1,
        records=0,
        sizes=Sizes(local_bytes=0, bucket_bytes=0, exposed_bytes=0),
        created_ms=0,
        config=config,
    )


def _partition_row(partition: PartitionLog, topic: Topic, identity: Identity) -> PartitionRow:
    leader = topic.leaders[partition.index]
    number = identity.number_of(leader)
    replicas = [number] if number != NOBODY else []
    return PartitionRow(
        partition=partition.index,
        leader=number,
        leader_epoch=partition.leader_epoch,
        log_start=partition.log_start,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        end_offset=partition.end_offset,
        uploaded_end=partition.uploaded_end,
        segments=partition.segment_count,
        producers=len(partition.producers) if partition.producers is not None else 0,
        sizes=Sizes(
            local_bytes=partition.tail_bytes,
            bucket_bytes=partition.uploaded_bytes,
            exposed_bytes=partition.unuploaded_bytes,
        ),
        is_led_here=not partition.removed,
        leader_name=leader,
        leader_admin=identity.address_of(leader, "admin"),
        replicas=replicas,
        isr=replicas,
    )


def _records(partition: PartitionLog) -> int:
    return partition.high_watermark - partition.log_start


async def _total(topic: Topic, number: Callable[[PartitionLog], int], call: Call) -> int:
    if len(topic.partitions) <= CHUNK:
        return sum(map(number, topic.partitions))
    return sum([sum(map(number, chunk)) async for chunk in call.turns.chunks(list(topic.partitions))])


_PARTITION_NUMBERS: Final[Mapping[str, Callable[[PartitionLog], int]]] = {
    "records": _records,
    "local_bytes": lambda each: each.tail_bytes,
    "bucket_bytes": lambda each: each.uploaded_bytes,
    "exposed_bytes": lambda each: each.unuploaded_bytes,
}
