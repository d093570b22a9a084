"""One partition at a start: what the WAL tells it, and how it goes on where something of the WAL is lost.

The order of a start: the checkpoint (`pictures.py`), `replay` of every batch of the ring, `recovered`. Where batches are lost,
`resume_above_ceiling`, `forget_lost_batches` and `forget_lost` before the first append, and `close_gap` once the log takes appends.
"""

from headrace.errors import CorruptBatch
from headrace.log.epochs import EpochStart
from headrace.log.exposure import exposed_from, stored_end
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.log.producers import Producers, still_stored
from headrace.records.batch import NO_PRODUCER, BatchHeader, Buffer
from headrace.records.builder import GAP_OFFSETS_MAX, build_gap


def replay(partition: PartitionLog, header: BatchHeader, batch: Buffer, lsn: int, *, is_in_checkpoint: bool) -> None:
    """A batch read back from the WAL. Its bytes stay on disk; only what is known about it returns to memory."""
    index = partition.tail.index
    if len(index) and header.base_offset < min(partition.end_offset, index.ends[-1]):
        raise CorruptBatch(f"{partition.topic_name}-{partition.index}: WAL goes back to offset {header.base_offset}")
    if not is_in_checkpoint and header.producer_id != NO_PRODUCER:
        partition.note_producer(header, header.base_offset, batch)
    epoch_starts = partition.epoch_starts
    if header.record_count and (not epoch_starts or header.leader_epoch > epoch_starts[-1].epoch):
        epoch_starts.append(EpochStart(header.leader_epoch, header.base_offset))
    partition.end_offset = max(partition.end_offset, header.end_offset)
    partition.durable_end = partition.end_offset
    if header.end_offset <= partition.uploaded_end:
        return
    partition.tail.add_stored(
        header.base_offset, header.end_offset, lsn=lsn, size=header.size, max_timestamp_ms=header.max_timestamp_ms
    )


def resume_above_ceiling(partition: PartitionLog) -> None:
    """Something of the WAL is lost: go on above every offset that can have been given out. See `close_gap`."""
    partition.end_offset = max(partition.end_offset, partition.ceiling)


def recovered(partition: PartitionLog) -> None:
    """Replay is over: what the WAL had is durable, and readable unless object storage must have it first."""
    partition.durable_end = partition.end_offset
    if partition.transactions is not None:
        # Checkpoint and WAL may tell of what began below the log start.
        partition.transactions.truncate_below(partition.log_start)
    partition.wal_end = min(partition.wal_end, partition.end_offset)
    readable = partition.end_offset if partition.policy.durability is Durability.WAL else partition.wal_end
    partition.high_watermark = max(partition.high_watermark, readable, partition.uploaded_end)


def forget_lost(partition: PartitionLog) -> None:
    """The WAL has lost its end: what is known of records that nobody has any more is forgotten.

    A repetition of one of them is news, and a transaction that had nothing else holds nobody up.
    """
    forget_lost_batches(partition)
    if partition.transactions is not None:
        partition.transactions.forget_from(stored_end(partition))


def forget_lost_batches(partition: PartitionLog) -> None:
    """Producers that repeat a batch which the WAL has lost, and object storage never had, must not hear that it is there."""
    if partition.producers is not None:
        in_tail = frozenset(partition.tail.index.offsets)
        kept = still_stored(partition.producers.snapshot(), exposed_from(partition), in_tail)
        partition.producers = Producers()
        partition.producers.restore(kept)


def close_gap(partition: PartitionLog, *, now_ms: int) -> int:
    """Append an empty batch over the offsets between the last stored batch and where the log goes on.

    They may have been given out, and their records are lost. Without it a consumer would wait in front of them for
    ever. Gives how many they are. After recovery, before the first append.
    """
    stored, goes_on_at = stored_end(partition), partition.end_offset
    if stored >= goes_on_at:
        return 0
    partition.end_offset = partition.durable_end = stored
    partition.high_watermark = min(partition.high_watermark, stored)
    while partition.end_offset < goes_on_at:
        gap = build_gap(min(goes_on_at - partition.end_offset, GAP_OFFSETS_MAX))
        partition.append_control(gap, now_ms=now_ms)
    return goes_on_at - stored
