"""Carries the tier's transactions out and keeps what is known of segment entries in step with what they did.

Decide, commit, then change the table. Where several brokers commit, the active controller gives each commit its number
(`sequencer`); a node that is alone counts by itself, and takes the next number when it loses a race. A commit that fails for another
reason (the partition has another leader, the topic is gone) is `Concurrent`, and the upload is given up. A newer incarnation of this
broker makes it `StaleEpoch`: this process must stop writing.

A transaction that did not come back with success, because it failed or because whoever waited for it was cancelled, may have
taken effect all the same. What is known of its partitions (`known_entries`) is doubted from then on, and `settle` reads them anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, take_numbers
from headrace.control.metastore import Compare, KeyValue, RangeResult, Txn, TxnResult
from headrace.control.topics import TopicEntry as ClusterTopic
from headrace.errors import Concurrent, NotLeader, OutcomeUnknown, StaleEpoch, TopicNotFound
from headrace.ids import BrokerEpoch, BrokerId, TopicId, show_topic_id
from headrace.tier import plans
from headrace.tier.format.keys import ObjectId, data_key
from headrace.tier.format.manifest import Manifest, TopicEntry, encode_manifest
from headrace.tier.known_entries import KnownEntries
from headrace.tier.plans import Author, Claim, Counted, Numbered, Placed, Replacement, Target
from headrace.tier.segments import LiveSegment, PartitionKey, SegmentTable
from headrace.tier.sequencer import Committed
from headrace.tier.slices import in_slices

_ATTEMPTS_MAX: Final = 32
"""Races for a number lost in a row. Brokers commit a few times a second; more than this is a bug."""
_OBJECT_IDS_PER_BLOCK: Final = 64
_SEGMENTS_PER_COMMIT: Final = 1024
"""The metastore takes a commit into its state in one go on the event loop: a thousand segments take a millisecond."""


Sequencing = Callable[[Numbered], Awaitable[Committed]]
"""Commits under the next number. Raises what `Sequencer.commit` does, and `Unavailable` when no controller is active."""


class NewObject(msgspec.Struct, frozen=True, gc=False):
    id: int
    key: str


class Commits:
    """Belongs to one event loop; safe for several uploads at once, as long as no partition is in two of them."""

    def __init__(
        self,
        cluster: Cluster,
        author: Author,
        clock: Clock,
        table: SegmentTable,
        *,
        life: str,
        sequence: Sequencing | None = None,
    ) -> None:
        """`sequence` gives commits their numbers, where several brokers commit; one that is alone counts them itself."""
        self._life = life
        self._sequence = sequence
        self._cluster = cluster
        self._store = cluster.store
        self._author = author
        self._clock = clock
        self._table = table
        self._counted: Counted | None = None
        self._numbering = asyncio.Lock()
        self._object_ids = iter(range(0))
        self._entries = KnownEntries(cluster, table)
        self._under_way: dict[int, int] = {}
        """Objects this process means to commit, and the revision of their entry (0 before it is prepared)."""
        self.on_manifest: Callable[[int], None] = lambda number: None
        """Told the number of each commit: its manifest waits in the metastore to be written."""
        self.on_settled: Callable[[PartitionKey], None] = lambda partition: None
        """Told of each partition that was read anew."""

    # -- what is known -------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Fill the table with all that there is: this broker leads it. What was being uploaded when it died goes back to the WAL."""
        await self._entries.load()
        interrupted: list[Claim] = []
        for topic in self._cluster.topics:
            for index, entry in enumerate(topic.partitions):
                tail = self._entries.tail((topic.id, index))
                if tail is not None and tail.is_uploading and entry.leader == self._author.broker_id:
                    base = tail.base_offset
                    interrupted.append(
                        self.claim(topic.id, index, base_offset=base, end_offset=base, leader_epoch=entry.leader_epoch)
                    )
        await self.keep_in_wal(interrupted)

    def doubt(self, partitions: Iterable[PartitionKey]) -> None:
        """What memory says of these may be wrong."""
        self._entries.doubt(partitions)

    async def adopt(self, partitions: Iterable[PartitionKey]) -> None:
        """Learn what the metastore has of partitions that this broker has been given."""
        self._entries.doubt(partitions)
        await self.settle()

    def forget(self, partition: PartitionKey) -> None:
        """This broker leads it no longer."""
        self._entries.forget(partition)

    async def settle(self) -> None:
        """Read from the metastore what is in doubt. To be called before anything is decided from memory."""
        while self._entries.is_doubted:
            # No commit is under way meanwhile: none can be in the entries that were read and not in the table yet.
            async with self._numbering:
                if self._entries.is_doubted:  # Somebody else may have settled it while this one waited.
                    await self._entries.read_anew(self.on_settled)

    # -- uploads -------------------------------------------------------------------------------------------------

    def topic(self, topic_id: bytes) -> ClusterTopic:
        """By id: another topic may have its name by now. Raises `TopicNotFound`."""
        found = self._cluster.topics.find_by_id(topic_id)
        if found is None:
            raise TopicNotFound(f"topic {show_topic_id(TopicId(topic_id))} was deleted")
        return found

    def claim(self, topic_id: bytes, partition: int, *, base_offset: int, end_offset: int, leader_epoch: int) -> Claim:
        """What an upload of these offsets relies on, as far as is known now. Raises `TopicNotFound`, `NotLeader`.

        `leader_epoch` is the one in which the offsets were given out. It must be the present one: what is claimed now would
        pass for the present leader's.
        """
        topic = self.topic(topic_id)
        entry = topic.partitions[partition]
        if entry.leader != self._author.broker_id or entry.leader_epoch != leader_epoch:
            raise NotLeader(
                f"{topic.name}-{partition} is led by {entry.leader or 'nobody'}, epoch {entry.leader_epoch}"
            )
        tail = self._entries.tail((topic_id, partition))
        is_there = tail is not None and tail.base_offset == base_offset
        return Claim(
            topic_id=topic_id,
            topic=topic.name,
            partition=partition,
            base_offset=base_offset,
            end_offset=end_offset,
            leader_epoch=entry.leader_epoch,
            leader_revision=entry.leader_revision,
            segment_revision=tail.revision if tail is not None and is_there else 0,
            stale_base=None if tail is None or is_there else tail.base_offset,
        )

    def has_entry(self, partition: PartitionKey) -> bool:
        return self._entries.tail(partition) is not None

    def tail_start(self, partition: PartitionKey) -> int:
        """Where the part in the WAL begins; also when compaction has emptied the last segments below."""
        tail = self._entries.tail(partition)
        return tail.base_offset if tail is not None else 0

    def forget_topic(self, topic_id: bytes) -> None:
        """The topic is deleted: its entries went with it."""
        self._entries.forget_topic(topic_id)

    @property
    def segments_max(self) -> int:
        """Most segments of one commit: what a transaction holds, and what does not keep the loop for long."""
        limits = self._store.txn_limits
        fitting = (limits.ops_max - plans.OPS_PER_COMMIT) // plans.OPS_PER_SEGMENT
        return max(1, min(fitting, limits.bytes_max // plans.BYTES_PER_SEGMENT, _SEGMENTS_PER_COMMIT))

    @property
    def broker_id(self) -> str:
        return self._author.broker_id

    def is_under_way(self, object_id: int) -> bool:
        """Whether this process still means to commit the object."""
        return object_id in self._under_way

    def give_up(self, target: NewObject) -> None:
        """Committed or not, nobody works on this object any more. Every `new_object` ends here."""
        self._under_way.pop(target.id, None)

    async def new_object(self) -> NewObject:
        number = next(self._object_ids, None)
        if number is None:
            block = await take_numbers(self._store, keys.NEXT_OBJECT_ID, _OBJECT_IDS_PER_BLOCK, first=1)
            self._object_ids = iter(block)
            number = next(self._object_ids)
        self._under_way[number] = 0
        name = ObjectId(BrokerId(self._author.number), BrokerEpoch(self._author.epoch), number, self._life)
        return NewObject(number, data_key(name))

    async def prepare(self, target: NewObject, claims: Sequence[Claim]) -> list[Claim]:
        """IN_WAL -> UPLOADING; gives the claims with the revisions that a commit must find.

        Makes the object known as well, where `name` has not.
        """
        named = self._target(target)
        parts = [plans.prepare_part(claim, named) async for claim in in_slices(claims)]
        with self._entries.doubting(_places(claims)):
            result = await self._run(plans.prepare(self._fence, named, parts))
            self._under_way[target.id] = result.revision
            return [self._moved(claim, result.revision) async for claim in in_slices(claims)]

    async def name(self, target: NewObject) -> None:
        """Make an object known before it is written, so that a crash leaves something to collect it by.

        For those that have nothing to prepare yet.
        """
        self._under_way[target.id] = (await self._run(plans.prepare(self._fence, self._target(target)))).revision

    async def commit(
        self, target: NewObject, placed: Sequence[Placed], object_size: int, describe: Callable[[int, int], Manifest]
    ) -> int:
        """UPLOADING -> IN_OBJECT_STORE, for up to `segments_max` of the object's segments; gives the number.

        `describe` makes the manifest from a number and a time.
        """
        named = self._target(target)
        wanted = self._wanted(describe, named.now_ms, target=named, object_size=object_size, placed=tuple(placed))
        with self._entries.doubting(_places([each.claim for each in placed])):
            async with self._numbering:
                done = await self._commit_numbered(wanted)
                self._under_way[target.id] = done.revision
                async for each in in_slices(placed):
                    partition = (each.claim.topic_id, each.claim.partition)
                    self._entries.move_tail(partition, each.claim.end_offset, done.revision)
                    self._table.add(partition, _live_of(each, target, object_size, named.now_ms, done.revision))
        return done.number

    async def keep_in_wal(self, claims: Sequence[Claim]) -> None:
        """Give claims back, or announce partitions that have none yet."""
        size = self.segments_max
        now_ms = self._clock.now_ms()
        for start in range(0, len(claims), size):
            chunk = claims[start : start + size]
            parts = [plans.keep_part(each, broker=self._author, now_ms=now_ms) async for each in in_slices(chunk)]
            with self._entries.doubting(_places(chunk)):
                result = await self._run(plans.keep_in_wal(self._fence, parts))
                async for claim in in_slices(chunk):
                    self._moved(claim, result.revision)

    # -- keeping house -------------------------------------------------------------------------------------------

    def replacement(
        self, topic: ClusterTopic, partition: int, gone: Sequence[LiveSegment], placed: Placed | None = None
    ) -> Replacement:
        entry = topic.partitions[partition]
        return Replacement(
            topic_id=topic.id,
            topic=topic.name,
            partition=partition,
            leader_revision=entry.leader_revision,
            gone=tuple((segment.base_offset, segment.revision) for segment in gone),
            placed=placed,
        )

    async def replace(
        self,
        changes: Sequence[tuple[Replacement, Sequence[LiveSegment]]],
        describe: Callable[[int, int], Manifest],
        *,
        target: NewObject | None = None,
        object_size: int = 0,
    ) -> int:
        """Take segments out, with or without a merged one in their place, as one numbered commit."""
        now_ms = self._clock.now_ms()
        wanted = self._wanted(
            describe,
            now_ms,
            target=self._target(target) if target is not None else None,
            object_size=object_size,
            replacements=tuple(replacement for replacement, _ in changes),
        )
        with self._entries.doubting([(replacement.topic_id, replacement.partition) for replacement, _ in changes]):
            async with self._numbering:
                done = await self._commit_numbered(wanted)
                if target is not None:
                    self._under_way[target.id] = done.revision
                for replacement, gone in changes:
                    partition = (replacement.topic_id, replacement.partition)
                    self._table.remove(partition, gone)
                    if replacement.placed is not None and target is not None:
                        live = _live_of(replacement.placed, target, object_size, now_ms, done.revision)
                        self._table.add(partition, live)
        return done.number

    async def bury(self, describe: Callable[[int, int], Manifest], graves: Sequence[KeyValue]) -> int:
        """A numbered manifest that tells of deleted topics, in place of these entries."""
        entries = tuple((item.key, item.mod_revision) for item in graves)
        wanted = self._wanted(describe, self._clock.now_ms(), graves=entries)
        async with self._numbering:
            return (await self._commit_numbered(wanted)).number

    def new_manifest(self, number: int, created_ms: int) -> Manifest:
        """An empty one of this broker, to be filled in."""
        return Manifest(
            number=number,
            cluster_id=self._cluster.cluster_id,
            created_ms=created_ms,
            broker_id=self._author.number,
            broker_epoch=self._author.epoch,
        )

    # -- running -------------------------------------------------------------------------------------------------

    def _target(self, target: NewObject) -> Target:
        return Target(
            object_id=target.id,
            key=target.key,
            revision=self._under_way[target.id],
            broker=self._author,
            now_ms=self._clock.now_ms(),
        )

    @property
    def _fence(self) -> Compare:
        return self._cluster.fence.compare()

    def _wanted(
        self,
        describe: Callable[[int, int], Manifest],
        now_ms: int,
        *,
        target: Target | None = None,
        object_size: int = 0,
        placed: tuple[Placed, ...] = (),
        replacements: tuple[Replacement, ...] = (),
        graves: tuple[tuple[str, int], ...] = (),
    ) -> Numbered:
        return Numbered(
            broker_id=self._author.broker_id,
            fence_revision=self._cluster.fence.revision,
            manifest=describe(0, now_ms),
            target=target,
            object_size=object_size,
            placed=placed,
            replacements=replacements,
            graves=graves,
        )

    async def _commit_numbered(self, wanted: Numbered) -> Committed:
        """Under `_numbering`: what is settled meanwhile must not miss it."""
        if self._sequence is None:
            return await self._take_number(wanted)
        try:
            done = await self._sequence(wanted)
        except (OutcomeUnknown, Concurrent):
            # It may have taken effect: the first time it was sent, or without a word to us.
            found = await self._look_up(wanted.target)
            if found is None:
                raise
            done = found
        self.on_manifest(done.number)
        return done

    async def _look_up(self, target: Target | None) -> Committed | None:
        """Whether the object has been committed since `target` was made: nobody but this process commits it."""
        item = await self._store.get(keys.tier_object(target.object_id)) if target is not None else None
        if target is None or item is None or item.mod_revision <= target.revision:
            return None
        entry = values.decode(pb.TierObject, item.value)
        return Committed(entry.commit_number, item.mod_revision) if entry.status == pb.COMMITTED else None

    async def _take_number(self, wanted: Numbered) -> Committed:
        """By compare and retry. Commits of this process do not race with each other: they would only make each other fail."""
        for _ in range(_ATTEMPTS_MAX):
            counted = self._counted or await self._read_counter()
            txn = await self._plan(wanted, counted)
            result = await self._store.txn(txn.compares, txn.then_ops, txn.else_ops)
            if result.is_success:
                self._counted = Counted(counted.number + 1, result.revision)
                self.on_manifest(counted.number)
                return Committed(counted.number, result.revision)
            seen = self._check_failure(result)
            if seen.revision == counted.revision:
                raise Concurrent("a partition changed its leader, or its topic is gone, while records were committed")
            self._counted = seen
        raise Concurrent(f"lost {_ATTEMPTS_MAX} races for a manifest number")

    async def _plan(self, wanted: Numbered, counted: Counted) -> Txn:
        """As `plans.numbered`, a slice at a time: a thousand segments keep the loop for long."""
        target = wanted.target
        if not wanted.placed or target is None:
            return plans.numbered(wanted, counted)
        parts = [plans.commit_part(each, target, counted.number) async for each in in_slices(wanted.placed)]
        manifest = encode_manifest(msgspec.structs.replace(wanted.manifest, number=counted.number))
        return plans.commit(wanted.fence, target, parts, counted, manifest, object_size=wanted.object_size)

    async def _run(self, txn: Txn) -> TxnResult:
        result = await self._store.txn(txn.compares, txn.then_ops, txn.else_ops)
        if not result.is_success:
            self._check_failure(result)
            raise Concurrent("a partition changed its leader, or its topic is gone")
        return result

    def _check_failure(self, result: TxnResult) -> Counted:
        """The counter as the failed transaction saw it; raises when the fence was the reason."""
        found = {item.key: item for read in result.results if isinstance(read, RangeResult) for item in read.items}
        fence = self._fence
        identity = found.get(fence.key)
        if identity is None or identity.mod_revision != fence.operand:
            raise StaleEpoch(f"a newer {self._author.broker_id!r} has registered; this one must stop")
        return _counted(found.get(keys.NEXT_COMMIT_NUMBER))

    async def _read_counter(self) -> Counted:
        counted = _counted(await self._store.get(keys.NEXT_COMMIT_NUMBER))
        self._counted = counted
        return counted

    def _moved(self, claim: Claim, revision: int) -> Claim:
        self._entries.move_tail((claim.topic_id, claim.partition), claim.base_offset, revision)
        return msgspec.structs.replace(claim, segment_revision=revision, stale_base=None)


def topic_entry(topic: ClusterTopic) -> TopicEntry:
    """A topic as manifests show it."""
    return TopicEntry(
        topic_id=show_topic_id(topic.id),
        name=topic.name,
        partition_count=len(topic.partitions),
        is_internal=topic.name.startswith("__"),
        config=dict(topic.overrides),
    )


def _counted(item: KeyValue | None) -> Counted:
    if item is None:
        return Counted(1, 0)
    return Counted(values.decode(pb.Counter, item.value).next, item.mod_revision)


def _places(claims: Iterable[Claim]) -> list[PartitionKey]:
    return [(claim.topic_id, claim.partition) for claim in claims]


def _live_of(each: Placed, target: NewObject, object_size: int, now_ms: int, revision: int) -> LiveSegment:
    return LiveSegment(
        base_offset=each.claim.base_offset,
        end_offset=each.claim.end_offset,
        object_id=target.id,
        key=target.key,
        object_size=object_size,
        position=each.position,
        length=each.length,
        record_count=each.record_count,
        max_timestamp_ms=each.max_timestamp_ms,
        leader_epoch=each.claim.leader_epoch,
        committed_ms=now_ms,
        revision=revision,
    )
