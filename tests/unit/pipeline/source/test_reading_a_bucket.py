"""Planning and reading against a real bucket on disk, without Spark and without a broker."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.bucket import LocalBucket, records

from headrace.errors import Corrupted, NotFound, StorageFailed, TopicNotFound
from headrace.pipeline.batches import coverage_between
from headrace.pipeline.decoder import Columns, Isolation
from headrace.pipeline.source import bucket as bucket_source
from headrace.pipeline.source import planning, reading
from headrace.pipeline.source.bucket import IDLE_REFRESHES_PER_LISTING, Bucket, BucketAddress
from headrace.pipeline.source.errors import DataLost, InvalidOption, TopicRecreated
from headrace.pipeline.source.log import BucketLog, PartitionView
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.options import SourceOptions, parse_options
from headrace.pipeline.source.planning import (
    Layout,
    ObjectRead,
    Task,
    ending_position,
    lost_topics,
    plan_tasks,
    resolve_bound,
    slices_between,
    slices_of_stream,
    starting_position,
)
from headrace.pipeline.source.pruning import Condition, Pruning, prune
from headrace.pipeline.source.reading import ReadSettings, TaskReader
from headrace.pipeline.tables.coverage import Coverage, PartitionId, Range
from headrace.records.batch import Codec
from headrace.tier.format.keys import manifest_key

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> LocalBucket:
    return LocalBucket(tmp_path)


def options_for(bucket: LocalBucket, **options: str) -> SourceOptions:
    return parse_options({"bucket": bucket.url, "subscribe": "orders", **options}, is_stream=False)


def open_log(options: SourceOptions) -> BucketLog:
    assert options.bucket is not None
    return BucketLog(options, Bucket(options.bucket))


def plan_all(options: SourceOptions, *, layout: Layout = Layout(), pruning: Pruning = Pruning()) -> list[Task]:
    log = open_log(options)
    view = log.view()
    start = resolve_bound(options.starting, view, log.offset_at, is_start=True)
    end = resolve_bound(options.ending, view, log.offset_at, is_start=False)
    slices = slices_between(start, end, view, is_loss_fatal=options.is_loss_fatal)
    bucket = log.footer_source()
    assert bucket is not None
    return plan_tasks(slices, bucket.footer, has_broker=False, layout=layout, pruning=pruning)


def read_tasks(options: SourceOptions, tasks: list[Task]) -> list[dict[str, Any]]:
    settings = ReadSettings(
        brokers=(), bucket=options.bucket, isolation=options.isolation, is_loss_fatal=options.is_loss_fatal
    )
    rows: list[dict[str, Any]] = []
    for task in tasks:
        reader = TaskReader(settings, Columns(["partition", "offset", "value"]))
        for batch in reader.read(task):
            rows += batch.to_pylist()
        reader.close()
    return rows


def offsets(bucket: LocalBucket, **options: str) -> list[int]:
    parsed = options_for(bucket, **options)
    return [row["offset"] for row in read_tasks(parsed, plan_all(parsed))]


def test_every_committed_record_is_read_once_and_in_order(bucket: LocalBucket) -> None:
    bucket.create_topic("orders", 2)
    for partition in range(2):
        bucket.append("orders", partition, records(150))
        bucket.append("orders", partition, records(70, start=150), codec=Codec.LZ4)
    parsed = options_for(bucket)
    rows = read_tasks(parsed, plan_all(parsed))
    assert [(row["partition"], row["offset"]) for row in rows] == [(p, o) for p in range(2) for o in range(220)]
    assert rows[219]["value"].startswith(b"value-219-")


def test_offsets_and_times_bound_what_is_read(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100, time_ms=1_000))
    bucket.append("orders", 0, records(100, start=100, time_ms=1_000))
    assert offsets(bucket, startingOffsets='{"orders": {"0": 95}}', endingOffsets='{"orders": {"0": 103}}') == list(
        range(95, 103)
    )
    assert offsets(bucket, startingTimestamp="1150") == list(range(150, 200))
    assert offsets(bucket, endingTimestamp="1050") == list(range(50))
    assert offsets(bucket, startingTimestamp="9999", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(InvalidOption, match="no record at or after"):
        offsets(bucket, startingTimestamp="9999")
    with pytest.raises(InvalidOption, match="past the end"):
        offsets(bucket, startingOffsets='{"orders": {"0": 201}}')
    with pytest.raises(InvalidOption, match="missing: orders-0"):
        offsets(bucket, startingOffsets='{"other": {"0": 1}}')


def test_large_segments_are_cut_at_runs_and_pruned(bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "READ_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(planning, "TASK_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(planning, "TASK_BYTES_MIN", 1 << 20)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(6_000, size=1_000, time_ms=0), batch_records=50)
    parsed = options_for(bucket)
    tasks = plan_all(parsed)
    assert len(tasks) >= 5
    assert [row["offset"] for row in read_tasks(parsed, tasks)] == list(range(6_000))

    pruned = plan_all(parsed, pruning=prune([Condition("offset", ">=", 5_900)]))
    assert sum(read.size for task in pruned for read in task) < 3 << 20
    assert {row["offset"] for row in read_tasks(parsed, pruned)} >= set(range(5_900, 6_000))
    late = plan_all(parsed, pruning=Pruning(since_ms=5_990))
    assert sum(read.size for task in late for read in task) < 3 << 20


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_there_are_a_few_tasks_for_every_core(bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Ten mebibytes in one object and ten in ten: tasks of about the same size, and none below the least."""
    monkeypatch.setattr(planning, "TASK_BYTES_MIN", 2 << 20)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10_240, size=1_000), batch_records=100)
    for start in range(10_240, 20_480, 1_024):
        bucket.append("orders", 0, records(1_024, start=start, size=1_000), batch_records=100)
    parsed = options_for(bucket)
    tasks = plan_all(parsed, layout=Layout(cores=cores))
    assert 2 * cores <= len(tasks) <= 3 * cores + 1
    sizes = [sum(read.size for read in task) for task in tasks]
    assert max(sizes[:-1]) < 2 * min(sizes[:-1])
    assert [row["offset"] for row in read_tasks(parsed, tasks)] == list(range(20_480))


