"""One partition in a checkpoint: taken of it, and given back to it."""

from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.epochs import EpochStart
from headrace.log.partition import PartitionLog
from headrace.log.producers import Producers
from headrace.log.transactions import TransactionIndex


def picture_of(partition: PartitionLog, lsn: int) -> PartitionCheckpoint:
    return PartitionCheckpoint(
        partition.topic_id,
        partition.index,
        partition.uploaded_end,
        partition.end_offset,
        [(start.epoch, start.start_offset) for start in partition.epoch_starts],
        partition.producers.snapshot() if partition.producers is not None else [],
        partition.transactions.snapshot() if partition.transactions is not None else None,
        lsn,
    )


def restore_picture(partition: PartitionLog, saved: PartitionCheckpoint) -> None:
    partition.uploaded_end = max(partition.uploaded_end, saved.uploaded_end)
    partition.end_offset = max(partition.end_offset, saved.end_offset)
    partition.epoch_starts = [EpochStart(*start) for start in saved.epoch_starts]
    if saved.producers:
        partition.producers = Producers()
        partition.producers.restore(saved.producers)
    if saved.transactions is not None:
        partition.transactions = TransactionIndex.restore(saved.transactions)
