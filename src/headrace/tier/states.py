"""What a broker knows beyond its records (producers, transactions, epochs), kept in the bucket for its next disk.

The log's own checkpoint, copied as it is. It matters only to a broker that finds its WAL empty: then records come from
objects, and this tells it which producers had written them, so that a retry is still recognised as one. What came since is
found in the records themselves, which are read once more: producers of what was uploaded behind the saved state, and
transactions, of which whatever is open begins at or behind the bucket's last stable offset.

In a cluster every broker saves its own often, for whoever takes its partitions over (`takeover`).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, get_sound
from headrace.errors import Corrupted, ObjectNotFound, StoreUnavailable
from headrace.ids import BrokerEpoch, BrokerId, TopicId, show_topic_id
from headrace.log.checkpoint import (
    Checkpoint,
    PartitionCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers, ProducerSnapshot, merged, still_stored
from headrace.log.spill.files import PartitionKey
from headrace.log.store import LogStore
from headrace.log.transactions import AbortedTransaction, TransactionIndex, TransactionSnapshot
from headrace.records.batch import NO_PRODUCER, BatchHeader, Buffer, iterate_batches
from headrace.records.builder import coordinator_epoch_of, is_commit_marker
from headrace.records.record import read_batch_records
from headrace.telemetry.logging import get_logger
from headrace.tier.format import keys
from headrace.tier.format.inventory import PartitionState
from headrace.tier.inventory import load_inventory, numbered

_KEPT: Final = 2
"""The newest, and the one before in case its bytes turn out to be damaged."""

_SCAN_BYTES: Final = 4 * 1024 * 1024

_Pictures = dict[PartitionKey, PartitionCheckpoint]

log = get_logger(__name__)


class BrokerStates:
    def __init__(self, blobs: BlobStore, logs: LogStore, broker: BrokerId, epoch: BrokerEpoch) -> None:
        self._blobs = blobs
        self._logs = logs
        self._broker = broker
        self._epoch = epoch
        self._saved: tuple[int, frozenset[PartitionKey]] = (-1, frozenset())
        """LSN and partitions of the newest one in the bucket."""
        self._saved_count = 0

    async def save(self) -> bool:
        """Copy the log's newest checkpoint to the bucket; False when it is there already."""
        checkpoint = await asyncio.to_thread(self._logs.read_checkpoint)
        if checkpoint is None:
            return False
        told = checkpoint.lsn, frozenset((each.topic_id, each.index) for each in checkpoint.partitions)
        if told == self._saved:
            return False
        key = keys.broker_state_key(self._broker, self._epoch, self._saved_count)
        await self._blobs.put(key, [encode_checkpoint(checkpoint)])
        self._saved = told
        self._saved_count += 1
        old = [info.key async for info in numbered(self._blobs, self._prefix)][:-_KEPT]
        if old:
            await self._blobs.delete(old)
        return True

    async def restore(self, *, is_ring_lost: bool = False) -> bool:
        """Fill in what the WAL could not tell, after it was replayed: it is new, has lost a part, or its checkpoint is gone.

        Adds, and replaces only what the bucket knows better. False when the WAL and its checkpoint have told everything, or
        no record was ever uploaded, so that the bucket has nothing to tell. Afterwards there is a checkpoint: only this once must the
        store be up.
        """
        local = await asyncio.to_thread(self._logs.read_checkpoint)
        if local is not None and local.ring_id != self._logs.ring_id:
            local = None
        if local is not None and self._logs.is_complete and not is_ring_lost:
            return False
        was_uploaded = any(partition.uploaded_end for partition in self._logs.partitions())
        is_known = was_uploaded and await self._ask_bucket(_pictures(local))
        await self._logs.checkpoint()
        if is_known:
            await self._save_soon()
        return is_known

    async def _save_soon(self) -> None:
        """The saved state may tell of records that were lost with the disk: the next disk is to know better."""
        try:
            await self.save()
        except StoreUnavailable as error:
            log.warning("the broker's state is saved later", reason=str(error))

    async def _ask_bucket(self, local: _Pictures) -> bool:
        try:
            return await self._read_bucket(local)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"this broker's WAL is new, damaged, or has lost its checkpoint, and only the object store knows the producers and "
                f"transactions of what was uploaded: start it when the store is up ({error})"
            ) from error

    async def everybodys(self) -> dict[PartitionKey, list[PartitionCheckpoint]]:
        """Every picture that some broker has saved last, by partition."""
        newest: dict[str, list[str]] = {}
        async for info in numbered(self._blobs, keys.BROKER_STATES):
            newest.setdefault(info.key.rsplit("/", 1)[0], []).append(info.key)
        found: dict[PartitionKey, list[PartitionCheckpoint]] = {}
        for saved in await asyncio.gather(*map(self._newest_of, newest.values())):
            for place, picture in _pictures(saved).items():
                found.setdefault(place, []).append(picture)
        return found

    async def _read_bucket(self, local: _Pictures) -> bool:
        """`local` is the WAL's own checkpoint, as far as it has one."""
        known = _pictures(await self._newest())
        inventory = await load_inventory(self._blobs)
        read_bytes = 0
        for partition in self._logs.partitions():
            state = inventory.partition(show_topic_id(TopicId(partition.topic_id)), partition.index)
            place = (partition.topic_id, partition.index)
            picture = known.get(place)
            found = await _read_since(partition, state, picture.end_offset if picture is not None else 0)
            read_bytes += found.read_bytes
            _complete(partition, picture, state, found, known_end=local[place].end_offset if place in local else 0)
        log.info("producers and transactions read from the bucket", bytes=read_bytes, has_saved_state=bool(known))
        return bool(known)

    @property
    def _prefix(self) -> str:
        return f"{keys.BROKER_STATES}{self._broker}/"

    async def _newest(self) -> Checkpoint | None:
        return await self._newest_of([info.key async for info in numbered(self._blobs, self._prefix)])

    async def _newest_of(self, found: Sequence[str]) -> Checkpoint | None:
        for key in reversed(found):
            try:
                return await get_sound(self._blobs, key, lambda data: decode_checkpoint(bytes(data)))
            except Corrupted as error:
                log.error("saved broker state is damaged", key=key, reason=str(error))
            except ObjectNotFound:
                continue  # Its broker has saved a newer one meanwhile.
        return None


