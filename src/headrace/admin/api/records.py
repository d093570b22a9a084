"""Records: read them from either end, from an offset or a time, one by one, and produce."""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.elsewhere import LedElsewhere, led_elsewhere
from headrace.admin.api.topics import OffsetNumber, PartitionIndex, TopicName
from headrace.broker.browse import Seen, SeenRecord, browse
from headrace.broker.partitioning import partition_for_key
from headrace.broker.topics import PartitionLog, Topic
from headrace.errors import Invalid, NotFound, OffsetOutOfRange
from headrace.records.batch import Codec
from headrace.records.filters import RecordFilter, parse_filter
from headrace.records.record import NewRecord
from headrace.records.schemas.value_schema import BRIEF, SCHEMA_KIND, WHOLE, Bounds, Decoded, schema_of

SHOWN_BYTES: Final = 8 * 1024
"""Of a key, value or header in a list; one record alone is given whole."""
DECODED_BYTES_MAX: Final = 1 << 20
"""Of the values of one page that are read by a schema."""
_PARTITIONS_MAX: Final = 64
"""Partitions that one page reads from; the answer says how many it left out."""
_READS_MAX: Final = 64
"""Reads of one page while nothing matches: then it says how far it got."""
_STRETCH_MAX: Final = 20_000
_CONTROL: Final = frozenset(chr(code) for code in (*range(32), 127) if chr(code) not in "\t\n\r")


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a record. Text where they are text: UTF-8 without control characters."""

    encoding: str
    """`text` or `base64`."""
    data: str
    size: int
    """Of all of it, in bytes."""
    is_cut: bool = False


class HeaderView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Payload | None


class DecodedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value by its topic's schema."""

    type: str
    """`avro` or `protobuf`."""
    json: str = ""
    """Text: numbers of 64 bits would not survive every reader of JSON."""
    reason: str = ""
    """Why there is no JSON."""
    is_cut: bool = False


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int
    timestamp_ms: int
    key: Payload | None
    value: Payload | None
    headers: list[HeaderView]
    compression: str
    leader_epoch: int
    producer_id: int | None
    is_transactional: bool
    is_aborted: bool
    """Of a transaction that was aborted: readers of committed records never see it."""
    decoded: DecodedValue | None = None
    """Where the topic's configs have a schema (`value.schema.type`)."""


class ReadRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partition: PartitionIndex | None = None
    """All of them unless given."""
    start: Annotated[str, Meta(pattern="^(newest|oldest|offset|time)$")] = "newest"
    offset: OffsetNumber | None = None
    """With `start=offset`, which needs a partition."""
    timestamp_ms: OffsetNumber | None = None
    """With `start=time`: the first record at or after it."""
    key: Annotated[str, Meta(max_length=2000)] | None = None
    """Only records with this key, and only the partition that Kafka's clients hash it to."""
    filter: Annotated[str, Meta(max_length=2000)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class PartitionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """How far one partition was read for this page."""

    partition: int
    from_offset: int
    next_offset: int
    log_start: int
    end_offset: int
    is_end: bool


class RecordList(msgspec.Struct, frozen=True, kw_only=True):
    records: list[RecordView]
    """Newest first for `start=newest`; otherwise in the order of partitions and offsets."""
    partitions: list[PartitionPlace]
    partitions_left_out: int = 0
    """A page reads a bounded number of partitions: name one to see the others."""
    scanned: int = 0
    elsewhere: list[LedElsewhere] = []
    """Partitions that were not read because other brokers lead them."""


class NamedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partition: PartitionIndex
    offset: OffsetNumber


class NewPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str
    encoding: Annotated[str, Meta(pattern="^(text|base64)$")] = "text"


class NewHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=32_767)]
    value: NewPayload | None = None


class ProduceRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partition: PartitionIndex | None = None
    """That of the key unless given, as Kafka's Java client hashes it; 0 without a key."""
    key: NewPayload | None = None
    value: NewPayload | None = None
    """None is a tombstone."""
    headers: Annotated[list[NewHeader], Meta(max_length=1000)] = []
    timestamp_ms: OffsetNumber | None = None
    dry_run: bool = False


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int
    """-1 of a dry run."""
    is_dry_run: bool = False


