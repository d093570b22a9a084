"""A cluster's bucket on local disk, written with the tier's own formats and without a broker."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from headrace.ids import BrokerEpoch, BrokerId, Partition, TopicId
from headrace.records.batch import Codec, read_header, stamp
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord
from headrace.tier.format.keys import CLUSTER_MARKER, ObjectId, data_key, manifest_key
from headrace.tier.format.manifest import Aborted, LogStart, Manifest, Segment, SegmentRef, TopicEntry, encode_manifest
from headrace.tier.format.object import Kind, ObjectBuilder

CLUSTER_ID = "test-cluster"


class LocalBucket:
    """Topics whose records are committed objects. Every call that changes something is one manifest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = str(directory)
        self._topics: dict[str, TopicEntry] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._segments: dict[tuple[str, int], list[Segment]] = {}
        self._number = 0
        self._sequence = 0
        self._write(CLUSTER_MARKER, msgspec.json.encode({"cluster_id": CLUSTER_ID}))

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Also re-creates: a new id under an old name."""
        old = self._topics.get(name)
        for partition in range(max(partitions, old.partition_count if old else 0)):
            self._ends[name, partition] = 0
            self._segments[name, partition] = []
        topic = TopicEntry(topic_id=str(uuid4()), name=name, partition_count=partitions)
        self._topics[name] = topic
        self._commit(topics=(topic,), deleted_topics=(old.topic_id,) if old else ())
        return topic.topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = msgspec.structs.replace(self._topics[name], partition_count=partitions)
        for partition in range(self._topics[name].partition_count, partitions):
            self._ends[name, partition] = 0
            self._segments[name, partition] = []
        self._topics[name] = topic
        self._commit(topics=(topic,))

    def append(
        self,
        name: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        codec: int = Codec.NONE,
        batch_records: int = 100,
        producer_id: int | None = None,
    ) -> None:
        """One object with the records, committed."""
        batches = [
            build_batch(
                records[i : i + batch_records],
                now_ms=0,
                codec=codec,
                producer_id=-1 if producer_id is None else producer_id,
                is_transactional=producer_id is not None,
            )
            for i in range(0, len(records), batch_records)
        ]
        self.append_batches(name, partition, batches)

    def end_transaction(self, name: str, partition: int, producer_id: int, *, first: int, is_commit: bool) -> None:
        marker = build_marker(
            is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, now_ms=1
        )
        last = self._ends[name, partition]
        aborted = () if is_commit else (Aborted(producer_id=producer_id, first_offset=first, last_offset=last),)
        self.append_batches(name, partition, [marker], aborted=aborted)

    def append_batches(
        self,
        name: str,
        partition: int,
        batches: Iterable[bytearray],
        *,
        aborted: tuple[Aborted, ...] = (),
        stable_offset: int | None = None,
    ) -> Segment:
        base = end = self._ends[name, partition]
        stamped = []
        for batch in batches:
            stamp(batch, end, 1)
            end = read_header(batch).end_offset
            stamped.append(batch)
        segment = self._put_segment(name, partition, stamped, aborted, end if stable_offset is None else stable_offset)
        assert (segment.base_offset, segment.end_offset) == (base, end)
        self._ends[name, partition] = end
        self._segments[name, partition].append(segment)
        self._commit(topics=(self._topics[name],), added=(segment,))
        return segment

    def compact(self, name: str, partition: int) -> None:
        """Merge all objects of a partition into one and delete the old ones at once."""
        old = self._segments[name, partition]
        data = [bytearray(self._read(s.key)[s.position : s.position + s.length]) for s in old]
        batches = [bytearray(batch) for part in data for batch in _split(part)]
        merged = self._put_segment(
            name, partition, batches, tuple(a for s in old for a in s.aborted), old[-1].last_stable_offset
        )
        self._segments[name, partition] = [merged]
        self._commit(
            removed=tuple(
                SegmentRef(topic_id=s.topic_id, partition=s.partition, base_offset=s.base_offset, key=s.key)
                for s in old
            ),
            added=(merged,),
        )
        for segment in old:
            (self.directory / segment.key).unlink()

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        """Retention: the log starts at `offset`, and objects wholly below it are gone."""
        topic_id = self._topics[name].topic_id
        kept = [s for s in self._segments[name, partition] if s.end_offset > offset]
        gone = [s for s in self._segments[name, partition] if s.end_offset <= offset]
        self._segments[name, partition] = kept
        self._commit(
            removed=tuple(
                SegmentRef(topic_id=topic_id, partition=partition, base_offset=s.base_offset, key=s.key) for s in gone
            ),
            log_starts=(LogStart(topic_id=topic_id, partition=partition, offset=offset),),
        )
        for segment in gone:
            (self.directory / segment.key).unlink()

    def end_offset(self, name: str, partition: int) -> int:
        return self._ends[name, partition]

    def object_paths(self) -> list[Path]:
        return sorted(self.directory.glob("data/*/*.hro"))

    def _put_segment(
        self, name: str, partition: int, batches: list[bytearray], aborted: tuple[Aborted, ...], stable_offset: int
    ) -> Segment:
        topic = self._topics[name]
        self._sequence += 1
        key = data_key(ObjectId(BrokerId(1), BrokerEpoch(1), self._sequence))
        builder = ObjectBuilder(Kind.STREAM)
        runs = builder.add(TopicId(UUID(topic.topic_id).bytes), Partition(partition), batches)
        self._write(key, b"".join(bytes(chunk) for chunk in builder.chunks()))
        return Segment(
            topic_id=topic.topic_id,
            partition=partition,
            base_offset=runs[0].base_offset,
            end_offset=runs[-1].end_offset,
            key=key,
            object_size=builder.size,
            footer_size=builder.footer_size,
            position=runs[0].position,
            length=builder.body_size,
            record_count=sum(run.record_count for run in runs),
            max_timestamp_ms=max(run.max_timestamp_ms for run in runs),
            leader_epoch=1,
            last_stable_offset=stable_offset,
            aborted=aborted,
        )

    def _commit(self, **changes: object) -> None:
        self._number += 1
        manifest = Manifest(number=self._number, cluster_id=CLUSTER_ID, created_ms=0, **changes)  # type: ignore[arg-type]
        self._write(manifest_key(self._number), encode_manifest(manifest))

    def _read(self, key: str) -> bytes:
        return (self.directory / key).read_bytes()

    def _write(self, key: str, data: bytes) -> None:
        path = self.directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _split(data: bytearray) -> list[bytearray]:
    batches = []
    position = 0
    while position < len(data):
        size = read_header(data, position).size
        batches.append(data[position : position + size])
        position += size
    return batches


def records(count: int, *, start: int = 0, time_ms: int = 1_700_000_000_000, size: int = 20) -> list[NewRecord]:
    """Distinguishable records, a millisecond apart."""
    return [
        NewRecord(key=b"k%d" % i, value=(b"value-%d-" % i).ljust(size, b"."), timestamp_ms=time_ms + i)
        for i in range(start, start + count)
    ]
