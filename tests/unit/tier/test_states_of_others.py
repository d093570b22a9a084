"""What several leaders saved of one partition: which of it came true."""

from types import SimpleNamespace
from typing import Any

from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.epochs import EpochStart
from headrace.log.producers import ProducerSnapshot
from headrace.tier.takeover import _true_part


def picture(end: int, epochs: list[tuple[int, int]], *offsets: int) -> PartitionCheckpoint:
    sent: list[tuple[int, int, int, int]] = [
        (sequence, sequence, offset, offset + 1) for sequence, offset in enumerate(offsets)
    ]
    producers = [ProducerSnapshot(7, 0, -1, sent)] if sent else []
    return PartitionCheckpoint(b"t" * 16, 0, 0, end, epochs, producers, None)


def partition(uploaded_end: int, *starts: tuple[int, int]) -> Any:  # Any: as much of a partition as is looked at
    return SimpleNamespace(uploaded_end=uploaded_end, epoch_starts=[EpochStart(*each) for each in starts])


def test_what_a_deposed_leader_wrote_beyond_its_epoch_never_was() -> None:
    saved = picture(20, [(0, 0), (3, 10)], 9, 12, 16)
    found = _true_part([saved], partition(30, (0, 0), (3, 10), (4, 14)))
    assert found is not None
    assert found.end_offset == 14
    assert [offset for _, _, offset, _ in found.producers[0].batches] == [9, 12]


def test_the_newest_epoch_counts_and_not_the_longest_log() -> None:
    older, newer = picture(90, [(0, 0), (1, 5)]), picture(40, [(0, 0), (1, 5), (2, 30)])
    found = _true_part([older, newer], partition(50, (0, 0), (1, 5), (2, 30)))
    assert found is not None
    assert found.end_offset == 40


def test_nothing_beyond_what_object_storage_has_is_believed() -> None:
    found = _true_part([picture(20, [(2, 0)], 3, 8)], partition(6, (2, 0)))
    assert found is not None
    assert found.end_offset == 6
    assert [offset for _, _, offset, _ in found.producers[0].batches] == [3]


def test_a_state_so_old_that_the_end_of_its_epoch_is_forgotten_tells_nothing() -> None:
    assert _true_part([picture(20, [(2, 0)])], partition(90, (70, 50), (71, 60))) is None
    assert _true_part([], partition(90, (70, 50))) is None
