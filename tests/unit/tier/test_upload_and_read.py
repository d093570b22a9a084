"""From the WAL to objects and back: what was acknowledged is in the bucket, found again, and said so everywhere."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.support.logs import turn_of_the_loop
from tests.support.raw_groups import transactional_batch
from tests.support.raw_kafka import Producer
from tests.support.tier_node import MIB, QUIET, TierNode, eventually, read_tier, values_of

from headrace.blob.memory import MemoryBlobStore
from headrace.clock import SystemClock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.errors import Corrupted, Fault, NewerFormat, StaleEpoch, StoreUnavailable
from headrace.log.policy import Durability
from headrace.records.builder import build_marker
from headrace.telemetry.metrics import Metrics
from headrace.tier.format.object import decode_footer
from headrace.tier.inventory import load_inventory
from headrace.tier.uploader import Take


async def segments_of(node: TierNode, topic: str, partition: int) -> list[tuple[int, pb.Segment]]:
    found = await node.metastore.range(keys.segments(topic, partition))
    return [(int(item.key.rsplit("/", 1)[1]), values.decode(pb.Segment, item.value)) for item in found.items]


@pytest.mark.requirement("R3.41", "R3.53", "R3.6")
async def test_uploaded_records_are_read_back_in_order(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=3)
    for number in range(60):
        await node.append(topic.partitions[number % 3], f"{number}")
    await node.upload()
    for index, partition in enumerate(topic.partitions):
        assert partition.uploaded_end == 20
        assert values_of(await read_tier(node, partition)) == [f"{n}" for n in range(index, 60, 3)]
        assert (
            values_of(await read_tier(node, partition, 13, max_bytes=1)) == [f"{n}" for n in range(index, 60, 3)][13:]
        )
    await node.stop()


@pytest.mark.requirement("R3.43", "R3.44", "R3.118")
async def test_quiet_partitions_share_one_object_and_one_manifest(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("iot", partitions=1000)
    await asyncio.gather(*(_append(node, partition) for partition in topic.partitions))
    await node.upload()
    data = [info async for info in node.blobs.list("data/")]
    manifests = [info async for info in node.blobs.list("manifests/")]
    assert (len(data), len(manifests)) == (1, 1)
    assert all(partition.uploaded_end == 1 for partition in topic.partitions)
    assert values_of(await read_tier(node, topic.partitions[999])) == ["x"]
    await node.stop()


async def _append(node: TierNode, partition) -> None:  # type: ignore[no-untyped-def]  # PartitionLog
    await node.append(partition, "x")


@pytest.mark.requirement("R3.42")
async def test_busy_partition_gets_objects_of_its_own(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUIET, upload_stream_bytes=50_000)
    node = await TierNode(tmp_path, settings=settings).start()
    topic = await node.topics.create("t", partitions=3)
    for number in range(10):
        await node.append(topic.partitions[0], "b" * 10_000)
        await node.append(topic.partitions[1 + number % 2], "q")
    await node.upload()
    footers = [decode_footer(await node.blobs.get(info.key)) async for info in node.blobs.list("data/")]
    assert sorted((footer.kind.name, len({run.partition for run in footer.runs})) for footer in footers) == [
        ("STREAM", 1),
        ("STREAM_SET", 2),
    ]
    await node.stop()


async def test_at_full_speed_what_does_not_fill_an_object_waits(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUIET, upload_object_bytes=64 * 1024, upload_stream_bytes=60 * 1024)
    node = await TierNode(tmp_path, settings=settings).start()
    topic = await node.topics.create("t", partitions=4)
    for partition in topic.partitions:
        for _ in range(24):
            await node.append(partition, "x" * 1024)
    assert await node.tier.uploader.upload_round(Take.FULL_OBJECTS)
    sizes = [info.size async for info in node.blobs.list("data/")]
    assert len(sizes) == 1
    assert 62 * 1024 < sizes[0] < 66 * 1024
    assert sum(partition.uploaded_end > 0 for partition in topic.partitions) == 3
    # There is no full object in the rest.
    assert await node.tier.uploader.upload_round(Take.FULL_OBJECTS)
    assert len([info async for info in node.blobs.list("data/")]) == 1
    assert await node.tier.uploader.upload_round()
    assert [partition.uploaded_end for partition in topic.partitions] == [24] * 4
    assert len([info async for info in node.blobs.list("data/")]) == 2
    await node.stop()


@pytest.mark.requirement("R3.25", "R3.26", "R3.27")
async def test_metastore_shows_where_every_record_is(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a", "b")
    await node.tier.uploader.upload_round(Take.BUSY_PARTITIONS)
    assert [(base, s.status) for base, s in await segments_of(node, "t", 0)] == [(0, pb.IN_WAL)]
    await node.upload()
    (base, stored), (tail, open_) = await segments_of(node, "t", 0)
    assert (base, stored.status, stored.end_offset, tail, open_.status) == (0, pb.IN_OBJECT_STORE, 2, 2, pb.IN_WAL)
    info = await node.blobs.head(stored.object_key)
    assert stored.size_bytes < info.size
    await node.stop()


async def test_manifests_tell_a_reader_without_broker_the_same(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=2, config={"retention.ms": "-1"})
    for batch in range(3):
        await node.append(topic.partitions[0], f"{batch}")
        await node.upload()
    inventory = await load_inventory(node.blobs)
    known = inventory.topic_named("t")
    state = inventory.partition(known.topic_id, 0)
    assert inventory.cluster_id == node.cluster.cluster_id
    assert (known.partition_count, known.config) == (2, {"retention.ms": "-1"})
    assert [(s.base_offset, s.end_offset, s.last_stable_offset) for s in state.segments] == [
        (0, 1, 1),
        (1, 2, 2),
        (2, 3, 3),
    ]
    assert await node.tier.ledger.fold() == 3
    assert await load_inventory(node.blobs) == inventory
    await node.stop()


@pytest.mark.requirement("R3.46")
async def test_failed_upload_leaves_records_in_the_wal_and_is_retried(tmp_path: Path) -> None:
    blobs = FlakyStore(SystemClock())
    node = await TierNode(tmp_path, blobs).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    await node.append(partition, "a")
    blobs.failures = 1
    assert not await node.tier.uploader.upload_round()
    assert partition.uploaded_end == 0
    assert [(base, s.status) for base, s in await segments_of(node, "t", 0)] == [(0, pb.IN_WAL)]
    assert await node.tier.uploader.upload_round()
    assert partition.uploaded_end == 1
    assert values_of(await read_tier(node, partition)) == ["a"]
    await node.stop()


class FlakyStore(MemoryBlobStore):
    failures = 0

    async def put(self, key, chunks) -> None:  # type: ignore[no-untyped-def]  # as the port
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("503")
        await super().put(key, chunks)


async def test_records_survive_restart_wherever_they_are(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "uploaded")
    await node.upload()
    await node.append(topic.partitions[0], "only in the WAL")
    await node.restart()
    partition = node.topics.partition("t", 0)
    assert (partition.uploaded_end, partition.high_watermark) == (1, 2)
    await node.upload()
    assert values_of(await read_tier(node, partition)) == ["uploaded", "only in the WAL"]
    await node.stop()


async def test_one_corrupt_run_is_reported_and_the_rest_served(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=2)
    for partition in topic.partitions:
        await node.append(partition, "value")
    await node.upload()
    (info,) = [info async for info in node.blobs.list("data/")]
    damaged = bytearray(await node.blobs.get(info.key))
    damaged[70] ^= 0xFF
    await node.blobs.put(info.key, [damaged])
    with pytest.raises(Corrupted):
        await read_tier(node, topic.partitions[0])
    assert values_of(await read_tier(node, topic.partitions[1])) == ["value"]
    assert node.tier.metrics.tier_corrupt_runs_total == 1
    await node.stop()


async def test_bucket_of_another_cluster_is_refused(tmp_path: Path) -> None:
    node = await TierNode(tmp_path / "one").start()
    with pytest.raises(Fault, match=r"belongs to cluster .* `headrace tier restore`"):
        await TierNode(tmp_path / "two", node.blobs).start()
    await node.stop()


async def test_bucket_of_a_newer_headrace_is_refused_by_its_version(tmp_path: Path) -> None:
    blobs = MemoryBlobStore(SystemClock())
    await blobs.put("cluster.json", [b'{"format":"headrace","version":7,"cluster_id":"x"}'])
    with pytest.raises(NewerFormat, match=r"cluster\.json version 7; this headrace reads up to 1"):
        await TierNode(tmp_path, blobs).start()


async def test_timestamps_are_found_in_objects(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    for at_ms in (1000, 5000, 3000, 7000):
        await node.append(partition, f"at {at_ms}", at_ms=at_ms)
        await node.upload()
    assert await node.tier.reader.find_time(topic.id, 0, 2000) == (1, 5000)
    assert await node.tier.reader.find_time(topic.id, 0, 5001) == (3, 7000)
    assert await node.tier.reader.find_time(topic.id, 0, 7001) is None
    assert await node.tier.reader.newest(topic.id, 0) == (3, 7000)
    await node.stop()


async def test_object_durability_acknowledges_only_what_the_bucket_has(tmp_path: Path) -> None:
    blobs = HeldStore(SystemClock())
    node = await TierNode(tmp_path, blobs).start()
    topic = await node.topics.create("t", partitions=1, config={"durability": "object"})
    partition = topic.partitions[0]
    assert partition.policy.durability is Durability.OBJECT
    sent = node.send(partition, "a")
    await eventually(lambda: partition.durable_end == 1 and blobs.waiting == 1)
    assert (sent.is_done, partition.high_watermark) == (False, 0)
    blobs.gate.set()
    appended = await sent
    assert (appended.base_offset, partition.high_watermark, partition.uploaded_end) == (0, 1, 1)
    assert values_of(await read_tier(node, partition)) == ["a"]
    for each in [node.send(partition, f"{n}") for n in range(50)]:
        await each
    assert partition.high_watermark == 51
    await node.stop()


class HeldStore(MemoryBlobStore):
    """Uploads of data wait until the gate opens."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.gate = asyncio.Event()
        self.waiting = 0

    async def put(self, key, chunks) -> None:  # type: ignore[no-untyped-def]  # as the port
        if key.startswith("data/"):
            self.waiting += 1
            await self.gate.wait()
        await super().put(key, chunks)


