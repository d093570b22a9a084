"""What a broker knows beyond its records (producers, transactions, epochs), kept in the bucket for its next disk.

The log's own checkpoint, copied as it is. It matters only to a broker that finds its WAL empty: then records come from
objects, and this tells it which producers had written them, so that a retry is still recognised as one.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from headrace.blob.store import BlobStore
from headrace.errors import Corrupted
from headrace.ids import BrokerId, TopicId, show_topic_id
from headrace.log.checkpoint import (
    Checkpoint,
    PartitionCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
)
from headrace.log.partition import EpochStart, PartitionLog
from headrace.log.producers import Producers
from headrace.log.store import LogStore
from headrace.log.transactions import AbortedTransaction, TransactionIndex, TransactionSnapshot
from headrace.telemetry.logging import get_logger
from headrace.tier.catalog import load_catalog, numbered
from headrace.tier.format import keys
from headrace.tier.format.catalog import PartitionState

_KEPT: Final = 2
"""The newest, and the one before in case its bytes turn out to be damaged."""

log = get_logger(__name__)


class BrokerStates:
    def __init__(self, blobs: BlobStore, logs: LogStore, broker: BrokerId) -> None:
        self._blobs = blobs
        self._logs = logs
        self._broker = broker
        self._saved_lsn = -1

    async def save(self) -> bool:
        """Copy the log's newest checkpoint to the bucket; False when it is there already."""
        checkpoint = await asyncio.to_thread(read_checkpoint, self._logs.directory)
        if checkpoint is None or checkpoint.lsn == self._saved_lsn:
            return False
        await self._blobs.put(keys.broker_state_key(self._broker, checkpoint.lsn), [encode_checkpoint(checkpoint)])
        self._saved_lsn = checkpoint.lsn
        old = [info.key async for info in numbered(self._blobs, self._prefix)][:-_KEPT]
        if old:
            await self._blobs.delete(old)
        return True

    async def restore(self) -> bool:
        """For an empty WAL on an old bucket; False when the WAL has a checkpoint of its own."""
        local = await asyncio.to_thread(read_checkpoint, self._logs.directory)
        if local is not None and local.ring_id == self._logs.ring_id:
            return False
        saved = await self._newest()
        known = {(each.topic_id, each.index): each for each in saved.partitions} if saved else {}
        catalog = await load_catalog(self._blobs)
        for partition in self._logs.partitions():
            state = catalog.partition(show_topic_id(TopicId(partition.topic_id)), partition.index)
            _apply(partition, known.get((partition.topic_id, partition.index)), state)
        return bool(known)

    @property
    def _prefix(self) -> str:
        return f"{keys.BROKER_STATES}{self._broker}/"

    async def _newest(self) -> Checkpoint | None:
        found = [info.key async for info in numbered(self._blobs, self._prefix)]
        for key in reversed(found):
            try:
                return decode_checkpoint(bytes(await self._blobs.get(key)))
            except Corrupted as error:
                log.error("saved broker state is damaged", key=key, reason=str(error))
        return None


def _apply(partition: PartitionLog, saved: PartitionCheckpoint | None, state: PartitionState) -> None:
    known = TransactionSnapshot()
    if saved is not None:
        partition.epoch_starts = [EpochStart(*start) for start in saved.epoch_starts]
        if saved.producers:
            partition.producers = Producers()
            partition.producers.restore(saved.producers)
        known = saved.transactions or known
    if known.open or known.decided or known.aborted or state.aborted:
        partition.transactions = TransactionIndex.restore(_with_aborted(known, state))
    if not partition.epoch_starts:
        partition.epoch_starts = list(_epochs_of(state))


def _with_aborted(known: TransactionSnapshot, state: PartitionState) -> TransactionSnapshot:
    """Manifests may know of markers that were written after the state was saved."""
    aborted = {each.marker_offset: each for each in known.aborted}
    for each in state.aborted:
        # Stable offset 0 is always true: it only tells a search where it may stop early.
        aborted.setdefault(
            each.last_offset,
            AbortedTransaction(
                producer_id=each.producer_id,
                first_offset=each.first_offset,
                marker_offset=each.last_offset,
                stable_offset=0,
            ),
        )
    ended = {(each.producer_id, each.first_offset) for each in aborted.values()}
    return TransactionSnapshot(
        open=[each for each in known.open if (each.producer_id, each.first_offset) not in ended],
        decided=known.decided,
        aborted=[aborted[offset] for offset in sorted(aborted)],
    )


def _epochs_of(state: PartitionState) -> Iterable[EpochStart]:
    epoch = -1
    for segment in state.segments:
        if segment.leader_epoch > epoch:
            epoch = segment.leader_epoch
            yield EpochStart(epoch, segment.base_offset)