async def read_records(request: ReadRecords, call: Call) -> RecordList:
    topic = call.broker.topics.get(request.name)
    wanted, chosen = _wanted(topic, request, call), _filter_of(request)
    shown = wanted[:_PARTITIONS_MAX]
    records: list[SeenRecord] = []
    places: list[PartitionPlace] = []
    scanned = 0
    for partition in shown:
        if request.start == "newest":
            start, seen = await _read_newest(partition, request, chosen, call)
        else:
            start = await _start_of(partition, request)
            seen = await _read(partition, start, request, chosen, call)
        records += seen.records
        scanned += seen.scanned
        places.append(
            PartitionPlace(
                partition=partition.index,
                from_offset=start,
                next_offset=seen.next_offset,
                log_start=partition.log_start,
                end_offset=partition.high_watermark,
                is_end=seen.is_end,
            )
        )
    if request.start == "newest":
        records.sort(key=lambda each: (each.record.timestamp_ms, each.record.offset), reverse=True)
    views = [view_of(each, SHOWN_BYTES) for each in records[: request.limit]]
    return RecordList(
        records=await decoded_views(topic, views, records, BRIEF),
        partitions=places,
        partitions_left_out=len(wanted) - len(shown),
        scanned=scanned,
        elsewhere=await led_elsewhere(topic, call) if _index_of(topic, request) is None else [],
    )


async def describe_record(request: NamedRecord, call: Call) -> RecordView:
    partition = call.broker.topics.led_partition(request.name, request.partition)
    if not partition.log_start <= request.offset < partition.high_watermark:
        raise OffsetOutOfRange(
            f"offset {request.offset} of {request.name}-{request.partition} is outside "
            f"{partition.log_start}..{partition.high_watermark - 1}"
        )
    seen = await browse(
        call.broker.fetch, partition, request.offset, end_offset=request.offset + 1, count=1, chosen=parse_filter("")
    )
    if not seen.records:
        raise NotFound(f"no record at offset {request.offset}: a transaction marker, lost offsets, or compacted away")
    topic = call.broker.topics.get(request.name)
    (view,) = await decoded_views(topic, [view_of(seen.records[0])], seen.records, WHOLE)
    return view


async def produce_record(request: ProduceRecord, call: Call) -> Produced:
    topic = call.broker.topics.get(request.name)
    key = _bytes_of(request.key)
    index = request.partition
    if index is None:
        index = 0 if key is None else partition_for_key(key, len(topic.partitions))
    partition = call.broker.topics.led_partition(request.name, index)
    record = NewRecord(
        key=key,
        value=_bytes_of(request.value),
        headers=tuple((each.name, _bytes_of(each.value)) for each in request.headers),
        timestamp_ms=request.timestamp_ms,
    )
    if request.dry_run:
        return Produced(partition=index, offset=-1, is_dry_run=True)
    appended = await call.broker.produce.append_records(partition, [record])
    return Produced(partition=index, offset=appended.base_offset)


def _wanted(topic: Topic, request: ReadRecords, call: Call) -> list[PartitionLog]:
    index = _index_of(topic, request)
    if index is None:
        if request.start == "offset":
            raise Invalid("start=offset needs a partition")
        return [each for each in topic.partitions if not each.removed and each.high_watermark > each.log_start]
    return [call.broker.topics.led_partition(topic.name, index)]


def _index_of(topic: Topic, request: ReadRecords) -> int | None:
    if request.partition is None and request.key is not None:
        return partition_for_key(request.key.encode(), len(topic.partitions))
    return request.partition


def _filter_of(request: ReadRecords) -> RecordFilter:
    text = request.filter
    if request.key is not None:
        of_key = f"key == {msgspec.json.encode(request.key).decode()}"
        text = f"({text}) and {of_key}" if text.strip() else of_key
    return parse_filter(text)


async def _start_of(partition: PartitionLog, request: ReadRecords) -> int:
    match request.start:
        case "oldest":
            return partition.log_start
        case "offset":
            if request.offset is None:
                raise Invalid("start=offset needs an offset")
            return min(max(request.offset, partition.log_start), partition.high_watermark)
        case _:
            if request.timestamp_ms is None:
                raise Invalid("start=time needs timestamp_ms")
            found = await partition.find_time(request.timestamp_ms)
            return partition.high_watermark if found is None else found[0]


async def _read(partition: PartitionLog, start: int, request: ReadRecords, chosen: RecordFilter, call: Call) -> Seen:
    """Read on while there is room on the page, but not for ever: what was scanned stands in the answer."""
    found: list[SeenRecord] = []
    offset, scanned, is_end = start, 0, False
    for _ in range(_READS_MAX):
        seen = await browse(
            call.broker.fetch,
            partition,
            offset,
            end_offset=partition.high_watermark,
            count=request.limit - len(found),
            chosen=chosen,
        )
        found += seen.records
        offset, is_end = seen.next_offset, seen.is_end
        scanned += seen.scanned
        if is_end or len(found) >= request.limit:
            break
    return Seen(found, offset, is_end, scanned)


