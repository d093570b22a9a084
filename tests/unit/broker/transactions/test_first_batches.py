"""The first batch of a transaction that a partition meets: what follows a refused one must not overtake it."""

from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, Opened, batch_of, opened
from tests.support.metastores import ManualClock

from headrace.broker.produce import Acknowledgement, Acks, Produce
from headrace.broker.transactions import first_batches
from headrace.errors import HeadraceError, InvalidTimestamp, OutOfOrderSequence, TransactionNotOpen
from headrace.log.partition import PartitionLog
from headrace.records.batch import BatchHeader
from headrace.records.builder import build_batch, build_marker
from headrace.records.record import NewRecord

PRODUCER = 7


class Sender:
    """A transactional producer of one partition, whose transaction is open unless it says so."""

    def __init__(self, log: Opened, *, begins_at_zero: bool = False) -> None:
        self._partition = log.partitions[0]
        self.produce = Produce(log.store, ManualClock(NOW_MS))
        self.produce.check_transaction = self._check
        self.is_open = True
        self._begins_at_zero = begins_at_zero

    def _check(self, partition: PartitionLog, header: BatchHeader) -> None:
        if not self.is_open:
            raise TransactionNotOpen("not yet")

    def send(self, sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER, at_ms: int = NOW_MS) -> int:
        batch = build_batch(
            [NewRecord(value=b"x", timestamp_ms=at_ms)],
            now_ms=NOW_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        ack = Acknowledgement()
        return self.produce.append(
            self._partition, batch, acks=Acks.ALL, ack=ack, begins_at_zero=self._begins_at_zero
        ).base_offset

    def refuse(self, sequence: int, error: type[HeadraceError] = TransactionNotOpen, **more: int) -> None:
        self.is_open = error is not TransactionNotOpen
        with pytest.raises(error):
            self.send(sequence, **more)
        self.is_open = True

    def mark(self, epoch: int) -> None:
        marker = build_marker(
            is_commit=True, producer_id=PRODUCER, producer_epoch=epoch, coordinator_epoch=0, now_ms=NOW_MS
        )
        self.produce.append_marker(self._partition, marker)


async def test_what_follows_a_refused_first_batch_waits_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        sender = Sender(log)
        sender.refuse(5)
        sender.refuse(6, OutOfOrderSequence)
        assert sender.send(5) == 0
        assert sender.send(6) == 1


async def test_without_a_refused_batch_an_unknown_producer_begins_anywhere(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        assert Sender(log).send(5) == 0


async def test_what_was_refused_under_a_former_epoch_or_before_a_marker_does_not_count(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        sender = Sender(log)
        sender.refuse(0)
        assert sender.send(3, epoch=1) == 0
        sender.mark(epoch=1)
        sender.refuse(3, epoch=1, producer_id=8)
        sender.refuse(4, OutOfOrderSequence, epoch=1, producer_id=8)


async def test_what_was_refused_because_another_broker_leads_does_not_count_once_this_one_does(tmp_path: Path) -> None:
    """The producer went on there: it would never send that batch here again."""
    async with opened(tmp_path) as log:
        sender, partition = Sender(log), log.partitions[0]
        partition.removed = True
        sender.refuse(0)
        partition.removed = False
        assert sender.send(20) == 0


async def test_what_was_refused_under_a_former_leader_epoch_does_not_count(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        sender, partition = Sender(log), log.partitions[0]
        sender.refuse(0)
        partition.leader_epoch += 2
        assert sender.send(20) == 0


async def test_each_transaction_of_the_second_version_begins_at_zero(tmp_path: Path) -> None:
    """Also where the partition knows the producer's epoch, from the marker of the last one, and no batch of it."""
    async with opened(tmp_path) as log:
        sender = Sender(log, begins_at_zero=True)
        sender.refuse(1, OutOfOrderSequence)
        assert sender.send(0) == 0
        sender.mark(epoch=1)
        sender.refuse(5, OutOfOrderSequence, epoch=1)
        assert sender.send(0, epoch=1) == 2
        assert sender.send(1, epoch=1) == 3


async def test_a_batch_that_could_not_be_added_holds_back_what_follows(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        sender = Sender(log)
        batch = batch_of(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
        sender.produce.note_not_added(log.partitions[0], batch)
        sender.refuse(1, OutOfOrderSequence)


async def test_a_wrong_time_is_told_before_a_wrong_sequence(tmp_path: Path) -> None:
    """It stays wrong however often the batch is sent; the sequence may not."""
    async with opened(tmp_path) as log:
        Sender(log, begins_at_zero=True).refuse(1, InvalidTimestamp, at_ms=NOW_MS + 10 * 3_600_000)


async def test_only_so_many_refused_batches_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_batches, "REFUSED_MAX", 3)
    async with opened(tmp_path) as log:
        sender = Sender(log)
        for producer_id in range(1, 5):
            sender.refuse(0, producer_id=producer_id)
        assert sender.send(1, producer_id=1) == 0, "the oldest is forgotten"
        sender.refuse(1, OutOfOrderSequence, producer_id=2)
