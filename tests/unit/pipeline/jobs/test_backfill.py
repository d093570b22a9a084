from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.jobs.backfill import _cut
from headrace.pipeline.source.log import PartitionView
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range

ranges = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: Range(min(pair), max(pair)))
coverages = st.dictionaries(st.builds(PartitionId, st.just("t"), st.integers(0, 3)), st.lists(ranges, max_size=4)).map(
    Coverage
)


@given(coverages, st.integers(1, 40))
def test_pieces_of_a_backfill_cover_it_exactly_once(coverage: Coverage, records_max: int) -> None:
    seen = Coverage()
    partitions = {
        key: PartitionView(place=TopicPartition("t", key.partition), topic_id="t", log_start=0, end=50)
        for key in coverage.ranges
    }
    for piece in _cut(coverage, records_max, partitions):
        assert not piece.overlaps(seen)
        assert all(len(parts) == 1 for parts in piece.ranges.values())
        assert piece.count() <= max(records_max, len(piece.ranges))
        seen = seen.plus(piece)
    assert seen == coverage