async def test_durability_can_be_changed_under_load(tmp_path: Path) -> None:
    node = await TierNode(tmp_path).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    sent = []
    for number in range(90):
        sent.append(node.send(partition, f"{number}"))
        if number == 30:
            await node.topics.alter_config("t", lambda _: {"durability": "object"})
        if number == 60:
            await node.topics.alter_config("t", lambda _: {"durability": "wal"})
        await turn_of_the_loop()
    assert [(await each).base_offset for each in sent] == list(range(90))
    assert partition.high_watermark == 90
    await eventually(lambda: partition not in node.tier.uploader._commit_lane)
    await node.stop()


@pytest.mark.parametrize("has_checkpoint", [True, False])
async def test_the_stable_end_is_not_below_the_log_start_after_a_restart(tmp_path: Path, has_checkpoint: bool) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    for sequence in range(5):
        batch = transactional_batch([b"undecided"], Producer(5, 0), sequence, now_ms=1000)
        partition.append(batch, now_ms=1000)
    await node.logs.wal.drain()
    await node.topics.delete_records("t", 0, 3)
    assert partition.last_stable_offset == 3
    await (node.stop() if has_checkpoint else node.crash())
    await node.start()
    assert node.topics.partition("t", 0).last_stable_offset == 3
    await node.stop()


