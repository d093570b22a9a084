"""Takes over the WAL of a broker that is gone: what only it has is copied into this broker's own, and led from there.

The controllers say who does it, in the key of the takeover (`control/takeovers.py`). Each step can be repeated, by this broker after a crash or
by another in its place:

1. The WAL is fenced: its owner, should it still be there, acknowledges nothing any more.
2. It is read to its end: checkpoint, spill, ring. The first who has done that writes its end into the key; whoever comes later reads as far as
   that, and not further.
3. What object storage has not is appended to this broker's WAL, as it is, and a checkpoint tells what is known of its producers.
4. The leaders' entries name this broker and its ring, in transactions that compare the key. From then on a crash loses nothing of it: a start reads
   the partitions from here.
5. They are opened. The controllers see that no partition is in that WAL any more, and the takeover is done.

Before step 4 nothing of it counts: what was copied is an older part of this ring that nobody's entry refers to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace.broker.shared_topics import SharedTopics
from headrace.broker.wal_opening import insist
from headrace.clock import Clock
from headrace.control import keys
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.plans import PartitionName
from headrace.control.takeovers import Known, Takeovers
from headrace.control.wal_plans import Place
from headrace.errors import Fault, NotFound, TopicNotFound, Unavailable
from headrace.log import homes
from headrace.log.foreign import ForeignWal, Found
from headrace.log.partition import PartitionLog
from headrace.log.partition_recovery import close_gap
from headrace.log.store import LogStore
from headrace.records.batch import read_header
from headrace.telemetry.logging import get_logger

_RETRY_S: Final = 0.5
_TURN_BYTES: Final = 1024 * 1024
"""Copied before others get the loop."""
_RING_SHARE: Final = 4
"""As much of the own ring is filled at once: those partitions are led, and can be uploaded, before the next are copied."""
_RING_ID_SIZE: Final = 16

log = get_logger(__name__)

Partitions = Mapping[tuple[bytes, int], PartitionLog]


class Adopting:
    def __init__(
        self,
        cluster: Cluster,
        topics: SharedTopics,
        store: LogStore,
        *,
        own_name: str,
        takeovers: Takeovers,
        open_wal: Callable[[Path], ForeignWal],
        learn: Callable[[Sequence[PartitionLog]], Awaitable[None]],
        adopt: Callable[[Sequence[PartitionLog]], Awaitable[None]],
        forget: Callable[[PartitionLog], None],
        clock: Clock,
    ) -> None:
        """`learn`, `adopt` and `forget` are those of `Leadership`."""
        self._cluster = cluster
        self._topics = topics
        self._store = store
        self._own_name = own_name
        self._learn = learn
        self._adopt = adopt
        self._forget = forget
        self._clock = clock
        self._takeovers = takeovers
        self._open_wal = open_wal
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """For ever. Raises `StaleEpoch` once this broker is fenced, and the fault of its own disk."""
        await insist(self._takeovers.load)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._takeovers.follow(self._wake.set))
            tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            self._note_own()
            ours = [known for known in self._takeovers.known.values() if self._is_ours(known)]
            for known in ours:
                await self._try(known)
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S if ours else None):
                    await self._wake.wait()

    def _is_ours(self, known: Known | None) -> bool:
        return known is not None and known.value.taker == self._own_name and not known.value.is_done

    def _note_own(self) -> None:
        """What was in an earlier ring of this broker is led by whoever took it over, or is lost, once that is done."""
        own = self._takeovers.known.get(self._own_name)
        if self._topics.taken_ring and (own is None or own.value.is_done):
            self._topics.taken_ring = b""
            for topic in self._cluster.topics:
                self._topics.on_changed(topic.name)

    async def _try(self, known: Known) -> None:
        """As far as it gets. It is ours until the controllers see that nothing is left."""
        try:
            # Nobody is heard in the order of the metastore: what the owner wrote before it was fenced is to be known here.
            await self._cluster.reload()
            if names := self._left(known):
                await self._take_over(known, names)
        except (Unavailable, NotFound) as error:
            log.warning("a takeover is tried again", owner=known.owner, reason=str(error))
        except Fault as error:
            if self._store.wal.failure is not None:
                raise
            log.error("a WAL cannot be taken over", owner=known.owner, reason=str(error))
            if known.owner != self._own_name:
                await self._refuse(known)

    async def _take_over(self, known: Known, names: Sequence[PartitionName]) -> None:
        home = await asyncio.to_thread(
            homes.find_ring, Path(known.value.wal_path).parent, known.value.ring_id, self._store.disk
        )
        if home is None:
            log.warning("there is no such WAL here", owner=known.owner, path=known.value.wal_path)
            await self._refuse(known)
            return
        wal = self._open_wal(home)
        made = [self._topics.make(name, index) for name, index in names]
        partitions: dict[tuple[bytes, int], PartitionLog] = {(each.topic_id, each.index): each for each in made}
        self._topics.being_taken.update(dict.fromkeys(partitions))
        try:
            sealed = await self._read(known, wal, partitions)
            if sealed is not None:
                for few in self._shares(partitions):
                    await self._take(sealed, wal, few)
        finally:
            wal.close()
            for place, partition in partitions.items():
                self._topics.being_taken.pop(place, None)
                self._store.let_go(partition)
                if self._store.find(*place) is not partition:
                    self._forget(partition)

    def _left(self, known: Known) -> list[PartitionName]:
        """Partitions that are still in that WAL."""
        return [
            (name, index)
            for name, index in self._cluster.topics.led_by(known.owner)
            if self._cluster.topics.partition(name, index).ring_id == known.value.ring_id
        ]

    # -- reading -------------------------------------------------------------------------------------------------

    async def _read(self, known: Known, wal: ForeignWal, partitions: Partitions) -> Known | None:
        """Tell the partitions all that the WAL has of them. Gives the takeover with its end in it; None when another does it by now."""
        await asyncio.to_thread(wal.fence)
        everybody = list(partitions.values())
        await self._learn(everybody)
        is_complete = await self._read_once(known, wal, partitions)
        uploaded = [each for each in everybody if each.uploaded_end > each.log_start]
        if uploaded and not is_complete:
            # Its checkpoint is lost: the bucket tells of producers and transactions, and the ring of those since.
            await self._adopt(uploaded)
            await self._read_once(known, wal, partitions)
        sealed = await self._seal(known, wal.end_lsn)
        if sealed is not None and sealed.value.sealed_lsn < wal.end_lsn:
            await self._read_once(sealed, wal, partitions)
        return sealed

    async def _read_once(self, known: Known, wal: ForeignWal, partitions: Partitions) -> bool:
        entries = {
            place: self._cluster.topics.partition(each.topic_name, each.index) for place, each in partitions.items()
        }
        noted = await self._cluster.store.get(keys.broker_ring(known.owner))
        is_noted = noted is not None and noted.value[:_RING_ID_SIZE] == known.value.ring_id
        recovery = await asyncio.to_thread(
            wal.read,
            partitions,
            since={place: entry.ring_start for place, entry in entries.items()},
            sealed_lsn=known.value.sealed_lsn if known.value.HasField("sealed_lsn") else None,
            durable_lsn=int.from_bytes(noted.value[_RING_ID_SIZE:]) if noted is not None and is_noted else 0,
        )
        return recovery.is_complete

    async def _seal(self, known: Known, end_lsn: int) -> Known | None:
        while not known.value.HasField("sealed_lsn"):
            changed = pb.Takeover()
            changed.CopyFrom(known.value)
            changed.sealed_lsn = end_lsn
            await self._takeovers.change(known, changed, fence=self._cluster.fence)
            found = self._takeovers.known.get(known.owner)
            if found is None or not self._is_ours(found) or found.value.ring_id != known.value.ring_id:
                return None
            known = found
        return known

    async def _refuse(self, known: Known) -> None:
        """Somebody else may be able to; the owner, once it is back, if nobody else."""
        known = self._takeovers.known.get(known.owner, known)
        changed = pb.Takeover()
        changed.CopyFrom(known.value)
        changed.refused_by.append(self._own_name)
        await self._takeovers.change(known, changed, fence=self._cluster.fence)

    # -- copying -------------------------------------------------------------------------------------------------

    def _shares(self, partitions: Partitions) -> Iterator[Partitions]:
        """Those with little to copy first, as many at a time as the own ring takes with ease."""
        share: dict[tuple[bytes, int], PartitionLog] = {}
        size = 0
        for place, partition in sorted(partitions.items(), key=lambda each: (each[1].unuploaded_bytes, each[0])):
            if share and size + partition.unuploaded_bytes > self._store.wal.data_size // _RING_SHARE:
                yield share
                share, size = {}, 0
            share[place] = partition
            size += partition.unuploaded_bytes
        if share:
            yield share

    async def _take(self, known: Known, wal: ForeignWal, partitions: Partitions) -> None:
        started_ms = self._clock.monotonic_ms()
        ring_start = self._store.wal.next_lsn
        size = await self._copy(wal, partitions)
        for partition in partitions.values():
            # Offsets that were given out in a part of that WAL which does not read back.
            close_gap(partition, now_ms=self._clock.now_ms())
        await self._store.checkpoint()
        taken = {
            (each.topic_name, each.index): Place(each.leader_epoch, each.end_offset, self._store.ring_id, ring_start)
            for each in partitions.values()
        }
        guard = known.guard()
        await self._cluster.take_over(taken, owner=known.owner, former_ring=known.value.ring_id, guard=guard)
        opened = await self._open(partitions)
        log.info(
            "partitions taken over",
            owner=known.owner,
            partitions=opened,
            bytes=size,
            ms=self._clock.monotonic_ms() - started_ms,
        )

    async def _copy(self, wal: ForeignWal, partitions: Partitions) -> int:
        """How many bytes there were. Durable only with what follows."""
        found = wal.found(partitions)
        for partition in partitions.values():
            partition.tail.clear()
            self._store.hold(partition)
        size = turn = 0
        for each in found:
            await self._room_for(each)
            batch = wal.batch(each)
            partitions[each.place].append_copy(read_header(batch), batch)
            size += each.size
            turn += each.size
            if turn >= _TURN_BYTES:
                turn = 0
                await asyncio.sleep(0)
        return size

    async def _room_for(self, found: Found) -> None:
        while not self._store.can_take(found.size):
            if self._store.wal.failure is not None:
                raise self._store.wal.failure
            room = asyncio.Event()
            self._store.when_room(room.set)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_S):
                        await room.wait()
            finally:
                self._store.forget_room(room.set)

    async def _open(self, partitions: Partitions) -> int:
        led: list[PartitionLog] = []
        for each in partitions.values():
            topic = self._cluster.topics.find_by_id(each.topic_id)
            entry = topic.partitions[each.index] if topic is not None else None
            if entry is not None and (entry.leader, entry.ring_id) == (self._own_name, self._store.ring_id):
                each.leader_epoch = entry.leader_epoch
                led.append(each)
        await insist(lambda: self._cover(led))
        return sum(self._topics.take_lead(each) for each in led)

    async def _cover(self, led: Sequence[PartitionLog]) -> None:
        """Room for their offsets; those whose topic is deleted meanwhile need none."""
        while True:
            there = [each for each in led if self._cluster.topics.find_by_id(each.topic_id) is not None]
            with suppress(TopicNotFound):
                return await self._topics.ceilings.cover(there)
