"""Object storage: what lies there, what is exposed, what it costs, whether it is still what was written."""

import msgspec

from headrace.admin.api.calls import Call, StorageState, StoredObject, StoredSegment
from headrace.admin.api.cluster import Nothing
from headrace.admin.api.operations import OperationView
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import PartitionIndex, TopicName
from headrace.admin.rights import Operation, Resource
from headrace.broker.topics import PartitionLog


class ListObjects(PageRequest, frozen=True):
    pass


class ObjectList(msgspec.Struct, frozen=True, kw_only=True):
    objects: list[StoredObject]
    next_page_token: str = ""
    total: int


class ListSegments(PageRequest, frozen=True):
    name: TopicName
    partition: PartitionIndex | None = None


class SegmentList(msgspec.Struct, frozen=True, kw_only=True):
    segments: list[StoredSegment]
    next_page_token: str = ""
    total: int


class ListExposure(PageRequest, frozen=True):
    pass


class ExposureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with records that only this disk has."""

    topic: str
    partition: int
    exposed_bytes: int
    oldest_ms: int | None
    """Age of the oldest of them, by its own timestamp."""


class ExposureList(msgspec.Struct, frozen=True, kw_only=True):
    exposure: list[ExposureRow]
    next_page_token: str = ""
    total: int
    exposed_bytes: int


class VerifyStorage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reads every live byte of the bucket."""


async def describe_storage(request: Nothing, call: Call) -> StorageState:
    return call.parts.storage.state()


async def list_objects(request: ListObjects, call: Call) -> ObjectList:
    page = await page_of(
        call.parts.storage.objects(),
        request,
        turns=call.turns,
        name=lambda each: each.key,
        orders={
            "size_bytes": lambda each: each.size_bytes,
            "dead_bytes": lambda each: each.dead_bytes,
            "partition_count": lambda each: each.partition_count,
        },
    )
    return ObjectList(objects=page.items, next_page_token=page.next_token, total=page.total)


async def list_segments(request: ListSegments, call: Call) -> SegmentList:
    topic = call.broker.topics.get(request.name)
    indexes = range(len(topic.partitions)) if request.partition is None else [request.partition]
    segments: list[StoredSegment] = []
    async for index in call.turns.over(indexes):
        async for chunk in call.turns.chunks(call.parts.storage.segments(topic.id, index)):
            segments += chunk
    page = await page_of(
        segments,
        request,
        turns=call.turns,
        name=lambda each: f"{each.partition:05}/{each.base_offset:019}",
        orders={"size_bytes": lambda each: each.size_bytes, "committed_ms": lambda each: each.committed_ms},
    )
    return SegmentList(segments=page.items, next_page_token=page.next_token, total=page.total)


async def list_exposure(request: ListExposure, call: Call) -> ExposureList:
    now_ms = call.broker.clock.now_ms()
    topics = list(call.broker.topics.by_name.values())
    exposed: list[PartitionLog] = []
    total = 0
    async for chunk in call.turns.chunks(each for topic in topics for each in topic.partitions):
        for partition in chunk:
            size = partition.unuploaded_bytes
            if size and call.sees(Operation.DESCRIBE, Resource.TOPIC, partition.topic_name):
                total += size
                exposed.append(partition)
    page = await page_of(
        exposed,
        request,
        turns=call.turns,
        name=lambda each: f"{each.topic_name}/{each.index:05}",
        orders={
            "exposed_bytes": lambda each: each.unuploaded_bytes,
            "oldest_ms": lambda each: _oldest_ms(each, now_ms) or 0,
        },
    )
    return ExposureList(
        exposure=[
            ExposureRow(
                topic=each.topic_name,
                partition=each.index,
                exposed_bytes=each.unuploaded_bytes,
                oldest_ms=_oldest_ms(each, now_ms),
            )
            async for each in call.turns.over(page.items)
        ],
        next_page_token=page.next_token,
        total=page.total,
        exposed_bytes=total,
    )


async def verify_storage(request: VerifyStorage, call: Call) -> OperationView:
    storage = call.parts.storage
    return call.parts.operations.start("verify", storage.state().address, storage.verify)


def _oldest_ms(partition: PartitionLog, now_ms: int) -> int | None:
    since = partition.unuploaded_since_ms
    return None if since is None else max(0, now_ms - since)