def test_tasks_are_cut_as_the_user_asks(bucket: LocalBucket) -> None:
    bucket.create_topic("orders", 2)
    bucket.append("orders", 0, records(900))
    bucket.append("orders", 1, records(100))
    parsed = options_for(bucket)
    assert len(plan_all(parsed)) == 1
    for layout in (Layout(partitions_min=10), Layout(records_per_partition_max=100)):
        tasks = plan_all(parsed, layout=layout)
        assert len(tasks) >= 10
        rows = read_tasks(parsed, tasks)
        assert [(row["partition"], row["offset"]) for row in rows] == [(0, o) for o in range(900)] + [
            (1, o) for o in range(100)
        ]


def test_windows_smaller_than_a_batch_lose_nothing(bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WINDOW_BYTES", 777)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(200), batch_records=40)
    assert offsets(bucket) == list(range(200))


def test_aborted_transactions_are_left_out_with_the_bucket_alone(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(5), producer_id=1)
    bucket.append("orders", 0, records(5), producer_id=2)
    bucket.end_transaction("orders", 0, 1, first=0, is_commit=False)
    bucket.end_transaction("orders", 0, 2, first=5, is_commit=True)
    bucket.append("orders", 0, records(3))
    assert offsets(bucket, **{"isolation.level": "read_committed"}) == [5, 6, 7, 8, 9, 12, 13, 14]
    assert offsets(bucket) == [*range(10), 12, 13, 14]


def test_committed_readers_stop_at_the_last_stable_offset(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(5))
    from headrace.records.builder import build_batch

    pending = build_batch(records(5), now_ms=0, producer_id=9, is_transactional=True)
    bucket.append_batches("orders", 0, [pending], stable_offset=5)
    assert offsets(bucket, **{"isolation.level": "read_committed"}) == list(range(5))
    assert offsets(bucket) == list(range(10))


def test_a_compacted_object_is_found_again_after_planning(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    for start in range(0, 300, 100):
        bucket.append("orders", 0, records(100, start=start))
    parsed = options_for(bucket)
    tasks = plan_all(parsed)
    bucket.compact("orders", 0)
    assert [row["offset"] for row in read_tasks(parsed, tasks)] == list(range(300))


@pytest.mark.parametrize("is_loss_fatal", [True, False])
def test_retention_that_overtakes_a_planned_read(bucket: LocalBucket, is_loss_fatal: bool) -> None:
    bucket.create_topic("orders")
    for start in range(0, 300, 100):
        bucket.append("orders", 0, records(100, start=start))
    parsed = options_for(bucket, failOnDataLoss=str(is_loss_fatal))
    tasks = plan_all(parsed)
    bucket.delete_before("orders", 0, 100)
    if is_loss_fatal:
        with pytest.raises(DataLost, match="offsets 0 to 100"):
            read_tasks(parsed, tasks)
    else:
        assert [row["offset"] for row in read_tasks(parsed, tasks)] == list(range(100, 300))


@pytest.mark.parametrize("is_loss_fatal", [True, False])
def test_retention_that_overtook_a_stopped_query(bucket: LocalBucket, is_loss_fatal: bool) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    bucket.append("orders", 0, records(100, start=100))
    bucket.delete_before("orders", 0, 100)
    view = open_log(options_for(bucket)).view()
    if is_loss_fatal:
        with pytest.raises(DataLost, match="offsets 40 to 100 were deleted"):
            slices_between({PLACE: 40}, {PLACE: 200}, view, is_loss_fatal=True)
    else:
        (piece,) = slices_between({PLACE: 40}, {PLACE: 200}, view, is_loss_fatal=False)
        assert (piece.start, piece.end) == (100, 200)


@pytest.mark.parametrize("is_loss_fatal", [True, False])
def test_a_recreated_topic_stops_the_query_or_is_read_from_its_beginning(
    bucket: LocalBucket, is_loss_fatal: bool
) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    log = open_log(options_for(bucket))
    before = starting_position({PLACE: 10}, log.view())
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(5))
    view = log.view()
    if is_loss_fatal:
        with pytest.raises(TopicRecreated, match="failOnDataLoss=false"):
            ending_position(before, view, is_loss_fatal=True)
        return
    end = ending_position(before, view, is_loss_fatal=False)
    assert end == starting_position({PLACE: 5}, view)
    (piece,) = slices_of_stream(before, end, view, is_loss_fatal=False)
    assert (piece.start, piece.end) == (0, 5)
    assert lost_topics(before, end, view) == ["orders: the topic was deleted and created again"]
    covered = coverage_between(before, end)
    assert covered == Coverage({PartitionId(view[PLACE].topic_id, 0): [Range(0, 5)]})


def test_a_batch_whose_topic_was_made_anew_since_it_was_planned_has_nothing_to_read(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    log = open_log(options_for(bucket))
    start, end = (starting_position({PLACE: offset}, log.view()) for offset in (0, 10))
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(50))
    assert slices_of_stream(start, end, log.view(), is_loss_fatal=False) == []
    with pytest.raises(TopicRecreated):
        slices_of_stream(start, end, log.view(), is_loss_fatal=True)


@pytest.mark.parametrize("is_loss_fatal", [True, False])
def test_a_topic_deleted_under_a_planned_read_is_a_loss(bucket: LocalBucket, is_loss_fatal: bool) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    parsed = options_for(bucket, failOnDataLoss=str(is_loss_fatal))
    tasks = plan_all(parsed)
    bucket.create_topic("orders")
    shutil.rmtree(bucket.directory / "data")
    if is_loss_fatal:
        with pytest.raises(DataLost, match="offsets 0 to 10"):
            read_tasks(parsed, tasks)
    else:
        assert read_tasks(parsed, tasks) == []


def test_new_partitions_join_from_their_beginning(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    log = open_log(options_for(bucket))
    before = starting_position({PLACE: 10}, log.view())
    bucket.grow_topic("orders", 2)
    bucket.append("orders", 1, records(5))
    view = log.view()
    end = ending_position(before, view, is_loss_fatal=True)
    (piece,) = slices_between(before.offsets, end.offsets, view, is_loss_fatal=True)
    assert (piece.partition.place.partition, piece.start, piece.end) == (1, 0, 5)


def test_a_pattern_follows_topics_that_come(bucket: LocalBucket) -> None:
    bucket.create_topic("orders-eu")
    parsed = parse_options({"bucket": bucket.url, "subscribePattern": "orders-.*"}, is_stream=True)
    log = open_log(parsed)
    assert {place.topic for place in log.view()} == {"orders-eu"}
    bucket.create_topic("orders-us")
    bucket.create_topic("returns")
    assert {place.topic for place in log.view()} == {"orders-eu", "orders-us"}


def test_a_flipped_bit_in_an_object_is_found(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    (path,) = bucket.object_paths()
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupted, match="orders-0"):
        offsets(bucket)


def test_a_truncated_object_is_found(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(100))
    (path,) = bucket.object_paths()
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(Exception, match="data/"):
        offsets(bucket)


def test_a_bucket_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere is no directory here"):
        open_log(parse_options({"bucket": str(tmp_path / "nowhere"), "subscribe": "orders"}, is_stream=False))
    with pytest.raises(NotFound, match=r"no headrace cluster in .*cluster\.json is missing"):
        open_log(parse_options({"bucket": str(tmp_path), "subscribe": "orders"}, is_stream=False)).view()


def test_a_topic_that_is_not_there_is_named(bucket: LocalBucket) -> None:
    with pytest.raises(TopicNotFound, match="orders"):
        offsets(bucket)


def test_offsets_beyond_the_bucket_need_a_broker(bucket: LocalBucket) -> None:
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    view = open_log(options_for(bucket)).view()
    beyond = msgspec.structs.replace(view[PLACE], end=20)
    slices = slices_between({PLACE: 0}, {PLACE: 20}, {PLACE: beyond}, is_loss_fatal=True)
    with pytest.raises(DataLost, match="the bucket ends at 10"):
        plan_tasks(slices, lambda _: pytest.fail("no footer is needed"), has_broker=False)
    (task,) = plan_tasks(slices, lambda _: pytest.fail("no footer is needed"), has_broker=True)
    assert [type(read) for read in task] == [ObjectRead, planning.TailRead]


def test_committed_readers_take_the_unstable_part_from_the_broker(bucket: LocalBucket) -> None:
    """A record may be uploaded before its transaction's abort marker is: the bucket cannot judge it yet."""
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(10))
    options = options_for(bucket, **{"isolation.level": Isolation.READ_COMMITTED.value})
    state = open_log(options).view()[PLACE].stored
    assert state is not None
    view = PartitionView(
        place=PLACE,
        topic_id=state.topic_id,
        log_start=0,
        end=10,
        stored=msgspec.structs.replace(state, last_stable_offset=4),
        is_committed=True,
    )
    slices = slices_between({PLACE: 0}, {PLACE: 10}, {PLACE: view}, is_loss_fatal=True)
    bucket_reader = Bucket(options.bucket) if options.bucket else None
    assert bucket_reader is not None
    (task,) = plan_tasks(slices, bucket_reader.footer, has_broker=True)
    tail = task[-1]
    assert isinstance(tail, planning.TailRead)
    assert (tail.start, tail.end) == (4, 10)


def test_a_manifest_that_stays_missing_is_named_at_the_start_and_while_a_stream_waits(
    bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_source, "GAP_PAUSE_S", 0.0)
    bucket.create_topic("orders")
    bucket.append("orders", 0, records(3))
    address = BucketAddress(url=bucket.url)
    stream = Bucket(address)
    assert stream.refresh().number == 2
    for start in (3, 6):
        bucket.append("orders", 0, records(3, start=start))
    lost = bucket.directory / manifest_key(3)
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(StorageFailed, match="manifest 3 is missing"):
        Bucket(address).refresh()
    for _ in range(IDLE_REFRESHES_PER_LISTING - 1):
        assert stream.refresh().number == 2
    with pytest.raises(StorageFailed, match="manifest 3 is missing"):
        stream.refresh()
    lost.write_bytes(kept)
    assert stream.refresh().number == 4
