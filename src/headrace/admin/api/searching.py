"""A search of a whole topic, as an operation: progress, cancel, and a result that says whether it is complete."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call, SearchOrder, SearchResult
from headrace.admin.api.operations import OperationView, Progress, Sight
from headrace.admin.api.records import SHOWN_BYTES, RecordView, view_of
from headrace.admin.api.topics import PartitionIndex, TopicName
from headrace.admin.rights import Operation, Resource
from headrace.broker.partitioning import partition_for_key
from headrace.records.filters import parse_filter


class SearchTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    filter: Annotated[str, Meta(max_length=2000)] = ""
    key: Annotated[str, Meta(max_length=2000)] | None = None
    """Only records with this key, in the partition that Kafka's Java client hashes it to."""
    partition: PartitionIndex | None = None
    since_ms: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only records at or after this time."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Of the matches, the newest so many are given; all of them are counted."""


class SearchView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search operation."""

    records: list[RecordView]
    matched: int
    scanned: int
    unreadable: list[str]
    is_complete: bool


async def search_topic(request: SearchTopic, call: Call) -> OperationView:
    topic = call.broker.topics.get(request.name)
    text, partition = request.filter, request.partition
    if request.key is not None:
        of_key = f"key == {msgspec.json.encode(request.key).decode()}"
        text = f"({text}) and {of_key}" if text.strip() else of_key
        if partition is None:
            partition = partition_for_key(request.key.encode(), len(topic.partitions))
    if partition is not None:
        call.broker.topics.led_partition(request.name, partition)
    parse_filter(text)
    order = SearchOrder(
        topic=request.name, filter=text, partition=partition, since_ms=request.since_ms, limit=request.limit
    )

    async def work(progress: Progress) -> SearchView:
        try:
            found = await call.parts.search(order, progress)
        except BaseException:
            # Also of a search that is cancelled: what it has found so far is worth something.
            if isinstance(progress.partial, SearchResult):
                progress.partial = _view(
                    progress.partial, [view_of(each, SHOWN_BYTES) for each in progress.partial.records]
                )
            raise
        return _view(found, [view_of(each, SHOWN_BYTES) async for each in call.turns.over(found.records)])

    target = f"{request.name}: {text or 'everything'}"
    return call.parts.operations.start(
        "search", target, work, is_resumable=True, sight=Sight(Operation.READ, Resource.TOPIC, request.name)
    )


def _view(result: SearchResult, records: list[RecordView]) -> SearchView:
    return SearchView(
        records=records,
        matched=result.matched,
        scanned=result.scanned,
        unreadable=result.unreadable,
        is_complete=result.is_complete,
    )
