"""All partitions of this broker over one WAL: opening, recovering, memory, trimming.

Space in the ring is reused only when every batch in it is in object storage, or in the spill, *and* a checkpoint at or
past that LSN is durable. The order is: checkpoint file, superblock, then the writer may move on.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import structlog

from headrace.aligned import LendablePages
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock, SystemClock
from headrace.disk import OS_DISK, Disk
from headrace.errors import Corrupted, HeadraceError, NotLeader, StorageFailed
from headrace.log.arena import ArenaPool, Chunk, make_chunks
from headrace.log.checkpoint import (
    Checkpoint,
    encode_checkpoint,
    read_checkpoint,
    set_aside_checkpoint,
    write_checkpoint,
)
from headrace.log.inspection import Inspection
from headrace.log.partition import PartitionLog
from headrace.log.pictures import picture_of, restore_picture
from headrace.log.producer_budget import ProducerBudget
from headrace.log.remote import NoRemoteSegments, RemoteSegments
from headrace.log.settings import LogSettings
from headrace.log.shortfall import Witness, shortfall
from headrace.log.spill.files import SpillFiles
from headrace.log.tail import StoredBatch
from headrace.log.wal.file import RingFile
from headrace.log.wal.flusher import FlusherKind, fastest_flusher
from headrace.log.wal.paths import wal_paths
from headrace.log.wal.recovery import Quarantine, RingReader
from headrace.log.wal.writer import FENCE_NAME, WalWriter
from headrace.records.batch import MAGIC, BatchHeader, Buffer, has_valid_crc, read_header

CEILING_STEP: Final = 1 << 16
"""Offsets that a partition may assign before its ceiling has to rise again; more where its rate asks for it."""
_UNFLUSHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Beyond this much waiting for the disk producers pause: the disk is slower than they are."""
_WARM_SHARE: Final = 2
"""Half of the budget keeps what object storage has too, for consumers that are a little behind. The other half is for what is
not uploaded yet."""
_EVICTION_TRIES: Final = 16
_SMALL_REQUEST: Final = 8 * 1024 * 1024
"""Taken without an exact look at the ring while it is far from full."""
_PARTITIONS_PER_TURN: Final = 256
"""Looked at before others get the loop."""
_MARKER_RESERVE: Final = 1024 * 1024
"""Kept free for transaction markers: a full ring must not keep a transaction from ending."""

log = structlog.get_logger(__name__)

PartitionKey = tuple[bytes, int]
P = ParamSpec("P")
T = TypeVar("T")


