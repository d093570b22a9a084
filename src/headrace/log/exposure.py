"""What only this broker's disk has of a partition: durable here, and not yet in object storage.

The WAL must keep it, uploads and spills take it from there, and a destroyed disk would lose it.
"""

from typing import TYPE_CHECKING

from headrace.log.tail import StoredBatch

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog


def exposed_from(partition: "PartitionLog") -> int:
    """First offset that only this broker's disk has."""
    return max(partition.uploaded_end, partition.log_start)


def stored_end(partition: "PartitionLog") -> int:
    """Behind the last batch that is stored anywhere."""
    index = partition.tail.index
    return max(exposed_from(partition), index.ends[-1] if len(index) else 0)


def first_unuploaded_lsn(partition: "PartitionLog", lsn_min: int = 0) -> int | None:
    """Address of the oldest batch at or above `lsn_min` that the WAL must keep for this partition; None when there is none."""
    return partition.tail.lsn_of(exposed_from(partition), lsn_min)


def unuploaded_between(partition: "PartitionLog", start_lsn: int, end_lsn: int) -> list[StoredBatch]:
    """The batches to keep whose addresses lie in `[start_lsn, end_lsn)`."""
    return partition.tail.stored_between(exposed_from(partition), start_lsn, end_lsn)