async def _read_newest(
    partition: PartitionLog, request: ReadRecords, chosen: RecordFilter, call: Call
) -> tuple[int, Seen]:
    """The newest that match, and from where on was read: backwards, in stretches that grow while little is found."""
    start = end = newest_end = partition.high_watermark
    found: list[SeenRecord] = []
    stretch, scanned, reads = request.limit, 0, 0
    while start > partition.log_start and len(found) < request.limit and reads < _READS_MAX:
        end, start = start, max(partition.log_start, start - stretch)
        stretch = min(stretch * 2, _STRETCH_MAX)
        offset, matching = start, list[SeenRecord]()
        while offset < end and reads < _READS_MAX:
            reads += 1
            seen = await browse(call.broker.fetch, partition, offset, end_offset=end, count=_STRETCH_MAX, chosen=chosen)
            matching = (matching + seen.records)[-request.limit :]
            offset, scanned = seen.next_offset, scanned + seen.scanned
            if seen.is_end:
                break
        found = matching + found
    return start, Seen(found[-request.limit :], newest_end, True, scanned)


def view_of(seen: SeenRecord, shown_bytes: int | None = None) -> RecordView:
    record = seen.record
    return RecordView(
        partition=seen.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=_payload(record.key, shown_bytes),
        value=_payload(record.value, shown_bytes),
        headers=[HeaderView(name=name, value=_payload(value, shown_bytes)) for name, value in record.headers],
        compression=Codec(seen.codec).name.lower(),
        leader_epoch=seen.leader_epoch,
        producer_id=seen.producer_id if seen.producer_id >= 0 else None,
        is_transactional=seen.is_transactional,
        is_aborted=seen.is_aborted,
    )


async def decoded_views(
    topic: Topic, views: list[RecordView], records: Sequence[SeenRecord], bounds: Bounds
) -> list[RecordView]:
    """With the values by the topic's schema, where it has one. Read in a thread: a value may take a tenth of a second."""
    if not topic.overrides.get(SCHEMA_KIND):
        return views
    return await asyncio.to_thread(_decoded, dict(topic.overrides), views, records, bounds)


def _decoded(
    configs: Mapping[str, str], views: list[RecordView], records: Sequence[SeenRecord], bounds: Bounds
) -> list[RecordView]:
    try:
        schema = schema_of(configs)
    except Invalid as error:
        # Another version let it pass.
        broken = DecodedValue(type=configs[SCHEMA_KIND], reason=str(error))
        return [msgspec.structs.replace(view, decoded=broken) for view in views]
    assert schema is not None, "its kind is set"
    left = DECODED_BYTES_MAX
    shown = []
    for view, seen in zip(views, records, strict=False):
        value = seen.record.value
        if value is None:
            shown.append(view)
            continue
        left -= len(value)
        found = schema.decode(value, bounds) if left >= 0 else Decoded(reason="too much for one page is to be decoded")
        shown.append(msgspec.structs.replace(view, decoded=_decoded_value(schema.kind, found, bounds)))
    return shown


def _decoded_value(kind: str, found: Decoded, bounds: Bounds) -> DecodedValue:
    if found.json is None:
        return DecodedValue(type=kind, reason=found.reason)
    text = found.json.decode()
    is_cut = bounds is BRIEF and len(text) > SHOWN_BYTES
    return DecodedValue(type=kind, json=text[:SHOWN_BYTES] if is_cut else text, is_cut=is_cut)


def _payload(data: bytes | None, shown_bytes: int | None) -> Payload | None:
    if data is None:
        return None
    is_cut = shown_bytes is not None and len(data) > shown_bytes
    shown = data[:shown_bytes] if is_cut else data
    text = _as_text(shown, is_cut=is_cut)
    if text is not None:
        return Payload(encoding="text", data=text, size=len(data), is_cut=is_cut)
    return Payload(encoding="base64", data=base64.b64encode(shown).decode(), size=len(data), is_cut=is_cut)


def _as_text(data: bytes, *, is_cut: bool) -> str | None:
    """A cut may go through the middle of a character: up to three bytes at the end do not count then."""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            text = data[:end].decode()
        except UnicodeDecodeError:
            if not is_cut:
                return None
            continue
        return None if _CONTROL.intersection(text) else text
    return None


def _bytes_of(payload: NewPayload | None) -> bytes | None:
    if payload is None:
        return None
    if payload.encoding == "text":
        return payload.data.encode(errors="surrogatepass")
    try:
        return base64.b64decode(payload.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"not base64: {error}") from error
