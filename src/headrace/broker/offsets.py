"""Committed offsets: how far each group has read each partition. One store for every door.

Durable commits are records of `__consumer_offsets` and become visible when they are on disk. Volatile ones (the
RustLog door's default) are only remembered. Offsets committed inside a transaction wait, invisible, for its outcome.
A commit is for the topic that bears the name at the time: one that was deleted takes its offsets along, whether or not
anybody was there to write that down.

Whether a member may commit is the business of `groups`; here a commit is a fact. Before the log has been read back
nobody may commit or ask: both raise `CoordinatorLoading`.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from headrace.broker.deferred import Deferred
from headrace.broker.internal_topic import InternalTopic, ReplayedBatch
from headrace.broker.offset_projection import OffsetProjection
from headrace.broker.offset_records import (
    NO_TOPIC_ID,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    decode,
    encode_offset,
    is_offset_key,
)
from headrace.broker.topics import Topic, Topics
from headrace.clock import Clock
from headrace.errors import HeadraceError, NotCoordinator
from headrace.log.partition import Appended
from headrace.records.builder import is_commit_marker
from headrace.records.record import NewRecord, Record

__all__ = ["CommittedOffset", "Offsets", "Place"]

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
VOLATILE = -1
_TAKEN_AT_ONCE: Final = 128
"""Commits that are read back in one turn of the loop: about a millisecond."""


class _Entry(msgspec.Struct, frozen=True, gc=False):
    committed: CommittedOffset
    log_offset: int
    """Offset of the record in `__consumer_offsets`: of two commits, the later in the log counts."""
    topic_id: bytes


class OpenOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that wait for the outcome of a transaction: in which partition of the log, and whose it is."""

    log_partition: int
    producer_id: int
    producer_epoch: int


class _Undecided:
    """What the open transaction of one producer would commit."""

    __slots__ = ("entries", "producer_epoch")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, Place], _Entry] = {}
        self.producer_epoch = -1


