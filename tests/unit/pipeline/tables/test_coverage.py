from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range

ranges = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: Range(min(pair), max(pair)))
keys = st.builds(PartitionId, st.sampled_from(["a", "b"]), st.integers(0, 1))
coverages = st.dictionaries(keys, st.lists(ranges, max_size=5), max_size=4).map(Coverage)


def offsets(coverage: Coverage) -> set[tuple[PartitionId, int]]:
    return {(key, o) for key, parts in coverage.ranges.items() for part in parts for o in range(part.start, part.end)}


@given(coverages, coverages)
def test_coverage_is_a_set_of_offsets(left: Coverage, right: Coverage) -> None:
    assert offsets(left.plus(right)) == offsets(left) | offsets(right)
    assert offsets(left.minus(right)) == offsets(left) - offsets(right)
    assert left.overlaps(right) == bool(offsets(left) & offsets(right))
    assert left.count() == len(offsets(left))
    assert bool(left) == bool(offsets(left))


@given(coverages)
def test_coverage_survives_its_text_and_has_only_one(coverage: Coverage) -> None:
    assert Coverage.parse(coverage.format()) == coverage
    assert Coverage.parse(coverage.format()).format() == coverage.format()


def test_neighbours_are_joined() -> None:
    key = PartitionId("a", 0)
    joined = Coverage({key: [Range(5, 9), Range(0, 5), Range(7, 12)]})
    assert joined.format() == '{"a":{"0":"0-12"}}'


def test_nothing_is_empty_text() -> None:
    assert Coverage.parse(None) == Coverage() == Coverage.parse("")
