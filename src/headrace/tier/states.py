"""What a broker knows beyond its records (producers, transactions, epochs), kept in the bucket for its next disk.

The log's own checkpoint, copied as it is. It matters only to a broker that finds its WAL empty: then records come from
objects, and this tells it which producers had written them, so that a retry is still recognised as one. What came since is
found in the records themselves, which are read once more: producers of what was uploaded behind the saved state, and
transactions, of which whatever is open begins at or behind the bucket's last stable offset.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, get_sound
from headrace.errors import Corrupted, StoreUnavailable
from headrace.ids import BrokerEpoch, BrokerId, TopicId, show_topic_id
from headrace.log.checkpoint import (
    Checkpoint,
    PartitionCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers, ProducerSnapshot, merged, truncated
from headrace.log.store import LogStore
from headrace.log.transactions import AbortedTransaction, OpenTransaction, TransactionIndex, TransactionSnapshot
from headrace.records.batch import NO_PRODUCER, BatchHeader, Buffer, iterate_batches
from headrace.records.builder import coordinator_epoch_of, is_commit_marker
from headrace.records.record import read_batch_records
from headrace.telemetry.logging import get_logger
from headrace.tier.catalog import load_catalog, numbered
from headrace.tier.format import keys
from headrace.tier.format.catalog import PartitionState

_KEPT: Final = 2
"""The newest, and the one before in case its bytes turn out to be damaged."""

_SCAN_BYTES: Final = 4 * 1024 * 1024

log = get_logger(__name__)


class BrokerStates:
    def __init__(self, blobs: BlobStore, logs: LogStore, broker: BrokerId, epoch: BrokerEpoch) -> None:
        self._blobs = blobs
        self._logs = logs
        self._broker = broker
        self._epoch = epoch
        self._saved_lsn = -1
        self._saved_count = 0

    async def save(self) -> bool:
        """Copy the log's newest checkpoint to the bucket; False when it is there already."""
        checkpoint = await asyncio.to_thread(self._logs.read_checkpoint)
        if checkpoint is None or checkpoint.lsn == self._saved_lsn:
            return False
        key = keys.broker_state_key(self._broker, self._epoch, self._saved_count)
        await self._blobs.put(key, [encode_checkpoint(checkpoint)])
        self._saved_lsn = checkpoint.lsn
        self._saved_count += 1
        old = [info.key async for info in numbered(self._blobs, self._prefix)][:-_KEPT]
        if old:
            await self._blobs.delete(old)
        return True

    async def restore(self, *, is_ring_lost: bool = False) -> bool:
        """Fill in what the WAL could not tell, after it was replayed: it is new, has lost a part, or its checkpoint is gone.

        Adds, never replaces: what the WAL knew is newer. False when the WAL has a checkpoint of its own, or no record was
        ever uploaded, so that the bucket has nothing to tell. Afterwards there is a checkpoint: only this once must the
        store be up. With `is_ring_lost` a checkpoint proves nothing: a start that failed may have written it.
        """
        local = await asyncio.to_thread(self._logs.read_checkpoint)
        if not is_ring_lost and local is not None and local.ring_id == self._logs.ring_id:
            return False
        was_uploaded = any(partition.uploaded_end for partition in self._logs.partitions())
        is_known = was_uploaded and await self._ask_bucket()
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

    async def _ask_bucket(self) -> bool:
        try:
            return await self._read_bucket()
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"this broker's WAL is new or has lost its checkpoint, and only the object store knows the producers and "
                f"transactions of what was uploaded: start it when the store is up ({error})"
            ) from error

    async def _read_bucket(self) -> bool:
        saved = await self._newest()
        known = {(each.topic_id, each.index): each for each in saved.partitions} if saved else {}
        catalog = await load_catalog(self._blobs)
        read_bytes = 0
        for partition in self._logs.partitions():
            state = catalog.partition(show_topic_id(TopicId(partition.topic_id)), partition.index)
            picture = known.get((partition.topic_id, partition.index))
            found = await _read_since(partition, state, picture.end_offset if picture is not None else 0)
            read_bytes += found.read_bytes
            _complete(partition, picture, state, found)
        log.info("producers and transactions read from the bucket", bytes=read_bytes, has_saved_state=bool(known))
        return bool(known)

    @property
    def _prefix(self) -> str:
        return f"{keys.BROKER_STATES}{self._broker}/"

    async def _newest(self) -> Checkpoint | None:
        found = [info.key async for info in numbered(self._blobs, self._prefix)]
        for key in reversed(found):
            try:
                return await get_sound(self._blobs, key, lambda data: decode_checkpoint(bytes(data)))
            except Corrupted as error:
                log.error("saved broker state is damaged", key=key, reason=str(error))
        return None


class _Found(msgspec.Struct, frozen=True):
    """What the records of one partition tell."""

    producers: list[ProducerSnapshot]
    """Of what object storage has behind the saved state."""
    undecided: list[OpenTransaction]
    """Transactions without an outcome."""
    read_bytes: int


async def _read_since(partition: PartitionLog, state: PartitionState, saved_end: int) -> _Found:
    """Read what the bucket has behind `saved_end`, and everything from its last stable offset to the end of the log."""
    producers, transactions = Producers(), TransactionIndex()
    # Nothing undecided in the bucket: what the WAL has of transactions was replayed.
    stable = state.last_stable_offset if state.last_stable_offset < state.end_offset else partition.durable_end
    stable = max(stable, partition.log_start)
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
    return _Found(producers.snapshot(), transactions.open_transactions(), read_bytes)


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


def _complete(partition: PartitionLog, saved: PartitionCheckpoint | None, state: PartitionState, found: _Found) -> None:
    # The saved state may know of records that were lost with the disk.
    known = truncated(saved.producers, partition.uploaded_end) if saved is not None else []
    local = partition.producers.snapshot() if partition.producers is not None else []
    if producers := merged(merged(known, found.producers), local):
        partition.producers = Producers()
        partition.producers.restore(producers)
    transactions = _transactions(partition, saved.transactions if saved is not None else None, state, found.undecided)
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
    undecided: Sequence[OpenTransaction],
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
    # What the WAL knows as open began there, or was opened before in the bucket: then that is where it begins.
    firsts = {each.producer_id: each for each in (*local.open, *undecided)}
    return TransactionSnapshot(
        open=sorted(firsts.values(), key=lambda each: each.first_offset),
        decided=local.decided,
        aborted=[aborted[offset] for offset in sorted(aborted)],
    )