def _pictures(checkpoint: Checkpoint | None) -> _Pictures:
    return {(each.topic_id, each.index): each for each in checkpoint.partitions} if checkpoint is not None else {}


class _Found(msgspec.Struct, frozen=True):
    """What the records of one partition tell."""

    producers: list[ProducerSnapshot]
    """Of what object storage has behind the saved state."""
    transactions: TransactionSnapshot | None
    """From the bucket's last stable offset on; None where nothing is undecided in the bucket and they were not read."""
    read_bytes: int


async def _read_since(partition: PartitionLog, state: PartitionState, saved_end: int) -> _Found:
    """Read what the bucket has behind `saved_end`, and everything from its last stable offset to the end of the log."""
    producers, transactions = Producers(), TransactionIndex()
    # Nothing undecided in the bucket: what the WAL has of transactions was replayed. The manifests may lag behind the objects.
    is_decided = state.last_stable_offset >= partition.uploaded_end
    stable = max(partition.durable_end if is_decided else state.last_stable_offset, partition.log_start)
    offset = max(min(saved_end, stable), partition.log_start)
    end = partition.durable_end if stable < partition.durable_end else partition.uploaded_end
    read_bytes = 0
    while offset < end:
        buffers = await partition.read_cold(offset, _SCAN_BYTES, end)
        batches = [each for buffer in buffers for each in iterate_batches(buffer)]
        for header, batch in batches:
            if header.producer_id != NO_PRODUCER and saved_end <= header.base_offset < partition.uploaded_end:
                _note_producer(producers, header, batch)
            if header.is_transactional and header.end_offset > stable:
                _note_transaction(transactions, header, batch)
        if not batches:
            break
        read_bytes += sum(map(len, buffers))
        offset = batches[-1][0].end_offset
    return _Found(producers.snapshot(), None if is_decided else transactions.snapshot(), read_bytes)


