"""Where a reset moves a committed offset: the one rule behind API, console and command line."""

import pytest

from headrace.broker.groups.reset_target import Extent, Target, target_offset

READ_TO_FIVE = Extent(start=2, end=9, committed=5)


@pytest.mark.parametrize(
    ("target", "value", "offset"),
    [
        (Target.EARLIEST, 0, 2),
        (Target.LATEST, 0, 9),
        (Target.OFFSET, 4, 4),
        (Target.OFFSET, 1, 2),
        (Target.OFFSET, 100, 9),
        (Target.SHIFT, -1, 4),
        (Target.SHIFT, -100, 2),
        (Target.SHIFT, 100, 9),
    ],
)
def test_a_reset_stays_within_what_the_partition_has(target: Target, value: int, offset: int) -> None:
    assert target_offset(target, value, READ_TO_FIVE) == offset


def test_a_group_that_has_committed_nothing_is_shifted_from_the_start() -> None:
    assert target_offset(Target.SHIFT, 3, Extent(start=2, end=9, committed=None)) == 5


def test_a_time_behind_every_record_is_the_end() -> None:
    assert target_offset(Target.TIME, 0, Extent(start=2, end=9, committed=5, at_time=7)) == 7
    assert target_offset(Target.TIME, 0, Extent(start=2, end=9, committed=5)) == 9
