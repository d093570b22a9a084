"""Answers other brokers: a call is for something that this broker leads, or is refused with who does. Lists are of what it has."""

from headrace.broker.access.audit import AUDIT_TOPIC
from headrace.broker.forwarding import facts, kept
from headrace.broker.groups.standings import Standings
from headrace.broker.offsets import CommittedOffset
from headrace.broker.peers import calls
from headrace.broker.peers.calls import (
    Append,
    AppendedAt,
    CommitOffset,
    DescribePartitions,
    Done,
    FindOffset,
    KeepEvents,
    ListGroups,
    ListTransactions,
    OffsetFound,
    PartitionFacts,
    PartitionsDescribed,
    PartTaken,
    PeerCall,
    ReadRecords,
    RecordsFound,
    TakePart,
    WriteMarker,
)
from headrace.broker.peers.listings import listed_groups, listed_transactions
from headrace.broker.services import Broker
from headrace.broker.transactions.events import Identity, TopicPartition
from headrace.broker.transactions.markers import Markers
from headrace.errors import MalformedRequest, NotLeader
from headrace.log.partition import PartitionLog
from headrace.records.record import NewRecord


class PeerService:
    def __init__(self, broker: Broker, markers: Markers, standings: Standings) -> None:
        self._broker = broker
        self._markers = markers
        self._standings = standings

    async def answer(self, kind: str, body: bytes) -> bytes:
        """What it does before it first waits happens in the order of the calls."""
        return calls.encode(await self._do(calls.call_of(kind, body)))

    async def _do(self, call: PeerCall) -> PeerCall:
        match call:
            case WriteMarker():
                await self._markers.append_here(call)
                return Done()
            case TakePart():
                return await self._take_part(call)
            case Append():
                return await self._append(call)
            case ReadRecords():
                return await self._read(call)
            case DescribePartitions(topic=topic, places=places):
                return PartitionsDescribed([self._describe(topic, index, epoch) for index, epoch in places])
            case CommitOffset():
                return await self._commit(call)
            case FindOffset():
                self._broker.offsets.check_epoch(call.group, call.leader_epoch)
                found = self._broker.offsets.committed(call.group, call.topic, call.partition)
                return OffsetFound(None if found is None else found.offset)
            case KeepEvents(leader_epoch=leader_epoch, events=events):
                partition = self._led(AUDIT_TOPIC, 0, leader_epoch)
                await self._broker.produce.append_internal(partition, [NewRecord(value=each) for each in events])
                return Done()
            case ListGroups(limit=limit):
                return await listed_groups(self._broker.groups, self._standings, limit)
            case ListTransactions(limit=limit):
                return await listed_transactions(self._broker.transactions, limit)
            case _:
                raise MalformedRequest(f"nobody answers {type(call).__name__}")

    def _led(self, topic: str, index: int, leader_epoch: int) -> PartitionLog:
        partition = self._broker.topics.led_partition(topic, index)
        if partition.leader_epoch != leader_epoch:
            raise NotLeader(f"{topic}-{index} is led in epoch {partition.leader_epoch} by now")
        return partition

    async def _append(self, call: Append) -> AppendedAt:
        partition = self._led(call.topic, call.partition, call.leader_epoch)
        self._broker.produce.require_room(len(call.batch))
        return AppendedAt(await kept(self._broker.produce, partition, bytearray(call.batch)))

    async def _read(self, call: ReadRecords) -> RecordsFound:
        partition = self._led(call.topic, call.partition, call.leader_epoch)
        start, end = partition.log_start, partition.high_watermark
        if not start <= call.offset < end:
            return RecordsFound([], call.offset, start, end)
        read = await self._broker.fetch.read_records(
            partition, call.offset, max_bytes=call.max_bytes, max_records=call.max_records
        )
        records = [(each.offset, each.timestamp_ms, each.key, each.value) for each in read.records]
        return RecordsFound(records, read.next_offset, start, end)

    def _describe(self, topic: str, index: int, leader_epoch: int) -> PartitionFacts:
        return facts(self._led(topic, index, leader_epoch))

    async def _commit(self, call: CommitOffset) -> Done:
        self._broker.offsets.check_epoch(call.group, call.leader_epoch)
        offset = CommittedOffset(offset=call.offset, commit_ms=call.commit_ms)
        await self._broker.offsets.commit(
            call.group, {(call.topic, call.partition): offset}, is_volatile=call.is_volatile
        )
        return Done()

    async def _take_part(self, call: TakePart) -> PartTaken:
        return await self._broker.transactions.take_part(
            call.transactional_id,
            Identity(producer_id=call.producer_id, epoch=call.producer_epoch),
            frozenset(TopicPartition(topic, index) for topic, index in call.places),
            is_adding=call.is_adding,
            leader_epoch=call.leader_epoch,
        )