def _note_producer(found: Producers, header: BatchHeader, batch: Buffer) -> None:
    found.note(header, header.base_offset)
    if header.is_control:
        value = next(read_batch_records(batch, header)).value or b""
        found.note_marker(header.producer_id, coordinator_epoch_of(value))


def _note_transaction(found: TransactionIndex, header: BatchHeader, batch: Buffer) -> None:
    if not header.is_control:
        found.note_batch(header.producer_id, header.base_offset, is_transactional=True)
        return
    marker = next(read_batch_records(batch, header))
    found.end(header.producer_id, commit=is_commit_marker(marker.key or b""), marker_offset=header.base_offset)


def _complete(
    partition: PartitionLog,
    saved: PartitionCheckpoint | None,
    state: PartitionState,
    found: _Found,
    *,
    known_end: int,
) -> None:
    """Join what is known of a partition. Below `known_end` the WAL's own checkpoint knows which transactions are open."""
    # The saved state may know of records that were lost with the disk.
    known = still_stored(saved.producers, partition.uploaded_end) if saved is not None else []
    local = partition.producers.snapshot() if partition.producers is not None else []
    if producers := merged(merged(known, found.producers), local):
        partition.producers = Producers()
        partition.producers.restore(producers)
    transactions = _transactions(
        partition, saved.transactions if saved is not None else None, state, found.transactions, known_end=known_end
    )
    if transactions.open or transactions.decided or transactions.aborted:
        partition.transactions = TransactionIndex.restore(transactions)
        partition.transactions.truncate_below(partition.log_start)
    # Not from the segments: theirs is the epoch in which they were uploaded, in a later life perhaps than their records.
    starts = dict(saved.epoch_starts if saved is not None else ())
    starts.update(partition.epoch_starts)
    partition.epoch_starts = [EpochStart(epoch, starts[epoch]) for epoch in sorted(starts)]


def _transactions(
    partition: PartitionLog,
    saved: TransactionSnapshot | None,
    state: PartitionState,
    found: TransactionSnapshot | None,
    *,
    known_end: int,
) -> TransactionSnapshot:
    local = partition.transactions.snapshot() if partition.transactions is not None else TransactionSnapshot()
    # Stable offset 0 is always true: it only tells a search where it may stop early.
    aborted = {
        each.last_offset: AbortedTransaction(
            producer_id=each.producer_id,
            first_offset=each.first_offset,
            marker_offset=each.last_offset,
            stable_offset=0,
        )
        for each in state.aborted
    }
    aborted.update((each.marker_offset, each) for each in (saved.aborted if saved is not None else ()))
    aborted.update((each.marker_offset, each) for each in local.aborted)
    if found is None:
        # All that the bucket has is decided, also what the WAL still takes for open because it has lost the marker.
        still_open = [each for each in local.open if each.first_offset >= partition.uploaded_end]
    else:
        # Bucket and WAL were read together. Where the WAL has lost a marker, its checkpoint may know what is read here as open
        # to be over, and another transaction of that producer to be open instead.
        aborted.update((each.marker_offset, each) for each in found.aborted)
        known = {each.producer_id: each for each in local.open}
        still_open = [
            each if each.first_offset >= known_end else known[each.producer_id]
            for each in found.open
            if each.first_offset >= known_end or each.producer_id in known
        ]
        still_open.sort(key=lambda each: each.first_offset)
    return TransactionSnapshot(
        open=still_open,
        decided=local.decided,
        aborted=[aborted[offset] for offset in sorted(aborted)],
    )