@pytest.mark.requirement("R3.38")
async def test_ring_is_reused_only_behind_uploads(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, wal_bytes=64 * MIB, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    value = "x" * 900_000
    sent = [value] * 40
    for each in sent:
        await node.append(partition, each)
    trim_before = node.logs.wal.trim_lsn
    await node.logs.trim()
    assert node.logs.wal.trim_lsn == trim_before
    await node.upload()
    assert node.logs.wal.trim_lsn > trim_before
    assert len(await read_tier(node, partition)) == 40
    await node.stop()


@pytest.mark.requirement("R3.54", "R3.55")
async def test_read_cache_forgets_the_least_recently_used(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUIET, cache_read_size_bytes=8 * MIB, read_ahead_bytes=0)
    node = await TierNode(tmp_path, settings=settings, wal_bytes=128 * MIB).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    for _ in range(24):
        await node.append(partition, "x" * 900_000)
    arenas = node.logs.memory.used_bytes
    await node.upload()
    cache = node.tier.reader._cache
    assert len(await read_tier(node, partition)) == 24
    assert cache.size <= 8 * MIB
    assert node.logs.memory.used_bytes == arenas
    fetched = node.tier.metrics.tier_fetched_bytes_total
    await read_tier(node, partition, 23)
    assert node.tier.metrics.tier_fetched_bytes_total == fetched
    await read_tier(node, partition, 0)
    assert node.tier.metrics.tier_fetched_bytes_total > fetched
    await node.stop()


@pytest.mark.requirement("R3.116")
async def test_a_scan_costs_one_get_per_four_megabytes_and_reads_nothing_twice(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, wal_bytes=256 * MIB).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    for _ in range(60):
        await node.append(partition, "x" * 900_000)
    await node.upload()
    node.tier.reader._cache.forget((await segments_of(node, "t", 0))[0][1].object_key)
    await read_tier(node, partition, max_bytes=2 * MIB)
    metrics = node.tier.metrics
    assert metrics.tier_cache_misses_total <= metrics.tier_fetched_bytes_total / (4 * MIB) + 1
    assert metrics.tier_fetched_bytes_total <= 1.1 * metrics.tier_read_bytes_total
    await node.stop()


@pytest.mark.requirement("R3.38")
async def test_full_ring_pauses_producers_until_the_store_is_back(tmp_path: Path) -> None:
    blobs = FlakyStore(SystemClock())
    settings = msgspec.structs.replace(QUIET, upload_interval_ms=50)
    node = await TierNode(tmp_path, blobs, settings, wal_bytes=64 * MIB).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    blobs.failures = 1_000_000
    written = 0
    while node.logs.can_take(MIB):
        await node.append(partition, "x" * 900_000)
        written += 1
    assert written > 40
    resumed = asyncio.Event()
    node.logs.when_room(resumed.set)
    blobs.failures = 0
    async with asyncio.timeout(60):
        await resumed.wait()
    await eventually(lambda: node.logs.can_take(MIB))
    assert len(await read_tier(node, partition)) > 0
    assert partition.log_start == 0
    await eventually(lambda: partition.uploaded_end == written)
    assert len(await read_tier(node, partition)) == written
    await node.stop()


async def test_a_newer_incarnation_of_the_broker_ends_this_one(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    await node.append(topic.partitions[0], "a")
    newer = await Cluster.load(node.metastore, node.clock)
    await newer.register(node.name, pb.BrokerRegistration())
    with pytest.raises(StaleEpoch):
        await node.tier.uploader.upload_round()
    assert [info async for info in node.blobs.list("data/")] == []
    await node.stop()


async def test_exposure_is_shown_per_partition(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    metrics = Metrics()
    node.tier.register_metrics(metrics)
    topic = await node.topics.create("t", partitions=2)
    await node.append(topic.partitions[1], "a")
    text = metrics.render().decode()
    assert 'headrace_exposure_bytes{partition="1",topic="t"}' in text
    assert 'partition="0"' not in text
    await node.upload()
    assert "headrace_exposure_bytes{" not in metrics.render().decode()
    await node.stop()


async def test_topic_deleted_during_an_upload_does_not_hold_up_the_others(tmp_path: Path) -> None:
    blobs = HeldStore(SystemClock())
    node = await TierNode(tmp_path, blobs, is_running_tier=False).start()
    doomed = await node.topics.create("doomed", partitions=1)
    kept = await node.topics.create("kept", partitions=1)
    for topic in (doomed, kept):
        await node.append(topic.partitions[0], "a")
    under_way = asyncio.ensure_future(node.tier.uploader.upload_round())
    await eventually(lambda: blobs.waiting == 1)
    await node.topics.delete("doomed")
    blobs.gate.set()
    assert not await under_way
    assert await node.tier.uploader.upload_round()
    assert values_of(await read_tier(node, kept.partitions[0])) == ["a"]
    await node.stop()


async def test_an_upload_that_was_collected_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker hangs past the grace period and another one gives its object up: coming back, it commits nothing."""
    blobs = HeldStore(SystemClock())
    settings = msgspec.structs.replace(QUIET, grace_ms=0)
    node = await TierNode(tmp_path, blobs, settings, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    await node.append(partition, "a")
    late = asyncio.ensure_future(node.tier.uploader.upload_round())
    await eventually(lambda: blobs.waiting == 1)
    while (await segments_of(node, "t", 0))[0][1].status != pb.UPLOADING:
        await turn_of_the_loop()
    monkeypatch.setattr(node.tier.commits, "is_under_way", lambda object_id: False)
    await node.tier.sweeper.collect_objects()
    blobs.gate.set()
    assert not await late
    assert partition.uploaded_end == 0
    assert await node.tier.uploader.upload_round()
    assert values_of(await read_tier(node, partition)) == ["a"]
    await node.stop()


async def test_newest_record_is_not_a_transaction_marker(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    partition = topic.partitions[0]
    await node.append(partition, "data", at_ms=5000)
    await node.upload()
    marker = build_marker(is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, now_ms=9000)
    await node.produce.append_marker(partition, marker)
    await node.upload()
    assert await node.tier.reader.newest(topic.id, 0) == (0, 5000)
    await node.stop()


async def test_newest_record_is_not_one_that_was_deleted(tmp_path: Path) -> None:
    node = await TierNode(tmp_path, is_running_tier=False).start()
    topic = await node.topics.create("t", partitions=1)
    for at_ms in (9000, 3000, 4000):
        await node.append(topic.partitions[0], "data", at_ms=at_ms)
    await node.upload()
    for log_start, newest in ((0, (0, 9000)), (1, (2, 4000)), (3, None)):
        await node.topics.delete_records("t", 0, log_start)
        await node.restart()
        assert await node.topics.partition("t", 0).newest_record() == newest
    await node.stop()