class Offsets:
    def __init__(self, log: InternalTopic, topics: Topics, projection: OffsetProjection, clock: Clock) -> None:
        self._log = log
        self._topics = topics
        self._projection = projection
        self._clock = clock
        self._groups: dict[str, dict[Place, _Entry]] = {}
        self._undecided: dict[tuple[int, int], _Undecided] = {}
        """By partition of the log and producer."""
        self.commits_total = 0

    # -- committing

    def commit(
        self, group: str, offsets: Mapping[Place, CommittedOffset], *, is_volatile: bool = False
    ) -> Deferred[None]:
        self._log.require_loaded(group)
        stamped = self._stamp(offsets)
        self.commits_total += 1
        if is_volatile or not stamped:
            kept = self._groups.setdefault(group, {}) if stamped else {}
            kept.update((place, _Entry(each, VOLATILE, NO_TOPIC_ID)) for place, each in stamped.items())
            return Deferred.resolved(None)
        ids = self._topic_ids(stamped)

        def apply(appended: Appended) -> None:
            for position, (place, committed) in enumerate(stamped.items()):
                self._apply(group, place, _Entry(committed, appended.base_offset + position, ids[place[0]]))

        return _after(self._log.append(group, _encode(group, stamped, ids)), apply)

    def commit_in_transaction(
        self, group: str, offsets: Mapping[Place, CommittedOffset], *, producer_id: int, producer_epoch: int
    ) -> Deferred[None]:
        """Visible once the producer's transaction is committed. Rejected with `ProducerFenced` for a zombie."""
        self._log.require_loaded(group)
        stamped = self._stamp(offsets)
        if not stamped:
            return Deferred.resolved(None)
        ids = self._topic_ids(stamped)
        appending = self._log.append_in_transaction(
            group, _encode(group, stamped, ids), producer_id=producer_id, producer_epoch=producer_epoch
        )

        def note(appended: Appended) -> None:
            for position, (place, committed) in enumerate(stamped.items()):
                entry = _Entry(committed, appended.base_offset + position, ids[place[0]])
                undecided = self._undecided_of(self._log.partition_of(group), producer_id, producer_epoch)
                undecided.entries[(group, place)] = entry

        return _after(appending, note)

    def check_epoch(self, group: str, leader_epoch: int) -> None:
        """Raise unless this broker looks after the group in that epoch."""
        self._log.require_loaded(group)
        if self._log.leader_epoch_of(group) != leader_epoch:
            raise NotCoordinator(f"group {group!r} is looked after in another epoch by now")

    def is_here(self, group: str) -> bool:
        """Whether this broker looks after the group, or is about to."""
        return self._log.is_whole or self._log.is_led_here(group)

    async def home_of(self, group: str) -> tuple[str, int]:
        """The broker that looks after the group, and the epoch in which it does. Makes the log if need be."""
        leader = await self._log.leader_of(group)
        return leader, self._log.leader_epoch_of(group)

    def is_partition_loaded(self, log_partition: int) -> bool:
        """Whether what that partition of the log says is known."""
        return self._log.is_partition_loaded(log_partition)

    def end_transaction(self, log_partition: int, producer_id: int, *, is_commit: bool) -> None:
        """The marker of `producer_id` is in that partition of the log."""
        undecided = self._undecided.pop((log_partition, producer_id), None)
        if undecided is not None and is_commit:
            for (group, place), entry in undecided.entries.items():
                self._apply(group, place, entry)

    def open(self) -> list[OpenOffsets]:
        """Transactions whose outcome some offsets wait for."""
        return [
            OpenOffsets(log_partition=where, producer_id=producer_id, producer_epoch=undecided.producer_epoch)
            for (where, producer_id), undecided in self._undecided.items()
        ]

    def _undecided_of(self, log_partition: int, producer_id: int, producer_epoch: int) -> _Undecided:
        undecided = self._undecided.setdefault((log_partition, producer_id), _Undecided())
        undecided.producer_epoch = max(undecided.producer_epoch, producer_epoch)
        return undecided

    def _stamp(self, offsets: Mapping[Place, CommittedOffset]) -> dict[Place, CommittedOffset]:
        now_ms = self._clock.now_ms()
        return {
            place: each if each.commit_ms else msgspec.structs.replace(each, commit_ms=now_ms)
            for place, each in offsets.items()
        }

    def _topic_ids(self, offsets: Mapping[Place, CommittedOffset]) -> dict[str, bytes]:
        found = {name: self._topics.find(name) for name, _ in offsets}
        return {name: NO_TOPIC_ID if topic is None else topic.id for name, topic in found.items()}

    def _apply(self, group: str, place: Place, entry: _Entry) -> None:
        if self._is_stale(place, entry):
            return
        kept = self._groups.setdefault(group, {})
        present = kept.get(place)
        if present is None or present.log_offset < entry.log_offset:
            kept[place] = entry
            self._note((group, *place), entry.committed)

    def _note(self, key: tuple[str, str, int], committed: CommittedOffset | None) -> None:
        self._projection.note(self._log.partition_of(key[0]), key, committed)

    def _is_stale(self, place: Place, entry: _Entry) -> bool:
        """Whether the topic it was for is gone, whatever may bear its name now."""
        if entry.topic_id == NO_TOPIC_ID:
            return False
        topic = self._topics.find(place[0])
        return topic is None or topic.id != entry.topic_id

    # -- reading

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        self._log.require_loaded(group)
        entry = self._groups.get(group, {}).get((topic, partition))
        return None if entry is None else entry.committed

    def all_of(self, group: str) -> dict[Place, CommittedOffset]:
        self._log.require_loaded(group)
        return {place: entry.committed for place, entry in self._groups.get(group, {}).items()}

    def groups(self) -> list[str]:
        """Groups that are known to have committed anything: none of a part of the log that is still being read."""
        return [
            group
            for group, kept in self._groups.items()
            if kept and self._log.is_partition_loaded(self._log.partition_of(group))
        ]

    def undecided(self, group: str) -> set[Place]:
        """Partitions for which an open transaction holds a commit (KIP-447)."""
        self._log.require_loaded(group)
        return {place for held in self._undecided.values() for name, place in held.entries if name == group}

    # -- forgetting

    def forget(self, group: str, places: list[Place]) -> Deferred[None]:
        """Also what an open transaction would commit there, as in Kafka: its outcome does not bring them back."""
        held = self.undecided(group)
        known = [place for place in places if place in held or place in self._groups.get(group, {})]
        if not known:
            return Deferred.resolved(None)

        def drop(_: Appended) -> None:
            kept = self._groups.get(group, {})
            for place in known:
                kept.pop(place, None)
                self._note((group, *place), None)
                self._forget_undecided(group, place)
            if not kept:
                self._groups.pop(group, None)

        records = [encode_offset(group, topic, index, None) for topic, index in known]
        return _after(self._log.append(group, records), drop)

    def _forget_undecided(self, group: str, place: Place) -> None:
        for undecided in self._undecided.values():
            undecided.entries.pop((group, place), None)

    def topic_removed(self, topic: Topic) -> None:
        """Whoever read it need not remember how far: a topic created again begins anew."""
        for group in self.groups():
            places = [place for place in self._groups[group] if place[0] == topic.name]
            if places:
                self.forget(group, places)

    # -- starting and stopping

    def unload(self, index: int | None) -> None:
        """Forget what is known of that partition of the log, or of all: it is read again, or another broker's."""
        if index is None:
            self._groups.clear()
            self._undecided.clear()
            return
        for group in [group for group in self._groups if self._log.partition_of(group) == index]:
            del self._groups[group]
        for where in [where for where in self._undecided if where[0] == index]:
            del self._undecided[where]
        self._projection.forget(index)

    async def replay_all(self, batches: AsyncIterator[ReplayedBatch]) -> AsyncIterator[GroupRecord]:
        """Take the offsets out of the log; gives what it says about groups.

        A group commits the same places again and again, and the newest commit is all that counts: what was committed before it is not
        looked into. Those of transactions are, in their order: whether they count is decided by what follows them.
        """
        newest: dict[bytes, Record] = {}
        partition = -1
        async for batch in batches:
            is_plain = not (batch.header.is_control or batch.header.is_transactional)
            if not is_plain or batch.partition != partition:
                await self._take(partition, newest)
                partition = batch.partition
            if not is_plain:
                for group in self.replay(batch):
                    yield group
                continue
            others = []
            for record in batch.records:
                if record.key is not None and is_offset_key(record.key):
                    newest.pop(record.key, None)  # The order is that of the newest ones.
                    newest[record.key] = record
                else:
                    others.append(record)
            for group in self._replay_records(batch, others):
                yield group
        await self._take(partition, newest)

    async def _take(self, partition: int, records: dict[bytes, Record]) -> None:
        for number, record in enumerate(records.values()):
            found = self._log.read(f"partition {partition}, offset {record.offset}", functools.partial(decode, record))
            if isinstance(found, OffsetRecord):
                self._replay_offset(found, record.offset)
            if number % _TAKEN_AT_ONCE == _TAKEN_AT_ONCE - 1:
                await asyncio.sleep(0)
        records.clear()

    def replay(self, batch: ReplayedBatch) -> list[GroupRecord]:
        """Take the offsets out of a batch of the log; gives back what it says about groups."""
        header = batch.header
        if header.is_control:
            is_commit = is_commit_marker(batch.records[0].key or b"")
            self.end_transaction(batch.partition, header.producer_id, is_commit=is_commit)
            return []
        return self._replay_records(batch, batch.records)

    def _replay_records(self, batch: ReplayedBatch, records: Sequence[Record]) -> list[GroupRecord]:
        header = batch.header
        groups: list[GroupRecord] = []
        for record in records:
            where = f"partition {batch.partition}, offset {record.offset}"
            offset = self._log.read(where, functools.partial(decode, record))
            if offset is None:
                continue
            if not isinstance(offset, OffsetRecord):
                groups.append(offset)
            elif header.is_transactional and offset.committed is not None:
                entry = _Entry(offset.committed, record.offset, offset.topic_id)
                place = (offset.topic, offset.partition)
                undecided = self._undecided_of(batch.partition, header.producer_id, header.producer_epoch)
                undecided.entries[(offset.group, place)] = entry
            else:
                self._replay_offset(offset, record.offset)
        return groups

    def _replay_offset(self, offset: OffsetRecord, log_offset: int) -> None:
        place = (offset.topic, offset.partition)
        kept = self._groups.setdefault(offset.group, {})
        if offset.committed is None:
            kept.pop(place, None)
            self._forget_undecided(offset.group, place)
        else:
            kept[place] = _Entry(offset.committed, log_offset, offset.topic_id)

    def finish_replay(self, index: int | None) -> None:
        """After the last batch: topics that were deleted since take their offsets along."""
        for group, kept in list(self._groups.items()):
            if index is not None and self._log.partition_of(group) != index:
                continue
            stale = [place for place, entry in kept.items() if self._is_stale(place, entry)]
            for place in stale:
                del kept[place]
                self._note((group, *place), None)
            if stale:
                # Should it not get there, it is found stale again.
                self._log.append(group, [encode_offset(group, *place, None) for place in stale])
            if not kept:
                del self._groups[group]

    async def stop(self) -> None:
        await self._log.stop()
        await self._projection.stop()


def _encode(group: str, offsets: Mapping[Place, CommittedOffset], ids: Mapping[str, bytes]) -> list[NewRecord]:
    return [encode_offset(group, topic, index, each, topic_id=ids[topic]) for (topic, index), each in offsets.items()]


def _after(appending: Deferred[Appended], apply: Callable[[Appended], None]) -> Deferred[None]:
    """Apply when durable, then tell the caller."""
    done: Deferred[None] = Deferred()

    def settled(appended: Deferred[Appended]) -> None:
        try:
            apply(appended.result())
        except HeadraceError as error:
            done.reject(error)
        else:
            done.resolve(None)

    appending.then(settled)
    return done