class LogStore:
    """Owns the WAL, the arenas and every `PartitionLog` of this broker."""

    __slots__ = ("__dict__", "__weakref__", "ceiling_margin", "wal")  # for `_append.c`

    def __init__(
        self,
        settings: LogSettings,
        *,
        data_dir: Path,
        on_fault: Callable[[HeadraceError], None],
        clock: Clock | None = None,
        chance: Chance = SYSTEM_CHANCE,
        disk: Disk = OS_DISK,
        flusher: FlusherKind | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.disk = disk
        self._flusher = flusher or fastest_flusher()
        self._directory, self._ring_path = wal_paths(settings, data_dir)
        self._on_fault = on_fault
        self._arenas = ArenaPool(settings.cache_write_size_bytes, lambda: self._clock.monotonic_ms() / 1000)
        self._making: asyncio.Future[list[LendablePages]] | None = None
        self._sealed: deque[PartitionLog] = deque()
        self._partitions: dict[PartitionKey, PartitionLog] = {}
        self.checkpointed_lsn = 0
        self._is_complete = True
        """Whether a checkpoint of now would tell all that the one before has told."""
        self._picture_lsns: dict[PartitionLog, int] = {}
        """While recovering: up to where the checkpoint knows each partition."""
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="wal-reader")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="wal-beside")
        self.inspection = Inspection()
        self._room_wanted: dict[Callable[[], None], None] = {}
        self.after_flush: list[Callable[[], None]] = []
        """Called after every flush, once those who waited for it have been told."""
        self.ceiling_margin = CEILING_STEP // 2
        self.remote: RemoteSegments = NoRemoteSegments()
        self.raise_ceiling: Callable[[PartitionLog], None] = lambda partition: None
        """Set by whoever can persist a higher ceiling; called once a partition has used half of its step."""
        self.upload_wanted: Callable[[PartitionLog], None] = lambda partition: None
        """Set by the tier: a producer waits for this partition to be uploaded."""
        self.space_wanted: Callable[[], None] = lambda: None
        """Set by the tier: the ring runs low, upload whatever holds its oldest end."""
        self.quarantined: list[Quarantine] = []
        self.shortfall: Quarantine | None = None
        """The end of the ring that is missing, as far as anybody knows."""
        self.checkpointed: Callable[[], None] = lambda: None
        """Called after every checkpoint: the ring is durable at least up to `checkpointed_lsn`."""
        self.producer_budget = ProducerBudget(settings, count=self._count_producers, forget=self._forget_producers)
        self.file = self._open_file(chance)
        self.spill = SpillFiles(self._directory, self.ring_id, bytes_max=settings.wal_spill_bytes, disk=disk)
        self.wal: WalWriter

    def _open_file(self, chance: Chance) -> RingFile:
        self.disk.make_directory(self._directory)
        return RingFile(
            self._ring_path,
            capacity=self._settings.wal_capacity_bytes,
            is_direct=self._settings.wal_direct,
            disk=self.disk,
            chance=chance,
        )

    @property
    def directory(self) -> Path:
        """Where checkpoint, fence and spill files lie, and the ring unless it is a device."""
        return self._directory

    @property
    def ring_id(self) -> bytes:
        return self.file.superblock.ring_id

    # -- starting and stopping -----------------------------------------------------------------------------------

    def add(self, partition: PartitionLog) -> None:
        self._partitions[(partition.topic_id, partition.index)] = partition

    def recover(self) -> None:
        """Read the checkpoint and the ring into the partitions added so far. Blocking; before `start`."""
        self._require_no_fence()
        started_ms = self._clock.monotonic_ms()
        checkpoint = self._sound_checkpoint()
        has_checkpoint = checkpoint is not None and checkpoint.ring_id == self.ring_id
        if checkpoint is not None and has_checkpoint:
            self._restore(checkpoint)
        # A killed process may have left a group in the page cache: it must not be read, and then lost with the power.
        self.file.sync()
        reader = RingReader(self.file)
        count = 0
        last_lsns: dict[PartitionLog, int] = {}
        ring_ends: dict[PartitionLog, int] = {}
        # A copy of what the ring itself still has is of no interest yet.
        spilled = (row for row in self.spill.recover() if row.lsn < self.file.superblock.trim_lsn)
        for entry, lsn, batch in chain(spilled, reader.entries()):
            partition = self._partitions.get((entry.topic_id, entry.partition))
            if partition is not None:  # Else its topic was deleted; the space goes with the next trim.
                header = read_header(batch)
                partition.replay(header, batch, lsn, is_in_checkpoint=lsn < self._picture_lsns.get(partition, 0))
                last_lsns[partition] = lsn
                ring_ends[partition] = header.end_offset
                count += 1
        reader.close()
        self._head = reader
        self._find_shortfall(ring_ends)
        self.spill.cut(reader.next_lsn)
        self.quarantined = [*self.spill.quarantined, *reader.quarantined, *filter(None, [self.shortfall])]
        self._report_damage(self.quarantined)
        for damage in reader.quarantined:
            self._pass_over_lost_offsets(damage, last_lsns)
        for partition in self._partitions.values():
            partition.recovered()
        self._picture_lsns.clear()
        self._is_complete = has_checkpoint or not reader.next_lsn
        if not reader.next_lsn:
            log.info("log begun", path=str(self._ring_path))
            return
        log.info(
            "log recovered",
            batches=count,
            groups=len(reader.group_starts),
            clean=reader.was_clean,
            seconds=(self._clock.monotonic_ms() - started_ms) / 1000,
        )

    def _require_no_fence(self) -> None:
        """Whoever has taken this WAL over may have read it before its last group, which nobody was told of, was written. A
        producer that sends that group's batches again must not hear from us that they are there."""
        fence = self._directory / FENCE_NAME
        if self.disk.exists(fence):
            raise NotLeader(
                f"the WAL in {self._directory} has been fenced: another broker has taken it over. Only if none has, "
                f"remove {fence} and start again"
            )

    def _find_shortfall(self, ring_ends: Mapping[PartitionLog, int]) -> None:
        """`ring_ends` is how far the ring has each partition that it has anything of."""
        superblock = self.file.superblock
        pictures = max(self._picture_lsns.values(), default=0)
        witnesses = [
            Witness("the checkpoint", max(self.checkpointed_lsn, pictures)),
            Witness("the spill", self.spill.end_lsn),
            # Space is released up to the start of a group that is there.
            Witness("the superblock", superblock.trim_lsn + bool(superblock.trim_lsn)),
        ]
        self.shortfall = shortfall(self.head_lsn, witnesses, sealed_lsn=superblock.sealed_lsn)
        if self.shortfall is not None or self._head.quarantined:
            return
        # A ring loses batches at its front only: one that has any of a partition has the last of it.
        for partition, end_offset in ring_ends.items():
            if end_offset < partition.uploaded_end:
                place = f"{partition.topic_name}-{partition.index}"
                reason = f"the ring has {place} up to {end_offset}, object storage up to {partition.uploaded_end}"
                self.shortfall = Quarantine(self.head_lsn, self.head_lsn, [], reason)

    @property
    def head_lsn(self) -> int:
        """Where the ring was found to end."""
        return self._head.next_lsn

    def witness(self, witness: Witness) -> None:
        """After recovery: somebody else knows how far the ring went."""
        found = shortfall(self.head_lsn, [witness], sealed_lsn=self.file.superblock.sealed_lsn)
        if self.shortfall is None and found is not None:
            self.shortfall = found
            self.quarantined.append(found)
            self._report_damage([found])

    async def forget_lost(self) -> None:
        """The ring has lost its end: forget what is known of it, on disk too, before addresses are given out again.

        A checkpoint that is ahead of the ring would take what is appended now for what it has seen. A new ring has none.
        """
        if not self.head_lsn:
            return
        for partition in self._partitions.values():
            partition.forget_lost()
        pictures = [picture_of(each, self.head_lsn) for each in self._partitions.values()]
        await self.write_beside(self._write_checkpoint, Checkpoint(self.ring_id, self.head_lsn, pictures))
        self.checkpointed_lsn = self.head_lsn

    def read_checkpoint(self) -> Checkpoint | None:
        """The newest on disk. Blocking."""
        return read_checkpoint(self._directory, disk=self.disk)

    def _sound_checkpoint(self) -> Checkpoint | None:
        try:
            return self.read_checkpoint()
        except Corrupted as error:
            if self.file.superblock.trim_lsn:
                raise
            log.error("the checkpoint is damaged; the WAL still has all that was in it", reason=str(error))
            set_aside_checkpoint(self._directory, disk=self.disk)
            return None

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.checkpointed_lsn = checkpoint.lsn
        for saved in checkpoint.partitions:
            partition = self._partitions.get((saved.topic_id, saved.index))
            if partition is None:
                continue
            self._picture_lsns[partition] = max(saved.lsn, checkpoint.lsn)
            restore_picture(partition, saved)

    def _report_damage(self, quarantined: Iterable[Quarantine]) -> None:
        for damage in quarantined:
            log.error(
                "wal range quarantined: durable once, unreadable now",
                start_lsn=damage.start_lsn,
                end_lsn=damage.end_lsn,
                batches=len(damage.entries),
                reason=damage.reason,
            )

    def _pass_over_lost_offsets(self, damage: Quarantine, last_lsns: dict[PartitionLog, int]) -> None:
        """Offsets were given out in a range that does not read back; they are not given out again.

        Where a later batch, or the checkpoint, tells how far a partition had come, offsets go on from there. Others go
        on above their ceiling.
        """
        if damage.end_lsn <= self.checkpointed_lsn:
            return
        for (topic_id, index), partition in self._partitions.items():
            is_hit = not damage.entries or any(
                (entry.topic_id, entry.partition) == (topic_id, index) for entry in damage.entries
            )
            if is_hit and last_lsns.get(partition, -1) < damage.start_lsn:
                partition.resume_above_ceiling()

    def start(self) -> None:
        """Open the head of the ring for writing; needs the running event loop."""
        self.wal = WalWriter(
            self.file,
            disk=self.disk,
            flusher=self._flusher,
            fence_path=self._directory / FENCE_NAME,
            next_lsn=self._head.next_lsn,
            previous_lsn=self._head.previous_lsn,
            group_starts=self._head.group_starts,
            on_fault=self._on_fault,
        )
        self.wal.flushed = self._flushed

    async def stop(self) -> None:
        # A start that failed before it had asked the bucket for what a lost checkpoint told leaves that to the next one.
        if self.wal.failure is None and self._is_complete:
            try:
                await self.checkpoint()
            except HeadraceError as error:
                # The one before it stands: the next start reads more of the ring, and that is all.
                log.warning("no checkpoint at this stop", reason=str(error))
        await self.wal.stop()
        self._readers.shutdown()
        self._beside.shutdown()
        self.inspection.close()
        self.file.close()

    # -- partitions ----------------------------------------------------------------------------------------------

    def partitions(self) -> Iterable[PartitionLog]:
        return self._partitions.values()

    def find(self, topic_id: bytes, index: int) -> PartitionLog | None:
        return self._partitions.get((topic_id, index))

    def remove(self, partition: PartitionLog) -> None:
        self._partitions.pop((partition.topic_id, partition.index), None)
        partition.remove()

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for long; those with an open transaction stay."""
        forgotten = self._forget_producers(None, now_ms, self._settings.producer_id_expiration_ms)
        self.producer_budget.recount()
        return forgotten

    def _forget_producers(self, only: PartitionLog | None, now_ms: int, silent_ms: int) -> int:
        forgotten = 0
        for partition in self._partitions.values() if only is None else (only,):
            if partition.producers is not None:
                busy = partition.transactions.open_transactions() if partition.transactions is not None else []
                keep = frozenset(each.producer_id for each in busy)
                forgotten += partition.producers.expire(now_ms=now_ms, silent_ms=silent_ms, keep=keep)
        return forgotten

    def _count_producers(self) -> int:
        return sum(len(each.producers) for each in self._partitions.values() if each.producers is not None)

    # -- memory --------------------------------------------------------------------------------------------------

    def take_chunk(self, size_needed: int, previous: Chunk | None) -> Chunk:
        used = self._arenas.used_bytes
        if used > self._arenas.budget_bytes:
            self._evict(is_uploaded_only=False)
        elif used > self._arenas.budget_bytes // _WARM_SHARE:
            self._evict(is_uploaded_only=True)
        chunk = self._arenas.take(size_needed, previous)
        if self._arenas.is_short and self._making is None:
            self._making = asyncio.get_running_loop().run_in_executor(None, make_chunks)
            self._making.add_done_callback(self._made)
        return chunk

    def _made(self, making: "asyncio.Future[list[LendablePages]]") -> None:
        self._making = None
        if not making.cancelled() and making.exception() is None:
            self._arenas.add(making.result())

    def chunk_sealed(self, partition: PartitionLog) -> None:
        """`partition` has filled one more chunk: it may be evicted once its turn comes."""
        self._sealed.append(partition)

    def give_back(self, chunk: Chunk) -> None:
        self._arenas.give_back(chunk)

    def _evict(self, *, is_uploaded_only: bool) -> None:
        """Oldest sealed chunks first, two for the one that is about to be taken; what only memory has stays."""
        dropped = 0
        for _ in range(min(len(self._sealed), _EVICTION_TRIES)):
            partition = self._sealed.popleft()
            if partition.drop_chunk(is_uploaded_only=is_uploaded_only):
                dropped += 1
                if dropped == 2:
                    return
            elif not partition.removed:
                self._sealed.append(partition)

    @property
    def arena_bytes(self) -> int:
        return self._arenas.used_bytes

    @property
    def pinned_bytes(self) -> int:
        return self._arenas.lingering_bytes

    # -- admission -----------------------------------------------------------------------------------------------

    def can_take(self, size: int) -> bool:
        """Whether a request with `size` bytes of batches may be appended now. Producers pause otherwise."""
        wal = self.wal
        if wal.unflushed_bytes >= _UNFLUSHED_BYTES_MAX:
            return False
        return (wal.is_far_from_full and size < _SMALL_REQUEST) or wal.has_room(size + _MARKER_RESERVE)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back when it is worth asking `can_take` again."""
        self._room_wanted[callback] = None
        if not self.wal.has_room(_MARKER_RESERVE * 2):
            self.space_wanted()

    def forget_room(self, callback: Callable[[], None]) -> None:
        """Whoever asked with `when_room` waits no longer."""
        self._room_wanted.pop(callback, None)

    def room_changed(self) -> None:
        waiting, self._room_wanted = self._room_wanted, {}
        for callback in waiting:
            callback()

    def _flushed(self) -> None:
        for tell in self.after_flush:
            tell()
        # Half, not the limit itself: producers come back to work for a while, not to be paused again at once.
        if self._room_wanted and self.wal.unflushed_bytes < _UNFLUSHED_BYTES_MAX // 2:
            self.room_changed()

    @property
    def has_paused_producers(self) -> bool:
        """Whether somebody waits for room in the ring. Those who wait for the disk alone are not helped by an upload."""
        return bool(self._room_wanted) and self.wal.unflushed_bytes < _UNFLUSHED_BYTES_MAX // 2

    # -- reading back --------------------------------------------------------------------------------------------

    async def read_wal(self, wanted: list[StoredBatch]) -> list[Buffer]:
        """These batches, checked; only the first ones where the rest lies elsewhere.

        Empty when they are neither in the ring any more nor in the spill: ask object storage.
        """
        if not wanted:
            return []
        if wanted[0].lsn < self.wal.trim_lsn:
            return await self._read_spilled(wanted)
        loop = asyncio.get_running_loop()
        batches = await loop.run_in_executor(self._readers, self._read_batches, wanted)
        if wanted[0].lsn < self.wal.trim_lsn:
            return await self._read_spilled(wanted)
        for stored, batch in zip(wanted, batches, strict=True):
            check_stored(stored, batch)
        return batches

    async def _read_spilled(self, wanted: list[StoredBatch]) -> list[Buffer]:
        found = takewhile(bool, (self.spill.find(stored.lsn, stored.size) for stored in wanted))
        places = [place for place in found if place is not None]
        if not places:
            return []
        batches = await asyncio.get_running_loop().run_in_executor(self._readers, self.spill.read, places)
        for stored, batch in zip(wanted, batches, strict=False):
            check_stored(stored, batch)
        return batches

    def _read_batches(self, wanted: list[StoredBatch]) -> list[Buffer]:
        return [self.file.read(stored.lsn, stored.size) for stored in wanted]

    # -- trimming ------------------------------------------------------------------------------------------------

    async def oldest_needed_lsn(self, besides: Callable[[PartitionLog], bool] = lambda partition: False) -> int:
        """Lowest LSN that is neither uploaded nor spilled, ignoring the partitions in `besides`."""
        oldest = self.wal.durable_lsn
        spilled_end = self.spill.end_lsn
        async for partition in self._each_partition():
            # What is appended while others are looked at lies above: it was not durable when this began.
            lsn = partition.first_unuploaded_from(spilled_end)
            if lsn is not None and lsn < oldest and not besides(partition):
                oldest = lsn
        return oldest

    async def trim(self) -> bool:
        """Release what is uploaded or spilled: checkpoint, superblock, then reuse. False when nothing was to be gained."""
        target = self.wal.group_start(await self.oldest_needed_lsn())
        if target <= self.wal.trim_lsn:
            return False
        if self.checkpointed_lsn < target:
            await self.checkpoint()
        target = min(target, self.checkpointed_lsn)
        if target <= self.wal.trim_lsn:
            return False
        superblock = self.file.superblock._replace(trim_lsn=target)
        try:
            await self.write_beside(self.file.write_superblock, superblock)
        except HeadraceError as error:
            self._on_fault(error)
            raise
        self.wal.note_trimmed(target)
        self.room_changed()
        return True

    async def checkpoint(self) -> None:
        """Write a picture of every partition, once everything in it is durable. Each is as of its own LSN."""
        lsn = self.wal.next_lsn
        pictures = [picture_of(each, self.wal.next_lsn) async for each in self._each_partition()]
        await self.wal.drain()
        await self.write_beside(self._write_checkpoint, Checkpoint(self.ring_id, lsn, pictures))
        self.checkpointed_lsn = lsn
        self._is_complete = True
        self.checkpointed()

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._directory, encode_checkpoint(checkpoint), disk=self.disk)

    async def _each_partition(self) -> AsyncIterator[PartitionLog]:
        """All that there are now; others get the loop in between."""
        for number, partition in enumerate(list(self._partitions.values()), 1):
            yield partition
            if not number % _PARTITIONS_PER_TURN:
                await asyncio.sleep(0)

    async def write_beside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Blocking work on the files beside the log's head, one at a time, even if whoever asked was cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._beside, partial(work, *args, **kwargs))


def check_stored(stored: StoredBatch, batch: Buffer) -> None:
    """Raise unless `batch` is the one that was written there, to the last bit."""
    if not has_valid_crc(batch) or not _is_same(stored, read_header(batch)):
        raise StorageFailed(f"the batch at LSN {stored.lsn} of the WAL is not what was written there")


def _is_same(stored: StoredBatch, header: BatchHeader) -> bool:
    """The part of a batch that its CRC does not cover."""
    return (header.magic, header.base_offset, header.size) == (MAGIC, stored.base_offset, stored.size)
