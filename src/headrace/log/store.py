"""All partitions of this broker over one WAL: opening, admission, reading back, trimming.

Space in the ring is reused only when every batch in it is in object storage, or in the spill, *and* a checkpoint at or
past that LSN is durable. The order is: checkpoint file, superblock, then the writer may move on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import structlog

from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock, SystemClock
from headrace.disk import OS_DISK, Disk
from headrace.errors import HeadraceError, NotLeader, Overloaded, StorageFailed
from headrace.log.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint, write_checkpoint
from headrace.log.exposure import first_unuploaded_lsn
from headrace.log.inspection import Inspection
from headrace.log.memory import TailMemory
from headrace.log.partition import PartitionLog
from headrace.log.partition_recovery import forget_lost
from headrace.log.pictures import picture_of
from headrace.log.policy import Durability
from headrace.log.producer_budget import ProducerBudget
from headrace.log.recovery import Recovery
from headrace.log.remote import NoRemoteSegments, RemoteSegments
from headrace.log.settings import LogSettings
from headrace.log.spill.files import PartitionKey, SpillFiles
from headrace.log.tail import StoredBatch
from headrace.log.wal.file import RingFile
from headrace.log.wal.flusher import FlusherKind, fastest_flusher
from headrace.log.wal.paths import wal_paths
from headrace.log.wal.writer import FENCE_NAME, WalWriter
from headrace.records.batch import MAGIC, BatchHeader, Buffer, has_valid_crc, read_header

CEILING_STEP: Final = 1 << 16
"""Offsets that a partition may assign before its ceiling has to rise again; more where its rate asks for it."""
_UNFLUSHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Beyond this much waiting for the disk producers pause: the disk is slower than they are."""
_SMALL_REQUEST: Final = 8 * 1024 * 1024
"""Taken without an exact look at the ring while it is far from full."""
_PARTITIONS_PER_TURN: Final = 256
"""Looked at before others get the loop."""
_MARKER_RESERVE: Final = 1024 * 1024
"""Kept free for transaction markers: a full ring must not keep a transaction from ending."""

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class LogStore:
    """Owns the WAL, the memory and every `PartitionLog` of this broker."""

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
        silent_ms: Callable[[], int] | None = None,
    ) -> None:
        """`silent_ms`: for how long no controller has heard this broker, of one of several."""
        self._silent_ms = silent_ms
        self._settings = settings
        self._clock = clock or SystemClock()
        self.disk = disk
        self._flusher = flusher or fastest_flusher()
        self._directory, self._ring_path = wal_paths(settings, data_dir)
        self._on_fault = on_fault
        self.memory = TailMemory(settings.cache_write_size_bytes, self._clock)
        self._partitions: dict[PartitionKey, PartitionLog] = {}
        self._held: dict[PartitionKey, PartitionLog] = {}
        """Being opened in this WAL: it keeps their records, and its checkpoints tell of them. Nobody else knows them yet."""
        self.checkpointed_lsn = 0
        self.is_complete = True
        """Whether a checkpoint of now would tell all that the one before and the ring have told."""
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
        self.checkpointed: Callable[[], None] = lambda: None
        """Called after every checkpoint: the ring is durable at least up to `checkpointed_lsn`."""
        self.producer_budget = ProducerBudget(settings, count=self._count_producers, forget=self._forget_producers)
        self.file = self._open_file(chance)
        self.spill = SpillFiles(self._directory, self.ring_id, bytes_max=settings.wal_spill_bytes, disk=disk)
        self.recovery = Recovery(
            self.file,
            self.spill,
            directory=self._directory,
            partitions=self._partitions,
            clock=self._clock,
            disk=disk,
        )
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
        self.let_go(partition)

    def recover(self) -> None:
        """Read the checkpoint and the ring into the partitions added so far. Blocking; before `start`."""
        self._require_no_fence()
        self.recovery.run()
        self.checkpointed_lsn = self.recovery.checkpointed_lsn
        self.is_complete = self.recovery.is_complete

    def _require_no_fence(self) -> None:
        """Whoever has taken this WAL over may have read it before its last group, which nobody was told of, was written. A
        producer that sends that group's batches again must not hear from us that they are there."""
        fence = self._directory / FENCE_NAME
        if self.disk.exists(fence):
            raise NotLeader(
                f"the WAL in {self._directory} has been fenced: another broker has taken it over. Only if none has, "
                f"remove {fence} and start again"
            )

    async def forget_lost(self) -> None:
        """The ring has lost its end: forget what is known of it, on disk too, before addresses are given out again.

        A checkpoint that is ahead of the ring would take what is appended now for what it has seen. A new ring has none.
        """
        self.is_complete = False  # Until the bucket was asked: a start that fails before leaves no checkpoint behind.
        head_lsn = self.recovery.head_lsn
        if not head_lsn:
            return
        for partition in self._partitions.values():
            forget_lost(partition)
        pictures = [picture_of(each, head_lsn) for each in self._partitions.values()]
        await self.write_beside(self._write_checkpoint, Checkpoint(self.ring_id, head_lsn, pictures))
        self.checkpointed_lsn = head_lsn

    def start(self) -> None:
        """Open the head of the ring for writing; needs the running event loop."""
        head = self.recovery.head
        self.wal = WalWriter(
            self.file,
            disk=self.disk,
            flusher=self._flusher,
            fence_path=self._directory / FENCE_NAME,
            next_lsn=head.next_lsn,
            previous_lsn=head.previous_lsn,
            group_starts=head.group_starts,
            on_fault=self._on_fault,
            lease=None if self._silent_ms is None else self._lease,
        )
        self.wal.flushed = self._flushed

    def _lease(self) -> HeadraceError | None:
        """Somebody may have given this WAL up: then its records are acknowledged no more."""
        assert self._silent_ms is not None
        silent_ms = self._silent_ms()
        if silent_ms <= self._settings.wal_lease_ms:
            return None
        if not any(each.policy.durability is Durability.WAL for each in self._partitions.values()):
            return None
        return NotLeader(f"no controller has heard this broker for {silent_ms} ms: its WAL may have been given up")

    async def stop(self) -> None:
        # A start that failed before it had asked the bucket for what a lost checkpoint or damaged batches told leaves that to the next one.
        if self.wal.failure is None and self.is_complete:
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

    def hold(self, partition: PartitionLog) -> None:
        """Keep what is appended to a partition that is not led here yet. Until `add` or `let_go`."""
        self._held[(partition.topic_id, partition.index)] = partition

    def let_go(self, partition: PartitionLog) -> None:
        place = (partition.topic_id, partition.index)
        if self._held.get(place) is partition:
            del self._held[place]

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
        self._want_space()

    def require_room(self, size: int) -> None:
        """For whoever does not wait: raise `Overloaded` unless `can_take`, and see to it that a later attempt finds room."""
        if not self.can_take(size):
            self._want_space()
            raise Overloaded("the log is full; try again")

    def _want_space(self) -> None:
        if not self.wal.has_room(_MARKER_RESERVE * 2):
            self.space_wanted()

    async def room_for(self, size: int) -> None:
        """Returns when `can_take`; append before anything else is awaited."""
        while not self.can_take(size):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_room(partial(_settle, changed))
            await changed

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
            lsn = first_unuploaded_lsn(partition, spilled_end)
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
        self.is_complete = True
        self.checkpointed()

    def read_checkpoint(self) -> Checkpoint | None:
        """The newest on disk. Blocking."""
        return read_checkpoint(self._directory, disk=self.disk)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._directory, encode_checkpoint(checkpoint), disk=self.disk)

    async def _each_partition(self) -> AsyncIterator[PartitionLog]:
        """All that there are now; others get the loop in between."""
        for number, partition in enumerate([*self._partitions.values(), *self._held.values()], 1):
            yield partition
            if not number % _PARTITIONS_PER_TURN:
                await asyncio.sleep(0)

    async def write_beside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Blocking work on the files beside the log's head, one at a time, even if whoever asked was cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._beside, partial(work, *args, **kwargs))


def _settle(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def check_stored(stored: StoredBatch, batch: Buffer) -> None:
    """Raise unless `batch` is the one that was written there, to the last bit."""
    if not has_valid_crc(batch) or not _is_same(stored, read_header(batch)):
        raise StorageFailed(f"the batch at LSN {stored.lsn} of the WAL is not what was written there")


def _is_same(stored: StoredBatch, header: BatchHeader) -> bool:
    """The part of a batch that its CRC does not cover."""
    return (header.magic, header.base_offset, header.size) == (MAGIC, stored.base_offset, stored.size)
